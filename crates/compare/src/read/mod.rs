//! Readers of everybody's numbers. The format is recognised by what a file
//! begins with, never by its name.

pub(crate) mod benchfmt;
mod lines;
mod number;
mod rows;

use std::collections::BTreeMap;
use std::io::{self, Cursor, Read};

use crate::data::Data;

/// Bytes by which a format is recognised.
const PEEKED: usize = 64 * 1024;

/// What a column of a table may hold besides labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableColumn {
    /// The value.
    Value,
    /// The metric's name.
    Metric,
    /// The value's unit.
    Unit,
    /// `lower` or `higher`.
    Better,
    /// `time`, `rate`, `quantile` or `count`.
    Kind,
}

/// Columns whose names are not the usual ones.
pub type ColumnNames = BTreeMap<TableColumn, String>;

/// Why an input can't be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The stream broke.
    #[error("Cannot read {input}")]
    Io {
        /// The input's name.
        input: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The format is known, and broken.
    #[error("{input}:{line}: {why}")]
    Malformed {
        /// The input's name.
        input: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
    /// No format that is known. The text is handed back, for readers of logs.
    #[error(
        "{input}: no format that is known: neither Go's benchmark format nor CSV with a column of values nor JSON"
    )]
    Unknown {
        /// The input's name.
        input: String,
        /// All of it.
        text: Vec<u8>,
    },
}

impl Data {
    /// Reads an input whatever its format: Go's benchmark format, CSV in long
    /// form, hyperfine's JSON, vmlab's records, JSON lines.
    ///
    /// # Errors
    /// [`TableError`] where nothing of it can be used. Single lines that can't
    /// be read become [`Data::problems`].
    pub fn read(
        &mut self,
        name: &str,
        reader: &mut dyn Read,
        columns: &ColumnNames,
    ) -> Result<(), TableError> {
        let io_error = |source| TableError::Io { input: name.to_owned(), source };
        let start = lines::peek(reader, PEEKED).map_err(io_error)?;
        if benchfmt::recognise(&start) {
            return benchfmt::read(self, name, &start, reader).map_err(io_error);
        }
        let first = start.iter().find(|byte| !byte.is_ascii_whitespace());
        if matches!(first, Some(b'{' | b'[')) {
            let text = rows::rest(&start, reader).map_err(io_error)?;
            return rows::read_json(self, name, &text);
        }
        let head = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        if let Ok(head) = str::from_utf8(head)
            && let Some(separator) = rows::separator(head)
            && (columns.contains_key(&TableColumn::Value) || rows::has_value(head.trim(), columns))
        {
            let mut all = Cursor::new(start).chain(reader);
            return rows::read_csv(self, name, &mut all, separator, columns);
        }
        let text = rows::rest(&start, reader).map_err(io_error)?;
        Err(TableError::Unknown { input: name.to_owned(), text })
    }

    /// Reads Go's benchmark format, also where it holds no benchmark.
    ///
    /// # Errors
    /// [`TableError::Io`].
    pub fn read_benchfmt(&mut self, name: &str, reader: &mut dyn Read) -> Result<(), TableError> {
        benchfmt::read(self, name, &[], reader)
            .map_err(|source| TableError::Io { input: name.to_owned(), source })
    }
}

#[cfg(test)]
mod tests;
