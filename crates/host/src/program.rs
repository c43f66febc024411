//! Where a program is on this machine.

use std::path::PathBuf;

/// Where `program` is; root's folders count, whoever asks.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    first(in_path().chain(usual), program)
}

/// True if `program` is in a folder of PATH: it can be started by its name alone.
#[must_use]
pub fn is_in_path(program: &str) -> bool {
    first(in_path(), program).is_some()
}

fn in_path() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect::<Vec<_>>().into_iter()
}

fn first(mut folders: impl Iterator<Item = PathBuf>, program: &str) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join(program)).filter(|path| path.is_file()))
}
