//! Command lines in the forms that Proxmox VE writes, counted: how many of their disks,
//! interfaces and amounts of memory are read. The texts are vmlab's own.

use vmconfig::kubevirt::Catalogue;
use vmconfig::source::SourceText;

use crate::read::{self, ConfigItem, ReadOptions};
use crate::rule::ConfigFormat;
use crate::vm::Vm;

/// What every one begins with.
const HEAD: &str = "/usr/bin/kvm -id 100 -name web,debug-threads=on -no-shutdown -chardev \
                    socket,id=qmp,path=/var/run/qemu-server/100.qmp,server=on,wait=off -mon \
                    chardev=qmp,mode=control -pidfile /var/run/qemu-server/100.pid -daemonize \
                    -smp 4,sockets=1,cores=4,maxcpus=4 -nodefaults -cpu host,+kvm_pv_eoi \
                    -machine type=pc+pve0";

/// Disks with their buses, the number of interfaces, and memory in MiB; the arguments.
type Form = (&'static [&'static str], usize, u64, &'static str);

const FORMS: &[Form] = &[
    (
        &["scsi"],
        1,
        2048,
        "-m 2048 -device virtio-scsi-pci,id=scsihw0,bus=pci.0,addr=0x5 \
     -drive file=/dev/pve/vm-100-disk-0,if=none,id=drive-scsi0,format=raw,cache=none,aio=io_uring,\
     detect-zeroes=on -device scsi-hd,bus=scsihw0.0,channel=0,scsi-id=0,lun=0,drive=drive-scsi0,\
     id=scsi0,bootindex=100 -netdev type=tap,id=net0,ifname=tap100i0,script=/var/lib/qemu-server/\
     pve-bridge,downscript=/var/lib/qemu-server/pve-bridgedown,vhost=on -device \
     virtio-net-pci,mac=BC:24:11:00:00:01,netdev=net0,bus=pci.0,addr=0x12,id=net0",
    ),
    // Throttled, each number an option of the drive.
    (
        &["virtio"],
        1,
        4096,
        "-m 4096 -drive file=/var/lib/vz/images/100/vm-100-disk-0.qcow2,if=none,\
     id=drive-virtio0,format=qcow2,cache=writeback,aio=threads,throttling.bps-total=104857600,\
     throttling.bps-total-max=209715200,throttling.iops-total=500 -device virtio-blk-pci,\
     drive=drive-virtio0,id=virtio0,bus=pci.0,addr=0xa,bootindex=100 -netdev type=tap,id=net0,\
     ifname=tap100i0,vhost=on,queues=4 -device virtio-net-pci,mac=BC:24:11:00:00:02,netdev=net0,\
     id=net0,vectors=10,mq=on,rx_queue_size=1024,tx_queue_size=256",
    ),
    // The filter that throttles is a node of its own.
    (
        &["virtio"],
        0,
        1024,
        "-m 1024 -object throttle-group,id=throttle-drive-virtio0,x-bps-total=1048576 \
     -blockdev '{\"driver\":\"throttle\",\"throttle-group\":\"throttle-drive-virtio0\",\
     \"node-name\":\"drive-virtio0\",\"file\":{\"driver\":\"raw\",\"node-name\":\"f1\",\"file\":\
     {\"driver\":\"host_device\",\"filename\":\"/dev/pve/vm-100-disk-0\",\"aio\":\"io_uring\",\
     \"cache\":{\"direct\":true,\"no-flush\":false},\"node-name\":\"e1\"}}}' -device \
     virtio-blk-pci,drive=drive-virtio0,id=virtio0,bootindex=100",
    ),
    (
        &["virtio"],
        1,
        8192,
        "-m 8192 -blockdev 'driver=throttle,node-name=drive-virtio0,\
     throttle-group=g,file.driver=qcow2,file.node-name=f,file.file.driver=file,\
     file.file.filename=/srv/a.qcow2,file.file.aio=native,file.file.cache.direct=on' -object \
     throttle-group,id=g,x-iops-total=100 -device virtio-blk-pci,drive=drive-virtio0,id=virtio0 \
     -netdev type=tap,id=net0,ifname=tap100i0 -device e1000,mac=BC:24:11:00:00:03,netdev=net0,id=net0",
    ),
    // A controller and an iothread for each disk.
    (
        &["scsi", "scsi"],
        2,
        16384,
        "-m 16384 -object iothread,id=iothread-virtioscsi0 -object \
     iothread,id=iothread-virtioscsi1 -device virtio-scsi-pci,id=virtioscsi0,bus=pci.3,addr=0x1,\
     iothread=iothread-virtioscsi0 -drive file=/dev/zvol/rpool/vm-100-disk-0,if=none,\
     id=drive-scsi0,discard=on,format=raw,cache=none,aio=io_uring,detect-zeroes=unmap -device \
     scsi-hd,bus=virtioscsi0.0,channel=0,scsi-id=0,lun=0,drive=drive-scsi0,id=scsi0 -device \
     virtio-scsi-pci,id=virtioscsi1,bus=pci.3,addr=0x2,iothread=iothread-virtioscsi1 -drive \
     file=/dev/zvol/rpool/vm-100-disk-1,if=none,id=drive-scsi1,format=raw,cache=none,aio=native \
     -device scsi-hd,bus=virtioscsi1.0,channel=0,scsi-id=0,lun=1,drive=drive-scsi1,id=scsi1 \
     -netdev type=tap,id=net0,ifname=tap100i0,vhost=on -device virtio-net-pci,\
     mac=BC:24:11:00:00:04,netdev=net0,id=net0 -netdev type=tap,id=net1,ifname=tap100i1,vhost=on \
     -device virtio-net-pci,mac=BC:24:11:00:00:05,netdev=net1,id=net1",
    ),
    // Old buses.
    (
        &["ide", "sata"],
        1,
        512,
        "-m 512 -drive file=/srv/a.raw,if=none,id=drive-ide0,format=raw,cache=none,\
     aio=native -device ide-hd,bus=ide.0,unit=0,drive=drive-ide0,id=ide0 -device ahci,id=ahci0,\
     multifunction=on,bus=pci.0,addr=0x7 -drive file=/srv/b.raw,if=none,id=drive-sata0,format=raw \
     -device ide-hd,bus=ahci0.0,drive=drive-sata0,id=sata0 -netdev type=tap,id=net0,\
     ifname=tap100i0 -device rtl8139,mac=BC:24:11:00:00:06,netdev=net0,id=net0",
    ),
    // Ceph, gluster and iSCSI.
    (
        &["scsi"],
        1,
        2048,
        "-m 2048 -device virtio-scsi-pci,id=scsihw0 -drive 'file=rbd:rbd/vm-100-disk-0:\
     mon_host=10.0.0.1;10.0.0.2:auth_supported=cephx:id=admin:keyring=/etc/pve/priv/ceph/rbd.keyring,\
     if=none,id=drive-scsi0,format=raw,cache=none,aio=io_uring' -device \
     scsi-hd,bus=scsihw0.0,drive=drive-scsi0,id=scsi0 -netdev type=tap,id=net0,ifname=tap100i0,\
     vhost=on -device virtio-net-pci,mac=BC:24:11:00:00:07,netdev=net0,id=net0",
    ),
    (
        &["virtio"],
        0,
        2048,
        "-m 2048 -drive file=iscsi://10.0.0.9/iqn.2003-01.org/0,if=none,\
     id=drive-virtio0,format=raw,cache=none -device virtio-blk-pci,drive=drive-virtio0,id=virtio0",
    ),
    // Huge pages and guest nodes.
    (
        &["scsi"],
        1,
        8192,
        "-m 8192 -object memory-backend-file,id=ram-node0,size=4096M,\
     mem-path=/run/hugepages/kvm/1048576kB,share=on,prealloc=yes,host-nodes=0,policy=bind -numa \
     node,nodeid=0,cpus=0-1,memdev=ram-node0 -object memory-backend-file,id=ram-node1,size=4096M,\
     mem-path=/run/hugepages/kvm/1048576kB,share=on,prealloc=yes,host-nodes=1,policy=bind -numa \
     node,nodeid=1,cpus=2-3,memdev=ram-node1 -device virtio-scsi-pci,id=scsihw0 -drive \
     file=/dev/pve/a,if=none,id=drive-scsi0,format=raw -device scsi-hd,bus=scsihw0.0,\
     drive=drive-scsi0,id=scsi0 -netdev type=tap,id=net0,ifname=tap100i0,vhost=on -device \
     virtio-net-pci,netdev=net0,id=net0",
    ),
    // Memory to be plugged in.
    (
        &["virtio"],
        1,
        1024,
        "-m size=1024,slots=255,maxmem=524288M -drive file=/srv/a.raw,if=none,\
     id=drive-virtio0,format=raw -device virtio-blk-pci,drive=drive-virtio0,id=virtio0 -netdev \
     type=user,id=net0,hostname=web -device virtio-net-pci,netdev=net0,id=net0",
    ),
    // A CD-ROM is no disk.
    (
        &["virtio"],
        1,
        2048,
        "-m 2048 -drive if=none,id=drive-ide2,media=cdrom,aio=io_uring -device \
     ide-cd,bus=ide.1,unit=0,drive=drive-ide2,id=ide2 -drive file=/srv/a.raw,if=none,\
     id=drive-virtio0,format=raw -device virtio-blk-pci,drive=drive-virtio0,id=virtio0,\
     iothread=iothread-virtio0 -object iothread,id=iothread-virtio0 -netdev type=tap,id=net0,\
     ifname=tap100i0,vhost=on -device vmxnet3,netdev=net0,id=net0",
    ),
    // An emulated SCSI controller, as in VMs from elsewhere.
    (
        &["scsi"],
        1,
        4096,
        "-m 4096 -device pvscsi,id=scsihw0,bus=pci.0,addr=0x5 -drive \
     file=/srv/a.vmdk,if=none,id=drive-scsi0,format=vmdk -device \
     scsi-hd,bus=scsihw0.0,channel=0,scsi-id=0,lun=0,drive=drive-scsi0,id=scsi0 -netdev \
     type=tap,id=net0,ifname=tap100i0 -device e1000e,netdev=net0,id=net0",
    ),
];

fn vm(arguments: &str) -> Vm {
    let text = format!("{HEAD} {arguments}\n");
    let mut found = Vec::new();
    let wanted = ReadOptions { types: &Catalogue::default(), settings: false };
    let mut keep = |item| match item {
        ConfigItem::Vm(vm) => found.push(*vm),
        ConfigItem::Object(object) => panic!("{object:?}"),
    };
    read::read(ConfigFormat::Qemu, &SourceText::new(&text), wanted, &mut keep).unwrap();
    assert_eq!(found.len(), 1, "{text}");
    found.remove(0)
}

#[test]
fn disks_interfaces_and_memory_of_its_forms_are_read() {
    let (mut right, mut all) = ([0_usize; 3], [0_usize; 3]);
    let mut wrong = Vec::new();
    for (buses, nics, memory_mib, arguments) in FORMS {
        let vm = vm(arguments);
        let hard = vm.disks.iter().filter(|disk| disk.hard);
        let read: Vec<&str> =
            hard.map(|disk| disk.bus.as_ref().map_or("", |bus| bus.value.as_str())).collect();
        let bytes = vm.memory_bytes.as_ref().map(|at| at.value);
        let found = [
            read.iter().zip(*buses).filter(|(one, other)| one == other).count(),
            vm.nics.len().min(*nics),
            usize::from(bytes == Some(memory_mib << 20)),
        ];
        let there = [buses.len(), *nics, 1];
        for kind in 0..3 {
            right[kind] += found[kind];
            all[kind] += there[kind];
        }
        // One too many is as wrong as one that is missing.
        if found != there || read.len() != buses.len() || vm.nics.len() != *nics {
            wrong.push(format!("{read:?} {} {bytes:?} of {arguments}", vm.nics.len()));
        }
        assert_eq!(vm.accel.value, "kvm", "{arguments}");
    }
    println!("disks, interfaces, memory: {right:?} of {all:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
