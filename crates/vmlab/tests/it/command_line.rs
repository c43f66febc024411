//! The command line without VMs: help, messages, pipes, colours.

use std::fs;
use std::process::{Command, Stdio};

use rustix::fs::FlockOperation;

use crate::lab::{CommandOutput, Machine, said, vmlab};

#[test]
fn every_help_has_examples() {
    let names = [
        "host",
        "audit",
        "check",
        "run",
        "report",
        "plan",
        "predict",
        "lint",
        "image",
        "workloads",
        "settings",
        "clean",
        "completions",
        "manual",
        "compare",
        "export",
    ];
    for name in names {
        let said = said(&mut vmlab([name, "--help"]));
        said.has_code(0);
        assert!(said.stdout.contains("Examples:\n"), "{name}: {said:#?}");
        assert!(said.stdout.contains(&format!("vmlab {name}")), "{name}: {said:#?}");
    }
    for action in ["build", "list", "rm"] {
        said(&mut vmlab(["image", action, "--help"])).has_code(0);
    }
    assert!(said(&mut vmlab(["--help"])).has_code(0).stdout.contains("Examples:\n"));
    assert!(said(&mut vmlab(["--version"])).has_code(0).stdout.starts_with("vmlab "));
    // No arguments, unknown ones: the usage, and an error's exit code.
    said(&mut vmlab::<&str>([])).has_code(2);
    said(&mut vmlab(["chekc"])).has_code(2);
    said(&mut vmlab(["run"])).has_code(2);
}

#[test]
fn completions_are_there() {
    for shell in ["bash", "zsh", "fish"] {
        let said = said(&mut vmlab(["completions", shell]));
        assert!(said.has_code(0).stdout.contains("workloads"), "{shell}");
    }
    said(&mut vmlab(["completions", "tcsh"])).has_code(2);
}

#[test]
fn manual_pages_are_sound() {
    let page = said(&mut vmlab(["manual", "settings", "set"]));
    assert!(page.has_code(0).stdout.starts_with(".ie \\n(.g .ds Aq"), "{page:#?}");
    assert!(page.stdout.contains("\n.TH VMLAB-SETTINGS-SET 1 "), "{page:#?}");
    said(&mut vmlab(["manual", "setings"])).is_error(&["no command `setings`", "settings"]);
    said(&mut vmlab(["manual", "run", "it"])).is_error(&["`vmlab run` has no commands"]);
    // The half of `run --on` over there is nobody's command.
    said(&mut vmlab(["manual", "far-side"])).is_error(&["no command `far-side`"]);

    let folder = tempfile::tempdir().unwrap();
    said(vmlab(["manual", "--date", "2026-01-02", "--out"]).arg(folder.path())).has_code(0);
    let pages: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Its warnings are man(7) that formatters read differently; beyond them is style.
    let lint = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(pages).output();
    match lint {
        Err(error) => println!("SKIP: manual pages, by mandoc: {error}"),
        Ok(lint) => assert_eq!(String::from_utf8_lossy(&lint.stdout), ""),
    }
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    let machine = Machine::with_qemu("8.2.0");
    let results = machine.results();
    let results = results.to_str().unwrap();
    for args in [
        &["workloads"][..],
        &["workloads", "--markdown"],
        &["completions", "bash"],
        &["manual"],
        &["host"],
        &["host", "--json"],
        &["check", "small.toml"],
        &["report", results],
        &["report", results, "--format", "html"],
        &["image", "list"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = machine.vmlab(args);
        command.stdout(writer).stderr(Stdio::piped());
        let said = CommandOutput::of(command.spawn().unwrap().wait_with_output().unwrap());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_full_output_is_an_error() {
    let full = || fs::File::options().write(true).open("/dev/full");
    let Ok(output) = full() else {
        suite::skip("there is no /dev/full");
        return;
    };
    let mut command = vmlab(["workloads"]);
    let child = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
    let said = CommandOutput::of(child.wait_with_output().unwrap());
    said.is_error(&["Cannot write to standard output", "No space left"]);
}

#[test]
fn colours_follow_the_wish() {
    let machine = Machine::with_qemu("8.2.0");
    let results = machine.results();
    let escapes = |args: &[&str], no_color: Option<&str>| {
        let mut command = machine.vmlab(args);
        command.arg("report").arg(&results).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command.envs(no_color.map(|value| ("NO_COLOR", value)));
        let said = said(&mut command);
        said.stdout.contains('\x1b')
    };
    assert!(escapes(&["--color", "always"], None));
    assert!(!escapes(&["--color", "never"], None));
    assert!(!escapes(&[], None), "standard output is no terminal");
    assert!(!escapes(&[], Some("1")));
    // Errors, too.
    let error = |colour: &str| machine.say(["--color", colour, "check", "none.toml"]).stderr;
    assert!(error("always").contains('\x1b') && !error("never").contains('\x1b'));
}

#[test]
fn a_study_with_errors_is_refused_by_line() {
    let machine = Machine::with_qemu("8.2.0");
    let check = |from: &str, to: &str, line: usize, parts: &[&str]| {
        let study = machine.study(&[(from, to)]);
        for args in [&["check"][..], &["run", "--dry-run"], &["run"]] {
            let said = said(machine.vmlab(args).arg(&study));
            let place = format!("small.toml:{line}: ");
            said.is_error(&[&[place.as_str()], parts].concat());
        }
    };
    check("vm.vcpus = 2", "vm.vcpu = 2", 20, &["`vcpu`", "did you mean `vcpus`?"]);
    check("memory_mib", "memory_mb", 11, &["`memory_mb`", "did you mean `memory_mib`?"]);
    check("blocks = 2", "blocks = 0", 7, &["blocks = 0", "between 1 and 10000"]);
    check("blocks = 2", "blocks = -1", 7, &["-1"]);
    check("blocks = 2", "minutes = nan", 7, &["minutes = NaN"]);
    check("blocks = 2", "boot_limit_s = 1e300", 7, &["boot_limit_s", "a year"]);
    check("groups = 1 }", "groups = 1 }\nlimit_s = 1e19", 25, &["limit_s", "a year"]);
    check("hackbench", "hackbnech", 23, &["hackbnech", "hackbench"]);
    check("groups", "grops", 24, &["grops", "groups"]);
    check("groups = 1", "groups = 0", 24, &["groups", "0"]);
    check("groups = 1", "groups = [1]", 24, &["groups: a array"]);
    check("baseline = \"one\"", "baseline = \"onee\"", 3, &["\"onee\"", "did you mean \"one\"?"]);
    check("name = \"two\"", "name = \"one\"", 19, &["\"one\" is used twice"]);
    check("name = \"two\"", "name = \"zwei Stück\"", 19, &["zwei Stück", "letters"]);
    check("vcpus = 2", "vcpus = 0", 20, &["vcpus is 0"]);
    check("vcpus = 2", "vcpus = 100000", 20, &["100000"]);
    check("vcpus = 2", "pins = [\"70000\"]", 20, &["70000"]);
    check("memory_mib = 256", "memory_mib = 99999999999", 11, &["99999999999"]);
    check("vmlab = 1", "vmlab = 2", 1, &["2", "reads version 1"]);
    check("title = ", "title ", 2, &["expected `=`"]);
    let image = |image: &str, parts: &[&str]| {
        let study = machine.study(&[("disk.raw", image)]);
        said(machine.vmlab(["run"]).arg(&study)).is_error(parts);
    };
    image("none.raw", &["none.raw", "qcow2 or raw"]);
    image(".", &["is not a file"]);
    image("builtin:debian-99", &["debian-99", "debian-12"]);
    image("builtin:", &["builtin:", "small.toml:12: "]);
}

#[test]
fn odd_places_are_said() {
    let machine = Machine::with_qemu("8.2.0");
    machine.study(&[]);
    fs::create_dir(machine.path("folder")).unwrap();
    fs::write(machine.path("bytes.toml"), [0xff, 0xfe, 0]).unwrap();
    for study in ["none.toml", "folder", "bytes.toml", "small.toml/x"] {
        machine.say(["check", study]).is_error(&["Cannot read the study", study]);
        machine.say(["run", study]).is_error(&["Cannot read the study", study]);
    }
    for out in ["small.toml", "small.toml/below", "/proc/none"] {
        machine.say(["run", "small.toml", "--out", out]).is_error(&[out]);
    }
    // Known before a missing image would be built.
    fs::write(machine.path("folder/plan.json"), "").unwrap();
    let changed = machine.study(&[("disk.raw", "builtin:debian-12")]);
    let mut run = machine.vmlab(["run".as_ref(), changed.as_os_str()]);
    said(run.args(["--out", "folder"])).is_error(&["folder holds a study already"]);
    fs::remove_file(machine.path("folder/plan.json")).unwrap();
    for folder in ["folder", "none", "small.toml"] {
        machine.say(["run", "--resume", folder]).is_error(&[folder, "holds no study"]);
        machine.say(["report", folder]).is_error(&[folder, "holds no study"]);
    }
    let mut build = machine.vmlab(["image", "build"]);
    build.env("XDG_CACHE_HOME", "/proc/none");
    said(&mut build).is_error(&["Cannot write", "/proc/none"]);
    machine.say(["image", "build", "debian-11"]).is_error(&["debian-11", "debian-12"]);
    machine.say(["image", "rm", "debian-11"]).is_error(&["debian-11", "vmlab image list"]);
    machine.say(["image", "rm", "../.."]).is_error(&["../.."]);
    machine.say(["workloads", "hackbnech"]).is_error(&["hackbnech", "hackbench"]);
}

#[test]
fn a_missing_and_an_old_qemu_are_said() {
    let machine = Machine::with_qemu("5.2.0");
    machine.study(&[]);
    for args in [&["check", "small.toml"][..], &["run", "small.toml"]] {
        machine.say(args).is_error(&["qemu-system-", "5.2", "6.2"]);
        let mut without = machine.vmlab(args);
        without.env("PATH", machine.path("folder"));
        said(&mut without).is_error(&["qemu-system-", "is not installed", "apt-get install"]);
    }
    // No program for a host load.
    let machine = Machine::with_qemu("8.2.0");
    let load = "[[load]]\nname = \"busy\"\nstress.percent = 50\n\n[[workload]]";
    machine.study(&[("[[workload]]", load)]);
    machine.say(["check", "small.toml"]).is_error(&["\"busy\"", "apt-get install stress-ng"]);
    // The host is described all the same.
    machine.say(["host"]).has_code(0);
}

#[test]
fn nothing_but_the_program_is_needed_to_look() {
    let machine = Machine::with_qemu("8.2.0");
    machine.study(&[]);
    for args in [
        &["check", "small.toml"][..],
        &["host"],
        &["workloads"],
        &["image", "list"],
        &["clean", "-n"],
    ] {
        let mut command = machine.vmlab(args);
        command.env_clear().env("PATH", machine.path("bin")).env("LANG", "C");
        said(&mut command).has_code(0);
    }
    // The plan names no folder of the caller's.
    let mut elsewhere = machine.vmlab(["check".as_ref(), machine.path("small.toml").as_os_str()]);
    said(elsewhere.current_dir("/")).has_code(0);
}

#[test]
fn a_complete_study_is_reported_and_resumed_without_vms() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    // Left by a dead process; nobody holds it.
    fs::write(dir.join("lock"), "process 1\n").unwrap();
    let report = machine.say(["report", "results"]);
    assert!(report.has_code(0).stdout.contains("hackbench"), "{report:#?}");
    for format in ["text", "html", "json", "csv", "samples-json"] {
        let said = machine.say(["report", "results", "--format", format]);
        assert!(said.has_code(0).stdout.len() > 100, "{said:#?}");
    }
    machine.say(["run", "--resume", "results"]).has_code(0);
    for name in ["report.html", "report.json", "samples.csv", "samples.json"] {
        assert!(dir.join(name).is_file(), "{name}");
    }
    // The same folder again: neither overwritten nor mixed.
    let again = machine.say(["run", "small.toml", "--out", "results"]);
    again.is_error(&["results holds a study already", "--resume results"]);

    let lock = fs::File::options().write(true).open(dir.join("lock")).unwrap();
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
    machine.say(["run", "--resume", "results"]).is_error(&["in use by another vmlab", "process"]);
    machine.say(["report", "results"]).has_code(0);
}

#[test]
fn prices_of_elsewhere_are_no_prices_here() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    let list = |version: u32| {
        serde_json::json!({
            "format": "vmlab-calibration", "version": version, "environment": "kvm",
            "count": "cycles", "kernel": "6.1.0", "cpu_model": "Another one", "qemu": "QEMU 9",
            "machine": "q35", "cpu": "host", "vcpus": 1, "apic": "x2apic",
            "tsc_khz": 2_000_000, "notes": [], "prices": [],
        })
    };
    let with = |text: &str| {
        fs::write(machine.path("prices.json"), text).unwrap();
        machine.say(["report", "results", "--prices", "prices.json"])
    };
    let said = with(&list(1).to_string());
    assert!(said.has_code(0).stdout.contains("No account in seconds"), "{said:#?}");
    let resumed = machine.say(["run", "--resume", "results", "--prices", "prices.json"]);
    resumed.is_error(&["--prices", "emulated time"]);
    assert!(!dir.join("calibration.json").exists());
    with(&list(2).to_string()).is_error(&["prices.json", "version 2", "newer vmlab"]);
    with("no list").is_error(&["prices.json", "no calibration"]);
    fs::remove_file(machine.path("prices.json")).unwrap();
    let none = machine.say(["report", "results", "--prices", "prices.json"]);
    none.is_error(&["prices.json"]);
}

#[test]
fn a_damaged_journal_is_told_from_a_torn_one() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    let path = dir.join("journal.jsonl");
    let whole = fs::read(&path).unwrap();
    // Cut anywhere: what is left is reported. With nothing lost no word of it.
    for length in (0..whole.len()).step_by(whole.len() / 60) {
        fs::write(&path, &whole[..length]).unwrap();
        let said = machine.say(["report", "results"]);
        assert!(matches!(said.code, Some(0 | 1)), "{length}: {said:#?}");
    }
    // A bit that flipped: the report uses what is not hit and says so; to go on
    // there would be to go on with a gap.
    for place in (1..whole.len()).step_by(whole.len() / 60) {
        let mut flipped = whole.clone();
        flipped[place] ^= 4;
        fs::write(&path, &flipped).unwrap();
        let said = machine.say(["report", "results"]);
        said.has_code(1);
        assert!(said.stderr.contains("journal.jsonl:"), "{place}: {said:#?}");
        // Wrapped at some width.
        let words = said.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("left out"), "{place}: {said:#?}");
    }
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 4;
    fs::write(&path, &flipped).unwrap();
    machine.say(["run", "--resume", "results"]).is_error(&["journal.jsonl:", "damaged"]);
    assert_eq!(fs::read(&path).unwrap(), flipped, "left as it was");

    // Torn in its last line: cut off, kept, gone on.
    fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    crate::lab::acknowledge(&dir, std::str::from_utf8(&whole[..last]).unwrap());
    let said = machine.say(["run", "--resume", "results"]);
    assert!(said.has_code(0).stderr.contains("a write was cut off"), "{said:#?}");
    assert!(dir.join("journal.torn").exists());
    machine.say(["report", "results"]).has_code(0);
}

#[test]
fn a_damaged_plan_is_said() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = machine.results();
    let plan = fs::read_to_string(dir.join("plan.json")).unwrap();
    let check = |text: &str, parts: &[&str]| {
        fs::write(dir.join("plan.json"), text).unwrap();
        machine.say(["report", "results"]).is_error(parts);
        machine.say(["run", "--resume", "results"]).is_error(parts);
    };
    check("", &["plan.json:1"]);
    check(&plan[..plan.len() / 2], &["plan.json:"]);
    check(&plan.replacen("\"seed\": 1", "\"seed\": 2", 1), &["belongs to another plan"]);
    check(&plan.replacen("\"version\": 1", "\"version\": 2", 1), &["plan.json"]);
    fs::write(dir.join("plan.json"), &plan).unwrap();
    // Another QEMU than the blocks that are there.
    let other = Machine::with_qemu("9.0.0");
    let mut command = other.vmlab(["run".as_ref(), "--resume".as_ref(), dir.as_os_str()]);
    said(&mut command).is_error(&["8.2.0", "9.0.0", "start anew"]);
}
