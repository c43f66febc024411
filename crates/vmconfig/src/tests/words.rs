//! The words for memory, nodes, threads, devices, clocks and hints.

use crate::*;

use super::{direct, patch, with};

fn resolve(text: &str) -> Result<VmSpec, ResolveError> {
    patch(text).resolve(&with(direct()))
}

const EVERY_WORD: &str = "
vcpus = 2
max_vcpus = 4
iothread_pins = { 1 = '3' }
vhost_pin = '2'
scheduler = { vcpus = 'fifo:1', emulator = 'batch', iothreads = 'rr:2' }
memory_mib = 4096
memory = { huge_pages = '1G', shared = true, prealloc = true, prealloc_threads = 2, locked = true, \
nosharepages = true }
numa = [ { host_nodes = '0' }, { host_nodes = '1', policy = 'preferred', distances = { 0 = 21 }, \
huge_pages = '2M', source = 'file', prealloc = false } ]
cpu_features = ['+x2apic', '-hypervisor']
cpu_cache = 'emulate'
iothreads = 1
clock = { hpet = false, tsc_frequency_hz = 2000000000, rtc = 'catchup', rtc_track = 'guest' }
iommu = { interrupt_remapping = true, extended_interrupts = true }
hints = { cpu_pm = true, pv_eoi = false, irqchip = 'split', hyperv = ['relaxed'] }
host = { halt_poll_ns = 0, thp = 'never', ksm = false, ple_window = 4096 }
delegated = { dedicated_vcpus = true }
host_devices = [ { pci = '0000:3b:00.0' }, { resource = 'vendor.com/nvme' } ]
[[disks]]
source = { file = '/a.raw' }
cache = 'none'
io = 'native'
discard = 'unmap'
detect_zeroes = 'unmap'
iothread = 1
[[disks]]
source = { block = '/dev/b' }
queues = 2
queue_iothreads = [ { iothread = 1, queues = '0-1' } ]
[[disks]]
source = { vhost-scsi = 'naa.5001405bd4f1a2c3' }
bus = 'virtio-scsi'
[[nics]]
backend = { vhost-user = { socket = '/run/s' } }
queues = 2
rx_queue_size = 1024
tx_queue_size = 512
packed = true
mtu = 9000
[[nics]]
backend = 'user'
";

#[test]
fn every_word_is_understood_and_survives_toml() {
    let written = patch(EVERY_WORD);
    let text = toml::to_string(&written).unwrap();
    assert_eq!(toml::from_str::<VmPatch>(&text).unwrap(), written, "{text}");
    assert_eq!(VmPatch::default().overlay(&written), written);
    let spec = resolve(EVERY_WORD).unwrap();
    assert_eq!((spec.vcpus(), spec.max_vcpus()), (2, 4));
    assert_eq!(spec.cpu_model, "max,+x2apic,-hypervisor");
    assert_eq!(spec.memory.source, Some(MemorySource::Memfd), "huge pages need a file");
    let nodes: Vec<_> =
        spec.numa.iter().map(|node| (node.vcpus.to_string(), node.memory_mib)).collect();
    assert_eq!(nodes, [("0-1".to_owned(), 2048), ("2-3".to_owned(), 2048)]);
    assert_eq!(spec.scheduler.vcpus[&3], Scheduler::Fifo(1));
}

#[test]
fn tables_are_laid_over_key_by_key() {
    let base = patch("hints = { pv_eoi = true, pmu = false }\ncpu_features = ['+x2apic']");
    let over = base.overlay(&patch("hints = { pv_eoi = false }\ncpu_features = ['-x2apic']"));
    assert_eq!((over.hints.pv_eoi, over.hints.pmu), (Some(false), Some(false)));
    assert_eq!(over.resolve(&with(direct())).unwrap().cpu_model, "max,-x2apic");
}

#[test]
fn what_holds_for_each_is_laid_over_every_one() {
    let base = patch(
        "iothreads = 1
         disks = [ { source = { file = '/a' }, cache = 'none' },
         { source = { vhost-scsi = 'naa.5001405bd4f1a2c3' }, bus = 'virtio-scsi' } ]
         nics = [ { backend = 'user' }, { backend = { tap = { ifname = 't' } }, vhost = true } ]",
    );
    let over = "each_disk = { io = 'native', iothread = 1 }\neach_nic = { model = 'virtio' }";
    let spec = base.overlay(&patch(over)).resolve(&with(direct())).unwrap();
    let disk = &spec.disks[0];
    assert_eq!((disk.io, disk.iothread), (Some(DiskIo::Native), Some(1)));
    assert_eq!(disk.cache, Some(CacheMode::None));
    assert_eq!((spec.disks[1].io, spec.nics[1].vhost), (None, Some(true)));
    // What comes later holds, key by key.
    let later = patch(over).overlay(&patch("each_disk = { io = 'threads' }"));
    assert_eq!((later.each_disk.io, later.each_disk.iothread), (Some(DiskIo::Threads), Some(1)));
    let refused = base.overlay(&patch("each_nic = { vhost = true }")).resolve(&with(direct()));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "nics number 0 has vhost, which needs virtio and a tap device"
    );
}

#[test]
fn what_has_a_field_stands_there() {
    let spec = resolve(
        "cpu_model = 'max,kvm-hint-dedicated=on,hv-relaxed,+sse4.2'\nmachine = 'q35,hpet=off'",
    )
    .unwrap();
    assert_eq!((spec.cpu_model.as_str(), spec.machine.as_str()), ("max,+sse4.2", "q35"));
    assert_eq!((spec.hints.kvm_hint_dedicated, spec.clock.hpet), (Some(true), Some(false)));
}

#[test]
fn what_cannot_be_is_refused() {
    let check = |text: &str, expected: &str| {
        let error = resolve(text).unwrap_err();
        assert_eq!(error.to_string(), expected, "{text}");
        assert!(expected.starts_with(error.field()), "{text}");
    };
    check("vcpus = 4\nmax_vcpus = 2", "max_vcpus is 2, fewer than the 4 vCPUs at the start");
    check(
        "memory = { huge_pages = '1G' }\nmemory_mib = 1000",
        "memory has huge_pages \"1G\", but memory_mib 1000 is not made of whole ones",
    );
    check("memory = { policy = 'bind' }", "memory has a policy without host_nodes to apply it to");
    check(
        "vcpus = 2\nnuma = [ { vcpus = '0', memory_mib = 1024 } ]",
        "numa leaves vCPU 1 out: every vCPU is in one node",
    );
    check(
        "vcpus = 2\nnuma = [ { vcpus = '0-1' }, { vcpus = '1' } ]",
        "numa has vCPU 1 in node 0 and in node 1",
    );
    check(
        "numa = [ { vcpus = '0', memory_mib = 512 } ]",
        "numa has 512 MiB in all, but memory_mib is 1024",
    );
    check(
        "iothread_pins = { 1 = '0' }",
        "iothread_pins names iothread 1, but the VM has 0 (from 1)",
    );
    check(
        "disks = [ { source = { file = '/a' }, io = 'native' } ]",
        "disks number 0 has io native with cache writeback (QEMU's own choice), which QEMU \
         refuses: write cache = \"none\" or \"directsync\"",
    );
    check(
        "disks = [ { source = { file = '/a' }, iothread = 2 } ]\niothreads = 1",
        "disks number 0 wants iothread 2, but the VM has 1",
    );
    check(
        "nics = [ { backend = { vhost-user = { socket = '/s' } } } ]",
        "nics number 0 is vhost-user, whose switch must map the guest's memory: write \
         memory.shared = true",
    );
    check(
        "nics = [ { backend = 'user', rx_queue_size = 300 } ]",
        "nics number 0 has rx_queue_size 300: 256, 512 or 1024",
    );
    check(
        "memory_mib = 3072\nvcpus = 2\nmemory = { huge_pages = '1G' }\n\
         numa = [ { memory_mib = 1024, vcpus = '0' }, { memory_mib = 2048, vcpus = '1', \
         huge_pages = '4G' } ]",
        "numa node 1 has 2048 MiB, which is not made of whole huge pages of 4G",
    );
    check("nics = [ { backend = 'user', mtu = 67 } ]", "nics number 0 has mtu 67: 68 to 65535");
    check(
        "nics = [ { backend = 'user', model = 'e1000', packed = true } ]",
        "nics number 0 has packed, which only virtio has",
    );
    check(
        "nics = [ { backend = 'user', mac = 'x' } ]",
        "nics number 0 has mac \"x\": write six pairs like \"52:54:00:12:34:56\"",
    );
    check("hints = { hyperv = ['synic'] }", "hints has hyperv synic, which needs vpindex");
    check(
        "clock = { pit = 'catchup' }",
        "clock has pit \"catchup\", which KVM can't: \"delay\" or \"discard\"",
    );
    let unknown = toml::from_str::<VmPatch>("hints = { cpu-pm = true }").unwrap_err();
    assert!(unknown.message().contains("unknown field `cpu-pm`"), "{unknown}");
}
