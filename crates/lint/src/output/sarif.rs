//! For continuous integration: SARIF 2.1.0.
//!
//! Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version
//! 2.1.0".

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::RULES;
use crate::finding::{Finding, Severity};
use crate::output::{LintNotes, whole_message};
use crate::site::{SiteRule, Suppressor};

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Hint => "note",
    }
}

/// One SARIF log with one run: all rules, and the findings.
#[must_use]
pub fn sarif(findings: &[Finding], version: &str, beside: &LintNotes<'_>) -> String {
    let built_in = RULES
        .iter()
        .map(|rule| {
            json!({
                "id": rule.id,
                "shortDescription": { "text": rule.summary },
                "fullDescription": { "text": rule.why },
                "help": { "text": rule.mend },
                "helpUri": rule.sources.iter().find(|source| source.starts_with("https://")),
                "defaultConfiguration": { "level": level(rule.severity) },
            })
        })
        .map(without_null);
    let own: Vec<&SiteRule> = beside.rules.iter().flat_map(|used| &used.rules.rules).collect();
    let rules: Vec<Value> = built_in
        .chain(own.iter().map(|rule| {
            let why = if rule.why.is_empty() { &rule.text } else { &rule.why };
            json!({
                "id": rule.id,
                "shortDescription": { "text": rule.text },
                "fullDescription": { "text": why },
                "help": { "text": rule.help },
                "defaultConfiguration": { "level": level(rule.severity) },
            })
        }))
        .collect();
    let index: BTreeMap<&str, usize> = RULES
        .iter()
        .map(|rule| rule.id)
        .chain(own.iter().map(|rule| rule.id.as_str()))
        .enumerate()
        .map(|(at, id)| (id, at))
        .collect();
    let mut results: Vec<Value> =
        findings.iter().map(|finding| result(finding, index.get(&*finding.rule))).collect();
    results.extend(beside.suppressed.iter().map(|one| {
        let mut result = result(&one.finding, index.get(&*one.finding.rule));
        let kind = match one.by {
            Suppressor::Comment => "inSource",
            Suppressor::Level => "external",
        };
        result["suppressions"] = json!([{ "kind": kind, "justification": one.reason }]);
        result
    }));
    let failed: Vec<Value> = beside
        .failed
        .iter()
        .map(|message| json!({ "level": "error", "message": { "text": message } }))
        .collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "vmlab", "version": version, "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "invocations": [{
                "executionSuccessful": failed.is_empty(),
                "toolExecutionNotifications": failed,
            }],
            "results": results,
        }],
    });
    let mut text = serde_json::to_string_pretty(&log).expect("a JSON value can be written");
    text.push('\n');
    text
}

fn without_null(mut value: Value) -> Value {
    if let Value::Object(members) = &mut value {
        members.retain(|_, member| !member.is_null());
    }
    value
}

fn result(finding: &Finding, index: Option<&usize>) -> Value {
    let place = &finding.place;
    let uri = uri(&finding.file);
    let mut result = json!({
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": level(finding.severity),
        "message": { "text": whole_message(finding) },
        "locations": [{
            "physicalLocation": {
                "artifactLocation": { "uri": uri },
                "region": {
                    "startLine": place.line,
                    "startColumn": place.column,
                    "endColumn": place.column + place.length,
                    "snippet": { "text": place.text },
                },
            },
        }],
    });
    if let Some(live) = &finding.live {
        result["properties"] = json!({ "asked": live.asked, "is": live.is });
    }
    if let Some(fix) = &finding.fix {
        let replacements: Vec<Value> = fix
            .edits
            .iter()
            .map(|edit| {
                json!({
                    "deletedRegion": {
                        "byteOffset": edit.start,
                        "byteLength": edit.end - edit.start,
                    },
                    "insertedContent": { "text": edit.text },
                })
            })
            .collect();
        result["fixes"] = json!([{
            "description": { "text": finding.help },
            "artifactChanges": [{
                "artifactLocation": { "uri": uri },
                "replacements": replacements,
            }],
        }]);
    }
    result
}

/// A path as the URI reference that SARIF wants.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}
