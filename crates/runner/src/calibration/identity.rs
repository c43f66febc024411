//! What two price lists are of: the VM, the host and what counts there.

use std::collections::BTreeMap;

use record::Environment;
use report::{HostFact, OtherSetting, UnfitPrices};
use topology::Host;

use super::Calibration;
use crate::plan::StudyPlan;

/// A fact in which two lists differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListDifference {
    /// The fact: `vCPUs`, or a setting of the host by its name.
    pub what: String,
    /// The first list's.
    pub old: String,
    /// The other's.
    pub new: String,
}

const UNKNOWN: &str = "not known";

/// What prices depend on of a host's settings: the parameters of KVM's modules
/// (`kvm.halt_poll_ns`), transparent huge pages, threads of a core, of the kernel's
/// command line what bears on performance, mitigations among it, and what emulates the
/// host, where something does.
#[must_use]
pub fn settings_of(host: &Host) -> BTreeMap<String, String> {
    let modules = host.kvm.modules.iter();
    let of_kvm = modules.flat_map(|module| {
        let named =
            |(name, value): (&String, &String)| (format!("{}.{name}", module.name), value.clone());
        module.parameters.iter().map(named)
    });
    let policies = [(THP, &host.settings.thp_enabled), ("smt", &host.settings.smt)];
    let policies = policies
        .into_iter()
        .filter_map(|(name, value)| value.clone().map(|value| (name.to_owned(), value)));
    let cmdline = ("cmdline".to_owned(), host.cmdline.join(" "));
    let emulator = host.virtualised.emulator.clone();
    let emulator = emulator.map(|emulator| ("emulator".to_owned(), emulator));
    of_kvm.chain(policies).chain([cmdline]).chain(emulator).collect()
}

const THP: &str = "thp_enabled";

impl Calibration {
    /// What is not the same of what `self` and `other` were measured on. A setting of the host
    /// that one of them does not tell is none.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<ListDifference> {
        let text = |known: &Option<String>| known.clone().unwrap_or_else(|| UNKNOWN.to_owned());
        let facts = |list: &Self| {
            [
                ("architecture", list.arch.clone()),
                ("environment", list.environment.to_string()),
                ("machine", list.machine.clone()),
                ("CPU model", list.vcpu_model.clone()),
                ("vCPUs", list.vcpus.to_string()),
                ("interrupt controller", list.apic.clone()),
                ("QEMU", list.qemu.clone()),
                ("host kernel", text(&list.kernel)),
                ("host processor", text(&list.cpu_model)),
                ("exits counted by reason", list.exits_by_reason.to_string()),
            ]
        };
        let pairs = facts(self).into_iter().zip(facts(other));
        let pairs = pairs.map(|((what, old), (_, new))| (what.to_owned(), old, new));
        let differ = |(what, old, new): (String, String, String)| {
            (old != new).then_some(ListDifference { what, old, new })
        };
        let name = self.hostname.clone().zip(other.hostname.clone());
        let name = name.map(|(old, new)| ("host".to_owned(), old, new));
        let settings = self.host_settings.iter().filter_map(|(what, old)| {
            Some((what.clone(), old.clone(), other.host_settings.get(what)?.clone()))
        });
        pairs.chain(name).chain(settings).filter_map(differ).collect()
    }

    /// Facts of the host, the VMs and QEMU in which the list and a study differ.
    pub(super) fn other_facts(&self, plan: &StudyPlan, host: &Host) -> Vec<UnfitPrices> {
        let facts = [
            (HostFact::Processor, self.cpu_model.clone(), host.cpu_model.clone()),
            (HostFact::Kernel, self.kernel.clone(), host.kernel.clone()),
            (HostFact::Qemu, Some(self.qemu.clone()), Some(plan.qemu.version.clone())),
        ];
        // What neither knows shows no sameness.
        let facts = facts.into_iter().filter(|(_, list, study)| list.is_none() || list != study);
        let mut archs = plan.variants.iter().map(|variant| variant.spec.arch.name());
        let arch = archs
            .find(|arch| *arch != self.arch)
            .map(|study| (HostFact::Architecture, Some(self.arch.clone()), Some(study.to_owned())));
        // Earlier lists have no name, and that of an emulated host tells none from another.
        let name = (self.environment == Environment::Kvm)
            .then(|| self.hostname.clone().zip(host.hostname.clone()))
            .flatten()
            .filter(|(list, study)| list != study)
            .map(|(list, study)| (HostFact::Name, Some(list), Some(study)));
        let all = facts.chain(arch).chain(name);
        all.map(|(what, list, study)| UnfitPrices::Other { what, list, study }).collect()
    }

    /// Settings of the host that were others when the prices were taken, of those that both
    /// tell. What the study itself sets is as it sets it; what single variants or loads set
    /// is what it compares.
    #[must_use]
    pub fn other_settings(&self, plan: &StudyPlan, host: &Host) -> Vec<OtherSetting> {
        let there = settings_of(host);
        let of_study = |name: &String| {
            let (_, id) = name.rsplit_once('.').unwrap_or(("", name));
            let id = if id == THP { "thp" } else { id };
            plan.host_settings.get(id).or_else(|| there.get(name)).cloned()
        };
        let differ = |(setting, list): (&String, &String)| {
            let study = of_study(setting).filter(|study| study != list)?;
            Some(OtherSetting { setting: setting.clone(), list: list.clone(), study })
        };
        self.host_settings.iter().filter_map(differ).collect()
    }
}

#[cfg(test)]
mod tests {
    use topology::{KernelModule, KernelSettings, Kvm};

    use super::*;
    use crate::calibration::tests::priced_events;
    use crate::testing::{STUDY, plan_of};

    fn host(halt_poll_ns: &str, thp: &str) -> Host {
        let parameters = [("halt_poll_ns".to_owned(), halt_poll_ns.to_owned())].into();
        Host {
            hostname: Some("here".to_owned()),
            cmdline: vec!["mitigations=off".to_owned()],
            settings: KernelSettings {
                thp_enabled: Some(thp.to_owned()),
                ..KernelSettings::default()
            },
            kvm: Kvm {
                device: Some(true),
                modules: vec![KernelModule { name: "kvm".to_owned(), parameters }],
                ..Kvm::default()
            },
            ..crate::testing::host()
        }
    }

    #[test]
    fn settings_that_were_others_are_told_and_what_the_study_sets_is_its_own() {
        let mut list = priced_events();
        list.host_settings = settings_of(&host("200000", "never"));
        let mut plan = plan_of(STUDY);
        assert_eq!(list.other_settings(&plan, &host("200000", "never")), []);
        let found = list.other_settings(&plan, &host("0", "always"));
        let found: Vec<_> = found.iter().map(|one| (&*one.setting, &*one.study)).collect();
        assert_eq!(found, [("kvm.halt_poll_ns", "0"), ("thp_enabled", "always")]);
        plan.host_settings.insert("halt_poll_ns".to_owned(), "200000".to_owned());
        plan.host_settings.insert("thp".to_owned(), "never".to_owned());
        assert_eq!(list.other_settings(&plan, &host("0", "always")), []);
        // Two lists in the same way.
        let mut other = list.clone();
        other.host_settings = settings_of(&host("0", "never"));
        other.hostname = Some("there".to_owned());
        list.hostname = Some("here".to_owned());
        let found = list.differences(&other);
        let found: Vec<_> = found.iter().map(|one| (&*one.what, &*one.new)).collect();
        assert_eq!(found, [("host", "there"), ("kvm.halt_poll_ns", "0")]);
        // What emulates the hosts.
        let emulated_by = |emulator: &str| {
            let mut host = host("200000", "never");
            host.virtualised.emulator = Some(emulator.to_owned());
            Calibration { host_settings: settings_of(&host), ..list.clone() }
        };
        let found = emulated_by("QEMU 7.2.22").differences(&emulated_by("QEMU 10.0.0"));
        let found: Vec<_> = found.iter().map(|one| (&*one.what, &*one.old, &*one.new)).collect();
        assert_eq!(found, [("emulator", "QEMU 7.2.22", "QEMU 10.0.0")]);
        // Earlier lists tell none.
        other.host_settings.clear();
        other.hostname = None;
        assert_eq!(list.differences(&other), []);
    }

    #[test]
    fn a_list_of_another_machine_or_architecture_is_refused() {
        let (mut list, plan) = (priced_events(), plan_of(STUDY));
        let facts = |list: &Calibration| {
            let found = list.other_facts(&plan, &host("0", "never"));
            let of = |one: &UnfitPrices| match one {
                UnfitPrices::Other { what, .. } => Some(*what),
                _ => None,
            };
            found.iter().filter_map(of).collect::<Vec<_>>()
        };
        let before = facts(&list);
        list.hostname = Some("here".to_owned());
        assert_eq!(facts(&list), before);
        list.hostname = Some("there".to_owned());
        assert!(facts(&list).contains(&HostFact::Name));
        list.environment = Environment::InstructionCounted;
        assert_eq!(facts(&list), before);
        list.arch = "aarch64".to_owned();
        assert!(facts(&list).contains(&HostFact::Architecture));
    }
}
