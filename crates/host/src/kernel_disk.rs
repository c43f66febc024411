//! Disks and SCSI targets that this machine's kernel makes: null_blk, brd, and
//! LIO's targets for vhost-scsi.
//!
//! They are the whole machine's, no namespace holds them. So a holder process,
//! marked like every process of vmlab, makes them, reads from a pipe that ends with
//! vmlab however vmlab ends, and takes them away again, with the modules that it
//! loaded; while a QEMU still uses one, it goes on trying. What a killed holder
//! left is known by its name, which holds its owner: [`leftovers`]. Where nobody has
//! mounted configfs, it is mounted where systemd does, and stays.
//!
//! Needs root.
//!
//! Source: Linux `Documentation/block/null_blk.rst`, `Documentation/target/`,
//! `drivers/block/brd.c`, `drivers/vhost/scsi.c`, `drivers/target/target_core_file.c`.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::holder;
use crate::owner::{Owner, stop_group, wait_exit};
use crate::proc;
use crate::program::find;

/// What the holder prints before what it made.
const MADE: &str = "made ";

/// Where configfs is mounted.
const CONFIGFS: &str = "/sys/kernel/config";

/// Names of what vmlab makes begin with this; in hexadecimal digits follow the owner's
/// process, its start in ticks since boot, the end of its PID namespace's number, and
/// which of its disks it is. A disk's name has at most 31 letters.
const PREFIX: &str = "vmlab-";

/// How long taking away may last: the last request of a guest that has ended.
const UNDO_LIMIT: Duration = Duration::from_secs(30);

/// Error type for [`KernelDisk`].
#[derive(Debug, thiserror::Error)]
pub enum KernelDiskError {
    /// The user may not.
    #[error(
        "A disk of the kernel's ({what}) needs root: run vmlab as root, or write backing = \"file\""
    )]
    NotRoot {
        /// What was asked for.
        what: &'static str,
    },
    /// A module is missing.
    #[error("This kernel has no {module}: {instead}")]
    NoModule {
        /// The module.
        module: &'static str,
        /// What to do.
        instead: &'static str,
    },
    /// The kernel refused.
    #[error("Cannot make {what}: {said}")]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// What was said.
        said: String,
    },
    /// The holder could not be started.
    #[error("Cannot start /bin/sh, which is to make {what}")]
    Start {
        /// What was asked for.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A kind of disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KernelDiskKind {
    what: &'static str,
    modules: &'static [&'static str],
    instead: &'static str,
}

const NULL_BLK: KernelDiskKind = KernelDiskKind {
    what: "null_blk",
    modules: &["null_blk"],
    instead: "install the package with all modules of this kernel, or write backing = \"brd\"",
};
const BRD: KernelDiskKind = KernelDiskKind {
    what: "brd",
    modules: &["brd"],
    instead: "install the package with all modules of this kernel, or write backing = \"file\"",
};
const TARGET: KernelDiskKind = KernelDiskKind {
    what: "a target for vhost-scsi",
    modules: &["target_core_mod", "vhost_scsi"],
    instead: "install the package with all modules of this kernel, or write another bus",
};

/// What all holders do. `$1` is the object's name. Steps of `undo` that were done
/// already, or not yet, do nothing.
const HOLD: &str = r#"config=/sys/kernel/config
mine=
load() {
    [ -d "/sys/module/$1" ] && return
    modprobe "$@"
    mine="$1 $mine"
}
undo() { :; }
finish() {
    set +e
    until undo 2>/dev/null; do sleep 0.1; done
    for module in $mine; do rmmod "$module" 2>/dev/null; done
}
trap finish EXIT
trap : TERM INT HUP
need_configfs() {
    [ -d "$config" ] || load configfs
    grep -qs " $config configfs " /proc/self/mounts || mount -t configfs configfs "$config"
}
"#;

/// Until the pipe ends; a signal to end ends it, too.
const WAIT: &str = "exec 3<&0\ncat <&3 >/dev/null &\nwait $! || :\n";

/// `$2` is the size, MiB.
const MAKE_NULL_BLK: &str = r#"need_configfs
load null_blk nr_devices=0
disk=$config/nullb/$1
undo() {
    [ ! -d "$disk" ] || { echo 0 >"$disk/power"; rmdir "$disk"; }
}
mkdir "$disk"
echo "$2" >"$disk/size"
echo 512 >"$disk/blocksize"
echo 1 >"$disk/power"
device=/dev/$1
[ -b "$device" ] || device=/dev/nullb$(cat "$disk/index")
echo "made $device"
"#;

/// `$2` is the size, KiB. Its parameters can be given to the module alone.
const MAKE_BRD: &str = r#"undo() { [ -z "$mine" ] || [ ! -d /sys/module/brd ] || rmmod brd; }
if [ -d /sys/module/brd ]; then
    echo "brd is loaded already, with disks of a size of its own: run rmmod brd" >&2
    exit 1
fi
load brd rd_nr=1 max_part=0 "rd_size=$2"
echo made /dev/ram0
"#;

/// `$2` is the backstore's kind, `$3` the file or device, `$4` its size in bytes,
/// `$5` the number of the backstore's adapter, `$6` the target's name, `$7` the disk's
/// serial number.
const MAKE_TARGET: &str = r#"undo() {
    rm -f "$group/lun/lun_0/link"
    [ ! -d "$group/lun/lun_0" ] || rmdir "$group/lun/lun_0" || return
    [ ! -d "$group" ] || rmdir "$group" || return
    [ ! -d "$fabric" ] || rmdir "$fabric" || return
    [ ! -d "$store" ] || rmdir "$store" || return
    [ ! -d "$adapter" ] || rmdir "$adapter" || return
    case $mine in *vhost_scsi*) rmdir "$config/target/vhost" || : ;; esac
}
adapter=$config/target/core/$2_$5
store=$adapter/$1
fabric=$config/target/vhost/$6
group=$fabric/tpgt_1
need_configfs
load target_core_mod
case $2 in iblock) load target_core_iblock ;; *) load target_core_file ;; esac
load vhost_scsi
mkdir "$adapter" "$store"
case $2 in
iblock) echo "udev_path=$3" >"$store/control" ;;
*) echo "fd_dev_name=$3,fd_dev_size=$4,fd_buffered_io=1" >"$store/control" ;;
esac
echo 1 >"$store/enable"
echo "$7" >"$store/wwn/vpd_unit_serial"
[ -d "$config/target/vhost" ] || mkdir "$config/target/vhost"
mkdir "$fabric" "$group" "$group/lun/lun_0"
echo "${6%?}0" >"$group/nexus"
ln -s "$store" "$group/lun/lun_0/link"
echo "made $6"
"#;

/// A disk or target of the kernel's; taken away on drop.
#[derive(Debug)]
pub struct KernelDisk {
    holder: Child,
    made: String,
}

impl KernelDisk {
    /// A disk of `mib` MiB that keeps nothing and answers at once (null_blk).
    ///
    /// # Errors
    /// [`KernelDiskError`].
    pub fn null_blk(mib: u64, owner: &Owner) -> Result<Self, KernelDiskError> {
        let name = name(owner, next());
        Self::made(NULL_BLK, MAKE_NULL_BLK, &[name, mib.to_string()], owner)
    }

    /// A disk of `mib` MiB in the host's memory (brd). A machine has one at a time.
    ///
    /// # Errors
    /// [`KernelDiskError`].
    pub fn brd(mib: u64, owner: &Owner) -> Result<Self, KernelDiskError> {
        let kib = (mib << 10).to_string();
        Self::made(BRD, MAKE_BRD, &["brd".to_owned(), kib], owner)
    }

    /// A target for vhost-scsi whose one disk lies in `path`, a file of `bytes` or a
    /// block device, and says `serial`.
    ///
    /// # Errors
    /// [`KernelDiskError`].
    pub fn scsi_target(
        path: &Path,
        bytes: u64,
        serial: &str,
        owner: &Owner,
    ) -> Result<Self, KernelDiskError> {
        let is_block = fs::metadata(path).is_ok_and(|file| file.file_type().is_block_device());
        let number = next();
        let words = [
            name(owner, number),
            if is_block { "iblock" } else { "fileio" }.to_owned(),
            path.display().to_string(),
            bytes.to_string(),
            adapter(owner, number).to_string(),
            target_name(owner, number),
            serial.to_owned(),
        ];
        Self::made(TARGET, MAKE_TARGET, &words, owner)
    }

    fn made(
        kind: KernelDiskKind,
        make: &str,
        words: &[String],
        owner: &Owner,
    ) -> Result<Self, KernelDiskError> {
        check_kind(kind)?;
        let start = |source| KernelDiskError::Start { what: kind.what, source };
        let mut command = Command::new("/bin/sh");
        command
            .arg("-ec")
            .arg([HOLD, make, WAIT].concat())
            .arg("sh")
            .args(words)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        let mut holder = holder::spawn(&mut command, owner).map_err(start)?;
        let line = holder::first_line(&mut holder).map_err(start)?;
        // From here on it is ended on drop.
        let made = line.strip_prefix(MADE);
        let mut disk = Self { holder, made: made.unwrap_or_default().to_owned() };
        if made.is_some() {
            return Ok(disk);
        }
        drop(disk.holder.stdin.take());
        let said = holder::complaint(&mut disk.holder).map_err(start)?;
        Err(KernelDiskError::Refused { what: kind.what, said })
    }

    /// The device, or the target's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.made
    }
}

impl Drop for KernelDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let pid = i32::try_from(self.holder.id()).ok().and_then(Pid::from_raw);
        let ended = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        if ended.is_none_or(|ended| wait_exit(&ended, Instant::now() + UNDO_LIMIT)) {
            let _ = self.holder.wait();
        } else {
            // What it left is found by its name.
            let _ = stop_group(&mut self.holder, Duration::ZERO);
        }
    }
}

/// Whether null_blk can be had here, as far as that is plain to see.
///
/// # Errors
/// [`KernelDiskError`] says what to do.
pub fn check_null_blk() -> Result<(), KernelDiskError> {
    check_kind(NULL_BLK)
}

/// The same of brd.
///
/// # Errors
/// [`KernelDiskError`] says what to do.
pub fn check_brd() -> Result<(), KernelDiskError> {
    check_kind(BRD)
}

/// The same of a target for vhost-scsi.
///
/// # Errors
/// [`KernelDiskError`] says what to do.
pub fn check_scsi_target() -> Result<(), KernelDiskError> {
    check_kind(TARGET)
}

fn check_kind(kind: KernelDiskKind) -> Result<(), KernelDiskError> {
    if !rustix::process::geteuid().is_root() {
        return Err(KernelDiskError::NotRoot { what: kind.what });
    }
    match kind.modules.iter().find(|module| !has_module(module)) {
        Some(module) => Err(KernelDiskError::NoModule { module, instead: kind.instead }),
        None => Ok(()),
    }
}

/// Whether a module is loaded, part of the kernel, or can be loaded.
fn has_module(module: &str) -> bool {
    if Path::new("/sys/module").join(module).is_dir() {
        return true;
    }
    let modprobe = find("modprobe").unwrap_or_else(|| "modprobe".into());
    let mut command = Command::new(modprobe);
    command.args(["-D", module]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// A number that none of this process' disks has.
fn next() -> u32 {
    static MADE_SO_FAR: AtomicU32 = AtomicU32::new(0);
    MADE_SO_FAR.fetch_add(1, Ordering::Relaxed) % 128
}

fn name(owner: &Owner, number: u32) -> String {
    format!("{}{number:x}", names_of(owner))
}

/// How the names of all that is `owner`'s begin.
fn names_of(owner: &Owner) -> String {
    let namespace = owner.pid_namespace.unwrap_or(0) & 0xffff;
    format!("{PREFIX}{:x}-{:x}-{namespace:x}-", owner.pid, owner.starttime_ticks)
}

/// What a holder that was killed left in the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// What is removed, in this order.
    paths: Vec<PathBuf>,
}

impl Leftover {
    /// Removes it.
    ///
    /// # Errors
    /// The kernel's error, with the path: something still uses it.
    pub fn remove(&self) -> io::Result<()> {
        for path in &self.paths {
            let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
            let removed = if is_link { fs::remove_file(path) } else { fs::remove_dir(path) };
            removed.map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })?;
        }
        Ok(())
    }
}

/// What killed holders of dead runs left, as far as configfs is mounted; runs of other
/// PID namespaces are not judged.
#[must_use]
pub fn leftovers() -> Vec<Leftover> {
    let here = Owner::current("").ok().and_then(|owner| owner.pid_namespace).unwrap_or(0) & 0xffff;
    let is_left = |name: &str| {
        let mut numbers =
            name.strip_prefix(PREFIX)?.split('-').map(|hex| u64::from_str_radix(hex, 16));
        let (pid, start, namespace) =
            (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
        let lives = proc::stat(u32::try_from(pid).ok()?)
            .is_some_and(|stat| stat.starttime_ticks == start && !stat.is_dead());
        Some(namespace == here && !lives)
    };
    left_below(Path::new(CONFIGFS), &|name| is_left(name) == Some(true))
}

/// The objects below configfs whose names are `wanted`.
fn left_below(configfs: &Path, wanted: &dyn Fn(&str) -> bool) -> Vec<Leftover> {
    let names = |folder: &Path| -> Vec<(String, PathBuf)> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries
            .filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.path())))
            .collect();
        all.sort();
        all
    };
    let mut left = Vec::new();
    for (name, path) in names(&configfs.join("nullb")) {
        if wanted(&name) {
            left.push(Leftover { name, paths: vec![path] });
        }
    }
    let mut groups = Vec::new();
    for (_, fabric) in names(&configfs.join("target/vhost")) {
        let group = fabric.join("tpgt_1");
        let lun = group.join("lun/lun_0");
        groups.push((lun.join("link"), lun, group, fabric));
    }
    for (_, adapter) in names(&configfs.join("target/core")) {
        for (name, store) in names(&adapter) {
            if !wanted(&name) {
                continue;
            }
            let leads_here = |link: &Path| {
                fs::read_link(link).is_ok_and(|to| to.file_name() == store.file_name())
            };
            let mut paths = Vec::new();
            if let Some((link, lun, group, fabric)) =
                groups.iter().find(|(link, ..)| leads_here(link))
            {
                paths.extend([link, lun, group, fabric].map(Clone::clone));
            }
            paths.extend([store, adapter.clone()]);
            left.push(Leftover { name, paths });
        }
    }
    left
}

/// A backstore adapter's number that no other run has.
fn adapter(owner: &Owner, number: u32) -> u32 {
    owner.pid.wrapping_mul(128).wrapping_add(number % 128)
}

/// A target's name: NAA 5 of LIO's vendor and nine digits, an odd number. Its
/// initiator's ends in 0.
fn target_name(owner: &Owner, number: u32) -> String {
    format!("naa.5001405{:07x}{:02x}", owner.pid & 0x0fff_ffff, number % 128 * 2 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner::current("kernel-disk-test").expect("this process")
    }

    #[test]
    fn names_hold_their_owner_and_fit() {
        let largest = Owner {
            pid: 1 << 22,
            starttime_ticks: u64::from(u32::MAX),
            pid_namespace: Some(u64::from(u32::MAX)),
            ..owner()
        };
        assert!(name(&largest, 127).len() <= 31, "{}", name(&largest, 127));
        for number in [0, 1, 127] {
            let target = target_name(&largest, number);
            assert_eq!(target.len(), "naa.".len() + 16, "{target}");
            assert!(!target.ends_with('0'), "{target}");
        }
    }

    #[test]
    fn a_step_that_fails_is_told_and_ends_the_holder() {
        let kind = KernelDiskKind { what: "a test", modules: &[], instead: "" };
        let owner = owner();
        for (make, wanted) in [
            // Before and after there is something to undo.
            ("echo no such thing >&2; exit 3\n", "no such thing"),
            ("undo() { echo undone >&2; }\necho it broke >&2; false\n", "it broke"),
        ] {
            match KernelDisk::made(kind, make, &[], &owner) {
                Err(KernelDiskError::Refused { said, .. }) => assert_eq!(said, wanted),
                Err(KernelDiskError::NotRoot { .. }) => suite::skip("a holder needs root"),
                other => panic!("{make}: {other:?}"),
            }
        }
    }

    #[test]
    fn what_was_made_is_undone_when_the_pipe_ends() {
        let folder = tempfile::tempdir().expect("temp folder");
        let made = folder.path().join("made");
        let kind = KernelDiskKind { what: "a test", modules: &[], instead: "" };
        // It can't be undone at once, as a disk that is in use.
        let make =
            "undo() { [ -e \"$1.tried\" ] || { : >\"$1.tried\"; return 1; }; rm -f \"$path\"; }\n\
                    path=$1; : >\"$1\"; echo made \"$1\"\n"
                .replace("\"$1.tried\"", "\"$path.tried\"");
        let words = [made.display().to_string()];
        match KernelDisk::made(kind, &make, &words, &owner()) {
            Ok(disk) => {
                assert_eq!(Path::new(disk.name()), made);
                assert!(made.exists());
                drop(disk);
                assert!(!made.exists());
            }
            Err(KernelDiskError::NotRoot { .. }) => suite::skip("a holder needs root"),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn what_is_left_is_removed_from_the_link_to_the_adapter() {
        let folder = tempfile::tempdir().expect("temp folder");
        let name = name(&owner(), 3);
        let store = folder.path().join("target/core/fileio_7").join(&name);
        let lun = folder.path().join("target/vhost/naa.5001405000000101/tpgt_1/lun/lun_0");
        let null = folder.path().join("nullb").join(&name);
        let other = folder.path().join("nullb/somebodys");
        for made in [&store, &lun, &null, &other] {
            fs::create_dir_all(made).expect("folder");
        }
        std::os::unix::fs::symlink(&store, lun.join("link")).expect("link");
        let left = left_below(folder.path(), &|found| found == name);
        assert_eq!(left.len(), 2);
        assert_eq!(left[0].paths, [null]);
        assert_eq!(left[1].paths[0], lun.join("link"));
        assert_eq!(left[1].paths.last(), store.parent().map(Path::to_owned).as_ref());
        // Nothing lives, nothing is in the way: but what configfs has by itself is
        // no folder to be removed, as `lun` is here.
        left[0].remove().expect("removed");
        assert!(other.is_dir());
        // This process lives.
        assert!(!leftovers().iter().any(|one| one.name == name));
    }
}
