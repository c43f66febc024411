//! The results, workload by workload: figures, numbers, reasons.

use crate::account_text;
use crate::escape::escape;
use crate::figure::forest;
use crate::figure::values::{index_of, no_value};
use crate::figure::{distribution, flame, looks, marker, order, paired, values};
use crate::html::table::{HtmlTable, Td};
use crate::profile_text;
use crate::published::{
    agreement_word, circumstances, claim_heads, published_value, rows, shown_ratio, sources,
    tells_agreement, tells_sd,
};
use crate::quantity::{UnitScale, own_prefix, percent, percentile, ratio_centre, ratio_span};
use crate::sentence::{
    boot_statistic, count_of, count_values, counter_change, counts_title, each_operation, label,
    what_is_missing,
};
use crate::verdict::Label;
use crate::{CounterMove, Report, ResultGroup, TABLE_SHARES, VariantRole, WorkloadLatencies};

/// All workloads with all their metrics; loads lie side by side in each.
pub(crate) fn sections(report: &Report) -> String {
    let mut text = String::new();
    for (i, workload) in names(report.groups.iter().map(|g| g.workload.as_str())).iter().enumerate()
    {
        let groups: Vec<&ResultGroup> =
            report.groups.iter().filter(|group| group.workload == *workload).collect();
        text.push_str(&format!("<section>\n<h2>{}</h2>\n", escape(workload)));
        if let Some(named) = report.workloads.iter().find(|named| named.name == *workload) {
            text.push_str(&format!("<p class=\"quiet\">{}</p>\n", escape(&named.summary)));
        }
        text.push_str(&distributions(report, workload, &groups, i));
        let has_primary = groups.iter().any(|group| group.primary);
        let metrics = names(groups.iter().map(|group| group.metric.name.as_str()));
        for (j, metric) in metrics.iter().enumerate() {
            let groups: Vec<&ResultGroup> =
                groups.iter().copied().filter(|group| group.metric.name == *metric).collect();
            let body = metric_body(report, &groups, &format!("f{i}-{j}"));
            let better = groups.first().map(|g| g.metric.better.to_string()).unwrap_or_default();
            let heading = format!("{} <span class=\"quiet\">({better})</span>", escape(metric));
            // Numbers that a workload's headline is not about are folded away.
            if groups.iter().any(|group| group.primary) || !has_primary {
                text.push_str(&format!("<h3>{heading}</h3>\n{body}"));
            } else {
                // What others published is what a reader came for.
                let is_open = groups.iter().any(|group| group.tells_published());
                let open = if is_open { " open=\"\"" } else { "" };
                text.push_str(&format!(
                    "<details{open}><summary>Further metric: {heading}</summary>\n{body}</details>\n"
                ));
            }
        }
        text.push_str(&profiles(report, workload, i));
        text.push_str("</section>\n");
    }
    if let Some(why) = account_text::of_prices(report) {
        text.push_str(&format!("<p class=\"quiet\">{}</p>\n", escape(&why)));
    }
    text
}

/// The latency distributions of workload number `i`: figures, then quantiles.
fn distributions(report: &Report, workload: &str, groups: &[&ResultGroup], i: usize) -> String {
    let level = percent(report.method.level);
    let counted = format!(
        "Line: the samples of all boots together; it ends where fewer than 20 lie beyond. Band: \
         {level} of what comes out when whole boots are drawn anew (bootstrap over boots). From a \
         few boots it is too narrow: verdicts come from each boot's own quantile, block by block."
    );
    let printed = "The tool prints these quantiles and no samples. Line: the middle boot at each. \
                   Band: from the lowest boot to the highest.";
    let figures: String = [
        (&*counted, distribution::of_samples(report, workload, &format!("f{i}h"))),
        (printed, distribution::of_printed(report, groups, &format!("f{i}q"))),
    ]
    .iter()
    .filter(|(_, drawn)| !drawn.is_empty())
    .map(|(caption, drawn)| {
        let title = "<strong>Latency distribution</strong>";
        let caption = escape(caption);
        format!("<figure><figcaption>{title}{caption}</figcaption>{drawn}</figure>\n")
    })
    .collect();
    if figures.is_empty() {
        return String::new();
    }
    let found = report.distributions.iter().filter(|found| found.workload == workload);
    let tables: String = found.map(|found| quantiles(report, found)).collect();
    format!("<div class=\"figures\">\n{figures}</div>\n{tables}")
}

fn quantiles(report: &Report, found: &WorkloadLatencies) -> String {
    let caption = format!(
        "{}, host load {}: quantiles of all boots together, each with its band.",
        found.name, found.load
    );
    let mut table =
        HtmlTable::new("numbers", caption).text("variant").number("boots").number("samples");
    for share in TABLE_SHARES {
        table = table.number(&percentile(share));
    }
    for curve in &found.curves {
        let index = index_of(report, &curve.variant);
        let mut row = vec![
            Td::Html(marker::inline(index) + &escape(&curve.variant)),
            curve.boots.to_string().into(),
            curve.samples.to_string().into(),
        ];
        row.extend(TABLE_SHARES.map(|share| match curve.quantile(share) {
            Some(quantile) => {
                let scale =
                    UnitScale::for_values(&found.unit, [quantile.estimate.centre].into_iter());
                let span = scale.span(&quantile.estimate);
                let span = span.map_or_else(String::new, |span| format!("<small>{span}</small>"));
                Td::Html(format!("{}{span}", scale.show(quantile.estimate.centre)))
            }
            None => "none".into(),
        }));
        table.row(row);
    }
    let notes = what_is_missing(found).into_iter();
    let notes = notes.map(|note| format!("<p class=\"quiet\">{}</p>\n", escape(&note)));
    table.finish() + &notes.collect::<String>()
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

fn metric_body(report: &Report, groups: &[&ResultGroup], id: &str) -> String {
    let mut text = numbers(report, groups);
    let statistic = groups.first().map_or("", |group| boot_statistic(report, group));
    let level = percent(report.method.level);
    let mut figures = vec![(
        "Every value",
        format!(
            "Line with ends: {level} interval around the centre of the boots. Marks: one boot each \
             ({statistic}). Dots: single samples."
        ),
        values::draw(report, groups, &format!("{id}v")),
    )];
    let margin = if groups.iter().any(|group| group.margin.is_some()) {
        " Shaded: differences too small to matter."
    } else {
        ""
    };
    let has_aa = report.variants.iter().any(|variant| variant.role == VariantRole::AaArm);
    let floor = if has_aa { " Dotted: what the baseline differs from itself." } else { "" };
    figures.push((
        "Ratio to the baseline",
        format!("From within the blocks, with the {level} interval.{margin}{floor}"),
        forest::draw(report, groups, &format!("{id}r")),
    ));
    figures.push((
        "Block by block",
        "One line a block, from the baseline's boot to the variant's.".to_owned(),
        paired::draw(report, groups, &format!("{id}p")),
    ));
    figures.push((
        "Look by look",
        format!(
            "The ratio with its {level} interval after each block. The intervals hold for all \
             looks together.{margin}"
        ),
        looks::draw(report, groups, &format!("{id}l")),
    ));
    figures.push((
        "In the order of the run",
        "Lines join the boots of a variant; dashed lines part the blocks.".to_owned(),
        order::draw(report, groups, &format!("{id}o")),
    ));
    figures.push((
        "Drift",
        "The same boots as differences from their variant's centre. A slope that all share is \
         drift of the host; blocks keep it out of the ratios."
            .to_owned(),
        order::draw_drift(report, groups, &format!("{id}d")),
    ));
    let has_published = groups.iter().any(|group| !group.published.is_empty());
    if has_published {
        figures[0].1.push_str(" Hollow diamonds: published values.");
        figures[1].1.push_str(" Hollow diamonds: published ratios.");
    }
    figures.retain(|(_, _, figure)| !figure.is_empty());
    let figures: String = figures
        .iter()
        .map(|(title, caption, figure)| {
            let caption = escape(caption);
            format!("<figure><figcaption><strong>{title}</strong>{caption}</figcaption>{figure}</figure>\n")
        })
        .collect();
    if !figures.is_empty() {
        text.push_str(&format!("<div class=\"figures\">\n{figures}</div>\n"));
    }
    for group in groups {
        text.push_str(&steadiness(group));
        text.push_str(&published(report, group));
        text.push_str(&accounts(report, group));
        text.push_str(&movers(report, group));
        text.push_str(&counts(report, group));
    }
    text
}

/// What was counted of each variant; folded away where time is real and what
/// moved is shown.
fn counts(report: &Report, group: &ResultGroup) -> String {
    if group.counts.is_empty() {
        return String::new();
    }
    let caption = format!(
        "{}, host load {}: of each operation, of each run, or as it was at a run's end.",
        counts_title(report),
        group.load
    );
    let mut table = HtmlTable::new("movers", caption).text("counter").text("of each");
    for variant in &report.variants {
        table = table.number(&variant.name);
    }
    table = table.text("what it counts");
    for count in &group.counts {
        let mut row = vec![
            Td::Html(format!("<code>{}</code>", escape(&count.counter))),
            count_of(count.of).into(),
        ];
        row.extend(count_values(report, count).into_iter().map(Td::from));
        row.push(Td::Of("meaning", escape(&count.meaning)));
        table.row(row);
    }
    let open = report.environment.is_emulated_time() || group.movers.is_empty();
    format!(
        "<details{}><summary>What was counted, host load {}</summary>\n{}</details>\n",
        if open { " open=\"\"" } else { "" },
        escape(&group.load),
        table.finish()
    )
}

fn numbers(report: &Report, groups: &[&ResultGroup]) -> String {
    let several_loads = groups.len() > 1;
    let scale = UnitScale::for_values(
        &groups[0].metric.unit,
        groups.iter().flat_map(|g| &g.cells).flat_map(|c| &c.boots).map(|boot| boot.value),
    );
    let level = percent(report.method.level);
    let baseline = report.baseline().map_or("the baseline", |variant| variant.name.as_str());
    let caption =
        format!("Centre of the boots and ratio to {baseline}, each with its {level} interval.");
    let mut table = HtmlTable::new("numbers", caption).text("variant");
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
            let mut row = vec![Td::Html(marker::inline(index) + &escape(&cell.variant))];
            if several_loads {
                row.push(group.load.as_str().into());
            }
            let counted = cell.boots.iter().filter(|boot| boot.counted).count();
            row.push(counted.to_string().into());
            match &cell.estimate {
                Some(estimate) => {
                    row.push(scale.number(estimate.centre).into());
                    row.push(scale.span(estimate).map_or("none".into(), Td::from));
                }
                None => row.extend([no_value(report, group, &cell.variant).into(), "".into()]),
            }
            let role = report.variants.get(index).map_or(VariantRole::Candidate, |v| v.role);
            match &cell.judgement {
                Some(judgement) => {
                    let ratio = judgement.ratio.as_ref();
                    row.push(ratio.map(ratio_centre).unwrap_or_default().into());
                    row.push(ratio.and_then(ratio_span).map_or("none".into(), Td::from));
                    let Label { word, sign, class } = label(judgement.verdict, role, &group.metric);
                    let sign = format!("<span aria-hidden=\"true\">{sign}</span>");
                    row.push(Td::Of(class, format!("{sign} {word}")));
                }
                None if role == VariantRole::Baseline => {
                    row.extend(["".into(), "".into(), "baseline".into()]);
                }
                None => row.extend(["".into(), "".into(), "not compared".into()]),
            }
            table.row(row);
        }
    }
    table.finish()
}

fn steadiness(group: &ResultGroup) -> String {
    if group.steadiness.is_empty() {
        return String::new();
    }
    let rows: String = group
        .steadiness
        .iter()
        .map(|fact| format!("<dt>{}</dt><dd>{}</dd>", escape(&fact.name), escape(&fact.value)))
        .collect();
    format!(
        "<details><summary>How steady, host load {}</summary>\n<dl>{rows}</dl></details>\n",
        escape(&group.load)
    )
}

fn published(report: &Report, group: &ResultGroup) -> String {
    if !group.tells_published() {
        return String::new();
    }
    let values =
        if group.published.is_empty() { String::new() } else { published_values(report, group) };
    let sources: String = sources(group)
        .iter()
        .map(|source| format!("<p class=\"quiet\">Source: {}</p>\n", escape(source)))
        .collect();
    let found = report.environment.participle();
    format!("<h4>Published beside {found}</h4>\n{values}{}{sources}", claims(report, group))
}

/// What was published that is no variant's value.
fn claims(report: &Report, group: &ResultGroup) -> String {
    let circumstances = circumstances(report);
    let caption = format!("Orders and ratios; host load {}{circumstances}.", group.load);
    let [published, found, judged] = claim_heads(report);
    let mut table = HtmlTable::new("published", caption).text(published).number(found).text(judged);
    for claim in &group.claims {
        table.row(claim.cells().map(Td::from).into());
    }
    table.finish()
}

fn published_values(report: &Report, group: &ResultGroup) -> String {
    let scale = UnitScale::of(group);
    let caption = format!(
        "Host load {}{}. Compare the ratios: machines differ, and how much work was done.",
        group.load,
        circumstances(report)
    );
    let found = report.environment.participle();
    let mut table = HtmlTable::new("published", caption)
        .text("variant")
        .number("published")
        .number(found)
        .number("published ratio")
        .number(&format!("{found} ratio"));
    let with_sd = tells_sd(group);
    if with_sd {
        table = table.number("published SD").number(&format!("{found} SD"));
    }
    let is_judged = tells_agreement(group);
    if is_judged {
        table = table.text("judged");
    }
    let shown = |value: Option<f64>, without: &str| -> Td {
        value.map_or_else(|| without.into(), |value| scale.show(value).into())
    };
    for row in rows(report, group) {
        let mut cells: Vec<Td> = vec![
            row.published.variant.as_str().into(),
            published_value(row.published, &scale).into(),
            shown(row.measured.map(|measured| measured.centre), "none"),
            match row.published_ratio {
                _ if row.is_baseline => "baseline".into(),
                published => published.map(shown_ratio).unwrap_or_default().into(),
            },
            match &row.measured_ratio {
                _ if row.is_baseline => "baseline".into(),
                Some(ratio) => {
                    let span = ratio_span(ratio).unwrap_or_default();
                    Td::Html(format!("{}<small>{span}</small>", ratio_centre(ratio)))
                }
                None => "none".into(),
            },
        ];
        if with_sd {
            cells.push(shown(row.published.sd(), "not told"));
            cells.push(shown(row.measured_sd, "none"));
        }
        if is_judged {
            cells.push(agreement_word(row.published.agreement).into());
        }
        table.row(cells);
    }
    table.finish()
}

fn accounts(report: &Report, group: &ResultGroup) -> String {
    let Some(baseline) = report.baseline() else { return String::new() };
    let mut text = String::new();
    for account in report.accounts(group) {
        let title = account.title(report, &baseline.name);
        let sentence = account.sentence(report, &baseline.name);
        let mut table = HtmlTable::new("numbers", title).text("what");
        for head in account_text::HEADS {
            table = table.number(head);
        }
        for row in account.rows(report) {
            table.row(row.map(Td::from).into());
        }
        let notes = account.notes().into_iter();
        let notes = notes.map(|note| format!("<p class=\"quiet\">{}</p>\n", escape(&note)));
        text.push_str(&format!(
            "<h4>Why: the difference taken apart</h4>\n<p>{}</p>\n{}{}",
            escape(&sentence),
            table.finish(),
            notes.collect::<String>()
        ));
    }
    text
}

/// Where processors spent their time at workload number `i`.
fn profiles(report: &Report, workload: &str, i: usize) -> String {
    let mut text = String::new();
    let paragraph = |class: &str, words: &str| format!("<p{class}>{}</p>\n", escape(words));
    for (j, of) in report.profiles_of(workload).enumerate() {
        for side in &of.sides {
            let title = side.title(report, of);
            let id = format!("f{i}g{j}{}", side.side.name());
            let caption = "Each box is a function below the one that called it, as wide as its \
                           part of the samples (the mean of both). Blue has less than the \
                           baseline, orange more, and the stronger the more; grey differs by no \
                           more than the blocks do. Numbers: point at a box, or read the table.";
            text.push_str(&paragraph("", &side.sentence()));
            text.push_str(&format!(
                "<figure class=\"flame\"><figcaption><strong>{}</strong>{caption}</figcaption>\
                 <div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">{}</div></figure>\n",
                escape(&title),
                escape(&title),
                flame::draw(side, &id, &title)
            ));
            let mut table = HtmlTable::new(
                "numbers",
                "Functions whose part of the samples differs most, with what they call",
            )
            .text("function");
            for head in profile_text::HEADS {
                table = table.number(head);
            }
            for function in &side.functions {
                table.row(function.row().map(Td::from).into());
            }
            text.push_str(&table.finish());
        }
        for missing in &of.missing {
            text.push_str(&paragraph(" class=\"quiet\"", missing));
        }
    }
    for overhead in report.overheads_of(workload) {
        text.push_str(&paragraph(" class=\"quiet\"", &overhead.sentence()));
    }
    if text.is_empty() {
        return text;
    }
    format!("<h3>Where the time went</h3>\n{text}")
}

fn movers(report: &Report, group: &ResultGroup) -> String {
    let Some(baseline) = report.baseline() else { return String::new() };
    if group.movers.is_empty() {
        return String::new();
    }
    let mut text = String::from("<h4>Why: the counters that moved most, per run</h4>\n");
    for variant in names(group.movers.iter().map(|moved| moved.variant.as_str())) {
        let caption = format!("{variant} against {}, host load {}", baseline.name, group.load);
        let of_variant = || group.movers.iter().filter(|moved| moved.variant == variant);
        let by_operation = of_variant().any(|moved| moved.per_operation.is_some());
        let mut table = HtmlTable::new("movers", caption)
            .text("counter")
            .number(&baseline.name)
            .number(variant)
            .number("change");
        if by_operation {
            table = table.number("an operation");
        }
        table = table.text("what it counts");
        for moved in of_variant() {
            let CounterMove { counter, unit, baseline_value, variant_value, meaning, .. } = moved;
            let mut row = vec![
                Td::Html(format!("<code>{}</code>", escape(counter))),
                own_prefix(unit, *baseline_value).into(),
                own_prefix(unit, *variant_value).into(),
                counter_change(moved).into(),
            ];
            if by_operation {
                row.push(each_operation(moved).into());
            }
            row.push(Td::Of("meaning", escape(meaning)));
            table.row(row);
        }
        text.push_str(&table.finish());
    }
    text
}
