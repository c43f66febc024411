//! How fast the simulator is: events a second in a storm of pause exits on 80
//! pCPUs, and jobs a second of periodic tasks on 4, which other simulators run
//! too. Wall time of one core; prints, asserts nothing.
//!
//! With a number instead: the seconds that so many draws of 1.5 s of the storm take on
//! all cores.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use sim::SimModel;
use sim::scenario::{Scenario, SweepCell};

const PERIODIC: &str = r#"
sim = 1
warmup_ms = 0
duration_ms = 10_000

[host]
cores = 4

[[vm]]
vcpus = 4
metal = true
pins = ["0", "1", "2", "3"]
workload = "jobs"

[workload.jobs]
class = "requests"
tasks = 16
work = 1_000
sleep = 9_000
"#;

const STORM: &str = include_str!("../../../studies/sim/overcommit.toml");

fn cell(text: &str, variant: &str) -> SweepCell {
    let read = Scenario::parse("scenario", text, |_| Err("no files".to_owned()));
    let scenario = read.unwrap_or_else(|error| panic!("{error}"));
    let cell = scenario.cells.into_iter().find(|cell| cell.variant == variant);
    cell.expect("the variant exists")
}

fn model(text: &str, variant: &str) -> SimModel {
    cell(text, variant).draw(1, 0)
}

fn draws(count: u32) {
    let storm = cell(STORM, "ple on");
    let next = AtomicU32::new(0);
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut events = 0;
        loop {
            let draw = next.fetch_add(1, Ordering::Relaxed);
            if draw >= count {
                return events;
            }
            let model = SimModel { duration_ns: 1_500_000_000, ..storm.draw(1, draw) };
            events += sim::run(&model, || true).expect("it goes on").events;
        }
    };
    let started = Instant::now();
    let events: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no thread panicked")).sum()
    });
    println!("draws {count}\ndraws_cores {cores}\ndraws_events {events}");
    println!("draws_s {:.1}", started.elapsed().as_secs_f64());
}

fn main() {
    if let Some(count) = std::env::args().nth(1) {
        return draws(count.parse().expect("a number of draws"));
    }
    let storm = model(STORM, "ple on");
    let started = Instant::now();
    let outcome = sim::run(&storm, || true).expect("it goes on");
    let took = started.elapsed().as_secs_f64();
    println!("storm_events {}", outcome.events);
    println!("storm_events_per_s {:.0}", outcome.events as f64 / took);
    let jobs = model(PERIODIC, "default");
    let started = Instant::now();
    let outcome = sim::run(&jobs, || true).expect("it goes on");
    let took = started.elapsed().as_secs_f64();
    println!("jobs {}", outcome.meters[0].done);
    println!("jobs_per_s {:.0}", outcome.meters[0].done as f64 / took);
}
