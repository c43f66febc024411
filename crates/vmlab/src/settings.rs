//! `vmlab settings`: what of this host can be set, and commands under other
//! settings.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use host::owner::Owner;
use host::settings::{
    self, AppliedSettings, Mode, RestoreOutcome, RestoredSetting, SETTINGS, Setting, SettingChange,
    SettingChanges, SettingRefusal, SettingsTree, setting,
};
use rustix::process::{Pid, Signal, kill_process};
use schemars::JsonSchema;
use serde::Serialize;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use textwrap::{Options, WordSplitter};

use crate::exit::ERROR;
use crate::interrupt::ending_signals;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  vmlab settings list                     all settings, their values, what can be set
  vmlab settings explain halt_poll_ns     one of them: what it is, where, what it needs
  vmlab settings set thp=never ksm=0 -- ./benchmark
                                          run a command under other settings
  vmlab settings set hugepages_2m=node0:512 --dry-run
                                          what would be changed, and whether it can be";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SettingsArgs {
    #[command(subcommand)]
    action: SettingsCommand,
}

#[derive(Debug, Subcommand)]
enum SettingsCommand {
    /// Show all settings: values now, and whether they can be set here.
    List(ListArgs),
    /// Explain one setting.
    Explain(ExplainArgs),
    /// Run a command under other settings, which are put back afterwards.
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// The machine whose sys/ and proc/ lie in this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) sysfs_root: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct ExplainArgs {
    /// The setting's id, as `vmlab settings list` shows it.
    id: String,
    /// The machine whose sys/ and proc/ lie in this folder.
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
}

const SET_EXAMPLES: &str = "\
Examples:
  vmlab settings set thp=always -- ./benchmark
  vmlab settings set ksm=1 ksm_pages_to_scan=1000 --dry-run
  vmlab settings set nested=0 --reload -- ./benchmark

All settings are made, or none. They are put back when the command has ended, on
Ctrl-C, and by `vmlab clean` after a kill -9; a setting that somebody else has
changed meanwhile is left alone and said. The exit code is the command's own,
128 and the signal's number where one ended it, 2 where nothing was run.";

#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
struct SetArgs {
    /// Settings with their values.
    #[arg(required = true, value_name = "ID=VALUE")]
    changes: Vec<String>,
    /// Allow that modules are taken out and loaded again for parameters that
    /// can't be changed otherwise. No VM may run then.
    #[arg(long)]
    reload: bool,
    /// Only show what would be changed.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The machine whose sys/ and proc/ lie in this folder.
    #[arg(long, value_name = "DIR")]
    sysfs_root: Option<PathBuf>,
    /// The command to run.
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "dry_run")]
    command: Vec<String>,
}

pub(crate) fn run(args: &SettingsArgs) -> anyhow::Result<ExitCode> {
    match &args.action {
        SettingsCommand::List(args) => list(args),
        SettingsCommand::Explain(args) => explain(args),
        SettingsCommand::Set(args) => set(args),
    }
}

fn tree(sysfs_root: Option<&PathBuf>) -> anyhow::Result<SettingsTree> {
    let Some(root) = sysfs_root else { return Ok(SettingsTree::live()) };
    if !root.is_dir() {
        bail!("{} is not a folder: give one with sys/ and proc/ in it", root.display());
    }
    Ok(SettingsTree::at(root))
}

/// A setting on this machine.
struct SettingRow {
    setting: &'static Setting,
    now: Option<String>,
    offered: Vec<String>,
    /// Why it can't be set.
    why_not: Option<SettingRefusal>,
}

fn rows(tree: &SettingsTree) -> Vec<SettingRow> {
    let row = |setting: &'static Setting| {
        let present = setting.read(tree).ok();
        // A reload is for whoever asks for it, but not out of reach.
        let why_not = setting.check_settable(tree, true).err();
        let (now, offered) = present.map(|all| (all.value, all.offered)).unzip();
        SettingRow { setting, now, offered: offered.unwrap_or_default(), why_not }
    };
    SETTINGS.iter().map(row).collect()
}

/// Prints the table of all settings.
pub(crate) fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let rows = rows(&tree(args.sysfs_root.as_ref())?);
    if args.json {
        let rows: Vec<_> = rows.iter().map(facts).collect();
        terminal::print(&(serde_json::to_string_pretty(&rows)? + "\n"))?;
    } else {
        terminal::print(&table(&rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A row of `list --json`.
#[derive(Serialize, JsonSchema)]
pub(crate) struct SettingFacts<'a> {
    id: &'a str,
    /// What it does, in words.
    what: &'a str,
    /// Unit of its value; may be empty.
    unit: &'a str,
    /// What it takes, in words.
    values: String,
    /// What this kernel offers.
    offered: &'a [String],
    /// Its value; none where the machine has no such setting.
    now: Option<&'a str>,
    settable: bool,
    /// Why it is not settable here.
    why_not: Option<String>,
    /// Rights and parts of the kernel that it needs, in words.
    needs: String,
    /// Files in which it stands.
    places: Vec<String>,
    /// What may go wrong; may be empty.
    risk: &'a str,
    /// The kernel's document of it.
    source: &'a str,
}

fn facts(row: &SettingRow) -> SettingFacts<'_> {
    let SettingRow { setting, now, offered, why_not } = row;
    SettingFacts {
        id: setting.id,
        what: setting.what,
        unit: setting.unit,
        values: setting.values.to_string(),
        offered,
        now: now.as_deref(),
        settable: why_not.is_none(),
        why_not: why_not.as_ref().map(ToString::to_string),
        needs: setting.needs(),
        places: setting.places(),
        risk: setting.risk,
        source: setting.source,
    }
}

fn table(rows: &[SettingRow]) -> String {
    let longest = |text: fn(&SettingRow) -> usize| rows.iter().map(text).max().unwrap_or(0);
    let id_width = longest(|row| row.setting.id.len());
    let now_width = longest(|row| now(row).len()).min(32);
    let mut out = format!("{:id_width$}  {:now_width$}  can be set\n", "setting", "now");
    for row in rows {
        let settable =
            row.why_not.as_ref().map_or("yes".to_owned(), |why| format!("no: {}", why.short()));
        let (id, now) = (row.setting.id, now(row));
        writeln!(out, "{id:id_width$}  {now:now_width$}  {settable}")
            .expect("writing to a String does not fail");
    }
    let settable = rows.iter().filter(|row| row.why_not.is_none()).count();
    let count = rows.len();
    out + &format!(
        "\n{settable} of {count} can be set here. `vmlab settings explain ID` says what one is, \
         and why not.\n"
    )
}

fn now(row: &SettingRow) -> String {
    match &row.now {
        Some(value) if row.setting.unit.is_empty() => value.clone(),
        Some(value) => format!("{value} {}", row.setting.unit),
        None => "-".to_owned(),
    }
}

/// Breaks `text` between words.
fn wrap(text: &str, width: usize) -> Vec<Cow<'_, str>> {
    let options = Options::new(width).word_splitter(WordSplitter::NoHyphenation).break_words(false);
    textwrap::wrap(text, options)
}

fn explain(args: &ExplainArgs) -> anyhow::Result<ExitCode> {
    let tree = tree(args.sysfs_root.as_ref())?;
    let Some(setting) = setting(&args.id) else {
        // It names what is near.
        let error = SettingChange::new(&args.id, "").err().map(|error| error.to_string());
        bail!(error.unwrap_or_default());
    };
    let mut out = format!("{}: {}\n\n", setting.id, setting.what);
    let mut line = |name: &str, text: &str| {
        for (index, part) in wrap(text, terminal::width().saturating_sub(12)).iter().enumerate() {
            let name = if index == 0 { name } else { "" };
            writeln!(out, "{name:10}  {part}").expect("writing to a String does not fail");
        }
    };
    let unit = if setting.unit.is_empty() { String::new() } else { format!(", {}", setting.unit) };
    line("values", &format!("{}{unit}", setting.values));
    match setting.read(&tree) {
        Ok(present) => {
            line("now", &present.value);
            if !present.offered.is_empty() {
                line("offered", &present.offered.join(", "));
            }
        }
        Err(refusal) => line("now", &format!("not known: {refusal}")),
    }
    match (setting.check_settable(&tree, false), setting.check_settable(&tree, true)) {
        (Ok(()), _) => line("settable", "yes"),
        (Err(_), Ok(())) => line("settable", "yes, by loading its module again (--reload)"),
        (_, Err(refusal)) => line("settable", &format!("no: {refusal}")),
    }
    line("needs", &setting.needs());
    for place in setting.places() {
        line("where", &place);
    }
    if !setting.risk.is_empty() {
        line("risk", setting.risk);
    }
    line("source", setting.source);
    terminal::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let tree = tree(args.sysfs_root.as_ref())?;
    let change = |text: &String| {
        let (id, value) = text
            .split_once('=')
            .with_context(|| format!("{text:?} is no setting: write ID=VALUE, e.g. thp=never"))?;
        Ok(SettingChange::new(id, value)?)
    };
    let changes = args.changes.iter().map(change).collect::<anyhow::Result<Vec<_>>>()?;
    let wish = SettingChanges { changes, reload: args.reload };
    if args.dry_run {
        let mut out = String::new();
        for step in settings::plan(&tree, &wish)? {
            let settings::PlannedChange { id, target, old, new } = step;
            let change =
                if old == new { format!("stays {old}") } else { format!("{old} -> {new}") };
            writeln!(out, "{id}: {change} ({target})")?;
        }
        terminal::print(&out)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before anything is changed: what ends us must not leave it changed.
    let mut signals = Signals::new(ending_signals()?.into_iter().chain([SIGCHLD]))?;
    let owner = Owner::current(&format!("settings-{}", std::process::id()))?;
    let settings = AppliedSettings::apply(&tree, &wish, &owner)?;
    for note in settings.notes() {
        terminal::note(&format!("vmlab: {note}"));
    }
    let ended = run_command(&args.command, &mut signals);
    let restored = settings.restore().context("Settings are not restored; try `vmlab clean`")?;
    let bad = |outcome: &RestoreOutcome| matches!(outcome, RestoreOutcome::Failed(_));
    let odd = |one: &RestoredSetting| !matches!(one.outcome, RestoreOutcome::Restored);
    let failed = restored.iter().any(|one| bad(&one.outcome));
    let odd: Vec<RestoredSetting> = restored.into_iter().filter(odd).collect();
    // What was so before is no news.
    let news = odd.into_iter().filter(|one| !matches!(one.outcome, RestoreOutcome::AlreadyBack));
    for line in outcomes(&news.collect::<Vec<_>>(), Mode::Restore) {
        terminal::note(&format!("vmlab: {line}"));
    }
    let ended = ended.with_context(|| format!("Cannot run {:?}", args.command))?;
    if failed {
        return Ok(ExitCode::from(ERROR));
    }
    let code = ended.code().or_else(|| Some(128 + ended.signal()?)).unwrap_or(i32::from(ERROR));
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(ERROR)))
}

/// Runs the command to its end, whatever signal comes: it gets them, too.
fn run_command(command: &[String], signals: &mut Signals) -> io::Result<ExitStatus> {
    let [program, args @ ..] = command else {
        return Err(io::Error::other("there is no command"));
    };
    // In our process group, so that it can read from the terminal. Without the
    // owner's mark: it is the user's, and so is what it leaves running.
    let mut child = Command::new(program).args(args).spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        for signal in signals.wait() {
            pass_on(&child, signal);
        }
    }
}

fn pass_on(child: &Child, signal: i32) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let signal = match signal {
        SIGINT => Signal::INT,
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        _ => return,
    };
    if let Some(pid) = pid {
        // It may have ended just now.
        let _ = kill_process(pid, signal);
    }
}

/// The outcomes of host settings, in words: a line for each setting, and more
/// where its parts fared differently.
pub(crate) fn outcomes(restored: &[RestoredSetting], mode: Mode) -> Vec<String> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    for one in restored {
        let parts = restored.iter().filter(|other| other.id == one.id).count();
        let line = outcome(one, mode, parts > 1);
        match lines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => lines.push((line, 1)),
        }
    }
    let counted = |(line, count): (String, usize)| match count {
        1 => line,
        count => format!("{line} ({count} places)"),
    };
    lines.into_iter().map(counted).collect()
}

fn outcome(one: &RestoredSetting, mode: Mode, in_parts: bool) -> String {
    let RestoredSetting { id, target, old, outcome } = one;
    match outcome {
        RestoreOutcome::Restored if mode == Mode::Look && in_parts => {
            format!("would restore {id}")
        }
        RestoreOutcome::Restored if mode == Mode::Look => format!("would set {id} back to {old}"),
        RestoreOutcome::Restored if in_parts => format!("{id} is as before again"),
        RestoreOutcome::Restored => format!("{id} is {old} again"),
        RestoreOutcome::AlreadyBack if in_parts => format!("{id} was as before already"),
        RestoreOutcome::AlreadyBack => format!("{id} was {old} already"),
        RestoreOutcome::ChangedByOthers { present } => {
            let hint = if mode == Mode::Look { "; --force restores it" } else { "" };
            let place = if in_parts { format!(" ({target})") } else { String::new() };
            format!(
                "{id}{place} is {present}, which vmlab did not set: left alone (it was {old}){hint}"
            )
        }
        RestoreOutcome::Rebooted => {
            format!("{id}: the machine was rebooted since, which undid the change")
        }
        RestoreOutcome::Failed(error) => {
            format!("{id} ({target}) could not be set back to {old}: {error}")
        }
    }
}
