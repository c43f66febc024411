//! VMs of every shape, and the law that all formats hold to.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::Value;

use crate::*;

fn texts(choices: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(choices).prop_map(str::to_owned)
}

fn maybe<T: std::fmt::Debug>(inner: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::of(inner)
}

fn numbers(below: u32) -> impl Strategy<Value = NumberSet> {
    prop::collection::btree_set(0..below, 1..4).prop_map(NumberSet::from_iter)
}

fn policy() -> impl Strategy<Value = MemoryPolicy> {
    select(vec![MemoryPolicy::Bind, MemoryPolicy::Preferred, MemoryPolicy::Interleave])
}

fn memory() -> BoxedStrategy<MemoryBacking> {
    let kinds = (
        maybe(select(vec![PageSize::M2, PageSize::G1])),
        maybe(select(vec![MemorySource::Memfd, MemorySource::File])),
        maybe((numbers(4), maybe(policy()))),
    );
    let flags = (any::<[Option<bool>; 4]>(), maybe(1..9_u32));
    (kinds, flags)
        .prop_map(|((huge_pages, source, place), (flags, threads))| MemoryBacking {
            huge_pages,
            source,
            shared: flags[0],
            prealloc: flags[1],
            prealloc_threads: threads.filter(|_| flags[1] == Some(true)),
            locked: flags[2],
            nosharepages: flags[3],
            host_nodes: place.as_ref().map(|place| place.0.clone()),
            policy: place.and_then(|place| place.1),
        })
        .boxed()
}

/// What a guest node's memory is, where it is not the VM's.
fn own_memory() -> BoxedStrategy<GuestNode> {
    let pages = select(vec![PageSize::ORDINARY, PageSize::M2, PageSize::G1]);
    let sources = select(vec![MemorySource::Memfd, MemorySource::File, MemorySource::Anonymous]);
    (maybe(pages), maybe(sources), any::<[Option<bool>; 2]>())
        .prop_map(|(huge_pages, source, [shared, prealloc])| GuestNode {
            huge_pages,
            source,
            shared,
            prealloc,
            ..GuestNode::default()
        })
        .boxed()
}

fn disk(iothreads: u32) -> BoxedStrategy<Disk> {
    let source = prop_oneof![
        texts(&["/img/a, b.raw", "/img/it's.img", "/d/x&y<z>.raw"])
            .prop_map(|path| DiskSource::File(path.into())),
        texts(&["/dev/vg/lv", "/dev/nvme0n1"]).prop_map(|path| DiskSource::Block(path.into())),
        Just(DiskSource::VhostScsi("naa.5001405bd4f1a2c3".to_owned())),
        Just(DiskSource::VhostUser("/run/v,b.sock".into())),
        Just(DiskSource::Claim("data".to_owned())),
        Just(DiskSource::Container("registry:5000/disk:1".to_owned())),
    ];
    let kinds = (
        source,
        select(vec![DiskFormat::Raw, DiskFormat::Qcow2]),
        select(vec![DiskBus::VirtioBlk, DiskBus::VirtioScsi, DiskBus::Sata]),
        maybe(select(CacheMode::NAMES.map(|row| row.0).to_vec())),
        maybe(select(DiskIo::NAMES.map(|row| row.0).to_vec())),
        maybe(select(Discard::NAMES.map(|row| row.0).to_vec())),
        maybe(select(ZeroDetection::NAMES.map(|row| row.0).to_vec())),
    );
    let numbers = (maybe(1..=iothreads.max(1)), maybe(1..9_u32), any::<(bool, bool)>());
    (kinds, numbers, maybe(texts(&["S1", "a,b c"])))
        .prop_map(
            move |(
                (source, format, bus, cache, io, discard, detect_zeroes),
                (iothread, queues, (readonly, transient)),
                serial,
            )| {
                let plain = Disk { queues, ..Disk::new(source.clone()) };
                if plain.is_served_elsewhere() {
                    return plain;
                }
                let virtio = bus != DiskBus::Sata;
                let cache = match io {
                    Some(DiskIo::Native) => Some(CacheMode::None),
                    _ => cache,
                };
                Disk {
                    source,
                    format,
                    bus,
                    cache,
                    io,
                    discard,
                    detect_zeroes,
                    iothread: iothread.filter(|_| virtio && iothreads > 0),
                    queue_iothreads: Vec::new(),
                    queues: queues.filter(|_| virtio),
                    readonly: readonly && virtio,
                    transient: transient && !readonly,
                    serial,
                    boot_order: None,
                }
            },
        )
        .boxed()
}

fn nic() -> BoxedStrategy<Nic> {
    let backend = prop_oneof![
        Just(NicBackend::User),
        Just(NicBackend::Tap { ifname: "tap0".to_owned() }),
        Just(NicBackend::Bridge { name: "br-lan".to_owned() }),
        (any::<bool>(), maybe(1..9_u32)).prop_map(|(server, reconnect_s)| {
            let reconnect_s = reconnect_s.filter(|_| !server);
            NicBackend::VhostUser { socket: "/run/v,s.sock".into(), server, reconnect_s }
        }),
        select(MacvtapMode::NAMES.map(|row| row.0).to_vec())
            .prop_map(|mode| NicBackend::Macvtap { device: "eth0".to_owned(), mode }),
        Just(NicBackend::Libvirt { network: "default".to_owned() }),
        select(vec![Binding::Masquerade, Binding::Bridge])
            .prop_map(|binding| NicBackend::Pod { binding }),
        Just(NicBackend::Multus { network: "ns/net".to_owned() }),
    ];
    let model = select(NicModel::NAMES.map(|row| row.0).to_vec());
    let mac = maybe(texts(&["52:54:00:12:34:56", "52:54:00:ab:cd:ef"]));
    let ring = || maybe(select(vec![256, 512, 1024]));
    let mtu = maybe(68..9001_u32);
    let rings = (ring(), ring(), maybe(Just(true)));
    (backend, model, maybe(any::<bool>()), maybe(1..9_u32), rings, mac, mtu)
        .prop_map(|(backend, model, vhost, queues, (rx, tx, packed), mac, mtu)| {
            let user = matches!(backend, NicBackend::User);
            let vhost_user = matches!(backend, NicBackend::VhostUser { .. });
            let model = if vhost_user { NicModel::Virtio } else { model };
            let virtio = model == NicModel::Virtio;
            Nic {
                backend,
                model,
                vhost: vhost.filter(|_| virtio && !user && !vhost_user),
                queues: queues.filter(|_| virtio && !user),
                rx_queue_size: rx.filter(|_| virtio),
                tx_queue_size: tx.filter(|_| virtio && vhost_user),
                packed: packed.filter(|_| virtio),
                mtu: mtu.filter(|_| virtio),
                mac,
            }
        })
        .boxed()
}

fn hints() -> BoxedStrategy<Hints> {
    let hyperv = subsequence(
        vec![
            Enlightenment::Relaxed,
            Enlightenment::Vapic,
            Enlightenment::Vpindex,
            Enlightenment::Runtime,
            Enlightenment::Reset,
            Enlightenment::Avic,
        ],
        0..6,
    );
    let irqchip = maybe(select(vec![Irqchip::Kernel, Irqchip::Split]));
    (any::<[Option<bool>; 8]>(), irqchip, maybe(hyperv), maybe(4095..9000_u32))
        .prop_map(|(flags, irqchip, hyperv, hyperv_spinlocks)| Hints {
            cpu_pm: flags[0],
            kvm_hint_dedicated: flags[1],
            poll_control: flags[2],
            pv_eoi: flags[3],
            pv_spinlocks: flags[4],
            pv_ipi: flags[5],
            kvm_hidden: flags[6],
            pmu: flags[7],
            irqchip,
            hyperv: hyperv.map(BTreeSet::from_iter),
            hyperv_spinlocks,
        })
        .boxed()
}

fn clock() -> BoxedStrategy<GuestClock> {
    let pit = maybe(select(vec![TickPolicy::Delay, TickPolicy::Discard]));
    let rtc = maybe(select(vec![TickPolicy::Delay, TickPolicy::Catchup]));
    let base = maybe(select(vec![ClockBase::Utc, ClockBase::Localtime]));
    (any::<[Option<bool>; 3]>(), maybe(1_000_000..5_000_000_000_u64), pit, rtc, base)
        .prop_map(|(flags, tsc_frequency_hz, pit, rtc, base)| GuestClock {
            kvmclock: flags[0],
            hypervclock: flags[1],
            hpet: flags[2],
            tsc_frequency_hz,
            pit,
            rtc,
            rtc_track: None,
            base,
        })
        .boxed()
}

fn wishes() -> BoxedStrategy<(HostWishes, DelegatedPlacement)> {
    let thp = maybe(select(vec![Thp::Always, Thp::Madvise, Thp::Never]));
    (any::<[Option<bool>; 5]>(), maybe(0..9_u64), thp)
        .prop_map(|(flags, number, thp)| {
            let host = HostWishes {
                halt_poll_ns: number,
                thp,
                ksm: flags[0],
                ple_gap: number,
                ple_window: number,
                numa_balancing: flags[1],
            };
            let delegated = DelegatedPlacement {
                dedicated_vcpus: flags[2],
                dedicated_emulator: flags[3],
                mirror_numa: flags[4],
            };
            (host, delegated)
        })
        .boxed()
}

fn topology() -> BoxedStrategy<GuestTopology> {
    (1..3_u32, 1..3_u32, 1..4_u32, 1..3_u32)
        .prop_map(|(sockets, dies, cores, threads)| GuestTopology {
            sockets,
            dies,
            clusters: 1,
            cores,
            threads,
        })
        .boxed()
}

fn boot() -> BoxedStrategy<BootSource> {
    let path = || texts(&["/img/a", "/img/b, c"]);
    prop_oneof![
        path().prop_map(|path| BootSource::Direct {
            kernel: "/img/vmlinuz".into(),
            initrd: "/img/initrd".into(),
            root_image: path.into(),
            cmdline: vec!["root=/dev/vda".to_owned()],
        }),
        (path(), select(vec![DiskFormat::Raw, DiskFormat::Qcow2]))
            .prop_map(|(image, format)| BootSource::Disk { image: image.into(), format }),
        maybe(path()).prop_map(|initrd| BootSource::Kernel {
            kernel: "/img/vmlinuz".into(),
            initrd: initrd.map(Into::into)
        }),
        Just(BootSource::Firmware),
    ]
    .boxed()
}

fn scheduler(vcpus: u32, iothreads: u32) -> BoxedStrategy<Schedulers> {
    let one = || {
        select(vec![Scheduler::Fifo(1), Scheduler::Fifo(50), Scheduler::Rr(2), Scheduler::Batch])
    };
    let all = prop_oneof![
        Just(BTreeMap::new()),
        one().prop_map(move |one| (0..vcpus).map(|vcpu| (vcpu, one)).collect()),
        prop::collection::btree_map(0..vcpus, one(), 0..3),
    ];
    let io =
        prop::collection::btree_map(1..iothreads + 1, one(), 0..usize::from(iothreads > 0) + 1);
    (all, maybe(one()), io)
        .prop_map(|(vcpus, emulator, iothreads)| Schedulers { vcpus, emulator, iothreads })
        .boxed()
}

/// Every kind of VM, those that a study runs and those from elsewhere.
pub(crate) fn any_spec() -> BoxedStrategy<VmSpec> {
    let size = (topology(), 0..3_u32, prop::collection::vec(any::<u8>(), 3));
    size.prop_flat_map(|(topology, iothreads, bytes)| {
        let max = topology.vcpus();
        let texts = (
            texts(&["vm", "a,b", "it's", "x y", "a&b<c>\"d\""]),
            texts(&["q35", "pc", "q35,smm=off", "pc-q35-7.2,usb=off,vmport=off"]),
            texts(&[
                "host",
                "max",
                "qemu64",
                "host-model",
                "max,+invtsc,-hypervisor",
                "qemu64,-sse4.2",
                "max,vendor=GenuineIntel,+x2apic",
                "host-model,topoext=on",
            ]),
        );
        let pins = (
            prop::collection::btree_map(0..max, numbers(9), 0..4),
            (maybe(numbers(9)), maybe(numbers(9))),
            prop::collection::btree_map(
                1..iothreads + 1,
                numbers(9),
                0..usize::from(iothreads > 0) + 1,
            ),
        );
        let nodes = (
            0..3_usize.min(max as usize + 1),
            prop::collection::vec(
                (maybe((numbers(4), maybe(policy()))), 11..255_u32, own_memory()),
                3,
            ),
        );
        let devices =
            (prop::collection::vec(disk(iothreads), 0..3), prop::collection::vec(nic(), 0..3));
        let rest = (hints(), clock(), wishes(), boot(), scheduler(max, iothreads));
        let lists = (
            subsequence(vec!["idle=poll", "a=\"b", "x<&y", "quiet"], 0..3),
            subsequence(
                vec![vec!["-device", "virtio-rng-pci"], vec!["-smbios", "type=1,serial=a,,b"]],
                0..2,
            ),
            maybe(select(vec![CpuCache::Passthrough, CpuCache::Emulate, CpuCache::Off])),
            subsequence(
                vec![
                    HostDevice::Pci("0000:3b:00.0".parse().unwrap()),
                    HostDevice::Pci("10000:01:1f.7".parse().unwrap()),
                    HostDevice::Resource("vendor.com/nvme".to_owned()),
                ],
                0..3,
            ),
            maybe(
                select(vec![(None, None), (Some(true), Some(true)), (Some(false), None)]).prop_map(
                    |(interrupt_remapping, extended_interrupts)| Iommu {
                        interrupt_remapping,
                        extended_interrupts,
                    },
                ),
            ),
        );
        (texts, pins, nodes, memory(), devices, rest, lists).prop_map(
            move |(
                (name, machine, cpu_model),
                (vcpu_pins, (emulator, vhost), io_pins),
                (node_count, node_places),
                mut memory,
                (mut disks, nics),
                (hints, clock, (host, delegated), boot, scheduler),
                (kernel_cmdline, extra_args, cpu_cache, host_devices, iommu),
            )| {
                let accel = if bytes[0] % 2 == 0 { Accel::Tcg } else { Accel::Kvm };
                let huge = memory.huge_pages.is_some()
                    || node_places.iter().any(|(_, _, own)| own.huge_pages.is_some());
                let memory_mib = if huge { 4096 } else { 1000 };
                let mut numa: Vec<GuestNode> = (0..node_count)
                    .map(|number| {
                        let (place, distance, own) = &node_places[number];
                        let others = (0..node_count).filter(|_| bytes[1].is_multiple_of(2));
                        GuestNode {
                            host_nodes: place.as_ref().map(|place| place.0.clone()),
                            policy: place.as_ref().and_then(|place| place.1),
                            distances: others
                                .map(|other| {
                                    (other as u32, if other == number { 10 } else { *distance })
                                })
                                .collect(),
                            ..own.clone()
                        }
                    })
                    .collect();
                crate::numa::complete(&mut numa, max, memory_mib);
                if !numa.is_empty() {
                    (memory.host_nodes, memory.policy) = (None, None);
                }
                let mut served = Vec::new();
                disks.retain(|disk| {
                    let first = !served.contains(&disk.source);
                    served.extend(disk.is_served_elsewhere().then(|| disk.source.clone()));
                    first
                });
                let of_vhost_user =
                    disks.iter().any(|disk| matches!(disk.source, DiskSource::VhostUser(_)));
                if of_vhost_user
                    || nics.iter().any(|nic| matches!(nic.backend, NicBackend::VhostUser { .. }))
                {
                    memory.shared = Some(true);
                    numa.iter_mut().for_each(|node| node.shared = None);
                }
                let early = |node: &GuestNode| node.memory(&memory).prealloc == Some(true);
                if !numa.is_empty() && !numa.iter().any(early) {
                    memory.prealloc_threads = None;
                }
                let has_iommu = machine.contains("q35")
                    && (hints.irqchip == Some(Irqchip::Split)
                        || iommu.is_none_or(|one| one.interrupt_remapping != Some(true)));
                let has_kernel = !matches!(boot, BootSource::Firmware | BootSource::Disk { .. });
                let settings = VmSettings {
                    machine,
                    cpu_model: match (accel, cpu_model.as_str()) {
                        (Accel::Tcg, "host") => "max".to_owned(),
                        _ => cpu_model,
                    },
                    topology,
                    present_vcpus: (max > 1 && bytes[2].is_multiple_of(4)).then(|| max - 1),
                    cpu_cache,
                    memory_mib,
                    memory,
                    numa,
                    pins: Pins {
                        vcpus: VcpuPins(vcpu_pins),
                        emulator,
                        iothreads: VcpuPins(io_pins),
                        vhost,
                    },
                    scheduler,
                    iothreads,
                    iothread_poll_max_ns: (iothreads > 0 && bytes[2].is_multiple_of(3))
                        .then(|| u64::from(bytes[2]) * 1000),
                    disks,
                    nics,
                    host_devices,
                    clock,
                    iommu: iommu.filter(|_| has_iommu),
                    hints,
                    host,
                    delegated,
                    kernel_cmdline: kernel_cmdline
                        .into_iter()
                        .filter(|_| has_kernel)
                        .map(str::to_owned)
                        .collect(),
                    extra_args: extra_args.concat().into_iter().map(str::to_owned).collect(),
                    ..VmSettings::new(&name, Arch::X86_64, accel, boot)
                };
                VmSpec::new(settings.clone())
                    .unwrap_or_else(|error| panic!("{error}: {settings:?}"))
            },
        )
    })
    .boxed()
}

/// The settings as a tree without the lost fields. Which kernel parameters are
/// the image's is no part of a VM.
fn tree(settings: &VmSettings, losses: &[Loss]) -> Value {
    let mut settings = settings.clone();
    if let BootSource::Direct { cmdline, .. } = &mut settings.boot {
        cmdline.append(&mut settings.kernel_cmdline);
        settings.kernel_cmdline = std::mem::take(cmdline);
    }
    let mut tree = serde_json::to_value(&settings).unwrap();
    for path in losses.iter().flat_map(|loss| &loss.fields) {
        remove(&mut tree, path);
    }
    prune(&mut tree);
    tree
}

fn remove(tree: &mut Value, path: &str) {
    let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
    let place = match tree {
        Value::Object(object) => object.get_mut(first),
        Value::Array(list) => first.parse::<usize>().ok().and_then(|place| list.get_mut(place)),
        _ => None,
    };
    match (place, rest) {
        (Some(inner), Some(rest)) => remove(inner, rest),
        (Some(inner), None) => *inner = Value::Null,
        (None, _) => {}
    }
}

/// Nothing and absent are the same.
fn prune(tree: &mut Value) {
    if let Value::Object(object) = tree {
        object.values_mut().for_each(prune);
        object.retain(|_, value| match value {
            Value::Null => false,
            Value::Object(inner) => !inner.is_empty(),
            _ => true,
        });
    } else if let Value::Array(list) = tree {
        list.iter_mut().for_each(prune);
    }
}

/// In which fields two VMs differ, but for those that the losses name.
pub(crate) fn differences(
    expected: &VmSettings,
    found: &VmSettings,
    losses: &[Loss],
) -> Vec<String> {
    let (expected, found) = (tree(expected, losses), tree(found, losses));
    let keys = |tree: &Value| tree.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    keys(&expected)
        .union(&keys(&found))
        .filter(|key| expected.get(key) != found.get(key))
        .map(|key| {
            let show = |tree: &Value| tree.get(key).unwrap_or(&Value::Null).to_string();
            format!("{key}: {} became {}", show(&expected), show(&found))
        })
        .collect()
}

/// What was emitted is read as the same VM, but for the fields that the losses
/// name.
pub(crate) fn check_round_trip(spec: &VmSpec, text: &str, losses: &[Loss], parsed: &ParsedVm) {
    let different = differences(spec, &parsed.settings, losses);
    if !different.is_empty() {
        let different = different.join("\n");
        panic!("{different}\n{text}\nlosses {losses:?}\nkept {:?}", parsed.kept);
    }
}

#[test]
#[should_panic(expected = "memory_mib")]
fn the_law_sees_a_difference() {
    let settings = VmSettings::new("vm", Arch::X86_64, Accel::Tcg, BootSource::Firmware);
    let spec = VmSpec::new(settings.clone()).unwrap();
    let settings = VmSettings { memory_mib: 1, ..settings };
    let parsed =
        ParsedVm { settings, kept: Vec::new(), lines: BTreeMap::new(), files: BTreeMap::new() };
    check_round_trip(&spec, "", &[], &parsed);
}
