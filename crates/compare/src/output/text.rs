//! The comparison for a terminal.

use unicode_width::UnicodeWidthStr;

use super::bar::{WIDTH, bar, range};
use super::words::{Scale, against, change, headline, percent, title, words};
use crate::analyse::{Comparison, Row};

/// How text for a terminal may look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Colours by ANSI escape sequences.
    pub colour: bool,
    /// Columns that paragraphs and tables may take; tables give up their bars
    /// to fit, never a number.
    pub width: Option<usize>,
}

const BOLD: &str = "\x1b[1m";
const ALARM: &str = "\x1b[33m";
const RESET: &str = "\x1b[0m";

fn colour(class: &str) -> &'static str {
    match class {
        "better" => "\x1b[32m",
        "worse" => "\x1b[31m",
        "invalid" => ALARM,
        _ => "",
    }
}

fn painted(text: &str, code: &str, style: Style) -> String {
    if style.colour && !code.is_empty() { format!("{code}{text}{RESET}") } else { text.to_owned() }
}

/// The comparison as text.
#[must_use]
pub fn text(comparison: &Comparison, style: Style) -> String {
    let mut out = String::new();
    let width = style.width.unwrap_or(100);
    out.push_str(&painted(&against(comparison), BOLD, style));
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
        out.push_str(&painted(lines.trim_end(), ALARM, style));
        out.push('\n');
    }
    for (metric, _) in comparison.metrics.iter().enumerate() {
        table(comparison, metric as u32, style, &mut out);
    }
    out
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

/// A line of a table before its columns have widths.
struct Line {
    cells: Vec<String>,
    class: &'static str,
}

fn table(comparison: &Comparison, metric: u32, style: Style, out: &mut String) {
    let info = &comparison.metrics[metric as usize];
    let rows: Vec<&Row> = comparison.rows.iter().filter(|row| row.metric == metric).collect();
    if rows.is_empty() {
        return;
    }
    out.push('\n');
    out.push_str(&painted(&title(info), BOLD, style));
    out.push('\n');
    let range = range(comparison, metric);
    let two = comparison.variants.len() == 2;
    // With two variants a row is a line; with more each variant has one.
    let mut heads = vec![String::new()];
    match two {
        true => heads.extend(comparison.variants.iter().cloned()),
        false => heads.extend(["variant".to_owned(), String::new()]),
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
    let scale = format!("{left}{right:>w$}", w = WIDTH.saturating_sub(left.width()));
    heads.extend(["change".to_owned(), scale, "verdict".to_owned()]);
    let bar_column = heads.len() - 2;
    let mut lines: Vec<Line> = Vec::new();
    for row in &rows {
        let scale = Scale::of(row, info);
        let value = |variant: usize| {
            row.cells[variant].as_ref().map_or("-".to_owned(), |cell| scale.show(cell))
        };
        if !two {
            let cells = vec![row.name.clone(), comparison.variants[0].clone(), value(0)];
            lines.push(Line { cells, class: "" });
        }
        for variant in 1..comparison.variants.len() {
            let mut cells = match two {
                true => vec![row.name.clone(), value(0), value(1)],
                false => vec![String::new(), comparison.variants[variant].clone(), value(variant)],
            };
            let mut class = "";
            if let Some(judged) = &row.judged[variant - 1] {
                let words = words(judged, info);
                class = words.class;
                cells.extend([
                    change(judged),
                    bar(judged, range),
                    format!("{} {}", words.sign, words.sentence()),
                ]);
            }
            lines.push(Line { cells, class });
        }
    }
    for suite in comparison.suites.iter().filter(|suite| suite.metric == metric) {
        let mut cells = vec![format!("geometric mean of {}", suite.rows)];
        match two {
            true => cells.extend([String::new(), String::new()]),
            false => {
                cells.extend([comparison.variants[suite.variant as usize].clone(), String::new()]);
            }
        }
        let change = |ratio: f64| format!("{:+.2}", (ratio - 1.0) * 100.0);
        cells.push(match suite.interval {
            Some(interval) => format!(
                "{} % [{}, {}]",
                change(suite.ratio),
                change(interval.lo),
                change(interval.hi)
            ),
            None => format!("{} %", change(suite.ratio)),
        });
        lines.push(Line { cells, class: "" });
    }
    write_lines(&heads, &lines, bar_column, style, out);
}

fn write_lines(heads: &[String], lines: &[Line], bar: usize, style: Style, out: &mut String) {
    let mut widths: Vec<usize> = heads.iter().map(|head| head.width()).collect();
    for line in lines {
        for (width, cell) in widths.iter_mut().zip(&line.cells) {
            *width = cell.width().max(*width);
        }
    }
    let natural: usize = widths.iter().map(|width| width + 2).sum();
    let hide = style.width.filter(|width| natural > *width).map(|_| bar);
    let mut write = |cells: &[String], class: &str| {
        let mut text = String::new();
        for (index, cell) in cells.iter().enumerate() {
            if Some(index) == hide {
                continue;
            }
            text.push_str("  ");
            let last = index + 1 == heads.len();
            text.push_str(&painted(cell, if last { colour(class) } else { "" }, style));
            if !last {
                text.extend(std::iter::repeat_n(' ', widths[index] - cell.width()));
            }
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    write(heads, "");
    for line in lines {
        write(&line.cells, line.class);
    }
}
