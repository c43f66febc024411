//! What is going on, on standard error, for whoever watches a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use record::Outcome;
use runner::agenda::{Agenda, ComparisonStatus};
use runner::execute::ExecutionEvent;
use runner::plan::StudyPlan;

use crate::{plan_text, terminal};

/// One changing line while something prepares.
pub(crate) struct Spinner(ProgressBar);

impl Spinner {
    pub(crate) fn start() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_draw_target(target());
        bar.enable_steady_tick(Duration::from_millis(120));
        Self(bar)
    }

    pub(crate) fn say(&self, text: &str) {
        self.0.set_message(text.to_owned());
    }

    /// A line that stays.
    pub(crate) fn note(&self, text: &str) {
        self.0.suspend(|| terminal::note(text));
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn target() -> ProgressDrawTarget {
    if terminal::is_watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() }
}

/// The progress of a study: a bar of trials, what runs now, the time left.
pub(crate) struct StudyProgress {
    bar: ProgressBar,
    verbose: bool,
    total_trials: Option<u64>,
    trials_done: u64,
    /// Trials and seconds since the start, for the time left.
    measured: u64,
    started: Instant,
    guess_s: f64,
    /// What is said to be left, and since when.
    left: Option<(f64, Instant)>,
    open: String,
    trial: String,
}

impl StudyProgress {
    /// `trials_done` were done by earlier sessions.
    pub(crate) fn start(plan: &StudyPlan, trials_done: u64, verbose: bool) -> Self {
        let total_trials = plan
            .total_blocks()
            .map(|blocks| u64::from(blocks) * u64::from(plan.trials_per_block()));
        let bar = match total_trials {
            Some(total) => ProgressBar::new(total),
            None => ProgressBar::new_spinner(),
        };
        bar.set_draw_target(target());
        let template = if total_trials.is_some() {
            "{bar:24} {pos}/{len} trials  {prefix}  {wide_msg}"
        } else {
            "{spinner} {pos} trials  {prefix}  {wide_msg}"
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is constant"));
        bar.enable_steady_tick(Duration::from_millis(200));
        bar.set_position(trials_done);
        let trials_per_block = f64::from(plan.trials_per_block().max(1));
        let progress = Self {
            bar,
            verbose,
            total_trials,
            trials_done,
            measured: 0,
            started: Instant::now(),
            guess_s: plan_text::block_s(plan) / trials_per_block,
            left: None,
            open: String::new(),
            trial: String::new(),
        };
        progress.show_time_left();
        progress
    }

    pub(crate) fn observe(&mut self, event: &ExecutionEvent<'_>) {
        match event {
            ExecutionEvent::BlockStarted { block, load, attempt } => {
                let again = if *attempt > 0 { " (again)" } else { "" };
                self.line(&format!("block {}{again}, {}", block.number, load.name));
                self.bar.set_message(format!("bringing the host to {}", load.name));
            }
            ExecutionEvent::TrialStarted(key) => {
                self.trial = format!("{} {} {}", key.load, key.workload, key.variant);
                self.bar.set_message(format!("{}: booting", self.trial));
            }
            ExecutionEvent::Booted(_) => self.bar.set_message(format!("{}: booted", self.trial)),
            ExecutionEvent::RunStarted(run, of) => {
                self.line(&format!("  {}: run {} of {of}", self.trial, run + 1));
                self.bar.set_message(format!("{}: run {} of {of}", self.trial, run + 1));
            }
            ExecutionEvent::TrialEnded(result) => {
                self.trials_done += 1;
                self.measured += 1;
                self.bar.set_position(self.trials_done);
                match &result.outcome {
                    Outcome::Completed => {
                        let boot = result.boot_s.map(|boot_s| format!(", boot {boot_s:.1} s"));
                        let boot = boot.unwrap_or_default();
                        self.line(&format!("  {}: {:.1} s{boot}", self.trial, result.wall_s));
                    }
                    // A failure is news, also for those who did not ask.
                    Outcome::Failed(failure) => {
                        let first = failure.to_string();
                        let first = first.lines().next().unwrap_or_default().to_owned();
                        self.say(&format!("  {}: failed: {first}", self.trial));
                    }
                }
                self.show_time_left();
            }
            ExecutionEvent::NotRestored(sentences) => {
                sentences.iter().for_each(|sentence| self.say(&format!("  {sentence}")));
            }
            ExecutionEvent::BlockRejected(reasons) => {
                let first = reasons.first().map(report::unsteady).unwrap_or_default();
                self.say(&format!("  out of line ({first}): the block is done again"));
            }
            ExecutionEvent::Progress { remaining_s, agenda, done } => {
                self.left = remaining_s.map(|seconds| (seconds, Instant::now()));
                self.open = still_open(agenda);
                if *done > 0 && !self.open.is_empty() {
                    self.line(&format!("  {}", self.open));
                }
                self.show_time_left();
            }
        }
    }

    fn show_time_left(&self) {
        let left = self.left.map(|(seconds, since)| seconds - since.elapsed().as_secs_f64());
        if let Some(left_s) = left.filter(|seconds| *seconds > 0.0) {
            let left = plan_text::duration(left_s);
            let open = if self.open.is_empty() { "" } else { "; " };
            self.bar.set_prefix(format!("about {left} left{open}{}", self.open));
            return;
        }
        let Some(total) = self.total_trials else { return };
        let per_trial_s = if self.measured == 0 {
            self.guess_s
        } else {
            self.started.elapsed().as_secs_f64() / self.measured as f64
        };
        let left_s = per_trial_s * total.saturating_sub(self.trials_done) as f64;
        self.bar.set_prefix(format!("about {} left", plan_text::duration(left_s)));
    }

    /// A line that stays, for those who asked for it.
    fn line(&self, text: &str) {
        if self.verbose {
            self.say(text);
        }
    }

    /// A line that stays.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| terminal::note(text));
    }
}

/// `2 open: b at stream (up to 8.1 %)`: the comparison that needs most, of those
/// that are not decided.
fn still_open(agenda: &Agenda) -> String {
    let needs = |open: &&ComparisonStatus| open.more_blocks().unwrap_or(u32::MAX);
    let Some(worst) = agenda.open().max_by_key(needs) else { return String::new() };
    let at_most = worst.at_most().filter(|part| *part < 1.0);
    let at_most = at_most.map(|part| format!(" (up to {:.1} %)", part * 100.0)).unwrap_or_default();
    let blocks = worst.more_blocks().map(|n| format!(", about {n} more blocks"));
    let open = agenda.open().count();
    format!(
        "{open} open: {} at {}{at_most}{}",
        worst.variant,
        worst.workload,
        blocks.unwrap_or_default()
    )
}

impl Drop for StudyProgress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
