//! A switch of DPDK's between the VMs of a trial: `dpdk-testpmd`, or Open vSwitch with a
//! data base and a bridge of its own, in a folder of the trial and, as it makes an
//! interface of the bridge's name, in a network namespace.
//!
//! DPDK polls: each of its forwarding threads takes a whole pCPU, with and without
//! frames.
//!
//! Source: DPDK's Testpmd Application User Guide and Linux Getting Started Guide (EAL
//! parameters); `ovs-vswitchd.conf.db(5)`, Open vSwitch's topics dpdk/vhost-user and
//! dpdk/pmd.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use host::affinity::thread_affinity;
use host::dpdk::{OVS_HUGE_PAGES, TESTPMD, TESTPMD_HUGE_PAGES, free_huge_pages, vswitchd};
use host::program::find;
use record::{Failure, FailureKind};
use topology::PcpuSet;

use super::role_guest::last_words;
use super::{LocalLab, load_failure, polling};
use crate::study::{StudyNetwork, SwitchProgram};

/// How long a switch may take until both of its sockets listen.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// The server of Open vSwitch's data base.
const SERVER: &str = "ovsdb-server";

/// Names of the sockets: of the VM under test, and of the other one.
const PORTS: [&str; 2] = ["trial", "peer"];

/// A switch that runs; it ends on drop.
#[derive(Debug)]
pub(super) struct DpdkSwitch {
    program: SwitchProgram,
    switch: SwitchProcess,
    /// Open vSwitch's data base, gone after the switch.
    _database: Option<SwitchProcess>,
    folder: PathBuf,
    huge: bool,
}

impl DpdkSwitch {
    /// Starts the switch that the first of `interfaces` names, and sees that both of its
    /// sockets listen and its polling threads are where that interface says.
    pub(super) fn start(
        lab: &LocalLab<'_>,
        interfaces: [&StudyNetwork; 2],
    ) -> Result<Self, Failure> {
        let StudyNetwork { switch: program, switch_pcpus: pcpus, .. } = interfaces[0];
        let folder = lab.runtime.path().join("dpdk");
        let refused = |error: &dyn std::error::Error| {
            let detail = load_failure(error).detail;
            Failure::new(FailureKind::VmRefused, format!("{}: {detail}", program.name()))
        };
        // Sockets of a trial before are in the way of this one's.
        if folder.exists() {
            fs::remove_dir_all(&folder).map_err(|error| refused(&error))?;
        }
        fs::create_dir_all(&folder).map_err(|error| refused(&error))?;
        let mut started = match program {
            SwitchProgram::OvsDpdk => {
                let parts = OpenVswitch { lab, folder: &folder };
                let database = parts.database(pcpus)?;
                let switch = parts.switch()?;
                parts.add_ports()?;
                Self { program: *program, switch, _database: Some(database), folder, huge: true }
            }
            SwitchProgram::Testpmd | SwitchProgram::Vmlab => {
                let huge = free_huge_pages() >= TESTPMD_HUGE_PAGES;
                let anywhere = thread_affinity(std::process::id());
                let anywhere = anywhere.map_err(|error| refused(&error))?;
                let switch = spawn(lab, &folder, &mut testpmd(pcpus, &anywhere, huge))?;
                Self { program: *program, switch, _database: None, folder, huge }
            }
        };
        started.until_it_listens(lab)?;
        if !pcpus.is_empty() {
            polling::check(started.switch.0.id(), pcpus, is_polling)?;
        }
        Ok(started)
    }

    /// The socket of a port.
    pub(super) fn socket(&self, number: usize) -> PathBuf {
        self.folder.join(PORTS[number])
    }

    fn until_it_listens(&mut self, lab: &LocalLab<'_>) -> Result<(), Failure> {
        let until = Instant::now() + START_LIMIT;
        while !self.listens() {
            lab.cancel.check().map_err(|cancelled| super::failure::failure(cancelled.into()))?;
            let late = Instant::now() >= until;
            if late || self.switch.0.try_wait().is_ok_and(|status| status.is_some()) {
                let (name, said) = (self.program.name(), said_in(&self.folder));
                let detail = format!("{name}: it does not listen; it said: {said}");
                return Err(Failure::new(FailureKind::VmRefused, detail));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Whether it has a socket of each port's name on which it listens.
    fn listens(&self) -> bool {
        self.without(UnixSocketState::Listens).is_none()
    }

    /// The first of both ports of whose name it has no socket in this state.
    fn without(&self, state: UnixSocketState) -> Option<usize> {
        let process = PathBuf::from(format!("/proc/{}", self.switch.0.id()));
        // Of its own network namespace.
        let table = fs::read_to_string(process.join("net/unix")).unwrap_or_default();
        let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let files: Vec<PathBuf> =
            files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
        let names = names_of(state, &table, &files);
        PORTS.iter().position(|port| !names.iter().any(|name| name == port))
    }

    /// The first VM, by its port's number, with which it has no connection, and what the
    /// switch is called and said.
    pub(super) fn without_connection(&self) -> Option<(usize, String)> {
        let port = self.without(UnixSocketState::Connected)?;
        let (name, said) = (self.program.name(), said_in(&self.folder));
        Some((port, format!("{name}, which said: {said}")))
    }

    /// Whether it still runs.
    pub(super) fn check_alive(&mut self) -> Result<(), Failure> {
        let what = match self.switch.0.try_wait() {
            Ok(None) => return Ok(()),
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let (name, said) = (self.program.name(), said_in(&self.folder));
        Err(Failure::new(
            FailureKind::WorkloadFailed,
            format!("The switch between the VMs, {name}, ended with {what}; it said: {said}"),
        ))
    }

    /// Which it is, and where it polls.
    pub(super) fn facts(&self) -> Result<BTreeMap<String, String>, Failure> {
        let version = match self.program {
            SwitchProgram::OvsDpdk => vswitchd().map(|(_, version)| version),
            SwitchProgram::Testpmd | SwitchProgram::Vmlab => {
                let said = fs::read_to_string(log_of(&self.folder)).unwrap_or_default();
                dpdk_version(&said).map(|version| format!("{TESTPMD} of {version}"))
            }
        };
        let places = polling::places(self.switch.0.id(), is_polling)?;
        let places: Vec<String> = places
            .into_iter()
            .map(|(_, pcpus)| match pcpus.len() {
                1 => format!("pCPU {pcpus}"),
                _ => "anywhere".to_owned(),
            })
            .collect();
        let memory = if self.huge { "huge pages" } else { "small pages" };
        Ok([
            ("switch.program", version.unwrap_or_else(|| self.program.name().to_owned())),
            ("switch.polling_threads", places.join(", ")),
            ("switch.memory", memory.to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into())
    }
}

/// A process that ends on drop.
#[derive(Debug)]
struct SwitchProcess(Child);

impl Drop for SwitchProcess {
    fn drop(&mut self) {
        // It may be gone already; either way it is reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// DPDK's threads that forward, by their names: `lcore-worker-1`, `rte-worker-1` and
/// `dpdk-worker1` by its version, `pmd-c01/id:8` of Open vSwitch.
fn is_polling(name: &str) -> bool {
    name.contains("-worker") || name.starts_with("pmd-c")
}

/// The version that DPDK says when it begins: `EAL: RTE Version: 'DPDK 22.11.11'`.
fn dpdk_version(said: &str) -> Option<String> {
    let line = said.lines().find_map(|line| line.split_once("RTE Version: '"))?;
    line.1.split('\'').next().map(str::to_owned)
}

/// What a Unix socket is, after it has a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnixSocketState {
    /// Others connect to it.
    Listens,
    /// It is one end of a connection.
    Connected,
}

/// Names of the Unix sockets in this state by a kernel's table of them (`/proc/net/unix`),
/// of a process that has `files` open. A socket has the path that its program gave it,
/// which may be relative; one that was accepted has that of who listened.
fn names_of(wanted: UnixSocketState, table: &str, files: &[PathBuf]) -> Vec<String> {
    /// `__SO_ACCEPTCON`, the fourth column.
    const LISTENS: &str = "00010000";
    /// `SS_CONNECTED`, the sixth.
    const CONNECTED: &str = "03";
    let of_line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, flags, _, state, inode, path] = words[..] else { return None };
        let is_in_it = match wanted {
            UnixSocketState::Listens => flags == LISTENS,
            UnixSocketState::Connected => state == CONNECTED,
        };
        if !is_in_it {
            return None;
        }
        let file = PathBuf::from(format!("socket:[{inode}]"));
        let name = Path::new(path).file_name()?.to_str()?;
        files.contains(&file).then(|| name.to_owned())
    };
    table.lines().filter_map(of_line).collect()
}

/// DPDK's cable between two sockets in the working folder.
fn testpmd(pcpus: &PcpuSet, anywhere: &PcpuSet, huge: bool) -> Command {
    let mut command = Command::new(find(TESTPMD).unwrap_or_else(|| TESTPMD.into()));
    let mut lcores = format!("0@({anywhere})");
    let mut forwarding: Vec<String> = pcpus.iter().map(|pcpu| pcpu.to_string()).collect();
    if forwarding.is_empty() {
        forwarding.push(anywhere.to_string());
    }
    for (number, pcpus) in forwarding.iter().enumerate() {
        lcores.push_str(&format!(",{}@({pcpus})", number + 1));
    }
    command.args(["--lcores", &lcores, "-v", "--no-pci", "--no-telemetry"]);
    if huge {
        command.args(["--in-memory", "--single-file-segments", "-m", "384"]);
    } else {
        command.args(["--no-huge", "--no-shconf", "-m", "384"]);
    }
    for (number, port) in PORTS.iter().enumerate() {
        command.args(["--vdev", &format!("net_vhost{number},iface={port},queues=1")]);
    }
    command.args(["--", &format!("--nb-cores={}", forwarding.len()), "--auto-start"]);
    command.args(["--forward-mode=io", "--total-num-mbufs=40960"]);
    command
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("switch.log")
}

fn said_in(folder: &Path) -> String {
    last_words(&fs::read_to_string(log_of(folder)).unwrap_or_default())
}

/// Starts a switch in `folder`, where all that it makes lies. testpmd ends with its
/// input, which ends with this process, whatever ends that.
fn spawn(
    lab: &LocalLab<'_>,
    folder: &Path,
    command: &mut Command,
) -> Result<SwitchProcess, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let refused = |error: std::io::Error| {
        Failure::new(FailureKind::VmRefused, format!("Cannot start {program}: {error}"))
    };
    let log = File::options().create(true).append(true).open(log_of(folder)).map_err(refused)?;
    let output = log.try_clone().map_err(refused)?;
    command.stdin(Stdio::piped()).stdout(output).stderr(log).current_dir(folder);
    // Where DPDK keeps its files, and Open vSwitch its sockets.
    command.env("RUNTIME_DIRECTORY", folder).env("OVS_RUNDIR", folder);
    lab.owner.apply(command);
    command.spawn().map(SwitchProcess).map_err(refused)
}

/// An Open vSwitch that is made.
struct OpenVswitch<'a> {
    lab: &'a LocalLab<'a>,
    folder: &'a Path,
}

impl OpenVswitch<'_> {
    /// A data base that says how DPDK begins, and its server.
    fn database(&self, pcpus: &PcpuSet) -> Result<SwitchProcess, Failure> {
        self.run("ovsdb-tool", &["create", "ovs.db"])?;
        let mut command = Command::new(find(SERVER).unwrap_or_else(|| SERVER.into()));
        command.args(["ovs.db", "--remote=punix:db.sock", "--unixctl=db.ctl", "-vsyslog:off"]);
        let server = spawn(self.lab, self.folder, &mut command)?;
        let mut settings = vec![
            "other_config:dpdk-init=true".to_owned(),
            "other_config:dpdk-extra=\"--no-pci --no-telemetry\"".to_owned(),
            format!("other_config:dpdk-socket-mem=\"{}\"", 2 * OVS_HUGE_PAGES),
            // Buffers as each port needs them: else it takes as many as the memory has room
            // for, and now and then nothing is left for a connection's rings.
            "other_config:per-port-memory=true".to_owned(),
        ];
        if !pcpus.is_empty() {
            settings.push(format!("other_config:pmd-cpu-mask={}", mask(pcpus)));
        }
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        self.vsctl(&["--no-wait", "init"])?;
        self.vsctl(&[&["--no-wait", "set", "Open_vSwitch", "."], settings.as_slice()].concat())?;
        Ok(server)
    }

    /// The switch itself, where the interface of its bridge meets no other of that name.
    fn switch(&self) -> Result<SwitchProcess, Failure> {
        let program = vswitchd().map(|(program, _)| program).ok_or_else(|| {
            let detail = "There is no ovs-vswitchd with DPDK any more".to_owned();
            Failure::new(FailureKind::VmRefused, detail)
        })?;
        let mut command = Command::new(find("unshare").unwrap_or_else(|| "unshare".into()));
        command.args(["--net", "--"]).arg(program).arg("unix:db.sock");
        command.args(["--unixctl=switch.ctl", "-vconsole:info", "-vsyslog:off"]);
        spawn(self.lab, self.folder, &mut command)
    }

    /// A bridge with both sockets. Whether the switch has made them is looked at later, as
    /// whoever waits for it here can't be interrupted.
    fn add_ports(&self) -> Result<(), Failure> {
        let mut words = vec!["--no-wait", "add-br", "br0", "--", "set", "bridge", "br0"];
        words.push("datapath_type=netdev");
        for port in PORTS {
            words.extend(["--", "add-port", "br0", port, "--", "set", "Interface", port]);
            words.push("type=dpdkvhostuser");
        }
        self.vsctl(&words)
    }

    fn vsctl(&self, words: &[&str]) -> Result<(), Failure> {
        let first = ["--db=unix:db.sock", "--retry", "--timeout=10"];
        self.run("ovs-vsctl", &[first.as_slice(), words].concat())
    }

    fn run(&self, program: &str, words: &[&str]) -> Result<(), Failure> {
        let failed =
            |detail: String| Failure::new(FailureKind::VmRefused, format!("{program}: {detail}"));
        let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
        command.args(words).current_dir(self.folder).env("OVS_RUNDIR", self.folder);
        self.lab.owner.apply(&mut command);
        let output = command.output().map_err(|error| failed(error.to_string()))?;
        if output.status.success() {
            return Ok(());
        }
        let words = last_words(&String::from_utf8_lossy(&output.stderr));
        Err(failed(format!("{words}; the switch said: {}", said_in(self.folder))))
    }
}

/// pCPUs as Open vSwitch reads them: a number in base 16 with a bit for each.
fn mask(pcpus: &PcpuSet) -> String {
    let mut digits = vec![0_u8; pcpus.last().map_or(1, |last| last as usize / 4 + 1)];
    for pcpu in pcpus.iter() {
        digits[pcpu as usize / 4] |= 1 << (pcpu % 4);
    }
    let digits = digits.iter().rev().map(|digit| format!("{digit:x}"));
    format!("0x{}", digits.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_bit_for_each_pcpu() {
        let check = |pcpus: &str, expected: &str| {
            assert_eq!(mask(&pcpus.parse().unwrap()), expected, "{pcpus}");
        };
        check("0", "0x1");
        check("2-3", "0xc");
        check("1,64", "0x10000000000000002");
    }

    #[test]
    fn a_switch_s_sockets_are_told_by_their_state() {
        use std::os::unix::net::{UnixListener, UnixStream};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial");
        let look = |state| {
            let table = fs::read_to_string("/proc/self/net/unix").unwrap();
            let files = fs::read_dir("/proc/self/fd").unwrap().flatten();
            let files: Vec<_> = files.filter_map(|file| fs::read_link(file.path()).ok()).collect();
            names_of(state, &table, &files).iter().filter(|name| *name == "trial").count()
        };
        let all = || [UnixSocketState::Listens, UnixSocketState::Connected].map(look);
        let listener = UnixListener::bind(&path).unwrap();
        assert_eq!(all(), [1, 0]);
        let client = UnixStream::connect(&path).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(all(), [1, 1]);
        // What the switch lets go of is gone, whatever the VM still holds.
        drop(server);
        assert_eq!(all(), [1, 0]);
        drop(client);
    }

    #[test]
    fn only_sockets_that_listen_count() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             00000000ee72fd5a: 00000002 00000000 00010000 0001 01 306863 trial\n\
             000000009b6be10b: 00000002 00000000 00000000 0001 01 306869 peer\n\
             000000009b6be10c: 00000002 00000000 00010000 0001 01 306870 /run/peer\n\
             000000009b6be10d: 00000003 00000000 00000000 0001 03 306871\n";
        let check = |files: &[&str], expected: &[&str]| {
            let files: Vec<PathBuf> = files.iter().map(PathBuf::from).collect();
            let names = names_of(UnixSocketState::Listens, table, &files);
            assert_eq!(names, expected, "{files:?}");
        };
        check(&["socket:[306863]", "socket:[306869]", "/dev/null"], &["trial"]);
        check(&["socket:[306863]", "socket:[306870]"], &["trial", "peer"]);
        check(&["socket:[306871]"], &[]);
        check(&[], &[]);
    }

    #[test]
    fn testpmd_polls_where_it_is_told() {
        let check = |pcpus: &str, huge, lcores: &str, cores: &str, memory: &str| {
            let pcpus = if pcpus.is_empty() { PcpuSet::new() } else { pcpus.parse().unwrap() };
            let command = testpmd(&pcpus, &"0-3".parse().unwrap(), huge);
            let args: Vec<&str> = command.get_args().filter_map(|arg| arg.to_str()).collect();
            assert_eq!(args[..2], ["--lcores", lcores]);
            assert!(args.contains(&cores) && args.contains(&memory), "{args:?}");
        };
        check("", false, "0@(0-3),1@(0-3)", "--nb-cores=1", "--no-huge");
        check("2-3", true, "0@(0-3),1@(2),2@(3)", "--nb-cores=2", "--in-memory");
    }

    #[test]
    fn dpdk_says_its_version() {
        let said = "EAL: Detected CPU lcores: 2\nEAL: RTE Version: 'DPDK 22.11.11'\n";
        assert_eq!(dpdk_version(said).as_deref(), Some("DPDK 22.11.11"));
        assert_eq!(dpdk_version("EAL: Detected CPU lcores: 2\n"), None);
    }
}
