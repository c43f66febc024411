//! What is known of a VM that runs.

use std::collections::BTreeMap;

use crate::running::{MemoryPlacement, Observation, ObservedValue, ThreadOwner, ThreadPlacement};
use vmconfig::source::{LocatedValue, Span};

/// What is known of a VM that runs.
#[derive(Debug, Default)]
pub(crate) struct LiveVm {
    /// Facts with their places.
    pub(crate) facts: Vec<LocatedValue<Observation>>,
}

impl LiveVm {
    /// The threads of one kind, with their places.
    pub(crate) fn threads(
        &self,
        wanted: impl Fn(&ThreadOwner) -> bool,
    ) -> impl Iterator<Item = (&ThreadOwner, &ThreadPlacement, Span)> {
        self.facts.iter().filter_map(move |fact| match &fact.value.is {
            ObservedValue::Thread(who, thread) if wanted(who) => Some((who, thread, fact.span)),
            _ => None,
        })
    }

    /// Backends' memory, or the guest's as a whole, with their places.
    pub(crate) fn memory(&self) -> impl Iterator<Item = (Option<&str>, &MemoryPlacement, Span)> {
        self.facts.iter().filter_map(|fact| match &fact.value.is {
            ObservedValue::Memory(backend, memory) => Some((backend.as_deref(), memory, fact.span)),
            _ => None,
        })
    }

    /// Halts that left the guest, with their place.
    pub(crate) fn halt_exits(&self) -> Option<(u64, Span)> {
        self.facts.iter().find_map(|fact| match fact.value.is {
            ObservedValue::HaltExits(exits) => Some((exits, fact.span)),
            _ => None,
        })
    }

    /// Where the memory of one guest node lies.
    pub(crate) fn backend(&self, memdev: Option<&str>) -> Option<(&MemoryPlacement, Span)> {
        let found = self.memory().find(|(id, ..)| memdev.is_some() && *id == memdev)?;
        Some((found.1, found.2))
    }

    /// All present memory by node; `None` where the kernel does not tell.
    pub(crate) fn by_node(&self) -> Option<BTreeMap<u32, u64>> {
        let mut sum = BTreeMap::new();
        for (_, memory, _) in self.memory() {
            for (node, bytes) in &memory.by_node {
                let on: &mut u64 = sum.entry((*node)?).or_default();
                *on = on.saturating_add(*bytes);
            }
        }
        (!sum.is_empty()).then_some(sum)
    }
}
