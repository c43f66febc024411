//! Users' own images: `image = "path"` in a study.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use schemars::JsonSchema;
use serde::Deserialize;
use vmconfig::DiskFormat;

/// An image of the user's own, which must hold a guest agent. It is booted
/// with `snapshot=on` and never written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnImage {
    /// The file, absolute.
    pub path: PathBuf,
    /// Its format, as `qemu-img` sees it.
    pub format: DiskFormat,
    /// Size of the disk that the guest sees, bytes.
    pub virtual_bytes: u64,
}

/// Error type for [`check_own`].
#[derive(Debug, thiserror::Error)]
pub enum OwnImageError {
    /// The file can't be read.
    #[error(
        "Cannot read the image {path:?}: give the path of a qcow2 or raw image, or builtin:debian-12"
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is something that can't be an image: a folder, a FIFO, a terminal.
    #[error(
        "{path:?} is not a file: give the path of a qcow2 or raw image, of a block device below /dev, or builtin:debian-12"
    )]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// There is no qemu-img.
    #[error("Cannot run qemu-img: run `apt-get install qemu-utils` (Fedora, SUSE: qemu-img)")]
    NoQemuImg {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// qemu-img does not take it.
    #[error("qemu-img cannot read {path:?}: {detail}")]
    Refused {
        /// The file.
        path: PathBuf,
        /// What it said.
        detail: String,
    },
    /// It has a format that we don't boot.
    #[error("{path:?} is a {format} image: convert it with `qemu-img convert -O qcow2`")]
    Format {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: String,
    },
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct ImageInfo {
    format: String,
    virtual_size: u64,
}

/// Looks at an image of the user's own: that it is there, and its format.
///
/// # Errors
/// [`OwnImageError`] says what to do next.
///
/// Source: `qemu-img info --output=json`.
pub fn check_own(path: &Path) -> Result<OwnImage, OwnImageError> {
    let read_error = |source| OwnImageError::Read { path: path.to_owned(), source };
    let absolute = path.canonicalize().map_err(read_error)?;
    // Not through open(): that would wait for a FIFO's other end.
    let kind = absolute.metadata().map_err(read_error)?.file_type();
    // A disk of this machine is meant only where it is called so.
    let called_device = kind.is_block_device() && path.starts_with("/dev");
    if !kind.is_file() && !called_device {
        return Err(OwnImageError::NotAFile { path: path.to_owned() });
    }
    std::fs::File::open(&absolute).map_err(read_error)?;
    let output = Command::new("qemu-img")
        // A VM that runs from the image holds a lock; looking is no writing.
        .args(["info", "--output=json", "--force-share"])
        .arg(&absolute)
        .output()
        .map_err(|source| OwnImageError::NoQemuImg { source })?;
    let refused = |detail: &str| OwnImageError::Refused {
        path: path.to_owned(),
        detail: detail.trim().to_owned(),
    };
    if !output.status.success() {
        return Err(refused(&String::from_utf8_lossy(&output.stderr)));
    }
    let info: ImageInfo =
        serde_json::from_slice(&output.stdout).map_err(|error| refused(&error.to_string()))?;
    let format = match info.format.as_str() {
        "qcow2" => DiskFormat::Qcow2,
        "raw" => DiskFormat::Raw,
        other => {
            return Err(OwnImageError::Format { path: path.to_owned(), format: other.to_owned() });
        }
    };
    Ok(OwnImage { path: absolute, format, virtual_bytes: info.virtual_size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_image_and_a_folder_are_said() {
        let folder = tempfile::tempdir().unwrap();
        let missing = check_own(&folder.path().join("none.qcow2")).unwrap_err();
        assert!(missing.to_string().contains("none.qcow2"), "{missing}");
        // Nor is it waited for the other end of a FIFO, or read without end.
        let fifo = folder.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for path in [folder.path(), &fifo, Path::new("/dev/zero"), Path::new("/dev/null")] {
            assert!(matches!(check_own(path), Err(OwnImageError::NotAFile { .. })), "{path:?}");
        }
    }

    #[test]
    fn formats_are_read_by_qemu_img() {
        if Command::new("qemu-img").arg("--version").output().is_err() {
            suite::skip("qemu-img is not installed");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let check = |format: &str, expected: Option<DiskFormat>| {
            let path = folder.path().join(format);
            let made = Command::new("qemu-img")
                .args(["create", "-q", "-f", format])
                .arg(&path)
                .arg("1M")
                .status()
                .unwrap();
            assert!(made.success());
            match (check_own(&path), expected) {
                (Ok(image), Some(format)) => {
                    assert_eq!((image.format, image.virtual_bytes), (format, 1 << 20));
                }
                (Err(OwnImageError::Format { .. }), None) => {}
                (other, _) => panic!("{format}: {other:?}"),
            }
        };
        check("qcow2", Some(DiskFormat::Qcow2));
        check("raw", Some(DiskFormat::Raw));
        check("vmdk", None);
    }
}
