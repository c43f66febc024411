//! The documentation's blocks of commands, executed.
//!
//! Every block that holds commands is fenced in one of two ways:
//!
//! - as `console`: each line `$ vmlab ...` is run in the repository's root. What
//!   stands below it, up to the next `$`, is its output, standard error included;
//!   `...` stands for any text, also over several lines. A command without output
//!   must succeed.
//! - as `console not-run: REASON`: commands that boot VMs, change the machine or
//!   need another one, with what they print. That vmlab has these subcommands and
//!   options is still tested, and that the Makefile has these targets.
//!
//! Blocks that hold a whole study must be studies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::lab::VMLAB;

/// Begins the fence's text of a block that is not run, before the reason.
const NOT_RUN: &str = "console not-run: ";

/// A fenced block.
#[derive(Debug, PartialEq)]
struct Block {
    /// The fence's text: `console`, `toml`, ...
    fence: String,
    /// Its lines, each with its number in the page.
    lines: Vec<(usize, String)>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(fence) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            if inside {
                found.push(Block { fence: fence.trim().to_owned(), lines: Vec::new() });
            }
        } else if inside && let Some(block) = found.last_mut() {
            block.lines.push((index + 1, line.to_owned()));
        }
    }
    found
}

/// The command that a line of a block shows: behind `$ `, which a machine's name
/// may precede.
fn command(line: &str) -> Option<&str> {
    let (machine, command) = line.split_once("$ ")?;
    machine.chars().all(char::is_alphanumeric).then_some(command.trim())
}

/// A command and what it shall print.
#[derive(Debug, PartialEq)]
struct Shown {
    line: usize,
    command: String,
    output: String,
}

impl Block {
    /// The commands with what stands below each.
    fn shown(&self) -> Vec<Shown> {
        let mut found: Vec<Shown> = Vec::new();
        for (line, text) in &self.lines {
            if let Some(command) = command(text) {
                let (line, command) = (*line, command.to_owned());
                found.push(Shown { line, command, output: String::new() });
            } else if let Some(last) = found.last_mut() {
                last.output += text;
                last.output.push('\n');
            }
        }
        found
    }

    /// The line of a command in a block whose fence does not say that it has any.
    fn stray_command(&self) -> Option<usize> {
        let programs = ["vmlab ", "make ", "scripts/"];
        let is_command = |text: &str| {
            command(text).is_some() || programs.iter().any(|program| text.starts_with(program))
        };
        // `vmlab = 1` begins a study.
        if self.fence.starts_with("console") || self.fence == "toml" {
            return None;
        }
        self.lines.iter().find(|(_, text)| is_command(text)).map(|(line, _)| *line)
    }

    /// The text of the whole block.
    fn text(&self) -> String {
        self.lines.iter().map(|(_, line)| format!("{line}\n")).collect()
    }
}

/// The calls of vmlab and make in a shell's command line, as they are written.
fn calls(command: &str) -> Vec<Vec<&str>> {
    let parts = command.split(['|', ';', '&']);
    parts
        .map(|part| {
            // Redirections and comments are the shell's.
            let is_ours = |word: &&str| !word.starts_with(['<', '>', '#']);
            part.split_whitespace().take_while(is_ours).collect::<Vec<_>>()
        })
        .filter(|words| words.first().is_some_and(|word| ["vmlab", "make"].contains(word)))
        .collect()
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The pages in the root and in `docs`, with their blocks.
fn pages() -> Vec<(PathBuf, Vec<Block>)> {
    let names = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let all = names(root()).chain(names(root().join("docs"))).map(|entry| entry.path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let found = blocks(&fs::read_to_string(&path).unwrap());
            (path, found)
        })
        .collect()
}

/// Runs a shell's command line in the root; standard error joins the output.
fn run(line: &str, home: &Path) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = Path::new(VMLAB).parent().unwrap().display();
    Command::new("sh")
        .args(["-c", &format!("exec 2>&1; {line}")])
        .current_dir(root())
        .env("PATH", format!("{folder}:{path}"))
        // An image in the cache would make the output this machine's.
        .env("XDG_CACHE_HOME", home)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn console_blocks_are_true() {
    let home = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (page, blocks) in pages() {
        let shown = blocks.iter().filter(|block| block.fence == "console").flat_map(Block::shown);
        for Shown { line, command, output } in shown {
            let place = format!("{}:{line}: $ {command}", page.display());
            let runs = command.starts_with("vmlab run ") && !command.contains("--dry-run");
            if runs || !command.contains("vmlab ") {
                wrong.push(format!("{place}\nis not run here: fence it as `{NOT_RUN}REASON`"));
                continue;
            }
            seen += 1;
            let ran = run(&command, home.path());
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
    assert!(seen > 10, "only {seen} commands found");
}

#[test]
fn commands_that_are_not_run_exist() {
    let home = tempfile::tempdir().unwrap();
    let makefile = fs::read_to_string(root().join("Makefile")).unwrap();
    let is_target = |word: &str| makefile.lines().any(|line| line.starts_with(&format!("{word}:")));
    // What is wrong with a call, if anything is.
    let fault = |call: &[&str]| {
        if call[0] == "make" {
            let mut targets = call[1..].iter().filter(|word| !word.contains('='));
            return targets.find(|word| !is_target(word)).map(|word| format!("no target {word}"));
        }
        // Help ends it once everything before it was understood.
        let own: Vec<&str> = call.iter().copied().take_while(|word| *word != "--").collect();
        let ran = run(&format!("{} --help", own.join(" ")), home.path());
        let said = || String::from_utf8_lossy(&ran.stdout).into_owned();
        (!ran.status.success()).then(said)
    };
    let mut wrong = Vec::new();
    for (page, blocks) in pages() {
        let not_run = blocks.iter().filter(|block| block.fence.starts_with(NOT_RUN));
        for Shown { line, command, .. } in not_run.flat_map(Block::shown) {
            let faults = calls(&command).into_iter().filter_map(|call| fault(&call));
            let place = format!("{}:{line}: $ {command}", page.display());
            wrong.extend(faults.map(|fault| format!("{place}: {fault}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_block_of_commands_says_whether_it_is_run() {
    let mut wrong = Vec::new();
    for (page, blocks) in pages() {
        for block in blocks {
            let known = block.fence == "console"
                || block.fence.strip_prefix(NOT_RUN).is_some_and(|reason| !reason.is_empty())
                || !block.fence.starts_with("console");
            let line = match (known, block.stray_command()) {
                (true, None) => continue,
                (true, Some(line)) => line,
                (false, _) => block.lines.first().map_or(0, |(line, _)| *line),
            };
            wrong.push(format!(
                "{}:{line}: commands in a block fenced as `{}`: fence it as `console`, which is \
                 run, or as `{NOT_RUN}REASON`, each command behind `$ `",
                page.display(),
                block.fence
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn studies_and_rules_in_the_documentation_are_what_they_say() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("shown.toml");
    let mut wrong = Vec::new();
    for (page, blocks) in pages() {
        for block in blocks.iter().filter(|block| block.text().starts_with("vmlab = ")) {
            fs::write(&file, block.text()).unwrap();
            // All begin with the version.
            let is_rules = block.text().contains("[[rule]]");
            let command = match block.text().contains("[[metric]]") {
                true => "vmlab rollout --plan-only",
                false if is_rules => "vmlab lint --check-rules",
                false => "vmlab check",
            };
            let ran = run(&format!("{command} {}", file.display()), home.path());
            let text = String::from_utf8_lossy(&ran.stdout);
            // That this machine lacks what it takes is no fault of the study.
            if !ran.status.success() && (is_rules || text.contains("shown.toml:")) {
                wrong.push(format!("{}:{}:\n{text}", page.display(), block.lines[0].0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn blocks_and_patterns_are_understood() {
    let page = "x\n```console\n$ vmlab a\none\n$ make b\ntwo\n$ vmlab c\n```\n\
                ```console not-run: boots\nthere$ vmlab d | x >y\n```\n```text\ncosts $ 5\n```\n\
                ```sh\n$ vmlab e\n```\n```text\nvmlab f\n```\n";
    let expected = |line, command: &str, output: &str| Shown {
        line,
        command: command.to_owned(),
        output: output.to_owned(),
    };
    let found = blocks(page);
    assert_eq!(
        found[0].shown(),
        [
            expected(3, "vmlab a", "one\n"),
            expected(5, "make b", "two\n"),
            expected(7, "vmlab c", "")
        ]
    );
    assert_eq!(found[1].shown(), [expected(10, "vmlab d | x >y", "")]);
    let strays: Vec<Option<usize>> = found.iter().map(Block::stray_command).collect();
    assert_eq!(strays, [None, None, None, Some(16), Some(19)]);
    assert_eq!(
        calls("cat x | vmlab a --b c >d; make e && f # g"),
        [vec!["vmlab", "a", "--b", "c"], vec!["make", "e"]]
    );
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
