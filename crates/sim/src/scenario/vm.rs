//! `[[vm]]`: the VMs, where they may run, and what their guests see.

use super::host::{self, HostPart};
use super::node::{ScenarioNode, ScenarioValue, TableReader};
use super::planned;
use super::workload::{self, MOST_STEPS, Meters};
use crate::machine::{PcpuNumbering, SimMachine, UniformMachine};
use crate::model::{IdleIpis, IdleRules, SimGroup, SimVm};
use crate::sched::{KernelRelease, SchedKernel};

/// More vCPUs than KVM gives a VM (`KVM_MAX_VCPUS` was 1024 until 6.x).
const MOST_VCPUS: u64 = 1_024;
/// More of them, or of tasks, would not end in minutes.
const MOST_THREADS: usize = 20_000;

/// The VMs, and the names of what they count.
pub(super) fn read(
    top: &TableReader<'_>,
    host: &HostPart,
    groups: &mut Vec<SimGroup>,
    left_out: &mut Vec<String>,
) -> (Vec<SimVm>, Vec<String>) {
    let mut vms = Vec::new();
    let mut meters = Meters::default();
    let workloads = top.table("workload");
    let mut used = Vec::new();
    let (mut threads, mut tasks, mut steps) = (0usize, 0usize, 0u64);
    for table in top.tables("vm") {
        let count = table.whole("count", 1, 1, 10_000);
        let name = table.text("name").map_or("vm", |(name, _)| name).to_owned();
        let vcpus = table.whole("vcpus", 1, 1, MOST_VCPUS) as u32;
        threads = threads.saturating_add((count as usize).saturating_mul(vcpus as usize));
        if threads > MOST_THREADS {
            table.problem(
                table.line,
                format!("The VMs have more than {MOST_THREADS} vCPUs, which can't be simulated"),
            );
            return (Vec::new(), Vec::new());
        }
        let mut first = one(&table, host, &name, vcpus, &workloads, &mut used, &mut meters);
        let mut unused = Vec::new();
        let planned = planned::memory_nodes(&table, host, &mut unused);
        if let (Some(_), Some(node)) = (&planned, table.get("memory_nodes")) {
            table.wrong("memory_nodes", node, "host_nodes already say where the memory is");
        }
        if let Some(nodes) = planned {
            first.memory_nodes = nodes;
        }
        if !unused.is_empty() {
            left_out.push(format!("{name}: {}", unused.join(", ")));
        }
        let places = places(&table, host, vcpus, count as usize);
        tasks = tasks.saturating_add(first.tasks.len().saturating_mul(count as usize));
        steps = steps.saturating_add(first.steps().saturating_mul(count));
        if tasks > MOST_THREADS || steps > MOST_STEPS {
            let message = format!(
                "With these VMs the guests have {tasks} tasks of {steps} steps: at most \
                 {MOST_THREADS} and {MOST_STEPS} can be simulated"
            );
            table.problem(table.line, message);
            return (Vec::new(), Vec::new());
        }
        let cgroup = host::cgroup(&table);
        if let (true, Some(node)) = (first.metal, table.get("cgroup")) {
            let why = "with metal = true CPUs that are idle would run in the group: take a VM";
            table.wrong("cgroup", node, why);
        }
        table.finish();
        for index in 0..count as usize {
            let name = if count == 1 { name.clone() } else { format!("{name} {index}") };
            // As libvirt does, each VM in one of its own.
            let group = cgroup.map(|cgroup| host::add_group(groups, cgroup));
            let mut vm = SimVm { name, group, ..first.clone() };
            if let Some(pins) = places.get(index % places.len().max(1)) {
                vm.pins.clone_from(pins);
            }
            vms.push(vm);
        }
    }
    for (name, node) in workloads.entries() {
        if !used.contains(&name) {
            // It is read all the same, so that what is wrong with it is told.
            let table = TableReader::new(node, name, top.problems());
            let newest = KernelRelease::from(SchedKernel::V6_12);
            workload::read(name, &table, (1, newest), &mut Meters::default());
            table.finish();
        }
    }
    (vms, meters.names)
}

fn one<'a>(
    table: &TableReader<'a>,
    host: &HostPart,
    name: &str,
    vcpus: u32,
    workloads: &TableReader<'a>,
    used: &mut Vec<&'a str>,
    meters: &mut Meters,
) -> SimVm {
    let machine = guest_machine(table, vcpus);
    let kernel = host::kernel(table, "5.15");
    let tunables = table.table("scheduler");
    let (policy, _) = host::scheduler(&tunables, kernel, vcpus as usize, false);
    tunables.finish();
    let memory_nodes = memory(table, host);
    let mut vm = SimVm {
        name: name.to_owned(),
        machine,
        policy,
        pins: Vec::new(),
        weight: table.whole("weight", 1024, 2, 100_000) as u32,
        group: None,
        idle_poll_ns: match table.get("idle_poll_us") {
            Some(ScenarioNode { value: ScenarioValue::Text(text), .. }) if text == "forever" => {
                u64::MAX
            }
            _ => table.time("idle_poll_us", 0, 1e3),
        },
        idle: idle_rules(table, kernel),
        repeats_call_ipis: table.flag("repeats_call_ipis", (kernel.major, kernel.minor) < (4, 13)),
        metal: table.flag("metal", false),
        memory_nodes,
        tasks: Vec::new(),
        locks: Vec::new(),
        barriers: Vec::new(),
        channels: Vec::new(),
    };
    let known: Vec<&str> = workloads.entries().map(|(name, _)| name).collect();
    let names: Vec<(&str, usize)> = match table.get("workload") {
        None => {
            table.problem(table.line, "A [[vm]] needs a workload");
            Vec::new()
        }
        Some(ScenarioNode { value: ScenarioValue::List(items), .. }) => items
            .iter()
            .filter_map(|item| match &item.value {
                ScenarioValue::Text(text) => Some((text.as_str(), item.line)),
                _ => {
                    table.wrong("workload", item, "must be the name of a [workload.NAME]");
                    None
                }
            })
            .collect(),
        Some(_) => table.text("workload").into_iter().collect(),
    };
    for (name, line) in names {
        let Some((known_name, node)) = workloads.entries().find(|(known, _)| *known == name) else {
            let known = known.join(", ");
            table.problem(line, format!("workload = {name:?}: there is none; known are: {known}"));
            continue;
        };
        used.push(known_name);
        let reader = TableReader::new(node, known_name, table.problems());
        let parts = workload::read(known_name, &reader, (vcpus, kernel), meters);
        reader.finish();
        if let Some(message) = parts.problem(vcpus) {
            table.problem(line, format!("workload = {name:?}: {message}"));
        }
        parts.join(&mut vm);
    }
    vm
}

fn idle_rules(table: &TableReader<'_>, kernel: KernelRelease) -> IdleRules {
    let known = IdleRules::defaults(kernel);
    let words = [
        ("halted", IdleIpis::Halted),
        ("across-caches", IdleIpis::AcrossCaches),
        ("all", IdleIpis::All),
    ];
    IdleRules { ipis: table.choice("idle_ipis", &words, known.ipis), ..known }
}

fn guest_machine(table: &TableReader<'_>, vcpus: u32) -> SimMachine {
    if table.get("topology").is_none() {
        return SimMachine::flat(vcpus);
    }
    let shape = table.table("topology");
    let part = |key| shape.whole(key, 1, 1, MOST_VCPUS);
    let [sockets, dies, cores, threads] = ["sockets", "dies", "cores", "threads"].map(part);
    // Clusters of cores mean nothing to the schedulers here: their cores do.
    let cores = cores.saturating_mul(part("clusters"));
    let product = sockets.saturating_mul(dies).saturating_mul(cores).saturating_mul(threads);
    let line = shape.line;
    shape.finish();
    if product != u64::from(vcpus) {
        table.problem(line, format!("The topology has {product} vCPUs, the VM {vcpus}"));
        return SimMachine::flat(vcpus);
    }
    let [sockets, dies, cores, threads] = [sockets, dies, cores, threads].map(|n| n as u32);
    let numbering = PcpuNumbering::CoreByCore;
    SimMachine::of_shape(UniformMachine { sockets, dies, cores, threads, numbering })
}

fn memory(table: &TableReader<'_>, host: &HostPart) -> Vec<u32> {
    if !host.known {
        table.get("memory_nodes");
        return Vec::new();
    }
    let nodes = host.machine.nodes();
    match table.get("memory_nodes") {
        None => Vec::new(),
        Some(ScenarioNode { value: ScenarioValue::Text(text), .. }) if text == "all" => {
            (0..nodes).collect()
        }
        Some(ScenarioNode { value: ScenarioValue::List(items), .. }) => items
            .iter()
            .filter_map(|item| match item.value {
                ScenarioValue::Integer(node) if (0..i64::from(nodes)).contains(&node) => {
                    Some(node as u32)
                }
                _ => {
                    let must = format!("the host has the nodes 0 to {}", nodes.saturating_sub(1));
                    table.wrong("memory_nodes", item, &must);
                    None
                }
            })
            .collect(),
        Some(node) => {
            table.wrong("memory_nodes", node, "must be a list of nodes, or \"all\"");
            Vec::new()
        }
    }
}

/// The pins of each vCPU, for each copy of the VM; the last ones repeat.
fn places(
    table: &TableReader<'_>,
    host: &HostPart,
    vcpus: u32,
    count: usize,
) -> Vec<Vec<Vec<u32>>> {
    let machine = host.known.then_some(&host.machine);
    match table.get("pins") {
        None => Vec::new(),
        Some(ScenarioNode { value: ScenarioValue::Text(text), line }) => match text.as_str() {
            "nodes" => machine.map_or_else(Vec::new, |machine| by_node(machine, vcpus, count)),
            _ => {
                let set = host::pcpus(table, "pins", text, *line, machine);
                vec![vec![set; vcpus as usize]]
            }
        },
        Some(node @ ScenarioNode { value: ScenarioValue::List(items), .. }) => {
            if items.len() != vcpus as usize {
                let message = format!("pins has {} places, the VM has {vcpus} vCPUs", items.len());
                table.problem(node.line, message);
            }
            vec![items.iter().map(|item| one_vcpu(table, machine, item)).collect()]
        }
        // As a study has them, and `vmlab plan --toml` prints them.
        Some(ScenarioNode { value: ScenarioValue::Table(by_vcpu), .. }) => {
            let mut pins = vec![Vec::new(); vcpus as usize];
            for (key, item) in by_vcpu {
                match key.parse::<u32>().ok().filter(|vcpu| *vcpu < vcpus) {
                    Some(vcpu) => pins[vcpu as usize] = one_vcpu(table, machine, item),
                    None => {
                        let message = format!("pins names vCPU {key:?}, the VM has {vcpus} vCPUs");
                        table.problem(item.line, message);
                    }
                }
            }
            vec![pins]
        }
        Some(node) => {
            let must = "must be pCPUs, a list with one entry a vCPU, a table by vCPU, or \"nodes\"";
            table.wrong("pins", node, must);
            Vec::new()
        }
    }
}

/// One vCPU's pCPUs.
fn one_vcpu(
    table: &TableReader<'_>,
    machine: Option<&SimMachine>,
    item: &ScenarioNode,
) -> Vec<u32> {
    match &item.value {
        ScenarioValue::Text(text) => host::pcpus(table, "pins", text, item.line, machine),
        ScenarioValue::Integer(number) => {
            host::pcpus(table, "pins", &number.to_string(), item.line, machine)
        }
        _ => {
            table.wrong("pins", item, "must be pCPUs, as \"1\" or \"0-3,8\"");
            Vec::new()
        }
    }
}

/// Copies go to the nodes in turn; in each their vCPUs are pinned one by one to
/// the node's pCPUs, each copy going on where the one before ended.
fn by_node(machine: &SimMachine, vcpus: u32, count: usize) -> Vec<Vec<Vec<u32>>> {
    let nodes = machine.nodes() as usize;
    let mut pcpus = vec![Vec::new(); nodes];
    for pcpu in 0..machine.len() as u32 {
        pcpus[machine.place(pcpu).node as usize].push(pcpu);
    }
    let mut next = vec![0usize; nodes];
    (0..count)
        .map(|index| {
            let node = index % nodes;
            let own = &pcpus[node];
            let pins = (0..vcpus as usize).map(|vcpu| vec![own[(next[node] + vcpu) % own.len()]]);
            let pins = pins.collect();
            next[node] += vcpus as usize;
            pins
        })
        .collect()
}
