//! A trend as one HTML page.

use crate::escape::escape;
use crate::html::{PageWidth, page};
use crate::quantity::counted;
use crate::trend::{Trend, TrendSeries, figure, text};

/// The trend as one self-contained page: the series that changed first.
#[must_use]
pub fn html(trend: &Trend) -> String {
    let title = format!("{} over time", trend.study);
    let results = counted(trend.results.len(), "result");
    let mut body = format!("<header>\n<h1>{}</h1>\n<p>{results}</p>\n", escape(&title));
    for warning in &trend.warnings {
        let warning = escape(warning);
        body.push_str(&format!("<div class=\"banner\" role=\"note\"><p>{warning}</p></div>\n"));
    }
    body.push_str("</header>\n<main>\n<div class=\"figures\">\n");
    let changed = trend.series.iter().filter(|series| !series.changes.is_empty());
    let steady = trend.series.iter().filter(|series| series.changes.is_empty());
    for (i, series) in changed.chain(steady).enumerate() {
        body.push_str(&section(trend, series, &format!("t{i}")));
    }
    body.push_str("</div>\n</main>\n");
    page(&title, PageWidth::Text, &body)
}

fn section(trend: &Trend, series: &TrendSeries, id: &str) -> String {
    let heading = escape(&text::heading(trend, series));
    let mut caption = format!("<strong>{heading}</strong>");
    for change in &series.changes {
        let since = escape(&text::since(trend, series, change));
        caption.push_str(&format!("<span>{since}</span>"));
        for difference in &change.with {
            caption.push_str(&format!("<br/><small>{}</small>", escape(difference)));
        }
    }
    let drawn = figure::draw(trend, series, id);
    format!("<figure><figcaption>{caption}</figcaption>{drawn}</figure>\n")
}
