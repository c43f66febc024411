//! The results, workload by workload: figures, numbers, reasons.

use crate::figure::forest::{self, class, published_ratio};
use crate::figure::values::{index_of, no_value};
use crate::figure::{marker, order, values};
use crate::html::escape;
use crate::html::summary::sign;
use crate::html::table::Table;
use crate::quantity::{Scale, own_prefix, percent, ratio, ratio_centre, ratio_span};
use crate::sentence::{boot_statistic, counter_change, word};
use crate::{CounterMove, Group, Report, Role};

/// All workloads with all their metrics; loads lie side by side in each.
pub(crate) fn sections(report: &Report) -> String {
    let mut text = String::new();
    for (i, workload) in names(report.groups.iter().map(|g| g.workload.as_str())).iter().enumerate()
    {
        let groups: Vec<&Group> =
            report.groups.iter().filter(|group| group.workload == *workload).collect();
        text.push_str(&format!("<section>\n<h2>{}</h2>\n", escape(workload)));
        if let Some(named) = report.workloads.iter().find(|named| named.name == *workload) {
            text.push_str(&format!("<p class=\"quiet\">{}</p>\n", escape(&named.summary)));
        }
        let metrics = names(groups.iter().map(|group| group.metric.name.as_str()));
        for (j, metric) in metrics.iter().enumerate() {
            let groups: Vec<&Group> =
                groups.iter().copied().filter(|group| group.metric.name == *metric).collect();
            let body = metric_body(report, &groups, &format!("f{i}-{j}"));
            let better = groups.first().map(|g| g.metric.better.to_string()).unwrap_or_default();
            let heading = format!("{} <span class=\"quiet\">({better})</span>", escape(metric));
            if groups.iter().any(|group| group.primary) {
                text.push_str(&format!("<h3>{heading}</h3>\n{body}"));
            } else {
                text.push_str(&format!(
                    "<details><summary>Further metric: {heading}</summary>\n{body}</details>\n"
                ));
            }
        }
        text.push_str("</section>\n");
    }
    text
}

/// Each name once, in the order of its first appearance.
fn names<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut names = Vec::new();
    for name in all {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn metric_body(report: &Report, groups: &[&Group], id: &str) -> String {
    let mut text = numbers(report, groups);
    let statistic = groups.first().map_or("", |group| boot_statistic(group.metric.kind));
    let level = percent(report.method.level);
    let mut figures = vec![(
        "Every value",
        format!(
            "Black line: {level} interval around the centre of the boots. Marks: one boot each \
             ({statistic}). Dots: single samples."
        ),
        values::draw(report, groups, &format!("{id}v")),
    )];
    let margin = if groups.iter().any(|group| group.margin.is_some()) {
        " Shaded: differences too small to matter."
    } else {
        ""
    };
    figures.push((
        "Ratio to the baseline",
        format!("From within the blocks, with the {level} interval.{margin}"),
        forest::draw(report, groups, &format!("{id}r")),
    ));
    figures.push((
        "In the order of the run",
        "A slope that all variants share is drift of the host; dashed lines part the blocks."
            .to_owned(),
        order::draw(report, groups, &format!("{id}o")),
    ));
    let has_published = groups.iter().any(|group| !group.published.is_empty());
    if has_published {
        figures[0].1.push_str(" Hollow diamonds: published values.");
        figures[1].1.push_str(" Hollow diamonds: published ratios.");
    }
    text.push_str("<div class=\"figures\">\n");
    for (title, caption, figure) in figures {
        if !figure.is_empty() {
            text.push_str(&format!(
                "<figure><figcaption><strong>{title}</strong>{}</figcaption>{figure}</figure>\n",
                escape(&caption)
            ));
        }
    }
    text.push_str("</div>\n");
    text.push_str(&legend(report, groups));
    for group in groups {
        text.push_str(&published(report, group));
        text.push_str(&movers(report, group));
    }
    text
}

fn numbers(report: &Report, groups: &[&Group]) -> String {
    let several_loads = groups.len() > 1;
    let scale = Scale::for_values(
        &groups[0].metric.unit,
        groups.iter().flat_map(|g| &g.cells).flat_map(|c| &c.boots).map(|boot| boot.value),
    );
    let caption = format!("Numbers. Intervals: {}.", percent(report.method.level));
    let mut table = Table::new("numbers", caption).text("variant");
    if several_loads {
        table = table.text("host load");
    }
    let centre = format!("{} ({})", groups[0].metric.name, scale.unit_name());
    table = table
        .number("boots")
        .number(&centre)
        .number("interval")
        .number("ratio")
        .number("interval")
        .text("verdict");
    for group in groups {
        for cell in &group.cells {
            let index = index_of(report, &cell.variant);
            let mut row = vec![format!("{}{}", marker::inline(index), escape(&cell.variant))];
            if several_loads {
                row.push(escape(&group.load));
            }
            let counted = cell.boots.iter().filter(|boot| boot.counted).count();
            row.push(counted.to_string());
            match &cell.estimate {
                Some(estimate) => {
                    row.push(scale.number(estimate.centre));
                    row.push(estimate.interval.map_or("none".to_owned(), |s| scale.span(s)));
                }
                None => row.extend([no_value(report, group, &cell.variant), String::new()]),
            }
            let is_baseline = report.baseline().is_some_and(|b| b.name == cell.variant);
            match &cell.judgement {
                Some(judgement) => {
                    let ratio = judgement.ratio.as_ref();
                    row.push(ratio.map(ratio_centre).unwrap_or_default());
                    row.push(ratio.and_then(ratio_span).unwrap_or_else(|| "none".to_owned()));
                    row.push(format!(
                        "<td class=\"{}\"><span aria-hidden=\"true\">{}</span> {}</td>",
                        class(judgement.verdict),
                        sign(judgement.verdict),
                        word(judgement.verdict, &group.metric)
                    ));
                }
                None if is_baseline => {
                    row.extend([String::new(), String::new(), "baseline".to_owned()]);
                }
                None => row.extend([String::new(), String::new(), "not compared".to_owned()]),
            }
            table.row(&row);
        }
    }
    table.finish()
}

/// Which mark is which variant, and what the variant is.
fn legend(report: &Report, groups: &[&Group]) -> String {
    let shown = names(groups.iter().flat_map(|g| &g.cells).map(|cell| cell.variant.as_str()));
    let items: String = shown
        .iter()
        .map(|name| {
            let variant = report.variants.iter().find(|variant| variant.name == *name);
            let summary = variant.map(|v| v.summary.as_str()).filter(|s| !s.is_empty());
            let summary = summary
                .map(|s| format!(" <span class=\"quiet\">{}</span>", escape(s)))
                .unwrap_or_default();
            let role = match variant.map(|variant| variant.role) {
                Some(Role::Baseline) => " (baseline)",
                Some(Role::AaArm) => " (A/A: the baseline again)",
                _ => "",
            };
            let key = marker::inline(index_of(report, name));
            format!("<li>{key}{}{role}{summary}</li>\n", escape(name))
        })
        .collect();
    format!("<ul class=\"legend\" aria-label=\"Variants\">\n{items}</ul>\n")
}

fn published(report: &Report, group: &Group) -> String {
    let Some(baseline) = report.baseline() else { return String::new() };
    if group.published.is_empty() {
        return String::new();
    }
    let scale = Scale::of(group);
    let caption = format!(
        "Published beside measured, host load {}. Compare the ratios: the machines differ.",
        group.load
    );
    let mut table = Table::new("published", caption)
        .text("variant")
        .number("published")
        .number("measured")
        .number("published ratio")
        .number("measured ratio");
    for published in &group.published {
        let cell = group.cell(&published.variant);
        let estimate = cell.and_then(|cell| cell.estimate.as_ref());
        let measured = cell.and_then(|c| c.judgement.as_ref()).and_then(|j| j.ratio.as_ref());
        let is_baseline = baseline.name == published.variant;
        let ratio_of = published_ratio(group, &baseline.name, &published.variant);
        table.row(&[
            escape(&published.variant),
            scale.show(published.value),
            estimate.map(|e| scale.show(e.centre)).unwrap_or_else(|| "none".to_owned()),
            if is_baseline {
                "baseline".to_owned()
            } else {
                ratio_of.map(ratio).unwrap_or_default()
            },
            match measured {
                _ if is_baseline => "baseline".to_owned(),
                Some(ratio) => {
                    let span = ratio_span(ratio).unwrap_or_default();
                    format!("{}<small>{span}</small>", ratio_centre(ratio))
                }
                None => "none".to_owned(),
            },
        ]);
    }
    let sources: String = names(group.published.iter().map(|p| p.source.as_str()))
        .iter()
        .map(|source| format!("<p class=\"quiet\">Source: {}</p>\n", escape(source)))
        .collect();
    format!("<h4>Published beside measured</h4>\n{}{sources}", table.finish())
}

fn movers(report: &Report, group: &Group) -> String {
    let Some(baseline) = report.baseline() else { return String::new() };
    if group.movers.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h4>Why: the counters that moved most</h4>\n");
    for variant in names(group.movers.iter().map(|moved| moved.variant.as_str())) {
        let caption = format!("{variant} against {}, host load {}", baseline.name, group.load);
        let mut table = Table::new("movers", caption)
            .text("counter")
            .number(&baseline.name)
            .number(variant)
            .number("change")
            .text("what it counts");
        for moved in group.movers.iter().filter(|moved| moved.variant == variant) {
            let CounterMove { counter, unit, baseline_value, variant_value, meaning, .. } = moved;
            table.row(&[
                format!("<code>{}</code>", escape(counter)),
                own_prefix(unit, *baseline_value),
                own_prefix(unit, *variant_value),
                counter_change(moved),
                format!("<td class=\"meaning\">{}</td>", escape(meaning)),
            ]);
        }
        text.push_str(&table.finish());
    }
    text
}
