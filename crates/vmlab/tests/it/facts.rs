//! What was found of VMs, over results folders.

use std::fs;

use record::journal::{Event, encode};
use record::{Failure, FailureKind, Outcome};

use crate::lab::{Machine, events};

#[test]
fn what_was_asked_for_is_told_by_host() {
    let machine = Machine::with_qemu("7.2.17");
    machine.results();
    machine.results_again("other", 1_800_000_000.0, "10.0.2", 1.0);
    let detail = "cpu_pm is not in force: QEMU said \"guest stopping CPU not supported\"";
    for (dir, qemu_refuses) in [("results", false), ("other", true)] {
        let dir = machine.path(dir);
        let mut events = events(&dir);
        let mut kinds = [FailureKind::GuestNeverAnswered].into_iter();
        for event in &mut events {
            let Event::TrialEnded(result) = event else { continue };
            if qemu_refuses {
                let kind = kinds.next().unwrap_or(FailureKind::NotAsClaimed);
                result.outcome = Outcome::Failed(Failure { kind, detail: detail.to_owned() });
            } else {
                let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
                let evidence = fact("cpu_pm.evidence", "no halt exit in 6.0 s of idle vCPUs");
                result.facts = [fact("cpu_pm", "in force"), evidence].into();
            }
        }
        let text: String = events.iter().map(|event| encode(event).unwrap()).collect();
        fs::write(dir.join("journal.jsonl"), text).unwrap();
    }
    let said = machine.say(["facts", "--fact", "cpu_pm", "results"]);
    let lines: Vec<&str> = said.has_code(0).stdout.lines().collect();
    assert!(lines[0].starts_with("fact    variant  host kernel"), "{said:?}");
    assert!(lines[1].contains("one") && lines[1].ends_with("7.2.17  in force (2)"), "{said:?}");
    assert_eq!(lines[2].trim(), "no halt exit in 6.0 s of idle vCPUs");
    let said = machine.say(["facts", "--json", "results", "other"]);
    let rows: serde_json::Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
    let states: Vec<_> =
        rows.as_array().unwrap().iter().map(|row| (&row["qemu"], &row["state"])).collect();
    assert_eq!(states.len(), 5, "{rows}");
    assert!(states.iter().any(|row| row.1 == "failed: guest never answered"), "{rows}");
    assert!(states.iter().any(|row| row.0 == "10.0.2" && row.1 == "refused by KVM"), "{rows}");
    assert!(machine.say(["facts", "--fact", "odd", "results"]).stdout.contains("No trial told"));
    machine.say(["facts", "nowhere"]).is_error(&["nowhere"]);
}
