//! The scoreboard's rows without the machine at hand: each row, what was predicted, and
//! each cell's value by draw. Deterministic; prints, asserts nothing.
//!
//! Arguments: the number of draws, then the scenarios (all if none), by name or as files; hosts
//! that these name are JSON beside them. `KEY=off` for one of
//! `queue_locks`, `smt`, `remote_memory`, `balance`, `idle_entry`, `remote_lines` and `ple` runs
//! without it.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use sim::answer::{self, DrawResult};
use sim::scenario::Scenario;
use sim::{SimModel, scoreboard};
use topology::Host;

fn without(model: &mut SimModel, off: &[String]) {
    for key in off {
        match key.as_str() {
            "queue_locks=off" => model.mechanisms.queue_locks = false,
            "smt=off" => model.mechanisms.smt = false,
            "remote_memory=off" => model.mechanisms.remote_memory = false,
            "balance=off" => model.mechanisms.balance = false,
            "idle_entry=off" => model.mechanisms.idle_entry = false,
            "remote_lines=off" => model.mechanisms.remote_lines = false,
            "ple=off" => model.kvm.ple = false,
            _ => panic!("{key}: no such mechanism"),
        }
    }
}

fn draws(scenario: &Scenario, count: u32, off: &[String]) -> Vec<DrawResult> {
    let cells = scenario.cells.len();
    let drawn = Mutex::new(vec![
        DrawResult {
            outcomes: vec![None; count as usize],
            ..DrawResult::default()
        };
        cells
    ]);
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let (draw, cell) = (job / cells, job % cells);
            if draw >= count as usize {
                return;
            }
            let mut model = scenario.cells[cell].draw(scenario.seed, draw as u32);
            without(&mut model, off);
            let outcome = sim::run(&model, || true).expect("it goes on");
            let mut drawn = drawn.lock().unwrap_or_else(PoisonError::into_inner);
            drawn[cell].outcomes[draw] = Some(outcome);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    drawn.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn main() {
    let (off, words): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|word| word.contains('='));
    let count = words.first().map_or(3, |word| word.parse().expect("a number of draws"));
    let chosen = words.get(1..).unwrap_or_default();
    let rows = scoreboard::rows();
    let files = chosen.iter().filter(|word| word.ends_with(".toml"));
    let files: Vec<(&str, Scenario)> = files
        .map(|path| {
            let text = std::fs::read_to_string(path).expect("a scenario");
            let host = |file: &str| {
                let path = Path::new(path).with_file_name(file);
                let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
                Host::from_json(&text).map_err(|error| error.to_string())
            };
            let read = Scenario::parse(path, &text, host);
            (path.as_str(), read.unwrap_or_else(|error| panic!("{error}")))
        })
        .collect();
    for (name, scenario) in
        scoreboard::scenarios().expect("a test reads them").into_iter().chain(files)
    {
        if !chosen.is_empty() && !chosen.iter().any(|word| word == name) {
            continue;
        }
        let drawn = draws(&scenario, count, &off);
        for judged in scoreboard::judge(&rows, name, &scenario, &drawn) {
            let predicted = judged.predicted.map_or_else(String::new, |value| {
                format!("{:.4} [{:.4} .. {:.4}]", value.median, value.low, value.high)
            });
            let held = judged.held.map_or_else(String::new, |held| format!("P = {held:.2}"));
            println!("{} | {predicted}{held} | {:?}", judged.row.id, judged.verdict);
        }
        for (at, cell) in scenario.cells.iter().enumerate() {
            let values = answer::values(&scenario, &drawn, at);
            println!("  {} {}: {values:.4?}", cell.variant, cell.point);
            if let Some(Some(outcome)) = drawn[at].outcomes.first() {
                println!("    events {} {:?}", outcome.events, outcome.counters);
                println!("    {:?}", outcome.time);
            }
        }
    }
}
