//! What a variant on the host itself may say.

use vmconfig::VmPatch;

use super::check::StudyChecker;
use super::file::VariantTable;
use super::lines::PathStep::{Index, Key};
use super::{MeasuredVms, NetworkPatch, StudyDisk};

/// What a variant on the host may say of the VM: how many CPUs and which, and
/// the host's settings.
const OF_THE_HOST: [&str; 3] = ["vcpus", "pins", "host"];

impl StudyChecker {
    /// A variant on the host has no VM that could be configured.
    pub(super) fn check_runs_on(
        &mut self,
        index: usize,
        table: &VariantTable,
        measured: &MeasuredVms,
    ) {
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
        if measured.count() > 1 {
            let message = "measured.vms: on = \"host\" is one host; write measured.vms = 1 for it";
            self.problem(&at("on"), message);
        }
        let kept = StudyDisk { cache: table.disk.cache, ..StudyDisk::default() };
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
