//! Sets of pCPU numbers in the kernel's list format.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The most pCPUs that one part of a list may name. Linux stops at 8192
/// (`CONFIG_MAXSMP`); the limit keeps a typing mistake from filling memory.
const MAX_PCPUS_IN_A_PART: u64 = 65_536;

/// The most runs of neighbours that a list may name, each as often as it does.
const MAX_RUNS: usize = 1 << 17;

/// A set of pCPU numbers, in ascending order.
///
/// Parsed from and shown in the kernel's list format: numbers and ranges
/// separated by commas (`0-3,8`), a range may carry a stride (`0-31:2/4`: the
/// first two of every four). The empty text is the empty set. White space
/// around the text is ignored, so what a sysfs file holds parses as it stands.
/// In serde formats a set is that same text.
///
/// Source: Linux `Documentation/admin-guide/kernel-parameters.rst`, "cpu lists".
///
/// Kept as ranges, so that `0-65535` costs as much as `0`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PcpuSet {
    /// First and last number of each run, ascending; between two runs at least one
    /// number is not in the set.
    runs: Vec<(u32, u32)>,
}

impl PcpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// From runs in any order, which may overlap.
    fn of_runs(mut runs: Vec<(u32, u32)>) -> Self {
        if !runs.is_sorted() {
            runs.sort_unstable();
        }
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(runs.len());
        for (first, last) in runs {
            match joined.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => joined.push((first, last)),
            }
        }
        Self { runs: joined }
    }

    /// The pCPU numbers, ascending.
    pub fn iter(&self) -> Iter<'_> {
        Iter { runs: &self.runs, front: 0, back: 0, left: self.len() }
    }

    /// Whether the set holds this pCPU.
    pub fn contains(&self, pcpu: u32) -> bool {
        let behind = self.runs.partition_point(|(first, _)| *first <= pcpu);
        behind > 0 && self.runs[behind - 1].1 >= pcpu
    }

    /// Number of pCPUs.
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Whether no pCPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The lowest pCPU number.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|(first, _)| *first)
    }

    /// The highest pCPU number.
    pub fn last(&self) -> Option<u32> {
        self.runs.last().map(|(_, last)| *last)
    }

    /// Adds a pCPU; says whether it was new.
    pub fn insert(&mut self, pcpu: u32) -> bool {
        if self.contains(pcpu) {
            return false;
        }
        let at = self.runs.partition_point(|(first, _)| *first < pcpu);
        let joins_before = at > 0 && self.runs[at - 1].1.checked_add(1) == Some(pcpu);
        let joins_behind =
            self.runs.get(at).is_some_and(|(first, _)| pcpu.checked_add(1) == Some(*first));
        match (joins_before, joins_behind) {
            (true, true) => self.runs[at - 1].1 = self.runs.remove(at).1,
            (true, false) => self.runs[at - 1].1 = pcpu,
            (false, true) => self.runs[at].0 = pcpu,
            (false, false) => self.runs.insert(at, (pcpu, pcpu)),
        }
        true
    }

    /// The pCPUs in either set.
    #[must_use]
    pub fn union(&self, other: &PcpuSet) -> PcpuSet {
        Self::union_of([self, other])
    }

    /// The pCPUs in any of the sets.
    #[must_use]
    pub fn union_of<'a>(sets: impl IntoIterator<Item = &'a PcpuSet>) -> PcpuSet {
        Self::of_runs(sets.into_iter().flat_map(|set| set.runs.iter().copied()).collect())
    }

    /// The pCPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &PcpuSet) -> PcpuSet {
        let (mut ours, mut theirs) = (self.runs.iter().peekable(), other.runs.iter().peekable());
        let mut runs = Vec::new();
        while let (Some((a, b)), Some((c, d))) = (ours.peek(), theirs.peek()) {
            let (first, last) = (*a.max(c), *b.min(d));
            if first <= last {
                runs.push((first, last));
            }
            if b < d {
                ours.next()
            } else {
                theirs.next()
            };
        }
        PcpuSet { runs }
    }

    /// The pCPUs in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &PcpuSet) -> PcpuSet {
        let mut runs = Vec::new();
        let mut taken = other.runs.iter().peekable();
        for (first, last) in &self.runs {
            let mut from = Some(*first);
            while let (Some(start), Some((gone, end))) = (from, taken.peek()) {
                if gone > last {
                    break;
                }
                if start < *gone {
                    runs.push((start, gone - 1));
                }
                from = end.checked_add(1).map(|next| next.max(start)).filter(|next| next <= last);
                // It may reach into the next run.
                if from.is_some() {
                    taken.next();
                }
            }
            if let Some(start) = from {
                runs.push((start, *last));
            }
        }
        PcpuSet { runs }
    }

    /// Whether every pCPU of this set is in the other.
    pub fn is_subset(&self, other: &PcpuSet) -> bool {
        self.difference(other).is_empty()
    }

    /// Whether no pCPU is in both sets.
    pub fn is_disjoint(&self, other: &PcpuSet) -> bool {
        self.intersection(other).is_empty()
    }

    /// The runs of neighbouring numbers as `(first, last)`, ascending.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        self.runs.clone()
    }
}

/// The numbers of a [`PcpuSet`], ascending.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    runs: &'a [(u32, u32)],
    /// Numbers that were taken of the first run, and of the last.
    front: u32,
    back: u32,
    left: usize,
}

impl Iterator for Iter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let (first, last) = *self.runs.first()?;
        let pcpu = first + self.front;
        if pcpu == last {
            self.runs = &self.runs[1..];
            self.front = 0;
        } else {
            self.front += 1;
        }
        Some(pcpu)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let (first, last) = *self.runs.last()?;
        let pcpu = last - self.back;
        if pcpu == first {
            self.runs = &self.runs[..self.runs.len() - 1];
            self.back = 0;
        } else {
            self.back += 1;
        }
        Some(pcpu)
    }
}

impl ExactSizeIterator for Iter<'_> {}

/// By their numbers in turn.
impl Ord for PcpuSet {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.iter().cmp(other.iter())
    }
}

impl PartialOrd for PcpuSet {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl FromIterator<u32> for PcpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(pcpus: I) -> Self {
        let mut set = Self::new();
        set.extend(pcpus);
        set
    }
}

impl Extend<u32> for PcpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, pcpus: I) {
        let mut runs = std::mem::take(&mut self.runs);
        for pcpu in pcpus {
            match runs.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(pcpu) => *last = pcpu,
                _ => runs.push((pcpu, pcpu)),
            }
        }
        *self = Self::of_runs(runs);
    }
}

impl<'a> IntoIterator for &'a PcpuSet {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The list format: `0-3,8`. The empty set is the empty text.
impl fmt::Display for PcpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (first, last) in &self.runs {
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
    /// More ranges than any machine needs.
    #[error("The pCPU list has more than {MAX_RUNS} ranges; {part:?} is one too many")]
    TooLong {
        /// The part of the list.
        part: String,
    },
}

impl FromStr for PcpuSet {
    type Err = ParsePcpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let list = text.trim();
        let mut runs = Vec::new();
        if list.is_empty() {
            return Ok(Self::new());
        }
        for part in list.split(',') {
            let part = part.trim();
            if part.is_empty() {
                return Err(ParsePcpuSetError::EmptyPart { list: list.into() });
            }
            parse_part(part, &mut runs)?;
            if runs.len() > MAX_RUNS {
                return Err(ParsePcpuSetError::TooLong { part: part.into() });
            }
        }
        Ok(Self::of_runs(runs))
    }
}

fn parse_part(part: &str, runs: &mut Vec<(u32, u32)>) -> Result<(), ParsePcpuSetError> {
    let bad_stride = || ParsePcpuSetError::BadStride { part: part.into() };
    let (range, stride) = match part.split_once(':') {
        Some((range, stride)) => (range, Some(stride)),
        None => (part, None),
    };
    let Some((first, last)) = range.split_once('-') else {
        if stride.is_some() {
            return Err(bad_stride());
        }
        let pcpu = number(range, part)?;
        runs.push((pcpu, pcpu));
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
    if used == group {
        runs.push((first, last));
        return Ok(());
    }
    let starts = (first..=last).step_by(group as usize);
    runs.extend(starts.map(|start| (start, last.min(start.saturating_add(used - 1)))));
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

impl JsonSchema for PcpuSet {
    fn schema_name() -> Cow<'static, str> {
        "PcpuSet".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "pCPUs as the kernel lists them: `0-3,8`, or with steps `0-30:2/4`.",
        })
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
        let long = ["0-65535:1/2"; 5].join(",");
        check_error(
            &long,
            r#"The pCPU list has more than 131072 ranges; "0-65535:1/2" is one too many"#,
        );
    }

    #[test]
    fn many_pcpus_cost_as_much_as_one() {
        let set: PcpuSet = "0-65535".parse().expect("a list");
        assert_eq!((set.runs.len(), set.len()), (1, 65_536));
        // Number by number this would be 2^32 steps.
        let sets = vec![set.clone(); 65_536];
        assert_eq!(PcpuSet::union_of(&sets), set);
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

        /// As a set of numbers has it, however the runs lie.
        #[test]
        fn runs_are_no_different_from_numbers(
            a in proptest::collection::btree_set(0u32..48, 0..40),
            b in proptest::collection::btree_set(0u32..48, 0..40),
            one in 0u32..50,
        ) {
            let (x, y): (PcpuSet, PcpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            let numbers = |set: &PcpuSet| set.iter().collect::<Vec<_>>();
            prop_assert_eq!(numbers(&x.union(&y)), a.union(&b).copied().collect::<Vec<_>>());
            let (both, left) = (x.intersection(&y), x.difference(&y));
            prop_assert_eq!(numbers(&both), a.intersection(&b).copied().collect::<Vec<_>>());
            prop_assert_eq!(numbers(&left), a.difference(&b).copied().collect::<Vec<_>>());
            for set in [&both, &left, &x.union(&y)] {
                prop_assert_eq!(set, &set.iter().collect::<PcpuSet>(), "one form for each set");
                let mut back: Vec<u32> = set.iter().rev().collect();
                back.reverse();
                prop_assert_eq!(back, numbers(set));
                prop_assert_eq!(set.iter().len(), set.len());
            }
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            let (mut x, mut a) = (x, a);
            prop_assert_eq!(x.insert(one), a.insert(one));
            prop_assert_eq!(numbers(&x), a.into_iter().collect::<Vec<_>>());
            let mut ends = x.iter();
            let pair = (ends.next(), ends.next_back());
            prop_assert_eq!(pair.0, x.first());
            if x.len() > 1 { prop_assert_eq!(pair.1, x.last()); }
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
