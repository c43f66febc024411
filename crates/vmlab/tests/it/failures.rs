//! Failures in real VMs: each is recorded with its reason, and takes nothing
//! else with it.

use std::fs;
use std::process::{Command, Stdio};

use guest::Cancel;
use guest::image::{BUILTIN, Recipe};
use record::journal::TrialResult;
use record::{Failure, FailureKind, Outcome};
use rustix::process::Signal;
use suite::{Tier, needs, until};

use crate::lab::{said as said_of, vmlab};
use crate::running::{OwnedProcess, RunningVmlab, Study, assert_complete, results, send};

const HACKBENCH: &str =
    "[[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 20 }\n\n";

fn failure(result: &TrialResult) -> Option<&Failure> {
    match &result.outcome {
        Outcome::Failed(failure) => Some(failure),
        Outcome::Completed => None,
    }
}

/// The failures' kinds, in order, of all trials of `variant` and `workload`.
fn kinds(all: &[TrialResult], variant: &str, workload: &str) -> Vec<Option<FailureKind>> {
    all.iter()
        .filter(|result| result.trial.variant == variant && result.trial.workload == workload)
        .map(|result| failure(result).map(|failure| failure.kind))
        .collect()
}

#[test]
fn a_variant_that_fails_leaves_the_others_numbers() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(
        3,
        &format!(
            "[[variant]]\nname = \"good\"\n\n[[variant]]\nname = \"as-good\"\n\n\
             [[variant]]\nname = \"panics\"\n\
             vm.kernel_cmdline = \"rdinit=/nonexistent\"\n\n\
             [[variant]]\nname = \"refused\"\n\
             vm.extra_args = [\"-device\", \"no-such-device\"]\n\n{HACKBENCH}"
        ),
    );
    let said = study.start().wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&store_of(&study));
    // What only fails is left out after two attempts.
    assert_eq!(kinds(&all, "good", "hackbench"), [None; 3]);
    assert_eq!(kinds(&all, "as-good", "hackbench"), [None; 3]);
    let twice = |kind| vec![Some(kind), Some(kind)];
    assert_eq!(kinds(&all, "panics", "hackbench"), twice(FailureKind::GuestPanicked));
    assert_eq!(kinds(&all, "refused", "hackbench"), twice(FailureKind::VmRefused));
    for result in &all {
        let Some(Failure { kind, detail, .. }) = failure(result) else { continue };
        let expected = match kind {
            FailureKind::VmRefused => "no-such-device",
            _ => "Unable to mount root",
        };
        assert!(detail.contains(expected), "{kind}: {detail}");
        let tail = result.console_tail.as_deref().unwrap_or_default();
        assert!(
            *kind != FailureKind::GuestPanicked || tail.contains("Kernel panic"),
            "{result:#?}"
        );
    }
    for words in ["good", "panicked", "no-such-device"] {
        assert!(said.stdout.contains(words), "{words}: {said:#?}");
    }
    let html = fs::read_to_string(study.dir().join("report.html")).unwrap();
    assert!(html.contains("Kernel panic"), "the console's tail stands in the report");
}

#[test]
fn a_guest_that_never_answers_was_given_two_chances() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let silent = "[[variant]]\nname = \"silent\"\nvm.kernel_cmdline = \"vmlab.no_agent\"\n\n";
    let study = Study::new(1, &format!("{silent}{HACKBENCH}"));
    // Nothing here has to boot within it.
    study.change("boot_limit_s = 180", "boot_limit_s = 10");
    let said = study.start().wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    assert!(said.stdout.contains("never answered"), "{said:#?}");
    let all = results(&store_of(&study));
    assert!(!all.is_empty());
    for result in &all {
        let failure = failure(result).expect("it failed");
        assert_eq!(failure.kind, FailureKind::GuestNeverAnswered, "{failure:?}");
        assert!(failure.detail.contains("10 s"), "{failure:?}");
        // Emulated, it may have hung for no fault of its own.
        let again = result.warnings.iter().any(|warning| warning.contains("was started again"));
        assert!(again, "{result:#?}");
        // What its devices were is kept, and said where it is.
        let state = result.device_state.as_ref().unwrap_or_else(|| panic!("{result:#?}"));
        let file = study.dir().join("blobs").join(state);
        let shown = said_of(&mut vmlab(["state", "show", file.to_str().unwrap(), "--json"]));
        let shown = crate::schemas::holds("state", &shown.has_code(0).stdout);
        assert!(shown["devices"].as_array().unwrap().len() > 10, "{shown}");
        for words in ["devices: vmlab state show", state] {
            assert!(said.stdout.contains(words), "{words}: {said:#?}");
        }
    }
}

#[test]
fn an_emulator_that_crashes_during_a_boot_is_started_again() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    // It boots as long as it is let.
    let silent = "[[variant]]\nname = \"silent\"\nvm.kernel_cmdline = \"vmlab.no_agent\"\n\n";
    let study = Study::new(1, &format!("{silent}{HACKBENCH}"));
    study.change("boot_limit_s = 180", "boot_limit_s = 20");
    let mut running = study.start();
    let qemu = running.until_boot();
    send(qemu.pid, Signal::SEGV);
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&store_of(&study));
    let first = all.first().expect("a trial that failed");
    // The second start had its whole limit.
    let failure = failure(first).expect("it failed");
    assert_eq!(failure.kind, FailureKind::GuestNeverAnswered, "{failure:?}");
    let told = "An emulated guest lost its QEMU while it booted (it was killed by signal 11) and \
                was started again";
    assert!(first.warnings.iter().any(|warning| warning.starts_with(told)), "{first:#?}");
}

fn store_of(study: &Study) -> Vec<record::journal::JournalEvent> {
    runner::store::read(&study.dir()).unwrap().events
}

#[test]
fn a_run_that_fails_is_recorded_with_its_reason() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(
        2,
        &format!(
            "[[variant]]\nname = \"one\"\n\n{HACKBENCH}\
             [[workload]]\nrun = \"sysbench-cpu\"\nlabel = \"long\"\nlimit_s = 2\n\
             params = {{ time_s = 1000 }}\n\n\
             [[workload]]\nrun = \"stress-ng\"\nlabel = \"unknown\"\n\
             params = {{ stressor = \"no-such-stressor\" }}\n"
        ),
    );
    let mut running = study.start();
    // Behind vmlab's back, in the middle of a trial.
    let qemu = running.until("a trial of hackbench", |running| {
        let trial = running.trial().filter(|trial| trial.workload == "hackbench")?;
        let qemu = running.qemus().pop().filter(OwnedProcess::is_connected)?;
        (trial.block == 0).then_some(qemu)
    });
    qemu.kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let contents = assert_complete(&study.dir());
    let all = results(&contents.events);
    assert_eq!(
        kinds(&all, "one", "hackbench"),
        [Some(FailureKind::VmDied), None],
        "{:#?}",
        all.iter().filter_map(failure).collect::<Vec<_>>()
    );
    assert_eq!(kinds(&all, "one", "long"), [Some(FailureKind::TimeLimit); 2]);
    assert_eq!(kinds(&all, "one", "unknown"), [Some(FailureKind::WorkloadFailed); 2]);
    let details: Vec<_> = all.iter().filter_map(failure).map(ToString::to_string).collect();
    for expected in ["signal 9", "sysbench", "no-such-stressor"] {
        assert!(details.iter().any(|text| text.contains(expected)), "{expected}: {details:#?}");
    }
}

/// A tool that changes an image, if it is there.
fn tool(program: &str, args: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn an_image_of_the_users_own_boots_and_may_lack_a_workload() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let recipe = Recipe::builtin(BUILTIN, vmconfig::Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    let served = tempfile::tempdir().unwrap();
    let at = served.path().display();
    // The image has no boot loader: QEMU's network card fetches the kernel.
    let study = Study::new(
        1,
        &format!(
            "[[variant]]\nname = \"own\"\nvm.image = \"own.qcow2\"\nvm.extra_args = [\"-netdev\", \
             \"user,id=boot,restrict=on,tftp={at},bootfile=boot.ipxe\", \"-device\", \
             \"virtio-net-pci,netdev=boot,bootindex=2\"]\n\n{HACKBENCH}\
             [[workload]]\nrun = \"sysbench-cpu\"\nparams = {{ events = 50 }}\n"
        ),
    );
    fs::copy(&image.kernel, served.path().join("vmlinuz")).unwrap();
    fs::copy(&image.initrd, served.path().join("initrd")).unwrap();
    let cmdline = image.cmdline.join(" ");
    let script = format!("#!ipxe\nkernel vmlinuz initrd=initrd {cmdline}\ninitrd initrd\nboot\n");
    fs::write(served.path().join("boot.ipxe"), script).unwrap();
    let (raw, own) = (study.folder().join("raw"), study.folder().join("own.qcow2"));
    fs::copy(&image.root_image, &raw).unwrap();
    let (raw, own) = (raw.to_str().unwrap(), own.to_str().unwrap());
    let without = ["-w", "-R", "rm usr/bin/hackbench", raw];
    if !(tool("debugfs", &without) || tool("/sbin/debugfs", &without))
        || !tool("qemu-img", &["convert", "-O", "qcow2", raw, own])
    {
        suite::skip("own image: debugfs or qemu-img is missing");
        return;
    }
    let before = fs::read(own).unwrap();
    let said = study.start().wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let contents = assert_complete(&study.dir());
    let all = results(&contents.events);
    assert_eq!(kinds(&all, "own", "sysbench-cpu"), [None]);
    assert_eq!(kinds(&all, "own", "hackbench"), [Some(FailureKind::WorkloadMissing)]);
    assert!(said.stdout.contains("workload not in the guest"), "{said:#?}");
    assert!(fs::read(own).unwrap() == before, "the image was written to");
}

#[test]
fn a_removed_folder_is_one_error() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(2, &format!("[[variant]]\nname = \"one\"\n\n{HACKBENCH}"));
    let mut running = study.start();
    running.until_boot();
    fs::remove_dir_all(study.dir()).unwrap();
    let said = running.wait();
    assert_eq!(said.code, Some(2), "{said:#?}");
    let errors: Vec<_> = said.stderr.lines().filter(|line| line.starts_with("vmlab: ")).collect();
    assert_eq!(errors.len(), 1, "{said:#?}");
    assert!(errors[0].contains("was the folder removed?"), "{said:#?}");
}

/// A small file system of its own, taken away again on drop.
struct Tmpfs(std::path::PathBuf);

impl Tmpfs {
    fn mount(path: std::path::PathBuf, size: &str) -> Option<Self> {
        fs::create_dir_all(&path).unwrap();
        let at = path.to_str().unwrap();
        let options = format!("size={size},mode=700");
        tool("mount", &["-t", "tmpfs", "-o", &options, "vmlab-test", at]).then(|| Self(path))
    }

    fn grow(&self, size: &str) {
        let options = format!("remount,size={size}");
        assert!(tool("mount", &["-o", &options, self.0.to_str().unwrap()]));
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        tool("umount", &["-l", self.0.to_str().unwrap()]);
    }
}

#[test]
fn a_vm_that_stops_for_good_is_a_recorded_outcome() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(
        2,
        "[[variant]]\nname = \"one\"\n\n\
         [[workload]]\nrun = \"sysbench-cpu\"\nlimit_s = 10\nparams = { time_s = 2 }\n",
    );
    let mut running = study.start_told();
    let qemu = running.until_benchmark();
    // Neither its guest nor its monitor says anything any more.
    send(qemu.pid, Signal::STOP);
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&store_of(&study));
    let (first, later) = all.split_first().expect("the trial was recorded");
    let Failure { kind, detail, .. } = failure(first).expect("it failed");
    assert_eq!(*kind, FailureKind::GuestHung, "{detail}");
    assert!(later.iter().any(|result| result.outcome.is_completed()), "{later:#?}");
}

#[test]
fn a_full_disk_is_one_error_and_the_study_can_go_on() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(3, &format!("[[variant]]\nname = \"one\"\n\n{HACKBENCH}"));
    let Some(disk) = Tmpfs::mount(study.dir(), "40k") else {
        suite::skip("full disk: cannot mount a tmpfs");
        return;
    };
    let said = study.start().wait();
    assert_eq!(said.code, Some(2), "{said:#?}");
    let errors: Vec<_> = said.stderr.lines().filter(|line| line.starts_with("vmlab: ")).collect();
    assert_eq!(errors.len(), 1, "{said:#?}");
    assert!(errors[0].contains("the disk is full"), "{said:#?}");
    let before = results(&store_of(&study));
    // Still readable, and still full.
    let report = crate::lab::said(vmlab(["report"]).arg(study.dir()));
    assert!(matches!(report.code, Some(0 | 1)), "{report:#?}");
    let full = study.resume().wait();
    assert_eq!(full.code, Some(2), "{full:#?}");
    assert!(full.stderr.contains("the disk is full"), "{full:#?}");

    disk.grow("10m");
    let ended = study.resume().wait();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let after = results(&assert_complete(&study.dir()).events);
    assert!(after.starts_with(&before), "{before:#?}\nis no beginning of\n{after:#?}");
}

#[test]
fn an_interrupted_image_build_leaves_nothing() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let cache = tempfile::tempdir().unwrap();
    let mut command = vmlab(["image", "build"]);
    command.env("XDG_CACHE_HOME", cache.path());
    let mut running = RunningVmlab::spawn(&mut command, cache.path());
    let folder = cache.path().to_str().unwrap().to_owned();
    let builders = || {
        let pids = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(&folder)
        })
        .count()
    };
    running.until("mmdebstrap at work", |_| (builders() > 0).then_some(()));
    let said = running.interrupt(Signal::INT);
    assert!(said.stderr.contains("Cancelled"), "{said:#?}");
    // What removes the folder outlives the build.
    until("the end of all that knows the folder", || (builders() == 0).then_some(()));
    let left: Vec<_> = fs::read_dir(cache.path().join("vmlab/images"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".lock"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_interrupted_look_at_kvm_leaves_nothing() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if let Err(error) = fs::File::options().read(true).write(true).open("/dev/kvm") {
        suite::skip(format!("look at KVM: /dev/kvm: {error}"));
        return;
    }
    let recipe = Recipe::builtin(BUILTIN, vmconfig::Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    // A cache with the image and without a verdict.
    let cache = tempfile::tempdir().unwrap();
    fs::create_dir(cache.path().join("vmlab")).unwrap();
    let images = cache.path().join("vmlab/images");
    std::os::unix::fs::symlink(image.folder.parent().unwrap(), &images).unwrap();
    let study = Study::new(1, &format!("[[variant]]\nname = \"one\"\n\n{HACKBENCH}"));
    study.change("accel = \"tcg\"", "accel = \"auto\"");
    let mut command = vmlab(["run"]);
    command.arg(study.folder().join("study.toml")).arg("--out").arg(study.dir());
    let mut running =
        RunningVmlab::spawn(command.env("XDG_CACHE_HOME", cache.path()), &study.dir());
    running.until("a guest under KVM", |running| {
        let qemus = running.qemus();
        qemus.iter().any(|qemu| qemu.command_line.contains("kvm-check")).then_some(())
    });
    let said = running.interrupt(Signal::INT);
    assert!(said.stderr.contains("Cancelled"), "{said:#?}");
    assert!(!study.dir().exists(), "nothing was begun");
    assert!(!cache.path().join("vmlab/kvm.json").exists(), "and nothing was found out");
}
