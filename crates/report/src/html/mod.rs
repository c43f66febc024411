//! One self-contained page: style sheet and figures inside, no script, nothing
//! from a network. It is well-formed XML too, so that tests can parse it.

mod appendix;
mod results;
mod summary;
mod table;

use crate::Report;
pub(crate) use summary::chip;
pub(crate) use table::{HtmlTable, Td};

use crate::escape::escape;

/// The colours of all pages, light and dark, with what is coloured by a verdict
/// ([`Label::class`](crate::Label)): the beginning of a style sheet.
pub(crate) const PALETTE: &str = include_str!("palette.css");
const STYLE: &str = include_str!("style.css");

/// The report as one HTML page.
#[must_use]
pub fn html(report: &Report) -> String {
    let parts = [
        summary::header(report),
        "<main>\n".to_owned(),
        summary::verdicts(report),
        summary::warnings(report),
        summary::variants(report),
        summary::matrix(report),
        summary::suites(report),
        results::sections(report),
        appendix::failures(report),
        appendix::beside(report),
        appendix::method(report),
        appendix::environment(report),
        appendix::command_lines(report),
        appendix::samples(report),
        appendix::reproduce(report),
        "</main>\n".to_owned(),
        appendix::footer(report),
    ];
    page(&report.title, &parts.concat())
}

/// A page of our own style around `body`, which is HTML; `title` is text.
pub(crate) fn page(title: &str, body: &str) -> String {
    format!("{}{body}</body>\n</html>\n", page_head(title, STYLE))
}

/// How each page of vmlab's begins, to the begin of its body: `title` is text, `style` what
/// it has beside the colours that all have.
#[must_use]
pub fn page_head(title: &str, style: &str) -> String {
    let title = escape(title);
    format!(
        concat!(
            "<!DOCTYPE html>\n",
            "<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n",
            "<meta charset=\"utf-8\"/>\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
            "<meta name=\"color-scheme\" content=\"light dark\"/>\n",
            "<meta name=\"generator\" content=\"vmlab\"/>\n",
            "<title>{} - vmlab</title>\n<style>\n{}{}</style>\n</head>\n<body>\n",
        ),
        title, PALETTE, style
    )
}
