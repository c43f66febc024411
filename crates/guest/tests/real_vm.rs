//! Real guests under emulation.

use std::path::PathBuf;
use std::time::Duration;

use guest::image::{BUILTIN, GuestImage, Recipe};
use guest::qemu::{Qemu, find_qemu};
use guest::{Cancel, ExecOutput, ExecStatusCode, GuestCommand, GuestFailure, Launch, OwnedVm};
use suite::{PATIENCE, Tier, Turn, needs, until};
use vmconfig::qemu::{Channels, emit};
use vmconfig::{Accel, Arch, BootSource, GuestTopology, VmSettings, VmSpec};
use vmstate::{MachineState, Skim};

struct Lab {
    _turn: Turn,
    qemu: Qemu,
    image: GuestImage,
    folder: tempfile::TempDir,
}

/// What a guest with `vcpus` needs, or `None` where none is booted.
fn lab(vcpus: usize) -> Option<Lab> {
    let turn = needs(Tier::Test).pcpus(vcpus).turn()?;
    let qemu = match find_qemu(Arch::X86_64) {
        Ok(qemu) => qemu,
        Err(error) => {
            suite::skip(error);
            return None;
        }
    };
    let recipe = Recipe::builtin(BUILTIN, Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    Some(Lab { _turn: turn, qemu, image, folder: tempfile::tempdir().unwrap() })
}

impl Lab {
    fn console(&self) -> PathBuf {
        self.folder.path().join("console")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    /// The devices' state was kept, of a guest that QEMU said to be in `run_state`.
    #[track_caller]
    fn has_last_state(&self, run_state: &str) {
        let console = std::fs::read_to_string(self.console()).unwrap();
        assert!(console.contains("vmlab: the state of its devices was kept"), "{console}");
        let mut skim = Skim::new();
        skim.push(&std::fs::read(self.state()).unwrap()).unwrap();
        let state = MachineState::read(skim.finish().unwrap()).unwrap();
        let device = |name: &str| {
            state.devices.iter().find(|device| device.name == name).expect("it has one")
        };
        assert!(!device("cpu").fields.is_empty());
        let fields = device("globalstate").fields.iter();
        let told = fields
            .map(|field| state.bytes_of(field))
            .any(|bytes| bytes.starts_with(run_state.as_bytes()));
        assert!(told, "{:?}", state.value_of(&device("globalstate").fields[1]));
    }

    fn launch(&self, vcpus: u32, parameters: &[&str]) -> Launch {
        let file = |name: &str| self.folder.path().join(name);
        let channels = Channels {
            qmp_socket: file("qmp"),
            agent_socket: file("agent"),
            done_socket: file("done"),
            console_socket: file("serial"),
            console_log: self.console(),
        };
        let boot = BootSource::Direct {
            kernel: self.image.kernel.clone(),
            initrd: self.image.initrd.clone(),
            root_image: self.image.root_image.clone(),
            cmdline: self.image.cmdline.clone(),
        };
        let spec = VmSpec::new(VmSettings {
            topology: GuestTopology::of_cores(vcpus),
            memory_mib: 512,
            kernel_cmdline: parameters.iter().map(|p| (*p).to_owned()).collect(),
            ..VmSettings::new("test", Arch::X86_64, Accel::Tcg, boot)
        })
        .unwrap();
        let args = emit(&spec, &channels, &self.qemu.capabilities).args;
        Launch {
            qemu: self.qemu.path.clone(),
            args,
            channels,
            env: Vec::new(),
            start_limit: guest::START_LIMIT,
        }
    }

    fn boot(&self, vcpus: u32) -> OwnedVm {
        let cancel = Cancel::new();
        let mut vm = OwnedVm::start(&self.launch(vcpus, &[]), &cancel).unwrap();
        vm.wait_ready(PATIENCE, &cancel).unwrap_or_else(|error| {
            panic!("{error}\n{}", vm.console_tail(40));
        });
        vm
    }
}

fn shell(script: &str) -> GuestCommand {
    GuestCommand::new(["sh", "-c", script], PATIENCE)
}

/// Says that it runs, where it is seen outside, and outlasts every limit.
const WAITING: &str = "echo it waits >/dev/console; sleep 1000";

fn until_waiting(console: &std::path::Path) {
    until("a command in the guest", || {
        let text = std::fs::read(console).unwrap_or_default();
        String::from_utf8_lossy(&text).contains("it waits").then_some(())
    });
}

fn run(vm: &mut OwnedVm, command: &GuestCommand) -> Result<ExecOutput, GuestFailure> {
    vm.exec(command, &Cancel::new())
}

#[test]
fn commands_run_and_bad_ones_leave_the_guest_usable() {
    let Some(lab) = lab(2) else { return };
    let mut vm = lab.boot(2);
    assert_eq!(vm.vcpu_tids().len(), 2);
    for tid in vm.vcpu_tids() {
        assert!(std::path::Path::new(&format!("/proc/{}/task/{tid}", vm.pid())).exists());
    }
    assert!(vm.query_stats(&Cancel::new()).unwrap().is_empty(), "TCG has no counters");

    // Output, status, signal, environment, stdin.
    let output = run(&mut vm, &shell("echo out; echo err >&2; exit 3")).unwrap();
    assert_eq!((output.stdout_text().as_str(), output.stderr_text().as_str()), ("out\n", "err\n"));
    assert_eq!(output.status, ExecStatusCode::Exited(3));
    let output = run(&mut vm, &shell("kill -SEGV $$")).unwrap();
    assert_eq!(output.status, ExecStatusCode::Signalled(11));
    let mut command = shell("cat; echo $NAME; pwd; nproc; uname -n");
    command.stdin = Some(b"in\n".to_vec());
    command.env = vec![("NAME".into(), "va lue".into())];
    let output = run(&mut vm, &command).unwrap();
    assert_eq!(output.stdout_text(), "in\nva lue\n/tmp\n2\nvmlab\n");
    let error = run(&mut vm, &GuestCommand::new(["no-such-program"], PATIENCE)).unwrap_err();
    assert_eq!(error, GuestFailure::ProgramMissing { program: "no-such-program".into() });

    // Output without end is not kept. (A gigabyte goes the same way, but under
    // emulation the agent reads 20 MB/s.)
    let error = run(&mut vm, &shell("dd if=/dev/zero bs=1M count=64")).unwrap_err();
    assert!(matches!(error, GuestFailure::OutputTooLarge { .. }), "{error}");

    // A full disk is the command's failure only.
    let output = run(&mut vm, &shell("dd if=/dev/zero of=/fill bs=1M; rm /fill")).unwrap();
    assert!(output.stderr_text().contains("No space left on device"), "{output:?}");

    // A process that stays behind keeps nobody waiting: it outlasts the limit.
    let output = run(&mut vm, &shell("sleep 1000 >/dev/null 2>&1 </dev/null & echo left"));
    assert_eq!(output.unwrap().stdout_text(), "left\n");
    assert!(run(&mut vm, &shell("echo next")).unwrap().success());

    // A stopped benchmark runs into its limit, and is killed with its children.
    let mut command = shell("echo begun; sleep 1000 & kill -STOP $$");
    command.limit = Duration::from_secs(5);
    let error = run(&mut vm, &command).unwrap_err();
    let GuestFailure::TimeLimit { program, output, .. } = error else { panic!("{error}") };
    assert_eq!((program.as_str(), output.unwrap().stdout_text().as_str()), ("sh", "begun\n"));
    let left = run(&mut vm, &shell("ps -o args | grep -c '[s]leep 1000'")).unwrap();
    assert_eq!(left.stdout_text(), "1\n", "only the one from before");

    // Cancelling ends the longest wait.
    let cancel = Cancel::new();
    let flag = cancel.clone();
    let console = lab.console();
    let canceller = std::thread::spawn(move || {
        until_waiting(&console);
        flag.cancel();
    });
    let error = vm.exec(&shell(WAITING), &cancel).unwrap_err();
    canceller.join().unwrap();
    assert_eq!(error, GuestFailure::Cancelled(guest::Cancellation));

    let pid = vm.pid();
    vm.shutdown();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn a_panic_is_seen() {
    let Some(lab) = lab(1) else { return };
    let mut vm = lab.boot(1);
    vm.keep_last_state(lab.state(), &Cancel::new()).unwrap();
    let error = run(&mut vm, &shell("echo c >/proc/sysrq-trigger")).unwrap_err();
    let GuestFailure::Panicked { detail } = &error else { panic!("{error}") };
    assert!(detail.contains("sysrq triggered crash"), "{detail}");
    assert!(vm.console_tail(60).contains("Kernel panic"));
    // The kernel has reset the machine, for which QEMU has one word.
    lab.has_last_state("shutdown");
    // It stays what it is.
    assert_eq!(run(&mut vm, &shell("true")).unwrap_err(), error);
    drop(vm);

    // A driver tells QEMU at once.
    let mut vm = lab.boot(1);
    vm.keep_last_state(lab.state(), &Cancel::new()).unwrap();
    run(&mut vm, &shell("modprobe pvpanic-pci")).unwrap();
    let error = run(&mut vm, &shell("echo c >/proc/sysrq-trigger")).unwrap_err();
    assert!(matches!(error, GuestFailure::Panicked { .. }), "{error}");
    lab.has_last_state("guest-panicked");
}

#[test]
fn a_killed_qemu_and_a_guest_that_powers_off_are_seen() {
    let Some(lab) = lab(1) else { return };
    let by = |number| format!("it was killed by signal {number}");
    for (signal, expected) in [
        ("-KILL", GuestFailure::Died { detail: by(9) }),
        // What QEMU sends itself where it reaches for what is not there.
        ("-SEGV", GuestFailure::Crashed { detail: by(11) }),
    ] {
        let mut vm = lab.boot(1);
        let pid = vm.pid().to_string();
        let console = lab.console();
        let killer = std::thread::spawn(move || {
            until_waiting(&console);
            std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        });
        let error = run(&mut vm, &shell(WAITING)).unwrap_err();
        killer.join().unwrap();
        assert_eq!(error, expected);
    }

    // Whether its devices would be kept or not: they are of no interest then.
    for keeps in [false, true] {
        let mut vm = lab.boot(1);
        if keeps {
            vm.keep_last_state(lab.state(), &Cancel::new()).unwrap();
        }
        let error = run(&mut vm, &shell("poweroff -f")).unwrap_err();
        assert_eq!(error, GuestFailure::Shutdown { detail: "guest-shutdown".into() });
        assert!(!lab.state().exists());
    }
}

#[test]
fn a_guest_without_an_agent_never_answers() {
    let Some(lab) = lab(1) else { return };
    let cancel = Cancel::new();
    let mut vm = OwnedVm::start(&lab.launch(1, &["vmlab.no_agent"]), &cancel).unwrap();
    vm.keep_last_state(lab.state(), &cancel).unwrap();
    let limit = Duration::from_secs(10);
    let error = vm.wait_ready(limit, &cancel).unwrap_err();
    assert_eq!(error, GuestFailure::NeverAnswered { limit });
    lab.has_last_state("running");
}

#[test]
fn refused_arguments_are_told_in_qemus_words() {
    let Some(lab) = lab(0) else { return };
    let mut launch = lab.launch(1, &[]);
    launch.args.push("-no-such-option".into());
    let error = OwnedVm::start(&launch, &Cancel::new()).unwrap_err();
    let GuestFailure::Refused { detail } = &error else { panic!("{error}") };
    assert!(detail.contains("-no-such-option"), "{detail}");
}

#[test]
fn the_verdict_about_kvm_is_one_line() {
    let Some(lab) = lab(1) else { return };
    let verdict = guest::kvm::usable_kvm(
        guest::kvm::HostKind::Real,
        &lab.qemu,
        &lab.image,
        lab.folder.path(),
        &[],
        &Cancel::new(),
    )
    .unwrap();
    println!("{verdict:?}");
    if let guest::kvm::KvmVerdict::Unusable { why } = verdict {
        assert!(!why.is_empty() && !why.contains('\n'), "{why}");
    }
}
