//! Reads a sysfs and procfs tree into a [`Host`].
//!
//! The reader never fails. A machine may be odd (nodes numbered 0, 1, 16, 17;
//! pCPUs switched off; cores of several kinds), old (other file names), or a
//! container that shows half of it: what is missing stays absent in the model
//! and is named once in [`Host::warnings`].
//!
//! Source: Linux `Documentation/ABI/stable/sysfs-devices-system-cpu`,
//! `Documentation/ABI/stable/sysfs-devices-node`,
//! `Documentation/admin-guide/cputopology.rst`.

mod machine;
mod memory;
mod pcpus;
mod policies;
mod reader;
#[cfg(test)]
mod tests;

use crate::Host;
pub use memory::kib_line;
pub(crate) use pcpus::{kinds_by_capacity, kinds_by_frequency, number_threads, set_kinds};
use reader::SysfsReader;

/// A folder that holds `sys/` and `proc/`, or something that acts like one.
///
/// Paths are relative to it and have no slash in front:
/// `sys/devices/system/cpu/online`.
pub trait Tree {
    /// The text of a file; `None` if it does not exist or can't be read.
    fn read(&self, path: &str) -> Option<String>;

    /// Names of the entries of a folder, in any order; empty if it does not
    /// exist or can't be read.
    fn list(&self, path: &str) -> Vec<String>;
}

/// Reads the machine that the tree shows.
///
/// [`Host::qemu`] stays empty: no file tells what QEMU can do.
pub fn read_host(tree: &dyn Tree) -> Host {
    let mut reader = SysfsReader::new(tree);
    let mut host = Host::default();
    machine::read(&mut reader, &mut host);
    memory::read_nodes(&mut reader, &mut host);
    pcpus::read(&mut reader, &mut host);
    memory::read_memory(&mut reader, &mut host);
    policies::read(&mut reader, &mut host);
    host.warnings = reader.into_warnings();
    host
}
