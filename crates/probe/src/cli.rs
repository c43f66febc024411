//! The command line: which probe, with which options, and what is printed.

use crate::args::{Args, nearest};
use crate::costs::CounterSnapshot;
use crate::probes::unixbench::{counted, worker};
use crate::spec::Probe;
use crate::{PROBES, docs};

/// The output and exit code of a call.
#[derive(Debug, PartialEq, Eq)]
pub struct CliExit {
    /// For the standard output: one JSON document, a list or a help text.
    pub stdout: String,
    /// For the standard error: why it failed.
    pub stderr: String,
    /// 0 fine, 1 the result was checked and is wrong, 2 an error.
    pub code: u8,
}

impl CliExit {
    fn fine(stdout: String) -> Self {
        Self { stdout, stderr: String::new(), code: 0 }
    }

    fn error(text: String) -> Self {
        Self { stdout: String::new(), stderr: format!("vmlab-probe: {text}\n"), code: 2 }
    }
}

/// Runs the program with `words`, its arguments without its own name.
#[must_use]
pub fn run(words: Vec<String>) -> CliExit {
    let wants_help = |word: &String| word == "--help" || word == "-h";
    let (name, rest) = match words.split_first() {
        None => return CliExit { code: 2, ..CliExit::fine(docs::usage()) },
        Some((first, rest)) => (first.as_str(), rest),
    };
    match name {
        "--help" | "-h" | "help" if rest.is_empty() => CliExit::fine(docs::usage()),
        "help" => match find(&rest[0]) {
            Ok(probe) => CliExit::fine(docs::help(probe)),
            Err(text) => CliExit::error(text),
        },
        "--version" | "-V" => CliExit::fine(format!("vmlab-probe {}\n", env!("CARGO_PKG_VERSION"))),
        counted::NAME => match worker::run(rest) {
            Ok(()) => CliExit::fine(String::new()),
            Err(text) => CliExit::error(text),
        },
        "list" if rest == ["--json"] => CliExit::fine(docs::list_json()),
        "list" if rest.is_empty() => CliExit::fine(docs::list()),
        "list" => CliExit::error(format!("list takes --json or nothing, not {}", rest.join(" "))),
        name => match find(name) {
            Ok(probe) if rest.iter().any(wants_help) => CliExit::fine(docs::help(probe)),
            Ok(probe) => run_probe(probe, rest),
            Err(text) => CliExit::error(text),
        },
    }
}

fn find(name: &str) -> Result<&'static Probe, String> {
    PROBES.iter().find(|probe| probe.name == name).copied().ok_or_else(|| {
        let near = nearest(name, PROBES.iter().map(|probe| probe.name));
        let hint = near.map_or(String::from("; `vmlab-probe list` names all"), |near| {
            format!(" (did you mean {near}?)")
        });
        format!("Unknown probe {name:?}{hint}")
    })
}

fn run_probe(probe: &'static Probe, words: &[String]) -> CliExit {
    let args = match Args::parse(probe.options, words) {
        Ok(args) => args,
        Err(error) => return CliExit::error(format!("{}: {error}", probe.name)),
    };
    let mut outcome = probe.outcome(&args);
    let before = CounterSnapshot::now();
    if let Err(error) = (probe.run)(&args, &mut outcome) {
        let mut text = format!("{}: {error}", probe.name);
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            text += &format!(": {cause}");
            source = cause.source();
        }
        return CliExit::error(text);
    }
    let document = outcome.finish(before.costs());
    let code = u8::from(!document.verified);
    let mut stdout = serde_json::to_string(&document).expect("the document has string keys alone");
    stdout.push('\n');
    CliExit { code, ..CliExit::fine(stdout) }
}
