//! The comparison for a terminal.

use std::convert::Infallible;

use report::{class_sgr, percent};
use unicode_width::UnicodeWidthStr;

use super::bar::{WIDTH, bar, range};
use super::words::{
    PrefixScale, against, change, headline, steadiness, suite_interval, title, words,
};
use crate::analyse::ComparedData;

/// How text for a terminal may look.
#[derive(Debug, Clone, Copy, Default)]
pub struct TextStyle {
    /// Colours by ANSI escape sequences.
    pub colour: bool,
    /// Columns that paragraphs and tables may take; tables give up their bars
    /// to fit, never a number.
    pub width: Option<usize>,
}

/// Bold.
const BOLD: &str = "1";
/// As what is not valid.
const ALARM: &str = "invalid";

/// `text` in the colour of escape sequence `sgr`, if there is to be one.
fn painted(text: &str, sgr: Option<&str>, style: TextStyle) -> String {
    match sgr.filter(|_| style.colour) {
        Some(sgr) => format!("\x1b[{sgr}m{text}\x1b[0m"),
        None => text.to_owned(),
    }
}

/// The comparison as text.
#[must_use]
pub fn text(comparison: &ComparedData, style: TextStyle) -> String {
    let mut out = String::new();
    let Ok(()) = write_text(comparison, style, |part| {
        out.push_str(part);
        Ok::<(), Infallible>(())
    });
    out
}

/// The comparison as text in parts, each handed over before the next is made:
/// a table of a hundred thousand lines is large enough alone.
///
/// # Errors
/// What `write` says.
pub fn write_text<E>(
    comparison: &ComparedData,
    style: TextStyle,
    mut write: impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = String::new();
    let width = style.width.unwrap_or(100);
    out.push_str(&painted(&against(comparison), Some(BOLD), style));
    out.push('\n');
    paragraph(&mut out, &headline(comparison), "", width);
    for line in &comparison.method {
        paragraph(&mut out, line, "  ", width);
    }
    if !comparison.common.is_empty() {
        let labels: Vec<String> =
            comparison.common.iter().map(|(key, value)| format!("{key}={value}")).collect();
        paragraph(&mut out, &format!("Everywhere: {}", labels.join(", ")), "  ", width);
    }
    for warning in &comparison.warnings {
        let mut lines = String::new();
        paragraph(&mut lines, &format!("! {}", warning.text), "", width);
        out.push_str(&painted(lines.trim_end(), class_sgr(ALARM), style));
        out.push('\n');
    }
    write(&out)?;
    for (metric, _) in comparison.metrics.iter().enumerate() {
        table(comparison, metric as u32, style, &mut write)?;
    }
    out.clear();
    for (place, line) in steadiness(comparison).iter().enumerate() {
        if place == 0 {
            out.push('\n');
        }
        paragraph(&mut out, line, if place == 0 { "" } else { "  " }, width);
    }
    write(&out)
}

/// Wraps at spaces; further lines are indented too.
fn paragraph(out: &mut String, text: &str, indent: &str, width: usize) {
    let mut line = indent.to_owned();
    for word in text.split(' ') {
        if line.width() > indent.len() && line.width() + 1 + word.width() > width {
            out.push_str(line.trim_end());
            out.push('\n');
            line.clear();
            line.push_str(indent);
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    out.push_str(line.trim_end());
    out.push('\n');
}

/// The cells of a table, in one piece of memory: a result can have a hundred
/// thousand lines.
#[derive(Default)]
struct Cells {
    text: String,
    /// Where each cell ends in `text`, and the columns that it takes.
    ends: Vec<(u32, u32)>,
    /// Where each line ends in `ends`, and the class of its verdict.
    lines: Vec<(u32, &'static str)>,
}

impl Cells {
    fn add(&mut self, cell: impl AsRef<str>) {
        let cell = cell.as_ref();
        self.text.push_str(cell);
        let width = if cell.is_ascii() { cell.len() } else { cell.width() };
        self.ends.push((self.text.len() as u32, width as u32));
    }

    fn end_line(&mut self, class: &'static str) {
        self.lines.push((self.ends.len() as u32, class));
    }

    /// The widths of the columns.
    fn widths(&self) -> [usize; COLUMNS] {
        let mut widths = [0; COLUMNS];
        let mut start = 0;
        for (end, _) in &self.lines {
            for ((_, width), widest) in self.ends[start..*end as usize].iter().zip(&mut widths) {
                *widest = (*width as usize).max(*widest);
            }
            start = *end as usize;
        }
        widths
    }

    /// Calls `each` with every cell: column, text, its width, class, and whether
    /// it is the last of its line.
    fn for_each<E>(
        &self,
        mut each: impl FnMut(usize, &str, usize, &'static str, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut cell, mut start) = (0, 0);
        for (end, class) in &self.lines {
            let first = cell;
            for (stop, width) in &self.ends[first..*end as usize] {
                let text = &self.text[start..*stop as usize];
                each(cell - first, text, *width as usize, class, cell + 1 == *end as usize)?;
                start = *stop as usize;
                cell += 1;
            }
        }
        Ok(())
    }
}

fn table<E>(
    comparison: &ComparedData,
    metric: u32,
    style: TextStyle,
    write: &mut impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let info = &comparison.metrics[metric as usize];
    let rows = || comparison.rows.iter().filter(|row| row.metric == metric);
    if rows().next().is_none() {
        return Ok(());
    }
    write(&format!("\n{}\n", painted(&title(info), Some(BOLD), style)))?;
    let range = range(comparison, metric);
    let two = comparison.variants.len() == 2;
    // With two variants a row is a line; with more each variant has one.
    let mut cells = Cells::default();
    cells.add("");
    match two {
        true => comparison.variants.iter().for_each(|variant| cells.add(variant)),
        false => ["variant", ""].iter().for_each(|head| cells.add(head)),
    }
    // Either way from 1 the axis is one of factors.
    let end = |log: f64| match log.exp() {
        factor if log.abs() < 0.7 => {
            format!("{}{} %", if log > 0.0 { "+" } else { "" }, percent(factor - 1.0))
        }
        factor if factor > 100.0 => format!("×{factor:.0}"),
        factor if factor > 1.0 => format!("×{factor:.1}"),
        factor => format!("÷{:.1}", 1.0 / factor),
    };
    let (left, right) = (end(-range), end(range));
    cells.add("change");
    cells.add(format!("{left}{right:>w$}", w = WIDTH.saturating_sub(left.width())));
    cells.add("verdict");
    cells.end_line("");
    for row in rows() {
        let scale = PrefixScale::of(row, info);
        let value = |variant: usize| {
            row.cells[variant].as_ref().map_or("-".to_owned(), |cell| scale.show(cell))
        };
        if !two {
            cells.add(&row.name);
            cells.add(&comparison.variants[0]);
            cells.add(value(0));
            cells.end_line("");
        }
        for variant in 1..comparison.variants.len() {
            cells.add(if two { &row.name } else { "" });
            cells.add(if two { value(0) } else { comparison.variants[variant].clone() });
            cells.add(value(variant));
            let mut class = "";
            if let Some(judged) = &row.judged[variant - 1] {
                let words = words(judged, info);
                class = words.class;
                cells.add(change(judged));
                cells.add(bar(judged, range));
                cells.add([words.sign, " ", words.word, &words.detail].concat());
            }
            cells.end_line(class);
        }
    }
    for suite in comparison.suites.iter().filter(|suite| suite.metric == metric) {
        cells.add(format!("geometric mean of {}", suite.rows));
        cells.add(if two { "" } else { &comparison.variants[suite.variant as usize] });
        cells.add("");
        let change = |ratio: f64| match (ratio - 1.0) * 100.0 {
            change if change.abs() >= 10_000.0 => format!("{change:+.1e}"),
            change => format!("{change:+.2}"),
        };
        cells.add(format!("{} %{}", change(suite.ratio), suite_interval(suite, change)));
        cells.end_line("");
    }
    write_cells(&cells, style, write)
}

/// Columns: row, two of values, change, bar, verdict.
const COLUMNS: usize = 6;
const BAR: usize = 4;

/// A table is written in parts of about so many bytes.
const PART: usize = 64 * 1024;

fn write_cells<E>(
    cells: &Cells,
    style: TextStyle,
    write: &mut impl FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    let widths = cells.widths();
    let natural: usize = widths.iter().map(|width| width + 2).sum();
    let hide_bar = style.width.is_some_and(|width| natural > width);
    let mut out = String::new();
    // Spaces are written before the next text, so that none end a line.
    let mut spaces = 0;
    cells.for_each(|column, text, width, class, last| {
        if column != BAR || !hide_bar {
            if !text.is_empty() {
                out.extend(std::iter::repeat_n(' ', spaces + 2));
                spaces = 0;
                let sgr = class_sgr(class).filter(|_| column + 1 == COLUMNS && style.colour);
                match sgr {
                    Some(sgr) => out.extend(["\x1b[", sgr, "m", text.trim_end(), "\x1b[0m"]),
                    None => out.push_str(text),
                }
                spaces += widths[column] - width;
            } else {
                spaces += widths[column] + 2;
            }
        }
        if last {
            let end = out.trim_end_matches(' ').len();
            out.truncate(end);
            out.push('\n');
            spaces = 0;
            if out.len() > PART {
                write(&out)?;
                out.clear();
            }
        }
        Ok(())
    })?;
    write(&out)
}
