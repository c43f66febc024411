//! `vmlab trend`: results folders of one study, over time.

use std::fs;

use crate::lab::Machine;

const DAY_S: f64 = 86_400.0;

#[test]
fn a_change_is_dated_and_named_with_what_else_changed() {
    let machine = Machine::with_qemu("7.2.22");
    machine.results();
    for day in 0..14_u32 {
        let noise = 1.0 + 0.003 * f64::from(day % 3);
        let (qemu, factor) = if day < 8 { ("7.2.1", noise) } else { ("7.2.2", 1.2 * noise) };
        // The names say nothing of the order.
        let name = format!("nightly/{}", (day * 5) % 14);
        machine.results_again(&name, 1.8e9 + f64::from(day) * DAY_S, qemu, factor);
    }
    let said = machine.say(["trend", "nightly", "--html", "trend.html"]);
    let text = &said.has_code(0).stdout;
    assert!(text.contains("14 results"), "{text}");
    assert!(text.contains("▼ since 2027-01-23"), "{text}");
    assert!(text.contains("×1.20, slower"), "{text}");
    assert!(text.contains("QEMU: 7.2.1 -> 7.2.2"), "{text}");
    let page = fs::read_to_string(machine.path("trend.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("QEMU: 7.2.1"));

    machine.say(["trend", "nightly", "--gate"]).has_code(1);
    // Both variants slowed down alike: their ratio stayed.
    let ratio = machine.say(["trend", "nightly", "--ratio", "--gate"]);
    assert!(ratio.has_code(0).stdout.contains("Without a change"), "{}", ratio.stdout);
    let json = machine.say(["trend", "nightly", "--json", "--min-percent", "30"]);
    let json: serde_json::Value = serde_json::from_str(&json.has_code(0).stdout).unwrap();
    assert_eq!(json["series"][0]["changes"], serde_json::json!([]), "20 % are below 30 %");
}

#[test]
fn a_run_counts_once_however_often_its_folder_was_copied() {
    let machine = Machine::with_qemu("7.2.22");
    machine.results();
    machine.results_again("nightly/a", 1.8e9, "7.2.1", 1.0);
    machine.results_again("nightly/b", 1.8e9 + DAY_S, "7.2.1", 1.1);
    // Copied when it was not complete.
    machine.results_again("nightly/c", 1.8e9 + DAY_S, "7.2.1", 1.1);
    let journal = machine.path("nightly/b/journal.jsonl");
    let text = fs::read_to_string(&journal).unwrap();
    let kept: String = text.split_inclusive('\n').take(3).collect();
    fs::write(&journal, kept).unwrap();
    let said = machine.say(["trend", "nightly"]);
    assert!(said.stdout.contains("2 results"), "{said:?}");
    assert!(said.stderr.contains("nightly/b and nightly/c hold the same run"), "{said:?}");
    let json = machine.say(["trend", "nightly", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["results"][1]["name"], "nightly/c", "{json:#}");
}

#[test]
fn folders_without_results_are_refused_with_a_word_on_what_to_do() {
    let machine = Machine::with_qemu("7.2.22");
    fs::create_dir(machine.path("empty")).unwrap();
    let said = machine.say(["trend", "empty"]);
    assert!(said.has_code(2).stderr.contains("no results folder"), "{}", said.stderr);
    machine.say(["trend", "nowhere"]).has_code(2);
}
