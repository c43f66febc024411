//! Real guests talk through `vmlab switch`: QEMU as it is, Linux's driver, iperf3.
//! Emulated: what arrives counts, not how fast.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use guest::image::{BUILTIN, GuestImage, Recipe};
use guest::qemu::{Qemu, find_qemu};
use guest::{Cancel, GuestCommand, Launch, OwnedVm};
use suite::{PATIENCE, Tier, Turn, needs};
use vmconfig::qemu::{Channels, emit};
use vmconfig::{Accel, Arch, BootSource, MemoryBacking, MemorySource, VmSettings, VmSpec};

use crate::lab::VMLAB;
use crate::switch::RunningSwitch;

struct Lab {
    _turn: Turn,
    qemu: Qemu,
    image: GuestImage,
}

fn lab(tier: Tier) -> Option<Lab> {
    let turn = needs(tier).pcpus(2).turn()?;
    let qemu = match find_qemu(Arch::X86_64) {
        Ok(qemu) => qemu,
        Err(error) => {
            suite::skip(error);
            return None;
        }
    };
    let recipe = Recipe::builtin(BUILTIN, Arch::X86_64).unwrap();
    let image = guest::image::build(&recipe, &mut |_| (), &Cancel::new()).unwrap();
    Some(Lab { _turn: turn, qemu, image })
}

/// A guest at a switch.
struct Guest {
    vm: OwnedVm,
    _folder: tempfile::TempDir,
}

impl Guest {
    /// Begins to boot with this NIC.
    fn start(lab: &Lab, nic: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| -> PathBuf { folder.path().join(name) };
        let channels = Channels {
            qmp_socket: file("qmp"),
            agent_socket: file("agent"),
            done_socket: file("done"),
            console_socket: file("serial"),
            console_log: file("console"),
        };
        let boot = BootSource::Direct {
            kernel: lab.image.kernel.clone(),
            initrd: lab.image.initrd.clone(),
            root_image: lab.image.root_image.clone(),
            cmdline: lab.image.cmdline.clone(),
        };
        let memory = MemoryBacking {
            shared: Some(true),
            source: Some(MemorySource::Memfd),
            ..MemoryBacking::default()
        };
        let settings = VmSettings {
            memory_mib: 256,
            memory,
            ..VmSettings::new("guest", Arch::X86_64, Accel::Tcg, boot)
        };
        let spec = VmSpec::new(settings).unwrap();
        let mut args = emit(&spec, &channels, &lab.qemu.capabilities).args;
        args.extend_from_slice(nic);
        // QEMU 7.2 emulating crashes with vectors: msix_set_vector_notifiers.
        args.last_mut().unwrap().push_str(",vectors=0");
        let launch = Launch {
            qemu: lab.qemu.path.clone(),
            args,
            channels,
            env: Vec::new(),
            start_limit: guest::START_LIMIT,
        };
        let vm = OwnedVm::start(&launch, &Cancel::new()).unwrap();
        Self { vm, _folder: folder }
    }

    /// Waits until it answers, and gives its card 10.0.0.`number`.
    fn up(&mut self, number: u8) {
        self.vm.wait_ready(PATIENCE, &Cancel::new()).unwrap_or_else(|error| {
            panic!("{error}\n{}", self.vm.console_tail(40));
        });
        self.run(&format!(
            "modprobe virtio_net || exit 1; \
             card=$(ls /sys/class/net | grep -v lo | head -n 1); \
             ip addr add 10.0.0.{number}/24 dev $card && ip link set $card up"
        ));
    }

    #[track_caller]
    fn run(&mut self, script: &str) -> String {
        let command = GuestCommand::new(["sh", "-c", script], PATIENCE);
        let output = self.vm.exec(&command, &Cancel::new()).unwrap();
        let said = output.stdout_text();
        assert!(output.success(), "{script}: {said} {}", output.stderr_text());
        said
    }

    /// Sends `bytes` over TCP to another guest.
    #[track_caller]
    fn sends(&mut self, to: u8, bytes: u64) {
        // The first question for an address may find the link still down.
        let text = self.run(&format!(
            "for try in 1 2 3 4 5 6 7 8 9 10; do \
                 iperf3 -J -c 10.0.0.{to} -n {bytes} --connect-timeout 5000 > /tmp/out && break; \
                 sleep 1; \
             done; cat /tmp/out"
        ));
        let told: serde_json::Value = serde_json::from_str(&text).unwrap();
        // iperf3 ends when all is sent; the last of it may still be on its way.
        let end = |part: &str| told["end"][part]["bytes"].as_u64().unwrap_or(0);
        assert!(end("sum_sent") >= bytes && end("sum_received") >= bytes / 2, "{text}");
    }
}

/// The NIC of a guest at the switch's socket, with more of its options.
fn nic(socket: &Path, number: u8, netdev: &str, device: &str) -> [String; 6] {
    let socket = socket.display();
    [
        "-chardev".to_owned(),
        format!("socket,id=sw,path={socket},reconnect=1"),
        "-netdev".to_owned(),
        format!("vhost-user,id=sw,chardev=sw{netdev}"),
        "-device".to_owned(),
        format!("virtio-net-pci,netdev=sw,mac=52:54:00:00:00:{number:02x}{device}"),
    ]
}

/// The NICs that `vmlab switch` shows for its ports, word by word.
fn shown_nics(switch: &RunningSwitch, ports: &[&str]) -> Vec<Vec<String>> {
    let shown = Command::new(VMLAB)
        .current_dir(switch.folder.path())
        .args(["switch", "--dry-run"])
        .args(ports)
        .output()
        .unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown = String::from_utf8(shown.stdout).unwrap();
    let lines = shown.lines().filter(|line| line.starts_with("  -chardev "));
    lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

/// The switch's own view of a port.
fn port(switch: &RunningSwitch, number: usize) -> serde_json::Value {
    let said = switch.ctl(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    status["ports"][number].clone()
}

const PORTS: [&str; 5] = ["--quiet", "--port", "a.sock,queues=2", "--port", "b.sock,queues=2"];

#[test]
fn two_guests_talk_and_outlive_their_switch() {
    let Some(lab) = lab(Tier::Test) else { return };
    let switch = RunningSwitch::new(&PORTS);
    // As users start them: with what it shows, to the letter.
    let shown = shown_nics(&switch, &PORTS[1..]);
    let mut first = Guest::start(&lab, &shown[0]);
    let mut second = Guest::start(&lab, &shown[1]);
    first.up(1);
    second.up(2);
    first.run("iperf3 -s -D");
    second.sends(1, 20_000_000);
    let said = switch.ctl(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(status["same_addresses"], serde_json::json!([]));
    for number in 0..2 {
        let port = port(&switch, number);
        assert_eq!(port["state"], "running", "{port}");
        assert_eq!(port["stopped"], serde_json::json!({}), "{port}");
        for part in ["mergeable", "host-tso4", "guest-tso4", "indirect"] {
            let known = port["features"].as_array().unwrap();
            assert!(known.contains(&part.into()), "{part}: {port}");
        }
    }
    // Segments pass whole: nothing is cut here, and there are far fewer frames than 1500
    // bytes each would make.
    for number in 0..2 {
        let counts = port(&switch, number)["counts"].clone();
        assert_eq!((&counts["segmented"], &counts["checksummed"]), (&0.into(), &0.into()));
    }
    let counts = port(&switch, 1)["counts"].clone();
    let (frames, bytes) = (&counts["frames_in"], &counts["bytes_in"]);
    let each = bytes.as_u64().unwrap() / frames.as_u64().unwrap();
    assert!(each > 2000, "{each} bytes a frame: {counts}");

    // It dies without a word, and another one takes its place.
    let switch = switch.killed_and_started_again(&PORTS);
    second.sends(1, 5_000_000);
    assert_eq!(port(&switch, 0)["state"], "running");
    first.vm.shutdown();
    second.vm.shutdown();
}

#[test]
fn guests_with_packed_rings_and_several_queues_talk() {
    let Some(lab) = lab(Tier::Full) else { return };
    for (netdev, device) in [
        ("", ",packed=on"),
        ("", ",mrg_rxbuf=off,host_tso4=off"),
        ("", ",guest_tso4=off,guest_csum=off"),
        (",queues=2", ",mq=on"),
    ] {
        let switch = RunningSwitch::new(&PORTS);
        let mut first = Guest::start(&lab, &nic(&switch.path("a.sock"), 1, netdev, device));
        let mut second = Guest::start(&lab, &nic(&switch.path("b.sock"), 2, "", ""));
        first.up(1);
        second.up(2);
        first.run("iperf3 -s -D");
        second.run("iperf3 -s -D");
        second.sends(1, 10_000_000);
        first.sends(2, 10_000_000);
        for number in 0..2 {
            let port = port(&switch, number);
            assert_eq!(port["stopped"], serde_json::json!({}), "{device}: {port}");
            assert_eq!(port["state"], "running", "{device}: {port}");
            // One that takes no segments gets them cut, and no other.
            let cut = port["counts"]["segmented"].as_u64().unwrap() > 0;
            assert_eq!(cut, number == 0 && device.contains("guest_tso4=off"), "{port}");
        }
        let packed = port(&switch, 0)["features"].as_array().unwrap().contains(&"packed".into());
        assert_eq!(packed, device.contains("packed"));
        first.vm.shutdown();
        second.vm.shutdown();
    }
}

/// DPDK's own frontend, which polls and wants no events.
struct Testpmd(Child);

impl Testpmd {
    fn start(switch: &RunningSwitch, more: &str) -> Self {
        let device = |number: u8, port: &str| {
            format!("net_virtio_user{number},path={}{more}", switch.path(port).display())
        };
        let child = Command::new("dpdk-testpmd")
            .args(["--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf"])
            .args(["--vdev", &device(0, "a.sock"), "--vdev", &device(1, "b.sock"), "--"])
            .args(["--forward-mode=io", "--tx-first", "--total-num-mbufs=8192"])
            // It ends with its input.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn dpdk_s_frontend_sends_and_receives() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    if Command::new("dpdk-testpmd").arg("--version").output().is_err() {
        return suite::skip("dpdk-testpmd is not installed (Debian: dpdk-dev)");
    }
    for more in ["", ",packed_vq=1", ",mrg_rxbuf=0", ",in_order=1,packed_vq=1"] {
        let switch = RunningSwitch::new(&["--quiet", "--port", "a.sock", "--port", "b.sock"]);
        let mut testpmd = Testpmd::start(&switch, more);
        // What it sends first goes round and round: out of one port, into the other.
        suite::until("frames to go round", || {
            assert!(testpmd.0.try_wait().unwrap().is_none(), "{more}: testpmd has ended");
            let counts = [0, 1].map(|number| port(&switch, number)["counts"].clone());
            let many = |counts: &serde_json::Value| counts["frames_out"].as_u64() > Some(10_000);
            counts.iter().all(many).then_some(())
        });
        for number in [0, 1] {
            let port = port(&switch, number);
            assert_eq!(port["stopped"], serde_json::json!({}), "{more}: {port}");
            let packed = port["features"].as_array().unwrap().contains(&"packed".into());
            assert_eq!(packed, more.contains("packed"), "{port}");
        }
        drop(testpmd);
        suite::until("both ports to be left", || {
            [0, 1].iter().all(|&number| port(&switch, number)["state"] == "waiting").then_some(())
        });
    }
}
