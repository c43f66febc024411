//! What an arm64 guest does on real emulated machines.

use super::*;

#[test]
fn arm64_s_exceptions_are_recorded_with_their_place() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    /// Data abort and unknown instruction: Arm DDI 0487, ESR_EL1.EC.
    const ABORT: u8 = Fault::SYNCHRONOUS + 0x25;
    const UNKNOWN: u8 = Fault::SYNCHRONOUS;
    let check = |what: &str, holds: fn(&Fault) -> bool, said: &str| {
        let items = [item(Operation::Hypercall, 10)];
        let plan = format!("provoke={what}");
        let Some(real) = RealGuest::new("virt,gic-version=3", 2, &plan, &items) else { return };
        let (told, failure) = real.run();
        assert!(matches!(told[..], [ThinMessage::Hello(_)]), "{what}: {told:?}");
        let Some(ThinFailure::Fault { operation: Some(Operation::Hypercall), fault }) = failure
        else {
            panic!("{what}: {failure:?}")
        };
        assert!(holds(&fault), "{what}: {fault:?}");
        assert!(fault_text(&fault).starts_with(said), "{what}: {}", fault_text(&fault));
    };
    // The stack ends at a page that is not there.
    let ran_over = |fault: &Fault| fault.vector == ABORT && fault.cr2.abs_diff(fault.rsp) < 4096;
    check("stack", ran_over, "a data abort on vCPU 0");
    check("null", |fault| fault.vector == ABORT && fault.cr2 == 0, "a data abort on vCPU 0");
    check("opcode", |fault| fault.vector == UNKNOWN, "an unknown instruction on vCPU 0");
}

#[test]
fn an_arm64_guest_takes_other_machines_as_they_are() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let items = [item(Operation::SysregTrap, 10), item(Operation::Cpuid, 10)];
    // Begun at EL2, and called by SMC.
    for machine in ["virt,gic-version=3,virtualization=on", "virt,gic-version=2,acpi=off"] {
        let Some(real) = RealGuest::new(machine, 2, "", &items) else { return };
        let (told, failure) = real.run();
        assert_eq!(failure, None, "{machine}");
        let [ThinMessage::Hello(hello), ThinMessage::Done(_), skipped] = told[..] else {
            panic!("{machine}: {told:?}")
        };
        assert_eq!((hello.vcpus, hello.started), (2, 2), "{machine}");
        assert_eq!(skipped, ThinMessage::Skipped(Operation::Cpuid, Skip::OtherArch), "{machine}");
    }
    // Another controller than is there.
    let Some(real) = RealGuest::new("virt,gic-version=2", 1, "apic=gicv3", &items) else { return };
    let (_, failure) = real.run();
    assert_eq!(failure, Some(ThinFailure::Refused { why: BadPlan::Apic }));
}

/// An IPI is ended by what was acknowledged, the number of who sent it included. QEMU's GIC
/// does not look at that number, but it tells what was written.
#[test]
fn an_arm64_guest_ends_an_ipi_as_it_was_acknowledged() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    // Either vCPU interrupts the other.
    let items = [item(Operation::SemIpi, 20)];
    let Some(mut real) = RealGuest::new("virt,gic-version=2", 2, "", &items) else { return };
    let log = real.folder.path().join("gic.log");
    let traced = ["-d", "trace:gic_cpu_read,trace:gic_cpu_write", "-D", log.to_str().unwrap()];
    real.launch.args.extend(traced.map(str::to_owned));
    let (told, failure) = real.run();
    assert_eq!(failure, None, "{told:?}");
    // `gic_cpu_read gic: cpu 0 iface read at 0x0000000c: 0x00000400`
    const ACKNOWLEDGE: &str = "0x0000000c";
    const END: &str = "0x00000010";
    const SPURIOUS: &str = "0x000003ff";
    let log = std::fs::read_to_string(log).unwrap();
    let mut acknowledged = BTreeMap::new();
    let mut from_another = 0;
    for line in log.lines() {
        let words: Vec<&str> = line.split([' ', ':']).filter(|word| !word.is_empty()).collect();
        let Some(at) = words.iter().position(|word| *word == "cpu") else { continue };
        let [_, vcpu, _, did, _, register, value] = words[at..] else { panic!("{line}") };
        match (did, register) {
            ("read", ACKNOWLEDGE) if value != SPURIOUS => {
                from_another += u32::from(value == "0x00000400");
                assert_eq!(acknowledged.insert(vcpu, value), None, "{line}");
            }
            ("write", END) => assert_eq!(acknowledged.remove(vcpu), Some(value), "{line}"),
            _ => {}
        }
    }
    assert!(from_another >= 20, "{from_another} IPIs of vCPU 1's are in\n{log}");
}

/// On some processors HCR_EL2.E2H has no 0, so that EL2's registers have their other layout.
/// QEMU has none of those, but one that was begun so, by code before the guest, stays so.
#[test]
fn an_arm64_guest_leaves_el2_with_e2h_too() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let items = [
        item(Operation::Hypercall, 10),
        item(Operation::TimerHalt, 10),
        item(Operation::IpiHalt, 10),
        item(Operation::Syscall, 10),
    ];
    for machine in ["virt,gic-version=3,virtualization=on", "virt,gic-version=2,virtualization=on"]
    {
        let Some(real) = RealGuest::new(machine, 2, "", &items) else { return };
        let kernel = real.folder.path().join("vmlab-thin");
        let guest = std::fs::read(&kernel).unwrap();
        // The same Image, a page later.
        let mut image = guest[..64].to_vec();
        let bytes = u64::from_le_bytes(image[16..24].try_into().unwrap()) + 4096;
        image[16..24].copy_from_slice(&bytes.to_le_bytes());
        image[..4].copy_from_slice(&0x1400_0010_u32.to_le_bytes()); // b 64
        const SET_E2H: [u32; 5] = [
            0xd53c_1101, // mrs x1, hcr_el2
            0xb25e_0021, // orr x1, x1, #1 << 34
            0xd51c_1101, // msr hcr_el2, x1
            0xd503_3fdf, // isb
            0x1400_03ec, // b 4096
        ];
        image.extend(SET_E2H.iter().flat_map(|word| word.to_le_bytes()));
        image.resize(4096, 0);
        image.extend(guest);
        std::fs::write(&kernel, image).unwrap();
        let (told, failure) = real.run();
        assert_eq!(failure, None, "{machine}: {told:?}");
        let done = told.iter().filter(|one| matches!(one, ThinMessage::Done(_))).count();
        assert_eq!(done, items.len(), "{machine}: {told:?}");
    }
}

/// The tree's node of the timer, with and without its names, and none: what is not told is
/// the architecture's number.
#[test]
fn an_arm64_guest_takes_the_timer_s_interrupt_from_the_device_tree() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let items = [item(Operation::TimerHalt, 10)];
    let Some(mut real) = RealGuest::new("virt,gic-version=3", 1, "", &items) else { return };
    let tree = real.folder.path().join("tree.dtb");
    let dump = format!("virt,gic-version=3,dumpdtb={}", tree.display());
    let dumped = std::process::Command::new(&real.launch.qemu)
        .args(["-machine", &dump, "-cpu", "max", "-m", "256", "-nodefaults", "-display", "none"])
        .output()
        .unwrap();
    assert!(dumped.status.success(), "{dumped:?}");
    let mut told = std::fs::read(&tree).unwrap();
    // It has room for more behind its strings, which QEMU doubles, and a guest takes 2 MiB.
    let word = |at: usize| u32::from_be_bytes(told[at..at + 4].try_into().unwrap());
    let bytes = word(12) + word(32);
    told.truncate(bytes as usize);
    told[4..8].copy_from_slice(&bytes.to_be_bytes());
    real.launch.args.extend(["-dtb".to_owned(), tree.display().to_string()]);
    // `interrupts` of the timer: secure, physical, virtual, of EL2; PPIs, counted from 16.
    const NAMES: &[u8] = b"arm,armv8-timer\0arm,armv7-timer";
    let node = told.windows(NAMES.len()).position(|bytes| bytes == NAMES).unwrap();
    let numbers: Vec<u8> = [1_u32, 11].iter().flat_map(|cell| cell.to_be_bytes()).collect();
    // QEMU writes it before the names.
    let own = told[..node].windows(8).rposition(|bytes| bytes == numbers).unwrap();
    let run = |tree_bytes: &[u8], patience: Duration| {
        std::fs::write(&tree, tree_bytes).unwrap();
        let cancel = Cancel::new();
        let mut vm = ThinVm::start(&real.launch, &cancel).unwrap();
        let hello = match vm.next(PATIENCE, &cancel) {
            Ok(ThinMessage::Hello(hello)) => hello,
            other => panic!("{other:?}"),
        };
        (hello.timer_irq.unwrap(), vm.next(patience, &cancel))
    };
    let (irq, done) = run(&told, PATIENCE);
    assert_eq!(irq, TimerIrq { number: 27, is_told: true });
    assert!(matches!(done, Ok(ThinMessage::Done(_))), "{done:?}");
    // Another number is believed, and the interrupt that comes nonetheless is not the timer's.
    let mut other = told.clone();
    other[own + 7] = 9;
    // It sleeps for good, which no patience of ours changes.
    let (irq, done) = run(&other, Duration::from_secs(2));
    assert_eq!(irq, TimerIrq { number: 25, is_told: true });
    assert!(matches!(done, Err(ThinFailure::Silent { .. })), "{done:?}");
    // One that no vCPU has for itself, and no node.
    let mut shared = told.clone();
    shared[own + 3] = 0;
    let mut none = told.clone();
    none[node..node + NAMES.len()].fill(b'x');
    for tree_bytes in [shared, none] {
        let (irq, done) = run(&tree_bytes, PATIENCE);
        assert_eq!(irq, TimerIrq { number: 27, is_told: false });
        assert!(matches!(done, Ok(ThinMessage::Done(_))), "{done:?}");
    }
}
