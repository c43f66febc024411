//! The thin guest in the place of a VM with an operating system: it is given orders over
//! its serial line, and KVM's counters are taken at both ends of just their samples.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use guest::thin::{ThinFailure, ThinLaunch, ThinMessage, ThinVm};
use guest::{Cancel, ExecOutput, ExecStatusCode, GuestCommand};
use host::counters;
use record::{CounterSet, Failure, FailureKind};
use thinguest::{FORMAT_VERSION, Hello, Item, Measurement, Operation, Skip, TimerIrq};
use vmconfig::qemu::{SerialChannels, emit_serial};
use vmconfig::{VmSettings, VmSpec};

use super::LocalLab;
use super::failure::failure;
use crate::calibration::skipped;
use crate::thin::ThinCommand;

/// A running thin guest that takes orders.
#[derive(Debug)]
pub(super) struct ThinPlace {
    vm: ThinVm,
    hello: Option<Hello>,
    /// What KVM counted during samples, and what the guest did.
    kvm: BTreeMap<String, f64>,
    ipis: u64,
}

impl ThinPlace {
    /// Starts the VM of `spec`, and returns QEMU's arguments with it.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        spec: &VmSpec,
        name: &str,
    ) -> Result<(Self, Vec<String>), Failure> {
        let folder = lab.runtime.path();
        let channels = SerialChannels {
            qmp_socket: folder.join(format!("{name}.qmp")),
            serial_socket: folder.join(format!("{name}.serial")),
        };
        let mut settings: VmSettings = spec.clone().into();
        let own = [format!("vmlab-thin={FORMAT_VERSION}"), "orders=on".into(), "shake=on".into()];
        let words = own.into_iter().chain(std::mem::take(&mut settings.kernel_cmdline));
        settings.kernel_cmdline = words.collect();
        let spec = VmSpec::new(settings)
            .map_err(|error| Failure::new(FailureKind::VmRefused, error.to_string()))?;
        let args = emit_serial(&spec, &channels, &lab.capabilities).args;
        let launch = ThinLaunch {
            qemu: lab.qemu(),
            args: args.clone(),
            channels,
            env: lab.owner.env().to_vec(),
            items: Vec::new(),
            start_limit: lab.boot_limit(),
        };
        let vm = ThinVm::start(&launch, &lab.cancel).map_err(failure)?;
        Ok((Self { vm, hello: None, kvm: BTreeMap::new(), ipis: 0 }, args))
    }

    pub(super) fn pid(&self) -> u32 {
        self.vm.pid()
    }

    pub(super) fn vcpu_tids(&self) -> &[u32] {
        self.vm.vcpu_tids()
    }

    /// Waits until it is there; the time from QEMU's start to its first record.
    pub(super) fn wait_ready(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Duration, Failure> {
        let left = limit.saturating_sub(self.vm.started().elapsed());
        match self.vm.next(left, cancel).map_err(|error| thin_failure(error, limit))? {
            ThinMessage::Hello(hello) if hello.started < hello.vcpus => Err(Failure::new(
                FailureKind::NotAsClaimed,
                format!(
                    "only {} of {} vCPUs were started; the guest knows no more",
                    hello.started, hello.vcpus
                ),
            )),
            ThinMessage::Hello(hello) => {
                self.hello = Some(hello);
                // What is counted from the first run on has a count before it.
                let names = self.query_stats(cancel)?.into_keys();
                self.kvm = names.map(|name| (name, 0.0)).collect();
                Ok(self.vm.started().elapsed())
            }
            _ => Err(Failure::new(
                FailureKind::OutputNotUnderstood,
                "The thin guest did not begin with what it is".to_owned(),
            )),
        }
    }

    /// What it says of itself.
    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        let Some(hello) = self.hello else { return BTreeMap::new() };
        let timer = if hello.deadline { "tsc-deadline" } else { "count" };
        let all = [
            ("guest.apic", hello.apic.name().to_owned()),
            ("guest.apic_timer", timer.to_owned()),
            ("guest.tsc_khz", hello.tsc_khz.to_string()),
            ("guest.tsc_known_by", hello.clock.name().to_owned()),
        ];
        let timer_irq = hello.timer_irq.map(|TimerIrq { number, is_told }| {
            let assumed = if is_told { "" } else { " (nobody names it)" };
            ("guest.timer_irq", format!("{number}{assumed}"))
        });
        let all = all.into_iter().chain(timer_irq);
        all.map(|(name, word)| (name.to_owned(), word)).collect()
    }

    /// Does what a command of a workload's means to it.
    pub(super) fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, Failure> {
        let failed = |detail: String| Failure::new(FailureKind::WorkloadFailed, detail);
        let task = ThinCommand::of(&command.argv).map_err(|why| {
            let detail = format!("The thin guest: {why}");
            Failure::new(FailureKind::WorkloadMissing, detail)
        })?;
        let khz = self.hello.map_or(0, |hello| hello.tsc_khz);
        if khz == 0 {
            let detail = "The thin guest does not know its clock's rate".to_owned();
            return Err(failed(detail));
        }
        let begun = Instant::now();
        let said = task.run(khz, &mut |items| self.measure(items, begun, command.limit, cancel));
        Ok(ExecOutput {
            stdout: said?.into_bytes(),
            stderr: Vec::new(),
            status: ExecStatusCode::Exited(0),
            wall: begun.elapsed(),
        })
    }

    /// Orders `items` and waits for their records.
    fn measure(
        &mut self,
        items: &[Item],
        begun: Instant,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Vec<Measurement>, Failure> {
        self.vm.order(items);
        let mut found = Vec::new();
        let mut before = BTreeMap::new();
        while found.len() < items.len() {
            let left = limit.saturating_sub(begun.elapsed());
            match self.vm.next(left, cancel).map_err(|error| thin_failure(error, limit))? {
                ThinMessage::Ready(_) => {
                    before = self.query_stats(cancel)?;
                    self.vm.go();
                }
                ThinMessage::Taken => {
                    let after = self.query_stats(cancel)?;
                    add_counted(&mut self.kvm, &before, after);
                    self.vm.go();
                }
                ThinMessage::Done(done) => {
                    // One to itself is no IPI between vCPUs.
                    if !matches!(done.operation, Operation::SelfIpi | Operation::IrqWindow) {
                        self.ipis += done.ipis;
                    }
                    found.push(done);
                }
                ThinMessage::Skipped(operation, why) => {
                    let kind = match why {
                        Skip::NoAnswer => FailureKind::GuestHung,
                        _ => FailureKind::WorkloadFailed,
                    };
                    let detail = format!("{}: {}", operation.name(), skipped(why));
                    return Err(Failure::new(kind, detail));
                }
                ThinMessage::Hello(_) | ThinMessage::Bye => {
                    let detail = "The thin guest answers what was not asked".to_owned();
                    return Err(Failure::new(FailureKind::OutputNotUnderstood, detail));
                }
            }
        }
        Ok(found)
    }

    /// KVM's counters now, by its own names.
    fn query_stats(&mut self, cancel: &Cancel) -> Result<BTreeMap<String, f64>, Failure> {
        let stats = self.vm.query_stats(cancel).map_err(failure)?;
        // QEMU before 7.1 has none.
        Ok(if stats.is_empty() { counters::kvm::read_debugfs(self.pid()) } else { stats })
    }

    /// What KVM counted during all samples so far, and what the guest sent.
    pub(super) fn counters(&self) -> CounterSet {
        let mut all = counters::kvm::counters(&self.kvm);
        all.set("guest.ipi_reschedule", self.ipis as f64);
        // It has one kind.
        all.set("guest.ipi_call_function", 0.0);
        all
    }

    /// Whether QEMU's monitor still answers.
    pub(super) fn check_alive(&mut self, cancel: &Cancel) -> Result<(), Failure> {
        self.vm.query_stats(cancel).map(drop).map_err(failure)
    }

    pub(super) fn shutdown(self) {
        self.vm.shutdown();
    }
}

/// Adds to `all` what KVM counted from `before` to `after`; states are those of `after`.
fn add_counted(
    all: &mut BTreeMap<String, f64>,
    before: &BTreeMap<String, f64>,
    after: BTreeMap<String, f64>,
) {
    for (name, after) in after {
        let is_state = counters::kvm::is_state(&name);
        let before = before.get(&name).copied().unwrap_or(0.0);
        let sum = all.entry(name).or_default();
        *sum = if is_state { after } else { *sum + after - before };
    }
}

/// A failure of the thin guest as records hold it.
fn thin_failure(error: ThinFailure, limit: Duration) -> Failure {
    let kind = match &error {
        ThinFailure::Vm(_) => FailureKind::VmDied,
        ThinFailure::Silent { operation: None, .. } => FailureKind::GuestNeverAnswered,
        ThinFailure::Silent { .. } | ThinFailure::Stuck { .. } => FailureKind::TimeLimit,
        ThinFailure::Lie { .. } | ThinFailure::Refused { .. } => FailureKind::OutputNotUnderstood,
        ThinFailure::Flooded { .. } => FailureKind::GuestFlooded,
        ThinFailure::Fault { .. } | ThinFailure::Panicked { .. } => FailureKind::GuestPanicked,
    };
    let registers = error.registers().map(|all| format!("; its vCPUs:\n{all}"));
    let registers = registers.unwrap_or_default();
    let during = |operation: Option<Operation>| {
        operation.map(|operation| format!(" in {}", operation.name())).unwrap_or_default()
    };
    match error {
        ThinFailure::Vm(error) => failure(error),
        ThinFailure::Silent { operation, .. } => {
            let (limit, at) = (limit.as_secs(), during(operation));
            let detail = format!("The thin guest was not through in {limit} s{at}{registers}");
            Failure::new(kind, detail)
        }
        ThinFailure::Stuck { operation, .. } => {
            let at = during(operation);
            let detail = format!("The thin guest does not get past an instruction{at}{registers}");
            Failure::new(kind, detail)
        }
        error => Failure::new(kind, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kvm_counts_adds_up_and_states_are_the_last() {
        let stats = |exits: f64, pages: f64| {
            BTreeMap::from([("kvm.exits".to_owned(), exits), ("kvm.pages_2m".to_owned(), pages)])
        };
        let mut all = BTreeMap::new();
        add_counted(&mut all, &stats(10.0, 5.0), stats(15.0, 4.0));
        add_counted(&mut all, &stats(20.0, 4.0), stats(27.0, 3.0));
        assert_eq!(all, stats(12.0, 3.0));
    }

    #[test]
    fn a_guest_that_hangs_is_kept_with_all_registers() {
        let registers = "CPU#0\nRIP=1\nCPU#9\nRIP=2\n".to_owned();
        let operation = Some(Operation::Cpuid);
        let limit = Duration::from_secs(3);
        let stuck = ThinFailure::Stuck { operation, registers: registers.clone() };
        for failure in [stuck, ThinFailure::Silent { operation, limit, registers }] {
            let kept = thin_failure(failure, limit);
            assert_eq!(kept.kind, FailureKind::TimeLimit);
            assert!(
                kept.detail.ends_with("in cpuid; its vCPUs:\nCPU#0\nRIP=1\nCPU#9\nRIP=2"),
                "{kept:?}"
            );
        }
    }
}
