//! What an image is made of. Everything that decides an image's content stands
//! in its [`Recipe`], and the recipe's hash is the image's key in the cache.

mod host;
mod kernel;

use std::path::{Path, PathBuf};

use vmconfig::Arch;

pub use kernel::{KernelFile, kernel_path};

/// Changed whenever the *builder* makes something else of the same recipe.
const BUILDER: &str = "5";

/// The name of the image that a study gets without asking.
pub const BUILTIN: &str = "debian-12";

/// The images that vmlab brings, with what they are for.
pub const BUILTINS: [(&str, &str); 3] = [
    (BUILTIN, "the tools of nearly all workloads; small, boots fast"),
    (FULL, "all of that, with compiler, kernel source and PostgreSQL"),
    (NEWER, "those tools, of Debian 13 with Linux 6.12, whose idle vCPUs can poll (haltpoll)"),
];

const FULL: &str = "debian-12-full";
const NEWER: &str = "debian-13";

/// The images of emulated hosts: name, Debian's suite, what is in it.
pub const HOSTS: [(&str, &str, &str); 4] = [
    ("host-debian-12", "bookworm", "an emulated KVM host: Linux 6.1, QEMU 7.2, libvirt 9.0"),
    (HOST_FULL, "bookworm", "host-debian-12 with compiler, kernel source and PostgreSQL"),
    ("host-debian-13", "trixie", "an emulated KVM host: Linux 6.12, QEMU 10.0, libvirt 11.3"),
    (NODE, "bookworm", "host-debian-12 as a node of a cluster: containerd 1.6, runc 1.1"),
];

/// The image of an emulated host for studies that run the large workloads on the host, too.
const HOST_FULL: &str = "host-debian-12-full";

/// The image of an emulated host that is a node of a Kubernetes cluster: what the
/// distribution has for that, but no kubelet.
pub const NODE: &str = "node-debian-12";

/// How an image is built: Debian's packages, and the few files of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Name, as in `builtin:debian-12` without the `builtin:`.
    pub name: String,
    /// Processor architecture of the guest.
    pub arch: Arch,
    /// Debian suite that the packages come from.
    pub suite: String,
    /// Packages, by name; their dependencies follow.
    pub packages: Vec<String>,
    /// Paths below the root that are left out, `*` standing for any name.
    pub left_out: Vec<String>,
    /// Folders of kernel modules that stay, below `lib/modules/<release>/kernel`.
    pub module_folders: Vec<String>,
    /// Modules that the first stage loads, in this order, each behind those that it
    /// needs; what the kernel has built in is left out.
    pub initrd_modules: Vec<String>,
    /// The first stage's script; `@MODULES@` stands for those of the modules that
    /// the kernel does not have built in.
    pub initrd_init: String,
    /// Files of the root that also lie in the initial RAM disk, since every
    /// boot reads them.
    pub seed: Vec<String>,
    /// busybox's applets that get a link in `/bin`, where no package has a
    /// program of that name.
    pub applets: Vec<String>,
    /// Files that we add.
    pub files: Vec<RecipeFile>,
    /// Folders that we add: mount points.
    pub folders: Vec<String>,
    /// Archives of the root that are unpacked where they lie.
    pub archives: Vec<RecipeArchive>,
    /// Parameters on the kernel's command line.
    pub cmdline: Vec<String>,
    /// The kernel's package, where it is no package of the suite.
    pub kernel: Option<KernelFile>,
}

/// A file that a recipe adds to the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeFile {
    /// Path below the root, without a leading slash.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Content.
    pub text: String,
}

/// An archive that a package brings and the image holds unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeArchive {
    /// Path below the root of the tar file, which is removed.
    pub path: String,
    /// Patterns of tar that stay out.
    pub left_out: Vec<String>,
}

/// Error type for [`Recipe::builtin`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// No such image.
    #[error("No builtin image is named {name:?}; there are {}", names())]
    UnknownName {
        /// The name asked for.
        name: String,
    },
    /// What stands behind the `+` is no kernel.
    #[error(
        "{kernel:?} is no kernel: behind the + of an image's name stands a package of Debian's, as in builtin:debian-12+linux-image or builtin:debian-12+linux-image-NAME=VERSION or builtin:debian-12+linux-image-NAME/bookworm-backports, or the path of a package's file, builtin:debian-12+FILE.deb"
    )]
    NotAKernel {
        /// What was written.
        kernel: String,
    },
    /// A kernel of another architecture.
    #[error(
        "{kernel:?} is of {other}, the image of {arch}: without the architecture at its end it is the image's own"
    )]
    KernelOfArch {
        /// What was written.
        kernel: String,
        /// Its architecture.
        other: Arch,
        /// The image's.
        arch: Arch,
    },
    /// A kernel of another release's backports.
    #[error(
        "{kernel:?} is of another release than the image: write builtin:IMAGE+{package}/{backports}"
    )]
    KernelOfSuite {
        /// What was written.
        kernel: String,
        /// Its package.
        package: String,
        /// The suite that the image can take it from.
        backports: String,
    },
    /// The file of a kernel's package can't be used.
    #[error("Cannot take the kernel {path:?}: {why}; give the path of a linux-image package")]
    KernelFile {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// No such image of an emulated host.
    #[error(
        "No image of an emulated host is named {name:?}; there are {}",
        HOSTS.map(|(name, ..)| name).join(", ")
    )]
    UnknownHost {
        /// The name asked for.
        name: String,
    },
}

fn names() -> String {
    BUILTINS.map(|(name, _)| format!("builtin:{name}")).join(", ")
}

impl Recipe {
    /// The recipe of a builtin image; `name` without `builtin:`. The file of a
    /// kernel is looked up from the current folder.
    ///
    /// # Errors
    /// As [`Recipe::builtin_from`].
    pub fn builtin(name: &str, arch: Arch) -> Result<Self, RecipeError> {
        Self::builtin_from(name, Path::new(""), arch)
    }

    /// The recipe of a builtin image; `name` without `builtin:`, with another
    /// kernel behind a `+`, whose file is looked up from `folder`.
    ///
    /// # Errors
    /// [`RecipeError::UnknownName`], if there is none of that name;
    /// [`RecipeError::NotAKernel`], [`RecipeError::KernelOfArch`],
    /// [`RecipeError::KernelOfSuite`] and [`RecipeError::KernelFile`].
    pub fn builtin_from(name: &str, folder: &Path, arch: Arch) -> Result<Self, RecipeError> {
        let (name, kernel) = kernel::split(name);
        let recipe = match name {
            BUILTIN => debian_12(arch),
            FULL => debian_12_full(arch),
            NEWER => debian_13(arch),
            _ => return Err(RecipeError::UnknownName { name: name.to_owned() }),
        };
        match kernel {
            Some(kernel) => recipe.with_kernel(kernel, folder),
            None => Ok(recipe),
        }
    }

    /// Its name with its architecture, where that is not x86-64: of arm64
    /// `debian-12-aarch64`, `debian-12-aarch64+KERNEL`.
    #[must_use]
    pub fn shown_name(&self) -> String {
        match self.arch {
            Arch::X86_64 => self.name.clone(),
            Arch::Aarch64 => match kernel::split(&self.name) {
                (name, Some(kernel)) => format!("{name}-{}+{kernel}", self.arch),
                (name, None) => format!("{name}-{}", self.arch),
            },
        }
    }

    /// The tag of a container image of it: the name and the first digits of the
    /// hash, in the characters that tags have.
    ///
    /// Source: OCI Distribution Specification, "Pulling manifests".
    #[must_use]
    pub fn tag(&self) -> String {
        let of_tags = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
        let name = self.shown_name().replace(|c| !of_tags(c), "-");
        // A tag has at most 128 characters, all of them ASCII.
        format!("{}-{}", &name[..name.len().min(115)], &self.hash()[..12])
    }

    /// The recipe whose [`Recipe::shown_name`] is `shown`.
    pub(super) fn by_shown_name(shown: &str) -> Result<Self, RecipeError> {
        let (name, kernel) = kernel::split(shown);
        let known = Self::all().into_iter().find(|recipe| recipe.shown_name() == name);
        let recipe = known.ok_or_else(|| RecipeError::UnknownName { name: name.to_owned() })?;
        match kernel {
            Some(kernel) => recipe.with_kernel(kernel, Path::new("")),
            None => Ok(recipe),
        }
    }

    /// The recipe of an emulated host's image, by a name of [`HOSTS`], with
    /// another kernel behind a `+`.
    ///
    /// # Errors
    /// [`RecipeError::UnknownHost`], if there is none of that name;
    /// [`RecipeError::NotAKernel`] and [`RecipeError::KernelFile`].
    pub fn host(name: &str, arch: Arch) -> Result<Self, RecipeError> {
        let (name, kernel) = kernel::split(name);
        let recipe = HOSTS
            .iter()
            .find(|(host, ..)| *host == name)
            .map(|(name, suite, _)| host::debian(name, suite, arch))
            .ok_or_else(|| RecipeError::UnknownHost { name: name.to_owned() })?;
        match kernel {
            Some(kernel) => recipe.with_kernel(kernel, Path::new("")),
            None => Ok(recipe),
        }
    }

    /// The recipes of all builtin images, those of emulated hosts included.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let of = |arch| {
            let hosts = HOSTS.iter().map(move |(name, suite, _)| host::debian(name, suite, arch));
            [debian_12(arch), debian_12_full(arch), debian_13(arch)].into_iter().chain(hosts)
        };
        [Arch::X86_64, Arch::Aarch64].into_iter().flat_map(of).collect()
    }

    /// Hash over everything that decides the image's content, 64 hexadecimal
    /// digits. The packages' versions are the mirror's affair: they stand in
    /// the image's manifest.
    #[must_use]
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        // Every text is preceded by its length, so that no two recipes join to
        // the same bytes.
        let mut text = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        text(BUILDER);
        text(&self.name);
        text(debian_arch(self.arch));
        text(&self.suite);
        let mut list = |items: &[String]| {
            text(&items.len().to_string());
            items.iter().for_each(|item| text(item));
        };
        list(&self.packages);
        list(&self.left_out);
        list(&self.module_folders);
        list(&self.initrd_modules);
        list(std::slice::from_ref(&self.initrd_init));
        list(&self.seed);
        list(&self.applets);
        list(&self.folders);
        list(&self.cmdline);
        for archive in &self.archives {
            list(std::slice::from_ref(&archive.path));
            list(&archive.left_out);
        }
        if let Some(kernel) = &self.kernel {
            list(std::slice::from_ref(&kernel.hash));
        }
        for file in &self.files {
            list(&[file.path.clone(), format!("{:o}", file.mode), file.text.clone()]);
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// Debian's name of an architecture.
pub(crate) fn debian_arch(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "amd64",
        Arch::Aarch64 => "arm64",
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn file(path: &str, mode: u32, text: &str) -> RecipeFile {
    RecipeFile { path: path.to_owned(), mode, text: text.to_owned() }
}

/// Debian's name of the folder with an architecture's libraries.
fn libraries(arch: Arch) -> &'static str {
    match arch {
        Arch::X86_64 => "x86_64-linux-gnu",
        Arch::Aarch64 => "aarch64-linux-gnu",
    }
}

/// What only people, package managers and graphical programs look for.
const NOT_FOR_GUESTS: &str = "boot/* etc/apt etc/resolv.conf etc/hostname etc/fstab \
    usr/lib/python3 usr/lib/python3.11 usr/lib/udev usr/lib/systemd lib/systemd lib/udev \
    usr/share/X11 usr/share/bash-completion usr/share/bug usr/share/doc usr/share/gcc \
    usr/share/info usr/share/initramfs-tools usr/share/lintian usr/share/locale usr/share/man \
    usr/share/python3 usr/share/zsh usr/lib/@LIBRARIES@/dri usr/lib/@LIBRARIES@/gconv \
    usr/bin/dpkg* usr/bin/python3* usr/bin/deb* usr/sbin/policy-rc.d var/cache var/lib/apt \
    var/lib/dpkg var/log";

/// What only compiling needs.
const NOT_WITHOUT_COMPILER: &str = "usr/include usr/share/perl usr/share/perl5 \
    usr/lib/@LIBRARIES@/perl usr/lib/@LIBRARIES@/perl-base usr/bin/perl*";

fn debian_12(arch: Arch) -> Recipe {
    // virtio_console comes last: the agent's port is the first thing that the
    // second stage looks for.
    let initrd_modules = words(
        "virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci \
         virtio_blk ext4 overlay virtio_console",
    );
    let debian = debian_arch(arch);
    let libraries = libraries(arch);
    let mut seed = words(
        "bin/busybox sbin/init etc/fstab usr/sbin/qemu-ga lib/@LIBRARIES@/libc.so.6 \
         lib/@LIBRARIES@/libm.so.6 usr/lib/@LIBRARIES@/libglib-2.0.so.0 \
         usr/lib/@LIBRARIES@/libgmodule-2.0.so.0 usr/lib/@LIBRARIES@/libnuma.so.1 \
         usr/lib/@LIBRARIES@/libpcre2-8.so.0 usr/lib/@LIBRARIES@/libudev.so.1 \
         usr/lib/@LIBRARIES@/liburing.so.2",
    );
    seed.extend(match arch {
        Arch::X86_64 => words("etc/ld.so.cache lib/@LIBRARIES@/ld-linux-x86-64.so.2"),
        Arch::Aarch64 => words("lib/ld-linux-aarch64.so.1 lib/@LIBRARIES@/ld-linux-aarch64.so.1"),
    });
    let console = match arch {
        Arch::X86_64 => "ttyS0 no_timer_check",
        Arch::Aarch64 => "ttyAMA0",
    };
    let in_folders = |list: Vec<String>| -> Vec<String> {
        list.into_iter().map(|path| path.replace("@LIBRARIES@", libraries)).collect()
    };
    Recipe {
        name: BUILTIN.to_owned(),
        arch,
        suite: "bookworm".to_owned(),
        packages: words(&format!(
            "linux-image-cloud-{debian} qemu-guest-agent rt-tests stress-ng sysbench linux-perf \
             iperf3 sockperf fio dbench nginx-light apache2-utils redis-server redis-tools \
             busybox-static"
        )),
        left_out: in_folders([words(NOT_FOR_GUESTS), words(NOT_WITHOUT_COMPILER)].concat()),
        module_folders: words(
            "arch block crypto lib mm virt \
             drivers/acpi drivers/block drivers/char drivers/cpufreq drivers/cpuidle \
             drivers/misc/pvpanic drivers/firmware drivers/net drivers/nvdimm drivers/powercap \
             drivers/scsi drivers/ata drivers/uio drivers/vfio drivers/vhost drivers/virtio \
             drivers/dax fs/btrfs fs/configfs fs/erofs fs/ext4 fs/fuse fs/jbd2 fs/mbcache.ko \
             fs/mbcache.ko.xz fs/overlayfs fs/squashfs fs/xfs \
             net/802 net/8021q net/bridge net/core net/ipv4 net/ipv6 net/llc net/netfilter \
             net/packet net/sched net/tls net/vmw_vsock",
        ),
        initrd_init: include_str!("files/initrd-init").to_owned(),
        initrd_modules,
        seed: in_folders(seed),
        applets: words(
            "ascii ash awk bc brctl chroot clear cmp crc32 dc devmem diff dmesg egrep fallocate \
             fgrep find free fsfreeze fstrim getopt grep gunzip gzip halt hexdump hostname \
             ifconfig ionice ip kill killall less losetup lsmod mkswap modprobe insmod rmmod more \
             mount mountpoint nc netstat nsenter partprobe patch pidof ping pivot_root poweroff ps \
             reboot renice rev route run-parts sed setpriv setsid sh ss strings su swapoff swapon \
             switch_root sysctl taskset time top traceroute tunctl udhcpc umount unshare uptime \
             usleep vi watch wget which xargs xxd xz xzcat zcat",
        ),
        files: vec![
            file("sbin/init", 0o755, include_str!("files/init")),
            file("etc/fstab", 0o644, include_str!("files/fstab")),
            file("etc/passwd", 0o644, include_str!("files/passwd")),
            file("etc/group", 0o644, include_str!("files/group")),
            file("etc/hosts", 0o644, "127.0.0.1 localhost vmlab\n::1 localhost\n"),
            file("etc/hostname", 0o644, "vmlab\n"),
            file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
        ],
        folders: words("dev proc sys run tmp root home mnt scratch srv var/cache var/lib var/log"),
        archives: Vec::new(),
        // Every parameter's reason and effect stands in the documentation of
        // the module `image`.
        cmdline: words(&format!("console={console} quiet panic=-1 cryptomgr.notests")),
        kernel: None,
    }
}

/// What the full images have more: a compiler, the source of the kernel that it shall
/// build, and PostgreSQL. The shell and xargs of busybox take its own programs before
/// those of PATH, so that a build would call its ar, which makes no archives.
const LARGE_PACKAGES: &str = "gcc make bc flex bison libelf-dev libssl-dev linux-source-6.1 \
    postgresql-15 dash findutils diffutils grep sed gzip time";

/// Of these what no workload reads. PostgreSQL compiles queries only where LLVM is, and
/// pgbench's are too short for that.
const NOT_OF_LARGE: &str = "usr/lib/@LIBRARIES@/libLLVM* usr/lib/@LIBRARIES@/libz3* \
    usr/lib/@LIBRARIES@/lib*san.so* usr/share/postgresql/15/man";

fn kernel_source() -> RecipeArchive {
    RecipeArchive {
        path: "usr/src/linux-source-6.1.tar.xz".to_owned(),
        left_out: source_left_out(),
    }
}

/// The small image, with what takes space.
fn debian_12_full(arch: Arch) -> Recipe {
    let small = debian_12(arch);
    let mut packages = small.packages;
    packages.extend(words(LARGE_PACKAGES));
    let left_out = [NOT_FOR_GUESTS, NOT_OF_LARGE].join(" ");
    Recipe {
        name: FULL.to_owned(),
        packages,
        left_out: words(&left_out.replace("@LIBRARIES@", libraries(arch))),
        archives: vec![kernel_source()],
        ..small
    }
}

/// The small image of the next release: from there on /bin, /sbin and /lib are links,
/// which base-files has, and the rest of virtio is part of the kernel.
fn debian_13(arch: Arch) -> Recipe {
    let older = debian_12(arch);
    let mut packages = older.packages;
    packages.push("base-files".to_owned());
    let mut left_out = older.left_out;
    left_out.push("usr/lib/python3.13".to_owned());
    let initrd_modules = words("virtio_blk ext4 overlay");
    let merged = |path: String| match path.split_once('/') {
        Some(("bin" | "sbin" | "lib", _)) => format!("usr/{path}"),
        _ => path,
    };
    let mut files = older.files;
    for file in &mut files {
        file.path = merged(std::mem::take(&mut file.path));
    }
    Recipe {
        name: NEWER.to_owned(),
        suite: "trixie".to_owned(),
        packages,
        left_out,
        initrd_modules,
        seed: older.seed.into_iter().map(merged).collect(),
        files,
        ..older
    }
}

/// What a build of the kernel for these two architectures does not read: of
/// the others, all but what configuring asks for.
fn source_left_out() -> Vec<String> {
    let others = "alpha arc csky hexagon ia64 loongarch m68k microblaze mips nios2 openrisc parisc \
                  powerpc riscv s390 sh sparc um xtensa";
    let sources = words(others).into_iter().map(|arch| format!("*/arch/{arch}/*.[chS]"));
    let rest =
        words("*/Documentation/[!Ka]* */tools/testing *.dts *.dtsi */drivers/gpu/drm/amd/*.h");
    sources.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_every_field() {
        let recipe = Recipe::builtin(FULL, Arch::X86_64).unwrap();
        assert_eq!(recipe.hash(), Recipe::builtin(FULL, Arch::X86_64).unwrap().hash());
        let changes: Vec<fn(&mut Recipe)> = vec![
            |r| r.name.push('x'),
            |r| r.arch = Arch::Aarch64,
            |r| r.suite.push('x'),
            |r| r.packages.push("hello".into()),
            |r| r.left_out.push("hello".into()),
            |r| r.module_folders.push("hello".into()),
            |r| r.initrd_modules.push("hello".into()),
            |r| r.initrd_init.push('#'),
            |r| r.seed.push("hello".into()),
            |r| r.applets.push("hello".into()),
            |r| r.files[0].text.push('#'),
            |r| r.files[0].mode = 0o700,
            |r| r.files[0].path.push('x'),
            |r| r.folders.push("hello".into()),
            |r| r.cmdline.push("hello".into()),
            |r| r.archives[0].path.push('x'),
            |r| r.kernel = Some(KernelFile { path: "x".into(), hash: "x".into() }),
            |r| r.archives[0].left_out.push("hello".into()),
            // The same words, moved over a border between two lists.
            |r| {
                let moved = r.packages.pop().unwrap();
                r.left_out.insert(0, moved);
            },
        ];
        let mut seen = vec![recipe.hash()];
        for change in changes {
            let mut changed = recipe.clone();
            change(&mut changed);
            assert!(!seen.contains(&changed.hash()));
            seen.push(changed.hash());
        }
    }

    #[test]
    fn unknown_names_are_said() {
        let error = Recipe::builtin("debian-11", Arch::X86_64).unwrap_err();
        assert_eq!(
            error.to_string(),
            "No builtin image is named \"debian-11\"; there are builtin:debian-12, \
             builtin:debian-12-full, builtin:debian-13"
        );
    }

    #[test]
    fn recipes_differ_and_fit_their_architecture() {
        let all = Recipe::all();
        let hashes: std::collections::BTreeSet<_> = all.iter().map(Recipe::hash).collect();
        assert_eq!(hashes.len(), 14);
        for recipe in &all {
            let text = format!("{recipe:?}");
            assert!(!text.contains("@LIBRARIES@"), "{text}");
            let foreign =
                if recipe.arch == Arch::X86_64 { "aarch64-linux" } else { "x86_64-linux" };
            assert!(!text.contains(foreign), "{} names {foreign}", recipe.name);
        }
    }
}
