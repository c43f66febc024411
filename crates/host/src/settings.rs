//! Host settings that a study changes and that are put back afterwards.
//!
//! One table, [`SETTINGS`], has them all. The order of a change is: find out
//! everything that has to be written, and whether all of it can be; write the
//! old values into a journal that is safely on disk; only then change the first
//! one; read back what the kernel made of it. Whoever finds the journal of a
//! dead vmlab can undo what it did. A setting that somebody else has changed
//! meanwhile is left as it is and reported.
//!
//! Nothing that is set here outlives a reboot.

use std::collections::BTreeMap;

mod apply;
mod cpuset;
mod journal;
mod module_steps;
mod modules;
mod partition_steps;
mod place;
mod refusal;
mod step;
mod table;
mod target;
mod tree;
mod value;
pub(crate) mod vfio;
mod vfio_steps;

pub use apply::{
    AppliedSettings, ApplyError, Mode, PlannedChange, RestoreOutcome, RestoredSetting,
    SettingChanges, StaleSettings, plan, restore_stale,
};
pub use cpuset::{Partition, PartitionKind, partitions};
pub use journal::JournalError;
pub use place::{CurrentValue, SettingPath};
pub use refusal::SettingRefusal;
pub use table::SETTINGS;
pub use tree::SettingsTree;
pub use value::SettingValues;

/// A host setting that vmlab knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Name in studies and reports.
    pub id: &'static str,
    /// What it is, one line.
    pub what: &'static str,
    /// Unit of a number; empty where there is none.
    pub unit: &'static str,
    /// Values that it takes.
    pub values: SettingValues,
    /// Where it lives.
    pub place: SettingPath,
    /// The document that it is from.
    pub source: &'static str,
    /// What may go wrong; empty where nothing is known to.
    pub risk: &'static str,
}

/// All settings that can be read on the machine of `tree`, by id.
#[must_use]
pub fn read_all(tree: &SettingsTree) -> BTreeMap<String, String> {
    let value = |setting: &Setting| {
        let value = setting.read(tree).ok()?.value;
        // Not given on the command line is no value.
        let known = !matches!(setting.place, SettingPath::BootOnly(_)) || !value.contains(' ');
        known.then(|| (setting.id.to_owned(), value))
    };
    SETTINGS.iter().filter_map(value).collect()
}

/// The table's row for `id`, if it has one.
#[must_use]
pub fn setting(id: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.id == id)
}

impl Setting {
    /// What it is on the machine of `tree` now.
    ///
    /// # Errors
    /// [`SettingRefusal`] says why it can't be read.
    pub fn read(&self, tree: &SettingsTree) -> Result<CurrentValue, SettingRefusal> {
        place::present(self, tree)
    }

    /// Whether it could be set on the machine of `tree`; `reload` as in
    /// [`SettingChanges`].
    ///
    /// # Errors
    /// [`SettingRefusal`] says why not.
    pub fn check_settable(&self, tree: &SettingsTree, reload: bool) -> Result<(), SettingRefusal> {
        let CurrentValue { value: present, single, .. } = self.read(tree)?;
        // A value that it could have, if not the present one.
        let any = match self.place {
            SettingPath::BootOnly(_) => String::new(),
            SettingPath::Module(_) | SettingPath::Parameter(_) => self.another_than(&present),
            // Mixed values of several files are no value.
            SettingPath::Each { .. } => single,
            SettingPath::Partition(_) | SettingPath::Irqs => {
                let pcpus: Option<topology::PcpuSet> =
                    tree.text("sys/devices/system/cpu/online").ok().and_then(|t| t.parse().ok());
                pcpus.and_then(|set| set.last()).map_or(present, |last| last.to_string())
            }
            _ => present,
        };
        match (place::steps(self, tree, &any, reload), self.place) {
            // The value that was tried is nobody's wish.
            (Err(SettingRefusal::BuiltIn { module, what }), SettingPath::Parameter(_)) => {
                let parameter = what.split('=').next().unwrap_or_default();
                Err(SettingRefusal::BuiltIn { module, what: format!("{parameter}=VALUE") })
            }
            (Err(SettingRefusal::BootOnly { what }), _) => {
                Err(SettingRefusal::BootOnly { what: format!("{what}VALUE") })
            }
            (result, _) => result.map(drop),
        }
    }

    fn another_than(&self, present: &str) -> String {
        let candidates = match self.values {
            SettingValues::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            _ => vec!["0".to_owned(), "1".to_owned()],
        };
        candidates.into_iter().find(|one| one != present).unwrap_or_default()
    }

    /// What it needs of the machine, in words.
    #[must_use]
    pub fn needs(&self) -> String {
        match self.place {
            SettingPath::Parameter(choices) => {
                let modules: Vec<&str> = choices.iter().map(|(module, _)| *module).collect();
                format!(
                    "root; module {}; a reload where the kernel does not take it live",
                    modules.join(" or ")
                )
            }
            SettingPath::Module(module) => format!("root; module {module} as a module, unused"),
            SettingPath::Partition(_) => {
                "root; cgroup v2 with the cpuset controller, Linux 6.1".into()
            }
            SettingPath::Vfio => "root; an IOMMU that is on; module vfio_pci".into(),
            SettingPath::BootOnly(_) => "a reboot with another kernel command line".into(),
            SettingPath::Files(files) if files.iter().any(|file| file.contains("/debug/")) => {
                "root; debugfs, and a kernel that is not locked down".into()
            }
            _ => "root".into(),
        }
    }

    /// Where it is read and written, as people look for it.
    #[must_use]
    pub fn places(&self) -> Vec<String> {
        match self.place {
            SettingPath::Files(files) => files.iter().map(|file| format!("/{file}")).collect(),
            SettingPath::Each { folder, prefix, file } => {
                vec![format!("/{folder}/{prefix}*/{file}")]
            }
            SettingPath::Parameter(choices) => choices
                .iter()
                .map(|(module, parameter)| {
                    format!("/{}", modules::parameter_file(module, parameter))
                })
                .collect(),
            SettingPath::Module(module) => vec![format!("modprobe {module}, rmmod {module}")],
            SettingPath::Pool { kib } => {
                let file = format!("hugepages/hugepages-{kib}kB/nr_hugepages");
                vec![
                    format!("/sys/devices/system/node/node*/{file}"),
                    format!("/sys/kernel/mm/{file}"),
                ]
            }
            SettingPath::IdleNames | SettingPath::IdleLatency => {
                vec!["/sys/devices/system/cpu/cpu*/cpuidle/state*/disable".into()]
            }
            SettingPath::Irqs => vec![
                "/proc/irq/*/smp_affinity_list".into(),
                "/proc/irq/default_smp_affinity".into(),
            ],
            SettingPath::Partition(kind) => {
                vec![format!("/sys/fs/cgroup/vmlab-{}", cpuset::word(kind))]
            }
            SettingPath::Vfio => vec![
                "/sys/bus/pci/devices/*/driver_override".into(),
                "/sys/bus/pci/drivers_probe".into(),
            ],
            SettingPath::BootOnly(parameter) => {
                vec![format!("{parameter}= on the kernel's command line")]
            }
        }
    }
}

/// A setting and the value that it shall get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    setting: &'static Setting,
    value: String,
}

/// Error type for [`SettingChange::new`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChangeError {
    /// No such setting.
    #[error("Unknown host setting {id:?}; `vmlab settings list` shows all{}", near(id))]
    Unknown {
        /// The name.
        id: String,
    },
    /// No such value.
    #[error("Host setting {id} cannot be {value:?}; it takes {values}")]
    Value {
        /// The setting.
        id: &'static str,
        /// The value.
        value: String,
        /// What it takes.
        values: SettingValues,
    },
    /// It can't be changed by anybody while the machine runs.
    #[error("Host setting {id} is fixed at boot: boot the host with {parameter}={value}")]
    BootOnly {
        /// The setting.
        id: &'static str,
        /// The kernel's parameter.
        parameter: &'static str,
        /// The value.
        value: String,
    },
}

/// Settings whose names hold the given one, or the other way round.
fn near(id: &str) -> String {
    let related = |setting: &&Setting| setting.id.contains(id) || id.contains(setting.id);
    let names: Vec<&str> =
        SETTINGS.iter().filter(related).map(|setting| setting.id).take(6).collect();
    if names.is_empty() || id.is_empty() {
        return String::new();
    }
    format!(" (related: {})", names.join(", "))
}

impl SettingChange {
    /// `id` shall become `value`, in any way to say it.
    ///
    /// # Errors
    /// [`ChangeError`] names what there is.
    pub fn new(id: &str, value: &str) -> Result<Self, ChangeError> {
        let setting = setting(id).ok_or_else(|| ChangeError::Unknown { id: id.to_owned() })?;
        let Setting { id, values, place, .. } = *setting;
        let Some(normal) = values.normalise(value) else {
            return Err(ChangeError::Value { id, value: value.to_owned(), values });
        };
        if let SettingPath::BootOnly(parameter) = place {
            return Err(ChangeError::BootOnly { id, parameter, value: normal });
        }
        Ok(Self { setting, value: normal })
    }

    /// The setting.
    #[must_use]
    pub fn setting(&self) -> &'static Setting {
        self.setting
    }

    /// The value that it shall get, in the one way to say it.
    #[must_use]
    pub fn value(&self) -> &str {
        &self.value
    }
}

#[cfg(test)]
mod tests;
