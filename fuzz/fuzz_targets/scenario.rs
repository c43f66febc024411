//! Scenarios of `vmlab sim`, and recordings of who ran where: any text is read or
//! refused, each problem with a line of the text.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sim::recording;
use sim::scenario::Scenario;

fuzz_target!(|text: &str| {
    match Scenario::parse("scenario", text, |_| Err("no files here".to_owned())) {
        Ok(scenario) => {
            assert!(!scenario.cells.is_empty());
            // Every draw is a model with somebody in it.
            let model = scenario.cells[0].draw(scenario.seed, 1);
            assert!(!model.machine.is_empty() && !model.vms.is_empty());
        }
        Err(error) => {
            assert!(!error.problems.is_empty());
            let lines = text.lines().count() + 1;
            assert!(error.problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
        }
    }
    if let Ok(map) = recording::read("recording", text) {
        assert!(map.to_ns > map.from_ns && !map.pcpus.is_empty());
    }
});
