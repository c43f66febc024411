//! `vmlab capture` and `vmlab state` with real QEMUs. Their guests are firmware that has
//! found nothing to boot: that has devices, memory and vCPUs that run.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use suite::{PATIENCE, Tier, needs, until};

use crate::lab::{CommandOutput, said, vmlab};
use crate::running::{owned_by, send};

const MACS: [&str; 3] = ["52:54:00:11:22:33", "52:54:00:11:22:44", "52:54:00:11:22:55"];
const NEW_MACS: [&str; 3] = ["52:54:00:12:34:56", "52:54:00:12:34:57", "52:54:00:12:34:58"];

/// A q35 with the NICs whose addresses vmlab knows.
fn with_nics() -> Vec<String> {
    let nic = |(model, mac): (&str, &str)| format!("-device {model},mac={mac}");
    let nics: Vec<String> =
        ["virtio-net-pci", "e1000", "e1000e"].into_iter().zip(MACS).map(nic).collect();
    let words = format!("-machine q35 -m 64 -smp 2 -vga std {}", nics.join(" "));
    words.split(' ').map(str::to_owned).collect()
}

/// A QEMU that ends with the test, and a monitor of the test's own.
struct Qemu {
    child: Child,
    folder: tempfile::TempDir,
    events: BufReader<UnixStream>,
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Qemu {
    fn start(program: &Path, args: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = |name: &str| folder.path().join(name).display().to_string();
        let mut child = Command::new(program)
            .args(args)
            .args(["-accel", "tcg", "-nodefaults", "-display", "none"])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", socket("qmp"))])
            .args(["-qmp", &format!("unix:{},server=on,wait=off", socket("other"))])
            .stdin(Stdio::null())
            .stderr(fs::File::create(folder.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let stream = until("QEMU listens", || {
            if let Some(status) = child.try_wait().unwrap() {
                let said = fs::read_to_string(folder.path().join("stderr")).unwrap();
                panic!("{status}: {said}");
            }
            UnixStream::connect(socket("other")).ok()
        });
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut qemu = Self { child, folder, events: BufReader::new(stream) };
        qemu.ask("qmp_capabilities", Value::Null);
        qemu
    }

    fn qmp(&self) -> String {
        self.folder.path().join("qmp").display().to_string()
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.events.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
    }

    fn ask(&mut self, command: &str, arguments: Value) -> Value {
        let mut request = json!({ "execute": command });
        if !arguments.is_null() {
            request["arguments"] = arguments;
        }
        writeln!(self.events.get_ref(), "{request}").unwrap();
        loop {
            let mut line = self.line();
            if line.get("return").is_some() {
                return line["return"].take();
            }
            assert!(line.get("error").is_none(), "{command}: {line}");
        }
    }

    #[track_caller]
    fn runs(&mut self) {
        let status = self.ask("query-status", Value::Null);
        assert_eq!(status["running"], true, "{status}");
    }

    /// The parameters and capabilities of migrations.
    fn settings(&mut self) -> [Value; 2] {
        ["query-migrate-parameters", "query-migrate-capabilities"]
            .map(|command| self.ask(command, Value::Null))
    }

    fn capture(&self, args: &[&str]) -> CommandOutput {
        // By its bare name, as whoever stands in the folder calls it.
        said(vmlab(["capture", "--qmp", "qmp"]).args(args).current_dir(self.folder.path()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn state(args: &[&str], folder: &Path) -> CommandOutput {
    said(vmlab(["state"]).args(args).current_dir(folder))
}

fn show(file: &Path) -> Value {
    let said = state(&["show", "--json", file.to_str().unwrap()], Path::new("/"));
    crate::schemas::holds("state", &said.has_code(0).stdout)
}

fn macs(state: &Value) -> Vec<&str> {
    let devices = state["devices"].as_array().unwrap();
    devices.iter().filter_map(|device| device["mac"].as_str()).collect()
}

/// Captures, shows, compares, edits, and starts again.
#[track_caller]
fn is_captured_and_starts_again(program: &Path, args: &[String], controller: &str, nics: usize) {
    let mut qemu = Qemu::start(program, args);
    let before = qemu.settings();
    let first = qemu.capture(&["--out", "first", "--json"]);
    let facts = crate::schemas::holds("capture", &first.has_code(0).stdout);
    assert!(facts["stopped_s"].as_f64().unwrap() > 0.0, "{facts}");
    assert_eq!(facts["stopped_by"], "qemu");
    assert!(facts["qemu_args"][0].as_str().unwrap().contains("qemu"), "{facts}");
    qemu.runs();
    assert_eq!(qemu.settings(), before);
    let record = fs::read_to_string(qemu.path("first/capture.json")).unwrap();
    assert_eq!(crate::schemas::holds("capture", &record), facts);
    // The core is one: its header, and all of memory behind it.
    let core = fs::read(qemu.path("first/memory.elf")).unwrap();
    assert!(core.starts_with(b"\x7fELF") && core.len() > 64 << 20);
    assert!(core[16..18] == [4, 0], "no core: {:?}", &core[..20]);

    let shown = show(&qemu.path("first/devices.vmstate"));
    assert_eq!(macs(&shown), &MACS[..nics]);
    let devices = shown["devices"].as_array().unwrap();
    assert_eq!(facts["devices"].as_u64(), Some(devices.len() as u64));
    for name in ["cpu", controller, "globalstate"] {
        assert!(devices.iter().any(|device| device["name"] == name), "{name}: {shown}");
    }
    assert!(devices.iter().all(|device| !device["form"].is_null()), "not described: {shown}");
    let text =
        state(&["show", "first/devices.vmstate", "--device", controller], qemu.folder.path());
    assert!(text.has_code(0).stdout.contains(&format!("{controller}#0  (")), "{text:#?}");

    // All of it, and the VM ends.
    let whole = qemu.capture(&["--out", "whole", "--whole", "--end", "--no-core"]);
    assert!(whole.has_code(0).stdout.contains("-incoming"), "{whole:#?}");
    until("QEMU ends", || qemu.child.try_wait().unwrap());
    let old = qemu.path("whole/vm.vmstate");
    let (old_text, new) = (old.to_str().unwrap(), qemu.path("edited.vmstate"));
    let sets: Vec<String> = ["virtio-net", "e1000", "e1000e"]
        .into_iter()
        .zip(NEW_MACS)
        .take(nics)
        .map(|(nic, mac)| format!("--set={nic}.mac={mac}"))
        .collect();
    let mut edit = vmlab(["state", "edit", old_text, "-o", new.to_str().unwrap()]);
    let edited = said(edit.args(&sets));
    assert!(edited.has_code(0).stdout.contains("-incoming"), "{edited:#?}");
    // What is there is not written over.
    said(vmlab(["state", "edit", old_text, "-o", old_text]).args(&sets))
        .is_error(&["Cannot write", "exists already"]);
    assert_eq!(macs(&show(&new)), &NEW_MACS[..nics]);
    let diff = state(&["diff", old_text, new.to_str().unwrap(), "--json"], Path::new("/"));
    let diff = crate::schemas::holds("state-diff", &diff.has_code(1).stdout);
    let changed = diff["changes"].as_array().unwrap();
    let is_nic = |change: &Value| {
        let device = change["device"].as_str().unwrap();
        ["virtio-net#0", "e1000#0", "e1000e#0"].iter().any(|nic| device.ends_with(nic))
    };
    assert!(changed.len() >= nics && changed.iter().all(is_nic), "{diff}");
    assert!(state(&["diff", old_text, old_text], Path::new("/")).has_code(0).stdout.is_empty());

    // It starts from the edited file, goes on, and has the new addresses.
    let incoming = ["-incoming".to_owned(), format!("exec:cat {}", new.display())];
    let mut again = Qemu::start(program, &[args, &incoming].concat());
    until("the VM has come in and runs", || {
        let status = again.ask("query-status", Value::Null);
        assert_ne!(status["status"], "internal-error");
        (status["running"] == true).then_some(())
    });
    again.capture(&["--out", "again", "--no-core"]).has_code(0);
    assert_eq!(macs(&show(&again.path("again/devices.vmstate"))), &NEW_MACS[..nics]);
    again.runs();
}

#[test]
fn a_vm_is_captured_edited_and_starts_again() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    is_captured_and_starts_again("qemu-system-x86_64".as_ref(), &with_nics(), "apic", 3);
}

#[test]
fn an_arm64_vm_is_captured_edited_and_starts_again() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let nic = format!("virtio-net-pci,mac={}", MACS[0]);
    let words = ["-machine", "virt", "-cpu", "max", "-m", "64", "-smp", "2", "-device", &nic];
    let words = words.map(str::to_owned);
    is_captured_and_starts_again("qemu-system-aarch64".as_ref(), &words, "arm_gic", 1);
}

#[test]
fn a_vm_of_a_newer_qemu_is_captured_edited_and_starts_again() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/get-qemu");
    let got = Command::new(script).output().unwrap();
    if !got.status.success() {
        suite::skip(format!("get-qemu: {}", String::from_utf8_lossy(&got.stderr)));
        return;
    }
    let program = PathBuf::from(String::from_utf8(got.stdout).unwrap().trim());
    is_captured_and_starts_again(&program, &with_nics(), "apic", 3);
}

/// Ctrl-C while the guest stands still: it goes on, and nothing is left.
#[test]
fn an_interrupted_capture_lets_the_vm_go_on() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    // Enough memory that QEMU is at it when the signal comes.
    let args = ["-machine", "q35", "-m", "8192"].map(str::to_owned);
    let mut qemu = Qemu::start("qemu-system-x86_64".as_ref(), &args);
    let before = qemu.settings();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let stderr = qemu.path("vmlab-stderr");
        let mut child = vmlab(["capture", "--out", "interrupted", "--qmp", &qemu.qmp()])
            .current_dir(qemu.folder.path())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&stderr).unwrap())
            .spawn()
            .unwrap();
        while qemu.line()["event"] != "STOP" {}
        send(child.id(), signal);
        let status = until("the end of vmlab", || child.try_wait().unwrap());
        let told = fs::read_to_string(&stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{status}: {told}");
        assert!(told.contains("interrupted") && told.contains("Interrupted"), "{told}");
        assert_eq!(owned_by(child.id()), []);
        qemu.runs();
        assert_eq!(qemu.settings(), before);
        assert!(!qemu.path("interrupted").exists());
    }
}

#[test]
fn a_full_disk_lets_the_vm_go_on() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    let mut qemu = Qemu::start("qemu-system-x86_64".as_ref(), &with_nics());
    fs::create_dir(qemu.path("small")).unwrap();
    let mount = "mount -t tmpfs -o size=64k none small && exec \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare
        .args(["-rm", "sh", "-c", mount, "sh", crate::lab::VMLAB, "capture", "--qmp"])
        .args([&qemu.qmp(), "--out", "small/out"])
        .current_dir(qemu.folder.path());
    let full = said(&mut unshare);
    if full.stderr.contains("unshare") {
        suite::skip(format!("no namespace here: {}", full.stderr));
        return;
    }
    full.is_error(&["Cannot write", "No space left"]);
    qemu.runs();
}

#[test]
fn what_can_not_be_captured_is_said() {
    let Some(_turn) = needs(Tier::Test).pcpus(2).turn() else { return };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    // A device that can't migrate: memory can be had nevertheless.
    let mut qemu = Qemu::start(
        "qemu-system-x86_64".as_ref(),
        &words("-machine q35 -m 64 -blockdev null-co,node-name=d -device nvme,serial=s,drive=d"),
    );
    qemu.capture(&["--out", "out"]).is_error(&["nvme", "--no-devices"]);
    qemu.runs();
    qemu.capture(&["--out", "out", "--no-devices"]).has_code(0);
    assert!(qemu.path("out/memory.elf").exists() && !qemu.path("out/devices.vmstate").exists());
    qemu.runs();
    qemu.capture(&["--out", "out", "--no-devices"]).is_error(&["Cannot make out", "exists"]);
    // A machine that leaves out the description.
    let mut qemu =
        Qemu::start("qemu-system-x86_64".as_ref(), &words("-machine q35,suppress-vmdesc=on -m 64"));
    qemu.capture(&["--out", "out"]).is_error(&["does not describe", "suppress-vmdesc=off"]);
    qemu.runs();
    // A guest that stands still goes on standing still.
    qemu.ask("stop", Value::Null);
    let mut qemu = Qemu::start("qemu-system-x86_64".as_ref(), &words("-machine q35 -m 64 -S"));
    let still = qemu.capture(&["--out", "out", "--no-core"]);
    assert!(still.has_code(0).stdout.contains("did not run, and does not"), "{still:#?}");
    assert_eq!(qemu.ask("query-status", Value::Null)["running"], false);
    qemu.capture(&["--out", "again", "--no-core"]).is_error(&["`cont`"]);
    // No QEMU, and a QEMU that is gone.
    said(&mut vmlab(["capture", "--qmp", "/nowhere/qmp", "--out", "/nowhere/out"]))
        .is_error(&["No QEMU answers on /nowhere/qmp"]);
}

#[test]
fn what_is_no_state_is_one_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let check = |args: &[&str], parts: &[&str]| state(args, folder.path()).is_error(parts);
    check(&["show", &file("empty", b"")], &["empty", "byte 0", "no migration stream"]);
    check(&["show", &file("elf", b"\x7fELF0000")], &["elf", "byte 0", "vmlab capture"]);
    check(&["show", &file("cut", b"QEVM\0\0\0\x03\x07\0\0")], &["cut", "byte 11", "it was cut"]);
    let bare = file("bare", b"QEVM\0\0\0\x03\x00");
    check(&["show", &bare], &["bare", "does not describe", "suppress-vmdesc=off"]);
    check(&["show", "/dev/zero"], &["/dev/zero", "byte 0", "no migration stream"]);
    check(&["show", "none"], &["Cannot read none", "No such file"]);
    check(&["diff", &bare, "none"], &["bare", "does not describe"]);
    check(&["edit", "-", "--set", "a.b=1", "-o", "x"], &["needs a file"]);
}

#[test]
fn a_domain_is_captured_and_its_saved_state_is_read() {
    let Some(_turn) = needs(Tier::Full).pcpus(2).turn() else { return };
    let Some(mut beside) = suite::beside_libvirtd(include_str!("capture_libvirt.sh")) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = beside.arg(crate::lab::VMLAB).arg(folder.path()).output().unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
    let read = |name: &str| {
        let path = folder.path().join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let facts = crate::schemas::holds("capture", &read("capture.json"));
    assert_eq!(facts["stopped_by"], "vmlab");
    assert!(facts["stopped_s"].as_f64().unwrap() > 0.0 && facts["no_core"].is_null(), "{facts}");
    assert_eq!(macs(&show(&folder.path().join("captured/devices.vmstate"))), [MACS[0]]);
    for after in ["after-capture", "after-interrupt", "after-restore"] {
        assert_eq!(read(after).trim(), "running", "{after}");
    }
    assert_eq!(read("interrupted.code").trim(), "2", "{}", read("interrupted.err"));
    assert!(read("none.err").contains("none"), "{}", read("none.err"));
    assert_eq!(macs(&show(&folder.path().join("saved"))), [MACS[0]]);
    assert_eq!(macs(&show(&folder.path().join("edited"))), [NEW_MACS[0]]);
    assert_eq!(macs(&show(&folder.path().join("restored/devices.vmstate"))), [NEW_MACS[0]]);
}
