//! Which QEMU there is on this machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use vmconfig::Arch;
use vmconfig::qemu::{Capabilities, UnusableVersion};

/// A QEMU that vmlab can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Qemu {
    /// The program, absolute.
    pub path: PathBuf,
    /// The first line of `--version`.
    pub version_text: String,
    /// What this version can do.
    pub capabilities: Capabilities,
    /// The accelerators that it was built with: `tcg`, `kvm`, ...
    pub accelerators: Vec<String>,
}

impl Qemu {
    /// Whether it is one that `scripts/build-qemu` made, in which interrupts of an
    /// emulated AMD host come right and patched code is seen.
    #[must_use]
    pub fn is_mended(&self) -> bool {
        is_mended(&self.version_text)
    }

    /// Whether it finds a file of this name by itself, as it does a firmware's.
    ///
    /// Source: qemu(1), `-L`; `qemu-system-x86_64 -L help`.
    #[must_use]
    pub fn finds(&self, name: &str) -> bool {
        let said = Command::new(&self.path).args(["-L", "help"]).output();
        said.is_ok_and(|Output { stdout, .. }| {
            is_in_one_of(&String::from_utf8_lossy(&stdout), name)
        })
    }
}

/// Whether one of the folders, one a line, has such a file.
fn is_in_one_of(folders: &str, name: &str) -> bool {
    folders.lines().any(|folder| Path::new(folder).join(name).is_file())
}

/// What `scripts/build-qemu` has its QEMU say of itself; with another number of changes it
/// is an older one.
const MENDED: &str = "mended for vmlab replicas, 7 changes";

/// As [`Qemu::is_mended`], by the first line of `--version`.
#[must_use]
pub fn is_mended(version_text: &str) -> bool {
    version_text.contains(MENDED)
}

/// Error type for [`find_qemu`].
#[derive(Debug, thiserror::Error)]
pub enum FindQemuError {
    /// There is none.
    #[error(
        "{program} is not installed: run `apt-get install {debian}` (Fedora: `dnf install {fedora}`, SUSE: `zypper install {suse}`)"
    )]
    Missing {
        /// The program.
        program: String,
        /// Debian's and Ubuntu's package.
        debian: &'static str,
        /// Fedora's package.
        fedora: &'static str,
        /// SUSE's package.
        suse: &'static str,
    },
    /// It can't be run.
    #[error("Cannot run {path:?}")]
    Run {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is too old, or something else.
    #[error("Cannot use {path:?}")]
    Unusable {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        source: UnusableVersion,
    },
}

/// Looks for `qemu-system-<arch>` in PATH and asks it for its version and its
/// accelerators.
///
/// # Errors
/// [`FindQemuError`] says what to install. The oldest version that is used is
/// 6.2 (Ubuntu 22.04): see [`UnusableVersion`].
///
/// Source: `qemu-system-x86_64 --version`, `-accel help`.
pub fn find_qemu(arch: Arch) -> Result<Qemu, FindQemuError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(arch, std::env::split_paths(&path))
}

/// The QEMU that emulates a whole host: the one that `scripts/build-qemu` put into
/// vmlab's cache if it is there, otherwise that of [`find_qemu`].
///
/// # Errors
/// As [`find_qemu`].
pub fn find_emulator(arch: Arch) -> Result<Qemu, FindQemuError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mended = crate::image::cache_dir().join("qemu-mended");
    find_in(arch, std::iter::once(mended).chain(std::env::split_paths(&path)))
}

fn find_in(arch: Arch, mut folders: impl Iterator<Item = PathBuf>) -> Result<Qemu, FindQemuError> {
    let program = format!("qemu-system-{}", arch.name());
    // QEMU is started with an absolute path, whatever the folder is then.
    let found = folders.find_map(|folder| {
        let candidate = folder.join(&program);
        candidate.is_file().then(|| std::path::absolute(&candidate).unwrap_or(candidate))
    });
    let Some(path) = found else {
        let (debian, fedora, suse) = match arch {
            Arch::X86_64 => ("qemu-system-x86", "qemu-system-x86-core", "qemu-x86"),
            Arch::Aarch64 => ("qemu-system-arm", "qemu-system-aarch64-core", "qemu-arm"),
        };
        return Err(FindQemuError::Missing { program, debian, fedora, suse });
    };
    let ask = |arguments: &[&str]| -> Result<String, FindQemuError> {
        let Output { stdout, stderr, .. } = Command::new(&path)
            .args(arguments)
            .output()
            .map_err(|source| FindQemuError::Run { path: path.clone(), source })?;
        let said = if stdout.is_empty() { stderr } else { stdout };
        Ok(String::from_utf8_lossy(&said).into_owned())
    };
    let text = ask(&["--version"])?;
    let capabilities = Capabilities::from_version_text(&text)
        .map_err(|source| FindQemuError::Unusable { path: path.clone(), source })?;
    let accelerators = parse_accelerators(&ask(&["-accel", "help"])?);
    let version_text = text.lines().next().unwrap_or_default().to_owned();
    Ok(Qemu { path, version_text, capabilities, accelerators })
}

/// One name a line behind a heading.
fn parse_accelerators(text: &str) -> Vec<String> {
    text.lines().filter(|line| !line.contains(' ')).map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn found(script: &str) -> Result<Qemu, FindQemuError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("qemu-system-x86_64");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        find_in(Arch::X86_64, [folder.path().to_owned()].into_iter())
    }

    #[test]
    fn a_usable_qemu_is_described() {
        // What 7.2 of Debian 12 prints.
        let qemu = found(
            "case $1 in\n\
             --version) echo 'QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)' ;;\n\
             *) printf 'Accelerators supported in QEMU binary:\\nqtest\\nxen\\ntcg\\nkvm\\n' ;;\n\
             esac",
        )
        .unwrap();
        assert_eq!(qemu.capabilities.version.to_string(), "7.2.22");
        assert_eq!(qemu.accelerators, ["qtest", "xen", "tcg", "kvm"]);
    }

    #[test]
    fn a_mended_qemu_has_all_changes_that_the_script_makes() {
        let script = include_str!("../../../scripts/build-qemu");
        assert!(script.contains(&format!("\nmended='{MENDED}'\n")));
        assert!(is_mended(&format!("QEMU emulator version 7.2.22 ({MENDED})")));
        assert!(!is_mended("QEMU emulator version 7.2.22 (mended for vmlab replicas)"));
        assert!(!is_mended("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"));
    }

    #[test]
    fn a_firmware_is_found_in_any_folder_that_it_names() {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join("here.rom"), "").unwrap();
        std::fs::create_dir(data.path().join("folder.rom")).unwrap();
        let folders = format!("/does/not/exist\n{}\n", data.path().display());
        let found =
            ["here.rom", "other.rom", "folder.rom"].map(|name| is_in_one_of(&folders, name));
        assert_eq!(found, [true, false, false]);
    }

    #[test]
    fn what_cannot_be_used_says_what_to_do() {
        let old = found("echo 'QEMU emulator version 5.2.0 (Debian)'").unwrap_err();
        let text = old.source().unwrap().to_string();
        assert!(text.contains("5.2.0") && text.contains("6.2"), "{text}");
        let missing = find_in(Arch::Aarch64, std::iter::empty()).unwrap_err().to_string();
        assert!(
            missing.contains("qemu-system-aarch64") && missing.contains("qemu-system-arm"),
            "{missing}"
        );
    }
}
