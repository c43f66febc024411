//! The real guest under TCG, and fakes that lie.

mod arm64;

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use suite::{PATIENCE, Tier, needs, skip};
use thinguest::{Apic, ClockSource, MAX_N, TimerIrq, write_record};
use vmconfig::qemu::emit_serial;
use vmconfig::{Accel, Arch, BootSource, VmSettings, VmSpec};

use super::*;

fn item(operation: Operation, n: u32) -> Item {
    Item::new(operation, n, 1)
}

/// A QEMU that only sleeps, and a guest that says `lines`, then waits.
fn fake(items: &[Item], said: &[u8]) -> (tempfile::TempDir, ThinVm) {
    fake_qemu(items, said, "exec sleep 1000", "")
}

/// A QEMU that prints and stops its VM.
fn fake_that_prints(items: &[Item], printed: &str) -> (tempfile::TempDir, ThinVm) {
    let program = format!("printf '%s' \"{printed}\" >&2; exec sleep 1000");
    fake_qemu(items, b"", &program, "{\"event\": \"STOP\"}\n")
}

fn fake_qemu(
    items: &[Item],
    said: &[u8],
    program: &str,
    event: &'static str,
) -> (tempfile::TempDir, ThinVm) {
    let folder = tempfile::tempdir().unwrap();
    let channels = SerialChannels {
        qmp_socket: folder.path().join("qmp"),
        serial_socket: folder.path().join("serial"),
    };
    let connect = |path: &Path| {
        let path = path.to_owned();
        move || suite::until("a socket to connect to", || UnixStream::connect(&path).ok())
    };
    let (to_qmp, to_serial) = (connect(&channels.qmp_socket), connect(&channels.serial_socket));
    std::thread::spawn(move || {
        let mut qmp = to_qmp();
        qmp.write_all(b"{\"QMP\": {}}\n").unwrap();
        let mut buffer = [0; 4096];
        for id in 1.. {
            if !qmp.read(&mut buffer).is_ok_and(|length| length > 0) {
                return;
            }
            let (value, behind) = match id {
                1 => ("{}", ""),
                2 => ("[{\"cpu-index\": 0, \"thread-id\": 1}]", ""),
                // It goes on.
                3 => ("{}", event),
                // Whatever else is asked: registers.
                _ => ("\"RIP=1234\"", ""),
            };
            let answer = format!("{{\"return\": {value}, \"id\": {id}}}\n{behind}");
            if qmp.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
    });
    let said = said.to_vec();
    std::thread::spawn(move || {
        let mut serial = to_serial();
        // The VM may have heard enough.
        let _ = serial.write_all(&said);
        let _ = serial.read(&mut [0; 16]);
    });
    let launch = ThinLaunch {
        qemu: "/bin/sh".into(),
        args: vec!["-c".to_owned(), program.to_owned()],
        channels,
        env: Vec::new(),
        items: items.to_vec(),
        start_limit: crate::START_LIMIT,
    };
    let vm = ThinVm::start(&launch, &Cancel::new()).unwrap();
    (folder, vm)
}

#[test]
fn a_start_has_the_limit_that_the_launch_says() {
    // How many are connected, and what is said of a QEMU that says nothing. Who must be
    // connected by then has the time for it on a busy host.
    let cases = [(1, 200, "did not connect within 0.2 s"), (2, 3000, "did not answer within 3")];
    for (connected, limit_ms, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name| folder.path().join(name);
        let launch = ThinLaunch {
            qemu: "/bin/sh".into(),
            args: vec!["-c".to_owned(), "exec sleep 1000".to_owned()],
            channels: SerialChannels { qmp_socket: socket("qmp"), serial_socket: socket("serial") },
            env: Vec::new(),
            items: Vec::new(),
            start_limit: Duration::from_millis(limit_ms),
        };
        let paths = [launch.channels.serial_socket.clone(), launch.channels.qmp_socket.clone()];
        let client = std::thread::spawn(move || {
            paths[..connected].iter().for_each(|path| {
                let mut stream = suite::until("a socket", || UnixStream::connect(path).ok());
                // Until QEMU's other end is closed.
                std::thread::spawn(move || stream.read_to_end(&mut Vec::new()));
            });
        });
        let error = ThinVm::start(&launch, &Cancel::new()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        client.join().unwrap();
    }
}

fn line(seq: u32, record: Record) -> String {
    let mut text = String::new();
    write_record(&mut text, seq, &record).unwrap();
    text
}

fn hello() -> Record {
    Record::Hello(Hello {
        vcpus: 1,
        started: 1,
        apic: thinguest::Apic::Xapic,
        tsc_khz: 1_000_000,
        clock: ClockSource::Timer,
        deadline: false,
        kvm: false,
        timer_irq: None,
    })
}

fn first_failure(items: &[Item], said: &str, limit: Duration) -> ThinFailure {
    let (_folder, mut vm) = fake(items, said.as_bytes());
    loop {
        match vm.next(limit, &Cancel::new()) {
            Ok(ThinMessage::Bye) => panic!("nothing failed"),
            Ok(_) => {}
            Err(failure) => return failure,
        }
    }
}

#[test]
fn a_lying_line_is_told() {
    let items = [item(Operation::Cpuid, 10)];
    let check = |said: String, why: Lie| {
        let failure = first_failure(&items, &said, PATIENCE);
        assert!(
            matches!(&failure, ThinFailure::Lie { why: found, .. } if *found == why),
            "{failure}"
        );
    };
    let begin = format!("SeaBIOS\n{}", line(0, hello()));
    let done = Measurement {
        operation: Operation::Cpuid,
        n: 10,
        warmup: 1,
        batch: 1,
        min: 1,
        median: 2,
        p99: 3,
        sum: 20,
        ipis: 0,
        hlts: 0,
    };
    let wrong = line(1, Record::Done(done)).replace("median=2", "median=1");
    check(format!("{begin}{wrong}"), Lie::Bad(BadRecord::Checksum));
    check(format!("{begin}garbage\n"), Lie::Bad(BadRecord::NoRecord));
    check(format!("{begin}{}", line(2, Record::Done(done))), Lie::OutOfOrder { due: 1 });
    check(line(0, Record::Bye), Lie::OutOfOrder { due: 0 });
    check(format!("{begin}{}", line(1, Record::Bye)), Lie::NotAsked);
    check(format!("{begin}{}", line(1, Record::Done(Measurement { n: 9, ..done }))), Lie::NotAsked);
    let other = Record::Skipped(Operation::Call, Skip::Faulted);
    check(format!("{begin}{}", line(1, other)), Lie::NotAsked);
    check(format!("{begin}@{}\n", "x".repeat(10_000)), Lie::TooLong);
}

#[test]
fn the_reason_why_kvm_gave_up_is_none_of_qemu_s_warnings() {
    let printed = "qemu-system-x86_64: warning: host doesn't support requested feature\n\
                   KVM internal error. Suberror: 1\nemulation failure\n\
                   EAX=00000000 EBX=00000000\nCode=0f 01 d9\n";
    let why = why_kvm_gave_up(printed).unwrap();
    assert_eq!(why, "KVM internal error. Suberror: 1; emulation failure");
    let why = why_kvm_gave_up("warning: TCG\nerror: kvm run failed Function not implemented\n");
    assert_eq!(why.as_deref(), Some("error: kvm run failed Function not implemented"));
    assert_eq!(why_kvm_gave_up("qemu: warning: old\nRAX=0\n"), None);
    // From the process to the failure, with what QEMU says beside it.
    let failure = {
        let (_folder, mut vm) = fake_that_prints(&[], printed);
        loop {
            match vm.next(PATIENCE, &Cancel::new()) {
                Ok(_) => {}
                Err(failure) => break failure.to_string(),
            }
        }
    };
    assert!(failure.contains("Suberror: 1; emulation failure (KVM gave"), "{failure}");
    assert!(!failure.contains("warning"), "{failure}");
}

#[test]
fn an_endless_line_ends() {
    let endless = "firmware says hello\n".repeat(1 << 20);
    let failure = first_failure(&[], &endless, PATIENCE);
    assert!(matches!(failure, ThinFailure::Flooded { .. }), "{failure}");
}

#[test]
fn silence_names_the_operation_and_where_the_vcpus_are() {
    let items = [item(Operation::Cpuid, 10), item(Operation::Hypercall, 10)];
    let skipped = line(1, Record::Skipped(Operation::Cpuid, Skip::Faulted));
    let said =
        format!("{}{skipped}{}", line(0, hello()), line(2, Record::Ready(Operation::Hypercall)));
    let failure = first_failure(&items, &said, Duration::from_millis(300));
    let ThinFailure::Silent { operation, registers, .. } = &failure else { panic!("{failure}") };
    assert_eq!((*operation, registers.as_str()), (Some(Operation::Hypercall), "RIP=1234"));
    assert!(failure.to_string().ends_with("in hypercall"), "{failure}");
}

/// The name of the function in which an address lies, of a table such as `/proc/kallsyms`.
fn function_at(symbols: &str, address: u64) -> Option<&str> {
    let parsed = symbols.lines().filter_map(|line| {
        let (at, name) = line.split_once(" t ")?;
        Some((u64::from_str_radix(at, 16).ok()?, name))
    });
    let below = parsed.filter(|(at, name)| *at <= address && *name != "_stext");
    below.max_by_key(|(at, _)| *at).map(|(_, name)| name)
}

/// Where the guest's instructions for an operation are, a function of that operation is said
/// to be.
#[test]
fn the_guest_s_symbols_name_its_operations() {
    for (arch, instruction, function) in [
        // VMCALL, VMMCALL and CPUID.
        (Arch::X86_64, &[0x0f, 0x01, 0xc1][..], "operations::hypercall"),
        (Arch::X86_64, &[0x0f, 0x01, 0xd9], "operations::hypercall"),
        (Arch::X86_64, &[0x0f, 0xa2], "operations::vendor"),
        // HVC #0 and WFE.
        (Arch::Aarch64, &[0x02, 0x00, 0x00, 0xd4], "instruction::hypercall"),
        (Arch::Aarch64, &[0x5f, 0x20, 0x03, 0xd5], "instruction::wait_for_event"),
    ] {
        let Ok(program) = program(arch) else {
            return skip("the thin guest is not built: scripts/build-thinguest");
        };
        let symbols = String::from_utf8(symbols(arch).unwrap()).unwrap();
        let addresses = symbols.lines().map(|line| u64::from_str_radix(&line[..16], 16).unwrap());
        let (first, last) = (addresses.clone().min().unwrap(), addresses.max().unwrap());
        assert_eq!(function_at(&symbols, last), Some("_etext"), "{arch}");
        // Where the program's bytes are linked to: an ELF file's first segment is its code.
        let word = |at: usize| u64::from_le_bytes(program[at..at + 8].try_into().unwrap());
        let (offset, linked) = match arch {
            Arch::X86_64 => (word(word(32) as usize + 8), word(word(32) as usize + 16)),
            Arch::Aarch64 => (0, first),
        };
        assert_eq!(first, linked, "{arch}");
        let code = &program[offset as usize..][..(last - first) as usize];
        let found: Vec<&str> = (0..code.len())
            .filter(|at| code[*at..].starts_with(instruction))
            .filter_map(|at| function_at(&symbols, linked + at as u64))
            .collect();
        let is_named = |name: &&str| name.contains("samples::<") && name.contains(function);
        assert!(found.iter().any(is_named), "{arch} {function}: {found:?}");
    }
}

/// A guest under TCG whose clock is its count of instructions.
struct RealGuest {
    folder: tempfile::TempDir,
    launch: ThinLaunch,
}

impl RealGuest {
    fn new(machine: &str, vcpus: u32, plan: &str, items: &[Item]) -> Option<Self> {
        let arch = if machine.starts_with("virt") { Arch::Aarch64 } else { Arch::X86_64 };
        let Ok(program) = program(arch) else {
            skip("the thin guest is not built: scripts/build-thinguest");
            return None;
        };
        let qemu = match crate::qemu::find_qemu(arch) {
            Ok(qemu) => qemu,
            Err(error) => {
                skip(error);
                return None;
            }
        };
        let folder = tempfile::tempdir().unwrap();
        let kernel = folder.path().join("vmlab-thin");
        std::fs::write(&kernel, program).unwrap();
        let channels = SerialChannels {
            qmp_socket: folder.path().join("qmp"),
            serial_socket: folder.path().join("serial"),
        };
        let run: Vec<String> = items.iter().map(Item::to_string).collect();
        let settings = VmSettings {
            machine: machine.to_owned(),
            topology: vmconfig::GuestTopology::of_cores(vcpus),
            memory_mib: 256,
            kernel_cmdline: vec![format!("vmlab-thin=1 {plan} run={}", run.join(","))],
            extra_args: vec!["-icount".into(), "shift=0,sleep=off".into()],
            ..VmSettings::new("thin", arch, Accel::Tcg, BootSource::Kernel { kernel, initrd: None })
        };
        let spec = VmSpec::new(settings).unwrap();
        let args = emit_serial(&spec, &channels, &qemu.capabilities).args;
        let launch = ThinLaunch {
            qemu: qemu.path,
            args,
            channels,
            env: Vec::new(),
            items: items.to_vec(),
            start_limit: crate::START_LIMIT,
        };
        Some(Self { folder, launch })
    }

    /// All that it says, and how it ended.
    fn run(&self) -> (Vec<ThinMessage>, Option<ThinFailure>) {
        let cancel = Cancel::new();
        let mut vm = ThinVm::start(&self.launch, &cancel).unwrap();
        let mut all = Vec::new();
        loop {
            match vm.next(PATIENCE, &cancel) {
                Ok(told @ (ThinMessage::Ready(_) | ThinMessage::Taken)) => {
                    all.push(told);
                    vm.go();
                }
                Ok(ThinMessage::Bye) => return (all, None),
                Ok(told) => all.push(told),
                Err(failure) => return (all, Some(failure)),
            }
        }
    }
}

#[test]
fn each_machine_counts_the_same_instructions_twice() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let machines = [
        ("microvm", 1, "apic=xapic"),
        ("microvm", 2, "apic=xapic"),
        ("q35", 3, "apic=xapic"),
        ("pc", 2, "apic=xapic"),
        ("virt,gic-version=2", 1, "apic=gicv2"),
        ("virt,gic-version=2", 3, "apic=gicv2"),
        ("virt,gic-version=3", 2, "apic=gicv3"),
    ];
    for (machine, vcpus, plan) in machines {
        let arch = if machine.starts_with("virt") { "aarch64" } else { "x86_64" };
        let items: Vec<Item> = Operation::all()
            .filter(|operation| operation.is_price() && operation.is_of(arch))
            .map(|operation| Item::new(operation, operation.default_n().min(20), 5))
            .collect();
        let Some(real) = RealGuest::new(machine, vcpus, plan, &items) else { continue };
        let (told, failure) = real.run();
        assert_eq!(failure, None, "{machine}");
        assert_eq!(told.len(), items.len() + 1, "{machine}: {told:?}");
        let ThinMessage::Hello(hello) = told[0] else { panic!("{machine}: {told:?}") };
        assert_eq!((hello.vcpus, hello.started), (vcpus, vcpus), "{machine}");
        for told in &told[1..] {
            match told {
                ThinMessage::Done(done) => {
                    // One instruction is one cycle, and nothing else takes time.
                    assert!(done.operation.vcpus() <= vcpus, "{machine}: {done:?}");
                    let sent = matches!(
                        done.operation,
                        Operation::SelfIpi | Operation::IrqWindow | Operation::IpiSpin
                    );
                    assert!(!sent || done.ipis == u64::from(done.n), "{machine}: {done:?}");
                    let halts = matches!(done.operation, Operation::TimerHalt | Operation::IpiHalt);
                    assert!(!halts || done.hlts >= u64::from(done.n), "{machine}: {done:?}");
                }
                ThinMessage::Skipped(operation, why) => {
                    let expected = match operation {
                        Operation::Pvclock
                        | Operation::Hypercall
                        | Operation::MemoryFar
                        | Operation::Steal => Skip::NotExposed,
                        Operation::PageFill1g => Skip::NoMemory,
                        Operation::MmioQemu
                        | Operation::BlkPoll
                        | Operation::BlkIrq
                        | Operation::NetPoll
                        | Operation::NetIrq => Skip::NoDevice,
                        _ => Skip::TooFewVcpus,
                    };
                    assert_eq!(*why, expected, "{machine} {operation:?}");
                }
                other => panic!("{machine}: {other:?}"),
            }
        }
        assert_eq!(real.run(), (told, None), "{machine}: the second run is another one");
    }
}

/// Which memory a guest used, its host sees by the pages that the nodes' files have.
#[test]
fn the_memory_of_each_other_node_is_measured() {
    const CHASE_BYTES: u64 = 8 << 20;
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    for machine in ["q35", "virt"] {
        let items = [item(Operation::MemoryFar, 10)];
        let Some(mut real) = RealGuest::new(machine, 1, "", &items) else { continue };
        let at = real.launch.args.iter().position(|argument| argument == "-m").unwrap();
        real.launch.args[at + 1] = "512M".to_owned();
        let files: Vec<_> = (0..4).map(|node| real.folder.path().join(format!("{node}"))).collect();
        for (node, file) in files.iter().enumerate() {
            let path = file.display();
            let bytes = "size=128M,share=on";
            let backend = format!("memory-backend-file,id=node{node},mem-path={path},{bytes}");
            let node = format!("node,memdev=node{node}");
            real.launch.args.extend(["-object", &backend, "-numa", &node].map(str::to_owned));
        }
        let (told, failure) = real.run();
        assert_eq!(failure, None, "{machine}: {told:?}");
        let [_, ThinMessage::Done(done)] = told[..] else { panic!("{machine}: {told:?}") };
        assert_eq!(done.n, 10, "{machine}");
        for file in &files[1..] {
            let used = file.metadata().unwrap().blocks() * 512;
            let expected = CHASE_BYTES..2 * CHASE_BYTES;
            assert!(expected.contains(&used), "{machine}: {} has {used} bytes", file.display());
        }
    }
}

#[test]
fn exceptions_are_recorded_with_their_place() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let items = [item(Operation::Cpuid, 10)];
    let check = |what: &str, holds: fn(&ThinFailure) -> bool| {
        let Some(real) = RealGuest::new("microvm", 1, &format!("provoke={what}"), &items) else {
            return;
        };
        let (told, failure) = real.run();
        assert!(matches!(told[..], [ThinMessage::Hello(_)]), "{what}: {told:?}");
        assert!(failure.as_ref().is_some_and(holds), "{what}: {failure:?}");
    };
    const AT: Option<Operation> = Some(Operation::Cpuid);
    check("stack", |failure| {
        matches!(failure, ThinFailure::Fault { operation: AT, fault }
            if fault.vector == 14 && fault.cr2.abs_diff(fault.rsp) < 4096)
    });
    check("null", |failure| {
        matches!(
            failure,
            ThinFailure::Fault { operation: AT, fault: Fault { vector: 14, cr2: 0, .. } }
        )
    });
    check("opcode", |failure| {
        matches!(failure, ThinFailure::Fault { operation: AT, fault: Fault { vector: 6, .. } })
    });
    check("panic", |failure| matches!(failure, ThinFailure::Panicked { operation: AT }));
}

#[test]
fn a_hang_is_named_with_its_registers() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let items = [item(Operation::Cpuid, 10)];
    let Some(real) = RealGuest::new("q35", 1, "shake=on provoke=hang", &items) else { return };
    let cancel = Cancel::new();
    let mut vm = ThinVm::start(&real.launch, &cancel).unwrap();
    assert!(matches!(vm.next(PATIENCE, &cancel), Ok(ThinMessage::Hello(_))));
    assert_eq!(vm.next(PATIENCE, &cancel), Ok(ThinMessage::Ready(Operation::Cpuid)));
    vm.go();
    let failure = vm.next(Duration::from_secs(1), &cancel).unwrap_err();
    let ThinFailure::Silent { operation, registers, .. } = failure else { panic!("{failure}") };
    assert_eq!(operation, Some(Operation::Cpuid));
    assert!(registers.contains("RIP=") && registers.contains("HLT=1"), "{registers}");
    vm.shutdown();
    assert!(real.folder.path().exists());
}

/// A network without another end: the device takes the frame, and nothing comes back.
#[test]
fn a_device_that_never_answers_is_named() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let net = "virtio-net-pci,netdev=thin,romfile=,disable-legacy=on,ioeventfd=off";
    for operation in [Operation::NetPoll, Operation::NetIrq] {
        let Some(mut real) = RealGuest::new("q35", 1, "shake=on", &[item(operation, 10)]) else {
            return;
        };
        let args = ["-netdev", "hubport,id=thin,hubid=0", "-device", net];
        real.launch.args.extend(args.map(str::to_owned));
        let cancel = Cancel::new();
        let mut vm = ThinVm::start(&real.launch, &cancel).unwrap();
        assert!(matches!(vm.next(PATIENCE, &cancel), Ok(ThinMessage::Hello(_))));
        let failure = vm.next(Duration::from_secs(1), &cancel).unwrap_err();
        let ThinFailure::Silent { operation: named, registers, .. } = failure else {
            panic!("{failure}")
        };
        assert_eq!(named, Some(operation));
        // Who waits for the interrupt sleeps.
        let sleeps = registers.contains("HLT=1");
        assert_eq!(sleeps, operation == Operation::NetIrq, "{registers}");
        vm.shutdown();
    }
}

#[test]
fn a_plan_that_is_none_is_refused() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let check = |plan: &str, n: u32, expected: BadPlan| {
        let Some(real) = RealGuest::new("microvm", 1, plan, &[item(Operation::Cpuid, n)]) else {
            return;
        };
        let (_, failure) = real.run();
        assert_eq!(failure, Some(ThinFailure::Refused { why: expected }), "{plan} {n}");
    };
    check("", 0, BadPlan::Item);
    check("", MAX_N + 1, BadPlan::Item);
    check("quickly", 1, BadPlan::Word);
    // QEMU before 9.0 emulates no x2APIC.
    let Some(real) = RealGuest::new("microvm", 1, "apic=x2apic", &[item(Operation::Cpuid, 1)])
    else {
        return;
    };
    let (told, failure) = real.run();
    let refused = failure == Some(ThinFailure::Refused { why: BadPlan::Apic });
    assert!(refused || failure.is_none(), "{told:?} {failure:?}");
}

/// What it says last is there for a reader that comes late: one byte of it finds no room,
/// and stays in the serial port until somebody reads.
#[test]
fn the_last_byte_is_sent_before_the_vm_ends() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let qemu = match crate::qemu::find_qemu(Arch::X86_64) {
        Ok(qemu) => qemu,
        Err(error) => return skip(error),
    };
    let folder = tempfile::tempdir().unwrap();
    let kernel = folder.path().join("vmlab-thin");
    std::fs::write(&kernel, crate::thin::program(Arch::X86_64).unwrap()).unwrap();
    // No plan at all is refused in one line, which is the same in every run.
    let said = line(0, Record::Refused(BadPlan::Version));
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let room = rustix::pipe::fcntl_setpipe_size(&reader, 4096).unwrap();
    writer.write_all(&vec![b'.'; room + 1 - said.len()]).unwrap();
    let mut child = std::process::Command::new(&qemu.path)
        .args(["-nodefaults", "-display", "none", "-no-reboot", "-machine", "q35"])
        .args(["-accel", "tcg", "-cpu", "max", "-m", "64", "-device", "isa-debug-exit"])
        .args(["-chardev", "stdio,id=line", "-serial", "chardev:line", "-kernel"])
        .arg(&kernel)
        .args(["-append", "vmlab-thin=0"])
        .stdin(std::process::Stdio::null())
        .stdout(writer)
        .spawn()
        .unwrap();
    let is_full = || (rustix::io::ioctl_fionread(&reader).unwrap() as usize == room).then_some(());
    suite::until("a pipe without room", is_full);
    // It would end now. That it does not takes as long as anybody waits for it.
    let until = Instant::now() + Duration::from_secs(2);
    while child.try_wait().unwrap().is_none() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut heard = String::new();
    reader.read_to_string(&mut heard).unwrap();
    child.wait().unwrap();
    assert!(heard.ends_with(&said), "{:?}", heard.trim_start_matches('.'));
}

/// UEFI firmware: what the variable names, or Debian's package has.
fn firmware(arch: Arch) -> Option<PathBuf> {
    let (variable, package, known) = match arch {
        Arch::X86_64 => ("OVMF", "ovmf", "/usr/share/ovmf/OVMF.fd"),
        Arch::Aarch64 => ("AAVMF", "qemu-efi-aarch64", "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd"),
    };
    let named = std::env::var_os(variable).map(PathBuf::from);
    let found = [named, Some(known.into())].into_iter().flatten().find(|path| path.exists());
    if found.is_none() {
        skip(format!("there is no UEFI firmware for {arch}: package {package}"));
    }
    found
}

/// A VM of so much memory that firmware boots from the guest's disk.
fn by_uefi(
    arch: Arch,
    machine: &str,
    vcpus: u32,
    memory: &str,
    items: &[Item],
) -> Option<RealGuest> {
    let mut real = RealGuest::new(machine, vcpus, "", items)?;
    let firmware = firmware(arch)?;
    let run: Vec<String> = items.iter().map(Item::to_string).collect();
    let apic = if arch == Arch::X86_64 { "apic=xapic " } else { "" };
    let disk = match uefi_disk(arch, &format!("vmlab-thin=1 {apic}run={}", run.join(","))) {
        Ok(disk) => disk,
        Err(error) => {
            skip(error);
            return None;
        }
    };
    let image = real.folder.path().join("disk.img");
    std::fs::write(&image, disk).unwrap();
    assert!(is_uefi_disk(&image).unwrap());
    let args = &mut real.launch.args;
    // In the place of the kernel.
    for (option, words) in [("-kernel", 4), ("-icount", 2), ("-m", 2)] {
        let at = args.iter().position(|argument| argument == option).unwrap();
        args.drain(at..at + words);
    }
    let drive = format!("file={},if=none,id=esp,format=raw,readonly=on", image.display());
    let firmware = firmware.to_str().unwrap();
    // The kind that the guest drives on this machine.
    let device = match arch {
        Arch::X86_64 => "virtio-blk-pci,drive=esp,bootindex=1",
        Arch::Aarch64 => "virtio-blk-device,drive=esp,bootindex=1",
    };
    let modern = "virtio-mmio.force-legacy=false";
    // Nobody is there to interrupt the boot, for which the firmware waits five seconds.
    let boot = "menu=on,splash-time=0";
    for (option, value) in [
        ("-m", memory),
        ("-bios", firmware),
        ("-drive", &drive),
        ("-device", device),
        ("-global", modern),
        ("-boot", boot),
    ] {
        args.extend([option.to_owned(), value.to_owned()]);
    }
    Some(real)
}

/// It puts devices above 4 GiB, and what it boots too where there is memory.
#[test]
fn uefi_firmware_boots_the_same_guest() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    for memory in ["256M", "6G"] {
        let items =
            [item(Operation::Cpuid, 10), item(Operation::IpiHalt, 10), item(Operation::BlkIrq, 10)];
        let Some(real) = by_uefi(Arch::X86_64, "q35", 2, memory, &items) else { return };
        let (told, failure) = real.run();
        assert_eq!(failure, None, "{memory}: {told:?}");
        let [hello, ThinMessage::Done(cpuid), ThinMessage::Done(ipi), ThinMessage::Done(blk)] =
            told[..]
        else {
            panic!("{memory}: {told:?}")
        };
        let ThinMessage::Hello(hello) = hello else { panic!("{memory}: {told:?}") };
        assert_eq!((hello.vcpus, hello.started), (2, 2), "{memory}");
        assert_eq!((cpuid.n, ipi.ipis, blk.n), (10, 10, 10), "{memory}");
        assert!(blk.hlts >= 10, "{memory}: {blk:?}");
    }
    // A plan for which there is no room.
    for arch in [Arch::X86_64, Arch::Aarch64] {
        let long = uefi_disk(arch, &"x".repeat(4096));
        assert!(matches!(long, Err(NoProgram::LongPlan { bytes: 4096 })));
    }
}

/// Firmware describes the machine by ACPI, or by the device tree where QEMU has no ACPI. Of
/// either the guest learns its vCPUs, how to start and interrupt them, and where disks are.
#[test]
fn uefi_firmware_boots_an_arm64_guest_by_acpi_or_a_device_tree() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    for (machine, vcpus, apic) in [
        ("virt,gic-version=3", 4, Apic::Gicv3),
        ("virt,gic-version=2", 1, Apic::Gicv2),
        ("virt,gic-version=2", 4, Apic::Gicv2),
        ("virt,gic-version=3,acpi=off", 1, Apic::Gicv3),
        ("virt,gic-version=3,acpi=off", 4, Apic::Gicv3),
        ("virt,gic-version=2,acpi=off", 4, Apic::Gicv2),
        // Firmware runs at EL2, and PSCI is called by SMC.
        ("virt,gic-version=3,virtualization=on", 4, Apic::Gicv3),
        ("virt,gic-version=2,virtualization=on,acpi=off", 4, Apic::Gicv2),
    ] {
        let items = [
            item(Operation::Hypercall, 10),
            item(Operation::TimerHalt, 10),
            item(Operation::BlkIrq, 10),
            item(Operation::PageFill4k, 10),
            item(Operation::IpiHalt, 10),
            item(Operation::MemoryFar, 10),
        ];
        let items = if vcpus == 1 { &items[..4] } else { &items[..] };
        let Some(mut real) = by_uefi(Arch::Aarch64, machine, vcpus, "512M", items) else { return };
        if vcpus > 1 {
            // Two nodes.
            for node in ["near", "far"] {
                real.launch.args.extend([
                    "-object".to_owned(),
                    format!("memory-backend-ram,id={node},size=256M"),
                    "-numa".to_owned(),
                    format!("node,memdev={node}"),
                ]);
            }
        }
        let (told, failure) = real.run();
        assert_eq!(failure, None, "{machine}: {told:?}");
        let [ThinMessage::Hello(hello), done @ ..] = &told[..] else {
            panic!("{machine}: {told:?}")
        };
        assert_eq!((hello.vcpus, hello.started, hello.apic), (vcpus, vcpus, apic), "{machine}");
        let irq = TimerIrq { number: 27, is_told: true };
        assert_eq!(hello.timer_irq, Some(irq), "{machine}");
        let done: Vec<Measurement> = done
            .iter()
            .map(|one| match one {
                ThinMessage::Done(done) => *done,
                other => panic!("{machine}: {other:?}"),
            })
            .collect();
        assert_eq!(done.len(), items.len(), "{machine}");
        assert!(done.iter().all(|one| one.n == 10), "{machine}: {done:?}");
        assert!(done[1].hlts >= 10 && done[2].hlts >= 10, "{machine}: {done:?}");
        assert!(vcpus == 1 || done[4].ipis == 10, "{machine}: {done:?}");
    }
}
