//! The repository's own rules, held by tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Crate, layer and allowed edges, as ARCHITECTURE.md says them.
fn table() -> BTreeMap<String, (u32, Vec<String>)> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let start = text.find("<!-- edges: begin -->").expect("the table's begin is marked");
    let end = text.find("<!-- edges: end -->").expect("the table's end is marked");
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    text[start..end]
        .lines()
        .filter(|line| line.starts_with('|') && line.contains('`'))
        .map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let layer = cells[1].parse().unwrap_or_else(|_| panic!("no layer in {line}"));
            let names: Vec<String> = quoted(cells[2]);
            (names[0].clone(), (layer, quoted(cells[3])))
        })
        .collect()
}

/// The edges to crates of ours, as Cargo sees them.
fn cargo_edges() -> BTreeMap<String, Vec<String>> {
    let mut edges = BTreeMap::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = text.parse().unwrap();
        assert_eq!(manifest["package"]["name"].as_str(), Some(name.as_str()), "folder = crate");
        let mut found = Vec::new();
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(list) = manifest.get(kind).and_then(toml::Value::as_table) else { continue };
            found.extend(
                list.keys().filter(|key| root().join("crates").join(key).exists()).cloned(),
            );
        }
        found.sort();
        found.dedup();
        edges.insert(name, found);
    }
    edges
}

#[test]
fn edges_are_those_of_the_architecture() {
    let (table, edges) = (table(), cargo_edges());
    assert_eq!(
        table.keys().collect::<Vec<_>>(),
        edges.keys().collect::<Vec<_>>(),
        "the crates of ARCHITECTURE.md and those in crates/"
    );
    for (name, found) in &edges {
        let (layer, allowed) = &table[name];
        assert_eq!(found, allowed, "{name}: Cargo's edges and those of ARCHITECTURE.md");
        for edge in allowed {
            assert!(table[edge].0 < *layer, "{name} -> {edge} does not go down");
        }
    }
}

#[test]
fn versions_stand_in_the_root_alone() {
    for name in cargo_edges().keys() {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
        for kind in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let Some(list) = manifest.get(kind).and_then(toml::Value::as_table) else { continue };
            for (dependency, value) in list {
                let from_root = value.get("workspace").and_then(toml::Value::as_bool);
                assert_eq!(from_root, Some(true), "{name}: {dependency} has a version of its own");
            }
        }
    }
}

pub(crate) fn sources(folder: &Path, kind: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, kind, found);
        } else if path.extension().is_some_and(|extension| extension == kind) {
            found.push(path);
        }
    }
}

#[test]
fn files_stay_small_and_have_a_purpose() {
    let mut files = Vec::new();
    sources(&root().join("crates"), "rs", &mut files);
    assert!(files.len() > 50, "only {} files found", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        assert!(lines <= 800, "{}: {lines} lines, split it", file.display());
        let stem = file.file_stem().unwrap().to_string_lossy();
        assert!(!["utils", "util", "common", "helpers", "misc"].contains(&&*stem), "{file:?}");
        assert!(text.starts_with("//!"), "{}: says not what it is for", file.display());
    }
}

/// The modules that may hold `unsafe`: the bare-metal guest's machine, what brings it up
/// on UEFI, and the memory of the switch's guests.
const UNSAFE_MODULES: [&str; 3] = [
    "crates/thinguest/src/bare/metal/",
    "crates/vswitch/src/memory/",
    "crates/thinguest/src/uefi/",
];

#[test]
fn unsafe_is_in_three_modules_and_says_why_it_holds() {
    let mut files = Vec::new();
    sources(&root().join("crates"), "rs", &mut files);
    let (mut blocks, mut permissions) = (0, Vec::new());
    for file in files {
        let name = file.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let place = format!("{name}:{}", index + 1);
            let code = line.split("//").next().unwrap();
            if code.trim_start().starts_with('#') && code.contains("(unsafe_code") {
                permissions.push(name.clone());
            }
            let begins = |what: &str| code.contains(&["unsafe", what].join(" "));
            if begins("{") || begins("impl") {
                let allowed = UNSAFE_MODULES.iter().any(|module| name.starts_with(module));
                assert!(allowed, "{place}: only {UNSAFE_MODULES:?} may do this");
                let above = &lines[index.saturating_sub(6)..=index];
                assert!(above.iter().any(|line| line.contains("// SAFETY: ")), "{place}: why?");
                blocks += 1;
            }
            // What Rust itself calls safe stays so for the module's callers.
            let inner = name.starts_with(UNSAFE_MODULES[1]) && !code.trim().starts_with("pub ");
            let handed_out = begins("fn") && !inner;
            assert!(!handed_out, "{place}: a function that is not safe to call");
        }
    }
    assert!(blocks > 20, "only {blocks} blocks were found");
    permissions.sort();
    assert_eq!(
        permissions,
        [
            "crates/thinguest/src/bare/main.rs",
            "crates/thinguest/src/uefi/main.rs",
            "crates/vswitch/src/memory/mod.rs",
        ]
    );
}

/// The crates that ARCHITECTURE.md calls pure.
fn pure_crates() -> Vec<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let pure = text.lines().filter(|line| line.starts_with('|') && line.ends_with(". Pure |"));
    pure.map(|line| line.split('`').nth(1).unwrap().to_owned()).collect()
}

/// The lines of `text` outside its test code, which may read goldens.
fn code_lines(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if line == "#[cfg(test)]" {
            // An item at the file's margin ends with a line at the margin.
            let ends = |line: &str| {
                line.starts_with('}') || !line.starts_with([' ', '#']) && line.ends_with(';')
            };
            for (_, line) in lines.by_ref() {
                if ends(line) {
                    break;
                }
            }
        } else if !line.trim_start().starts_with("//") {
            found.push((index + 1, line));
        }
    }
    found
}

/// True if `line` says a colour, by hexadecimal digits or as a function of CSS.
fn says_a_colour(line: &str) -> bool {
    let hexadecimal = line.match_indices('#').any(|(at, _)| {
        let rest = &line[at + 1..];
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        let whole = !rest[end..].starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '-');
        let begins = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '&');
        whole && begins && matches!(end, 3 | 6 | 8)
    });
    hexadecimal || line.contains("rgb(") || line.contains("rgba(")
}

#[test]
fn colours_and_styles_stand_in_one_place() {
    assert!(says_a_colour("fill=\"#fff\"/>") && says_a_colour("a { color: #1b2027; }"));
    assert!(!says_a_colour("see kubernetes#141237 and &#123; and #face-mask"));
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let folder = entry.unwrap().path().join("src");
        sources(&folder, "rs", &mut files);
        sources(&folder, "js", &mut files);
        sources(&folder, "css", &mut files);
    }
    let sheets = files.iter().filter(|file| file.extension().is_some_and(|one| one == "css"));
    assert_eq!(sheets.count(), 1, "one style sheet for all pages");
    for file in files.iter().filter(|file| !file.ends_with("report/src/palette.rs")) {
        let text = fs::read_to_string(file).unwrap();
        for (number, line) in code_lines(&text) {
            let advice = "name it as in report/src/palette.rs";
            assert!(!says_a_colour(line), "{}:{number}: a colour: {advice}", file.display());
        }
    }
}

/// What does I/O, asks the machine or the clock, or prints.
const IMPURE: [&str; 14] = [
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "std::thread",
    "std::time::SystemTime",
    "std::time::Instant",
    "SystemTime::now",
    "Instant::now",
    "io::stdin",
    "io::stdout",
    "io::stderr",
    "print!(",
    "println!(",
];

/// Files of pure crates with a word of [`IMPURE`] that does nothing to the world.
const PURE_ALL_THE_SAME: [(&str, &str); 1] = [
    // A thread that is waited for, for the sake of its stack: the parser of CEL goes as
    // deep as its text is long.
    ("lint/src/site/condition.rs", "std::thread"),
];

#[test]
fn pure_crates_do_no_io() {
    let crates = pure_crates();
    assert!(crates.len() >= 9, "only {crates:?} are called pure");
    for name in crates {
        let mut files = Vec::new();
        sources(&root().join("crates").join(name).join("src"), "rs", &mut files);
        files.retain(|file| {
            !file.ends_with("tests.rs") && !file.components().any(|c| c.as_os_str() == "tests")
        });
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for (number, line) in code_lines(&text) {
                let excepted = |word: &str| {
                    PURE_ALL_THE_SAME.iter().any(|(path, one)| file.ends_with(path) && *one == word)
                };
                let impure = IMPURE.iter().find(|word| line.contains(**word) && !excepted(word));
                assert_eq!(impure, None, "{}:{number}: in a pure crate", file.display());
            }
        }
    }
}

#[test]
fn test_code_is_told_from_code() {
    let text = "use a;\n#[cfg(test)]\nmod tests;\nfn f() {}\n#[cfg(test)]\nmod more {\n    \
                use std::fs;\n}\n// std::fs\nfn g() {\n    std::fs::read(x)\n}\n";
    let numbers: Vec<usize> = code_lines(text).iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [1, 4, 10, 11, 12]);
}

#[test]
fn the_public_ci_does_what_ours_does() {
    let text = fs::read_to_string(root().join(".github/workflows/ci.yml")).unwrap();
    let commands: Vec<&str> =
        text.lines().filter_map(|line| line.trim_start().strip_prefix("- run: ")).collect();
    // One owner of what must hold: .ci/run; what takes long is `make full`.
    assert_eq!(commands, [".ci/run", "make full"]);
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    assert!(makefile.lines().any(|line| line.starts_with("full:")), "there is no `make full`");
    assert!(root().join(".ci/run").is_file());
    let toolchain = fs::read_to_string(root().join("rust-toolchain.toml")).unwrap();
    assert!(text.contains("rust-toolchain.toml") && toolchain.contains("channel"), "{text}");
}

#[test]
fn the_changelog_keeps_its_format() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let mut headings = text.lines().filter(|line| line.starts_with("## "));
    assert_eq!(headings.next(), Some("## [Unreleased]"));
    for heading in headings {
        let (version, date) = heading.trim_start_matches("## ").split_once(" - ").unwrap();
        assert!(version.starts_with('[') && version.ends_with(']'), "{heading}");
        let parts: Vec<_> = date.split('-').map(str::len).collect();
        assert_eq!(parts, [4, 2, 2], "{heading}: the date is year-month-day");
    }
    for kind in text.lines().filter_map(|line| line.strip_prefix("### ")) {
        let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
        assert!(kinds.contains(&kind), "### {kind}");
    }
}

#[test]
fn every_page_has_its_place_in_the_book() {
    let docs = root().join("docs");
    let book = fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let named: Vec<&str> = book
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(page, _)| page))
        .collect();
    let mut pages: Vec<String> = fs::read_dir(&docs)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".md") && name != "SUMMARY.md")
        .collect();
    pages.sort();
    for page in &pages {
        let times = named.iter().filter(|name| *name == page).count();
        assert_eq!(times, 1, "{page} in docs/SUMMARY.md");
    }
    assert_eq!(named.len(), pages.len(), "{named:?}");
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for folder in [root(), root().join("docs")] {
        for entry in fs::read_dir(&folder).unwrap() {
            let page = entry.unwrap().path();
            if page.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let text = fs::read_to_string(&page).unwrap();
            for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let path = link.split('#').next().unwrap_or_default();
                if path.is_empty() || path.contains("://") || path.contains(char::is_whitespace) {
                    continue;
                }
                seen += 1;
                if !folder.join(path).exists() {
                    wrong.push(format!("{}: {link}", page.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "links to nothing:\n{}", wrong.join("\n"));
    assert!(seen > 20, "only {seen} links found");
}

#[test]
fn the_ways_and_places_of_the_architecture_are_there() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let between = |name: &str| {
        let from = text.split(&format!("<!-- {name}: begin -->")).nth(1).expect(name);
        from.split(&format!("<!-- {name}: end -->")).next().expect(name).to_owned()
    };
    let (ways, places) = (between("ways"), between("places"));
    let quoted = |text: &str| -> Vec<String> {
        text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let paths: Vec<String> = [quoted(&ways), quoted(&places)]
        .concat()
        .into_iter()
        .filter(|word| word.starts_with("crates/") || word.starts_with("docs/"))
        .collect();
    assert!(paths.len() > 40, "{paths:?}");
    for path in &paths {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}, which is not there");
    }
    let mut sources = String::new();
    rust_below(&root().join("crates"), &mut sources);
    for row in places.lines().filter(|line| line.starts_with("| a")) {
        let tests = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let tests = quoted(tests);
        assert!(!tests.is_empty(), "no test holds: {row}");
        for test in tests {
            assert!(sources.contains(&format!("fn {test}(")), "there is no test {test}: {row}");
        }
    }
}

/// All Rust below a folder, one text.
fn rust_below(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_below(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}
