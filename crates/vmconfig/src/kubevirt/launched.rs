//! What vmlab's own instances say beside their VM.

use std::path::Path;

use crate::{Accel, BootSource, VmSpec};

use super::tree::Yaml;

/// An instance that vmlab itself creates in a cluster, boots from an image of a
/// registry and deletes again.
#[derive(Debug, Clone, Copy)]
pub struct LaunchedInstance<'a> {
    /// Its name in its namespace.
    pub name: &'a str,
    /// The container image with what it boots: kernel and initial RAM disk below `/boot`
    /// and a root disk below `/disk`, or a disk alone.
    pub image: &'a str,
    /// Labels, by which it is found again.
    pub labels: &'a [(&'static str, String)],
    /// Annotations, which say whose it is.
    pub annotations: &'a [(&'static str, String)],
}

impl LaunchedInstance<'_> {
    pub(super) fn metadata(&self) -> Yaml {
        let map = |pairs: &[(&'static str, String)]| {
            let pairs = pairs.iter();
            pairs.fold(Yaml::map(), |map, (key, value)| map.with(key, Yaml::text(value)))
        };
        let mut metadata = Yaml::map().with("name", Yaml::text(self.name));
        for (key, pairs) in [("labels", self.labels), ("annotations", self.annotations)] {
            if !pairs.is_empty() {
                metadata.put(key, map(pairs));
            }
        }
        metadata
    }

    /// The kernel of the image, where that has one.
    pub(super) fn firmware(&self, spec: &VmSpec) -> Option<Yaml> {
        let BootSource::Direct { kernel, initrd, .. } = &spec.boot else { return None };
        let container = Yaml::map()
            .with("image", Yaml::text(self.image))
            .with("kernelPath", Yaml::text(in_image("/boot", kernel)))
            .with("initrdPath", Yaml::text(in_image("/boot", initrd)));
        let boot = Yaml::map()
            .with("container", container)
            .with("kernelArgs", Yaml::text(spec.kernel_parameters().join(" ")));
        Some(Yaml::map().with("kernelBoot", boot))
    }

    /// The disk that it boots from, before all others, and its volume.
    pub(super) fn root(&self, spec: &VmSpec) -> (Yaml, Yaml) {
        let mut image = Yaml::map().with("image", Yaml::text(self.image));
        if let BootSource::Direct { root_image, .. } = &spec.boot {
            image.put("path", Yaml::text(in_image("/disk", root_image)));
        }
        let name = || Yaml::map().with("name", Yaml::text("root"));
        let bus = Yaml::map().with("bus", Yaml::text("virtio"));
        (name().with("disk", bus), name().with("containerDisk", image))
    }
}

/// Where a file lies in an image that vmlab made.
fn in_image(folder: &str, file: &Path) -> String {
    format!("{folder}/{}", file.file_name().unwrap_or_default().to_string_lossy())
}

/// Whether an emulated guest's processor is left to KubeVirt: it knows `host-passthrough`
/// under KVM alone, and what takes its place otherwise.
pub(super) fn leaves_model(spec: &VmSpec) -> bool {
    spec.accel == Accel::Tcg && ["host", "max"].contains(&spec.cpu_model.as_str())
}
