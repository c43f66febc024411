//! Texts that are generated from the catalogue: `docs/workloads.md` and the
//! help of one benchmark.

use std::fmt::Write as _;

use crate::entry::{Entry, GuestFacts, Scope};
use crate::{CATALOGUE, Params};

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
        let needs = code_list(entry.needs.iter().copied());
        row(&mut text, &[&format!("[{0}](#{0})", entry.name), entry.summary, &needs]);
    }
    for entry in CATALOGUE {
        text.push('\n');
        section(&mut text, entry);
    }
    text
}

impl Entry {
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
        let mut text = format!("[[workload]]\nrun = \"{}\"\n", self.name);
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

fn section(text: &mut String, entry: &Entry) {
    let params = entry.example_params();
    let facts = GuestFacts { vcpus: 2, emulated: false };
    let _ = write!(
        text,
        "## {}\n\n{}.\n\n{}\n\nMeasures: {}\n\nNeeds in the guest: {}.\n\nRepeats: {}\n",
        entry.name,
        entry.summary,
        entry.about,
        entry.measures,
        code_list(entry.needs.iter().copied()),
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
        let name = if metric.primary {
            format!("**`{}`** (primary)", metric.name)
        } else {
            format!("`{}`", metric.name)
        };
        let scope = match (metric.scope, metric.optional) {
            (Scope::Total, false) => "a run",
            (Scope::Total, true) => "a run, or absent",
            (Scope::Thread, false) => "a thread",
            (Scope::Thread, true) => "a thread, or absent",
        };
        let better = match metric.better {
            record::Better::Lower => "lower",
            record::Better::Higher => "higher",
        };
        row(text, &[&name, metric.unit, better, scope, metric.help]);
    }
    let _ = write!(
        text,
        "\nIn a study:\n\n```toml\n{}```\n\nwhich runs, in a guest with 2 vCPUs, for about {} \
         ({} emulated):\n\n```text\n{}\n```\n",
        entry.example_toml(),
        seconds(entry.duration_s(&params, &facts)),
        seconds(entry.duration_s(&params, &GuestFacts { emulated: true, ..facts })),
        entry.command(&params, &facts).join(" "),
    );
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
