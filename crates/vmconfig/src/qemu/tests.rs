//! Goldens of the command line. The slow test beside them holds each to the
//! real QEMU.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use crate::tests::{any_patch, direct, patch, with};
use crate::{Accel, Arch, BootSource, DiskFormat, PatchContext, VmSpec};

use super::*;

mod attached;
mod real;

fn debian_12() -> Capabilities {
    let text = include_str!("../../testdata/qemu-7.2.22/version.txt");
    Capabilities::from_version_text(text).unwrap()
}

fn channels(folder: &Path) -> Channels {
    Channels {
        qmp_socket: folder.join("qmp"),
        agent_socket: folder.join("agent"),
        done_socket: folder.join("done"),
        console_socket: folder.join("console.sock"),
        console_log: folder.join("console.log"),
    }
}

fn spec(text: &str) -> VmSpec {
    patch(text).resolve(&with(direct())).unwrap()
}

fn check_emit(spec: &VmSpec, capabilities: &Capabilities, expected: &Expect) {
    let emitted = emit(spec, &channels(Path::new("/run/vm")), capabilities);
    let mut text = emitted.option_lines().join("\n");
    for Loss { what, why, .. } in &emitted.losses {
        text.push_str(&format!("\n# lost: {what}: {why}"));
    }
    text.push('\n');
    expected.assert_eq(&text);
}

#[test]
fn a_plain_vm() {
    check_emit(
        &spec("vcpus = 2"),
        &debian_12(),
        &expect![[r#"
        -name guest=two,debug-threads=on
        -no-user-config
        -nodefaults
        -no-reboot
        -display none
        -vga none
        -nic none
        -machine q35
        -accel tcg
        -cpu max
        -smp 2,sockets=1,dies=1,cores=2,threads=1
        -m 1024M
        -kernel /img/vmlinuz
        -initrd /img/initrd.img
        -append 'root=/dev/vda console=ttyS0'
        -drive file=/img/root.img,if=none,id=root,format=raw,readonly=on,cache=writeback,aio=threads
        -device virtio-blk-pci,drive=root,serial=vmlab-root
        -chardev socket,id=qmp,path=/run/vm/qmp,server=off
        -mon chardev=qmp,mode=control
        -device virtio-serial-pci,id=vserial
        -chardev socket,id=agent,path=/run/vm/agent,server=off
        -device virtserialport,bus=vserial.0,nr=1,chardev=agent,id=agent,name=org.qemu.guest_agent.0
        -chardev socket,id=done,path=/run/vm/done,server=off
        -device virtserialport,bus=vserial.0,nr=2,chardev=done,id=done,name=org.vmlab.done.0
        -chardev socket,id=console,path=/run/vm/console.sock,server=off
        -serial chardev:console
        -device pvpanic-pci
    "#]],
    );
}

#[test]
fn every_field() {
    let spec = spec(
        "topology = { sockets = 2, dies = 2, cores = 2, threads = 2 }
         pins = { 0 = '2', 15 = '4-5' }
         emulator_pin = '0'
         memory_mib = 4096
         cpu_model = 'qemu64,-sse4.2'
         machine = 'pc,hpet=off'
         kernel_cmdline = 'idle=poll dyndbg=\"file a.c +p\"'
         extra_args = ['-device', 'virtio-rng-pci', '-no-hpet']",
    );
    check_emit(
        &spec,
        &debian_12(),
        &expect![[r#"
        -name guest=two,debug-threads=on
        -no-user-config
        -nodefaults
        -no-reboot
        -display none
        -vga none
        -nic none
        -machine pc,hpet=off
        -accel tcg
        -cpu qemu64,-sse4.2
        -smp 16,sockets=2,dies=2,cores=2,threads=2
        -m 4096M
        -kernel /img/vmlinuz
        -initrd /img/initrd.img
        -append 'root=/dev/vda console=ttyS0 idle=poll dyndbg="file a.c +p"'
        -drive file=/img/root.img,if=none,id=root,format=raw,readonly=on,cache=writeback,aio=threads
        -device virtio-blk-pci,drive=root,serial=vmlab-root
        -chardev socket,id=qmp,path=/run/vm/qmp,server=off
        -mon chardev=qmp,mode=control
        -device virtio-serial-pci,id=vserial
        -chardev socket,id=agent,path=/run/vm/agent,server=off
        -device virtserialport,bus=vserial.0,nr=1,chardev=agent,id=agent,name=org.qemu.guest_agent.0
        -chardev socket,id=done,path=/run/vm/done,server=off
        -device virtserialport,bus=vserial.0,nr=2,chardev=done,id=done,name=org.vmlab.done.0
        -chardev socket,id=console,path=/run/vm/console.sock,server=off
        -serial chardev:console
        -device pvpanic-pci
        -device virtio-rng-pci
        -no-hpet
        # lost: vCPU 0 on pCPU 2: QEMU's command line can't pin threads; vmlab sets their affinity when they run
        # lost: vCPU 15 on pCPU 4-5: QEMU's command line can't pin threads; vmlab sets their affinity when they run
        # lost: emulator thread on pCPU 0: QEMU's command line can't pin threads; vmlab sets their affinity when they run
    "#]],
    );
}

#[test]
fn a_disk_of_the_users_own() {
    let image = "/home/me/it's, mine.qcow2".into();
    let disk = with(BootSource::Disk { image, format: DiskFormat::Qcow2 });
    let spec = patch("").resolve(&PatchContext { name: "a,b", ..disk }).unwrap();
    check_emit(
        &spec,
        &debian_12(),
        &expect![[r#"
        -name guest=a,,b,debug-threads=on
        -no-user-config
        -nodefaults
        -no-reboot
        -display none
        -vga none
        -nic none
        -machine q35
        -accel tcg
        -cpu max
        -smp 1,sockets=1,dies=1,cores=1,threads=1
        -m 1024M
        -drive 'file=/home/me/it'\''s,, mine.qcow2,if=none,id=root,format=qcow2,snapshot=on,cache=unsafe'
        -device virtio-blk-pci,drive=root,bootindex=1
        -chardev socket,id=qmp,path=/run/vm/qmp,server=off
        -mon chardev=qmp,mode=control
        -device virtio-serial-pci,id=vserial
        -chardev socket,id=agent,path=/run/vm/agent,server=off
        -device virtserialport,bus=vserial.0,nr=1,chardev=agent,id=agent,name=org.qemu.guest_agent.0
        -chardev socket,id=done,path=/run/vm/done,server=off
        -device virtserialport,bus=vserial.0,nr=2,chardev=done,id=done,name=org.vmlab.done.0
        -chardev socket,id=console,path=/run/vm/console.sock,server=off
        -serial chardev:console
        -device pvpanic-pci
    "#]],
    );
}

#[test]
fn arm() {
    let with = PatchContext { arch: Arch::Aarch64, auto_accel: Accel::Kvm, ..with(direct()) };
    let spec = patch("topology = { clusters = 2, cores = 4 }").resolve(&with).unwrap();
    check_emit(
        &spec,
        &debian_12(),
        &expect![[r#"
        -name guest=two,debug-threads=on
        -no-user-config
        -nodefaults
        -no-reboot
        -display none
        -vga none
        -nic none
        -machine virt,gic-version=max
        -accel kvm
        -cpu host
        -smp 8,sockets=1,clusters=2,cores=4,threads=1
        -m 1024M
        -kernel /img/vmlinuz
        -initrd /img/initrd.img
        -append 'root=/dev/vda console=ttyS0'
        -drive file=/img/root.img,if=none,id=root,format=raw,readonly=on,cache=writeback,aio=threads
        -device virtio-blk-pci,drive=root,serial=vmlab-root
        -chardev socket,id=qmp,path=/run/vm/qmp,server=off
        -mon chardev=qmp,mode=control
        -device virtio-serial-pci,id=vserial
        -chardev socket,id=agent,path=/run/vm/agent,server=off
        -device virtserialport,bus=vserial.0,nr=1,chardev=agent,id=agent,name=org.qemu.guest_agent.0
        -chardev socket,id=done,path=/run/vm/done,server=off
        -device virtserialport,bus=vserial.0,nr=2,chardev=done,id=done,name=org.vmlab.done.0
        -chardev socket,id=console,path=/run/vm/console.sock,server=off
        -serial chardev:console
        -device pvpanic-pci
    "#]],
    );
}

#[test]
fn versions_become_abilities() {
    let check = |name: &str, version: &str, query_stats: bool, tcg_x2apic: bool| {
        let text = format!("QEMU emulator version {name}\nCopyright (c) 2003-2022 Fabrice Bellard");
        let found = Capabilities::from_version_text(&text).unwrap();
        assert_eq!(found.version.to_string(), version);
        assert_eq!((found.query_stats, found.tcg_x2apic), (query_stats, tcg_x2apic), "{name}");
    };
    check("6.2.0 (Debian 1:6.2+dfsg-2ubuntu6.22)", "6.2.0", false, false);
    check("7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)", "7.2.22", true, false);
    check("8.2.2 (qemu-8.2.2-1.fc40)", "8.2.2", true, false);
    check("9.1.0-rc2", "9.1.0", true, true);
    check("10.0.2 (Debian 1:10.0.2+ds-2)", "10.0.2", true, true);
    check("10.1", "10.1.0", true, true);

    let refused = |text: &str, expected: &str| {
        let error = Capabilities::from_version_text(text).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    refused(
        "QEMU emulator version 5.2.0 (Debian)",
        "QEMU 5.2.0 is too old: install 6.2.0 or newer",
    );
    refused("", "Not what QEMU --version prints: \"\"");
    refused(
        "QEMU emulator version x",
        "Not what QEMU --version prints: \"QEMU emulator version x\"",
    );
}

#[test]
fn limits_are_those_of_machine_version_and_accelerator() {
    let at = |version: &str| {
        Capabilities::from_version_text(&format!("QEMU emulator version {version}")).unwrap()
    };
    let check = |text: &str, version: &str, expected: &[&str]| {
        let kvm = PatchContext { auto_accel: Accel::Kvm, ..with(direct()) };
        let findings = super::check(&patch(text).resolve(&kvm).unwrap(), &at(version));
        let found: Vec<_> = findings.iter().map(|finding| finding.message.as_str()).collect();
        assert_eq!(found, expected, "{text}");
    };
    check("vcpus = 288", "7.2.0", &[]);
    check(
        "vcpus = 289",
        "7.2.0",
        &["vcpus 289 is more than machine \"q35\" of QEMU 7.2.0 takes: 288"],
    );
    check("vcpus = 1024", "8.1.0", &[]);
    check("vcpus = 4096", "9.0.0", &[]);
    check(
        "vcpus = 300\nmachine = 'pc-q35-7.2'",
        "9.0.0",
        &["vcpus 300 is more than machine \"pc-q35-7.2\" of QEMU 9.0.0 takes: 288"],
    );
    check(
        "vcpus = 256\nmachine = 'pc,hpet=off'",
        "9.0.0",
        &["vcpus 256 is more than machine \"pc\" of QEMU 9.0.0 takes: 255"],
    );
    check("vcpus = 255\naccel = 'tcg'", "7.2.0", &[]);
    check("vcpus = 256\naccel = 'tcg'", "9.0.0", &[]);
    check(
        "vcpus = 256\naccel = 'tcg'",
        "7.2.0",
        &["vcpus 256 (sockets=1,dies=1,clusters=1,cores=256,threads=1) need 256 APIC ids, but \
           accel tcg of QEMU 7.2.0 has 255: take fewer vCPUs, accel kvm, or QEMU 9.0"],
    );
    // Three cores take two bits: every fourth id stays unused.
    check("topology = { sockets = 64, cores = 3 }\naccel = 'tcg'", "7.2.0", &[]);
    check(
        "topology = { sockets = 65, cores = 3 }\naccel = 'tcg'",
        "7.2.0",
        &["vcpus 195 (sockets=65,dies=1,clusters=1,cores=3,threads=1) need 259 APIC ids, but \
           accel tcg of QEMU 7.2.0 has 255: take fewer vCPUs, accel kvm, or QEMU 9.0"],
    );
    check(
        "topology = { clusters = 2 }",
        "7.2.0",
        &["topology sockets=1,dies=1,clusters=2,cores=1,threads=1 has 2 clusters, which machine \
           \"q35\" of QEMU 7.2.0 does not have: write clusters = 1"],
    );
    check("machine = 'microvm,pcie=on'", "7.2.0", &[]);
    check(
        "machine = 'microvm'",
        "7.2.0",
        &["machine \"microvm\" has no PCI bus for the disk and the guest agent: write \
           machine = \"microvm,pcie=on\""],
    );
    check(
        "machine = 'isapc'",
        "7.2.0",
        &["machine \"isapc\" has no PCI bus for the disk and the guest agent: write machine = \
           \"q35\""],
    );
    check(
        "topology = { dies = 2 }\nmachine = 'microvm,pcie=on'",
        "7.2.0",
        &["topology sockets=1,dies=2,clusters=1,cores=1,threads=1 has 2 dies, which machine \
           \"microvm\" of QEMU 7.2.0 does not have: write dies = 1"],
    );
}

proptest! {
    #[test]
    fn lines_say_the_arguments(patch in any_patch()) {
        let Ok(spec) = patch.resolve(&with(direct())) else { return Ok(()) };
        let channels = channels(Path::new("/run/it's a VM"));
        let emitted = emit(&spec, &channels, &debian_12());
        prop_assert_eq!(&emitted, &emit(&spec, &channels, &debian_12()));
        prop_assert_eq!(emitted.losses.len(), spec.pins.vcpus.len() + usize::from(spec.pins.emulator.is_some()));
        prop_assert!(emitted.option_lines().iter().all(|line| line.starts_with('-')));
    }

    #[test]
    fn a_shell_reads_the_lines_as_the_arguments(args in prop::collection::vec("[ -~äß€]{0,9}", 1..4)) {
        prop_assert_eq!(words(&crate::command_line::shell::join(&args)), args);
    }
}

/// The words of a POSIX shell's line that holds plain and single-quoted text
/// and escaped quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut escaped) = (Vec::new(), String::new(), false, false);
    for c in line.chars() {
        match c {
            c if escaped => {
                word.push(c);
                escaped = false;
            }
            '\'' => quoted = !quoted,
            '\\' if !quoted => escaped = true,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_as_the_same_vm(spec in crate::tests::any_spec()) {
        let emitted = emit(&spec, &channels(Path::new("/run/vm")), &debian_12());
        let text = format!("qemu-system-x86_64 {}", emitted.option_lines().join(" \\\n  "));
        let parsed = parse(&text).unwrap();
        crate::tests::check_round_trip(&spec, &text, &emitted.losses, &parsed);
        let plain = emit_plain(&spec, &debian_12());
        let parsed = parse_args(&plain.args);
        crate::tests::check_round_trip(&spec, &text, &plain.losses, &parsed);
        let extra = spec.extra_args.len();
        prop_assert!(parsed.kept.len() <= extra, "{:?}", parsed.kept);
    }

    #[test]
    fn any_text_is_read_without_harm(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_options_are_read_without_harm(
        words in prop::collection::vec(prop::sample::select(PIECES), 0..12),
    ) {
        if let Ok(parsed) = parse(&words.concat()) {
            let _ = parsed.spec();
        }
    }
}

const PIECES: &[&str] = &[
    " -smp ",
    " -numa ",
    " -object ",
    "node,",
    "cpus=0-3,",
    "memdev=m",
    "memory-backend-ram,id=m,size=1",
    "G",
    " -drive ",
    "file=a,if=none,id=d,",
    " -device ",
    "virtio-blk-pci,drive=d",
    "scsi-hd,bus=s.0,drive=d",
    "virtio-scsi-pci,id=s",
    " -netdev ",
    "tap,id=n,",
    "ifname=t",
    "virtio-net-pci,netdev=n",
    "\n",
    "\\",
    "'",
    " -blockdev ",
    "'{\"driver\":\"raw\",\"node-name\":\"d\",\"file\":\"d\"}'",
    "-",
    "4",
    "dist,src=0,dst=9,val=1",
    "sockets=0,",
    "maxcpus=99999999999",
    "host-nodes=0-65535,",
    "-M",
    " q35,",
    "accel=",
    "kvm",
    "#",
    "\"",
];
