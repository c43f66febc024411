//! The snippets of docs/export.md, run where their tools can be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use suite::{SharedThing, Tier, needs};

use crate::lab::Machine;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The snippets: language, the tool that their first line names, text.
fn snippets() -> Vec<(String, String, String)> {
    let page = fs::read_to_string(root().join("docs/export.md")).unwrap();
    let mut found = Vec::new();
    for part in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = part.split_once('\n').unwrap();
        if let Some(tool) = text.lines().next().and_then(|line| line.strip_prefix("# ")) {
            found.push((language.to_owned(), tool.to_owned(), format!("{text}\n")));
        }
    }
    found
}

/// A Python with the snippets' packages, from the cache; or why there is none.
fn python(packages: &[&str]) -> Result<PathBuf, String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let folder = cache.or(home).ok_or("neither XDG_CACHE_HOME nor HOME is set")?;
    let folder = folder.join("vmlab/export-snippets");
    let python = folder.join("bin/python");
    let import = format!("import {}", packages.join(", "));
    let imports = || Command::new(&python).args(["-c", &import]).output();
    if imports().is_ok_and(|output| output.status.success()) {
        return Ok(python);
    }
    let run = |command: &mut Command| match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))?;
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    Ok(python)
}

/// What the snippets import.
const PACKAGES: [&str; 4] = ["numpy", "pandas", "polars", "duckdb"];

/// How much slower one variant is made.
const SLOWER: f64 = 2.0;

#[test]
fn the_snippets_of_the_documentation_work() {
    let Some(_turn) = needs(Tier::Test).alone_with(SharedThing::Cache).turn() else { return };
    let machine = Machine::with_qemu("8.2.0");
    let results = machine.results();
    let results = results.to_str().unwrap();
    // The made-up study's variants are equal: make one half as fast.
    let export = |format: &str| machine.say(["export", results, "--to", format]).stdout;
    let csv: String = export("csv")
        .lines()
        .map(|line| {
            let mut cells: Vec<String> = line.split(',').map(str::to_owned).collect();
            if cells[3] == "two" {
                cells[15] = format!("{}", cells[15].parse::<f64>().unwrap() * SLOWER);
            }
            cells.join(",") + "\n"
        })
        .collect();
    fs::write(machine.path("samples.csv"), csv).unwrap();
    let json: String = export("jsonl")
        .lines()
        .map(|line| {
            let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
            if record["variant"] == "two" {
                record["value"] = (record["value"].as_f64().unwrap() * SLOWER).into();
            }
            format!("{record}\n")
        })
        .collect();
    fs::write(machine.path("samples.jsonl"), json).unwrap();
    let comparison =
        machine.say(["compare", "samples.csv", "--baseline", "one", "--format", "json"]);
    let comparison: serde_json::Value = serde_json::from_str(&comparison.stdout).unwrap();
    let python = python(&PACKAGES);
    let (mut seen, mut checked) = (Vec::new(), 0);
    for (language, tool, text) in snippets() {
        seen.push(tool.clone());
        let mut command = match (language.as_str(), &python) {
            ("python", Ok(python)) => Command::new(python),
            ("python", Err(why)) => {
                suite::skip_part(&tool, why);
                continue;
            }
            _ => Command::new("Rscript"),
        };
        let script = machine.path("snippet");
        fs::write(&script, text).unwrap();
        let output = match command.arg(&script).current_dir(machine.path("")).output() {
            Ok(output) => output,
            Err(error) => {
                suite::skip_part(&tool, error);
                continue;
            }
        };
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
        // Each prints a table in which every variant's ratio stands. The first
        // variant by name is the baseline here and there.
        for row in comparison["rows"].as_array().unwrap() {
            if comparison["metrics"][row["metric"].as_u64().unwrap() as usize]["kind"] != "time" {
                continue;
            }
            for judged in row["judged"].as_array().unwrap() {
                let Some(ratio) = judged["ratio"].as_f64() else { continue };
                let numbers = said.split_whitespace().filter_map(|word| word.parse::<f64>().ok());
                let found = numbers.into_iter().any(|number| (number / ratio - 1.0).abs() < 1e-3);
                assert!(found && ratio > 1.5, "{tool}: {ratio} is not in\n{said}");
                checked += 1;
            }
        }
    }
    assert_eq!(seen, ["pandas", "polars", "duckdb", "R"]);
    println!("{checked} ratios of snippets are right");
}

/// Reads both exports and ends badly where they differ.
#[cfg(feature = "parquet")]
const SAME_AS_CSV: &str = r#"
import duckdb
import polars as pl

parquet = pl.read_parquet("samples.parquet")
csv = pl.read_csv("samples.csv", schema_overrides=parquet.schema)
csv = csv.with_columns(pl.col(pl.String).fill_null(""))
assert parquet.columns == csv.columns, parquet.columns
assert parquet.equals(csv), (parquet, csv)
rows = duckdb.sql("SELECT * FROM 'samples.parquet'").fetchall()
assert rows == parquet.rows(), rows[0]
print(len(rows))
"#;

#[cfg(feature = "parquet")]
#[test]
fn others_read_the_parquet_export() {
    let Some(_turn) = needs(Tier::Test).alone_with(SharedThing::Cache).turn() else { return };
    let python = match python(&PACKAGES) {
        Ok(python) => python,
        Err(why) => return suite::skip(format!("Polars and DuckDB: {why}")),
    };
    let machine = Machine::with_qemu("8.2.0");
    let results = machine.results();
    let results = results.to_str().unwrap();
    for format in ["csv", "parquet"] {
        let file = machine.path("").join(format!("samples.{format}"));
        machine.say(["export", results, "--to", format, "--out", file.to_str().unwrap()]);
    }
    let output = Command::new(python)
        .args(["-c", SAME_AS_CSV])
        .current_dir(machine.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: usize = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    assert!(rows > 0);
}
