//! Goldens of the outputs.
