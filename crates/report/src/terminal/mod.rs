//! The report for a terminal: verdicts first, then numbers, then reasons.

mod layout;

use crate::account_text;
use crate::figure::values::no_value;
use crate::host_beside;
use crate::profile_text;
use crate::published::{
    agreement_word, circumstances, claim_heads, published_value, rows, shown_ratio, sources,
    tells_agreement, tells_sd,
};
use crate::quantity::{
    UnitScale, counted, own_prefix, percent, percentile, ratio_centre, ratio_estimate,
};
use crate::sentence::{
    VariantVerdict, count_of, count_values, counter_change, counts_title, each_operation, headline,
    label, load_heading, under_load, what_is_missing, without_verdict,
};
use crate::verdict::{Label, class_sgr};
use crate::{
    CellResults, CountScope, CounterRow, Curve, Report, ResultGroup, TABLE_SHARES, TrialFailure,
    VariantRole, WorkloadLatencies,
};
pub(crate) use layout::{Align, TextTable};
use layout::{one_line, wrap};

/// How text for a terminal may look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TerminalStyle {
    /// Colours and weights by ANSI escape sequences.
    pub colour: bool,
}

/// Verdicts and movers that are printed before the rest is only counted.
const SHOWN_VERDICTS: usize = 8;
const SHOWN_MOVERS: usize = 4;

/// Counts that are printed before the rest is only counted.
const SHOWN_COUNTS: usize = 12;

/// Columns of the verdict's word: `≈ no difference` and two spaces.
const CHIP: usize = 17;

/// The least width that is laid out; narrower terminals wrap by themselves.
const MIN_WIDTH: usize = 40;

/// The report as text of at most `width` columns (at least 40).
#[must_use]
pub fn terminal(report: &Report, width: usize, style: TerminalStyle) -> String {
    let mut out = Printer::new(width, style);
    heading(report, &mut out);
    verdicts(report, &mut out);
    for group in &report.groups {
        numbers(report, group, &mut out);
        published(report, group, &mut out);
        accounts(report, group, &mut out);
        movers(report, group, &mut out);
        counts(report, group, &mut out);
        let is_here =
            |other: &&ResultGroup| (&other.workload, &other.load) == (&group.workload, &group.load);
        // Once for all metrics of a workload, behind its first.
        if report.groups.iter().find(is_here).is_some_and(|first| std::ptr::eq(first, group)) {
            distributions(report, group, &mut out);
            profiles(report, group, &mut out);
            host_beside(report, group, &mut out);
        }
    }
    if let Some(why) = account_text::of_prices(report) {
        out.blank();
        out.paragraph("", &why, None);
    }
    failures(report, &mut out);
    if !report.files.is_empty() {
        out.blank();
        for fact in &report.files {
            out.paragraph("", &format!("{}: {}", fact.name, fact.value), None);
        }
    }
    out.text
}

/// ANSI "select graphic rendition" parameters. Cyan and yellow stay apart for
/// all kinds of colour vision; every colour stands beside a word.
#[derive(Clone, Copy)]
pub(crate) enum Paint {
    Bold,
    Quiet,
    Better,
    Worse,
    Alarm,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Bold => "1",
            Self::Quiet => "2",
            Self::Better => class_sgr("better").unwrap_or_default(),
            Self::Worse => class_sgr("worse").unwrap_or_default(),
            Self::Alarm => class_sgr("invalid").unwrap_or_default(),
        }
    }

    pub(crate) fn of(label: Label) -> Self {
        match label.class {
            "better" => Self::Better,
            "worse" => Self::Worse,
            "invalid" => Self::Alarm,
            _ => Self::Quiet,
        }
    }
}

pub(crate) struct Printer {
    pub(crate) text: String,
    width: usize,
    style: TerminalStyle,
}

impl Printer {
    /// Nothing yet; `width` columns, at least 40.
    pub(crate) fn new(width: usize, style: TerminalStyle) -> Self {
        Self { text: String::new(), width: width.max(MIN_WIDTH), style }
    }

    pub(crate) fn blank(&mut self) {
        self.text.push('\n');
    }

    fn line(&mut self, line: &str, paint: Option<Paint>) {
        let line = self.painted(line.trim_end(), paint);
        self.text.push_str(&line);
        self.text.push('\n');
    }

    fn painted(&self, text: &str, paint: Option<Paint>) -> String {
        match paint {
            Some(paint) if self.style.colour && !text.is_empty() => {
                format!("\u{1b}[{}m{text}\u{1b}[0m", paint.code())
            }
            _ => text.to_owned(),
        }
    }

    /// Wrapped text behind `indent`.
    pub(crate) fn paragraph(&mut self, indent: &str, text: &str, paint: Option<Paint>) {
        for line in wrap(text, self.width - indent.len()) {
            let line = format!("{indent}{line}");
            self.line(&line, paint);
        }
    }

    /// A verdict's sign and word, and beside them a text.
    pub(crate) fn verdict(&mut self, label: Label, text: &str) {
        let chip = format!("{} {}", label.sign, label.word);
        let paint = Some(Paint::of(label));
        let indent = " ".repeat(CHIP);
        for (i, line) in wrap(text, self.width - CHIP).into_iter().enumerate() {
            let margin = if i == 0 {
                format!("{}{}", self.painted(&chip, paint), " ".repeat(CHIP - layout::width(&chip)))
            } else {
                indent.clone()
            };
            self.line(&format!("{margin}{line}"), None);
        }
    }

    pub(crate) fn table(&mut self, table: &TextTable) {
        for line in table.lines(self.width) {
            let paint = line.head.then_some(Paint::Quiet);
            self.line(&line.text, paint);
        }
    }
}

fn heading(report: &Report, out: &mut Printer) {
    out.paragraph("", &report.title, Some(Paint::Bold));
    if let Some(question) = &report.question {
        out.paragraph("", question, None);
    }
    let blocks = counted(report.method.blocks_done as usize, "block");
    out.paragraph("", &format!("Study {}, {blocks} done.", report.study), Some(Paint::Quiet));
    let paint = report.environment.is_emulated_time().then_some(Paint::Worse);
    out.paragraph("", &report.environment.sentence_on(report.place.as_deref()), paint);
    for line in report.environment.limits().into_iter().chain(report.environment_why.as_deref()) {
        out.paragraph("", line, Some(Paint::Quiet));
    }
    for warning in &report.warnings {
        out.paragraph("", &format!("Warning: {warning}"), Some(Paint::Worse));
    }
}

fn verdicts(report: &Report, out: &mut Printer) {
    let findings = headline(report);
    out.blank();
    if findings.is_empty() {
        for line in without_verdict(report) {
            out.paragraph("", &line, None);
        }
        return;
    }
    for finding in findings.iter().take(SHOWN_VERDICTS) {
        verdict(report, finding, out);
    }
    if findings.len() > SHOWN_VERDICTS {
        let more = counted(findings.len() - SHOWN_VERDICTS, "more verdict");
        out.paragraph("", &format!("{more} in the tables below."), None);
    }
    for suite in &report.suites {
        let Some(ratio) = &suite.judgement.ratio else { continue };
        let workloads = counted(suite.workloads as usize, "workload");
        let blocks = counted(suite.judgement.blocks as usize, "block");
        let text = format!(
            "All workloads together {}: {} {} (geometric mean of {workloads}, less is better, {blocks}).",
            under_load(&suite.load),
            suite.variant,
            ratio_estimate(ratio)
        );
        out.paragraph("", &text, None);
    }
}

fn verdict(report: &Report, finding: &VariantVerdict<'_>, out: &mut Printer) {
    out.verdict(finding.label(), &finding.sentence(report.environment));
}

fn numbers(report: &Report, group: &ResultGroup, out: &mut Printer) {
    let scale = UnitScale::of(group);
    out.blank();
    let title = format!(
        "{}, {}: {} ({}, {})",
        group.workload,
        load_heading(&group.load),
        group.metric.name,
        scale.unit_name(),
        group.metric.better
    );
    out.paragraph("", &title, Some(Paint::Bold));
    let mut table = TextTable::new(&[
        ("variant", Align::Left),
        ("boots", Align::Right),
        (&group.metric.name, Align::Left),
        ("ratio", Align::Left),
        ("verdict", Align::Left),
    ]);
    for cell in &group.cells {
        table.row(numbers_row(report, group, cell, &scale));
    }
    if !group.cells.is_empty() {
        out.table(&table);
    }
}

fn numbers_row(
    report: &Report,
    group: &ResultGroup,
    cell: &CellResults,
    scale: &UnitScale,
) -> Vec<String> {
    let counted = cell.boots.iter().filter(|boot| boot.counted).count();
    let value = match &cell.estimate {
        Some(estimate) => match scale.span(estimate) {
            Some(span) => format!("{} {span}", scale.number(estimate.centre)),
            None => scale.number(estimate.centre),
        },
        None => no_value(report, group, &cell.variant),
    };
    let variant = report.variants.iter().find(|variant| variant.name == cell.variant);
    let role = variant.map_or(VariantRole::Candidate, |variant| variant.role);
    let (ratio, verdict) = match &cell.judgement {
        Some(judgement) => {
            let label = label(judgement.verdict, role, &group.metric);
            let ratio = judgement.ratio.as_ref().map(ratio_estimate).unwrap_or_default();
            (ratio, format!("{} {}", label.sign, label.word))
        }
        None if role == VariantRole::Baseline => (String::new(), "baseline".to_owned()),
        None => (String::new(), "not compared".to_owned()),
    };
    vec![cell.variant.clone(), counted.to_string(), value, ratio, verdict]
}

fn published(report: &Report, group: &ResultGroup, out: &mut Printer) {
    if !group.tells_published() {
        return;
    }
    if !group.published.is_empty() {
        published_values(report, group, out);
    }
    if !group.claims.is_empty() {
        claims(report, group, out);
    }
    for source in sources(group) {
        out.paragraph("  ", &format!("Source: {source}"), Some(Paint::Quiet));
    }
}

/// What was published that is no variant's value.
fn claims(report: &Report, group: &ResultGroup, out: &mut Printer) {
    if !group.cells.is_empty() || !group.published.is_empty() {
        out.blank();
    }
    let circumstances = circumstances(report);
    let found = report.environment.participle();
    let title = format!("Published orders and ratios, beside {found}{circumstances}");
    out.paragraph("", &title, None);
    let mut table = TextTable::new(&claim_heads(report).map(|head| (head, Align::Left)));
    for claim in &group.claims {
        table.row(claim.cells().into());
    }
    out.table(&table);
}

fn published_values(report: &Report, group: &ResultGroup, out: &mut Printer) {
    let scale = UnitScale::of(group);
    if !group.cells.is_empty() {
        out.blank();
    }
    let circumstances = circumstances(report);
    let found = report.environment.participle();
    let [ratio, sd] = ["ratio", "SD"].map(|what| format!("{found} {what}"));
    out.paragraph("", &format!("Published beside {found}{circumstances} (compare the ratios: machines differ, and how much work was done)"), None);
    let mut heads = vec![
        ("variant", Align::Left),
        ("published", Align::Right),
        (found, Align::Right),
        ("published ratio", Align::Right),
        (ratio.as_str(), Align::Right),
    ];
    let with_sd = tells_sd(group);
    if with_sd {
        heads.extend([("published SD", Align::Right), (sd.as_str(), Align::Right)]);
    }
    let is_judged = tells_agreement(group);
    if is_judged {
        heads.push(("judged", Align::Left));
    }
    let mut table = TextTable::new(&heads);
    let shown = |value: Option<f64>, without: &str| {
        value.map_or_else(|| without.to_owned(), |value| scale.show(value))
    };
    for row in rows(report, group) {
        let published_ratio = row.published_ratio.filter(|_| !row.is_baseline);
        let mut cells = vec![
            row.published.variant.clone(),
            published_value(row.published, &scale),
            shown(row.measured.map(|measured| measured.centre), "none"),
            published_ratio.map(shown_ratio).unwrap_or_default(),
            row.measured_ratio.as_ref().map(ratio_centre).unwrap_or_default(),
        ];
        if with_sd {
            cells.push(shown(row.published.sd(), "not told"));
            cells.push(shown(row.measured_sd, "none"));
        }
        if is_judged {
            cells.push(agreement_word(row.published.agreement).to_owned());
        }
        table.row(cells);
    }
    out.table(&table);
}

/// What the host did beside the trials of the group's workload, if that is
/// notable.
fn host_beside(report: &Report, group: &ResultGroup, out: &mut Printer) {
    let here = report
        .host_beside
        .iter()
        .find(|beside| (&beside.workload, &beside.load) == (&group.workload, &group.load));
    let Some(beside) = here.filter(|beside| host_beside::is_notable(report, beside)) else {
        return;
    };
    out.blank();
    out.paragraph("", "The host beside the trials, of the VM's pCPUs' time (greatest)", None);
    let align = |place| if place == 0 { Align::Left } else { Align::Right };
    let heads = host_beside::HEADS.iter().enumerate();
    let heads: Vec<(&str, Align)> = heads.map(|(place, head)| (*head, align(place))).collect();
    let mut table = TextTable::new(&heads);
    for row in host_beside::rows(beside) {
        table.row(row.into());
    }
    out.table(&table);
}

fn accounts(report: &Report, group: &ResultGroup, out: &mut Printer) {
    let Some(baseline) = report.baseline() else { return };
    for account in report.accounts(group) {
        out.blank();
        out.paragraph("", &account.title(report, &baseline.name), None);
        out.paragraph("", &account.sentence(report, &baseline.name), None);
        let align = |place| if place == 0 { Align::Left } else { Align::Right };
        let heads = [""].into_iter().chain(account_text::HEADS).enumerate();
        let heads: Vec<(&str, Align)> = heads.map(|(place, head)| (head, align(place))).collect();
        let mut table = TextTable::new(&heads);
        for row in account.rows(report) {
            table.row(row.into());
        }
        out.table(&table);
        for note in account.notes() {
            out.paragraph("  ", &note, Some(Paint::Quiet));
        }
    }
}

/// Where processors spent their time at the group's workload and load.
fn profiles(report: &Report, group: &ResultGroup, out: &mut Printer) {
    for of in report.profiles_of(&group.workload).filter(|of| of.load == group.load) {
        for side in &of.sides {
            out.blank();
            out.paragraph("", &side.title(report, of), None);
            out.paragraph("", &side.sentence(), None);
            let align = |place| if place == 0 { Align::Left } else { Align::Right };
            let heads = ["function"].into_iter().chain(profile_text::HEADS).enumerate();
            let heads: Vec<(&str, Align)> =
                heads.map(|(place, head)| (head, align(place))).collect();
            let mut table = TextTable::new(&heads);
            for function in &side.functions {
                table.row(function.row().into());
            }
            out.table(&table);
        }
        for missing in &of.missing {
            out.paragraph("  ", missing, Some(Paint::Quiet));
        }
    }
    for overhead in report.overheads_of(&group.workload).filter(|of| of.load == group.load) {
        out.paragraph("  ", &overhead.sentence(), Some(Paint::Quiet));
    }
}

fn movers(report: &Report, group: &ResultGroup, out: &mut Printer) {
    let Some(baseline) = report.baseline() else { return };
    for variant in &report.variants {
        let moved: Vec<_> =
            group.movers.iter().filter(|moved| moved.variant == variant.name).collect();
        if moved.is_empty() {
            continue;
        }
        out.blank();
        let title =
            format!("Why: what moved most from {} to {}, per run", baseline.name, variant.name);
        out.paragraph("", &title, None);
        let mut table = TextTable::new(&[
            ("counter", Align::Left),
            ("from", Align::Right),
            ("to", Align::Right),
            ("change", Align::Right),
            ("what it counts", Align::Left),
        ]);
        for moved in moved.iter().take(SHOWN_MOVERS) {
            let mut meaning = moved.meaning.clone();
            if moved.per_operation.is_some() {
                let each = each_operation(moved);
                meaning.push_str(if meaning.is_empty() { "" } else { "; " });
                meaning.push_str(&format!("each operation {each}"));
            }
            table.row(vec![
                moved.counter.clone(),
                own_prefix(&moved.unit, moved.baseline_value),
                own_prefix(&moved.unit, moved.variant_value),
                counter_change(moved),
                meaning,
            ]);
        }
        out.table(&table);
        if moved.len() > SHOWN_MOVERS {
            let more = moved.len() - SHOWN_MOVERS;
            out.paragraph("  ", &format!("{more} more in the HTML report"), Some(Paint::Quiet));
        }
    }
}

/// Counts where they are the result: where time is emulated.
fn counts(report: &Report, group: &ResultGroup, out: &mut Printer) {
    if group.counts.is_empty() || !report.environment.is_emulated_time() {
        return;
    }
    let shown = &group.counts[..group.counts.len().min(SHOWN_COUNTS)];
    for of in [CountScope::Operation, CountScope::Run, CountScope::End] {
        let rows: Vec<&CounterRow> = shown.iter().filter(|count| count.of == of).collect();
        if rows.is_empty() {
            continue;
        }
        out.blank();
        let title = format!("{}, by {}", counts_title(report), count_of(of));
        out.paragraph("", &title, None);
        counts_table(report, &rows, out);
    }
    if group.counts.len() > shown.len() {
        let more = group.counts.len() - shown.len();
        out.paragraph("  ", &format!("{more} more in the HTML report"), Some(Paint::Quiet));
    }
}

/// Counters as rows, variants as columns; below each other where they are too
/// many for one line.
fn counts_table(report: &Report, rows: &[&CounterRow], out: &mut Printer) {
    let values: Vec<Vec<String>> = rows.iter().map(|count| count_values(report, count)).collect();
    let column = |index: usize, name: &str| {
        let cells: Vec<String> =
            values.iter().map(|row| row.get(index).cloned().unwrap_or_default()).collect();
        let width = cells.iter().map(|cell| layout::width(cell)).max().unwrap_or(0);
        (name.to_owned(), width.max(layout::width(name)) + layout::GAP, cells)
    };
    let columns: Vec<_> =
        report.variants.iter().enumerate().map(|(i, variant)| column(i, &variant.name)).collect();
    let names = rows.iter().map(|count| layout::width(&count.counter)).max().unwrap_or(0);
    let room = out.width.saturating_sub(names + layout::GAP);
    let mut rest = &columns[..];
    while !rest.is_empty() {
        let mut used = 0;
        let fit = rest.iter().take_while(|(_, width, _)| {
            used += width;
            used <= room
        });
        let (now, later) = rest.split_at(fit.count().max(1));
        rest = later;
        let heads = now.iter().map(|(name, _, _)| (&**name, Align::Right));
        let heads: Vec<_> = [("counter", Align::Left)].into_iter().chain(heads).collect();
        let mut table = TextTable::new(&heads);
        for (i, count) in rows.iter().enumerate() {
            let cells = now.iter().map(|(_, _, cells)| cells[i].clone());
            table.row([count.counter.clone()].into_iter().chain(cells).collect());
        }
        out.table(&table);
    }
}

/// The distributions of the group's workload under its load.
fn distributions(report: &Report, group: &ResultGroup, out: &mut Printer) {
    let here = |found: &&WorkloadLatencies| {
        (&found.workload, &found.load) == (&group.workload, &group.load)
    };
    for found in report.distributions.iter().filter(here) {
        out.blank();
        let mut points = found.curves.iter().flat_map(|curve| &curve.quantiles);
        let band = match points.any(|point| point.estimate.interval.is_some()) {
            true => {
                let level = percent(report.method.level);
                format!(", with the {level} band of a bootstrap over boots")
            }
            false => String::new(),
        };
        let title = format!("Distribution of {}, all boots together{band}", found.name);
        out.paragraph("", &title, None);
        let variants = found.curves.iter().map(|curve| (&*curve.variant, Align::Left));
        let heads: Vec<_> = [("quantile", Align::Left)].into_iter().chain(variants).collect();
        let mut table = TextTable::new(&heads);
        for share in TABLE_SHARES {
            let value = |curve: &Curve| curve.quantile(share).map(|quantile| quantile.estimate);
            if found.curves.iter().all(|curve| value(curve).is_none()) {
                continue;
            }
            let cell = |curve: &Curve| match value(curve) {
                Some(estimate) => UnitScale::for_values(&found.unit, [estimate.centre].into_iter())
                    .show_estimate(&estimate),
                None => "none".to_owned(),
            };
            let name = [percentile(share)];
            table.row(name.into_iter().chain(found.curves.iter().map(cell)).collect());
        }
        let samples = found.curves.iter().map(|curve| curve.samples.to_string());
        table.row(["samples".to_owned()].into_iter().chain(samples).collect());
        out.table(&table);
        for note in what_is_missing(found) {
            out.paragraph("  ", &note, Some(Paint::Quiet));
        }
    }
}

/// Lines of a failure's detail that are printed.
const DETAIL_LINES: usize = 6;

fn failures(report: &Report, out: &mut Printer) {
    if report.failures.is_empty() {
        return;
    }
    out.blank();
    let title = format!("{} failed", counted(report.failures.len(), "trial"));
    out.paragraph("", &title, Some(Paint::Alarm));
    for failure in &report.failures {
        print_failure(failure, out);
    }
}

fn print_failure(failure: &TrialFailure, out: &mut Printer) {
    let trial = &failure.trial;
    let title = format!(
        "✕ {} at {} {}, block {}: {}",
        trial.variant,
        trial.workload,
        under_load(&trial.load),
        trial.block,
        failure.failure.kind
    );
    out.paragraph("", &title, None);
    let mut lines: Vec<String> = Vec::new();
    for line in failure.failure.detail.lines() {
        lines.extend(wrap(line, out.width - 2));
    }
    for line in lines.iter().take(DETAIL_LINES) {
        out.line(&format!("  {line}"), None);
    }
    if let Some(file) = &failure.state_file {
        out.paragraph(
            "  ",
            &format!("devices: vmlab state show {}", one_line(file)),
            Some(Paint::Quiet),
        );
    }
    let place = match (&failure.console_file, &failure.console_tail) {
        (Some(file), _) => format!("console: {}", one_line(file)),
        (None, Some(_)) => "console: its last lines are in the HTML report".to_owned(),
        (None, None) => return,
    };
    out.paragraph("  ", &place, Some(Paint::Quiet));
}
