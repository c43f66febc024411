//! Typed reads from a tree that remember what was wrong.

use std::collections::BTreeMap;

use super::Tree;
use crate::PcpuSet;

/// Reads values from a tree and gathers warnings.
pub(super) struct SysfsReader<'a> {
    tree: &'a dyn Tree,
    warnings: Vec<String>,
    /// By file name: the first file that made no sense, its text, how many
    /// more. A thousand pCPUs with the same fault are one warning.
    senseless: BTreeMap<String, (String, String, usize)>,
}

impl<'a> SysfsReader<'a> {
    pub(super) fn new(tree: &'a dyn Tree) -> Self {
        SysfsReader { tree, warnings: Vec::new(), senseless: BTreeMap::new() }
    }

    pub(super) fn into_warnings(mut self) -> Vec<String> {
        for (path, text, more) in std::mem::take(&mut self.senseless).into_values() {
            let others = match more {
                0 => String::new(),
                1 => " and in one more file of that name".into(),
                more => format!(" and in {more} more files of that name"),
            };
            self.warnings.push(format!("Cannot make sense of {text:?} in /{path}{others}"));
        }
        self.warnings
    }

    pub(super) fn warn(&mut self, warning: impl Into<String>) {
        let warning = warning.into();
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// The file's text without surrounding white space and NULs (device tree
    /// properties end in one); `None` if missing or blank.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = self.tree.read(path)?;
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.to_owned())
    }

    /// The file's text as it stands.
    pub(super) fn raw(&self, path: &str) -> Option<String> {
        self.tree.read(path)
    }

    pub(super) fn exists(&self, path: &str) -> bool {
        self.tree.read(path).is_some()
    }

    /// Entries of a folder, ascending.
    pub(super) fn list(&self, path: &str) -> Vec<String> {
        let mut names = self.tree.list(path);
        names.sort();
        names
    }

    /// Entries of a folder called `<prefix><number>`, by ascending number.
    pub(super) fn numbered(&self, path: &str, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> =
            self.tree.list(path).iter().filter_map(|name| numbered_name(name, prefix)).collect();
        numbers.sort_unstable();
        numbers
    }

    /// A number that may be negative; text that is none is remembered.
    pub(super) fn number(&mut self, path: &str) -> Option<i64> {
        let text = self.text(path)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.makes_no_sense(path, &text);
        }
        number
    }

    /// A number that can't be negative: below zero is "unknown".
    pub(super) fn count(&mut self, path: &str) -> Option<u64> {
        self.number(path).and_then(|number| number.try_into().ok())
    }

    /// An id as the kernel writes it, where -1 is "unknown".
    pub(super) fn id(&mut self, path: &str) -> Option<u32> {
        self.number(path).and_then(|number| number.try_into().ok())
    }

    /// A list of pCPUs or nodes; `Some` of an empty set for an empty file.
    pub(super) fn set(&mut self, path: &str) -> Option<PcpuSet> {
        let text = self.tree.read(path)?;
        // What the kernel prints for a mask that was never set.
        if text.trim() == "(null)" {
            return Some(PcpuSet::new());
        }
        let set = text.parse().ok();
        if set.is_none() {
            self.makes_no_sense(path, text.trim());
        }
        set
    }

    /// A set of pCPUs under any of several names; a name without `_list` is a
    /// hexadecimal mask.
    pub(super) fn set_of_names(&mut self, folder: &str, names: &[&str]) -> Option<PcpuSet> {
        for name in names {
            let path = format!("{folder}/{name}");
            if name.ends_with("_list") {
                if let Some(set) = self.set(&path) {
                    return Some(set);
                }
            } else if let Some(text) = self.text(&path) {
                match parse_mask(&text) {
                    Some(set) => return Some(set),
                    None => self.makes_no_sense(&path, &text),
                }
            }
        }
        None
    }

    /// All readable files of a folder, by name.
    pub(super) fn values(&self, folder: &str) -> BTreeMap<String, String> {
        self.list(folder)
            .into_iter()
            .filter_map(|name| {
                let value = self.text(&format!("{folder}/{name}"))?;
                Some((name, value))
            })
            .collect()
    }

    fn makes_no_sense(&mut self, path: &str, text: &str) {
        const SHOWN_CHARS: usize = 60;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        let shown = text.chars().take(SHOWN_CHARS).collect();
        self.senseless.entry(name).and_modify(|(_, _, more)| *more += 1).or_insert((
            path.to_owned(),
            shown,
            0,
        ));
    }
}

/// The number in `<prefix><number>`.
pub(super) fn numbered_name(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// Reads a mask like `00000001,0000ffff`: 32 bits a group, highest first.
fn parse_mask(text: &str) -> Option<PcpuSet> {
    let mut pcpus = PcpuSet::new();
    for (group, digits) in text.split(',').rev().enumerate() {
        let bits = u32::from_str_radix(digits.trim(), 16).ok()?;
        let group = u32::try_from(group).ok()?;
        pcpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| group * 32 + bit));
    }
    Some(pcpus)
}
