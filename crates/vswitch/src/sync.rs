//! Atomics, by a name that a model checker puts its own behind (`tests/model`).

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
