//! Tests of finding QEMU and of telling threads; real ones are in `tests/`.

use super::*;

#[test]
fn a_qemu_without_a_machine_is_no_vm() {
    let check = |line: &str, expected: bool| {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(has_no_machine(&argv), expected, "{line}");
    };
    check("qemu-system-x86_64 -name kept-kvm -machine none -accel kvm -nodefaults -S", true);
    check("qemu-system-x86_64 -S -no-user-config -machine none,accel=kvm:tcg -qmp x", true);
    check("qemu-system-x86_64 -M type=none", true);
    check("qemu-system-x86_64 -machine q35 -display none", false);
    check("qemu-system-x86_64 -machine", false);
}

#[test]
fn qemu_is_known_under_any_name() {
    let check = |program: &str, line: &str, expected: bool| {
        let argv: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(is_qemu(program, &argv), expected, "{program}: {line}");
    };
    check("/usr/bin/qemu-system-x86_64", "qemu-system-x86_64 -m 64", true);
    check("/usr/bin/qemu-system-aarch64 (deleted)", "x", true);
    check("/usr/libexec/qemu-kvm", "/usr/libexec/qemu-kvm -name guest=x", true);
    check("/opt/hypervisor", "/opt/hypervisor -machine q35 -smp 2 -m 64", true);
    check("/opt/hypervisor", "/opt/hypervisor -m 64", false);
    check("/usr/bin/dash", "sh -c qemu-system-x86_64 -machine q35 -smp 2 -m 64", false);
    check("/usr/bin/qemu-img", "qemu-img create x", false);
    check("/usr/bin/vim", "vim qemu-system-x86_64", false);
    check("", "", false);
}

fn seen(tid: u32, name: &str, guest_ticks: u64) -> SeenThread {
    SeenThread {
        thread: RunningThread {
            tid,
            name: name.to_owned(),
            role: thread::role_of(name, tid == 1, false, &[]),
            affinity: None,
            policy: None,
            realtime_priority: None,
            nice: None,
            last_pcpu: None,
            limits: cgroup::Limits::default(),
        },
        inner_id: Some(tid - 1),
        guest_ticks,
    }
}

fn vm(guest: Option<GuestView>) -> RunningVm {
    RunningVm {
        pid: 1,
        starttime_ticks: 0,
        program: String::new(),
        argv: Vec::new(),
        option_files: Vec::new(),
        asked: CommandLineRequest::default(),
        threads: Vec::new(),
        vcpus_known_by: VcpuEvidence::Nothing,
        memory: VmMemory::default(),
        guest,
        halts: None,
        cpu_pm: None,
        start: None,
        notes: Vec::new(),
    }
}

#[test]
fn vcpus_are_told_by_the_best_source() {
    let check = |names: &str, ticks: u64, guest, known: &[u32], by: VcpuEvidence, roles: &str| {
        let mut threads =
            vec![seen(1, "qemu-kvm", 0), seen(2, names, ticks), seen(3, names, ticks)];
        assert_eq!(tell_vcpus(&mut threads, &vm(guest), known), by);
        let found: Vec<_> = threads.iter().map(|seen| seen.thread.role.to_string()).collect();
        assert_eq!(found.join(", "), roles);
    };
    check("qemu-kvm", 0, None, &[], VcpuEvidence::Nothing, "emulator, unknown, unknown");
    check("qemu-kvm", 9, None, &[], VcpuEvidence::GuestTime, "emulator, vCPU ?, vCPU ?");
    check("CPU 4/KVM", 9, None, &[], VcpuEvidence::Names, "emulator, vCPU 4, vCPU 4");
    check("x", 0, None, &[3, 2], VcpuEvidence::Caller, "emulator, vCPU 1, vCPU 0");
    check("x", 0, None, &[2, 2], VcpuEvidence::Caller, "emulator, all vCPUs, unknown");
    // QEMU in a container of its own tells the ids of its own PID namespace.
    let vcpu = |vcpu, thread| guest_view::GuestVcpu { vcpu, thread, ..Default::default() };
    let view = GuestView {
        vcpus: vec![vcpu(0, 2)],
        iothreads: [("io1".to_owned(), 1)].into(),
        ..GuestView::default()
    };
    check("x", 0, Some(view), &[], VcpuEvidence::Qmp, "emulator, iothread io1, vCPU 0");
}
