//! The VMs of a run in a cluster, and what is seen of them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::cluster::{
    ClusterTarget, Forecast, Instance, InstanceLocation, MACHINE_ANNOTATION, MANAGED_BY,
    MarkedKind, OWNER_ANNOTATION, RUN_LABEL, condition_lines, marked, phases_s,
};
use anyhow::Context as _;
use guest::{Cancel, ExecOutput, GuestCommand, GuestFailure};
use host::owner::{self, Owner, RuntimeDir};
use runner::hosting::{HostedVm, SeenVm, VmHosting};
use runner::kubevirt_facts::KubevirtFacts;
use runner::plan::StudyPlan;
use serde_json::Value;
use vmconfig::kubevirt::{LaunchedInstance, emit_launched};
use vmconfig::{Accel, VmSpec};

use crate::kubernetes::left::{RunInCluster, machine_name};

/// How much of a run's id stands in an instance's name.
const RUN_CHARS: usize = 8;

/// Has the VMs of a run be instances of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterHosting {
    target: ClusterTarget,
    facts: KubevirtFacts,
    owner: Owner,
    started: Cell<u32>,
    /// Names of instances that may be there, though the server did not say so.
    unsure: RefCell<Vec<String>>,
    log: Arc<Mutex<HostingLog>>,
    /// Says to `vmlab clean` where the instances of a killed run are.
    runtime: Option<RuntimeDir>,
}

/// What is kept of instances that have ended.
#[derive(Debug, Default)]
struct HostingLog {
    seen: Vec<SeenVm>,
    /// Those that could not be deleted.
    undeleted: Vec<Instance>,
}

fn locked(log: &Mutex<HostingLog>) -> std::sync::MutexGuard<'_, HostingLog> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClusterHosting {
    /// For the instances of `plan` in the cluster of `target`.
    ///
    /// # Errors
    /// Nothing can be written down for `vmlab clean`.
    pub(crate) fn new(plan: &StudyPlan, target: &ClusterTarget) -> anyhow::Result<Self> {
        let facts = plan.kubevirt.clone().context("The plan names no cluster")?;
        let owner = Owner::current(&plan.run_id())?;
        let runtime = owner::runtime_dir(&owner)?;
        RunInCluster::new(target, &owner, MarkedKind::Instance).write(runtime.path())?;
        let log = Arc::default();
        let (target, started) = (target.clone(), Cell::new(0));
        let unsure = RefCell::default();
        Ok(Self { target, facts, owner, started, unsure, log, runtime: Some(runtime) })
    }

    /// Deletes what could not be deleted before.
    fn delete_left(&self) -> Result<(), GuestFailure> {
        let failed = |why: String| {
            let detail = format!("An instance of an earlier trial may be there still: {why}");
            GuestFailure::Cluster { detail }
        };
        let mut unsure = self.unsure.borrow_mut();
        if !unsure.is_empty() {
            let there = marked(&self.target, MarkedKind::Instance)
                .map_err(|error| failed(error.to_string()))?;
            for instance in there.iter().filter(|it| unsure.contains(&it.name)) {
                instance.delete(&self.target).map_err(failed)?;
            }
            unsure.clear();
        }
        let mut log = locked(&self.log);
        while let Some(mut instance) = log.undeleted.pop() {
            if let Err(why) = instance.delete() {
                log.undeleted.push(instance);
                return Err(failed(why));
            }
        }
        Ok(())
    }
}

impl Drop for ClusterHosting {
    fn drop(&mut self) {
        if self.delete_left().is_err() {
            // `vmlab clean` finds the folder of a dead run, and tries again.
            if let Some(runtime) = self.runtime.take() {
                std::mem::forget(runtime);
            }
        }
    }
}

impl VmHosting for ClusterHosting {
    fn start(
        &self,
        spec: &VmSpec,
        image: &str,
        name: &str,
        cancel: &Cancel,
    ) -> Result<Box<dyn HostedVm>, GuestFailure> {
        let refused = |detail: String| GuestFailure::Refused { detail };
        self.delete_left()?;
        let image = self.facts.images.get(image).map_or("", String::as_str);
        let number = self.started.get();
        self.started.set(number + 1);
        let run: String = self.owner.run_id.chars().take(RUN_CHARS).collect();
        // Names of a resumed run's sessions differ, too.
        let full = format!("vmlab-{run}-{name}-{}-{number}", self.owner.pid);
        let owner =
            serde_json::to_string(&self.owner).map_err(|error| refused(error.to_string()))?;
        let labels =
            [(MANAGED_BY.0, MANAGED_BY.1.to_owned()), (RUN_LABEL, self.owner.run_id.clone())];
        let annotations = [(OWNER_ANNOTATION, owner), (MACHINE_ANNOTATION, machine_name())];
        let launched =
            LaunchedInstance { name: &full, image, labels: &labels, annotations: &annotations };
        let manifest = emit_launched(spec, &launched).text;
        let namespace = &self.facts.namespace;
        let created = Instance::create(&self.target, namespace, &full, &manifest, cancel);
        let instance = created.inspect_err(|_| self.unsure.borrow_mut().push(full.clone()))?;
        let seen = SeenVm {
            name: name.to_owned(),
            texts: BTreeMap::from([("vmi".to_owned(), manifest.into_bytes())]),
            ..SeenVm::default()
        };
        Ok(Box::new(ClusterVm {
            instance: Some(instance),
            version: self.facts.version.clone(),
            is_kvm: spec.accel == Accel::Kvm,
            seen,
            log: Arc::clone(&self.log),
        }))
    }

    fn seen(&self) -> Vec<SeenVm> {
        std::mem::take(&mut locked(&self.log).seen)
    }
}

/// A VM of a run in a cluster.
#[derive(Debug)]
struct ClusterVm {
    instance: Option<Instance>,
    /// KubeVirt's.
    version: String,
    is_kvm: bool,
    seen: SeenVm,
    log: Arc<Mutex<HostingLog>>,
}

impl ClusterVm {
    fn instance(&mut self) -> Result<&mut Instance, GuestFailure> {
        let gone = || GuestFailure::Died { detail: "it was deleted".to_owned() };
        self.instance.as_mut().ok_or_else(gone)
    }

    /// Looks where it runs, and writes that beside what was predicted.
    fn look(&mut self, cancel: &Cancel) -> Result<(), GuestFailure> {
        let Some(instance) = &self.instance else { return Ok(()) };
        let placed = InstanceLocation::of(instance, cancel)?;
        let forecast = placed.forecast(instance, &self.version, cancel);
        cancel.check()?;
        let seen = &mut self.seen;
        let mut fact = |name: &str, value: String| {
            seen.facts.insert(format!("kubevirt.{name}"), value);
        };
        fact("node", placed.node.clone());
        if !placed.kernel.is_empty() {
            fact("node_kernel", placed.kernel.clone());
        }
        fact("pcpus", placed.cpuset.to_string());
        let pins: Vec<String> = placed.vcpus.iter().map(ToString::to_string).collect();
        fact("vcpu_pcpus", pins.join(" "));
        if let Some(emulator) = &placed.emulator {
            fact("emulator_pcpus", emulator.to_string());
        }
        for (name, version) in &placed.versions {
            if name.contains("hypervisor") || name.contains("library") {
                fact(&name.replace(' ', "_"), version.clone());
            }
        }
        match &forecast {
            Ok(forecast) => {
                fact("predicted_pcpus", forecast.cpuset.to_string());
                fact("predicted_vcpu_pcpus", predicted(forecast, placed.vcpus.len()));
                fact("predicted_by", forecast.rule.clone());
                if !forecast.findings.is_empty() {
                    fact("placement_findings", forecast.findings.join("; "));
                }
                seen.warnings.extend(placed.mismatches(forecast));
            }
            Err(why) => fact("predicted_pcpus", format!("not known: {why}")),
        }
        if placed.is_virtual && self.is_kvm {
            seen.warnings.push(format!("Node {} is itself a VM: its KVM is nested", placed.node));
        }
        seen.vcpu_affinity = pins;
        seen.qemu_args = placed.qemu_args;
        let texts = [
            ("domain-xml", placed.domain_xml),
            ("capabilities", placed.capabilities),
            ("pod-cgroup", placed.cgroup),
        ];
        seen.texts.extend(texts.map(|(name, text)| (name.to_owned(), text.into_bytes())));
        Ok(())
    }

    /// Writes down how it went, and deletes it.
    fn end(&mut self) {
        let Some(mut instance) = self.instance.take() else { return };
        // Also of a trial that was interrupted.
        let cancel = Cancel::new();
        let seen = &mut self.seen;
        match instance.object(&cancel) {
            Ok(object) => {
                let at = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
                let mut fact = |name: &str, value: String| {
                    seen.facts.insert(format!("kubevirt.{name}"), value);
                };
                let phases: Vec<String> = in_order(&phases_s(&object));
                fact("phases_s", phases.join(", "));
                fact("conditions", condition_lines(&object).join("; "));
                if let Some(class) = at("/status/qosClass") {
                    fact("qos_class", class.to_owned());
                }
                if let Some(node) = at("/status/nodeName") {
                    fact("node", node.to_owned());
                }
                let text = serde_json::to_vec_pretty(&object).unwrap_or_default();
                seen.texts.insert("instance".to_owned(), text);
                let events = instance.events(&cancel);
                let warnings: Vec<String> = events
                    .iter()
                    .filter(|event| event.is_warning)
                    .map(|event| format!("{} x {}", event.count, event.reason))
                    .collect();
                if !warnings.is_empty() {
                    seen.facts.insert("kubevirt.warning_events".to_owned(), warnings.join(", "));
                }
                let text = serde_json::to_vec_pretty(&events).unwrap_or_default();
                seen.texts.insert("events".to_owned(), text);
                seen.console = instance.console(&cancel);
            }
            Err(failure) => seen.warnings.push(format!("How it went is not known: {failure}")),
        }
        let mut log = locked(&self.log);
        if let Err(left) = instance.delete() {
            self.seen.warnings.push(left);
            log.undeleted.push(instance);
        }
        log.seen.push(std::mem::take(&mut self.seen));
    }
}

/// The pCPUs of each vCPU, as they were predicted.
fn predicted(forecast: &Forecast, vcpus: usize) -> String {
    let of = |vcpu: usize| match forecast.vcpus.get(vcpu) {
        Some(pcpu) => pcpu.to_string(),
        None => forecast.cpuset.to_string(),
    };
    (0..vcpus).map(of).collect::<Vec<_>>().join(" ")
}

/// `Scheduled 4, Running 6`, by time.
fn in_order(phases: &BTreeMap<String, f64>) -> Vec<String> {
    let mut all: Vec<_> = phases.iter().collect();
    all.sort_by(|one, other| one.1.total_cmp(other.1));
    all.into_iter().map(|(phase, seconds)| format!("{phase} {seconds}")).collect()
}

impl HostedVm for ClusterVm {
    fn wait_ready(&mut self, limit: Duration, cancel: &Cancel) -> Result<Duration, GuestFailure> {
        let boot = self.instance()?.wait_ready(limit, cancel)?;
        self.look(cancel)?;
        Ok(boot)
    }

    fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, GuestFailure> {
        self.instance()?.exec(command, cancel)
    }

    fn check_alive(&mut self, cancel: &Cancel) -> Result<(), GuestFailure> {
        self.instance()?.check_alive(cancel)
    }
}

impl Drop for ClusterVm {
    fn drop(&mut self) {
        self.end();
    }
}
