//! How fast the simulator is: events a second in a storm of pause exits on 80
//! pCPUs, and jobs a second of periodic tasks on 4, which other simulators run
//! too. Wall time of one core; prints, asserts nothing.

use std::time::Instant;

use sim::SimModel;
use sim::scenario::Scenario;

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

fn model(text: &str, variant: &str) -> SimModel {
    let read = Scenario::parse("scenario", text, |_| Err("no files".to_owned()));
    let scenario = read.unwrap_or_else(|error| panic!("{error}"));
    let cell = scenario.cells.iter().find(|cell| cell.variant == variant);
    cell.expect("the variant exists").draw(1, 0)
}

fn main() {
    let storm = model(include_str!("../../../studies/sim/overcommit.toml"), "ple on");
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
