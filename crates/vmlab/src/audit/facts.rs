//! A VM that runs, as `lint` looks at it: its command line and what is.

use std::collections::BTreeMap;

use host::audit::argv::MemoryBackend;
use host::audit::memory::VmMapping;
use host::audit::thread::{RunningThread, ThreadRole};
use host::audit::{RunningVm, guest_view::GuestView};
use lint::{MemoryPlacement, Observation, ObservedValue, ObservedVm, ThreadOwner, ThreadPlacement};
use topology::bytes::rounded as size;
use topology::{Host, PcpuSet};

/// Mappings smaller than this part of the biggest are firmware and tables.
const SMALL_PART: u64 = 4;

/// What is known of `vm` on `host`, whose online pCPUs are `online`; `wishes`
/// are the pins that somebody asked for, as `lint::asked_pins` reads them.
pub(crate) fn running(
    vm: &RunningVm,
    host: &Host,
    online: &PcpuSet,
    wishes: &[(ThreadOwner, PcpuSet)],
) -> ObservedVm {
    let mut facts = threads(vm, online, wishes);
    facts.extend(memory(vm));
    let guest_bytes = vm.memory.guest_bytes();
    let fact = |is: ObservedValue| Observation { is, asked: None };
    if vm.asked.lock_memory {
        facts.extend(vm.memory.locked_bytes.map(|locked| Observation {
            is: ObservedValue::Locked(locked, guest_bytes),
            asked: Some("all of it".to_owned()),
        }));
    }
    facts.extend(
        vm.memory.swapped_bytes.filter(|bytes| *bytes > 0).map(ObservedValue::Swapped).map(fact),
    );
    if let Some(halts) = vm.halts.filter(|_| vm.asked.cpu_pm) {
        let is = ObservedValue::HaltExits(halts.halt_exits);
        facts.push(Observation { is, asked: Some("0 (cpu-pm=on)".to_owned()) });
    }
    if let Some(view) = &vm.guest {
        facts.extend(levels(view).map(ObservedValue::Topology).map(fact));
        let name = |kvm| if kvm { "kvm" } else { "tcg" };
        facts
            .extend(view.kvm.map(|kvm| ObservedValue::Accelerator(name(kvm).to_owned())).map(fact));
    }
    let option_files = vm.option_files.clone();
    ObservedVm { pid: vm.pid, argv: argv(vm, host), option_files, facts }
}

/// The arguments, with a name that tells what the program is.
fn argv(vm: &RunningVm, host: &Host) -> Vec<String> {
    let mut argv = vm.argv.clone();
    let name = argv.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default();
    if !(name.starts_with("qemu-system-") || matches!(name, "qemu-kvm" | "kvm")) {
        let arch = host.arch.as_deref().unwrap_or(std::env::consts::ARCH);
        let program = format!("qemu-system-{arch}");
        match argv.first_mut() {
            Some(first) => *first = program,
            None => argv.push(program),
        }
    }
    argv
}

fn threads(
    vm: &RunningVm,
    online: &PcpuSet,
    wishes: &[(ThreadOwner, PcpuSet)],
) -> Vec<Observation> {
    let fact = |who: ThreadOwner, threads: &[&RunningThread]| {
        let wish = wishes.iter().find(|(whose, _)| *whose == who);
        let asked = wish.map(|(_, pcpus)| {
            ThreadPlacement { pcpus: pcpus.clone(), ..ThreadPlacement::default() }.to_string()
        });
        Some(Observation { is: ObservedValue::Thread(who, thread(threads, online)?), asked })
    };
    let mut facts = Vec::new();
    for (vcpu, thread) in vm.vcpus() {
        facts.extend(fact(ThreadOwner::Vcpu(Some(vcpu)), &[thread]));
    }
    let of = |is: fn(&ThreadRole) -> bool| -> Vec<&RunningThread> {
        vm.threads.iter().filter(|thread| is(&thread.role)).collect()
    };
    for thread in of(|role| *role == ThreadRole::Vcpu { vcpu: None }) {
        facts.extend(fact(ThreadOwner::Vcpu(None), &[thread]));
    }
    let emulator =
        of(|role| role.is_emulator() && *role != ThreadRole::Vhost || *role == ThreadRole::Unknown);
    facts.extend(fact(ThreadOwner::Emulator, &emulator));
    for thread in &vm.threads {
        if let ThreadRole::Iothread { id } = &thread.role {
            facts.extend(fact(ThreadOwner::Iothread(id.clone()), &[thread]));
        }
    }
    facts.extend(fact(ThreadOwner::Vhost, &of(|role| *role == ThreadRole::Vhost)));
    facts
}

/// What is so of some threads together; `None` where nothing is known.
fn thread(threads: &[&RunningThread], online: &PcpuSet) -> Option<ThreadPlacement> {
    let affinities = threads.iter().filter_map(|thread| thread.affinity.as_ref());
    let pcpus = affinities.cloned().reduce(|all, one| all.union(&one))?;
    let one = threads.first().filter(|_| threads.len() == 1);
    let limits = one.map(|thread| &thread.limits);
    // A cpuset of everything says nothing.
    let cpuset = limits.and_then(|limits| limits.pcpus.clone());
    let quota = limits.and_then(|limits| limits.quota.as_ref());
    let real_time = |thread: &&&RunningThread| thread.policy.is_some_and(|p| p.is_realtime());
    Some(ThreadPlacement {
        anywhere: online.is_subset(&pcpus),
        pcpus,
        real_time: threads.iter().any(|thread| real_time(&thread)),
        cpuset: cpuset.filter(|cpuset| !online.is_subset(cpuset)),
        quota: quota.map(|quota| (quota.quota_us, quota.period_us)),
    })
}

fn memory(vm: &RunningVm) -> Vec<Observation> {
    let most = vm.memory.regions.iter().map(|region| region.bytes).max().unwrap_or(0);
    let mut facts = Vec::new();
    for region in vm.memory.regions.iter().filter(|region| region.bytes * SMALL_PART >= most) {
        let backend =
            vm.asked.backends.iter().find(|found| Some(&found.id) == region.backend.as_ref());
        let is = ObservedValue::Memory(
            region.backend.clone(),
            of_region(region, wants_pool(vm, backend)),
        );
        facts.push(Observation { is, asked: backend.map(asked) });
    }
    facts
}

/// Whether huge pages of a pool were asked for.
fn wants_pool(vm: &RunningVm, backend: Option<&MemoryBackend>) -> bool {
    // What else would one mount at a path of that name?
    let is_pool = |path: &Option<String>| path.as_ref().is_some_and(|path| path.contains("huge"));
    backend.map_or_else(
        || is_pool(&vm.asked.mem_path),
        |backend| backend.hugetlb || is_pool(&backend.path),
    )
}

fn of_region(region: &VmMapping, wants_pool: bool) -> MemoryPlacement {
    let by_node = match &region.by_node {
        Some(by_node) => by_node.iter().map(|(node, bytes)| (Some(*node), *bytes)).collect(),
        None => BTreeMap::from([(None, region.present_bytes)]),
    };
    let anonymous = region.path.is_empty() && region.hugetlb_bytes == 0;
    MemoryPlacement {
        by_node,
        page_bytes: region.page_bytes,
        thp_bytes: anonymous.then_some(region.thp_bytes),
        bound: region.is_bound(),
        mergeable: region.mergeable,
        wants_pool,
    }
}

fn asked(backend: &MemoryBackend) -> String {
    let nodes: PcpuSet = backend.nodes.iter().copied().collect();
    let nodes = match (&backend.policy, nodes.is_empty()) {
        (_, true) => "any node".to_owned(),
        (Some(policy), _) => format!("node {nodes} ({policy})"),
        (None, _) => format!("node {nodes}"),
    };
    let bytes = backend.bytes.map_or("memory".to_owned(), size);
    let pages = match (backend.page_bytes, &backend.path, backend.hugetlb) {
        (Some(page), ..) => format!("; pages of {}", size(page)),
        (None, Some(path), _) => format!("; in {path}"),
        (None, None, true) => "; huge pages".to_owned(),
        (None, None, false) => String::new(),
    };
    format!("{bytes} on {nodes}{pages}")
}

/// How many of each level there are inside one of the level before; `None`
/// where QEMU does not tell cores.
fn levels(view: &GuestView) -> Option<[u32; 5]> {
    let places: Option<Vec<[u32; 5]>> = view
        .vcpus
        .iter()
        .map(|vcpu| {
            let outer = [vcpu.socket, vcpu.die, vcpu.cluster].map(|level| level.unwrap_or(0));
            Some([outer[0], outer[1], outer[2], vcpu.core?, vcpu.core_thread.unwrap_or(0)])
        })
        .collect();
    let places = places.filter(|places| !places.is_empty())?;
    let count = |level: usize| {
        let mut inside: BTreeMap<&[u32], Vec<u32>> = BTreeMap::new();
        for place in &places {
            let ids = inside.entry(&place[..level]).or_default();
            if !ids.contains(&place[level]) {
                ids.push(place[level]);
            }
        }
        inside.values().map(|ids| ids.len() as u32).max().unwrap_or(1)
    };
    Some([count(0), count(1), count(2), count(3), count(4)])
}
