//! What rules look at: one VM as a configuration says it, every value with
//! its place.
//!
//! This is not `VmSpec`: a `VmSpec` can't hold a pin of a vCPU that does not
//! exist, and that is just what has to be found and pointed at.

use std::cell::OnceCell;

use serde_json::{Map, Value, json};
use topology::PcpuSet;

use crate::context::Context;
use crate::forecast::{HostForecast, forecast};
use crate::format::ConfigFormat;
use crate::live::LiveVm;
use crate::read::yaml::{Key, Node};
use crate::requirements::Requirements;
use vmconfig::kubevirt::{Shortfall, defaults};
use vmconfig::libvirt::DomainElement;
use vmconfig::proxmox::Trouble;
use vmconfig::source::{LocatedValue, Span};
use vmconfig::{ParsedVm, PciAddress};

/// One VM as written.
#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) format: ConfigFormat,
    pub(crate) name: String,
    /// Where to point when something is missing.
    pub(crate) head: Span,
    /// It as `vmconfig` has it, where that was wanted and is a VM there, too.
    pub(crate) parsed: Option<Box<ParsedVm>>,
    /// As the kernel writes it; `None` if the text does not say.
    pub(crate) arch: Option<LocatedValue<String>>,
    /// Accelerator: `kvm`, `tcg`...
    pub(crate) accel: LocatedValue<String>,
    /// vCPUs at start.
    pub(crate) vcpus: LocatedValue<u32>,
    /// vCPUs with hot-plug.
    pub(crate) max_vcpus: LocatedValue<u32>,
    /// Nothing says how many vCPUs there are, and the text is no whole VM, of
    /// which that would mean one.
    pub(crate) vcpus_unknown: bool,
    pub(crate) topology: Option<LocatedValue<Topology>>,
    /// Where all of the VM's threads may run.
    pub(crate) affinity: Option<LocatedValue<PcpuSet>>,
    pub(crate) pins: Vec<Pin>,
    pub(crate) emulator: Option<LocatedValue<PcpuSet>>,
    pub(crate) iothreads: Vec<String>,
    pub(crate) iothreads_at: Option<Span>,
    pub(crate) iothread_pins: Vec<Pin<String>>,
    /// Where vhost's threads run; known of running VMs only.
    pub(crate) vhost: Option<LocatedValue<PcpuSet>>,
    /// vCPUs that run under a real-time scheduler.
    pub(crate) fifo: Option<LocatedValue<PcpuSet>>,
    pub(crate) quota: Option<LocatedValue<i64>>,
    pub(crate) cells: Vec<GuestNodeView>,
    pub(crate) memory_nodes: Option<LocatedValue<PcpuSet>>,
    pub(crate) memory_mode: Option<String>,
    pub(crate) cell_nodes: Vec<(LocatedValue<u32>, LocatedValue<PcpuSet>)>,
    pub(crate) memory_bytes: Option<LocatedValue<u64>>,
    /// Of that, what is in modules that are plugged in (DIMMs), beside the cells.
    pub(crate) module_bytes: u64,
    pub(crate) huge_pages: Option<LocatedValue<Option<u64>>>,
    /// Sizes of the pages of cells that have others.
    pub(crate) pages_of_cells: Vec<(PcpuSet, u64)>,
    /// `-mem-path`, and whether the machine names a backend for its memory.
    pub(crate) memory_path: Option<LocatedValue<String>>,
    pub(crate) machine_backend: bool,
    /// What gives the guest memory of its own in a domain's `<qemu:commandline>`.
    pub(crate) passed_memory: Option<Span>,
    /// Whether the kernel may merge its pages.
    pub(crate) merge: Option<LocatedValue<bool>>,
    pub(crate) shared_memory: bool,
    pub(crate) cpu: Option<LocatedValue<CpuView>>,
    pub(crate) cpu_pm: Option<LocatedValue<bool>>,
    pub(crate) hint_dedicated: Option<LocatedValue<bool>>,
    pub(crate) kernel_cmdline: Option<LocatedValue<String>>,
    pub(crate) timers: Vec<LocatedValue<Timer>>,
    pub(crate) disks: Vec<DiskView>,
    pub(crate) nics: Vec<NicView>,
    /// A memory balloon that is written down.
    pub(crate) balloon: Option<Span>,
    /// What turns ACPI off.
    pub(crate) acpi_off: Option<Span>,
    /// A device of the host that the guest drives itself.
    pub(crate) passthrough: Option<Span>,
    /// Addresses of the host's PCI devices that it has (`0000:3b:00.0`).
    pub(crate) host_devices: Vec<LocatedValue<PciAddress>>,
    /// Something that takes interrupts for vCPUs of any number: an IOMMU, or KVM with its
    /// interrupt controller split.
    pub(crate) extended_interrupts: bool,
    /// Guest nodes with an expander bus of their own.
    pub(crate) expander_nodes: PcpuSet,
    /// What says that this VM is to migrate. That its CPU may (`migratable='on'`,
    /// which virt-manager writes always) does not.
    pub(crate) migrates: Option<Span>,
    pub(crate) kubevirt: Option<Kubevirt>,
    /// What is held against what a host offers.
    pub(crate) asks: Requirements,
    /// What a domain's XML says, all of it.
    pub(crate) domain: Option<DomainElement>,
    /// What could not be resolved without running something, and may say more:
    /// `"$@"`.
    pub(crate) unread: Vec<LocatedValue<String>>,
    /// Among them is what may bring options of its own, an accelerator's too.
    pub(crate) unread_options: bool,
    /// KVM is asked for behind TCG, which never fails.
    pub(crate) kvm_behind_tcg: bool,
    /// What Proxmox makes nothing of, or refuses.
    pub(crate) troubles: Vec<LocatedValue<Trouble>>,
    /// What is, of a VM that runs. The fields above hold that then, wherever it
    /// is known.
    pub(crate) live: Option<LiveVm>,
    /// Computed once, since several rules ask for it.
    forecast: OnceCell<Option<HostForecast>>,
}

impl Vm {
    pub(crate) fn new(format: ConfigFormat, head: Span) -> Self {
        Self {
            format,
            name: String::new(),
            head,
            parsed: None,
            arch: None,
            accel: LocatedValue::new("kvm".to_owned(), head),
            vcpus: LocatedValue::new(1, head),
            max_vcpus: LocatedValue::new(1, head),
            vcpus_unknown: false,
            topology: None,
            affinity: None,
            pins: Vec::new(),
            emulator: None,
            iothreads: Vec::new(),
            iothreads_at: None,
            iothread_pins: Vec::new(),
            vhost: None,
            fifo: None,
            quota: None,
            cells: Vec::new(),
            memory_nodes: None,
            memory_mode: None,
            cell_nodes: Vec::new(),
            memory_bytes: None,
            module_bytes: 0,
            huge_pages: None,
            pages_of_cells: Vec::new(),
            memory_path: None,
            machine_backend: false,
            passed_memory: None,
            merge: None,
            shared_memory: false,
            cpu: None,
            cpu_pm: None,
            hint_dedicated: None,
            kernel_cmdline: None,
            timers: Vec::new(),
            disks: Vec::new(),
            nics: Vec::new(),
            balloon: None,
            acpi_off: None,
            passthrough: None,
            host_devices: Vec::new(),
            extended_interrupts: false,
            expander_nodes: PcpuSet::new(),
            migrates: None,
            kubevirt: None,
            asks: Requirements::default(),
            domain: None,
            unread: Vec::new(),
            unread_options: false,
            kvm_behind_tcg: false,
            troubles: Vec::new(),
            live: None,
            forecast: OnceCell::new(),
        }
    }

    pub(crate) fn threads(&self) -> u32 {
        self.topology.as_ref().map_or(1, |topology| topology.value.threads)
    }

    /// Whether the text says that the guest is of x86-64, by its architecture or by a
    /// machine type that no other has.
    pub(crate) fn says_x86(&self) -> bool {
        match &self.arch {
            Some(arch) => arch.value == "x86_64",
            None => self.asks.machine.as_ref().is_some_and(|machine| {
                ["q35", "pc"].contains(&machine.value.as_str()) || machine.value.starts_with("pc-")
            }),
        }
    }

    /// Memory in huge pages of a known size, with the nodes of the host that it is bound
    /// to: of guest nodes with pages of their own each for itself.
    pub(crate) fn in_huge_pages(&self, default_bytes: u64) -> Vec<HugeMemory<'_>> {
        let (Some(huge), Some(memory)) = (&self.huge_pages, &self.memory_bytes) else {
            return Vec::new();
        };
        if self.pages_of_cells.is_empty() {
            let nodes = self.memory_nodes.as_ref().filter(|_| self.cells.len() < 2);
            let page_bytes = huge.value.unwrap_or(default_bytes);
            return vec![HugeMemory { page_bytes, bytes: memory.value, span: memory.span, nodes }];
        }
        let all = self.cells.iter().filter_map(|cell| {
            let own = self.pages_of_cells.iter().find(|(cells, _)| cells.contains(cell.id));
            let page_bytes = own.map(|(_, bytes)| *bytes).or(huge.value)?;
            let bound = self.cell_nodes.iter().find(|(id, _)| id.value == cell.id);
            let nodes = bound.map(|(_, nodes)| nodes).or(self.memory_nodes.as_ref());
            Some(HugeMemory { page_bytes, bytes: cell.memory_bytes?, span: cell.span, nodes })
        });
        // 4 KiB says that it has none.
        all.filter(|memory| memory.page_bytes > 4096).collect()
    }

    /// The pins of vCPUs that exist, by vCPU.
    pub(crate) fn live_pins(&self) -> Vec<&Pin> {
        let mut pins: Vec<&Pin> =
            self.pins.iter().filter(|pin| pin.id.value < self.vcpus.value).collect();
        pins.sort_by_key(|pin| pin.id.value);
        pins
    }

    /// The one pCPU of each vCPU, if every vCPU is pinned to just one.
    pub(crate) fn one_to_one(&self) -> Option<Vec<u32>> {
        let pins = self.live_pins();
        if pins.len() != self.vcpus.value as usize {
            return None;
        }
        pins.iter()
            .enumerate()
            .map(|(vcpu, pin)| {
                let sole = pin.pcpus.value.len() == 1 && pin.id.value as usize == vcpu;
                pin.pcpus.value.first().filter(|_| sole)
            })
            .collect()
    }

    /// All pCPUs that vCPUs are pinned to.
    pub(crate) fn pinned(&self) -> PcpuSet {
        PcpuSet::union_of(self.live_pins().iter().map(|pin| &pin.pcpus.value))
    }

    /// From the first to the last pin, to point at all of them.
    pub(crate) fn pins_span(&self) -> Span {
        self.pins.first().map_or(self.head, |pin| pin.span)
    }

    /// Whether each vCPU has pCPUs that it was given on purpose.
    pub(crate) fn is_pinned(&self) -> bool {
        (!self.pins.is_empty() && self.live_pins().len() == self.vcpus.value as usize)
            || self.affinity.is_some()
            || self.is_dedicated()
    }

    /// Whether KubeVirt gives it pCPUs of its own.
    pub(crate) fn is_dedicated(&self) -> bool {
        self.kube("domain.cpu.dedicatedCpuPlacement").is_some_and(|node| node.is_true())
    }

    /// A value below the VMI's `spec`.
    pub(crate) fn kube(&self, path: &str) -> Option<&Node> {
        self.kubevirt.as_ref()?.spec.get(path)
    }

    /// Whether KubeVirt connects it to the pod's network, since it names no other.
    pub(crate) fn has_default_network(&self) -> bool {
        let count = |path: &str| self.kube(path).map_or(0, |list| list.items().len());
        let attach = self.kube("domain.devices.autoattachPodInterface").and_then(Node::text);
        defaults::joins_pod_network(count("networks"), count("domain.devices.interfaces"), attach)
    }

    /// Whether what an edit would change stands in another text: an instance type's.
    pub(crate) fn is_elsewhere(&self, edit: &crate::finding::Edit) -> bool {
        let references = self.kubevirt.iter().flat_map(|kubevirt| &kubevirt.references);
        references.into_iter().any(|span| edit.start <= span.end && span.start <= edit.end)
    }

    /// Where the kubelet and KubeVirt will put it. All rules see one context.
    pub(crate) fn forecast(&self, context: &Context) -> Option<&HostForecast> {
        let forecast = || {
            let kubevirt = self.kubevirt.as_ref().filter(|_| self.is_dedicated())?;
            forecast(&kubevirt.instance(&self.name), context)
        };
        self.forecast.get_or_init(forecast).as_ref()
    }

    /// Whether it is to migrate, or its CPU was at least made such that it can.
    pub(crate) fn may_migrate(&self) -> bool {
        let migratable = self.cpu.as_ref().and_then(|cpu| cpu.value.migratable.as_ref());
        self.migrates.is_some() || migratable.is_some_and(|on| on.value)
    }

    /// What its XML says, where libvirt's QEMU driver is to read it.
    pub(crate) fn qemu_domain(&self) -> Option<&DomainElement> {
        let domain = self.domain.as_ref()?;
        matches!(domain.get("type"), None | Some("kvm" | "qemu" | "hvf")).then_some(domain)
    }

    /// The architecture by KubeVirt's name; empty where the object does not say.
    pub(crate) fn kube_architecture(&self) -> &str {
        self.kube("architecture").and_then(Node::text).unwrap_or_default()
    }

    /// Whether QEMU is started with a command line that the text is, or is made into:
    /// what it does not say is then QEMU's own choice, and not libvirt's.
    pub(crate) fn is_command(&self) -> bool {
        matches!(self.format, ConfigFormat::Qemu | ConfigFormat::Proxmox)
    }

    pub(crate) fn is_arm(&self) -> bool {
        self.arch.as_ref().is_some_and(|arch| arch.value == "aarch64")
    }
}

/// Memory in huge pages.
pub(crate) struct HugeMemory<'a> {
    pub(crate) page_bytes: u64,
    pub(crate) bytes: u64,
    /// Where that is said.
    pub(crate) span: Span,
    pub(crate) nodes: Option<&'a LocatedValue<PcpuSet>>,
}

/// Levels of the guest's topology; those not written are 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topology {
    pub(crate) sockets: u32,
    pub(crate) dies: u32,
    pub(crate) clusters: u32,
    pub(crate) cores: u32,
    pub(crate) threads: u32,
    /// Where the number of threads stands.
    pub(crate) threads_at: Option<Span>,
    pub(crate) cores_at: Option<Span>,
}

impl Topology {
    pub(crate) fn vcpus(&self) -> u32 {
        [self.sockets, self.dies, self.clusters, self.cores, self.threads]
            .iter()
            .fold(1_u32, |product, level| product.saturating_mul(*level))
    }
}

/// Where one thread may run: a vCPU by its number, an iothread by its name.
#[derive(Debug)]
pub(crate) struct Pin<Id = u32> {
    pub(crate) id: LocatedValue<Id>,
    pub(crate) pcpus: LocatedValue<PcpuSet>,
    pub(crate) span: Span,
}

/// A guest node.
#[derive(Debug)]
pub(crate) struct GuestNodeView {
    pub(crate) id: u32,
    pub(crate) vcpus: PcpuSet,
    pub(crate) memory_bytes: Option<u64>,
    /// Nodes of the host that its memory is bound to.
    pub(crate) nodes: Option<LocatedValue<PcpuSet>>,
    /// QEMU's memory backend.
    pub(crate) memdev: Option<String>,
    pub(crate) distances: bool,
    pub(crate) span: Span,
}

/// The processor that the guest sees.
#[derive(Debug, Clone)]
pub(crate) struct CpuView {
    /// `host-passthrough`, `host-model`, `maximum` or a model's name.
    pub(crate) model: String,
    pub(crate) migratable: Option<LocatedValue<bool>>,
    /// Features that are asked for or taken away.
    pub(crate) features: Vec<(String, bool)>,
    pub(crate) tsc_frequency: bool,
}

impl CpuView {
    pub(crate) fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|(name, on)| name == feature && *on)
    }
}

#[derive(Debug)]
pub(crate) struct Timer {
    pub(crate) name: String,
    pub(crate) present: Option<LocatedValue<bool>>,
}

#[derive(Debug)]
pub(crate) struct DiskView {
    pub(crate) span: Span,
    pub(crate) name: String,
    /// Neither a CD-ROM nor a floppy.
    pub(crate) hard: bool,
    pub(crate) bus: Option<LocatedValue<String>>,
    pub(crate) cache: Option<LocatedValue<String>>,
    pub(crate) io: Option<LocatedValue<String>>,
    /// Those that serve it: several where its queues are shared out to them.
    pub(crate) iothreads: Vec<LocatedValue<String>>,
    pub(crate) queues: Option<LocatedValue<u32>>,
    /// Written as a node of QEMU's block layer.
    pub(crate) node: bool,
    /// A block device of the host.
    pub(crate) block: bool,
}

#[derive(Debug)]
pub(crate) struct NicView {
    pub(crate) span: Span,
    pub(crate) backend: NicBackendView,
    pub(crate) model: Option<LocatedValue<String>>,
    pub(crate) vhost: Option<LocatedValue<bool>>,
    pub(crate) queues: Option<LocatedValue<u32>>,
    /// Whether the device offers its queues; only QEMU has that switch.
    pub(crate) multiqueue: Option<bool>,
    pub(crate) vectors: Option<LocatedValue<u32>>,
    /// Entries of its rings for receiving and sending.
    pub(crate) rx_ring: Option<LocatedValue<u32>>,
    pub(crate) tx_ring: Option<LocatedValue<u32>>,
    /// Whether QEMU connects anew when the other end of its socket has gone; none
    /// if it listens there, or has no socket.
    pub(crate) reconnects: Option<bool>,
}

impl NicView {
    pub(crate) fn is_virtio(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.value.starts_with("virtio"))
    }
}

/// What is behind a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NicBackendView {
    Tap,
    User,
    VhostUser,
    Other,
}

/// What only KubeVirt's objects have.
#[derive(Debug)]
pub(crate) struct Kubevirt {
    /// The VMI's `spec`, also of a VM's template.
    pub(crate) spec: Node,
    /// The whole object, and its kind with its place.
    pub(crate) object: Node,
    pub(crate) kind: LocatedValue<String>,
    /// Where in the object `spec` stands.
    pub(crate) spec_path: String,
    /// Annotations of the VMI.
    pub(crate) annotations: Vec<String>,
    /// What is missing in `spec` may be said elsewhere: by an instance type, a
    /// preference or a preset that is not known here.
    pub(crate) open: bool,
    /// Fields that the VM and its instance type both say.
    pub(crate) conflicts: Vec<LocatedValue<String>>,
    /// Instance types and preferences that are not known.
    pub(crate) missing: Vec<LocatedValue<String>>,
    /// What the VM lacks of what its preference asks for.
    pub(crate) shortfalls: Vec<LocatedValue<Shortfall>>,
    /// Where values of instance types and preferences are said to stand.
    pub(crate) references: Vec<Span>,
}

impl Kubevirt {
    /// Whether it came out of a cluster, which has written into it.
    pub(crate) fn lives(&self) -> bool {
        self.object.given("metadata.uid").is_some()
    }

    /// The VMI that the object is or makes, with what is known of its instance type.
    pub(crate) fn instance(&self, name: &str) -> Value {
        let annotations: Map<String, Value> =
            self.annotations.iter().map(|name| (name.clone(), json!(""))).collect();
        json!({
            "kind": "VirtualMachineInstance",
            "metadata": { "name": name, "annotations": annotations },
            "spec": self.spec.json(),
        })
    }

    /// The VirtualMachine around a VMI, of a pool its template of one, with metadata and
    /// spec.
    pub(crate) fn machine(&self) -> Option<&Node> {
        match self.kind.value.as_str() {
            "VirtualMachine" => Some(&self.object),
            "VirtualMachinePool" => self.object.get("spec.virtualMachineTemplate"),
            _ => None,
        }
    }

    /// The instance type, if it is named and not known.
    pub(crate) fn missing_instancetype(&self) -> Option<&LocatedValue<String>> {
        let place = self.machine()?.given("spec.instancetype")?.span;
        self.missing
            .iter()
            .find(|name| place.start <= name.span.start && name.span.end <= place.end)
    }

    /// Labels of the VMI.
    pub(crate) fn labels(&self) -> &[(Key, Node)] {
        self.metadata("labels")
    }

    /// An annotation of the VMI and its value.
    pub(crate) fn annotation(&self, name: &str) -> Option<&(Key, Node)> {
        self.metadata("annotations").iter().find(|(key, _)| key.text == name)
    }

    fn metadata(&self, key: &str) -> &[(Key, Node)] {
        let template = self.spec_path.strip_suffix("spec").unwrap_or_default();
        let path = format!("{template}metadata.{key}");
        self.object.get(&path).map(Node::entries).unwrap_or_default()
    }
}
