//! The real QEMU: it takes every command line and builds the topology that was asked for.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use suite::{SharedThing, Tier, needs};

use super::*;

const LIMIT: Duration = suite::PATIENCE;

/// A QEMU to ask.
struct Qemu {
    program: PathBuf,
    capabilities: Capabilities,
}

impl Qemu {
    fn new(program: impl Into<PathBuf>) -> Option<Self> {
        let program = program.into();
        match Command::new(&program).arg("--version").output() {
            Ok(output) => {
                let text = String::from_utf8(output.stdout).unwrap();
                let capabilities = Capabilities::from_version_text(&text).unwrap();
                Some(Self { program, capabilities })
            }
            Err(error) => {
                suite::skip(format!("{}: {error}", program.display()));
                None
            }
        }
    }

    /// The one that is installed.
    fn installed() -> Option<Self> {
        Self::new("qemu-system-x86_64")
    }

    /// A newer one.
    fn fetched() -> Option<Self> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/get-qemu");
        let output = Command::new(script).output().unwrap();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            suite::skip(format!("scripts/get-qemu fetched none: {said}"));
            return None;
        }
        Self::new(String::from_utf8(output.stdout).unwrap().trim())
    }
}

/// Something that QEMU takes for a Linux kernel of boot protocol 2.4.
fn kernel_of_nothing() -> Vec<u8> {
    let mut kernel = vec![0; 64 << 10];
    kernel[0x1f1] = 4;
    kernel[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    kernel[0x202..0x206].copy_from_slice(b"HdrS");
    kernel[0x206..0x208].copy_from_slice(&[0x04, 0x02]);
    kernel[0x211] = 1;
    kernel[0x22c..0x230].copy_from_slice(&0x37ff_ffff_u32.to_le_bytes());
    kernel
}

/// A QEMU whose guest is stopped before its first instruction.
struct StoppedQemu {
    child: Child,
    lines: BufReader<UnixStream>,
    _channels: Vec<UnixListener>,
}

impl StoppedQemu {
    /// Starts it, or gives what it said instead.
    fn start(spec: &VmSpec, folder: &Path, qemu: &Qemu) -> Result<Self, String> {
        let channels = channels(folder);
        let listen = |path: &Path| UnixListener::bind(path).unwrap();
        let qmp = listen(&channels.qmp_socket);
        let others = [&channels.agent_socket, &channels.done_socket, &channels.console_socket];
        let others = others.map(|path| listen(path)).into();
        let mut child = Command::new(&qemu.program)
            .args(emit(spec, &channels, &qemu.capabilities).args)
            .arg("-S")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        qmp.set_nonblocking(true).unwrap();
        let deadline = Instant::now() + LIMIT;
        let stream = loop {
            if let Ok((stream, _)) = qmp.accept() {
                break stream;
            }
            let ended = child.try_wait().unwrap().is_some();
            if ended || Instant::now() > deadline {
                let _ = child.kill();
                let mut text = String::new();
                child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
                child.wait().unwrap();
                return Err(text);
            }
            std::thread::yield_now();
        };
        stream.set_nonblocking(false).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut started = Self { child, lines: BufReader::new(stream), _channels: others };
        // QEMU connects before it builds the machine, so it may still refuse.
        match started.try_ask("qmp_capabilities") {
            Ok(_) => Ok(started),
            Err(_) => Err(started.last_words()),
        }
    }

    fn ask(&mut self, command: &str) -> Value {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    fn try_ask(&mut self, command: &str) -> Result<Value, Box<dyn std::error::Error>> {
        writeln!(self.lines.get_mut(), "{}", json!({ "execute": command }))?;
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line)?;
            let mut answer: Value = serde_json::from_str(&line)?;
            if answer.get("error").is_some() {
                return Err(line.into());
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    /// What QEMU says when it ends by itself.
    fn last_words(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for StoppedQemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is wrong if the real QEMU does not build what was asked for.
fn check_real(text: &str, qemu: &Qemu) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let boot = if text.contains("image") {
        // A comma and a quote in the path must do no harm.
        BootSource::Disk { image: file("it's, mine.raw", &[0; 1 << 20]), format: DiskFormat::Raw }
    } else {
        BootSource::Direct {
            kernel: file("vmlinuz", &kernel_of_nothing()),
            initrd: file("initrd", &[0; 4096]),
            root_image: file("root,image", &[0; 1 << 20]),
            cmdline: vec!["root=/dev/vda".to_owned()],
        }
    };
    for name in ["a.img", "b.img", "c.img"] {
        file(name, &[0; 1 << 20]);
    }
    let text = &text.replace("FOLDER", folder.path().to_str().unwrap());
    let spec = patch(text).resolve(&with(boot)).unwrap();
    let findings = super::check(&spec, &qemu.capabilities);
    let started = StoppedQemu::start(&spec, folder.path(), qemu);
    if !findings.is_empty() {
        let said = started.err().unwrap_or_else(|| panic!("{text}: QEMU takes it: {findings:?}"));
        assert!(!said.is_empty(), "{text}");
        return;
    }
    let mut qemu = started.unwrap_or_else(|said| panic!("{text}: {said}"));
    assert!(matches!(qemu.ask("query-status")["status"].as_str(), Some("prelaunch" | "paused")));
    let threads = qemu.ask("query-cpus-fast");
    assert_eq!(threads.as_array().unwrap().len(), spec.vcpus() as usize, "{text}");
    let memory = qemu.ask("query-memory-size-summary");
    assert_eq!(memory["base-memory"].as_u64(), Some(spec.memory_mib << 20), "{text}");

    // A machine without hotplug has no slots; its vCPUs know their place too.
    let slots = qemu.try_ask("query-hotpluggable-cpus").unwrap_or(threads);
    let slots = slots.as_array().unwrap();
    assert_eq!(slots.len(), spec.max_vcpus() as usize, "{text}");
    for (level, key) in [
        ("sockets", "socket-id"),
        ("dies", "die-id"),
        ("cores", "core-id"),
        ("threads", "thread-id"),
    ] {
        let ids: std::collections::BTreeSet<u64> =
            slots.iter().filter_map(|slot| slot["props"][key].as_u64()).collect();
        let asked = spec.topology.levels().into_iter().find(|(name, _)| *name == level).unwrap().1;
        let expected: Vec<u64> = (0..u64::from(asked)).collect();
        // QEMU leaves out a level that the machine doesn't have.
        if !ids.is_empty() || asked > 1 {
            assert_eq!(ids.into_iter().collect::<Vec<_>>(), expected, "{text}: {level}");
        }
    }
}

/// What every version takes, or refuses where [`super::check`] says so.
fn check_all(qemu: &Qemu) {
    for text in [
        "",
        "vcpus = 2",
        "vcpus = 3\npins = ['0', '0', '0']",
        "topology = { sockets = 2, dies = 2, cores = 2, threads = 2 }",
        "topology = { sockets = 2, dies = 2, threads = 2 }\nmachine = 'pc,hpet=off'",
        "vcpus = 2\nmachine = 'pc-q35-6.2'\ncpu_model = 'qemu64,-sse4.2'",
        "kernel_cmdline = 'idle=poll, dyndbg=\"file\"'\nextra_args = ['-device', 'virtio-rng-pci']",
        "image = 'own.raw'",
        "image = 'own.raw'\nmachine = 'pc'",
        "vcpus = 2\nmax_vcpus = 4",
        "vcpus = 4\nnuma = [ {}, { distances = { 0 = 21 } } ]",
        "vcpus = 2\nmemory = { source = 'memfd', shared = true, prealloc = true,
         prealloc_threads = 2, nosharepages = true, host_nodes = '0' }",
        "hints = { cpu_pm = true, kvm_hint_dedicated = true, poll_control = true, pv_eoi = true,
         pv_spinlocks = true, pv_ipi = false, pmu = false, hyperv = ['relaxed'],
         hyperv_spinlocks = 8191 }\ncpu_cache = 'passthrough'
         clock = { kvmclock = false, hpet = false, rtc = 'catchup', base = 'localtime' }",
        "iothreads = 2\ndisks = [ { source = { file = 'FOLDER/a.img' }, cache = 'none', io = 'native',
         iothread = 1, queues = 2, serial = 'a,b' }, { source = { file = 'FOLDER/b.img' },
         bus = 'virtio-scsi', iothread = 2, queues = 2, io = 'threads', transient = true },
         { source = { file = 'FOLDER/c.img' }, bus = 'sata', transient = true } ]
         nics = [ { backend = 'user', mac = '52:54:00:12:34:56' },
         { backend = 'user', model = 'e1000e' } ]",
        "vcpus = 2\nnuma = [ { source = 'file' }, { source = 'memfd', shared = true, prealloc = true } ]
         disks = [ { source = { file = 'FOLDER/a.img' }, discard = 'unmap',
         detect_zeroes = 'unmap' } ]
         nics = [ { backend = 'user', rx_queue_size = 1024, tx_queue_size = 256 } ]",
        "topology = { clusters = 2 }",
        "topology = { dies = 2 }\nmachine = 'microvm,pcie=on'",
        "machine = 'microvm'",
        "machine = 'microvm,pcie=on'",
        "machine = 'isapc'",
    ] {
        check_real(&format!("{BASE}{text}"), qemu);
    }
}

const BASE: &str = "memory_mib = 64\naccel = 'tcg'\n";

#[test]
fn it_takes_what_is_emitted_and_refuses_what_is_found() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some(qemu) = Qemu::installed() else { return };
    check_all(&qemu);
    // The limits that this test's QEMU has.
    let version = qemu.capabilities.version;
    if (version.major, version.minor) == (7, 2) {
        for text in [
            "vcpus = 255",
            "vcpus = 256",
            "vcpus = 289",
            "topology = { sockets = 64, cores = 3 }",
            "topology = { sockets = 65, cores = 3 }",
            "vcpus = 256\nmachine = 'pc'",
        ] {
            check_real(&format!("{BASE}{text}"), &qemu);
        }
    }
}

#[test]
fn so_does_a_newer_one() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).alone_with(SharedThing::Cache).turn() else {
        return;
    };
    let Some(qemu) = Qemu::fetched() else { return };
    assert!(qemu.capabilities.version.major >= 10, "{}", qemu.capabilities.version);
    check_all(&qemu);
    // More than the older takes.
    check_real(&format!("{BASE}vcpus = 289"), &qemu);
    // An emulated model without x2APIC is refused, and taken with what is added.
    let many = format!("{BASE}cpu_model = 'qemu64'\nvcpus = 288");
    check_real(&many, &qemu);
    let spec = patch(&many).resolve(&with(BootSource::Firmware)).unwrap();
    let (whole, added) = spec.with_extended_interrupts().unwrap();
    assert_eq!((added.len(), super::check(&whole, &qemu.capabilities)), (3, Vec::new()));
    let folder = tempfile::tempdir().unwrap();
    let mut started = StoppedQemu::start(&whole, folder.path(), &qemu).unwrap();
    assert_eq!(started.ask("query-cpus-fast").as_array().unwrap().len(), 288);
}

/// Whether what QEMU makes of a guest's locked instruction is one for the host, too.
fn locks(spec: &VmSpec, qemu: &Qemu) -> bool {
    // A processor begins 16 bytes below the end of the firmware:
    // lock addw $0, 0x1000; movb $0, %al; outb %al, $0xf4, which ends QEMU.
    let code = [0xf0, 0x83, 0x06, 0x00, 0x10, 0x00, 0xb0, 0x00, 0xe6, 0xf4];
    let mut firmware = vec![0_u8; 64 << 10];
    firmware[0xfff0..][..code.len()].copy_from_slice(&code);
    let folder = tempfile::tempdir().unwrap();
    let (file, log) = (folder.path().join("firmware"), folder.path().join("operations"));
    std::fs::write(&file, firmware).unwrap();
    let ended = Command::new(&qemu.program)
        .args(emit_plain(spec, &qemu.capabilities).args)
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-d", "op", "-bios"])
        .args([&file, Path::new("-D"), &log])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    // Not 0, which would be the end of a QEMU that executed none of it.
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let operations = std::fs::read_to_string(log).unwrap();
    // The last of the instructions is among them.
    assert!(operations.contains("outb"), "{operations}");
    operations.contains("call atomic_")
}

/// An emulated guest of one vCPU orders what it writes into its rings for QEMU's
/// threads.
fn check_order(qemu: &Qemu) {
    let spec = patch(BASE).resolve(&with(BootSource::Firmware)).unwrap();
    // Where this no longer holds, room for a second vCPU is needed no more.
    assert!(!locks(&spec, qemu), "{}", qemu.capabilities.version);
    assert!(locks(&spec.with_ordered_rings().unwrap(), qemu), "{}", qemu.capabilities.version);
    let two = patch(&format!("{BASE}vcpus = 2")).resolve(&with(BootSource::Firmware)).unwrap();
    assert!(locks(&two, qemu), "{}", qemu.capabilities.version);
}

#[test]
fn an_emulated_guest_orders_its_rings() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some(qemu) = Qemu::installed() else { return };
    check_order(&qemu);
}

#[test]
fn so_it_orders_them_in_a_newer_one() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).alone_with(SharedThing::Cache).turn() else {
        return;
    };
    let Some(qemu) = Qemu::fetched() else { return };
    check_order(&qemu);
}
