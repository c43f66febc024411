//! The table of rules for people: a list, one rule, `docs/lints.md`.

use std::fmt::Write as _;

use crate::RULES;
use crate::context::{DEFAULT_KUBERNETES, DEFAULT_KUBEVIRT};
use crate::rule::{Rule, RuleExample};

/// One line a rule.
#[must_use]
pub fn list() -> String {
    let width = RULES.iter().map(|rule| rule.id.len()).max().unwrap_or(0);
    RULES.iter().fold(String::new(), |mut text, rule| {
        let _ = writeln!(text, "{:width$}  {:7}  {}", rule.id, rule.severity.name(), rule.summary);
        text
    })
}

/// All about one rule, as Markdown that reads well as plain text.
#[must_use]
pub fn explain(rule: &Rule) -> String {
    let mut text = format!(
        "## {}\n\n{}: {}.\n\n{}\n\nWhat to do: {}.\n",
        rule.id,
        capital(rule.severity.name()),
        rule.summary,
        rule.why,
        rule.mend
    );
    if !rule.affected.is_empty() {
        let versions: Vec<String> = rule.affected.iter().map(|affected| affected.text()).collect();
        let _ = write!(text, "\nVersions: {}.\n", versions.join("; "));
    }
    let sources: Vec<String> = rule
        .sources
        .iter()
        .map(|source| {
            if source.starts_with("https://") {
                format!("<{source}>")
            } else {
                (*source).to_owned()
            }
        })
        .collect();
    let _ = write!(text, "\nSource: {}.\n", sources.join("; "));
    for example in rule.fires {
        show(&mut text, "Fires", example);
        if let Some(good) = example
            .mended_example()
            .or_else(|| rule.quiet().find(|quiet| quiet.format == example.format))
        {
            show(&mut text, "Does not fire", &good);
        }
    }
    text
}

fn show(text: &mut String, what: &str, example: &RuleExample) {
    let world = match example.world.said {
        "" => String::new(),
        said => format!(", {said}"),
    };
    let _ = write!(
        text,
        "\n{what} ({}{world}):\n\n```{}\n{}\n```\n",
        example.format.name(),
        example.format.language(),
        example.text().trim()
    );
}

pub(crate) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The text of `docs/lints.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = format!(
        "# Lints\n\n\
         <!-- Generated from the table in crates/lint/src/rules; change it there and run its tests \
         with UPDATE_EXPECT=1. -->\n\n\
         What `vmlab lint` finds in libvirt domain XML, KubeVirt objects, QEMU command lines and Proxmox's files. An \
         error is refused or breaks at start; a warning costs performance or does not do what was \
         meant; a hint depends on what the VM is for, and alone does not change the exit code. \
         Rules about the host fire only with `--host` or `--running`, those about what its QEMU and libvirt can do only with `--capabilities`, `--libvirt` or `--qemu` ([capabilities](capabilities.md)). Versions are taken from `--kubevirt` \
         ({DEFAULT_KUBEVIRT} where nobody says one) and `--kubernetes` ({DEFAULT_KUBERNETES}).\n\n\
         `vmlab lint --running` looks at the VMs that run: at their command lines, with what is in \
         the place of what was asked for, as far as `/proc`, control groups and QEMU tell. Every rule \
         for command lines holds for them too; `running` below marks those whose examples show a \
         running VM.\n\n\
         A comment `vmlab: allow ID` silences a rule on its own line and the next one, \
         `vmlab: allow-file ID` in the whole file. [Rules of a site's own](site-rules.md), and \
         other levels for these by file and VM, stand in files that `--rules` names, or in \
         `.vmlab-lint.toml`.\n\n\
         `--format json` is for programs, `--format sarif` for code scanning, and `--format \
         github` makes annotations of a pull request in GitHub Actions. Each tells what could \
         not be linted, too; the exit code is then 2.\n\n\
         | id | severity | what | formats |\n|---|---|---|---|\n"
    );
    for rule in RULES {
        let formats: Vec<&str> = rule
            .formats()
            .iter()
            .map(|format| format.name().split(' ').next().unwrap_or_default())
            .collect();
        let _ = writeln!(
            text,
            "| [{0}](#{0}) | {1} | {2} | {3} |",
            rule.id,
            rule.severity.name(),
            rule.summary.replace('|', "\\|"),
            formats.join(", ")
        );
    }
    for rule in RULES {
        text.push('\n');
        text.push_str(&explain(rule));
    }
    text
}
