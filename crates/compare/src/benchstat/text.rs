//! benchstat's tables as text.

use super::layout::{CellAlign, CellGrid};
use super::number::{Scale, superscript};
use super::table::{BenchstatTable, BenchstatTables};
use crate::units::is_binary;

/// Columns of a centre: value, interval, footnotes.
const CENTRE: usize = 3;
/// Columns of a comparison: change, evidence, footnotes.
const DELTA: usize = 3;

/// The first of the columns of the input number `index`.
fn start(index: usize) -> usize {
    match index {
        0 => 1,
        _ => 1 + CENTRE + (index - 1) * (CENTRE + DELTA),
    }
}

pub(super) fn text(tables: &BenchstatTables) -> String {
    let mut out = String::new();
    heads(tables, |line, table| match table {
        None => {
            out.push_str(line);
            out.push('\n');
        }
        Some(table) => write_table(table, &mut out),
    });
    out
}

/// Calls `each` with the lines above and between the tables, and with the
/// tables.
pub(super) fn heads<'a>(
    tables: &'a BenchstatTables,
    mut each: impl FnMut(&str, Option<&'a BenchstatTable>),
) {
    let mut before: Option<&BenchstatTable> = None;
    for table in &tables.tables {
        if before.is_some() {
            each("", None);
        }
        for (index, (key, value)) in tables.keys.iter().zip(&table.config).enumerate() {
            if before.is_none_or(|before| before.config[index] != *value) {
                each(&format!("{key}: {value}"), None);
            }
        }
        each("", Some(table));
        before = Some(table);
    }
}

/// Footnotes in the order in which they are first used.
struct Notes<'a> {
    texts: &'a [String],
    used: Vec<u32>,
}

impl Notes<'_> {
    fn marks(&mut self, warnings: impl Iterator<Item = u32>) -> String {
        let mut marks = String::new();
        for warning in warnings {
            let known = self.used.iter().position(|used| *used == warning);
            let number = known.unwrap_or_else(|| {
                self.used.push(warning);
                self.used.len() - 1
            });
            if !marks.is_empty() {
                marks.push(' ');
            }
            marks.push_str(&superscript(number + 1));
        }
        marks
    }
}

fn write_table(table: &BenchstatTable, out: &mut String) {
    let mut grid = CellGrid::default();
    let mut notes = Notes { texts: &table.warnings, used: Vec::new() };
    let edge = start(table.columns.len() + 1);
    grid.row();
    for (index, column) in table.columns.iter().enumerate() {
        let span = start(index + 1) - start(index);
        grid.span(start(index), span, " │ ", CellAlign::Centre, |out| out.push_str(column));
    }
    grid.span(edge, 1, " │", CellAlign::Left, |_| {});
    grid.row();
    for index in 0..table.columns.len() {
        let first = start(index);
        grid.span(first, CENTRE, " │ ", CellAlign::Centre, |out| out.push_str(&table.unit));
        if index > 0 {
            grid.span(first + CENTRE, DELTA, "  ", CellAlign::Left, |out| out.push_str("vs base"));
        }
        (first + 1..start(index + 1)).for_each(|column| grid.fix(column));
    }
    grid.span(edge, 1, " │", CellAlign::Left, |_| {});

    let binary = is_binary(&table.unit);
    for row in &table.rows {
        grid.row();
        grid.cell(0, CellAlign::Left, |out| out.push_str(&row.name));
        let centres = row.cells.iter().flatten().map(|cell| cell.centre);
        let scale = Scale::of(centres, binary);
        for (index, cell) in row.cells.iter().enumerate() {
            let Some(cell) = cell else { continue };
            let first = start(index);
            grid.cell(first, CellAlign::Right, |out| scale.write(cell.centre, out));
            grid.span(first + 1, 1, " ± ", CellAlign::Right, |out| out.push_str(&cell.percent()));
            let marks = notes.marks(cell.warnings.iter().copied());
            grid.cell(first + 2, CellAlign::Left, |out| out.push_str(&marks));
            if let Some(comparison) = &cell.comparison {
                let delta = comparison.delta(cell.centre);
                grid.cell(first + 3, CellAlign::Right, |out| out.push_str(&delta));
                let evidence = comparison.evidence();
                grid.cell(first + 4, CellAlign::Left, |out| {
                    out.extend(["(", &evidence, ")"]);
                });
                let marks = notes.marks(comparison.warnings.iter().copied());
                grid.cell(first + 5, CellAlign::Left, |out| out.push_str(&marks));
            }
        }
    }
    if table.rows.len() > 1 {
        grid.row();
        grid.cell(0, CellAlign::Left, |out| out.push_str("geomean"));
        for (index, summary) in table.summary.iter().enumerate() {
            let first = start(index);
            if let Some(geomean) = summary.geomean {
                let scale = Scale::of([geomean].into_iter(), binary);
                grid.cell(first, CellAlign::Right, |out| scale.write(geomean, out));
            }
            if index > 0 {
                match summary.ratio {
                    Some(ratio) => {
                        let change = format!("{:+.2}%", (ratio - 1.0) * 100.0);
                        grid.cell(first + CENTRE, CellAlign::Right, |out| out.push_str(&change));
                    }
                    None => grid.cell(first + CENTRE, CellAlign::Left, |out| out.push('?')),
                }
            }
            let marks = notes.marks(summary.warnings.iter().copied());
            grid.cell(start(index + 1) - 1, CellAlign::Left, |out| out.push_str(&marks));
        }
    }
    grid.write(out);
    for (index, warning) in notes.used.iter().enumerate() {
        out.push_str(&superscript(index + 1));
        out.push(' ');
        out.push_str(&notes.texts[*warning as usize]);
        out.push('\n');
    }
}
