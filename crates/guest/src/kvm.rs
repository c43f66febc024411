//! Whether KVM is usable here: seen by booting a guest under it.
//!
//! `/dev/kvm` proves nothing. Inside a VM or a container it may belong to a
//! KVM that accepts a guest and then never gets it through its first
//! instructions. So the builtin guest is booted under `-accel kvm`, with its
//! console switched on: as long as that goes on printing, the guest gets its
//! time; when it falls silent before the agent has answered, KVM is not usable.
//!
//! The longest silence of a booting guest, measured under emulation (which is
//! slower than any KVM worth the name), is below 1 s; 5 s leave
//! nested KVM on a busy host several times that. On a host that is itself
//! emulated all takes longer, and both limits are wider ([`HostKind`]).
//!
//! The verdict is cached under the host kernel, QEMU and pCPU model, whichever of the
//! builtin images was booted. That KVM is *not* usable is only believed until the next boot of the
//! host: a setting in the firmware or of the hypervisor below may mend it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use vmconfig::qemu::{Channels, emit};
use vmconfig::{Accel, Arch, BootSource, VmSettings, VmSpec};

use crate::image::{GuestImage, cache_dir};
use crate::qemu::Qemu;
use crate::{Cancel, Cancellation, GuestFailure, Launch, OwnedVm, START_LIMIT};

/// What the host is made of, which decides how long a guest may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostKind {
    /// Hardware, or a VM on hardware.
    Real,
    /// A host whose pCPUs are emulated.
    Emulated,
}

impl HostKind {
    /// How long a booting guest may print nothing.
    fn silence_limit(self) -> Duration {
        match self {
            Self::Real => Duration::from_secs(5),
            Self::Emulated => Duration::from_secs(60),
        }
    }

    /// How long the whole boot may take: a guest that prints, but panics or loops.
    fn boot_limit(self) -> Duration {
        match self {
            Self::Real => Duration::from_secs(60),
            Self::Emulated => Duration::from_secs(600),
        }
    }

    /// Guests that are booted until one gets up. What emulates a host loses one of its
    /// guests now and then (docs/emulation.md), which says nothing of KVM there.
    fn boots(self) -> usize {
        match self {
            Self::Real => 1,
            Self::Emulated => 3,
        }
    }
}

/// Guest memory: little, since it is set up only for this.
const MEMORY_MIB: u64 = 512;

/// Whether guests boot under KVM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum KvmVerdict {
    /// A guest was seen to boot.
    Usable,
    /// None was; emulation is what is left.
    Unusable {
        /// Why, in one line.
        why: String,
    },
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct CachedCheck {
    key: String,
    /// The host's boot in which it was found out.
    boot_id: String,
    #[serde(flatten)]
    verdict: KvmVerdict,
}

/// Whether guests boot under KVM here. The first call takes as long as a boot
/// (on real hardware at most a minute; 5 s if the guest shows no sign of life), later ones read
/// the cache.
///
/// The guest's sockets lie in `folder`; `env` marks the QEMU process as this
/// process' own.
///
/// # Errors
/// Only [`Cancellation`].
pub fn usable_kvm(
    host: HostKind,
    qemu: &Qemu,
    image: &GuestImage,
    folder: &Path,
    env: &[(String, String)],
    cancel: &Cancel,
) -> Result<KvmVerdict, Cancellation> {
    if let Some(verdict) = known_verdict(qemu) {
        return Ok(verdict);
    }
    let mut verdict = KvmVerdict::Usable;
    for _ in 0..host.boots() {
        verdict = match boot(host, qemu, image, folder, env, cancel) {
            Ok(()) => KvmVerdict::Usable,
            Err(GuestFailure::Cancelled(cancelled)) => return Err(cancelled),
            Err(failure) => KvmVerdict::Unusable { why: explain(&failure) },
        };
        if verdict == KvmVerdict::Usable {
            break;
        }
    }
    let cached = CachedCheck { key: key(qemu), boot_id: boot_id(), verdict };
    if let Ok(text) = serde_json::to_string_pretty(&cached) {
        // Without a cache it is found out again next time.
        let _ = fs::create_dir_all(cache_dir()).and_then(|()| fs::write(cache_path(), text + "\n"));
    }
    Ok(cached.verdict)
}

/// What is known without booting anything: an obstacle that is plain to see,
/// or the cached verdict.
#[must_use]
pub fn known_verdict(qemu: &Qemu) -> Option<KvmVerdict> {
    // Cheap to see and quick to mend: never cached.
    if let Some(why) = obstacle(qemu) {
        return Some(KvmVerdict::Unusable { why });
    }
    cached(&cache_path(), &key(qemu), &boot_id())
}

fn cache_path() -> PathBuf {
    cache_dir().join("kvm.json")
}

fn boot_id() -> String {
    read_line("/proc/sys/kernel/random/boot_id")
}

/// Why it is not even worth trying to boot a guest under KVM, if that is plain to see.
#[must_use]
pub fn obstacle(qemu: &Qemu) -> Option<String> {
    obstacle_at(qemu, Path::new("/dev/kvm"))
}

fn obstacle_at(qemu: &Qemu, device: &Path) -> Option<String> {
    if !qemu.accelerators.iter().any(|name| name == "kvm") {
        return Some(format!("{} was built without KVM", qemu.path.display()));
    }
    let shown = device.display();
    match File::options().read(true).write(true).open(device) {
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!(
            "there is no {shown}: load the kvm module, switch virtualisation on in the firmware \
             (or below this VM), or hand the device to this container"
        )),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Some(format!(
            "no permission to use {shown}: add yourself to its group \
             (`sudo usermod -aG kvm $USER`) and log in again"
        )),
        Err(error) => Some(format!("cannot open {shown}: {error}")),
    }
}

fn explain(failure: &GuestFailure) -> String {
    match failure {
        GuestFailure::NeverAnswered { limit } => format!(
            "/dev/kvm is there, but under it a stock guest kernel did not get up (nothing more \
             heard for {} s)",
            limit.as_secs()
        ),
        // QEMU may print a page; the reason is what it says last.
        GuestFailure::Refused { detail }
        | GuestFailure::Died { detail }
        | GuestFailure::Crashed { detail } => {
            let line = detail.lines().rev().find(|line| !line.trim().is_empty());
            format!("QEMU says: {}", line.unwrap_or("nothing").trim())
        }
        other => {
            let text = other.to_string();
            let line = text.lines().next().unwrap_or_default();
            format!("a guest that was tried failed: {line}")
        }
    }
}

fn boot(
    host: HostKind,
    qemu: &Qemu,
    image: &GuestImage,
    folder: &Path,
    env: &[(String, String)],
    cancel: &Cancel,
) -> Result<(), GuestFailure> {
    let refused = |detail: String| GuestFailure::Refused { detail };
    let channels = Channels {
        qmp_socket: folder.join("kvm.qmp"),
        agent_socket: folder.join("kvm.agent"),
        done_socket: folder.join("kvm.done"),
        console_socket: folder.join("kvm.serial"),
        console_log: folder.join("kvm.console"),
    };
    let boot = BootSource::Direct {
        kernel: image.kernel.clone(),
        initrd: image.initrd.clone(),
        root_image: image.root_image.clone(),
        cmdline: image.cmdline.clone(),
    };
    // KVM runs guests of its own architecture alone.
    let here = std::env::consts::ARCH;
    let arch = Arch::from_name(here).ok_or_else(|| refused(format!("no guests for {here}")))?;
    let early = match arch {
        Arch::X86_64 => "earlyprintk=ttyS0",
        Arch::Aarch64 => "earlycon",
    };
    let settings = VmSettings {
        memory_mib: MEMORY_MIB,
        // Signs of life, from the first instructions on.
        kernel_cmdline: vec![early.to_owned(), "loglevel=7".to_owned()],
        ..VmSettings::new("kvm-check", arch, Accel::Kvm, boot)
    };
    let spec = VmSpec::new(settings).map_err(|error| refused(error.to_string()))?;
    let launch = Launch {
        qemu: qemu.path.clone(),
        args: emit(&spec, &channels, &qemu.capabilities).args,
        channels,
        env: env.to_vec(),
        start_limit: START_LIMIT,
    };
    let mut vm = OwnedVm::start(&launch, cancel)?;
    let started = Instant::now();
    let mut heard = (0, started);
    let (silence_limit, boot_limit) = (host.silence_limit(), host.boot_limit());
    let ready = vm.wait_ready_unless(cancel, &mut |printed_bytes| {
        let now = Instant::now();
        if printed_bytes != heard.0 {
            heard = (printed_bytes, now);
        }
        let silent = now - heard.1 >= silence_limit;
        let limit = if silent { silence_limit } else { boot_limit };
        (silent || now - started >= boot_limit).then_some(limit)
    });
    vm.shutdown();
    ready.map(|_| ())
}

/// Everything that a verdict depends on.
fn key(qemu: &Qemu) -> String {
    let uname = rustix::system::uname();
    let kernel = uname.release().to_string_lossy().into_owned();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown", |rest| rest.trim_start_matches([' ', '\t', ':']));
    [kernel.as_str(), &qemu.version_text, model].join(" | ")
}

fn cached(path: &Path, key: &str, boot_id: &str) -> Option<KvmVerdict> {
    let cached: CachedCheck = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
    let holds = match cached.verdict {
        KvmVerdict::Usable => true,
        KvmVerdict::Unusable { .. } => cached.boot_id == boot_id,
    };
    (holds && cached.key == key).then_some(cached.verdict)
}

fn read_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use vmconfig::qemu::Capabilities;

    use super::*;

    fn qemu(accelerators: &[&str]) -> Qemu {
        let version_text = "QEMU emulator version 7.2.22".to_owned();
        Qemu {
            path: "/usr/bin/qemu-system-x86_64".into(),
            capabilities: Capabilities::from_version_text(&version_text).unwrap(),
            version_text,
            accelerators: accelerators.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    #[test]
    fn obstacles_are_one_line_that_says_what_to_do() {
        let check = |accelerators: &[&str], device: &str, expected: &str| {
            let why = obstacle_at(&qemu(accelerators), Path::new(device)).unwrap();
            assert!(why.contains(expected) && !why.contains('\n'), "{why}");
        };
        check(&["tcg"], "/dev/null", "built without KVM");
        check(&["kvm"], "/no/such/device", "load the kvm module");
        check(&["kvm"], "/proc", "cannot open /proc");
        assert_eq!(obstacle_at(&qemu(&["kvm"]), Path::new("/dev/null")), None);
    }

    #[test]
    fn failures_become_one_line() {
        let check = |failure: GuestFailure, expected: &str| {
            let why = explain(&failure);
            assert!(why.contains(expected) && !why.contains('\n'), "{why}");
        };
        let limit = HostKind::Real.silence_limit();
        check(GuestFailure::NeverAnswered { limit }, "for 5 s");
        let detail = "warning\nqemu: failed to initialize kvm: Device busy\n".to_owned();
        check(GuestFailure::Refused { detail }, "Device busy");
        check(GuestFailure::Panicked { detail: "VFS\nmore".into() }, "VFS");
    }

    #[test]
    fn a_bad_verdict_is_believed_for_one_boot_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvm.json");
        let put = |verdict: KvmVerdict| {
            let cached = CachedCheck { key: "k".into(), boot_id: "b".into(), verdict };
            fs::write(&path, serde_json::to_string(&cached).unwrap()).unwrap();
        };
        assert_eq!(cached(&path, "k", "b"), None);
        put(KvmVerdict::Usable);
        assert_eq!(cached(&path, "k", "other boot"), Some(KvmVerdict::Usable));
        assert_eq!(cached(&path, "other kernel", "b"), None);
        let bad = KvmVerdict::Unusable { why: "hangs".into() };
        put(bad.clone());
        assert_eq!(cached(&path, "k", "b"), Some(bad));
        assert_eq!(cached(&path, "k", "other boot"), None);
        fs::write(&path, "{ torn").unwrap();
        assert_eq!(cached(&path, "k", "b"), None);
    }
}
