//! From the outcomes of many draws to an answer: estimates with intervals, how
//! sure an order is, where the time went, what carries a difference.

use crate::engine::SimOutcome;
use crate::model::{SimModel, SimStart};
use crate::scenario::{CountScale, Scenario};

/// A number over all draws of the priors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DrawEstimate {
    /// One draw in ten is below.
    pub low: f64,
    /// Half of them are.
    pub median: f64,
    /// One in ten is above.
    pub high: f64,
    /// Their mean: what tells apart where a draw is one of two things.
    pub mean: f64,
}

impl DrawEstimate {
    /// Of some values; `None` if there are none.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (sorted.len() - 1) as f64;
            let below = sorted[place as usize];
            let above = sorted[(place as usize + 1).min(sorted.len() - 1)];
            below + (above - below) * place.fract()
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self { low: at(0.1), median: at(0.5), high: at(0.9), mean })
    }
}

/// How often the first of two paired lists is greater; equal ones count half.
#[must_use]
pub fn probability_greater(values: &[f64], others: &[f64]) -> Option<f64> {
    let pairs = values.iter().zip(others);
    let count = pairs.len();
    let score: f64 = pairs
        .map(|(value, other)| {
            // Equal within what a run's end cuts off.
            if (value - other).abs() <= 1e-3 * other.abs() {
                0.5
            } else {
                f64::from(u8::from(value > other))
            }
        })
        .sum();
    (count > 0).then(|| score / count as f64)
}

/// How often each of several paired lists has the greatest value; those that are equal
/// share it.
#[must_use]
pub fn probability_best(values: &[Vec<f64>]) -> Vec<f64> {
    let draws = values.iter().map(Vec::len).min().unwrap_or(0);
    let mut best = vec![0.0; values.len()];
    for draw in 0..draws {
        let greatest = values.iter().map(|each| each[draw]).fold(f64::MIN, f64::max);
        let wins = |each: &Vec<f64>| each[draw] >= greatest - 1e-3 * greatest.abs();
        let winners = values.iter().filter(|each| wins(each)).count();
        for (share, _) in best.iter_mut().zip(values).filter(|(_, each)| wins(each)) {
            *share += 1.0 / (winners * draws) as f64;
        }
    }
    best
}

/// The results of one cell's draws.
#[derive(Debug, Clone, Default)]
pub struct DrawResult {
    /// By draw, from 0; none where it did not end.
    pub outcomes: Vec<Option<SimOutcome>>,
    /// Draw 0 begun the other way.
    pub other_start: Option<SimOutcome>,
    /// For each mechanism that was switched off: its name, and the first draws
    /// without it.
    pub without: Vec<(&'static str, Vec<Option<SimOutcome>>)>,
}

/// The answer for one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct CellAnswer {
    /// The variant.
    pub variant: String,
    /// The sweep's point.
    pub point: String,
    /// Draws that ended.
    pub draws: usize,
    /// By meter.
    pub meters: Vec<MeterAnswer>,
    /// Where the pCPUs' time went: shares of all, means over the draws.
    pub time: Vec<(&'static str, f64)>,
    /// What happened, a second, medians over the draws.
    pub counters: Vec<(&'static str, f64)>,
    /// Values of draw 0 from the scenario's start and from the other one, where
    /// they differ by more than a quarter and more than the draws do.
    pub bistable: Option<(f64, f64)>,
    /// How much of the difference from the baseline goes away with each
    /// mechanism; 1 is all of it. Nothing where that is within its interval.
    pub carried_by: Vec<(&'static str, f64)>,
    /// True if mechanisms were switched off and the first meter's ratio to the baseline
    /// is 1 within its interval: there is no difference that one could carry.
    pub nothing_to_carry: bool,
}

/// The answer for one meter of a cell.
#[derive(Debug, Clone, PartialEq)]
pub struct MeterAnswer {
    /// Its name.
    pub name: String,
    /// In the scenario's unit.
    pub value: DrawEstimate,
    /// To the baseline at the same point, draw by draw.
    pub ratio: Option<DrawEstimate>,
    /// How often its value is greater than the baseline's.
    pub greater: Option<f64>,
    /// Median and 99th percentile of requests' latencies, ns.
    pub latency: Option<(DrawEstimate, DrawEstimate)>,
}

/// A mechanism's name, and how it is switched off.
pub type Mechanism = (&'static str, fn(&mut SimModel));

/// What can be switched off to see what it carries.
pub const MECHANISMS: &[Mechanism] = &[
    ("pause exits", |model| model.kvm.ple = false),
    ("buddies", |model| model.policy.buddies = false),
    ("run-queue locks", |model| model.mechanisms.queue_locks = false),
    ("exit costs", |model| {
        model.costs.exit_ns = 0.0;
        model.costs.entry_ns = 0.0;
    }),
    ("switch costs", |model| model.costs.switch_ns = 0.0),
    ("threads of a core", |model| model.mechanisms.smt = false),
    ("remote memory", |model| model.mechanisms.remote_memory = false),
    ("lines of other nodes", |model| model.mechanisms.remote_lines = false),
    ("load balance", |model| model.mechanisms.balance = false),
    ("going idle", |model| model.mechanisms.idle_entry = false),
    ("queued wake-ups", |model| model.mechanisms.queued_wakeups = false),
    ("wake-up preemption", |model| model.policy.wakeup_preemption = false),
    ("halt polling", |model| model.kvm.halt_poll_ns = 0),
    ("idle pCPUs' wake-up", |model| model.costs.idle_wake_ns = 0.0),
    ("exits by IPIs", |model| {
        model.kvm.ipi_exits = false;
        model.kvm.posted_interrupts = true;
    }),
    ("host noise", |model| model.host_tasks.retain(|task| task.burst.is_none())),
];

fn pause_exits(model: &SimModel) -> bool {
    model.kvm.ple && model.vms.iter().any(|vm| !vm.metal)
}

/// The mechanisms that `model` has.
pub fn mechanisms_of(model: &SimModel) -> impl Iterator<Item = usize> + '_ {
    let smt = (0..model.machine.len() as u32).any(|cpu| !model.machine.siblings(cpu).is_empty());
    let far = model.vms.iter().any(|vm| !vm.memory_nodes.is_empty());
    let has = move |name: &str| match name {
        "pause exits" => pause_exits(model),
        "buddies" => !model.policy.kernel.is_eevdf() || pause_exits(model),
        "threads of a core" => smt && model.mechanisms.smt,
        "remote memory" => far && model.mechanisms.remote_memory,
        "lines of other nodes" => model.machine.nodes() > 1 && model.mechanisms.remote_lines,
        "load balance" => model.mechanisms.balance,
        "going idle" => model.mechanisms.idle_entry,
        "queued wake-ups" => model.mechanisms.queued_wakeups,
        "halt polling" => model.kvm.halt_poll_ns > 0,
        "host noise" => model.host_tasks.iter().any(|task| task.burst.is_some()),
        "exits by IPIs" => model.kvm.ipi_exits,
        _ => true,
    };
    MECHANISMS.iter().enumerate().filter(move |(_, (name, _))| has(name)).map(|(at, _)| at)
}

/// `model` begun the other way.
#[must_use]
pub fn started_otherwise(mut model: SimModel) -> SimModel {
    model.start = match model.start {
        SimStart::Random => SimStart::Aligned,
        SimStart::Aligned => SimStart::Random,
    };
    model
}

/// The answers, cell by cell.
#[must_use]
pub fn answers(scenario: &Scenario, drawn: &[DrawResult]) -> Vec<CellAnswer> {
    let ended = scenario.cells.iter().zip(drawn).enumerate();
    ended
        .filter(|(_, (_, drawn))| drawn.outcomes.iter().any(Option::is_some))
        .map(|(at, _)| answer(scenario, drawn, at))
        .collect()
}

/// The cell of `variant` at the same point as cell `at`.
fn beside(scenario: &Scenario, at: usize, variant: &str) -> Option<usize> {
    let point = &scenario.cells[at].point;
    let same = |cell: &&crate::scenario::SweepCell| cell.variant == variant && cell.point == *point;
    scenario.cells.iter().position(|cell| same(&cell))
}

/// The values of a cell's first meter in the scenario's unit, draw by draw.
#[must_use]
pub fn values(scenario: &Scenario, drawn: &[DrawResult], at: usize) -> Vec<f64> {
    rates(&drawn[at].outcomes, 0).into_iter().map(scale(scenario, drawn, at)).collect()
}

fn rates(outcomes: &[Option<SimOutcome>], meter: usize) -> Vec<f64> {
    let ended = outcomes.iter().flatten();
    ended.filter_map(|outcome| Some(outcome.meters.get(meter)?.per_s)).collect()
}

fn answer(scenario: &Scenario, drawn: &[DrawResult], at: usize) -> CellAnswer {
    let cell = &scenario.cells[at];
    let own = &drawn[at];
    let baseline = beside(scenario, at, &scenario.baseline).filter(|base| *base != at);
    let scale = scale(scenario, drawn, at);
    let meters = cell.model.meters.iter().enumerate().filter_map(|(meter, name)| {
        let values: Vec<f64> = rates(&own.outcomes, meter).into_iter().map(&scale).collect();
        let mut pairs = (Vec::new(), Vec::new());
        if let Some(base) = baseline {
            for (mine, other) in own.outcomes.iter().zip(&drawn[base].outcomes) {
                if let (Some(mine), Some(other)) = (mine, other)
                    && let (Some(mine), Some(other)) =
                        (mine.meters.get(meter), other.meters.get(meter))
                    && other.per_s > 0.0
                {
                    pairs.0.push(scale(mine.per_s));
                    pairs.1.push(scale(other.per_s));
                }
            }
        }
        let ratios: Vec<f64> = pairs.0.iter().zip(&pairs.1).map(|(a, b)| a / b).collect();
        let latencies =
            || own.outcomes.iter().flatten().map(|outcome| outcome.meters[meter].latency);
        let of = |pick: fn(&crate::Latency) -> u64| {
            let values: Vec<f64> = latencies()
                .filter(|latency| latency.count > 0)
                .map(|latency| pick(&latency) as f64)
                .collect();
            DrawEstimate::of(&values)
        };
        Some(MeterAnswer {
            name: name.clone(),
            value: DrawEstimate::of(&values)?,
            ratio: DrawEstimate::of(&ratios),
            greater: probability_greater(&pairs.0, &pairs.1),
            latency: of(|latency| latency.median_ns).zip(of(|latency| latency.p99_ns)),
        })
    });
    let meters: Vec<MeterAnswer> = meters.collect();
    let ratio = meters.first().and_then(|meter| meter.ratio);
    let within = ratio.is_some_and(|ratio| ratio.low <= 1.0 && ratio.high >= 1.0);
    CellAnswer {
        variant: cell.variant.clone(),
        point: cell.point.clone(),
        draws: own.outcomes.iter().flatten().count(),
        time: shares(&own.outcomes),
        counters: counters(&own.outcomes, cell.model.duration_ns),
        bistable: bistable(own, &scale, meters.first()),
        carried_by: match baseline {
            Some(base) if !within => carried_by(own, &drawn[base]),
            _ => Vec::new(),
        },
        nothing_to_carry: within && !own.without.is_empty(),
        meters,
    }
}

/// From counts a second to the scenario's unit, at the point of cell `at`.
fn scale(scenario: &Scenario, drawn: &[DrawResult], at: usize) -> impl Fn(f64) -> f64 + use<> {
    let fitted = |variant: &str, value: f64| {
        let rates = rates(&drawn[beside(scenario, at, variant)?].outcomes, 0);
        Some(value / DrawEstimate::of(&rates)?.median)
    };
    let (factor, seconds) = match &scenario.unit.scale {
        CountScale::PerCount(factor) => (*factor, None),
        CountScale::SecondsFor(counts) => (1.0, Some(*counts)),
        CountScale::Fitted { variant, value } => {
            (fitted(variant, *value).unwrap_or(f64::NAN), None)
        }
    };
    move |per_s| seconds.map_or(per_s * factor, |counts| counts / per_s)
}

fn shares(outcomes: &[Option<SimOutcome>]) -> Vec<(&'static str, f64)> {
    let mut sums: Vec<(&'static str, f64)> = Vec::new();
    let mut total = 0.0;
    for outcome in outcomes.iter().flatten() {
        for (index, (name, ns)) in outcome.time.parts().into_iter().enumerate() {
            if sums.len() <= index {
                sums.push((name, 0.0));
            }
            sums[index].1 += ns as f64;
            total += ns as f64;
        }
    }
    sums.into_iter().map(|(name, ns)| (name, ns / f64::max(total, 1.0))).collect()
}

fn counters(outcomes: &[Option<SimOutcome>], duration_ns: u64) -> Vec<(&'static str, f64)> {
    let Some(first) = outcomes.iter().flatten().next() else { return Vec::new() };
    let seconds = duration_ns as f64 / 1e9;
    let names = first.counters.parts();
    let each = names.into_iter().enumerate().filter_map(|(index, (name, _))| {
        let ended = outcomes.iter().flatten();
        let values: Vec<f64> =
            ended.map(|outcome| outcome.counters.parts()[index].1 as f64 / seconds).collect();
        Some((name, DrawEstimate::of(&values)?.median))
    });
    each.collect()
}

fn bistable(
    drawn: &DrawResult,
    scale: &impl Fn(f64) -> f64,
    meter: Option<&MeterAnswer>,
) -> Option<(f64, f64)> {
    let value = meter?.value;
    let one = scale(drawn.outcomes.first()?.as_ref()?.meters.first()?.per_s);
    let other = scale(drawn.other_start.as_ref()?.meters.first()?.per_s);
    let apart = other > 1.25 * one.max(value.high) || 1.25 * other < one.min(value.low);
    apart.then_some((one, other))
}

/// The share of the logarithm of the ratio to the baseline that is gone without
/// a mechanism, the median over the draws that were done without it. Nothing
/// where there is no difference to carry.
fn carried_by(own: &DrawResult, base: &DrawResult) -> Vec<(&'static str, f64)> {
    /// A difference of less is none.
    const LEAST: f64 = 0.02;
    let ratio = |mine: &Option<SimOutcome>, other: &Option<SimOutcome>| {
        let (mine, other) = (mine.as_ref()?.meters.first()?, other.as_ref()?.meters.first()?);
        let both = mine.per_s > 0.0 && other.per_s > 0.0;
        both.then(|| libm::log(mine.per_s / other.per_s))
    };
    let mut carried = Vec::new();
    for (name, without) in &own.without {
        // Where the baseline lacks the mechanism anyhow it is as it is.
        let other = base.without.iter().find(|(known, _)| known == name);
        let other = other.map_or(&base.outcomes[..], |(_, outcomes)| outcomes);
        let gone: Vec<f64> = without
            .iter()
            .zip(other)
            .zip(own.outcomes.iter().zip(&base.outcomes))
            .filter_map(|((mine, other), (with, with_other))| {
                let whole = ratio(with, with_other).filter(|whole| whole.abs() > LEAST)?;
                Some(1.0 - ratio(mine, other)? / whole)
            })
            .collect();
        if let Some(gone) = DrawEstimate::of(&gone)
            && gone.median.abs() > 0.1
        {
            carried.push((*name, gone.median));
        }
    }
    carried.sort_by(|a, b| b.1.total_cmp(&a.1));
    carried
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_quantiles() {
        let values: Vec<f64> = (0..=10).map(f64::from).collect();
        let expected = DrawEstimate { low: 1.0, median: 5.0, high: 9.0, mean: 5.0 };
        assert_eq!(DrawEstimate::of(&values), Some(expected));
        assert_eq!(DrawEstimate::of(&[]), None);
        assert_eq!(DrawEstimate::of(&[3.0]).map(|one| (one.low, one.high)), Some((3.0, 3.0)));
    }

    #[test]
    fn the_best_share_what_is_equal() {
        let best = probability_best(&[vec![1.0, 5.0], vec![2.0, 5.0], vec![1.0, 1.0]]);
        assert_eq!(best, [0.25, 0.75, 0.0]);
    }

    /// Chance that favours neither is no difference, whatever changes with a mechanism.
    #[test]
    fn a_difference_within_its_interval_is_carried_by_nothing() {
        let text = "sim = 1\n[host]\ncores = 2\n[[vm]]\nworkload = \"w\"\n[workload.w]\n\
                    class = \"compute\"\nwork = 1\n[[variant]]\nname = \"a\"\n[[variant]]\nname = \"b\"\n";
        let no_host = |_: &str| Err(String::new());
        let scenario = Scenario::parse("s.toml", text, no_host).unwrap();
        let outcomes = |rates: &[f64]| {
            let outcome = |per_s: &f64| {
                let meter = crate::MeterOutcome { done: 1, per_s: *per_s, ..Default::default() };
                Some(SimOutcome { meters: vec![meter], ..SimOutcome::default() })
            };
            rates.iter().map(outcome).collect::<Vec<_>>()
        };
        let drawn = |with: &[f64], without: &[f64]| DrawResult {
            outcomes: outcomes(with),
            other_start: None,
            without: vec![("switch costs", outcomes(without))],
        };
        let judge = |with: &[f64]| {
            let base = drawn(&[100.0; 4], &[100.0; 4]);
            answers(&scenario, &[base, drawn(with, &[100.0; 4])]).remove(1)
        };
        let none = judge(&[70.0, 130.0, 72.0, 128.0]);
        assert_eq!(none.meters[0].greater, Some(0.5));
        assert!(none.carried_by.is_empty() && none.nothing_to_carry, "{none:?}");
        let some = judge(&[130.0, 131.0, 132.0, 128.0]);
        assert!(!some.nothing_to_carry && some.carried_by[0].0 == "switch costs", "{some:?}");
    }

    #[test]
    fn ties_are_no_order() {
        assert_eq!(probability_greater(&[1.0, 2.0, 3.0, 5.0], &[1.0, 1.0, 4.0, 4.0]), Some(0.625));
        assert_eq!(probability_greater(&[], &[]), None);
    }
}
