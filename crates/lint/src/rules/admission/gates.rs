//! What KubeVirt takes only where the cluster has a feature gate on.
//!
//! A gate's range is that of the versions that look at it and have it off by default:
//! from the first that knows the field to the one in which the gate became GA, or Beta
//! since 1.9, in which gates of that state are on.
//!
//! Source: kubevirt/kubevirt, `pkg/virt-config/featuregate` (`feature-gates.go` before
//! 1.2) and the admitters that ask `ClusterConfig`, by tag, 0.44.0 to 1.9.0.

use super::{disks, interfaces, list, networks, place, volumes, volumes_by_name};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{Affected, Check, Rule, yaml};
use crate::rules::worlds::{ANY, KUBEVIRT_1_0, KUBEVIRT_1_7, KUBEVIRT_1_8};
use crate::vm::Vm;
use vmconfig::source::Span;

/// A feature gate and what asks for it.
pub(super) struct Gate {
    pub(super) name: &'static str,
    /// Versions that need it and have it off by default.
    off: Affected,
    /// What needs it, in words.
    what: &'static str,
    /// Where a VM has that.
    uses: fn(&Vm) -> Option<Span>,
}

const fn gate(
    name: &'static str,
    (since, until): (Option<&'static str>, Option<&'static str>),
    what: &'static str,
    uses: fn(&Vm) -> Option<Span>,
) -> Gate {
    Gate { name, off: Affected::kubevirt(since, until), what, uses }
}

pub(super) const GATES: &[Gate] = &[
    gate("HostDevices", (None, None), "hostDevices", |vm| filled(vm, "domain.devices.hostDevices")),
    gate("GPU", (None, Some("1.4.0")), "gpus", |vm| filled(vm, "domain.devices.gpus")),
    gate("NUMA", (None, Some("1.4.0")), "guestMappingPassthrough", |vm| {
        said(vm, "domain.cpu.numa.guestMappingPassthrough")
    }),
    gate("ExperimentalIgnitionSupport", (None, None), "Ignition's data", |vm| {
        annotation(vm, "kubevirt.io/ignitiondata")
    }),
    gate("Sidecar", (None, None), "a hook sidecar", |vm| {
        annotation(vm, "hooks.kubevirt.io/hookSidecars")
    }),
    gate("HostDisk", (None, None), "a hostDisk", |vm| of_any(volumes(vm), "hostDisk")),
    gate("DownwardMetrics", (None, None), "downwardMetrics", |vm| {
        of_any(volumes(vm), "downwardMetrics")
            .or_else(|| said(vm, "domain.devices.downwardMetrics"))
    }),
    gate("WorkloadEncryptionSEV", (Some("0.49.0"), Some("1.9.0")), "SEV", |vm| {
        said(vm, "domain.launchSecurity.sev").or_else(|| said(vm, "domain.launchSecurity.snp"))
    }),
    gate("WorkloadEncryptionTDX", (Some("1.7.0"), None), "TDX", |vm| {
        said(vm, "domain.launchSecurity.tdx")
    }),
    gate("SecureExecution", (Some("1.6.0"), Some("1.9.0")), "IBM Secure Execution", |vm| {
        said(vm, "domain.launchSecurity").filter(|_| vm.kube_architecture() == "s390x")
    }),
    gate("VSOCK", (Some("0.59.0"), None), "autoattachVSOCK", |vm| {
        switched_on(vm, "domain.devices.autoattachVSOCK")
    }),
    gate("PersistentReservation", (Some("1.0.0"), Some("1.9.0")), "a LUN's reservation", |vm| {
        disks(vm).iter().find_map(|disk| {
            disk.given("lun.reservation").filter(|node| node.is_true()).map(|node| node.span)
        })
    }),
    gate("VMPersistentState", (Some("1.0.0"), Some("1.6.0")), "persistent state", |vm| {
        switched_on(vm, "domain.devices.tpm.persistent")
            .or_else(|| switched_on(vm, "domain.firmware.bootloader.efi.persistent"))
    }),
    gate("ExperimentalVirtiofsSupport", (None, Some("1.2.0")), "a file system of a claim", |vm| {
        filesystem_of(vm, &CLAIMS)
    }),
    gate(
        "EnableVirtioFsConfigVolumes",
        (Some("1.5.0"), Some("1.8.0")),
        "a file system of a configuration",
        |vm| filesystem_of(vm, &CONFIGURATIONS),
    ),
    gate("EnableVirtioFsStorageVolumes", (Some("1.5.0"), None), "a file system of a claim", |vm| {
        filesystem_of(vm, &CLAIMS)
    }),
    gate("ContainerPathVolumes", (Some("1.8.0"), None), "a containerPath", |vm| {
        of_any(volumes(vm), "containerPath")
    }),
    gate("GPUsWithDRA", (Some("1.6.0"), Some("1.9.0")), "a GPU by claim", |vm| {
        of_any(list(vm, "domain.devices.gpus"), "claimName")
    }),
    gate("HostDevicesWithDRA", (Some("1.8.0"), Some("1.9.0")), "a host device by claim", |vm| {
        of_any(list(vm, "domain.devices.hostDevices"), "claimName")
    }),
    gate("NetworkDevicesWithDRA", (Some("1.9.0"), None), "a network by claim", |vm| {
        of_any(networks(vm), "resourceClaim")
    }),
    gate("NetworkBindingPlugins", (Some("1.1.0"), Some("1.5.0")), "a binding plugin", |vm| {
        of_any(interfaces(vm), "binding")
    }),
    gate("PasstBinding", (Some("1.8.0"), Some("1.9.0")), "passtBinding", |vm| {
        of_any(interfaces(vm), "passtBinding")
    }),
    gate("Macvtap", (None, Some("1.3.0")), "macvtap", |vm| of_any(interfaces(vm), "macvtap")),
    gate("Passt", (Some("0.57.0"), Some("1.3.0")), "passt", |vm| of_any(interfaces(vm), "passt")),
    gate("PortRangesSpec", (Some("1.9.0"), None), "portRanges", |vm| {
        of_any(interfaces(vm), "portRanges")
    }),
    gate("DeclarativeHotplugVolumes", (Some("1.6.0"), Some("1.9.0")), "an empty CD-ROM", |vm| {
        let volumes = volumes_by_name(vm);
        let empty = |disk: &&Node| {
            disk.given("cdrom").is_some() && !volumes.contains_key(super::name(disk))
        };
        disks(vm).iter().find(empty).map(place)
    }),
    gate("VideoConfig", (Some("1.6.0"), Some("1.9.0")), "a type of video card", |vm| {
        said(vm, "domain.devices.video")
    }),
    gate("PanicDevices", (Some("1.6.0"), Some("1.9.0")), "panicDevices", |vm| {
        filled(vm, "domain.devices.panicDevices")
    }),
    gate("RebootPolicy", (Some("1.8.0"), Some("1.9.0")), "rebootPolicy", |vm| {
        said(vm, "domain.rebootPolicy")
    }),
    gate("ReservedOverheadMemlock", (Some("1.8.0"), None), "reservedOverhead", |vm| {
        said(vm, "domain.memory.reservedOverhead")
    }),
    gate("DecentralizedLiveMigration", (Some("1.6.0"), None), "WaitAsReceiver", |vm| {
        let strategy = vm.kubevirt.as_ref()?.machine()?.get("spec.runStrategy")?;
        (strategy.text() == Some("WaitAsReceiver")).then_some(strategy.span)
    }),
];

const CLAIMS: [&str; 2] = ["persistentVolumeClaim", "dataVolume"];
const CONFIGURATIONS: [&str; 4] = ["configMap", "secret", "serviceAccount", "downwardAPI"];

fn said(vm: &Vm, path: &str) -> Option<Span> {
    let (key, value) = vm.kubevirt.as_ref()?.spec.entry(path)?;
    (!value.is_null()).then_some(key.span)
}

fn switched_on(vm: &Vm, path: &str) -> Option<Span> {
    vm.kube(path).filter(|node| node.is_true()).map(|node| node.span)
}

/// Where a list that is not empty stands.
fn filled(vm: &Vm, path: &str) -> Option<Span> {
    said(vm, path).filter(|_| !list(vm, path).is_empty())
}

fn of_any(items: &[Node], key: &str) -> Option<Span> {
    items.iter().find_map(|item| {
        item.entry(key).filter(|(_, node)| !node.is_null()).map(|(key, _)| key.span)
    })
}

fn filesystem_of(vm: &Vm, sources: &[&str]) -> Option<Span> {
    let volumes = volumes_by_name(vm);
    let filesystems = list(vm, "domain.devices.filesystems").iter();
    let of = |filesystem: &&Node| {
        let volume = volumes.get(super::name(filesystem));
        volume.is_some_and(|volume| sources.iter().any(|source| volume.given(source).is_some()))
    };
    filesystems.clone().find(of).map(place)
}

fn annotation(vm: &Vm, name: &str) -> Option<Span> {
    let given = vm.kubevirt.as_ref()?.annotation(name)?;
    given.1.text().is_some_and(|text| !text.is_empty()).then_some(given.0.span)
}

pub(crate) const FEATURE_GATE: Rule = Rule {
    id: "kubevirt-feature-gate",
    severity: Severity::Hint,
    summary: "something that KubeVirt takes only where the cluster has a feature gate on",
    why: "The gate is off by default, and the admission webhook refuses the object where it is (of \
          a containerPath: virt-controller makes no pod). Features that are GA need no gate, nor do \
          those in Beta since 1.9.",
    mend: "Ask for the gate in developerConfiguration.featureGates of the cluster's KubeVirt object: \
           `kubectl get kubevirt -A -o yaml` shows it",
    sources: &[
        "https://github.com/kubevirt/kubevirt/tree/main/pkg/virt-config/featuregate",
        "https://kubevirt.io/user-guide/cluster_admin/activating_feature_gates/",
    ],
    affected: &[],
    check: Check::Vm(feature_gate),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    hostDevices:
    - name: card
      deviceName: example.com/card
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "domain:\n  memory:\n    guest: 1Gi\n  devices:\n    video:\n      type: virtio\n",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: installer
      cdrom:
        bus: sata
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "domain:\n  memory:\n    guest: 1Gi\n  devices:\n    autoattachVSOCK: true\n",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    panicDevices:
    - model: pvpanic
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    filesystems:
    - name: settings
      virtiofs: {}
volumes:
- name: settings
  configMap:
    name: settings
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    filesystems:
    - name: data
      virtiofs: {}
volumes:
- name: data
  persistentVolumeClaim:
    claimName: data
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: shared
      lun:
        bus: scsi
        reservation: true
volumes:
- name: shared
  persistentVolumeClaim:
    claimName: shared
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: metrics
      disk:
        bus: virtio
volumes:
- name: metrics
  downwardMetrics: {}
",
        ),
        yaml(
            KUBEVIRT_1_7,
            "\
resourceClaims:
- name: gpu
  resourceClaimTemplateName: gpu
domain:
  memory:
    guest: 1Gi
  devices:
    gpus:
    - name: gpu
      claimName: gpu
      requestName: large
",
        ),
        yaml(
            KUBEVIRT_1_0,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    gpus:
    - name: gpu
      deviceName: nvidia.com/A100
",
        ),
    ],
    quiet: &[
        yaml(
            ANY,
            "domain:\n  memory:\n    guest: 1Gi\n  devices:\n    video:\n      type: virtio\n",
        ),
        yaml(
            KUBEVIRT_1_8,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    gpus:
    - name: gpu
      deviceName: nvidia.com/A100
    autoattachVSOCK: false
    filesystems:
    - name: settings
      virtiofs: {}
volumes:
- name: settings
  configMap:
    name: settings
",
        ),
    ],
};

fn feature_gate(vm: &Vm, context: &Context, out: &mut Drafts) {
    for gate in GATES.iter().filter(|gate| gate.off.holds(context)) {
        if let Some(span) = (gate.uses)(vm) {
            let message = format!("{} needs the feature gate {}", capital(gate.what), gate.name);
            out.at(span, message).note(format!("it is off by default in {}", gate.off.text()));
        }
    }
}

/// What begins a sentence; a name of a field stays as it is.
fn capital(what: &str) -> String {
    let mut rest = what.chars();
    match (what.contains(' '), rest.next()) {
        (true, Some(first)) => first.to_uppercase().chain(rest).collect(),
        _ => what.to_owned(),
    }
}
