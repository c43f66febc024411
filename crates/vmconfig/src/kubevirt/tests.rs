//! Round trips and what people write.

use proptest::prelude::*;

use crate::tests::{any_spec, check_round_trip};
use crate::*;

use topology::bounded::YamlValue;

use super::tree::ManifestNode;
use super::{KubevirtKind, emit, parse};

mod cluster;

/// The first document of a text.
fn first(text: &str) -> YamlValue {
    topology::bounded::yaml(text).unwrap().remove(0)
}

proptest! {
    #[test]
    fn what_is_emitted_is_read_as_the_same_vm(
        spec in any_spec(), kind in prop::sample::select(vec![KubevirtKind::Instance, KubevirtKind::Machine]),
    ) {
        let EmittedText { text, losses } = emit(&spec, kind);
        let parsed = parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}")).remove(0);
        check_round_trip(&spec, &text, &losses, &parsed);
        prop_assert!(parsed.kept.is_empty(), "{text}\n{:?}", parsed.kept);
    }

    #[test]
    fn any_text_is_read_without_harm(text in "[a-z:{}&*\\[\\]\\- \n]{0,80}") {
        let _ = parse(&text);
    }
}

#[test]
fn devices_of_the_host_are_resources() {
    let text = "kind: VirtualMachineInstance\nspec:\n  domain:\n    devices:\n      hostDevices:\n\
                \x20     - {name: a, deviceName: vendor.com/nvme}\n\
                \x20     - {name: b, deviceName: vendor.com/nvme, tag: t}\n\
                \x20     - {name: c}\n";
    let parsed = parse(text).unwrap().remove(0);
    let nvme = HostDevice::Resource("vendor.com/nvme".to_owned());
    assert_eq!(parsed.settings.host_devices, [nvme.clone(), nvme]);
    let kept: Vec<&str> = parsed.kept.iter().map(|kept| kept.path.as_str()).collect();
    assert_eq!(
        kept,
        ["spec.domain.devices.hostDevices.1.tag", "spec.domain.devices.hostDevices.2"]
    );
    let mut settings = parsed.settings.clone();
    settings.host_devices.push(HostDevice::Pci("0000:3b:00.0".parse().unwrap()));
    let emitted = emit(&VmSpec::new(settings).unwrap(), KubevirtKind::Instance);
    assert_eq!(emitted.text.matches("deviceName: ").count(), 2, "{}", emitted.text);
    let lost = emitted.losses.iter().find(|loss| loss.what == "host devices at 0000:3b:00.0");
    assert!(lost.is_some_and(|loss| loss.why.contains("permittedHostDevices")), "{emitted:?}");
}

#[test]
fn what_names_no_network_has_the_pods() {
    let nics = |devices: &str| {
        let text = format!(
            "kind: VirtualMachineInstance\nspec:\n  domain:\n    cpu: {{cores: 4}}\n    {devices}\n"
        );
        parse(&text).unwrap().remove(0).settings.nics
    };
    for said in ["", "devices: {}", "devices: {autoattachPodInterface: true}"] {
        let [nic] = &nics(said)[..] else { panic!("{said}: {:?}", nics(said)) };
        assert_eq!(nic.backend, NicBackend::Pod { binding: Binding::Bridge });
        assert_eq!((nic.model, nic.queues), (NicModel::Virtio, None));
    }
    assert_eq!(nics("devices: {networkInterfaceMultiqueue: true}")[0].queues, Some(4));
    assert!(nics("devices: {autoattachPodInterface: false}").is_empty());
}

#[test]
fn what_people_write_is_read() {
    let text = "kind: VirtualMachine
apiVersion: kubevirt.io/v1
metadata: {name: db, labels: {app: db}}
spec:
  running: true
  template:
    spec:
      domain:
        cpu: {cores: 2, threads: 2, dedicatedCpuPlacement: true, model: host-passthrough}
        resources:
          requests: {memory: 8Gi}
        devices:
          disks:
          - name: root
            disk: {bus: virtio}
            dedicatedIOThread: true
      volumes:
      - {name: root, persistentVolumeClaim: {claimName: db-root}}
      - name: init
        cloudInitNoCloud: {userData: hello}
---
kind: Pod
";
    let mut all = parse(text).unwrap();
    assert_eq!(all.len(), 1);
    let parsed = all.remove(0);
    let spec = parsed.spec().unwrap();
    assert_eq!((spec.vcpus(), spec.topology.threads, spec.memory_mib), (4, 2, 8192));
    assert_eq!((spec.cpu_model.as_str(), spec.delegated.dedicated_vcpus), ("host", Some(true)));
    assert_eq!((spec.disks[0].iothread, spec.iothreads), (Some(1), 1));
    assert_eq!(parsed.line("delegated.dedicated_vcpus"), Some(9));
    let kept: Vec<_> =
        parsed.kept.iter().map(|one| (one.line, one.path.as_str(), one.text.as_str())).collect();
    let expected = [
        (3, "metadata.labels", "{app: db}"),
        (5, "spec.running", "true"),
        (19, "spec.template.spec.volumes.1", "{name: init, cloudInitNoCloud: {userData: hello}}"),
    ];
    assert_eq!(kept, expected);
}

#[test]
fn what_is_no_vm_is_refused() {
    assert_eq!(parse("kind: Pod\nspec: {}").unwrap_err(), super::KubevirtMismatch::NoVm);
    assert!(parse("a: [").unwrap_err().to_string().starts_with("Not YAML: "));
    assert!(parse(&"[".repeat(100_000)).is_err());
}

/// The object's schema of a CRD.
fn schema(text: &str) -> YamlValue {
    let crd = first(text);
    let version = &crd.get("spec.versions").unwrap().items()[0];
    version.get("schema.openAPIV3Schema").unwrap().clone()
}

/// What the schema has against a value; a field that it does not know too, as
/// `fieldValidation=Strict` of a Kubernetes API server.
fn complaints(value: &YamlValue, schema: &YamlValue, path: &str, all: &mut Vec<String>) {
    let of = |key: &str| schema.entries().iter().rfind(|(name, _)| name.text == key);
    let of = |key: &str| of(key).map(|(_, value)| value);
    let flag = |key: &str| of(key).is_some_and(YamlValue::is_true);
    if flag("x-kubernetes-preserve-unknown-fields") || flag("x-kubernetes-int-or-string") {
        return;
    }
    let texts = |key: &str| -> Vec<&str> {
        let items = of(key).map(YamlValue::items).unwrap_or_default();
        items.iter().filter_map(YamlValue::text).collect()
    };
    for required in texts("required") {
        if !value.entries().iter().any(|(key, _)| key.text == required) {
            all.push(format!("{path}.{required}: required value"));
        }
    }
    let allowed = texts("enum");
    if let Some(text) = value.text()
        && !allowed.is_empty()
        && !allowed.contains(&text)
    {
        all.push(format!("{path}: {text:?} is none of {allowed:?}"));
    }
    let kind = of("type").and_then(YamlValue::text).unwrap_or_default();
    let is = value.type_name();
    let right = is == kind || kind.is_empty() || kind == "number" && is == "integer";
    if !right {
        all.push(format!("{path}: must be of type {kind}"));
        return;
    }
    if let Some(items) = of("items") {
        for (number, item) in value.items().iter().enumerate() {
            complaints(item, items, &format!("{path}[{number}]"), all);
        }
    }
    let known = of("properties").map(YamlValue::entries).unwrap_or_default();
    for (key, inner) in value.entries() {
        let known = known.iter().find(|(name, _)| name.text == key.text).map(|(_, schema)| schema);
        match known.or(of("additionalProperties")) {
            Some(schema) => complaints(inner, schema, &format!("{path}.{}", key.text), all),
            // What every object has stands in no CRD.
            None if path == ".metadata" => {}
            None => all.push(format!("{path}.{}: unknown field", key.text)),
        }
    }
}

/// The rules of the admission webhook that no schema carries, of those fields
/// that are emitted.
///
/// Source: KubeVirt 1.9.0, `vmi-create-admitter.go`.
fn webhook(instance: &ManifestNode<'_>) -> Vec<&'static str> {
    let domain = instance.peek("domain").unwrap();
    let (cpu, devices) = (domain.peek("cpu").unwrap(), domain.peek("devices").unwrap());
    let number =
        |node: &ManifestNode<'_>, key: &str| node.read(key, |text| text.parse::<u64>().ok());
    let dedicated = cpu.flag("dedicatedCpuPlacement") == Some(true);
    let (numa, realtime) = (cpu.peek("numa").is_some(), cpu.peek("realtime").is_some());
    let page = domain.peek("memory").and_then(|memory| memory.peek("hugepages"));
    let guest = domain.peek("memory").and_then(|memory| memory.read("guest", crate_mib)).unwrap();
    let page_mib = page.and_then(|page| page.read("pageSize", crate_mib));
    let names = |parent: &ManifestNode<'_>, key: &str| -> Vec<String> {
        let name = |node: &ManifestNode<'_>| {
            node.peek("name").and_then(ManifestNode::text).unwrap().to_owned()
        };
        parent.items(key).iter().map(name).collect()
    };
    let policy = domain.peek("ioThreadsPolicy").and_then(ManifestNode::text);
    let rules = [
        (
            "isolateEmulatorThread needs dedicated",
            cpu.flag("isolateEmulatorThread") == Some(true) && !dedicated,
        ),
        ("numa needs dedicated and huge pages", numa && (!dedicated || page.is_none())),
        ("realtime needs dedicated and numa", realtime && (!dedicated || !numa)),
        ("two threads at most", dedicated && number(cpu, "threads").unwrap() > 2),
        ("maxSockets", number(cpu, "maxSockets").unwrap() < number(cpu, "sockets").unwrap()),
        ("memory is asked for", dedicated && domain.peek("resources").is_none()),
        ("whole huge pages", page_mib.is_some_and(|page| !guest.is_multiple_of(page))),
        ("ioThreadsPolicy", !matches!(policy, None | Some("shared" | "auto"))),
        ("every disk has a volume", names(devices, "disks") != names(instance, "volumes")),
        (
            "every interface has a network",
            names(devices, "interfaces") != names(instance, "networks"),
        ),
    ];
    rules.into_iter().filter(|rule| rule.1).map(|rule| rule.0).collect()
}

fn crate_mib(text: &str) -> Option<u64> {
    topology::bytes::parse(text, 1).map(|bytes| bytes.div_ceil(1 << 20))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_schemas_and_the_webhook_take_every_vm(spec in any_spec()) {
        for (kind, text) in [
            (KubevirtKind::Instance, include_str!("../../testdata/kubevirt-crds/virtualmachineinstances.kubevirt.io.yaml")),
            (KubevirtKind::Machine, include_str!("../../testdata/kubevirt-crds/virtualmachines.kubevirt.io.yaml")),
        ] {
            let emitted = emit(&spec, kind).text;
            let object = first(&emitted);
            let mut all = Vec::new();
            complaints(&object, &schema(text), "", &mut all);
            prop_assert!(all.is_empty(), "{all:#?}\n{emitted}");
            let object = ManifestNode::new(&object);
            let instance = object.peek("spec").unwrap();
            let instance = match kind {
                KubevirtKind::Instance => instance,
                KubevirtKind::Machine => instance.peek("template").unwrap().peek("spec").unwrap(),
            };
            prop_assert_eq!(webhook(instance), Vec::<&str>::new(), "{}", emitted);
        }
    }
}

#[test]
fn the_schema_sees_what_is_wrong() {
    let text =
        include_str!("../../testdata/kubevirt-crds/virtualmachineinstances.kubevirt.io.yaml");
    let object = "spec: {domain: {cpu: {cores: two, dedicatedCPUPlacement: true}}}";
    let mut all = Vec::new();
    complaints(&first(object), &schema(text), "", &mut all);
    let expected = [
        ".spec.domain.devices: required value",
        ".spec.domain.cpu.cores: must be of type integer",
        ".spec.domain.cpu.dedicatedCPUPlacement: unknown field",
    ];
    assert_eq!(all, expected);
}

#[test]
fn a_small_text_that_grows_without_bound_is_refused() {
    let mut bomb = "kind: VirtualMachineInstance\na0: &a0 [0,0,0,0,0,0,0,0,0,0]\n".to_owned();
    for level in 1..9 {
        let ten = vec![format!("*a{}", level - 1); 10].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{ten}]\n"));
    }
    let error = super::parse(&bomb).expect_err("10^9 values").to_string();
    assert!(error.contains("line ") && error.contains("aliases counted"), "{error}");
}

#[test]
fn a_volume_without_a_disk_is_a_disk() {
    let text = "\
kind: VirtualMachine
metadata: {name: web}
spec:
  preference: {name: fast}
  template:
    spec:
      domain: {memory: {guest: 1Gi}, devices: {}}
      volumes:
      - {name: root, dataVolume: {name: root-1}}
      - {name: seed, cloudInitNoCloud: {userData: x}}
";
    let preference = "\
---
kind: VirtualMachineClusterPreference
metadata: {name: fast}
spec: {devices: {preferredDiskBus: virtio, preferredDiskCache: none}}
";
    let disks = |text: &str| parse(text).unwrap()[0].settings.disks.clone();
    let [alone] = &disks(text)[..] else { panic!("one disk") };
    assert_eq!((&alone.source, alone.bus), (&DiskSource::Claim("root-1".into()), DiskBus::Sata));
    let [preferred] = &disks(&format!("{text}{preference}"))[..] else { panic!("one disk") };
    assert_eq!((preferred.bus, preferred.cache), (DiskBus::VirtioBlk, Some(CacheMode::None)));
}
