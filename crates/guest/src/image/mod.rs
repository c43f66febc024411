//! Guest images: the builtin one, its cache, and users' own.
//!
//! An image in the cache is a folder `<cache>/images/<name>-<hash12>/` with
//! kernel, initial RAM disk, root image and [`Manifest`]. It is built in a
//! hidden folder beside it and renamed when it is whole, so a folder of that
//! name is always complete; what a killed build leaves is removed by the next.
//!
//! # How the builtin image boots
//!
//! QEMU loads Debian's own kernel directly, through its usual entry: KASLR and
//! everything else that decides how the guest performs stays Debian's (a PVH
//! boot would save the decompression and lose KASLR, and with it the fresh
//! layout that every boot draws). No udev and no systemd run: the initial RAM
//! disk loads eight modules in a fixed order, mounts the root image read-only,
//! lays RAM over it, and the first process starts the guest agent at once.
//!
//! What each choice brought, CPU time of QEMU until the agent answered, minimum
//! of five interleaved boots under TCG on a busy machine, 1 vCPU (raw floor -
//! same kernel, busybox alone, READY on the console: 2.35 to 2.46 s):
//!
//! | choice | before | after |
//! |---|---|---|
//! | `cryptomgr.notests`: the crypto manager does not test its algorithms at boot; they are the same ones | 3.12 s | 2.90 s |
//! | one `mount -a` and a shell that runs busybox' applets itself, instead of a program each | 2.81 s | 2.69 s |
//! | the files that every boot reads lie in the initial RAM disk, as a layer above the disk | 2.75 s | 2.53 s |
//! | larger read-ahead, `edd=off`, unsigned modules, low priority for what comes after the agent | | below 0.05 s each: not done |
//!
//! The other kernel parameters: `console=ttyS0` so that panics reach the
//! console's file; `quiet` because every line on an emulated serial port takes
//! time; `no_timer_check` (x86) because an emulated timer on a busy host comes too
//! late for the kernel's test of it, which then panics (under KVM the kernel
//! leaves that test out by itself); `panic=-1` so that a panic ends QEMU (started with `-no-reboot`) at
//! once. `vmlab.no_agent` is read by our own first process: it leaves out the
//! agent, for tests of guests that never answer.

mod build;
mod cpio;
mod modules;
pub mod oci;
mod own;
mod recipe;
mod tool;

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cancel::CANCEL_CHECK;
use crate::{Cancel, Cancellation};
use build::{BuiltImage, ImageBuilder, write_error};
use tool::ToolError;

pub use build::MIRROR_VARIABLE;
pub use cpio::Archive;
pub use own::{OwnImage, OwnImageError, check_own};
pub use recipe::{
    BUILTIN, BUILTINS, HOSTS, KernelFile, NODE, Recipe, RecipeArchive, RecipeError, RecipeFile,
    kernel_path,
};

const KERNEL: &str = "vmlinuz";
const INITRD: &str = "initrd.cpio";
const ROOT_IMAGE: &str = "root.ext4";
const MANIFEST: &str = "manifest.json";

/// Digits of the recipe's hash in a folder's name.
const SHORT_HASH: usize = 12;

/// In the name of a folder that is being made or removed, before the process.
const UNFINISHED: &str = ".unfinished-";

/// An image that is ready to boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestImage {
    /// Its folder in the cache.
    pub folder: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// The initial RAM disk.
    pub initrd: PathBuf,
    /// Raw image of the root file system; only ever read.
    pub root_image: PathBuf,
    /// Kernel parameters that the image needs, one each.
    pub cmdline: Vec<String>,
    /// The packages that it holds, by name.
    pub packages: Vec<PackageVersion>,
    /// The recipe's hash, 64 hexadecimal digits.
    pub recipe_hash: String,
    /// Hash over all that is in it, 64 hexadecimal digits: two builds of one
    /// recipe from one state of the mirror have the same.
    pub content_hash: String,
    /// Bytes that its files take on disk.
    pub size_bytes: u64,
    /// When it was built, seconds since the Unix epoch.
    pub built_unix_s: u64,
}

/// A package in an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct PackageVersion {
    /// Debian's name of it.
    pub name: String,
    /// Debian's version of it.
    pub version: String,
}

/// What `manifest.json` in an image's folder says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The image's name.
    pub name: String,
    /// The recipe's hash.
    pub recipe_hash: String,
    /// Hash over all that is in the image.
    pub content_hash: String,
    /// When it was built, seconds since the Unix epoch.
    pub built_unix_s: u64,
    /// Kernel parameters that the image needs.
    pub cmdline: Vec<String>,
    /// The packages that it holds.
    pub packages: Vec<PackageVersion>,
    /// Sizes of the files, bytes on disk.
    pub size_bytes: u64,
}

/// An entry of [`list`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageEntry {
    /// The image's name.
    pub name: String,
    /// The first digits of its recipe's hash, as in the folder's name.
    pub short_hash: String,
    /// Its folder.
    pub folder: PathBuf,
    /// Bytes on disk.
    pub size_bytes: u64,
    /// When it was built, seconds since the Unix epoch; `None` if its manifest
    /// can't be read.
    pub built_unix_s: Option<u64>,
    /// False for what an interrupted build left, or if a file is missing.
    pub complete: bool,
    /// True if this version of vmlab would use it.
    pub current: bool,
}

/// A stage of [`build`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildStage {
    /// Another process builds the same image.
    WaitingForOther,
    /// Fetching the lists of packages.
    PackageLists,
    /// Fetching packages.
    Download,
    /// Unpacking packages.
    Unpacking,
    /// Leaving out, adding, making the initial RAM disk.
    Arranging,
    /// Making the root image.
    RootImage,
}

impl BuildStage {
    /// What is being done, in a few words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::WaitingForOther => "waiting for another build of this image",
            Self::PackageLists => "fetching package lists",
            Self::Download => "downloading packages",
            Self::Unpacking => "unpacking packages",
            Self::Arranging => "arranging files",
            Self::RootImage => "making the root image",
        }
    }
}

/// How far [`build`] is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BuildProgress {
    /// The stage.
    pub stage: BuildStage,
    /// How much of the stage is done, 0 to 1, where that is known.
    pub fraction: Option<f64>,
}

/// Error type for [`build`].
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The cache folder can't be written.
    #[error("Cannot write {path:?}: set XDG_CACHE_HOME to a folder that you can write to")]
    NotWritable {
        /// What could not be written.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The disk is full.
    #[error(
        "No space left for the image ({detail}): it takes about 1 GB while it is built; free some, or set XDG_CACHE_HOME to a folder on a larger disk"
    )]
    NoSpace {
        /// What was being written.
        detail: String,
    },
    /// A program is missing.
    #[error("{program} is not installed: run `{install}`")]
    MissingTool {
        /// The program.
        program: String,
        /// What installs it.
        install: String,
    },
    /// The mirror could not be reached.
    #[error(
        "Cannot fetch packages from {mirror} ({detail}): check the network, or set {MIRROR_VARIABLE} to a Debian mirror that you can reach"
    )]
    NoNetwork {
        /// The mirror.
        mirror: String,
        /// What was said.
        detail: String,
    },
    /// Debian's signing keys are not on this machine.
    #[error(
        "Debian's packages cannot be verified ({detail}): run `apt-get install debian-archive-keyring`"
    )]
    NoKeyring {
        /// What was said.
        detail: String,
    },
    /// The packages brought no kernel.
    #[error("None of these packages brought a kernel: {packages}")]
    NoKernel {
        /// The recipe's packages.
        packages: String,
    },
    /// The kernel lacks a module that the first stage needs.
    #[error("The kernel {release} has no module {module}: the recipe and Debian's kernel disagree")]
    NoModule {
        /// The module.
        module: String,
        /// The kernel's release.
        release: String,
    },
    /// The file of a kernel's package holds something else.
    #[error("{path:?} says {says}: give a linux-image package for the image's architecture")]
    OtherKernel {
        /// The file.
        path: PathBuf,
        /// What its control file says.
        says: String,
    },
    /// A program failed.
    #[error("{0}")]
    Tool(String),
    /// A file could not be read.
    #[error("Cannot read {path:?}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be written.
    #[error("Cannot write {path:?}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It was cancelled; what was unpacked so far is being removed by a process of its own.
    #[error(transparent)]
    Cancelled(#[from] Cancellation),
}

impl BuildError {
    fn tool(error: ToolError) -> Self {
        match error {
            ToolError::Cancelled(cancelled) => Self::Cancelled(cancelled),
            ToolError::Missing { program } => {
                let package = match program.as_str() {
                    "mke2fs" | "debugfs" => "e2fsprogs",
                    "ldconfig" => "libc-bin",
                    "dpkg-deb" => "dpkg",
                    other => other,
                };
                Self::MissingTool { install: format!("apt-get install {package}"), program }
            }
            ToolError::Failed { ref tail, .. } if tail.contains("No space left on device") => {
                Self::NoSpace { detail: error.to_string() }
            }
            other => Self::Tool(other.to_string()),
        }
    }
}

/// Error type for [`list`] and [`remove`].
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The cache could not be read.
    #[error("Cannot read the image cache {path:?}")]
    Read {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Nothing matches.
    #[error("No image matches {wanted:?}: `vmlab image list` shows those that there are")]
    NoSuchImage {
        /// What was asked for.
        wanted: String,
    },
    /// The image is being built.
    #[error("{path:?} is being built by another process: wait for it, or end it")]
    Busy {
        /// The image's folder.
        path: PathBuf,
    },
    /// The image could not be removed.
    #[error("Cannot remove {path:?}")]
    Remove {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// vmlab's cache folder: `$XDG_CACHE_HOME/vmlab`, else `~/.cache/vmlab`, else
/// (no home at all) a folder of this user below the system's temporary one.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let set =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(cache) = set("XDG_CACHE_HOME") {
        return cache.join("vmlab");
    }
    match set("HOME") {
        Some(home) => home.join(".cache/vmlab"),
        None => {
            std::env::temp_dir().join(format!("vmlab-cache-{}", rustix::process::getuid().as_raw()))
        }
    }
}

fn images_dir(cache: &Path) -> PathBuf {
    cache.join("images")
}

fn folder_name(recipe: &Recipe) -> String {
    folder_called(&recipe.shown_name(), &recipe.hash()[..SHORT_HASH])
}

fn folder_called(shown_name: &str, short_hash: &str) -> String {
    format!("{}-{short_hash}", shown_name.replace('/', SLASH))
}

/// Stands for a slash in the name of an image's folder; no name has one.
const SLASH: &str = "@";

/// The recipe that an image's name with its architecture means:
/// `debian-12-aarch64`, `debian-12-aarch64+KERNEL`, with or without `builtin:`.
/// The file of a kernel is looked up from the current folder.
///
/// # Errors
/// As [`Recipe::builtin_from`].
pub fn recipe(shown: &str) -> Result<Recipe, RecipeError> {
    Recipe::by_shown_name(plain_name(shown))
}

/// An image's name without the `builtin:` that it may begin with.
#[must_use]
pub fn plain_name(name: &str) -> &str {
    name.strip_prefix("builtin:").unwrap_or(name)
}

/// The image of `recipe`, if it is in the cache.
#[must_use]
pub fn find(recipe: &Recipe) -> Option<GuestImage> {
    find_in(&cache_dir(), recipe)
}

fn find_in(cache: &Path, recipe: &Recipe) -> Option<GuestImage> {
    let folder = images_dir(cache).join(folder_name(recipe));
    let manifest = read_manifest(&folder)?;
    (manifest.recipe_hash == recipe.hash()).then(|| GuestImage {
        kernel: folder.join(KERNEL),
        initrd: folder.join(INITRD),
        root_image: folder.join(ROOT_IMAGE),
        cmdline: manifest.cmdline,
        packages: manifest.packages,
        recipe_hash: manifest.recipe_hash,
        content_hash: manifest.content_hash,
        size_bytes: manifest.size_bytes,
        built_unix_s: manifest.built_unix_s,
        folder,
    })
}

/// The manifest of a complete image.
fn read_manifest(folder: &Path) -> Option<Manifest> {
    let whole = [KERNEL, INITRD, ROOT_IMAGE].iter().all(|name| folder.join(name).is_file());
    let text = fs::read_to_string(folder.join(MANIFEST)).ok()?;
    let manifest = serde_json::from_str(&text).ok()?;
    whole.then_some(manifest)
}

/// The image of `recipe`: from the cache, or built now (about 15 s and 500 MB
/// of disk, most of it Debian's packages; the full image a minute and 3 GB).
///
/// No program of the guest runs, so any machine builds for any architecture.
/// Two builds of one recipe at once make one image: the second waits. Needs no
/// privilege; needs `mmdebstrap`, `mke2fs`, `debugfs`, `tar`, `xz` and
/// `ldconfig`.
///
/// # Errors
/// [`BuildError`] says what to do next.
///
/// Source: mmdebstrap(1) for `--variant=extract` and `--mode=chrootless`.
pub fn build(
    recipe: &Recipe,
    progress: &mut dyn FnMut(BuildProgress),
    cancel: &Cancel,
) -> Result<GuestImage, BuildError> {
    build_in(&cache_dir(), recipe, progress, cancel)
}

fn build_in(
    cache: &Path,
    recipe: &Recipe,
    progress: &mut dyn FnMut(BuildProgress),
    cancel: &Cancel,
) -> Result<GuestImage, BuildError> {
    // Before anything is written: a read-only cache with the image is fine.
    if let Some(image) = find_in(cache, recipe) {
        return Ok(image);
    }
    let images = images_dir(cache);
    fs::create_dir_all(&images).map_err(write_error(&images))?;
    let name = folder_name(recipe);
    let _lock = lock(&images, &name, progress, cancel)?;
    if let Some(image) = find_in(cache, recipe) {
        return Ok(image);
    }

    let unfinished = images.join(unfinished_name(&name));
    let folder = images.join(&name);
    remove_left_by_others(&images, &name);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(write_error(&folder))?;
    }
    fs::create_dir(&unfinished).map_err(write_error(&unfinished))?;
    let built = ImageBuilder { recipe, folder: &unfinished, progress, cancel }
        .build()
        .and_then(|built| seal(recipe, built, &unfinished, &folder));
    if let Err(error) = built {
        match error {
            BuildError::Cancelled(_) => remove_beside(&unfinished),
            // The first error is the one to tell; the next build tries this again.
            _ => drop(fs::remove_dir_all(&unfinished)),
        }
        return Err(error);
    }
    remove_left_by_others(&images, &name);
    find_in(cache, recipe).ok_or_else(|| BuildError::Read {
        path: folder.join(MANIFEST),
        source: io::Error::new(io::ErrorKind::InvalidData, "not what was just written"),
    })
}

/// Writes the manifest, brings everything to the disk and gives the folder its
/// name.
fn seal(
    recipe: &Recipe,
    built: BuiltImage,
    unfinished: &Path,
    folder: &Path,
) -> Result<(), BuildError> {
    let manifest = Manifest {
        name: recipe.name.clone(),
        recipe_hash: recipe.hash(),
        content_hash: built.content_hash,
        built_unix_s: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO)
            .as_secs(),
        cmdline: recipe.cmdline.clone(),
        packages: built.packages,
        size_bytes: size_on_disk(unfinished),
    };
    let path = unfinished.join(MANIFEST);
    let text = serde_json::to_string_pretty(&manifest).expect("a manifest is plain data");
    fs::write(&path, text + "\n").map_err(write_error(&path))?;
    for name in [KERNEL, INITRD, ROOT_IMAGE, MANIFEST] {
        let path = unfinished.join(name);
        File::open(&path).and_then(|file| file.sync_all()).map_err(write_error(&path))?;
    }
    fs::rename(unfinished, folder).map_err(write_error(folder))
}

/// Where this process builds or removes an image. Each has its own folder,
/// since the programs of a build that was killed may live a little longer.
fn unfinished_name(name: &str) -> String {
    format!(".{name}{UNFINISHED}{}", std::process::id())
}

/// The folder's name of the image that a hidden folder was to become.
fn unfinished_of(file_name: &str) -> Option<&str> {
    file_name.strip_prefix('.')?.split_once(UNFINISHED).map(|(name, _)| name)
}

/// Removes the hidden folders of an image's earlier builds. Under the lock they
/// can only be left by one that was killed. Its mmdebstrap may write for a
/// moment yet, so that a folder can't be emptied; hence this is done before a
/// build and after it, and what fails is left to the next.
fn remove_left_by_others(images: &Path, name: &str) {
    let Ok(entries) = fs::read_dir(images) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().and_then(unfinished_of) == Some(name) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes a folder in a process that outlives this one: an unpacked system takes seconds,
/// and whoever pressed Ctrl-C wants the terminal back. Programs of the build that were
/// killed just now may still write: then once more, a few times. What is left if that is
/// ended, too, the next build removes.
fn remove_beside(folder: &Path) {
    const SCRIPT: &str = "for turn in 1 2 3 4 5; do rm -rf -- \"$1\" && exit; sleep 1; done";
    let mut rm = Command::new("sh");
    rm.args(["-c", SCRIPT, "sh"]).arg(folder).process_group(0);
    rm.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if rm.spawn().is_err() {
        // The next build tries this again.
        let _ = fs::remove_dir_all(folder);
    }
}

fn open_lock(images: &Path, name: &str) -> io::Result<File> {
    File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(images.join(format!(".{name}.lock")))
}

fn lock(
    images: &Path,
    name: &str,
    progress: &mut dyn FnMut(BuildProgress),
    cancel: &Cancel,
) -> Result<File, BuildError> {
    let file = open_lock(images, name).map_err(write_error(images))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => {}
            Err(fs::TryLockError::Error(source)) => {
                return Err(BuildError::Write { path: images.to_owned(), source });
            }
        }
        if !told {
            progress(BuildProgress { stage: BuildStage::WaitingForOther, fraction: None });
            told = true;
        }
        cancel.check()?;
        // A lock can't be polled for, and waiting in flock can't be cancelled.
        std::thread::sleep(CANCEL_CHECK);
    }
}

/// All images in the cache, and what interrupted builds left, by name.
///
/// # Errors
/// [`CacheError::Read`], if the cache is there and can't be read.
pub fn list() -> Result<Vec<ImageEntry>, CacheError> {
    list_in(&cache_dir())
}

fn list_in(cache: &Path) -> Result<Vec<ImageEntry>, CacheError> {
    let images = images_dir(cache);
    let current: Vec<String> = Recipe::all().iter().map(folder_name).collect();
    let read_error = |source| CacheError::Read { path: images.clone(), source };
    let entries = match fs::read_dir(&images) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(read_error)?,
    };
    let mut listed = Vec::new();
    for entry in entries {
        let folder = entry.map_err(read_error)?.path();
        let Some(file_name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        if !folder.is_dir() {
            continue;
        }
        let unfinished = unfinished_of(file_name);
        let Some((name, short_hash)) = unfinished.unwrap_or(file_name).rsplit_once('-') else {
            continue;
        };
        let name = &name.replace(SLASH, "/");
        let manifest = if unfinished.is_some() { None } else { read_manifest(&folder) };
        // Of which file a kernel came is not known here.
        let is_current = |name: &str| {
            current.iter().any(|known| known == file_name)
                || kernel_path(name).is_some()
                || recipe(name).is_ok_and(|recipe| folder_name(&recipe) == file_name)
        };
        let current = unfinished.is_none() && is_current(name);
        listed.push(ImageEntry {
            name: name.to_owned(),
            short_hash: short_hash.to_owned(),
            size_bytes: size_on_disk(&folder),
            built_unix_s: manifest.as_ref().map(|manifest| manifest.built_unix_s),
            complete: manifest.is_some(),
            current,
            folder,
        });
    }
    listed.sort_by(|a, b| (&a.name, &a.folder).cmp(&(&b.name, &b.folder)));
    Ok(listed)
}

/// Removes the images whose name, hash (or the beginning of it) or
/// `name-hash12` is `wanted`, and returns them.
///
/// VMs that run from a removed image go on: QEMU holds the files open.
///
/// # Errors
/// [`CacheError`]; the images before the failing one are gone.
pub fn remove(wanted: &str) -> Result<Vec<ImageEntry>, CacheError> {
    remove_in(&cache_dir(), wanted)
}

fn remove_in(cache: &Path, wanted: &str) -> Result<Vec<ImageEntry>, CacheError> {
    let wanted = plain_name(wanted);
    let matches = |image: &ImageEntry| {
        let by_hash = wanted.len() >= 4 && image.short_hash.starts_with(wanted);
        let full = format!("{}-{}", image.name, image.short_hash);
        image.name == wanted || by_hash || full == wanted
    };
    let found: Vec<ImageEntry> = list_in(cache)?.into_iter().filter(matches).collect();
    if found.is_empty() {
        return Err(CacheError::NoSuchImage { wanted: wanted.to_owned() });
    }
    let images = images_dir(cache);
    for image in &found {
        let failed = |source| CacheError::Remove { path: image.folder.clone(), source };
        let name = folder_called(&image.name, &image.short_hash);
        let lock = open_lock(&images, &name).map_err(failed)?;
        if lock.try_lock().is_err() {
            return Err(CacheError::Busy { path: image.folder.clone() });
        }
        let mut leaving = image.folder.clone();
        if image.folder == images.join(&name) {
            // First the name goes, at once, so that nobody finds half an image.
            leaving = images.join(unfinished_name(&name));
            fs::rename(&image.folder, &leaving).map_err(failed)?;
        }
        fs::remove_dir_all(&leaving).map_err(failed)?;
    }
    Ok(found)
}

/// Bytes that a folder's files take on disk; what can't be read counts nothing.
fn size_on_disk(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => size_on_disk(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests;
