//! The real libvirt, where `RUN_SLOW_TESTS=1` asks for it: its schema, and the
//! QEMU driver without a daemon (`qemu:///embed`), in a folder of its own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};

use crate::tests::patch;
use crate::{Accel, Arch, Boot, DiskSource, Resolve, VmSpec};

use super::*;

/// True if the test can be made.
fn wanted(program: &str) -> bool {
    if std::env::var_os("RUN_SLOW_TESTS").is_none_or(|value| value != "1") {
        eprintln!("SKIP: RUN_SLOW_TESTS is not 1");
        return false;
    }
    let found = Command::new(program).arg("--version").output();
    if let Err(error) = &found {
        eprintln!("SKIP: {program}: {error}");
    }
    found.is_ok()
}

/// What a program says against an input file, if anything.
fn complaint(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    let output = Command::new(program).args(arguments).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(text)
}

#[test]
fn its_schema_takes_every_vm() {
    if !wanted("virt-xml-validate") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("domain.xml");
    let config = Config::default();
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    for _ in 0..60 {
        let spec = any_spec().new_tree(&mut runner).unwrap().current();
        // A device that its own bus refuses is not for the schema to know.
        let text = emit(&spec).text;
        std::fs::write(&file, &text).unwrap();
        if let Some(said) = complaint("virt-xml-validate", &[], &file) {
            panic!("{said}\n{text}");
        }
    }
}

fn vm(name: &str, text: &str) -> VmSpec {
    let with = Resolve {
        name,
        arch: Arch::X86_64,
        auto_accel: Accel::Tcg,
        boot: Boot::Kernel { kernel: "/boot/vmlinuz".into(), initrd: None },
    };
    patch(text).resolve(&with).unwrap()
}

/// virsh below a shell that is process 1 of its own namespace, where that can be
/// had: libvirt waits for each QEMU that it probed to be gone, and not every
/// machine's process 1 collects orphans.
fn virsh(uri: &str) -> Command {
    let namespace = ["--pid", "--fork", "--mount-proc"];
    let tried = Command::new("unshare").args(namespace).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        let mut command = Command::new("virsh");
        command.args(["-q", "-c", uri]);
        return command;
    }
    let mut command = Command::new("unshare");
    command.args(namespace).args(["sh", "-c", "virsh -q -c \"$1\"; exit $?", "sh", uri]);
    command
}

#[test]
fn it_defines_the_vm_and_says_the_same_to_qemu() {
    if !wanted("virsh") {
        return;
    }
    // Few and full: the QEMU driver probes QEMU for each.
    let specs = [
        "topology = { sockets = 2, dies = 2, cores = 2, threads = 2 }\npins = ['0', '1-2']
         emulator_pin = '0'\niothreads = 2\niothread_pins = { 1 = '0' }
         scheduler = { vcpus = 'fifo:1', emulator = 'fifo:2', iothreads = 'rr:3' }
         memory_mib = 2048\nmemory = { source = 'memfd', shared = true, prealloc = true,
         prealloc_threads = 2, nosharepages = true }\nnuma = [ {}, { distances = { 0 = 21 } } ]
         disks = [ { source = { file = '/img/a, b.raw' }, cache = 'none',
         io = 'native', iothread = 1, queues = 2, readonly = true }, { source = { block = '/dev/null' },
         bus = 'virtio-scsi', iothread = 2, queues = 2, io = 'threads' },
         { source = { file = '/img/c.qcow2' }, format = 'qcow2', bus = 'sata' } ]",
        "vcpus = 4\nmax_vcpus = 8\nmemory_mib = 512
         memory = { host_nodes = '0' }\nkernel_cmdline = 'quiet idle=poll'
         cpu_features = ['+x2apic', '-hypervisor', 'kvm-asyncpf=off']\nhints = { cpu_pm = true,
         poll_control = true, kvm_hint_dedicated = true, pv_spinlocks = true }
         clock = { hpet = false, kvmclock = true, rtc = 'catchup' }
         nics = [ { backend = 'user', mac = '52:54:00:12:34:56' },
         { backend = { tap = { ifname = 'tap0' } }, vhost = false } ]",
    ];
    let specs: Vec<VmSpec> =
        specs.iter().zip(["one", "two"]).map(|(text, name)| vm(name, text)).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut script = String::new();
    for (number, spec) in specs.iter().enumerate() {
        let file = folder.path().join(format!("{number}.xml"));
        std::fs::write(&file, emit(spec).text).unwrap();
        let file = file.display();
        script.push_str(&format!(
            "echo \"## {number}\"\ndefine {file}\ndomxml-to-native qemu-argv --xml {file}\n"
        ));
    }
    let uri = format!("qemu:///embed?root={}", folder.path().join("root").display());
    let mut virsh = virsh(&uri)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    virsh.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = virsh.wait_with_output().unwrap();
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let answers: Vec<&str> = said.split("\n## ").skip(1).collect();
    assert_eq!(answers.len(), specs.len(), "{said}\n{errors}");
    // It says nothing about a definition that it takes.
    assert!(!errors.contains("error:"), "{errors}\n{said}");
    for (spec, answer) in specs.iter().zip(answers) {
        let line = answer.lines().find(|line| line.contains("qemu-system-x86_64"));
        let line = line.unwrap_or_else(|| panic!("{}\n{answer}\n{errors}", emit(spec).text));
        let told = crate::qemu::parse(line).unwrap().settings;
        let place = |disk: &Disk| match &disk.source {
            DiskSource::File(path) | DiskSource::Block(path) => path.clone(),
            _ => unreachable!(),
        };
        // The virtual machine's essence went through two programs of others.
        assert_eq!(
            (told.topology, told.vcpus(), told.max_vcpus(), told.memory_mib),
            (spec.topology, spec.vcpus(), spec.max_vcpus(), spec.memory_mib),
            "{line}"
        );
        assert_eq!((told.iothreads, &told.hints.cpu_pm), (spec.iothreads, &spec.hints.cpu_pm));
        assert_eq!(told.clock.hpet.or(Some(true)), spec.clock.hpet.or(Some(true)), "{line}");
        let numa = |nodes: &[GuestNode]| {
            nodes.iter().map(|node| (node.vcpus.clone(), node.memory_mib)).collect::<Vec<_>>()
        };
        assert_eq!(numa(&told.numa), numa(&spec.numa), "{line}");
        assert_eq!(
            told.disks.iter().map(place).collect::<Vec<_>>(),
            spec.disks.iter().map(place).collect::<Vec<_>>(),
            "{line}"
        );
        for (told, asked) in told.disks.iter().zip(&spec.disks) {
            assert_eq!(
                (told.io, told.iothread, told.queues, told.bus, told.format, told.readonly),
                (asked.io, asked.iothread, asked.queues, asked.bus, asked.format, asked.readonly),
                "{line}"
            );
        }
        assert_eq!(told.kernel_cmdline, spec.kernel_cmdline, "{line}");
    }
}
