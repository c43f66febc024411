//! JSON Schemas: what is committed is what the types say, and what vmlab reads and
//! prints is as they say.

use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::Validator;
use serde_json::Value;
use suite::{Tier, needs};

use crate::formats::{copy, frozen};
use crate::lab::{Machine, said, vmlab};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn validator(name: &str) -> Validator {
    let path = root().join(format!("docs/schemas/{name}.json"));
    let text = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    jsonschema::validator_for(&serde_json::from_slice(&text).unwrap()).unwrap()
}

#[track_caller]
fn is_valid(name: &str, value: &Value) {
    let wrong: Vec<String> = validator(name)
        .iter_errors(value)
        .map(|error| format!("{}: {:.300}", error.instance_path(), error.to_string()))
        .collect();
    assert!(wrong.is_empty(), "{name}: {wrong:#?}");
}

/// `text`, which a command printed, is as the committed schema says.
#[track_caller]
pub(crate) fn holds(name: &str, text: &str) -> Value {
    let value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    is_valid(name, &value);
    value
}

#[track_caller]
fn holds_each_line(name: &str, text: &str) {
    assert!(!text.is_empty(), "{name}");
    for line in text.lines() {
        holds(name, line);
    }
}

fn toml(text: &str) -> Value {
    serde_json::to_value(toml::from_str::<toml::Table>(text).unwrap()).unwrap()
}

#[test]
fn schemas_are_made_from_the_types() {
    let made = tempfile::tempdir().unwrap();
    let out = made.path().to_str().unwrap();
    said(&mut vmlab(["schema", "--out", out])).has_code(0);
    let texts = |folder: &Path| -> Vec<(String, String)> {
        let mut texts: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| {
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                (name, fs::read_to_string(path).unwrap())
            })
            .collect();
        texts.sort();
        texts
    };
    let committed = root().join("docs/schemas");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::remove_dir_all(&committed).unwrap();
        said(&mut vmlab(["schema", "--out", committed.to_str().unwrap()])).has_code(0);
    }
    let (made, committed) = (texts(made.path()), texts(&committed));
    for (made, committed) in made.iter().zip(&committed) {
        assert!(
            made == committed,
            "docs/schemas/{} is not what `vmlab schema` makes: UPDATE_EXPECT=1, and see what of \
             it is a change that readers notice",
            made.0
        );
    }
    assert_eq!(made.len(), committed.len());
}

/// Whoever adds a document adds a test that has vmlab print one, here or in a test of
/// real VMs.
#[test]
fn every_schema_is_held_against_what_is_printed() {
    let mut tests = String::new();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it")).unwrap() {
        tests += &fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    let listed = said(&mut vmlab(["schema"])).stdout;
    for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
        let call = ["holds", "holds_each_line", "is_valid"]
            .iter()
            .any(|call| tests.contains(&format!("{call}(\"{name}\"")));
        assert!(call, "no test holds what is printed against the schema {name}");
    }
}

#[test]
fn what_people_write_is_as_the_schemas_say() {
    let rollout = fs::read_to_string(root().join("studies/rollouts/cpu-pm.toml")).unwrap();
    is_valid("rollout-plan", &toml(&rollout));
    let mut studies = 0;
    for entry in fs::read_dir(root().join("studies")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            is_valid("study", &toml(&fs::read_to_string(&path).unwrap()));
            studies += 1;
        }
    }
    assert!(studies > 10);
    let read = |name: &str| fs::read_to_string(root().join("docs").join(name)).unwrap();
    is_valid("wishes", &toml(&read("plan/vms.toml")));
    is_valid("site-rules", &toml(&read("site-rules/site.toml")));
    let experiments = "crates/placement/testdata/kubelet-1.36.3/experiments.json";
    let experiments = fs::read_to_string(root().join(experiments)).unwrap();
    is_valid("kubelet-experiments", &serde_json::from_str(&experiments).unwrap());
    let switch = read("switch.md");
    let (_, block) = switch.split_once("```toml\n").unwrap();
    is_valid("switch-file", &toml(block.split_once("```").unwrap().0));

    // And what vmlab refuses, they refuse.
    let study = fs::read_to_string(root().join("studies/quickstart.toml")).unwrap();
    let study_schema = validator("study");
    for (from, to) in [
        ("memory_mib", "memory_mb"),
        ("memory_mib = 512", "memory_mib = \"much\""),
        ("run = \"hackbench\"", "run = \"hackbensh\""),
        ("groups = 5", "grups = 5"),
        ("groups = 5", "groups = \"five\""),
        ("[vm]", "[host]\nthb = \"never\"\n[vm]"),
        ("vm.vcpus = 1", "use = \"vtunes\""),
    ] {
        assert!(study.contains(from), "{from}");
        let wrong = toml(&study.replacen(from, to, 1));
        assert!(!study_schema.is_valid(&wrong), "{to} is taken");
    }
}

#[test]
fn what_is_printed_of_this_machine_and_files_is_as_the_schemas_say() {
    let folder = tempfile::tempdir().unwrap();
    let say = |args: &[&str]| {
        let mut command = vmlab(args);
        command.current_dir(root()).env("XDG_STATE_HOME", folder.path());
        command.env("XDG_CACHE_HOME", folder.path());
        let said = said(&mut command);
        assert_ne!(said.stdout, "", "{args:?}: {said:#?}");
        said.stdout
    };
    let host = say(&["host", "--json"]);
    let saved = folder.path().join("host.json");
    let other = host.replacen("\"kernel\": \"", "\"kernel\": \"not-", 1);
    fs::write(&saved, other).unwrap();
    let saved = saved.to_str().unwrap();
    let diff = holds("host-diff", &say(&["host", "--diff", saved, "--json"]));
    assert_ne!(diff, Value::Array(Vec::new()));
    holds("host", &host);
    holds("settings", &say(&["settings", "list", "--json"]));
    let server = ["--list", "docs/plan/vms.toml", "--host", "docs/plan/two-sockets.json"];
    let plan = [&["plan", "--json"], &server[..]].concat();
    holds("placement", &say(&plan));
    holds("placement-of-hosts", &say(&[&plan[..], &server[2..]].concat()));
    let rules = ["--rules", "docs/site-rules/site.toml", "--json"];
    holds("findings", &say(&[&["lint", "docs/site-rules/db.xml"], &rules[..]].concat()));
    holds("vm", &say(&["convert", "docs/formats/100.conf", "--to", "json"]));
    holds("images", &say(&["image", "list", "--json"]));
    holds("replicas", &say(&["replica", "list", "--json"]));
    let scenario = ["sim", "studies/sim/pair.toml", "--draws", "3"];
    holds("simulation", &say(&[&scenario[..], &["--json"]].concat()));
    let records = folder.path().join("records.json");
    let records = records.to_str().unwrap();
    say(&[&scenario[..], &["--records", records]].concat());
    holds("samples", &fs::read_to_string(records).unwrap());
    let log = folder.path().join("log");
    fs::write(&log, "Running with 1*40 (== 40) tasks.\nTime: 1.250\nTime: soon\n").unwrap();
    holds_each_line("imported", &say(&["import", "--json", log.to_str().unwrap()]));
}

#[test]
fn what_is_printed_of_results_is_as_the_schemas_say() {
    let machine = Machine::with_qemu("8.2.0");
    let say = |args: &[&str]| machine.say(args).stdout;
    machine.results();
    let plan = say(&["check", "small.toml", "--json"]);
    holds("plan", &plan);
    holds("report", &say(&["report", "results", "--format", "json"]));
    holds("samples", &say(&["report", "results", "--format", "samples-json"]));
    holds("verification", &say(&["report", "results", "--verify", "--format", "json"]));
    holds("comparison", &say(&["compare", "results", "--format", "json"]));
    holds("trend", &say(&["trend", "results", "--json"]));
    holds("facts", &say(&["facts", "--json", "results"]));
    holds_each_line("sample", &say(&["export", "results", "--to", "jsonl"]));
    // A folder of real VMs has more in it.
    for folder in frozen() {
        let results = machine.path("frozen");
        copy(&folder, &results);
        holds("report", &say(&["report", "frozen", "--format", "json"]));
        holds("facts", &say(&["facts", "--json", "frozen"]));
        holds("host", &fs::read_to_string(results.join("host.json")).unwrap());
        holds("plan", &fs::read_to_string(results.join("plan.json")).unwrap());
        let journal = fs::read_to_string(results.join("journal.jsonl")).unwrap();
        for line in journal.lines() {
            holds("journal", line.split('\t').next().unwrap());
        }
        fs::remove_dir_all(results).unwrap();
    }
}

#[test]
fn the_scoreboard_is_as_the_schemas_say() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let said = said(&mut vmlab(["sim", "--validate", "--draws", "1", "--json"]));
    holds("scoreboard", &said.stdout);
}

#[test]
fn a_session_of_decide_is_as_the_schemas_say() {
    let messages = [
        r#"{"op":"start","case":7,"meta":{"better":"lower","cost":{"boot":8.0}}}"#,
        r#"{"op":"data","trials":[{"config":"A","t":0.0,"values":[[1.0,2.0]]}]}"#,
        r#"{"op":"dance"}"#,
        r#"{"op":"quit"}"#,
    ];
    for (index, message) in messages.iter().enumerate() {
        let message = serde_json::from_str(message).unwrap();
        if index == 2 {
            assert!(!validator("decide-message").is_valid(&message));
        } else {
            is_valid("decide-message", &message);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session.jsonl");
    fs::write(&session, messages.join("\n") + "\n").unwrap();
    let mut command = vmlab(["decide"]);
    command.stdin(fs::File::open(session).unwrap());
    holds_each_line("decide-reply", &said(&mut command).has_code(0).stdout);
}
