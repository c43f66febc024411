//! The real libvirtd, in namespaces of its own; and libvirt's own test cases: domains, and
//! what libvirt makes of them. They come with its source package and are fetched, never
//! kept here.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Namespaces in which a libvirtd of the test's own is alone.
const NAMESPACES: [&str; 7] =
    ["--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "--net", "--ipc"];

/// Their first process, to which orphans belong. libvirt waits for a QEMU that it ends
/// until that is gone, so it must be collected at once: a shell does so while it waits for
/// a child, not while it reads what a command prints.
const COLLECTOR: &str = "exec 3<&0; \"$@\" <&3 3<&- & wait $!";

/// A command that runs `script`, behind a libvirtd in namespaces where it is alone
/// (`libvirtd.sh`); the command's further arguments are the script's. None where that can't
/// be had here, which it says.
pub fn beside_libvirtd(script: &str) -> Option<Command> {
    let namespaces = || {
        let mut command = Command::new("unshare");
        command.args(NAMESPACES).args(["sh", "-c"]);
        command
    };
    let try_it = "mount -t tmpfs none /run && PATH=$PATH:/usr/sbin command -v libvirtd";
    if !namespaces().arg(try_it).output().is_ok_and(|tried| tried.status.success()) {
        crate::skip("no libvirtd in namespaces of its own: be root and install it");
        return None;
    }
    let mut command = namespaces();
    let script = format!("{}{script}", include_str!("libvirtd.sh"));
    command.args([COLLECTOR, "collector", "sh", "-c", &script, "sh"]);
    Some(command)
}

/// A folder with libvirt's unpacked source, where there is one already.
const SOURCE: &str = "VMLAB_LIBVIRT_SOURCE";

/// Debian's release whose libvirt is asked. Its name is pinned: another libvirt
/// has other answers.
const RELEASE: &str = "trixie";

/// The folder of the cases of libvirt's QEMU driver (`NAME.xml` with
/// `NAME.ARCH-latest.args` or `.err`); beside it is `domaincapsdata`, what the hosts
/// of these cases can do. Gets the source package by apt, in a state
/// of its own in the folder `into`, unless `VMLAB_LIBVIRT_SOURCE` names one.
///
/// # Errors
/// What apt or tar said.
pub fn libvirts_cases(into: &Path) -> Result<PathBuf, String> {
    let source = match std::env::var_os(SOURCE) {
        Some(path) => PathBuf::from(path),
        None => fetch(into)?,
    };
    Ok(source.join("tests/qemuxmlconfdata"))
}

fn fetch(into: &Path) -> Result<PathBuf, String> {
    let said = |error: std::io::Error| error.to_string();
    for folder in ["state/lists/partial", "cache/archives/partial"] {
        std::fs::create_dir_all(into.join(folder)).map_err(said)?;
    }
    let list = into.join("sources.list");
    let keys = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let line = format!("deb-src [signed-by={keys}] http://deb.debian.org/debian {RELEASE} main\n");
    std::fs::write(&list, line).map_err(said)?;
    let settings = [
        format!("Dir::Etc::sourcelist={}", list.display()),
        "Dir::Etc::sourceparts=-".to_owned(),
        format!("Dir::State={}", into.join("state").display()),
        "Dir::State::status=/var/lib/dpkg/status".to_owned(),
        format!("Dir::Cache={}", into.join("cache").display()),
        "Acquire::Languages=none".to_owned(),
    ];
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        settings.iter().for_each(|one| {
            command.args(["-o", one]);
        });
        command.args(arguments).current_dir(into).output().map_err(said)
    };
    apt(&["update"])?;
    // The tarball is all that is needed; a mirror may lack a file beside it.
    let got = apt(&["source", "--download-only", "libvirt"])?;
    let files = std::fs::read_dir(into).map_err(said)?;
    let tarball = files
        .filter_map(|file| Some(file.ok()?.path()))
        .find(|path| path.to_string_lossy().ends_with(".orig.tar.xz"))
        .ok_or_else(|| String::from_utf8_lossy(&got.stderr).into_owned())?;
    let unpacked = Command::new("tar")
        .args(["--strip-components=1", "--wildcards", "-xf"])
        .arg(tarball)
        .args(["-C", "."])
        .args(["*/tests/qemuxmlconfdata/*", "*/tests/domaincapsdata/*"])
        .current_dir(into)
        .output()
        .map_err(said)?;
    let text = String::from_utf8_lossy(&unpacked.stderr).into_owned();
    if unpacked.status.success() { Ok(into.to_owned()) } else { Err(text) }
}
