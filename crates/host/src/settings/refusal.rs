//! Why a setting can't be read or set on this machine, in words that say what
//! to do.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Why a setting can't be read or set here. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingRefusal {
    /// A file is not there.
    #[error("/{path} is not there: {hint}")]
    Absent {
        /// The file, below the root folder.
        path: String,
        /// What that means, or what to do.
        hint: String,
    },
    /// A file can't be read, or says what is not understood.
    #[error("/{path} can't be read: {why}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// Only root may.
    #[error("/{path} is root's: changing host settings takes root (sudo)")]
    NotRoot {
        /// The file.
        path: String,
    },
    /// Mounted read-only.
    #[error("/{path} lies on a read-only file system, as in a container: run vmlab on the host")]
    ReadOnlyFiles {
        /// The file.
        path: String,
    },
    /// Not even root may.
    #[error("/{path} can't be written by root either: {why}")]
    Forbidden {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
    /// None of the modules that have it is there.
    #[error("Module {modules} is not loaded: `modprobe` it, or this host has no use for it")]
    NoModule {
        /// The modules, any of which would do.
        modules: String,
    },
    /// A parameter that is only taken when the module is loaded.
    #[error(
        "Parameter {parameter} of module {module} is only taken when the module is loaded: allow that with `reload` (no VM may run then)"
    )]
    NeedsReload {
        /// The module.
        module: String,
        /// The parameter.
        parameter: String,
    },
    /// A module that can't be taken out.
    #[error(
        "Module {module} is built into this kernel, which takes {what} from its command line only"
    )]
    BuiltIn {
        /// The module.
        module: String,
        /// What to write there.
        what: String,
    },
    /// Somebody uses the module.
    #[error("Module {module} is in use ({users} users; a VM that runs is one): end them first")]
    ModuleInUse {
        /// The module.
        module: String,
        /// How many.
        users: u64,
    },
    /// Modules can't be loaded or taken out.
    #[error("Modules can't be loaded or taken out here: {why}")]
    NoModules {
        /// Why.
        why: String,
    },
    /// The kernel takes it when it boots only.
    #[error("The kernel takes it from its command line only: boot with {what}")]
    BootOnly {
        /// What to write there.
        what: String,
    },
    /// This machine offers other values.
    #[error("It can't be {value:?} here, where there are {}", .offered.join(", "))]
    NotOffered {
        /// The value.
        value: String,
        /// What the machine offers.
        offered: Vec<String>,
    },
    /// The machine lacks something that the value names.
    #[error("This host has no {what}")]
    NoSuch {
        /// What: `node 3`, `pCPU 9`.
        what: String,
    },
    /// Nothing would be left for anybody else.
    #[error("{what}: leave at least one pCPU")]
    NothingLeft {
        /// What would take all.
        what: String,
    },
    /// A PCI device can't be had.
    #[error("PCI device {address} can't be given to a guest: {why}")]
    Device {
        /// The device.
        address: String,
        /// Why.
        why: String,
    },
    /// cgroup v2 can't do it here.
    #[error("{0}")]
    Cgroup(String),
}

impl SettingRefusal {
    /// The same in a few words, for a table.
    #[must_use]
    pub fn short(&self) -> String {
        match self {
            Self::Absent { .. } => "not there".to_owned(),
            Self::Unreadable { .. } => "can't be read".to_owned(),
            Self::NotRoot { .. } => "takes root".to_owned(),
            Self::ReadOnlyFiles { .. } => "read-only file system".to_owned(),
            Self::Forbidden { .. } => "read-only".to_owned(),
            Self::NoModule { modules } => format!("module {modules} not loaded"),
            Self::NeedsReload { module, .. } => format!("needs a reload of {module}"),
            Self::BuiltIn { .. } | Self::BootOnly { .. } => "kernel command line only".to_owned(),
            Self::ModuleInUse { module, .. } => format!("module {module} in use"),
            Self::NoModules { .. } => "modules can't be changed".to_owned(),
            Self::NotOffered { .. } | Self::NoSuch { .. } => "nothing to choose".to_owned(),
            Self::NothingLeft { .. } => "one pCPU only".to_owned(),
            Self::Device { .. } => "device in use".to_owned(),
            Self::Cgroup(_) => "no cpuset in cgroup v2".to_owned(),
        }
    }
}

/// Whether a file of the kernel can be written; `path` is for the message.
pub(super) fn check_writable(file: &Path, path: &str) -> Result<(), SettingRefusal> {
    let path = path.to_owned();
    let absent = |path| SettingRefusal::Absent { hint: "this kernel lacks it".to_owned(), path };
    let Ok(about) = fs::metadata(file) else { return Err(absent(path)) };
    // Root's right to write anything holds for ordinary files only, but a
    // saved tree consists of those.
    if about.permissions().mode() & 0o222 == 0 {
        let why = "the kernel made it read-only".to_owned();
        return Err(SettingRefusal::Forbidden { path, why });
    }
    // Opening for writing changes nothing yet.
    let Err(error) = fs::OpenOptions::new().write(true).open(file) else { return Ok(()) };
    Err(match error.kind() {
        io::ErrorKind::NotFound => absent(path),
        io::ErrorKind::ReadOnlyFilesystem => SettingRefusal::ReadOnlyFiles { path },
        io::ErrorKind::PermissionDenied if !rustix::process::geteuid().is_root() => {
            SettingRefusal::NotRoot { path }
        }
        io::ErrorKind::PermissionDenied => {
            let why = "the kernel is locked down, or this container may not".to_owned();
            SettingRefusal::Forbidden { path, why }
        }
        _ => SettingRefusal::Forbidden { path, why: error.to_string() },
    })
}
