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
