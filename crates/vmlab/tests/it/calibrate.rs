//! `vmlab calibrate`, with the real thin guest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use expect_test::expect_file;
use rustix::process::Signal;
use serde_json::Value;
use suite::{Tier, needs, skip};

use crate::lab::{CommandOutput, said, vmlab};
use crate::running::RunningVmlab;

fn calibrate(args: &[&str]) -> CommandOutput {
    CommandOutput::of(vmlab([&["calibrate"], args].concat()).output().unwrap())
}

/// Whether the thin guest is carried and there is a QEMU for it.
pub(crate) fn is_there() -> bool {
    if let Err(error) = guest::qemu::find_qemu(vmconfig::Arch::X86_64) {
        skip(error);
        return false;
    }
    if let Err(error) = guest::thin::program(vmconfig::Arch::X86_64) {
        skip(error);
        return false;
    }
    true
}

#[test]
fn bad_input_is_one_clear_error() {
    for n in ["0", "1000000000000000000", "-1", "many"] {
        let said = calibrate(&["--n", n]);
        assert!(said.code == Some(2) && said.stderr.contains(n), "{said:?}");
    }
    calibrate(&["--only", "cpuid,nothing-like-it"]).is_error(&["nothing-like-it", "--list"]);
    calibrate(&["--compare", "/no/such", "/no/such"]).is_error(&["/no/such"]);
    calibrate(&["--use", "no-such-variant"]).is_error(&["no-such-variant"]);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let other = file("other.txt", "mine");
    calibrate(&["--out", &other]).is_error(&["in the way", "no calibration"]);
    assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
    for (args, parts) in [
        (["--arch", "x86_64", "--apic", "gicv3"], ["gicv3", "xapic and x2apic"]),
        (["--arch", "aarch64", "--apic", "xapic"], ["xapic", "gicv2 and gicv3"]),
        (["--arch", "x86_64", "--vcpus", "66"], ["64", "66"]),
        (["--arch", "x86_64", "--vcpus", "300"], ["64", "300"]),
    ] {
        if guest::qemu::find_qemu(vmconfig::Arch::from_name(args[1]).unwrap()).is_ok() {
            calibrate(&[&args[..], &["--dry-run"]].concat()).is_error(&parts);
        }
    }
    let vm = file("vm.toml", "kernel_cmdline = \"quiet\"");
    calibrate(&["--dry-run", "--vm", &vm]).is_error(&["kernel_cmdline"]);
}

#[test]
fn the_operations_are_listed_and_a_dry_run_boots_nothing() {
    let list = calibrate(&["--list"]);
    assert!(list.has_code(0).stdout.contains("* cpuid"), "{list:?}");
    if !is_there() {
        return;
    }
    let dry = calibrate(&["--dry-run", "--only", "cpuid", "--n", "7", "--vcpus", "3"]);
    dry.has_code(0);
    for part in ["qemu-system-x86_64", "run=nothing:7:2,cpuid:7:2", "-smp 3"] {
        assert!(dry.stdout.contains(part), "{part}: {dry:?}");
    }
}

/// One run's list; the file is the same as what is printed.
fn counted(folder: &Path, name: &str, args: &[&str]) -> (String, String) {
    let path = folder.join(name).to_str().unwrap().to_owned();
    let said = calibrate(&[&["--accel", "tcg", "--json", "--out", &path], args].concat());
    said.has_code(0);
    assert_eq!(fs::read_to_string(&path).unwrap(), said.stdout);
    crate::schemas::holds("calibration", &said.stdout);
    (path, said.stdout)
}

#[test]
fn instructions_are_the_same_in_every_run_and_a_change_is_exact() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (a, first) = counted(folder.path(), "a.json", &["--all"]);
    let (b, second) = counted(folder.path(), "b.json", &["--all"]);
    assert_eq!(first, second);
    let list: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(list["version"], 1);
    assert_eq!(list["count"], "instructions");
    assert_eq!(list["environment"], "tcg");
    // Neither the host's kernel nor its processor is in it.
    assert_eq!((&list["kernel"], &list["cpu_model"]), (&Value::Null, &Value::Null));
    let same = calibrate(&["--compare", &a, &b, "--gate"]);
    assert!(same.has_code(0).stdout.contains("Every count is the same"), "{same:?}");
    // One instruction more for a CPUID.
    let mut worse = list.clone();
    let prices = worse["prices"].as_array_mut().unwrap();
    let cpuid = prices.iter_mut().find(|price| price["operation"] == "cpuid").unwrap();
    let median = cpuid["boots"][0]["median"].as_f64().unwrap();
    cpuid["boots"][0]["median"] = (median + 1.0).into();
    fs::write(&b, worse.to_string()).unwrap();
    let changes = calibrate(&["--compare", &a, &b, "--json"]);
    crate::schemas::holds("calibration-changes", &changes.has_code(0).stdout);
    let gate = calibrate(&["--compare", &a, &b, "--gate"]);
    let rows = &gate.has_code(1).stdout;
    let row = rows.lines().find(|line| line.starts_with("cpuid")).unwrap_or_default();
    let cells: Vec<&str> = row.split_ascii_whitespace().collect();
    let (old, new) = (median.to_string(), (median + 1.0).to_string());
    assert_eq!(cells[1..4], ["instructions", &old, &new], "{gate:?}");
    assert!(row.ends_with("% worse"), "{gate:?}");
    calibrate(&["--compare", &b, &a, "--gate"]).has_code(0);
    calibrate(&["--compare", &a, &b, "--gate", "--margin", "5"]).has_code(0);
    // Times and counts are two things.
    let times = first.replace("\"instructions\"", "\"cycles\"");
    fs::write(&b, times).unwrap();
    calibrate(&["--compare", &a, &b]).is_error(&["can't be compared"]);
}

#[test]
fn a_signal_ends_a_calibration_with_its_vm() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("prices.json");
    // As many as it takes: minutes.
    let args = ["calibrate", "--accel", "tcg", "--all", "--n", "65536"];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut running = RunningVmlab::spawn(vmlab(args).arg("--out").arg(&out), folder.path());
        running.until("a VM", |running| running.qemus().pop());
        running.interrupt(signal);
        assert!(!out.exists(), "a list that was not measured to its end");
    }
}

#[test]
fn variants_are_measured_in_one_call_and_drawn() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let args = ["--accel", "tcg", "--only", "cpuid,self-ipi", "--each", "base", "--each", "vtune"];
    let (lists, picture) = (path("lists"), path("prices.svg"));
    let more = ["--out", &lists, "--picture", &picture];
    let said = calibrate(&[&args[..], &more].concat());
    assert!(said.has_code(0).stdout.contains("Every count is the same"), "{said:?}");
    for name in ["base.json", "vtune.json"] {
        let text = fs::read_to_string(Path::new(&lists).join(name)).unwrap();
        assert!(text.contains("vmlab-calibration"), "{text}");
    }
    let drawn = fs::read_to_string(&picture).unwrap();
    let again = calibrate(&[&args[..], &["--picture", &picture]].concat());
    again.has_code(0);
    let drawn = roxmltree::Document::parse(&drawn).unwrap();
    let words: Vec<&str> = drawn.descendants().filter_map(|node| node.text()).collect();
    for part in ["cpuid", "self-ipi", "base", "vtune"] {
        assert!(words.contains(&part), "{part}: {words:?}");
    }
    let json = calibrate(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json.has_code(0).stdout).unwrap();
    assert_eq!(json["variants"][1]["name"], "vtune");
    assert_eq!(json["variants"][1]["calibration"]["version"], 1);
    assert_eq!(json["comparison"], serde_json::json!([[]]));
    calibrate(&["--each", "base", "--each", "base"]).is_error(&["base", "twice"]);
    calibrate(&["--each", "base", "--gate"]).is_error(&["--gate"]);
    calibrate(&["--exact", "--on", "replica"]).has_code(2);
}

#[test]
fn the_gate_and_the_exit_code_do_not_depend_on_what_is_printed() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !is_there() {
        return;
    }
    let qemu = guest::qemu::find_qemu(vmconfig::Arch::X86_64).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // A QEMU under which a VM with two threads a core counts each instruction twice.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *threads=2*) slow=1;; esac\n\
         for word; do\n  shift\n  \
         [ \"$slow$word\" = 1shift=0,sleep=off ] && word=shift=1,sleep=off\n  \
         set -- \"$@\" \"$word\"\ndone\nexec {} \"$@\"\n",
        qemu.path.display()
    );
    let program = folder.path().join("qemu-system-x86_64");
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    let run = |variants: [&str; 2], more: &[&str]| {
        let args = ["--accel", "tcg", "--only", "cpuid,self-ipi", "--n", "20"];
        let each = variants.map(|name| ["--each", name]).concat();
        said(vmlab([&["calibrate"], &args[..], &each, more].concat()).env("PATH", &path))
    };
    for format in [&[][..], &["--json"], &["--format", "json"]] {
        run(["cores", "threads"], &[&["--gate"], format].concat()).has_code(1);
        run(["threads", "cores"], &[&["--gate"], format].concat()).has_code(0);
        run(["cores", "threads"], format).has_code(0);
    }
    let found = run(["cores", "threads"], &["--json"]);
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    let of = |change: &Value| change["operation"] == "cpuid" && change["is_worse"] == true;
    assert!(found["comparison"][0].as_array().unwrap().iter().any(of), "{found}");
    // What was measured is shown, though counts have no such form.
    let said = run(["cores", "threads"], &["--format", "csv"]);
    assert!(said.code == Some(2) && said.stdout.contains("self-ipi"), "{said:?}");
}

#[test]
fn exact_counts_are_the_same_in_two_runs() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    if !is_there() {
        return;
    }
    let run = || calibrate(&["--exact", "--json"]).has_code(0).stdout.clone();
    let first = run();
    let list: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        (&list["count"], &list["environment"]),
        (&"instructions".into(), &"instruction-counted".into())
    );
    let prices = list["prices"].as_array().unwrap();
    let cpuid = prices.iter().find(|price| price["operation"] == "cpuid").unwrap();
    assert!(cpuid["boots"][0]["kvm"]["kvm.exits"].as_f64().unwrap() >= 1000.0, "{cpuid}");
    assert_eq!(run(), first);
}

/// Operations whose prices `studies/account.toml` needs.
const OF_THE_ACCOUNT: &str = "cpuid,hypercall,msr-read,msr-write,self-ipi,mmio-kernel,pio-qemu,\
                              mmio-qemu,page-fill-4k,timer-halt,timer-sleep,ipi-halt";

#[test]
fn prices_times_counts_are_the_difference() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if !is_there() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let prices = folder.path().join("prices.json").display().to_string();
    let studies = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
    let (study, vm) = (studies.join("account.toml"), studies.join("vms/account.toml"));
    let vm = vm.display().to_string();
    let how = ["--exact", "--as-in-trials", "--vm", &vm, "--boots", "3"];
    calibrate(&[&how[..], &["--only", OF_THE_ACCOUNT, "--out", &prices]].concat()).has_code(0);
    let accounts_of = |study: &Path| {
        let results = folder.path().join(study.file_stem().unwrap());
        let mut run =
            vmlab(["run", "--on", "replica", "--deterministic", "--prices", &prices, "--out"]);
        said(run.arg(&results).arg(study)).has_code(0);
        let report = fs::read_to_string(results.join("report.json")).unwrap();
        let mut report: Value = serde_json::from_str(&report).unwrap();
        match report["accounting"]["accounts"].take() {
            Value::Array(accounts) => accounts,
            other => panic!("no accounts: {other}"),
        }
    };
    // All but polling, and polling.
    let accounts = accounts_of(&study);
    assert_eq!(accounts.len(), 12);
    let polling = accounts_of(&studies.join("account-polling.toml"));
    let [slept] = &polling[..] else { panic!("{polling:#?}") };
    let parts = slept["parts"].as_array().unwrap();
    let sleeps = parts.iter().find(|part| part["event"] == "sleep");
    let sleeps = sleeps.unwrap_or_else(|| panic!("no sleeps: {slept:#?}"));
    // A thousand timers, most of which KVM polled for where it may.
    let count = sleeps["count"].as_f64().unwrap();
    assert!((800.0..=1050.0).contains(&count), "{slept:#?}");

    let all = accounts.iter().chain(&polling);
    let explained = all.filter(|account| {
        let end = |end: &str| account["unexplained"]["interval"][end].as_f64().unwrap();
        // Both were counted in one way.
        assert!(account.get("exits_by_reason_only").is_none(), "{account}");
        end("lo") <= 0.0 && 0.0 <= end("hi")
    });
    let names: Vec<_> = explained.map(|account| &account["variant"]).collect();
    assert!(names.len() >= 11, "{names:?} alone of {accounts:#?} and {polling:#?}");
}

#[test]
fn the_whole_list_under_tcg_is_the_golden() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !is_there() {
        return;
    }
    let qemu = guest::qemu::find_qemu(vmconfig::Arch::X86_64).unwrap();
    let version = qemu.capabilities.version;
    if (version.major, version.minor) != (7, 2) {
        skip(format!("the golden is of QEMU 7.2, here is {version}"));
        return;
    }
    let said = calibrate(&["--accel", "tcg", "--all"]);
    let table = said.has_code(0).stdout.split_once("\n\n").unwrap().1.to_owned();
    expect_file!["../../testdata/calibrate-tcg-7.2.txt"].assert_eq(&table);
    // Devices that ACPI names, and that interrupt by the I/O APIC.
    let folder = tempfile::tempdir().unwrap();
    let vm = folder.path().join("microvm.toml");
    fs::write(&vm, "machine = \"microvm\"\n").unwrap();
    let devices = "blk-poll,blk-irq,net-poll,net-irq";
    let said = calibrate(&["--accel", "tcg", "--vm", vm.to_str().unwrap(), "--only", devices]);
    let table = said.has_code(0).stdout.split_once("\n\n").unwrap().1.to_owned();
    expect_file!["../../testdata/calibrate-tcg-7.2-microvm.txt"].assert_eq(&table);
}

#[test]
fn an_arm64_guest_has_a_list_of_its_own() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    calibrate(&["--arch", "aarch64", "--only", "cpuid"]).is_error(&["aarch64", "cpuid"]);
    calibrate(&["--arch", "x86_64", "--only", "wfe"]).is_error(&["x86_64", "wfe"]);
    let said = calibrate(&["--arch", "mips"]);
    assert!(said.code == Some(2) && said.stderr.contains("mips"), "{said:?}");
    let qemu = match guest::qemu::find_qemu(vmconfig::Arch::Aarch64) {
        Ok(qemu) => qemu,
        Err(error) => return skip(error),
    };
    if let Err(error) = guest::thin::program(vmconfig::Arch::Aarch64) {
        return skip(error);
    }
    let folder = tempfile::tempdir().unwrap();
    let list = |name| counted(folder.path(), name, &["--arch", "aarch64", "--all"]).1;
    let first = list("a.json");
    assert_eq!(first, list("b.json"));
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["arch"], "aarch64");
    let version = qemu.capabilities.version;
    if (version.major, version.minor) != (7, 2) {
        return skip(format!("the golden is of QEMU 7.2, here is {version}"));
    }
    let said = calibrate(&["--arch", "aarch64", "--accel", "tcg", "--all"]);
    let table = said.has_code(0).stdout.split_once("\n\n").unwrap().1.to_owned();
    expect_file!["../../testdata/calibrate-tcg-7.2-aarch64.txt"].assert_eq(&table);
}

/// A list of times made up: of each operation what its boots took, and what KVM counted of
/// it in each, if that is told.
fn list_of_times(prices: &[(&str, &[f64], Option<f64>)]) -> Value {
    let price = |(name, boots, exits): &(&str, &[f64], Option<f64>)| {
        let boot = |median: &f64| {
            let kvm = exits.map(|exits| serde_json::json!({ "kvm.exits": exits }));
            serde_json::json!({
                "min": median - 10.0, "median": median, "p99": median, "ipis": 0, "hlts": 0,
                "kvm": kvm.unwrap_or(serde_json::json!({})),
            })
        };
        serde_json::json!({
            "operation": name, "summary": name, "n": 1000, "batch": 1,
            "boots": boots.iter().map(boot).collect::<Vec<_>>(),
        })
    };
    let nothing: (&str, &[f64], Option<f64>) = ("nothing", &[20.0; 4], None);
    let prices: Vec<Value> = [nothing].iter().chain(prices).map(price).collect();
    serde_json::json!({
        "format": "vmlab-calibration", "version": 1, "environment": "kvm",
        "count": "cycles", "kernel": "6.1", "cpu_model": "A", "qemu": "QEMU 9",
        "machine": "q35", "cpu": "host", "vcpus": 1, "apic": "x2apic",
        "tsc_khz": 2_000_000, "notes": [], "prices": prices,
    })
}

const FAST: [f64; 4] = [1000.0, 1003.0, 998.0, 1001.0];
const SLOW: [f64; 4] = [2000.0, 2003.0, 1998.0, 2001.0];

/// Files in a folder of a test's own.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn with(&self, name: &str, list: &Value) -> String {
        let path = self.path(name);
        fs::write(&path, list.to_string()).unwrap();
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn times_are_compared_by_the_engine_and_emulated_ones_say_so() {
    let files = Files::new();
    let fast = files.with("fast.json", &list_of_times(&[("cpuid", &FAST, None)]));
    let slow = files.with("slow.json", &list_of_times(&[("cpuid", &SLOW, None)]));
    let said = calibrate(&["--compare", &fast, &slow, "--gate"]);
    // The operation by its name, though it is the only one.
    assert!(said.has_code(1).stdout.lines().any(|line| line.starts_with("  cpuid ")), "{said:?}");
    assert!(said.stdout.contains("slower"), "{said:?}");
    // Of no option that only another command has.
    assert!(!said.stdout.contains("--block"), "{said:?}");
    calibrate(&["--compare", &fast, &slow, "--gate", "--json"]).has_code(1);
    calibrate(&["--compare", &slow, &fast, "--gate"]).has_code(0);
    calibrate(&["--compare", &fast, &fast, "--gate"]).has_code(0);
    let mut nested = list_of_times(&[("cpuid", &FAST, None)]);
    nested["environment"] = "nested-kvm".into();
    let nested = files.with("nested.json", &nested);
    let said = calibrate(&["--compare", &fast, &nested]);
    assert!(said.has_code(0).stdout.contains("emulated time"), "{said:?}");
}

#[test]
fn what_times_are_of_is_compared_too() {
    let files = Files::new();
    let both = [("cpuid", &FAST[..], None), ("hypercall", &FAST[..], None)];
    let (a, fewer) = (list_of_times(&both), list_of_times(&both[..1]));
    let (a, fewer) = (files.with("a.json", &a), files.with("fewer.json", &fewer));
    let said = calibrate(&["--compare", &a, &fewer, "--gate"]);
    assert!(said.has_code(1).stderr.contains("no price of hypercall any more"), "{said:?}");
    // An operation more is none that got worse.
    calibrate(&["--compare", &fewer, &a, "--gate"]).has_code(0);
    let changed = |name: &str, field: &str, value: Value| {
        let mut list = list_of_times(&both);
        list[field] = value;
        files.with(name, &list)
    };
    let other = changed("kernel.json", "kernel", "6.6".into());
    let said = calibrate(&["--compare", &a, &other]);
    assert!(said.has_code(0).stdout.contains("host kernel 6.6, not 6.1"), "{said:?}");
    let other = changed("arm.json", "arch", "aarch64".into());
    calibrate(&["--compare", &a, &other, "--gate"]).is_error(&["aarch64", "can't be compared"]);
    let empty = changed("empty.json", "prices", serde_json::json!([]));
    let said = calibrate(&["--compare", &a, &empty]);
    said.is_error(&["empty.json", "no price"]);
    assert!(!said.stderr.contains("--variant"), "{said:?}");
    // Two prices of one operation are no list.
    let twice = [both[0], both[0]];
    let twice = files.with("twice.json", &list_of_times(&twice));
    calibrate(&["--compare", &a, &twice]).is_error(&["two prices", "cpuid"]);
}

#[test]
fn what_counts_are_of_is_compared_too() {
    let files = Files::new();
    let changed = |name: &str, field: &str, value: Value| {
        let mut list = list_of_times(&[("cpuid", &FAST[..1], Some(1000.0))]);
        list["count"] = "instructions".into();
        list["environment"] = "instruction-counted".into();
        list[field] = value;
        files.with(name, &list)
    };
    let a = changed("a.json", "vcpus", 1.into());
    let same = calibrate(&["--compare", &a, &a, "--gate"]);
    assert!(same.has_code(0).stdout.contains("Every count is the same"), "{same:?}");
    for (field, shown, value) in [
        ("vcpus", "vCPUs", Value::from(2)),
        ("machine", "machine", "pc".into()),
        ("cpu", "CPU model", "max".into()),
        ("apic", "interrupt controller", "xapic".into()),
        ("qemu", "QEMU", "QEMU 10".into()),
        ("kernel", "host kernel", "6.6".into()),
    ] {
        let b = changed("b.json", field, value);
        let said = calibrate(&["--compare", &a, &b]);
        let said = &said.has_code(0).stdout;
        assert!(said.contains("not of the same"), "{said}");
        assert!(said.lines().any(|line| line.starts_with(shown)), "{shown}: {said}");
        let json = calibrate(&["--compare", &a, &b, "--json"]);
        crate::schemas::holds("calibration-changes", &json.has_code(0).stdout);
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json[0]["of"], shown, "{json}");
    }
    for (field, value) in [("arch", "aarch64"), ("environment", "tcg")] {
        let b = changed("b.json", field, value.into());
        calibrate(&["--compare", &a, &b]).is_error(&["can't be compared"]);
    }
    // What counts can't be printed as is refused, and what they can is.
    calibrate(&["--compare", &a, &a, "--format", "html"]).is_error(&["--format text and json"]);
    let said = calibrate(&["--compare", &a, &a, "--format", "json"]);
    assert_eq!(said.has_code(0).stdout.trim(), "[]");
}

#[test]
fn a_file_that_is_no_thin_guest_is_told_before_qemu_refuses_it() {
    if !is_there() {
        return;
    }
    let files = Files::new();
    for (name, content) in [("empty", ""), ("text", "No kernel begins so.\n")] {
        let path = files.path(name);
        fs::write(&path, content).unwrap();
        let mut run = vmlab(["calibrate", "--accel", "tcg"]);
        said(run.env(guest::thin::FILE_VARIABLE, &path)).is_error(&[&path, "is no thin guest of"]);
    }
}

#[test]
fn what_is_in_the_way_of_files_is_found_before_anything_is_measured() {
    let files = Files::new();
    let precious = files.path("precious.txt");
    fs::write(&precious, "mine").unwrap();
    // No thin guest, so that nothing could be measured.
    let fails = |args: &[&str], parts: &[&str]| {
        let mut run = vmlab([&["calibrate", "--accel", "tcg"], args].concat());
        said(run.env(guest::thin::FILE_VARIABLE, files.path("no-guest"))).is_error(parts);
    };
    fails(&["--picture", &precious], &["in the way", "no picture"]);
    fails(&["--each", "base", "--picture", &precious], &["in the way", "no picture"]);
    assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
    let nowhere = files.path("no-folder/file");
    fails(&["--out", &nowhere], &["Cannot write", "no-folder"]);
    fails(&["--picture", &nowhere], &["Cannot write", "no-folder"]);
    // What is fine is not there if nothing was measured.
    let new = files.path("new.json");
    if guest::qemu::find_qemu(vmconfig::Arch::X86_64).is_ok() {
        fails(&["--arch", "x86_64", "--out", &new], &["no-guest"]);
    }
    assert!(!Path::new(&new).exists());
    fails(&["--format", "html"], &["--format text and json"]);
}

/// The software KVM of some machines, or a real one.
#[test]
fn a_kvm_that_is_there_is_measured_or_why_not_is_said() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    if !is_there() {
        return;
    }
    if !Path::new("/dev/kvm").exists() {
        let said = calibrate(&["--accel", "kvm"]);
        said.is_error(&["/dev/kvm"]);
        skip("there is no /dev/kvm");
        return;
    }
    let said = calibrate(&["--only", "cpuid,timer-halt", "--n", "50", "--boots", "2", "--json"]);
    let list: Value = serde_json::from_str(&said.stdout).unwrap();
    let prices = list["prices"].as_array().unwrap();
    // Whether KVM counted what the guest did stands in the list, and is the exit code.
    let differs = |price: &Value| price["found"]["agreement"]["kvm"] == "differs";
    said.has_code(i32::from(prices.iter().any(differs)));
    let names: Vec<&str> = prices.iter().filter_map(|price| price["operation"].as_str()).collect();
    assert_eq!(names, ["nothing", "cpuid", "timer-halt"]);
    if list["environment"] == "tcg" {
        let note = list["notes"][0].as_str().unwrap_or_default();
        assert!(note.starts_with("KVM was not used: "), "{said:?}");
        return;
    }
    for price in prices {
        assert_eq!(price["boots"].as_array().map(Vec::len), Some(2), "{price}");
    }
    assert_eq!(prices[2]["boots"][0]["hlts"], 50, "{said:?}");
}

/// Ends its replica, whatever becomes of the test.
pub(crate) struct Replica {
    pub(crate) state: tempfile::TempDir,
}

impl Drop for Replica {
    fn drop(&mut self) {
        let mut down = vmlab(["replica", "down", "--all"]);
        let _ = down.env("XDG_STATE_HOME", self.state.path()).output();
    }
}

/// A list of prices that were measured in a replica.
struct InReplica {
    list: Value,
}

impl InReplica {
    /// Measures `operations`, 500 samples each, in one boot under KVM.
    fn measured(words: &[&str], operations: &str) -> Self {
        let replica = Replica { state: tempfile::tempdir().unwrap() };
        let args = ["--accel", "kvm", "--boots", "1", "--n", "500", "--json"];
        let said = CommandOutput::of(
            vmlab(["calibrate", "--only", operations])
                .args(args)
                .args(words)
                .env("XDG_STATE_HOME", replica.state.path())
                .output()
                .unwrap(),
        );
        let list: Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
        assert_eq!(list["environment"], "nested-kvm", "{list}");
        assert_eq!(list["count"], "cycles");
        Self { list }
    }

    fn boot(&self, name: &str) -> &Value {
        let prices = self.list["prices"].as_array().unwrap();
        let price = prices.iter().find(|price| price["operation"] == name);
        let price = price.unwrap_or_else(|| panic!("no {name}: {}", self.list));
        assert_eq!(price["missing"], Value::Null, "{price}");
        &price["boots"][0]
    }

    fn counted(&self, name: &str, counter: &str) -> f64 {
        self.boot(name)["kvm"][counter].as_f64().unwrap_or(0.0)
    }

    /// The guest halts for each sample, and KVM hears of no more than when nothing is
    /// done: an interrupt that is there already ends a halt before.
    fn halts_agree(&self, name: &str, counter: &str) {
        let halts = self.boot(name)["hlts"].as_f64().unwrap();
        assert!(halts >= 500.0, "{name}: {halts}");
        let found = self.counted(name, counter) - self.counted("nothing", counter);
        assert!(found <= halts, "{name}: {}", self.boot(name));
    }

    /// Spinning needs no interrupt and no halt; an IPI that nobody needed is sent all the
    /// same.
    fn spinning_needs_nothing(&self) {
        let spin = self.boot("sem-spin");
        assert_eq!((&spin["ipis"], &spin["hlts"]), (&0.into(), &0.into()));
        assert_eq!(self.boot("sem-ipi")["ipis"], 1000);
    }
}

#[test]
fn real_kvm_counts_what_the_guest_does() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if !is_there() {
        return;
    }
    let operations =
        "syscall,cpuid,hypercall,mmio-qemu,irq-window,timer-halt,ipi-halt,sem-spin,sem-ipi";
    let found = InReplica::measured(&["--on", "replica"], operations);
    // Nothing else in the VM makes these.
    assert_eq!(found.counted("hypercall", "kvm.hypercalls"), 500.0);
    assert_eq!(found.counted("mmio-qemu", "kvm.mmio_exits"), 500.0);
    // One each, and of the firmware's own interrupts none.
    assert_eq!(found.counted("irq-window", "kvm.irq_window_exits"), 500.0);
    assert_eq!(found.counted("nothing", "kvm.irq_window_exits"), 0.0);
    assert!(found.counted("cpuid", "kvm.exits") >= 500.0);
    assert_eq!(found.counted("syscall", "kvm.hypercalls"), 0.0);
    found.halts_agree("timer-halt", "kvm.halt_exits");
    found.halts_agree("ipi-halt", "kvm.halt_exits");
    found.spinning_needs_nothing();
}

/// The guest's counts at EL1 against KVM's at EL2.
#[test]
fn real_kvm_at_el2_counts_what_an_arm64_guest_does() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if let Err(error) = guest::qemu::find_qemu(vmconfig::Arch::Aarch64) {
        return skip(error);
    }
    if let Err(error) = guest::thin::program(vmconfig::Arch::Aarch64) {
        return skip(error);
    }
    let operations = "syscall,sysreg-trap,sysreg-direct,hypercall,mmio-kernel,mmio-qemu,\
                      timer-halt,ipi-halt,sem-spin,sem-ipi";
    let found = InReplica::measured(&["--on", "replica:arm64-smt"], operations);
    assert_eq!(found.list["arch"], "aarch64", "{}", found.list);
    // Nothing else in the VM makes these.
    assert_eq!(found.counted("hypercall", "kvm.hvc_exit_stat"), 500.0);
    assert_eq!(found.counted("mmio-kernel", "kvm.mmio_exit_kernel"), 500.0);
    assert!(found.counted("mmio-qemu", "kvm.mmio_exit_user") >= 500.0);
    assert!(found.counted("sysreg-trap", "kvm.exits") >= 500.0);
    assert_eq!(found.counted("syscall", "kvm.hvc_exit_stat"), 0.0);
    found.halts_agree("timer-halt", "kvm.wfi_exit_stat");
    found.halts_agree("ipi-halt", "kvm.wfi_exit_stat");
    found.spinning_needs_nothing();
}
