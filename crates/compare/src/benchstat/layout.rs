//! A table of cells that may span columns, for a fixed-width font.

use std::fmt::Write;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CellAlign {
    Left,
    Centre,
    Right,
}

#[derive(Debug)]
struct LayoutCell {
    row: u32,
    column: u16,
    span: u16,
    /// Where its text ends in [`CellGrid::text`]; it begins where the one before
    /// ends.
    end: u32,
    width: u16,
    align: CellAlign,
    margin: &'static str,
}

/// Cells, in the order of rows and columns.
#[derive(Debug, Default)]
pub(super) struct CellGrid {
    text: String,
    cells: Vec<LayoutCell>,
    rows: u32,
    /// Columns that do not grow for a cell that spans them.
    fixed: Vec<bool>,
}

impl CellGrid {
    pub(super) fn row(&mut self) {
        self.rows += 1;
    }

    pub(super) fn fix(&mut self, column: usize) {
        self.fixed.resize(self.fixed.len().max(column + 1), false);
        self.fixed[column] = true;
    }

    /// A cell with the usual margin: none in the first column, else a space.
    pub(super) fn cell(
        &mut self,
        column: usize,
        align: CellAlign,
        write: impl FnOnce(&mut String),
    ) {
        let margin = if column == 0 { "" } else { " " };
        self.span(column, 1, margin, align, write);
    }

    pub(super) fn span(
        &mut self,
        column: usize,
        span: usize,
        margin: &'static str,
        align: CellAlign,
        write: impl FnOnce(&mut String),
    ) {
        let start = self.text.len();
        write(&mut self.text);
        let width = self.text[start..].chars().count();
        // An empty cell takes no room and is not printed.
        if width == 0 && margin.trim().is_empty() {
            return;
        }
        self.cells.push(LayoutCell {
            row: self.rows - 1,
            column: column as u16,
            span: span as u16,
            end: self.text.len() as u32,
            width: width as u16,
            align,
            margin,
        });
    }

    /// Writes the table, a line end behind each line.
    pub(super) fn write(&self, out: &mut String) {
        let columns =
            self.cells.iter().map(|cell| cell.column + cell.span).max().unwrap_or(0) as usize;
        let mut margins = vec![0; columns];
        for cell in &self.cells {
            let margin = &mut margins[cell.column as usize];
            *margin = cell.margin.chars().count().max(*margin);
        }
        let offsets = self.offsets(&margins);
        let (mut row, mut at, mut start) = (0, 0_usize, 0);
        for cell in &self.cells {
            while row < cell.row {
                out.push('\n');
                row += 1;
                at = 0;
            }
            let (first, behind) = (cell.column as usize, (cell.column + cell.span) as usize);
            let margin = margins[first];
            // A heading over columns that may not grow can reach too far; Go
            // then prints as many spaces as are too few.
            spaces(offsets[first].abs_diff(at), out);
            spaces(margin - cell.margin.chars().count(), out);
            out.push_str(cell.margin);
            let room = offsets[behind] - offsets[first] - margin;
            let width = usize::from(cell.width);
            let fill = match cell.align {
                CellAlign::Left => 0,
                CellAlign::Centre => room.saturating_sub(width) / 2,
                CellAlign::Right => room.saturating_sub(width),
            };
            spaces(fill, out);
            out.push_str(&self.text[start..cell.end as usize]);
            start = cell.end as usize;
            at = offsets[first] + margin + fill + width;
        }
        if !self.cells.is_empty() {
            out.push('\n');
        }
    }

    /// Where each column begins, and where the last one ends.
    fn offsets(&self, margins: &[usize]) -> Vec<usize> {
        let mut widths = vec![0; margins.len()];
        for cell in self.cells.iter().filter(|cell| cell.span == 1) {
            let width = &mut widths[cell.column as usize];
            *width = (usize::from(cell.width) + margins[cell.column as usize]).max(*width);
        }
        let mut spans: Vec<&LayoutCell> = self.cells.iter().filter(|cell| cell.span > 1).collect();
        spans.sort_by_key(|cell| cell.span);
        for cell in spans {
            let first = cell.column as usize;
            let columns = first..first + cell.span as usize;
            let mut needed = usize::from(cell.width) + margins[first];
            if widths[columns.clone()].iter().sum::<usize>() >= needed {
                continue;
            }
            let is_fixed = |column: &usize| self.fixed.get(*column).copied().unwrap_or(false);
            let (fixed, mut free): (Vec<usize>, Vec<usize>) = columns.partition(is_fixed);
            needed = needed.saturating_sub(fixed.iter().map(|column| widths[*column]).sum());
            // Widest first: what is wide enough leaves less to the others.
            free.sort_by_key(|column| std::cmp::Reverse(widths[*column]));
            for (index, column) in free.iter().enumerate() {
                widths[*column] = needed.div_ceil(free.len() - index).max(widths[*column]);
                needed = needed.saturating_sub(widths[*column]);
            }
        }
        let mut offsets = vec![0];
        for width in widths {
            offsets.push(offsets[offsets.len() - 1] + width);
        }
        offsets
    }
}

fn spaces(count: usize, out: &mut String) {
    write!(out, "{:count$}", "").expect("memory takes all text");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_widens_the_columns_that_may_grow() {
        let mut grid = CellGrid::default();
        grid.row();
        grid.span(1, 2, " │ ", CellAlign::Centre, |out| out.push_str("a long heading"));
        grid.row();
        grid.cell(0, CellAlign::Left, |out| out.push_str("row"));
        grid.cell(1, CellAlign::Right, |out| out.push('1'));
        grid.cell(2, CellAlign::Right, |out| out.push_str("22"));
        grid.fix(2);
        let mut text = String::new();
        grid.write(&mut text);
        assert_eq!(text, "    │ a long heading\nrow             1 22\n");
    }
}
