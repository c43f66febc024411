//! Round trips, what people write, and the real libvirt.

use proptest::prelude::*;

use crate::tests::{any_spec, check_round_trip};
use crate::*;

use std::path::Path;

use crate::qemu::Channels;

use super::{LaunchedDomain, bus_of_target, emit, emit_launched, parse};

mod daemon;
mod oracle;
mod schema;
mod way_back;

proptest! {
    #[test]
    fn what_is_emitted_is_read_as_the_same_vm(spec in any_spec()) {
        let EmittedText { text, losses } = emit(&spec);
        let parsed = settings(&text);
        check_round_trip(&spec, &text, &losses, &parsed);
        prop_assert!(parsed.kept.len() <= spec.extra_args.len(), "{text}\n{:?}", parsed.kept);
    }

    #[test]
    fn any_text_is_read_without_harm(text in "[<>a-z/'= ]{0,80}") {
        let _ = parse(&text);
    }
}

/// The sockets of a domain that vmlab starts.
fn channels(folder: &Path) -> Channels {
    let file = |name: &str| folder.join(name);
    Channels {
        qmp_socket: file("qmp"),
        agent_socket: file("agent"),
        done_socket: file("done"),
        console_socket: file("serial"),
        console_log: file("console"),
    }
}

fn launched(channels: &Channels) -> LaunchedDomain<'_> {
    LaunchedDomain {
        name: "vmlab-1-trial",
        emulator: Path::new("/usr/bin/qemu-system-x86_64"),
        channels,
        owner: "{\"pid\":1,\"run_id\":\"<&'\"}",
        run_as: Some((0, 0)),
    }
}

#[test]
fn devices_of_the_host_are_read_as_libvirt_reads_numbers() {
    let check = |device: &str, expected: Option<&str>, kept: &[&str]| {
        let text = format!(
            "<domain type='kvm'><name>a</name><memory>1048576</memory><vcpu>1</vcpu>\
             <os><type>hvm</type></os><devices>{device}</devices></domain>"
        );
        let parsed = settings(&text);
        let found: Vec<String> =
            parsed.settings.host_devices.iter().map(|one| one.pci().unwrap().to_string()).collect();
        assert_eq!(found, expected.into_iter().collect::<Vec<_>>(), "{device}");
        let paths: Vec<&str> = parsed.kept.iter().map(|one| one.path.as_str()).collect();
        for path in kept {
            assert!(paths.iter().any(|found| found.ends_with(path)), "{device}: {paths:?}");
        }
    };
    let pci = |managed: &str, inner: &str| {
        format!("<hostdev mode='subsystem' type='pci'{managed}>{inner}</hostdev>")
    };
    let hex = "<source><address domain='0x0000' bus='0x3b' slot='0x1f' function='0x7'/></source>";
    let decimal = "<source><address bus='59' slot='31' function='7'/></source>";
    check(&pci(" managed='yes'", hex), Some("0000:3b:1f.7"), &[]);
    check(&pci("", &format!("<driver name='vfio'/>{decimal}")), Some("0000:3b:1f.7"), &[]);
    check(&pci(" managed='no'", hex), Some("0000:3b:1f.7"), &["hostdev/@managed"]);
    check(&pci("", &format!("{hex}<rom bar='off'/>")), Some("0000:3b:1f.7"), &["hostdev/rom"]);
    let beyond = "<source><address bus='0x3b' slot='0x20' function='0'/></source>";
    check(&pci("", beyond), None, &["devices/hostdev"]);
    let usb = "<hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source>\
               </hostdev>";
    check(usb, None, &["devices/hostdev"]);
    // Taken from the host, and given to nobody.
    let nobody = format!("{hex}<address type='unassigned'/>");
    check(&pci(" managed='yes'", &nobody), None, &["devices/hostdev"]);
    // The way to set up a card's function before the guest has it.
    let source = "<source><address type='pci' bus='0x3b' slot='0x1f' function='0x7'/></source>";
    let nic = |inner: &str| format!("<interface type='hostdev' managed='yes'>{inner}</interface>");
    check(&nic(source), Some("0000:3b:1f.7"), &[]);
    let mac = "<mac address='52:54:00:6d:90:02'/>";
    check(&nic(&format!("{mac}{source}")), Some("0000:3b:1f.7"), &["interface/mac"]);
    check(&nic("<source network='devices'/>"), None, &["devices/interface"]);
}

#[test]
fn a_launched_domain_is_the_same_vm_and_names_its_owner() {
    let spec = crate::VmSpec::new(VmSettings::new(
        "web",
        Arch::X86_64,
        Accel::Tcg,
        crate::tests::direct(),
    ));
    let spec = spec.unwrap();
    let channels = channels(Path::new("/run/vmlab"));
    let text = emit_launched(&spec, &launched(&channels)).text;
    let mut read = settings(&text).settings;
    assert_eq!(std::mem::replace(&mut read.name, spec.name.clone()), "vmlab-1-trial");
    assert_eq!(read, settings(&emit(&spec).text).settings);
    let document = roxmltree::Document::parse(&text).unwrap();
    let owner =
        document.descendants().find(|node| node.has_tag_name((super::OWNER_NAMESPACE, "owner")));
    assert_eq!(owner.unwrap().text(), Some(launched(&channels).owner));
    for part in [
        "<source mode='connect' path='/run/vmlab/agent'/>",
        "<source mode='connect' path='/run/vmlab/serial'/>",
        "<on_reboot>destroy</on_reboot>",
        "<label>+0:+0</label>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

fn settings(text: &str) -> ParsedVm {
    let all = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let [parsed] = <[ParsedVm; 1]>::try_from(all).unwrap_or_else(|all| panic!("{text}: {all:?}"));
    parsed
}

#[test]
fn fragments_are_read() {
    let parsed = settings(
        "<!-- vtune -->
<vcpu placement='static'>4</vcpu>
<cputune>
  <vcpupin vcpu='0' cpuset='1'/>
  <vcpupin vcpu='1' cpuset='17'/>
</cputune>
<cpu mode='host-passthrough' check='none'>
    <topology sockets='1' dies='1' cores='2' threads='2'/>
</cpu>",
    );
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.vcpus(), spec.cpu_model.as_str(), spec.topology.threads), (4, "host", 2));
    assert_eq!(spec.pins.vcpus[&1], "17".parse().unwrap());
    assert_eq!((parsed.line("pins.vcpus.1"), parsed.line("topology.cores")), (Some(5), Some(8)));
    assert_eq!(parsed.kept, []);
}

#[test]
fn every_domain_of_a_text_is_read() {
    let one = |name: &str| format!("<domain type='kvm'>\n<name>{name}</name></domain>");
    let (a, b) = (one("a"), one("b"));
    for text in [format!("{a}\n{b}"), format!("<domains>{a}\n{b}</domains>")] {
        let all = parse(&text).unwrap();
        let found: Vec<_> =
            all.iter().map(|vm| (vm.settings.name.as_str(), vm.line("name"))).collect();
        assert_eq!(found, [("a", Some(2)), ("b", Some(4))], "{text}");
    }
}

#[test]
fn what_libvirt_cannot_say_is_read_too() {
    let parsed = settings(
        "<domain type='kvm' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>big</name>
  <memory>8388608</memory>
  <vcpu cpuset='0-3,^2'>2</vcpu>
  <title>hello</title>
  <cpu mode='custom' frobnicate='yes'><model>Skylake-Server</model><feature name='x2apic'/></cpu>
  <qemu:commandline>
    <qemu:arg value='-overcommit'/>
    <qemu:arg value='cpu-pm=on'/>
    <qemu:arg value='-daemonize'/>
  </qemu:commandline>
</domain>",
    );
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.memory_mib, spec.hints.cpu_pm), (8192, Some(true)));
    assert_eq!(spec.cpu_model, "Skylake-Server,+x2apic");
    assert_eq!(spec.pins.vcpus[&0], "0-1,3".parse().unwrap());
    assert_eq!(spec.topology.sockets, 2);
    let kept: Vec<_> =
        parsed.kept.iter().map(|one| (one.line, one.path.as_str(), one.text.as_str())).collect();
    let expected = [
        (5, "/domain/title", "<title>hello</title>"),
        (6, "/domain/cpu/@frobnicate", "frobnicate='yes'"),
        (10, "/domain/qemu:commandline", "-daemonize"),
    ];
    assert_eq!(kept, expected);
}

#[test]
fn what_is_no_domain_is_refused() {
    let check = |text: &str, expected: &str| {
        assert_eq!(parse(text).unwrap_err().to_string(), expected);
    };
    check("<pool/>", "No <domain> in it: its first element is <pool>");
    // What a host can do has elements of that name, and none is a VM.
    check(
        include_str!("../../testdata/libvirt-9.0.0/capabilities.xml"),
        "No <domain> in it: its first element is <capabilities>",
    );
    assert!(parse("nothing").unwrap_err().to_string().starts_with("Not XML: "));
}

/// A domain with KVM and this inside.
fn domain(inside: &str) -> ParsedVm {
    settings(&format!("<domain type='kvm'><memory unit='GiB'>4</memory>{inside}</domain>"))
}

#[test]
fn vhost_is_there_unless_somebody_says_otherwise() {
    let check = |kind: &str, interface: &str, expected: Option<bool>| {
        let inside = format!("<devices>{interface}</devices>");
        let text = format!("<domain type='{kind}'><memory unit='MiB'>64</memory>{inside}</domain>");
        let parsed = settings(&text);
        assert_eq!(parsed.settings.nics[0].vhost, expected, "{text}");
        let again = settings(&emit(&parsed.spec().unwrap()).text).settings;
        assert_eq!(again.nics, parsed.settings.nics, "{text}");
    };
    let virtio = "<model type='virtio'/>";
    let bridge = format!("<source bridge='br0'/>{virtio}");
    check("kvm", &format!("<interface type='bridge'>{bridge}</interface>"), Some(true));
    check("qemu", &format!("<interface type='bridge'>{bridge}</interface>"), None);
    let network = format!("<source network='default'/>{virtio}");
    check("kvm", &format!("<interface type='network'>{network}</interface>"), Some(true));
    let said = |name: &str| {
        format!("<interface type='bridge'>{bridge}<driver name='{name}' queues='2'/></interface>")
    };
    check("kvm", &said("qemu"), None);
    check("kvm", &said("vhost"), Some(true));
    check("kvm", "<interface type='bridge'><source bridge='br0'/></interface>", None);
    check(
        "kvm",
        &format!("<interface type='user'>{virtio}<driver name='vhost'/></interface>"),
        None,
    );
}

#[test]
fn a_command_line_without_vhost_becomes_a_domain_without() {
    let text = "kvm -m 64 -netdev tap,id=n,ifname=tap0,script=no,downscript=no \
                -device virtio-net-pci,netdev=n";
    let spec = crate::qemu::parse(text).unwrap().spec().unwrap();
    let text = emit(&spec).text;
    assert!(text.contains("<driver name='qemu'/>"), "{text}");
}

#[test]
fn cells_stand_in_the_order_of_their_numbers() {
    let parsed = domain(
        "<vcpu>6</vcpu>
        <numatune>
          <memnode cellid='0' mode='strict' nodeset='4'/>
          <memnode cellid='1' mode='preferred' nodeset='7'/>
        </numatune>
        <cpu><numa>
          <cell id='1' cpus='2-3' memory='1536' unit='MiB'>
            <distances><sibling id='0' value='31'/></distances>
          </cell>
          <cell id='0' cpus='0-1' memory='512' unit='MiB'/>
        </numa></cpu>
        <devices><memory model='dimm'><target><size unit='GiB'>2</size></target></memory></devices>",
    );
    let spec = parsed.spec().unwrap();
    let shown: Vec<String> = spec
        .numa
        .iter()
        .map(|node| {
            let GuestNode { vcpus, memory_mib, host_nodes, distances, .. } = node;
            format!("{vcpus} {memory_mib} {} {distances:?}", host_nodes.clone().unwrap())
        })
        .collect();
    // vCPUs that are in no cell are in the first; memory is that of the cells.
    assert_eq!(shown, ["0-1,4-5 512 4 {1: 31}", "2-3 1536 7 {0: 31}"]);
    assert_eq!(spec.memory_mib, 2048);
    assert_eq!((parsed.line("numa.0"), parsed.line("numa.1")), (Some(10), Some(7)));
    let kept: Vec<&str> = parsed.kept.iter().map(|one| one.path.as_str()).collect();
    assert_eq!(kept, ["/domain/devices/memory"]);

    let wrong = domain(
        "<cpu><numa>
          <cell id='1' cpus='0' memory='1' unit='MiB'/><cell id='3' memory='1' unit='MiB'/>
        </numa></cpu>",
    );
    let kept: Vec<&str> = wrong.kept.iter().map(|one| one.text.as_str()).collect();
    assert_eq!(kept, ["id='1'", "id='3'"]);
}

#[test]
fn huge_pages_are_those_of_the_cells_and_preallocated() {
    let check = |pages: &str, cells: u32, expected: &[&str], kept: usize| {
        let cells: String = (0..cells)
            .map(|id| format!("<cell id='{id}' cpus='{id}' memory='2' unit='GiB'/>"))
            .collect();
        let parsed = domain(&format!(
            "<vcpu>2</vcpu><memoryBacking>{pages}</memoryBacking><cpu><numa>{cells}</numa></cpu>"
        ));
        let all = parsed.spec().unwrap().backing();
        let size =
            |memory: &MemoryBacking| memory.huge_pages.map_or("-".to_owned(), |n| n.to_string());
        let found: Vec<String> = all.iter().map(size).collect();
        assert_eq!((found.join(" "), parsed.kept.len()), (expected.join(" "), kept), "{pages}");
        for memory in &all {
            let of_pages = memory.huge_pages.map(|_| (MemorySource::File, true));
            assert_eq!(memory.source.zip(memory.prealloc), of_pages, "{pages}");
        }
    };
    check("<hugepages/>", 0, &["2M"], 0);
    check("<hugepages/><allocation mode='ondemand'/>", 2, &["2M", "2M"], 0);
    let page = |size: u32, of: &str| format!("<page size='{size}' unit='KiB'{of}/>");
    let pages = |all: &[String]| format!("<hugepages>{}</hugepages>", all.concat());
    let (large, general) = (page(1 << 20, " nodeset='1'"), page(2048, ""));
    check(&pages(&[page(1 << 20, "")]), 0, &["1G"], 0);
    check(&pages(&[page(1 << 20, " nodeset='0-1'"), general.clone()]), 2, &["1G", "1G"], 0);
    check(&pages(&[large.clone(), general.clone()]), 2, &["2M", "1G"], 0);
    check(&pages(&[large]), 2, &["-", "1G"], 0);
    check(&pages(&[page(4, "")]), 2, &["-", "-"], 0);
    check(&pages(&[page(4, " nodeset='0'"), general]), 2, &["-", "2M"], 0);
    // What can't be is no page of anybody, and it says so.
    check(&pages(&[page(3, "")]), 2, &["-", "-"], 1);
    let bad = page(2048, " nodeset='x'");
    check(&pages(&[bad.clone(), page(1 << 20, "")]), 2, &["1G", "1G"], 1);
    check(&pages(&[bad]), 2, &["-", "-"], 1);
}

#[test]
fn cells_have_memory_of_their_own() {
    let parsed = domain(
        "<vcpu>3</vcpu>
        <memoryBacking><hugepages><page size='2' unit='MiB' nodeset='1'/></hugepages>
        </memoryBacking>
        <cpu><numa>
          <cell id='0' cpus='0' memory='2' unit='GiB'/>
          <cell id='1' cpus='1' memory='2' unit='GiB' memAccess='shared'/>
          <cell id='2' cpus='2' memory='2' unit='GiB' memAccess='private'/>
        </numa></cpu>",
    );
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.memory.clone(), parsed.kept.len()), (MemoryBacking::default(), 0));
    let [plain, huge, file] = &*spec.numa else { panic!("{:?}", spec.numa) };
    assert_eq!((plain.source, plain.shared), (None, None));
    let own = (huge.huge_pages, huge.source, huge.shared, huge.prealloc);
    let (file_source, yes) = (Some(MemorySource::File), Some(true));
    assert_eq!(own, (Some(PageSize::M2), file_source, yes, yes));
    assert_eq!((file.huge_pages, file.source, file.shared), (None, file_source, None));

    let emitted = emit(&spec);
    assert_eq!(emitted.losses, []);
    assert!(
        emitted.text.contains("<page size='2048' unit='KiB' nodeset='1'/>"),
        "{}",
        emitted.text
    );
    let args = crate::qemu::emit_plain(&spec, &crate::qemu::Capabilities::current()).args.join(" ");
    for backend in [
        "memory-backend-ram,id=mem0,size=2048M,share=off ",
        "memory-backend-file,id=mem1,size=2048M,mem-path=/dev/hugepages,share=on,prealloc=on ",
        "memory-backend-file,id=mem2,size=2048M,mem-path=/var/tmp,share=off ",
    ] {
        assert!(args.contains(backend), "{args}");
    }
}

#[test]
fn discarding_and_rings_are_said_and_read() {
    let parsed = domain(
        "<vcpu>1</vcpu><devices>
        <disk type='file' device='disk'>
          <driver name='qemu' type='qcow2' discard='unmap' detect_zeroes='unmap'/>
          <source file='/a.qcow2'/><target dev='vda' bus='virtio'/></disk>
        <disk type='file' device='disk'>
          <driver name='qemu' type='raw' discard='ignore' detect_zeroes='unmap'/>
          <source file='/b.img'/><target dev='vdb' bus='virtio'/></disk>
        <interface type='bridge'><source bridge='br0'/><model type='virtio'/>
          <driver rx_queue_size='1024' tx_queue_size='512' packed='on'/>
          <mtu size='9000'/></interface></devices>",
    );
    let spec = parsed.spec().unwrap();
    let of = |disk: &Disk| (disk.discard, disk.detect_zeroes);
    assert_eq!(of(&spec.disks[0]), (Some(Discard::Unmap), Some(ZeroDetection::Unmap)));
    assert_eq!(of(&spec.disks[1]), (None, Some(ZeroDetection::On)), "nothing is discarded");
    let nic = &spec.nics[0];
    assert_eq!((nic.rx_queue_size, nic.tx_queue_size), (Some(1024), Some(512)));
    assert_eq!((nic.packed, nic.mtu, parsed.kept.len()), (Some(true), Some(9000), 0));
    let again = settings(&emit(&spec).text).spec().unwrap();
    assert_eq!((&again.disks, &again.nics), (&spec.disks, &spec.nics));
}

#[test]
fn iothreads_share_the_queues_of_a_disk() {
    let parsed = domain(
        "<iothreads>3</iothreads>
        <clock offset='utc'><timer name='rtc' tickpolicy='catchup' track='guest'/></clock>
        <devices>
        <controller type='scsi' index='0' model='virtio-scsi'>
          <driver queues='2'><iothreads><iothread id='3'/><iothread id='1'/></iothreads></driver>
        </controller>
        <disk type='file' device='disk'>
          <driver name='qemu' type='raw' queues='3'><iothreads>
            <iothread id='2'><queue id='0'/><queue id='2'/></iothread>
            <iothread id='1'><queue id='1'/></iothread></iothreads></driver>
          <source file='/a.raw'/><target dev='vda' bus='virtio'/></disk>
        <disk type='file' device='disk'>
          <driver name='qemu' type='raw'/>
          <source file='/b.raw'/><target dev='sda' bus='scsi'/>
          <address type='drive' controller='0' bus='0' target='0' unit='0'/></disk></devices>",
    );
    let spec = parsed.spec().unwrap();
    let share =
        |iothread: u32, queues: &str| QueueIothread { iothread, queues: queues.parse().unwrap() };
    assert_eq!(spec.disks[0].queue_iothreads, [share(2, "0,2"), share(1, "1")]);
    assert_eq!(spec.disks[1].queue_iothreads, [share(3, ""), share(1, "")]);
    assert_eq!(spec.clock.rtc_track, Some(RtcTrack::Guest));
    assert!(parsed.kept.is_empty(), "{:?}", parsed.kept);
    let again = settings(&emit(&spec).text).spec().unwrap();
    assert_eq!((&again.disks, &again.clock), (&spec.disks, &spec.clock));
    // As QEMU has it, a list in JSON.
    let args = crate::qemu::emit_plain(&spec, &crate::qemu::Capabilities::current()).args;
    let device = args.iter().find(|one| one.contains("virtio-blk-pci")).unwrap();
    let device: serde_json::Value = serde_json::from_str(device).unwrap();
    let mapping = serde_json::json!([
        { "iothread": "iothread2", "vqs": [0, 2] },
        { "iothread": "iothread1", "vqs": [1] },
    ]);
    assert_eq!((&device["iothread-vq-mapping"], &device["num-queues"]), (&mapping, &3.into()));
    assert!(args.iter().any(|one| one == "driftfix=slew,clock=vm"), "{args:?}");
    assert_eq!(crate::qemu::parse_args(&args).settings.disks, spec.disks);
}

#[test]
fn queues_have_one_iothread_each() {
    let fault = |shares: &[(u32, &str)], queues: Option<u32>| {
        let disk = Disk {
            queues,
            queue_iothreads: shares
                .iter()
                .map(|(iothread, queues)| QueueIothread {
                    iothread: *iothread,
                    queues: queues.parse().unwrap(),
                })
                .collect(),
            ..Disk::new(DiskSource::File("/a".into()))
        };
        let settings = VmSettings {
            iothreads: 2,
            disks: vec![disk],
            ..VmSettings::new("vm", Arch::X86_64, Accel::Kvm, BootSource::Firmware)
        };
        VmSpec::new(settings).err().map(|error| error.to_string()).unwrap_or_default()
    };
    for (shares, queues, why) in [
        (&[(1, ""), (2, "")][..], None, ""),
        (&[(1, "0-1"), (2, "2-3")], Some(4), ""),
        (&[(1, "0-1"), (2, "2")], None, "does not say how many"),
        (&[(1, "0-1"), (2, "2")], Some(4), "gives the queues 0-2 to iothreads, but has 4"),
        (&[(1, "0-1"), (2, "1-3")], Some(4), "gives queue 1 to two"),
        (&[(1, "0-3"), (2, "")], Some(4), "of some iothreads, and not of others"),
        (&[(1, ""), (1, "")], None, "iothread 1 twice"),
        (&[(3, "")], None, "wants iothread 3, but the VM has 2"),
    ] {
        let found = fault(shares, queues);
        assert!(found.contains(why) && found.is_empty() == why.is_empty(), "{shares:?}: {found}");
    }
}

#[test]
fn iothreads_are_as_many_as_their_numbers_say() {
    let parsed = domain(
        "<iothreads>2</iothreads>
        <iothreadids><iothread id='2'/><iothread id='9'/><iothread id='4'/></iothreadids>
        <cputune><iothreadpin iothread='9' cpuset='3'/></cputune>
        <devices><disk type='file' device='disk'><driver name='qemu' iothread='4'/>
          <source file='/a.img'/><target dev='vda' bus='virtio'/></disk></devices>",
    );
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.iothreads, spec.disks[0].iothread), (3, Some(3)));
    assert_eq!(spec.pins.iothreads[&2], "3".parse().unwrap());
    assert_eq!(domain("<iothreads>4</iothreads>").settings.iothreads, 4);
}

#[test]
fn a_disk_without_a_bus_has_the_one_of_its_name() {
    let bus = |dev: &str| {
        let disk = format!("<disk type='file'><source file='/a'/><target dev='{dev}'/></disk>");
        let parsed = domain(&format!("<devices>{disk}</devices>"));
        parsed.settings.disks.first().map(|disk| disk.bus)
    };
    assert_eq!(bus("vda"), Some(DiskBus::VirtioBlk));
    assert_eq!(bus("hda"), Some(DiskBus::Ide));
    // libvirt adds a controller that is no virtio.
    assert_eq!(bus("sda"), None);
    assert_eq!(bus("xvda"), None);
    assert_eq!(bus("abc"), None);
    // Floppies are on a controller of their own, and no other drive may be called so.
    assert_eq!(bus("fda"), None);
    assert_eq!(bus_of_target(Some("floppy"), "fda"), Some("fdc"));
    assert_eq!(bus_of_target(Some("cdrom"), "sda"), Some("scsi"));
    assert_eq!(bus_of_target(Some("cdrom"), "abc"), Some("ide"));
}

#[test]
fn a_disk_of_another_controller_is_not_taken_for_virtio() {
    let check = |controller: &str, target: &str, expected: usize| {
        let parsed = domain(&format!(
            "<devices>{controller}<disk type='file' device='disk'><source file='/a.img'/>
               <target dev='{target}' bus='scsi'/></disk></devices>"
        ));
        assert_eq!(parsed.spec().unwrap().disks.len(), expected, "{controller}");
    };
    let controller = |index: u32, model: &str| {
        format!("<controller type='scsi' index='{index}' model='{model}'/>")
    };
    check("", "sda", 0);
    check(&controller(0, "lsilogic"), "sda", 0);
    check(&controller(0, "virtio-scsi"), "sda", 1);
    check(&controller(1, "virtio-scsi"), "sda", 0);
    check(&controller(1, "virtio-scsi"), "sdp", 1);
}

#[test]
fn what_libvirt_chooses_is_not_what_vmlab_would() {
    let parsed = domain("<os><type arch='x86_64'>hvm</type></os>");
    assert_eq!(parsed.settings.machine, "pc");
    let parsed = domain("<os><type arch='aarch64'>hvm</type></os>");
    assert_eq!(parsed.settings.machine, "virt");
    let memory = domain("<memoryBacking><access mode='shared'/></memoryBacking>").settings.memory;
    assert_eq!((memory.source, memory.shared), (Some(MemorySource::File), Some(true)));
    let auto = domain("<numatune><memory placement='auto' nodeset='0-3'/></numatune>");
    assert_eq!((auto.settings.memory.host_nodes, auto.kept.len()), (None, 1));
    let pit = domain("<clock><timer name='pit' tickpolicy='catchup'/></clock>");
    assert_eq!((pit.spec().unwrap().clock.pit, pit.kept.len()), (None, 1));
}
