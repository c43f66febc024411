//! Texts that are generated from the table: help, lists, `docs/probe.md`.

use std::fmt::Write as _;

use serde_json::json;

use crate::PROBES;
use crate::spec::{Opt, OptionDefault, OptionType, Probe};

/// What `vmlab-probe --help` prints.
pub(crate) fn usage() -> String {
    let mut text = String::from(
        "Workloads for guests. Runs one and prints one JSON document.\n\n\
         Usage: vmlab-probe NAME [--option value ...]\n       \
         vmlab-probe NAME --help   its options and metrics\n       \
         vmlab-probe list [--json] all probes\n\n\
         Exit code: 0 fine, 1 the probe found its own result wrong, 2 error.\n\nProbes:\n",
    );
    text.push_str(&list());
    text
}

/// Every probe with its summary, a line each.
pub(crate) fn list() -> String {
    let mut text = String::new();
    for probe in PROBES {
        let _ = writeln!(text, "  {:<12} {}", probe.name, probe.summary);
    }
    text
}

/// The whole table as JSON, for programs that start probes.
pub(crate) fn list_json() -> String {
    let option = |opt: &Opt| {
        let (kind, allowed) = match opt.kind {
            OptionType::Int(low, high) => ("int", json!([low, high])),
            OptionType::Float(low, high) => ("float", json!([low, high])),
            OptionType::Choice(words) => ("choice", json!(words)),
            OptionType::Vcpus => ("vcpus", json!(null)),
            OptionType::Text => ("text", json!(null)),
        };
        let default = match opt.default {
            OptionDefault::Int(number) => json!(number),
            OptionDefault::Float(number) => json!(number),
            OptionDefault::Text(text) => json!(text),
            OptionDefault::PerVcpu => json!(null),
        };
        json!({
            "name": opt.name, "kind": kind, "allowed": allowed, "default": default,
            "unit": opt.unit, "help": opt.help,
        })
    };
    let metric = |metric: &crate::spec::ProbeMetric| {
        json!({
            "name": metric.name, "unit": metric.unit, "better": metric.better,
            "kind": metric.kind, "per": metric.per, "help": metric.help,
        })
    };
    let probes: Vec<_> = PROBES
        .iter()
        .map(|probe| {
            json!({
                "name": probe.name,
                "summary": probe.summary,
                "options": probe.options.iter().map(option).collect::<Vec<_>>(),
                "metrics": probe.metrics.iter().map(metric).collect::<Vec<_>>(),
                "histograms": probe.histograms.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            })
        })
        .collect();
    let document = json!({ "version": env!("CARGO_PKG_VERSION"), "probes": probes });
    format!("{document:#}\n")
}

/// What `vmlab-probe NAME --help` prints.
pub(crate) fn help(probe: &Probe) -> String {
    let mut text = String::new();
    section(&mut text, probe);
    text
}

/// All of `docs/probe.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(include_str!("docs.md"));
    text.push_str("\n## The probes\n\n| probe | what it is |\n|---|---|\n");
    for probe in PROBES {
        let _ = writeln!(text, "| [{0}](#{0}) | {1} |", probe.name, cell(probe.summary));
    }
    for probe in PROBES {
        text.push('\n');
        section(&mut text, probe);
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn section(text: &mut String, probe: &Probe) {
    let _ = write!(
        text,
        "## {}\n\n{}.\n\n{}\n\nChecks itself: {}\n\n\
         | option | default | allowed | unit | meaning |\n|---|---|---|---|---|\n",
        probe.name, probe.summary, probe.about, probe.verifies,
    );
    for opt in probe.options {
        let _ = writeln!(
            text,
            "| `--{}` | {} | {} | {} | {} |",
            opt.name,
            opt.default,
            opt.kind,
            opt.unit,
            cell(opt.help)
        );
    }
    text.push_str(
        "\n| metric | unit | better | one value is of | meaning |\n|---|---|---|---|---|\n",
    );
    for metric in probe.metrics {
        let per = if metric.per == "thread" { "a thread" } else { "the run" };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {per} | {} |",
            metric.name,
            metric.unit,
            metric.better,
            cell(metric.help)
        );
    }
    for (name, help) in probe.histograms {
        let _ = write!(text, "\nHistogram `{name}`: {help}.\n");
    }
    let words = [probe.name, probe.example];
    let _ = write!(text, "\n```sh\nvmlab-probe {}\n```\n", words.join(" ").trim_end());
}
