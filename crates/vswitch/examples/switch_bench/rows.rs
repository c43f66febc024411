//! What is compared, and what is wished for.

use std::time::Duration;

use stats::t_test;
use vswitch::frontend::{
    DescriptorLayout, FrameBytes, FrontendOptions, Touch, TrafficFlow, TrafficPlan,
};
use vswitch::message::features;

use crate::machine::Distance;
use crate::peers::Kind;
use crate::trial::{Figure, TrialValue};

/// The most ports that a row has.
pub(crate) const MOST_PORTS: usize = 8;
/// Entries of each ring.
const RING: u16 = 256;
const LEVEL: f64 = 0.95;
/// A generator that was less busy was not seen near its ceiling.
const LEAST_BUSY: f64 = 0.2;

/// One comparison.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) ours: Kind,
    pub(crate) against: Kind,
    pub(crate) options: FrontendOptions,
    pub(crate) plan: TrafficPlan,
    pub(crate) ports: usize,
    pub(crate) figure: Figure,
    /// A rate's ratio is to be at least this, a time's at most; what is only told has none.
    goal: Option<f64>,
    /// The goal is for two pCPUs that are near: far apart, the lines of memory that go
    /// from one to the other are nearly all that a short frame costs, whoever moves it.
    only_near: bool,
    /// Ours and theirs, of each round.
    pairs: Vec<[TrialValue; 2]>,
}

fn plan(flows: Vec<TrafficFlow>, bytes: usize) -> TrafficPlan {
    let to = |port: usize| flows.iter().filter(|flow| flow.to == port).count();
    let most = (0..MOST_PORTS).map(to).max().unwrap_or(1).max(1);
    TrafficPlan {
        flows,
        bytes: FrameBytes::Fixed(bytes),
        touch: Touch::All,
        window: (u64::from(RING) / most as u64).max(1),
        grace: Duration::from_millis(200),
        pace_per_s: None,
    }
}

/// All rows.
pub(crate) fn all() -> Vec<Row> {
    let split = FrontendOptions { ring_size: RING, ..FrontendOptions::default() };
    let packed = FrontendOptions { features: split.features | features::RING_PACKED, ..split };
    let one = || vec![TrafficFlow { from: 0, to: 1 }];
    let two = || TrafficPlan::ring(2);
    let mut rows = Vec::new();
    let mut add = |name: String, against, options, plan, ports, figure, goal| {
        let only_near = name.starts_with("64 B");
        let (ours, goal, pairs) = (Kind::Ours, Some(goal), Vec::new());
        let row = Row { name, ours, against, options, plan, ports, figure, goal, only_near, pairs };
        rows.push(row);
    };
    for (kind, options) in [("split", split), ("packed", packed)] {
        for (way, flows) in [("one way", one()), ("two ways", two())] {
            let name = format!("64 B {way}, {kind}");
            add(name, Kind::Testpmd, options, plan(flows, 60), 2, Figure::Rate, 1.5);
        }
    }
    for ports in [2, 4, 8] {
        let ring = ("ring", TrafficPlan::ring(ports));
        let mesh = ("mesh", TrafficPlan::mesh(ports));
        for (shape, flows) in if ports == 2 { vec![ring] } else { vec![ring, mesh] } {
            for (kind, options) in [("", split), (", packed", packed)] {
                let name = format!("64 B, {ports} ports, {shape}{kind}");
                let plan = plan(flows.clone(), 60);
                add(name, Kind::Ovs, options, plan, ports, Figure::Rate, 2.0);
            }
        }
    }
    let large = plan(one(), 1514);
    add("1500 B, every byte".to_owned(), Kind::Testpmd, split, large, 2, Figure::Rate, 0.97);
    for (shape, what) in
        [(DescriptorLayout::Two, "chains of two"), (DescriptorLayout::Indirect, "indirect")]
    {
        let options = FrontendOptions { shape, ..split };
        let name = format!("64 B, {what}");
        add(name, Kind::Testpmd, options, plan(one(), 60), 2, Figure::Rate, 1.2);
    }
    for (pace_per_s, what) in [(0.5e6, "0.5 Mpps"), (2e6, "2 Mpps")] {
        let plan = TrafficPlan { pace_per_s: Some(pace_per_s), ..plan(one(), 60) };
        add(format!("p99 at {what}"), Kind::Testpmd, split, plan, 2, Figure::P99, 1.0);
    }
    // What a second polling thread brings, frames that go from one to the other included.
    for (shape, flows) in [("ring", TrafficPlan::ring(4)), ("mesh", TrafficPlan::mesh(4))] {
        rows.push(Row {
            name: format!("64 B, 2 threads, {shape}"),
            ours: Kind::OursOnTwo,
            against: Kind::Ours,
            options: split,
            plan: plan(flows, 60),
            ports: 4,
            figure: Figure::Rate,
            goal: None,
            only_near: true,
            pairs: Vec::new(),
        });
    }
    rows
}

impl Row {
    pub(crate) fn add(&mut self, ours: TrialValue, theirs: TrialValue) {
        self.pairs.push([ours, theirs]);
    }

    /// The lines that say what was found, one for each distance of the pCPUs.
    pub(crate) fn text(&self) -> String {
        let mut lines = Vec::new();
        for distance in [Distance::Near, Distance::Far] {
            let of: Vec<&[TrialValue; 2]> =
                self.pairs.iter().filter(|pair| pair[0].distance == distance).collect();
            if of.is_empty() {
                continue;
            }
            let mean =
                |side: usize| of.iter().map(|pair| pair[side].value).sum::<f64>() / of.len() as f64;
            let shown = |value: f64| match self.figure {
                Figure::Rate => format!("{:.2} Mpps", value / 1e6),
                Figure::P99 => format!("{:.2} us", value / 1e3),
            };
            let lost: u64 = of.iter().map(|pair| pair[0].lost + pair[1].lost).sum();
            let lost = if lost > 0 { format!("; {lost} frames lost") } else { String::new() };
            let busy = of.iter().map(|pair| pair[0].generator_busy).sum::<f64>() / of.len() as f64;
            // What the generator would send and receive with this switch if it never waited.
            let ceiling = match self.figure {
                Figure::Rate if busy >= LEAST_BUSY => {
                    format!(
                        "; generator {:.0} % busy, its ceiling {:.1} Mpps",
                        100.0 * busy,
                        mean(0) / busy / 1e6
                    )
                }
                Figure::Rate => format!("; generator {:.0} % busy", 100.0 * busy),
                Figure::P99 => String::new(),
            };
            let goal = self.goal.filter(|_| distance == Distance::Near || !self.only_near);
            let ratios: Vec<f64> = of.iter().map(|pair| pair[0].value / pair[1].value).collect();
            lines.push(format!(
                "{:32} {:5} {} {:>11}, {} {:>11}: {}{ceiling}{lost}",
                self.name,
                distance.name(),
                self.ours.name(),
                shown(mean(0)),
                self.against.name(),
                shown(mean(1)),
                verdict(&ratios, self.figure, goal),
            ));
        }
        if lines.is_empty() {
            lines.push(format!("{:32} no trial could be kept", self.name));
        }
        lines.join("\n")
    }
}

/// A ratio with its interval, and how it stands to the goal, if there is one.
pub(crate) fn verdict(ratios: &[f64], figure: Figure, goal: Option<f64>) -> String {
    let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
    let Some(goal) = goal else {
        return match t_test(&logs, LEVEL) {
            Some(test) => {
                let [ratio, low, high] =
                    [test.mean, test.interval.lo, test.interval.hi].map(f64::exp);
                format!("x{ratio:.2} [{low:.2}, {high:.2}] of {} rounds", ratios.len())
            }
            None => format!("x{:.2} (one round)", ratios.first().unwrap_or(&f64::NAN)),
        };
    };
    let better = |ratio: f64| match figure {
        Figure::Rate => ratio >= goal,
        Figure::P99 => ratio <= goal,
    };
    let wish = match figure {
        Figure::Rate => format!("at least {goal}"),
        Figure::P99 => format!("at most {goal}"),
    };
    let Some(test) = t_test(&logs, LEVEL) else {
        let ratio = logs.first().map_or(f64::NAN, |log| log.exp());
        return format!("x{ratio:.2} (one round), goal {wish}");
    };
    let [ratio, low, high] = [test.mean, test.interval.lo, test.interval.hi].map(f64::exp);
    let stands = match (better(low), better(high), better(ratio)) {
        (true, true, _) => "reached",
        (false, false, _) => "MISSED",
        (_, _, true) => "reached, within the interval not surely",
        (_, _, false) => "missed, within the interval not surely",
    };
    format!("x{ratio:.2} [{low:.2}, {high:.2}] of {} rounds, goal {wish}: {stands}", ratios.len())
}
