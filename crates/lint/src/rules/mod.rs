//! The table. A new rule is one constant in a file of its family, and one line
//! here.

pub(crate) mod comments;
mod idle;
mod pins;
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
