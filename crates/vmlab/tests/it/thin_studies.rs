//! Studies whose VMs boot the thin guest.

use std::fs;

use record::Outcome;
use record::journal::{JournalEvent, TrialResult};
use suite::{Tier, needs, skip};
use vmconfig::Arch;

use crate::calibrate;
use crate::lab::{CommandOutput, said, vmlab};
use crate::running::Study;

/// Whether the guests' programs and QEMU are here.
fn is_there() -> bool {
    match runner::probe::find(Arch::X86_64) {
        Ok(_) => calibrate::is_there(),
        Err(error) => {
            skip(error);
            false
        }
    }
}

/// Runs a study to its end: its trials, of which none has failed.
fn trials(rest: &str) -> Vec<TrialResult> {
    let study = Study::new(1, rest);
    let file = study.folder().join("study.toml");
    let dir = study.dir();
    let words = ["run".as_ref(), file.as_os_str(), "--out".as_ref(), dir.as_os_str()];
    let ended = said(&mut vmlab(words));
    ended.has_code(0);
    let contents = runner::store::read(&study.dir()).unwrap();
    let trials = contents.events.into_iter().filter_map(|event| match event {
        JournalEvent::TrialEnded(result) => Some(*result),
        _ => None,
    });
    let trials: Vec<TrialResult> = trials.collect();
    for trial in &trials {
        assert_eq!(trial.outcome, Outcome::Completed, "{trial:#?}");
    }
    trials
}

const VARIANTS: &str = "
[[variant]]
name = \"plain\"
vm = { kernel = \"builtin:thin\", kernel_cmdline = \"calls=plain wait=spin\", vcpus = 2 }

[[variant]]
name = \"ring3\"
vm = { kernel = \"builtin:thin\", kernel_cmdline = \"calls=ring3 wait=halt apic=xapic\", vcpus = 2 }
";

#[test]
fn the_thin_guest_s_samples_are_in_the_journal() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    if !is_there() {
        return;
    }
    let workloads = "
[[workload]]
run = \"probe-syscalls\"
params = { loops = 2000, repeats = 2 }

[[workload]]
run = \"probe-sem\"
params = { items = 200, loops = 10, repeats = 1 }

[[workload]]
run = \"thin\"
params = { operation = \"self-ipi\", n = 20 }
";
    let trials = trials(&format!("{VARIANTS}{workloads}"));
    assert_eq!(trials.len(), 6);
    for trial in &trials {
        let samples = |metric: &str| -> Vec<f64> {
            let all = trial.runs.iter().flat_map(|run| &run.samples);
            all.filter(|sample| sample.metric == metric).map(|sample| sample.value).collect()
        };
        assert!(trial.boot_s.is_some_and(|boot_s| boot_s > 0.0), "{trial:#?}");
        assert_eq!(trial.facts["guest.apic"], "xapic", "{:?}", trial.facts);
        match trial.trial.workload.as_str() {
            "probe-syscalls" => assert_eq!(samples("elapsed").len(), 2),
            "probe-sem" => {
                let halts = samples("sleeps-per-item");
                // What spins never halts, and is sent nothing.
                if trial.trial.variant == "plain" {
                    assert_eq!((halts, samples("ipis-per-item")), (vec![0.0], vec![0.0]));
                }
            }
            _ => {
                assert_eq!(samples("ipis-per-op"), [1.0]);
                // Those to itself are none between vCPUs.
                assert_eq!(trial.runs[0].counters.get("guest.ipi_reschedule"), Some(0.0));
            }
        }
    }
}

#[test]
fn what_the_thin_guest_cannot_do_is_said_before_anything_boots() {
    if !is_there() {
        return;
    }
    let check = |rest: &str, parts: &[&str]| {
        let study = Study::new(1, rest);
        let file = study.folder().join("study.toml");
        let said = CommandOutput::of(vmlab(["check".as_ref(), file.as_os_str()]).output().unwrap());
        assert_eq!(said.code, Some(2), "{said:#?}");
        for part in parts {
            assert!(said.stderr.contains(part), "{part:?}: {said:#?}");
        }
    };
    let with = |workload: &str| format!("{VARIANTS}\n[[workload]]\n{workload}");
    check(
        &with("run = \"hackbench\""),
        &["plain:", "\"hackbench\"", "can't be run in the thin guest"],
    );
    check(&with("run = \"probe-sem\"\nparams = { hog = \"nice\" }"), &["hog"]);
    let one = "[[variant]]\nname = \"one\"\nvm = { kernel = \"builtin:thin\" }\n\n[[workload]]\n";
    check(&format!("{one}run = \"probe-sem\""), &["one:", "needs 2 vCPUs"]);
    let kernel = one.replace("builtin:thin", "/boot/vmlinuz");
    check(&format!("{kernel}run = \"thin\""), &["/boot/vmlinuz", "builtin:thin"]);
}

#[test]
fn the_thin_guest_is_said_in_each_form() {
    if let Err(error) = guest::thin::program(Arch::X86_64) {
        skip(error);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("vm.toml");
    fs::write(&file, "kernel = \"builtin:thin\"\nvcpus = 2\nmemory_mib = 256\n").unwrap();
    let emit = |to: &str| {
        let said = said(&mut vmlab(["emit", file.to_str().unwrap(), "--to", to]));
        assert!(said.code.is_some_and(|code| code < 2), "{said:?}");
        said.stdout
    };
    for (to, parts) in [
        ("qemu", &["-kernel ", "vmlab-thin=1 run=nothing:"][..]),
        ("libvirt", &["<kernel>", "<cmdline>vmlab-thin=1 run=nothing:"]),
        ("kubevirt", &["kernelBoot:", "kernelPath: /boot/vmlab-thin-", "kernelArgs:"]),
    ] {
        let text = emit(to);
        for part in parts {
            assert!(text.contains(part), "{to} {part}: {text}");
        }
    }
}

/// What KubeVirt boots lies in the archive under the name that the VM says.
#[test]
fn a_container_of_the_thin_guest_holds_what_is_booted() {
    if let Err(error) = guest::thin::uefi_disk(Arch::X86_64, "") {
        skip(error);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let file = path("thin.toml");
    fs::write(&file, "kernel = \"builtin:thin\"\n").unwrap();
    let has = |archive: &[u8], part: &[u8]| archive.windows(part.len()).any(|found| found == part);

    let (disk, archive) = (path("thin.img"), path("disk.tar"));
    let words = ["emit", &file, "--to", "kubevirt", "--containerdisk", &archive];
    let by_uefi = || said(vmlab(words).args(["--uefi-disk", &disk]));
    by_uefi().has_code(0);
    let written = fs::read(&archive).unwrap();
    assert!(has(&written, b"disk/thin.img") && has(&written, b"io.containerd.image.name"));
    assert!(has(&written, &fs::read(&disk).unwrap()));
    // What stands there is not written over.
    assert!(by_uefi().has_code(2).stderr.contains(&archive));
    assert_eq!(fs::read(&archive).unwrap(), written);

    let archive = path("kernel.tar");
    let shown = said(&mut vmlab(["emit", &file, "--to", "kubevirt", "--containerdisk", &archive]));
    let yaml = &shown.has_code(0).stdout;
    let name = yaml.lines().find_map(|line| line.trim().strip_prefix("kernelPath: /"));
    let name = name.unwrap_or_else(|| panic!("{yaml}"));
    let written = fs::read(&archive).unwrap();
    assert!(has(&written, name.as_bytes()), "{name}");
    assert!(has(&written, &guest::thin::program(Arch::X86_64).unwrap()));

    fs::write(&file, "vcpus = 2\n").unwrap();
    let other =
        said(&mut vmlab(["emit", &file, "--to", "qemu", "--containerdisk", &path("x.tar")]));
    assert!(other.has_code(2).stderr.contains("builtin:thin"), "{other:#?}");
}

/// Firmware starts the loader that has its architecture's name.
#[test]
fn a_disk_for_uefi_firmware_is_that_of_the_guest_s_architecture() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("thin.toml");
    fs::write(&file, "kernel = \"builtin:thin\"\n").unwrap();
    let names = [("x86_64", "BOOTX64 EFI"), ("aarch64", "BOOTAA64EFI")];
    for (arch, own) in names {
        if let Err(error) = guest::thin::uefi_disk(Arch::from_name(arch).unwrap(), "") {
            skip(error);
            return;
        }
        let disk = folder.path().join(format!("{arch}.img"));
        let words = ["emit", file.to_str().unwrap(), "--arch", arch, "--to", "qemu"];
        let shown = said(vmlab(words).arg("--uefi-disk").arg(&disk));
        assert!(shown.code.is_some_and(|code| code < 2), "{shown:#?}");
        assert!(shown.stdout.contains(&format!("qemu-system-{arch}")), "{shown:#?}");
        let written = fs::read(&disk).unwrap();
        for (_, name) in names {
            let is_there = written.windows(name.len()).any(|part| part == name.as_bytes());
            assert_eq!(is_there, name == own, "{arch} {name}");
        }
        // The plan has this architecture's operations alone.
        let plan = String::from_utf8_lossy(&written);
        assert_eq!(plan.contains("sysreg-trap:"), arch == "aarch64");
    }
    let other = said(&mut vmlab(["emit", "--arch", "riscv64", "--to", "qemu"]));
    assert!(other.has_code(2).stderr.contains("riscv64"), "{other:#?}");
}

/// A disk of ours is written, and written over; nothing else is, nor waited for.
#[test]
fn a_disk_for_uefi_firmware_takes_the_place_of_none_but_another() {
    if let Err(error) = guest::thin::uefi_disk(Arch::X86_64, "") {
        skip(error);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("thin.toml");
    fs::write(&file, "kernel = \"builtin:thin\"\n").unwrap();
    let emit = |disk: &std::path::Path| {
        let disk = disk.to_str().unwrap();
        said(&mut vmlab(["emit", file.to_str().unwrap(), "--uefi-disk", disk, "--to", "qemu"]))
    };
    let disk = folder.path().join("thin.img");
    for _ in 0..2 {
        let shown = emit(&disk);
        assert!(shown.code.is_some_and(|code| code < 2), "{shown:#?}");
        assert!(shown.stdout.contains("thin.img"), "{shown:#?}");
        assert_eq!(fs::metadata(&disk).unwrap().len(), 4 << 20);
    }
    let foreign = folder.path().join("foreign.img");
    fs::write(&foreign, "something else").unwrap();
    let fifo = folder.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    for other in [&foreign, &fifo] {
        let refused = emit(other);
        assert!(refused.has_code(2).stderr.contains("is in the way"), "{refused:#?}");
    }
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "something else");
}
