//! Where vmlab keeps on this machine what outlives a command and a reboot.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// The folder: one for the whole machine where root asks, for two vmlabs must see what each
/// other keeps; else the user's own.
#[must_use]
pub fn state_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/vmlab");
    }
    user_state_dir().unwrap_or_else(|| PathBuf::from("/var/tmp/vmlab"))
}

/// The user's own folder, root's too: `$XDG_STATE_HOME/vmlab`, else `~/.local/state/vmlab`.
/// `None` for a user without a home.
#[must_use]
pub fn user_state_dir() -> Option<PathBuf> {
    let from = |variable: &str| {
        std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")));
    Some(state?.join("vmlab"))
}

/// A file or folder that can't be made or read.
#[derive(Debug, thiserror::Error)]
#[error("Cannot {doing} {}", path.display())]
pub struct FileError {
    /// `make`, `read`...
    pub doing: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl FileError {
    /// The error of doing so with `path`.
    pub fn of(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self { doing, path, source }
    }
}

/// What is kept, in words for people, and the commands that list and make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptKind {
    /// One: `replica`.
    pub one: &'static str,
    /// Several: `replicas`.
    pub several: &'static str,
    /// Shows those that there are: `vmlab replica list`.
    pub list: &'static str,
    /// Makes one: `vmlab replica up`.
    pub make: &'static str,
}

/// Why a name, or none, means no one of what is kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateLookupError {
    /// None has that name.
    #[error("There is no {} {name:?}: `{}` shows those that there are", kind.one, kind.list)]
    Unknown {
        /// What was looked for.
        kind: KeptKind,
        /// The name.
        name: String,
    },
    /// There is none at all.
    #[error("There is no {}: make one with `{}`", .0.one, .0.make)]
    None(KeptKind),
    /// No name was given, and there are several.
    #[error("There are several {} ({}): name one", kind.several, names.join(", "))]
    Several {
        /// What was looked for.
        kind: KeptKind,
        /// Their names.
        names: Vec<String>,
    },
}

/// The one called `wanted`, or the only one if no name is given.
///
/// # Errors
/// [`StateLookupError`].
pub fn one_of<T>(
    kind: KeptKind,
    mut all: Vec<T>,
    wanted: Option<&str>,
    name: impl Fn(&T) -> &str,
) -> Result<T, StateLookupError> {
    match wanted {
        Some(wanted) => all
            .into_iter()
            .find(|one| name(one) == wanted)
            .ok_or_else(|| StateLookupError::Unknown { kind, name: wanted.to_owned() }),
        None if all.len() > 1 => {
            let names = all.iter().map(|one| name(one).to_owned()).collect();
            Err(StateLookupError::Several { kind, names })
        }
        None => all.pop().ok_or(StateLookupError::None(kind)),
    }
}

/// The folders below `root` in each of which a JSON file called `made` tells what it is, by
/// name. One that is being made or removed at this moment has no such file, and is left out,
/// as is one whose file is of another kind; without `root` there is none.
///
/// # Errors
/// `root` can't be read.
pub fn kept<M: DeserializeOwned>(root: &Path, made: &str) -> io::Result<Vec<(String, PathBuf, M)>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let folder = entry?.path();
        let Ok(text) = fs::read_to_string(folder.join(made)) else { continue };
        let Ok(made) = serde_json::from_str(&text) else { continue };
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        found.push((name.to_owned(), folder, made));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}
