//! What the guest was given, as QEMU itself tells: asked through a QMP socket
//! that nobody uses.
//!
//! A QMP socket serves one client. Whoever connects while another is served
//! waits in line, and while he is served the owner waits. Therefore:
//!
//! - a socket is asked only when QEMU listens on it and nobody is connected
//!   (`/proc/<pid>/net/unix` tells), for the moment that six questions take;
//! - one on which QEMU waits for a client before it starts the guest is left
//!   alone: to connect would be to start it;
//! - libvirt's is left alone, and so is `virsh qemu-monitor-command`, which
//!   marks the domain as tainted.
//!
//! Source: QEMU `docs/interop/qmp-spec.rst`, `qapi/machine.json`; libvirt
//! `virsh(1)`; Linux `net/unix/af_unix.c` (`unix_seq_show`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::argv::QmpSocket;

/// How long QEMU may take for all answers; its main loop answers between two
/// things that it does for the guest.
const LIMIT: Duration = Duration::from_secs(2);
/// The most that is read. The topology of 4096 vCPUs takes some 1.5 MB.
const MAX_BYTES: u64 = 8 << 20;

/// What QEMU says that the guest has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestView {
    /// vCPUs that are plugged in, by number.
    pub vcpus: Vec<GuestVcpu>,
    /// Places for vCPUs, plugged in or not.
    pub vcpu_places: Option<u64>,
    /// Memory backends.
    pub backends: Vec<GuestBackend>,
    /// Memory devices that are plugged in (DIMMs, virtio-mem), by kind.
    pub memory_devices: Vec<String>,
    /// Thread id by iothread, in QEMU's PID namespace.
    pub iothreads: BTreeMap<String, u32>,
    /// Whether KVM executes the guest.
    pub kvm: Option<bool>,
}

/// A vCPU as the guest sees it. A level that the machine lacks is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestVcpu {
    /// Number.
    pub vcpu: u32,
    /// The thread that runs it, in QEMU's PID namespace.
    pub thread: u32,
    /// Guest node.
    pub node: Option<u32>,
    /// Socket.
    pub socket: Option<u32>,
    /// Die.
    pub die: Option<u32>,
    /// Cluster.
    pub cluster: Option<u32>,
    /// Core.
    pub core: Option<u32>,
    /// Thread in the core.
    pub core_thread: Option<u32>,
}

/// A memory backend as QEMU runs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GuestBackend {
    /// Id.
    pub id: Option<String>,
    /// Size.
    pub bytes: u64,
    /// `default`, `preferred`, `bind`, `interleave`.
    pub policy: String,
    /// Host nodes of the policy.
    pub nodes: BTreeSet<u32>,
    /// Whether same-page merging was asked for.
    pub merge: bool,
    /// Whether all of it was touched at the start.
    pub prealloc: bool,
}

/// The questions, in order.
const QUESTIONS: [&str; 6] = [
    "query-cpus-fast",
    "query-hotpluggable-cpus",
    "query-memdev",
    "query-memory-devices",
    "query-iothreads",
    "query-kvm",
];

/// Asks QEMU `pid` through the first of its sockets that is free.
///
/// The error says why nothing could be learnt.
pub(crate) fn ask(pid: u32, libvirt: bool, sockets: &[QmpSocket]) -> Result<GuestView, String> {
    if libvirt {
        return Err("QMP is libvirt's and was left alone".to_owned());
    }
    if sockets.is_empty() {
        return Err("QEMU listens on no QMP socket".to_owned());
    }
    let table = fs::read_to_string(format!("/proc/{pid}/net/unix")).unwrap_or_default();
    let mut reasons = Vec::new();
    for socket in sockets {
        let path = &socket.path;
        if socket.waits {
            reasons.push(format!("QMP socket {path}: QEMU may wait for its owner there"));
            continue;
        }
        match use_of(&table, path) {
            SocketUse::Free => {}
            SocketUse::Taken => {
                reasons.push(format!("QMP socket {path} has its owner connected"));
                continue;
            }
            SocketUse::Absent => {
                reasons.push(format!("QMP socket {path} is not listened on"));
                continue;
            }
        }
        match converse(&reachable(pid, path)) {
            Ok(view) => return Ok(view),
            Err(error) => reasons.push(format!("QMP socket {path}: {error}")),
        }
    }
    Err(reasons.join("; "))
}

/// Who is at a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SocketUse {
    /// QEMU listens and serves nobody.
    Free,
    /// Somebody is connected, or waits to be.
    Taken,
    /// Nobody listens.
    Absent,
}

/// Reads `/proc/<pid>/net/unix`: accepted connections carry the listener's path.
fn use_of(table: &str, path: &str) -> SocketUse {
    /// `__SO_ACCEPTCON`.
    const LISTENS: u32 = 0x1_0000;
    let mut found = SocketUse::Absent;
    for line in table.lines().skip(1) {
        let mut fields = line.split_ascii_whitespace();
        let flags = fields.nth(3).and_then(|flags| u32::from_str_radix(flags, 16).ok());
        let (Some(flags), Some(of)) = (flags, fields.nth(3)) else { continue };
        if of != path {
            continue;
        }
        if flags & LISTENS == 0 {
            return SocketUse::Taken;
        }
        found = SocketUse::Free;
    }
    found
}

/// The way to QEMU's `path` from here: through its own root when it has
/// another, and from its working folder.
fn reachable(pid: u32, path: &str) -> PathBuf {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if !path.starts_with('/') {
        return process.join("cwd").join(path);
    }
    let namespace = |process: &Path| fs::read_link(process.join("ns/mnt")).ok();
    let root = fs::read_link(process.join("root"));
    let same = namespace(&process) == namespace(Path::new("/proc/self"));
    // Not through /proc where it need not be: a socket's path is short.
    if same && root.is_ok_and(|root| root == Path::new("/")) {
        return PathBuf::from(path);
    }
    process.join("root").join(path.trim_start_matches('/'))
}

fn converse(path: &Path) -> io::Result<GuestView> {
    let deadline = Instant::now() + LIMIT;
    let mut stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut lines = BufReader::new(stream.try_clone()?.take(MAX_BYTES));
    // The greeting comes first; without it somebody else is being served.
    next_answer(&mut lines, &stream, deadline, |answer| answer.get("QMP").is_some())?;
    let mut text = String::from("{\"execute\":\"qmp_capabilities\",\"id\":\"hello\"}\n");
    for question in QUESTIONS {
        text += &format!("{{\"execute\":\"{question}\",\"id\":\"{question}\"}}\n");
    }
    stream.write_all(text.as_bytes())?;
    let mut answers = BTreeMap::new();
    for question in QUESTIONS {
        // Events may come in between; errors stand for "not known here".
        let is_answer = |answer: &Value| answer["id"] == question;
        let answer = next_answer(&mut lines, &stream, deadline, is_answer)?;
        answers.insert(question, answer["return"].clone());
    }
    Ok(read(&answers))
}

fn next_answer(
    lines: &mut BufReader<io::Take<UnixStream>>,
    stream: &UnixStream,
    deadline: Instant,
    wanted: impl Fn(&Value) -> bool,
) -> io::Result<Value> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "QEMU does not answer"));
        }
        stream.set_read_timeout(Some(left))?;
        let mut line = String::new();
        match lines.read_line(&mut line) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU hung up")),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error),
        }
        match serde_json::from_str::<Value>(&line) {
            Ok(answer) if wanted(&answer) => return Ok(answer),
            _ => {}
        }
    }
}

fn read(answers: &BTreeMap<&str, Value>) -> GuestView {
    let none = Value::Null;
    let answer = |question: &str| answers.get(question).unwrap_or(&none);
    let list = |question: &str| answer(question).as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_u64().and_then(|number| u32::try_from(number).ok());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let vcpu = |vcpu: &Value| {
        let level = |name: &str| number(&vcpu["props"][name]);
        Some(GuestVcpu {
            vcpu: number(&vcpu["cpu-index"])?,
            thread: number(&vcpu["thread-id"])?,
            node: level("node-id"),
            socket: level("socket-id"),
            die: level("die-id"),
            cluster: level("cluster-id"),
            core: level("core-id"),
            core_thread: level("thread-id"),
        })
    };
    let backend = |backend: &Value| GuestBackend {
        id: text(&backend["id"]),
        bytes: backend["size"].as_u64().unwrap_or(0),
        policy: text(&backend["policy"]).unwrap_or_default(),
        nodes: backend["host-nodes"].as_array().into_iter().flatten().filter_map(number).collect(),
        merge: backend["merge"].as_bool().unwrap_or(false),
        prealloc: backend["prealloc"].as_bool().unwrap_or(false),
    };
    let mut vcpus: Vec<GuestVcpu> = list("query-cpus-fast").iter().filter_map(vcpu).collect();
    vcpus.sort_by_key(|vcpu| vcpu.vcpu);
    let places = list("query-hotpluggable-cpus");
    let places = places.iter().map(|place| place["vcpus-count"].as_u64().unwrap_or(1)).sum();
    GuestView {
        vcpus,
        vcpu_places: (places > 0).then_some(places),
        backends: list("query-memdev").iter().map(backend).collect(),
        memory_devices: list("query-memory-devices")
            .iter()
            .filter_map(|device| text(&device["type"]))
            .collect(),
        iothreads: list("query-iothreads")
            .iter()
            .filter_map(|thread| Some((text(&thread["id"])?, number(&thread["thread-id"])?)))
            .collect(),
        kvm: answer("query-kvm")["enabled"].as_bool(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_with_somebody_at_it_is_taken() {
        // Rows as Linux 6.18 prints them: a listener, its accepted connection,
        // a client's end without a name.
        let listener = "00000000ed75b381: 00000002 00000000 00010000 0001 01   900 /run/q.sock";
        let accepted = "0000000087445775: 00000003 00000000 00000000 0001 03   901 /run/q.sock";
        let client = "0000000087445776: 00000003 00000000 00000000 0001 03   902";
        let check = |rows: &[&str], expected: SocketUse| {
            let table =
                format!("Num RefCount Protocol Flags Type St Inode Path\n{}", rows.join("\n"));
            assert_eq!(use_of(&table, "/run/q.sock"), expected, "{rows:?}");
        };
        check(&[listener], SocketUse::Free);
        check(&[client, listener], SocketUse::Free);
        check(&[listener, accepted, client], SocketUse::Taken);
        check(&[accepted, listener], SocketUse::Taken);
        check(&[client], SocketUse::Absent);
        check(&["", "x"], SocketUse::Absent);
    }

    #[test]
    fn answers_of_a_real_qemu() {
        // QEMU 7.2.22, `-smp 2,maxcpus=4,threads=2`, two guest nodes.
        let text = include_str!("../../testdata/qemu-7.2.22/guest-view.json");
        let answers: BTreeMap<String, Value> = serde_json::from_str(text).expect("JSON");
        let answers = answers.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        let view = read(&answers);
        assert_eq!(view.vcpus.len(), 2);
        let second = &view.vcpus[1];
        assert_eq!((second.vcpu, second.core, second.core_thread), (1, Some(0), Some(1)));
        assert_eq!((second.socket, second.node), (Some(0), Some(0)));
        assert_eq!(view.vcpu_places, Some(4));
        assert_eq!(view.kvm, Some(false));
        assert_eq!(view.iothreads.keys().collect::<Vec<_>>(), ["io1"]);
        let ids: Vec<_> = view.backends.iter().filter_map(|found| found.id.as_deref()).collect();
        assert_eq!(ids, ["m1", "m0"]);
        assert_eq!(view.backends[0].bytes, 32 << 20);
        assert_eq!(view.backends[1].nodes, [0].into());
        assert_eq!(read(&BTreeMap::new()), GuestView::default());
    }

    #[test]
    fn only_free_sockets_of_no_owner_are_asked() {
        let me = std::process::id();
        let socket = |path: &str, waits| QmpSocket { path: path.to_owned(), waits };
        let check = |libvirt: bool, sockets: &[QmpSocket], why: &str| {
            let error = ask(me, libvirt, sockets).expect_err(why);
            assert!(error.contains(why), "{error}");
        };
        check(true, &[socket("/a", false)], "libvirt's");
        check(false, &[], "no QMP socket");
        check(false, &[socket("/a", true)], "may wait for its owner");
        check(false, &[socket("/nowhere", false)], "not listened on");
    }
}
