//! `vmlab switch` as users run it: in its sandbox, asked, told, interrupted.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use suite::{Tier, needs};
use tempfile::TempDir;
use vswitch::frontend::{FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficPlan};
use vswitch::memory::{Region, RegionAddresses};
use vswitch::message::{MAX_FDS, MessageHeader, RingAddresses, RingFd, VhostRequest, features};

use crate::lab::{CommandOutput, VMLAB};
use crate::schemas;

/// A switch that runs, in a folder of its own.
pub(crate) struct RunningSwitch {
    child: Child,
    pub(crate) folder: TempDir,
}

impl RunningSwitch {
    pub(crate) fn new(args: &[&str]) -> Self {
        Self::start(tempfile::tempdir().unwrap(), Command::new(VMLAB), args)
    }

    /// Kills it, so that its sockets are left, and starts another one in its place.
    pub(crate) fn killed_and_started_again(mut self, args: &[&str]) -> Self {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let empty = tempfile::tempdir().unwrap();
        let folder = std::mem::replace(&mut self.folder, empty);
        Self::start(folder, Command::new(VMLAB), args)
    }

    fn start(folder: TempDir, mut vmlab: Command, args: &[&str]) -> Self {
        let child = vmlab
            .current_dir(folder.path())
            .args(["switch", "--control", "control"])
            .args(args)
            .stdin(Stdio::null())
            .stdout(fs::File::create(folder.path().join("out")).unwrap())
            .stderr(fs::File::create(folder.path().join("err")).unwrap())
            .spawn()
            .unwrap();
        let mut running = Self { child, folder };
        suite::until("the switch to answer", || {
            assert!(running.child.try_wait().unwrap().is_none(), "{}", running.text("err"));
            (running.ctl(&["status"]).code == Some(0)).then_some(())
        });
        running
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn ctl(&self, args: &[&str]) -> CommandOutput {
        vmlab_in(self.folder.path(), &[&["switch", "ctl", "--control", "control"], args].concat())
    }

    fn send(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Ctrl-C; the switch's exit code.
    fn interrupt(&mut self) -> Option<i32> {
        self.send(Signal::INT);
        self.child.wait().unwrap().code()
    }
}

impl Drop for RunningSwitch {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn vmlab_in(folder: &Path, args: &[&str]) -> CommandOutput {
    let output = Command::new(VMLAB).current_dir(folder).args(args).stdin(Stdio::null()).output();
    CommandOutput::of(output.unwrap())
}

#[test]
fn a_switch_forwards_is_asked_and_leaves_nothing_behind() {
    let mut switch = RunningSwitch::new(&["--port", "a.sock", "--port", "b.sock"]);
    let traffic = ["switch", "traffic", "a.sock", "b.sock", "--seconds", "0.1", "--json"];
    for more in [&[][..], &["--packed", "--whole"], &["--layout", "indirect"]] {
        let said = vmlab_in(switch.folder.path(), &[&traffic[..], more].concat());
        said.has_code(0);
        let outcome = schemas::holds("traffic", &said.stdout);
        assert!(outcome["received"].as_u64().unwrap() > 0, "{outcome}");
        assert_eq!((&outcome["corrupt"], &outcome["disordered"]), (&0.into(), &0.into()));
    }
    let said = switch.ctl(&["status", "--json"]);
    let status = schemas::holds("switch", &said.stdout);
    assert_eq!(status["version"], 1);
    assert!(status["ports"][0]["counts"]["frames_in"].as_u64().unwrap() > 0, "{status}");

    // In its sandbox, it can still make what it needs, and remove it.
    let said = switch.ctl(&["add", "c.sock,vlan=10,name=third"]);
    said.has_code(0);
    // What the start would have shown of it.
    let port = "c.sock,vlan=10,name=third";
    let shown = vmlab_in(switch.folder.path(), &["switch", "--port", port, "--dry-run"]);
    assert_eq!(said.stdout, shown.stdout);
    for part in ["share=on", "port third\n", "-netdev vhost-user", "mac=52:54:00:", "<interface"] {
        assert!(said.stdout.contains(part), "{part} is not in\n{}", said.stdout);
    }
    switch.ctl(&["pin", "52:54:00:00:00:01", "third"]).has_code(0);
    schemas::holds("stations", &switch.ctl(&["mac", "--json"]).stdout);
    let said = switch.ctl(&["mac"]);
    assert!(said.stdout.contains("52:54:00:00:00:01    10  pinned  third"), "{}", said.stdout);
    assert!(switch.path("c.sock").exists());
    switch.ctl(&["remove", "third"]).has_code(0);
    assert!(!switch.path("c.sock").exists());
    switch.ctl(&["remove", "third"]).is_error(&["No port is called third: there are a, b"]);
    switch.ctl(&["add", "d.sock,vlan=5000"]).is_error(&["a VLAN is a number from 1 to 4094"]);

    assert_eq!(switch.interrupt(), Some(0));
    for socket in ["a.sock", "b.sock", "control"] {
        assert!(!switch.path(socket).exists(), "{socket} is left");
    }
    assert!(switch.text("out").contains("-netdev vhost-user"));
    switch.ctl(&["status"]).is_error(&["No switch answers at control"]);
}

#[test]
fn a_switch_that_is_told_to_end_ends() {
    let mut switch = RunningSwitch::new(&["--quiet", "--port", "a.sock"]);
    switch.ctl(&["end"]).has_code(0);
    assert_eq!(switch.child.wait().unwrap().code(), Some(0));
    assert!(!switch.path("a.sock").exists());
}

#[test]
fn a_hangup_ends_a_switch_unless_nohup_started_it() {
    let args = ["--quiet", "--port", "a.sock"];
    let mut switch = RunningSwitch::new(&args);
    switch.send(Signal::HUP);
    assert_eq!(switch.child.wait().unwrap().code(), Some(0));

    let mut nohup = Command::new("nohup");
    nohup.arg(VMLAB);
    let mut switch = RunningSwitch::start(tempfile::tempdir().unwrap(), nohup, &args);
    // What has a handler for it would hear it at some time.
    let status = fs::read_to_string(format!("/proc/{}/status", switch.child.id())).unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(ignored.trim(), 16).unwrap() & 1, 1, "{status}");
    switch.send(Signal::HUP);
    switch.ctl(&["status"]).has_code(0);
    assert_eq!(switch.interrupt(), Some(0));
}

/// A field of the status of each thread of a process, with the thread's name.
fn of_threads(pid: u32, field: &str) -> Vec<(String, String)> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |folder: PathBuf| {
        let status = fs::read_to_string(folder.join("status")).unwrap();
        let value = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        (fs::read_to_string(folder.join("comm")).unwrap(), value.trim().to_owned())
    };
    threads.map(|thread| of(thread.unwrap().path())).collect()
}

#[test]
fn the_sandbox_is_in_force() {
    for (args, expected) in
        [(&["--port", "a.sock"][..], "2"), (&["--port", "a.sock", "--no-sandbox"], "0")]
    {
        let switch = RunningSwitch::new(args);
        let pid = switch.child.id();
        suite::until("all threads to be in the sandbox", || {
            let all = of_threads(pid, "Seccomp:");
            all.iter().all(|(_, value)| value == expected).then_some(())
        });
        // The folder is as good as the other, but there was no port in it.
        let elsewhere = tempfile::tempdir().unwrap();
        let port = elsewhere.path().join("b.sock");
        let added = switch.ctl(&["add", port.to_str().unwrap()]);
        let listens = switch.ctl(&["add", "c.sock,server=off"]);
        if expected == "0" {
            added.has_code(0);
            listens.has_code(0);
            continue;
        }
        // Landlock, unless this kernel has none.
        if !switch.text("err").contains("no Landlock") {
            added.is_error(&["Cannot listen on", "Permission denied"]);
            assert!(!port.exists());
        }
        listens.is_error(&["began without a port with server=off"]);
        // Root without what makes it root.
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            // A thread has its name only when it runs, which may be in the sandbox.
            let own = suite::until("the switch's threads to have their names", || {
                let mut own = of_threads(pid, set);
                own.retain(|(name, _)| name.starts_with("vswitch-"));
                (own.len() >= 3).then_some(own)
            });
            assert!(own.iter().all(|(_, set)| set == "0000000000000000"), "{set} {own:?}");
        }
        // A socket that was left can't be asked whether somebody listens.
        drop(std::os::unix::net::UnixListener::bind(switch.path("left.sock")).unwrap());
        switch.ctl(&["add", "left.sock"]).is_error(&["something is there already"]);
    }
    // Where a frontend listens from the start, others may come.
    let switch = RunningSwitch::new(&["--port", "a.sock,server=off"]);
    switch.ctl(&["add", "b.sock,server=off"]).has_code(0);
    drop(std::os::unix::net::UnixListener::bind(switch.path("left.sock")).unwrap());
    switch.ctl(&["add", "left.sock"]).has_code(0);
}

/// What a frontend does that no VMM should.
type HostileAct = (&'static str, fn(&mut Frontend));

const HOSTILE: &[HostileAct] = &[
    ("a memory file made shorter under its rings", |frontend| {
        let ring = &mut frontend.pairs()[0].transmit;
        while let Some(slot) = ring.take_free() {
            ring.post(slot, 500);
        }
        ring.publish();
        frontend.file().set_len(0).unwrap();
        frontend.ring(1).kick();
    }),
    ("a log made shorter", |frontend| {
        let place = frontend.memory().regions().next().unwrap().placement();
        let size = (place.guest_address + place.size).div_ceil(4096).div_ceil(8);
        let (log, file) = Region::create(size.next_multiple_of(4096), 0).unwrap();
        let request = VhostRequest::SetLogBase { size, offset: 0 };
        frontend.send(&request, &[file.as_fd()]).unwrap();
        assert_eq!(frontend.answer_to(6).unwrap(), 0);
        drop(log);
        file.set_len(0).unwrap();
        let ring = &mut frontend.pairs()[0].transmit;
        let slot = ring.take_free().unwrap();
        ring.post(slot, 100);
        ring.publish();
        ring.kick();
    }),
    ("a ring nowhere", |frontend| {
        frontend.stop_ring(1).unwrap();
        let [descriptors, driver, _] = frontend.ring(1).addresses();
        let addresses = RingAddresses {
            index: 1,
            flags: 0,
            descriptors,
            device: u64::MAX - 4095,
            driver,
            log: 0,
        };
        frontend.send(&VhostRequest::SetVringAddr(addresses), &[]).unwrap();
        let (kick, _) = frontend.ring(1).events();
        let fd = RingFd { index: 1, without: false };
        frontend.send(&VhostRequest::SetVringKick(fd), &[kick.as_fd()]).unwrap();
    }),
    ("its memory taken away and given elsewhere", |frontend| {
        let place = frontend.memory().regions().next().unwrap().placement();
        frontend.send(&VhostRequest::RemMemReg(place), &[]).unwrap();
        let place = RegionAddresses { guest_address: 1 << 50, user_address: 1 << 50, ..place };
        let file = frontend.file().as_fd();
        frontend.send(&VhostRequest::AddMemReg(place), &[file]).unwrap();
    }),
    ("more files than a message has", |frontend| {
        let fds = vec![frontend.file().as_fd(); MAX_FDS];
        let message = |request| MessageHeader { request, need_reply: false, reply: false, size: 0 };
        for _ in 0..50 {
            // The switch may have hung up already.
            let _ = frontend.channel().send(&message(3).write(&[]), &fds);
        }
        let _ = frontend.channel().send(&message(99).write(&[]), &fds);
    }),
    ("an end inside a message", |frontend| {
        frontend.channel().send(&[2, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 1, 2], &[]).unwrap();
        frontend.channel().shut_down();
    }),
    ("a file that is no memory", |frontend| {
        let place = frontend.memory().regions().next().unwrap().placement();
        let file = fs::File::open("/proc/self/maps").unwrap();
        frontend.send(&VhostRequest::SetMemTable(vec![place]), &[file.as_fd()]).unwrap();
    }),
];

/// As they run for users: whatever the handler of SIGBUS and the ends of connections need of
/// the kernel, the sandbox lets them have.
#[test]
fn hostile_frontends_lose_their_port_alone_in_the_sandbox() {
    let mut ports = vec!["--quiet"];
    for port in ["a.sock", "b.sock", "c.sock"] {
        ports.extend(["--port", port]);
    }
    let mut switch = RunningSwitch::new(&ports);
    let plain = FrontendOptions::default();
    let connect = |switch: &RunningSwitch, port: &str, options| {
        // The last one may not have left yet.
        suite::until("the port to be free", || Frontend::connect(&switch.path(port), options).ok())
    };
    let others = ["a.sock", "b.sock"].map(|port| connect(&switch, port, plain));
    let plan = TrafficPlan {
        flows: TrafficPlan::ring(2),
        bytes: FrameBytes::UpTo(600),
        touch: Touch::All,
        window: 32,
        grace: suite::PATIENCE,
        pace_per_s: None,
    };
    let mut others = Traffic::new(others.into(), plan);
    others.greet(suite::PATIENCE).unwrap();
    for extra in [0, features::RING_PACKED] {
        for (what, hostile) in HOSTILE {
            let features = plain.features | features::LOG_ALL | extra;
            let mut frontend = connect(&switch, "c.sock", FrontendOptions { features, ..plain });
            hostile(&mut frontend);
            let before = others.tally().sent;
            others.run(|tally| tally.sent >= before + 500);
            assert!(others.tally().is_whole(), "{what}: {:?}", others.tally());
            let last = suite::until(what, || {
                let said = switch.ctl(&["status", "--json"]);
                let status: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
                let port = &status["ports"][2];
                let error = port["last_error"].as_str().filter(|_| port["state"] == "waiting")?;
                Some(error.to_owned())
            });
            assert!(!last.is_empty(), "{what}");
            assert!(switch.child.try_wait().unwrap().is_none(), "{what}: the switch has ended");
            drop(frontend);
            // Who comes next has the port, and clears what was said of the last one.
            drop(connect(&switch, "c.sock", plain));
            suite::until("the port to be left in peace", || {
                let said = switch.ctl(&["status", "--json"]);
                let status: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
                status["ports"][2]["last_error"].is_null().then_some(())
            });
        }
    }
    let pid = switch.child.id();
    assert!(of_threads(pid, "Seccomp:").iter().all(|(_, value)| value == "2"));
    assert_eq!(switch.interrupt(), Some(0));
}

#[test]
fn sockets_have_the_mode_and_the_group_that_are_asked_for() {
    let rights = |switch: &RunningSwitch, name: &str| {
        let there = fs::metadata(switch.path(name)).unwrap();
        (there.mode() & 0o777, there.gid())
    };
    // Another one than what any umask leaves, and a mode for all in the sandbox, too.
    let own = rustix::process::getegid().as_raw();
    let group = own.to_string();
    let args = ["--port", "a.sock", "--socket-mode", "0666", "--socket-group", &group];
    let switch = RunningSwitch::new(&args);
    switch.ctl(&["add", "b.sock"]).has_code(0);
    for name in ["a.sock", "b.sock"] {
        assert_eq!(rights(&switch, name), (0o666, own), "{name}");
    }
    let plain = RunningSwitch::new(&["--port", "a.sock"]);
    assert_eq!(rights(&plain, "a.sock"), rights(&switch, "control"), "what the umask leaves");
    if !rustix::process::geteuid().is_root() {
        // Its own groups alone are a user's to give.
        let folder = tempfile::tempdir().unwrap();
        let args = ["switch", "--control", "c", "--port", "a.sock", "--socket-group", "64999"];
        vmlab_in(folder.path(), &args).is_error(&["cannot give the socket to group 64999"]);
        assert!(!folder.path().join("a.sock").exists());
        return suite::skip_part("a group of others", "only root gives it");
    }
    let args = ["--port", "a.sock", "--socket-mode", "0660", "--socket-group", "64999"];
    let switch = RunningSwitch::new(&args);
    assert_eq!(rights(&switch, "a.sock"), (0o660, 64999));
    // In its sandbox, it gives nothing away; its folder may.
    let advice = ["b.sock: cannot give the socket to group 64999", "chmod g+s FOLDER"];
    switch.ctl(&["add", "b.sock"]).is_error(&advice);
    assert!(!switch.path("b.sock").exists());
    std::os::unix::fs::chown(switch.folder.path(), None, Some(64999)).unwrap();
    fs::set_permissions(switch.folder.path(), fs::Permissions::from_mode(0o2750)).unwrap();
    switch.ctl(&["add", "b.sock"]).has_code(0);
    assert_eq!(rights(&switch, "b.sock"), (0o660, 64999));
}

#[test]
fn what_is_wrong_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let _taken = std::os::unix::net::UnixListener::bind(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("old.toml"), "version = 9\n").unwrap();
    let bad = "version = 1\n\nage_s = 1\n\n[[port]]\nsocket = \"a.sock\"\nvlan = 5000\n";
    fs::write(folder.path().join("bad.toml"), bad).unwrap();
    let mac = "mac=52:54:00:00:00:01";
    let (one, two) = (format!("a.sock,{mac}"), format!("b.sock,{mac}"));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    for (args, parts) in [
        (&[][..], &["No port: give --port PATH"][..]),
        (&["--port", "taken"], &["another process listens there"]),
        (&["--port", "file"], &["a file that is no socket is there"]),
        (&["--port", "no/a.sock"], &["Cannot listen on no/a.sock: the folder does not exist"]),
        (&["--port", &one, "--port", &two], &["the same address: 52:54:00:00:00:01"]),
        (&["--port", "a.sock,queues=65"], &["queues=65: 1 to 64 queues"]),
        (&["--port", "a.sock,vlan=5000"], &["vlan=5000: a VLAN is a number from 1 to 4094"]),
        (&["--port", "a.sock", "--pcpus", "9999"], &["pCPU 9999", "offline or not allowed"]),
        (&["--config", "old.toml"], &["old.toml", "this vmlab reads version 1"]),
        (&["--config", "none.toml"], &["Cannot read none.toml"]),
        (&["--port", "control"], &["is the control socket and a port's"]),
        (&["--port", "a.sock,rate=100"], &["rate=100: a rate has a unit: 100mbit"]),
        (&["--port", "a.sock,rate=20tbit"], &["rate=20tbit: a rate is 1bit to 10tbit"]),
        (&["--port", "a.sock", "--pcpus", ""], &["--pcpus names no pCPU: leave it out"]),
        (&["--config", "bad.toml"], &["bad.toml:7: vlan = 5000"]),
        (&["--port", "a.sock,mtu=9"], &["mtu=9: 256 to 65535 bytes"]),
        (&["--port", "a.sock", "--port", "a.sock,name=b"], &["have the same socket"]),
        (&["--port", "a.sock", "--mirror", "f,ports=b"], &["f names the port b"]),
        (&["--port", "a.sock", "--mirror", "no/f"], &["Cannot write the mirror no/f"]),
        (&["--port", "tap:lo"], &["lo", "choose another name"]),
        (&["--port", "a.sock", "--metrics", &taken], &["Cannot listen at", "for --metrics"]),
    ] {
        let args = [&["switch", "--control", "control"], args].concat();
        vmlab_in(folder.path(), &args).is_error(parts);
    }
    for (option, value, part) in [
        ("--socket-mode", "999", "a mode is octal, as in 0660"),
        ("--socket-group", "no:pe", "/etc/group has no such group"),
    ] {
        let said = vmlab_in(folder.path(), &["switch", "--port", "a.sock", option, value]);
        assert!(said.has_code(2).stderr.contains(part), "{said:?}");
    }
    let second = ["switch", "--control", "taken", "--port", "a.sock"];
    vmlab_in(folder.path(), &second)
        .is_error(&["taken", "give this switch a --control of its own"]);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 4, "{left:?}");
}

#[test]
fn taps_carry_tcp_between_networks_and_leave_nothing_behind() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let namespaces = ["--user", "--map-root-user", "--net", "--fork", "--kill-child"];
    let tried = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", "ip tuntap add dev t mode tap && command -v python3 nsenter"])
        .output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        suite::skip("no tap interfaces in a network of its own: user namespaces are switched off");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(namespaces)
        .args(["sh", "-c", include_str!("switch_tap.sh"), "sh", VMLAB])
        .arg(folder.path())
        .output()
        .expect("unshare starts");
    let said = CommandOutput::of(output);
    assert_eq!(said.code, Some(0), "{said:#?}");
    let status = schemas::holds("switch", &said.stdout);
    let counts = |port: usize| status["ports"][port]["counts"].clone();
    let number = |value: &serde_json::Value| value.as_u64().unwrap();
    // 64 MiB in frames that are on average larger than any MTU: nothing was cut.
    let (bytes, frames) = (number(&counts(1)["bytes_out"]), number(&counts(1)["frames_out"]));
    assert!(bytes > 64 << 20 && bytes / frames > 1600, "{status:#}");
    for port in 0..2 {
        let drops = counts(port)["drops"].clone();
        for reason in ["bad_offload", "malformed", "too_long", "mtu"] {
            assert!(drops[reason].is_null(), "{status:#}");
        }
    }
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let metrics = text("metrics");
    for part in [
        "application/openmetrics-text",
        "vmlab_switch_port_frames_total{port=\"t0\",direction=\"in\"} ",
        "vmlab_switch_port_up{port=\"t1\"} 1",
        "vmlab_switch_thread_time_seconds_total{thread=\"0\",state=\"busy\"} ",
        "vmlab_switch_mirror_frames_total{target=\"frames.pcapng\",outcome=\"written\"} ",
        "# EOF",
    ] {
        assert!(metrics.contains(part), "{part} is not in\n{metrics}");
    }
    assert!(text("later").contains("give tap:NAME when it starts"), "{}", text("later"));
    for part in [
        "t0 cannot join the bridge nope: there is none, make it first (ip link add nope type bridge",
        "t0 cannot join the bridge lo: that is an interface, but no bridge",
    ] {
        assert!(text("bridge").contains(part), "{part} is not in\n{}", text("bridge"));
    }
    // Who has one of the usual readers can read what was written down.
    let file = folder.path().join("frames.pcapng");
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&file).args(["-T", "fields"]).args([
        "-e",
        "frame.interface_name",
        "-e",
        "frame.time_epoch",
        "-e",
        "frame.cap_len",
    ]);
    let Ok(read) = tshark.output() else { return suite::skip("no tshark to read the capture") };
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let lines = String::from_utf8(read.stdout).unwrap();
    let written = number(&status["mirrors"][0]["written"]);
    assert!(lines.lines().count() as u64 >= written && written > 100, "{status:#}");
    for line in lines.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, at, captured] = fields[..] else { panic!("{line}") };
        assert_eq!((name, at.split('.').nth(1).map(str::len)), ("t0", Some(9)), "{line}");
        assert!(captured.parse::<u32>().unwrap() <= 128, "{line}");
    }
}
