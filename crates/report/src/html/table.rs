//! Tables with heads for screen readers, scrolled inside narrow pages.

use crate::escape::escape;

/// A cell. Text is escaped; who writes HTML has escaped what is foreign in it.
pub(crate) enum Td {
    Text(String),
    Html(String),
    /// HTML in a cell of a style-sheet class.
    Of(&'static str, String),
}

impl From<String> for Td {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Td {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A table under construction.
pub(crate) struct HtmlTable {
    class: &'static str,
    caption: String,
    heads: Vec<(String, bool)>,
    rows: Vec<String>,
}

impl HtmlTable {
    pub(crate) fn new(class: &'static str, caption: impl Into<String>) -> Self {
        Self { class, caption: caption.into(), heads: Vec::new(), rows: Vec::new() }
    }

    /// A column of text.
    pub(crate) fn text(mut self, head: &str) -> Self {
        self.heads.push((head.to_owned(), false));
        self
    }

    /// A column of numbers.
    pub(crate) fn number(mut self, head: &str) -> Self {
        self.heads.push((head.to_owned(), true));
        self
    }

    /// A row; its first cell is its head.
    pub(crate) fn row(&mut self, cells: Vec<Td>) {
        let mut row = String::from("<tr>");
        for (i, (cell, (_, number))) in cells.into_iter().zip(&self.heads).enumerate() {
            let (class, html) = match cell {
                Td::Text(text) => (if *number { "number" } else { "" }, escape(&text)),
                Td::Html(html) => (if *number { "number" } else { "" }, html),
                Td::Of(class, html) => (class, html),
            };
            row.push_str(&match (i, class) {
                (0, _) => format!("<th scope=\"row\" class=\"name\">{html}</th>"),
                (_, "") => format!("<td>{html}</td>"),
                _ => format!("<td class=\"{class}\">{html}</td>"),
            });
        }
        row.push_str("</tr>\n");
        self.rows.push(row);
    }

    pub(crate) fn finish(self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let caption = escape(&self.caption);
        let heads: String = self
            .heads
            .iter()
            .map(|(head, number)| {
                let class = if *number { " class=\"number\"" } else { "" };
                format!("<th scope=\"col\"{class}>{}</th>", escape(head))
            })
            .collect();
        format!(
            concat!(
                "<div class=\"scroll\" role=\"group\" aria-label=\"{caption}\" tabindex=\"0\">",
                "<table class=\"{class}\">\n<caption><span>{caption}</span></caption>\n",
                "<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
            ),
            caption = caption,
            class = self.class,
            heads = heads,
            rows = self.rows.concat(),
        )
    }
}
