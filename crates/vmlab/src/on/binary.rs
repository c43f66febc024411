//! Which vmlab goes to the other machine, and how it gets there.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use remote::{Patience, Session};
use vmconfig::Arch;

use crate::terminal;

/// Where the programs lie there, below the home folder.
const FOLDER: &str = ".cache/vmlab/bin";

/// Says whether the file `$1` is there; one that is used stays.
const IS_THERE: &str = "test -f \"$1\" && touch -- \"$1\"";

/// Removes what was not used for a month from the folder `$1`.
const PRUNE: &str = "find \"$1\" -type f -mtime +30 -exec rm -f -- {} +";

/// Copies the vmlab for the machine of `session`, unless it is there; returns its
/// path.
pub(crate) fn bring(
    session: &Session,
    named: Option<&Path>,
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
    let name = format!("vmlab-{}", hash(&program)?);
    let folder = format!("{}/{FOLDER}", session.home());
    let there = format!("{folder}/{name}");
    if put_if_missing(session, &program, &there, 0o755, patience)? {
        session.command(["sh", "-c", PRUNE, "sh", &folder]).run(patience)?;
    }
    Ok(there)
}

/// Copies the guests' program of `arch`; returns the folder that the far side is
/// told of.
pub(crate) fn bring_probe(
    session: &Session,
    arch: Arch,
    patience: Patience<'_>,
) -> anyhow::Result<String> {
    let program = runner::probe::find(arch)?;
    let folder = format!("{}/{FOLDER}/probe-{}", session.home(), hash(&program)?);
    let there = format!("{folder}/{arch}/{}", runner::probe::PROGRAM);
    put_if_missing(session, &program, &there, 0o755, patience)?;
    Ok(folder)
}

/// Copies the file `here`, and says so, if it is not there; true if it was not.
pub(crate) fn put_if_missing(
    session: &Session,
    here: &Path,
    there: &str,
    mode: u32,
    patience: Patience<'_>,
) -> anyhow::Result<bool> {
    let found = session.command(["sh", "-c", IS_THERE, "sh", there]).output(patience)?;
    if found.code == 0 {
        return Ok(false);
    }
    let bytes = fs::metadata(here).map_or(0, |file| file.len());
    let size = record::Unit::from("B").show(bytes as f64);
    let name = here.file_name().unwrap_or_default().to_string_lossy();
    terminal::note(&format!("vmlab: copying {name} ({size}) to {}", session.destination()));
    session.put(here, there, mode, patience)?;
    Ok(true)
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

/// The program that was named, else this one, if it runs anywhere; else a static
/// one beside it.
fn choose(arch: Arch, named: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(named) = named {
        let found = Elf::of_file(named)
            .with_context(|| format!("Cannot read the program {}", named.display()))?;
        return match found {
            Some(elf) if elf.arch == Some(arch) => Ok(named.to_owned()),
            Some(_) => bail!("{} is no program for {arch}, as the machine is", named.display()),
            None => bail!("{} is no program of Linux (ELF, 64 bits)", named.display()),
        };
    }
    let own = std::env::current_exe().context("This program's own file can't be found")?;
    let folder = own.parent().unwrap_or(Path::new("/"));
    let built = format!("{arch}-unknown-linux-musl/release/vmlab");
    // As it is released; target/release and target/<target>/release.
    let beside = [
        folder.join(format!("vmlab-{arch}")),
        folder.join("..").join(&built),
        folder.join("../..").join(&built),
    ];
    let is_right = |path: &PathBuf| {
        Elf::of_file(path)
            .is_ok_and(|elf| elf.is_some_and(|elf| elf.is_static && elf.arch == Some(arch)))
    };
    if let Some(found) = std::iter::once(own.clone()).chain(beside.clone()).find(is_right) {
        return Ok(found);
    }
    let looked_for: Vec<_> = beside.iter().map(|path| path.display().to_string()).collect();
    bail!(
        "There is no static vmlab for {arch} (looked for {}): run `make static`{}, or name one with --remote-binary",
        looked_for.join(", "),
        if arch.name() == std::env::consts::ARCH { "" } else { " on such a machine" }
    )
}

/// What the head of a program's file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Elf {
    arch: Option<Arch>,
    /// No loader and no libraries are asked for.
    is_static: bool,
}

impl Elf {
    fn of_file(path: &Path) -> io::Result<Option<Self>> {
        use io::Read;
        let mut head = Vec::new();
        File::open(path)?.take(4096).read_to_end(&mut head)?;
        Ok(Self::of(&head))
    }

    /// None if it is no 64-bit little-endian ELF file.
    ///
    /// Source: System V ABI, `elf(5)`.
    fn of(head: &[u8]) -> Option<Self> {
        const PT_INTERP: u32 = 3;
        let half = |at: usize| Some(u16::from_le_bytes(head.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let xword = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
        if head.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let arch = match half(18)? {
            62 => Some(Arch::X86_64),
            183 => Some(Arch::Aarch64),
            _ => None,
        };
        let (table, size, count) = (usize::try_from(xword(32)?).ok()?, half(54)?, half(56)?);
        let starts = (0..count).map(|n| table.saturating_add(usize::from(n) * usize::from(size)));
        let kinds = starts.map(word).collect::<Option<Vec<_>>>()?;
        Some(Self { arch, is_static: !kinds.contains(&PT_INTERP) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_known_by_their_heads() {
        let own = Elf::of_file(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert_eq!(own.arch, Arch::from_name(std::env::consts::ARCH));
        // The tests' program is linked as the others of its target.
        assert_eq!(own.is_static, cfg!(target_env = "musl"));
        assert_eq!(Elf::of(b"#!/bin/sh\n"), None);
        assert_eq!(Elf::of(b"\x7fELF\x02\x01"), None);
    }

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
        let error = choose(other, None).unwrap_err().to_string();
        assert!(error.contains("make static") && error.contains("--remote-binary"), "{error}");
    }
}
