//! Tests of the host settings: every row on a made-up machine, and some on
//! this one.

mod fake;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::Ordering;

use fake::{MOUNT, Machine, NVME};
use suite::{SharedThing, Tier, needs};

use super::journal::{SettingEntry, SettingsJournal, SettingsLock};
use super::*;
use crate::owner::Owner;

fn wish(list: &[(&str, &str)]) -> SettingChanges {
    let changes = list.iter().map(|(id, value)| SettingChange::new(id, value).expect("valid"));
    SettingChanges { changes: changes.collect(), reload: false }
}

fn with_reload(list: &[(&str, &str)]) -> SettingChanges {
    SettingChanges { reload: true, ..wish(list) }
}

fn me() -> Owner {
    Owner::current("a run").expect("this process")
}

/// An owner of this boot whose process has ended.
fn dead() -> Owner {
    let mut child = Command::new("true").spawn().expect("true starts");
    child.wait().expect("ends");
    Owner { pid: child.id(), starttime_ticks: 1, ..me() }
}

/// An error with all its causes.
fn full(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", full(source)),
        None => error.to_string(),
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        suite::skip("modules are changed by root only");
    }
    root
}

/// A value of the row that is not its present one on the made-up machine.
fn another(setting: &Setting) -> &'static str {
    match (setting.values, setting.place) {
        (SettingValues::Words(_), SettingPath::Module(_)) => "absent",
        (SettingValues::Words(words), _) if setting.id == "ksm" => words[1],
        (SettingValues::Words(words), _) if words.len() == 2 => words[1],
        (SettingValues::Words(_), _) if setting.id == "sched_preempt" => "lazy",
        (SettingValues::Words(_), _) => "always",
        (SettingValues::Offered, _) if setting.id == "cpuidle_governor" => "haltpoll",
        (SettingValues::Offered, _) => "performance",
        (SettingValues::Switch, _) => "1",
        (SettingValues::Number { .. }, SettingPath::IdleLatency) => "10",
        (SettingValues::Number { .. }, _) => "2",
        (SettingValues::Pcpus, _) => "1-2",
        (SettingValues::Pages, _) => "node0:5,node1:6",
        (SettingValues::IdleStates, _) => "C1,C6",
        (SettingValues::Devices, _) => NVME,
    }
}

/// What the row reads once it is set to [`another`].
fn read_then(setting: &Setting) -> &'static str {
    match setting.place {
        // The deepest state that is left.
        SettingPath::IdleLatency => "2",
        _ => another(setting),
    }
}

/// Only root may.
fn loads_modules(setting: &Setting) -> bool {
    matches!(setting.place, SettingPath::Parameter(_) | SettingPath::Module(_) | SettingPath::Vfio)
}

fn changeable() -> impl Iterator<Item = &'static Setting> {
    SETTINGS.iter().filter(|setting| !matches!(setting.place, SettingPath::BootOnly(_)))
}

#[test]
fn the_table_is_sound() {
    for (i, setting) in SETTINGS.iter().enumerate() {
        assert!(SETTINGS[i + 1..].iter().all(|other| other.id != setting.id), "{}", setting.id);
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(setting.id.chars().all(allowed), "{}", setting.id);
        assert!(!setting.what.is_empty() && !setting.what.ends_with('.'), "{}", setting.id);
        assert!(setting.source.starts_with("Linux "), "{}", setting.id);
        assert!(!setting.needs().is_empty() && !setting.places().is_empty());
    }
}

#[test]
fn every_row_is_set_verified_and_put_back() {
    let root = is_root();
    let machine = Machine::new();
    let before = machine.snapshot();
    for setting in changeable() {
        if !root && loads_modules(setting) {
            continue;
        }
        let old = machine.value(setting.id);
        let wanted = wish(&[(setting.id, another(setting))]);
        let wanted = SettingChanges { reload: true, ..wanted };
        let planned = plan(&machine.tree, &wanted).expect("can be set");
        assert!(planned.iter().any(|step| step.old != step.new), "{}: {planned:?}", setting.id);
        machine.is_as(&before, setting.id);

        let settings = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect("set");
        assert_eq!(machine.value(setting.id), read_then(setting), "{}", setting.id);
        assert_eq!(settings.in_force()[setting.id], read_then(setting));
        assert_eq!(settings.notes(), [""; 0], "{}", setting.id);
        assert_eq!(settings.deviations(), [""; 0]);
        let restored = settings.restore().expect("restored");
        for one in &restored {
            let fine =
                matches!(one.outcome, RestoreOutcome::Restored | RestoreOutcome::AlreadyBack);
            assert!(fine, "{one:?}");
        }
        assert_eq!(machine.value(setting.id), old);
        machine.is_as(&before, setting.id);
    }
}

#[test]
fn every_row_survives_a_crash_anywhere() {
    let root = is_root();
    let machine = Machine::new();
    let before = machine.snapshot();
    for setting in changeable() {
        if !root && loads_modules(setting) {
            continue;
        }
        let id = setting.id;
        let wanted = with_reload(&[(id, another(setting))]);
        let steps = plan(&machine.tree, &wanted).expect("can be set");
        // After the journal, after the first change, after all of them.
        for made in BTreeSet::from([0, 1, steps.len()]) {
            let entry = |step: &PlannedChange| SettingEntry {
                setting,
                target: target::SettingTarget::parse(&step.target).expect("own text"),
                old: step.old.clone(),
                new: step.new.clone(),
            };
            let entries: Vec<SettingEntry> = steps.iter().map(entry).collect();
            let lock = SettingsLock::take(&machine.tree.state_dir).expect("lock");
            lock.write(SettingsJournal::new(dead(), entries.clone())).expect("written");
            drop(lock);
            for SettingEntry { target, old, new, .. } in &entries[..made] {
                if old != new {
                    target.set(&machine.tree, &setting.values, new).expect("set");
                }
            }
            // It says first what it would do.
            let during = machine.snapshot();
            let look = restore_stale(&machine.tree, Mode::Look).expect("readable");
            assert_eq!(look.len(), 1);
            machine.is_as(&during, id);
            let [stale] = restore_stale(&machine.tree, Mode::Restore)
                .expect("readable")
                .try_into()
                .expect("one");
            for one in stale.restored.expect("restored") {
                let outcome = &one.outcome;
                let fine =
                    matches!(outcome, RestoreOutcome::Restored | RestoreOutcome::AlreadyBack);
                assert!(fine, "{one:?} after {made}");
            }
            machine.is_as(&before, &format!("{id} after {made} of {}", steps.len()));
        }
    }
}

#[test]
fn every_row_is_refused_where_nothing_may_be_written() {
    for setting in changeable() {
        let machine = Machine::new();
        let wanted = wish(&[(setting.id, another(setting))]);
        let owned = |path: &str| {
            let name = target::SettingTarget::File(path.to_owned());
            setting.place.owns(&name)
                || path == format!("{MOUNT}/cgroup.subtree_control")
                || (setting.place == SettingPath::Vfio && path.ends_with("/driver_override"))
        };
        let before = machine.snapshot();
        for path in before.keys() {
            let name = path.strip_prefix(&machine.tree.root).expect("inside");
            if owned(name.to_str().expect("text")) {
                fs::set_permissions(path, fs::Permissions::from_mode(0o444)).expect("chmod");
            }
        }
        machine.file("sys/module/vhost_net/refcnt", "1");
        let during = machine.snapshot();
        let error = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect_err(setting.id);
        let error = full(&error);
        let says = format!("Host setting {} can't be \"", setting.id);
        assert!(error.starts_with(&says), "{error}");
        let reason =
            ["made it read-only", "only taken when the module is loaded", "in use (1 users"];
        assert!(reason.iter().any(|reason| error.contains(reason)), "{error}");
        machine.is_as(&during, setting.id);
        assert_eq!(machine.journals(), 0);
    }
}

#[test]
fn every_row_says_that_it_is_not_there() {
    let machine = Machine::new();
    let all = "sys/kernel sys/module sys/bus proc/sys proc/irq sys/fs sys/devices";
    for folder in all.split(' ') {
        fs::remove_dir_all(machine.tree.path(folder)).expect("removed");
    }
    machine.file("sys/devices/system/cpu/online", "0-3");
    for setting in changeable() {
        let (absent, loads) = (setting.read(&machine.tree), another(setting) == "absent");
        if loads {
            assert_eq!(absent.expect("known").value, "absent");
            continue;
        }
        let error = absent.expect_err(setting.id).to_string();
        let settable = setting.check_settable(&machine.tree, true).expect_err(setting.id);
        assert_eq!(settable.to_string(), error);
        let words = ["is not there: ", "is not loaded: ", "has no cpuset controller"];
        assert!(words.iter().any(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn what_cannot_be_done_changes_nothing() {
    let check = |spoil: &dyn Fn(&Machine), wanted: SettingChanges, message: &str| {
        let machine = Machine::new();
        spoil(&machine);
        let before = machine.snapshot();
        let error = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect_err(message);
        let error = full(&error);
        assert!(error.contains(message), "{message:?} is not in {error:?}");
        machine.is_as(&before, message);
    };
    let fine = |_: &Machine| {};
    let pair = |id, value| wish(&[("thp", "always"), (id, value)]);
    let remove = |name: &'static str| {
        move |machine: &Machine| fs::remove_file(machine.tree.path(name)).expect("removed")
    };
    check(
        &remove("sys/kernel/mm/ksm/run"),
        pair("ksm", "1"),
        "/sys/kernel/mm/ksm/run is not there",
    );
    check(
        &|m| m.file("sys/kernel/mm/ksm/run", ""),
        pair("ksm", "1"),
        "can't be read: it says \"\"",
    );
    check(
        &|m| m.file("sys/kernel/mm/transparent_hugepage/enabled", "always [never]"),
        wish(&[("thp", "madvise")]),
        "It can't be \"madvise\" here, where there are always, never",
    );
    check(&fine, pair("cpufreq_governor", "schedutil"), "where there are performance, powersave");
    check(&fine, pair("cpuidle_disabled", "C9"), "It can't be \"C9\" here, where there are C1, C6");
    check(&fine, wish(&[("thp", "always"), ("thp", "never")]), "thp is to become two values");
    check(
        &fine,
        wish(&[("cpuidle_disabled", "C6"), ("cpuidle_max_latency_us", "1")]),
        "cpuidle_disabled and cpuidle_max_latency_us both change /sys",
    );
    check(&fine, pair("hugepages_2m", "node7:1"), "This host has no node 7");
    check(&fine, pair("isolated_pcpus", "3-4"), "has no pCPU 4 that is online (0-3 are)");
    check(&fine, pair("isolated_pcpus", "0-3"), "leave at least one pCPU");
    check(&fine, pair("irqs_off_pcpus", "0-3"), "Interrupts would have nowhere to go");
    check(
        &|m| m.file(&format!("{MOUNT}/cgroup.type"), "domain"),
        pair("isolated_pcpus", "1"),
        "is not the root of all cgroups",
    );
    check(
        &|m| m.file(&format!("{MOUNT}/cgroup.controllers"), "cpu hugetlb"),
        pair("isolated_pcpus", "1"),
        "has no cpuset controller (it has: cpu hugetlb)",
    );
    check(&fine, pair("ple_gap", "0"), "ple_gap of module kvm_intel is only taken when");
    check(
        &remove("sys/module/kvm_intel/initstate"),
        pair("ple_gap", "0"),
        "built into this kernel, which takes kvm_intel.ple_gap=0 from its command line",
    );
    check(
        &|machine| {
            fs::create_dir_all(&machine.tree.state_dir).expect("mkdir");
            fs::write(machine.tree.state_dir.join("settings-1-0.json"), "{").expect("written");
        },
        pair("ksm", "1"),
        "settings-1-0.json",
    );
    let vfio = || pair("vfio_pci", NVME);
    check(&fine, pair("vfio_pci", "0000:02:00.0"), "This host has no PCI device 0000:02:00.0");
    check(
        &|m| {
            let link = format!("sys/bus/pci/devices/{NVME}/iommu_group");
            fs::remove_file(m.tree.path(&link)).expect("removed");
            fs::remove_dir_all(m.tree.path("sys/kernel/iommu_groups")).expect("removed");
        },
        vfio(),
        "no IOMMU that is on",
    );
    check(
        &|m| m.pci_device("0000:01:00.1", "ahci", "3"),
        vfio(),
        "its IOMMU group holds 0000:01:00.1 too, which ahci drives",
    );
    check(
        &|m| m.file("proc/self/mountinfo", "30 1 259:0 / /srv rw - ext4 /dev/root rw"),
        vfio(),
        "its disk nvme0n1 is mounted at /srv",
    );
    check(
        &|m| m.file("proc/self/mountinfo", "30 1 0:40 / /srv rw - btrfs /dev/nvme0n1 rw"),
        vfio(),
        "its disk nvme0n1 is mounted at /srv",
    );
    check(
        &|m| m.file("proc/swaps", "Filename Type\n/dev/nvme0n1 partition 1 0 -2"),
        vfio(),
        "its disk nvme0n1 is swap",
    );
    check(
        &|m| m.file("sys/class/block/nvme0n1/holders/dm-0", ""),
        vfio(),
        "its disk nvme0n1 is part of dm-0",
    );
    check(
        &|m| {
            let device = m.tree.path(&format!("sys/bus/pci/devices/{NVME}"));
            let part = "nvme/nvme0/nvme0n1/nvme0n1p1";
            m.file(&format!("sys/bus/pci/devices/{NVME}/{part}/partition"), "1");
            m.file(&format!("sys/bus/pci/devices/{NVME}/{part}/dev"), "259:1");
            let shown = m.tree.path("sys/class/block/nvme0n1p1");
            std::os::unix::fs::symlink(device.join(part), shown).expect("linked");
            m.file("proc/self/mountinfo", "30 1 259:1 / /srv rw - ext4 /dev/root rw");
        },
        vfio(),
        "its disk nvme0n1p1 is mounted at /srv",
    );
    check(
        &|m| m.file(&format!("sys/bus/pci/devices/{NVME}/net/eth0/flags"), "0x1003"),
        vfio(),
        "its interface eth0 is up",
    );
    check(
        &|m| m.file(&format!("sys/bus/pci/devices/{NVME}/driver_override"), "uio_pci_generic"),
        vfio(),
        "somebody has given it the driver uio_pci_generic",
    );
    if is_root() {
        check(&remove("bin/rmmod"), vfio(), "modprobe and rmmod are missing");
        let busy = |m: &Machine| m.file("sys/module/kvm_intel/refcnt", "2");
        let reload = with_reload(&[("ple_gap", "0")]);
        check(&busy, reload.clone(), "Module kvm_intel is in use (2 users");
        check(&busy, with_reload(&[("tdp_mmu", "1")]), "Module kvm_intel is in use");
        check(&remove("bin/rmmod"), reload, "modprobe and rmmod are missing");
    }
    let unknown = |id, value, message: &str| {
        let error = SettingChange::new(id, value).expect_err(message).to_string();
        assert!(error.contains(message), "{error}");
    };
    unknown("thpp", "always", "related: thp");
    unknown("thp", "sometimes", "cannot be \"sometimes\"; it takes always, madvise, never");
    unknown("halt_poll_ns", "-1", "a whole number from 0 to 4294967295");
    unknown(
        "kvm_arm_wfi_trap_policy",
        "notrap",
        "boot the host with kvm-arm.wfi_trap_policy=notrap",
    );
}

#[test]
fn a_refused_value_undoes_the_ones_before() {
    let machine = Machine::new();
    let before = machine.snapshot();
    let wanted = wish(&[("ksm", "1"), ("thp", "always"), ("thp_defrag", "never")]);
    for after in 0..3 {
        machine.kernel.fail_after(after);
        let error = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect_err("refused");
        assert!(error.to_string().ends_with("; all settings are as before"), "{error}");
        machine.is_as(&before, "in the end");
    }
    // The kernel gives fewer pages than asked for.
    machine.kernel.free_pages.store(5, Ordering::Relaxed);
    let wanted = wish(&[("thp", "always"), ("hugepages_2m", "8"), ("hugepages_1g", "node1:6")]);
    let error = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect_err("short");
    assert!(full(&error).contains("the kernel gave 5 of 6 pages"), "{}", full(&error));
    machine.is_as(&before, "in the end");
}

#[test]
fn a_number_of_pages_is_spread_over_the_nodes() {
    let machine = Machine::new();
    let settings = AppliedSettings::apply(&machine.tree, &wish(&[("hugepages_2m", "7")]), &me());
    let settings = settings.expect("set");
    assert_eq!(machine.value("hugepages_2m"), "node0:4,node1:3");
    drop(settings);
    // A node without memory gets none.
    machine.file("sys/devices/system/node/has_memory", "1");
    let settings = AppliedSettings::apply(&machine.tree, &wish(&[("hugepages_2m", "7")]), &me());
    settings.expect("set");
    assert_eq!(machine.value("hugepages_2m"), "1", "node 1 alone, and put back");
}

#[test]
fn interrupts_that_refuse_are_told() {
    let machine = Machine::new();
    let before = machine.snapshot();
    machine.kernel.refusing.lock().expect("lock").push("irq/25".to_owned());
    let wanted = wish(&[("irqs_off_pcpus", "0,3")]);
    let settings = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect("set");
    let note = "irqs_off_pcpus: /proc/irq/25/smp_affinity_list stays 0-3: Input/output error";
    assert!(settings.notes()[0].starts_with(note), "{:?}", settings.notes());
    assert_eq!(machine.tree.text("proc/irq/24/smp_affinity_list").expect("text"), "1-2");
    assert_eq!(machine.tree.text("proc/irq/default_smp_affinity").expect("text"), "00000006");
    assert_eq!(machine.value("irqs_off_pcpus"), "none", "one interrupt still goes there");
    drop(settings);
    machine.is_as(&before, "in the end");
    machine.kernel.refusing.lock().expect("lock").push("irq/".to_owned());
    let error =
        AppliedSettings::apply(&machine.tree, &wanted, &me()).expect_err("none can be moved");
    assert!(full(&error).contains("all settings are as before"), "{error}");
    machine.is_as(&before, "in the end");
}

#[test]
fn parameters_of_one_module_are_loaded_at_once() {
    if !is_root() {
        return;
    }
    let machine = Machine::new();
    let before = machine.snapshot();
    let wanted = with_reload(&[("ple_gap", "0"), ("ple_window", "0"), ("tdp_mmu", "1")]);
    let settings = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect("set");
    let values = ["ple_gap", "ple_window", "tdp_mmu", "ple_window_max"].map(|id| machine.value(id));
    assert_eq!(settings.deviations(), [""; 0]);
    assert_eq!(values, ["0", "0", "1", "3"]);
    settings.restore().expect("restored");
    machine.is_as(&before, "in the end");
    // What could be written live would be reset by the reload.
    let wanted = with_reload(&[("halt_poll_ns", "0"), ("tdp_mmu", "1")]);
    let settings = AppliedSettings::apply(&machine.tree, &wanted, &me()).expect("set");
    assert_eq!(["halt_poll_ns", "tdp_mmu"].map(|id| machine.value(id)), ["0", "1"]);
    assert_eq!(settings.deviations(), [""; 0]);
    settings.restore().expect("restored");
    machine.is_as(&before, "after live ones");
    // A VM without vCPUs that an emulated host keeps makes room.
    machine.file("sys/module/kvm_intel/refcnt", "3");
    machine.file("run/vmlab/kept-kvm/kvm_intel", "3");
    let settings = AppliedSettings::apply(&machine.tree, &with_reload(&[("ple_gap", "0")]), &me());
    settings.expect("set").restore().expect("restored");
    assert!(!machine.tree.has("run/vmlab/kept-kvm"));
    // Killed while the module was out.
    std::mem::forget(AppliedSettings::apply(
        &machine.tree,
        &with_reload(&[("ple_gap", "0")]),
        &dead(),
    ));
    machine.tree.kernel.run("rmmod".as_ref(), &["kvm_intel"]).expect("taken out");
    restore_stale(&machine.tree, Mode::Restore).expect("readable");
    machine.is_as(&before, "in the end");
}

#[test]
fn a_killed_vmlab_is_undone_and_a_living_one_is_not() {
    let machine = Machine::new();
    let before = machine.snapshot();
    let alive = AppliedSettings::apply(&machine.tree, &wish(&[("ksm", "1")]), &me()).expect("set");
    let wanted = wish(&[("thp", "always"), ("thp_defrag", "never")]);
    std::mem::forget(AppliedSettings::apply(&machine.tree, &wanted, &dead()).expect("set"));
    let check = |wanted: &[(&str, &str)], message: &str| {
        let error = AppliedSettings::apply(&machine.tree, &wish(wanted), &me()).expect_err(message);
        assert!(error.to_string().contains(message), "{error}");
    };
    check(&[("ksm", "2")], "ksm is held by vmlab process");
    check(&[("thp", "never")], "thp was left changed by run a run; restore it with `vmlab clean`");

    let stale = restore_stale(&machine.tree, Mode::Restore).expect("readable");
    let [stale] = stale.try_into().expect("one");
    assert_eq!(stale.run_id.as_deref(), Some("a run"));
    let restored = stale.restored.expect("restored");
    assert!(restored.iter().all(|one| matches!(one.outcome, RestoreOutcome::Restored)));
    let values = ["thp", "thp_defrag", "ksm"].map(|id| machine.value(id));
    assert_eq!(values, ["madvise", "madvise", "1"], "the living one's stays");
    drop(alive);
    machine.is_as(&before, "in the end");
    assert!(restore_stale(&machine.tree, Mode::Restore).expect("readable").is_empty());
}

#[test]
fn what_others_changed_stays_unless_forced() {
    let machine = Machine::new();
    let settings = AppliedSettings::apply(&machine.tree, &wish(&[("thp", "always")]), &me());
    let settings = settings.expect("set");
    machine.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    let deviations = settings.deviations();
    assert!(deviations[0].ends_with("was made always and is never"), "{deviations:?}");
    for mode in [Mode::Restore, Mode::Force] {
        let machine = Machine::new();
        let changed = AppliedSettings::apply(&machine.tree, &wish(&[("thp", "always")]), &dead());
        std::mem::forget(changed.expect("set"));
        machine.file("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
        let stale = restore_stale(&machine.tree, mode).expect("readable");
        let [stale] = stale.try_into().expect("one");
        let [one] = stale.restored.expect("restored").try_into().expect("one");
        match (mode, one.outcome) {
            (Mode::Restore, RestoreOutcome::ChangedByOthers { present }) => {
                assert_eq!((present.as_str(), machine.value("thp").as_str()), ("never", "never"));
            }
            (Mode::Force, RestoreOutcome::Restored) => assert_eq!(machine.value("thp"), "madvise"),
            (_, outcome) => panic!("{outcome:?}"),
        }
        assert_eq!(machine.journals(), 0);
    }
}

#[test]
fn a_reboot_has_undone_it() {
    let machine = Machine::new();
    let owner = Owner { boot_id: "of an earlier boot".to_owned(), ..me() };
    std::mem::forget(AppliedSettings::apply(&machine.tree, &wish(&[("ksm", "1")]), &owner));
    let stale = restore_stale(&machine.tree, Mode::Restore).expect("readable");
    let [stale] = stale.try_into().expect("one");
    let [one] = stale.restored.expect("restored").try_into().expect("one");
    assert!(matches!(one.outcome, RestoreOutcome::Rebooted));
    assert_eq!((machine.value("ksm").as_str(), machine.journals()), ("1", 0));
}

#[test]
fn what_cannot_be_restored_keeps_its_journal() {
    let machine = Machine::new();
    let wanted = wish(&[("thp", "always"), ("ksm", "1")]);
    std::mem::forget(AppliedSettings::apply(&machine.tree, &wanted, &dead()).expect("set"));
    fs::remove_file(machine.tree.path("sys/kernel/mm/ksm/run")).expect("removed");
    let stale = restore_stale(&machine.tree, Mode::Restore).expect("readable");
    let [stale] = stale.try_into().expect("one");
    let restored = stale.restored.expect("tried");
    assert!(matches!(restored[0].outcome, RestoreOutcome::Failed(_)));
    assert_eq!((machine.value("thp").as_str(), machine.journals()), ("madvise", 1));
    machine.file("sys/kernel/mm/ksm/run", "1");
    let stale = restore_stale(&machine.tree, Mode::Restore).expect("readable");
    assert_eq!((stale.len(), machine.value("ksm").as_str(), machine.journals()), (1, "0", 0));
    // Forced, it is forgotten.
    std::mem::forget(
        AppliedSettings::apply(&machine.tree, &wish(&[("ksm", "1")]), &dead()).expect("set"),
    );
    fs::remove_file(machine.tree.path("sys/kernel/mm/ksm/run")).expect("removed");
    restore_stale(&machine.tree, Mode::Force).expect("readable");
    assert_eq!(machine.journals(), 0);
}

#[test]
fn an_unreadable_journal_stands_in_the_way_until_it_is_set_aside() {
    let machine = Machine::new();
    fs::create_dir_all(&machine.tree.state_dir).expect("mkdir");
    let path = machine.tree.state_dir.join("settings-1-0.json");
    fs::write(&path, "{").expect("written");
    let apply = || AppliedSettings::apply(&machine.tree, &wish(&[("ksm", "1")]), &me());
    let error = full(&apply().expect_err("not known what is changed"));
    for part in ["settings-1-0.json", "EOF", "`vmlab clean --force` sets it aside"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let stale = restore_stale(&machine.tree, Mode::Restore).expect("readable");
    assert!(stale[0].restored.is_err() && stale[0].set_aside.is_none() && path.exists());
    let stale = restore_stale(&machine.tree, Mode::Force).expect("readable");
    assert!(stale[0].set_aside.as_ref().is_some_and(|aside| aside.exists()) && !path.exists());
    assert!(restore_stale(&machine.tree, Mode::Force).expect("readable").is_empty());
    apply().expect("set").restore().expect("put back");
}

/// Files of this process that are the lock of settings.
fn open_locks() -> usize {
    let files = fs::read_dir("/proc/self/fd").expect("Linux").flatten();
    files
        .filter_map(|file| fs::read_link(file.path()).ok())
        .filter(|path| path.ends_with("settings.lock"))
        .count()
}

#[test]
fn what_another_vmlab_has_set_is_never_taken_for_the_old_value() {
    let machine = Machine::new();
    // Another vmlab, in the middle of putting back what it had set.
    let lock = SettingsLock::take(&machine.tree.state_dir).expect("free");
    machine.file("sys/kernel/mm/ksm/run", "1");
    let before = open_locks();
    let settings = std::thread::scope(|scope| {
        let applied =
            scope.spawn(|| AppliedSettings::apply(&machine.tree, &wish(&[("ksm", "2")]), &me()));
        // It has looked at the machine and waits for the lock.
        while open_locks() == before {
            std::thread::yield_now();
        }
        machine.file("sys/kernel/mm/ksm/run", "0");
        drop(lock);
        applied.join().expect("no panic").expect("set")
    });
    assert_eq!(machine.value("ksm"), "2");
    settings.restore().expect("put back");
    assert_eq!(machine.value("ksm"), "0");
}

#[test]
fn journals_that_say_odd_things_are_refused() {
    let machine = Machine::new();
    let before = machine.value("thp");
    let owner = serde_json::to_string(&dead()).expect("json");
    let check = |changes: &str, version: u32| {
        fs::create_dir_all(&machine.tree.state_dir).expect("mkdir");
        let text = format!(r#"{{"version":{version},"owner":{owner},"changes":{changes}}}"#);
        fs::write(machine.tree.state_dir.join("settings-1-0.json"), &text).expect("written");
        let stale = restore_stale(&machine.tree, Mode::Force).expect("readable");
        let [stale] = stale.try_into().expect("one");
        assert!(stale.restored.is_err(), "{text}");
        assert_eq!(machine.value("thp"), before);
        let aside = stale.set_aside.expect("forced");
        assert_eq!(fs::read_to_string(&aside).expect("kept"), text);
        assert_eq!(machine.journals(), 0);
    };
    let thp = "/sys/kernel/mm/transparent_hugepage/enabled";
    let entry = |setting: &str, target: &str, old: &str| {
        format!(r#"[{{"setting":"{setting}","target":"{target}","old":"{old}","new":"x"}}]"#)
    };
    check(&entry("../etc/passwd", thp, "never"), 2);
    check(&entry("thp", "/etc/passwd", "never"), 2);
    check(&entry("thp", "/sys/kernel/mm/ksm/run", "never"), 2);
    check(&entry("cpufreq_governor", "/sys/devices/system/cpu/cpufreq/policy/../x", "a"), 2);
    check(&entry("halt_poll_ns", "module:e1000", "absent"), 2);
    check(&entry("isolated_pcpus", "isolated:/etc", "absent"), 2);
    check(&entry("thp", thp, "a\\nb"), 2);
    check(&entry("thp", thp, "never"), 1);
    check(r#"[{"setting":"thp","old":"never"}]"#, 2);
    check("[", 2);
}

#[test]
fn a_partition_takes_threads_in_and_gives_them_back() {
    let machine = Machine::new();
    assert_eq!(partitions(&machine.tree), []);
    let settings =
        AppliedSettings::apply(&machine.tree, &wish(&[("isolated_pcpus", "2-3")]), &me());
    let settings = settings.expect("set");
    let text = |name: &str| machine.tree.text(&format!("{MOUNT}/{name}")).expect("text");
    assert_eq!(text("cgroup.subtree_control"), "cpuset cpu memory");
    assert_eq!(text("vmlab-isolated/cgroup.type"), "threaded");
    assert_eq!(text("vmlab-isolated/cpuset.cpus.partition"), "isolated");
    let [partition] = partitions(&machine.tree).try_into().expect("one");
    assert_eq!(partition.pcpus.to_string(), "2-3");
    partition.reach(4711).expect("the process");
    partition.take_in(4712).expect("its thread");
    assert_eq!(text("cgroup.procs"), "4711");
    assert_eq!(text("vmlab-isolated/cgroup.threads"), "4712");
    settings.restore().expect("restored");
    assert_eq!(text("cgroup.threads"), "4712");
    assert_eq!(text("cgroup.subtree_control"), "cpu memory");
    assert!(!machine.tree.has(&format!("{MOUNT}/vmlab-isolated")));
}

/// Sets and puts back what this machine lets.
#[test]
fn the_real_things_are_set_and_put_back() {
    // All pCPUs: some of it says where everybody may run.
    let all = needs(Tier::Test).pcpus(usize::MAX).alone_with(SharedThing::Settings);
    let Some(_turn) = all.turn() else { return };
    let tree = SettingsTree::live();
    for (id, one, other) in [
        ("thp", "always", "madvise"),
        ("thp_defrag", "defer", "madvise"),
        ("khugepaged_scan_sleep_ms", "20000", "10000"),
        ("ksm", "1", "0"),
        ("ksm_pages_to_scan", "50", "100"),
        ("numa_balancing", "1", "0"),
        ("hugepages_2m", "8", "0"),
        ("halt_poll_ns", "100000", "200000"),
        ("cpuidle_governor", "menu", "haltpoll"),
        ("guest_halt_poll_ns", "1000", "0"),
        ("isolated_pcpus", "1", "none"),
        ("irqs_off_pcpus", "1", "none"),
        ("sched_migration_cost_ns", "400000", "500000"),
        ("sched_autogroup_enabled", "0", "1"),
        ("sched_rt_runtime_us", "900000", "950000"),
        ("timer_migration", "0", "1"),
        ("watchdog_thresh_s", "20", "10"),
    ] {
        let row = setting(id).expect("known");
        if let Err(refusal) = row.check_settable(&tree, false) {
            suite::skip_part(id, refusal);
            continue;
        }
        let before = row.read(&tree).expect("readable").value;
        let wanted = if before == one { other } else { one };
        let settings = match AppliedSettings::apply(&tree, &wish(&[(id, wanted)]), &me()) {
            // A machine has but so many free pages.
            Err(error @ ApplyError::Set { undone: true, .. }) => {
                suite::skip_part(id, full(&error));
                assert_eq!(row.read(&tree).expect("readable").value, before, "{id}");
                continue;
            }
            // A kernel is built with but so many governors.
            Err(
                ref error @ ApplyError::Refused { source: SettingRefusal::NotOffered { .. }, .. },
            ) => {
                suite::skip_part(id, full(error));
                continue;
            }
            other => other.expect(id),
        };
        let notes = settings.notes().to_vec();
        let now = row.read(&tree).expect("readable").value;
        assert!(now == wanted || !notes.is_empty(), "{id} is {now}, not {wanted}");
        println!("{id}: {before} -> {now} {notes:?}");
        let restored = settings.restore().expect("restored");
        for one in &restored {
            let fine =
                matches!(one.outcome, RestoreOutcome::Restored | RestoreOutcome::AlreadyBack);
            assert!(fine, "{one:?}");
        }
        assert_eq!(row.read(&tree).expect("readable").value, before, "{id}");
    }
}
