//! The table. A new rule is one constant in a file of its family, and one line
//! here.

mod accel;
mod admission;
pub(crate) mod comments;
mod counts;
mod disks;
mod experts;
mod fields;
mod forecast;
mod host;
mod idle;
mod kubelet;
mod kubevirt;
mod memory;
mod models;
mod neighbours;
mod nics;
mod nodes;
mod offered;
mod offered_cpu;
mod offered_texts;
mod pages;
mod pins;
mod proxmox;
mod refused_buses;
mod refused_devices;
mod refused_memory;
mod refused_values;
mod running;
mod samples;
mod shape;
mod spin;
mod threads;
mod webhook;
mod words;
pub(crate) mod worlds;

use topology::bounded::near;

use crate::rule::Rule;

/// Rules that hold a VM against what a host's QEMU and libvirt can do.
pub(crate) const OF_OFFERS: &[&str] = &[
    offered_cpu::CPU_NOT_USABLE.id,
    offered_cpu::CPU_INCOMPLETE.id,
    offered::ACCELERATOR_NOT_OFFERED.id,
    offered::MACHINE_NOT_OFFERED.id,
    offered::MACHINE_DEPRECATED.id,
    offered::VCPUS_BEYOND_MACHINE.id,
    offered::DEVICE_NOT_OFFERED.id,
    offered::FIRMWARE_NOT_OFFERED.id,
    offered::LAUNCH_SECURITY_NOT_OFFERED.id,
    offered::ENLIGHTENMENT_NOT_OFFERED.id,
];

/// All rules, by family.
pub static RULES: &[Rule] = &[
    accel::EMULATED,
    accel::NOT_RESOLVED,
    proxmox::SETTING_IGNORED,
    proxmox::START_REFUSED,
    pins::SIBLINGS_SPLIT,
    pins::SIBLINGS_LOOSE,
    pins::CORES_SHARE_CORE,
    pins::PINS_CROSS_CACHE,
    pins::PINS_CROSS_NODE,
    pins::PIN_IS_OFFLINE,
    pins::PIN_IS_RESERVED,
    pins::PIN_ON_FIRST,
    pins::PIN_NOT_ISOLATED,
    host::PIN_NOT_NOHZ,
    host::PIN_BUSY,
    host::PINS_MIX_KINDS,
    pins::SET_OVER_ISOLATED,
    counts::VCPUS_SHARE_PCPU,
    counts::VCPUS_BEYOND_KVM,
    counts::PINS_PARTIAL,
    counts::VCPUPIN_WITHOUT_VCPU,
    counts::MORE_VCPUS_THAN_PCPUS,
    counts::MORE_VCPUS_THAN_SET,
    counts::VCPUS_WITHOUT_EIM,
    threads::EMULATOR_ON_VCPU,
    threads::EMULATOR_UNPINNED,
    threads::EMULATOR_ON_SIBLING,
    threads::VHOST_ON_VCPU,
    threads::IOTHREAD_ON_VCPU,
    threads::IOTHREAD_UNPINNED,
    threads::IOTHREADPIN_WITHOUT_IOTHREAD,
    threads::FIFO_SHARES_PCPU,
    threads::CPU_LIMIT_THROTTLES,
    idle::CPU_PM_UNPINNED,
    idle::CPU_PM_SHARED,
    idle::CPU_PM_IGNORED,
    idle::CPU_PM_MIGRATION,
    idle::IDLE_POLL_UNPINNED,
    idle::HINT_DEDICATED_UNPINNED,
    idle::HPET_ON,
    idle::KVMCLOCK_OFF,
    idle::HOST_CLOCK_NOT_TSC,
    shape::TOPOLOGY_PRODUCT,
    shape::TOPOLOGY_MISSING,
    shape::THREADS_EXCEED_HOST,
    shape::AMD_THREADS_HIDDEN,
    shape::MODEL_GENERIC,
    shape::PASSTHROUGH_MIGRATION,
    shape::INVTSC_MIGRATION,
    shape::CELLS_COVER,
    shape::CELLS_INCOMPLETE,
    shape::CELLS_MEMORY,
    shape::ONE_GUEST_NODE,
    shape::CELL_DISTANCES,
    memory::MEMORY_ELSEWHERE,
    memory::MEMORY_UNBOUND,
    memory::CELL_ELSEWHERE,
    memory::CELL_SPANS_NODES,
    memory::MEMNODE_WITHOUT_CELL,
    memory::NODE_MISSING,
    memory::NODE_TOO_FULL,
    pages::HUGE_PAGES_NOT_RESERVED,
    pages::MEMORY_NOT_WHOLE_PAGES,
    pages::THP_OFF,
    pages::KSM_SPLITS,
    pages::KSM_WITH_HUGETLB,
    memory::BALANCING_PINNED,
    running::PIN_NOT_AS_ASKED,
    running::AFFINITY_NOT_CPUSET,
    running::MEMORY_NOT_LOCKED,
    running::MEMORY_SWAPPED,
    running::HUGE_PAGES_NOT_USED,
    running::THP_NOT_USED,
    disks::IO_NATIVE_CACHED,
    disks::IOTHREAD_MISSING,
    disks::IOTHREAD_UNKNOWN,
    disks::IOTHREADS_UNUSED,
    disks::IOTHREAD_BUS,
    disks::DISK_EMULATED,
    disks::CACHE_UNSAFE,
    host::DEVICE_ELSEWHERE,
    host::DEVICE_HIDDEN,
    nics::NIC_EMULATED,
    nics::NIC_USER,
    nics::VHOST_OFF,
    nics::VHOST_MODULE_MISSING,
    nics::VHOST_USER_NOT_SHARED,
    nics::VHOST_USER_IMPOSSIBLE,
    nics::VHOST_USER_NO_RECONNECT,
    nics::QUEUES_EXCEED_VCPUS,
    nics::QUEUES_ONE,
    nics::QUEUES_NOT_OFFERED,
    offered_cpu::CPU_NOT_USABLE,
    offered_cpu::CPU_INCOMPLETE,
    offered::ACCELERATOR_NOT_OFFERED,
    offered::MACHINE_NOT_OFFERED,
    offered::MACHINE_DEPRECATED,
    offered::VCPUS_BEYOND_MACHINE,
    offered::DEVICE_NOT_OFFERED,
    offered::FIRMWARE_NOT_OFFERED,
    offered::LAUNCH_SECURITY_NOT_OFFERED,
    offered::ENLIGHTENMENT_NOT_OFFERED,
    offered::NO_FREE_PORT,
    memory::MEMORY_FITS_NO_NODE,
    neighbours::VMS_SHARE_PCPU,
    neighbours::VMS_SHARE_CORE,
    neighbours::NEIGHBOUR_LOOSE,
    neighbours::HOST_OVERCOMMITTED,
    spin::PLE_BIG_VM,
    spin::PLE_OFF_OVERCOMMITTED,
    spin::PLE_FOR_NOTHING,
    kubevirt::OLD_PINNING,
    kubevirt::CORES_ARE_THREADS,
    kubevirt::IOTHREADS_CRASH,
    kubevirt::IOTHREADS_HEADROOM,
    kubevirt::POOL_OUTSIDE_POD,
    kubevirt::SIBLING_RANGES,
    kubevirt::ARM_MAX_SOCKETS,
    kubevirt::NUMA_HOTPLUG,
    kubevirt::HEADROOM_EXCEEDS_HOST,
    kubevirt::NUMA_MBIND,
    kubevirt::SOCKETS_VS_NODES,
    kubevirt::NO_CACHE_INFO,
    kubevirt::MULTIQUEUE_MEMORY,
    kubevirt::MULTIFD,
    kubelet::ODD_PCPUS,
    kubelet::DEDICATED_THROTTLED,
    kubelet::MEMORY_LIMIT_TIGHT,
    kubelet::DEVICE_NODE,
    kubelet::DISTRIBUTE_WRONG,
    webhook::ISOLATE_NEEDS_DEDICATED,
    webhook::NUMA_NEEDS,
    webhook::REALTIME_NEEDS,
    webhook::THREADS,
    webhook::IOTHREADS_POLICY,
    webhook::DEDICATED_RESOURCES,
    webhook::MEMORY_LIMIT_LOW,
    webhook::MAX_SOCKETS,
    webhook::PAGE_SIZE,
    webhook::FEATURE_POLICY,
    admission::disks::VOLUME,
    admission::disks::NO_DISK,
    admission::disks::NAMES,
    admission::disks::TARGET,
    admission::disks::BUS,
    admission::disks::IOTHREAD,
    admission::disks::VALUES,
    admission::disks::BOOT_ORDER,
    admission::volumes::SOURCE,
    admission::volumes::VALUES,
    admission::volumes::CONTAINER_PATH,
    admission::volumes::CLOUD_INIT,
    admission::networks::PAIRS,
    admission::networks::SOURCE,
    admission::networks::BINDING,
    admission::interfaces::VALUES,
    admission::interfaces::PORT_RANGES,
    admission::claims::CLAIMS,
    admission::claims::DEVICES,
    admission::placement::AFFINITY,
    admission::placement::POD,
    admission::domain::MACHINE,
    admission::domain::ARCHITECTURE,
    admission::domain::NUMBER,
    admission::domain::ZERO,
    admission::domain::RESOURCES,
    admission::domain::MEMORY,
    admission::domain::DEVICES,
    admission::domain::EVICTION,
    admission::domain::UTILITY,
    admission::firmware::FIRMWARE,
    admission::firmware::HYPERV,
    admission::firmware::LAUNCH_SECURITY,
    admission::pod::NAMES,
    admission::pod::PROBE,
    admission::pod::DNS,
    admission::pod::CREDENTIALS,
    admission::machine::RUN_STRATEGY,
    admission::machine::DATA_VOLUME,
    admission::machine::MEMORY_HOTPLUG,
    admission::gates::FEATURE_GATE,
    admission::gates::FEATURE_GATE_OFF,
    admission::objects::OVERCOMMIT,
    admission::objects::POLICY,
    admission::objects::MIGRATION,
    admission::objects::CLONE,
    admission::objects::SNAPSHOT,
    admission::objects::RESTORE,
    admission::sets::SELECTOR,
    admission::sets::POOL,
    admission::instancetypes::CONFLICT,
    admission::instancetypes::UNKNOWN,
    admission::instancetypes::NEEDS,
    admission::instancetypes::REFERENCE,
    fields::UNKNOWN_FIELD,
    fields::SCHEMA,
    forecast::REJECTED,
    nodes::NO_NODE,
    nodes::SHARED_ISOLATED,
    forecast::SIBLINGS,
    forecast::NODES_HIDDEN,
    forecast::MEMORY_UNEVEN,
    forecast::IOTHREADS,
    experts::BALLOON_USELESS,
    experts::CURRENT_MEMORY_LOW,
    experts::LOCKED_WITHOUT_LIMIT,
    experts::PMU_OFF,
    experts::X2APIC_OFF,
    experts::CELLS_WITHOUT_ACPI,
    experts::WINDOWS_WITHOUT_HYPERV,
    experts::HYPERV_WITHOUT_CLOCK,
    experts::IOTHREAD_CROWDED,
    models::MODEL_OLD,
    models::MODEL_FOREIGN,
    refused_values::VALUE_UNREADABLE,
    refused_values::MEMORY_MISSING,
    refused_values::SCHED_INVALID,
    refused_values::CPU_CACHE_IMPOSSIBLE,
    refused_values::HOST_CPU_EMULATED,
    refused_values::TSC_TIMER_FOREIGN,
    refused_values::BOOT_ORDER_TWICE,
    refused_memory::CELLS_NOT_CONTIGUOUS,
    refused_memory::CELL_NAMED_MISSING,
    refused_memory::MODULES_INVALID,
    refused_memory::NUMATUNE_INVALID,
    refused_memory::HUGE_PAGES_TWICE,
    refused_memory::PAGE_SIZE_IMPOSSIBLE,
    refused_devices::DISK_TARGET,
    refused_devices::DISK_ADDRESS,
    refused_devices::DISK_FORMAT,
    refused_devices::DISK_IMPOSSIBLE,
    refused_devices::HOST_DEVICE_TWICE,
    refused_devices::RING_SIZE,
    refused_devices::TX_RING_CAPPED,
    refused_devices::NIC_IMPOSSIBLE,
    refused_devices::PCI_ADDRESS_TWICE,
    refused_buses::CONTROLLER_IMPOSSIBLE,
    refused_buses::IOMMU_IMPOSSIBLE,
    comments::TEMPLATE,
    comments::UNKNOWN_ALLOW,
];

/// Error type of [`find`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("No rule has the id {id:?}{}", near.as_ref().map_or(String::new(), |near| format!("; did you mean {near}?")))]
pub struct UnknownRule {
    /// What was asked for.
    pub id: String,
    /// The id that is most like it.
    pub near: Option<String>,
}

/// The rule with this id.
///
/// # Errors
/// [`UnknownRule`] with the id that is most like it.
pub fn find(id: &str) -> Result<&'static Rule, UnknownRule> {
    RULES.iter().find(|rule| rule.id == id).ok_or_else(|| {
        let near = near(id, RULES.iter().map(|rule| rule.id));
        UnknownRule { id: id.to_owned(), near }
    })
}
