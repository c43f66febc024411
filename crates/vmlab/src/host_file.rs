//! A machine that is not this one: shared by the subcommands that take
//! `--host FILE`.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use topology::Host;

/// Reads the machine that `path` describes: a saved host file, or a folder
/// with copies of /sys and /proc.
///
/// # Errors
/// A path that cannot be read or does not describe a machine.
pub(crate) fn load_host(path: &Path) -> anyhow::Result<Host> {
    if path.is_dir() {
        host::snapshot::check_root(path)?;
        return Ok(host::snapshot::live(path));
    }
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| format!("Cannot read {name}"))?;
    Host::from_json(&text).with_context(|| format!("{name} describes no host"))
}
