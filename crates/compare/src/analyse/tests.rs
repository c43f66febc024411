//! Tests of the whole analysis.
