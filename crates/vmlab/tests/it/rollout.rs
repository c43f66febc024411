//! `vmlab rollout` without stores: how large cohorts must be.

use std::fs;

use crate::lab::{said, vmlab};

const PLAN: &str = "vmlab = 1
title = 'cpu-pm'
[[metric]]
counter = 'kvm.exits'
better = 'lower'
margin_percent = 5
[assume]
host_sd_percent = 1
day_sd_percent = 5
";

#[test]
fn sizes_are_told_before_anything_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.toml");
    fs::write(&path, PLAN).unwrap();
    let plan = path.to_str().unwrap();
    let told = said(&mut vmlab(["rollout", plan, "--plan-only", "--json"]));
    let answer = crate::schemas::holds("rollout", &told.has_code(0).stdout);
    let sizes = answer["metrics"][0]["sizes"].as_array().unwrap();
    let each = |days: u64| {
        sizes.iter().find(|size| size["days"] == days).unwrap()["hosts_each"].as_u64().unwrap()
    };
    assert!(each(1) > each(7) && each(7) >= each(28), "{sizes:?}");
    let text = said(&mut vmlab(["rollout", plan, "--plan-only"])).has_code(0).stdout.clone();
    assert!(text.contains(&format!("{} hosts each", each(7))), "{text}");
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    said(&mut vmlab(["rollout", plan, "--plan-only", "--html", page])).has_code(0);
    let written = fs::read_to_string(page).unwrap();
    for words in ["<h1>cpu-pm</h1>", "within", &format!(">{}</td>", each(7)), "by 1 % for good"] {
        assert!(written.contains(words), "{words}: {written}");
    }
    assert!(!written.contains("What to do"), "{written}");
    let nowhere = folder.path().join("none/page.html");
    said(&mut vmlab(["rollout", plan, "--plan-only", "--html", nowhere.to_str().unwrap()]))
        .is_error(&["Cannot write", "none/page.html"]);
    // It is not said when hosts were changed.
    said(&mut vmlab(["rollout", plan])).is_error(&["plan.toml", "changed_at", "--plan-only"]);
    let changed = PLAN.replacen('\n', "\nchanged_at = 2026-03-02T06:00:00Z\n", 1);
    fs::write(&path, changed).unwrap();
    said(&mut vmlab(["rollout", plan])).is_error(&["names no changed hosts", "[hosts]"]);
    fs::write(&path, PLAN.replace("margin_percent = 5", "margin_percent = 0")).unwrap();
    said(&mut vmlab(["rollout", plan])).is_error(&["plan.toml:6: margin_percent is 0"]);
    said(&mut vmlab(["rollout", "none.toml"])).is_error(&["Cannot read none.toml"]);
}
