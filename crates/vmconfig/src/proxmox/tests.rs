//! Configurations as administrators and Proxmox's own tools write them.

use super::*;
use crate::{
    Accel, Arch, CacheMode, Discard, DiskBus, DiskFormat, DiskIo, DiskSource, MemoryPolicy,
    NicBackend, PageSize, ZeroDetection,
};

fn read(text: &str) -> ParsedVm {
    parse(text).unwrap()
}

fn kept(parsed: &ParsedVm) -> Vec<String> {
    let line = |one: &crate::UnmodelledSetting| format!("{} {} {}", one.line, one.path, one.text);
    parsed.kept.iter().map(line).collect()
}

/// A server as an administrator tunes it.
const SERVER: &str = "\
#The%20database
affinity: 0-3
agent: 1
balloon: 0
bios: ovmf
boot: order=scsi0;ide2;net0
cores: 4
cpu: host,flags=+aes;-pcid
cpuunits: 2048
efidisk0: local-lvm:vm-100-disk-1,efitype=4m,size=4M
hugepages: 1024
ide2: local:iso/debian-12.iso,media=cdrom,size=650M
machine: q35
memory: 8192
meta: creation-qemu=9.2.0,ctime=1740000000
name: db
net0: virtio=BC:24:11:2E:C4:01,bridge=vmbr0,queues=4,tag=20,rate=100
numa: 1
numa0: cpus=0-3,hostnodes=0,memory=8192,policy=bind
onboot: 1
ostype: l26
scsi0: local-lvm:vm-100-disk-0,cache=writeback,discard=on,iothread=1,queues=4,size=64G,ssd=1
scsi1: local:100/vm-100-disk-2.qcow2,aio=native,serial=data%2C1
scsihw: virtio-scsi-single
sockets: 1
vcpus: 2
virtio0: ceph:vm-100-disk-3,iothread=1,ro=1

[before-upgrade]
cores: 2
memory: 1024
";

#[test]
fn a_tuned_server() {
    let parsed = read(SERVER);
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.name.as_str(), spec.arch, spec.accel), ("db", Arch::X86_64, Accel::Kvm));
    assert_eq!((spec.machine.as_str(), spec.cpu_model.as_str()), ("q35", "host,+aes,-pcid"));
    assert_eq!((spec.max_vcpus(), spec.vcpus(), spec.memory_mib), (4, 2, 8192));
    assert_eq!(spec.pins.vcpus[&3].to_string(), "0-3");
    assert_eq!(spec.memory.huge_pages, Some(PageSize::G1));
    assert_eq!((spec.memory.prealloc, spec.memory.shared), (Some(true), Some(true)));
    let [node] = spec.numa.as_slice() else { panic!("one node") };
    assert_eq!(node.host_nodes.as_ref().unwrap().to_string(), "0");
    assert_eq!((node.memory_mib, node.policy), (8192, Some(MemoryPolicy::Bind)));
    assert_eq!((spec.clock.hpet, spec.hints.pv_spinlocks), (Some(false), Some(true)));
    assert_eq!(spec.iothreads, 2);

    let [first, second, third] = spec.disks.as_slice() else { panic!("three disks") };
    assert_eq!(first.source, DiskSource::Block("/dev/pve/vm-100-disk-0".into()));
    assert_eq!((first.bus, first.iothread, first.queues), (DiskBus::VirtioScsi, Some(1), Some(4)));
    assert_eq!((first.cache, first.io), (Some(CacheMode::Writeback), Some(DiskIo::IoUring)));
    assert_eq!(
        (first.discard, first.detect_zeroes),
        (Some(Discard::Unmap), Some(ZeroDetection::Unmap))
    );
    assert_eq!(first.boot_order, Some(1));
    let path = "/var/lib/vz/images/100/vm-100-disk-2.qcow2";
    assert_eq!(
        (&second.source, second.format),
        (&DiskSource::File(path.into()), DiskFormat::Qcow2)
    );
    assert_eq!((second.cache, second.io), (Some(CacheMode::None), Some(DiskIo::Native)));
    assert_eq!((second.iothread, second.serial.as_deref()), (None, Some("data,1")));
    assert_eq!((third.bus, third.iothread, third.readonly), (DiskBus::VirtioBlk, Some(2), true));

    let [nic] = spec.nics.as_slice() else { panic!("one card") };
    assert_eq!(nic.backend, NicBackend::Bridge { name: "vmbr0".to_owned() });
    assert_eq!((nic.queues, nic.vhost, nic.rx_queue_size), (Some(4), Some(true), Some(1024)));
    assert_eq!(nic.mac.as_deref(), Some("bc:24:11:2e:c4:01"));
}

#[test]
fn what_is_no_vms_is_told_with_its_line() {
    let kept = kept(&read(SERVER));
    for line in [
        "3 agent 1",
        "5 bios ovmf",
        "9 cpuunits 2048",
        "12 ide2 local:iso/debian-12.iso,media=cdrom,size=650M",
        "17 net0.tag 20",
        "17 net0.rate 100",
        "22 scsi0.size 64G",
        "22 scsi0.ssd 1",
        "27 virtio0.file ceph:vm-100-disk-3, taken for /dev/ceph/vm-100-disk-3",
        "29 section [before-upgrade]",
    ] {
        assert!(kept.iter().any(|one| one == line), "{line}: {kept:#?}");
    }
    assert!(!kept.iter().any(|one| one.contains("balloon")), "{kept:#?}");
}

#[test]
fn values_stand_where_they_are_written() {
    let command = command(SERVER).unwrap();
    let source = SourceText::new(SERVER);
    let place = |option: &str, implied: &str, key: &str| {
        let of_option = |one: &&crate::command_line::QemuOption| {
            one.name.value == option && one.properties(implied).at(key).is_some()
        };
        let found = command.line.options.iter().find(of_option).unwrap();
        let span = found.properties(implied).at(key).unwrap().span;
        (source.line_number(span), &SERVER[span.start..span.end])
    };
    assert_eq!(place("netdev", "type", "queues"), (17, "4"));
    assert_eq!(place("netdev", "type", "br"), (17, "vmbr0"));
    assert_eq!(place("drive", "file", "cache"), (22, "writeback"));
    assert_eq!(place("device", "driver", "num_queues"), (22, "4"));
    assert_eq!(place("object", "qom-type", "policy"), (19, "bind"));
    assert_eq!(place("cpu", "model", "model"), (8, "host"));
    assert_eq!(place("smp", "cpus", "cores"), (7, "4"));
}

#[test]
fn defaults_are_those_of_qm() {
    let parsed = read("smbios1: uuid=6cf17dc3-8341-4ecc-aebd-7503f2583fb3\n");
    let vm = parsed.spec().unwrap();
    assert_eq!((vm.machine.as_str(), vm.accel, vm.memory_mib), ("pc", Accel::Kvm, 512));
    assert_eq!((vm.vcpus(), vm.cpu_model.as_str()), (1, "kvm64,+lahf_lm,+sep,enforce"));
    assert_eq!(vm.extra_args, ["-device", "virtio-balloon-pci,id=balloon0,free-page-reporting=on"]);
    let disk = &read("scsihw: virtio-scsi-pci\nscsi0: local-lvm:vm-1-disk-0\n").settings.disks[0];
    assert_eq!((disk.cache, disk.io), (Some(CacheMode::None), Some(DiskIo::IoUring)));
    assert_eq!((disk.discard, disk.detect_zeroes), (None, Some(ZeroDetection::On)));
    // An emulated controller has no place in a VM, and stays as it is.
    let args = read("scsi0: local-lvm:vm-1-disk-0\n").settings.extra_args.join(" ");
    assert!(args.contains("-device lsi,id=scsihw0"), "{args}");
    assert!(args.contains("scsi-hd,bus=scsihw0.0,scsi-id=0,drive=drive-scsi0"), "{args}");
}

#[test]
fn windows_is_told_of_its_hypervisor() {
    let vm = read("ostype: win11\nmachine: q35\ncpu: host\nmeta: creation-qemu=9.2.0\n").settings;
    assert_eq!((vm.machine.as_str(), vm.cpu_model.as_str()), ("pc-q35-9.2", "host"));
    assert_eq!((vm.hints.hyperv_spinlocks, vm.clock.hypervclock), (Some(0x1fff), Some(true)));
    assert_eq!(vm.hints.hyperv.as_ref().unwrap().len(), 8);
    assert_eq!(vm.clock.base, Some(crate::ClockBase::Localtime));
    assert_eq!(vm.clock.pit, Some(crate::TickPolicy::Discard));
    // Of a machine that says no version the rings are those of the newest.
    let rings = |text: &str| read(text).settings.nics[0].rx_queue_size;
    let nic = "net0: virtio=BC:24:11:2E:C4:01,bridge=vmbr0\n";
    assert_eq!(rings(&format!("{nic}ostype: win10\n")), None);
    assert_eq!(rings(&format!("{nic}machine: pc-i440fx-7.0\n")), None);
    assert_eq!(rings(&format!("{nic}machine: pc-i440fx-10.0+pve1\n")), Some(1024));
}

#[test]
fn models_are_those_of_qm() {
    let model = |value: &str| read(&format!("sockets: 1\ncpu: {value}\n")).settings.cpu_model;
    assert_eq!(model("x86-64-v2-AES"), "qemu64,+aes,+popcnt,+pni,+sse4.1,+sse4.2,+ssse3,enforce");
    assert_eq!(
        model("Skylake-Server,flags=+pcid"),
        "Skylake-Server,+pcid,enforce,vendor=GenuineIntel"
    );
    assert_eq!(model("EPYC-Rome"), "EPYC-Rome,enforce,vendor=AuthenticAMD");
    assert_eq!(model("host,phys-bits=host"), "host,host-phys-bits=true");
    let hidden = read("sockets: 1\ncpu: host,hidden=1\n").settings;
    assert_eq!(hidden.hints.kvm_hidden, Some(true));
    let emulated = read("sockets: 1\nkvm: 0\n").settings;
    assert_eq!((emulated.accel, emulated.cpu_model.as_str()), (Accel::Tcg, "qemu64"));
    let arm = read("arch: aarch64\ncores: 2\nbios: ovmf\n").settings;
    assert_eq!((arm.arch, arm.accel, arm.machine.as_str()), (Arch::Aarch64, Accel::Tcg, "virt"));
}

#[test]
fn nodes_follow_from_sockets() {
    let vm = read("cores: 2\nsockets: 2\nmemory: 4096\nnuma: 1\nhugepages: 2\n").spec().unwrap();
    let nodes: Vec<(String, u64)> =
        vm.numa.iter().map(|node| (node.vcpus.to_string(), node.memory_mib)).collect();
    assert_eq!(nodes, [("0-1".to_owned(), 2048), ("2-3".to_owned(), 2048)]);
    assert_eq!(vm.memory.huge_pages, Some(PageSize::M2));
}

#[test]
fn own_arguments_come_last() {
    let text =
        "sockets: 1\nargs: -cpu host,+x2apic -device 'vhost-vsock-pci,guest-cid=7'\ncpu: kvm64\n";
    let parsed = read(text);
    assert_eq!(parsed.settings.cpu_model, "host,+x2apic");
    assert_eq!(parsed.line("cpu_model"), Some(2));
    let args = parsed.settings.extra_args.join(" ");
    assert!(args.ends_with("-device vhost-vsock-pci,guest-cid=7"), "{args}");
}

#[test]
fn what_qm_leaves_out_or_refuses() {
    let check = |text: &str, expected: &[(&str, bool)]| {
        let command = command(text).unwrap();
        let found: Vec<(String, bool)> =
            command.troubles.iter().map(|at| (at.value.to_string(), at.value.stops())).collect();
        let expected: Vec<(String, bool)> =
            expected.iter().map(|(text, stops)| ((*text).to_owned(), *stops)).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("sockets: 1\ncores: four\n", &[("cores: \"four\" is not a number", false)]);
    check("sockets: 1\ncore: 4\n", &[("qm knows no setting \"core\"", false)]);
    check("sockets: 1\nsockets: 2\n", &[("sockets is said again below, where it counts", false)]);
    check("sockets: 1\nrubbish\n", &[("\"rubbish\" is no setting (key: value)", false)]);
    check("sockets: 1\nvcpus: 3\n", &[("vcpus: 3 is more than sockets x cores, 1", false)]);
    check(
        "scsihw: virtio-scsi-pci\nscsi0: local:1/a.raw,iothread=1,queues=2\n",
        &[
            (
                "scsi0: iothread=1 counts for virtio disks and with scsihw: virtio-scsi-single only",
                false,
            ),
            ("scsi0: queues count with scsihw: virtio-scsi-single only", false),
        ],
    );
    check("sockets: 1\nhugepages: 2\n", &[("hugepages needs numa: 1", true)]);
    check(
        "memory: 4096\nnuma: 1\nnuma0: cpus=0,hostnodes=0,memory=2048\n",
        &[
            ("numa0: hostnodes need a policy", true),
            ("memory is 4096 MiB, but the nodes have 2048", true),
        ],
    );
    check("numa: 1\nnuma0: cpus=0\n", &[("numa0: a node says its memory", true)]);
}

#[test]
fn texts_of_vms_are_known() {
    assert!(holds_vm(SERVER));
    assert!(holds_vm("cores: 2\nmemory: 2048\nostype: l26\n"));
    assert!(holds_vm("agent: 1\nostype: win11\n") && holds_vm("scsihw: lsi\n"));
    let no = [
        "",
        "name: x\nversion: 3\n",
        "apiVersion: v1\nkind: Pod\nmemory: 3\n",
        "arch: amd64\ncores: 1\nmemory: 512\nnet0: name=eth0,bridge=vmbr0\nrootfs: local:1\nostype: debian\n",
        "qemu-system-x86_64 -m 1G",
        "<domain/>",
        "[mysqld]\nport: 1\n",
        "memory: 4\n",
    ];
    for text in no {
        assert!(!holds_vm(text), "{text}");
    }
    assert_eq!(parse("# nothing\n\n[a]\nb: c\n"), Err(ProxmoxMismatch));
}

proptest::proptest! {
    #[test]
    fn nothing_panics(text in "([a-z]{1,6}[0-9]{0,9}: ?[-a-z0-9,=;:./%\"'$]{0,24}\n|\\PC{0,20}\n){0,8}") {
        let _ = parse(&text);
        let _ = holds_vm(&text);
    }

    #[test]
    fn no_value_panics(
        key in "(scsi0|net0|numa0|numa|hugepages|cores|sockets|memory|cpu|machine|hostpci0|rng0|args|affinity|boot|meta|cpulimit)",
        value in "([a-z0-9]{0,8}[=,;:.-]?){0,6}[0-9]{0,22}",
    ) {
        let _ = parse(&format!("scsihw: virtio-scsi-single\nnuma: 1\nhugepages: any\n{key}: {value}\n"));
    }
}
