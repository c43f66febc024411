//! What a reader sees first: the question, the environment, the verdicts.

use crate::figure::forest::class;
use crate::html::escape;
use crate::html::table::Table;
use crate::quantity::{counted, ratio_centre, ratio_span};
use crate::sentence::{Finding, findings, headline, without_verdict, word};
use crate::{Group, Report, Role, Verdict};

/// With more verdicts than this the rest is folded away.
const OPEN_VERDICTS: usize = 8;

pub(crate) fn header(report: &Report) -> String {
    let mut text = format!("<header>\n<h1>{}</h1>\n", escape(&report.title));
    if let Some(question) = &report.question {
        text.push_str(&format!("<p>{}</p>\n", escape(question)));
    }
    let blocks = counted(report.method.blocks_done as usize, "block");
    let date = report.about.iter().find(|fact| fact.name == "date");
    let date = date.map(|fact| format!(" · {}", escape(&fact.value))).unwrap_or_default();
    text.push_str(&format!(
        "<p class=\"about\">Study {} · {blocks} done{date}</p>\n",
        escape(&report.study)
    ));
    let kind = if report.environment.is_emulated_time() { "banner" } else { "banner plain" };
    text.push_str(&format!(
        "<div class=\"{kind}\" role=\"note\"><p><strong>{}</strong></p>",
        escape(report.environment.sentence())
    ));
    if let Some(why) = &report.environment_why {
        text.push_str(&format!("<p>{}</p>", escape(why)));
    }
    text.push_str("</div>\n</header>\n");
    text
}

pub(crate) fn verdicts(report: &Report) -> String {
    let findings = headline(report);
    if findings.is_empty() {
        let lines = without_verdict(report);
        let lines: String = lines.iter().map(|line| format!("<p>{}</p>\n", escape(line))).collect();
        return format!("<section aria-label=\"Results\" class=\"lead\">\n{lines}</section>\n");
    }
    let items: Vec<String> = findings.iter().map(|finding| verdict(report, finding)).collect();
    let (open, folded) = items.split_at(items.len().min(OPEN_VERDICTS));
    let mut text = format!(
        "<section aria-label=\"Verdicts\">\n<ul class=\"verdicts\">\n{}</ul>\n",
        open.concat()
    );
    if !folded.is_empty() {
        text.push_str(&format!(
            "<details><summary>{} more verdicts</summary>\n<ul class=\"verdicts\">\n{}</ul></details>\n",
            folded.len(),
            folded.concat()
        ));
    }
    text.push_str("</section>\n");
    text
}

fn verdict(report: &Report, finding: &Finding<'_>) -> String {
    let verdict = finding.judgement.verdict;
    let place = if report.environment.is_emulated_time() {
        format!(" <span class=\"chip where\">{}</span>", escape(&report.environment.to_string()))
    } else {
        String::new()
    };
    format!(
        concat!(
            "<li><span>{}</span><div><p class=\"claim\">{}</p>",
            "<p>{}{place}</p>{}</div></li>\n"
        ),
        chip(verdict, finding.group),
        escape(&finding.claim),
        escape(&finding.evidence),
        finding.notes(|note| format!("<p class=\"quiet\">{}</p>", escape(note))),
        place = place,
    )
}

/// The verdict's word, with a sign that does not need its colour.
pub(crate) fn chip(verdict: Verdict, group: &Group) -> String {
    format!(
        "<span class=\"chip {}\"><span aria-hidden=\"true\">{}</span> {}</span>",
        class(verdict),
        sign(verdict),
        word(verdict, &group.metric)
    )
}

pub(crate) fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "▲",
        Verdict::Worse => "▼",
        Verdict::NotDecided => "?",
        Verdict::Invalid => "✕",
    }
}

pub(crate) fn warnings(report: &Report) -> String {
    if report.warnings.is_empty() {
        return String::new();
    }
    let items: String = report.warnings.iter().map(|w| format!("<li>{}</li>", escape(w))).collect();
    format!(
        "<section aria-label=\"Warnings\" class=\"banner\"><p><strong>Know this before you read the numbers</strong></p><ul>{items}</ul></section>\n"
    )
}

/// Variants by loads and workloads, of the primary metrics. Left out where it
/// would repeat a single verdict.
pub(crate) fn matrix(report: &Report) -> String {
    let groups: Vec<&Group> = report.groups.iter().filter(|group| group.primary).collect();
    let shown = groups.iter().map(|group| findings(report, group).len()).sum::<usize>();
    let Some(baseline) = report.baseline() else { return String::new() };
    if shown < 2 {
        return String::new();
    }
    let caption = format!(
        "Ratio to {} with its interval. {}",
        baseline.name,
        if report.environment.is_emulated_time() {
            report.environment.sentence()
        } else {
            "▲ better, ▼ worse."
        }
    );
    let mut table = Table::new("matrix", caption).text("variant");
    for group in &groups {
        table = table.text(&format!("{}, {}: {}", group.workload, group.load, group.metric.name));
    }
    for variant in report.variants.iter().filter(|variant| variant.role != Role::Baseline) {
        let mut cells = vec![escape(&variant.name)];
        for group in &groups {
            let judgement = group.cell(&variant.name).and_then(|cell| cell.judgement.as_ref());
            cells.push(match judgement {
                None => "<td class=\"quiet\">no value</td>".to_owned(),
                Some(judgement) => {
                    let ratio = judgement.ratio.as_ref();
                    let word = word(judgement.verdict, &group.metric);
                    let interval = ratio.and_then(ratio_span).map(|span| format!("{span} "));
                    format!(
                        "<td class=\"{}\"><strong><span aria-hidden=\"true\">{}</span> {}</strong>{}{word}</td>",
                        class(judgement.verdict),
                        sign(judgement.verdict),
                        ratio.map(ratio_centre).unwrap_or_default(),
                        interval.unwrap_or_default(),
                    )
                }
            });
        }
        table.row(&cells);
    }
    format!("<section>\n<h2>All variants at a glance</h2>\n{}</section>\n", table.finish())
}
