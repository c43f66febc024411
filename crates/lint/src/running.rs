//! VMs that run, as a text: QEMU's command line, then what is, a line a fact,
//! each with what was asked for where that is known.
//!
//! ```text
//! # vmlab: running 4711
//! qemu-system-x86_64 \
//!   -name db \
//!   -smp 2
//! # is: vCPU 0: pCPU 1
//! # asked: vCPU 0: pCPU 2
//! # is: vCPU 1: any pCPU (0-7)
//! # is: memory: 64 MiB on node 0; pages of 4 KiB
//! ```
//!
//! Rules look at a VM that is read from it as they do at any other, so that
//! one table judges both; and the text can be kept and judged elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use topology::PcpuSet;
use topology::bytes::exact;
use vmconfig::command_line::shell::quote;
use vmconfig::source::NamedFile;

/// How such a text begins.
pub(crate) const MARK: &str = "# vmlab: running ";
/// In front of what is.
pub(crate) const IS: &str = "# is: ";
/// In front of what was asked for.
pub(crate) const ASKED: &str = "# asked: ";

/// A VM that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedVm {
    /// Process id of QEMU.
    pub pid: u32,
    /// Its arguments, the program among them.
    pub argv: Vec<String>,
    /// The files of options that they name, for who joins them with its text.
    pub option_files: Vec<NamedFile>,
    /// What is known of it.
    pub facts: Vec<Observation>,
}

/// Something that is so, and what was asked for in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observation {
    /// What is.
    pub is: ObservedValue,
    /// In words; `None` where nothing was asked for.
    pub asked: Option<String>,
}

/// What is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedValue {
    /// Where a thread, or several alike, may run.
    Thread(ThreadOwner, ThreadPlacement),
    /// Where memory lies: a backend's by its id, or all of the guest's.
    Memory(Option<String>, MemoryPlacement),
    /// Bytes of the process that are locked into memory, of so many of the
    /// guest's.
    Locked(u64, u64),
    /// Bytes of the process that are swapped out.
    Swapped(u64),
    /// What the guest was given, as QEMU tells: sockets, dies, clusters, cores
    /// and threads, each inside one of the level before.
    Topology([u32; 5]),
    /// What executes the guest, as QEMU tells: `kvm`, `tcg`.
    Accelerator(String),
    /// Halts of vCPUs that left the guest, since the VM began.
    HaltExits(u64),
}

/// Whose thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThreadOwner {
    /// That of a vCPU; `None` where its number is not known.
    Vcpu(Option<u32>),
    /// The main loop and its helpers.
    Emulator,
    /// An iothread by its id.
    Iothread(String),
    /// The kernel's threads for virtio devices.
    Vhost,
}

/// Where a thread may run, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ThreadPlacement {
    /// pCPUs on which the kernel lets it run.
    pub pcpus: PcpuSet,
    /// Whether these are all that are online.
    pub anywhere: bool,
    /// Whether threads of the usual policy wait for it.
    pub real_time: bool,
    /// Its cpuset, where that is not all pCPUs.
    pub cpuset: Option<PcpuSet>,
    /// Microseconds that its group may use, and of how many.
    pub quota: Option<(u64, u64)>,
}

/// Where memory lies. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryPlacement {
    /// What is present, by node; by no node where the kernel does not tell.
    pub by_node: BTreeMap<Option<u32>, u64>,
    /// Size of its pages.
    pub page_bytes: u64,
    /// The part of it in transparent huge pages; `None` where there can be none.
    pub thp_bytes: Option<u64>,
    /// Whether the policy binds it to nodes.
    pub bound: bool,
    /// Whether the kernel may merge its pages.
    pub mergeable: bool,
    /// Whether huge pages of a pool were asked for.
    pub wants_pool: bool,
}

impl MemoryPlacement {
    /// What is present.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.by_node.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

impl fmt::Display for ObservedVm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{}", self.pid)?;
        for (at, word) in self.argv.iter().enumerate() {
            let is_value = at > 1 && !word.starts_with('-') && self.argv[at - 1].starts_with('-');
            f.write_str(match at {
                0 => "\n",
                _ if is_value => " ",
                _ => " \\\n  ",
            })?;
            f.write_str(&quote(word))?;
        }
        f.write_str("\n")?;
        for fact in &self.facts {
            writeln!(f, "{IS}{}", fact.is)?;
            if let Some(asked) = &fact.asked {
                writeln!(f, "{ASKED}{}: {}", fact.is.of(), asked.replace('\n', " "))?;
            }
        }
        Ok(())
    }
}

impl ObservedValue {
    /// What it tells of: `vCPU 0`, `memory ram0`.
    pub(crate) fn of(&self) -> String {
        match self {
            Self::Thread(who, _) => who.to_string(),
            Self::Memory(Some(backend), _) => format!("memory {backend}"),
            Self::Memory(None, _) => "memory".to_owned(),
            Self::Locked(..) => "locked".to_owned(),
            Self::Swapped(_) => "swapped out".to_owned(),
            Self::Topology(_) => "topology".to_owned(),
            Self::Accelerator(_) => "accelerator".to_owned(),
            Self::HaltExits(_) => "halt exits".to_owned(),
        }
    }

    /// Whether it tells of where vCPUs run.
    pub(crate) fn is_of_vcpu(&self) -> bool {
        matches!(self, Self::Thread(ThreadOwner::Vcpu(_), _))
    }
}

impl fmt::Display for ObservedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.of())?;
        match self {
            Self::Thread(_, thread) => thread.fmt(f),
            Self::Memory(_, memory) => memory.fmt(f),
            Self::Locked(bytes, all) => write!(f, "{} of {}", exact(*bytes), exact(*all)),
            Self::Swapped(bytes) => f.write_str(&exact(*bytes)),
            Self::Topology([sockets, dies, clusters, cores, threads]) => write!(
                f,
                "sockets={sockets},dies={dies},clusters={clusters},cores={cores},threads={threads}"
            ),
            Self::Accelerator(name) => f.write_str(name),
            Self::HaltExits(exits) => write!(f, "{exits}"),
        }
    }
}

impl fmt::Display for ThreadOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vcpu(Some(vcpu)) => write!(f, "vCPU {vcpu}"),
            Self::Vcpu(None) => f.write_str("vCPU ?"),
            Self::Emulator => f.write_str("emulator"),
            Self::Iothread(id) => write!(f, "iothread {id}"),
            Self::Vhost => f.write_str("vhost"),
        }
    }
}

impl fmt::Display for ThreadPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pcpus = &self.pcpus;
        match (self.anywhere, pcpus.len()) {
            (true, _) => write!(f, "any pCPU ({pcpus})")?,
            (false, 1) => write!(f, "pCPU {pcpus}")?,
            (false, _) => write!(f, "pCPUs {pcpus}")?,
        }
        if self.real_time {
            f.write_str("; real-time")?;
        }
        if let Some(cpuset) = &self.cpuset {
            write!(f, "; cpuset {cpuset}")?;
        }
        match self.quota {
            Some((quota, period)) => write!(f, "; quota {quota} of {period} µs"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for MemoryPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self
            .by_node
            .iter()
            .map(|(node, bytes)| match node {
                Some(node) => format!("{} on node {node}", exact(*bytes)),
                None => format!("{} present", exact(*bytes)),
            })
            .collect();
        f.write_str(if places.is_empty() { "nothing" } else { "" })?;
        f.write_str(&places.join(", "))?;
        write!(f, "; pages of {}", exact(self.page_bytes))?;
        if let Some(bytes) = self.thp_bytes {
            write!(f, "; {} in transparent huge pages", exact(bytes))?;
        }
        for (on, word) in [
            (self.bound, "bound"),
            (self.mergeable, "mergeable"),
            (self.wants_pool, "huge pages asked for"),
        ] {
            if on {
                write!(f, "; {word}")?;
            }
        }
        Ok(())
    }
}

/// Bytes of such a size.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ')?;
    topology::bytes::parse(&format!("{number}{unit}"), 1)
}

/// Error type of reading facts: a line that says nothing known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no fact about a running VM")]
pub struct ParseFactError(String);

impl FromStr for ObservedValue {
    type Err = ParseFactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseFactError(text.to_owned()))
    }
}

impl FromStr for ThreadPlacement {
    type Err = ParseFactError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        thread(text).ok_or_else(|| ParseFactError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<ObservedValue> {
    let (of, said) = text.split_once(": ")?;
    let (word, rest) = of.split_once(' ').unwrap_or((of, ""));
    let name = (!rest.is_empty()).then(|| rest.to_owned());
    Some(match word {
        "vCPU" if rest == "?" => ObservedValue::Thread(ThreadOwner::Vcpu(None), thread(said)?),
        "vCPU" => ObservedValue::Thread(ThreadOwner::Vcpu(Some(rest.parse().ok()?)), thread(said)?),
        "emulator" => ObservedValue::Thread(ThreadOwner::Emulator, thread(said)?),
        "iothread" => ObservedValue::Thread(ThreadOwner::Iothread(name?), thread(said)?),
        "vhost" => ObservedValue::Thread(ThreadOwner::Vhost, thread(said)?),
        "memory" => ObservedValue::Memory(name, memory(said)?),
        "locked" => {
            let (locked, all) = said.split_once(" of ")?;
            ObservedValue::Locked(bytes(locked)?, bytes(all)?)
        }
        "swapped" => ObservedValue::Swapped(bytes(said)?),
        "topology" => ObservedValue::Topology(levels(said)?),
        "accelerator" => ObservedValue::Accelerator(said.to_owned()),
        "halt" if rest == "exits" => ObservedValue::HaltExits(said.parse().ok()?),
        _ => return None,
    })
}

fn thread(text: &str) -> Option<ThreadPlacement> {
    let mut parts = text.split("; ");
    let place = parts.next()?;
    let any = place.strip_prefix("any pCPU (").and_then(|rest| rest.strip_suffix(')'));
    let list = any.or_else(|| place.strip_prefix("pCPUs ").or(place.strip_prefix("pCPU ")))?;
    let mut thread = ThreadPlacement {
        pcpus: list.parse().ok()?,
        anywhere: any.is_some(),
        ..ThreadPlacement::default()
    };
    for part in parts {
        match part.split_once(' ') {
            None if part == "real-time" => thread.real_time = true,
            Some(("cpuset", list)) => thread.cpuset = Some(list.parse().ok()?),
            Some(("quota", rest)) => {
                let (quota, period) = rest.strip_suffix(" µs")?.split_once(" of ")?;
                thread.quota = Some((quota.parse().ok()?, period.parse().ok()?));
            }
            _ => return None,
        }
    }
    Some(thread)
}

fn memory(text: &str) -> Option<MemoryPlacement> {
    let mut parts = text.split("; ");
    let mut memory = MemoryPlacement::default();
    for place in parts.next()?.split(", ").filter(|place| *place != "nothing") {
        let (node, size) = match place.strip_suffix(" present") {
            Some(size) => (None, size),
            None => {
                let (size, node) = place.split_once(" on node ")?;
                (Some(node.parse().ok()?), size)
            }
        };
        memory.by_node.insert(node, bytes(size)?);
    }
    for part in parts {
        if let Some(size) = part.strip_prefix("pages of ") {
            memory.page_bytes = bytes(size)?;
        } else if let Some(size) = part.strip_suffix(" in transparent huge pages") {
            memory.thp_bytes = Some(bytes(size)?);
        } else {
            let word = match part {
                "bound" => &mut memory.bound,
                "mergeable" => &mut memory.mergeable,
                "huge pages asked for" => &mut memory.wants_pool,
                _ => return None,
            };
            *word = true;
        }
    }
    Some(memory)
}

fn levels(text: &str) -> Option<[u32; 5]> {
    let mut parts = text.split(',');
    let mut level = |name: &str| {
        let (key, value) = parts.next()?.split_once('=')?;
        (key == name).then(|| value.parse().ok()).flatten()
    };
    Some([
        level("sockets")?,
        level("dies")?,
        level("clusters")?,
        level("cores")?,
        level("threads")?,
    ])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_set() -> impl Strategy<Value = PcpuSet> {
        proptest::collection::btree_set(0_u32..64, 1..6)
            .prop_map(|pcpus| pcpus.into_iter().collect())
    }

    fn any_thread() -> impl Strategy<Value = ThreadPlacement> {
        let quota = proptest::option::of((1_u64..1_000_000, 1_u64..1_000_000));
        (any_set(), any::<bool>(), any::<bool>(), proptest::option::of(any_set()), quota).prop_map(
            |(pcpus, anywhere, real_time, cpuset, quota)| ThreadPlacement {
                pcpus,
                anywhere,
                real_time,
                cpuset,
                quota,
            },
        )
    }

    fn any_memory() -> impl Strategy<Value = MemoryPlacement> {
        let by_node =
            proptest::collection::btree_map(proptest::option::of(0_u32..9), 0_u64..1 << 45, 0..4);
        let flags = (any::<bool>(), any::<bool>(), any::<bool>());
        (by_node, 1_u64..1 << 31, proptest::option::of(any::<u64>()), flags).prop_map(
            |(by_node, page_bytes, thp_bytes, (bound, mergeable, wants_pool))| MemoryPlacement {
                by_node,
                page_bytes,
                thp_bytes,
                bound,
                mergeable,
                wants_pool,
            },
        )
    }

    fn any_is() -> impl Strategy<Value = ObservedValue> {
        let who = prop_oneof![
            proptest::option::of(0_u32..999).prop_map(ThreadOwner::Vcpu),
            Just(ThreadOwner::Emulator),
            "[a-z][a-z0-9._-]{0,9}".prop_map(ThreadOwner::Iothread),
            Just(ThreadOwner::Vhost),
        ];
        prop_oneof![
            (who, any_thread()).prop_map(|(who, thread)| ObservedValue::Thread(who, thread)),
            (proptest::option::of("[a-z][a-z0-9._-]{0,9}"), any_memory())
                .prop_map(|(backend, memory)| ObservedValue::Memory(backend, memory)),
            any::<(u64, u64)>().prop_map(|(locked, all)| ObservedValue::Locked(locked, all)),
            any::<u64>().prop_map(ObservedValue::Swapped),
            any::<[u32; 5]>().prop_map(ObservedValue::Topology),
            "[a-z]{1,5}".prop_map(ObservedValue::Accelerator),
            any::<u64>().prop_map(ObservedValue::HaltExits),
        ]
    }

    proptest! {
        /// Facts are read back as they were said.
        #[test]
        fn facts_survive(is in any_is()) {
            let again = is.to_string().parse::<ObservedValue>();
            prop_assert_eq!(again, Ok(is));
        }

        #[test]
        fn any_line_is_read_or_refused(text in "\\PC{0,60}") {
            let _ = text.parse::<ObservedValue>();
            let _ = format!("memory: {text}").parse::<ObservedValue>();
            let _ = format!("vCPU 0: {text}").parse::<ObservedValue>();
        }
    }
}
