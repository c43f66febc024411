//! `vmlab audit` against real QEMU processes with deliberate mistakes.
//!
//! The guests never run (`-S`): where threads may run and where memory lies is
//! the same, and no image is needed.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

use host::affinity::set_thread_affinity;
use host::audit::in_force::{MemoryWish, Wishes, placement_in_force};
use host::audit::{self, AuditScope, RunningVm, VcpuEvidence};
use serde_json::Value;
use suite::{PATIENCE, Tier, needs, until};
use topology::{Host, KernelSettings, Node, Pcpu, PcpuSet};

use crate::lab::{CommandOutput, said, vmlab};

const MIB: u64 = 1 << 20;

/// A QEMU that ends with the test.
struct Qemu(Child);

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Qemu {
    fn start(args: &str) -> Self {
        Self::program("qemu-system-x86_64".as_ref(), args)
    }

    fn program(program: &Path, args: &str) -> Self {
        let mut command = Command::new(program);
        command.args(["-S", "-nodefaults", "-display", "none", "-cpu", "max", "-machine"]);
        command.args(args.split(' ')).stdin(Stdio::null()).stderr(Stdio::null());
        // A QEMU that was moved does not find Debian's modules beside itself.
        command.env("QEMU_MODULE_DIR", "/usr/lib/x86_64-linux-gnu/qemu");
        Self(command.spawn().expect("QEMU starts"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Reads it once it has as many vCPU threads with names.
    fn ready(&self, vcpus: usize) -> RunningVm {
        until("all vCPUs have threads", || {
            let vm = audit::read(self.pid(), &AuditScope::default()).ok()?;
            (vm.vcpus().len() == vcpus).then_some(vm)
        })
    }

    fn pin(&self, vcpu: u32, pcpu: u32) {
        let vm = audit::read(self.pid(), &AuditScope::default()).expect("a QEMU");
        let tid = vm.vcpus()[&vcpu].tid;
        set_thread_affinity(tid, &PcpuSet::from_iter([pcpu])).expect("pinned");
    }

    /// All threads but the vCPUs'.
    fn pin_others(&self, pcpu: u32) {
        let vm = audit::read(self.pid(), &AuditScope::default()).expect("a QEMU");
        for thread in vm.threads.iter().filter(|thread| !thread.role.is_vcpu()) {
            // Helpers may end meanwhile.
            let _ = set_thread_affinity(thread.tid, &PcpuSet::from_iter([pcpu]));
        }
    }
}

/// Two pCPUs of different cores, where there are two.
fn two_cores() -> Option<(u32, u32)> {
    let host = host::snapshot::live(Path::new("/"));
    let place = |pcpu: &topology::Pcpu| (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core);
    let mut online = host.pcpus.iter().filter(|pcpu| pcpu.online);
    let first = online.next()?;
    let other = online.find(|pcpu| place(pcpu) != place(first));
    if other.is_none() {
        suite::skip("this machine has one core");
    }
    Some((first.id, other?.id))
}

fn audited(args: &[&str], pids: &[&Qemu]) -> (CommandOutput, Value) {
    let pids = pids.iter().map(|qemu| qemu.pid().to_string());
    let args = ["audit", "--json"].iter().chain(args).map(|arg| (*arg).to_owned());
    let said = said(&mut vmlab(args.chain(pids)));
    let json = crate::schemas::holds("audit", &said.stdout);
    (said, json)
}

/// `vmlab lint --running` on a machine that is described by a file, of these.
fn linted(host: &Path, pids: &[&Qemu]) -> Value {
    let host = host.to_str().expect("a plain path");
    let said = said(&mut vmlab(["lint", "--running", "--json", "--host", host]));
    let mut json: Value =
        serde_json::from_str(&said.stdout).unwrap_or_else(|_| panic!("{said:#?}"));
    let files: Vec<String> = pids.iter().map(|qemu| format!("/proc/{}", qemu.pid())).collect();
    let findings = json["findings"].as_array_mut().expect("a list");
    findings.retain(|finding| files.iter().any(|file| finding["file"] == file.as_str()));
    json
}

/// The messages of one rule.
fn messages(json: &Value, id: &str) -> Vec<String> {
    let findings = json["findings"].as_array().expect("a list");
    let of_id = findings.iter().filter(|finding| finding["rule"] == id);
    of_id.map(|finding| finding["message"].as_str().expect("a text").to_owned()).collect()
}

#[test]
fn a_process_that_is_no_qemu_is_refused() {
    let me = std::process::id().to_string();
    said(&mut vmlab(["audit", &me])).is_error(&[&me, "no QEMU system emulator"]);
    said(&mut vmlab(["audit", "4194305"])).is_error(&["no process 4194305"]);
}

#[test]
fn wrong_pins_are_found_and_right_ones_are_not() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some((first, second)) = two_cores() else { return };
    let line = |name: &str, more: &str| {
        format!("q35 -accel tcg,thread=multi -smp 2{more} -m 64 -name {name},debug-threads=on")
    };
    let db = Qemu::start(&line("db", ",threads=2"));
    let web = Qemu::start(&line("web", ""));
    db.ready(2);
    web.ready(2);
    // Unpinned: nothing to warn of.
    let (_, json) = audited(&[], &[&db, &web]);
    assert_eq!(messages(&json, "emulator-on-vcpu"), [""; 0]);

    // On a pCPU each, and the other VM anywhere.
    db.pin(0, first);
    db.pin(1, second);
    let (said, json) = audited(&[], &[&db]);
    said.has_code(1);
    let away = messages(&json, "neighbour-unpinned");
    assert!(away.iter().any(|text| text.starts_with("db is pinned")), "{away:?}");
    let emulator = messages(&json, "emulator-on-vcpu");
    assert!(emulator.len() == 1 && emulator[0].contains("where vCPUs are pinned"), "{emulator:?}");
    let exceed = messages(&json, "threads-exceed-host");
    assert_eq!(exceed.is_empty(), has_smt(), "{exceed:?}");

    // Both of one VM on one pCPU, which the other VM has too.
    db.pin(1, first);
    web.pin(0, first);
    web.pin(1, second);
    db.pin_others(second);
    let (_, json) = audited(&[], &[&db, &web]);
    assert_eq!(messages(&json, "vcpus-share-pcpu"), [format!("vCPUs 0 and 1 share pCPU {first}")]);
    let shared = messages(&json, "vms-share-pcpu");
    assert!(shared.iter().any(|text| text.contains(&format!("on pCPU {first}, as"))), "{shared:?}");
    let findings = json["findings"].as_array().expect("a list").iter();
    let of_db = findings.filter(|f| f["vm"] == "db" && f["rule"] == "emulator-on-vcpu");
    assert_eq!(of_db.count(), 0, "the emulator of db was moved away: {json:#}");

    // As it should be, as far as two pCPUs go: one VM, one core, nobody else.
    drop(web);
    let (_, json) = audited(&[], &[&db]);
    for id in ["siblings-split", "emulator-on-vcpu", "iothread-on-vcpu"] {
        assert_eq!(messages(&json, id), [""; 0], "{id}");
    }
    let map = crate::lab::said(&mut vmlab(["audit", "--map", &db.pid().to_string()]));
    let row = map.stdout.lines().find(|line| line.contains(&format!("pCPU {first} ")));
    assert!(row.is_some_and(|row| row.contains("db: vCPUs 0-1")), "{map:#?}");
}

fn has_smt() -> bool {
    let host = host::snapshot::live(Path::new("/"));
    host.pcpus.iter().any(|pcpu| pcpu.online && pcpu.thread.is_some_and(|thread| thread > 0))
}

/// A thread of the only core of a socket, which is a node.
fn pcpu(id: u32, socket: u32, thread: u32) -> Pcpu {
    Pcpu {
        id,
        online: true,
        socket: Some(socket),
        core: Some(0),
        thread: Some(thread),
        node: Some(socket),
        ..Pcpu::default()
    }
}

/// A machine of two cores of two threads, each core a node: `first` and
/// `second` are of different cores.
fn two_nodes(first: u32, second: u32) -> Host {
    let beyond = first.max(second) + 1;
    let node =
        |id: u32, pcpus: [u32; 2]| Node { id, pcpus: PcpuSet::from_iter(pcpus), ..Node::default() };
    let mut pcpus =
        vec![pcpu(first, 0, 0), pcpu(second, 1, 0), pcpu(beyond, 0, 1), pcpu(beyond + 1, 1, 1)];
    pcpus.sort_by_key(|pcpu| pcpu.id);
    Host {
        pcpus,
        nodes: vec![node(0, [first, beyond]), node(1, [second, beyond + 1])],
        settings: KernelSettings {
            thp_enabled: Some("always".to_owned()),
            ksm_run: Some(1),
            ..KernelSettings::default()
        },
        ..Host::default()
    }
}

/// A machine whose only core has these threads.
fn one_core(first: u32, second: u32) -> Host {
    Host { pcpus: vec![pcpu(first, 0, 0), pcpu(second, 0, 1)], ..Host::default() }
}

#[test]
fn the_rules_hold_for_vms_that_run() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some((first, second)) = two_cores() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let host = folder.path().join("host.json");
    fs::write(&host, two_nodes(first, second).to_json()).expect("written");
    // Siblings that the guest sees, memory of a node that has none here, and
    // vCPUs that don't give their pCPUs back.
    // Findings name other VMs of this machine too: of other tests, by the same names.
    let ours = ["db", "web"].map(|name| format!("{name}-{}", process::id()));
    let [db, web] = &ours;
    let db = Qemu::start(&format!(
        "q35,memory-backend=ram0 -accel tcg,thread=multi -smp 2,threads=2 -m 128 \
         -name {db},debug-threads=on -overcommit cpu-pm=on -object iothread,id=io1 \
         -object memory-backend-ram,id=ram0,size=128M,prealloc=on,host-nodes=0,policy=bind",
    ));
    let web = Qemu::start(&format!(
        "q35 -accel tcg,thread=multi -smp 1 -m 64 -name {web},debug-threads=on"
    ));
    db.ready(2);
    web.ready(1);
    let json = linted(&host, &[&db, &web]);
    for id in ["cpu-pm-unpinned", "siblings-loose"] {
        assert_eq!(messages(&json, id).len(), 1, "{id}: {json:#}");
    }
    let finding = |json: &Value, id: &str| {
        let mut all = json["findings"].as_array().expect("a list").iter();
        all.find(|finding| finding["rule"] == id)
            .unwrap_or_else(|| panic!("{id}: {json:#}"))
            .clone()
    };
    let loose = finding(&json, "cpu-pm-unpinned");
    assert_eq!(loose["asked"], "-overcommit cpu-pm=on");
    assert!(loose["is"].as_str().expect("a text").starts_with("vCPUs 0-1: any pCPU ("), "{loose}");

    db.pin(0, first);
    db.pin(1, second);
    web.pin(0, second);
    let json = linted(&host, &[&db, &web]);
    for id in [
        "siblings-split",
        "vms-share-pcpu",
        "emulator-on-vcpu",
        "iothread-on-vcpu",
        "cpu-pm-shared",
        "ksm-splits-huge-pages",
    ] {
        assert!(!messages(&json, id).is_empty(), "{id}: {json:#}");
    }
    let split = finding(&json, "siblings-split");
    assert_eq!(split["is"], format!("vCPU 0: pCPU {first}"));
    assert_eq!(split["vm"], ours[0].as_str());
    for id in ["cpu-pm-unpinned", "siblings-loose"] {
        assert_eq!(messages(&json, id), [""; 0], "{id}");
    }
    // Other VMs of this machine may well run where these are pinned.
    let neighbours = messages(&json, "neighbour-unpinned");
    let loose = ours.map(|name| format!("vCPUs of {name} "));
    assert!(
        !neighbours.iter().any(|text| loose.iter().any(|one| text.contains(one))),
        "{neighbours:?}"
    );

    // Memory on the one node, its only vCPU on the other.
    let app = Qemu::start(
        "q35,memory-backend=m -accel tcg,thread=multi -smp 1 -m 64 -name app,debug-threads=on \
         -object memory-backend-ram,id=m,size=64M,prealloc=on,host-nodes=0,policy=bind",
    );
    app.ready(1);
    app.pin(0, second);
    let json = linted(&host, &[&app]);
    let away = finding(&json, "memory-elsewhere");
    assert_eq!(away["asked"], "64 MiB on node 0 (bind)");
    assert!(
        away["is"].as_str().expect("a text").starts_with("memory m: 64 MiB on node 0"),
        "{away}"
    );
    app.pin(0, first);
    assert_eq!(messages(&linted(&host, &[&app]), "memory-elsewhere"), [""; 0]);

    // Where both pCPUs are threads of one core, everything pinned shares it.
    let core = folder.path().join("core.json");
    fs::write(&core, one_core(first, second).to_json()).expect("written");
    drop(app);
    let json = linted(&core, &[&db, &web]);
    assert_eq!(messages(&json, "siblings-split"), [""; 0], "{json:#}");
    let two = Qemu::start("q35 -accel tcg,thread=multi -smp 2 -m 64 -name two,debug-threads=on");
    two.ready(2);
    two.pin(0, first);
    two.pin(1, second);
    db.pin(1, first);
    let json = linted(&core, &[&db, &web, &two]);
    for id in ["cores-share-core", "vms-share-core", "vcpus-share-pcpu"] {
        assert!(!messages(&json, id).is_empty(), "{id}: {json:#}");
    }
    drop(two);
    db.pin(1, second);

    // The same in the other forms, from here and from what was kept.
    let path = host.to_str().expect("a plain path");
    let lint = |args: &[&str]| said(vmlab(["lint", "--host", path]).args(args));
    let sarif = lint(&["--running", "--sarif"]);
    let sarif: Value = serde_json::from_str(&sarif.has_code(1).stdout).expect("JSON");
    let results = sarif["runs"][0]["results"].as_array().expect("a list");
    assert!(results.iter().any(|result| result["ruleId"] == "siblings-split"
        && result["properties"]["is"] == format!("vCPU 0: pCPU {first}").as_str()));
    let kept = folder.path().join("vms.txt");
    let pid = db.pid().to_string();
    let transcript = said(&mut vmlab(["audit", "--transcript", &pid]));
    fs::write(&kept, &transcript.has_code(0).stdout).expect("written");
    let again = lint(&[kept.to_str().expect("a plain path")]);
    assert!(again.has_code(1).stdout.contains("warning[siblings-split]"), "{again:#?}");
    assert!(again.stdout.contains("= asked: nothing"), "{again:#?}");
}

#[test]
fn what_libvirt_was_asked_for_stands_against_what_is() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some((first, second)) = two_cores() else { return };
    let Some(mut beside) = suite::beside_libvirtd(include_str!("audit_libvirt.sh")) else {
        return;
    };
    let (first, second) = (first.to_string(), second.to_string());
    let output = beside.arg(crate::lab::VMLAB).args([&first, &second]).output();
    let said = CommandOutput::of(output.expect("unshare starts"));
    let (linted, audited) = said.stdout.split_once("----\n").unwrap_or_else(|| panic!("{said:#?}"));
    let read = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{said:#?}"))
    };
    let json = read(linted);
    let message = format!("vCPU 1 was to run on pCPU {first}, and may on pCPU {second}");
    assert_eq!(messages(&json, "pin-not-as-asked"), [message.as_str()], "{json:#}");
    let audit = read(audited);
    assert_eq!(messages(&audit, "pin-not-as-asked"), [message.as_str()], "{audit:#}");
    let vms = audit["vms"].as_array().expect("a list").iter();
    let names: Vec<_> = vms.map(|vm| vm["asked"]["name"].as_str().unwrap_or_default()).collect();
    assert_eq!(names, ["moved"], "{audit:#}");
    assert_eq!(audit["problems"], serde_json::json!([]), "{audit:#}");
    let findings = json["findings"].as_array().expect("a list");
    let moved = findings.iter().find(|finding| finding["rule"] == "pin-not-as-asked");
    let moved = moved.expect("just found");
    assert_eq!((&moved["vm"], &moved["asked"]), (&"moved".into(), &format!("pCPU {first}").into()));
    assert_eq!(moved["is"], format!("vCPU 1: pCPU {second}"));
    // The emulator was to be there, and so it is; that is wrong all the same.
    assert_eq!(messages(&json, "emulator-on-vcpu").len(), 1, "{json:#}");
}

#[test]
fn another_machines_domains_are_audited_there() {
    let audit = |uri| said(&mut vmlab(["audit", "--libvirt", uri]));
    audit("qemu+ssh://root@server:2222/system")
        .is_error(&["`ssh -p 2222 root@server vmlab audit --libvirt qemu:///system`"]);
    audit("qemu+tls://server/system").is_error(&["--libvirt qemu+tls", "qemu+ssh://"]);
    audit("test:///default").is_error(&["write qemu:///system"]);
    let empty = audit("");
    empty.has_code(2);
    assert!(empty.stderr.contains("it is empty"), "{empty:#?}");
}

#[test]
fn placement_is_proven_on_the_living_process() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some((first, second)) = two_cores() else { return };
    let qemu = Qemu::start(
        "q35,memory-backend=ram0 -accel tcg,thread=multi -smp 2 -m 64 -name db,debug-threads=on \
         -object iothread,id=io1 \
         -object memory-backend-ram,id=ram0,size=64M,prealloc=on,host-nodes=0,policy=bind",
    );
    qemu.ready(2);
    let one = |pcpu: u32| PcpuSet::from_iter([pcpu]);
    let mut wishes = Wishes {
        vcpus: [(0, one(first)), (1, one(second))].into(),
        emulator: Some(one(first)),
        iothreads: [("io1".to_owned(), one(first))].into(),
        memory: vec![MemoryWish {
            backend: Some("ram0".to_owned()),
            nodes: [0].into(),
            page_bytes: None,
        }],
        ..Wishes::default()
    };
    let deviations = |wishes: &Wishes| {
        let vm = audit::read(qemu.pid(), &AuditScope::default()).expect("a QEMU");
        placement_in_force(wishes, &vm).iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let found = deviations(&wishes);
    for of in ["vCPU 0: ", "vCPU 1: ", "emulator: ", "iothread io1: "] {
        assert!(found.iter().any(|text| text.starts_with(of)), "{of}: {found:?}");
    }
    assert!(!found.iter().any(|text| text.starts_with("memory")), "{found:?}");
    qemu.pin_others(first);
    qemu.pin(0, first);
    qemu.pin(1, second);
    assert_eq!(deviations(&wishes), [""; 0]);
    wishes.memory[0].nodes = [1].into();
    wishes.memory[0].page_bytes = Some(2 * MIB);
    let found = deviations(&wishes);
    let expected = [
        "memory ram0: asked for pages of 2 MiB, has pages of 4 KiB",
        "memory ram0: asked for node 1, 64 MiB on node 0",
        "memory ram0: asked for node 1, policy bind:0 within nodes 0",
    ];
    match host::snapshot::live(Path::new("/")).nodes.len() {
        0 | 1 => assert_eq!(found, expected),
        nodes => suite::skip_part(
            "the exact texts",
            format!("they are those of one node, here are {nodes}"),
        ),
    }
}

#[test]
fn memory_is_found_by_node_and_page_size() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let huge = folder.path().join("hugepages");
    fs::create_dir(&huge).expect("created");
    let qemu = Qemu::start(&format!(
        "q35 -accel tcg,thread=multi -smp 2 -m 128 -name db,debug-threads=on \
         -object memory-backend-ram,id=m0,size=64M,prealloc=on \
         -object memory-backend-file,id=m1,size=32M,share=on,prealloc=on,mem-path={} \
         -object memory-backend-ram,id=m2,size=32M \
         -numa node,cpus=0,memdev=m0 -numa node,cpus=1,memdev=m1 -numa node,memdev=m2",
        huge.display()
    ));
    qemu.ready(2);
    let vm = audit::read(qemu.pid(), &AuditScope { pages: true, ..AuditScope::default() })
        .expect("a QEMU");
    let region = |bytes: u64| {
        let regions = vm.memory.regions.iter();
        let found = regions.filter(|region| region.bytes == bytes).collect::<Vec<_>>();
        found[0].clone()
    };
    let touched = region(64 * MIB);
    assert_eq!(touched.backend.as_deref(), Some("m0"));
    assert_eq!(touched.present_bytes, 64 * MIB);
    let by_node = touched.by_node.as_ref().expect("NUMA maps");
    assert_eq!(by_node.values().sum::<u64>(), 64 * MIB);
    match &touched.pages {
        Some(pages) => {
            assert_eq!(pages.iter().map(|page| page.bytes).sum::<u64>(), 64 * MIB);
            let big = pages.iter().filter(|page| page.page_bytes >= 2 * MIB);
            let big = big.map(|page| page.bytes).sum::<u64>();
            assert!(big >= touched.thp_bytes, "{big} in big pages, {} in THP", touched.thp_bytes);
        }
        None => suite::skip_part("pages", format!("root alone sees frames: {:?}", vm.notes)),
    }
    // Huge pages asked for in a folder that is no hugetlbfs.
    assert!(vm.memory.regions.iter().any(|region| region.path.contains("hugepages")));
    let (said, json) = audited(&["--pages"], &[&qemu]);
    said.has_code(1);
    let wrong = messages(&json, "huge-pages-not-used");
    assert_eq!(wrong, ["Memory m1 has pages of 4 KiB"], "{json:#}");
}

#[test]
fn what_is_not_known_is_said() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("hypervisor");
    fs::copy("/usr/bin/qemu-system-x86_64", &program).expect("copied");
    let line = "q35 -accel tcg,thread=multi -smp 2 -m 64 -name quiet";
    // Nor its firmware.
    let line = format!("{line} -L /usr/share/seabios -L /usr/share/qemu");
    let mut qemu = Qemu::program(&program, &line);
    let found = until("a renamed QEMU is found or ends", || {
        if qemu.0.try_wait().expect("a child").is_some() {
            return Some(None);
        }
        let (vms, _) = audit::running(&AuditScope { qmp: true, ..AuditScope::default() });
        vms.into_iter().find(|vm| vm.pid == qemu.pid() && vm.threads.len() >= 4).map(Some)
    });
    let Some(vm) = found else {
        suite::skip("a QEMU that was copied elsewhere does not run here");
        return;
    };
    assert_eq!(vm.vcpus_known_by, VcpuEvidence::Nothing);
    assert!(vm.notes.iter().any(|note| note.contains("debug-threads=on")), "{:?}", vm.notes);
    assert!(vm.notes.iter().any(|note| note.contains("no QMP socket")), "{:?}", vm.notes);
    let text = said(&mut vmlab(["audit", &qemu.pid().to_string()]));
    text.has_code(0);
    assert!(text.stdout.contains("No vCPU's thread is known"), "{text:#?}");
    // Who started it may know.
    let tids: Vec<u32> = vm.threads.iter().rev().take(2).map(|thread| thread.tid).collect();
    let look = AuditScope { vcpu_tids: tids.clone(), ..AuditScope::default() };
    let vm = audit::read(qemu.pid(), &look).expect("a QEMU");
    assert_eq!(vm.vcpus_known_by, VcpuEvidence::Caller);
    assert_eq!(vm.vcpus().values().map(|thread| thread.tid).collect::<Vec<_>>(), tids);
}

#[test]
fn qmp_is_asked_only_when_nobody_uses_it() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("qmp.sock");
    let qemu = Qemu::start(&format!(
        "q35 -accel tcg,thread=multi -smp 2,sockets=2,maxcpus=4 -m 64 -name quiet \
         -object iothread,id=io1 -qmp unix:{},server=on,wait=off",
        socket.display()
    ));
    let look = AuditScope { qmp: true, ..AuditScope::default() };
    let vm = until("QEMU answers", || {
        audit::read(qemu.pid(), &look).ok().filter(|vm| vm.guest.is_some())
    });
    // Its threads have no names: QEMU told which is which.
    assert_eq!((vm.vcpus_known_by, vm.vcpus().len()), (VcpuEvidence::Qmp, 2));
    assert!(vm.threads.iter().any(|thread| thread.role.to_string() == "iothread io1"));
    let view = vm.guest.expect("asked");
    assert_eq!((view.vcpu_places, view.kvm), (Some(4), Some(false)));

    // The owner comes: his connection is not touched, and goes on to work.
    let mut owner = UnixStream::connect(&socket).expect("connected");
    owner.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut lines = BufReader::new(owner.try_clone().expect("cloned")).lines();
    let mut next = || lines.next().expect("QEMU speaks").expect("a line");
    assert!(next().contains("QMP"));
    let vm = audit::read(qemu.pid(), &look).expect("a QEMU");
    assert_eq!(vm.guest, None);
    assert!(vm.notes.iter().any(|note| note.contains("owner connected")), "{:?}", vm.notes);
    owner.write_all(b"{\"execute\":\"qmp_capabilities\"}\n").expect("written");
    assert!(next().contains("return"));
    let vm = audit::read(qemu.pid(), &AuditScope::default()).expect("a QEMU");
    assert_eq!(vm.vcpus_known_by, VcpuEvidence::Nothing);
}

/// A group of the first version's hierarchy, gone with the test.
struct Group(PathBuf);

impl Group {
    fn new(controller: &str, name: &str) -> Option<Self> {
        let folder = Path::new("/sys/fs/cgroup").join(controller);
        let folder = folder.join(format!("vmlab-test-{}-{name}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            suite::skip(format!("no group of cgroup v1 {controller} can be made: {error}"));
            return None;
        }
        Some(Self(folder))
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap_or_else(|error| panic!("{file}: {error}"));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A group with threads can't go: they end first.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn groups_are_compared_with_threads() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let Some((first, second)) = two_cores() else { return };
    let (Some(cpuset), Some(cpu)) = (Group::new("cpuset", "x"), Group::new("cpu", "x")) else {
        return;
    };
    let host = host::snapshot::live(Path::new("/"));
    let line = "q35 -accel tcg,thread=multi -smp 2 -m 64 -name db,debug-threads=on";
    let qemu = Qemu::start(line);
    let vm = qemu.ready(2);
    cpu.write("cpu.cfs_period_us", "100000");
    cpu.write("cpu.cfs_quota_us", "50000");
    cpuset.write("cpuset.mems", "0");
    cpuset.write("cpuset.cpus", &format!("{first},{second}"));
    for tid in vm.vcpus().values().map(|thread| thread.tid.to_string()) {
        cpu.write("tasks", &tid);
        cpuset.write("tasks", &tid);
    }
    qemu.pin(0, first);
    let (said, json) = audited(&[], &[&qemu]);
    said.has_code(1);
    let quota = messages(&json, "cpu-limit-throttles");
    assert!(quota.len() == 1 && quota[0].contains("50000 µs"), "{quota:?}");
    // Where the group is the whole machine, it says nothing that could differ.
    if host.online().len() > 2 {
        assert_eq!(messages(&json, "affinity-not-cpuset").len(), 1, "{json:#}");
    } else {
        suite::skip_part("affinity-not-cpuset", "a cpuset of two pCPUs is this whole machine");
    }
    // The cpuset takes what the thread was given.
    cpuset.write("cpuset.cpus", &second.to_string());
    let vm = audit::read(qemu.pid(), &AuditScope::default()).expect("a QEMU");
    let vcpu = vm.vcpus()[&0];
    assert_eq!(vcpu.affinity, Some(PcpuSet::from_iter([second])));
    assert_eq!(vcpu.limits.pcpus, Some(PcpuSet::from_iter([second])));
    let wishes = Wishes { vcpus: [(0, PcpuSet::from_iter([first]))].into(), ..Wishes::default() };
    let found = placement_in_force(&wishes, &vm);
    let expected = format!("vCPU 0: asked for pCPU {first}, may run on {second}");
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
    drop(qemu);
    until("the group is empty", || {
        fs::read_to_string(cpuset.0.join("tasks")).ok().filter(String::is_empty)
    });
}
