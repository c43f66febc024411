//! Round trips and what people write.

use proptest::prelude::*;

use crate::tests::{any_spec, check_round_trip};
use crate::*;

use super::{Kind, emit, parse};

proptest! {
    #[test]
    fn what_is_emitted_is_read_as_the_same_vm(
        spec in any_spec(), kind in prop::sample::select(vec![Kind::Instance, Kind::Machine]),
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
    assert_eq!(parse("kind: Pod\nspec: {}").unwrap_err(), super::NotKubevirt::NoVm);
    assert!(parse("a: [").unwrap_err().to_string().starts_with("Not YAML: "));
    assert!(parse(&"[".repeat(100_000)).is_err());
}
