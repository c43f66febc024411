//! Trials as VirtualMachineInstances of a cluster: what a plan needs to know of it, and
//! what of a study KubeVirt can't do.

use std::path::Path;

use topology::Host;
use topology::bounded::LineProblem;
use vmconfig::kubevirt::{LaunchedInstance, emit_launched};
use vmconfig::{Accel, BootSource, EmittedText, ImagePatch, Loss, VmSpec};
use workload::GuestFacts;

use crate::freeze::MachineFacts;
use crate::host_settings::describe;
use crate::kubevirt_facts::KubevirtFacts;
use crate::limits::GroundRules;
use crate::machine::{self, DiscoverError};
use crate::plan::{QemuFacts, StudyPlan};
use crate::study::{RunsOn, Study};
use crate::thin::is_thin;

/// What a plan needs to know where a cluster runs the VMs, of which `host` stands for the
/// nodes.
///
/// # Errors
/// [`DiscoverError::Arch`] and images that no vmlab has.
pub fn machine(
    study: &Study,
    folder: &Path,
    host: Host,
    facts: KubevirtFacts,
) -> Result<MachineFacts, DiscoverError> {
    let mut machine = machine::described(study, folder, host)?;
    machine.is_simulated = false;
    let version = &facts.version;
    machine.qemu =
        QemuFacts { path: String::new(), version: format!("virt-launcher's (KubeVirt {version})") };
    if facts.is_emulated {
        machine.auto_accel = Accel::Tcg;
        let why = "KubeVirt there emulates its VMs (useEmulation).";
        machine.environment_why = Some(why.to_owned());
    }
    for (image, found) in &mut machine.images {
        if let Some(container) = facts.images.get(&image.to_string()) {
            found.facts.identity = format!("container image {container}");
        }
    }
    machine.kubevirt = Some(facts);
    Ok(machine)
}

/// What of a VM KubeVirt has no word for.
pub(crate) fn losses(spec: &VmSpec) -> Vec<Loss> {
    let launched = LaunchedInstance { name: "vm", image: "", labels: &[], annotations: &[] };
    emit_launched(spec, &launched).losses
}

/// The instance of a VM, as it is shown before it has a name.
#[must_use]
pub fn shown(plan: &StudyPlan, spec: &VmSpec, image: &str) -> EmittedText {
    let image = container_of(plan, image);
    let launched = LaunchedInstance { name: "vm", image, labels: &[], annotations: &[] };
    emit_launched(spec, &launched)
}

/// The container image from which a guest boots `image`, as the study names it.
#[must_use]
pub fn container_of<'p>(plan: &'p StudyPlan, image: &str) -> &'p str {
    let facts = plan.kubevirt.as_ref();
    facts.and_then(|facts| facts.images.get(image)).map_or("", String::as_str)
}

/// What of a study the cluster of its plan can't do: what KubeVirt has no word for, what
/// would have to be done on a node.
#[must_use]
pub fn refusals(study: &Study, plan: &StudyPlan) -> Vec<LineProblem> {
    let Some(facts) = &plan.kubevirt else { return Vec::new() };
    let mut problems = Vec::new();
    let mut say = |line: usize, message: String| problems.push(LineProblem { line, message });
    for variant in plan.variants.iter().filter(|one| one.aa_of.is_none()) {
        let name = &variant.name;
        let of_variant = study.line_of_variant(name);
        if variant.on == RunsOn::Host {
            say(
                of_variant,
                format!("{name}: a cluster's nodes run VMs, not workloads of their own"),
            );
            continue;
        }
        for spec in variant.specs() {
            for Loss { what, why, fields } in losses(spec) {
                let field = fields.first().and_then(|path| path.split('.').next());
                let line = study.line_of(name, field.unwrap_or_default());
                say(line, format!("{name}: KubeVirt can't say {what}: {why}"));
            }
        }
        if is_thin(&variant.spec) {
            let line = study.line_of(name, "kernel");
            say(
                line,
                format!("{name}: the thin guest has no agent, by which KubeVirt's are reached"),
            );
        }
        if variant.follows_memory {
            let line = study.line_of_measured(name);
            say(line, format!("{name}: vCPUs can't follow their memory: KubeVirt pins them"));
        }
        if !variant.host_settings.is_empty() {
            let settings = describe(&variant.host_settings).join(", ");
            say(of_variant, format!("{name}: no settings of nodes are changed ({settings})"));
        }
    }
    if !plan.host_settings.is_empty() {
        let settings = describe(&plan.host_settings).join(", ");
        say(1, format!("[host]: no settings of nodes are changed ({settings})"));
    }
    if plan.ground != GroundRules::default() {
        let message = "[ground]: the memory of nodes is neither cleared nor looked at";
        say(study.line_of_ground(""), message.to_owned());
    }
    for load in &plan.loads {
        let line = study.line_of_load(&load.name);
        if load.stress.is_some() {
            let message = "stress-ng is not started on a node: take other VMs (load.vms)";
            say(line, format!("{}: {message}", load.name));
        }
        if !load.host.is_empty() {
            let settings = describe(&load.host).join(", ");
            say(line, format!("{}: no settings of nodes are changed ({settings})", load.name));
        }
        for (_, spec) in plan.other_specs().filter(|(name, _)| *name == load.name) {
            for Loss { what, why, .. } in losses(spec) {
                say(line, format!("{}: KubeVirt can't say {what}: {why}", load.name));
            }
        }
    }
    for workload in &plan.workloads {
        let Ok((entry, params)) = workload.resolve() else { continue };
        let line = study.line_of_workload(&workload.label);
        let label = &workload.label;
        if workload.under_test.other().is_some() {
            let message = "needs two VMs in a network that vmlab makes, and pods have their own";
            say(line, format!("{label}: {} {message}", entry.name));
        }
        if workload.profile {
            say(line, format!("{label}: perf is not run on nodes: leave `profile` out"));
        }
        let vcpus = plan.variants.first().map_or(1, |variant| variant.spec.vcpus());
        let guest = GuestFacts::alone(vcpus, facts.is_emulated);
        let all = plan.variants.iter().filter_map(|variant| workload.resolve_in(variant).ok());
        let all = all.map(|(_, params)| params).chain([params]);
        if all.into_iter().any(|params| entry.scratch_mib(&params, &guest) > 0) {
            let message = "needs an empty disk, which instances of vmlab's do not have";
            say(line, format!("{label}: {} {message}", entry.name));
        }
    }
    let variants = plan.variants.iter().map(|variant| (&variant.image, &variant.spec));
    let mut without: Vec<&String> = variants
        .filter(|(image, spec)| {
            let boots = matches!(spec.boot, BootSource::Direct { .. } | BootSource::Disk { .. });
            boots && !facts.images.contains_key(*image)
        })
        .map(|(image, _)| image)
        .collect();
    without.sort();
    without.dedup();
    for image in without {
        say(
            1,
            format!(
                "{image}: name the container image that holds it, --kubevirt-image REF; `vmlab \
                 image export --to containerdisk` makes one to be pushed"
            ),
        );
    }
    problems.sort_by_key(|problem| problem.line);
    problems
}

/// The images of a study, as they are named in a plan.
#[must_use]
pub fn image_names(study: &Study) -> Vec<String> {
    crate::freeze::images(study).iter().map(ImagePatch::to_string).collect()
}
