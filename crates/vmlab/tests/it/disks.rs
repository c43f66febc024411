//! Disks of many kinds, asked by fio in real guests.

use std::collections::BTreeMap;

use record::journal::TrialResult;
use record::{FailureKind, Outcome};
use suite::{Tier, needs, until};

use crate::lab::{events, said, vmlab};
use crate::running::{OwnedProcess, Study, assert_complete, owned_by, results};

/// Results by variant, all completed.
fn by_variant(study: &Study) -> BTreeMap<String, TrialResult> {
    let all = results(&events(&study.dir()));
    let all = all.into_iter().inspect(|result| {
        assert!(result.outcome.is_completed(), "{result:#?}");
    });
    all.map(|result| (result.trial.variant.clone(), result)).collect()
}

#[test]
fn disks_are_served_by_whom_a_variant_says() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let with_daemon = host::program::find("qemu-storage-daemon").is_some();
    let daemon = if with_daemon {
        "[[variant]]\nname = \"daemon\"\ndisk = { bus = \"vhost-user-blk\", queues = 1 }\n\
         vm.memory = { shared = true, source = \"memfd\" }\n\n"
    } else {
        suite::skip("a disk of qemu-storage-daemon: it is not installed");
        ""
    };
    let study = Study::new(
        1,
        &format!(
            "iothreads = 2\niothread_poll_max_ns = 4000\n\n\
             [[variant]]\nname = \"each\"\ndisk.iothread = \"each\"\n\n\
             [[variant]]\nname = \"scsi\"\ndisk.bus = \"virtio-scsi\"\n\n{daemon}\
             [[workload]]\nrun = \"fio\"\n\
             params = {{ disks = 2, size_mib = 8, time_s = 1, ramp_s = 0 }}\n"
        ),
    );
    let running = study.start();
    let owner = running.pid();
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert_complete(&study.dir());
    let all = by_variant(&study);
    let args = |variant: &str, wanted: &str| {
        all[variant].qemu_args.iter().filter(|arg| arg.contains(wanted)).count()
    };
    assert_eq!(args("each", "poll-max-ns=4000"), 2);
    assert_eq!(args("each", "virtio-blk-pci,drive=disk0,iothread=iothread1"), 1);
    assert_eq!(args("each", "virtio-blk-pci,drive=disk1,iothread=iothread2"), 1);
    assert_eq!(args("scsi", "serial=vmlab-scratch-2"), 1);
    for (variant, result) in &all {
        let run_s = result.runs[0].counters.get("disk_server.run_s");
        assert_eq!(run_s.is_some(), variant == "daemon", "{variant}: {result:#?}");
        let asked = |sample: &record::Sample| sample.metric == "requests-per-s";
        assert!(result.runs[0].samples.iter().any(asked), "{result:#?}");
    }
    if with_daemon {
        assert_eq!(args("daemon", "vhost-user-blk-pci"), 2);
    }
    assert!(owned_by(owner).is_empty(), "daemons end with their VMs");
}

#[test]
fn a_daemon_that_dies_is_the_recorded_reason() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if host::program::find("qemu-storage-daemon").is_none() {
        suite::skip("qemu-storage-daemon is not installed");
        return;
    }
    let study = Study::new(
        1,
        "memory = { shared = true, source = \"memfd\" }\n\n\
         [disk]\nbus = \"vhost-user-blk\"\n\n\
         [[variant]]\nname = \"daemon\"\n\n\
         [[workload]]\nrun = \"fio\"\n\
         params = { disks = 1, size_mib = 8, time_s = 600, ramp_s = 0 }\n",
    );
    let mut running = study.start_told();
    let owner = running.pid();
    running.until_benchmark();
    let is_daemon = |owned: &OwnedProcess| owned.command_line.starts_with("qemu-storage-daemon");
    let daemon = owned_by(owner).into_iter().find(is_daemon).expect("the daemon");
    daemon.kill();
    until("the end of the daemon", || (!daemon.is_alive()).then_some(()));
    // The guest waits for its disk; what is recorded is what was found first.
    let vm = owned_by(owner).into_iter().find(|owned| owned.is_vm("trial"));
    vm.expect("the VM").kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&events(&study.dir()));
    let Outcome::Failed(failure) = &all[0].outcome else { panic!("{:#?}", all[0]) };
    assert_eq!(failure.kind, FailureKind::WorkloadFailed, "{failure:?}");
    assert!(failure.detail.starts_with("qemu-storage-daemon"), "{failure:?}");
}

#[test]
fn what_a_disk_cannot_be_is_said_before_anything_runs() {
    let fio = "[[workload]]\nrun = \"fio\"\nparams = { disks = DISKS, size_mib = 8 }\n";
    for (disk, disks, words) in [
        ("backing = \"null-blk\"", "0", "keeps nothing"),
        ("backing = \"brd\"", "2", "one disk in memory at a time"),
        ("backing.devices = { paths = [\"/dev/null\"] }", "1", "overwrite = true"),
        ("backing.devices = { paths = [\"/dev/null\"], overwrite = true }", "2", "wants 2"),
        ("backing.devices = { paths = [\"/dev/null\"], overwrite = true }", "1", "no block device"),
        ("bus = \"vhost-user-blk\"", "1", "memory.shared = true"),
        ("bus = \"vhost-scsi\"\ncache = \"none\"", "1", "the host's page cache"),
        ("bus = \"vfio\"", "1", "write backing.devices"),
        (
            "bus = \"vfio\"\niothread = 1\n\
             backing.devices = { paths = [\"/dev/null\"], overwrite = true }",
            "1",
            "leave out iothread",
        ),
        (
            "bus = \"vfio\"\nbacking.devices = { paths = [\"/dev/null\"], overwrite = true }",
            "0",
            "wants a file system",
        ),
        (
            "bus = \"vfio\"\nbacking.devices = { paths = [\"/dev/null\"], overwrite = true }",
            "1",
            "This host has no disk /dev/null",
        ),
        (
            "bus = \"vfio\"\nbacking.devices = { paths = [\"ffff:ff:1f.7\"], overwrite = true }",
            "1",
            "no disk that a driver of the host shows",
        ),
        ("iothread = \"all\"", "1", "a number from 1, or \"each\""),
    ] {
        let text = format!("[disk]\n{disk}\n\n{}", fio.replace("DISKS", disks));
        let study = Study::new(1, &format!("[[variant]]\nname = \"one\"\n\n{text}"));
        let said =
            said(&mut vmlab(["check".as_ref(), study.folder().join("study.toml").as_os_str()]));
        said.is_error(&["study.toml:", words]);
    }
}
