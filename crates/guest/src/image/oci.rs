//! Container images, written without a container engine: OCI archives and layouts of one
//! layer, the same bytes from the same files.
//!
//! Source: OCI image format specification 1.0 (image-layout, manifest, config); KubeVirt's
//! user guide, "containerDisk" (files below `/disk`, readable by 107:107).

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use vmconfig::Arch;

use super::GuestImage;

/// Those who name no registry mean this one.
const REGISTRY: &str = "docker.io";

/// The user of virt-launcher.
const QEMU_USER: u64 = 107;

/// Zeros that are put behind a file, one after the other, bytes.
const PADDING_BYTES: usize = 512;

/// What a file of an image holds.
#[derive(Debug)]
pub enum Content<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// What is in this file, with zeros behind it until KubeVirt takes its checksum:
    /// 1.7.0 declares that of a CRC-32 as a signed number, and a server refuses 2^31 and
    /// more.
    Padded(&'a Path),
}

/// A file of an image.
#[derive(Debug)]
pub struct ImageFile<'a> {
    /// Its path, without the first slash.
    pub path: String,
    /// Its permissions.
    pub mode: u32,
    /// Its user and group.
    pub owner: u64,
    /// What it holds.
    pub content: Content<'a>,
}

impl<'a> ImageFile<'a> {
    /// A file that virt-launcher's QEMU reads.
    fn of_kubevirt(folder: &str, path: &'a Path) -> Self {
        Self {
            path: format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy()),
            mode: 0o444,
            owner: QEMU_USER,
            content: Content::Padded(path),
        }
    }
}

/// An image of one layer.
#[derive(Debug)]
pub struct OciImage<'a> {
    /// Its name and tag (`vmlab/pause:1`).
    pub name: &'a str,
    /// The architecture of what is in it.
    pub arch: Arch,
    /// The program that it runs, if it runs one.
    pub entrypoint: Option<&'a str>,
    /// Its files.
    pub files: Vec<ImageFile<'a>>,
}

/// A blob by its digest.
struct Blob {
    digest: String,
    bytes: u64,
}

impl Blob {
    fn of(bytes: &[u8]) -> Self {
        Self { digest: hex(&Sha256::digest(bytes)), bytes: bytes.len() as u64 }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({
            "mediaType": format!("application/vnd.oci.image.{media_type}"),
            "digest": format!("sha256:{}", self.digest),
            "size": self.bytes,
        })
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hashes what goes through it.
struct HashingReader<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for HashingReader<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Receives the entries of an image.
trait ImageEntries {
    fn add(&mut self, path: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()>;
}

/// Into an archive.
struct ArchiveEntries<W: Write>(tar::Builder<W>);

impl<W: Write> ImageEntries for ArchiveEntries<W> {
    fn add(&mut self, path: &str, bytes: u64, content: &mut dyn Read) -> io::Result<()> {
        self.0.append_data(&mut header(bytes, 0o644, 0), path, content)
    }
}

/// Into a folder.
struct FolderEntries<'a>(&'a Path);

impl ImageEntries for FolderEntries<'_> {
    fn add(&mut self, path: &str, _bytes: u64, content: &mut dyn Read) -> io::Result<()> {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap_or(self.0))?;
        io::copy(content, &mut File::create(path)?).map(drop)
    }
}

impl<'a> OciImage<'a> {
    /// A guest's image as KubeVirt boots it: kernel and initial RAM disk below `/boot`, the
    /// root disk below `/disk`.
    #[must_use]
    pub fn container_disk(image: &'a GuestImage, arch: Arch, name: &'a str) -> Self {
        let files = [("boot", &image.kernel), ("boot", &image.initrd), ("disk", &image.root_image)];
        let files = files.map(|(folder, path)| ImageFile::of_kubevirt(folder, path));
        Self { name, arch, entrypoint: None, files: files.into() }
    }

    /// One file, as KubeVirt boots it: a kernel in `boot`, a disk in `disk`.
    #[must_use]
    pub fn of_file(folder: &str, path: &'a Path, arch: Arch, name: &'a str) -> Self {
        let files = vec![ImageFile::of_kubevirt(folder, path)];
        Self { name, arch, entrypoint: None, files }
    }

    /// Writes the image as an archive, which `ctr images import` and `skopeo copy
    /// oci-archive:` take. The layer lies for a moment in a file of `scratch`, which is
    /// gone then.
    ///
    /// # Errors
    /// The file system's, with the file that it is about.
    pub fn write_archive(&self, out: impl Write, scratch: &Path) -> io::Result<()> {
        let mut archive = ArchiveEntries(tar::Builder::new(out));
        self.write(&mut archive, scratch)?;
        archive.0.into_inner()?.flush()
    }

    /// Writes the image as an OCI layout into a folder, which `skopeo copy oci:` takes.
    ///
    /// # Errors
    /// The file system's, with the file that it is about.
    pub fn write_layout(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        self.write(&mut FolderEntries(folder), folder)
    }

    fn write(&self, parts: &mut dyn ImageEntries, scratch: &Path) -> io::Result<()> {
        // A file without a name: what is killed leaves nothing.
        let mut file = unnamed(scratch)?;
        let layer = self.write_layer(&mut file)?;
        let architecture = match self.arch {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        };
        let entrypoint = self.entrypoint.map(|path| json!({ "Entrypoint": [path] }));
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "config": entrypoint.unwrap_or_else(|| json!({})),
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
        });
        let config = config.to_string();
        let of_config = Blob::of(config.as_bytes());
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": of_config.descriptor("config.v1+json"),
            "layers": [layer.descriptor("layer.v1.tar")],
        });
        let manifest = manifest.to_string();
        let of_manifest = Blob::of(manifest.as_bytes());
        let mut descriptor = of_manifest.descriptor("manifest.v1+json");
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        descriptor["annotations"] = json!({
            "io.containerd.image.name": full_name(self.name),
            "org.opencontainers.image.ref.name": tag,
        });
        let index = json!({ "schemaVersion": 2, "manifests": [descriptor] }).to_string();
        let layout = br#"{"imageLayoutVersion":"1.0.0"}"#;
        let mut add = |path: &str, bytes: &[u8]| {
            parts.add(path, bytes.len() as u64, &mut io::Cursor::new(bytes))
        };
        add("oci-layout", layout)?;
        add("index.json", index.as_bytes())?;
        add(&of_config.path(), config.as_bytes())?;
        add(&of_manifest.path(), manifest.as_bytes())?;
        file.seek(SeekFrom::Start(0))?;
        parts.add(&layer.path(), layer.bytes, &mut BufReader::new(file))
    }

    fn write_layer(&self, file: &mut File) -> io::Result<Blob> {
        let hashed =
            HashingReader { inner: io::BufWriter::new(file), hash: Sha256::new(), bytes: 0 };
        let mut layer = tar::Builder::new(hashed);
        let mut folders: Vec<&str> = Vec::new();
        for ImageFile { path, mode, owner, content } in &self.files {
            // Nobody else's folder: the runtime would make it root's alone.
            if let Some((folder, _)) = path.rsplit_once('/')
                && !folders.contains(&folder)
            {
                let mut header = header(0, 0o755, *owner);
                header.set_entry_type(tar::EntryType::Directory);
                layer.append_data(&mut header, folder, io::empty())?;
                folders.push(folder);
            }
            let named = |path: &Path, error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            let mut append = |bytes: u64, content: &mut dyn Read| {
                layer.append_data(&mut header(bytes, *mode, *owner), path, content)
            };
            match content {
                Content::Bytes(bytes) => append(bytes.len() as u64, &mut io::Cursor::new(bytes))?,
                Content::Padded(source) => {
                    let (bytes, padding) = padding(source).map_err(|error| named(source, error))?;
                    let file = File::open(source).map_err(|error| named(source, error))?;
                    let zeros = io::repeat(0).take(padding);
                    append(bytes + padding, &mut BufReader::new(file).take(bytes).chain(zeros))?;
                }
            }
        }
        let mut hashed = layer.into_inner()?;
        hashed.flush()?;
        Ok(Blob { digest: hex(&hashed.hash.finalize()), bytes: hashed.bytes })
    }
}

fn header(bytes: u64, mode: u32, owner: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes);
    header.set_mode(mode);
    header.set_uid(owner);
    header.set_gid(owner);
    header.set_mtime(0);
    header
}

/// The name with its registry, as container runtimes know it.
fn full_name(name: &str) -> String {
    let first = name.split('/').next().unwrap_or_default();
    let has_registry =
        name.contains('/') && (first.contains('.') || first.contains(':') || first == "localhost");
    if has_registry { name.to_owned() } else { format!("{REGISTRY}/{name}") }
}

/// A file that is gone with its last handle.
fn unnamed(folder: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match open(folder, flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(File::from(file)),
        // Some file systems have none: named for a moment.
        Err(_) => {
            let path = folder.join(format!(".vmlab-layer-{}", std::process::id()));
            let file = File::options().read(true).write(true).create_new(true).open(&path)?;
            fs::remove_file(&path)?;
            Ok(file)
        }
    }
}

/// The size of a file, and how many zeros behind it make its CRC-32 a small number.
fn padding(path: &Path) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let mut crc = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => {
                crc.update(&buffer[..length]);
                bytes += length as u64;
            }
        }
    }
    let mut padding = 0;
    while crc.clone().finalize() >= 1 << 31 {
        crc.update(&[0; PADDING_BYTES]);
        padding += PADDING_BYTES as u64;
    }
    Ok((bytes, padding))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_dir() {
                continue;
            }
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            found.insert(path, bytes);
        }
        found
    }

    fn archive(image: &OciImage<'_>) -> Vec<u8> {
        let mut archive = Vec::new();
        image.write_archive(&mut archive, &std::env::temp_dir()).unwrap();
        archive
    }

    #[test]
    fn each_digest_leads_to_what_it_is_of() {
        let program = vec![7_u8; 3000];
        let image = OciImage {
            name: "vmlab/x:1",
            arch: Arch::X86_64,
            entrypoint: Some("/x"),
            files: vec![ImageFile {
                path: "x".to_owned(),
                mode: 0o755,
                owner: 0,
                content: Content::Bytes(&program),
            }],
        };
        let written = archive(&image);
        assert_eq!(written, archive(&image));
        let files = files(&written);
        let read = |digest: &Value| {
            let hex = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = &files[&format!("blobs/sha256/{hex}")];
            assert_eq!(Blob::of(bytes).digest, hex);
            bytes.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let of_image = &index["manifests"][0];
        assert_eq!(of_image["annotations"]["io.containerd.image.name"], "docker.io/vmlab/x:1");
        let manifest: Value = serde_json::from_slice(&read(&of_image["digest"])).unwrap();
        let config: Value = serde_json::from_slice(&read(&manifest["config"]["digest"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/x"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = read(&manifest["layers"][0]["digest"]);
        assert_eq!(manifest["layers"][0]["size"], layer.len());
        assert_eq!(self::files(&layer), BTreeMap::from([("x".to_owned(), program.clone())]));

        let folder = tempfile::tempdir().unwrap();
        image.write_layout(folder.path()).unwrap();
        for (path, bytes) in &files {
            assert_eq!(&fs::read(folder.path().join(path)).unwrap(), bytes, "{path}");
        }
    }

    #[test]
    fn checksums_are_made_small_by_zeros_behind() {
        let folder = tempfile::tempdir().unwrap();
        let mut padded = 0;
        for number in 0..20_u8 {
            let path = folder.path().join(number.to_string());
            fs::write(&path, vec![number; 1000]).unwrap();
            let (bytes, padding) = padding(&path).unwrap();
            let mut whole = vec![number; usize::try_from(bytes).unwrap()];
            whole.resize(usize::try_from(bytes + padding).unwrap(), 0);
            assert!(crc32fast::hash(&whole) < 1 << 31);
            padded += u32::from(padding > 0);
        }
        assert!((1..20).contains(&padded), "{padded}");
    }

    #[test]
    fn names_have_a_registry() {
        for (name, full) in [
            ("vmlab/guest:1", "docker.io/vmlab/guest:1"),
            ("registry.example/guest:1", "registry.example/guest:1"),
            ("localhost:5000/guest", "localhost:5000/guest"),
        ] {
            assert_eq!(full_name(name), full);
        }
    }
}
