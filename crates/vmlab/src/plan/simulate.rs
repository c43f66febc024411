//! `vmlab plan --simulate`: the plan beside other ways to place the same VMs, ranked by
//! the simulator.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use placement::plan::{HostPlan, Placement, PlanRules, ThreadsPerCore, VmWish, plan_host};
use record::Environment;
use runner::simulated;
use serde_json::json;
use sim::answer::{self, DrawEstimate};
use sim::scenario::Scenario;
use toml::{Table, Value};
use topology::{Host, PcpuSet};
use vmconfig::{GuestTopology, VcpuPins};

use crate::interrupt;
use crate::sim::draw::simulate;
use crate::sim::output::{digits, interval};

/// The version of what `--json` prints.
const RANKING_VERSION: u32 = 1;
/// More of them would not end in minutes.
const MOST_VMS: usize = 200;

/// What the VMs do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SimulatedWork {
    /// Computing in caches, a task a vCPU
    Compute,
    /// Streaming from memory, a task a vCPU
    Stream,
    /// Steps of all tasks together, as in parallel computing
    Barrier,
    /// Small messages between many tasks, as hackbench
    Messages,
    /// Two tasks that wait for each other
    PingPong,
}

impl SimulatedWork {
    /// The `[workload.NAME]` of a scenario.
    fn table(self) -> Table {
        let text = match self {
            Self::Compute => "class = \"compute\"\nwork = { exponential_us = 2000 }",
            Self::Stream => "class = \"stream\"\nwork = { exponential_us = 2000 }",
            Self::Barrier => {
                "class = \"barrier\"\nspin_us = 200\nwork = { normal_us = [1000, 100] }\nmemory_bound = 0.3"
            }
            Self::Messages => {
                "class = \"messages\"\npairs = 10\nsend_work = { exponential_us = 1.5 }\nreceive_work = { exponential_us = 1.5 }"
            }
            Self::PingPong => {
                "class = \"ping-pong\"\nproduce_work = { exponential_us = 5 }\nconsume_work = { exponential_us = 5 }"
            }
        };
        toml::from_str(text).expect("it is constant")
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// How it is simulated.
pub(super) struct SimulationOptions {
    pub(super) work: SimulatedWork,
    /// Busy threads of the host.
    pub(super) beside: u32,
    pub(super) draws: u32,
}

/// A way to place the VMs.
struct Candidate {
    name: &'static str,
    about: &'static str,
    vms: Vec<Value>,
}

/// The candidates from the best to the worst.
pub(super) struct Ranking {
    asked: String,
    draws: u32,
    rows: Vec<PlacementRow>,
}

struct PlacementRow {
    name: String,
    about: &'static str,
    /// Counts a second of all VMs, to the plan's, draw by draw.
    of_plan: DrawEstimate,
    /// How often it is the best.
    best: f64,
}

/// Simulates the plan and the other ways.
///
/// # Errors
/// Interrupted; more VMs than can be simulated.
pub(super) fn rank(
    host: &Host,
    wishes: &[VmWish],
    rules: &PlanRules,
    plan: &HostPlan,
    asked: &SimulationOptions,
) -> anyhow::Result<Ranking> {
    if plan.placements.len() > MOST_VMS {
        bail!("{} VMs are too many to simulate: at most {MOST_VMS}", plan.placements.len());
    }
    let candidates = candidates(host, wishes, rules, plan);
    let text = scenario(host, &candidates, asked)?;
    let scenario = Scenario::parse("the plan's scenario", &text, |_| Ok(host.clone()))?;
    let cancel = interrupt::cancel_on_signals().context("Cannot listen for Ctrl-C")?;
    let drawn = simulate(&scenario, &cancel)?;
    let values: Vec<Vec<f64>> =
        (0..candidates.len()).map(|at| answer::values(&scenario, &drawn, at)).collect();
    let best = answer::probability_best(&values);
    let mut rows = Vec::new();
    for ((candidate, own), best) in candidates.iter().zip(&values).zip(best) {
        let ratios: Vec<f64> = own.iter().zip(&values[0]).map(|(own, plan)| own / plan).collect();
        let of_plan =
            DrawEstimate::of(&ratios).context("Nothing was done in the simulated time")?;
        rows.push(PlacementRow {
            name: candidate.name.to_owned(),
            about: candidate.about,
            of_plan,
            best,
        });
    }
    rows.sort_by(|a, b| b.of_plan.median.total_cmp(&a.of_plan.median));
    let beside = match asked.beside {
        0 => "an otherwise idle host".to_owned(),
        threads => format!("a host with {threads} busy threads beside"),
    };
    Ok(Ranking { asked: format!("{} on {beside}", asked.work.name()), draws: asked.draws, rows })
}

/// The plan first.
fn candidates(
    host: &Host,
    wishes: &[VmWish],
    rules: &PlanRules,
    plan: &HostPlan,
) -> Vec<Candidate> {
    let vm = |placement: &Placement, pins: &VcpuPins, topology: GuestTopology| {
        let nodes = placement.memory_by_node.keys().copied().filter(|_| placement.host_has_nodes);
        let mut table = simulated::placed(placement.vcpus, pins, topology, nodes, host);
        table.insert("name".to_owned(), placement.name.clone().into());
        table.insert("vcpus".to_owned(), i64::from(placement.vcpus).into());
        table.insert("workload".to_owned(), "work".into());
        Value::Table(table)
    };
    let each = |plan: &HostPlan, of: &dyn Fn(&Placement) -> (VcpuPins, GuestTopology)| {
        let placed = plan.placements.iter().map(|placement| {
            let (pins, topology) = of(placement);
            vm(placement, &pins, topology)
        });
        placed.collect::<Vec<_>>()
    };
    let flat = |placement: &Placement| GuestTopology::of_cores(placement.vcpus);
    let as_planned = |placement: &Placement| (placement.vcpu_pins.clone(), placement.topology);
    let mut candidates = vec![Candidate {
        name: "planned",
        about: "pins and topology of the plan",
        vms: each(plan, &as_planned),
    }];
    let mut add = |name, about, vms: Vec<Value>| {
        if candidates.iter().all(|known: &Candidate| known.vms != vms) {
            candidates.push(Candidate { name, about, vms });
        }
    };
    add("pins alone", "the plan's pins, a guest that sees cores only", {
        each(plan, &|placement| (placement.vcpu_pins.clone(), flat(placement)))
    });
    add("same pCPUs", "each vCPU on any of the VM's planned pCPUs, the plan's topology", {
        each(plan, &|placement| {
            let all = placement.vcpu_pins.values().fold(PcpuSet::new(), |all, one| all.union(one));
            let pins = (0..placement.vcpus).map(|vcpu| (vcpu, all.clone())).collect();
            (VcpuPins(pins), placement.topology)
        })
    });
    add("anywhere", "no pins, a guest that sees cores only", {
        each(plan, &|placement| (VcpuPins::default(), flat(placement)))
    });
    let apart: Vec<VmWish> = wishes
        .iter()
        .map(|wish| VmWish { threads_per_core: ThreadsPerCore::Exactly(1), ..wish.clone() })
        .collect();
    let apart = plan_host(host, &apart, rules);
    if apart.refused.is_empty() {
        add("a core each", "every vCPU has a whole core", each(&apart, &as_planned));
    }
    candidates
}

fn scenario(
    host: &Host,
    candidates: &[Candidate],
    asked: &SimulationOptions,
) -> anyhow::Result<String> {
    let table = |pairs: Vec<(&str, Value)>| {
        Table::from_iter(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)))
    };
    let mut described = table(vec![("file", simulated::DESCRIBED_HOST.into())]);
    if asked.beside > 0 {
        let load = vec![("name", "beside".into()), ("threads", i64::from(asked.beside).into())];
        described.insert("load".to_owned(), vec![Value::Table(table(load))].into());
    }
    let variants = candidates.iter().map(|candidate| {
        let set = table(vec![("vm", candidate.vms.clone().into())]);
        Value::Table(table(vec![("name", candidate.name.into()), ("set", set.into())]))
    });
    let top = table(vec![
        ("sim", (sim::scenario::SCENARIO_FORMAT_VERSION as i64).into()),
        ("draws", i64::from(asked.draws).into()),
        ("warmup_ms", 100.into()),
        ("duration_ms", 300.into()),
        ("host", described.into()),
        ("variant", variants.collect::<Vec<_>>().into()),
        ("workload", table(vec![("work", asked.work.table().into())]).into()),
    ]);
    debug_assert!(!host.online().is_empty(), "hosts without pCPUs were refused");
    toml::to_string(&top).context("Cannot write the scenario")
}

impl Ranking {
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} {}, {} draws. To the plan: medians, with four draws in five in brackets.\n\n",
            Environment::Simulated.sentence(),
            self.asked,
            self.draws
        );
        let _ = writeln!(text, "  {:<14}{:<26}{:<10}", "way", "rate, of the plan's", "P(best)");
        for row in &self.rows {
            let _ = writeln!(
                text,
                "  {:<14}{:<26}{:<10.2}{}",
                row.name,
                interval(&row.of_plan),
                row.best,
                row.about
            );
        }
        if let Some(first) = self.rows.first().filter(|row| row.name != "planned") {
            let ratio = digits(first.of_plan.median);
            let _ = writeln!(text, "\n{:?} does x{ratio} of what the plan does here.", first.name);
        }
        text
    }

    pub(super) fn json(&self) -> anyhow::Result<String> {
        let rows = self.rows.iter().map(|row| {
            let DrawEstimate { low, median, high, mean } = row.of_plan;
            json!({
                "name": row.name,
                "about": row.about,
                "of_plan": { "low": low, "median": median, "high": high, "mean": mean },
                "p_best": row.best,
            })
        });
        let all = json!({
            "format": "vmlab-plan-ranking",
            "version": RANKING_VERSION,
            "environment": Environment::Simulated,
            "work": self.asked,
            "draws": self.draws,
            "ways": rows.collect::<Vec<_>>(),
        });
        Ok(serde_json::to_string_pretty(&all)? + "\n")
    }
}
