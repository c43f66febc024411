//! The machine whose settings are changed: where its files are, and how they
//! are written.

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The machine whose settings are read and changed.
#[derive(Debug, Clone)]
pub struct SettingsTree {
    /// The folder in which `sys/` and `proc/` lie.
    pub(super) root: PathBuf,
    /// Where journals of changed settings lie: outside any results folder, so
    /// that they are found after a crash.
    pub(super) state_dir: PathBuf,
    pub(super) kernel: Arc<dyn KernelTree>,
}

impl SettingsTree {
    /// This machine.
    #[must_use]
    pub fn live() -> Self {
        Self {
            root: "/".into(),
            state_dir: crate::state_dir::state_dir().join("settings"),
            kernel: Arc::new(Linux),
        }
    }

    /// The machine whose files lie below `root`, where its journals lie, too,
    /// in `var/lib/vmlab/settings`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        let state_dir = root.join(STATE_DIR);
        Self { root: root.to_owned(), state_dir, kernel: Arc::new(Linux) }
    }

    /// Where its files lie.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// The file of that name, which has no leading slash.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The text of a file, without space around it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn text(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path(name)).map(|text| text.trim().to_owned())
    }

    /// Writes a file that is there.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        self.kernel.write(&self.path(name), text)
    }

    /// The kernel's name of a block device, given as a path below `/dev` or as a link to
    /// one.
    pub(crate) fn block_name(&self, path: &Path) -> Option<String> {
        let path = self.root.join(path.strip_prefix("/").ok()?);
        let name = fs::canonicalize(path).ok()?.file_name()?.to_str()?.to_owned();
        self.has(&format!("sys/class/block/{name}")).then_some(name)
    }

    /// Names in a folder, sorted; none when it can't be read.
    pub(crate) fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The numbers behind `prefix` in the names of a folder, sorted.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Vec<u32> {
        let names = self.list(folder);
        let number = |name: &String| name.strip_prefix(prefix)?.parse().ok();
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        numbers
    }
}

const STATE_DIR: &str = "var/lib/vmlab/settings";

/// The four ways in which a setting is changed.
pub(super) trait KernelTree: fmt::Debug + Send + Sync {
    /// Writes a file that is there.
    fn write(&self, file: &Path, text: &str) -> io::Result<()>;
    /// Makes a folder.
    fn make_folder(&self, folder: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;
    /// Runs a program; what it says on standard error is the error.
    fn run(&self, program: &Path, args: &[&str]) -> io::Result<()>;
}

/// The real one.
#[derive(Debug)]
pub(super) struct Linux;

impl KernelTree for Linux {
    fn write(&self, file: &Path, text: &str) -> io::Result<()> {
        // Not fs::write, which would create a file where the kernel has none.
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(file)?;
        file.write_all(text.as_bytes())
    }

    fn make_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir(folder)
    }

    fn run(&self, program: &Path, args: &[&str]) -> io::Result<()> {
        let ran = Command::new(program).args(args).stdin(Stdio::null()).output()?;
        if ran.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ran.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        Err(io::Error::other(format!("{} {}: {last}", program.display(), args.join(" "))))
    }
}
