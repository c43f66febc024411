//! Where the static vmlab is that is put into a replica.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use anyhow::bail;
use vmconfig::Arch;

/// Environment variable that names the folder with `<arch>/vmlab`, static.
const FOLDER_VARIABLE: &str = "VMLAB_STATIC";

/// A program header that names a dynamic linker (`PT_INTERP`).
const INTERPRETED: u32 = 3;

/// A static vmlab for `arch`: in the folder that the environment names, else
/// this very program if it is one, else beside it (`vmlab-<arch>`, as it is
/// released), else where `make static` puts it.
pub(crate) fn static_vmlab(arch: Arch) -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(FOLDER_VARIABLE).map(PathBuf::from);
    let mut looked_for: Vec<PathBuf> =
        named.iter().map(|folder| folder.join(arch.name()).join("vmlab")).collect();
    if let Ok(exe) = std::env::current_exe() {
        if arch.name() == std::env::consts::ARCH && is_static(&exe) {
            looked_for.push(exe.clone());
        }
        if let Some(folder) = exe.parent() {
            looked_for.push(folder.join(format!("vmlab-{arch}")));
            let profile = folder.file_name().unwrap_or(OsStr::from_bytes(b"release"));
            let target = format!("{arch}-unknown-linux-musl");
            // target/release/vmlab and target/<target>/release/vmlab.
            for above in ["..", "../.."] {
                for profile in [profile, OsStr::from_bytes(b"release")] {
                    let built = folder.join(above).join(&target).join(profile);
                    looked_for.push(built.join("vmlab"));
                }
            }
        }
    }
    if let Some(found) = looked_for.iter().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let shown: Vec<String> = looked_for.iter().map(|path| path.display().to_string()).collect();
    bail!(
        "There is no static vmlab for {arch} hosts (looked for {}): run `scripts/build-static {arch}`, or \
         name the folder with {arch}/vmlab in {FOLDER_VARIABLE}",
        shown.join(", ")
    )
}

/// True for an ELF program that needs no dynamic linker.
///
/// Source: `elf(5)`, 64-bit little-endian headers.
fn is_static(path: &Path) -> bool {
    let headers = || -> std::io::Result<bool> {
        let mut file = File::open(path)?;
        let mut head = [0; 64];
        file.read_exact(&mut head)?;
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let (offset, size, count) =
            (number(&head[32..40]), number(&head[54..56]), number(&head[56..58]));
        for index in 0..count {
            file.seek(SeekFrom::Start(offset + index * size))?;
            let mut kind = [0; 4];
            file.read_exact(&mut kind)?;
            if u32::from_le_bytes(kind) == INTERPRETED {
                return Ok(false);
            }
        }
        Ok(head.starts_with(b"\x7fELF"))
    };
    headers().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_tell_whether_they_need_a_linker() {
        let folder = tempfile::tempdir().unwrap();
        let text = folder.path().join("text");
        std::fs::write(&text, "no program").unwrap();
        assert!(!is_static(&text));
        // The tests themselves are built for the C library of this machine.
        let exe = std::env::current_exe().unwrap();
        assert_eq!(is_static(&exe), cfg!(target_feature = "crt-static"));
    }
}
