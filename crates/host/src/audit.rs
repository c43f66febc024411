//! The VMs that run on this machine, as they are: QEMU's processes, where each
//! of their threads may run, where their memory lies, what the guest was given.
//!
//! Nothing is changed and nobody is asked who might be disturbed: `/proc`,
//! `/sys/fs/cgroup`, and QMP sockets that nobody uses ([`guest_view`]). What
//! may not be read is absent, and [`RunningVm::notes`] says so.
//!
//! Whether it is what somebody asked for is told by [`in_force`]; what is wrong
//! with it, by the rules of the crate `lint`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::command_line::CommandLine;
use vmconfig::source::NamedFile;

use crate::proc;

pub mod argv;
pub mod cgroup;
pub mod cpu_pm;
pub mod guest_view;
pub mod in_force;
pub mod libvirt_log;
pub mod memory;
pub mod pages;
pub mod thread;

use argv::CommandLineRequest;
use cgroup::Hierarchies;
use cpu_pm::{CpuPm, Halts};
use guest_view::GuestView;
use libvirt_log::LoggedStart;
use memory::VmMemory;
use thread::{RunningThread, ThreadRole};

/// One QEMU process and all that could be learnt about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunningVm {
    /// Process id.
    pub pid: u32,
    /// Start of the process, in clock ticks since boot: with the pid, which
    /// process this was.
    pub starttime_ticks: u64,
    /// The program's file, or its name where the file may not be seen.
    pub program: String,
    /// Its arguments, the program's name among them.
    pub argv: Vec<String>,
    /// The files of options that they name (`-readconfig`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub option_files: Vec<NamedFile>,
    /// What they ask for.
    pub asked: CommandLineRequest,
    /// Its threads by thread id; kernel threads that work for it (vhost before
    /// Linux 6.4) stand among them.
    pub threads: Vec<RunningThread>,
    /// How vCPUs were told from other threads.
    pub vcpus_known_by: VcpuEvidence,
    /// Where its memory lies.
    pub memory: VmMemory,
    /// What QEMU says that the guest has; `None` where it could not be asked.
    pub guest: Option<GuestView>,
    /// How often its vCPUs left for the host because they halted; `None` where
    /// KVM does not tell.
    #[serde(default)]
    pub halts: Option<Halts>,
    /// Whether `cpu-pm=on` is in force; `None` where it was not asked for.
    #[serde(default)]
    pub cpu_pm: Option<CpuPm>,
    /// Its start, as libvirt noted it; `None` where libvirt did not start it, or
    /// its log may not be read.
    #[serde(default)]
    pub start: Option<LoggedStart>,
    /// What could not be learnt, and why.
    pub notes: Vec<String>,
}

/// How a thread is known to run a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VcpuEvidence {
    /// The caller started the VM and knows.
    Caller,
    /// QEMU told.
    Qmp,
    /// Names of threads (`debug-threads=on`).
    Names,
    /// They have run guest code. Which vCPU each runs, is not known.
    GuestTime,
    /// No vCPU thread is known.
    Nothing,
}

/// What to look at, beside what costs next to nothing.
#[derive(Debug, Clone, Default)]
pub struct AuditScope {
    /// Ask QEMU through a free QMP socket.
    pub qmp: bool,
    /// Scan every page of guest memory (root only).
    pub pages: bool,
    /// The vCPUs' threads by vCPU number, for who knows them.
    pub vcpu_tids: Vec<u32>,
    /// Look at threads alone: not at memory, which costs a walk through page tables, and not
    /// at what KVM and libvirt's log tell of it.
    pub threads_only: bool,
}

impl RunningVm {
    /// The VM's name, or its pid's: `db`, `pid 4711`.
    #[must_use]
    pub fn label(&self) -> String {
        self.asked.name.clone().unwrap_or_else(|| format!("pid {}", self.pid))
    }

    /// The thread of each vCPU whose number is known. Where one thread runs
    /// all of them, it stands for each.
    #[must_use]
    pub fn vcpus(&self) -> BTreeMap<u32, &RunningThread> {
        let mut vcpus = BTreeMap::new();
        for thread in &self.threads {
            match thread.role {
                ThreadRole::Vcpu { vcpu: Some(vcpu) } => {
                    vcpus.insert(vcpu, thread);
                }
                ThreadRole::AllVcpus => {
                    let count = self.asked.vcpus.unwrap_or(1);
                    vcpus.extend((0..count).map(|vcpu| (vcpu, thread)));
                }
                _ => {}
            }
        }
        vcpus
    }
}

/// Error type for [`read`].
#[derive(Debug, thiserror::Error)]
pub enum ReadVmError {
    /// There is no such process, or it has ended.
    #[error("There is no process {pid}")]
    Gone {
        /// Process id.
        pid: u32,
    },
    /// Its command line can't be read.
    #[error("Cannot read {path}: be root, or the user who runs the VM")]
    Denied {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is another program.
    #[error("Process {pid} is {program:?}, which is no QEMU system emulator")]
    NotQemu {
        /// Process id.
        pid: u32,
        /// What it is.
        program: String,
    },
    /// It is a QEMU that was asked for no machine: it runs nothing, as libvirt's
    /// do when they ask QEMU what it can, and the one that a replica keeps.
    #[error("Process {pid} is a QEMU without a machine (-machine none): there is no VM in it")]
    NoVm {
        /// Process id.
        pid: u32,
    },
}

/// All VMs that this user may see, by pid. One that ends meanwhile is left
/// out; one that may not be read is told in the second list.
#[must_use]
pub fn running(look: &AuditScope) -> (Vec<RunningVm>, Vec<String>) {
    let mut pids = proc::pids();
    pids.sort_unstable();
    let vhost = kernel_vhost(&pids);
    let (mut vms, mut problems) = (Vec::new(), Vec::new());
    for pid in pids {
        match read_with(pid, look, &vhost) {
            Ok(vm) => vms.push(vm),
            Err(error @ ReadVmError::Denied { .. }) if is_named_like_qemu(pid) => {
                problems.push(error.to_string());
            }
            Err(_) => {}
        }
    }
    (vms, problems)
}

/// Reads the VM of the QEMU process `pid`.
///
/// # Errors
/// [`ReadVmError`]. What can't be read beyond the command line is absent in
/// the result and told in its notes.
pub fn read(pid: u32, look: &AuditScope) -> Result<RunningVm, ReadVmError> {
    read_with(pid, look, &kernel_vhost(&proc::pids()))
}

/// The threads named `vhost-<pid>` by what they are named after. Before Linux 6.4 they are
/// the kernel's own, and stand among the processes.
fn kernel_vhost(pids: &[u32]) -> BTreeMap<u32, Vec<u32>> {
    let mut vhost: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for &tid in pids {
        let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
        let of = name.trim_end().strip_prefix("vhost-").and_then(|pid| pid.parse().ok());
        if let Some(pid) = of.filter(|pid| *pid != tid) {
            vhost.entry(pid).or_default().push(tid);
        }
    }
    vhost
}

fn read_with(
    pid: u32,
    look: &AuditScope,
    vhost: &BTreeMap<u32, Vec<u32>>,
) -> Result<RunningVm, ReadVmError> {
    let root = Path::new("/");
    let stat = proc::stat(pid).filter(|stat| !stat.is_dead()).ok_or(ReadVmError::Gone { pid })?;
    let argv = read_argv(root, pid)?;
    let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let exe = exe.map(|path| path.to_string_lossy().into_owned());
    let program = exe.or_else(|| argv.first().cloned()).unwrap_or_default();
    if stat.kernel_thread || !is_qemu(&program, &argv) {
        return Err(ReadVmError::NotQemu { pid, program });
    }
    if has_no_machine(&argv) {
        return Err(ReadVmError::NoVm { pid });
    }
    let arguments = argv.get(1..).unwrap_or_default();
    let option_files = CommandLine::config_files_of(arguments, |name| config_file(pid, name));
    let (asked, unread) = argv::parse_with(arguments, option_files.clone());
    let mut vm = RunningVm {
        pid,
        starttime_ticks: stat.starttime_ticks,
        program,
        argv,
        option_files,
        asked,
        threads: Vec::new(),
        vcpus_known_by: VcpuEvidence::Nothing,
        memory: VmMemory::default(),
        guest: None,
        halts: None,
        cpu_pm: None,
        start: None,
        notes: unread.into_iter().map(|said| format!("Not read: {said}")).collect(),
    };
    if look.qmp {
        match guest_view::ask(pid, vm.asked.libvirt, &vm.asked.qmp) {
            Ok(view) => vm.guest = Some(view),
            Err(why) => vm.notes.push(format!("What the guest sees is not known: {why}")),
        }
    }
    read_threads(root, &mut vm, &look.vcpu_tids, vhost.get(&pid).map_or(&[], Vec::as_slice));
    if !look.threads_only {
        read_memory(root, &mut vm, look.pages);
        cpu_pm::look(&mut vm);
    }
    // A pid that was given to another process in between is not this VM.
    match proc::stat(pid) {
        Some(now) if now.starttime_ticks == stat.starttime_ticks => Ok(vm),
        _ => Err(ReadVmError::Gone { pid }),
    }
}

fn read_argv(root: &Path, pid: u32) -> Result<Vec<String>, ReadVmError> {
    let path = root.join(format!("proc/{pid}/cmdline"));
    match fs::read(&path) {
        Ok(bytes) => {
            let text = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
            let parts = text.split(|byte| *byte == 0);
            Ok(parts.map(|part| String::from_utf8_lossy(part).into_owned()).collect())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(ReadVmError::Gone { pid }),
        Err(source) => Err(ReadVmError::Denied { path: path.display().to_string(), source }),
    }
}

/// A file of options where the process `pid` would find it: below its root, from its
/// folder. It may be another by now than the one that it read.
fn config_file(pid: u32, name: &str) -> (String, Result<String, String>) {
    let base = if name.starts_with('/') { "root" } else { "cwd" };
    let path = format!("/proc/{pid}/{base}/{}", name.trim_start_matches('/'));
    (name.to_owned(), read_config_file(Path::new(&path)))
}

/// A regular file, of no more bytes than a text may have: a name may be a pipe's.
fn read_config_file(path: &Path) -> Result<String, String> {
    let read = || {
        let is_file = fs::metadata(path)?.is_file();
        let refuse = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        if !is_file {
            return Err(refuse("no regular file"));
        }
        let mut text = String::new();
        let most = topology::bounded::MAX_BYTES as u64;
        fs::File::open(path)?.take(most + 1).read_to_string(&mut text)?;
        if text.len() as u64 > most { Err(refuse("too large")) } else { Ok(text) }
    };
    read().map_err(|error: io::Error| error.to_string())
}

fn is_named_like_qemu(pid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.starts_with("qemu-")
}

/// Whether a process is a QEMU system emulator: by its file's name, or by its
/// arguments where the file was renamed.
/// Whether a QEMU's command line asks for no machine.
///
/// Source: QEMU's `hw/core/null-machine.c`.
fn has_no_machine(argv: &[String]) -> bool {
    let is_option = |word: &str| matches!(word.trim_start_matches('-'), "machine" | "M");
    argv.windows(2).any(|pair| {
        let kind = pair[1].split(',').next().unwrap_or_default();
        pair[0].starts_with('-')
            && is_option(&pair[0])
            && kind.trim_start_matches("type=") == "none"
    })
}

fn is_qemu(program: &str, argv: &[String]) -> bool {
    // The kernel marks the file of a process that was replaced meanwhile.
    let program = program.strip_suffix(" (deleted)").unwrap_or(program);
    let named = |path: &str| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.starts_with("qemu-system-") || matches!(name, "qemu-kvm" | "kvm" | "qemu-dm")
    };
    // `sh -c "qemu-system-..."` names it as well: the first word must be it.
    let is_script = ["sh", "bash", "dash", "python3", "sudo", "env"]
        .contains(&program.rsplit('/').next().unwrap_or_default());
    if is_script {
        return false;
    }
    let has = |option: &str| argv.iter().any(|part| part == option);
    named(program)
        || argv.first().is_some_and(|first| named(first))
        // No other program takes these three.
        || has("-machine") && has("-smp") && (has("-m") || has("-nodefaults"))
}

fn read_threads(root: &Path, vm: &mut RunningVm, known: &[u32], kernel_vhost: &[u32]) {
    let task = root.join(format!("proc/{}/task", vm.pid));
    let mut tids: Vec<u32> = fs::read_dir(&task)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    tids.sort_unstable();
    let hierarchies = Hierarchies::find(root);
    let mut seen = Vec::new();
    for tid in tids {
        seen.extend(read_thread(&task.join(tid.to_string()), tid, vm, &hierarchies));
    }
    for &tid in kernel_vhost {
        seen.extend(read_thread(&root.join(format!("proc/{tid}")), tid, vm, &hierarchies));
    }
    vm.vcpus_known_by = tell_vcpus(&mut seen, vm, known);
    if vm.vcpus_known_by == VcpuEvidence::Nothing {
        let why = if vm.asked.thread_names { "none is there" } else { "its threads have no names" };
        let name = vm.asked.name.as_deref().unwrap_or("NAME");
        vm.notes.push(format!(
            "No vCPU's thread is known: {why}. Start the VM with -name {name},debug-threads=on"
        ));
    } else if vm.vcpus_known_by == VcpuEvidence::GuestTime {
        vm.notes.push(
            "vCPUs are told by the time that their threads spent in guest code, without numbers"
                .to_owned(),
        );
    }
    vm.threads = seen.into_iter().map(|seen| seen.thread).collect();
    vm.threads.sort_by_key(|thread| thread.tid);
}

/// A thread and what helps to tell its role.
struct SeenThread {
    thread: RunningThread,
    inner_id: Option<u32>,
    guest_ticks: u64,
}

fn read_thread(
    folder: &Path,
    tid: u32,
    vm: &RunningVm,
    hierarchies: &Hierarchies,
) -> Option<SeenThread> {
    let text = |file: &str| {
        let bytes = fs::read(folder.join(file)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    // A thread that ended meanwhile is none.
    let name = text("comm")?.trim_end_matches('\n').to_owned();
    let status = thread::parse_status(&text("status")?);
    let scheduling = text("stat").and_then(|stat| thread::parse_scheduling(&stat));
    let limits = text("cgroup").map(|groups| hierarchies.limits(&groups)).unwrap_or_default();
    let CommandLineRequest { thread_names, iothreads, .. } = &vm.asked;
    let role = thread::role_of(&name, tid == vm.pid, *thread_names, iothreads);
    Some(SeenThread {
        thread: RunningThread {
            tid,
            role,
            name,
            affinity: status.affinity,
            policy: scheduling.map(|found| found.policy),
            realtime_priority: scheduling.map(|found| found.realtime_priority),
            nice: scheduling.map(|found| found.nice),
            last_pcpu: scheduling.map(|found| found.last_pcpu),
            limits,
        },
        inner_id: status.inner_id,
        guest_ticks: scheduling.map_or(0, |found| found.guest_ticks),
    })
}

/// Sets the roles of vCPU threads by the best source there is.
fn tell_vcpus(seen: &mut [SeenThread], vm: &RunningVm, known: &[u32]) -> VcpuEvidence {
    if !known.is_empty() {
        for (vcpu, tid) in (0..).zip(known) {
            set_vcpu(seen, vcpu, |seen| seen.thread.tid == *tid);
        }
        return VcpuEvidence::Caller;
    }
    if let Some(view) = vm.guest.as_ref().filter(|view| !view.vcpus.is_empty()) {
        for vcpu in &view.vcpus {
            set_vcpu(seen, vcpu.vcpu, |seen| seen.inner_id == Some(vcpu.thread));
        }
        for (id, thread) in &view.iothreads {
            if let Some(seen) = seen.iter_mut().find(|seen| seen.inner_id == Some(*thread)) {
                seen.thread.role = ThreadRole::Iothread { id: id.clone() };
            }
        }
        return VcpuEvidence::Qmp;
    }
    if seen.iter().any(|seen| seen.thread.role.is_vcpu()) {
        return VcpuEvidence::Names;
    }
    let mut found = VcpuEvidence::Nothing;
    for seen in seen.iter_mut().filter(|seen| seen.guest_ticks > 0) {
        seen.thread.role = ThreadRole::Vcpu { vcpu: None };
        found = VcpuEvidence::GuestTime;
    }
    found
}

/// Two vCPUs of one thread make it the thread of all.
fn set_vcpu(seen: &mut [SeenThread], vcpu: u32, is_it: impl Fn(&SeenThread) -> bool) {
    let Some(seen) = seen.iter_mut().find(|seen| is_it(seen)) else { return };
    let role = &mut seen.thread.role;
    *role = match role {
        ThreadRole::AllVcpus => ThreadRole::AllVcpus,
        ThreadRole::Vcpu { vcpu: Some(other) } if *other != vcpu => ThreadRole::AllVcpus,
        _ => ThreadRole::Vcpu { vcpu: Some(vcpu) },
    };
}

fn read_memory(root: &Path, vm: &mut RunningVm, pages: bool) {
    let folder = root.join(format!("proc/{}", vm.pid));
    let smaps = fs::read(folder.join("smaps"));
    let numa_maps = fs::read(folder.join("numa_maps"));
    let text = |bytes: &io::Result<Vec<u8>>| match bytes {
        Ok(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Err(_) => String::new(),
    };
    if let Err(error) = &smaps {
        vm.notes.push(format!("Where its memory lies is not known: smaps: {error}"));
    } else if let Err(error) = &numa_maps {
        vm.notes.push(format!("On which nodes its memory lies is not known: numa_maps: {error}"));
    }
    let mut memory = memory::join(&text(&smaps), &text(&numa_maps), &vm.asked);
    if let Ok(status) = fs::read_to_string(folder.join("status")) {
        let status = thread::parse_status(&status);
        memory.locked_bytes = status.locked_bytes;
        memory.swapped_bytes = status.swapped_bytes;
        memory.allowed_nodes = status.nodes.map(|nodes| nodes.iter().collect());
    }
    let merging = fs::read_to_string(folder.join("ksm_merging_pages")).ok();
    memory.ksm_merging_pages = merging.and_then(|text| text.trim().parse().ok());
    if pages && let Err(error) = pages::scan(root, vm.pid, &mut memory.regions) {
        vm.notes.push(format!("The scan of its pages was not possible: {error}"));
    }
    vm.memory = memory;
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
