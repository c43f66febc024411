//! A writer of initramfs archives: cpio "newc", uncompressed.
//!
//! Written here rather than by `cpio`, because a device node (`/dev/console`)
//! in an archive needs no privilege, while one in a folder does.
//!
//! Source: Linux `Documentation/driver-api/early-userspace/buffer-format.rst`.

/// An archive under construction. All entries belong to root.
#[derive(Debug, Default, Clone)]
pub struct Archive {
    bytes: Vec<u8>,
    inode: u32,
}

impl Archive {
    /// Adds a folder.
    pub fn folder(&mut self, path: &str) {
        self.entry(path, 0o040_755, (0, 0), &[]);
    }

    /// Adds a file with these permission bits.
    pub fn file(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entry(path, 0o100_000 | (mode & 0o7777), (0, 0), content);
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, 0o120_777, (0, 0), target.as_bytes());
    }

    /// Adds a character device.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) {
        self.entry(path, 0o020_600, (major, minor), &[]);
    }

    /// Ends the archive and returns its bytes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, device: (u32, u32), content: &[u8]) {
        self.inode += 1;
        let size = u32::try_from(content.len()).expect("initramfs members are far below 4 GiB");
        let name_size = u32::try_from(path.len() + 1).expect("paths are short");
        // ino, mode, uid, gid, nlink, mtime, filesize, dev, rdev, namesize, check
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_the_documented_bytes() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).unwrap();
        let header = "070701\
            00000001000081ed00000000000000000000000100000000\
            00000005\
            00000000000000000000000000000000\
            0000000500000000";
        assert!(text.starts_with(&format!("{header}init\0\0hello\0\0\0070701")), "{text:?}");
        assert!(text.contains("TRAILER!!!\0") && text.len().is_multiple_of(4));
    }
}
