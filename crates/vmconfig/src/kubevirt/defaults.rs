//! What KubeVirt fills in where an object says nothing, before it looks at it.
//!
//! The reader of this crate and the linter ask here. What a cluster's configuration
//! can change is what it is without one.
//!
//! Source: kubevirt/kubevirt, `pkg/defaults`, `pkg/network/vmispec/defaults.go`,
//! `pkg/virt-config/virt-config.go`; the same in 0.44 to 1.9, but
//! [`attaches_volumes`] and [`max_sockets`].

/// The architectures of KubeVirt, by its names. Without one an object is for that of
/// the cluster.
pub const ARCHITECTURES: [&str; 3] = ["amd64", "arm64", "s390x"];

/// The bus of a disk, CD-ROM or LUN without one: `sata`, but `virtio` where there is
/// no SATA.
#[must_use]
pub fn disk_bus(architecture: &str) -> &'static str {
    match architecture {
        "arm64" | "s390x" => "virtio",
        _ => "sata",
    }
}

/// The machine types that an architecture has, each with versions behind it; the
/// first is the default.
#[must_use]
pub fn machines(architecture: &str) -> &'static [&'static str] {
    match architecture {
        "arm64" => &["virt"],
        "s390x" => &["s390-ccw-virtio"],
        _ => &["q35", "pc-q35"],
    }
}

/// The CPU model of a VM that names none.
#[must_use]
pub fn cpu_model(architecture: &str) -> &'static str {
    match architecture {
        "arm64" => "host-passthrough",
        _ => "host-model",
    }
}

/// The model of an interface that names none.
pub const NIC_MODEL: &str = "virtio";

/// Sockets, cores and threads. A level that is 0 or not said is 1; if none is said,
/// there is a socket for each CPU that the pod may have, else for each that it asks
/// for, rounded up.
#[must_use]
pub fn topology(
    levels: [Option<u32>; 3],
    limit_cpus: Option<f64>,
    requested_cpus: Option<f64>,
) -> [u32; 3] {
    let levels = levels.map(|level| level.unwrap_or(0));
    if levels != [0; 3] {
        return levels.map(|level| level.max(1));
    }
    let cpus = limit_cpus.or(requested_cpus).unwrap_or(1.0);
    [cpus.ceil().clamp(1.0, 65_536.0) as u32, 1, 1]
}

/// The guest's memory: what it is said to see, else what its pod asks for, else the most
/// that the pod may have.
#[must_use]
pub fn memory<T>(guest: Option<T>, request: Option<T>, limit: Option<T>) -> Option<T> {
    guest.or(request).or(limit)
}

/// Whether an object that says so much of networks is connected to the pod's, since it
/// names none itself. `autoattach` is `autoattachPodInterface`.
#[must_use]
pub fn joins_pod_network(networks: usize, interfaces: usize, autoattach: Option<&str>) -> bool {
    networks == 0 && interfaces == 0 && autoattach != Some("false")
}

/// Sockets that CPU hot-plug can reach where the object does not say and the cluster
/// rolls changes out live: four times those at the start, as long as that is no more
/// than 512 vCPUs.
#[must_use]
pub fn hotplug_sockets(levels: [u32; 3]) -> u32 {
    const MOST_VCPUS: u32 = 512;
    let [sockets, cores, threads] = levels;
    let fit = MOST_VCPUS / cores.saturating_mul(threads).max(1);
    sockets.saturating_mul(4).min(fit).max(sockets)
}

/// The same for a version's own way to roll changes out, which is live since 1.6. No
/// room is kept on arm64.
#[must_use]
pub fn max_sockets(version: (u32, u32), architecture: &str, levels: [u32; 3]) -> u32 {
    let live = version >= (1, 6) && architecture != "arm64";
    if live { hotplug_sockets(levels) } else { levels[0] }
}

/// What a volume may be, one of them.
pub const VOLUME_SOURCES: [&str; 16] = [
    "persistentVolumeClaim",
    "dataVolume",
    "containerDisk",
    "ephemeral",
    "emptyDisk",
    "hostDisk",
    "memoryDump",
    "containerPath",
    "cloudInitNoCloud",
    "cloudInitConfigDrive",
    "sysprep",
    "configMap",
    "secret",
    "serviceAccount",
    "downwardAPI",
    "downwardMetrics",
];

/// Those whose speed is nobody's concern: they are read once, at boot.
pub const SEEDS: &[&str] = VOLUME_SOURCES.split_at(8).1;

/// Whether a volume that no disk names gets a disk, by KubeVirt's major and minor
/// version.
#[must_use]
pub fn attaches_volumes(version: (u32, u32)) -> bool {
    version >= (0, 55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vcpus_come_from_levels_then_limits_then_requests() {
        assert_eq!(topology([None, Some(4), None], Some(2.0), None), [1, 4, 1]);
        assert_eq!(topology([Some(2), Some(0), None], Some(2.0), None), [2, 1, 1]);
        assert_eq!(topology([Some(0), Some(0), Some(0)], None, Some(2.5)), [3, 1, 1]);
        assert_eq!(topology([None; 3], Some(2.0), Some(1.0)), [2, 1, 1]);
        assert_eq!(topology([None; 3], None, None), [1, 1, 1]);
        assert_eq!(topology([None; 3], Some(f64::MAX), None), [65_536, 1, 1]);
        assert_eq!(topology([None; 3], Some(-4.0), None), [1, 1, 1]);
    }
    #[test]
    fn only_what_names_no_network_is_on_the_pods() {
        assert!(joins_pod_network(0, 0, None) && joins_pod_network(0, 0, Some("true")));
        assert!(!joins_pod_network(0, 0, Some("false")));
        assert!(!joins_pod_network(1, 0, None) && !joins_pod_network(0, 1, None));
    }

    #[test]
    fn room_for_hot_plug_is_four_times_the_sockets() {
        let newest = |levels| max_sockets((1, 9), "amd64", levels);
        assert_eq!(newest([2, 4, 1]), 8);
        assert_eq!(newest([16, 4, 2]), 64, "512 vCPUs");
        assert_eq!(newest([100, 8, 1]), 100, "never less than there are");
        assert_eq!(newest([1, 1000, 1]), 1);
        assert_eq!(max_sockets((1, 9), "arm64", [2, 4, 1]), 2);
        assert_eq!(max_sockets((1, 5), "amd64", [2, 4, 1]), 2);
    }
}
