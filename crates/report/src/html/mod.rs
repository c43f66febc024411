//! One self-contained page: style sheet and figures inside, no script, nothing
//! from a network. It is well-formed XML too, so that tests can parse it.

mod appendix;
mod results;
mod summary;
mod table;

use crate::{Report, palette};
pub(crate) use summary::chip;
pub(crate) use table::{HtmlTable, Td};

use crate::escape::escape;

/// The one style sheet of all pages.
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
    page(&report.title, PageWidth::Text, &parts.concat())
}

/// How wide a page is on a screen, and how it lies on paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageWidth {
    /// That of lines that are read.
    Text,
    /// That of tables of many columns; landscape on paper.
    Wide,
    /// That of the window.
    Whole,
}

/// A page of vmlab's around `body`, which is HTML; `title` is text.
#[must_use]
pub fn page(title: &str, width: PageWidth, body: &str) -> String {
    let class = match width {
        PageWidth::Text => "",
        PageWidth::Wide => " class=\"wide\"",
        PageWidth::Whole => " class=\"whole\"",
    };
    format!(
        concat!(
            "<!DOCTYPE html>\n",
            "<html lang=\"en\">\n<head>\n",
            "<meta charset=\"utf-8\"/>\n",
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
            "<meta name=\"color-scheme\" content=\"light dark\"/>\n",
            "<meta name=\"generator\" content=\"vmlab\"/>\n",
            "<title>{} - vmlab</title>\n<style>\n{}{}</style>\n</head>\n<body{}>\n",
            "{}</body>\n</html>\n",
        ),
        escape(title),
        palette::variables(),
        STYLE,
        class,
        body
    )
}
