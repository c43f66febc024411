//! The only command line of vmlab.
fn main() {}
