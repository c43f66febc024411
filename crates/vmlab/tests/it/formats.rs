//! Results folders and files of earlier vmlabs, frozen: every later one uses them.

use std::fs;
use std::path::{Path, PathBuf};

use record::journal::JournalEvent;
use runner::plan::StudyPlan;
use serde_json::Value;

use crate::lab::{CommandOutput, Machine, said};

fn formats() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

/// The results folders below `tests/formats`: a folder a version, in it a study each.
pub(crate) fn frozen() -> Vec<PathBuf> {
    let root = formats();
    let folders = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    };
    let mut found: Vec<_> = folders(&root)
        .into_iter()
        .filter(|path| path.is_dir())
        .flat_map(|version| folders(&version))
        .filter(|path| path.join("report.json").is_file())
        .collect();
    found.sort();
    found
}

/// A copy that may be written to.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn results_of_earlier_vmlabs_are_still_used() {
    let folders = frozen();
    assert!(!folders.is_empty());
    for folder in folders {
        let machine = Machine::with_qemu("8.2.0");
        copy(&folder, &machine.path("results"));
        // What it said when it was frozen.
        let expected: Value =
            serde_json::from_slice(&fs::read(folder.join("report.json")).unwrap()).unwrap();
        let failed = !expected["failures"].as_array().unwrap().is_empty();
        let say = |args: &[&str]| {
            let said = machine.say(args);
            let finds = failed && args[0] == "report" && !args.contains(&"--verify");
            assert_eq!(said.has_code(i32::from(finds)).stderr, "", "{args:?}");
            said.stdout
        };
        let report: Value =
            serde_json::from_str(&say(&["report", "results", "--format", "json"])).unwrap();
        for (group, was) in
            report["groups"].as_array().unwrap().iter().zip(expected["groups"].as_array().unwrap())
        {
            for (cell, was) in
                group["cells"].as_array().unwrap().iter().zip(was["cells"].as_array().unwrap())
            {
                for what in ["variant", "boots", "estimate"] {
                    assert_eq!(cell[what], was[what], "{}: {what}", folder.display());
                }
                assert_eq!(cell["judgement"]["verdict"], was["judgement"]["verdict"]);
            }
        }
        let samples = fs::read_to_string(folder.join("samples.csv")).unwrap();
        assert_eq!(say(&["export", "results", "--to", "csv"]), samples);
        assert_eq!(say(&["report", "results", "--format", "csv"]), samples);
        say(&["report", "results", "--format", "html"]);
        say(&["compare", "results"]);
        say(&["trend", "results"]);
        say(&["facts", "results"]);
        assert!(say(&["report", "results", "--verify"]).contains("all is as it was written"));
        // It can be gone on with, as far as that is a matter of the folder.
        let (store, contents) = runner::store::Store::resume(&machine.path("results")).unwrap();
        assert!(contents.events.len() > 10);
        drop(store);
        say(&["report", "results"]);
        // What is added to it is numbered, from where the old lines end.
        let dir = machine.path("results");
        let (mut store, contents) = runner::store::Store::resume(&dir).unwrap();
        let lines = contents.events.len();
        let more = record::journal::JournalEvent::Extended { blocks: 9, unix_s: 1.8e9 };
        runner::store::TrialSink::append(&mut store, &more).unwrap();
        drop(store);
        let contents = runner::store::read(&dir).unwrap();
        assert_eq!((contents.events.len(), contents.damage.len()), (lines + 1, 0));
        let text = fs::read_to_string(dir.join("journal.jsonl")).unwrap();
        let last = text.lines().last().unwrap();
        assert_eq!(last.split('\t').nth(1), Some((lines + 1).to_string().as_str()));
    }
}

/// A file that an earlier vmlab wrote or read, and what this one is to take it for.
struct FrozenFile {
    /// Below the folder of its version.
    file: &'static str,
    /// Who reads it: by name, or else on standard input.
    command: &'static str,
    /// What is said of it.
    says: &'static [&'static str],
    /// What follows the version's key, and the version; none in formats without one.
    version: Option<(&'static str, u32)>,
    /// Where a field that is not known goes.
    unknown: UnknownField,
}

enum UnknownField {
    /// The file is used, and the field is named on standard error or in what is said.
    Told,
    /// The file is used, and the field stays in it.
    PassedOver,
    /// People write the file, so it is taken for a misspelt key: one error with its line.
    Refused,
    /// It has no such fields, or another test adds one.
    None,
}

const fn frozen_file(
    file: &'static str,
    command: &'static str,
    says: &'static [&'static str],
    version: Option<(&'static str, u32)>,
    unknown: UnknownField,
) -> FrozenFile {
    FrozenFile { file, command, says, version, unknown }
}

/// Every format that a vmlab reads which another vmlab, or a person, wrote.
const FROZEN_FILES: &[FrozenFile] = {
    use UnknownField::{None as Nowhere, PassedOver, Refused, Told};
    const JSON: Option<(&str, u32)> = Some(("\"version\": ", 1));
    const TOML: Option<(&str, u32)> = Some(("vmlab = ", 1));
    &[
        frozen_file(
            "study.toml",
            "check study.toml --on sim:host.json",
            &["One vCPU or two", "8 boots", "halt_poll_ns = 0 ns", "`hackbench -g 2 -f 20 -l 20"],
            TOML,
            Refused,
        ),
        frozen_file(
            "two-sizes/plan.json",
            "export two-sizes --to csv",
            &["hackbench"],
            JSON,
            Nowhere,
        ),
        frozen_file("two-sizes/host.json", "export two-sizes --to csv", &["hackbench"], JSON, Told),
        frozen_file(
            "nodes/nodes.json",
            "report nodes",
            &["3 nodes: 3 complete", "▲ faster         two", "9 blocks), simulated", "class"],
            JSON,
            PassedOver,
        ),
        frozen_file(
            "host.json",
            "host --from host.json",
            &["2 sockets of 8 cores of 2 threads", "192 GiB of memory"],
            JSON,
            Told,
        ),
        frozen_file(
            "audit.json",
            "facts audit.json",
            &["frozen", "7.2.22", "silently ignored (1)", "tcg does not know it"],
            Some(("\"version\": ", 2)),
            PassedOver,
        ),
        frozen_file(
            "prices.json",
            "calibrate --compare prices.json prices.json",
            &["87.87 µs ±24.3 %", "0.00 % [-9.88, +10.96]", "executes guests in software"],
            JSON,
            PassedOver,
        ),
        frozen_file(
            "scenario.toml",
            "sim scenario.toml --check",
            &["Two tasks that answer each other", "2 vCPUs"],
            Some(("sim = ", 1)),
            Refused,
        ),
        frozen_file(
            "experiments.json",
            "predict --verify=experiments.json",
            &["28 of 28 pods got from the kubelet of Kubernetes 1.36.3 what is predicted"],
            JSON,
            PassedOver,
        ),
        frozen_file(
            "switch.toml",
            "switch --config switch.toml --dry-run",
            &["path=/run/vm/b.sock", "<driver queues='4'/>"],
            Some(("version = ", 1)),
            Refused,
        ),
        frozen_file(
            "site-rules.toml",
            "lint --check-rules site-rules.toml",
            &["1 rule, 2 of 2 examples do what they say"],
            TOML,
            Refused,
        ),
        frozen_file(
            "watch.sqlite",
            "watch show --store watch.sqlite",
            &["Readings  2", "frozen ", "2 VMs, 1 boots of the host"],
            Some(("", 1)),
            Nowhere,
        ),
        frozen_file(
            "rollout.toml",
            "rollout rollout.toml",
            &["cpu-pm on the new hosts: wait", "vcpu.wait_s by vcpu.run_s", "below 5 %"],
            TOML,
            Refused,
        ),
        frozen_file(
            "samples.json",
            "compare samples.json",
            &["-65.1 % [-72.2, -56.2]", "▼ slower"],
            JSON,
            PassedOver,
        ),
        frozen_file(
            "imported.jsonl",
            "compare imported.jsonl --variant groups",
            &["29.00 ms  9.000 ms  -69.0 %", "A side has a single boot"],
            None,
            Told,
        ),
        frozen_file("decide.jsonl", "decide", &["\"iterations\":8"], None, PassedOver),
        frozen_file(
            "wishes.toml",
            "plan --list wishes.toml --host host.json",
            &["db: 12 vCPUs, 48 GiB", "0-11 on pCPUs 1+17 2+18 3+19 4+20 5+21 6+22"],
            None,
            Refused,
        ),
        frozen_file(
            "vm.json",
            "convert vm.json --to libvirt",
            &["<vcpupin vcpu='0' cpuset='1'/>", "<topology sockets='1' dies='1' cores='2'"],
            None,
            Told,
        ),
    ]
};

impl FrozenFile {
    fn path(&self, machine: &Machine) -> PathBuf {
        machine.path(self.file)
    }

    /// What vmlab says of it when it holds these bytes.
    fn read_as(&self, machine: &Machine, bytes: &[u8]) -> CommandOutput {
        fs::write(self.path(machine), bytes).unwrap();
        let mut command = machine.vmlab(self.command.split(' '));
        if !self.command.contains('.') && !self.file.contains('/') {
            command.stdin(fs::File::open(self.path(machine)).unwrap());
        }
        said(&mut command)
    }

    /// The same of a later version.
    fn newer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (key, version) = self.version?;
        if key.is_empty() {
            // SQLite keeps the version of a file's content in its header.
            let mut bytes = bytes.to_vec();
            bytes[60..64].copy_from_slice(&(version + 8).to_be_bytes());
            return Some(bytes);
        }
        let text = String::from_utf8_lossy(bytes);
        let written = format!("{key}{version}");
        assert!(text.contains(&written), "{}: {written}", self.file);
        Some(text.replacen(&written, &format!("{key}{}", version + 8), 1).into_bytes())
    }

    /// The same with a field that nobody knows in its first line but the version's.
    fn with_unknown(&self, bytes: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(bytes);
        let more = match self.file.ends_with(".toml") {
            false => text.replacen('{', "{\"weight_kg\": 20,", 1),
            true => format!("weight_kg = 20\n{text}"),
        };
        more.into_bytes()
    }
}

#[test]
fn files_of_earlier_vmlabs_are_still_read() {
    let machine = Machine::with_qemu("8.2.0");
    for version in ["v1", "v2"] {
        copy(&formats().join(version), machine.folder.path());
    }
    fs::copy(machine.path("watch.sqlite"), machine.path("other.sqlite")).unwrap();
    for frozen in FROZEN_FILES {
        let file = frozen.file;
        let bytes = fs::read(frozen.path(&machine)).unwrap();
        let as_it_is = frozen.read_as(&machine, &bytes);
        as_it_is.has_code(0);
        for part in frozen.says {
            assert!(as_it_is.stdout.contains(part), "{file}: {part}: {}", as_it_is.stdout);
        }
        if let Some(newer) = frozen.newer(&bytes) {
            let version = (frozen.version.unwrap().1 + 8).to_string();
            frozen.read_as(&machine, &newer).is_error(&[file, &version, "use a newer vmlab"]);
        }
        let with_unknown = frozen.read_as(&machine, &frozen.with_unknown(&bytes));
        match frozen.unknown {
            UnknownField::None => (),
            UnknownField::Refused => with_unknown.is_error(&[&format!("{file}:1"), "weight_kg"]),
            UnknownField::PassedOver => assert_eq!(with_unknown, as_it_is, "{file}"),
            UnknownField::Told => {
                // `convert` ends with 1 where something is left out.
                assert!(with_unknown.code <= Some(1), "{file}: {with_unknown:#?}");
                let told = |said: &CommandOutput| {
                    (said.stdout.clone() + &said.stderr).contains("weight_kg")
                };
                assert!(told(&with_unknown) && !told(&as_it_is), "{file}: {with_unknown:#?}");
            }
        }
        fs::write(frozen.path(&machine), bytes).unwrap();
    }
}

const SIMULATED: &str = r#"vmlab = 1
title = "Begun by another vmlab"
baseline = "one"
[budget]
blocks = 2
[[variant]]
name = "one"
vm.vcpus = 1
[[variant]]
name = "two"
vm.vcpus = 2
[[workload]]
run = "probe-stream"
"#;

/// A study of the simulator of which vmlab `version` made the first of two blocks, with a
/// plan that was `changed`.
fn begun_by(machine: &Machine, version: &str, changed: impl Fn(&mut Value)) -> PathBuf {
    fs::write(machine.path("study.toml"), SIMULATED).unwrap();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan/two-sockets.json");
    let on = format!("sim:{}", host.display());
    let dir = machine.path("begun");
    drop(fs::remove_dir_all(&dir));
    machine.say(["run", "study.toml", "--on", &on, "--seed", "3", "--out", "begun"]).has_code(0);
    let mut events = crate::lab::events(&dir);
    let block_ended = |event: &JournalEvent| matches!(event, JournalEvent::BlockEnded { .. });
    events.truncate(events.iter().position(block_ended).unwrap() + 1);
    let path = dir.join("plan.json");
    let mut plan: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    plan["vmlab_version"] = version.into();
    changed(&mut plan);
    let text = serde_json::to_vec_pretty(&plan).unwrap();
    fs::write(&path, &text).unwrap();
    let hash = StudyPlan::from_json(&text).unwrap().hash();
    for event in &mut events {
        if let JournalEvent::SessionStarted { vmlab_version, plan_hash, .. } = event {
            (*vmlab_version, *plan_hash) = (version.to_owned(), hash.clone());
        }
    }
    crate::lab::write_journal(&dir, &crate::lab::journal_of(&events));
    dir
}

/// What vmlab is called decides nothing; what a trial measures does.
#[test]
fn a_later_vmlab_goes_on_with_an_earlier_ones_study() {
    let machine = Machine::with_qemu("8.2.0");
    let here = env!("CARGO_PKG_VERSION");
    begun_by(&machine, "0.0.9", |_| ());
    let said = machine.say(["run", "--resume", "begun", "--json"]);
    let told = format!("begun by vmlab 0.0.9 and goes on with {here}");
    assert!(said.has_code(0).stderr.contains(&told), "{said:#?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["method"]["blocks_done"], 2);
    let warned = |report: &Value| {
        let warnings = report["warnings"].as_array().unwrap().iter();
        warnings.filter_map(Value::as_str).find(|one| one.contains("0.0.9")).map(str::to_owned)
    };
    let blocks = format!("0 by vmlab 0.0.9, 1 by vmlab {here}");
    assert!(warned(&report).unwrap().contains(&blocks), "{report}");
    // Of one version nothing is told.
    begun_by(&machine, here, |_| ());
    let said = machine.say(["run", "--resume", "begun", "--json"]);
    assert!(!said.has_code(0).stderr.contains("begun by"), "{said:#?}");

    begun_by(&machine, "0.9.0", |plan| plan["measurement_version"] = 99.into());
    machine.say(["run", "--resume", "begun"]).is_error(&[
        "begun by vmlab 0.9.0",
        "measure otherwise",
        "start anew",
    ]);
}

/// A plan with a field of a later vmlab's in a VM is reported, and the field named once;
/// what it means for a trial nobody here knows.
#[test]
fn fields_of_a_later_vmlab_are_told() {
    let machine = Machine::with_qemu("8.2.0");
    let dir = begun_by(&machine, "0.9.0", |plan| {
        plan["variants"][0]["spec"]["colour"] = "blue".into();
        plan["budget"]["patience"] = 3.into();
    });
    let host = dir.join("host.json");
    let text = fs::read_to_string(&host).unwrap();
    fs::write(&host, text.replacen('{', "{\n  \"weight_kg\": 20,", 1)).unwrap();
    let said = machine.say(["report", "begun", "--format", "json"]);
    let lines: Vec<_> = said.has_code(0).stderr.lines().collect();
    let [plan, host] = lines[..] else { panic!("{said:#?}") };
    assert!(plan.starts_with("vmlab: begun/plan.json: "), "{plan}");
    assert!(plan.ends_with("passes over: budget.patience, variants[0].spec.colour"), "{plan}");
    assert!(host.contains("begun/host.json: ") && host.ends_with(": weight_kg"), "{host}");
    machine
        .say(["run", "--resume", "begun"])
        .is_error(&["begun by vmlab 0.9.0", "budget.patience, variants[0].spec.colour"]);

    // The same of a VM: a line says what was left out, and the rest is converted.
    let emitted = machine.say(["emit", "--to", "json", "--vcpus", "2"]);
    let vm = emitted.has_code(0).stdout.replacen('{', "{\n  \"colour\": \"blue\",", 1);
    fs::write(machine.path("vm.json"), vm).unwrap();
    let said = machine.say(["convert", "vm.json", "--to", "qemu"]);
    assert!(said.stdout.contains("-smp 2") && said.stderr.contains("vm.json:2: "), "{said:#?}");
    assert!(said.stderr.contains("colour"), "{said:#?}");
}
