//! Whoever watches a study: the terminal, and Prometheus.

use std::net::SocketAddr;

use record::journal::JournalEvent;
use runner::execute::ExecutionEvent;
use runner::plan::StudyPlan;
use runner::state::JournalState;

use crate::metrics::Exporter;
use crate::progress::StudyProgress;
use crate::terminal;

/// How a study is watched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchOptions {
    /// Also where nobody watches a terminal.
    pub(crate) verbose: bool,
    /// Where Prometheus asks.
    pub(crate) metrics: Option<SocketAddr>,
}

/// The watchers of one study.
pub(crate) struct Watcher {
    progress: StudyProgress,
    exporter: Option<Exporter>,
}

impl Watcher {
    /// `events` are those of earlier sessions.
    pub(crate) fn start(
        watch: &WatchOptions,
        plan: &StudyPlan,
        events: &[JournalEvent],
    ) -> anyhow::Result<Self> {
        let done = JournalState::from_events(events).complete.len() as u64;
        let trials_done = done * u64::from(plan.trials_per_block());
        let exporter = watch.metrics.map(|address| Exporter::start(address, plan)).transpose()?;
        if let Some(exporter) = &exporter {
            terminal::note(&format!("vmlab: metrics at http://{}/metrics", exporter.address()));
        }
        let progress = StudyProgress::start(plan, trials_done, watch.verbose);
        Ok(Self { progress, exporter })
    }

    pub(crate) fn observe(&mut self, event: &ExecutionEvent<'_>) {
        self.progress.observe(event);
        if let Some(exporter) = &self.exporter {
            exporter.observe(event);
        }
    }

    /// Says something that is not progress.
    pub(crate) fn note(&self, text: &str) {
        self.progress.say(text);
    }
}
