//! One cell of a plan as a scenario.

use std::collections::BTreeMap;

use toml::{Table, Value};
use topology::Host;
use vmconfig::{GuestTopology, VcpuPins, VmSpec};

use super::models::{self, WorkloadModel};
use crate::freeze::stress_load;
use crate::plan::{PlanVariant, PlanWorkload, StudyPlan};
use crate::study::{HostLoad, RunsOn};

/// The name under which a cell's scenario has the described host.
pub const DESCRIBED_HOST: &str = "host.json";

/// Simulated time that is counted, and before it, ms.
pub(super) const DURATION_MS: i64 = 400;
const WARMUP_MS: i64 = 100;
/// The TSC's rate that windows in cycles are read with, MHz.
const MHZ: f64 = 2_400.0;
/// What a PAUSE of AMD's takes, cycles of the TSC: measured on an EPYC by reading that
/// around a million of them (63.8 to 64.2 in five rounds).
const AMD_PAUSE_CYCLES: f64 = 64.0;
/// The kernel of guests whose image does not say it.
const GUEST_KERNEL: &str = "6.1";

/// A cell as the simulator plays it.
pub(super) struct CellScenario {
    /// The scenario's text.
    pub(super) text: String,
    /// The model of what is measured.
    pub(super) model: WorkloadModel,
}

fn insert(table: &mut Table, key: &str, value: impl Into<Value>) {
    table.insert(key.to_owned(), value.into());
}

/// The scenario of `variant` with `workload` beside `load`.
///
/// # Errors
/// Why there is none, a sentence.
pub(super) fn of_cell(
    plan: &StudyPlan,
    host: &Host,
    load: &HostLoad,
    variant: &PlanVariant,
    workload: &PlanWorkload,
) -> Result<CellScenario, String> {
    let (mut top, model) = played(plan, host, load, variant, workload)?;
    let title = format!("{}: {}, {}, {}", plan.study, workload.label, load.name, variant.name);
    insert(&mut top, "title", title);
    let text = toml::to_string(&top).map_err(|error| error.to_string())?;
    Ok(CellScenario { text, model })
}

/// All that is played of a cell, which is all but its name.
///
/// # Errors
/// As [`of_cell`].
pub(super) fn played(
    plan: &StudyPlan,
    host: &Host,
    load: &HostLoad,
    variant: &PlanVariant,
    workload: &PlanWorkload,
) -> Result<(Table, WorkloadModel), String> {
    let model = models::of_plan(workload, variant)?;
    let mut top = Table::new();
    insert(&mut top, "sim", sim::scenario::SCENARIO_FORMAT_VERSION as i64);
    insert(&mut top, "duration_ms", DURATION_MS);
    insert(&mut top, "warmup_ms", WARMUP_MS);
    let mut described = Table::new();
    insert(&mut described, "file", DESCRIBED_HOST);
    insert(&mut described, "kvm", kvm(plan, host, load, variant));
    let loads = host_loads(plan, host, load)?;
    if !loads.is_empty() {
        insert(&mut described, "load", loads);
    }
    insert(&mut top, "host", described);
    let kernel = guest_kernel(plan, &variant.image);
    // A workload, and so a meter, for each VM that is measured.
    let (mut vms, mut workloads) = (Vec::new(), Table::new());
    for (number, spec) in variant.specs().enumerate() {
        // Meters come in the order of their names, before "other".
        let name =
            if number == 0 { "measured".to_owned() } else { format!("measured-{number:03}") };
        vms.push(vm(&name, spec, host, &kernel, variant.on));
        insert(&mut workloads, &name, model.table.clone());
    }
    if let Some(others) = &load.vms {
        let all = (0..others.count).filter_map(|number| plan.other_vm(load, Some(variant), number));
        let mut alike: Vec<(&VmSpec, i64)> = Vec::new();
        for (_, spec) in all {
            match alike.last_mut() {
                Some((last, count)) if *last == spec => *count += 1,
                _ => alike.push((spec, 1)),
            }
        }
        for (number, (spec, count)) in alike.into_iter().enumerate() {
            let name = if number == 0 { "other".to_owned() } else { format!("other-{number:03}") };
            let other = models::of_name(&others.workload, &others.params, spec.vcpus())
                .map_err(|why| format!("the other VMs' {}: {why}", others.workload))?;
            let mut table = vm(&name, spec, host, GUEST_KERNEL, RunsOn::Vm);
            insert(&mut table, "count", count);
            vms.push(table);
            insert(&mut workloads, &name, other.table);
        }
    }
    insert(&mut top, "vm", vms.into_iter().map(Value::Table).collect::<Vec<_>>());
    insert(&mut top, "workload", workloads);
    Ok((top, model))
}

/// The guest kernel's version, of its package's or a release's.
fn guest_kernel(plan: &StudyPlan, image: &str) -> String {
    let named = plan.images.get(image).and_then(|image| image.kernel.as_deref());
    let known = named.filter(|kernel| sim::sched::SchedKernel::of_release(kernel).is_some());
    known.unwrap_or(GUEST_KERNEL).to_owned()
}

/// KVM's settings: the host's, and what the study sets.
fn kvm(plan: &StudyPlan, host: &Host, load: &HostLoad, variant: &PlanVariant) -> Table {
    let mut settings: BTreeMap<&str, &str> = BTreeMap::new();
    let layers = [&host.tunables, &plan.host_settings, &load.host, &variant.host_settings];
    for (id, value) in layers.into_iter().flatten() {
        settings.insert(id, value);
    }
    let number = |id: &str| settings.get(id)?.parse::<f64>().ok();
    let mut kvm = Table::new();
    if let Some(ns) = number("halt_poll_ns") {
        insert(&mut kvm, "halt_poll_us", ns / 1e3);
    }
    // On AMD either switches pause exits off (`svm_vm_init`); on Intel a window of 0 makes
    // every loop exit at once, and the gap alone does (`vmx_vm_init`).
    let is_amd = host.kvm.modules.iter().any(|module| module.name == "kvm_amd");
    if number("ple_gap") == Some(0.0) || (is_amd && number("ple_window") == Some(0.0)) {
        insert(&mut kvm, "ple", false);
    } else if let Some(window) = number("ple_window") {
        // AMD counts PAUSEs.
        let cycles = window * if is_amd { AMD_PAUSE_CYCLES } else { 1.0 };
        insert(&mut kvm, "ple_window_ns", cycles * 1e3 / MHZ);
    }
    let switch = |id: &str| Some(matches!(*settings.get(id)?, "1" | "Y" | "y" | "on"));
    if let Some(on) = switch("enable_apicv").or_else(|| switch("avic")) {
        insert(&mut kvm, "posted_interrupts", on);
    }
    let hints = &variant.spec.hints;
    if let Some(pv_ipi) = hints.pv_ipi {
        insert(&mut kvm, "pv_ipi", pv_ipi);
    }
    if hints.cpu_pm == Some(true) {
        insert(&mut kvm, "hlt_exits", false);
    }
    kvm
}

fn host_loads(plan: &StudyPlan, host: &Host, load: &HostLoad) -> Result<Vec<Value>, String> {
    let Some(stress) = load.stress else { return Ok(Vec::new()) };
    let wanted = stress_load(host, stress, &plan.variants);
    let workers = wanted.plan().map_err(|error| error.to_string())?;
    let mut table = Table::new();
    insert(&mut table, "name", "stress-ng");
    insert(&mut table, "threads", i64::from(workers.workers));
    insert(&mut table, "pins", wanted.pcpus.to_string());
    if workers.percent_each < 100 {
        // stress-ng computes in slices and sleeps for the rest of each.
        let busy = f64::from(workers.percent_each) / 100.0;
        insert(&mut table, "run", 10_000.0 * busy);
        insert(&mut table, "sleep", 10_000.0 * (1.0 - busy));
    }
    Ok(vec![Value::Table(table)])
}

fn vm(workload: &str, spec: &VmSpec, host: &Host, kernel: &str, on: RunsOn) -> Table {
    let mut table = Table::new();
    let vcpus = spec.vcpus();
    insert(&mut table, "name", workload);
    insert(&mut table, "vcpus", i64::from(vcpus));
    insert(&mut table, "kernel", kernel);
    insert(&mut table, "workload", workload);
    if on == RunsOn::Host {
        insert(&mut table, "metal", true);
    }
    let nodes = spec.numa.iter().filter_map(|node| node.host_nodes.as_ref());
    let nodes = nodes.chain(spec.memory.host_nodes.as_ref()).flat_map(|set| set.iter());
    table.extend(placed(vcpus, &spec.pins.vcpus, spec.topology, nodes, host));
    if spec.kernel_parameter("idle") == Some("poll") {
        insert(&mut table, "idle_poll_us", "forever");
    } else if spec.forces_haltpoll() {
        insert(&mut table, "idle_poll_us", f64::from(spec.guest_halt_poll_ns()) / 1e3);
    }
    table
}

/// What a scenario's `[[vm]]` says of where a VM is: its vCPUs' pCPUs, what the guest
/// sees of them, and the host nodes that its memory is on.
#[must_use]
pub fn placed(
    vcpus: u32,
    pins: &VcpuPins,
    topology: GuestTopology,
    nodes: impl Iterator<Item = u32>,
    host: &Host,
) -> Table {
    let mut table = Table::new();
    if !pins.0.is_empty() {
        let anywhere = host.online();
        let pins = (0..vcpus).map(|vcpu| {
            let pcpus = pins.get(&vcpu).unwrap_or(&anywhere);
            Value::from(pcpus.to_string())
        });
        insert(&mut table, "pins", pins.collect::<Vec<_>>());
    }
    if topology.vcpus() == vcpus {
        let mut levels = Table::new();
        for (level, count) in [
            ("sockets", topology.sockets),
            ("dies", topology.dies.saturating_mul(topology.clusters)),
            ("cores", topology.cores),
            ("threads", topology.threads),
        ] {
            insert(&mut levels, level, i64::from(count));
        }
        insert(&mut table, "topology", levels);
    }
    // The simulator numbers nodes as they come.
    let place = |id: u32| host.nodes.iter().position(|node| node.id == id);
    let mut nodes: Vec<i64> = nodes.filter_map(place).map(|at| at as i64).collect();
    nodes.sort_unstable();
    nodes.dedup();
    if !nodes.is_empty() {
        insert(&mut table, "memory_nodes", nodes.into_iter().map(Value::from).collect::<Vec<_>>());
    }
    table
}
