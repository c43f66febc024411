//! Which workloads of the catalogue the simulator has a model of, and how its counts
//! become their metrics.
//!
//! What a step costs is a round number of what such steps take on today's servers. It
//! sets the scale of simulated values, which says nothing; their ratios are what the
//! simulator is asked for.

use std::collections::BTreeMap;

use toml::{Table, Value};
use workload::{CatalogueEntry, ParamValue, Params, UnderTest};

use crate::plan::{PlanVariant, PlanWorkload};
use crate::study::StudyWorkload;

/// How a metric comes from counts a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MetricScale {
    /// So much a count.
    PerCount(f64),
    /// The seconds that so many counts take.
    SecondsFor(f64),
}

impl MetricScale {
    /// The metric's value at `rate` counts a second.
    pub(super) fn value(self, rate: f64) -> f64 {
        match self {
            Self::PerCount(each) => rate * each,
            Self::SecondsFor(counts) => counts / rate,
        }
    }
}

/// A workload as the simulator plays it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct WorkloadModel {
    /// The `[workload.NAME]` of a scenario.
    pub(super) table: Table,
    /// The metrics that it yields.
    pub(super) metrics: Vec<(&'static str, MetricScale)>,
}

/// The workloads that have a model.
pub(super) const NAMES: &[&str] = &[
    "hackbench",
    "perf-messaging",
    "perf-pipe",
    "perf-syscall",
    "sysbench-cpu",
    "sysbench-memory",
    "stress-ng",
    "kernbench",
    "probe-syscalls",
    "probe-sem",
    "probe-wakeup",
    "probe-ipi",
    "probe-lock",
    "probe-stream",
    "probe-npb",
];

/// Sending or taking a small message, us: half of what `perf bench sched messaging`
/// needs of one CPU for one.
const MESSAGE_US: f64 = 1.5;
/// A step of a probe's work, us (`vmlab-probe`: a dependent multiplication).
const STEP_US: f64 = 0.001;
/// What one thread streams from memory, B/s.
const STREAM: f64 = 1e10;
/// A piece of streaming or building, us.
const PIECE_US: f64 = 2_000.0;

/// The model of a study's workload, or why there is none.
pub(super) fn of_study(workload: &StudyWorkload) -> Result<WorkloadModel, String> {
    alone(workload.under_test, workload.background.is_some())?;
    let params = workload.entry.resolve(&workload.params).map_err(|error| error.to_string())?;
    of(workload.entry, &params, 1)
}

/// The model of a plan's workload in a guest of a variant.
pub(super) fn of_plan(
    workload: &PlanWorkload,
    variant: &PlanVariant,
) -> Result<WorkloadModel, String> {
    alone(workload.under_test, workload.background.is_some())?;
    let (entry, params) = workload.resolve_in(variant).map_err(|error| error.to_string())?;
    of(entry, &params, variant.spec.vcpus())
}

/// The model of the workload called `name`, as other VMs run it.
pub(super) fn of_name(
    name: &str,
    params: &BTreeMap<String, ParamValue>,
    vcpus: u32,
) -> Result<WorkloadModel, String> {
    let entry = workload::find(name).map_err(|error| error.to_string())?;
    let params = entry.resolve(params).map_err(|error| error.to_string())?;
    of(entry, &params, vcpus)
}

fn alone(under_test: UnderTest, beside: bool) -> Result<(), String> {
    if under_test.other().is_some() {
        return Err("networks between guests are not in the model".to_owned());
    }
    if beside {
        return Err("what runs beside a workload is not in the model".to_owned());
    }
    Ok(())
}

/// A workload's parameters, by name.
struct ModelParams<'p>(&'p Params);

impl ModelParams<'_> {
    fn value(&self, name: &str) -> Option<&ParamValue> {
        self.0.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value)
    }

    fn number(&self, name: &str) -> Option<i64> {
        match self.value(name) {
            Some(ParamValue::Int(value)) => Some(*value),
            _ => None,
        }
    }

    fn count(&self, name: &str) -> f64 {
        self.number(name).unwrap_or(1).max(1) as f64
    }

    fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Some(ParamValue::Text(text)) => text,
            _ => "",
        }
    }

    /// Threads or jobs: as many as vCPUs where the study names none.
    fn tasks(&self, name: &str, vcpus: u32) -> i64 {
        self.number(name).unwrap_or(i64::from(vcpus)).clamp(1, 10_000)
    }
}

fn table<const N: usize>(class: &str, keys: [(&str, Value); N]) -> Table {
    let class = [("class".to_owned(), Value::from(class))];
    class.into_iter().chain(keys.map(|(key, value)| (key.to_owned(), value))).collect()
}

/// A time that varies as most do.
fn exponential(mean_us: f64) -> Value {
    Value::Table(Table::from_iter([("exponential_us".to_owned(), Value::from(mean_us))]))
}

fn of(entry: &CatalogueEntry, params: &Params, vcpus: u32) -> Result<WorkloadModel, String> {
    use MetricScale::{PerCount, SecondsFor};
    let given = ModelParams(params);
    let model = |table, metrics: &[(&'static str, MetricScale)]| WorkloadModel {
        table,
        metrics: metrics.into(),
    };
    Ok(match entry.name {
        "hackbench" | "perf-messaging" => {
            let groups = given.count("groups");
            let pairs = if entry.name == "hackbench" { given.count("fds") } else { 20.0 };
            let keys = [
                ("groups", Value::from(groups.min(1_000.0) as i64)),
                ("pairs", Value::from(pairs as i64)),
                ("send_work", exponential(MESSAGE_US)),
                ("receive_work", exponential(MESSAGE_US)),
            ];
            let messages = groups * pairs * pairs * given.count("loops");
            model(table("messages", keys), &[("time", SecondsFor(messages))])
        }
        "perf-pipe" => {
            let work = || exponential(MESSAGE_US);
            let keys = [("produce_work", work()), ("consume_work", work())];
            let metrics = [("ops-per-s", PerCount(1.0)), ("time-per-op", SecondsFor(1.0))];
            model(table("ping-pong", keys), &metrics)
        }
        "perf-syscall" => {
            let keys = [
                ("tasks", Value::from(1)),
                ("work", exponential(1_000.0)),
                ("in_kernel", Value::from(true)),
            ];
            // 0.1 us a call.
            let metrics = [("ops-per-s", PerCount(1e4)), ("time-per-op", SecondsFor(1e-4))];
            model(table("compute", keys), &metrics)
        }
        "probe-syscalls" => {
            let threads = given.tasks("threads", 1);
            let keys = [
                ("tasks", Value::from(threads)),
                ("work", exponential(1_000.0)),
                ("in_kernel", Value::from(true)),
            ];
            let time = SecondsFor(1e-4 * threads as f64);
            model(table("compute", keys), &[("calls-per-s", PerCount(1e4)), ("call-time", time)])
        }
        "sysbench-cpu" => {
            // As the catalogue estimates it.
            let event_us = 400.0 * (given.count("cpu_max_prime") / 1e4).powf(1.5);
            let threads = given.tasks("threads", vcpus);
            let keys =
                [("tasks", Value::from(threads)), ("work", exponential(event_us.clamp(1.0, 1e6)))];
            let metrics =
                [("events-per-s", PerCount(1.0)), ("latency-avg", SecondsFor(threads as f64))];
            model(table("compute", keys), &metrics)
        }
        "sysbench-memory" | "probe-stream" => {
            let keys = [
                ("tasks", Value::from(given.tasks("threads", vcpus))),
                ("work", exponential(PIECE_US)),
            ];
            let bytes = STREAM * PIECE_US / 1e6;
            let metric = if entry.name == "probe-stream" { "triad" } else { "throughput" };
            model(table("stream", keys), &[(metric, PerCount(bytes))])
        }
        "stress-ng" if given.text("stressor") == "cpu" => {
            let tasks = given.tasks("instances", vcpus);
            let keys = [("tasks", Value::from(tasks)), ("work", exponential(PIECE_US))];
            model(table("compute", keys), &[("bogo-ops-per-s", PerCount(1.0))])
        }
        "stress-ng" => return Err("only the stressor cpu has a model".to_owned()),
        "kernbench" => {
            let alone = workload::GuestFacts::alone(1, false);
            let pieces = entry.duration_s(params, &alone) * 1e6 / PIECE_US;
            let keys = [
                ("tasks", Value::from(given.tasks("jobs", vcpus))),
                ("work", exponential(PIECE_US)),
                ("memory_bound", Value::from(0.3)),
            ];
            model(table("compute", keys), &[("elapsed", SecondsFor(pieces))])
        }
        "probe-sem" => {
            if given.text("hog") != "none" {
                return Err("a hog beside the two has no model here".to_owned());
            }
            let work = (given.number("loops").unwrap_or(0).max(0) as f64 * STEP_US).max(0.1);
            let step =
                |verb: &str, what: Value| Value::Table(Table::from_iter([(verb.to_owned(), what)]));
            let task = |steps: Vec<Value>| step("steps", Value::from(steps));
            // The producer waits in the middle of its work, for the item before.
            let producer = task(vec![
                step("send", "full".into()),
                step("work", work.into()),
                step("receive", "empty".into()),
                step("work", work.into()),
                "done".into(),
            ]);
            let consumer = task(vec![
                step("receive", "full".into()),
                step("work", work.into()),
                step("send", "empty".into()),
            ]);
            let semaphore = |initial: i64| {
                let keys = [("capacity", 2), ("initial", initial)];
                Value::Table(
                    keys.map(|(key, n)| (key.to_owned(), Value::from(n))).into_iter().collect(),
                )
            };
            let channels = [("full", semaphore(0)), ("empty", semaphore(1))];
            let channels = channels.map(|(name, one)| (name.to_owned(), one)).into_iter().collect();
            let keys = [
                ("channels", Value::Table(channels)),
                ("task", Value::from(vec![producer, consumer])),
            ];
            model(table("program", keys), &[("items-per-s", PerCount(1.0))])
        }
        "probe-wakeup" => {
            let keys = [
                ("produce_work", exponential(0.2)),
                ("consume_work", exponential(0.2)),
                ("pinned", Value::from(true)),
            ];
            model(table("ping-pong", keys), &[("round-trips-per-s", PerCount(1.0))])
        }
        "probe-ipi" => {
            // One sends, all others compute.
            let task = |vcpu: u32| {
                let work = Table::from_iter([("work".to_owned(), Value::from(0.2))]);
                let sends = ["flush", "done"].map(Value::from);
                let steps = [Value::Table(work)].into_iter();
                let steps = steps.chain(sends.into_iter().filter(|_| vcpu == 0));
                let keys = [
                    ("vcpu".to_owned(), Value::from(i64::from(vcpu))),
                    ("steps".to_owned(), Value::from(steps.collect::<Vec<_>>())),
                ];
                Value::Table(Table::from_iter(keys))
            };
            let tasks: Vec<Value> = (0..vcpus.max(1)).map(task).collect();
            let keys = [("task", Value::from(tasks))];
            model(table("program", keys), &[("ipi-mean", SecondsFor(1.0))])
        }
        "probe-lock" => {
            let kind = match given.text("kind") {
                "spin" => "unfair",
                "mutex" => "sleeping",
                _ => "fair",
            };
            // 100 steps inside, 100 outside, three looks at the clock.
            let keys = [
                ("tasks", Value::from(given.tasks("threads", vcpus))),
                ("pinned", Value::from(false)),
                ("lock", Value::from(kind)),
                ("work", exponential(100.0 * STEP_US + 0.05)),
                ("hold", exponential(100.0 * STEP_US + 0.05)),
            ];
            model(table("spin-lock", keys), &[("acquisitions-per-s", PerCount(1.0))])
        }
        "probe-npb" => {
            const TIMES: [&str; 8] = [
                "cg-time", "ep-time", "mg-time", "ft-time", "is-time", "bt-time", "sp-time",
                "ua-time",
            ];
            let benchmark = given.text("benchmark");
            if benchmark == "lu" {
                return Err("threads that wait for one neighbour are not in the model".to_owned());
            }
            let named = TIMES.iter().find(|time| time.strip_suffix("-time") == Some(benchmark));
            let Some(time) = named else {
                return Err("name one benchmark: each of them is another model".to_owned());
            };
            let threads = given.tasks("threads", vcpus);
            // Steps of 1 ms of all threads together; EP meets nowhere.
            let step_us = 1_000.0 / threads as f64;
            let steps = entry.duration_s(params, &workload::GuestFacts::alone(1, false)) * 1e3;
            let tasks = ("tasks", Value::from(threads));
            if benchmark == "ep" {
                let keys = [tasks, ("work", exponential(1_000.0))];
                return Ok(model(table("compute", keys), &[(time, SecondsFor(steps))]));
            }
            let spread = [step_us, step_us / 10.0].map(Value::from).to_vec();
            let work = Table::from_iter([("normal_us".to_owned(), Value::from(spread))]);
            let keys = [
                tasks,
                ("spin_us", Value::from(200)),
                ("work", Value::Table(work)),
                ("memory_bound", Value::from(0.3)),
            ];
            model(table("barrier", keys), &[(time, SecondsFor(steps))])
        }
        "boot" => return Err("how many steps a boot has is not known".to_owned()),
        "dbench" if given.text("files") == "tmpfs" => {
            return Err(
                "what clients in a tmpfs wait for in the guest's file system is not in the model"
                    .to_owned(),
            );
        }
        "fio" | "fio-iozone" | "dbench" | "sysbench-fileio" => {
            return Err("disks are not in the model".to_owned());
        }
        _ if entry.beside.server.is_some() => {
            return Err("networks and servers are not in the model".to_owned());
        }
        "probe-malloc" | "probe-tlb" | "probe-pagecache" | "probe-shuffle" | "probe-numa"
        | "perf-mem" | "perf-numa" => {
            return Err("page faults, translation and caches are not in the model".to_owned());
        }
        _ => return Err("it has no model".to_owned()),
    })
}
