//! What a reader sees first: the question, the environment, the verdicts.

use crate::escape::escape;
use crate::figure::marker;
use crate::html::table::{HtmlTable, Td};
use crate::quantity::{counted, ratio_centre, ratio_span};
use crate::sentence::{VariantVerdict, findings, headline, label, without_verdict};
use crate::verdict::Label;
use crate::{Report, ResultGroup, VariantRole};

/// With more verdicts than this the rest is folded away.
const OPEN_VERDICTS: usize = 8;

pub(crate) fn header(report: &Report) -> String {
    let mut text = format!("<header>\n<h1>{}</h1>\n", escape(&report.title));
    if let Some(question) = &report.question {
        text.push_str(&format!("<p>{}</p>\n", escape(question)));
    }
    let blocks = counted(report.method.blocks_done as usize, "block");
    let started = report.about.iter().find(|fact| fact.name == "started");
    let started = started.map(|fact| format!(" · {}", escape(&fact.value))).unwrap_or_default();
    text.push_str(&format!(
        "<p class=\"about\">Study {} · {blocks} done{started}</p>\n",
        escape(&report.study)
    ));
    let kind = if report.environment.is_emulated_time() { "banner" } else { "banner plain" };
    text.push_str(&format!(
        "<div class=\"{kind}\" role=\"note\"><p><strong>{}</strong></p>",
        escape(&report.environment.sentence_on(report.place.as_deref()))
    ));
    let said = report.environment.limits().into_iter().chain(report.environment_why.as_deref());
    for line in said {
        text.push_str(&format!("<p>{}</p>", escape(line)));
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

fn verdict(report: &Report, finding: &VariantVerdict<'_>) -> String {
    let place = if report.environment.is_emulated_time() {
        format!(" <span class=\"chip where\">{}</span>", escape(&report.environment.to_string()))
    } else {
        String::new()
    };
    let notes = match finding.notes().join(" ") {
        notes if notes.is_empty() => notes,
        notes => format!("<p class=\"quiet\">{}</p>", escape(&notes)),
    };
    format!(
        concat!(
            "<li><span>{}</span><div><p class=\"claim\">{}</p>",
            "<p>{}{place}</p>{notes}</div></li>\n"
        ),
        chip(finding.label()),
        escape(&finding.claim),
        escape(&finding.evidence),
        place = place,
        notes = notes,
    )
}

/// The verdict's word, with a sign that does not need its colour.
pub(crate) fn chip(label: Label) -> String {
    let Label { word, sign, class } = label;
    format!("<span class=\"chip {class}\"><span aria-hidden=\"true\">{sign}</span> {word}</span>")
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

/// Which mark is which variant, and what the variant is.
pub(crate) fn variants(report: &Report) -> String {
    if report.variants.is_empty() {
        return String::new();
    }
    let items: String = report
        .variants
        .iter()
        .enumerate()
        .map(|(index, variant)| {
            let role = match variant.role {
                VariantRole::Baseline => " (baseline)",
                VariantRole::AaArm => " (A/A: the baseline again)",
                VariantRole::Candidate => "",
            };
            format!(
                "<li>{}{}{role} <span class=\"quiet\">{}</span></li>\n",
                marker::inline(index),
                escape(&variant.name),
                escape(&variant.summary)
            )
        })
        .collect();
    format!("<section>\n<h2>Variants</h2>\n<ul class=\"legend\">\n{items}</ul>\n</section>\n")
}

/// Each variant over all workloads.
pub(crate) fn suites(report: &Report) -> String {
    if report.suites.is_empty() {
        return String::new();
    }
    let caption = "Geometric mean of the ratios of all workloads' primary metrics, rates turned \
                   upside down: below 1 is better. All workloads count the same.";
    let mut table =
        HtmlTable::new("matrix", caption).text("variant").text("host load").text("ratio");
    for suite in &report.suites {
        let ratio = suite.judgement.ratio.as_ref();
        let shown = ratio.map(ratio_centre).unwrap_or_default();
        let span = ratio.and_then(ratio_span).unwrap_or_default();
        let workloads = counted(suite.workloads as usize, "workload");
        let blocks = counted(suite.judgement.blocks as usize, "block");
        table.row(vec![
            suite.variant.as_str().into(),
            suite.load.as_str().into(),
            Td::Html(format!("<strong>{shown}</strong> {span} ({workloads}, {blocks})")),
        ]);
    }
    format!("<section>\n<h2>All workloads together</h2>\n{}</section>\n", table.finish())
}

/// Variants by loads and workloads, of the primary metrics. Left out where it
/// would repeat a single verdict.
pub(crate) fn matrix(report: &Report) -> String {
    let groups: Vec<&ResultGroup> = report.groups.iter().filter(|group| group.primary).collect();
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
    let mut table = HtmlTable::new("matrix", caption).text("variant");
    for group in &groups {
        table = table.text(&format!("{}, {}: {}", group.workload, group.load, group.metric.name));
    }
    for variant in report.variants.iter().filter(|variant| variant.role != VariantRole::Baseline) {
        let mut cells = vec![Td::from(variant.name.as_str())];
        for group in &groups {
            let judgement = group.cell(&variant.name).and_then(|cell| cell.judgement.as_ref());
            cells.push(match judgement {
                None => Td::Of("quiet", "no value".to_owned()),
                Some(judgement) => {
                    let ratio = judgement.ratio.as_ref();
                    let Label { word, sign, class } =
                        label(judgement.verdict, variant.role, &group.metric);
                    let interval = ratio.and_then(ratio_span).map(|span| format!("{span} "));
                    let html = format!(
                        "<strong><span aria-hidden=\"true\">{sign}</span> {}</strong>{}{word}",
                        ratio.map(ratio_centre).unwrap_or_default(),
                        interval.unwrap_or_default(),
                    );
                    Td::Of(class, html)
                }
            });
        }
        table.row(cells);
    }
    format!("<section>\n<h2>At a glance</h2>\n{}</section>\n", table.finish())
}
