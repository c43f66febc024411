//! Readers of everybody's numbers. The format is recognised by what a file
//! begins with, never by its name.

pub(crate) mod benchfmt;
mod lines;
mod number;

use std::io::{self, Read};

use crate::data::Data;

/// Bytes by which a format is recognised.
const PEEKED: usize = 64 * 1024;

/// Why an input can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream broke.
    #[error("Cannot read {input}")]
    Io {
        /// The input's name.
        input: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
}

impl Data {
    /// Reads an input whatever its format.
    ///
    /// # Errors
    /// [`ReadError`] where nothing of it can be used. Single lines that can't
    /// be read become [`Data::problems`].
    pub fn read(&mut self, name: &str, reader: &mut dyn Read) -> Result<(), ReadError> {
        let io_error = |source| ReadError::Io { input: name.to_owned(), source };
        let start = lines::peek(reader, PEEKED).map_err(io_error)?;
        benchfmt::read(self, name, &start, reader).map_err(io_error)
    }
}
