//! `vmlab manual`: the manual pages, from what `--help` is made of.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab manual | man -l -              the page of vmlab itself
  vmlab manual settings set | man -l - that of a command
  vmlab manual --out ~/.local/share/man/man1
                                       the pages of all commands";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ManualArgs {
    /// The command, as it is typed; none for vmlab itself.
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    names: Vec<String>,
    /// Write the pages of all commands into this folder.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The date that the pages carry.
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "", hide_default_value = true)]
    date: String,
}

pub(crate) fn run(args: &ManualArgs) -> anyhow::Result<ExitCode> {
    let root = documented();
    match &args.out {
        Some(folder) => write_all(&root, folder, &args.date)?,
        None => {
            let page = page(find(&root, &args.names)?, &args.date)?;
            terminal::print_bytes(page.as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// vmlab's commands with their full names, without clap's own `help`.
fn documented() -> Command {
    let mut root = crate::command().disable_help_subcommand(true);
    root.build();
    root
}

fn find<'a>(root: &'a Command, names: &[String]) -> anyhow::Result<&'a Command> {
    names.iter().try_fold(root, |command, name| {
        command.find_subcommand(name).filter(|found| !found.is_hide_set()).with_context(|| {
            let known: Vec<&str> = shown(command).map(Command::get_name).collect();
            let above = command.get_bin_name().unwrap_or_else(|| command.get_name());
            match known.as_slice() {
                [] => format!("`{above}` has no commands of its own, so no `{name}`"),
                known => format!("`{above}` has no command `{name}`: it has {}", known.join(", ")),
            }
        })
    })
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn write_all(command: &Command, folder: &Path, date: &str) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("Cannot make {}", folder.display()))?;
    let path = folder.join(format!("{}.1", page_name(command)));
    fs::write(&path, page(command, date)?)
        .with_context(|| format!("Cannot write {}", path.display()))?;
    shown(command).try_for_each(|command| write_all(command, folder, date))
}

/// As `man` is asked for it: `vmlab-settings-set`.
fn page_name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The page in roff's language. Source: man(7).
fn page(command: &Command, date: &str) -> anyhow::Result<String> {
    let man = Man::new(command.clone())
        .title(page_name(command).to_uppercase())
        .date(date)
        .source(concat!("vmlab ", env!("CARGO_PKG_VERSION")))
        .manual("vmlab");
    let mut page = Vec::new();
    (|| {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        man.render_synopsis_section(&mut page)?;
        man.render_description_section(&mut page)?;
        man.render_options_section(&mut page)?;
        if shown(command).next().is_some() {
            man.render_subcommands_section(&mut page)?;
        }
        let more = command.get_after_long_help().or_else(|| command.get_after_help());
        more_sections(&more.map(ToString::to_string).unwrap_or_default()).to_writer(&mut page)
    })()
    .context("Memory takes all bytes")?;
    Ok(tidy(&String::from_utf8(page).context("Pages are UTF-8")?))
}

/// Without what formatters warn of in clap_mangen's pages: blanks at the ends of
/// lines, and breaks around empty lines, which are paragraphs' vertical space.
fn tidy(page: &str) -> String {
    let lines: Vec<&str> = page.lines().map(str::trim_end).collect();
    let mut text = lines.join("\n").replace(".br\n\n.br\n", ".sp\n");
    text.push('\n');
    text
}

/// What stands below the options: lists under a heading of their own stay as
/// they are written (clap_mangen runs their lines together), exit codes have the
/// section in which man(7) wants them, other paragraphs are notes.
fn more_sections(text: &str) -> Roff {
    let mut roff = Roff::new();
    let mut last = None;
    let mut begin = |roff: &mut Roff, heading: &str| {
        if last.as_deref() == Some(heading) {
            roff.control("PP", []);
        } else {
            roff.control("SH", [heading]);
            last = Some(heading.to_owned());
        }
    };
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        match block.split_once(":\n") {
            Some((heading, list)) if list.lines().all(|line| line.starts_with("  ")) => {
                begin(&mut roff, &heading.to_uppercase());
                roff.control("EX", []);
                for line in list.lines() {
                    roff.text([roman(&line[2..])]);
                }
                roff.control("EE", []);
            }
            _ => {
                let exit = block.starts_with("Exit codes:");
                begin(&mut roff, if exit { "EXIT STATUS" } else { "NOTES" });
                for line in block.lines() {
                    roff.text([roman(line)]);
                }
            }
        }
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_stay_as_they_are_written() {
        let text = "Examples:\n  vmlab a   one\n  .b 'two'\n\nA note\nof two lines.\n\nAnother.\n\n\
                    Exit codes: 0 fine.";
        let expected = ".SH EXAMPLES\n.EX\nvmlab a   one\n\\&.b 'two'\n.EE\n.SH NOTES\n\
                        A note\nof two lines.\n.PP\nAnother.\n.SH \"EXIT STATUS\"\nExit codes: 0 fine.\n";
        assert_eq!(more_sections(text).to_roff(), expected);
    }

    /// `check`, the command below it, and all below that.
    fn each(command: &Command, check: &mut impl FnMut(&Command)) {
        check(command);
        shown(command).for_each(|command| each(command, check));
    }

    #[test]
    fn every_command_and_option_has_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let root = documented();
        write_all(&root, folder.path(), "2026-01-02").unwrap();
        let mut pages = 0;
        each(&root, &mut |command| {
            pages += 1;
            let path = folder.path().join(format!("{}.1", page_name(command)));
            let page = fs::read_to_string(&path).unwrap();
            for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
                let said = match option.get_long() {
                    Some(long) => format!("\\-\\-{}", long.replace('-', "\\-")),
                    None => option.get_value_names().map(|names| names.join(" ")).unwrap(),
                };
                assert!(page.contains(&said), "{}: {said}", path.display());
            }
            for below in shown(command) {
                let said = format!("{}(1)", page_name(below)).replace('-', "\\-");
                assert!(page.contains(&said), "{}: {said}", path.display());
            }
        });
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            pages,
            "no page without a command"
        );
        assert!(pages > shown(&root).count(), "commands below commands have pages, too");
    }
}
