//! The VMs that are measured together: equal but for what tells them apart, and each on
//! pCPUs of its own where `vmlab plan` places them.

use placement::plan::{PlanRules, Size, VmWish, plan_host};
use topology::bounded::LineProblem;
use vmconfig::{BuiltinKernel, GuestNode, VmPatch, VmSpec};

use super::{Freezer, kubevirt};
use crate::plan::PlanVariant;
use crate::study::{MeasuredPlacement, StudyVariant};

impl Freezer<'_> {
    /// The VM of a variant that changes the base VM so, and those that are measured
    /// together with it.
    pub(super) fn measured(
        &mut self,
        written: &str,
        variant: &StudyVariant,
        changes: &VmPatch,
    ) -> Option<(VmSpec, Vec<VmSpec>)> {
        let whole = self.study.base.overlay(changes);
        let count = variant.measured.count();
        let first = self.spec(&variant.name, written, written, &self.patch(variant, 0, &whole))?;
        let placed = match variant.measured.placement.as_ref().unwrap_or(&MeasuredPlacement::Same) {
            MeasuredPlacement::Same => Ok(Vec::new()),
            MeasuredPlacement::Planned => self.planned(&first, count),
            MeasuredPlacement::Memory => self.is_followed(&first).map(|()| Vec::new()),
            MeasuredPlacement::Kubevirt(node) => {
                kubevirt::placed(&self.machine.host, &first, count, node)
            }
        };
        let placed = match placed {
            Ok(placed) => placed,
            Err(why) => {
                self.problem_of_measured(written, format!("{written}: measured.placement = {why}"));
                return None;
            }
        };
        if count > 1 && BuiltinKernel::is_thin(&variant.vm.image()) {
            let message =
                format!("{written}: measured.vms = {count}: the thin guest is measured alone");
            self.problem_of_measured(written, message);
            return None;
        }
        let mut specs = Vec::new();
        for number in 0..count {
            let own =
                placed.get(number as usize).map_or_else(|| whole.clone(), |it| whole.overlay(it));
            let patch = self.patch(variant, number, &own);
            let (name, whose) = if number == 0 {
                (variant.name.clone(), written.to_owned())
            } else {
                (format!("{}-{number}", variant.name), format!("{written}, VM {number}"))
            };
            specs.push(self.spec(&name, written, &whose, &patch)?);
        }
        let first = specs.remove(0);
        Some((first, specs))
    }

    /// `whole` with what the study says of VM `number` alone.
    fn patch(&self, variant: &StudyVariant, number: u32, whole: &VmPatch) -> VmPatch {
        let own = variant.measured.each.as_ref().and_then(|each| each.get(&number));
        own.map_or_else(|| whole.clone(), |own| whole.overlay(own))
    }

    /// Where `vmlab plan` puts `count` VMs like `spec` on this host.
    fn planned(&self, spec: &VmSpec, count: u32) -> Result<Vec<VmPatch>, String> {
        let wish = VmWish {
            count,
            iothreads: spec.iothreads,
            huge_pages: spec.memory.huge_pages.map(|page| Size(page.kib() << 10)),
            ..VmWish::new("vm", spec.vcpus(), Size::mib(spec.memory_mib))
        };
        let plan = plan_host(&self.machine.host, &[wish], &PlanRules::default());
        if let Some(refused) = plan.refused.first() {
            return Err(format!(
                "\"planned\": {} of {count} VMs have a place on this host: {}",
                plan.placements.len(),
                refused.why
            ));
        }
        Ok(plan.placements.iter().map(placement::plan::Placement::patch).collect())
    }

    /// Whether there will be memory to follow once the guest is up.
    fn is_followed(&self, spec: &VmSpec) -> Result<(), String> {
        if self.machine.is_simulated {
            return Err(
                "\"memory\": where memory comes to lie is not in the simulator's model".to_owned()
            );
        }
        if self.machine.libvirt.is_some() {
            return Err("\"memory\": libvirt pins its domains before their guests begin".to_owned());
        }
        let of_node = |node: &GuestNode| node.memory(&spec.memory).prealloc == Some(true);
        let all = match spec.numa.as_slice() {
            [] => spec.memory.prealloc == Some(true),
            nodes => nodes.iter().all(of_node),
        };
        if !all {
            return Err(
                "\"memory\": write memory.prealloc = true in the VM: a guest that has just \
                        begun has touched little of its memory"
                    .to_owned(),
            );
        }
        if !spec.pins.vcpus.is_empty() {
            return Err("\"memory\": the VM has pins; leave them out".to_owned());
        }
        Ok(())
    }

    fn problem_of_measured(&mut self, written: &str, message: String) {
        let line = self.study.line_of_measured(written);
        self.problems.push(LineProblem { line, message });
    }

    /// Whether this host has memory for the VMs of each variant.
    pub(super) fn room(&mut self, variants: &[PlanVariant]) {
        let Some(bytes) = self.machine.host.memory_bytes else { return };
        let several = variants.iter().filter(|variant| !variant.further.is_empty());
        for variant in several {
            let needed: u64 = variant.specs().map(|spec| spec.memory_mib).sum();
            if needed > bytes >> 20 {
                let written = variant.aa_of.as_ref().unwrap_or(&variant.name);
                let message = format!(
                    "{written}: its {} VMs need {needed} MiB of memory, this host has {} MiB",
                    variant.further.len() + 1,
                    bytes >> 20
                );
                self.problem_of_measured(written, message);
            }
        }
    }
}
