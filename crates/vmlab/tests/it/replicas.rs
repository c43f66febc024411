//! A whole emulated host: brought up, used, restored, taken down, and every way
//! in which that fails.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use suite::{SharedThing, Tier, needs, until};
use topology::Host;

use crate::lab::{CommandOutput, Machine, VMLAB, has_ended, said, vmlab};
use crate::running::{RunningVmlab, Study, assert_complete, results};
use crate::schemas;

/// Replicas of this test alone, with the images and states of all.
struct Lab {
    state: tempfile::TempDir,
}

impl Lab {
    fn new() -> Self {
        Self { state: tempfile::tempdir().unwrap() }
    }

    fn replica(&self, args: &[&str]) -> Command {
        let mut command = vmlab(["replica"]);
        command.args(args).env("XDG_STATE_HOME", self.state.path());
        command
    }

    fn say(&self, args: &[&str]) -> CommandOutput {
        said(&mut self.replica(args))
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.say(args).has_code(0).stdout).unwrap()
    }

    /// QEMU's process of the only replica.
    fn qemu(&self) -> Option<Pid> {
        let listed = self.json(&["list", "--json"]);
        let folder = listed[0]["folder"].as_str()?;
        let pid = std::fs::read_to_string(format!("{folder}/pid")).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    }

    /// The same, once its devices are made and its host boots.
    fn booting_qemu(&self) -> Option<Pid> {
        self.json(&["list", "--json"])[0]["ssh"].as_str()?;
        self.qemu()
    }

    /// A study that runs in a replica.
    fn run(&self, args: &[&str], study: &Study) -> RunningVmlab {
        let mut command = vmlab(["run"]);
        command.args(args).args(["--on", "replica"]).env("XDG_STATE_HOME", self.state.path());
        RunningVmlab::spawn(&mut command, &study.dir())
    }

    fn has_none(&self) {
        assert_eq!(self.json(&["list", "--json"]), Value::Array(Vec::new()));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Nothing of a failed test is left; what it said is told.
        let _ = self.replica(&["down", "--all"]).output();
    }
}

/// A QEMU that is none, at the console of a replica in `folder`.
fn console(folder: &Path) -> (UnixStream, Child) {
    let name = folder.join("console.socket");
    let listener = UnixListener::bind(&name).unwrap();
    let keeper = vmlab(["replica", "keep-console"])
        .current_dir(folder)
        .stdin(OwnedFd::from(listener))
        .spawn()
        .unwrap();
    (UnixStream::connect(name).unwrap(), keeper)
}

#[test]
fn the_console_of_a_host_that_prints_without_end_keeps_its_end() {
    const MOST_BYTES: u64 = 2 << 20;
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("console");
    let (mut qemu, mut keeper) = console(folder.path());
    for _ in 0..4 * MOST_BYTES / 65536 {
        qemu.write_all(&[b'x'; 65536]).unwrap();
        // What came first may not have been read yet.
        assert!(std::fs::metadata(&kept).map_or(0, |file| file.len()) <= MOST_BYTES);
    }
    qemu.write_all(b"\nthe last words\n").unwrap();
    drop(qemu);
    assert!(keeper.wait().unwrap().success());
    let text = std::fs::read(&kept).unwrap();
    assert!(text.len() as u64 <= MOST_BYTES && text.len() as u64 >= MOST_BYTES / 2);
    assert!(text.ends_with(b"x\nthe last words\n"));
    assert!(!folder.path().join("console.socket").exists());

    // Something else than a socket on which somebody will connect.
    let mut other = vmlab(["replica", "keep-console"]);
    said(other.current_dir(folder.path()).stdin(Stdio::null()))
        .is_error(&["Cannot keep a replica's console"]);
}

#[test]
fn a_replica_is_a_kvm_host() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    let lab = Lab::new();
    let up = lab.json(&["up", "--like", "two-nodes", "--json", "--timeout", "3600"]);
    schemas::holds("replica", &up.to_string());
    assert_eq!((&up["state"], &up["pcpus"]), (&Value::from("up"), &Value::from(4)), "{up}");
    assert_eq!(up["node_memory_mib"], serde_json::json!([1024, 1024]));
    let list = lab.json(&["list", "--json"]);
    schemas::holds("replicas", &list.to_string());
    assert_eq!(list[0]["name"], "two-nodes");
    lab.say(&["up", "--like", "two-nodes"]).is_error(&["\"two-nodes\" is up", "--name"]);

    // The vmlab inside looks by itself, and boots a guest under KVM.
    let shown = lab.say(&["exec", "--", "vmlab", "host", "--json", "--try-kvm"]);
    let host = Host::from_json(&shown.has_code(0).stdout).unwrap();
    assert_eq!(host.online().to_string(), "0-3");
    let nodes: Vec<String> = host.nodes.iter().map(|node| node.pcpus.to_string()).collect();
    assert_eq!(nodes, ["0-1", "2-3"]);
    assert_eq!(host.nodes[0].distances, [(0, 10), (1, 20)].into());
    assert_eq!(host.virtualised.emulator.as_deref(), Some("QEMU (TCG)"));
    assert!(host.warnings.iter().any(|line| line.starts_with("Declared")), "{:?}", host.warnings);
    // Nor does one that was told nothing, as in a container there, take it for a real host.
    let untold = ["exec", "--", "env", "VMLAB_DECLARED_HOST=/none", "vmlab", "host", "--json"];
    let untold = Host::from_json(&lab.say(&untold).has_code(0).stdout).unwrap();
    assert_eq!(untold.virtualised.emulator, host.virtualised.emulator);
    assert!(untold.warnings.iter().any(|line| line.contains("emulated time")), "{untold:?}");
    let qemu = host.qemu.expect("QEMU is installed there");
    assert_eq!(qemu.kvm_usable, Some(true), "{:?}", qemu.kvm_why);

    // Exit codes, streams and the disk.
    lab.say(&["exec", "two-nodes", "--", "sh", "-c", "exit 7"]).has_code(7);
    let mut cat = lab.replica(&["exec", "--", "sh", "-c", "cat >/scratch/x; md5sum </scratch/x"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut cat.stdin.take().unwrap(), &[b'x'; 1 << 20]).unwrap();
    let sum = String::from_utf8(cat.wait_with_output().unwrap().stdout).unwrap();
    assert!(sum.starts_with("b561f87202d04959e37588ee05cf5b10"), "{sum}");

    // A parameter for which the module is taken out and loaded again.
    let zerocopy = "/sys/module/vhost_net/parameters/experimental_zcopytx";
    let read = |args: &[&str]| {
        lab.say(&[&["exec", "--"], args, &["cat", zerocopy]].concat()).has_code(0).stdout.clone()
    };
    assert_eq!(read(&[]), "0\n");
    assert_eq!(
        read(&["vmlab", "settings", "set", "vhost_net_zerocopy=1", "--reload", "--"]),
        "1\n"
    );
    assert_eq!(read(&[]), "0\n");

    lab.say(&["down"]).has_code(2);
    lab.say(&["down", "two-nodes"]).has_code(0);
    lab.has_none();
}

#[test]
fn replicas_of_one_state_are_apart() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let lab = Lab::new();
    lab.say(&["up", "--like", "two-nodes", "--timeout", "3600"]).has_code(0);
    lab.say(&["down", "two-nodes"]).has_code(0);
    // Two at once, of the state that was saved when it first came up.
    let names = ["again", "beside"];
    let both = names.map(|name| {
        let mut up = lab.replica(&["up", "--like", "two-nodes", "--name", name, "--json"]);
        up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for up in both {
        let said = CommandOutput::of(up.wait_with_output().unwrap());
        let up: Value = serde_json::from_str(&said.has_code(0).stdout).unwrap();
        assert_eq!(up["restored"], true, "{up}");
    }
    lab.say(&["exec", "--", "true"]).is_error(&["again, beside"]);
    for name in names {
        let said = lab.say(&["exec", name, "--", "sh", "-c", "hostname | tee /scratch/name"]);
        assert_eq!(said.has_code(0).stdout, format!("{name}\n"));
    }
    lab.say(&["down", "beside"]).has_code(0);
    let name = lab.say(&["exec", "--", "cat", "/scratch/name"]);
    assert_eq!(name.has_code(0).stdout, "again\n");

    // Its QEMU is killed.
    kill_process(lab.qemu().unwrap(), Signal::KILL).unwrap();
    until("the replica is dead", || {
        (lab.json(&["list", "--json"])[0]["state"] == "dead").then_some(())
    });
    lab.say(&["exec", "--", "true"]).is_error(&["\"again\" is dead", "vmlab replica down"]);
    let down = lab.say(&["down", "again"]);
    assert!(down.has_code(0).stdout.contains("gone already"), "{down:?}");
    lab.has_none();
}

#[test]
fn a_study_goes_on_in_another_replica() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let lab = Lab::new();
    lab.say(&["up", "--like", "two-nodes", "--timeout", "3600"]).has_code(0);
    let hackbench = "[[workload]]\nrun = \"hackbench\"\nparams = { groups = 1, loops = 10 }\n";
    let variants = "[[variant]]\nname = \"one\"\nvm.vcpus = 1\n\n\
                    [[variant]]\nname = \"two\"\nvm.vcpus = 2\n\n";
    let study = Study::new(1, &format!("{variants}{hackbench}"));
    study.change("accel = \"tcg\"", "accel = \"kvm\"");
    study.change("boot_limit_s = 180", "boot_limit_s = 300");
    let (file, dir) = (study.folder().join("study.toml"), study.dir());
    let dir = dir.to_str().unwrap();
    let mut running = lab.run(&[file.to_str().unwrap(), "--out", dir], &study);
    running.until_trials_ended(1);
    kill_process(lab.qemu().unwrap(), Signal::KILL).unwrap();
    let lost = running.wait();
    assert_eq!(lost.code, Some(2), "{lost:?}");
    let last = lost.stderr.lines().last().unwrap_or_default();
    let go_on = format!("--resume {dir} --on replica` goes on");
    assert!(last.contains("was lost") && last.contains(&go_on), "{lost:?}");

    lab.say(&["down", "two-nodes"]).has_code(0);
    // There is none any more: one is brought up, and taken down again.
    lab.run(&["--resume", dir], &study).wait().has_code(0);
    lab.has_none();
    assert_complete(&study.dir());
    let report = said(&mut vmlab(["report", dir]));
    assert!(report.stdout.contains("KVM on emulated host"), "{report:?}");
}

#[test]
fn disks_of_the_hosts_kernel_go_with_their_vms() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let lab = Lab::new();
    lab.say(&["up", "--like", "two-nodes", "--timeout", "3600"]).has_code(0);
    let study = Study::new(
        1,
        "vcpus = 1\n\n\
         [[variant]]\nname = \"file\"\n\n\
         [[variant]]\nname = \"null-blk\"\ndisk.backing = \"null-blk\"\n\n\
         [[variant]]\nname = \"brd\"\ndisk.backing = \"brd\"\n\n\
         [[variant]]\nname = \"target-of-file\"\ndisk.bus = \"vhost-scsi\"\n\n\
         [[variant]]\nname = \"target-of-brd\"\ndisk = { bus = \"vhost-scsi\", backing = \"brd\" }\n\n\
         [[variant]]\nname = \"daemon\"\n\
         disk = { bus = \"vhost-user-blk\", backing = \"null-blk\" }\n\
         vm.memory = { shared = true, source = \"memfd\" }\n\n\
         [[workload]]\nrun = \"fio\"\n\
         params = { disks = 1, size_mib = 16, time_s = 2, ramp_s = 0 }\n",
    );
    study.change("accel = \"tcg\"", "accel = \"kvm\"");
    study.change("boot_limit_s = 180", "boot_limit_s = 300");
    let (file, dir) = (study.folder().join("study.toml"), study.dir());
    let dir = dir.to_str().unwrap();
    lab.run(&[file.to_str().unwrap(), "--out", dir], &study).wait().has_code(0);
    let contents = assert_complete(&study.dir());
    let all = results(&contents.events);
    assert_eq!(all.len(), 6);
    for result in all {
        assert!(result.outcome.is_completed(), "{result:#?}");
        let vhost = result.runs[0].counters.get("vhost.run_s");
        let of_kernel = result.trial.variant.starts_with("target");
        assert_eq!(vhost.is_some(), of_kernel, "{result:#?}");
    }
    // Two disks of one VM: the second is made with the modules that the first loaded.
    let study = Study::new(
        1,
        "vcpus = 1\n\n\
         [[variant]]\nname = \"two-targets\"\n\
         disk = { bus = \"vhost-scsi\", backing = \"null-blk\" }\n\n\
         [[workload]]\nrun = \"fio\"\n\
         params = { disks = 2, size_mib = 16, requests = 1000 }\n",
    );
    study.change("accel = \"tcg\"", "accel = \"kvm\"");
    study.change("boot_limit_s = 180", "boot_limit_s = 300");
    let file = study.folder().join("study.toml");
    let words = [file.to_str().unwrap(), "--out", study.dir().to_str().unwrap()].map(str::to_owned);
    lab.run(&words.each_ref().map(String::as_str), &study).wait().has_code(0);
    assert!(results(&assert_complete(&study.dir()).events)[0].outcome.is_completed());
    let left = "ls /sys/module | grep -e null_blk -e brd -e vhost_scsi -e target_core || echo none";
    let said = lab.say(&["exec", "--", "sh", "-c", left]);
    assert_eq!(said.has_code(0).stdout.trim(), "none", "{said:?}");
}

/// What may be written in a replica ends where docs/hostile-guests.md says.
#[test]
fn a_replica_that_fills_its_disks_takes_their_size() {
    let Some(_turn) = needs(Tier::Full).pcpus(1).turn() else { return };
    let lab = Lab::new();
    lab.say(&["up", "--like", "two-nodes", "--nvme", "64MiB", "--timeout", "3600"]).has_code(0);
    let exec = |script: &str| lab.say(&["exec", "--", "sh", "-c", script]);
    let listed = lab.json(&["list", "--json"]);
    let folder = Path::new(listed[0]["folder"].as_str().unwrap());
    let taken = || -> u64 {
        let files = std::fs::read_dir(folder).unwrap();
        files.map(|file| file.unwrap().metadata().unwrap().blocks() * 512).sum()
    };
    let before = taken();
    // Past the file system, to the disks' ends: the kernel says that there is no more.
    for disk in ["scratch", "nvme0n1"] {
        let all = exec(&format!("dd if=/dev/zero of=$(readlink -f /dev/{disk}) bs=1M"));
        assert!(all.stderr.contains("No space left on device"), "{disk}: {all:?}");
    }
    for disk in ["root", "guests"] {
        let none = exec(&format!(
            "device=$(grep -l {disk} /sys/block/*/serial | cut -d/ -f4); \
             dd if=/dev/zero of=/dev/$device bs=4k count=1"
        ));
        assert_eq!(none.code, Some(1), "{disk}: {none:?}");
        assert!(none.stderr.contains("not permitted"), "{disk}: {none:?}");
    }
    // `true` may have to come from the disk that cannot be written.
    exec("true").has_code(0);
    let scratch = std::fs::metadata(folder.join("scratch.ext4")).unwrap().blocks() * 512;
    // What ext4's own file keeps beside its blocks is a page or two.
    assert!(((8 << 30)..=(8 << 30) + (1 << 16)).contains(&scratch), "{scratch}");
    let most = before + (8 << 30) + (64 << 20) + (2 << 20);
    assert!(taken() <= most, "{} of {most}", taken());
    lab.say(&["down", "two-nodes"]).has_code(0);
    lab.has_none();
}

/// A guest has a disk of the host for itself: bound for its trial, given back after it,
/// and after a kill by `vmlab clean`.
#[test]
fn a_guest_drives_a_disk_of_the_host() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let lab = Lab::new();
    let up = ["up", "--like", "two-nodes", "--nvme", "64MiB", "--timeout", "3600"];
    lab.say(&up).has_code(0);
    let exec = |script: &str| lab.say(&["exec", "--", "sh", "-c", script]);
    let study = Study::new(
        1,
        "vcpus = 1\n\n\
         [disk.backing.devices]\npaths = [\"/dev/nvme0n1\"]\noverwrite = true\n\n\
         [[variant]]\nname = \"served\"\n\n\
         [[variant]]\nname = \"passed\"\ndisk.bus = \"vfio\"\n\n\
         [[workload]]\nrun = \"fio\"\n\
         params = { disks = 1, size_mib = 16, requests = 5000 }\n",
    );
    study.change("accel = \"tcg\"", "accel = \"kvm\"");
    study.change("boot_limit_s = 180", "boot_limit_s = 300");
    let (file, dir) = (study.folder().join("study.toml"), study.dir());
    let words = [file.to_str().unwrap(), "--out", dir.to_str().unwrap()];
    lab.run(&words, &study).wait().has_code(0);
    let all = results(&assert_complete(&dir).events);
    assert_eq!(all.len(), 2);
    for result in &all {
        assert!(result.outcome.is_completed(), "{result:#?}");
        let args = result.qemu_args.join(" ");
        let passed = result.trial.variant == "passed";
        assert_eq!(args.contains("vfio-pci,host=0000:"), passed, "{args}");
        assert_eq!(args.contains("serial=vmlab-scratch"), !passed, "{args}");
        let bound = result.host_settings.get("vfio_pci").map_or("", String::as_str);
        assert_eq!(bound.starts_with("0000:"), passed, "{result:#?}");
    }
    // A request to the guest's own disk is a store to the device's memory, which is no
    // exit; one to a served disk faults.
    let exits = |variant: &str| -> f64 {
        let of = all.iter().filter(|result| result.trial.variant == variant);
        of.flat_map(|result| &result.runs).filter_map(|run| run.counters.get("kvm.exits.npf")).sum()
    };
    assert!(exits("passed") < exits("served"), "{} and {}", exits("passed"), exits("served"));
    let back = "cat /sys/bus/pci/devices/*/driver_override | sort -u; ls -d /sys/block/nvme0n1; \
                ls /sys/module | grep -c vfio";
    let said = exec(back).stdout;
    assert_eq!(said.lines().collect::<Vec<_>>(), ["(null)", "/sys/block/nvme0n1", "0"]);

    // Whoever uses the disk keeps it.
    let address = "address=$(basename $(readlink -f /sys/block/nvme0n1/device/device))";
    let set = format!("{address}; vmlab settings set vfio_pci=$address --");
    let used = format!("mke2fs -q /dev/nvme0n1; mount /dev/nvme0n1 /mnt; {set} true");
    exec(&used).is_error(&["its disk nvme0n1 is mounted at /mnt"]);
    // Killed, it is bound until somebody looks.
    let killed = format!(
        "umount /mnt; {set} sh -c 'kill -9 $PPID'; ls /sys/block | grep nvme; \
         vmlab clean >/dev/null; ls /sys/block | grep nvme; ls /sys/module | grep -c vfio"
    );
    assert_eq!(exec(&killed).stdout.lines().collect::<Vec<_>>(), ["nvme0n1", "0"]);
}

#[test]
fn a_boot_that_is_ended_leaves_nothing() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).alone_with(SharedThing::Leftovers).turn() else {
        return;
    };
    let lab = Lab::new();
    let too_late = lab.say(&["up", "--like", "two-nodes", "--fresh", "--timeout", "0"]);
    assert_eq!(too_late.code, Some(2), "{too_late:?}");
    assert!(too_late.stderr.contains("did not come up within 0 s"), "{too_late:?}");
    lab.has_none();

    let mut up = lab.replica(&["up", "--like", "two-nodes", "--fresh"]);
    let up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_child(&up);
    let qemu = until("QEMU runs", || lab.qemu());
    kill_process(pid, Signal::INT).unwrap();
    let ended = CommandOutput::of(up.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    has_ended(qemu);
    lab.has_none();

    // Its emulator ends twice, as one may for a fault of its own.
    let mut up = lab.replica(&["up", "--like", "two-nodes", "--fresh"]);
    let up = up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let first = until("QEMU boots", || lab.booting_qemu());
    kill_process(first, Signal::SEGV).unwrap();
    let second = until("another QEMU boots", || lab.booting_qemu().filter(|qemu| *qemu != first));
    kill_process(second, Signal::SEGV).unwrap();
    let ended = CommandOutput::of(up.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let twice = "The host's QEMU ended while it booted, and that of a second start did, too";
    assert!(ended.stderr.contains(twice), "{ended:?}");
    lab.has_none();

    // The command that boots it is killed: nobody waits for it any more.
    let mut up = lab.replica(&["up", "--like", "two-nodes", "--fresh"]);
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let qemu = until("QEMU runs", || lab.qemu());
    up.kill().unwrap();
    up.wait().unwrap();
    assert_eq!(lab.json(&["list", "--json"])[0]["state"], "dead");
    let clean = said(Command::new(VMLAB).arg("clean").env("XDG_STATE_HOME", lab.state.path()));
    assert!(clean.stdout.contains("removed replica two-nodes"), "{clean:?}");
    has_ended(qemu);
    lab.has_none();
}

#[test]
fn what_is_wrong_is_said_before_anything_starts() {
    let machine = Machine::with_qemu("7.2.0");
    let shown = machine.say(["replica", "up", "--like", "xeon-4208", "--dry-run"]);
    let text = &shown.has_code(0).stdout;
    for part in ["32 pCPUs", "32.0 times", "threads of a core", "dist,src=0,dst=1,val=21"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let shown = machine.say(["replica", "up", "--like", "xeon-4208", "--dry-run", "--json"]);
    schemas::holds("replica-preview", &shown.has_code(0).stdout);
    std::fs::write(
        machine.path("ppc.json"),
        r#"{"format":"vmlab-host","version":1,"arch":"ppc64le"}"#,
    )
    .unwrap();
    machine.say(["replica", "up", "ppc.json", "-n"]).is_error(&["ppc64le", "aarch64"]);
    machine
        .say(["replica", "up", "--like", "two-nodes", "--memory", "100MiB", "-n"])
        .is_error(&["100 MiB", "2 nodes"]);
    machine
        .say(["replica", "up", "--like", "two-nodes", "--image", "debian-12", "-n"])
        .is_error(&["\"debian-12\"", "host-debian-12, host-debian-12-full, host-debian-13"]);
    machine.say(["replica", "exec", "lab", "--", "true"]).is_error(&["no replica \"lab\""]);
    machine.say(["replica", "down", "lab"]).is_error(&["no replica \"lab\""]);
    machine.say(["replica", "logs"]).is_error(&["There is no replica"]);
    assert!(machine.say(["replica", "list"]).has_code(0).stdout.contains("No replicas"));
    for name in ["qemu-system-x86_64", "qemu-system-aarch64"] {
        std::fs::remove_file(machine.path("bin").join(name)).unwrap();
    }
    machine
        .say(["replica", "up", "--like", "two-nodes", "-n"])
        .is_error(&["apt-get install qemu-system-x86"]);
    machine
        .say(["replica", "up", "--like", "altra", "-n"])
        .is_error(&["apt-get install qemu-system-arm"]);
}
