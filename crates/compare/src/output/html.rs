//! The comparison as one self-contained page: no script, nothing from a
//! network, well-formed XML too.

use report::{PageWidth, escape, percent};

use super::words::{PrefixScale, against, change, headline, overall, steadiness, title, words};
use crate::analyse::{ComparedData, VariantComparison};

/// Rows that a page holds for each metric; what is beyond them stands in CSV
/// and JSON.
const MOST_ROWS: usize = 5000;

/// The comparison as one HTML page.
#[must_use]
pub fn html(comparison: &ComparedData) -> String {
    let name = against(comparison);
    let mut body = format!(
        "<header>\n<h1>{}</h1>\n<p>{}</p>\n</header>\n<main>\n",
        escape(&name),
        escape(&headline(comparison))
    );
    body.push_str("<div class=\"banner plain\" role=\"note\">");
    for line in &comparison.method {
        body.push_str(&format!("<p>{}</p>", escape(line)));
    }
    if !comparison.common.is_empty() {
        let labels: Vec<String> =
            comparison.common.iter().map(|(key, value)| format!("{key}={value}")).collect();
        body.push_str(&format!("<p>Everywhere: {}</p>", escape(&labels.join(", "))));
    }
    body.push_str("</div>\n");
    if !comparison.warnings.is_empty() {
        body.push_str("<section aria-label=\"Warnings\" class=\"banner\"><p><strong>Know this before you read the numbers</strong></p><ul>");
        for warning in &comparison.warnings {
            body.push_str(&format!("<li>{}</li>", escape(&warning.text)));
        }
        body.push_str("</ul></section>\n");
    }
    if !comparison.gate.passed {
        body.push_str(&format!(
            "<section class=\"banner\"><p><strong>Worse by more than {} %</strong></p><ul>",
            percent(comparison.margin)
        ));
        for failure in &comparison.gate.failures {
            body.push_str(&format!("<li>{}</li>", escape(failure)));
        }
        body.push_str("</ul></section>\n");
    }
    for metric in 0..comparison.metrics.len() {
        table(comparison, metric as u32, &mut body);
    }
    let steadiness = steadiness(comparison);
    if let Some((first, findings)) = steadiness.split_first() {
        body.push_str(&format!("<section>\n<h2>Steadiness</h2>\n<p>{}</p>\n<ul>", escape(first)));
        for finding in findings {
            body.push_str(&format!("<li>{}</li>", escape(finding)));
        }
        body.push_str("</ul>\n</section>\n");
    }
    body.push_str("</main>\n<footer>Written by vmlab compare.</footer>\n");
    report::page(&name, PageWidth::Wide, &body)
}

fn table(comparison: &ComparedData, metric: u32, page: &mut String) {
    let info = &comparison.metrics[metric as usize];
    let rows: Vec<_> = comparison.rows.iter().filter(|row| row.metric == metric).collect();
    if rows.is_empty() {
        return;
    }
    let caption = escape(&title(info));
    page.push_str(&format!(
        "<section>\n<h2>{caption}</h2>\n<div class=\"scroll\" role=\"group\" aria-label=\"{caption}\" tabindex=\"0\"><table>\n<thead><tr><th scope=\"col\">row</th>"
    ));
    for (variant, name) in comparison.variants.iter().enumerate() {
        page.push_str(&format!("<th scope=\"col\" class=\"number\">{}</th>", escape(name)));
        if variant > 0 {
            page.push_str("<th scope=\"col\" class=\"number\">change</th><th scope=\"col\">interval and margin</th><th scope=\"col\">verdict</th>");
        }
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    let range = super::bar::range(comparison, metric);
    for row in rows.iter().take(MOST_ROWS) {
        let scale = PrefixScale::of(row, info);
        page.push_str(&format!("<tr><th scope=\"row\" class=\"name\">{}</th>", escape(&row.name)));
        for (variant, cell) in row.cells.iter().enumerate() {
            let value = cell.as_ref().map_or("-".to_owned(), |cell| scale.show(cell));
            page.push_str(&format!("<td class=\"number\">{}</td>", escape(&value)));
            if variant == 0 {
                continue;
            }
            match &row.judged[variant - 1] {
                Some(judged) => {
                    let words = words(judged, info);
                    page.push_str(&format!(
                        "<td class=\"number\">{}</td><td>{}</td><td><span class=\"chip {}\"><span aria-hidden=\"true\">{}</span> {}</span>{}</td>",
                        escape(&change(judged)),
                        figure(judged, range, words.class),
                        words.class,
                        words.sign,
                        escape(words.word),
                        escape(&words.detail),
                    ));
                }
                None => page.push_str("<td></td><td></td><td class=\"quiet\">not compared</td>"),
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
    if rows.len() > MOST_ROWS {
        page.push_str(&format!(
            "<p class=\"quiet\">{} more rows stand in the CSV and JSON output.</p>\n",
            rows.len() - MOST_ROWS
        ));
    }
    for suite in comparison.suites.iter().filter(|suite| suite.metric == metric) {
        let variant = escape(&comparison.variants[suite.variant as usize]);
        page.push_str(&format!("<p>{}</p>\n", overall(suite, &variant)));
    }
    page.push_str("</section>\n");
}

/// A bar with the interval, the ratio, 1 and the margin.
fn figure(judged: &VariantComparison, range: f64, class: &str) -> String {
    const WIDTH: f64 = 160.0;
    let x = |log: f64| ((log / range).clamp(-1.0, 1.0) + 1.0) / 2.0 * WIDTH;
    let band = judged.judgement.margin.ln_1p();
    let mut svg = format!(
        concat!(
            "<svg class=\"plot\" width=\"{w}\" height=\"18\" viewBox=\"0 0 {w} 18\" role=\"img\" aria-label=\"{label}\">",
            "<rect class=\"margin\" x=\"{lo:.1}\" y=\"0\" width=\"{width:.1}\" height=\"18\"/>",
            "<line class=\"one\" x1=\"{one:.1}\" x2=\"{one:.1}\" y1=\"0\" y2=\"18\"/>"
        ),
        w = WIDTH,
        label = escape(&change(judged)),
        lo = x(-band),
        width = x(band) - x(-band),
        one = x(0.0),
    );
    if let Some(interval) = judged.judgement.interval {
        svg.push_str(&format!(
            "<line class=\"ratio v-{class}\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"9\" y2=\"9\"/>",
            x(interval.lo.ln()),
            x(interval.hi.ln())
        ));
    }
    if let Some(ratio) = judged.judgement.ratio.filter(|ratio| *ratio > 0.0) {
        svg.push_str(&format!(
            "<circle class=\"point v-{class}\" cx=\"{:.1}\" cy=\"9\" r=\"4\"/>",
            x(ratio.ln())
        ));
    }
    svg.push_str("</svg>");
    svg
}
