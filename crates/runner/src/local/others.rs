//! Other VMs that run beside the one under test.

use std::path::PathBuf;
use std::time::Duration;

use guest::{Cancel, GuestCommand, Vm};
use record::{Failure, FailureKind};
use workload::GuestFacts;

use super::{LocalLab, trial};
use crate::study::{LONGEST_LIMIT_S, Load, OtherVms};

/// Repeats a command until the VM ends, without holding on to anything that
/// its caller waits for.
const FOREVER: &str = "(while :; do \"$@\"; done) </dev/null >/dev/null 2>&1 9>&- &";

/// A VM that repeats a workload; ended on drop.
#[derive(Debug)]
pub(super) struct OtherVm {
    vm: Vm,
    name: String,
    console_log: PathBuf,
}

impl OtherVm {
    /// Boots number `number` of `vms`, sees its workload run once, and lets it
    /// repeat.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        load: &Load,
        vms: &OtherVms,
        number: u32,
    ) -> Result<Self, Failure> {
        let failed = |failure: Failure| match failure.kind {
            FailureKind::Aborted => failure,
            _ => Failure {
                kind: FailureKind::HostLoadFailed,
                detail: format!("Other VM {number} of load {}: {failure}", load.name),
            },
        };
        let missing = |detail: String| Failure { kind: FailureKind::HostLoadFailed, detail };
        let spec = lab
            .plan
            .other_vms
            .get(&load.name)
            .ok_or_else(|| missing(format!("The plan has no VM for load {}", load.name)))?;
        let entry = workload::find(&vms.workload).map_err(|error| missing(error.to_string()))?;
        let params = entry.resolve(&vms.params).map_err(|error| missing(error.to_string()))?;
        let facts =
            GuestFacts { vcpus: spec.vcpus(), emulated: lab.plan.environment().is_emulated_time() };
        let name = format!("other-{number}");
        let console_log = lab.runtime.path().join(format!("{name}.console"));
        let (mut vm, _) = trial::start(lab, spec, &name, &console_log).map_err(failed)?;
        let boot_limit = Duration::from_secs_f64(lab.plan.budget.boot_limit_s);
        let guest = |error| failed(trial::failure(error));
        vm.wait_ready(boot_limit, &lab.cancel).map_err(guest)?;

        let argv = entry.command(&params, &facts);
        let limit_s = (entry.duration_s(&params, &facts) * 10.0 + 60.0).min(LONGEST_LIMIT_S);
        let limit = Duration::from_secs_f64(limit_s);
        let once = vm.exec(&GuestCommand::new(argv.clone(), limit), &lab.cancel).map_err(guest)?;
        if !once.success() {
            let text = once.stderr_text();
            return Err(failed(Failure {
                kind: FailureKind::WorkloadFailed,
                detail: format!("{}: {}", entry.name, trial::last_words(&text)),
            }));
        }
        let shell = ["sh", "-c", FOREVER, "sh"].map(str::to_owned);
        let forever = GuestCommand::new(shell.into_iter().chain(argv), Duration::from_secs(30));
        vm.exec(&forever, &lab.cancel).map_err(guest)?;
        Ok(Self { vm, name, console_log })
    }

    /// Whether the VM still runs.
    pub(super) fn check_alive(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        match self.vm.query_stats(cancel) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failure {
                kind: FailureKind::HostLoadFailed,
                detail: format!("{}: {error}", self.name),
            }),
        }
    }
}

impl Drop for OtherVm {
    fn drop(&mut self) {
        // It lies in the runtime folder, which goes with its run anyway.
        drop(std::fs::remove_file(&self.console_log));
    }
}
