//! Texts that are generated from the catalogue: `docs/workloads.md` and the
//! help of one benchmark.

use core::net::Ipv4Addr;
use std::fmt::Write as _;

use crate::entry::{CatalogueEntry, GuestFacts, Scope};
use crate::roles::{FULL_IMAGE, GuestStep, SCRATCH, UnderTest};
use crate::{CATALOGUE, Params};

/// Address of the other guest in examples.
const EXAMPLE_PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// The whole catalogue as Markdown: the text of `docs/workloads.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Workloads\n\n\
         <!-- Generated from the catalogue in crates/workload; change it there and run its tests \
         with UPDATE_EXPECT=1. -->\n\n\
         The benchmarks that a study can run in its guests, their parameters and what they \
         yield.\n\n\
         | workload | what it is | in the guest |\n|---|---|---|\n",
    );
    for entry in CATALOGUE {
        let server = entry.beside.server.iter().flat_map(|server| server.needs);
        let needs = code_list(entry.needs.iter().chain(server).copied());
        row(&mut text, &[&format!("[{0}](#{0})", entry.name), entry.summary, &needs]);
    }
    for entry in CATALOGUE {
        text.push('\n');
        section(&mut text, entry);
    }
    text
}

impl CatalogueEntry {
    /// The help of this benchmark, as Markdown that reads well as plain text.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = String::new();
        section(&mut text, self);
        text
    }

    /// The example as a study file has it.
    #[must_use]
    pub fn example_toml(&self) -> String {
        let mut text = String::new();
        if self.beside.full_image {
            let _ = write!(text, "[vm]\nimage = \"builtin:{FULL_IMAGE}\"\n\n");
        }
        let _ = writeln!(text, "[[workload]]\nrun = \"{}\"", self.name);
        if !self.example.is_empty() {
            let params: Vec<String> =
                self.example.iter().map(|(name, value)| format!("{name} = {value}")).collect();
            let _ = writeln!(text, "params = {{ {} }}", params.join(", "));
        }
        text
    }

    fn example_params(&self) -> Params {
        let given = self
            .example
            .iter()
            .filter_map(|(name, value)| Some(((*name).to_owned(), value.value()?)))
            .collect();
        self.resolve(&given).expect("the table's tests resolve every example")
    }
}

fn section(text: &mut String, entry: &CatalogueEntry) {
    let params = entry.example_params();
    let facts = GuestFacts { peer: EXAMPLE_PEER, ..GuestFacts::alone(2, false) };
    let _ = write!(
        text,
        "## {}\n\n{}.\n\n{}\n\nMeasures: {}\n\n{}\n\nRepeats: {}\n",
        entry.name,
        entry.summary,
        entry.about,
        entry.measures,
        needs(entry),
        entry.repeats,
    );
    text.push_str("\n| parameter | default | allowed | unit | meaning |\n|---|---|---|---|---|\n");
    for param in entry.params {
        row(
            text,
            &[
                &format!("`{}`", param.name),
                &param.default.to_string(),
                &param.kind.to_string(),
                param.unit.unwrap_or(""),
                param.help,
            ],
        );
    }
    text.push_str(
        "\n| metric | unit | better | one sample is | meaning |\n|---|---|---|---|---|\n",
    );
    for metric in entry.metrics {
        let name = match metric.primary {
            true if metric.name == entry.primary().name => {
                format!("**`{}`** (primary)", metric.name)
            }
            true => format!("**`{}`** (primary without those above)", metric.name),
            false => format!("`{}`", metric.name),
        };
        let scope = match (metric.scope, metric.optional) {
            (Scope::Total, false) => "a run",
            (Scope::Total, true) => "a run, or absent",
            (Scope::Thread, false) => "a thread",
            (Scope::Thread, true) => "a thread, or absent",
        };
        let better = match metric.better {
            record::BetterDirection::Lower => "lower",
            record::BetterDirection::Higher => "higher",
        };
        let help = match metric.only_with {
            Some((param, words)) => {
                let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
                format!("{}; only with `{param}` {}", metric.help, words.join(", "))
            }
            None => metric.help.to_owned(),
        };
        row(text, &[&name, metric.unit, better, scope, &help]);
    }
    let _ = write!(
        text,
        "\nIn a study:\n\n```toml\n{}```\n\nwhich runs, in a guest with 2 vCPUs, for about {} \
         ({} emulated):\n\n```text\n{}\n```\n",
        entry.example_toml(),
        seconds(entry.duration_s(&params, &facts)),
        seconds(entry.duration_s(&params, &GuestFacts { emulated: true, ..facts })),
        shell_line(&entry.command(&params, &facts)),
    );
    let both = entry.beside.server.is_some();
    preparation(text, "Before that, in the server's guest:", &entry.server_setup(&params, &facts));
    let title = if both { "And in the client's guest:" } else { "Before that, in the guest:" };
    preparation(text, title, &entry.setup(&params, &facts));
    let scratch_mib = entry.scratch_mib(&params, &facts);
    if scratch_mib > 0 {
        let _ = write!(
            text,
            "\nIt wants an empty disk of {scratch_mib} MiB, which every boot finds at `{SCRATCH}`; \
             how that is attached is the study's `[disk]`.\n"
        );
    }
}

/// Who takes part, and what must be there.
fn needs(entry: &CatalogueEntry) -> String {
    let client = code_list(entry.needs.iter().copied());
    let image = if entry.beside.full_image {
        format!(" Of the builtin images only `builtin:{FULL_IMAGE}` has them.")
    } else {
        String::new()
    };
    let Some(server) = &entry.beside.server else {
        return format!("Needs in the guest: {client}.{image}");
    };
    let server_needs = code_list(server.needs.iter().copied());
    format!(
        "Roles: the *client* runs the command and needs {client}; the *server* needs \
         {server_needs}.{image} The VM under test is the {}, unless a study says `under_test = \
         \"server\"`, `\"client\"` or `\"both\"` (one guest, over its loopback).",
        match server.under_test {
            UnderTest::Both => "one guest that plays both",
            other => other.name(),
        },
    )
}

/// What is done before the first invocation, in one guest after the other.
fn preparation(text: &mut String, title: &str, steps: &[GuestStep]) {
    if steps.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}\n\n```text");
    for step in steps {
        let _ = match step {
            GuestStep::Write { path, text: file } => {
                write!(text, "cat >{} <<'{END}'\n{}{END}\n", shell_word(path), lines(file))
            }
            GuestStep::Run(argv) => writeln!(text, "{}", shell_line(argv)),
            GuestStep::Start(daemon) => {
                writeln!(text, "{} &  # must {}", shell_line(&daemon.argv), daemon.ready)
            }
        };
    }
    text.push_str("```\n");
}

/// Ends a file's text in a shell's script; no file of the catalogue has it as a line.
const END: &str = "EOF";

/// `text` as whole lines.
fn lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}

/// `argv` as a line that a shell splits into just these words, so that what the
/// help shows can be run as it stands.
///
/// Source: POSIX.1-2017, Shell Command Language, 2.2 Quoting.
#[must_use]
pub fn shell_line(argv: &[String]) -> String {
    argv.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

/// Quoted only if a shell would take the plain word for something else.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn row(text: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(text, "| {} ", cell.replace('|', "\\|"));
    }
    text.push_str("|\n");
}

fn code_list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn seconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.1} s") } else { format!("{value:.0} s") }
}
