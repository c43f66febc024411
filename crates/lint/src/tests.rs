//! Policy over the whole table, and the parts around it.

use crate::{Checked, Context, Example, Format, RULES, Rule, Severity, check_fleet, check_text};

fn findings(document: &str, context: &Context) -> Vec<crate::Finding> {
    let Checked { mut findings, vms, .. } =
        check_text("example", document, context).unwrap_or_else(|error| panic!("{error}\n{document}"));
    findings.extend(check_fleet(&vms, context));
    findings
}

fn fires(rule: &Rule, example: &Example) -> bool {
    let context = example.world.context();
    findings(&example.document(), &context).iter().any(|finding| finding.rule == rule.id)
}

#[test]
fn every_rule_fires_and_keeps_quiet() {
    let mut wrong = Vec::new();
    for rule in RULES {
        for example in rule.fires {
            if !fires(rule, example) {
                wrong.push(format!("{} does not fire on\n{}", rule.id, example.document()));
            }
        }
        for example in rule.quiet {
            if fires(rule, example) {
                wrong.push(format!("{} fires on\n{}", rule.id, example.document()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_is_well_formed() {
    let mut ids = std::collections::BTreeSet::new();
    for rule in RULES {
        let id = rule.id;
        assert!(ids.insert(id), "{id} is there twice");
        let allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        assert!(id.chars().all(allowed) && id.len() <= 40, "{id}");
        for text in [rule.summary, rule.mend] {
            assert!(!text.is_empty() && !text.ends_with('.'), "{id}: {text}");
        }
        assert!(rule.summary.len() <= 100, "{id}: {}", rule.summary.len());
        assert!(rule.why.ends_with('.'), "{id}: {}", rule.why);
        assert!(!rule.sources.is_empty(), "{id} has no source");
        assert!(!rule.fires.is_empty(), "{id} has no example");
        for text in [rule.summary, rule.why, rule.mend] {
            assert!(!text.contains("  "), "{id}: two spaces in {text:?}");
        }
        // An example that is right in each format that one is wrong in.
        let formats = |examples: &[Example]| {
            let mut formats: Vec<Format> = examples.iter().map(|example| example.format).collect();
            formats.sort();
            formats.dedup();
            formats
        };
        assert_eq!(formats(rule.fires), formats(rule.quiet), "{id}");
    }
    assert!(RULES.iter().any(|rule| rule.severity == Severity::Error));
}
