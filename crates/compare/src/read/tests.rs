//! Formats are recognised and read.
