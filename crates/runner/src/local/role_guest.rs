//! One guest of a trial, or the host in its place: preparing it, and what runs
//! in it beside the benchmark's command.

use std::fmt;
use std::time::Duration;

use guest::{Cancel, ExecOutput, ExecStatusCode, GuestCommand};
use host::counters::tracing::{ExitCounter, Tracing, TracingError};
use host::counters::{self, VmThreads};
use record::{CounterSet, Failure, FailureKind};
use vmconfig::Arch;
use workload::{CatalogueEntry, GuestFacts, GuestStep, Params, RAW_DISK, SCRATCH, UnderTest};

use super::exec_target::{ExecTarget, StoppedCommand};
use super::failure::failure;
use crate::probe;

/// Lines of a failed program's output that its failure shows.
const LAST_WORDS_LINES: usize = 5;

/// Time limit for what takes a moment in a guest that works: beside a benchmark
/// with real-time priority, on emulated pCPUs that others want too, half a minute.
pub(super) const MOMENT: Duration = Duration::from_secs(120);

/// Starts a program that goes on: `$1` is its log, `$2` the condition under
/// which it is ready, the rest is the program. Prints its process.
const START: &str = "log=$1 ready=$2\n\
    shift 2\n\
    setsid \"$@\" </dev/null >\"$log\" 2>&1 9>&- &\n\
    pid=$!\n\
    until sh -c \"$ready\" >/dev/null 2>&1; do\n\
    if ! [ -d /proc/$pid ] || grep -q '^State:.Z' /proc/$pid/status; then\n\
    tail -n 5 \"$log\" >&2; exit 1\nfi\n\
    sleep 0.1\n\
    done\n\
    echo $pid";

/// Repeats a program until it fails or is ended: `$1` is the log of its
/// present turn. Prints the process that repeats it.
const REPEAT: &str = "setsid sh -c 'log=$1; shift; while \"$@\" >\"$log\" 2>&1; do :; done' sh \"$@\" \
    </dev/null >/dev/null 2>&1 9>&- &\n\
    echo $!";

/// Ends the group of process `$1`; fails with its log, `$2`, if it had ended.
const END: &str = "if ! [ -d /proc/$1 ] || grep -q '^State:.Z' /proc/$1/status; then\n\
    echo 'it had failed before the benchmark ended:' >&2\n\
    tail -n 4 \"$2\" >&2; exit 1\nfi\n\
    kill -KILL \"-$1\"";

/// Log of what runs beside the command.
const BACKGROUND_LOG: &str = "/tmp/vmlab-background.log";

/// A guest that plays its part in a trial.
#[derive(Debug)]
pub(super) struct RoleGuest {
    pub(super) place: ExecTarget,
    /// What it is and whom it talks to.
    pub(super) facts: GuestFacts,
    /// What it is called, where there are other guests.
    pub(super) name: Option<GuestName>,
    /// What is counted of it, once that has begun.
    pub(super) counted: Option<VmCounters>,
    /// The process that repeats a background there.
    pub(super) beside: Option<String>,
    /// Whether its kernel counts what is waited for locks.
    pub(super) counts_locks: bool,
}

/// The empty disks as a guest sees them.
#[derive(Debug)]
pub(super) struct SeenDisks {
    /// Their serial numbers.
    pub(super) serials: Vec<String>,
    /// Whether they have no file system.
    pub(super) raw: bool,
}

impl RoleGuest {
    /// A guest of which nothing is counted yet.
    pub(super) fn new(place: ExecTarget, facts: GuestFacts, name: Option<GuestName>) -> Self {
        Self { place, facts, name, counted: None, beside: None, counts_locks: false }
    }
}

/// What tells a trial's guests apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuestName {
    /// By its role in a benchmark of two.
    Role(UnderTest),
    /// By its number among those that are measured together.
    Number(u32),
}

impl fmt::Display for GuestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Role(role) => role.fmt(f),
            Self::Number(number) => write!(f, "VM {number}"),
        }
    }
}

/// What is counted of a VM.
#[derive(Debug)]
pub(super) struct VmCounters {
    threads: VmThreads,
    /// Exits by reason, where the kernel counts them.
    exits: Option<ExitCounter>,
}

impl RoleGuest {
    /// `failure` with the name of this guest, where there are others.
    pub(super) fn named(&self, failure: Failure) -> Failure {
        named(self.name, failure)
    }

    /// Waits until the guest is up; its boot. The host is.
    pub(super) fn wait_ready(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Option<Duration>, Failure> {
        let boot = match &mut self.place {
            ExecTarget::Host(_) => return Ok(None),
            ExecTarget::Thin(thin) => thin.wait_ready(limit, cancel),
            ExecTarget::Vm(vm) => vm.wait_ready(limit, cancel).map_err(failure),
            ExecTarget::Hosted(vm) => vm.wait_ready(limit, cancel).map_err(failure),
        };
        boot.map(Some).map_err(|failure| named(self.name, failure))
    }

    /// Runs `argv` to its end.
    pub(super) fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, StoppedCommand> {
        self.place.exec(command, cancel)
    }

    /// Runs `argv`, which must end with status 0.
    pub(super) fn must<T: Into<String>>(
        &mut self,
        what: &str,
        argv: impl IntoIterator<Item = T>,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<String, Failure> {
        self.must_with(what, GuestCommand::new(argv, limit), cancel)
    }

    fn must_with(
        &mut self,
        what: &str,
        command: GuestCommand,
        cancel: &Cancel,
    ) -> Result<String, Failure> {
        let output = self
            .exec(&command, cancel)
            .map_err(|stopped| self.named(stopped.failure.within(what)))?;
        let (stdout, stderr) = (output.stdout_text(), output.stderr_text());
        if output.success() {
            return Ok(stdout);
        }
        let said = if stderr.trim().is_empty() { &stdout } else { &stderr };
        let detail = format!("{what} {}: {}", how(output.status), last_words(said));
        Err(self.named(Failure::new(FailureKind::WorkloadFailed, detail)))
    }

    /// Refuses a guest without the programs that a role needs.
    pub(super) fn require(&mut self, programs: &[&str], cancel: &Cancel) -> Result<(), Failure> {
        if programs.is_empty() {
            return Ok(());
        }
        let script = "for p do command -v \"$p\" >/dev/null || echo \"$p\"; done";
        let argv = ["sh", "-c", script, "sh"].into_iter().chain(programs.iter().copied());
        let missing = self.must("looking for programs", argv, MOMENT, cancel)?;
        if missing.trim().is_empty() {
            return Ok(());
        }
        let place = self.place.where_it_is();
        let detail = format!("{} is not {place}", missing.trim().replace('\n', ", "));
        Err(self.named(Failure::new(FailureKind::WorkloadMissing, detail)))
    }

    /// Does `steps` in their order, each in at most `limit`.
    pub(super) fn prepare(
        &mut self,
        steps: &[GuestStep],
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        for (number, step) in steps.iter().enumerate() {
            match step {
                GuestStep::Write { path, text } => {
                    let script = "mkdir -p \"${1%/*}\" && cat >\"$1\"";
                    let mut command = GuestCommand::new(["sh", "-c", script, "sh", path], limit);
                    command.stdin = Some(text.clone().into_bytes());
                    self.must_with(&format!("writing {path}"), command, cancel)?;
                }
                GuestStep::Run(argv) => {
                    let program = argv.first().cloned().unwrap_or_default();
                    self.must(&format!("preparing with {program}"), argv, limit, cancel)?;
                }
                GuestStep::Start(daemon) => {
                    let program = daemon.argv.first().cloned().unwrap_or_default();
                    let (log, ready) = (format!("/tmp/vmlab-{number}.log"), daemon.ready.script());
                    let words = ["sh", "-c", START, "sh", &log, &ready].map(str::to_owned);
                    let argv = words.into_iter().chain(daemon.argv.iter().cloned());
                    let what = format!("{program}, which did not {},", daemon.ready);
                    self.must(&what, argv, limit, cancel)?;
                }
            }
        }
        Ok(())
    }

    /// Does what `entry` wants of a guest that has all its roles, each step in at most
    /// `limit`; `disks` are the empty ones that it has.
    pub(super) fn prepare_alone(
        &mut self,
        (entry, params): (&CatalogueEntry, &Params),
        arch: Arch,
        disks: Option<&SeenDisks>,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        if let Some(disks) = disks {
            self.find_disks(disks, cancel)?;
        }
        let server = entry.beside.server.as_ref().map_or(&[][..], |server| server.needs);
        if entry.needs.iter().chain(server).any(|need| *need == probe::PROGRAM) {
            self.install_probe(arch, cancel)?;
        }
        self.require(server, cancel)?;
        let mut steps = entry.server_setup(params, &self.facts);
        steps.extend(entry.setup(params, &self.facts));
        self.prepare(&steps, limit, cancel)
    }

    /// Puts the guests' own program where programs are found.
    pub(super) fn install_probe(&mut self, arch: Arch, cancel: &Cancel) -> Result<(), Failure> {
        let missing = |detail: String| Failure::new(FailureKind::WorkloadMissing, detail);
        let path = probe::find(arch).map_err(|error| missing(error.to_string()))?;
        let bytes = std::fs::read(&path)
            .map_err(|error| missing(format!("Cannot read {}: {error}", path.display())))?;
        let path = format!("{}/{}", self.place.programs_folder(), probe::PROGRAM);
        let script = "mkdir -p \"${1%/*}\" && cat >\"$1\" && chmod 755 \"$1\"";
        let mut command = GuestCommand::new(["sh", "-c", script, "sh", &path], MOMENT);
        command.stdin = Some(bytes);
        self.must_with(&format!("writing {path}"), command, cancel).map(drop)
    }

    /// Gives the empty disks their names, or mounts the one with a file system; the host
    /// finds that mounted.
    pub(super) fn find_disks(&mut self, disks: &SeenDisks, cancel: &Cancel) -> Result<(), Failure> {
        if self.place.vm().is_none() {
            return Ok(());
        }
        // No udev runs in the builtin images: drivers are asked for. A SCSI disk's number
        // stands between bytes of its page. Inode tables that mke2fs left for later must
        // not be written meanwhile.
        let script = "for module in virtio_blk virtio_scsi ahci sd_mod nvme ext4; do\n\
            modprobe $module 2>/dev/null || :\ndone\n\
            raw=$1 folder=$2 number=0 taken=\nshift 2\n\
            for serial; do\nnumber=$((number + 1)) found=\n\
            until [ -n \"$found\" ]; do\n\
            for device in /sys/block/*; do\n\
            name=${device##*/}\n\
            case \" $taken \" in *\" $name \"*) continue ;; esac\n\
            said=$(cat $device/serial $device/device/serial $device/device/vpd_pg80 \
            2>/dev/null | tr -dc 'a-zA-Z0-9_-')\n\
            case $said in *$serial) found=$name; break ;; esac\n\
            done\n\
            [ -n \"$found\" ] || sleep 0.1\n\
            done\n\
            taken=\"$taken $found\"\n\
            if [ $raw = raw ]; then\n\
            ln -sf \"/dev/$found\" \"$folder$number\"\n\
            else\n\
            mkdir -p \"$folder\" && mount -t ext4 -o noinit_itable \"/dev/$found\" \"$folder\" \\\n\
            && chmod 1777 \"$folder\" || exit\n\
            fi\n\
            done";
        let (kind, folder) = if disks.raw { ("raw", RAW_DISK) } else { ("mounted", SCRATCH) };
        let mut argv = ["sh", "-c", script, "sh", kind, folder].map(str::to_owned).to_vec();
        argv.extend(disks.serials.iter().cloned());
        self.must("finding the empty disks", argv, MOMENT, cancel).map(drop)
    }

    /// Gives the interface with address `mac` its address, and returns once
    /// `wait_for` answers, if there is somebody to wait for. The host has its
    /// address from the start.
    pub(super) fn connect(
        &mut self,
        mac: &str,
        address: &str,
        wait_for: Option<&str>,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<(), Failure> {
        if self.place.vm().is_none() {
            return Ok(());
        }
        // No udev runs in the builtin images: the driver is asked for.
        let script = "for module in virtio_net e1000e e1000 8139cp; do\n\
            modprobe $module 2>/dev/null || :\ndone\n\
            found=\n\
            until [ -n \"$found\" ]; do\n\
            for device in /sys/class/net/*; do\n\
            read -r mac <$device/address && [ \"$mac\" = \"$1\" ] && found=${device##*/}\n\
            done\n\
            [ -n \"$found\" ] || sleep 0.1\n\
            done\n\
            ip link set \"$found\" up && ip address add \"$2/24\" dev \"$found\" || exit\n\
            [ -z \"$3\" ] || until ping -c 1 -W 1 \"$3\" >/dev/null; do sleep 0.1; done";
        let argv = ["sh", "-c", script, "sh", mac, address, wait_for.unwrap_or("")];
        self.must("its network", argv, limit, cancel).map(drop)
    }

    /// Lets `argv` repeat beside what follows, until [`Self::end`].
    pub(super) fn repeat(&mut self, argv: Vec<String>, cancel: &Cancel) -> Result<String, Failure> {
        let words = ["sh", "-c", REPEAT, "sh", BACKGROUND_LOG].map(str::to_owned);
        let pid =
            self.must("starting the background", words.into_iter().chain(argv), MOMENT, cancel)?;
        Ok(pid.trim().to_owned())
    }

    /// Ends what [`Self::repeat`] began; a failure if it had ended by itself.
    pub(super) fn end(&mut self, pid: &str, what: &str, cancel: &Cancel) -> Result<(), Failure> {
        let what = format!("ending the background {what}");
        self.must(&what, ["sh", "-c", END, "sh", pid, BACKGROUND_LOG], MOMENT, cancel).map(drop)
    }

    /// Begins to count; exits by reason through `tracing`, where there is one.
    /// The host has none.
    ///
    /// # Errors
    /// Why exits are not counted by reason; the rest is counted.
    pub(super) fn begin_counting(&mut self, tracing: Option<&Tracing>) -> Result<(), TracingError> {
        let Some(vm) = self.place.threads() else { return Ok(()) };
        let threads = VmThreads::find(vm.pid, vm.vcpu_tids);
        let exits = tracing.map(|tracing| tracing.count(&threads.vcpu_tids)).transpose();
        let (exits, problem) = match exits {
            Ok(exits) => (exits, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.counted = Some(VmCounters { threads, exits });
        problem
    }

    /// The counters of this guest and its QEMU, or of the host's pCPUs.
    pub(super) fn counters(&mut self, cancel: &Cancel) -> Result<CounterSet, Failure> {
        match &self.place {
            ExecTarget::Host(sandbox) => return Ok(counters::read_seat(sandbox.pcpus())),
            ExecTarget::Thin(thin) => {
                let mut all = thin.counters();
                all.merge(self.counted());
                return Ok(all);
            }
            ExecTarget::Vm(_) | ExecTarget::Hosted(_) => {}
        }
        let command = GuestCommand::new(["cat", "/proc/stat", "/proc/interrupts"], MOMENT);
        let text = self.exec(&command, cancel);
        let text = text.map_err(|stopped| self.named(stopped.failure))?.stdout_text();
        // The table of interrupts begins with the row of vCPU names.
        let split = text.find("\n  ").map_or(text.len(), |at| at + 1);
        let (stat, interrupts) = text.split_at(split);
        let mut all = counters::parse_guest(stat, interrupts, self.facts.vcpus);
        all.merge(self.locks(cancel)?);
        let ExecTarget::Vm(vm) = &mut self.place else { return Ok(all) };
        let mut kvm = vm.query_stats(cancel).map_err(|error| named(self.name, failure(error)))?;
        if kvm.is_empty() {
            kvm = counters::kvm::read_debugfs(vm.pid());
        }
        all.merge(counters::kvm::counters(&kvm));
        let stats = vm.domain_stats(cancel).map_err(|error| named(self.name, failure(error)))?;
        all.merge(counters::domain_counters(&stats));
        all.merge(self.counted());
        Ok(all)
    }

    /// What the guest's kernel counts of its locks, if it does.
    fn locks(&mut self, cancel: &Cancel) -> Result<CounterSet, Failure> {
        if !self.counts_locks {
            return Ok(CounterSet::default());
        }
        let mut command = GuestCommand::new(["sh", "-c", counters::READ_LOCKS], MOMENT);
        command.max_output_bytes = counters::LOCKS_MOST_BYTES;
        let said = self.exec(&command, cancel);
        let said = said.map_err(|stopped| self.named(stopped.failure))?.stdout_text();
        Ok(counters::parse_locks(&said))
    }

    /// What is counted of the VM's threads.
    fn counted(&self) -> CounterSet {
        let Some(VmCounters { threads, exits }) = &self.counted else {
            return CounterSet::default();
        };
        let mut all = counters::read_vm(threads);
        all.merge(exits.as_ref().map(ExitCounter::read).unwrap_or_default());
        all
    }

    /// Where this guest's memory lies now: levels, which a run's end has.
    pub(super) fn memory(&self) -> CounterSet {
        let vm = self.place.threads();
        vm.map(|vm| counters::read_memory(vm.pid, vm.vcpu_tids)).unwrap_or_default()
    }
}

/// `failure` with the name of the guest in which it happened.
pub(super) fn named(name: Option<GuestName>, failure: Failure) -> Failure {
    match name {
        Some(name) if failure.kind != FailureKind::Aborted => failure.within(name),
        _ => failure,
    }
}

/// The end of what a program said; its last line alone is often but a hint to
/// look at its help.
pub(super) fn last_words(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "no output".to_owned();
    }
    lines[lines.len().saturating_sub(LAST_WORDS_LINES)..].join("\n")
}

pub(super) fn how(status: ExecStatusCode) -> String {
    match status {
        ExecStatusCode::Exited(status) => format!("ended with status {status}"),
        ExecStatusCode::Signalled(signal) => format!("was ended by signal {signal}"),
    }
}
