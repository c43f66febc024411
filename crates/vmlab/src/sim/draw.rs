//! The runs of a scenario, on all cores. No two threads share a run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use guest::Cancel;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sim::answer::{self, DrawResult, MECHANISMS};
use sim::scenario::Scenario;
use sim::{Deadlock, SimModel, SimOutcome};

use crate::terminal;

/// Draws with each mechanism switched off.
const DRAWS_WITHOUT: u32 = 3;

/// One run.
#[derive(Debug, Clone, Copy)]
pub(super) struct DrawJob {
    pub(super) cell: usize,
    draw: u32,
    kind: DrawKind,
}

#[derive(Debug, Clone, Copy)]
enum DrawKind {
    AsItIs,
    OtherStart,
    /// Without the mechanism of this place in a cell's list.
    Without(usize),
}

/// All runs, in the order in which they are begun: first one of each cell, so
/// that an early end leaves something of all.
pub(super) struct DrawPlan {
    pub(super) jobs: Vec<DrawJob>,
    /// By cell, the mechanisms that are switched off.
    pub(super) without: Vec<Vec<usize>>,
}

/// What the runs brought.
pub(super) struct DrawResults {
    pub(super) drawn: Vec<DrawResult>,
    pub(super) stuck: Option<(DrawJob, Deadlock)>,
    pub(super) interrupted: bool,
}

impl DrawPlan {
    pub(super) fn new(scenario: &Scenario, why: bool) -> Self {
        let several = scenario.cells.iter().any(|cell| cell.variant != scenario.baseline);
        let without: Vec<Vec<usize>> = scenario
            .cells
            .iter()
            .map(|cell| {
                let all = answer::mechanisms_of(&cell.model);
                if why && several { all.collect() } else { Vec::new() }
            })
            .collect();
        let cells = 0..scenario.cells.len();
        let mut jobs = Vec::new();
        for draw in 0..scenario.draws {
            let kind = DrawKind::AsItIs;
            jobs.extend(cells.clone().map(|cell| DrawJob { cell, draw, kind }));
            if draw == 0 {
                let kind = DrawKind::OtherStart;
                jobs.extend(cells.clone().map(|cell| DrawJob { cell, draw, kind }));
            }
        }
        for draw in 0..scenario.draws.min(DRAWS_WITHOUT) {
            for cell in cells.clone() {
                let each = 0..without[cell].len();
                jobs.extend(each.map(|at| DrawJob { cell, draw, kind: DrawKind::Without(at) }));
            }
        }
        Self { jobs, without }
    }

    fn model(&self, scenario: &Scenario, job: DrawJob) -> SimModel {
        let mut model = scenario.cells[job.cell].draw(scenario.seed, job.draw);
        match job.kind {
            DrawKind::AsItIs => model,
            DrawKind::OtherStart => answer::started_otherwise(model),
            DrawKind::Without(at) => {
                (MECHANISMS[self.without[job.cell][at]].1)(&mut model);
                model
            }
        }
    }

    /// Runs all, until `cancel`.
    pub(super) fn run(&self, scenario: &Scenario, cancel: &Cancel) -> DrawResults {
        let draws = scenario.draws as usize;
        let drawn = self.without.iter().map(|without| DrawResult {
            outcomes: vec![None; draws],
            other_start: None,
            without: without
                .iter()
                .map(|at| (MECHANISMS[*at].0, vec![None; draws.min(DRAWS_WITHOUT as usize)]))
                .collect(),
        });
        let drawn = Mutex::new(drawn.collect::<Vec<_>>());
        let stuck = Mutex::new(None);
        let next = AtomicUsize::new(0);
        let bar = progress(self.jobs.len() as u64);
        let started = Instant::now();
        let work = || {
            while let Some(job) = self.jobs.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                let go_on =
                    || !cancel.is_cancelled() && stuck.lock().is_ok_and(|stuck| stuck.is_none());
                if !go_on() {
                    return;
                }
                match sim::run(&self.model(scenario, job), go_on) {
                    Ok(outcome) => {
                        keep(&mut drawn.lock().expect("no thread panicked"), job, outcome);
                        bar.inc(1);
                        bar.set_message(left(&bar, started));
                    }
                    Err(Some(found)) => {
                        *stuck.lock().expect("no thread panicked") = Some((job, found));
                    }
                    Err(None) => return,
                }
            }
        };
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 1..cores.min(self.jobs.len()) {
                scope.spawn(work);
            }
            work();
        });
        bar.finish_and_clear();
        DrawResults {
            drawn: drawn.into_inner().expect("no thread panicked"),
            stuck: stuck.into_inner().expect("no thread panicked"),
            interrupted: cancel.is_cancelled(),
        }
    }
}

/// All draws of a scenario, for other commands.
///
/// # Errors
/// Guests that can't go on; Ctrl-C.
pub(crate) fn simulate(scenario: &Scenario, cancel: &Cancel) -> anyhow::Result<Vec<DrawResult>> {
    let done = DrawPlan::new(scenario, false).run(scenario, cancel);
    if let Some((_, stuck)) = done.stuck {
        anyhow::bail!("{stuck}");
    }
    if done.interrupted {
        anyhow::bail!("Interrupted before all draws were done");
    }
    Ok(done.drawn)
}

fn keep(drawn: &mut [DrawResult], job: DrawJob, outcome: SimOutcome) {
    let cell = &mut drawn[job.cell];
    match job.kind {
        DrawKind::AsItIs => cell.outcomes[job.draw as usize] = Some(outcome),
        DrawKind::OtherStart => cell.other_start = Some(outcome),
        DrawKind::Without(at) => cell.without[at].1[job.draw as usize] = Some(outcome),
    }
}

fn progress(jobs: u64) -> ProgressBar {
    let bar = ProgressBar::new(jobs);
    let watched = terminal::is_watched();
    bar.set_draw_target(if watched {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    });
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs  {wide_msg}");
    bar.set_style(style.expect("the template is constant"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

fn left(bar: &ProgressBar, started: Instant) -> String {
    let done = bar.position().max(1);
    let rest = bar.length().unwrap_or(done).saturating_sub(done);
    let seconds = started.elapsed().as_secs_f64() * rest as f64 / done as f64;
    format!("{seconds:.0} s left")
}
