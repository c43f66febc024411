//! A roll-out as one HTML page: what to do, and for each counter how its interval narrowed
//! from day to day. What a roll-out is and says is `fleet`'s.

use record::Environment;

use crate::escape::escape;
use crate::figure::looks;
use crate::html::{HtmlTable, PageWidth, Td, chip, page};
use crate::quantity::{counted, ratio_centre, ratio_span};
use crate::{Label, ShownEstimate};

/// A roll-out, in words and numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutPage {
    /// What is rolled out.
    pub title: String,
    /// What to do; none where nothing is changed yet.
    pub step: Option<Label>,
    /// Since when, and how sure it is.
    pub about: String,
    /// In what the counters were read.
    pub environments: Vec<Environment>,
    /// Each counter's answer.
    pub metrics: Vec<RolloutPageMetric>,
    /// What a reader should know.
    pub notes: Vec<String>,
}

/// A counter of a roll-out.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutPageMetric {
    /// Its name and in what it is counted.
    pub name: String,
    /// Which way it is better, and the margin, in words.
    pub meaning: String,
    /// The harm that must be excluded, as a part of 1.
    pub margin: f64,
    /// What is known of the difference.
    pub verdict: Label,
    /// Why it says what it says; empty where nothing is changed yet.
    pub reason: String,
    /// Every day's look.
    pub looks: Vec<RolloutPageLook>,
    /// The look that decided.
    pub decided_day: Option<u32>,
    /// What hosts do without any change and when an answer is to be expected, a sentence
    /// each.
    pub outlook: Vec<String>,
    /// How many hosts a cohort needs by a day; more than are told where it is none.
    pub sizes: Vec<(u32, Option<u32>)>,
}

/// A day's look.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutPageLook {
    /// Days since the change.
    pub day: u32,
    /// Hosts that count: changed ones, and others.
    pub hosts: [u32; 2],
    /// Changed by unchanged hosts; none where they were too few.
    pub ratio: Option<ShownEstimate>,
    /// What to do by this look alone.
    pub step: Label,
}

/// The roll-out as one self-contained page.
#[must_use]
pub fn rollout_html(rollout: &RolloutPage) -> String {
    let mut body = format!("<header>\n<h1>{}</h1>\n", escape(&rollout.title));
    body.push_str(&format!("<p class=\"about\">{}</p>\n", escape(&rollout.about)));
    for environment in &rollout.environments {
        let kind = if environment.is_emulated_time() { "banner" } else { "banner plain" };
        let sentence = escape(environment.sentence());
        body.push_str(&format!(
            "<div class=\"{kind}\" role=\"note\"><p><strong>{sentence}</strong></p>"
        ));
        let limits = environment.limits().into_iter();
        body.extend(limits.map(|line| format!("<p>{}</p>", escape(line))));
        body.push_str("</div>\n");
    }
    body.push_str("</header>\n<main>\n");
    body.push_str(&verdicts(rollout));
    body.push_str(&notes(&rollout.notes));
    for (i, metric) in rollout.metrics.iter().enumerate() {
        body.push_str(&section(metric, &format!("r{i}")));
    }
    body.push_str("</main>\n<footer>Written by vmlab rollout.</footer>\n");
    page(&rollout.title, PageWidth::Text, &body)
}

/// What to do, and what of each counter says so.
fn verdicts(rollout: &RolloutPage) -> String {
    let Some(step) = rollout.step else { return String::new() };
    let mut text = String::from("<section aria-label=\"Verdicts\">\n<ul class=\"verdicts\">\n");
    let mut item = |label: Label, claim: &str, reason: &str| {
        text.push_str(&format!(
            "<li><span>{}</span><div><p class=\"claim\">{}</p><p>{}</p></div></li>\n",
            chip(label),
            escape(claim),
            escape(reason)
        ));
    };
    item(step, "What to do", "for all counters together");
    for metric in &rollout.metrics {
        item(metric.verdict, &metric.name, &metric.reason);
    }
    text + "</ul>\n</section>\n"
}

fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
    format!("<section aria-label=\"Notes\" class=\"banner\"><ul>{items}</ul></section>\n")
}

fn section(metric: &RolloutPageMetric, id: &str) -> String {
    let RolloutPageMetric { name, meaning, .. } = metric;
    let mut text = format!("<section>\n<h2>{}</h2>\n<p>{}</p>\n", escape(name), escape(meaning));
    text.extend(metric.outlook.iter().map(|one| format!("<p>{}</p>\n", escape(one))));
    let with_ratio = metric.looks.iter().filter_map(|look| Some((look.day, look.ratio?)));
    let with_ratio: Vec<_> = with_ratio.collect();
    let drawn = looks::of_days(name, &with_ratio, metric.margin, metric.verdict, id);
    if !drawn.is_empty() {
        text.push_str(&format!(
            "<figure><figcaption><strong>Day by day</strong>{}</figcaption>{drawn}</figure>\n",
            "Changed hosts by the others, each compared with itself before. The band is \
             within the margin; all intervals hold together."
        ));
    }
    text.push_str(&table(metric));
    text.push_str(&sizes(metric));
    text + "</section>\n"
}

fn table(metric: &RolloutPageMetric) -> String {
    let caption = format!("{}: every day's look", metric.name);
    let mut table = HtmlTable::new("looks", caption)
        .text("day")
        .number("changed hosts")
        .number("other hosts")
        .number("ratio")
        .text("interval")
        .text("by this look");
    for look in &metric.looks {
        let (ratio, interval) = match &look.ratio {
            Some(ratio) => (ratio_centre(ratio), ratio_span(ratio).unwrap_or_default()),
            None => ("-".to_owned(), "too few hosts".to_owned()),
        };
        let decided = if Some(look.day) == metric.decided_day { ", which decided" } else { "" };
        let [changed, others] = look.hosts.map(|hosts| Td::from(hosts.to_string()));
        let step = format!("{}{decided}", chip(look.step));
        let day = Td::from(look.day.to_string());
        table.row(vec![day, changed, others, ratio.into(), interval.into(), Td::Html(step)]);
    }
    match metric.looks.len() {
        0 => String::new(),
        many => format!(
            "<details><summary>{}</summary>\n{}</details>\n",
            counted(many, "look"),
            table.finish()
        ),
    }
}

fn sizes(metric: &RolloutPageMetric) -> String {
    let caption = format!("{}: hosts that a cohort needs for an answer", metric.name);
    let mut table = HtmlTable::new("sizes", caption).text("within").number("hosts each");
    for (days, hosts) in &metric.sizes {
        let hosts = hosts.map_or("more than 1000".to_owned(), |hosts| hosts.to_string());
        table.row(vec![counted(*days as usize, "day").into(), hosts.into()]);
    }
    table.finish()
}
