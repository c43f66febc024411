//! Tests of the planner as a whole.

mod cases;
mod exhaustive;
mod hosts;
mod laws;
mod unlike;
