//! Figures as inline SVG: every colour is a style-sheet class, every figure has
//! a title and a description, every mark says its value in words.
//!
//! Figures are laid out for a width of [`svg::WIDTH`] units, so that a phone
//! shows them at nearly the size of its text and a page can set two of them
//! side by side. Names stand on lines of their own: they may be long.

pub(crate) mod axis;
pub(crate) mod distribution;
pub(crate) mod flame;
pub(crate) mod forest;
pub(crate) mod looks;
pub(crate) mod marker;
pub(crate) mod order;
pub(crate) mod paired;
pub(crate) mod svg;
pub(crate) mod values;
