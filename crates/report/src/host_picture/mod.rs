//! A host drawn: as text that fits a terminal, and as an SVG figure.
//!
//! Both draw [`topology::Host::nesting`]: sockets, in them nodes, dies,
//! last-level caches and clusters, in them cores with their threads by pCPU
//! number. Boxes stand beside each other where that makes the drawing lower.

mod facts;
mod svg;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use svg::svg;
pub use text::text;
