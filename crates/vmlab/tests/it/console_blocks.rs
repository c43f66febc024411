//! The documentation's console blocks, executed.
//!
//! In a block that is fenced as `console`, every line `$ vmlab ...` is run in
//! the repository's root. What stands below it, up to the next `$`, is its
//! output, standard error included; `...` stands for any text, also over
//! several lines. A command without output must succeed. What boots VMs or
//! changes the machine belongs into blocks that are fenced as `text`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lab::VMLAB;

/// A command and what it shall print.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    command: String,
    output: String,
}

fn shown(text: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            inside = !inside && fence.trim() == "console";
        } else if !inside {
        } else if let Some(command) = line.strip_prefix("$ ") {
            let (line, command) = (index + 1, command.to_owned());
            found.push(Shown { line, command, output: String::new() });
        } else if let Some(last) = found.last_mut() {
            last.output += line;
            last.output.push('\n');
        }
    }
    found.retain(|shown| shown.command.starts_with("vmlab "));
    found
}

/// Whether `text` is as `pattern` says, where `...` stands for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.trim(), text.trim());
    let Some((first, others)) = pattern.split_once("...") else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = others.split("...").collect();
    let last = parts.pop().expect("split gives at least one part");
    for part in parts {
        match rest.split_once(part) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let names = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let all = names(root.clone()).chain(names(root.join("docs"))).map(|entry| entry.path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

#[test]
fn console_blocks_are_true() {
    let home = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = Path::new(VMLAB).parent().unwrap().display();
    let mut wrong = Vec::new();
    for page in pages() {
        for Shown { line, command, output } in shown(&fs::read_to_string(&page).unwrap()) {
            let place = format!("{}:{line}: $ {command}", page.display());
            if command.starts_with("vmlab run ") && !command.contains("--dry-run") {
                wrong.push(format!("{place}\nboots VMs: fence it as text"));
                continue;
            }
            let ran = Command::new("sh")
                .args(["-c", &format!("exec 2>&1; {command}")])
                .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
                .env("PATH", format!("{folder}:{path}"))
                // An image in the cache would make the output this machine's.
                .env("XDG_CACHE_HOME", home.path())
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let text = String::from_utf8_lossy(&ran.stdout);
            let right = match output.trim() {
                "" => ran.status.success(),
                pattern => matches(pattern, &text),
            };
            if !right {
                wrong.push(format!("{place}\nsays ({}):\n{text}", ran.status));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn blocks_and_patterns_are_understood() {
    let page =
        "x\n```console\n$ vmlab a\none\n$ make b\ntwo\n$ vmlab c\n```\n```text\n$ vmlab d\n```\n";
    let expected = |line, command: &str, output: &str| Shown {
        line,
        command: command.to_owned(),
        output: output.to_owned(),
    };
    assert_eq!(shown(page), [expected(3, "vmlab a", "one\n"), expected(7, "vmlab c", "")]);
    for (pattern, text, expected) in [
        ("a b", "a b\n", true),
        ("a b", "a c", false),
        ("a ... d", "a b\nc d", true),
        ("a ... d", "a b c", false),
        ("a\n...\n", "a\nb\nc", true),
        ("...b...d...", "a b c d e", true),
        ("...d...b...", "a b c d e", false),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern:?} and {text:?}");
    }
}
