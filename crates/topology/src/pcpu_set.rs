//! Sets of pCPU numbers in the kernel's list format.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most pCPUs that one part of a list may name. Linux stops at 8192
/// (`CONFIG_MAXSMP`); the limit keeps a typing mistake from filling memory.
const MAX_PCPUS_IN_A_PART: u64 = 65_536;

/// A set of pCPU numbers, in ascending order.
///
/// Parsed from and shown in the kernel's list format: numbers and ranges
/// separated by commas (`0-3,8`), a range may carry a stride (`0-31:2/4`: the
/// first two of every four). The empty text is the empty set. White space
/// around the text is ignored, so what a sysfs file holds parses as it stands.
/// In serde formats a set is that same text.
///
/// Source: Linux `Documentation/admin-guide/kernel-parameters.rst`, "cpu lists".
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PcpuSet(BTreeSet<u32>);

impl PcpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The pCPU numbers, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + Clone + '_ {
        self.0.iter().copied()
    }

    /// Whether the set holds this pCPU.
    pub fn contains(&self, pcpu: u32) -> bool {
        self.0.contains(&pcpu)
    }

    /// Number of pCPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no pCPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest pCPU number.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// The highest pCPU number.
    pub fn last(&self) -> Option<u32> {
        self.0.last().copied()
    }

    /// Adds a pCPU; says whether it was new.
    pub fn insert(&mut self, pcpu: u32) -> bool {
        self.0.insert(pcpu)
    }

    /// The pCPUs in either set.
    #[must_use]
    pub fn union(&self, other: &PcpuSet) -> PcpuSet {
        PcpuSet(&self.0 | &other.0)
    }

    /// The pCPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &PcpuSet) -> PcpuSet {
        PcpuSet(&self.0 & &other.0)
    }

    /// The pCPUs in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &PcpuSet) -> PcpuSet {
        PcpuSet(&self.0 - &other.0)
    }

    /// Whether every pCPU of this set is in the other.
    pub fn is_subset(&self, other: &PcpuSet) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Whether no pCPU is in both sets.
    pub fn is_disjoint(&self, other: &PcpuSet) -> bool {
        self.0.is_disjoint(&other.0)
    }

    /// The runs of neighbouring numbers as `(first, last)`, ascending.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for pcpu in self.iter() {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == pcpu => *last = pcpu,
                _ => ranges.push((pcpu, pcpu)),
            }
        }
        ranges
    }
}

impl FromIterator<u32> for PcpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(pcpus: I) -> Self {
        PcpuSet(pcpus.into_iter().collect())
    }
}

impl Extend<u32> for PcpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, pcpus: I) {
        self.0.extend(pcpus);
    }
}

impl<'a> IntoIterator for &'a PcpuSet {
    type Item = u32;
    type IntoIter = std::iter::Copied<std::collections::btree_set::Iter<'a, u32>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().copied()
    }
}

/// The list format: `0-3,8`. The empty set is the empty text.
impl fmt::Display for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (first, last) in self.ranges() {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&first.to_string());
            if last > first {
                text.push('-');
                text.push_str(&last.to_string());
            }
        }
        f.pad(&text)
    }
}

/// Error type for parsing a [`PcpuSet`]. Each case names the part at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParsePcpuSetError {
    /// Nothing stands between two commas, or before or after one.
    #[error("Empty part in the pCPU list {list:?}: remove the extra comma")]
    EmptyPart {
        /// The whole list.
        list: String,
    },
    /// Not a number that a pCPU can have.
    #[error("Not a pCPU number: {text:?} in {part:?} (write a list like 0-3,8 or 0-31:2/4)")]
    NotANumber {
        /// What should have been a number.
        text: String,
        /// The part of the list that it stands in.
        part: String,
    },
    /// A range that runs downwards.
    #[error("Range runs backwards: {part:?} (write {last}-{first})")]
    Backwards {
        /// The part of the list.
        part: String,
        /// The number before the dash.
        first: u32,
        /// The number after the dash.
        last: u32,
    },
    /// A stride that is not `used/group` with 1 <= used <= group.
    #[error("Bad stride in {part:?}: write FIRST-LAST:USED/GROUP with USED from 1 to GROUP")]
    BadStride {
        /// The part of the list.
        part: String,
    },
    /// A range of more pCPUs than any machine has.
    #[error("Range {part:?} names more than {MAX_PCPUS_IN_A_PART} pCPUs")]
    TooMany {
        /// The part of the list.
        part: String,
    },
}

impl FromStr for PcpuSet {
    type Err = ParsePcpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let list = text.trim();
        let mut pcpus = BTreeSet::new();
        if list.is_empty() {
            return Ok(PcpuSet(pcpus));
        }
        for part in list.split(',') {
            let part = part.trim();
            if part.is_empty() {
                return Err(ParsePcpuSetError::EmptyPart { list: list.into() });
            }
            parse_part(part, &mut pcpus)?;
        }
        Ok(PcpuSet(pcpus))
    }
}

fn parse_part(part: &str, pcpus: &mut BTreeSet<u32>) -> Result<(), ParsePcpuSetError> {
    let bad_stride = || ParsePcpuSetError::BadStride { part: part.into() };
    let (range, stride) = match part.split_once(':') {
        Some((range, stride)) => (range, Some(stride)),
        None => (part, None),
    };
    let Some((first, last)) = range.split_once('-') else {
        if stride.is_some() {
            return Err(bad_stride());
        }
        pcpus.insert(number(range, part)?);
        return Ok(());
    };
    let (first, last) = (number(first, part)?, number(last, part)?);
    if first > last {
        return Err(ParsePcpuSetError::Backwards { part: part.into(), first, last });
    }
    if u64::from(last - first) + 1 > MAX_PCPUS_IN_A_PART {
        return Err(ParsePcpuSetError::TooMany { part: part.into() });
    }
    let (used, group) = match stride {
        None => (1, 1),
        Some(stride) => {
            let (used, group) = stride.split_once('/').ok_or_else(bad_stride)?;
            let used: u32 = digits(used).ok_or_else(bad_stride)?;
            let group: u32 = digits(group).ok_or_else(bad_stride)?;
            if used == 0 || used > group {
                return Err(bad_stride());
            }
            (used, group)
        }
    };
    pcpus.extend((first..=last).filter(|pcpu| (pcpu - first) % group < used));
    Ok(())
}

fn number(text: &str, part: &str) -> Result<u32, ParsePcpuSetError> {
    digits(text)
        .ok_or_else(|| ParsePcpuSetError::NotANumber { text: text.into(), part: part.into() })
}

/// A decimal number, digits only: `u32::from_str` alone would take `+1`.
fn digits(text: &str) -> Option<u32> {
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

impl Serialize for PcpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PcpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[track_caller]
    fn check(text: &str, expected: &[u32]) {
        let set: PcpuSet = text.parse().expect(text);
        assert_eq!(set.iter().collect::<Vec<_>>(), expected, "{text:?}");
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        let error = text.parse::<PcpuSet>().expect_err(text);
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn reads_the_kernels_list_format() {
        check("", &[]);
        check("\n", &[]);
        check("0\n", &[0]);
        check("0-3,8", &[0, 1, 2, 3, 8]);
        check("8, 0-1", &[0, 1, 8]);
        check("3,3,2-4", &[2, 3, 4]);
        check("0-15:2/4", &[0, 1, 4, 5, 8, 9, 12, 13]);
        check("1-6:1/2", &[1, 3, 5]);
        check("5-5", &[5]);
        check("4294967295", &[u32::MAX]);
    }

    #[test]
    fn errors_name_the_part() {
        check_error("0,,2", r#"Empty part in the pCPU list "0,,2": remove the extra comma"#);
        check_error(
            "0-3,x",
            r#"Not a pCPU number: "x" in "x" (write a list like 0-3,8 or 0-31:2/4)"#,
        );
        check_error(
            "0-3,+1",
            r#"Not a pCPU number: "+1" in "+1" (write a list like 0-3,8 or 0-31:2/4)"#,
        );
        check_error("1-", r#"Not a pCPU number: "" in "1-" (write a list like 0-3,8 or 0-31:2/4)"#);
        check_error(
            "4294967296",
            r#"Not a pCPU number: "4294967296" in "4294967296" (write a list like 0-3,8 or 0-31:2/4)"#,
        );
        check_error("0,7-3", r#"Range runs backwards: "7-3" (write 3-7)"#);
        for stride in ["0-7:0/4", "0-7:5/4", "0-7:2", "0-7:1/0", "3:1/2", "0-7:/"] {
            check_error(
                stride,
                &format!(
                    "Bad stride in {stride:?}: write FIRST-LAST:USED/GROUP with USED from 1 to GROUP"
                ),
            );
        }
        check_error("0-99999999", r#"Range "0-99999999" names more than 65536 pCPUs"#);
    }

    #[test]
    fn shows_pads_like_text() {
        let set: PcpuSet = "0,1,2,7".parse().expect("a list");
        assert_eq!(format!("[{set:>8}]"), "[   0-2,7]");
    }

    proptest! {
        #[test]
        fn list_round_trips(pcpus in proptest::collection::btree_set(0u32..2000, 0..200)) {
            let set: PcpuSet = pcpus.iter().copied().collect();
            prop_assert_eq!(&set.to_string().parse::<PcpuSet>().expect("own text"), &set);
            let json = serde_json::to_string(&set).expect("a string");
            prop_assert_eq!(&serde_json::from_str::<PcpuSet>(&json).expect("own text"), &set);
            prop_assert_eq!(set.len(), pcpus.len());
        }

        #[test]
        fn any_text_parses_or_errs(text in "[0-9,:/ -]{0,20}") {
            if let Ok(set) = text.parse::<PcpuSet>() {
                prop_assert_eq!(&set.to_string().parse::<PcpuSet>().expect("own text"), &set);
            }
        }

        #[test]
        fn stride_takes_the_first_of_each_group(
            first in 0u32..100, length in 1u32..100, used in 1u32..9, rest in 0u32..9,
        ) {
            let group = used + rest;
            let last = first + length - 1;
            let set: PcpuSet = format!("{first}-{last}:{used}/{group}").parse().expect("valid");
            for pcpu in first..=last {
                prop_assert_eq!(set.contains(pcpu), (pcpu - first) % group < used);
            }
            prop_assert!(set.first() == Some(first) && set.last() <= Some(last));
        }

        #[test]
        fn set_laws(
            a in proptest::collection::btree_set(0u32..64, 0..40),
            b in proptest::collection::btree_set(0u32..64, 0..40),
        ) {
            let (a, b): (PcpuSet, PcpuSet) = (a.into_iter().collect(), b.into_iter().collect());
            let both = a.intersection(&b);
            prop_assert_eq!(a.union(&b).len() + both.len(), a.len() + b.len());
            prop_assert_eq!(a.difference(&b).union(&both), a.clone());
            prop_assert_eq!(a.is_disjoint(&b), both.is_empty());
            prop_assert!(both.is_subset(&a));
        }
    }
}
