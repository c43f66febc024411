//! Which vmlab goes to the other machine, and how it gets there.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use remote::{Patience, SshSession};
use runner::probe::MissingProbe;
use vmconfig::Arch;

use crate::terminal;

/// Where the programs lie there, below the folder for cached files, each version
/// of vmlab in a folder of its own.
const FOLDER: &str = "vmlab/bin";

/// Says whether the file `$1` is there, and that it is used, where it may.
const IS_THERE: &str = "test -f \"$1\" && { touch -- \"$1\" 2>/dev/null || :; }";

/// Removes what was not used for a month from the folder `$1`.
const PRUNE: &str = "find \"$1\" -type f -mtime +30 -exec rm -f -- {} +
find \"$1\" -depth -type d -exec rmdir -- {} + 2>/dev/null; :";

/// Copies the vmlab for the machine of `session`, and the guests' program of the
/// architecture `probe`, unless they are there; returns the path of vmlab.
pub(crate) fn bring(
    session: &SshSession,
    named: Option<&Path>,
    probe: Option<Arch>,
    patience: Patience<'_>,
) -> anyhow::Result<String> {
    let machine = session.machine();
    let Some(arch) = Arch::from_name(machine) else {
        bail!(
            "{} is a {machine}: vmlab has no VMs for that (it has x86_64 and aarch64)",
            session.destination()
        );
    };
    let program = choose(arch, named)?;
    let probe = probe.map(|arch| Ok::<_, MissingProbe>((arch, runner::probe::find(arch)?)));
    let probe = probe.transpose()?;
    // What is installed need not be copied.
    if let Some(installed) = installed(session, patience)? {
        let beside = probe.as_ref().map(|(arch, here)| (here, probe_beside(&installed, *arch)));
        let mut same = session.has_same(&program, &installed, patience)?;
        if let Some((here, there)) = beside.filter(|_| same) {
            same = session.has_same(here, &there, patience)?;
        }
        if same {
            return Ok(installed);
        }
    }
    let folder = format!("{}/{FOLDER}", session.cache_home());
    let there = format!("{folder}/{}/vmlab", hash(&program)?);
    if put_if_missing(session, &program, &there, 0o755, patience)? {
        session.command(["sh", "-c", PRUNE, "sh", &folder]).run(patience)?;
    }
    if let Some((arch, here)) = probe {
        // Another one may have been built for the same vmlab.
        let beside = probe_beside(&there, arch);
        let same =
            is_there(session, &beside, patience)? && session.has_same(&here, &beside, patience)?;
        if !same {
            put(session, &here, &beside, 0o755, patience)?;
        }
    }
    Ok(there)
}

/// The vmlab that the user there would run.
fn installed(session: &SshSession, patience: Patience<'_>) -> anyhow::Result<Option<String>> {
    let found = session.command(["sh", "-c", "command -v vmlab"]).output(patience)?;
    let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    Ok(path.starts_with('/').then_some(path))
}

/// Where a vmlab looks first for the guests' program.
fn probe_beside(vmlab: &str, arch: Arch) -> String {
    let folder = vmlab.rsplit_once('/').map_or("", |(folder, _)| folder);
    format!("{folder}/{}-{arch}", runner::probe::PROGRAM)
}

/// Copies the file `here`, and says so, if it is not there; true if it was not.
pub(crate) fn put_if_missing(
    session: &SshSession,
    here: &Path,
    there: &str,
    mode: u32,
    patience: Patience<'_>,
) -> anyhow::Result<bool> {
    if is_there(session, there, patience)? {
        return Ok(false);
    }
    put(session, here, there, mode, patience)?;
    Ok(true)
}

/// Copies the file `here`, and says so.
fn put(
    session: &SshSession,
    here: &Path,
    there: &str,
    mode: u32,
    patience: Patience<'_>,
) -> anyhow::Result<()> {
    let bytes = fs::metadata(here).map_or(0, |file| file.len());
    let size = record::Unit::from("B").show(bytes as f64);
    let name = here.file_name().unwrap_or_default().to_string_lossy();
    terminal::note(&format!("vmlab: copying {name} ({size}) to {}", session.destination()));
    Ok(session.put(here, there, mode, patience)?)
}

/// Whether a file is there; it then counts as used.
pub(crate) fn is_there(
    session: &SshSession,
    there: &str,
    patience: Patience<'_>,
) -> anyhow::Result<bool> {
    Ok(session.command(["sh", "-c", IS_THERE, "sh", there]).output(patience)?.code == 0)
}

/// First digits of a file's hash.
pub(crate) fn hash(path: &Path) -> anyhow::Result<String> {
    let hashed = || -> io::Result<_> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(File::open(path)?)?;
        Ok(hasher.finalize())
    };
    let hash = hashed().with_context(|| format!("Cannot read {}", path.display()))?;
    Ok(hash.to_hex()[..16].to_owned())
}

/// The program that was named, else a static one that is found by itself.
pub(super) fn choose(arch: Arch, named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(named) = named else {
        return crate::replica::static_vmlab(arch)
            .context("--remote-binary names the program that goes over");
    };
    let head = head(named).with_context(|| format!("Cannot read {}", named.display()))?;
    match machine_of(&head) {
        Some(machine) if machine == machine_number(arch) => Ok(named.to_owned()),
        Some(_) => bail!("{} is no program for {arch}, as the machine is", named.display()),
        None => bail!("{} is no program of Linux (ELF, 64 bits)", named.display()),
    }
}

fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(20).read_to_end(&mut head)?;
    Ok(head)
}

/// The machine for which a 64-bit little-endian ELF file is.
///
/// Source: `elf(5)`, `e_ident` and `e_machine`.
fn machine_of(head: &[u8]) -> Option<u16> {
    let machine = head.get(18..20)?.try_into().ok()?;
    head.starts_with(b"\x7fELF\x02\x01").then(|| u16::from_le_bytes(machine))
}

/// ELF's number of an architecture: `EM_X86_64`, `EM_AARCH64`.
fn machine_number(arch: Arch) -> u16 {
    match arch {
        Arch::X86_64 => 62,
        Arch::Aarch64 => 183,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_another_kind_is_refused() {
        let here = Arch::from_name(std::env::consts::ARCH).unwrap();
        let other = if here == Arch::X86_64 { Arch::Aarch64 } else { Arch::X86_64 };
        let own = std::env::current_exe().unwrap();
        assert_eq!(choose(here, Some(&own)).unwrap(), own);
        let error = choose(other, Some(&own)).unwrap_err().to_string();
        assert!(error.contains("no program for"), "{error}");
        let error = choose(here, Some(Path::new("/etc/passwd"))).unwrap_err().to_string();
        assert!(error.contains("no program of Linux"), "{error}");
    }
}
