//! Where images are in containerd, and one of a single program, as an OCI archive: nothing
//! has to be fetched for it.

use std::env;
use std::io;

use guest::image::oci::{Content, ImageFile, OciImage};
use vmconfig::Arch;

/// containerd's socket, in the folder of its files.
pub(crate) const CONTAINERD: &str = "containerd.sock";
/// The namespace of containerd that kubelets use.
pub(crate) const IMAGES: &str = "k8s.io";

/// An archive with the image `name` (`vmlab/pause:1`), in which `program` (its bytes) is
/// all that there is, and is run; the same from the same bytes.
pub(crate) fn archive(name: &str, path: &str, program: &[u8]) -> io::Result<Vec<u8>> {
    let file = ImageFile {
        path: path.trim_start_matches('/').to_owned(),
        mode: 0o755,
        owner: 0,
        content: Content::Bytes(program),
    };
    let arch = Arch::from_name(env::consts::ARCH).unwrap_or(Arch::X86_64);
    let image = OciImage { name, arch, entrypoint: Some(path), files: vec![file] };
    let mut archive = Vec::new();
    image.write_archive(&mut archive, &env::temp_dir())?;
    Ok(archive)
}
