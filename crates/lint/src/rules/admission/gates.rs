//! What KubeVirt takes only where the cluster has a feature gate on.
//!
//! A gate's range is that of the versions that look at it and have it off by default:
//! from the first that knows the field to the one in which the gate became GA, or Beta
//! since 1.9, in which gates of that state are on.
//!
//! Source: kubevirt/kubevirt, `pkg/virt-config/featuregate` (`feature-gates.go` before
//! 1.2) and the admitters that ask `ClusterConfig`, by tag, 0.44.0 to 1.9.0.

use super::{disks_of, interfaces_of, list, networks_of, place, volumes_by_name, volumes_of};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::object::KubeObject;
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::{ANY, HOST_DEVICES, KUBEVIRT_1_0, KUBEVIRT_1_7, KUBEVIRT_1_8, NO_GATES};
use crate::vm::Vm;
use placement::predict::KubevirtVersion;
use vmconfig::source::Span;

/// A feature gate and what of a `T` asks for it.
struct Gate<T> {
    name: &'static str,
    /// Versions that need it and have it off by default.
    off: AffectedVersions,
    /// What needs it, in words.
    what: &'static str,
    /// Where that is.
    uses: fn(&T) -> Option<Span>,
}

const fn gate<T>(
    name: &'static str,
    (since, until): (Option<&'static str>, Option<&'static str>),
    what: &'static str,
    uses: fn(&T) -> Option<Span>,
) -> Gate<T> {
    Gate { name, off: AffectedVersions::kubevirt(since, until), what, uses }
}

/// Gates that are on by default since 1.9, and that a cluster can have off: those in
/// Beta. What is GA can't be off.
const BETA: [&str; 7] = [
    "DeclarativeHotplugVolumes",
    "GPUsWithDRA",
    "HostDevicesWithDRA",
    "PasstBinding",
    "RebootPolicy",
    "Snapshot",
    "WorkloadEncryptionSEV",
];
const BETA_IS_ON: KubevirtVersion = KubevirtVersion::new(1, 9, 0);

const GATES_OF_OBJECTS: &[Gate<KubeObject>] = &[
    gate("Snapshot", (None, Some("1.9.0")), "a clone", |object| {
        of_kind(object, "VirtualMachineClone")
    }),
    gate("Snapshot", (None, Some("1.9.0")), "a snapshot", |object| {
        of_kind(object, "VirtualMachineSnapshot")
    }),
    gate("Snapshot", (None, Some("1.9.0")), "a restore", |object| {
        of_kind(object, "VirtualMachineRestore")
    }),
    gate("VMExport", (None, Some("1.9.0")), "an export", |object| {
        of_kind(object, "VirtualMachineExport")
    }),
    gate("DecentralizedLiveMigration", (Some("1.6.0"), None), "sendTo or receive", |object| {
        let migration = of_kind(object, "VirtualMachineInstanceMigration");
        let ends = ["spec.sendTo", "spec.receive"].into_iter();
        migration.and_then(|_| ends.filter_map(|path| said_in(object, path)).next())
    }),
    gate("MigrationStallDetection", (Some("1.9.0"), None), "maxDowntimeMs", |object| {
        of_kind(object, "MigrationPolicy").and_then(|_| said_in(object, "spec.maxDowntimeMs"))
    }),
    gate("MigrationStallDetection", (Some("1.9.0"), None), "stallDetector", |object| {
        let path = "spec.experimental.stallDetector";
        of_kind(object, "MigrationPolicy").and_then(|_| said_in(object, path))
    }),
];

fn of_kind(object: &KubeObject, kind: &str) -> Option<Span> {
    (object.kind.value == kind).then_some(object.kind.span)
}

fn said_in(object: &KubeObject, path: &str) -> Option<Span> {
    let (key, value) = object.node.entry(path)?;
    (!value.is_null()).then_some(key.span)
}

const GATES: &[Gate<Vm>] = &[
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
    gate("HostDisk", (None, None), "a hostDisk", |vm| of_any(volumes_of(vm), "hostDisk")),
    gate("DownwardMetrics", (None, None), "downwardMetrics", |vm| {
        of_any(volumes_of(vm), "downwardMetrics")
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
        disks_of(vm).iter().find_map(|disk| {
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
        of_any(volumes_of(vm), "containerPath")
    }),
    gate("GPUsWithDRA", (Some("1.6.0"), Some("1.9.0")), "a GPU by claim", |vm| {
        of_any(list(vm, "domain.devices.gpus"), "claimName")
    }),
    gate("HostDevicesWithDRA", (Some("1.8.0"), Some("1.9.0")), "a host device by claim", |vm| {
        of_any(list(vm, "domain.devices.hostDevices"), "claimName")
    }),
    gate("NetworkDevicesWithDRA", (Some("1.9.0"), None), "a network by claim", |vm| {
        of_any(networks_of(vm), "resourceClaim")
    }),
    gate("NetworkBindingPlugins", (Some("1.1.0"), Some("1.5.0")), "a binding plugin", |vm| {
        of_any(interfaces_of(vm), "binding")
    }),
    gate("PasstBinding", (Some("1.8.0"), Some("1.9.0")), "passtBinding", |vm| {
        of_any(interfaces_of(vm), "passtBinding")
    }),
    gate("Macvtap", (None, Some("1.3.0")), "macvtap", |vm| of_any(interfaces_of(vm), "macvtap")),
    gate("Passt", (Some("0.57.0"), Some("1.3.0")), "passt", |vm| {
        of_any(interfaces_of(vm), "passt")
    }),
    gate("PortRangesSpec", (Some("1.9.0"), None), "portRanges", |vm| {
        of_any(interfaces_of(vm), "portRanges")
    }),
    gate("DeclarativeHotplugVolumes", (Some("1.6.0"), Some("1.9.0")), "an empty CD-ROM", |vm| {
        let volumes = volumes_by_name(vm);
        let empty = |disk: &&Node| {
            disk.given("cdrom").is_some() && !volumes.contains_key(super::name(disk))
        };
        disks_of(vm).iter().find(empty).map(place)
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
    mend: "Give the cluster's KubeVirt object beside (`kubectl get kubevirt -A -o yaml`) or name its \
           gates (--feature-gates): then this is an error or nothing",
    sources: &[
        "https://github.com/kubevirt/kubevirt/tree/main/pkg/virt-config/featuregate",
        "https://kubevirt.io/user-guide/cluster_admin/activating_feature_gates/",
    ],
    affected: &[],
    check: Check::VmOrObject(of_vm, of_object),
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

/// What may need a gate that nobody said is on or off.
fn of_vm(vm: &Vm, context: &Context, out: &mut Drafts) {
    perhaps_off(GATES, vm, context, out);
}

fn of_object(object: &KubeObject, context: &Context, out: &mut Drafts) {
    perhaps_off(GATES_OF_OBJECTS, object, context, out);
}

fn perhaps_off<T>(gates: &[Gate<T>], of: &T, context: &Context, out: &mut Drafts) {
    if context.cluster.is_some() {
        return;
    }
    for gate in gates.iter().filter(|gate| gate.off.holds(context)) {
        if let Some(span) = (gate.uses)(of) {
            let note = format!("it is off by default in {}", gate.off.text());
            out.at(span, gate.needed()).note(note);
        }
    }
}

impl<T> Gate<T> {
    fn needed(&self) -> String {
        format!("{} needs the feature gate {}", capital(self.what), self.name)
    }

    /// Why it is off there, if it is.
    fn why_off(&self, context: &Context) -> Option<String> {
        let cluster =
            context.cluster.as_ref().filter(|cluster| !cluster.gates.contains(self.name))?;
        if self.off.holds(context) {
            return Some(format!(
                "the cluster names it not, and it is off by default in {}",
                self.off.text()
            ));
        }
        let disabled = cluster.disabled_gates.contains(self.name);
        let can_be_off = context.kubevirt >= BETA_IS_ON && BETA.contains(&self.name);
        (disabled && can_be_off).then(|| "disabledFeatureGates of the cluster names it".to_owned())
    }
}

pub(crate) const FEATURE_GATE_OFF: Rule = Rule {
    id: "kubevirt-feature-gate-off",
    severity: Severity::Error,
    summary: "something that the cluster does not take, as it has the feature gate off",
    why: "The cluster's KubeVirt object was given, or --feature-gates: the admission webhook \
          refuses the object there (of a containerPath: virt-controller makes no pod).",
    mend: "Add the gate to developerConfiguration.featureGates of the cluster's KubeVirt object, \
           or do without",
    sources: FEATURE_GATE.sources,
    affected: &[],
    check: Check::VmOrObject(vm_needs, object_needs),
    fires: &[
        yaml(
            NO_GATES,
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
            NO_GATES,
            "\
apiVersion: migrations.kubevirt.io/v1alpha1
kind: MigrationPolicy
metadata:
  name: calm
spec:
  maxDowntimeMs: 200
  selectors: {}
",
        ),
        yaml(
            NO_GATES,
            "domain:\n  memory:\n    guest: 1Gi\n  rebootPolicy: Terminate\n  devices: {}\n",
        ),
    ],
    quiet: &[
        yaml(
            HOST_DEVICES,
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
        yaml(ANY, "domain:\n  memory:\n    guest: 1Gi\n  rebootPolicy: Terminate\n  devices: {}\n"),
    ],
};

fn vm_needs(vm: &Vm, context: &Context, out: &mut Drafts) {
    surely_off(GATES, vm, context, out);
}

fn object_needs(object: &KubeObject, context: &Context, out: &mut Drafts) {
    surely_off(GATES_OF_OBJECTS, object, context, out);
}

fn surely_off<T>(gates: &[Gate<T>], of: &T, context: &Context, out: &mut Drafts) {
    for gate in gates {
        if let Some(why) = gate.why_off(context)
            && let Some(span) = (gate.uses)(of)
        {
            out.at(span, gate.needed()).note(why);
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
