//! What a booted VM and its host really are, beside what was asked for: hints
//! that QEMU gave to the guest, the guest's clock and idling, and whether
//! `cpu_pm` is in force.
//!
//! Evidence for `cpu_pm`, the strongest first: halt exits that were counted
//! while the guest idled; what QEMU printed; what is known of the host. QEMU
//! itself goes on without a word to QMP when KVM refuses, and without any word
//! when KVM spares the guest less than was asked for.
//!
//! Source: QEMU `target/i386/kvm/kvm.c` (`kvm_arch_init`); Linux
//! `Documentation/virt/kvm/api.rst`, `KVM_CAP_X86_DISABLE_EXITS`.

use std::collections::BTreeMap;
use std::fs;

use guest::{Cancel, GuestCommand, OwnedVm};
use host::settings::{SettingsTree, setting};
use record::journal::RunResult;
use record::{CpuPmDeviation, CpuPmFinding, EXITS, Failure, FailureCause, FailureKind};
use topology::PcpuSet;
use vmconfig::{Accel, Arch, VmSpec};

use super::exec_target::ExecTarget;
use super::failure::failure;
use super::role_guest::{GuestName, MOMENT, RoleGuest, named};

/// Facts by name.
pub(super) type Facts = BTreeMap<String, String>;

/// Idle time of all vCPUs together below which a guest did not show how it
/// idles, s.
const SHOWS_IDLING_S: f64 = 0.1;

/// Properties of a vCPU that tell what the guest was given.
const PROPERTIES: &[&str] = &[
    "kvmclock",
    "kvm-hint-dedicated",
    "kvm-poll-control",
    "kvm-pv-eoi",
    "kvm-pv-ipi",
    "kvm-pv-unhalt",
    "kvm-steal-time",
    "monitor",
    "x2apic",
];

/// Host settings that decide what a halt and an interrupt cost.
const HOST: &[&str] = &["halt_poll_ns", "avic", "enable_apicv"];

/// Whether the guest's kernel counts what is waited for locks; only one that can has it.
const LOCK_STAT: &str = "../proc/sys/kernel/lock_stat";

/// What the guest itself says, by name and file below /sys.
const GUEST: &[(&str, &str)] = &[
    ("kernel", "../proc/sys/kernel/osrelease"),
    ("clocksource", "devices/system/clocksource/clocksource0/current_clocksource"),
    ("cpuidle_driver", "devices/system/cpu/cpuidle/current_driver"),
    ("cpuidle_governor", "devices/system/cpu/cpuidle/current_governor"),
    ("thp", "kernel/mm/transparent_hugepage/enabled"),
    ("siblings", "devices/system/cpu/cpu0/topology/thread_siblings_list"),
    ("lock_stat", LOCK_STAT),
];

/// What is said of a guest that finds other threads in a core than its topology has: its
/// scheduler takes threads for cores, or cores for threads.
fn other_threads(spec: &VmSpec, facts: &Facts) -> Option<String> {
    let (asked, cpu_model) = (spec.topology.threads, &spec.cpu_model);
    let siblings: PcpuSet = facts.get("guest.siblings")?.parse().ok()?;
    let is_whole = spec.present_vcpus.is_none();
    (is_whole && siblings.len() != asked as usize).then(|| {
        format!(
            "The topology has {asked} thread(s) a core; the guest finds vCPU {siblings} in the \
             first core, with cpu_model {cpu_model:?}"
        )
    })
}

/// A command for a guest's shell: the first line of each file below /sys, behind its name.
/// Not by `read`, which takes byte after byte where a number of /proc/sys is told once, whole.
const READ_FACTS: &str =
    "cd /sys; for f do word=$(head -n 1 \"$f\") && echo \"$f $word\"; done 2>/dev/null; :";

/// What a VM is found to be.
#[derive(Debug, Default)]
pub(super) struct FoundVm {
    pub(super) facts: Facts,
    /// Of `cpu_pm`, where that was asked for, before anything ran.
    pub(super) cpu_pm: Option<CpuPmFinding>,
    /// What is not as it was asked for and leaves the trial what it claims.
    pub(super) warnings: Vec<String>,
}

impl RoleGuest {
    /// What is found of this VM, which has booted; an error where it is not
    /// what `spec` asks for. Nothing is found of the host in its place.
    pub(super) fn found(&mut self, spec: &VmSpec, cancel: &Cancel) -> Result<FoundVm, Failure> {
        let mut facts = Facts::new();
        let vm = match &mut self.place {
            ExecTarget::Vm(vm) => Some(vm),
            ExecTarget::Hosted(_) => None,
            ExecTarget::Thin(thin) => {
                return Ok(FoundVm { facts: thin.facts(), ..FoundVm::default() });
            }
            ExecTarget::Host(_) => return Ok(FoundVm::default()),
        };
        if spec.accel == Accel::Kvm && vm.is_some() {
            let tree = SettingsTree::live();
            for id in HOST {
                if let Some(present) = setting(id).and_then(|setting| setting.read(&tree).ok()) {
                    facts.insert(format!("host.{id}"), present.value);
                }
            }
        }
        let mut cpu_pm = None;
        if let Some(vm) = vm {
            cpu_pm = found_by_qmp(vm, spec, self.name, &mut facts, cancel)?;
        }
        let files = GUEST.iter().map(|(_, file)| *file);
        let argv = ["sh", "-c", READ_FACTS, "sh"].into_iter().chain(files);
        let said = self.exec(&GuestCommand::new(argv, MOMENT), cancel);
        let said = said.map_err(|stopped| self.named(stopped.failure))?.stdout_text();
        facts.extend(guest_facts(&said));
        self.counts_locks = facts.get("guest.lock_stat").is_some_and(|on| on != "0");
        check_guest(spec, &facts)?;
        let warnings = other_threads(spec, &facts).map(|told| match self.name {
            Some(name) => format!("{name}: {told}"),
            None => told,
        });
        Ok(FoundVm { facts, cpu_pm, warnings: warnings.into_iter().collect() })
    }
}

/// What QEMU tells of a VM of this machine, and what is known of its `cpu_pm`.
fn found_by_qmp(
    vm: &mut OwnedVm,
    spec: &VmSpec,
    name: Option<GuestName>,
    facts: &mut Facts,
    cancel: &Cancel,
) -> Result<Option<CpuPmFinding>, Failure> {
    if spec.accel == Accel::Kvm && spec.arch == Arch::X86_64 {
        let properties = vm.vcpu_properties(PROPERTIES, cancel);
        let properties = properties.map_err(|error| named(name, failure(error)))?;
        check_hints(spec, &properties)?;
        let word = |on| if on { "on" } else { "off" }.to_owned();
        facts.extend(properties.into_iter().map(|(name, on)| (format!("vcpu.{name}"), word(on))));
    }
    let asks_cpu_pm = spec.hints.cpu_pm == Some(true);
    let cpu_pm = asks_cpu_pm.then(|| cpu_pm_before(spec, &vm.printed())).transpose()?;
    if let Some(finding) = &cpu_pm {
        finding.write(facts);
    }
    Ok(cpu_pm)
}

/// The facts in lines `file word`.
fn guest_facts(said: &str) -> Facts {
    let fact = |line: &str| {
        let (file, word) = line.split_once(' ')?;
        let (name, _) = GUEST.iter().find(|row| row.1 == file)?;
        // Of a choice, what is chosen: `always [madvise] never`.
        let chosen = word.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        Some((format!("guest.{name}"), chosen.map_or(word, |(word, _)| word).to_owned()))
    };
    said.lines().filter_map(fact).collect()
}

fn not_as_claimed(detail: String) -> Failure {
    Failure::new(FailureKind::NotAsClaimed, detail)
}

/// Hints that were asked for and that the guest did not get, or got unasked.
fn check_hints(spec: &VmSpec, found: &BTreeMap<String, bool>) -> Result<(), Failure> {
    let (hints, clock) = (&spec.hints, &spec.clock);
    if hints.kvm_hidden == Some(true) {
        return Ok(());
    }
    let asked = [
        ("kvm-hint-dedicated", hints.kvm_hint_dedicated),
        ("kvm-poll-control", hints.poll_control),
        ("kvm-pv-eoi", hints.pv_eoi),
        ("kvm-pv-ipi", hints.pv_ipi),
        ("kvm-pv-unhalt", hints.pv_spinlocks),
        ("kvmclock", clock.kvmclock),
    ];
    let word = |on: bool| if on { "on" } else { "off" };
    let deviation = |(name, asked): (&str, Option<bool>)| {
        let (asked, is) = (asked?, *found.get(name)?);
        (asked != is).then(|| format!("{name}: asked for {}, it is {}", word(asked), word(is)))
    };
    let deviations: Vec<String> = asked.into_iter().filter_map(deviation).collect();
    if deviations.is_empty() { Ok(()) } else { Err(not_as_claimed(deviations.join("; "))) }
}

/// What the guest's kernel was told to do and does not. It says nothing of it: one that has
/// no such clock keeps to its own, and without the governor of that name
/// `cpuidle_haltpoll` halts at once, and tells the host not to poll either (Debian 12's
/// kernel is built without; Linux `drivers/cpuidle/cpuidle-haltpoll.c`).
fn check_guest(spec: &VmSpec, facts: &Facts) -> Result<(), Failure> {
    let fact = |name: &str| facts.get(name).map(String::as_str);
    let mut deviations = Vec::new();
    if let (Some(asked), Some(is)) =
        (spec.kernel_parameter("clocksource"), fact("guest.clocksource"))
        && asked != is
    {
        deviations.push(format!("clocksource: asked for {asked}, it is {is}"));
    }
    let [driver, governor] =
        ["driver", "governor"].map(|what| fact(&format!("guest.cpuidle_{what}")).unwrap_or("none"));
    if spec.forces_haltpoll() && governor != "haltpoll" {
        deviations.push(format!(
            "cpuidle_haltpoll: the guest does not poll before it halts: its idle driver is \
             {driver}, its governor {governor}"
        ));
    }
    if deviations.is_empty() { Ok(()) } else { Err(not_as_claimed(deviations.join("; "))) }
}

/// What is known of `cpu_pm` before anything ran; `printed` is QEMU's.
fn cpu_pm_before(spec: &VmSpec, printed: &str) -> Result<CpuPmFinding, Failure> {
    if spec.accel != Accel::Kvm {
        let why = format!("{} does not know it", spec.accel);
        return Ok(CpuPmFinding::NotInForce { why });
    }
    if spec.arch != Arch::X86_64 {
        let why = "QEMU does not look at it on Arm".to_owned();
        return Ok(CpuPmFinding::NotInForce { why });
    }
    let refused =
        |line: &&str| FailureCause::said_by_qemu(line) == Some(FailureCause::CpuPmRefusedByKvm);
    match printed.lines().find(refused) {
        Some(line) => Err(CpuPmDeviation::refused(line.trim()).failure()),
        None => Ok(CpuPmFinding::NotProven { why: "no run".to_owned() }),
    }
}

/// What the runs showed of `cpu_pm`, of which `before` was known: more than that, or the
/// trial is not what it claims.
pub(super) fn cpu_pm_after(
    before: CpuPmFinding,
    facts: &Facts,
    runs: &[RunResult],
) -> Result<CpuPmFinding, Failure> {
    if matches!(before, CpuPmFinding::NotInForce { .. }) {
        return Ok(before);
    }
    let total = |name: &str| -> Option<f64> {
        if runs.is_empty() {
            return None;
        }
        runs.iter().map(|run| run.counters.get(name)).sum()
    };
    let not_proven = |why: &str| Ok(CpuPmFinding::NotProven { why: why.to_owned() });
    let (Some(halts), Some(idle_s)) = (total("kvm.halt_exits"), total("guest.idle_s")) else {
        return not_proven("KVM's halt exits or the guest's idle time are not counted");
    };
    if halts > 0.0 {
        let cause = why_halts_exit();
        let evidence =
            format!("{halts:.0} halt exits while the guest idled for {idle_s:.1} s{cause}");
        return Err(CpuPmDeviation::Halts { evidence }.failure());
    }
    if idle_s < SHOWS_IDLING_S {
        return not_proven("the guest never idled");
    }
    let mut evidence = format!("no halt exit in {idle_s:.1} s of idle vCPUs");
    for (name, what) in [("pause", "PAUSE"), ("mwait", "MWAIT")] {
        let names = [name.to_owned(), format!("{name}_instruction")];
        let exits = names.iter().find_map(|name| total(&format!("{EXITS}{name}")));
        if let Some(exits) = exits {
            evidence.push_str(&format!(", {exits:.0} {what} exits"));
        }
    }
    // QEMU shows MWAIT to the guest only where its exits can be disabled.
    if facts.get("vcpu.monitor").is_some_and(|shown| shown == "off") {
        evidence.push_str("; the guest has no MWAIT");
    }
    Ok(CpuPmFinding::InForce { evidence })
}

/// A word for readers where `cpu_pm` was asked for and is not shown to be in
/// force.
pub(super) fn doubt(finding: &CpuPmFinding) -> Option<String> {
    finding.is_doubtful().then(|| format!("cpu_pm is {finding}."))
}

/// A cause that the host shows.
fn why_halts_exit() -> &'static str {
    let mitigated = fs::read_to_string("/sys/module/kvm/parameters/mitigate_smt_rsb");
    match mitigated.is_ok_and(|value| value.trim() == "Y") {
        true => "; kvm.mitigate_smt_rsb=Y keeps them on",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use record::{CounterSet, Outcome};

    use super::*;

    fn run(counters: &[(&str, f64)]) -> RunResult {
        let counters = counters.iter().map(|(name, value)| ((*name).to_owned(), *value));
        RunResult {
            run: 0,
            outcome: Outcome::Completed,
            command: Vec::new(),
            wall_s: 1.0,
            started_unix_s: 0.0,
            tool_version: None,
            samples: Vec::new(),
            histograms: Vec::new(),
            counters: CounterSet(counters.collect()),
            blobs: BTreeMap::new(),
        }
    }

    fn spec(accel: Accel, hints: &str) -> VmSpec {
        let boot = vmconfig::BootSource::Disk {
            image: "disk.qcow2".into(),
            format: vmconfig::DiskFormat::Qcow2,
        };
        let mut settings = vmconfig::VmSettings::new("vm", Arch::X86_64, accel, boot);
        settings.hints = toml::from_str(hints).expect("hints");
        VmSpec::new(settings).expect("a VM")
    }

    #[test]
    fn facts_are_read_whole_and_missing_files_are_none() {
        // A number of /proc/sys, which is told once, however few bytes are asked for.
        let files = ["../proc/sys/kernel/pid_max", "no/such/file", "../proc/sys/kernel/ostype"];
        let ended = std::process::Command::new("sh")
            .args(["-c", READ_FACTS, "sh"])
            .args(files)
            .output()
            .unwrap();
        let most = std::fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
        let expected =
            format!("../proc/sys/kernel/pid_max {most}../proc/sys/kernel/ostype Linux\n");
        assert_eq!(String::from_utf8_lossy(&ended.stdout), expected);
        assert!(ended.status.success());
    }

    #[test]
    fn a_guest_does_what_its_command_line_says() {
        let check = |cmdline: &str, facts: &[(&str, &str)], expected: &str| {
            let boot = vmconfig::BootSource::Direct {
                kernel: "vmlinuz".into(),
                initrd: "initrd".into(),
                root_image: "root.ext4".into(),
                cmdline: Vec::new(),
            };
            let mut settings = vmconfig::VmSettings::new("vm", Arch::X86_64, Accel::Kvm, boot);
            settings.kernel_cmdline = cmdline.split_whitespace().map(str::to_owned).collect();
            let facts = facts.iter().map(|(name, fact)| (format!("guest.{name}"), (*fact).into()));
            let spec = VmSpec::new(settings).unwrap();
            let found = check_guest(&spec, &facts.collect()).err();
            assert_eq!(
                found.map_or(String::new(), |failure| failure.detail),
                expected,
                "{cmdline}"
            );
        };
        let menu = [("cpuidle_driver", "haltpoll"), ("cpuidle_governor", "menu")];
        let polls = [("cpuidle_driver", "haltpoll"), ("cpuidle_governor", "haltpoll")];
        let not = "cpuidle_haltpoll: the guest does not poll before it halts: its idle driver is \
                   haltpoll, its governor menu";
        check("quiet", &menu, "");
        check("cpuidle_haltpoll.force=1 cpuidle.governor=haltpoll", &menu, not);
        check("cpuidle_haltpoll.force=1", &polls, "");
        check("cpuidle_haltpoll.force=0", &menu, "");
        let nothing = "cpuidle_haltpoll: the guest does not poll before it halts: its idle driver \
                       is none, its governor none";
        check("cpuidle_haltpoll.force=Y", &[], nothing);
        let tsc = [("clocksource", "tsc")];
        check("clocksource=tsc tsc=reliable", &tsc, "");
        check(
            "clocksource=tsc clocksource=kvm-clock",
            &tsc,
            "clocksource: asked for kvm-clock, it is tsc",
        );
    }

    #[test]
    fn a_guest_that_finds_other_threads_is_told() {
        let mut settings = vmconfig::VmSettings::clone(&spec(Accel::Kvm, ""));
        settings.topology = vmconfig::GuestTopology { threads: 2, ..settings.topology };
        let threads = VmSpec::new(settings).unwrap();
        let told = |spec: &VmSpec, siblings: &str| {
            let facts = guest_facts(&format!(
                "devices/system/cpu/cpu0/topology/thread_siblings_list {siblings}"
            ));
            other_threads(spec, &facts).unwrap_or_default()
        };
        let words = "The topology has 2 thread(s) a core; the guest finds vCPU 0 in the first \
                     core, with cpu_model \"host\"";
        assert_eq!(told(&threads, "0"), words);
        assert_eq!((told(&threads, "0-1"), told(&threads, "0,4")), Default::default());
        let cores = spec(Accel::Kvm, "");
        let words = "The topology has 1 thread(s) a core; the guest finds vCPU 0-1 in the first \
                     core, with cpu_model \"host\"";
        assert_eq!((told(&cores, "0").as_str(), told(&cores, "0-1").as_str()), ("", words));
        assert_eq!(other_threads(&threads, &Facts::new()), None, "not a guest that tells");
    }

    #[test]
    fn qemu_s_refusal_is_found() {
        // As QEMU prints it where KVM_CAP_X86_DISABLE_EXITS fails.
        let printed = "qemu-system-x86_64: warning: something else\n\
            2021-08-31T02:39:54.168673Z qemu-kvm: kvm: guest stopping CPU not supported: Invalid argument\n";
        let kvm = spec(Accel::Kvm, "cpu_pm = true");
        let failure = cpu_pm_before(&kvm, printed).expect_err("refused");
        assert_eq!(failure.kind, FailureKind::NotAsClaimed);
        assert!(
            failure.detail.contains("not in force") && failure.detail.contains("Invalid argument")
        );
        let fact = |accel, printed| {
            cpu_pm_before(&spec(accel, "cpu_pm = true"), printed).expect("a finding")
        };
        assert_eq!(fact(Accel::Kvm, ""), CpuPmFinding::NotProven { why: "no run".to_owned() });
        assert_eq!(fact(Accel::Tcg, "").to_string(), "not in force: tcg does not know it");
    }

    #[test]
    fn what_was_counted_decides() {
        let facts = Facts::from([("vcpu.monitor".to_owned(), "off".to_owned())]);
        let after = |before: &CpuPmFinding, runs: &[RunResult]| {
            cpu_pm_after(before.clone(), &facts, runs).map_err(|failure| failure.detail)
        };
        let open = CpuPmFinding::NotProven { why: "no run".to_owned() };
        let idle = [("guest.idle_s", 3.0), ("kvm.halt_exits", 0.0), ("kvm.exits.pause", 2.0)];
        let evidence =
            "no halt exit in 6.0 s of idle vCPUs, 4 PAUSE exits; the guest has no MWAIT".to_owned();
        let found = after(&open, &[run(&idle), run(&idle)]);
        assert_eq!(found, Ok(CpuPmFinding::InForce { evidence }));
        assert_eq!(doubt(&found.unwrap()), None);
        let halts = [("guest.idle_s", 3.0), ("kvm.halt_exits", 120.0)];
        let failure = after(&open, &[run(&idle), run(&halts)]).expect_err("halts");
        assert!(failure.starts_with("cpu_pm is not in force: 120 halt exits"), "{failure}");
        let busy = [("guest.idle_s", 0.0), ("kvm.halt_exits", 0.0)];
        let found = after(&open, &[run(&busy)]).expect("open");
        assert_eq!(found.to_string(), "not proven: the guest never idled");
        let doubted = doubt(&found);
        assert_eq!(doubted.as_deref(), Some("cpu_pm is not proven: the guest never idled."));
        for runs in [vec![], vec![run(&[("guest.idle_s", 1.0)])]] {
            let found = after(&open, &runs).expect("open").to_string();
            assert!(found.starts_with("not proven: KVM's halt exits"), "{found}");
        }
        let told = CpuPmFinding::NotInForce { why: "tcg does not know it".to_owned() };
        assert_eq!(after(&told, &[run(&halts)]), Ok(told));
    }

    #[test]
    fn hints_are_compared_with_what_the_guest_got() {
        let found = |rows: &[(&str, bool)]| -> BTreeMap<String, bool> {
            rows.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect()
        };
        let kvm = spec(Accel::Kvm, "kvm_hint_dedicated = true\npv_eoi = false");
        let check = |rows: &[(&str, bool)], expected: Result<(), &str>| {
            let result = check_hints(&kvm, &found(rows)).map_err(|failure| failure.detail);
            assert_eq!(result, expected.map_err(str::to_owned));
        };
        check(&[("kvm-hint-dedicated", true), ("kvm-pv-eoi", false), ("kvmclock", true)], Ok(()));
        check(&[], Ok(()));
        check(
            &[("kvm-hint-dedicated", false), ("kvm-pv-eoi", true)],
            Err("kvm-hint-dedicated: asked for on, it is off; kvm-pv-eoi: asked for off, it is on"),
        );
        let hidden = spec(Accel::Kvm, "kvm_hidden = true\npv_eoi = false");
        assert!(check_hints(&hidden, &found(&[("kvm-pv-eoi", true)])).is_ok());
    }

    #[test]
    fn a_guest_s_words_become_facts() {
        let said = "devices/system/clocksource/clocksource0/current_clocksource kvm-clock\n\
            kernel/mm/transparent_hugepage/enabled always [madvise] never\nodd line\nodd\n";
        let facts = guest_facts(said);
        let expected = [("guest.clocksource", "kvm-clock"), ("guest.thp", "madvise")];
        assert_eq!(facts, expected.map(|(name, word)| (name.to_owned(), word.to_owned())).into());
    }
}
