//! What takes many boots, or two QEMUs for one guest: reboots, live migration, and a
//! switch that dies under traffic. The guests are the image's kernel with one small
//! script behind it. Emulated: frames are counted, times are told.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use guest::Cancel;
use guest::image::{BUILTIN, GuestImage, Recipe};
use guest::qemu::find_qemu;
use serde_json::{Value, json};
use suite::{Tier, Turn, needs};
use tempfile::TempDir;
use vmconfig::Arch;

use crate::switch::RunningSwitch;

/// Modules of the guest's kernel, each behind those that it needs; the initial RAM
/// disk of the image has the first five.
const MODULES: [&str; 8] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
];

/// The guest's first process. `number` is its address, `asks` whom it asks, `then`
/// what it does when it was answered, or that it asks from many addresses and says which of
/// its card's queues have called it.
const INIT: &str = r#"#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys
$b mount -t proc none /proc; $b mount -t sysfs none /sys; $b mount -t devtmpfs none /dev
for word in $($b cat /proc/cmdline); do
	case $word in number=*|asks=*|then=*) eval $word;; esac
done
for module in MODULES; do $b insmod /lib/$module.ko || echo "tiny: no $module"; done
card=
until [ -n "$card" ]; do
	for one in /sys/class/net/e*; do [ -e $one ] && card=${one##*/}; done
done
$b ip link set lo up
$b ip addr add 10.0.0.$number/24 dev $card && $b ip link set $card up
echo "tiny: up"
if [ "$then" = reboot ] || [ "$then" = wait ]; then
	until $b ping -c 1 -W 1 10.0.0.$asks >/dev/null 2>&1; do :; done
	echo "tiny: reached"
	[ "$then" = reboot ] && $b reboot -f
fi
if [ "$then" = spread ]; then
	all="11 12 13 14 15 16 17 18"
	for own in $all; do $b ip addr add 10.0.0.$own/24 dev $card; done
	while :; do
		for own in $all; do $b ping -c 1 -W 1 -I 10.0.0.$own 10.0.0.$asks >/dev/null 2>&1; done
		$b awk '/-input/ { sum = 0; for (at = 2; at <= NF; at++) if ($at ~ /^[0-9]+$/) sum += $at
			if (sum > 0) print "tiny: called by", $NF "." }' /proc/interrupts
	done
fi
while [ -n "$asks" ] && [ "$then" = ask ]; do $b ping -i 0.02 10.0.0.$asks; done
while :; do $b sleep 1000; done
"#;

struct Lab {
    _turn: Turn,
    image: GuestImage,
    /// What follows the image's own initial RAM disk.
    folder: TempDir,
    qemus: Vec<PathBuf>,
}

/// A QEMU, with the rings of its guests' cards.
struct Host {
    qemu: PathBuf,
    packed: bool,
}

impl Host {
    /// What a report calls it.
    fn name(&self) -> String {
        let rings = if self.packed { "packed" } else { "split" };
        format!("{}, {rings} rings", self.qemu.display())
    }
}

impl Lab {
    /// Each QEMU with both kinds of rings.
    fn hosts(&self) -> impl Iterator<Item = Host> {
        let both = |qemu: &PathBuf| [false, true].map(|packed| Host { qemu: qemu.clone(), packed });
        self.qemus.iter().flat_map(both)
    }
}

fn lab(pcpus: usize) -> Option<Lab> {
    let turn = needs(Tier::Full).pcpus(pcpus).turn()?;
    let qemu = match find_qemu(Arch::X86_64) {
        Ok(qemu) => qemu,
        Err(error) => {
            suite::skip(error);
            return None;
        }
    };
    let recipe = Recipe::builtin(BUILTIN, Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    initrd(&image, folder.path());
    let mut qemus = vec![qemu.path];
    match newer_qemu() {
        Ok(path) => qemus.push(path),
        Err(why) => suite::skip_part("QEMU 10", why),
    }
    Some(Lab { _turn: turn, image, folder, qemus })
}

/// Debian 13's QEMU.
fn newer_qemu() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/get-qemu");
    let output = Command::new(script).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() {
        Ok(said.into())
    } else {
        Err(format!(
            "scripts/get-qemu fetched none: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}

/// The image's initial RAM disk, with one behind it that the kernel lays over it.
fn initrd(image: &GuestImage, folder: &Path) {
    let over = folder.join("over");
    fs::create_dir_all(over.join("lib")).unwrap();
    let root = &image.root_image;
    let debugfs = |request: String| {
        let output = Command::new("/sbin/debugfs").args(["-R", &request]).arg(root).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let listed = debugfs("ls -p /lib/modules".to_owned());
    let release = listed.split('/').find(|word| {
        word.starts_with(|c: char| c.is_ascii_digit() && c != '0') && word.contains('.')
    });
    let release = release.unwrap_or_else(|| panic!("no kernel's modules in {listed}"));
    let mut names = Vec::new();
    for module in MODULES {
        let name = module.rsplit('/').next().unwrap();
        names.push(name);
        if module.contains('/') {
            let to = over.join(format!("lib/{name}.ko"));
            debugfs(format!("dump /lib/modules/{release}/kernel/{module}.ko {}", to.display()));
            assert!(to.exists(), "{module}");
        }
    }
    let init = over.join("init");
    fs::write(&init, INIT.replace("MODULES", &names.join(" "))).unwrap();
    let script = "chmod 755 init && find . | cpio --quiet -o -H newc -R 0:0";
    let packed = Command::new("sh").args(["-c", script]).current_dir(&over).output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let own = fs::read(&image.initrd).unwrap();
    // Archives begin at multiples of 512 bytes.
    let padding = vec![0; own.len().next_multiple_of(512) - own.len()];
    fs::write(folder.join("initrd"), [own, padding, packed.stdout].concat()).unwrap();
}

/// A QEMU with such a guest; ended on drop.
struct Tiny {
    child: Child,
    folder: TempDir,
}

impl Tiny {
    /// Begins to boot at the switch's socket, or to wait for a guest that comes.
    fn start(lab: &Lab, host: &Host, socket: &Path, words: &str, more: &[&str]) -> Self {
        Self::with_card(lab, host, socket, words, ["", ""], more)
    }

    /// The same with more said of both halves of its card, `-netdev` and `-device`.
    fn with_card(
        lab: &Lab,
        host: &Host,
        socket: &Path,
        words: &str,
        [netdev, device]: [&str; 2],
        more: &[&str],
    ) -> Self {
        let qemu = &host.qemu;
        let folder = tempfile::tempdir().unwrap();
        let number = words.split("number=").nth(1).unwrap().split(' ').next().unwrap();
        let version = Command::new(qemu).arg("--version").output().unwrap().stdout;
        let old = String::from_utf8_lossy(&version).contains("version 7.");
        // QEMU 7.2 emulating crashes with vectors: msix_set_vector_notifiers.
        let vectors = if old { ",vectors=0" } else { "" };
        let packed = if host.packed { ",packed=on" } else { "" };
        let child = Command::new(qemu)
            .args(["-nodefaults", "-no-user-config", "-display", "none", "-m", "128"])
            .args(["-object", "memory-backend-memfd,id=mem,size=128M,share=on"])
            .args(["-machine", "q35,accel=tcg,memory-backend=mem", "-cpu", "qemu64"])
            .arg("-kernel")
            .arg(&lab.image.kernel)
            .arg("-initrd")
            .arg(lab.folder.path().join("initrd"))
            .args(["-append", &format!("console=ttyS0 quiet panic=-1 cryptomgr.notests {words}")])
            .args(["-serial", &format!("file:{}", folder.path().join("console").display())])
            .args([
                "-qmp",
                &format!("unix:{},server=on,wait=off", folder.path().join("qmp").display()),
            ])
            .args(["-chardev", &format!("socket,id=sw,path={},reconnect=1", socket.display())])
            .args(["-netdev", &format!("vhost-user,id=sw,chardev=sw{netdev}"), "-device"])
            .arg(format!(
                "virtio-net-pci,netdev=sw,mac=52:54:00:00:00:{number:0>2},romfile={vectors}{packed}\
                 {device}"
            ))
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.path().join("err")).unwrap())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    fn console(&self) -> String {
        let bytes = fs::read(self.folder.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How often the guest said `what`.
    fn said(&mut self, what: &str) -> usize {
        let ended = self.child.try_wait().unwrap();
        let console = self.console();
        let err = || fs::read_to_string(self.folder.path().join("err")).unwrap_or_default();
        assert!(ended.is_none(), "{ended:?} {}\n{console}", err());
        console.matches(what).count()
    }

    fn until_it_said(&mut self, what: &str, times: usize) {
        suite::until(&format!("{times} x {what:?}"), || (self.said(what) >= times).then_some(()));
    }

    /// Numbers of the answers that it got. Those that ping prints have 16 bits, and begin
    /// again after 22 minutes.
    fn answers(&self) -> Vec<u64> {
        let console = self.console();
        let number = |line: &str| line.split("seq=").nth(1)?.split(' ').next()?.parse().ok();
        let mut last = 0_u64;
        let all = console.lines().filter_map(number).map(|number: u16| {
            let ahead = number.wrapping_sub(last as u16) as i16;
            last = last.saturating_add_signed(ahead.into());
            last
        });
        all.collect()
    }

    fn qmp(&self) -> Qmp {
        let path = self.folder.path().join("qmp");
        let stream = suite::until("QEMU's monitor", || UnixStream::connect(&path).ok());
        let mut qmp = Qmp(BufReader::new(stream));
        qmp.line();
        qmp.ask("qmp_capabilities", &json!({}));
        qmp
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// QEMU's monitor.
struct Qmp(BufReader<UnixStream>);

impl Qmp {
    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    #[track_caller]
    fn ask(&mut self, command: &str, arguments: &Value) -> Value {
        let asked = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{asked}").unwrap();
        loop {
            let said = self.line();
            if let Some(value) = said.get("return") {
                return value.clone();
            }
            assert!(said.get("error").is_none(), "{command}: {said}");
        }
    }
}

fn status(switch: &RunningSwitch) -> Value {
    serde_json::from_str(&switch.ctl(&["status", "--json"]).stdout).unwrap()
}

/// No ring of any port was stopped.
#[track_caller]
fn all_rings_run(switch: &RunningSwitch) {
    for port in status(switch)["ports"].as_array().unwrap() {
        assert_eq!(port["stopped"], json!({}), "{port}");
    }
}

/// No ring was stopped, and those that run are of the kind that the guests were given.
#[track_caller]
fn rings_are(switch: &RunningSwitch, host: &Host) {
    all_rings_run(switch);
    let status = status(switch);
    let running = status["ports"].as_array().unwrap().iter();
    let running: Vec<_> = running.filter(|port| port["state"] == "running").collect();
    assert_eq!(running.len(), 2, "{status}");
    for port in running {
        let packed = port["features"].as_array().unwrap().contains(&"packed".into());
        assert_eq!(packed, host.packed, "{}: {port}", host.name());
    }
}

/// How many answers are missing in a row at most.
fn longest_gap(answers: &[u64]) -> u64 {
    let gaps = answers.windows(2).map(|pair| pair[1].saturating_sub(pair[0] + 1));
    gaps.max().unwrap_or(0)
}

/// How many of the answers between the first and the last are missing.
fn lost(answers: &[u64]) -> u64 {
    // One may come twice, or late.
    let all: BTreeSet<u64> = answers.iter().copied().collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else { return 0 };
    last - first + 1 - all.len() as u64
}

const PORTS: [&str; 7] = ["--quiet", "--port", "a.sock", "--port", "b.sock", "--port", "c.sock"];

/// By itself, as `reboot` does it, and by QEMU's reset, which asks nobody: half the
/// rings are as the guest left them then.
#[test]
fn a_guest_that_is_booted_again_and_again_finds_its_switch() {
    let Some(lab) = lab(1) else { return };
    for qemu in lab.qemus.clone() {
        let host = &Host { qemu, packed: false };
        let switch = RunningSwitch::new(&PORTS);
        let mut first = Tiny::start(&lab, host, &switch.path("a.sock"), "number=1", &[]);
        first.until_it_said("tiny: up", 1);
        // It asks all the time, whatever happens to its neighbour.
        let words = "number=3 asks=1 then=ask";
        let mut third = Tiny::start(&lab, host, &switch.path("c.sock"), words, &[]);
        third.until_it_said("seq=", 10);
        let words = "number=2 asks=1 then=reboot";
        let mut second = Tiny::start(&lab, host, &switch.path("b.sock"), words, &[]);
        for boots in 1..=50 {
            second.until_it_said("tiny: reached", boots);
        }
        all_rings_run(&switch);
        drop(second);

        let words = "number=2 asks=1 then=wait";
        let mut second = Tiny::start(&lab, host, &switch.path("b.sock"), words, &[]);
        let mut monitor = second.qmp();
        for boots in 1..=20 {
            second.until_it_said("tiny: reached", boots);
            monitor.ask("system_reset", &json!({}));
        }
        second.until_it_said("tiny: reached", 21);
        all_rings_run(&switch);
        // The other guests are the ones that they were, and talk on.
        let answers = third.answers().len();
        third.until_it_said("seq=", answers + 10);
        assert_eq!((first.said("tiny: up"), third.said("tiny: up")), (1, 1));
        let all = third.answers();
        println!(
            "{}: booted 71 times beside two that talk; of their {} requests {} had no answer",
            host.name(),
            all.last().unwrap() - all[0] + 1,
            lost(&all)
        );
    }
}

/// A vector (MSI-X) a queue, which QEMU 7.2 emulating can't have.
#[test]
fn queues_with_vectors_of_their_own_call_their_guest() {
    let Some(lab) = lab(1) else { return };
    let Some(newer) = lab.qemus.get(1) else {
        return suite::skip("QEMU before 8.0 crashes while it emulates vectors of vhost-user");
    };
    for packed in [false, true] {
        let newer = &Host { qemu: newer.clone(), packed };
        let ports = ["--quiet", "--port", "a.sock", "--port", "b.sock,queues=2"];
        let switch = RunningSwitch::new(&ports);
        let mut first = Tiny::start(&lab, newer, &switch.path("a.sock"), "number=1", &[]);
        first.until_it_said("tiny: up", 1);
        let words = "number=2 asks=1 then=spread";
        let socket = switch.path("b.sock");
        let card = [",queues=2", ",mq=on"];
        let mut second = Tiny::with_card(&lab, newer, &socket, words, card, &["-smp", "2"]);
        for queue in ["-input.0.", "-input.1."] {
            suite::until(queue, || {
                second.said("tiny: up");
                let console = second.console();
                let called = |line: &str| line.contains("tiny: called by") && line.contains(queue);
                console.lines().any(called).then_some(())
            });
        }
        all_rings_run(&switch);
        let status = status(&switch);
        assert_eq!(status["ports"][1]["rings"], 4, "{status}");
    }
}

#[test]
fn a_guest_moves_to_another_qemu_under_traffic() {
    let Some(lab) = lab(1) else { return };
    for host in &lab.hosts().collect::<Vec<_>>() {
        let switch = RunningSwitch::new(&PORTS);
        let mut here = Tiny::start(&lab, host, &switch.path("a.sock"), "number=1", &[]);
        here.until_it_said("tiny: up", 1);
        let words = "number=2 asks=1 then=ask";
        let mut other = Tiny::start(&lab, host, &switch.path("b.sock"), words, &[]);
        other.until_it_said("seq=", 100);
        let way = format!("unix:{}", here.folder.path().join("way").display());
        let there =
            Tiny::start(&lab, host, &switch.path("c.sock"), "number=1", &["-incoming", &way]);
        let mut arriving = there.qmp();
        suite::until("the destination to wait", || {
            (arriving.ask("query-status", &json!({}))["status"] == "inmigrate").then_some(())
        });
        let before = other.answers();
        let mut monitor = here.qmp();
        monitor.ask("migrate", &json!({ "uri": way }));
        let told = suite::until("the guest to have moved", || {
            let told = monitor.ask("query-migrate", &json!({}));
            assert_ne!(told["status"], "failed", "{told}");
            (told["status"] == "completed").then_some(told)
        });
        drop(monitor);
        drop(here);
        let answers = before.len();
        // It is behind its new port, and answers on.
        other.until_it_said("seq=", answers + 400);
        rings_are(&switch, host);
        let status = status(&switch);
        let port = |name: &str| {
            let ports = status["ports"].as_array().unwrap();
            ports.iter().find(|port| port["name"] == name).unwrap()
        };
        assert_eq!(port("c")["state"], "running", "{status}");
        assert_eq!(port("a")["state"], "waiting", "{status}");
        assert!(port("c")["counts"]["frames_in"].as_u64().unwrap() > 300, "{status}");
        let all = other.answers();
        println!(
            "{}: moved in {} ms, stood still {} ms; of {} requests {} had no answer, at most {} \
             in a row",
            host.name(),
            told["total-time"],
            told["downtime"],
            all.last().unwrap() - all[0] + 1,
            lost(&all),
            longest_gap(&all)
        );
        drop(there);
    }
}

#[test]
fn guests_go_on_when_their_switch_dies_under_traffic() {
    let Some(lab) = lab(1) else { return };
    for host in &lab.hosts().collect::<Vec<_>>() {
        let mut switch = RunningSwitch::new(&PORTS);
        let mut first = Tiny::start(&lab, host, &switch.path("a.sock"), "number=1", &[]);
        first.until_it_said("tiny: up", 1);
        let words = "number=2 asks=1 then=ask";
        let mut second = Tiny::start(&lab, host, &switch.path("b.sock"), words, &[]);
        second.until_it_said("seq=", 100);
        for _ in 0..5 {
            switch = switch.killed_and_started_again(&PORTS);
            let answers = second.answers().len();
            second.until_it_said("seq=", answers + 100);
        }
        rings_are(&switch, host);
        assert_eq!((first.said("tiny: up"), second.said("tiny: up")), (1, 1));
        let all = second.answers();
        println!(
            "{}: five deaths; of {} requests, one each 20 ms, {} had no answer, at most {} of \
             them ({} ms) in a row",
            host.name(),
            all.last().unwrap() - all[0] + 1,
            lost(&all),
            longest_gap(&all),
            longest_gap(&all) * 20
        );
    }
}
