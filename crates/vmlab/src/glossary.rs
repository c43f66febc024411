//! Holds the names that people write, type and read to `docs/glossary.md`: one word for
//! one thing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Command;
use serde_json::Value;

use crate::schema::DOCUMENTS;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page(name: &str) -> String {
    fs::read_to_string(docs().join(name)).unwrap()
}

/// What stands between backticks in `text`.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The keys of every object of a schema.
fn keys(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Object(properties)) = fields.get("properties") {
                found.extend(properties.keys().cloned());
            }
            fields.values().for_each(|below| keys(below, found));
        }
        Value::Array(items) => items.iter().for_each(|below| keys(below, found)),
        _ => {}
    }
}

fn keys_of(document: &str) -> BTreeSet<String> {
    let document = DOCUMENTS.iter().find(|one| one.name == document).unwrap();
    let mut found = BTreeSet::new();
    keys(&serde_json::from_str(&document.text()).unwrap(), &mut found);
    found
}

/// The keys of a simulator's scenario, which its pages have in the first column of tables.
fn scenario_keys() -> BTreeSet<String> {
    let page = page("sim.md") + &page("sim-model.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    cells
        .flat_map(|cell| cell.split('`').step_by(2).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// The long options of `command` and of those below it.
fn options(command: &Command, found: &mut BTreeSet<String>) {
    found.extend(command.get_arguments().filter_map(|one| Some(format!("--{}", one.get_long()?))));
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        options(below, found);
    }
}

/// Every name: keys of TOML and JSON, options with their dashes.
fn names() -> BTreeSet<String> {
    let mut names = scenario_keys();
    DOCUMENTS.iter().for_each(|document| names.extend(keys_of(document.name)));
    options(&crate::command(), &mut names);
    names
}

fn words(name: &str) -> impl Iterator<Item = &str> {
    name.trim_start_matches('-').split(['_', '-', '.'])
}

/// Rows of the glossary's last table: the word, those that stand for the same thing and
/// are not used, and names of others' that have them all the same.
fn one_word_for_each() -> Vec<[BTreeSet<String>; 3]> {
    let page = page("glossary.md");
    let (_, table) = page.split_once("\n## One word for each thing\n").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
        let [word, not, but_for] = cells[..] else { panic!("three columns: {row}") };
        [word, not, but_for].map(|cell| quoted(cell).map(str::to_owned).collect())
    })
    .collect()
}

#[test]
fn one_thing_has_one_word_in_keys_and_options() {
    let (names, rows) = (names(), one_word_for_each());
    assert!(names.len() > 800 && rows.len() > 8, "{} names, {} rows", names.len(), rows.len());
    let mut wrong = Vec::new();
    for [instead, not, but_for] in &rows {
        for word in instead {
            let used = names.iter().any(|name| words(name).any(|part| part == word));
            assert!(used, "no key and no option is named by the glossary's word {word}");
        }
        let has = |name: &&String| words(name).any(|part| not.contains(part));
        let found: BTreeSet<&String> = names.iter().filter(has).collect();
        let allowed: BTreeSet<&String> = but_for.iter().collect();
        wrong.extend(found.difference(&allowed).map(|name| format!("{name}: say {instead:?}")));
        wrong.extend(allowed.difference(&found).map(|name| format!("{name} is no name any more")));
    }
    assert!(
        wrong.is_empty(),
        "docs/glossary.md, \"One word for each thing\":\n{}",
        wrong.join("\n")
    );
}

#[test]
fn one_name_is_spelled_in_one_way() {
    let mut spelled: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for name in names() {
        let name = name.trim_start_matches('-').replace('-', "_");
        // `limit_s` is in seconds, `limits` are several.
        let (stem, unit) = match name.strip_suffix("_s") {
            Some(stem) => (stem, "_s"),
            None => (&*name, ""),
        };
        let plain = stem.replace('_', "") + unit;
        spelled.entry(plain).or_default().insert(name);
    }
    let twice: Vec<_> = spelled.values().filter(|spelled| spelled.len() > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_key_that_people_write_is_documented() {
    let mut told = BTreeSet::new();
    for entry in fs::read_dir(docs()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Made from rules, not written about keys.
        if !name.ends_with(".md") || name == "lints.md" {
            continue;
        }
        let page = page(&name);
        let fenced = page.split("```").skip(1).step_by(2);
        let inline = page.split("```").step_by(2).flat_map(quoted);
        for text in fenced.chain(inline) {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            told.extend(text.split(|c| !is_part(c)).map(str::to_owned));
        }
    }
    for document in ["study", "wishes", "site-rules", "switch-file"] {
        let missing: Vec<_> = keys_of(document).difference(&told).cloned().collect();
        assert!(missing.is_empty(), "{document}: no page of docs/ has {missing:?}");
    }
}
