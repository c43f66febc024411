//! What a condition sees: one view of a VM, and the table of its fields.
//!
//! `vm` is the VM as vmlab's own JSON says it ([`vmconfig::VmSettings`]), filled up: a
//! list or a table that is empty, a number or a switch at its default is there. What
//! only somebody's word puts there is absent without it, and a condition asks
//! `has()` first. A word that stands where a table may (`"user"`) is a table with that
//! one key. Tests hold the table to the types.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use vmconfig::VmSettings;

/// The version of rules files and of the view; grows when a field goes or changes.
pub const VERSION: u32 = 1;

/// A field's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldType {
    Any,
    Bool,
    Int,
    Text,
    /// A set of small numbers in the kernel's list format: `0-3,8`.
    Set,
    /// One of these texts.
    Words(&'static [&'static str]),
    /// Fields of their own, below it.
    Table,
    /// Tables; their fields stand below `name[]`.
    Tables,
    /// A table with exactly one of its fields.
    Choice,
    /// Texts.
    Texts,
    /// By number, as a text: `"0"`.
    ByNumber(&'static FieldType),
}

impl FieldType {
    /// In words, for the documentation and for errors.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Any => "anything".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Text => "string".to_owned(),
            Self::Set => "numbers as string".to_owned(),
            Self::Words(words) => {
                words.iter().map(|word| format!("`'{word}'`")).collect::<Vec<_>>().join(", ")
            }
            Self::Table => "table".to_owned(),
            Self::Tables => "list of tables".to_owned(),
            Self::Choice => "table with one key".to_owned(),
            Self::Texts => "list of strings".to_owned(),
            Self::ByNumber(kind) => format!("map of number to {}", kind.name()),
        }
    }
}

/// One field of the view.
#[derive(Debug, PartialEq)]
pub(crate) struct ViewField {
    /// From `vm` on: `disks[].cache`.
    pub(crate) path: &'static str,
    pub(crate) kind: FieldType,
    /// Whether each VM has it; of others `has()` is asked.
    pub(crate) always: bool,
    pub(crate) help: &'static str,
}

const fn is(path: &'static str, kind: FieldType, help: &'static str) -> ViewField {
    ViewField { path, kind, always: true, help }
}

const fn may(path: &'static str, kind: FieldType, help: &'static str) -> ViewField {
    ViewField { path, kind, always: false, help }
}

use FieldType::{Any, Bool, ByNumber, Choice, Int, Set, Table, Tables, Text, Texts, Words};

const POLICY: FieldType = Words(&["bind", "preferred", "interleave"]);
const SOURCES: FieldType = Words(&["memfd", "file", "anonymous"]);
const TICKS: FieldType = Words(&["delay", "catchup", "discard"]);

/// The fields of `vm`.
pub(crate) const FIELDS: &[ViewField] = &[
    is("name", Text, "The VM's name"),
    is("arch", Words(&["x86_64", "aarch64"]), "Architecture of the guest"),
    is("machine", Text, "QEMU's machine type with its properties"),
    is("accel", Words(&["kvm", "tcg"]), "Who executes the guest's instructions"),
    is("cpu_model", Text, "QEMU's CPU model with its features: `host,-hypervisor`"),
    is("topology", Table, "How the guest sees its vCPUs, those to be plugged in included"),
    is("topology.sockets", Int, "Sockets of the machine"),
    is("topology.dies", Int, "Dies in a socket"),
    is("topology.clusters", Int, "Clusters in a die"),
    is("topology.cores", Int, "Cores in a cluster"),
    is("topology.threads", Int, "Threads in a core"),
    may("present_vcpus", Int, "vCPUs at the start, if there is room for more"),
    may("cpu_cache", Words(&["passthrough", "emulate", "off"]), "What the guest sees of caches"),
    is("memory_mib", Int, "Guest memory in MiB"),
    is("memory", Table, "How memory is backed"),
    may("memory.huge_pages", Text, "Size of huge pages from the host's pool: `2M`, `1G`"),
    may("memory.source", SOURCES, "What it is for the kernel; anonymous if nobody says it"),
    may("memory.shared", Bool, "Other processes may map it"),
    may("memory.prealloc", Bool, "Every page is allocated before the guest starts"),
    may("memory.prealloc_threads", Int, "Threads that allocate"),
    may("memory.locked", Bool, "Never swapped"),
    may("memory.nosharepages", Bool, "KSM may not merge its pages"),
    may("memory.host_nodes", Set, "Host nodes that hold it; with guest nodes each says so itself"),
    may("memory.policy", POLICY, "How strictly"),
    is("numa", Tables, "Memory nodes that the guest sees, if more than one"),
    is("numa[].vcpus", Set, "Its vCPUs"),
    is("numa[].memory_mib", Int, "Its memory in MiB"),
    may("numa[].host_nodes", Set, "Host nodes that hold it"),
    may("numa[].policy", POLICY, "How strictly"),
    may("numa[].huge_pages", Text, "Size of its huge pages, if not the VM's; `4K` is none"),
    may("numa[].source", SOURCES, "What it is for the kernel, if not what the VM's is"),
    may("numa[].shared", Bool, "Other processes may map it, if not as the VM's"),
    may("numa[].prealloc", Bool, "It is allocated before the guest starts, if not as the VM's"),
    is("numa[].distances", ByNumber(&Int), "Cost to reach other guest nodes; 10 is local"),
    is("pins", Table, "Where QEMU's threads may run"),
    is("pins.vcpus", ByNumber(&Set), "pCPUs by vCPU; what is absent floats"),
    may("pins.emulator", Set, "pCPUs of QEMU's other threads"),
    is("pins.iothreads", ByNumber(&Set), "pCPUs by iothread, from 1"),
    may("pins.vhost", Set, "pCPUs of the kernel's vhost threads"),
    is("scheduler", Table, "How the host schedules them: `fifo:1`, `rr:5`, `batch`, `idle`"),
    is("scheduler.vcpus", ByNumber(&Text), "By vCPU"),
    may("scheduler.emulator", Text, "QEMU's other threads"),
    is("scheduler.iothreads", ByNumber(&Text), "By iothread, from 1"),
    is("iothreads", Int, "Threads that serve disks"),
    may("iothread_poll_max_ns", Int, "How long each of them polls for requests, ns at most"),
    is("disks", Tables, "Disks"),
    is("disks[].source", Choice, "Where its sectors are"),
    may("disks[].source.file", Text, "An image file"),
    may("disks[].source.block", Text, "A block device of the host"),
    may("disks[].source.vhost-scsi", Text, "A SCSI target of the host's kernel"),
    may("disks[].source.vhost-user", Text, "A socket of another process that serves it"),
    may("disks[].source.claim", Text, "A PersistentVolumeClaim"),
    may("disks[].source.container", Text, "A container image that holds a disk"),
    is("disks[].format", Words(&["raw", "qcow2"]), "Format of the image"),
    is("disks[].bus", Words(&["virtio-blk", "virtio-scsi", "sata", "ide"]), "How it is attached"),
    may(
        "disks[].cache",
        Words(&["none", "writeback", "writethrough", "directsync", "unsafe"]),
        "What the host's page cache does; QEMU's own choice is writeback",
    ),
    may("disks[].io", Words(&["native", "threads", "io_uring"]), "How QEMU reads and writes"),
    may("disks[].discard", Words(&["ignore", "unmap"]), "What becomes of what the guest discards"),
    may("disks[].detect_zeroes", Words(&["off", "on", "unmap"]), "QEMU looks for zeroes"),
    may("disks[].iothread", Int, "The iothread that serves it, from 1; else the main loop"),
    is("disks[].queue_iothreads", Tables, "Iothreads that share its queues"),
    is("disks[].queue_iothreads[].iothread", Int, "Its number, from 1"),
    is("disks[].queue_iothreads[].queues", Set, "Its queues, from 0; empty: dealt out in turn"),
    may("disks[].queues", Int, "Request queues"),
    is("disks[].readonly", Bool, "The guest can't write to it"),
    is("disks[].transient", Bool, "What the guest writes is gone when it ends"),
    may("disks[].serial", Text, "Serial number that the guest sees"),
    may("disks[].boot_order", Int, "Its turn at booting, from 1"),
    is("nics", Tables, "Network interfaces"),
    is("nics[].backend", Choice, "What it is connected to"),
    may("nics[].backend.user", Table, "QEMU's own network stack"),
    may("nics[].backend.tap", Table, "A tap device that somebody else made"),
    is("nics[].backend.tap.ifname", Text, "Its name"),
    may("nics[].backend.bridge", Table, "A tap device made for the VM, in a bridge"),
    is("nics[].backend.bridge.name", Text, "The bridge"),
    may("nics[].backend.vhost-user", Table, "A switch in another process"),
    is("nics[].backend.vhost-user.socket", Text, "The socket"),
    is("nics[].backend.vhost-user.server", Bool, "QEMU listens on it"),
    may("nics[].backend.vhost-user.reconnect_s", Int, "Seconds until QEMU connects anew"),
    may("nics[].backend.macvtap", Table, "A macvtap device"),
    is("nics[].backend.macvtap.device", Text, "The host's device"),
    is(
        "nics[].backend.macvtap.mode",
        Words(&["bridge", "vepa", "private", "passthrough"]),
        "Whom the guest reaches beside the outside",
    ),
    may("nics[].backend.libvirt", Table, "A virtual network of libvirt"),
    is("nics[].backend.libvirt.network", Text, "Its name"),
    may("nics[].backend.pod", Table, "The pod's network (KubeVirt)"),
    is("nics[].backend.pod.binding", Words(&["masquerade", "bridge"]), "How it is bound"),
    may("nics[].backend.multus", Table, "A NetworkAttachmentDefinition (KubeVirt)"),
    is("nics[].backend.multus.network", Text, "Its name"),
    is("nics[].model", Words(&["virtio", "e1000e", "e1000", "rtl8139"]), "What the guest sees"),
    may("nics[].vhost", Bool, "The host's kernel moves the packets"),
    may("nics[].queues", Int, "Pairs of queues"),
    may("nics[].rx_queue_size", Int, "Descriptors in each ring of received packets"),
    may("nics[].tx_queue_size", Int, "Descriptors in each ring of sent packets"),
    may("nics[].packed", Bool, "Its rings are packed"),
    may("nics[].mtu", Int, "Largest packet that the guest is told of, B"),
    may("nics[].mac", Text, "Its address"),
    is("host_devices", Tables, "Devices of the host that the guest has for itself"),
    may("host_devices[].pci", Text, "Where it is on the host's PCI buses: `0000:3b:00.0`"),
    may("host_devices[].resource", Text, "What a cluster's node calls it: `vendor.com/device`"),
    may("iommu", Table, "Intel's IOMMU as the guest sees it"),
    may("iommu.interrupt_remapping", Bool, "It remaps interrupts"),
    may("iommu.extended_interrupts", Bool, "Interrupts reach APIC ids beyond 255"),
    is("clock", Table, "Clocks and timers; what is absent is QEMU's own choice"),
    may("clock.kvmclock", Bool, "KVM's paravirtual clock"),
    may("clock.hypervclock", Bool, "Hyper-V's reference time"),
    may("clock.hpet", Bool, "The High Precision Event Timer"),
    may("clock.tsc_frequency_hz", Int, "Rate of the time stamp counter in Hz"),
    may("clock.pit", TICKS, "Late ticks of the PIT"),
    may("clock.rtc", TICKS, "Late ticks of the real-time clock"),
    may(
        "clock.rtc_track",
        Words(&["wall", "guest", "realtime"]),
        "What it runs by, if not the host's wall clock",
    ),
    may("clock.base", Words(&["utc", "localtime"]), "What the real-time clock holds, if not UTC"),
    is("hints", Table, "What the guest is told about being one; absent is QEMU's own choice"),
    may("hints.cpu_pm", Bool, "The guest halts without leaving its pCPU"),
    may("hints.kvm_hint_dedicated", Bool, "\"No vCPU is ever preempted\""),
    may("hints.poll_control", Bool, "The guest may end KVM's polling"),
    may("hints.pv_eoi", Bool, "Ends of interrupts by shared memory"),
    may("hints.pv_spinlocks", Bool, "Spinlocks whose waiters halt"),
    may("hints.pv_ipi", Bool, "Interprocessor interrupts by hypercall"),
    may("hints.kvm_hidden", Bool, "The guest does not see KVM"),
    may("hints.pmu", Bool, "Performance counters"),
    may("hints.irqchip", Words(&["kernel", "split"]), "Who emulates interrupt controllers"),
    may("hints.hyperv", Texts, "Enlightenments of Hyper-V: `relaxed`, `vapic`, `synic` and others"),
    may("hints.hyperv_spinlocks", Int, "Attempts before a spinning guest tells Hyper-V"),
    is("host", Table, "Settings of the host that belong to the VM's plan (vmlab's JSON alone)"),
    may("host.halt_poll_ns", Int, "How long KVM polls before a halt, in ns"),
    may("host.thp", Words(&["always", "madvise", "never"]), "Transparent huge pages"),
    may("host.ksm", Bool, "Same-page merging"),
    may("host.ple_gap", Int, "Pause-loop exiting: longest pause in a loop, cycles"),
    may("host.ple_window", Int, "Pause-loop exiting: cycles of spinning"),
    may("host.numa_balancing", Bool, "Automatic NUMA balancing"),
    is("delegated", Table, "What is left to whoever places the VM (KubeVirt)"),
    may("delegated.dedicated_vcpus", Bool, "Every vCPU gets a pCPU for itself"),
    may("delegated.dedicated_emulator", Bool, "So does the emulator thread"),
    may("delegated.mirror_numa", Bool, "Guest nodes like the host nodes that are given"),
    is("boot", Choice, "What it boots"),
    may("boot.direct", Table, "A kernel of vmlab's own, with its root image"),
    is("boot.direct.kernel", Text, "The kernel's image"),
    is("boot.direct.initrd", Text, "The initial RAM disk"),
    is("boot.direct.root_image", Text, "The root file system"),
    is("boot.direct.cmdline", Texts, "Kernel parameters that this image needs"),
    may("boot.disk", Table, "A disk with a boot loader"),
    is("boot.disk.image", Text, "The image"),
    is("boot.disk.format", Words(&["raw", "qcow2"]), "Its format"),
    may("boot.kernel", Table, "A kernel that QEMU loads"),
    is("boot.kernel.kernel", Text, "The kernel's image"),
    may("boot.kernel.initrd", Text, "The initial RAM disk"),
    may("boot.firmware", Table, "The firmware looks among disks and the network"),
    is("kernel_cmdline", Texts, "Kernel parameters"),
    is("extra_args", Texts, "Arguments for QEMU that no field above says"),
];

/// The variables beside `vm`.
pub(crate) const VARIABLES: &[ViewField] = &[
    is("vcpus", Int, "vCPUs that are there when the guest starts"),
    is("name", Text, "The VM's name as lint shows it"),
    is("file", Text, "The file as it was named"),
    is(
        "format",
        Words(&["libvirt", "qemu", "kubevirt", "proxmox", "running"]),
        "What the file holds",
    ),
    is("kept", Tables, "What the text says beside the fields of `vm`"),
    is("kept[].line", Int, "Its line"),
    is("kept[].path", Text, "Where it stands: `/domain/devices/video`, `-device`"),
    is("kept[].text", Text, "It, verbatim"),
    is(
        "object",
        Any,
        "KubeVirt's object as it is written; rules that name it look at no other format",
    ),
    is("host", Any, "The host (see [hosts](hosts.md)); rules that name it need `--host`"),
    is("item", Any, "The element, in a rule with `each`"),
];

/// The field of a table: `prefix` is empty for `vm` itself, `disks[]` for a disk.
pub(crate) fn field(
    fields: &'static [ViewField],
    prefix: &str,
    name: &str,
) -> Option<&'static ViewField> {
    fields.iter().find(|field| match field.path.rsplit_once('.') {
        Some((above, last)) => above == prefix && last == name,
        None => prefix.is_empty() && field.path == name,
    })
}

/// The names of a table's fields.
pub(crate) fn names(fields: &'static [ViewField], prefix: &str) -> Vec<&'static str> {
    let of = |field: &'static ViewField| match field.path.rsplit_once('.') {
        Some((above, last)) => (above == prefix).then_some(last),
        None => prefix.is_empty().then_some(field.path),
    };
    fields.iter().filter_map(of).collect()
}

/// The VM as a condition sees it.
pub(crate) fn of(settings: &VmSettings) -> Value {
    // Texts, numbers and lists of them: nothing that JSON can't have but a path that
    // isn't UTF-8, and texts are where these come from.
    let mut view = serde_json::to_value(settings).unwrap_or_else(|_| json!({}));
    fill(&mut view, "");
    view
}

/// The fields of each table of `vm` by the table's path, with their names in it.
static BY_TABLE: LazyLock<HashMap<String, Vec<(&str, &ViewField)>>> = LazyLock::new(|| {
    let mut by_table: HashMap<String, Vec<_>> = HashMap::new();
    for field in FIELDS {
        let (table, name) = field.path.rsplit_once('.').unwrap_or(("", field.path));
        by_table.entry(table.to_owned()).or_default().push((name, field));
    }
    by_table
});

/// Puts in what a table has always and its JSON leaves out.
fn fill(table: &mut Value, prefix: &str) {
    let Value::Object(members) = table else { return };
    members.retain(|_, member| !member.is_null());
    for (name, field) in BY_TABLE.get(prefix).into_iter().flatten() {
        let name = *name;
        if field.always && !members.contains_key(name) {
            members.insert(name.to_owned(), default(field.kind));
        }
        let Some(member) = members.get_mut(name) else { continue };
        match field.kind {
            Table => fill(member, field.path),
            Choice => {
                if let Value::String(word) = member {
                    *member = Value::Object(Map::from_iter([(word.clone(), json!({}))]));
                }
                fill(member, field.path);
            }
            Tables => {
                let below = format!("{}[]", field.path);
                for item in member.as_array_mut().into_iter().flatten() {
                    fill(item, &below);
                }
            }
            _ => {}
        }
    }
}

/// What a field holds that nobody set. The first word of several is the default.
fn default(kind: FieldType) -> Value {
    match kind {
        Bool => json!(false),
        Int => json!(0),
        Text | Set => json!(""),
        Words(words) => json!(words.first()),
        Tables | Texts => json!([]),
        Table | Choice | ByNumber(_) => json!({}),
        Any => Value::Null,
    }
}

/// The table of fields for the documentation.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from("| name | type | always | what |\n|---|---|---|---|\n");
    let rows = |fields: &'static [ViewField], prefix: &str| -> String {
        let row = |field: &ViewField| {
            let always = if field.always { "yes" } else { "`has()`" };
            let (path, kind) = (field.path, field.kind.name());
            format!("| `{prefix}{path}` | {kind} | {always} | {} |\n", field.help)
        };
        fields.iter().map(row).collect()
    };
    text += &rows(VARIABLES, "");
    text += &rows(FIELDS, "vm.");
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::de::DeserializeOwned;
    use vmconfig::{Accel, Arch, BootSource};

    use super::*;

    fn whole() -> VmSettings {
        let boot = BootSource::Kernel { kernel: "k".into(), initrd: None };
        VmSettings::new("vm", Arch::X86_64, Accel::Kvm, boot)
    }

    /// The names that serde lists when it is given one that isn't there.
    fn known<T: DeserializeOwned>(wrong: Value) -> BTreeSet<String> {
        let Err(error) = serde_json::from_value::<T>(wrong) else { panic!("it took anything") };
        let error = error.to_string();
        let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("{error}"));
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    /// The fields of the type are those of the table, no more and no fewer.
    #[test]
    fn the_table_has_the_fields_of_the_types() {
        let whole = serde_json::to_value(whole()).unwrap();
        let with = |path: &[&str], value: Value| {
            let mut whole = whole.clone();
            let mut at = &mut whole;
            for key in path {
                at = &mut at[*key];
            }
            *at = value;
            whole
        };
        let wrong = || json!({ "?": 1 });
        let check = |prefix: &str, document: Value| {
            let said = known::<VmSettings>(document);
            let table: BTreeSet<String> =
                names(FIELDS, prefix).into_iter().map(str::to_owned).collect();
            assert_eq!(table, said, "fields of {prefix:?}: change FIELDS in this file");
        };
        check("", wrong());
        for table in
            ["memory", "pins", "scheduler", "iommu", "clock", "hints", "host", "delegated", "boot"]
        {
            check(table, with(&[table], wrong()));
        }
        check("numa[]", with(&["numa"], json!([wrong()])));
        check("disks[]", with(&["disks"], json!([wrong()])));
        let shares = json!([{ "source": { "file": "a" }, "queue_iothreads": [wrong()] }]);
        check("disks[].queue_iothreads[]", with(&["disks"], shares));
        check("nics[]", with(&["nics"], json!([wrong()])));
        check("host_devices[]", with(&["host_devices"], json!([wrong()])));
        check("disks[].source", with(&["disks"], json!([{ "source": wrong() }])));
        check("nics[].backend", with(&["nics"], json!([{ "backend": wrong() }])));
        for kind in ["tap", "bridge", "vhost-user", "macvtap", "libvirt", "pod", "multus"] {
            let backend = json!([{ "backend": { kind: wrong() } }]);
            check(&format!("nics[].backend.{kind}"), with(&["nics"], backend));
        }
        // These take unknown fields, and are told apart by what is missing.
        let topology = whole["topology"].as_object().unwrap().keys().cloned().collect();
        let table: BTreeSet<String> =
            names(FIELDS, "topology").into_iter().map(str::to_owned).collect();
        assert_eq!(table, topology);
    }

    /// The words of a field are those that its type takes.
    #[test]
    fn the_table_has_the_words_of_the_types() {
        let whole = serde_json::to_value(whole()).unwrap();
        for field in FIELDS {
            let Words(words) = field.kind else { continue };
            let mut document = whole.clone();
            let mut at = &mut document;
            let mut ancestors = String::new();
            for part in field.path.split('.') {
                let name = part.trim_end_matches("[]");
                ancestors =
                    format!("{ancestors}{}{name}", if ancestors.is_empty() { "" } else { "." });
                at = match at {
                    Value::Object(members) => members.entry(name).or_insert(Value::Null),
                    other => {
                        *other = json!({ name: null });
                        &mut other[name]
                    }
                };
                // What stands beside it and must be there.
                for (path, beside) in [
                    ("disks", json!([{ "source": { "file": "a" } }])),
                    ("nics", json!([{ "backend": { "tap": { "ifname": "t" } } }])),
                    ("numa", json!([{ "vcpus": "0", "memory_mib": 1 }])),
                    ("nics.backend", json!({})),
                    ("nics.backend.macvtap", json!({ "device": "a" })),
                    ("boot", json!({})),
                    ("boot.disk", json!({ "image": "a" })),
                ] {
                    if path == ancestors {
                        *at = beside;
                    }
                }
                if part.ends_with("[]") {
                    at = &mut at[0];
                    ancestors = ancestors.trim_end_matches("[]").to_owned();
                }
            }
            *at = json!("?");
            let said = known::<VmSettings>(document);
            let table: BTreeSet<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(table, said, "words of {}: change FIELDS in this file", field.path);
        }
    }

    /// What is filled in where nobody said anything is what the type has then.
    #[test]
    fn what_is_filled_in_is_the_default() {
        let mut settings = whole();
        let text = json!({ "source": { "file": "a" } });
        settings.disks = vec![serde_json::from_value(text).unwrap()];
        settings.nics = ["user", "pod", "macvtap", "vhost-user"]
            .map(|kind| {
                let inner = match kind {
                    "user" => json!("user"),
                    "pod" => json!({ "pod": {} }),
                    "macvtap" => json!({ "macvtap": { "device": "e" } }),
                    _ => json!({ "vhost-user": { "socket": "/s" } }),
                };
                serde_json::from_value(json!({ "backend": inner })).unwrap()
            })
            .to_vec();
        let view = of(&settings);
        assert_eq!(view["disks"][0]["bus"], json!("virtio-blk"));
        assert_eq!(view["nics"][0]["backend"], json!({ "user": {} }));
        assert_eq!(view["nics"][1]["backend"]["pod"]["binding"], json!("masquerade"));
        assert_eq!(view["nics"][2]["backend"]["macvtap"]["mode"], json!("bridge"));
        assert_eq!(view["numa"], json!([]));
        assert_eq!(view["iothreads"], json!(0));
        assert!(view["memory"].get("huge_pages").is_none());
        assert!(view["pins"].get("emulator").is_none());
        assert!(view["boot"]["kernel"].get("initrd").is_none());
        // What was filled in means nothing else than what was left out.
        let mut back = view;
        for nic in back["nics"].as_array_mut().unwrap() {
            if nic["backend"].get("user").is_some() {
                nic["backend"] = json!("user");
            }
        }
        assert_eq!(serde_json::from_value::<VmSettings>(back).unwrap(), settings);
    }

    #[test]
    fn the_table_is_well_formed() {
        let mut paths = BTreeSet::new();
        for field in FIELDS {
            assert!(paths.insert(field.path), "{} is there twice", field.path);
            assert!(!field.help.ends_with('.') && !field.help.is_empty(), "{}", field.path);
            if let Some((above, _)) = field.path.rsplit_once('.') {
                assert!(paths.contains(above.trim_end_matches("[]")), "{}", field.path);
            }
        }
    }
}
