//! What a guest that means harm can cost, seen with real guests under emulation.
//! Each row of the table in docs/hostile-guests.md is one here.

use std::path::Path;
use std::time::{Duration, Instant};

use guest::image::{Archive, BUILTIN, GuestImage, Recipe};
use guest::qemu::{Qemu, find_qemu};
use guest::{Cancel, ExecStatusCode, GuestCommand, GuestFailure, Launch, OwnedVm};
use suite::{Tier, needs};
use vmconfig::qemu::{Channels, emit};
use vmconfig::{Accel, Arch, BootSource, GuestTopology, VmSettings, VmSpec};

/// For what ends otherwise: other tests may run beside these.
const BOOT: Duration = suite::PATIENCE;

/// Most that a guest may cost beside what vmlab takes anyway, MiB.
const MOST_MEMORY_MIB: u64 = 100;
const MOST_DISK_MIB: u64 = 64;

/// The guest's first process. It is told by the kernel's command line what to do
/// before anybody asks, and speaks the agent's protocol as far as lies go.
const HOSTILE: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
for module in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci virtio_console; do
	insmod "/lib/$module.ko"
done
agent= ends=
until [ -n "$agent" ] && [ -n "$ends" ]; do
	for port in /sys/class/virtio-ports/*; do
		read -r name <"$port/name" || continue
		case $name in
		org.qemu.guest_agent.0) agent=/dev/${port##*/} ;;
		org.vmlab.done.0) ends=/dev/${port##*/} ;;
		esac
	done
done
read -r options </proc/cmdline
case " $options " in
*" first=ends "*) cat /dev/zero >"$ends" ;;
*" first=end-lines "*) yes >"$ends" ;;
*" first=agent "*) cat /dev/zero >"$agent" ;;
*" first=agent-lines "*) yes >"$agent" ;;
*" first=console "*) yes "a line without end" >/dev/ttyS0 ;;
*" first=silence "*) sleep 1000 ;;
*" first=panic "*) echo c >/proc/sysrq-trigger ;;
*" first=power-off "*) echo o >/proc/sysrq-trigger; sleep 1000 ;;
*" first=reset "*) echo b >/proc/sysrq-trigger ;;
*" first=ports "*) while :; do exec 4<>"$ends"; exec 4>&-; done & ;;
esac
exec 3<>"$agent"
while read -r line <&3; do
	case $line in
	*guest-sync-delimited*)
		id=${line##*\"id\":}
		id=${id%%[!0-9]*}
		echo "{\"return\": $id}" >&3
		;;
	*guest-exec-status*)
		case $what in
		most) { printf '{"return": {"exited": true, "exitcode": 0, "out-data": "'
			head -c 11184808 /dev/zero | tr '\0' A
			printf '", "err-data": "'
			head -c 11184808 /dev/zero | tr '\0' A
			echo '"}}'; } >&3 ;;
		too-much) { printf '{"return": {"exited": true, "exitcode": 0, "out-data": "'
			head -c 22369620 /dev/zero | tr '\0' A
			echo '"}}'; } >&3 ;;
		wide) { printf '{"return": ['
			yes 0, | head -c 9000000 | tr -d '\n'
			echo '0]}'; } >&3 ;;
		deep) { yes [ | head -c 4000000 | tr -d '\n'; echo; } >&3 ;;
		types) echo '{"return": {"exited": "yes", "exitcode": [], "out-data": 7}}' >&3 ;;
		numbers) echo '{"return": {"exited": true, "exitcode": -99999999999999999999}}' >&3 ;;
		infinite) echo '{"return": {"exited": true, "exitcode": 1e999}}' >&3 ;;
		base64) echo '{"return": {"exited": true, "exitcode": 0, "out-data": "!?"}}' >&3 ;;
		reset) echo b >/proc/sysrq-trigger ;;
		no-end) cat /dev/zero >&3 ;;
		silent) ;;
		drips) while :; do printf x >&3; sleep 1; done ;;
		console)
			yes "a line without end" >/dev/ttyS0 &
			echo '{"return": {"exited": true, "exitcode": 0}}' >&3
			;;
		*) echo '{"return": {"exited": false}}' >&3 ;;
		esac
		;;
	*guest-exec*)
		case $line in
		# Nothing that runs obeys.
		*kill*) ;;
		*) what=${line##*vmlab\",\"} what=${what%%\"*} ;;
		esac
		echo '{"return": {"pid": 7}}' >&3
		[ "$what" != ends ] || yes >"$ends"
		;;
	esac
done
"#;

struct Lab {
    qemu: Qemu,
    image: GuestImage,
    folder: tempfile::TempDir,
}

impl Lab {
    /// Starts the hostile guest, which first does `first`.
    fn start(&self, first: &str) -> Result<OwnedVm, GuestFailure> {
        let file = |name: &str| self.folder.path().join(name);
        let channels = Channels {
            qmp_socket: file("qmp"),
            agent_socket: file("agent"),
            done_socket: file("done"),
            console_socket: file("serial"),
            console_log: file("console"),
        };
        let boot = BootSource::Direct {
            kernel: self.image.kernel.clone(),
            initrd: file("initrd.cpio"),
            root_image: self.image.root_image.clone(),
            cmdline: self.image.cmdline.clone(),
        };
        let spec = VmSpec::new(VmSettings {
            topology: GuestTopology::of_cores(1),
            memory_mib: 256,
            kernel_cmdline: vec!["rdinit=/hostile".to_owned(), format!("first={first}")],
            ..VmSettings::new("hostile", Arch::X86_64, Accel::Tcg, boot)
        })
        .unwrap();
        let args = emit(&spec, &channels, &self.qemu.capabilities).args;
        let launch = Launch {
            qemu: self.qemu.path.clone(),
            args,
            channels,
            env: Vec::new(),
            start_limit: guest::START_LIMIT,
        };
        OwnedVm::start(&launch, &Cancel::new())
    }

    /// What lies in the folder and was not put there before, MiB.
    fn disk_mib(&self) -> u64 {
        let console = std::fs::metadata(self.folder.path().join("console"));
        console.map_or(0, |file| file.len()) >> 20
    }

    /// A guest that does `first` before anybody asks, and how its boot ends.
    fn boots(&self, first: &str, limit: Duration) -> GuestFailure {
        self.row(first, || {
            let ended = self.start(first).and_then(|mut vm| vm.wait_ready(limit, &Cancel::new()));
            ended.unwrap_err()
        })
    }

    /// Does `work`, and sees what it cost.
    fn row<T: std::fmt::Debug>(&self, name: &str, work: impl FnOnce() -> T) -> T {
        let before = begin_peak_mib();
        let begun = Instant::now();
        let result = work();
        let (grown, disk) = (peak_mib().saturating_sub(before), self.disk_mib());
        let shown = format!("{result:?}");
        println!(
            "{name}: {grown} MiB of memory, {disk} MiB of disk, {:.1} s: {:.90}",
            begun.elapsed().as_secs_f64(),
            shown
        );
        assert!(grown <= MOST_MEMORY_MIB, "{name}: {grown} MiB");
        assert!(disk <= MOST_DISK_MIB, "{name}: {disk} MiB");
        result
    }
}

/// Forgets this process' peak; what it takes now, MiB.
fn begin_peak_mib() -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_mib()
}

/// The most memory that this process has taken, MiB.
///
/// Source: Linux `Documentation/filesystems/proc.rst`, `VmHWM`.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
}

/// The image's initial RAM disk with the hostile program behind it.
fn make_initrd(image: &GuestImage, path: &Path) {
    let mut bytes = std::fs::read(&image.initrd).unwrap();
    let mut archive = Archive::default();
    archive.file("hostile", 0o755, HOSTILE.as_bytes());
    bytes.extend(archive.finish());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_hostile_guest_costs_little_and_is_told_of() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let qemu = match find_qemu(Arch::X86_64) {
        Ok(qemu) => qemu,
        Err(error) => return suite::skip(error),
    };
    let recipe = Recipe::builtin(BUILTIN, Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    let lab = Lab { qemu, image, folder: tempfile::tempdir().unwrap() };
    make_initrd(&lab.image, &lab.folder.path().join("initrd.cpio"));

    // Before its agent answers.
    for (first, port) in [
        ("ends", "org.vmlab.done.0"),
        ("end-lines", "org.vmlab.done.0"),
        ("agent", "org.qemu.guest_agent.0"),
        ("agent-lines", "org.qemu.guest_agent.0"),
    ] {
        let failure = lab.boots(first, BOOT);
        assert!(
            matches!(&failure, GuestFailure::Flooded { port: flooded, .. } if flooded == port),
            "{first}: {failure}"
        );
    }
    let limit = Duration::from_secs(15);
    for first in ["console", "silence"] {
        assert_eq!(lab.boots(first, limit), GuestFailure::NeverAnswered { limit });
    }
    let panicked = lab.boots("panic", BOOT);
    assert!(matches!(panicked, GuestFailure::Panicked { .. }), "{panicked}");
    for first in ["power-off", "reset"] {
        let failure = lab.boots(first, BOOT);
        assert!(matches!(failure, GuestFailure::Shutdown { .. }), "{first}: {failure}");
    }

    // With an agent that lies: what leaves the VM usable, and what ends it.
    let exec = |vm: &mut OwnedVm, what: &str, limit: Duration| {
        lab.row(what, || vm.exec(&GuestCommand::new([what], limit), &Cancel::new()))
    };
    let ready_after = |first: &str| {
        let mut vm = lab.start(first).unwrap();
        vm.wait_ready(BOOT, &Cancel::new()).unwrap_or_else(|error| {
            panic!("{error}\n{}", vm.console_tail(20));
        });
        vm
    };
    let ready = || ready_after("nothing");
    let mut vm = ready();
    let most = exec(&mut vm, "most", BOOT).unwrap();
    assert_eq!((most.stdout.len(), most.stderr.len()), (8_388_606, 8_388_606));
    drop(most);
    let too_much = exec(&mut vm, "too-much", BOOT).unwrap_err();
    assert!(matches!(too_much, GuestFailure::OutputTooLarge { .. }), "{too_much}");
    let wide = exec(&mut vm, "wide", BOOT).unwrap_err();
    assert!(matches!(wide, GuestFailure::Agent { .. }), "{wide}");
    for nonsense in ["deep", "types", "numbers", "infinite", "base64"] {
        let failure = exec(&mut vm, nonsense, BOOT).unwrap_err();
        assert!(
            matches!(failure, GuestFailure::Agent { .. } | GuestFailure::Hung { .. }),
            "{nonsense}: {failure}"
        );
        if failure.is_final() {
            vm = ready();
        }
    }
    let short = Duration::from_secs(2);
    let never_ends = exec(&mut vm, "never-ends", short).unwrap_err();
    assert!(
        matches!(&never_ends, GuestFailure::TimeLimit { output, .. } if output.is_none()),
        "{never_ends}"
    );
    // It goes on beside what follows.
    let printed = exec(&mut vm, "console", BOOT).unwrap();
    assert_eq!(printed.status, ExecStatusCode::Exited(0));
    let no_end = exec(&mut vm, "no-end", BOOT).unwrap_err();
    assert!(matches!(no_end, GuestFailure::Flooded { .. }), "{no_end}");
    drop(vm);

    for what in ["silent", "drips"] {
        let mut vm = ready();
        let hung = exec(&mut vm, what, short).unwrap_err();
        assert!(
            matches!(&hung, GuestFailure::Hung { command, .. } if command == "guest-exec-status"),
            "{what}: {hung}"
        );
    }
    // It opens and closes a port all the while, and serves.
    let mut vm = lab.row("ports", || ready_after("ports"));
    let served = exec(&mut vm, "console", BOOT).unwrap();
    assert_eq!(served.status, ExecStatusCode::Exited(0));
    drop(vm);
    let mut vm = ready();
    let reset = exec(&mut vm, "reset", BOOT).unwrap_err();
    assert!(matches!(reset, GuestFailure::Shutdown { .. }), "{reset}");
    let mut vm = ready();
    let ends = exec(&mut vm, "ends", BOOT).unwrap_err();
    assert!(matches!(ends, GuestFailure::Flooded { .. }), "{ends}");
}
