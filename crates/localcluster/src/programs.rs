//! The programs that a cluster is made of.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::UpError;
use host::state_dir::FileError;

/// Kubernetes' own, from one folder.
const OF_KUBERNETES: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "pause"];

/// The system's, and Debian's packages with them.
const OF_THE_SYSTEM: [(&str, &str); 5] = [
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
];

/// Where distributions and the project itself put the plugins for pods' networks.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/usr/libexec/cni", "/opt/cni/bin"];
const CNI_PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// Folders that scripts/get-kube makes begin so.
const BUILT: &str = "kubernetes-";

/// The programs that a cluster is made of, all there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubePrograms {
    /// Kubernetes' own.
    pub folder: PathBuf,
    /// The plugins for pods' networks.
    pub cni: PathBuf,
    /// What each says of its version, by its name.
    pub versions: BTreeMap<String, String>,
}

impl KubePrograms {
    /// Those in `folder`, or the newest that were built into `cache`.
    ///
    /// # Errors
    /// [`UpError`] names what is missing, and where to get it.
    pub fn find(folder: Option<&Path>, cache: &Path) -> Result<Self, UpError> {
        for (program, package) in OF_THE_SYSTEM {
            if !host::program::is_in_path(program) {
                return Err(UpError::NotInstalled { program: program.to_owned(), package });
            }
        }
        let has_plugins =
            |folder: &&Path| CNI_PLUGINS.iter().all(|plugin| folder.join(plugin).exists());
        let cni = CNI_FOLDERS.iter().map(Path::new).find(has_plugins).ok_or_else(|| {
            UpError::NotInstalled {
                program: format!("{}/{}", CNI_FOLDERS[0], CNI_PLUGINS[0]),
                package: "containernetworking-plugins",
            }
        })?;
        let folder = match folder {
            Some(folder) => fs::canonicalize(folder).map_err(FileError::of("find", folder))?,
            None => newest(cache).unwrap_or_else(|| cache.to_owned()),
        };
        if let Some(program) = OF_KUBERNETES.into_iter().find(|name| !folder.join(name).is_file()) {
            return Err(UpError::NoProgram { program, folder });
        }
        let mut versions = BTreeMap::new();
        for program in OF_KUBERNETES.into_iter().filter(|name| *name != "pause") {
            versions.insert(program.to_owned(), version(&folder.join(program))?);
        }
        versions.insert("containerd".to_owned(), version(Path::new("containerd"))?);
        Ok(Self { folder, cni: cni.to_owned(), versions })
    }

    /// Kubernetes' version: `1.36.3`.
    #[must_use]
    pub fn kubernetes(&self) -> &str {
        self.versions.get("kube-apiserver").map(String::as_str).unwrap_or_default()
    }
}

/// The folder with the newest Kubernetes.
fn newest(cache: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(cache).ok()?;
    let built = entries.flatten().filter_map(|entry| {
        let name = entry.file_name();
        let rest = name.to_str()?.strip_prefix(BUILT)?.to_owned();
        Some((numbers(&rest), entry.path()))
    });
    built.max().map(|(_, path)| path)
}

/// `1.36.3-kubevirt-1.7.0` as what it is sorted by.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn version(program: &Path) -> Result<String, UpError> {
    let failed = |said: String| UpError::NoVersion { program: program.to_owned(), said };
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    version_in(&said).ok_or_else(|| failed(said.trim().to_owned()))
}

/// The first word that is a version: of `Kubernetes v1.36.3`, of `etcd Version: 3.6.8` and
/// of `containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3`.
fn version_in(said: &str) -> Option<String> {
    let words = said.split_whitespace().map(|word| word.trim_start_matches('v'));
    let mut versions =
        words.filter(|word| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.'));
    versions.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, version) in [
            ("Kubernetes v1.36.3\n", Some("1.36.3")),
            ("etcd Version: 3.6.8\nGit SHA: Not provided\nGo Version: go1.26.0\n", Some("3.6.8")),
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3\n",
                Some("1.6.20~ds1"),
            ),
            ("usage: none\n", None),
            ("", None),
        ] {
            assert_eq!(version_in(said).as_deref(), version, "{said}");
        }
    }

    #[test]
    fn the_newest_kubernetes_is_taken() {
        let cache = tempfile::tempdir().unwrap();
        assert_eq!(newest(cache.path()), None);
        for name in ["examples-9.9", "kubernetes-1.9.0-kubevirt-1.7.0", "kubernetes-1.36.3"] {
            fs::create_dir(cache.path().join(name)).unwrap();
        }
        assert_eq!(newest(cache.path()), Some(cache.path().join("kubernetes-1.36.3")));
    }

    #[test]
    fn what_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        // Where the system's own are missing, those are named first.
        let error = KubePrograms::find(Some(folder.path()), folder.path()).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("scripts/get-kube") || said.contains("apt-get install"), "{said}");
    }
}
