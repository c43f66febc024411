//! Where a variant's workloads run: in a VM, or on the host itself.

use serde::{Deserialize, Serialize};
use vmconfig::VmPatch;

use super::check::Checker;
use super::file::VariantTable;
use super::lines::Step::{Index, Key};
use super::{DiskPatch, NetworkPatch};

/// Where the workloads of a variant run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Seat {
    /// In a VM.
    #[default]
    Vm,
    /// On the host itself, on as many pCPUs as the VM has vCPUs.
    Host,
}

impl Seat {
    /// True for a VM, the usual place.
    #[must_use]
    pub fn is_vm(&self) -> bool {
        *self == Self::Vm
    }
}

/// What a variant on the host may say of the VM: how many CPUs and which, and
/// the host's settings.
const OF_THE_HOST: [&str; 3] = ["vcpus", "pins", "host"];

impl Checker {
    /// A variant on the host has no VM that could be configured.
    pub(super) fn seat(&mut self, index: usize, table: &VariantTable) {
        if table.on.is_vm() {
            return;
        }
        let at = |key| [Key("variant"), Index(index), Key(key)];
        if let Some(builtin) = &table.builtin {
            let message = format!(
                "use = {builtin:?}: on = \"host\" has no VM that it could change; name the pCPUs with vm.pins"
            );
            self.problem(&at("use"), message);
        }
        for key in keys(&table.vm).iter().filter(|key| !OF_THE_HOST.contains(&key.as_str())) {
            let message = format!(
                "vm.{key}: on = \"host\" has no VM; it takes vm.vcpus and vm.pins (its pCPUs) and vm.host"
            );
            self.problem(&[Key("variant"), Index(index), Key("vm"), Key(key)], message);
        }
        if table.network != NetworkPatch::default() {
            let message = "network: on = \"host\" has no interface of its own, it sits at the bridge; leave it out";
            self.problem(&at("network"), message);
        }
        let kept = DiskPatch { cache: table.disk.cache, ..DiskPatch::default() };
        if table.disk != kept {
            let message = "disk: on = \"host\" has no virtual disk; it takes disk.cache alone";
            self.problem(&at("disk"), message);
        }
    }
}

/// The keys that a patch has.
fn keys(patch: &VmPatch) -> Vec<String> {
    match toml::Value::try_from(patch) {
        Ok(toml::Value::Table(table)) => table.keys().cloned().collect(),
        // A patch is a table.
        Ok(_) | Err(_) => Vec::new(),
    }
}
