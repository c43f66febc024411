//! One case that fires and one that does not, for each finding.

use super::*;
use crate::audit::argv::{GuestNode, MemoryBackend};
use crate::audit::cgroup::Quota;
use crate::audit::memory::{ByNode, Region};
use crate::audit::testing::{host, set, thread, vm};
use crate::audit::thread::{Policy, Role};

#[track_caller]
fn check(vms: &[RunningVm], expected: &[&str]) {
    let found = find(vms, &host());
    let found: Vec<_> =
        found.iter().map(|f| format!("{}: {}: {}", f.vm, f.id, f.message)).collect();
    assert_eq!(found, expected);
    for finding in find(vms, &host()) {
        assert!(IDS.iter().any(|(id, _)| *id == finding.id));
        assert!(!finding.fix.is_empty());
    }
}

fn with_threads(mut vm: RunningVm, threads: u32) -> RunningVm {
    vm.asked.threads = Some(threads);
    vm
}

#[test]
fn guest_siblings() {
    check(&[with_threads(vm("a", &["1", "5"]), 2)], &[]);
    check(&[with_threads(vm("a", &["1,5", "1,5"]), 2)], &[]);
    check(
        &[with_threads(vm("a", &["1", "2", "3", "7"]), 2)],
        &["a: guest-siblings-apart: the guest takes these for threads of one core, and they run \
           on different host cores: vCPU 0 on pCPU 1, vCPU 1 on pCPU 2"],
    );
    check(
        &[with_threads(vm("a", &["1-2", "3"]), 2)],
        &["a: guest-siblings-apart: the guest takes these for threads of one core, and they run \
           on different host cores: vCPU 0 on pCPUs 1-2, vCPU 1 on pCPU 3"],
    );
    for loose in [["1-3", "1-3"], ["0-7", "0-7"], ["1", "0-7"]] {
        let found = find(&[with_threads(vm("a", &loose), 2)], &host());
        let ids: Vec<_> = found.iter().map(|finding| finding.id.as_str()).collect();
        assert_eq!(ids, ["guest-siblings-loose"], "{loose:?}");
    }
    check(
        &[vm("a", &["1", "5"])],
        &["a: guest-cores-share-core: the guest takes these for cores of their own, and they \
           share a host core: vCPU 0 on pCPU 1, vCPU 1 on pCPU 5"],
    );
    check(&[vm("a", &["1", "2"])], &[]);
}

#[test]
fn pcpus_that_several_want() {
    check(&[vm("a", &["1", "2"]), vm("b", &["3", "0"])], &[]);
    check(&[vm("a", &["0-7", "0-7"]), vm("b", &["0-7"])], &[]);
    check(&[vm("a", &["1", "1"])], &["a: vcpus-exceed-pcpus: vCPUs 0-1 share pCPU 1"]);
    check(
        &[vm("a", &["1", "2"]), vm("b", &["2", "3"])],
        &["a: vms-share-pcpus: its vCPUs and those of b (pid 98) share pCPU 2"],
    );
    check(
        &[vm("a", &["1"]), vm("b", &["5"])],
        &["a: vms-share-core: its vCPUs and those of b (pid 98) are on threads of the same host \
           cores: pCPUs 1,5"],
    );
    check(
        &[vm("a", &["1"]), vm("b", &["0-7"])],
        &["a: vms-share-pcpus: its vCPUs are held on pCPU 1, and nothing keeps the vCPUs of b \
           (pid 98) away"],
    );
    let pool = find(&[vm("a", &["1-2", "1-2"]), vm("b", &["1-2", "1-2"])], &host());
    assert!(pool.iter().all(|finding| finding.severity == Severity::Hint), "{pool:?}");
}

#[test]
fn other_threads_on_vcpus() {
    let mut running = vm("a", &["1", "2"]);
    running.threads.push(thread(20, Role::MainLoop, "0"));
    running.threads.push(thread(21, Role::Vhost, "0,3"));
    check(std::slice::from_ref(&running), &[]);
    running.threads.push(thread(22, Role::Worker, "0-7"));
    running.threads.push(thread(23, Role::Other, "0-7"));
    running.threads.push(thread(24, Role::Iothread { id: "io1".to_owned() }, "2"));
    running.threads.push(thread(25, Role::Vhost, "2-3"));
    running.threads[0].policy = Some(Policy::Fifo);
    check(
        &[running],
        &[
            "a: emulator-on-vcpu: its emulator (2 threads) may run on pCPUs 1-2 of vCPUs 0-1",
            "a: iothread-on-vcpu: iothread io1 can only run on pCPU 2 of vCPU 1; vCPUs are \
             real-time: it waits until they sleep",
            "a: vhost-on-vcpu: its vhost (1 thread) may run on pCPU 2 of vCPU 1",
        ],
    );
}

#[test]
fn groups_against_threads() {
    let mut running = vm("a", &["1", "2"]);
    for thread in &mut running.threads {
        thread.limits.pcpus = Some(set("0-7"));
    }
    check(std::slice::from_ref(&running), &[]);
    running.threads[0].limits.pcpus = Some(set("1-3"));
    running.threads[0].limits.cpuset_group = Some("/vm/vcpu0".to_owned());
    let quota = |quota_us| Quota { group: "/vm".to_owned(), quota_us, period_us: 100_000 };
    for thread in &mut running.threads {
        thread.limits.quota = Some(quota(150_000));
    }
    check(
        &[running],
        &[
            "a: quota-on-held: 2 vCPU threads held on pCPUs may use 150000 µs of every 100000 µs \
             together (cgroup /vm): then they stand still",
            "a: affinity-not-cpuset: vCPU 0 (thread 10) may run on 1, and its cpuset /vm/vcpu0 \
             says 1-3",
        ],
    );
    let mut floating = vm("a", &["0-7"]);
    floating.threads[0].limits.quota = Some(quota(50_000));
    check(&[floating], &[]);
}

const MIB: u64 = 1 << 20;

fn region(backend: &str, by_node: &[(u32, u64)]) -> Region {
    let by_node: ByNode = by_node.iter().map(|(node, mib)| (*node, mib * MIB)).collect();
    let bytes = by_node.values().sum();
    Region {
        backend: Some(backend.to_owned()),
        bytes,
        present_bytes: bytes,
        thp_bytes: bytes,
        page_bytes: 4096,
        by_node: Some(by_node),
        ..Region::default()
    }
}

#[test]
fn memory_on_other_nodes() {
    let mut running = vm("a", &["0", "1"]);
    running.memory.regions = vec![region("ram", &[(0, 1000), (1, 24)])];
    check(std::slice::from_ref(&running), &[]);
    running.memory.regions = vec![region("ram", &[(0, 512), (1, 512)])];
    check(
        std::slice::from_ref(&running),
        &["a: memory-off-node: its vCPUs held on node 0; of 1 GiB of guest memory there \
           are 512 MiB on node 1"],
    );
    // Crossed: altogether all is on the vCPUs' nodes, and each node is wrong.
    let mut crossed = vm("a", &["0", "2"]);
    let guest_node = |id: u32, memdev: &str| GuestNode {
        id,
        vcpus: [id].into(),
        memdev: Some(memdev.to_owned()),
    };
    crossed.memory.regions = vec![region("m0", &[(1, 512)]), region("m1", &[(0, 512)])];
    check(std::slice::from_ref(&crossed), &[]);
    crossed.asked.guest_nodes = vec![guest_node(0, "m0"), guest_node(1, "m1")];
    check(
        std::slice::from_ref(&crossed),
        &[
            "a: memory-off-node: vCPU 0 held on node 0; of 512 MiB of the memory of guest \
             node 0 there are 512 MiB on node 1",
            "a: memory-off-node: vCPU 1 held on node 1; of 512 MiB of the memory of guest \
             node 1 there are 512 MiB on node 0",
        ],
    );
    let mut floating = vm("a", &["0-7"]);
    floating.memory.regions = vec![region("ram", &[(1, 512)])];
    check(&[floating], &[]);
}

#[test]
fn pages_that_are_not_as_asked() {
    let mut running = vm("a", &["0-7"]);
    running.memory.regions = vec![region("ram", &[(0, 512)])];
    let backend = MemoryBackend { id: "ram".to_owned(), hugetlb: true, ..Default::default() };
    running.asked.backends = vec![backend];
    check(
        std::slice::from_ref(&running),
        &["a: huge-pages-not-used: huge pages were asked for; memory ram has pages of 4 KiB"],
    );
    running.memory.regions[0].page_bytes = 2 * MIB;
    check(std::slice::from_ref(&running), &[]);
    running.memory.regions[0].page_bytes = 4096;
    running.asked.backends.clear();
    running.asked.mem_path = Some("/dev/hugepages".to_owned());
    running.asked.lock_memory = true;
    running.memory.locked_bytes = Some(0);
    running.memory.swapped_bytes = Some(8 * MIB);
    running.memory.regions[0].thp_bytes = 4 * MIB;
    check(
        &[running],
        &[
            "a: huge-pages-not-used: huge pages were asked for; guest memory has pages of 4 KiB",
            "a: memory-not-locked: locked memory was asked for; 0 B of 512 MiB of guest memory is",
            "a: memory-swapped: 8 MiB of it is swapped out",
            "a: thp-not-used: 4 MiB of 512 MiB of guest memory are in transparent huge pages",
        ],
    );
}
