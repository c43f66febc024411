//! benchstat's tables as comma-separated values.

use super::BenchstatOutput;
use super::number::general;
use super::table::{BenchstatTable, BenchstatTables};
use super::text::heads;

/// Columns of a centre: value, interval.
const CENTRE: usize = 2;
/// Columns of a comparison: change, p.
const DELTA: usize = 2;

fn start(index: usize) -> usize {
    match index {
        0 => 1,
        _ => 1 + CENTRE + (index - 1) * (CENTRE + DELTA),
    }
}

pub(super) fn csv(tables: &BenchstatTables) -> BenchstatOutput {
    let mut sheet = Sheet { text: String::new(), warnings: Vec::new(), line: 1, cells: 0 };
    heads(tables, |line, table| match table {
        None => {
            if !line.is_empty() {
                sheet.put(line);
            }
            sheet.end();
        }
        Some(table) => write_table(table, &mut sheet),
    });
    BenchstatOutput { text: sheet.text, warnings: sheet.warnings }
}

struct Sheet {
    text: String,
    warnings: Vec<String>,
    line: usize,
    cells: usize,
}

impl Sheet {
    fn put(&mut self, cell: &str) {
        if self.cells > 0 {
            self.text.push(',');
        }
        self.cells += 1;
        let quoted = cell.contains([',', '"', '\r', '\n'])
            || cell.starts_with(char::is_whitespace)
            || cell == "\\.";
        if quoted {
            self.text.extend(["\"", &cell.replace('"', "\"\""), "\""]);
        } else {
            self.text.push_str(cell);
        }
    }

    fn fill(&mut self, cells: usize) {
        while self.cells < cells {
            self.put("");
        }
    }

    fn end(&mut self) {
        self.text.push('\n');
        self.line += 1;
        self.cells = 0;
    }

    /// A warning about the cell that comes next, named as benchstat names it
    /// (which from the 27th column on is not what a spreadsheet says).
    fn warn<'a>(&mut self, texts: impl Iterator<Item = &'a String>) {
        let mut name = Vec::new();
        let mut column = self.cells;
        while column > 0 {
            name.insert(0, b'A' + (column % 26) as u8);
            column /= 26;
        }
        if name.is_empty() {
            name.push(b'A');
        }
        let name = String::from_utf8_lossy(&name);
        for text in texts {
            self.warnings.push(format!("{name}{}: {text}", self.line));
        }
    }
}

fn write_table(table: &BenchstatTable, sheet: &mut Sheet) {
    let texts = |warnings: &[u32]| -> Vec<&String> {
        warnings.iter().map(|warning| &table.warnings[*warning as usize]).collect()
    };
    let width = start(table.columns.len());
    for (index, column) in table.columns.iter().enumerate() {
        sheet.fill(start(index));
        sheet.put(column);
    }
    sheet.fill(width);
    sheet.end();
    for index in 0..table.columns.len() {
        sheet.fill(start(index));
        sheet.put(&table.unit);
        sheet.put("CI");
        if index > 0 {
            sheet.put("vs base");
            sheet.put("P");
        }
    }
    sheet.end();
    for row in &table.rows {
        sheet.put(&row.name);
        for (index, cell) in row.cells.iter().enumerate() {
            let Some(cell) = cell else { continue };
            sheet.fill(start(index));
            sheet.warn(texts(&cell.warnings).into_iter());
            sheet.put(&general(cell.centre));
            sheet.put(&cell.percent());
            if let Some(comparison) = &cell.comparison {
                sheet.warn(texts(&comparison.warnings).into_iter());
                sheet.put(&comparison.delta(cell.centre));
                sheet.put(&comparison.evidence());
            }
        }
        sheet.end();
    }
    sheet.put("geomean");
    for (index, summary) in table.summary.iter().enumerate() {
        sheet.fill(start(index));
        sheet.warn(texts(&summary.warnings).into_iter());
        if let Some(geomean) = summary.geomean {
            sheet.put(&general(geomean));
        }
        if index > 0 {
            sheet.fill(start(index) + CENTRE);
            match summary.ratio {
                Some(ratio) => sheet.put(&format!("{:+.2}%", (ratio - 1.0) * 100.0)),
                None => sheet.put("?"),
            }
        }
    }
    sheet.fill(width);
    sheet.end();
}
