//! Disks and interfaces as programs that start VMs write them.

use crate::*;

use super::{Capabilities, emit_plain, parse};

/// What Proxmox starts, in the forms that it has used: filters and formats in one
/// option, throttled drives, its scripts behind the interfaces.
#[test]
fn what_proxmox_starts_is_read() {
    let node = |below: &str, direct: bool| {
        let cache = format!(r#""cache":{{"direct":{direct},"no-flush":false}}"#);
        format!(
            r#"{{"driver":"throttle","throttle-group":"t","node-name":"drive-N","file":{{"driver":"FMT",{cache},"node-name":"f","file":{{{below},{cache},"node-name":"e"}}}}}}"#
        )
    };
    let scsi = node(r#""driver":"host_device","filename":"/dev/pve/d0","aio":"io_uring""#, true)
        .replace("drive-N", "drive-scsi0")
        .replace("FMT", "raw");
    let virtio = node(r#""driver":"file","filename":"/images/d1.qcow2","aio":"threads""#, false)
        .replace("drive-N", "drive-virtio1")
        .replace("FMT", "qcow2");
    let text = format!(
        "/usr/bin/kvm -id 104 -name 'db,debug-threads=on' -smp '8,sockets=2,cores=4,maxcpus=8' \
         -cpu 'host,+kvm_pv_eoi' -m 4096 -object 'iothread,id=iothread-virtioscsi0' \
         -device 'virtio-scsi-pci,id=virtioscsi0,bus=pci.3,addr=0x1,iothread=iothread-virtioscsi0' \
         -blockdev '{scsi}' \
         -device 'scsi-hd,bus=virtioscsi0.0,scsi-id=0,drive=drive-scsi0,id=scsi0,write-cache=on' \
         -blockdev '{virtio}' -device 'virtio-blk-pci,drive=drive-virtio1,id=virtio1' \
         -drive 'file=/dev/zvol/t/d2,if=none,id=drive-ide0,cache=none,format=raw,aio=native,throttling.bps-total=1' \
         -device 'ide-hd,bus=ide.0,unit=0,drive=drive-ide0,id=ide0' \
         -drive 'if=none,id=drive-ide2,media=cdrom' -device 'ide-cd,bus=ide.1,drive=drive-ide2' \
         -netdev 'type=tap,id=net0,ifname=tap104i0,script=/x/pve-bridge,vhost=on,queues=4' \
         -device 'virtio-net-pci,mac=BC:24:11:00:11:22,netdev=net0,vectors=10,mq=on' \
         -machine 'type=pc+pve0'"
    );
    let parsed = parse(&text).unwrap();
    let spec = parsed.spec().unwrap();
    let block = |path: &str| DiskSource::Block(path.into());
    let expected = [
        Disk {
            bus: DiskBus::VirtioScsi,
            cache: Some(CacheMode::None),
            io: Some(DiskIo::IoUring),
            iothread: Some(1),
            ..Disk::new(block("/dev/pve/d0"))
        },
        Disk {
            format: DiskFormat::Qcow2,
            cache: Some(CacheMode::Writeback),
            io: Some(DiskIo::Threads),
            ..Disk::new(DiskSource::File("/images/d1.qcow2".into()))
        },
        Disk {
            bus: DiskBus::Ide,
            cache: Some(CacheMode::None),
            io: Some(DiskIo::Native),
            ..Disk::new(block("/dev/zvol/t/d2"))
        },
    ];
    assert_eq!(spec.disks, expected);
    let nic = &spec.nics[0];
    assert_eq!((nic.vhost, nic.queues, spec.accel), (Some(true), Some(4), Accel::Kvm));
    assert_eq!(nic.backend, NicBackend::Tap { ifname: "tap104i0".to_owned() });
    let kept = |word: &str| parsed.kept.iter().filter(|kept| kept.text.contains(word)).count();
    // Limits and scripts have no place in a VM, and are told.
    assert_eq!((kept("throttle-group=t"), kept("throttling."), kept("pve-bridge")), (2, 1, 1));
}

#[test]
fn a_node_that_names_itself_is_no_disk() {
    let parsed = parse(
        "kvm -m 64 -blockdev driver=throttle,node-name=a,file=b,throttle-group=t \
         -blockdev driver=throttle,node-name=b,file=a,throttle-group=t \
         -device virtio-blk-pci,drive=a",
    )
    .unwrap();
    assert_eq!((parsed.settings.disks.len(), parsed.kept.len()), (0, 3));
}

#[test]
fn drives_that_are_devices_are_read() {
    let check = |options: &str, expected: &[(DiskBus, DiskFormat)]| {
        let parsed = parse(&format!("qemu-system-x86_64 -m 64 {options}")).unwrap();
        let disks = &parsed.spec().unwrap().disks;
        let found: Vec<_> = disks.iter().map(|disk| (disk.bus, disk.format)).collect();
        assert_eq!(found, expected, "{options}");
    };
    let (raw, qcow2) = (DiskFormat::Raw, DiskFormat::Qcow2);
    check("-hda a.qcow2 -hdb b.img", &[(DiskBus::Ide, qcow2), (DiskBus::Ide, raw)]);
    check("-machine q35 a.img", &[(DiskBus::Sata, raw)]);
    check("-drive file=a,format=qcow2,index=1", &[(DiskBus::Ide, qcow2)]);
    check("-drive file=a.qcow2,format=raw,if=virtio", &[(DiskBus::VirtioBlk, raw)]);
    check("-drive file=a.iso,media=cdrom -drive if=floppy,file=b", &[]);
}

#[test]
fn an_ide_disk_stays_one() {
    let read = |machine: &str| {
        let text = format!("kvm -m 64 -machine {machine} -drive file=a.img,format=raw");
        parse(&text).unwrap().spec().unwrap()
    };
    let spec = read("pc");
    assert_eq!(spec.disks[0].bus, DiskBus::Ide);
    let libvirt = crate::libvirt::emit(&spec);
    assert!(libvirt.text.contains("<target dev='hda' bus='ide'/>"), "{}", libvirt.text);
    assert_eq!(crate::libvirt::parse(&libvirt.text).unwrap()[0].spec().unwrap().disks, spec.disks);
    let qemu = emit_plain(&spec, &Capabilities::current());
    assert_eq!(crate::qemu::parse_args(&qemu.args).spec().unwrap().disks, spec.disks);
    let kubevirt = crate::kubevirt::emit(&spec, crate::kubevirt::KubevirtKind::Instance);
    assert!(
        kubevirt.losses.iter().any(|loss| loss.fields.contains(&"disks".to_owned())),
        "{:?}",
        kubevirt.losses
    );
    // Such a machine has SATA ports in its place.
    assert_eq!(read("q35").disks[0].bus, DiskBus::Sata);
}

#[test]
fn what_a_guest_discards_gets_as_far_as_every_node_lets_it() {
    let check = |behind: &str, expected: (Option<Discard>, Option<ZeroDetection>)| {
        let device = "-device virtio-blk-pci,drive=d";
        let parsed = parse(&format!("qemu-system-x86_64 -m 64 {behind} {device}")).unwrap();
        let disk = &parsed.spec().unwrap().disks[0];
        assert_eq!((disk.discard, disk.detect_zeroes), expected, "{behind}");
        assert_eq!(parsed.kept, [], "{behind}");
    };
    let unmap = Some(Discard::Unmap);
    check("-drive file=a,format=raw,if=none,id=d", (None, None));
    check("-drive file=a,format=raw,if=none,id=d,discard=on", (unmap, None));
    check(
        "-drive file=a,format=raw,if=none,id=d,discard=unmap,detect-zeroes=unmap",
        (unmap, Some(ZeroDetection::Unmap)),
    );
    check(
        "-drive file=a,format=raw,if=none,id=d,discard=off,detect-zeroes=unmap",
        (None, Some(ZeroDetection::On)),
    );
    let nodes = |file: &str, format: &str| {
        format!(
            "-blockdev driver=file,node-name=f,filename=/a{file} \
             -blockdev driver=qcow2,node-name=d,file=f{format}"
        )
    };
    check(&nodes("", ""), (None, None));
    check(&nodes(",discard=unmap", ""), (None, None));
    check(&nodes("", ",discard=unmap"), (None, None));
    check(
        &nodes(",discard=unmap", ",discard=unmap,detect-zeroes=on"),
        (unmap, Some(ZeroDetection::On)),
    );
    // A node inside another lets all through, unless it says otherwise.
    let inside =
        "-blockdev driver=qcow2,node-name=d,discard=unmap,file.driver=file,file.filename=/a";
    check(inside, (unmap, None));
    check(&format!("{inside},file.discard=ignore"), (None, None));
}

#[test]
fn rings_of_an_interface_are_read_and_said() {
    let net = "-netdev tap,id=n,ifname=t,script=no -device virtio-net-pci,netdev=n";
    let rings = "rx_queue_size=1024,tx_queue_size=256";
    let parsed = parse(&format!("qemu-system-x86_64 -m 64 {net},{rings}")).unwrap();
    let spec = parsed.spec().unwrap();
    let nic = &spec.nics[0];
    assert_eq!((nic.rx_queue_size, nic.tx_queue_size), (Some(1024), Some(256)));
    assert_eq!(parsed.kept, []);
    let args = emit_plain(&spec, &Capabilities::current()).args.join(" ");
    assert!(args.contains(rings), "{args}");
    let odd = parse(&format!("qemu-system-x86_64 -m 64 {net},rx_queue_size=300")).unwrap();
    assert!(odd.spec().unwrap_err().to_string().contains("rx_queue_size 300"), "QEMU refuses it");
}

#[test]
fn packed_rings_and_the_mtu_of_an_interface_are_read_and_said() {
    let net = "-netdev tap,id=n,ifname=t,script=no -device virtio-net-pci,netdev=n";
    let read = |more: &str| parse(&format!("qemu-system-x86_64 -m 64 {net}{more}")).unwrap();
    let parsed = read(",packed=on,host_mtu=9000");
    assert_eq!(parsed.kept, []);
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.nics[0].packed, spec.nics[0].mtu), (Some(true), Some(9000)));
    let args = emit_plain(&spec, &Capabilities::current()).args.join(" ");
    assert!(args.contains(",packed=on,host_mtu=9000"), "{args}");
    let xml = crate::libvirt::emit(&spec).text;
    assert!(xml.contains("packed='on'/>") && xml.contains("<mtu size='9000'/>"), "{xml}");
    // What QEMU does by itself.
    let usual = read(",packed=off,host_mtu=0");
    assert_eq!(usual.kept, []);
    assert_eq!(usual.spec().unwrap(), read("").spec().unwrap());
    let odd = read(",host_mtu=70000").spec().unwrap_err().to_string();
    assert!(odd.contains("mtu 70000: 68 to 65535"), "{odd}");
    let cluster = crate::kubevirt::emit(&spec, crate::kubevirt::KubevirtKind::Instance);
    for part in ["packed of nic 0", "mtu of nic 0"] {
        assert!(cluster.losses.iter().any(|loss| loss.what.contains(part)), "{part}");
    }
}

/// QEMU counts milliseconds since 9.2, and says that the other way is old.
#[test]
fn a_nic_at_a_switch_connects_anew_as_each_qemu_is_told() {
    let line = |again: &str| {
        format!(
            "qemu-system-x86_64 -m 64 -object memory-backend-memfd,id=m,size=64M,share=on \
             -machine q35,memory-backend=m -chardev socket,id=c,path=/run/s{again} \
             -netdev vhost-user,id=n,chardev=c,queues=2 \
             -device virtio-net-pci,netdev=n,mq=on,vectors=6"
        )
    };
    for again in [",reconnect=2", ",reconnect-ms=2000"] {
        let parsed = parse(&line(again)).unwrap();
        let spec = parsed.spec().unwrap();
        let socket =
            NicBackend::VhostUser { socket: "/run/s".into(), server: false, reconnect_s: Some(2) };
        assert_eq!((&spec.nics[0].backend, spec.nics[0].queues), (&socket, Some(2)));
        for (version, said) in [("7.2.22", "reconnect=2"), ("10.0.3", "reconnect-ms=2000")] {
            let text = format!("QEMU emulator version {version}");
            let args = emit_plain(&spec, &Capabilities::from_version_text(&text).unwrap()).args;
            let chardev = format!("socket,id=chr-net0,path=/run/s,server=off,{said}");
            assert!(args.contains(&chardev), "{version}: {args:?}");
        }
        let xml = crate::libvirt::emit(&spec).text;
        assert!(xml.contains("<reconnect enabled='yes' timeout='2'/>"), "{xml}");
    }
    // What is no whole second is told, and 0 is never.
    let parsed = parse(&line(",reconnect-ms=1500")).unwrap();
    assert!(parsed.kept.iter().any(|kept| kept.text.contains("reconnect-ms=1500")));
    let never = parse(&line(",reconnect=0")).unwrap().spec().unwrap();
    assert_eq!(never, parse(&line("")).unwrap().spec().unwrap());
    let listens = line(",reconnect=2").replace("/run/s", "/run/s,server=on");
    let error = parse(&listens).unwrap().spec().unwrap_err();
    assert!(error.to_string().contains("reconnect_s"), "{error}");
}
