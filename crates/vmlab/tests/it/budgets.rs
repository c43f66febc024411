//! The table of what a reader takes says what the code says, and leaves no limit out.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A number of the table: `64 MiB`, `1,000,000`, `2 s`.
fn shown(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u64 = number.replace(',', "").parse().ok()?;
    Some(match unit {
        "" | "s" => number,
        "KiB" => number << 10,
        "MiB" => number << 20,
        "GiB" => number << 30,
        _ => return None,
    })
}

/// The text of a constant: what stands between `=` and `;`.
fn definition<'a>(source: &'a str, name: &str) -> Option<&'a str> {
    let at = source.find(&format!("const {name}:"))?;
    let (definition, _) = source[at..].split_once(';')?;
    Some(definition.split_once('=')?.1.trim())
}

/// What a constant is, as far as limits are written: numbers, sums, products, shifts,
/// seconds, other constants.
fn value(source: &str, text: &str) -> Option<u64> {
    let text = text.trim();
    for (sign, apply) in [
        (" + ", u64::checked_add as fn(u64, u64) -> Option<u64>),
        (" * ", u64::checked_mul),
        (" << ", |left, right| left.checked_shl(u32::try_from(right).ok()?)),
    ] {
        if let Some((left, right)) = text.rsplit_once(sign) {
            return apply(value(source, left)?, value(source, right)?);
        }
    }
    if let Some(inner) = text.strip_prefix("Duration::from_secs(") {
        return value(source, inner.strip_suffix(')')?);
    }
    if let Some(name) = text.strip_prefix("topology::bounded::") {
        let bounded = fs::read_to_string(root().join("crates/topology/src/bounded.rs")).ok()?;
        let name = name.split(' ').next()?;
        return value(&bounded, definition(&bounded, name)?);
    }
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return text.replace('_', "").parse().ok();
    }
    value(source, definition(source, text)?)
}

/// The rows of the table: the number, the file and the constant's name.
fn rows() -> Vec<(String, String, String)> {
    let page = fs::read_to_string(root().join("docs/budgets.md")).unwrap();
    let table = page.lines().filter(|line| line.starts_with("| ") && line.contains("`crates/"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [.., at_most, place] = cells[..] else { panic!("{line}") };
        let (file, name) = place.split_once(' ').unwrap();
        (at_most.to_owned(), file.trim_matches('`').to_owned(), name.trim_matches('`').to_owned())
    };
    table.map(row).collect()
}

#[test]
fn every_budget_is_what_the_code_says() {
    let rows = rows();
    assert!(rows.len() > 20, "{rows:?}");
    for (at_most, file, name) in rows {
        let source = fs::read_to_string(root().join(&file))
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let text = definition(&source, &name).unwrap_or_else(|| panic!("{file} has no {name}"));
        let number = value(&source, text).unwrap_or_else(|| panic!("{file}: {name} = {text}"));
        assert_eq!(shown(&at_most), Some(number), "{file}: {name} is {number}, not {at_most}");
    }
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            sources(&path, files);
        } else if name.to_string_lossy().ends_with(".rs") && name != "tests.rs" {
            files.push(path);
        }
    }
}

/// Crates that read nothing of anybody's: the guest's own programs, and what draws.
const READ_NOTHING: [&str; 4] = ["probe", "thinguest", "report", "suite"];

#[test]
fn every_limit_of_bytes_and_depth_is_a_budget() {
    let root = fs::canonicalize(root()).unwrap();
    let told: BTreeSet<(String, String)> =
        rows().into_iter().map(|(_, file, name)| (file, name)).collect();
    let mut files = Vec::new();
    sources(&root.join("crates"), &mut files);
    let mut found = 0;
    for path in files {
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let mut parts = file.split('/').skip(1);
        let (name, below) = (parts.next().unwrap(), parts.next());
        // What a VMM refuses of a VM is no budget of the rules that know it.
        let of_rules = file.starts_with("crates/lint/src/rules/");
        if below != Some("src") || READ_NOTHING.contains(&name) || of_rules {
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        let names = source.match_indices("const ").filter_map(|(at, word)| {
            source[at + word.len()..].split_once(':').map(|(name, _)| name)
        });
        let limits = names.filter(|name| {
            ["MAX_", "MOST_", "LONGEST_"].iter().any(|begin| name.starts_with(begin))
                && ["_BYTES", "_DEPTH"].iter().any(|end| name.ends_with(end))
        });
        for limit in limits {
            found += 1;
            let place = (file.clone(), limit.to_owned());
            assert!(told.contains(&place), "docs/budgets.md has no row for {place:?}");
        }
    }
    assert!(found > 10, "only {found} limits were found");
}
