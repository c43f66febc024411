//! Volumes: their names, sources and values.

use super::{
    ADMITTERS, REFUSED, by_name, is_clean_path, list, name, place, repeated, volumes_of, word,
};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::{Key, Node, QuantityValue as _};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;
use vmconfig::kubevirt::defaults;

const VOLUMES: &str = "https://kubevirt.io/user-guide/storage/disks_and_volumes/";

const GOOD: &str = "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      disk:
        bus: virtio
    - name: seed
      disk:
        bus: virtio
volumes:
- name: root
  dataVolume:
    name: root
- name: seed
  cloudInitNoCloud:
    userData: |
      #cloud-config
      hostname: example
";

pub(crate) const SOURCE: Rule = Rule {
    id: "kubevirt-volume-source",
    severity: Severity::Error,
    summary: "a volume with two sources or with none, or two volumes of one name",
    why: REFUSED,
    mend: "Give each volume a name of its own and one source",
    sources: &[ADMITTERS, VOLUMES],
    affected: &[],
    check: Check::Vm(source),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      disk:
        bus: virtio
volumes:
- name: root
  persistentVolumeClaim:
    claimName: root
  emptyDisk:
    capacity: 1Gi
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn source(vm: &Vm, _: &Context, out: &mut Drafts) {
    repeated(volumes_of(vm), "volume", out);
    for volume in volumes_of(vm) {
        let given: Vec<&str> = defaults::VOLUME_SOURCES
            .into_iter()
            .filter(|source| volume.given(source).is_some())
            .collect();
        // A source that is not known is another rule's.
        let unknown = volume.entries().iter().any(|(key, node)| {
            key.text != "name"
                && !node.is_null()
                && !defaults::VOLUME_SOURCES.contains(&key.text.as_str())
        });
        match given.as_slice() {
            [] if !unknown => {
                out.at(place(volume), format!("Volume {} has no source", name(volume)));
            }
            [] | [_] => {}
            several => {
                let message =
                    format!("Volume {} is {} at once", name(volume), several.join(" and "));
                out.at(place(volume), message);
            }
        }
    }
}

pub(crate) const VALUES: Rule = Rule {
    id: "kubevirt-volume-value",
    severity: Severity::Error,
    summary: "a volume's source that lacks a value, or has one that KubeVirt refuses",
    why: REFUSED,
    mend: "Say what the source needs: a name, a path, Disk or DiskOrCreate",
    sources: &[ADMITTERS, VOLUMES],
    affected: &[],
    check: Check::Vm(values),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: root
      disk:
        bus: virtio
volumes:
- name: root
  hostDisk:
    path: /srv/root.img
    type: File
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn values(vm: &Vm, context: &Context, out: &mut Drafts) {
    for volume in volumes_of(vm) {
        for (source, key) in [
            ("dataVolume", "name"),
            ("configMap", "name"),
            ("secret", "secretName"),
            ("serviceAccount", "serviceAccountName"),
            ("hostDisk", "path"),
        ] {
            if let Some((at, inner)) = given(volume, source)
                && word(inner, key).is_none()
            {
                out.at(at.span, format!("{source} needs {key}"));
            }
        }
        if let Some(disk) = volume.given("hostDisk") {
            let (kind, span) = word(disk, "type").unwrap_or(("", disk.span));
            if !["Disk", "DiskOrCreate"].contains(&kind) {
                out.at(span, format!("hostDisk's type is Disk or DiskOrCreate, not {kind:?}"));
            }
            if let Some(capacity) = disk.given("capacity")
                && kind == "Disk"
                && capacity.quantity().is_some_and(|bytes| bytes != 0.0)
            {
                out.at(capacity.span, "A capacity is for DiskOrCreate: a Disk has its own");
            }
        }
        if let Some((path, span)) = word(volume, "containerDisk.path")
            && context.kubevirt >= KubevirtVersion::new(0, 56, 0)
            && !is_clean_path(path)
        {
            out.at(span, format!("{path:?} is no absolute path of a file"));
        }
    }
    for source in ["serviceAccount", "downwardMetrics", "memoryDump"] {
        let mut all = volumes_of(vm).iter().filter_map(|volume| given(volume, source));
        if let Some((second, _)) = all.nth(1) {
            out.at(second.span, format!("A VM has one volume of {source} at most"));
        }
    }
    let disks = by_name(super::disks_of(vm));
    for volume in volumes_of(vm) {
        if let Some((key, _)) = given(volume, "downwardMetrics") {
            let KubevirtVersion { major, minor, .. } = context.kubevirt;
            let disk = match disks.get(name(volume)) {
                Some(disk) => disk,
                // It gets one that says nothing.
                None if defaults::attaches_volumes((major, minor)) => volume,
                None => continue,
            };
            let (bus, target, _) = super::disks::bus(vm, disk);
            if target != "disk" {
                out.at(key.span, format!("downwardMetrics needs a disk, not a {target}"));
            } else if bus != "virtio" {
                out.at(key.span, format!("downwardMetrics needs a disk on virtio, not on {bus}"));
            }
        }
    }
}

/// A source's key and value, if it is there.
fn given<'a>(volume: &'a Node, source: &str) -> Option<(&'a Key, &'a Node)> {
    volume.entry(source).filter(|(_, node)| !node.is_null())
}

pub(crate) const CONTAINER_PATH: Rule = Rule {
    id: "kubevirt-container-path",
    severity: Severity::Error,
    summary: "a containerPath that is a disk, or a path that KubeVirt keeps for itself",
    why: REFUSED,
    mend: "Name it in devices.filesystems, with a path outside of /var/run/kubevirt and \
           /var/run/libvirt",
    sources: &[ADMITTERS],
    affected: &[AffectedVersions::kubevirt(Some("1.8.0"), None)],
    check: Check::Vm(container_path),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: token
      disk:
        bus: virtio
volumes:
- name: token
  containerPath:
    path: /var/run/secrets/token
",
    )
    .mended(&[
        ("disks:", "filesystems:"),
        ("      disk:\n        bus: virtio\n", "      virtiofs: {}\n"),
    ])],
    quiet: &[],
};

fn container_path(vm: &Vm, _: &Context, out: &mut Drafts) {
    let disks = by_name(super::disks_of(vm));
    let systems = by_name(list(vm, "domain.devices.filesystems"));
    for volume in volumes_of(vm) {
        let Some((key, inner)) = given(volume, "containerPath") else { continue };
        if disks.contains_key(name(volume)) || !systems.contains_key(name(volume)) {
            out.at(key.span, "A containerPath is no disk: it needs a file system of its name");
        }
        if let Some((path, span)) = word(inner, "path")
            && ["/var/run/kubevirt", "/var/run/libvirt"].iter().any(|kept| path.starts_with(kept))
        {
            out.at(span, format!("{path:?} is a path that KubeVirt keeps for itself"));
        }
    }
}

/// Most bytes of cloud-init's data in the object.
const MOST_BYTES: usize = 2048;

pub(crate) const CLOUD_INIT: Rule = Rule {
    id: "kubevirt-cloud-init",
    severity: Severity::Error,
    summary: "cloud-init's data that is missing, there twice, too long or no base64",
    why: "The admission webhook takes one source of user data and one of network data, at least one \
          of both, and at most 2048 bytes of each in the object.",
    mend: "Put longer data into a secret, and name that by secretRef",
    sources: &[ADMITTERS, "https://kubevirt.io/user-guide/user_workloads/startup_scripts/"],
    affected: &[],
    check: Check::Vm(cloud_init),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: seed
      disk:
        bus: virtio
volumes:
- name: seed
  cloudInitNoCloud:
    userData: '#cloud-config'
    userDataBase64: I2Nsb3VkLWNvbmZpZwo=
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn cloud_init(vm: &Vm, _: &Context, out: &mut Drafts) {
    for volume in volumes_of(vm) {
        let sources = ["cloudInitNoCloud", "cloudInitConfigDrive"];
        let Some((key, data)) = sources.iter().find_map(|source| given(volume, source)) else {
            continue;
        };
        let mut any = false;
        for kind in ["userData", "networkData"] {
            let base64 = format!("{kind}Base64");
            // The reference's name in the API's Go type is another than in YAML.
            let secret = match kind {
                "userData" => "secretRef.name",
                _ => "networkDataSecretRef.name",
            };
            let said: Vec<_> = [kind, &base64, secret]
                .into_iter()
                .filter_map(|path| Some((path, word(data, path)?)))
                .collect();
            any |= !said.is_empty();
            if let [_, (path, (_, span)), ..] = said.as_slice() {
                out.at(*span, format!("{path} beside {}: one of both is taken", said[0].0));
            }
            for (path, (text, span)) in said {
                let bytes = if path == base64 {
                    let Some(bytes) = base64_bytes(text) else {
                        out.at(span, "No base64");
                        continue;
                    };
                    bytes
                } else if path == kind {
                    text.len()
                } else {
                    0
                };
                if bytes > MOST_BYTES {
                    let message =
                        format!("{bytes} bytes of {kind}, at most {MOST_BYTES} are taken");
                    out.at(span, message);
                }
            }
        }
        if !any {
            out.at(key.span, format!("{} has neither user data nor network data", key.text));
        }
    }
}

/// How many bytes a text in base64 means; line breaks in it mean nothing.
fn base64_bytes(text: &str) -> Option<usize> {
    let bare: Vec<u8> = text.bytes().filter(|byte| !matches!(byte, b'\n' | b'\r')).collect();
    let padding = bare.iter().rev().take_while(|byte| **byte == b'=').count();
    let body = &bare[..bare.len() - padding];
    let right = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    (bare.len().is_multiple_of(4) && padding <= 2 && body.iter().all(right))
        .then(|| bare.len() / 4 * 3 - padding)
}

#[cfg(test)]
mod tests {
    use super::base64_bytes;

    #[test]
    fn base64_has_a_length() {
        let check = |text: &str, bytes| assert_eq!(base64_bytes(text), bytes, "{text:?}");
        check("", Some(0));
        check("aGk=", Some(2));
        check("aGkK", Some(3));
        check("aGk\nK\n", Some(3));
        check("aGk", None);
        check("a===", None);
        check("a!k=", None);
        check("a=k=", None);
    }
}
