//! Exit codes. What each means stands in this file alone: the commands' help,
//! `docs/commands.md` and the README's sentence come from here.

use clap::{Command, builder::StyledStr};

/// All went well, but something was found: trials that failed, an A/A check
/// that did, something wrong with a configuration.
pub(crate) const FINDINGS: u8 = 1;
/// vmlab could not do what was asked, or was interrupted.
pub(crate) const ERROR: u8 = 2;
/// All went well, but the answer is not final and `--require-decision` asks for
/// one that is.
pub(crate) const NOT_FINAL: u8 = 3;

/// What a command's exit codes mean.
struct Codes {
    commands: &'static [&'static str],
    /// 0.
    fine: &'static str,
    /// [`FINDINGS`], for commands that end with it.
    findings: Option<&'static str>,
    /// [`ERROR`].
    error: &'static str,
    /// [`NOT_FINAL`], for commands that end with it.
    not_final: Option<&'static str>,
}

/// What holds for every command that says nothing closer.
const GENERAL: Codes =
    Codes { commands: &[], fine: "fine", findings: None, error: "error", not_final: None };

const NOT_DECIDED: &str = "with --require-decision if a comparison is not decided or not valid";

const CODES: &[Codes] = &[
    Codes {
        commands: &["run"],
        fine: "the study ended, decided or not",
        findings: Some("trials failed, the A/A check did, or results are damaged"),
        error: "error or interrupted",
        not_final: Some(NOT_DECIDED),
    },
    Codes {
        commands: &["report"],
        fine: "fine, decided or not",
        findings: Some("trials failed, the A/A check did, or results are damaged"),
        not_final: Some(NOT_DECIDED),
        ..GENERAL
    },
    Codes {
        commands: &["capture"],
        fine: "all was captured",
        findings: Some("QEMU writes no core"),
        error: "error or interrupted",
        ..GENERAL
    },
    Codes { commands: &["state"], findings: Some("with `diff` if anything differs"), ..GENERAL },
    Codes { commands: &["host"], findings: Some("with --diff if anything differs"), ..GENERAL },
    Codes { commands: &["audit"], fine: "nothing is wrong", findings: Some("warnings"), ..GENERAL },
    Codes {
        commands: &["plan"],
        fine: "all VMs have a place",
        findings: Some("some have none, or with --cluster could not start"),
        ..GENERAL
    },
    Codes {
        commands: &["predict"],
        fine: "guest siblings lie on host siblings and nothing is shared",
        findings: Some("something is wrong (a bad line with --jsonl, a prediction with --verify)"),
        ..GENERAL
    },
    Codes { commands: &["lint"], findings: Some("findings (see --fail-on)"), ..GENERAL },
    Codes {
        commands: &["convert"],
        fine: "nothing was left out that changes performance",
        findings: Some("something was"),
        ..GENERAL
    },
    Codes {
        commands: &["compare"],
        findings: Some(
            "results are damaged, a run in a log failed, or with --gate if something got worse by more than the margin",
        ),
        ..GENERAL
    },
    Codes {
        commands: &["calibrate"],
        fine: "fine",
        findings: Some(
            "KVM and the guest count differently, or with --gate if something got worse",
        ),
        error: "error or interrupted",
        ..GENERAL
    },
    Codes {
        commands: &["trend"],
        findings: Some(
            "results are damaged, or with --gate if something has become worse and has stayed so",
        ),
        ..GENERAL
    },
    Codes { commands: &["watch"], fine: "fine, also when a signal ends it", ..GENERAL },
    Codes {
        commands: &["rollout"],
        fine: "fine, decided or not",
        findings: Some("with --gate if the change is to be stopped"),
        not_final: Some("with --require-decision if it is to wait"),
        ..GENERAL
    },
    Codes { commands: &["export", "facts"], findings: Some("results are damaged"), ..GENERAL },
    Codes {
        commands: &["import"],
        fine: "all was read",
        findings: Some("something was not, or a run failed (it is listed)"),
        ..GENERAL
    },
    Codes {
        commands: &["sim"],
        findings: Some("with --validate if a row is wrong"),
        error: "error or interrupted",
        ..GENERAL
    },
    Codes {
        commands: &["switch"],
        findings: Some("with `traffic` if frames arrive damaged or out of order"),
        ..GENERAL
    },
    Codes {
        commands: &["decide"],
        fine: "the session ended",
        error: "error of input or output",
        ..GENERAL
    },
    Codes {
        commands: &["cluster"],
        findings: Some("with `status` if something is not well"),
        error: "error or interrupted",
        ..GENERAL
    },
    Codes {
        commands: &["replica", "settings"],
        fine: "fine, or that of the command that they run",
        ..GENERAL
    },
];

impl Codes {
    fn of(command: &str) -> &'static Self {
        let known = CODES.iter().find(|codes| codes.commands.contains(&command));
        known.unwrap_or(&GENERAL)
    }

    /// `Exit codes: 0 fine, 2 error.`
    fn sentence(&self) -> String {
        let codes = [
            (0, Some(self.fine)),
            (FINDINGS, self.findings),
            (ERROR, Some(self.error)),
            (NOT_FINAL, self.not_final),
        ];
        let said: Vec<String> = codes
            .into_iter()
            .filter_map(|(code, meaning)| Some(format!("{code} {}", meaning?)))
            .collect();
        format!("Exit codes: {}.", said.join(", "))
    }
}

/// What the codes mean over all commands, one sentence.
pub(crate) fn summary() -> String {
    Codes {
        findings: Some("findings (trials that failed, a gate, something wrong)"),
        error: "error or interrupted",
        not_final: Some("not final yet, where --require-decision asks"),
        ..GENERAL
    }
    .sentence()
}

/// `command`, in whose help and whose subcommands' stands what their exit codes
/// mean.
pub(crate) fn explained(command: Command) -> Command {
    let with = |command: Command, sentence: &str| {
        let examples = command.get_after_help().map(StyledStr::to_string);
        let text = examples.map_or_else(String::new, |examples| format!("{examples}\n\n"));
        command.after_help(text + sentence)
    };
    let names: Vec<String> =
        command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
    let command = names.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |known| with(known, &Codes::of(name).sentence()))
    });
    with(command, &summary())
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;

    use expect_test::expect_file;

    use super::*;

    const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

    /// All of `docs/commands.md`.
    fn page(command: &Command) -> String {
        let mut text = String::from(
            "# All commands\n\n\
             Made from `vmlab --help`. `vmlab COMMAND --help` shows a command's options, with\n\
             examples.\n\n\
             | command | what it does |\n|---|---|\n",
        );
        let shown: Vec<_> =
            command.get_subcommands().filter(|known| !known.is_hide_set()).collect();
        for known in &shown {
            let about = known.get_about().map(StyledStr::to_string).unwrap_or_default();
            writeln!(text, "| `vmlab {}` | {about} |", known.get_name()).unwrap();
        }
        text += "\n## Exit codes\n\n";
        text += "A script can tell that vmlab or a guest failed (1, 2) from an answer that is not\n\
                 final yet: a study that ends without a decision ends well, with 0, and says how\n\
                 many more blocks would do. Where only a final answer will do, `--require-decision`\n\
                 makes that 3.\n\n\
                 | command | 0 | 1 | 2 | 3 |\n|---|---|---|---|---|\n";
        for known in &shown {
            let codes = Codes::of(known.get_name());
            let findings = codes.findings.unwrap_or_default();
            let not_final = codes.not_final.unwrap_or_default();
            let (name, fine, error) = (known.get_name(), codes.fine, codes.error);
            let row = format!("| `{name}` | {fine} | {findings} | {error} | {not_final} |");
            writeln!(text, "{}", row.replace("  |", " |")).unwrap();
        }
        text
    }

    /// `text` as it is however its lines are broken.
    fn words(text: &str) -> String {
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_page_of_all_commands_is_up_to_date() {
        let command = crate::command();
        expect_file![format!("{ROOT}/docs/commands.md")].assert_eq(&page(&command));
    }

    #[test]
    fn the_readme_says_the_codes() {
        let readme = fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
        assert!(words(&readme).contains(&summary()), "the README lacks: {}", summary());
    }

    #[test]
    fn every_entry_is_a_command_and_shown_in_its_help() {
        let mut command = crate::command();
        for name in CODES.iter().flat_map(|codes| codes.commands) {
            let known = command.find_subcommand_mut(name).unwrap_or_else(|| panic!("no {name}"));
            let help = words(&known.render_long_help().to_string());
            let sentence = Codes::of(name).sentence();
            assert!(help.contains(&sentence), "{name}:\n{help}");
            assert_eq!(help.matches("Exit codes:").count(), 1, "{name}:\n{help}");
        }
    }
}
