//! Builds an image from its recipe, without root, mounts or loop devices.
//!
//! `mmdebstrap --mode=chrootless --variant=extract` only unpacks packages: no
//! script of a package runs, so it needs no privilege and no user namespace
//! (which containers and AppArmor often forbid). The unpacked files belong to
//! whoever builds; `mke2fs -d` copies them with that owner, and `debugfs` gives
//! every inode to root afterwards, which works the same for every builder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use vmconfig::Arch;

use super::cpio::Archive;
use super::modules::{self, Module};
use super::recipe::{KernelFile, Recipe, debian_arch};
use super::tool::{self, ToolError};
use super::{BuildError, BuildProgress, BuildStage, INITRD, KERNEL, PackageVersion, ROOT_IMAGE};
use crate::Cancel;

/// Environment variable that names another Debian mirror.
pub const MIRROR_VARIABLE: &str = "VMLAB_DEBIAN_MIRROR";

const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// Root image's block size, as given to `mke2fs`.
const BLOCK: u64 = 4096;

/// Where administrators' programs stand that a user's PATH may not name.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

pub(super) struct ImageBuilder<'a> {
    pub(super) recipe: &'a Recipe,
    /// The unfinished image; holds what is kept.
    pub(super) folder: &'a Path,
    pub(super) progress: &'a mut dyn FnMut(BuildProgress),
    pub(super) cancel: &'a Cancel,
}

/// What was built.
pub(super) struct BuiltImage {
    pub(super) packages: Vec<PackageVersion>,
    pub(super) content_hash: String,
}

impl ImageBuilder<'_> {
    /// Fills the folder with kernel, initrd and root image.
    pub(super) fn build(&mut self) -> Result<BuiltImage, BuildError> {
        let root = self.folder.join("root");
        let mut packages = self.unpack(&root)?;
        if let Some(kernel) = &self.recipe.kernel {
            packages.push(self.unpack_kernel(&root, kernel)?);
            packages.sort();
        }
        self.stage(BuildStage::Arranging, None);
        let release = self.take_kernel(&root)?;
        self.arrange(&root, &release)?;
        self.cancel.check()?;
        self.make_initrd(&root, &release)?;
        self.cancel.check()?;
        self.stage(BuildStage::RootImage, None);
        self.make_root_image(&root)?;
        let content_hash = self.content_hash(&root)?;
        self.cancel.check()?;
        remove_folder(&root)?;
        Ok(BuiltImage { packages, content_hash })
    }

    /// Hash over kernel, initrd, and path, mode and content of every file: the
    /// same for two builds of one recipe from one state of the mirror. Times
    /// and the order of inodes are left out, which nothing in a guest sees.
    fn content_hash(&self, root: &Path) -> Result<String, BuildError> {
        let mut hasher = blake3::Hasher::new();
        let mut entry = |name: &str, mode: u32, content: &[u8]| {
            for part in [name.as_bytes(), &mode.to_le_bytes(), content] {
                hasher.update(&(part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        };
        for name in [KERNEL, INITRD] {
            let path = self.folder.join(name);
            entry(name, 0, &fs::read(&path).map_err(read_error(&path))?);
        }
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            self.cancel.check()?;
            for name in names(&folder)? {
                let path = folder.join(name);
                let shown = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                let metadata = path.symlink_metadata().map_err(read_error(&path))?;
                let content = if metadata.is_symlink() {
                    let target = fs::read_link(&path).map_err(read_error(&path))?;
                    target.to_string_lossy().into_owned().into_bytes()
                } else if metadata.is_file() {
                    fs::read(&path).map_err(read_error(&path))?
                } else {
                    Vec::new()
                };
                entry(&shown, metadata.permissions().mode(), &content);
                if metadata.is_dir() {
                    folders.push(path);
                }
            }
        }
        Ok(hasher.finalize().to_hex().to_string())
    }

    fn stage(&mut self, stage: BuildStage, fraction: Option<f64>) {
        (self.progress)(BuildProgress { stage, fraction });
    }

    fn unpack(&mut self, root: &Path) -> Result<Vec<PackageVersion>, BuildError> {
        let mirror = std::env::var(MIRROR_VARIABLE).unwrap_or_else(|_| DEFAULT_MIRROR.to_owned());
        let mut command = tool_command("mmdebstrap");
        command
            .args(["--verbose", "--variant=extract", "--mode=chrootless", "--format=directory"])
            // The packages' files stay until their versions have been read.
            .arg("--skip=essential/unlink,cleanup/apt")
            .arg(format!("--architectures={}", debian_arch(self.recipe.arch)))
            .arg(format!("--include={}", self.recipe.packages.join(",")))
            .arg(&self.recipe.suite)
            .arg(root)
            .arg(&mirror)
            .args(self.recipe.kernel_suite().map(|suite| format!("deb {mirror} {suite} main")))
            .env("TMPDIR", self.folder);
        self.stage(BuildStage::PackageLists, None);
        let (recipe_progress, cancel) = (&mut *self.progress, self.cancel);
        let mut wanted = 0_u32;
        let mut fetched = 0_u32;
        let mut on_line = |line: &str| {
            if let Some(newly) = line.split(" upgraded, ").nth(1) {
                wanted = newly.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            }
            if line.starts_with("Get:") && wanted > 0 {
                fetched += 1;
                let fraction = f64::from(fetched.min(wanted)) / f64::from(wanted);
                recipe_progress(BuildProgress {
                    stage: BuildStage::Download,
                    fraction: Some(fraction),
                });
            }
            if line == "I: extracting archives..." {
                recipe_progress(BuildProgress { stage: BuildStage::Unpacking, fraction: None });
            }
        };
        tool::run(command, &mut on_line, cancel)
            .map_err(|error| explain_mmdebstrap(error, &mirror))?;
        package_versions(&root.join("var/cache/apt/archives"))
    }

    /// Unpacks a kernel's package that lies in a file.
    fn unpack_kernel(
        &self,
        root: &Path,
        kernel: &KernelFile,
    ) -> Result<PackageVersion, BuildError> {
        let mut ask = tool_command("dpkg-deb");
        ask.args(["--show", "--showformat=${Package}\n${Version}\n${Architecture}\n"]);
        ask.arg(&kernel.path);
        let mut said = Vec::new();
        let mut on_line = |line: &str| said.push(line.to_owned());
        tool::run(ask, &mut on_line, self.cancel).map_err(BuildError::tool)?;
        let [name, version, arch] = said.as_slice() else {
            return Err(BuildError::OtherKernel {
                path: kernel.path.clone(),
                says: format!("that it is {}", said.join(", ")),
            });
        };
        if arch != debian_arch(self.recipe.arch) {
            let says = format!("that it is for {arch}, not {}", debian_arch(self.recipe.arch));
            return Err(BuildError::OtherKernel { path: kernel.path.clone(), says });
        }
        // Beside the root, whose /lib may be a link that an archive's folder replaces.
        let beside = self.folder.join("kernel");
        let mut unpack = tool_command("dpkg-deb");
        unpack.arg("--extract").arg(&kernel.path).arg(&beside);
        tool::run(unpack, &mut |_| (), self.cancel).map_err(BuildError::tool)?;
        for (from, to) in
            [("boot", "boot"), ("lib/modules", "lib/modules"), ("usr/lib/modules", "lib/modules")]
        {
            let (from, to) = (beside.join(from), root.join(to));
            if !from.is_dir() {
                continue;
            }
            fs::create_dir_all(&to).map_err(write_error(&to))?;
            for name in names(&from)? {
                let to = to.join(&name);
                fs::rename(from.join(&name), &to).map_err(write_error(&to))?;
            }
        }
        remove_folder(&beside)?;
        Ok(PackageVersion { name: name.clone(), version: version.clone() })
    }

    /// Moves the kernel out and returns its release. From Linux 6.19 on, Debian's packages
    /// have it beside its modules.
    fn take_kernel(&self, root: &Path) -> Result<String, BuildError> {
        let listed = |folder: &Path| match folder.is_dir() {
            true => names(folder),
            false => Ok(Vec::new()),
        };
        let (boot, modules) = (root.join("boot"), root.join("lib/modules"));
        let of_boot = listed(&boot)?.into_iter().filter_map(|name| {
            let release = name.strip_prefix("vmlinuz-")?.to_owned();
            Some((boot.join(name), release))
        });
        let of_modules = listed(&modules)?.into_iter().filter_map(|release| {
            let file = modules.join(&release).join("vmlinuz");
            file.is_file().then_some((file, release))
        });
        let (file, release) = of_boot
            .chain(of_modules)
            .next()
            .ok_or_else(|| BuildError::NoKernel { packages: self.recipe.packages.join(", ") })?;
        let kernel = self.folder.join(KERNEL);
        fs::rename(&file, &kernel).map_err(write_error(&kernel))?;
        Ok(release)
    }

    fn make_initrd(&self, root: &Path, release: &str) -> Result<(), BuildError> {
        let modules = root.join("lib/modules").join(release).join("kernel");
        let mut archive = Archive::default();
        for folder in ["bin", "dev", "disk", "lib", "ram", "root"] {
            archive.folder(folder);
        }
        // The kernel opens it for the first process.
        archive.device("dev/console", 5, 1);
        let mut folders = BTreeSet::new();
        for path in &self.recipe.seed {
            let parents = Path::new(path).ancestors().skip(1);
            folders.extend(parents.filter_map(Path::to_str).map(seeded));
        }
        // In order, a folder stands before what it holds.
        for folder in &folders {
            archive.folder(folder);
        }
        for path in &self.recipe.seed {
            let file = root.join(path);
            let content = fs::read(&file).map_err(read_error(&file))?;
            let metadata = file.metadata().map_err(read_error(&file))?;
            archive.file(&seeded(path), metadata.permissions().mode(), &content);
        }
        let is_busybox = |path: &&String| path.ends_with("bin/busybox");
        let busybox = self.recipe.seed.iter().find(is_busybox);
        archive.link("bin/busybox", &format!("/seed/{}", busybox.map_or("", String::as_str)));
        let mut there = built_in_modules(&root.join("lib/modules").join(release))?;
        let mut loaded = Vec::new();
        for name in &self.recipe.initrd_modules {
            add_module(&modules, name, &mut there, &mut loaded)?;
        }
        let names: Vec<&str> = loaded.iter().map(|(name, _)| name.as_str()).collect();
        let init = self.recipe.initrd_init.replace("@MODULES@", &names.join(" "));
        archive.file("init", 0o755, init.as_bytes());
        for (name, content) in &loaded {
            archive.file(&format!("lib/{name}.ko"), 0o644, content);
        }
        let initrd = self.folder.join(INITRD);
        fs::write(&initrd, archive.finish()).map_err(write_error(&initrd))
    }

    /// Leaves out, adds, and does what packages' scripts would have done.
    fn arrange(&mut self, root: &Path, release: &str) -> Result<(), BuildError> {
        for pattern in &self.recipe.left_out {
            for path in matching(root, pattern)? {
                self.cancel.check()?;
                remove(&path)?;
            }
        }
        let modules = root.join("lib/modules").join(release).join("kernel");
        self.keep_modules(&modules)?;
        self.unpack_modules(&modules)?;
        for folder in &self.recipe.folders {
            let path = root.join(folder);
            fs::create_dir_all(&path).map_err(write_error(&path))?;
            let mode = if folder == "tmp" { 0o1777 } else { 0o755 };
            set_mode(&path, mode)?;
        }
        for applet in &self.recipe.applets {
            let there = ["bin", "sbin", "usr/bin", "usr/sbin"]
                .iter()
                .any(|folder| root.join(folder).join(applet).symlink_metadata().is_ok());
            if !there {
                let link = root.join("bin").join(applet);
                symlink("busybox", &link).map_err(write_error(&link))?;
            }
        }
        for file in &self.recipe.files {
            let path = root.join(&file.path);
            if path.symlink_metadata().is_ok() {
                remove(&path)?;
            }
            fs::write(&path, &file.text).map_err(write_error(&path))?;
            set_mode(&path, file.mode)?;
        }
        self.unpack_archives(root)?;
        index_modules(&root.join("lib/modules").join(release))?;
        if self.recipe.arch != Arch::X86_64 {
            // The builder's ldconfig knows no other architecture; the dynamic
            // linker looks into Debian's folders without a cache too.
            return Ok(());
        }
        let mut ldconfig = tool_command("ldconfig");
        ldconfig.arg("-r").arg(root);
        tool::run(ldconfig, &mut |_| (), self.cancel).map_err(BuildError::tool)?;
        // It notes the builder's inodes there.
        let notes = root.join("var/cache/ldconfig");
        if notes.is_dir() { remove_folder(&notes) } else { Ok(()) }
    }

    fn unpack_archives(&self, root: &Path) -> Result<(), BuildError> {
        for archive in &self.recipe.archives {
            let path = root.join(&archive.path);
            let mut tar = tool_command("tar");
            tar.arg("-xf").arg(&path).arg("-C").arg(path.parent().unwrap_or(root));
            tar.arg("--no-same-owner");
            tar.args(archive.left_out.iter().map(|pattern| format!("--exclude={pattern}")));
            tool::run(tar, &mut |_| (), self.cancel).map_err(BuildError::tool)?;
            remove(&path)?;
        }
        Ok(())
    }

    fn keep_modules(&self, modules: &Path) -> Result<(), BuildError> {
        let keep: Vec<PathBuf> =
            self.recipe.module_folders.iter().map(|folder| modules.join(folder)).collect();
        let mut folders = vec![modules.to_owned()];
        while let Some(folder) = folders.pop() {
            for name in names(&folder)? {
                let path = folder.join(name);
                if keep.contains(&path) {
                    continue;
                }
                if keep.iter().any(|kept| kept.starts_with(&path)) {
                    folders.push(path);
                } else {
                    remove(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Modules as they are loaded: from Debian 13 on, packages bring them packed.
    fn unpack_modules(&self, modules: &Path) -> Result<(), BuildError> {
        let mut packed = Vec::new();
        let mut folders = vec![modules.to_owned()];
        while let Some(folder) = folders.pop() {
            for name in names(&folder)? {
                let path = folder.join(&name);
                if path.is_dir() {
                    folders.push(path);
                } else if name.ends_with(".ko.xz") {
                    packed.push(path);
                }
            }
        }
        if packed.is_empty() {
            return Ok(());
        }
        let mut xz = tool_command("xz");
        xz.arg("--decompress").arg("--").args(&packed);
        tool::run(xz, &mut |_| (), self.cancel).map_err(BuildError::tool)
    }

    fn make_root_image(&mut self, root: &Path) -> Result<(), BuildError> {
        let image = self.folder.join(ROOT_IMAGE);
        let mut usage = Usage::default();
        measure(root, &mut usage)?;
        // Room for the tables and for folders that take more than one block;
        // the file is sparse, so what is not used takes no space.
        let inodes = usage.files + 64;
        let blocks = usage.blocks + usage.blocks / 16 + inodes / 8 + 2048;
        let mut mke2fs = tool_command("mke2fs");
        mke2fs
            .args(["-q", "-F", "-t", "ext4", "-m", "0", "-I", "256", "-b"])
            .arg(BLOCK.to_string())
            .arg("-N")
            .arg(inodes.to_string())
            // Read-only: no journal, no checksums, nothing to grow.
            .args(["-O", "^has_journal,^metadata_csum,^resize_inode,^orphan_file"])
            .args(["-E", "root_owner=0:0,lazy_itable_init=1,nodiscard,hash_seed=76d1ab00-0000-4000-8000-000000000000"])
            .args(["-U", "76d1ab00-0000-4000-8000-000000000000", "-L", "vmlab-root", "-d"])
            .arg(root)
            .arg(&image)
            .arg(blocks.to_string());
        tool::run(mke2fs, &mut |_| (), self.cancel).map_err(BuildError::tool)?;
        // mke2fs numbers inodes from 11 without holes.
        let commands = self.folder.join("owners");
        let mut text = String::new();
        for inode in 11..12 + usage.files {
            for field in ["uid", "gid"] {
                text.push_str(&format!("set_inode_field <{inode}> {field} 0\n"));
            }
        }
        fs::write(&commands, text).map_err(write_error(&commands))?;
        let mut debugfs = tool_command("debugfs");
        debugfs.arg("-w").arg("-f").arg(&commands).arg(&image);
        tool::run(debugfs, &mut |_| (), self.cancel).map_err(BuildError::tool)?;
        remove(&commands)
    }
}

/// Where a file of the root lies in the initial RAM disk.
fn seeded(path: &str) -> String {
    format!("seed/{path}").trim_end_matches('/').to_owned()
}

/// A program by name, also looked for where administrators' programs are.
fn tool_command(program: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".to_owned());
    let path = format!("{path}:{SBIN}");
    let found = path
        .split(':')
        .map(|folder| Path::new(folder).join(program))
        .find(|candidate| candidate.is_file());
    let mut command = found.map_or_else(|| Command::new(program), Command::new);
    command.env("PATH", path).env("LC_ALL", "C");
    command
}

fn explain_mmdebstrap(error: ToolError, mirror: &str) -> BuildError {
    let ToolError::Failed { tail, .. } = &error else {
        return BuildError::tool(error);
    };
    // Only complaints: mmdebstrap also tells what it is about to do.
    let line_with = |needles: &[&str]| {
        let complaints = tail.lines().filter(|line| !line.starts_with("I: "));
        complaints.into_iter().find(|line| needles.iter().any(|needle| line.contains(needle)))
    };
    if let Some(line) = line_with(&["No space left on device", "enough free space"]) {
        return BuildError::NoSpace { detail: line.to_owned() };
    }
    let network = [
        "Temporary failure resolving",
        "Could not resolve",
        "Could not connect",
        "Unable to connect",
        "Failed to fetch",
        "Connection timed out",
        "Network is unreachable",
        "404  Not Found",
    ];
    if let Some(line) = line_with(&network) {
        return BuildError::NoNetwork { mirror: mirror.to_owned(), detail: line.to_owned() };
    }
    if let Some(line) = line_with(&["NO_PUBKEY", "is not signed", "signed-by", "keyring"]) {
        return BuildError::NoKeyring { detail: line.to_owned() };
    }
    BuildError::tool(error)
}

/// Names and versions from the names of downloaded package files,
/// `name_version_arch.deb` with `%3a` for the colon behind an epoch.
fn package_versions(folder: &Path) -> Result<Vec<PackageVersion>, BuildError> {
    let mut packages: Vec<PackageVersion> = names(folder)?
        .iter()
        .filter_map(|name| {
            let mut parts = name.strip_suffix(".deb")?.splitn(3, '_');
            let (name, version) = (parts.next()?, parts.next()?);
            Some(PackageVersion { name: name.to_owned(), version: version.replace("%3a", ":") })
        })
        .collect();
    packages.sort();
    Ok(packages)
}

fn names(folder: &Path) -> Result<Vec<String>, BuildError> {
    let entries = fs::read_dir(folder).map_err(read_error(folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(read_error(folder))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The paths that `pattern` names: `*` at the end of the last component stands
/// for any rest.
fn matching(root: &Path, pattern: &str) -> Result<Vec<PathBuf>, BuildError> {
    let path = root.join(pattern);
    let Some(prefix) = pattern.strip_suffix('*') else {
        return Ok(path.symlink_metadata().is_ok().then_some(path).into_iter().collect());
    };
    let (folder, start) = prefix.rsplit_once('/').unwrap_or(("", prefix));
    let folder = root.join(folder);
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let found = names(&folder)?;
    Ok(found.iter().filter(|name| name.starts_with(start)).map(|name| folder.join(name)).collect())
}

/// Writes the index of the modules below `release`.
fn index_modules(release: &Path) -> Result<(), BuildError> {
    let mut found = BTreeMap::new();
    let mut folders = vec![release.join("kernel")];
    while let Some(folder) = folders.pop() {
        for name in names(&folder)? {
            let path = folder.join(&name);
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".ko") {
                let shown = path.strip_prefix(release).unwrap_or(&path).to_string_lossy();
                let bytes = fs::read(&path).map_err(read_error(&path))?;
                found.insert(shown.into_owned(), Module::read(&bytes));
            }
        }
    }
    for (name, text) in
        [("modules.dep", modules::dep(&found)), ("modules.alias", modules::alias(&found))]
    {
        let path = release.join(name);
        fs::write(&path, text).map_err(write_error(&path))?;
    }
    Ok(())
}

/// Names of the modules that are part of the kernel, `_` for `-`.
///
/// Source: `modules.builtin`, Documentation/kbuild/kbuild.rst.
fn built_in_modules(release: &Path) -> Result<BTreeSet<String>, BuildError> {
    let path = release.join("modules.builtin");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        other => other.map_err(read_error(&path))?,
    };
    Ok(text.lines().map(modules::name).collect())
}

/// Adds a module to those that are loaded, behind those that it needs, unless it is
/// there: built in, or added before.
fn add_module(
    modules: &Path,
    name: &str,
    there: &mut BTreeSet<String>,
    loaded: &mut Vec<(String, Vec<u8>)>,
) -> Result<(), BuildError> {
    if !there.insert(name.to_owned()) {
        return Ok(());
    }
    let path = find_module(modules, name)?.ok_or_else(|| {
        let release = modules.parent().and_then(Path::file_name).unwrap_or_default();
        let release = release.to_string_lossy().into_owned();
        BuildError::NoModule { module: name.to_owned(), release }
    })?;
    let content = fs::read(&path).map_err(read_error(&path))?;
    let module = Module::read(&content);
    // An algorithm is in the module of its name, or in the one that runs everywhere: ext4
    // asks for crypto-crc32c before it, and crc32c_generic has it.
    for name in module.before {
        let name = name.trim_start_matches("crypto-").replace('-', "_");
        for name in [format!("{name}_generic"), name] {
            if find_module(modules, &name)?.is_some() {
                add_module(modules, &name, there, loaded)?;
            }
        }
    }
    for needed in module.depends {
        add_module(modules, &needed.replace('-', "_"), there, loaded)?;
    }
    loaded.push((name.to_owned(), content));
    Ok(())
}

fn find_module(folder: &Path, name: &str) -> Result<Option<PathBuf>, BuildError> {
    // A module's file may be named with - where its name has _.
    let wanted = [format!("{name}.ko"), format!("{}.ko", name.replace('_', "-"))];
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for name in names(&folder)? {
            let path = folder.join(&name);
            if wanted.contains(&name) {
                return Ok(Some(path));
            }
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(None)
}

#[derive(Default)]
struct Usage {
    files: u64,
    blocks: u64,
}

fn measure(folder: &Path, usage: &mut Usage) -> Result<(), BuildError> {
    for name in names(folder)? {
        let path = folder.join(name);
        let metadata = path.symlink_metadata().map_err(read_error(&path))?;
        usage.files += 1;
        usage.blocks += metadata.size().div_ceil(BLOCK);
        if metadata.is_dir() {
            measure(&path, usage)?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), BuildError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(write_error(path))
}

fn remove(path: &Path) -> Result<(), BuildError> {
    let is_folder = path.symlink_metadata().map_err(read_error(path))?.is_dir();
    if is_folder { remove_folder(path) } else { fs::remove_file(path).map_err(write_error(path)) }
}

fn remove_folder(path: &Path) -> Result<(), BuildError> {
    fs::remove_dir_all(path).map_err(write_error(path))
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| BuildError::Read { path, source }
}

pub(super) fn write_error(path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    let path = path.to_owned();
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            BuildError::NoSpace { detail: format!("{}: {source}", path.display()) }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            BuildError::NotWritable { path, source }
        }
        _ => BuildError::Write { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_file_names() {
        let folder = tempfile::tempdir().unwrap();
        for name in
            ["busybox-static_1%3a1.35.0-4+deb12u1+b1_amd64.deb", "fio_3.33-3_amd64.deb", "lock"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let found: Vec<(String, String)> = package_versions(folder.path())
            .unwrap()
            .into_iter()
            .map(|package| (package.name, package.version))
            .collect();
        let expected = [("busybox-static", "1:1.35.0-4+deb12u1+b1"), ("fio", "3.33-3")]
            .map(|(name, version)| (name.to_owned(), version.to_owned()));
        assert_eq!(found, expected);
    }

    #[test]
    fn patterns_name_what_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        for name in ["perl", "perl5.36", "perf"] {
            fs::write(root.path().join("usr/bin").join(name), "").unwrap();
        }
        let check = |pattern: &str, expected: &[&str]| {
            let mut found = matching(root.path(), pattern).unwrap();
            found.sort();
            let expected: Vec<PathBuf> =
                expected.iter().map(|name| root.path().join("usr/bin").join(name)).collect();
            assert_eq!(found, expected, "{pattern}");
        };
        check("usr/bin/perl*", &["perl", "perl5.36"]);
        check("usr/bin/perf", &["perf"]);
        check("usr/bin/python*", &[]);
        check("no/such/folder*", &[]);
    }

    #[test]
    fn failures_of_mmdebstrap_say_what_to_do() {
        let check = |tail: &str, expected: &str| {
            let status = std::os::unix::process::ExitStatusExt::from_raw(256);
            let error =
                ToolError::Failed { program: "mmdebstrap".into(), status, tail: tail.into() };
            let text = explain_mmdebstrap(error, "http://deb.debian.org/debian").to_string();
            assert!(text.contains(expected), "{text}");
        };
        check("I: finding correct signed-by value...\nErr:1 x Unable to connect", "network");
        check("W: x\nE: Failed to fetch http://deb  Temporary failure resolving 'deb'", "network");
        check("tar: write error: No space left on device", "XDG_CACHE_HOME");
        check("E: You don't have enough free space in /x/var/cache/apt/archives/.", "free some");
        check("E: The following signatures: NO_PUBKEY 0E98404D386FA1D9", "debian-archive-keyring");
        check("E: something else", "something else");
    }
}
