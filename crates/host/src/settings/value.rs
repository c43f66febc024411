//! What values a setting takes, and how people and the kernel say them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use topology::PcpuSet;
use vmconfig::PciAddress;

/// The value of a module or a cgroup that is not there.
pub(super) const ABSENT: &str = "absent";

/// What "no pCPU" and "no state" are called.
pub(super) const NONE: &str = "none";

/// What values a setting takes. Each value has one way in which it is kept and
/// compared, whatever way it is said in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingValues {
    /// One of these words; a kernel may offer fewer.
    Words(&'static [&'static str]),
    /// One of the words that the kernel offers in a file beside it.
    Offered,
    /// `0` or `1`; on, off, true, false, yes, no, Y, N are understood.
    Switch,
    /// A whole number, both ends included.
    Number {
        /// The smallest.
        min: i64,
        /// The largest.
        max: i64,
    },
    /// A list of pCPUs (`2-3,6`), or `none`.
    Pcpus,
    /// A number of pages for the whole host (`512`), or for each node that is
    /// named (`node0:256,node1:256`).
    Pages,
    /// Names of idle states with commas between, or `none`.
    IdleStates,
    /// PCI devices by address with commas between, or `none`.
    Devices,
}

impl SettingValues {
    /// The one way to say the value that `text` says; `None` if it is none of
    /// these.
    #[must_use]
    pub fn normalise(&self, text: &str) -> Option<String> {
        let text = text.trim();
        match self {
            Self::Words(words) => words.contains(&text).then(|| text.to_owned()),
            Self::Offered => is_word(text).then(|| text.to_owned()),
            Self::Switch => switch(text).map(str::to_owned),
            Self::Number { min, max } => {
                let number: i64 = text.parse().ok()?;
                (min..=max).contains(&&number).then(|| number.to_string())
            }
            Self::Pcpus => pcpus(text).map(|set| show_pcpus(&set)),
            Self::Pages => HugePageCounts::parse(text).map(|pages| pages.to_string()),
            Self::IdleStates => names(text).map(|names| show_names(&names)),
            Self::Devices => devices(text).map(|devices| show_devices(&devices)),
        }
    }

    /// What a file of the kernel says, in the one way to say it. Values that
    /// nobody may ask for are understood as well: they were there before.
    pub(super) fn read(&self, text: &str) -> Option<String> {
        let text = text.trim();
        match self {
            Self::Words(_) | Self::Offered => chosen(text),
            Self::Switch => switch(text).map(str::to_owned).or_else(|| chosen(text)),
            Self::Number { .. } => text.parse::<i128>().ok().map(|number| number.to_string()),
            Self::Pcpus => pcpus(text).map(|set| show_pcpus(&set)),
            Self::Devices => devices(text).map(|devices| show_devices(&devices)),
            Self::Pages | Self::IdleStates => text.parse::<u64>().ok().map(|n| n.to_string()),
        }
    }
}

impl fmt::Display for SettingValues {
    /// What it takes: `always, madvise or never`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words(words) => f.write_str(&words.join(", ")),
            Self::Offered => f.write_str("a word that this kernel offers"),
            Self::Switch => f.write_str("0 or 1"),
            Self::Number { min, max: i64::MAX } => write!(f, "a whole number from {min}"),
            Self::Number { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Pcpus => f.write_str("pCPUs such as 2-3,6, or none"),
            Self::Pages => f.write_str("a number of pages such as 512, or node0:256,node1:256"),
            Self::IdleStates => f.write_str("names of idle states such as C3,C6, or none"),
            Self::Devices => f.write_str("PCI devices such as 0000:3b:00.0, or none"),
        }
    }
}

fn switch(text: &str) -> Option<&'static str> {
    match text.to_ascii_lowercase().as_str() {
        "0" | "off" | "false" | "no" | "n" => Some("0"),
        "1" | "on" | "true" | "yes" | "y" => Some("1"),
        _ => None,
    }
}

fn is_word(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_+.-".contains(c);
    !text.is_empty() && text.len() <= 64 && text.chars().all(allowed)
}

pub(super) fn pcpus(text: &str) -> Option<PcpuSet> {
    match text {
        "" | NONE => Some(PcpuSet::new()),
        list => list.parse().ok(),
    }
}

pub(super) fn show_pcpus(pcpus: &PcpuSet) -> String {
    if pcpus.is_empty() { NONE.to_owned() } else { pcpus.to_string() }
}

/// The names in a list of idle states; they may hold spaces.
pub(super) fn names(text: &str) -> Option<BTreeSet<String>> {
    if text == NONE {
        return Some(BTreeSet::new());
    }
    let allowed = |c: char| c.is_ascii_graphic() || c == ' ';
    let name = |part: &str| {
        let part = part.trim();
        (!part.is_empty() && part.chars().all(allowed)).then(|| part.to_owned())
    };
    text.split(',').map(name).collect()
}

pub(super) fn show_names(names: &BTreeSet<String>) -> String {
    if names.is_empty() {
        return NONE.to_owned();
    }
    names.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// The PCI devices of a list.
pub(super) fn devices(text: &str) -> Option<BTreeSet<PciAddress>> {
    if text == NONE {
        return Some(BTreeSet::new());
    }
    text.split(',').map(|part| part.trim().parse().ok()).collect()
}

pub(super) fn show_devices(devices: &BTreeSet<PciAddress>) -> String {
    if devices.is_empty() {
        return NONE.to_owned();
    }
    devices.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// How many huge pages, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum HugePageCounts {
    /// A number for the whole host.
    Total(u64),
    /// A number for each of these nodes; others stay as they are.
    Nodes(BTreeMap<u32, u64>),
}

impl HugePageCounts {
    pub(super) fn parse(text: &str) -> Option<Self> {
        if let Ok(total) = text.parse() {
            return Some(Self::Total(total));
        }
        let mut nodes = BTreeMap::new();
        for part in text.split(',') {
            let (node, pages) = part.trim().strip_prefix("node")?.split_once(':')?;
            if nodes.insert(node.parse().ok()?, pages.trim().parse().ok()?).is_some() {
                return None;
            }
        }
        Some(Self::Nodes(nodes))
    }
}

impl fmt::Display for HugePageCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Total(total) => write!(f, "{total}"),
            Self::Nodes(nodes) => {
                let parts: Vec<_> =
                    nodes.iter().map(|(node, pages)| format!("node{node}:{pages}")).collect();
                f.write_str(&parts.join(","))
            }
        }
    }
}

/// The word that `always [madvise] never` or `none (full)` chooses; without
/// brackets the whole text, which must be one word then.
fn chosen(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut marked = words.iter().filter_map(|word| unmark(word));
    match (marked.next(), marked.next()) {
        (Some(word), None) => Some(word.to_owned()),
        (None, _) if words.len() == 1 => Some(text.to_owned()),
        _ => None,
    }
}

fn unmark(word: &str) -> Option<&str> {
    let inside = |open, close| word.strip_prefix(open)?.strip_suffix(close);
    inside('[', ']').or_else(|| inside('(', ')'))
}

/// The words that a file offers by listing them; empty when it lists none.
pub(super) fn offered(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    if !words.iter().any(|word| unmark(word).is_some()) {
        return Vec::new();
    }
    words.iter().map(|word| unmark(word).unwrap_or(word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_one_form() {
        let check = |values: SettingValues, text: &str, expected: Option<&str>| {
            let found = values.normalise(text);
            assert_eq!(found.as_deref(), expected, "{values:?} {text:?}");
            // What is normalised stays so.
            if let Some(found) = found {
                assert_eq!(values.normalise(&found), Some(found));
            }
        };
        check(SettingValues::Words(&["a", "b"]), " a ", Some("a"));
        check(SettingValues::Words(&["a", "b"]), "c", None);
        check(SettingValues::Offered, "schedutil", Some("schedutil"));
        check(SettingValues::Offered, "two words", None);
        check(SettingValues::Switch, "Y", Some("1"));
        check(SettingValues::Switch, "off", Some("0"));
        check(SettingValues::Switch, "2", None);
        let number = SettingValues::Number { min: -1, max: 10 };
        check(number, "007", Some("7"));
        check(number, "-1", Some("-1"));
        check(number, "11", None);
        check(number, "1.5", None);
        check(SettingValues::Pcpus, "3,1,2", Some("1-3"));
        check(SettingValues::Pcpus, "none", Some("none"));
        check(SettingValues::Pcpus, "3-1", None);
        check(SettingValues::Pages, "8", Some("8"));
        check(SettingValues::Pages, "node1:4, node0:8", Some("node0:8,node1:4"));
        check(SettingValues::Pages, "node1:4,node1:8", None);
        check(SettingValues::Pages, "-3", None);
        check(SettingValues::IdleStates, "C6, haltpoll idle", Some("C6,haltpoll idle"));
        check(SettingValues::IdleStates, "C6,,C3", None);
        check(SettingValues::IdleStates, "none", Some("none"));
        check(SettingValues::Devices, "3b:00.0, 0000:01:00.0", Some("0000:01:00.0,0000:3b:00.0"));
        check(SettingValues::Devices, "nvme0n1", None);
        check(SettingValues::Devices, "none", Some("none"));
    }

    #[test]
    fn files_are_read() {
        let words = SettingValues::Words(&["always", "madvise", "never"]);
        let check = |values: SettingValues, text: &str, expected: Option<&str>, offers: &[&str]| {
            assert_eq!(values.read(text).as_deref(), expected, "{text:?}");
            assert_eq!(offered(text), offers, "{text:?}");
        };
        let three = ["always", "madvise", "never"];
        check(words, "always [madvise] never\n", Some("madvise"), &three);
        check(words, "none voluntary (full)\n", Some("full"), &["none", "voluntary", "full"]);
        check(words, "[only]", Some("only"), &["only"]);
        check(words, "plain\n", Some("plain"), &[]);
        check(words, "[a] [b]", None, &["a", "b"]);
        check(words, "a b", None, &[]);
        check(words, "", None, &[]);
        check(SettingValues::Switch, "Y\n", Some("1"), &[]);
        check(SettingValues::Switch, "2\n", Some("2"), &[]);
        check(SettingValues::Number { min: 0, max: 9 }, "4294967295\n", Some("4294967295"), &[]);
        check(
            SettingValues::Number { min: 0, max: 9 },
            "18446744073709551615",
            Some("18446744073709551615"),
            &[],
        );
        check(SettingValues::Pcpus, "\n", Some("none"), &[]);
    }
}
