//! Where vmlab keeps on this machine what outlives a command and a reboot.

use std::path::PathBuf;

/// The folder: one for the whole machine where root asks, for two vmlabs must see what each
/// other keeps; else the user's own (`$XDG_STATE_HOME/vmlab`).
#[must_use]
pub fn state_dir() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/vmlab");
    }
    let from = |variable: &str| {
        std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
    };
    from("XDG_STATE_HOME")
        .or_else(|| Some(from("HOME")?.join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/tmp"))
        .join("vmlab")
}
