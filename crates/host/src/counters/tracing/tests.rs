//! Tests of counting exits: with what a kernel printed, and in a made-up
//! tracefs.

use super::*;

fn golden(event: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/linux-6.1-x86_64-svm");
    fs::read_to_string(format!("{folder}/{event}.hist")).expect("golden file")
}

/// The vCPUs' threads when the goldens were made.
const TIDS: [u32; 2] = [588, 587];

fn named(event: &str, text: &str, filter: &str) -> Option<CounterSet> {
    let mut all = CounterSet::default();
    name_rows(event, &parse_histogram(text, filter)?, &mut all);
    Some(all)
}

#[test]
fn a_kernel_s_histograms_become_counters() {
    let check = |event: &str, expected: &[(&str, f64)]| {
        let found = named(event, &golden(event), &filter(&TIDS)).expect("whole");
        for name in found.0.keys() {
            assert!(record::counter(name).is_some(), "{name} is not known");
        }
        let mut some = found.0.clone();
        some.retain(|_, hits| *hits > 0.0);
        let expected = expected.iter().map(|(name, hits)| (format!("kvm.{name}"), *hits));
        assert_eq!(some, expected.collect());
        found
    };
    let exits = check(
        EXIT,
        &[
            ("exits.cpuid", 350.0),
            ("exits.hlt", 438.0),
            ("exits.hypercall", 3.0),
            ("exits.interrupt", 409.0),
            ("exits.io", 107.0),
            ("exits.msr", 1096.0),
            ("exits.npf", 14.0),
            ("exits.vintr", 264.0),
            ("exits.write_cr4", 32.0),
        ],
    );
    // That there was none is told, too.
    assert_eq!(exits.get("kvm.exits.mwait"), Some(0.0));
    check(
        "kvm_inj_virq",
        &[
            ("irqs.0x23", 9.0),
            ("irqs.0xfd", 13.0),
            ("irqs.0x24", 14.0),
            ("irqs.0xfb", 113.0),
            ("irqs.0xec", 739.0),
        ],
    );
    check("kvm_apic_ipi", &[("ipis.0xfd", 13.0), ("ipis.0xfb", 111.0)]);
    check(
        "kvm_msr",
        &[
            ("msr_writes.x2apic_eoi", 76.0),
            ("msr_writes.x2apic_icr", 93.0),
            ("msr_writes.tsc_deadline", 786.0),
        ],
    );
    let hypercalls = check("kvm_hypercall", &[("hypercalls.kick_cpu", 3.0)]);
    assert_eq!(hypercalls.get("kvm.hypercalls.send_ipi"), Some(0.0));
}

#[test]
fn only_one_s_own_and_whole_histograms_count() {
    let text = golden(EXIT);
    let rows = parse_histogram(&text, "(common_pid == 1)").expect("whole");
    assert_eq!(rows, []);
    assert_eq!(parse_histogram(&text, "(common_pid == 587)"), None);
    let overflown = text.replace("Dropped: 0", "Dropped: 7");
    assert_eq!(parse_histogram(&overflown, &filter(&TIDS)), None);
    let end = text.rfind("Totals").expect("totals");
    assert_eq!(parse_histogram(&text[..end], &filter(&TIDS)), None);
    assert_eq!(parse_histogram("", ""), None);
}

#[test]
fn exits_of_arm64_and_intel() {
    // In the kernel's format, with the fields of Linux 6.1 on arm64.
    let arm64 = "# event histogram\n# trigger info: hist:keys=ret,esr_ec:vals=hitcount if (common_pid == 7) [active]\n\
        { ret:          2, esr_ec:          1 } hitcount:          5\n\
        { ret:          0, esr_ec:          0 } hitcount:          9\n\
        { ret:          2, esr_ec:         36 } hitcount:          2\n\
        Totals:\n    Dropped: 0\n";
    let found = named(EXIT, arm64, "(common_pid == 7)").expect("whole");
    let get = |name: &str| found.get(&format!("kvm.exits.{name}"));
    assert_eq!((get("wfx"), get("irq"), get("dabt_low")), (Some(5.0), Some(9.0), Some(2.0)));
    assert_eq!((get("hvc64"), get("hlt")), (Some(0.0), None));
    let intel = "# event histogram\n# trigger info: hist:keys=exit_reason,isa:vals=hitcount if (common_pid == 7) [active]\n\
        { exit_reason:         48, isa:          1 } hitcount:          5\nDropped: 0\n";
    let found = named(EXIT, intel, "(common_pid == 7)").expect("whole");
    assert_eq!(found.get("kvm.exits.ept_violation"), Some(5.0));
}

#[test]
fn threads_in_a_row_are_one_comparison() {
    let check = |tids: &[u32], expected: &str| assert_eq!(filter(tids), expected);
    check(&[7], "(common_pid == 7)");
    check(&[9, 7, 8], "(common_pid >= 7 && common_pid <= 9)");
    check(
        &[3, 9, 8, 1, 8],
        "(common_pid == 1) || (common_pid == 3) || (common_pid >= 8 && common_pid <= 9)",
    );
}

#[test]
fn ipis_are_told_by_vector_or_kind() {
    let check = |icr: u64, expected: &str| assert_eq!(ipi_name(icr), expected);
    check(253, "0xfd");
    check(0x4400, "nmi");
    check(804_096, "init");
    check(804_368, "startup");
}

/// A tracefs with an instance of `owner`, whose files a kernel would have made.
fn made_up(owner: &Owner) -> (tempfile::TempDir, PathBuf) {
    let temp = tempfile::tempdir().expect("temp folder");
    fs::create_dir_all(temp.path().join("instances")).expect("mkdir");
    let exit = temp.path().join("events/kvm/kvm_exit");
    fs::create_dir_all(&exit).expect("mkdir");
    fs::write(exit.join("hist"), "").expect("write");
    let name = format!("{PREFIX}{}.{}", owner.pid, owner.starttime_ticks);
    let instance = temp.path().join("instances").join(name);
    (temp, instance)
}

fn add_events(instance: &Path) {
    for (event, field) in [(EXIT, "unsigned int exit_reason;"), ("kvm_hypercall", "long nr;")] {
        let folder = instance.join("events/kvm").join(event);
        fs::create_dir_all(&folder).expect("mkdir");
        let format = format!("\tfield:{field}\toffset:8;\n\tfield:u32 isa;\toffset:24;\n");
        fs::write(folder.join("format"), format).expect("write");
        fs::write(folder.join("trigger"), "").expect("write");
    }
}

#[test]
fn an_instance_is_made_and_counts_stop() {
    let owner = Owner::current("run").expect("this process");
    let (temp, instance) = made_up(&owner);
    let tracing = Tracing::new_in(temp.path(), &owner).expect("made");
    add_events(&instance);
    let counter = tracing.count(&[7, 8]).expect("counts");
    let trigger = |event: &str| {
        fs::read_to_string(instance.join("events/kvm").join(event).join("trigger")).expect("there")
    };
    let wanted = "hist:keys=exit_reason,isa if (common_pid >= 7 && common_pid <= 8)";
    assert_eq!(trigger(EXIT), wanted);
    assert_eq!(trigger("kvm_hypercall"), wanted.replace("exit_reason,isa", "nr"));
    assert_eq!(counter.read(), CounterSet::default(), "no histogram, no zeros");
    drop(counter);
    assert_eq!(trigger(EXIT), format!("!{wanted}"));
    // A second one of the same owner can't be: it would be the same folder.
    assert!(matches!(Tracing::new_in(temp.path(), &owner), Err(TracingError::Io { .. })));
    let empty = tempfile::tempdir().expect("temp folder");
    assert!(matches!(Tracing::new_in(empty.path(), &owner), Err(TracingError::NoEvents)));
    fs::create_dir_all(empty.path().join("events/kvm/kvm_exit")).expect("mkdir");
    assert!(matches!(Tracing::new_in(empty.path(), &owner), Err(TracingError::NoHistograms)));
}

#[test]
fn only_dead_owners_instances_are_stale() {
    let owner = Owner::current("run").expect("this process");
    let dead = Owner { starttime_ticks: owner.starttime_ticks + 1, ..owner.clone() };
    let (temp, mine) = made_up(&owner);
    let left = temp.path().join(format!("instances/{PREFIX}{}.{}", dead.pid, dead.starttime_ticks));
    for folder in [
        &mine,
        &left,
        &temp.path().join("instances/others"),
        &temp.path().join("instances/vmlab.x.1"),
    ] {
        fs::create_dir(folder).expect("mkdir");
    }
    let stale = stale_in(temp.path());
    assert_eq!(stale, [StaleInstance { path: left.clone() }]);
    stale[0].remove().expect("removed");
    assert!(!left.exists() && mine.exists());
}

#[test]
fn instances_of_this_kernel() {
    let owner = Owner::current("run").expect("this process");
    match Tracing::new(&owner) {
        Ok(tracing) => {
            let folder = tracing.folder.clone();
            let counter = tracing.count(&[std::process::id()]).expect("counts");
            assert!(counter.read().0.values().all(|hits| *hits == 0.0));
            drop(counter);
            drop(tracing);
            assert!(!folder.exists());
        }
        Err(error) => suite::skip(error),
    }
}
