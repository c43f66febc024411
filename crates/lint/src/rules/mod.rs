//! The table. A new rule is one constant in a file of its family, and one line
//! here.

pub(crate) mod comments;
mod devices;
mod idle;
mod memory;
mod neighbours;
mod pins;
mod shape;
mod threads;
mod words;
mod worlds;

use crate::rule::Rule;

/// All rules, by family.
pub static RULES: &[Rule] = &[
    pins::SIBLINGS_SPLIT,
    pins::CORES_SHARE_CORE,
    pins::PINS_CROSS_CACHE,
    pins::PINS_CROSS_NODE,
    pins::PIN_IS_OFFLINE,
    pins::PIN_IS_RESERVED,
    pins::PIN_NOT_ISOLATED,
    pins::SET_OVER_ISOLATED,
    pins::VCPUS_SHARE_PCPU,
    pins::PINS_PARTIAL,
    pins::VCPUPIN_WITHOUT_VCPU,
    pins::MORE_VCPUS_THAN_PCPUS,
    pins::MORE_VCPUS_THAN_SET,
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
    shape::CELLS_MEMORY,
    shape::ONE_GUEST_NODE,
    shape::CELL_DISTANCES,
    memory::MEMORY_ELSEWHERE,
    memory::MEMORY_UNBOUND,
    memory::CELL_ELSEWHERE,
    memory::CELL_SPANS_NODES,
    memory::MEMNODE_WITHOUT_CELL,
    memory::NODE_TOO_FULL,
    memory::HUGE_PAGES_NOT_RESERVED,
    memory::MEMORY_NOT_WHOLE_PAGES,
    memory::THP_OFF,
    memory::KSM_SPLITS,
    memory::KSM_WITH_HUGETLB,
    memory::BALANCING_PINNED,
    devices::IO_NATIVE_CACHED,
    devices::IOTHREAD_MISSING,
    devices::IOTHREAD_UNKNOWN,
    devices::IOTHREADS_UNUSED,
    devices::IOTHREAD_BUS,
    devices::DISK_EMULATED,
    devices::CACHE_UNSAFE,
    devices::NIC_EMULATED,
    devices::NIC_USER,
    devices::VHOST_OFF,
    devices::VHOST_MODULE_MISSING,
    devices::VHOST_USER_NOT_SHARED,
    devices::QUEUES_EXCEED_VCPUS,
    devices::QUEUES_ONE,
    devices::QUEUES_NOT_OFFERED,
    neighbours::VMS_SHARE_PCPU,
    neighbours::VMS_SHARE_CORE,
    neighbours::HOST_OVERCOMMITTED,
    neighbours::PLE_BIG_VM,
    comments::UNKNOWN_ALLOW,
];

/// Error type of [`find`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("No rule has the id {id:?}{}", near.map_or(String::new(), |near| format!("; did you mean {near}?")))]
pub struct UnknownRule {
    /// What was asked for.
    pub id: String,
    /// The id that is most like it.
    pub near: Option<&'static str>,
}

/// The rule with this id.
///
/// # Errors
/// [`UnknownRule`] with the id that is most like it.
pub fn find(id: &str) -> Result<&'static Rule, UnknownRule> {
    RULES.iter().find(|rule| rule.id == id).ok_or_else(|| {
        let likeness = |rule: &&Rule| (strsim::jaro_winkler(rule.id, id) * 1000.0) as u32;
        let near = RULES.iter().max_by_key(likeness).filter(|rule| likeness(rule) > 800);
        UnknownRule { id: id.to_owned(), near: near.map(|rule| rule.id) }
    })
}
