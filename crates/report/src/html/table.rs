//! Tables with heads for screen readers, scrolled inside narrow pages.

use crate::html::escape;

/// A table under construction; cells are HTML, captions and heads are text.
pub(crate) struct Table {
    class: &'static str,
    caption: String,
    heads: Vec<(String, bool)>,
    rows: Vec<String>,
}

impl Table {
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

    /// A row; its first cell is its head. A cell that starts with `<td` is
    /// taken as it is.
    pub(crate) fn row(&mut self, cells: &[String]) {
        let mut row = String::from("<tr>");
        for (i, (cell, (_, number))) in cells.iter().zip(&self.heads).enumerate() {
            let class = if *number { " class=\"number\"" } else { "" };
            match i {
                0 => row.push_str(&format!("<th scope=\"row\" class=\"name\">{cell}</th>")),
                _ if cell.starts_with("<td") => row.push_str(cell),
                _ => row.push_str(&format!("<td{class}>{cell}</td>")),
            }
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
                "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\">",
                "<table class=\"{class}\">\n<caption>{caption}</caption>\n",
                "<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table></div>\n"
            ),
            caption = caption,
            class = self.class,
            heads = heads,
            rows = self.rows.concat(),
        )
    }
}
