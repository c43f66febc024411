//! Memory as Kubernetes tells it apart: by the size of its pages.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use vmconfig::kubevirt::Quantity;

/// Memory in pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryKind {
    /// Ordinary pages.
    Ordinary,
    /// Huge pages of so many bytes.
    HugePages(u64),
}

/// Bytes of each kind.
pub type MemoryAmounts = BTreeMap<MemoryKind, u64>;

const ORDINARY: &str = "memory";
const HUGE_PAGES: &str = "hugepages-";

impl fmt::Display for MemoryKind {
    /// The resource's name in Kubernetes: `memory`, `hugepages-2Mi`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::HugePages(bytes) = *self else { return f.write_str(ORDINARY) };
        let units = [(30, "Gi"), (20, "Mi"), (10, "Ki"), (0, "")];
        let fits = |shift: u32| bytes >> shift << shift == bytes && bytes >> shift > 0;
        let (shift, unit) = units.into_iter().find(|(shift, _)| fits(*shift)).unwrap_or((0, ""));
        write!(f, "{HUGE_PAGES}{}{unit}", bytes >> shift)
    }
}

/// Error type for reading a [`MemoryKind`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no memory: use memory, or hugepages-2Mi with the size of a page")]
pub struct ParseMemoryKindError(String);

impl FromStr for MemoryKind {
    type Err = ParseMemoryKindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == ORDINARY {
            return Ok(Self::Ordinary);
        }
        let size = text.strip_prefix(HUGE_PAGES).and_then(|size| size.parse::<Quantity>().ok());
        let bytes = size.and_then(|size| size.round_up());
        bytes.map(Self::HugePages).ok_or_else(|| ParseMemoryKindError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_have_kubernetes_names() {
        for (name, kind) in [
            ("memory", MemoryKind::Ordinary),
            ("hugepages-2Mi", MemoryKind::HugePages(2 << 20)),
            ("hugepages-1Gi", MemoryKind::HugePages(1 << 30)),
            ("hugepages-64Ki", MemoryKind::HugePages(64 << 10)),
        ] {
            assert_eq!(name.parse(), Ok(kind));
            assert_eq!(kind.to_string(), name);
        }
        for name in ["cpu", "hugepages-", "hugepages-x", ""] {
            let error = name.parse::<MemoryKind>().expect_err(name);
            assert!(error.to_string().contains(&format!("{name:?}")), "{error}");
        }
    }
}
