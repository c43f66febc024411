//! From a study and a machine to a frozen plan, or to everything that stands
//! in the way.

use std::collections::BTreeMap;

use record::Environment;
use topology::{Host, PcpuSet};
use vmconfig::{Accel, Arch, Boot, Finding, Image, Resolve, Severity, VmPatch, VmSpec, qemu};
use workload::GuestFacts;

use crate::plan::{ImageFacts, PLAN_FORMAT_VERSION, Plan, PlanVariant, PlanWorkload, QemuFacts};
use crate::study::{Placement, Problem, Study, StudyWorkload};

/// An invocation may take this many times its rough duration ...
const LIMIT_FACTOR: f64 = 10.0;
/// ... and never less than this, s.
const LIMIT_MIN_S: f64 = 60.0;

/// What a plan needs to know of the machine.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The host.
    pub host: Host,
    /// The architecture of its guests.
    pub arch: Arch,
    /// The QEMU to use.
    pub qemu: QemuFacts,
    /// What it can do.
    pub capabilities: qemu::Capabilities,
    /// KVM where a guest was seen to boot under it, else TCG.
    pub auto_accel: Accel,
    /// Why not KVM, one line.
    pub environment_why: Option<String>,
    /// The images that the study names.
    pub images: BTreeMap<Image, MachineImage>,
}

/// An image that is there.
#[derive(Debug, Clone)]
pub struct MachineImage {
    /// What QEMU boots.
    pub boot: Boot,
    /// What the plan says of it.
    pub facts: ImageFacts,
}

/// A plan, with what its reader should know before it runs.
#[derive(Debug, Clone)]
pub struct Frozen {
    /// The plan.
    pub plan: Plan,
    /// Things that work, but hardly as meant: by line of the study file.
    pub warnings: Vec<Problem>,
}

/// All images that a study boots.
#[must_use]
pub fn images(study: &Study) -> Vec<Image> {
    let variants = study.variants.iter().map(|variant| variant.vm.image());
    let others = study.loads.iter().filter_map(|load| load.vms.as_ref());
    let mut images: Vec<_> = variants.chain(others.map(|vms| vms.vm.image())).collect();
    images.sort();
    images.dedup();
    images
}

/// Freezes `study` on `machine`; `seed` orders the trials, `now_unix_s` is when.
///
/// # Errors
/// Every problem, by line of the study file.
pub fn freeze(
    study: &Study,
    machine: &Machine,
    seed: u64,
    now_unix_s: f64,
) -> Result<Frozen, Vec<Problem>> {
    let mut freezer = Freezer { study, machine, problems: Vec::new(), warnings: Vec::new() };
    let variants: Vec<_> =
        study.variants.iter().filter_map(|variant| freezer.variant(variant)).collect();
    let other_vms = freezer.other_vms();
    freezer.placements(&variants);
    let Freezer { mut problems, mut warnings, .. } = freezer;
    for list in [&mut problems, &mut warnings] {
        list.sort_by(|a, b| (a.line, &a.message).cmp(&(b.line, &b.message)));
        list.dedup();
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let emulated = variants.iter().any(|variant| variant.environment.is_emulated_time());
    let vcpus = variants.iter().map(|variant| variant.spec.vcpus()).min().unwrap_or(1);
    let facts = GuestFacts { vcpus, emulated };
    let plan = Plan {
        version: PLAN_FORMAT_VERSION,
        vmlab_version: env!("CARGO_PKG_VERSION").to_owned(),
        study: study.name.clone(),
        study_file: study.file.clone(),
        title: study.title.clone(),
        question: study.question.clone(),
        study_text: study.text.clone(),
        seed,
        created_unix_s: now_unix_s,
        environment_why: if emulated { machine.environment_why.clone() } else { None },
        qemu: machine.qemu.clone(),
        images: machine
            .images
            .iter()
            .map(|(image, found)| (image.to_string(), found.facts.clone()))
            .collect(),
        baseline: study.baseline.clone(),
        budget: study.budget,
        host_settings: study.host_settings.clone(),
        variants,
        loads: study.loads.clone(),
        other_vms,
        workloads: study.workloads.iter().map(|workload| plan_workload(workload, &facts)).collect(),
        later: study.later.clone(),
        published: study.published.clone(),
    };
    Ok(Frozen { plan, warnings })
}

fn plan_workload(workload: &StudyWorkload, facts: &GuestFacts) -> PlanWorkload {
    let params = workload.entry.resolve(&workload.params);
    let typical_s = params.map_or(1.0, |params| workload.entry.duration_s(&params, facts));
    PlanWorkload {
        label: workload.label.clone(),
        workload: workload.entry.name.to_owned(),
        params: workload.params.clone(),
        invocations: workload.invocations,
        limit_s: workload.limit_s.unwrap_or((typical_s * LIMIT_FACTOR).max(LIMIT_MIN_S)),
        metrics: workload.metrics(),
        margin_percent: workload.margin_percent.clone(),
        typical_s,
    }
}

struct Freezer<'a> {
    study: &'a Study,
    machine: &'a Machine,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Freezer<'_> {
    fn variant(&mut self, variant: &crate::study::Variant) -> Option<PlanVariant> {
        // The A/A arm stands in the file under the name of its original.
        let written = variant.aa_of.as_ref().unwrap_or(&variant.name);
        let spec = self.spec(&variant.name, written, &variant.vm)?;
        Some(PlanVariant {
            name: variant.name.clone(),
            about: variant.about.clone(),
            summary: summary(&variant.changes),
            aa_of: variant.aa_of.clone(),
            environment: match spec.accel {
                Accel::Kvm => Environment::Kvm,
                Accel::Tcg => Environment::Tcg,
            },
            image: variant.vm.image().to_string(),
            spec,
        })
    }

    /// The VM, checked against QEMU and the host.
    fn spec(&mut self, name: &str, written: &str, vm: &VmPatch) -> Option<VmSpec> {
        let line = |field: &str| self.study.line_of(written, field);
        let Some(image) = self.machine.images.get(&vm.image()) else {
            let message = format!("{written}: image {} is not there", vm.image());
            self.problems.push(Problem { line: line("image"), message });
            return None;
        };
        let resolve = Resolve {
            name,
            arch: self.machine.arch,
            auto_accel: self.machine.auto_accel,
            boot: image.boot.clone(),
        };
        let spec = match vm.resolve(&resolve) {
            Ok(spec) => spec,
            Err(error) => {
                let message = format!("{written}: {error}");
                self.problems.push(Problem { line: line(error.field()), message });
                return None;
            }
        };
        if spec.accel == Accel::Kvm && self.machine.auto_accel != Accel::Kvm {
            let why = self.machine.environment_why.as_deref().unwrap_or("KVM is not usable");
            let message = format!("{written}: accel \"kvm\" can't be had here: {why}");
            self.problems.push(Problem { line: line("accel"), message });
        }
        let mut findings = vmconfig::check_against(&spec, &self.machine.host);
        findings.extend(qemu::check(&spec, &self.machine.capabilities));
        for Finding { severity, field, message } in findings {
            let problem = Problem { line: line(&field), message: format!("{written}: {message}") };
            match severity {
                Severity::Error => self.problems.push(problem),
                Severity::Warning => self.warnings.push(problem),
            }
        }
        Some(spec)
    }

    fn other_vms(&mut self) -> BTreeMap<String, VmSpec> {
        let loads = self.study.loads.iter();
        let vms: Vec<_> =
            loads.filter_map(|load| Some((load.name.clone(), load.vms.clone()?))).collect();
        vms.into_iter()
            .filter_map(|(load, vms)| {
                let name = format!("{load}-other");
                Some((load, self.spec(&name, "", &vms.vm)?))
            })
            .collect()
    }

    /// "Off the VM" needs pins to stay off, and pCPUs that are left.
    fn placements(&mut self, variants: &[PlanVariant]) {
        let asked =
            self.study.loads.iter().find(|load| {
                load.stress.is_some_and(|stress| stress.placement == Placement::OffVm)
            });
        let Some(load) = asked else { return };
        let unpinned = variants.iter().find(|variant| {
            (0..variant.spec.vcpus()).any(|vcpu| !variant.spec.pins.vcpus.contains_key(&vcpu))
        });
        let message = match unpinned {
            Some(variant) => format!(
                "Load {:?} stays off the VM's pCPUs, but variant {:?} has unpinned vCPUs that may run anywhere: pin them (vm.pins)",
                load.name, variant.name
            ),
            None if off_vm_pcpus(&self.machine.host, variants.iter().map(|v| &v.spec))
                .is_empty() =>
            {
                format!(
                    "Load {:?} stays off the VM's pCPUs, but the variants' pins leave none of the host's ({}) free",
                    load.name,
                    self.machine.host.online()
                )
            }
            None => return,
        };
        let line = self.study.line_of_load(&load.name);
        self.problems.push(Problem { line, message });
    }
}

/// The pCPUs that no vCPU of any of `specs` is pinned to.
#[must_use]
pub fn off_vm_pcpus<'a>(host: &Host, specs: impl Iterator<Item = &'a VmSpec>) -> PcpuSet {
    specs
        .flat_map(|spec| spec.pins.vcpus.values())
        .fold(host.online(), |left, taken| left.difference(taken))
}

/// What a patch says, as `key = value` pairs on one line.
fn summary(changes: &VmPatch) -> String {
    let Ok(toml::Value::Table(table)) = toml::Value::try_from(changes) else {
        return "as the base VM".to_owned();
    };
    if table.is_empty() {
        return "as the base VM".to_owned();
    }
    let pairs: Vec<_> = table.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    pairs.join(", ")
}

#[cfg(test)]
mod tests;
