//! A host whose every instruction is the same in every run.
//!
//! QEMU counts instructions and makes them the only clock (`-icount`): what the
//! host does depends on its images, programs and orders alone, and not on the
//! machine that emulates it. For that it has one pCPU, and nothing that answers
//! when the machine outside likes: no disk, no network, no input. Images are
//! memory (NVDIMMs), orders lie in the initial RAM disk, and what it tells leaves
//! through a serial port into a file.
//!
//! Source: QEMU `docs/devel/replay.rst` and `docs/system/devices/nvdimm`,
//! option `-icount` of qemu(1).

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use guest::image::{Archive, GuestImage};
use guest::qemu::Qemu;
use host::owner::{Owner, OwnerError, RuntimeDir, RuntimeDirError, runtime_dir};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use topology::{Host, HostVirtualisation};
use vmconfig::qemu::escape_path;

use crate::args::{CONSOLE, INITRD};
use crate::disks::{self, DiskError};
use crate::inside::{DECLARED, Programs};
use crate::store::write_private;

/// The file with what the host tells.
const TOLD: &str = "told";
/// The file with QEMU's own words.
const QEMU_SAID: &str = "qemu";

/// Memory of the host, beside which its images need none.
const MEMORY_MIB: u64 = 3072;

/// Most that the host may write to a serial port, the file of which QEMU writes itself: one
/// that is kept waiting would wait in a time that is not the guest's. The kernel ends a QEMU
/// that goes beyond it.
const MAX_SERIAL_BYTES: u64 = 256 << 20;

/// How much of what they said is looked at, bytes.
const TAIL_BYTES: usize = 64 << 10;

/// What is said of a QEMU that wrote more.
const TOO_MUCH: &str = "vmlab: QEMU was ended: its host wrote more than 256 MiB to a serial port";

/// Lines of the console that an error shows.
const TAIL_LINES: usize = 15;

/// What a root in memory needs of the image's modules, in the order of loading;
/// all else the image's initial RAM disk has.
const MODULES: [&str; 4] = [
    "drivers/nvdimm/libnvdimm.ko",
    "drivers/nvdimm/nd_btt.ko",
    "drivers/nvdimm/nd_pmem.ko",
    "drivers/acpi/nfit/nfit.ko",
];

/// What such a host is made of.
#[derive(Debug, Clone, Copy)]
pub struct RepeatableHost<'a> {
    /// The QEMU that emulates.
    pub qemu: &'a Qemu,
    /// The host image, x86-64.
    pub image: &'a GuestImage,
    /// Guest images for VMs inside.
    pub guests: &'a [GuestImage],
    /// What is put into it.
    pub programs: Programs<'a>,
    /// What `vmlab far-side` reads, in full.
    pub asked: &'a [u8],
    /// Files beside the study: their paths below its folder, and where they are.
    pub beside: &'a [(PathBuf, PathBuf)],
}

/// Error type for [`RepeatableHost::start`].
#[derive(Debug, thiserror::Error)]
pub enum RepeatableError {
    /// A file of its own can't be read or written.
    #[error("Cannot make {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A disk can't be made or looked into.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// There is no place for its files.
    #[error(transparent)]
    RuntimeDir(#[from] RuntimeDirError),
    /// This process can't be named.
    #[error(transparent)]
    Owner(#[from] OwnerError),
}

impl RepeatableHost<'_> {
    /// The folder in which the far side finds the study's files.
    pub const STUDY_FOLDER: &'static str = "/study";

    /// Starts QEMU; it ends by itself when the far side has ended.
    ///
    /// # Errors
    /// [`RepeatableError`] names the file.
    pub fn start(&self) -> Result<RunningRepeatableHost, RepeatableError> {
        let owner = Owner::current("repeatable")?;
        let folder = runtime_dir(&owner)?;
        let at = |path: PathBuf| move |source| RepeatableError::File { path, source };
        let mut images = vec![disks::in_memory(&self.image.root_image)?];
        for guest in self.guests {
            images.push(disks::in_memory(&disks::guests(guest)?)?);
        }
        let initrd = folder.path().join(INITRD);
        let bytes = self.initrd()?;
        write_private(&initrd, &bytes).map_err(at(initrd))?;
        let images: Vec<(PathBuf, u64)> = images
            .into_iter()
            .map(|path| Ok((path.clone(), fs::metadata(&path).map_err(at(path))?.len())))
            .collect::<Result<_, RepeatableError>>()?;
        let said = folder.path().join(QEMU_SAID);
        let out = File::create(&said).map_err(at(said.clone()))?;
        let err = out.try_clone().map_err(at(said))?;
        let mut command = Command::new(&self.qemu.path);
        command
            .args(args(&self.image.kernel, &self.image.cmdline, &images))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0);
        owner.apply(&mut command);
        let child = command.spawn().map_err(at(self.qemu.path.clone()))?;
        let running = RunningRepeatableHost { child, ended: None, folder, told: None };
        bound_files(&running.child, MAX_SERIAL_BYTES).map_err(at(self.qemu.path.clone()))?;
        Ok(running)
    }

    /// The image's archive, and behind it what is this start's own.
    fn initrd(&self) -> Result<Vec<u8>, RepeatableError> {
        let read = |path: &Path| {
            fs::read(path).map_err(|source| RepeatableError::File { path: path.to_owned(), source })
        };
        let mut archive = Archive::default();
        for folder in [
            "lib",
            "seed",
            "seed/usr",
            "seed/usr/local",
            "seed/usr/local/bin",
            "seed/usr/local/sbin",
        ] {
            archive.folder(folder);
        }
        let root = &self.image.root_image;
        for module in MODULES {
            let name = module.rsplit('/').next().unwrap_or(module);
            archive.file(&format!("lib/{name}"), 0o644, &disks::module(root, module)?);
        }
        archive.file("init", 0o755, include_bytes!("repeatable-init.sh"));
        let second = include_bytes!("repeatable-host.sh");
        archive.file("seed/usr/local/sbin/repeatable-host", 0o755, second);
        archive.file("seed/usr/local/bin/vmlab", 0o755, &read(self.programs.vmlab)?);
        let probe = "vmlab-probe-x86_64";
        archive.file(&format!("seed/usr/local/bin/{probe}"), 0o755, &read(self.programs.probe)?);
        archive.link("seed/usr/local/bin/vmlab-probe", probe);
        archive.folder("seed/etc");
        archive.folder("seed/etc/vmlab");
        archive.file(&format!("seed{DECLARED}"), 0o644, self.declared().to_json().as_bytes());
        archive.folder("seed/study");
        archive.file("seed/study/asked", 0o644, self.asked);
        for (path, here) in self.beside {
            let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
            above.retain(|folder| !folder.as_os_str().is_empty());
            for folder in above.iter().rev() {
                archive.folder(&format!("seed/study/{}", folder.display()));
            }
            archive.file(&format!("seed/study/{}", path.display()), 0o644, &read(here)?);
        }
        let mut bytes = read(&self.image.initrd)?;
        bytes.extend_from_slice(&archive.finish());
        Ok(bytes)
    }

    /// What vmlab inside can't see: what emulates it, whose clock counts instructions.
    fn declared(&self) -> Host {
        Host {
            virtualised: HostVirtualisation {
                is_vm: Some(true),
                emulator: Some(format!("{} (TCG), instruction-counted", self.qemu.version_text)),
                counts_instructions: true,
                ..HostVirtualisation::default()
            },
            ..Host::default()
        }
    }
}

/// A host that runs. Killed when dropped.
#[derive(Debug)]
pub struct RunningRepeatableHost {
    child: Child,
    ended: Option<ExitStatus>,
    folder: RuntimeDir,
    told: Option<File>,
}

impl RunningRepeatableHost {
    /// Reads what the host told since the last call: 0 where there is nothing new.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let told = match &mut self.told {
            Some(told) => told,
            None => match File::open(self.folder.path().join(TOLD)) {
                Ok(file) => self.told.insert(file),
                // QEMU makes it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
                Err(error) => return Err(error),
            },
        };
        told.read(buffer)
    }

    /// Whether QEMU has ended; what it told before can still be read.
    ///
    /// # Errors
    /// It can't be waited for.
    pub fn has_ended(&mut self) -> io::Result<bool> {
        self.ended = self.child.try_wait()?;
        Ok(self.ended.is_some())
    }

    /// The last that console and QEMU said.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = |name: &str| {
            let bytes = guest::read_end(&self.folder.path().join(name), TAIL_BYTES);
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (console, qemu) = (text(CONSOLE), text(QEMU_SAID));
        // Each property of a model that the emulator lacks is a warning.
        let qemu = qemu.lines().filter(|line| !line.contains("warning:"));
        let wrote_too_much = self.ended.is_some_and(exceeded_files).then_some(TOO_MUCH);
        let lines: Vec<&str> = console.lines().chain(qemu).chain(wrote_too_much).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }
}

impl Drop for RunningRepeatableHost {
    fn drop(&mut self) {
        // Both only fail for a process that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets no file that `child` writes grow beyond `most_bytes`; the kernel ends it else, and
/// writes no core.
fn bound_files(child: &Child, most_bytes: u64) -> io::Result<()> {
    for (resource, most) in [(Resource::Core, 0), (Resource::Fsize, most_bytes)] {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        rustix::process::prlimit(Some(Pid::from_child(child)), resource, limit)?;
    }
    Ok(())
}

/// Whether that is how it ended.
fn exceeded_files(ended: ExitStatus) -> bool {
    ended.signal() == Some(Signal::XFSZ.as_raw())
}

/// QEMU's arguments for a host with these images, the first of which is its root,
/// by file and size in bytes.
fn args(kernel: &Path, cmdline: &[String], images: &[(PathBuf, u64)]) -> Vec<String> {
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
    add(&["-name", "vmlab-repeatable", "-nodefaults", "-no-user-config"]);
    add(&["-display", "none", "-no-reboot"]);
    // A named model: it is the same whatever emulates it. For -cx16 see `args`.
    add(&["-machine", "q35,nvdimm=on", "-cpu", "EPYC-Rome,+svm,-cx16", "-smp", "1"]);
    add(&["-accel", "tcg,thread=single"]);
    // One instruction is 1 ns, and where the host sleeps its clock leaps.
    add(&["-icount", "shift=0,sleep=off", "-rtc", "base=2024-01-01T00:00:00,clock=vm"]);
    add(&["-seed", "1"]);
    let bytes: u64 = images.iter().map(|(_, bytes)| bytes).sum();
    let max_mib = MEMORY_MIB + (bytes >> 20) + 1024 * (images.len() as u64 + 1);
    add(&["-m", &format!("{MEMORY_MIB}M,slots={},maxmem={max_mib}M", images.len())]);
    let append = [cmdline.join(" ").as_str(), "tsc=reliable", "lpj=10000000"].join(" ");
    add(&["-kernel", &kernel.to_string_lossy(), "-initrd", INITRD, "-append", &append]);
    for (id, (path, bytes)) in images.iter().enumerate() {
        let file = format!("memory-backend-file,id=image{id},mem-path={}", escape_path(path));
        add(&["-object", &format!("{file},size={bytes},share=off,readonly=on")]);
        add(&["-device", &format!("nvdimm,memdev=image{id},unarmed=on")]);
    }
    for (id, name) in [("console", CONSOLE), ("told", TOLD)] {
        add(&["-chardev", &format!("file,id={id},path={name}")]);
        add(&["-serial", &format!("chardev:{id}")]);
    }
    args
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_writes_without_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(CONSOLE);
        let mut command = Command::new("cat");
        command.arg("/dev/zero").stdout(File::create(&file).unwrap());
        // `cat` may have written more before it is bound; then it ends at its next write.
        let mut child = command.spawn().unwrap();
        bound_files(&child, MAX_SERIAL_BYTES).unwrap();
        let ended = child.wait().unwrap();
        assert!(exceeded_files(ended), "{ended}");
        let other = Command::new("false").status().unwrap();
        assert!(!exceeded_files(other));
        let told = format!("{} MiB", MAX_SERIAL_BYTES >> 20);
        assert!(TOO_MUCH.contains(&told));
    }

    #[test]
    fn nothing_of_the_host_depends_on_the_machine_outside() {
        let image = |name: &str| (PathBuf::from(name), 2 << 20);
        let args = args(
            Path::new("/images/vmlinuz"),
            &["console=ttyS0".to_owned()],
            &[image("/images/root,1"), image("/images/guests")],
        );
        let value = |name: &str| {
            let at = args.iter().position(|arg| arg == name).unwrap();
            args[at + 1].as_str()
        };
        assert_eq!(value("-icount"), "shift=0,sleep=off");
        assert_eq!(value("-rtc"), "base=2024-01-01T00:00:00,clock=vm");
        assert_eq!((value("-seed"), value("-smp")), ("1", "1"));
        assert!(args.contains(
            &"memory-backend-file,id=image0,mem-path=/images/root,,1,size=2097152,share=off,readonly=on"
                .to_owned()
        ));
        let all = args.join(" ");
        for outside in ["virtio", "netdev", "blockdev", "-drive", "rng", "max,", "-cpu host", "kvm"]
        {
            assert!(!all.contains(outside), "{outside} in {all}");
        }
    }
}
