//! `vmlab calibrate`, with the real thin guest.

use std::fs;
use std::path::Path;

use expect_test::expect_file;
use rustix::process::Signal;
use serde_json::Value;
use suite::{Tier, needs, skip};

use crate::lab::{Said, said, vmlab};
use crate::running::Running;

fn calibrate(args: &[&str]) -> Said {
    Said::of(vmlab([&["calibrate"], args].concat()).output().unwrap())
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
        let mut running = Running::spawn(vmlab(args).arg("--out").arg(&out), folder.path());
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
    let drawn = roxmltree::Document::parse(&drawn).unwrap();
    let words: Vec<&str> = drawn.descendants().filter_map(|node| node.text()).collect();
    for part in ["cpuid", "self-ipi", "base", "vtune"] {
        assert!(words.contains(&part), "{part}: {words:?}");
    }
    let json = calibrate(&[&args[..], &["--json"]].concat());
    let json: Value = serde_json::from_str(&json.has_code(0).stdout).unwrap();
    assert_eq!(json["variants"][1]["name"], "vtune");
    assert_eq!(json["variants"][1]["calibration"]["version"], 1);
    calibrate(&["--each", "base", "--each", "base"]).is_error(&["base", "twice"]);
    calibrate(&["--each", "base", "--gate"]).is_error(&["--gate"]);
    calibrate(&["--exact", "--on", "replica"]).has_code(2);
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

#[test]
fn times_are_compared_by_the_engine_and_emulated_ones_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let list = |name: &str, environment: &str, cpuid: [f64; 4]| {
        let boot = |median: &f64| serde_json::json!({ "min": median, "median": median, "p99": median, "ipis": 0, "hlts": 0 });
        let price = |name: &str, boots: &[f64]| {
            serde_json::json!({
                "operation": name, "summary": name, "n": 1000, "batch": 1,
                "boots": boots.iter().map(boot).collect::<Vec<_>>(),
            })
        };
        let text = serde_json::json!({
            "format": "vmlab-calibration", "version": 1, "environment": environment,
            "count": "cycles", "kernel": null, "cpu_model": null, "qemu": "QEMU 9",
            "machine": "q35", "cpu": "host", "vcpus": 1, "apic": "x2apic",
            "tsc_khz": 2_000_000, "notes": [],
            "prices": [price("nothing", &[20.0; 4]), price("cpuid", &cpuid)],
        });
        let path = folder.path().join(name);
        fs::write(&path, text.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let fast = list("fast.json", "kvm", [1000.0, 1003.0, 998.0, 1001.0]);
    let slow = list("slow.json", "kvm", [2000.0, 2003.0, 1998.0, 2001.0]);
    let said = calibrate(&["--compare", &fast, &slow, "--gate"]);
    assert!(said.has_code(1).stdout.contains("cpuid"), "{said:?}");
    assert!(said.stdout.contains("slower"), "{said:?}");
    calibrate(&["--compare", &slow, &fast, "--gate"]).has_code(0);
    let nested = list("nested.json", "nested-kvm", [1000.0, 1003.0, 998.0, 1001.0]);
    let said = calibrate(&["--compare", &fast, &nested]);
    assert!(said.has_code(0).stdout.contains("emulated time"), "{said:?}");
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
    let list: Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
    let prices = list["prices"].as_array().unwrap();
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
        let said = Said::of(
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
