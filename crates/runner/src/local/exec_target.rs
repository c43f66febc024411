//! Where a part in a trial is played: in a VM, or on the host itself.

use std::collections::BTreeMap;

use guest::{Cancel, ExecOutput, ExecStatusCode, GuestCommand, GuestFailure, OwnedVm};
use host::sandbox::{self, Sandbox, SandboxCommand, SandboxExecError, SandboxOutput};
use record::{Failure, FailureKind};

use super::failure::failure;
use super::thin::ThinPlace;
use crate::hosting::HostedVm;

/// Where guests look for programs that no package brought.
const GUEST_PROGRAMS_FOLDER: &str = "/usr/local/bin";

/// Where a part in a trial is played.
#[derive(Debug)]
pub(super) enum ExecTarget {
    /// A VM.
    Vm(Box<OwnedVm>),
    /// A VM whose whole software is the thin guest.
    Thin(Box<ThinPlace>),
    /// A VM that runs elsewhere.
    Hosted(Box<dyn HostedVm>),
    /// The host itself.
    Host(Sandbox),
}

/// The threads of a VM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Threads<'a> {
    /// QEMU's process.
    pub(super) pid: u32,
    /// The vCPUs', by vCPU index.
    pub(super) vcpu_tids: &'a [u32],
    /// True if libvirt started it.
    pub(super) is_domain: bool,
}

impl<'a> Threads<'a> {
    /// Those of a VM with an operating system.
    pub(super) fn of(vm: &'a OwnedVm) -> Self {
        Self { pid: vm.pid(), vcpu_tids: vm.vcpu_tids(), is_domain: vm.is_domain() }
    }
}

/// A command that did not come to its end, with what it had printed if it ran
/// out of time.
#[derive(Debug)]
pub(super) struct StoppedCommand {
    pub(super) failure: Failure,
    pub(super) output: Option<ExecOutput>,
}

impl StoppedCommand {
    /// What of a VM's failure is kept.
    fn of(error: GuestFailure) -> Self {
        let output = match &error {
            GuestFailure::TimeLimit { output, .. } => output.as_ref().clone(),
            _ => None,
        };
        Self { failure: failure(error), output }
    }
}

impl ExecTarget {
    /// Runs a command to its end.
    pub(super) fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, StoppedCommand> {
        match self {
            Self::Vm(vm) => vm.exec(command, cancel).map_err(StoppedCommand::of),
            Self::Hosted(vm) => vm.exec(command, cancel).map_err(StoppedCommand::of),
            Self::Thin(thin) => thin
                .exec(command, cancel)
                .map_err(|failure| StoppedCommand { failure, output: None }),
            Self::Host(sandbox) => {
                let asked = SandboxCommand {
                    argv: &command.argv,
                    env: &command.env,
                    stdin: command.stdin.as_deref(),
                    limit: command.limit,
                    max_output_bytes: command.max_output_bytes,
                };
                let ended = sandbox.exec(&asked, &|| cancel.is_cancelled());
                ended.map(said).map_err(|error| stopped(error, command))
            }
        }
    }

    /// Whether whoever is there still answers.
    pub(super) fn check_alive(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        match self {
            Self::Vm(vm) => vm.query_stats(cancel).map(drop).map_err(failure),
            Self::Hosted(vm) => vm.check_alive(cancel).map_err(failure),
            Self::Thin(thin) => thin.check_alive(cancel),
            Self::Host(sandbox) => sandbox.check_alive().map_err(|error| gone(&error)),
        }
    }

    /// The VM, if it is one.
    pub(super) fn vm(&self) -> Option<&OwnedVm> {
        match self {
            Self::Vm(vm) => Some(vm),
            Self::Thin(_) | Self::Hosted(_) | Self::Host(_) => None,
        }
    }

    /// The threads of the VM, if it is one of this machine.
    pub(super) fn threads(&self) -> Option<Threads<'_>> {
        let (pid, vcpu_tids, is_domain) = match self {
            Self::Vm(vm) => return Some(Threads::of(vm)),
            Self::Thin(thin) => (thin.pid(), thin.vcpu_tids(), false),
            Self::Hosted(_) | Self::Host(_) => return None,
        };
        Some(Threads { pid, vcpu_tids, is_domain })
    }

    /// Where in QEMU the memory of each backend is, by its id: an address in it. Of a VM
    /// with an operating system.
    pub(super) fn ram_addresses(&mut self, cancel: &Cancel) -> BTreeMap<String, u64> {
        match self {
            Self::Vm(vm) => vm.ram_addresses(cancel),
            Self::Thin(_) | Self::Hosted(_) | Self::Host(_) => BTreeMap::new(),
        }
    }

    /// What it is called in failures, behind a program that is missing.
    pub(super) fn where_it_is(&self) -> &'static str {
        match self {
            Self::Vm(_) | Self::Thin(_) | Self::Hosted(_) => "in the guest",
            Self::Host(_) => "on the host",
        }
    }

    /// The folder for a program of vmlab's own.
    pub(super) fn programs_folder(&self) -> &'static str {
        match self {
            Self::Vm(_) | Self::Thin(_) | Self::Hosted(_) => GUEST_PROGRAMS_FOLDER,
            Self::Host(_) => sandbox::PROGRAMS_FOLDER,
        }
    }

    /// Ends all that runs there.
    pub(super) fn shutdown(self) {
        match self {
            Self::Vm(vm) => vm.shutdown(),
            Self::Thin(thin) => thin.shutdown(),
            Self::Hosted(vm) => drop(vm),
            Self::Host(sandbox) => drop(sandbox),
        }
    }
}

fn said(output: SandboxOutput) -> ExecOutput {
    ExecOutput {
        stdout: output.stdout,
        stderr: output.stderr,
        status: match output.status {
            Ok(status) => ExecStatusCode::Exited(status),
            Err(signal) => ExecStatusCode::Signalled(signal),
        },
        wall: output.wall,
    }
}

fn stopped(error: SandboxExecError, command: &GuestCommand) -> StoppedCommand {
    let program = command.argv.first().cloned().unwrap_or_default();
    let (failure, output) = match error {
        SandboxExecError::TimeLimit { output } => {
            let output = said(output);
            let limit = command.limit;
            let printed = Box::new(Some(output.clone()));
            (failure(GuestFailure::TimeLimit { program, limit, output: printed }), Some(output))
        }
        SandboxExecError::OutputTooLarge => {
            let limit_bytes = command.max_output_bytes;
            (failure(GuestFailure::OutputTooLarge { program, limit_bytes }), None)
        }
        SandboxExecError::Cancelled => (failure(guest::Cancellation.into()), None),
        SandboxExecError::ProgramMissing => {
            let detail = format!("{program} is not on the host");
            (Failure::new(FailureKind::WorkloadMissing, detail), None)
        }
        error @ SandboxExecError::Gone { .. } => (gone(&error), None),
    };
    StoppedCommand { failure, output }
}

fn gone(error: &SandboxExecError) -> Failure {
    Failure::new(FailureKind::WorkloadFailed, error.to_string())
}
