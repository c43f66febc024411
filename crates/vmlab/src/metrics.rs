//! A running study as OpenMetrics: how far it is, what is open, what the last
//! trials took. No history and no samples: those stand in the results folder.
//!
//! Source: OpenMetrics 1.0 (RFC draft `draft-richih-opsawg-openmetrics-00`).

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use record::Outcome;
use runner::agenda::ComparisonStatus;
use runner::execute::ExecutionEvent;
use runner::plan::StudyPlan;

use crate::endpoint::Endpoint;

type Labels = Vec<(&'static str, String)>;
type RealGauge = Gauge<f64, AtomicU64>;

/// The gauges and counters of one study.
struct Instruments {
    blocks_done: Gauge,
    blocks_rejected: Counter,
    trials: Family<Labels, Counter>,
    remaining_s: RealGauge,
    boot_s: Family<Labels, RealGauge>,
    trial_s: Family<Labels, RealGauge>,
    canary_s: Family<Labels, RealGauge>,
    ratio: Family<Labels, RealGauge>,
    ratio_low: Family<Labels, RealGauge>,
    ratio_high: Family<Labels, RealGauge>,
    open: Family<Labels, Gauge>,
}

impl Instruments {
    fn new(plan: &StudyPlan, registry: &mut Registry) -> Self {
        let about = vec![
            ("study", plan.study.clone()),
            ("environment", plan.environment().to_string()),
            ("emulated_time", plan.environment().is_emulated_time().to_string()),
            ("qemu", plan.qemu.version.clone()),
            ("vmlab", plan.vmlab_version.clone()),
        ];
        registry.register("study", "The study that runs", Info::new(about));
        let planned: Gauge = Gauge::default();
        if let Some(blocks) = plan.total_blocks() {
            planned.set(i64::from(blocks));
            registry.register("blocks_planned", "Blocks at most", planned);
        }
        let new = Self {
            blocks_done: Gauge::default(),
            blocks_rejected: Counter::default(),
            trials: Family::default(),
            remaining_s: RealGauge::default(),
            boot_s: Family::default(),
            trial_s: Family::default(),
            canary_s: Family::default(),
            ratio: Family::default(),
            ratio_low: Family::default(),
            ratio_high: Family::default(),
            open: Family::default(),
        };
        let second = || Unit::Seconds;
        registry.register("blocks_done", "Blocks that count", new.blocks_done.clone());
        registry.register(
            "blocks_rejected",
            "Blocks done again since the host was not steady",
            new.blocks_rejected.clone(),
        );
        registry.register("trials", "Trials by how they ended", new.trials.clone());
        let left = "What the study probably still needs";
        registry.register_with_unit("remaining", left, second(), new.remaining_s.clone());
        let boot = "Boot of the variant's last trial";
        registry.register_with_unit("boot", boot, second(), new.boot_s.clone());
        let trial = "Duration of the variant's last trial";
        registry.register_with_unit("trial", trial, second(), new.trial_s.clone());
        let canary = "A fixed piece of computing before and after the last trial";
        registry.register_with_unit("canary", canary, second(), new.canary_s.clone());
        let ratio = "Variant by baseline, of the workload's primary metric";
        registry.register("comparison_ratio", ratio, new.ratio.clone());
        let low = "Lower end of the ratio's interval";
        registry.register("comparison_ratio_low", low, new.ratio_low.clone());
        let high = "Upper end of the ratio's interval";
        registry.register("comparison_ratio_high", high, new.ratio_high.clone());
        registry.register("comparison_open", "1 while it is not decided", new.open.clone());
        new
    }

    fn observe(&self, event: &ExecutionEvent<'_>) {
        match event {
            ExecutionEvent::TrialEnded(result) => {
                let key = &result.trial;
                let outcome = match &result.outcome {
                    Outcome::Completed => "completed".to_owned(),
                    Outcome::Failed(failure) => failure.kind.to_string(),
                };
                self.trials.get_or_create(&vec![("outcome", outcome)]).inc();
                let cell = vec![
                    ("load", key.load.clone()),
                    ("workload", key.workload.clone()),
                    ("variant", key.variant.clone()),
                ];
                if let Some(boot_s) = result.boot_s {
                    self.boot_s.get_or_create(&cell).set(boot_s);
                }
                self.trial_s.get_or_create(&cell).set(result.wall_s);
                let watch = result.watch.as_ref();
                let canaries = [
                    ("before", watch.and_then(|watch| watch.canary_before_s)),
                    ("after", watch.and_then(|watch| watch.canary_after_s)),
                ];
                for (when, seconds) in canaries {
                    if let Some(seconds) = seconds {
                        self.canary_s.get_or_create(&vec![("when", when.to_owned())]).set(seconds);
                    }
                }
            }
            ExecutionEvent::BlockRejected(_) => {
                self.blocks_rejected.inc();
            }
            ExecutionEvent::Progress { done, remaining_s, agenda } => {
                self.blocks_done.set(i64::from(*done));
                if let Some(seconds) = remaining_s {
                    self.remaining_s.set(*seconds);
                }
                agenda.comparisons.iter().for_each(|status| self.compare(status));
            }
            ExecutionEvent::BlockStarted { .. }
            | ExecutionEvent::TrialStarted(_)
            | ExecutionEvent::Booted(_)
            | ExecutionEvent::NotRestored(_)
            | ExecutionEvent::RunStarted(..) => {}
        }
    }

    fn compare(&self, status: &ComparisonStatus) {
        let labels = vec![
            ("load", status.load.clone()),
            ("workload", status.workload.clone()),
            ("variant", status.variant.clone()),
        ];
        self.open.get_or_create(&labels).set(i64::from(status.is_open));
        if let Some(ratio) = status.judgement.ratio {
            self.ratio.get_or_create(&labels).set(ratio);
        }
        if let Some(interval) = status.judgement.interval {
            self.ratio_low.get_or_create(&labels).set(interval.lo);
            self.ratio_high.get_or_create(&labels).set(interval.hi);
        }
    }
}

/// Tells whoever asks at an address how a study stands, until it is dropped.
pub(crate) struct Exporter {
    instruments: Instruments,
    endpoint: Endpoint,
}

impl Exporter {
    /// Listens at `address`.
    pub(crate) fn start(address: SocketAddr, plan: &StudyPlan) -> anyhow::Result<Self> {
        let mut registry = Registry::with_prefix("vmlab");
        let instruments = Instruments::new(plan, &mut registry);
        let endpoint = Endpoint::start(address, move || {
            let mut text = String::new();
            encode(&mut text, &registry).map_err(io::Error::other)?;
            Ok(text)
        })?;
        Ok(Self { instruments, endpoint })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.address()
    }

    pub(crate) fn observe(&self, event: &ExecutionEvent<'_>) {
        self.instruments.observe(event);
    }
}
