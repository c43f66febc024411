//! Builtin images with another kernel: `debian-12+linux-image-amd64` takes the
//! package of that name, `debian-13+linux-image-cloud-amd64/trixie-backports` that of the
//! suite's backports, `debian-12+linux-hz1000.deb` a package's file. The architecture at a
//! package's end may be left out: `debian-12+linux-image-cloud` is the image's own.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::{Path, PathBuf};

use vmconfig::Arch;

use super::{Recipe, RecipeError, debian_arch};

/// Between an image's name and its kernel.
const PLUS: char = '+';

/// How Debian's kernels are named, before a version or a flavour and the architecture:
/// `linux-image-6.1.0-37-amd64`.
const NAMED: &str = "linux-image";

/// Whether a package is one of Debian's kernels, with or without its architecture, version
/// and suite.
fn is_kernel(package: &str) -> bool {
    let rest = package.strip_prefix(NAMED);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '=', '/']))
}

/// `package` with the architecture at the end of its name, where that has none; one with
/// another architecture's is none of the image's.
fn of_arch(package: &str, arch: Arch) -> Result<String, Arch> {
    let end = package.find(['=', '/']).unwrap_or(package.len());
    let (name, rest) = package.split_at(end);
    let named = |arch: Arch| name.rsplit('-').next() == Some(debian_arch(arch));
    match [Arch::X86_64, Arch::Aarch64].into_iter().find(|arch| named(*arch)) {
        None => Ok(format!("{name}-{}{rest}", debian_arch(arch))),
        Some(own) if own == arch => Ok(package.to_owned()),
        Some(other) => Err(other),
    }
}

/// What Debian's kernels depend on, with which coreutils and mount come: a package's
/// file brings nothing along.
const NEEDED: [&str; 3] = ["kmod", "linux-base", "initramfs-tools"];

/// How every package's file begins (`deb(5)`).
const DEB: &[u8] = b"!<arch>\ndebian-binary";

/// A package with a kernel that lies in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFile {
    /// The file.
    pub path: PathBuf,
    /// Hash of its content, 64 hexadecimal digits: the path decides nothing.
    pub hash: String,
}

/// Cuts `debian-12+KERNEL` into the image's name and its kernel's.
pub(super) fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once(PLUS) {
        Some((image, kernel)) => (image, Some(kernel)),
        None => (name, None),
    }
}

/// The path of the kernel that an image's name says, if that is a file.
#[must_use]
pub fn kernel_path(name: &str) -> Option<&Path> {
    split(name).1.filter(|kernel| is_path(kernel)).map(Path::new)
}

/// How the suites of newer packages for a suite end.
const BACKPORTS: &str = "-backports";

/// The suite that a package is taken from where it is not the image's own, as apt takes it
/// behind a slash.
fn other_suite(package: &str) -> Option<&str> {
    let (_, suite) = package.split_once('/').filter(|_| is_kernel(package))?;
    suite.ends_with(BACKPORTS).then_some(suite)
}

/// A package's name holds no slash but before a suite, and none ends like this.
fn is_path(kernel: &str) -> bool {
    let is_file = || Path::new(kernel).extension().is_some_and(|end| end == "deb");
    other_suite(kernel).is_none() && (kernel.contains('/') || is_file())
}

impl Recipe {
    /// The suite that its kernel is taken from where it is not the image's own.
    pub(in crate::image) fn kernel_suite(&self) -> Option<&str> {
        self.packages.iter().find_map(|package| other_suite(package))
    }

    /// The same image with the kernel that `kernel` names: one of the suite's
    /// packages, `NAME` or `NAME=VERSION`, one of its backports, `NAME/SUITE-backports`,
    /// or a package's file, looked up from `folder`.
    pub(super) fn with_kernel(mut self, kernel: &str, folder: &Path) -> Result<Self, RecipeError> {
        self.packages.retain(|package| !is_kernel(package));
        if is_path(kernel) {
            let path = folder.join(kernel);
            let hash = hash_of(&path)
                .map_err(|why| RecipeError::KernelFile { path: path.clone(), why })?;
            let shown = path.file_name().unwrap_or_default().to_string_lossy();
            self.name = format!("{}{PLUS}{shown}", self.name);
            self.packages.extend(NEEDED.map(str::to_owned));
            self.kernel = Some(KernelFile { path, hash });
            return Ok(self);
        }
        // What apt would take for something else has none of these (deb-version(7)).
        let known = |c: char| c.is_ascii_alphanumeric() || "+-.~:=".contains(c);
        let package = kernel.split_once('/').map_or(kernel, |(package, _)| package);
        if !is_kernel(kernel) || !package.chars().all(known) {
            return Err(RecipeError::NotAKernel { kernel: kernel.to_owned() });
        }
        let backports = format!("{}{BACKPORTS}", self.suite);
        if other_suite(kernel).is_some_and(|suite| suite != backports) {
            let (kernel, package) = (kernel.to_owned(), package.to_owned());
            return Err(RecipeError::KernelOfSuite { kernel, package, backports });
        }
        let kernel = of_arch(kernel, self.arch).map_err(|other| RecipeError::KernelOfArch {
            kernel: kernel.to_owned(),
            other,
            arch: self.arch,
        })?;
        self.name = format!("{}{PLUS}{kernel}", self.name);
        self.packages.insert(0, kernel);
        Ok(self)
    }
}

/// The content's hash, or why the file is no package.
fn hash_of(path: &Path) -> Result<String, String> {
    let told = |error: io::Error| error.to_string();
    // Not through open(): that would wait for a FIFO's other end.
    if !path.metadata().map_err(told)?.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut file = File::open(path).map_err(told)?;
    let mut begin = vec![0; DEB.len()];
    if file.read_exact(&mut begin).is_err() || begin != DEB {
        return Err("it does not begin as a Debian package does".to_owned());
    }
    file.rewind().map_err(told)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(told)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn recipe(name: &str, folder: &Path) -> Result<Recipe, RecipeError> {
        Recipe::builtin_from(name, folder, Arch::X86_64)
    }

    #[test]
    fn a_named_kernel_takes_the_place_of_the_images_own() {
        let folder = Path::new("/nonexistent");
        let plain = recipe("debian-12", folder).unwrap();
        for kernel in [
            "linux-image-amd64",
            "linux-image-6.1.0-37-rt-amd64=6.1.140-1",
            "linux-image-6.18.5+deb12-cloud-amd64/bookworm-backports",
        ] {
            let other = recipe(&format!("debian-12+{kernel}"), folder).unwrap();
            assert_eq!(other.name, format!("debian-12+{kernel}"));
            let kernels = other.packages.iter().filter(|package| is_kernel(package));
            assert_eq!(kernels.collect::<Vec<_>>(), [kernel]);
            assert_eq!(other.packages.len(), plain.packages.len());
            assert_ne!(other.hash(), plain.hash());
            assert_eq!(kernel_path(&other.name), None);
            let suite = kernel.contains('/').then_some("bookworm-backports");
            assert_eq!(other.kernel_suite(), suite);
        }
    }

    #[test]
    fn a_kernel_without_its_architecture_is_the_images_own() {
        let suite = "trixie-backports";
        for (written, x86_64, aarch64) in [
            ("linux-image", "linux-image-amd64", "linux-image-arm64"),
            ("linux-image-rt", "linux-image-rt-amd64", "linux-image-rt-arm64"),
            ("linux-image=6.12.1-1", "linux-image-amd64=6.12.1-1", "linux-image-arm64=6.12.1-1"),
            (
                "linux-image-cloud/trixie-backports",
                "linux-image-cloud-amd64/trixie-backports",
                "linux-image-cloud-arm64/trixie-backports",
            ),
        ] {
            for (arch, package) in [(Arch::X86_64, x86_64), (Arch::Aarch64, aarch64)] {
                let named = |kernel: &str| {
                    Recipe::builtin_from(&format!("debian-13+{kernel}"), Path::new(""), arch)
                };
                let recipe = named(written).unwrap();
                assert_eq!(recipe, named(package).unwrap());
                assert_eq!(recipe.name, format!("debian-13+{package}"));
                assert_eq!(Recipe::by_shown_name(&recipe.shown_name()).unwrap(), recipe);
                assert_eq!(recipe.kernel_suite(), written.contains('/').then_some(suite));
            }
        }
        let error = recipe("debian-13+linux-image-arm64/trixie-backports", Path::new(""));
        let expected = "\"linux-image-arm64/trixie-backports\" is of aarch64, the image of x86_64: \
                        without the architecture at its end it is the image's own";
        assert_eq!(error.unwrap_err().to_string(), expected);
    }

    #[test]
    fn a_kernels_file_counts_by_its_content() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
        write("a.deb", &[DEB, b"one"].concat());
        write("b.deb", &[DEB, b"two"].concat());
        let named = |name: &str| recipe(&format!("debian-12+{name}"), folder.path()).unwrap();
        let first = named("a.deb");
        assert_eq!(first.name, "debian-12+a.deb");
        assert!(!first.packages.iter().any(|package| is_kernel(package)));
        assert_eq!(first.kernel.as_ref().unwrap().path, folder.path().join("a.deb"));
        assert_ne!(first.hash(), named("b.deb").hash());
        write("a.deb", &[DEB, b"three"].concat());
        assert_ne!(first.hash(), named("a.deb").hash());
        // Where it lies decides nothing.
        let absolute = folder.path().join("a.deb").display().to_string();
        assert_eq!(named("a.deb").hash(), named(&absolute).hash());
        assert_eq!(kernel_path("debian-12+sub/a.deb"), Some(Path::new("sub/a.deb")));
    }

    #[test]
    fn what_is_no_kernel_is_said() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("text.deb"), "a text").unwrap();
        fs::create_dir(folder.path().join("folder.deb")).unwrap();
        let fifo = folder.path().join("fifo.deb");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        for (kernel, says) in [
            ("hello", "\"hello\""),
            ("", "\"\""),
            ("linux-image-amd64,hello", "linux-image-amd64,hello"),
            ("linux-image-amd64 hello", "linux-image-"),
            ("linux-images", "\"linux-images\""),
            ("none.deb", "No such file"),
            ("text.deb", "does not begin as a Debian package"),
            ("folder.deb", "not a file"),
            ("fifo.deb", "not a file"),
            (
                "linux-image-amd64/trixie-backports",
                "builtin:IMAGE+linux-image-amd64/bookworm-backports",
            ),
            ("linux-image-amd64,hello/bookworm-backports", "linux-image-amd64,hello"),
            ("linux-image-amd64/sid", "No such file"),
        ] {
            let error = recipe(&format!("debian-12+{kernel}"), folder.path()).unwrap_err();
            assert!(error.to_string().contains(says), "{kernel}: {error}");
        }
        let error = recipe("debian-11+linux-image-amd64", folder.path()).unwrap_err();
        assert!(matches!(error, RecipeError::UnknownName { name } if name == "debian-11"));
    }
}
