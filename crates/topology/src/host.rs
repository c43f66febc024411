//! The model of one machine, which is also the host format.

use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::PcpuSet;
use crate::bounded::{self, KnownFields};

/// What the field `format` of a host description holds.
pub const HOST_FORMAT: &str = "vmlab-host";

/// The version of the host format that this crate reads and writes. Fields may
/// be added within a version; a changed meaning raises it.
pub const HOST_FORMAT_VERSION: u32 = 1;

/// One machine. What could not be learnt is absent (`None` or an empty list)
/// and, where that matters, named in [`Host::warnings`].
///
/// Sizes are in bytes, frequencies in kHz, times in µs, as the names say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// Always [`HOST_FORMAT`]; another text is refused when read.
    pub format: FormatName,
    /// Always [`HOST_FORMAT_VERSION`]; another number is refused when read.
    pub version: FormatVersion,
    /// The machine's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// The kernel's release: `6.1.0-18-amd64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// The kernel command line's parameters that bear on performance, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmdline: Vec<String>,
    /// Architecture as `uname -m` says it: `x86_64`, `aarch64`, `ppc64le`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// The processor's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<String>,
    /// Whether this machine is itself virtual.
    #[serde(default)]
    pub virtualised: HostVirtualisation,
    /// Total memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Memory that new processes can take without swapping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    /// Every pCPU that is present, online or not, by ascending number.
    #[serde(default)]
    pub pcpus: Vec<Pcpu>,
    /// Caches, by level, kind and first pCPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<Cache>,
    /// Memory nodes by ascending id (ids need not be contiguous); empty where
    /// the kernel shows no NUMA.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<Node>,
    /// Huge page pools of the whole machine, by page size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub huge_pages: Vec<HugePagePool>,
    /// pCPUs out of general scheduling (`isolcpus=` or an isolated cpuset);
    /// `None` where the kernel does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolated: Option<PcpuSet>,
    /// pCPUs without the scheduler's tick while one task runs (`nohz_full=`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nohz_full: Option<PcpuSet>,
    /// pCPUs that the reading process may run on (its cpuset).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<PcpuSet>,
    /// Kernel-wide policies.
    #[serde(default)]
    pub settings: KernelSettings,
    /// All settings that could be read, by their id in `vmlab settings list`;
    /// filled in by whoever reads the machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tunables: BTreeMap<String, String>,
    /// Frequency scaling; one entry for each group of pCPUs set alike.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frequency: Vec<FrequencyPolicy>,
    /// Idle states.
    #[serde(default)]
    pub cpuidle: Cpuidle,
    /// KVM.
    #[serde(default)]
    pub kvm: Kvm,
    /// vhost modules that are loaded or built in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vhost: Vec<KernelModule>,
    /// The QEMU that would run VMs here; filled in by whoever probed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qemu: Option<QemuInfo>,
    /// What could not be read or looks wrong, once each, in plain words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// One logical CPU of the host, under Linux's number.
///
/// `(socket, die, cluster, core)` names one core: where the kernel's own ids
/// repeat, the reader numbers the cores anew. Ids need not be contiguous.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pcpu {
    /// Linux's number.
    pub id: u32,
    /// Whether Linux schedules on it. An offline pCPU has no known place.
    pub online: bool,
    /// Socket (package).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// Die inside the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub die: Option<u32>,
    /// Cluster: cores that share a mid-level cache or a bus stop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<u32>,
    /// Core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Place among the core's threads, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// Memory node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Kind of core; only on machines whose cores differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CoreKind>,
    /// Relative compute capacity, 1024 is the machine's biggest core.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// The highest frequency the hardware offers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_khz: Option<u64>,
}

/// Kind of core on a machine whose cores differ.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CoreKind {
    /// Intel `cpu_core`; arm64 cores of at least three quarters of the biggest
    /// capacity.
    Performance,
    /// Intel `cpu_atom`; arm64 cores below that.
    Efficiency,
    /// Intel `cpu_lowpower`.
    LowPower,
}

/// One cache and who shares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cache {
    /// 1, 2, 3...
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Size; `None` where firmware does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// The online pCPUs that share it.
    pub pcpus: PcpuSet,
}

/// What a cache holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only.
    Instruction,
    /// Both.
    Unified,
}

/// One memory node: pCPUs and memory that are near each other. Either may be
/// missing: a node without pCPUs is memory of another kind (HBM, CXL, a
/// graphics card's).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Node {
    /// Linux's number.
    pub id: u32,
    /// Its online pCPUs.
    pub pcpus: PcpuSet,
    /// Its memory; `Some(0)` on a node without memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Free memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Relative cost to reach each online node by its id; 10 is local
    /// (ACPI SLIT).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub distances: BTreeMap<u32, u32>,
    /// Its huge page pools, by page size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub huge_pages: Vec<HugePagePool>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HugePagePool {
    /// Size of one page.
    pub page_bytes: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages that nobody uses.
    pub free: u64,
}

/// Kernel-wide policies. Texts are the kernel's own words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelSettings {
    /// Transparent huge pages: `always`, `madvise` or `never`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp_enabled: Option<String>,
    /// How hard a page fault works for one: `always`, `defer`, `madvise`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thp_defrag: Option<String>,
    /// Same-page merging: 0 off, 1 on, 2 off and merged pages split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ksm_run: Option<u32>,
    /// Whether it merges pages of different nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ksm_merge_across_nodes: Option<bool>,
    /// Automatic NUMA balancing: 0 off, 1 normal, 2 memory tiering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_balancing: Option<u32>,
    /// Threads per core: `on`, `off`, `forceoff`, `notsupported`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<String>,
    /// Clock source: `tsc`, `kvm-clock`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_source: Option<String>,
}

/// Frequency scaling of a group of pCPUs that are set alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrequencyPolicy {
    /// The pCPUs.
    pub pcpus: PcpuSet,
    /// Driver: `intel_pstate`, `acpi-cpufreq`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Governor: `performance`, `schedutil`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The lowest frequency the governor may choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_khz: Option<u64>,
    /// The highest frequency the governor may choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_khz: Option<u64>,
}

/// Idle states and who chooses among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cpuidle {
    /// Driver: `intel_idle`, `haltpoll`, `none`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Governor: `menu`, `teo`, `haltpoll`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// States of the first online pCPU, shallow to deep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<IdleState>,
    /// Parameters of the `haltpoll` governor.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub haltpoll: BTreeMap<String, String>,
}

/// One idle state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleState {
    /// Name: `POLL`, `C1E`...
    pub name: String,
    /// Time to wake from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<u64>,
    /// Whether it is switched off.
    pub disabled: bool,
}

/// KVM, as far as files tell. Only a guest that boots proves it usable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kvm {
    /// Whether the kernel offers `/dev/kvm`; `None` where that can't be seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<bool>,
    /// Which exits it says it can leave out for a VM: the mask of
    /// `KVM_CAP_X86_DISABLE_EXITS`. Absent where there was no KVM to ask, or it is no x86.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disable_exits: Option<u32>,
    /// `kvm`, `kvm_intel`, `kvm_amd`... with their parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<KernelModule>,
}

impl Kvm {
    /// What [`Kvm::disable_exits`] stands for, by the names of Linux's
    /// `arch/x86/include/uapi/asm/kvm.h` (`KVM_X86_DISABLE_EXITS_*`); a bit without a name by
    /// its value.
    #[must_use]
    pub fn exits_to_disable(&self) -> Option<Vec<String>> {
        const NAMES: [&str; 5] = ["MWAIT", "HLT", "PAUSE", "CSTATE", "APERFMPERF"];
        let mask = self.disable_exits?;
        let bits = (0..u32::BITS).filter(|bit| mask & 1 << bit != 0);
        let name = |bit: u32| match NAMES.get(bit as usize) {
            Some(name) => (*name).to_owned(),
            None => format!("{:#x}", 1_u64 << bit),
        };
        Some(bits.map(name).collect())
    }
}

/// One kernel module, loaded or built in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KernelModule {
    /// Name with underscores.
    pub name: String,
    /// Readable parameters.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
}

/// Whether the machine is itself virtual, and how one knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostVirtualisation {
    /// The answer; `None` where nothing tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_vm: Option<bool>,
    /// What tells it: "the processor's hypervisor flag", "DMI: QEMU".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signs: Vec<String>,
    /// The emulator that runs this machine's pCPUs, where that is declared or the processor
    /// says so: time on it is emulated time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<String>,
    /// True if that emulator's clock is its count of instructions, 1 ns each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub counts_instructions: bool,
}

/// A QEMU and what it can do here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QemuInfo {
    /// The program.
    pub path: String,
    /// Its version: `7.2.17`.
    pub version: String,
    /// Accelerators it was built with: `tcg`, `kvm`...
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub accelerators: Vec<String>,
    /// Machine types it offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// Whether a guest was seen to boot under KVM; `None` when nobody tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_usable: Option<bool>,
    /// One line that says why not, or how one knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kvm_why: Option<String>,
}

impl Host {
    /// Whether its processors are AMD's, or Hygon's, which are the same to software.
    #[must_use]
    pub fn is_amd(&self) -> bool {
        let name = self.cpu_model.as_deref().unwrap_or_default();
        name.contains("AMD") || name.contains("Hygon")
    }

    /// The pCPUs that Linux schedules on.
    pub fn online(&self) -> PcpuSet {
        self.select(|pcpu| pcpu.online)
    }

    /// The pCPUs that are present but switched off.
    pub fn offline(&self) -> PcpuSet {
        self.select(|pcpu| !pcpu.online)
    }

    /// The pCPU with this number.
    pub fn pcpu(&self, id: u32) -> Option<&Pcpu> {
        let at = self.pcpus.binary_search_by_key(&id, |pcpu| pcpu.id).ok()?;
        self.pcpus.get(at)
    }

    /// The node with this id.
    pub fn node(&self, id: u32) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The pCPUs for which the predicate holds.
    pub fn select(&self, holds: impl Fn(&Pcpu) -> bool) -> PcpuSet {
        self.pcpus.iter().filter(|pcpu| holds(pcpu)).map(|pcpu| pcpu.id).collect()
    }

    /// The host format: indented JSON with a final newline.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self)
            .expect("a Host is texts, numbers and maps with text or number keys");
        text.push('\n');
        text
    }

    /// Reads what [`Host::to_json`] wrote. Fields that this vmlab does not know become a
    /// warning.
    ///
    /// # Errors
    /// [`ParseHostError`] names the line and what is wrong there.
    pub fn from_json(text: &str) -> Result<Host, ParseHostError> {
        let KnownFields { value: mut host, unknown } =
            bounded::json::<Host>(text.as_bytes()).map_err(ParseHostError)?;
        if !unknown.is_empty() {
            host.warnings
                .push(format!("This vmlab does not know and passes over: {}", unknown.join(", ")));
        }
        // Lookups rely on this order; a description written by hand may not
        // have it.
        host.pcpus.sort_by_key(|pcpu| pcpu.id);
        host.nodes.sort_by_key(|node| node.id);
        Ok(host)
    }
}

/// Error type for [`Host::from_json`].
#[derive(Debug, thiserror::Error)]
#[error("Not a host description (make one with 'vmlab host --json')")]
pub struct ParseHostError(#[source] serde_json::Error);

impl ParseHostError {
    /// The line at fault, from 1.
    pub(crate) fn line(&self) -> usize {
        self.0.line().max(1)
    }

    /// What is wrong there.
    pub(crate) fn reason(&self) -> String {
        self.0.to_string()
    }
}

/// Stands for the text [`HOST_FORMAT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatName;

impl Serialize for FormatName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HOST_FORMAT)
    }
}

impl JsonSchema for FormatName {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FormatName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": HOST_FORMAT })
    }
}

impl<'de> Deserialize<'de> for FormatName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == HOST_FORMAT {
            Ok(FormatName)
        } else {
            Err(serde::de::Error::custom(format!("format is {text:?}, not {HOST_FORMAT:?}")))
        }
    }
}

/// Stands for the number [`HOST_FORMAT_VERSION`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormatVersion;

impl Serialize for FormatVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(HOST_FORMAT_VERSION)
    }
}

impl JsonSchema for FormatVersion {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "FormatVersion".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "const": HOST_FORMAT_VERSION })
    }
}

impl<'de> Deserialize<'de> for FormatVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let version = u32::deserialize(deserializer)?;
        if version == HOST_FORMAT_VERSION {
            Ok(FormatVersion)
        } else {
            Err(serde::de::Error::custom(format!(
                "version is {version}, this vmlab reads version {HOST_FORMAT_VERSION}: \
                 use a newer vmlab"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_that_can_be_left_out_have_their_names() {
        let names = |mask| Kvm { disable_exits: mask, ..Kvm::default() }.exits_to_disable();
        assert_eq!(names(None), None);
        assert_eq!(names(Some(0)).unwrap(), [""; 0]);
        assert_eq!(names(Some(0b1110)).unwrap(), ["HLT", "PAUSE", "CSTATE"]);
        assert_eq!(names(Some(0x8000_0011)).unwrap(), ["MWAIT", "APERFMPERF", "0x80000000"]);
    }

    #[test]
    fn refuses_other_formats_and_versions() {
        for (text, expected) in [
            (r#"{"format":"lscpu","version":1}"#, "not \"vmlab-host\""),
            (r#"{"format":"vmlab-host","version":2}"#, "version is 2"),
            (r#"{"version":1}"#, "missing field `format`"),
            ("", "EOF"),
        ] {
            let error = Host::from_json(text).expect_err(text);
            let source = std::error::Error::source(&error).expect("a cause");
            assert!(source.to_string().contains(expected), "{source}");
        }
    }

    #[test]
    fn orders_what_was_written_by_hand() {
        let text = r#"{"format":"vmlab-host","version":1,
            "pcpus":[{"id":3,"online":true},{"id":1,"online":false}]}"#;
        let host = Host::from_json(text).expect("valid");
        assert_eq!(host.pcpu(3).map(|pcpu| pcpu.online), Some(true));
        assert_eq!(host.offline().to_string(), "1");
    }
}
