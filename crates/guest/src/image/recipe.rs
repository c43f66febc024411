//! What an image is made of. Everything that decides an image's content stands
//! in its [`Recipe`], and the recipe's hash is the image's key in the cache.

use vmconfig::Arch;

/// Changed whenever the *builder* makes something else of the same recipe.
const BUILDER: &str = "1";

/// The name of the image that vmlab brings.
pub const BUILTIN: &str = "debian-12";

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
    /// Modules that the first stage loads, in this order.
    pub initrd_modules: Vec<String>,
    /// The first stage's script.
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
    /// Parameters on the kernel's command line.
    pub cmdline: Vec<String>,
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

/// Error type for [`Recipe::builtin`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// No such image.
    #[error("No builtin image is named {name:?}; there is builtin:{BUILTIN}")]
    UnknownName {
        /// The name asked for.
        name: String,
    },
    /// The image is not made for this architecture yet.
    #[error(
        "The builtin image {name} is only made for x86_64, not for {arch}; use an image of your own: image = \"path\""
    )]
    UnknownArch {
        /// The name asked for.
        name: String,
        /// The architecture asked for.
        arch: String,
    },
}

impl Recipe {
    /// The recipe of a builtin image for x86-64; `name` without `builtin:`.
    ///
    /// # Errors
    /// [`RecipeError::UnknownName`], if there is none of that name.
    pub fn builtin(name: &str) -> Result<Self, RecipeError> {
        Self::builtin_for(name, Arch::X86_64)
    }

    /// The recipe of a builtin image for `arch`.
    ///
    /// # Errors
    /// [`RecipeError`], if there is none of that name or for that architecture.
    pub fn builtin_for(name: &str, arch: Arch) -> Result<Self, RecipeError> {
        if name != BUILTIN {
            return Err(RecipeError::UnknownName { name: name.to_owned() });
        }
        if arch != Arch::X86_64 {
            return Err(RecipeError::UnknownArch {
                name: name.to_owned(),
                arch: arch.name().to_owned(),
            });
        }
        Ok(debian_12())
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

fn debian_12() -> Recipe {
    // virtio_console comes last: the agent's port is the first thing that the
    // second stage looks for.
    let initrd_modules = words(
        "virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci \
         virtio_blk overlay virtio_console",
    );
    Recipe {
        name: BUILTIN.to_owned(),
        arch: Arch::X86_64,
        suite: "bookworm".to_owned(),
        packages: words(
            "linux-image-cloud-amd64 qemu-guest-agent rt-tests stress-ng sysbench \
             linux-perf iperf3 fio busybox-static",
        ),
        left_out: words(
            "boot/* etc/apt etc/resolv.conf etc/hostname etc/fstab \
             usr/include usr/lib/python3 usr/lib/python3.11 usr/lib/udev usr/lib/systemd lib/systemd lib/udev \
             usr/share/X11 usr/share/bash-completion usr/share/bug usr/share/doc usr/share/gcc \
             usr/share/info usr/share/initramfs-tools usr/share/lintian usr/share/locale \
             usr/share/man usr/share/perl usr/share/perl5 usr/share/python3 usr/share/zsh \
             usr/lib/x86_64-linux-gnu/perl usr/lib/x86_64-linux-gnu/perl-base \
             usr/lib/x86_64-linux-gnu/dri usr/lib/x86_64-linux-gnu/gconv usr/bin/dpkg* \
             usr/bin/python3* usr/bin/perl* usr/bin/deb* var/cache var/lib/apt var/lib/dpkg var/log",
        ),
        module_folders: words(
            "arch block crypto lib mm virt \
             drivers/acpi drivers/block drivers/char drivers/cpufreq drivers/cpuidle \
             drivers/misc/pvpanic drivers/firmware drivers/net drivers/nvdimm drivers/powercap \
             drivers/uio drivers/vfio drivers/vhost drivers/virtio drivers/dax \
             fs/btrfs fs/configfs fs/erofs fs/fuse fs/overlayfs fs/squashfs fs/xfs \
             net/802 net/8021q net/bridge net/core net/ipv4 net/ipv6 net/llc net/netfilter \
             net/packet net/sched net/tls net/vmw_vsock",
        ),
        initrd_init: include_str!("files/initrd-init")
            .replace("@MODULES@", &initrd_modules.join(" ")),
        initrd_modules,
        seed: words(
            "bin/busybox sbin/init etc/fstab etc/ld.so.cache usr/sbin/qemu-ga \
             lib/x86_64-linux-gnu/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6 \
             lib/x86_64-linux-gnu/libm.so.6 usr/lib/x86_64-linux-gnu/libglib-2.0.so.0 \
             usr/lib/x86_64-linux-gnu/libgmodule-2.0.so.0 usr/lib/x86_64-linux-gnu/libnuma.so.1 \
             usr/lib/x86_64-linux-gnu/libpcre2-8.so.0 usr/lib/x86_64-linux-gnu/libudev.so.1 \
             usr/lib/x86_64-linux-gnu/liburing.so.2",
        ),
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
            file(
                "etc/passwd",
                0o644,
                "root::0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
            ),
            file("etc/group", 0o644, "root:x:0:\ntty:x:5:\nkvm:x:104:\nnogroup:x:65534:\n"),
            file("etc/hosts", 0o644, "127.0.0.1 localhost vmlab\n::1 localhost\n"),
            file("etc/hostname", 0o644, "vmlab\n"),
            file("etc/nsswitch.conf", 0o644, "passwd: files\ngroup: files\nhosts: files dns\n"),
        ],
        folders: words("dev proc sys run tmp root home mnt srv var/cache var/lib var/log"),
        // Every parameter's reason and effect stands in the documentation of
        // the module `image`.
        cmdline: words("console=ttyS0 quiet panic=-1 cryptomgr.notests"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_every_field() {
        let recipe = Recipe::builtin(BUILTIN).unwrap();
        assert_eq!(recipe.hash(), Recipe::builtin(BUILTIN).unwrap().hash());
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
    fn unknown_names_and_architectures_are_said() {
        let error = Recipe::builtin("debian-13").unwrap_err();
        assert_eq!(
            error.to_string(),
            "No builtin image is named \"debian-13\"; there is builtin:debian-12"
        );
        assert!(Recipe::builtin_for(BUILTIN, Arch::Aarch64).is_err());
    }
}
