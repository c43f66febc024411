//! A machine that is not this one: shared by the subcommands that take
//! `--host FILE`.

use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use topology::{DescribedMachine, Host, read_description};

use crate::input;

/// Reads the machine that `path` describes: a saved host file, the output of
/// `lscpu`, `lstopo --of xml`, `virsh capabilities` or `numactl -H`, a folder
/// with copies of /sys and /proc, or '-' for standard input.
///
/// What the description could not know is absent in the host and named in its
/// warnings.
///
/// # Errors
/// A path that cannot be read or does not describe a machine.
pub(crate) fn load_host(path: &Path) -> anyhow::Result<Host> {
    if path.is_dir() {
        host::snapshot::check_root(path)?;
        return Ok(host::snapshot::live(path));
    }
    Ok(read(path)?.into_host())
}

/// Reads several descriptions of one machine, which complete each other; the
/// first one counts where two tell the same.
///
/// # Errors
/// Those of [`load_host`]; descriptions of different machines.
pub(crate) fn load_merged(paths: &[impl AsRef<Path>]) -> anyhow::Result<Host> {
    if let [path] = paths {
        return load_host(path.as_ref());
    }
    let mut merged: Option<DescribedMachine> = None;
    for path in paths {
        let described = read(path.as_ref())?;
        merged = Some(match merged {
            None => described,
            Some(before) => before.merge(described)?,
        });
    }
    Ok(merged.context("No file describes the host")?.into_host())
}

fn read(path: &Path) -> anyhow::Result<DescribedMachine> {
    let stdin = path == Path::new("-");
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let mut bytes = Vec::new();
    input::open(path, input::MAX_TEXT_BYTES)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .with_context(|| format!("Cannot read {name}"))?;
    Ok(read_description(&name, &bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn testdata(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../topology/testdata").join(name)
    }

    #[test]
    fn one_file_names_what_it_does_not_tell() {
        let host = load_host(&testdata("numactl-2.0.16/two-sockets.txt")).expect("a host");
        assert_eq!(host.nodes.len(), 4);
        let warning = host.warnings.last().expect("a warning");
        assert!(warning.starts_with("Not told by numactl -H: "), "{warning}");
        assert!(warning.contains("which pCPUs are threads of one core"), "{warning}");
    }

    #[test]
    fn files_complete_each_other() {
        let table = testdata("util-linux-2.38.1/two-sockets.extended.txt");
        let nodes = testdata("numactl-2.0.16/two-sockets.txt");
        let host = load_merged(&[table, nodes.clone()]).expect("a host");
        assert_eq!(host.nodes[3].memory_bytes, Some(32 << 30));
        assert_eq!(host.pcpu(22).and_then(|pcpu| pcpu.thread), Some(1));
        let other = testdata("numactl-2.0.16/three-nodes.txt");
        let error = load_merged(&[nodes, other]).expect_err("two machines").to_string();
        assert!(error.contains("describe different machines"), "{error}");
    }

    #[test]
    fn errors_name_the_file() {
        let error = load_host(&testdata("README.md")).expect_err("no host").to_string();
        assert!(error.contains("README.md:1: not a host description"), "{error}");
        assert!(error.contains("numactl -H"), "{error}");
        let error = load_host(&testdata("missing")).expect_err("no file").to_string();
        assert!(error.contains("Cannot read"), "{error}");
    }
}
