//! What people ask for, and the rules that hold for all of it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use topology::{PcpuSet, bytes};

use vmconfig::defaults;

const MIB: u64 = 1 << 20;

/// One VM to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VmWish {
    /// Its name.
    #[serde(default = "unnamed")]
    pub name: String,
    /// vCPUs, at least 1.
    pub vcpus: u32,
    /// Guest memory.
    #[serde(default = "default_memory")]
    pub memory: Size,
    /// Threads of each guest core.
    #[serde(default)]
    pub threads_per_core: ThreadsPerCore,
    /// Block event loops.
    #[serde(default)]
    pub iothreads: u32,
    /// Kernel threads that carry its network queues.
    #[serde(default)]
    pub vhost_threads: u32,
    /// Host cores for its emulator, iothreads and vhost threads alone. 0: they
    /// run on what is left to the host.
    #[serde(default)]
    pub io_cores: u32,
    /// Size of the pages that back its memory; `None` for ordinary ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages: Option<Size>,
    /// How many VMs of this kind; the copies are called `name-1`, `name-2`...
    #[serde(default = "one")]
    pub count: u32,
}

impl VmWish {
    /// A VM with this many vCPUs, this much memory and nothing special.
    #[must_use]
    pub fn new(name: &str, vcpus: u32, memory: Size) -> Self {
        Self {
            name: name.to_owned(),
            vcpus,
            memory,
            threads_per_core: ThreadsPerCore::Auto,
            iothreads: 0,
            vhost_threads: 0,
            io_cores: 0,
            huge_pages: None,
            count: 1,
        }
    }

    /// The wishes with copies written out, each of `count` 1.
    #[must_use]
    pub fn each(wishes: &[Self]) -> Vec<Self> {
        let mut all = Vec::new();
        for wish in wishes {
            let single = Self { count: 1, ..wish.clone() };
            if wish.count == 1 {
                all.push(single);
            } else {
                all.extend(
                    (1..=wish.count).map(|copy| Self {
                        name: format!("{}-{copy}", wish.name),
                        ..single.clone()
                    }),
                );
            }
        }
        all
    }

    /// Whether only the names differ.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let named = Self { name: self.name.clone(), ..other.clone() };
        named == *self
    }

    /// What its memory is counted in.
    pub(crate) fn unit(&self) -> MemoryUnit {
        match self.huge_pages {
            Some(size) => MemoryUnit { bytes: size.0, is_huge: true },
            None => {
                let exact = 1 << self.memory.0.trailing_zeros().min(63);
                // Little memory must still be enough for many cells.
                let fine = (self.memory.0 / MOST_CELLS).next_power_of_two();
                let bytes = exact.min(fine).clamp(MIB, MEMORY_BLOCK);
                MemoryUnit { bytes, is_huge: false }
            }
        }
    }

    /// Memory in whole units.
    pub(crate) fn units(&self) -> u64 {
        self.memory.0.div_ceil(self.unit().bytes)
    }
}

/// Guest cells begin and end at memory blocks where the VM's memory allows.
///
/// Source: Linux `arch/x86/include/asm/sparsemem.h`, sections of 128 MiB.
const MEMORY_BLOCK: u64 = 128 * MIB;

/// More guest cells than any machine has nodes.
const MOST_CELLS: u64 = 64;

/// What a VM's memory is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryUnit {
    pub(crate) bytes: u64,
    /// Whether each is a huge page; otherwise they are parts of any memory.
    pub(crate) is_huge: bool,
}

/// A list of VMs as people write it: a table `vm` of wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WishList {
    /// The VMs.
    pub vm: Vec<VmWish>,
}

fn unnamed() -> String {
    "vm".to_owned()
}

fn one() -> u32 {
    1
}

fn default_memory() -> Size {
    Size(defaults::MEMORY_MIB * MIB)
}

/// How many threads a guest core has. Each guest core is one host core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadsPerCore {
    /// As many as the host's cores have and the vCPUs can be divided by.
    #[default]
    Auto,
    /// So many; the host core's other threads stay idle.
    Exactly(u32),
}

/// Error type for parsing [`ThreadsPerCore`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Not a number of threads per core: {0:?} (write auto, 1, 2...)")]
pub struct ParseThreadsError(String);

impl FromStr for ThreadsPerCore {
    type Err = ParseThreadsError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        match text.parse() {
            Ok(threads) if threads > 0 => Ok(Self::Exactly(threads)),
            _ => Err(ParseThreadsError(text.to_owned())),
        }
    }
}

impl fmt::Display for ThreadsPerCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Exactly(threads) => write!(f, "{threads}"),
        }
    }
}

/// A number, or the text `auto`.
impl Serialize for ThreadsPerCore {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Exactly(threads) => serializer.serialize_u32(*threads),
        }
    }
}

impl JsonSchema for ThreadsPerCore {
    fn schema_name() -> Cow<'static, str> {
        "ThreadsPerCore".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Threads a core of the guest: a number, or `auto`.",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string" }],
        })
    }
}

impl<'de> Deserialize<'de> for ThreadsPerCore {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Number(number) => number.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

/// An amount of memory in bytes. Written `16GiB`, `512MiB`, `2M`; a number
/// alone counts MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(pub u64);

impl Size {
    /// So many MiB.
    #[must_use]
    pub fn mib(mib: u64) -> Self {
        Self(mib.saturating_mul(MIB))
    }

    /// So many GiB.
    #[must_use]
    pub fn gib(gib: u64) -> Self {
        Self::mib(gib.saturating_mul(1024))
    }

    /// Whole MiB, rounded up.
    #[must_use]
    pub fn in_mib(self) -> u64 {
        self.0.div_ceil(MIB)
    }
}

/// Error type for parsing a [`Size`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Not an amount of memory: {0:?} (write 16GiB, 512MiB, or a number of MiB)")]
pub struct ParseSizeError(String);

impl FromStr for Size {
    type Err = ParseSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || ParseSizeError(text.to_owned());
        // A blank may stand between number and unit.
        let text = text.trim();
        let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let number = &text[..text.len() - unit.len()];
        let unit = unit.trim_start();
        let is_unit = !unit.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        let bytes = bytes::parse(&format!("{number}{unit}"), MIB).filter(|_| is_unit);
        let bytes = bytes.ok_or_else(wrong)?;
        // More than any machine has would overflow sums.
        if bytes == 0 || bytes > 1 << 52 { Err(wrong()) } else { Ok(Self(bytes)) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Cells are told closer than by one digit: a unit counts that is whole, or of which
        // there are 100.
        for (name, shift) in [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)] {
            if self.0 >= 1 << shift && self.0.is_multiple_of(1 << shift) {
                return write!(f, "{} {name}", self.0 >> shift);
            }
            if self.0 >= 100 << shift {
                return write!(f, "{:.1} {name}", self.0 as f64 / (1_u64 << shift) as f64);
            }
        }
        write!(f, "{} B", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&bytes::exact(self.0).replace(' ', ""))
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An amount of memory: `16GiB`, `512MiB`; a number alone counts MiB.",
            "anyOf": [{ "type": "integer", "minimum": 1 }, { "type": "string" }],
        })
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(deserializer)? {
            NumberOrText::Number(number) => number.to_string().parse(),
            NumberOrText::Text(text) => text.parse(),
        }
        .map_err(serde::de::Error::custom)
    }
}

/// What holds for every VM of a plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PlanRules {
    /// pCPUs whose cores are left to the host. `None`: the core of the lowest
    /// pCPU, where Linux does its own work (pCPU 0 unless it is offline).
    pub leave: Option<PcpuSet>,
    /// pCPUs that serve many interrupts; their cores are left to the host too.
    pub irq_heavy: PcpuSet,
    /// pCPUs whose cores somebody else has.
    pub taken: PcpuSet,
    /// vCPUs per pCPU where VMs don't fit with cores of their own. `None`:
    /// never share.
    pub overcommit: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, expected, shown) in [
            ("16GiB", 16 << 30, "16 GiB"),
            ("16 G", 16 << 30, "16 GiB"),
            ("512MiB", 512 << 20, "512 MiB"),
            ("2m", 2 << 20, "2 MiB"),
            ("1024", 1 << 30, "1 GiB"),
            ("1500MiB", 1500 << 20, "1500 MiB"),
            ("1.5GiB", 1536 << 20, "1536 MiB"),
            ("102401MiB", 102_401 << 20, "100.0 GiB"),
            ("64kb", 64 << 10, "64 KiB"),
            ("3b", 3, "3 B"),
        ] {
            let size: Size = text.parse().expect(text);
            assert_eq!((size.0, size.to_string().as_str()), (expected, shown), "{text}");
            let json = serde_json::to_string(&size).expect("a text");
            assert_eq!(serde_json::from_str::<Size>(&json).expect("own text"), size);
        }
        for text in ["", "GiB", "-1GiB", "1.GiB", "0", "16XiB", "99999999999TiB", "1 2"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn wishes_are_written_shortly() {
        let wish: VmWish = serde_json::from_str(
            r#"{"name":"web","vcpus":4,"memory":"8GiB","threads_per_core":1,"count":2}"#,
        )
        .expect("a wish");
        assert_eq!(wish.threads_per_core, ThreadsPerCore::Exactly(1));
        let names: Vec<String> = VmWish::each(&[wish]).into_iter().map(|wish| wish.name).collect();
        assert_eq!(names, ["web-1", "web-2"]);
        let least: VmWish = serde_json::from_str(r#"{"vcpus":1}"#).expect("a wish");
        assert_eq!((least.memory.in_mib(), least.count), (defaults::MEMORY_MIB, 1));
        assert!(serde_json::from_str::<VmWish>(r#"{"vcpus":1,"threads_per_core":0}"#).is_err());
    }
}
