//! Sets of VMs: pools and replica sets.

use super::labels::{check_selector, matches};
use super::{REFUSED, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const POOLS: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
                     validating-webhook/admitters/vmpool-admitter.go";
const REPLICAS: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/virt-api/webhooks/\
                        validating-webhook/admitters/vmirs-admitter.go";

const GOOD: &str = "\
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata:
  name: example
spec:
  replicas: 3
  maxUnavailable: 50%
  updateStrategy:
    opportunistic: {}
  selector:
    matchLabels:
      pool: example
  virtualMachineTemplate:
    metadata:
      labels:
        pool: example
    spec:
      runStrategy: Always
      template:
        metadata:
          labels:
            pool: example
        spec:
          domain:
            memory:
              guest: 1Gi
            devices: {}
";

const GOOD_REPLICAS: &str = "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceReplicaSet
metadata:
  name: example
spec:
  replicas: 3
  selector:
    matchExpressions:
    - key: app
      operator: In
      values: [web, db]
  template:
    metadata:
      labels:
        app: web
    spec:
      domain:
        memory:
          guest: 1Gi
        devices: {}
";

pub(crate) const SELECTOR: Rule = Rule {
    id: "kubevirt-selector",
    severity: Severity::Error,
    summary: "a pool or a replica set that does not select its own VMs",
    why: "The admission webhook holds the selector against the labels of the template: a pool's \
          those of virtualMachineTemplate, a replica set's those of template.",
    mend: "Give the template's metadata the labels that the selector names",
    sources: &[POOLS, REPLICAS],
    affected: &[],
    check: Check::Vm(selector),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceReplicaSet
metadata:
  name: example
spec:
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: wep
    spec:
      domain:
        memory:
          guest: 1Gi
        devices: {}
",
        ),
        yaml(
            ANY,
            "\
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata:
  name: example
spec:
  selector:
    matchLabels:
      pool: example
  virtualMachineTemplate:
    metadata: {}
    spec:
      runStrategy: Always
      template:
        metadata:
          labels:
            pool: example
        spec:
          domain:
            memory:
              guest: 1Gi
            devices: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD), yaml(ANY, GOOD_REPLICAS)],
};

fn selector(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(kubevirt) = &vm.kubevirt else { return };
    let template = match kubevirt.kind.value.as_str() {
        "VirtualMachineInstanceReplicaSet" => "spec.template",
        "VirtualMachinePool" => "spec.virtualMachineTemplate",
        _ => return,
    };
    let Some((key, selector)) =
        kubevirt.object.entry("spec.selector").filter(|(_, node)| !node.is_null())
    else {
        return;
    };
    let before = out.0.len();
    check_selector(Some(selector), out);
    let labels = kubevirt.object.get(&format!("{template}.metadata.labels"));
    if out.0.len() == before && !matches(selector, labels) {
        let draft = out.at(key.span, "The selector does not match the labels of the template");
        draft.note(format!("looked at: {template}.metadata.labels"));
    }
}

pub(crate) const POOL: Rule = Rule {
    id: "kubevirt-pool",
    severity: Severity::Error,
    summary: "a pool that may lose no VM, or is given two strategies",
    why: REFUSED,
    mend: "Write maxUnavailable as a number from 1 or a share from 1% to 100%, and one strategy",
    sources: &[POOLS],
    affected: &[AffectedVersions::kubevirt(Some("1.6.0"), None)],
    check: Check::Vm(pool),
    fires: &[
        yaml(
            ANY,
            "\
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata:
  name: example
spec:
  maxUnavailable: 0
  selector: {}
  virtualMachineTemplate:
    spec:
      runStrategy: Always
      template:
        spec:
          domain:
            memory:
              guest: 1Gi
            devices: {}
",
        ),
        yaml(
            ANY,
            "\
apiVersion: pool.kubevirt.io/v1beta1
kind: VirtualMachinePool
metadata:
  name: example
spec:
  updateStrategy:
    unmanaged: {}
    proactive: {}
  selector: {}
  virtualMachineTemplate:
    spec:
      runStrategy: Always
      template:
        spec:
          domain:
            memory:
              guest: 1Gi
            devices: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn pool(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(kubevirt) = &vm.kubevirt else { return };
    let Some(spec) = kubevirt.object.get("spec") else { return };
    if kubevirt.kind.value != "VirtualMachinePool" {
        return;
    }
    if let Some((most, span)) = word(spec, "maxUnavailable") {
        let of_text = spec.get("maxUnavailable").is_some_and(|node| node.type_name() == "string");
        let right = match (of_text, most.strip_suffix('%')) {
            (true, share) => share
                .and_then(|share| share.parse().ok())
                .is_some_and(|n: i64| (1..=100).contains(&n)),
            (false, _) => most.parse::<i64>().is_ok_and(|count| count > 0),
        };
        if !right {
            out.at(span, format!("{most} is no number of VMs above 0, nor a share above 0%"));
        }
    }
    if context.kubevirt < KubevirtVersion::new(1, 7, 0) {
        return;
    }
    for strategy in ["updateStrategy", "scaleInStrategy"] {
        let Some((key, node)) = spec.entry(strategy) else { continue };
        let given: Vec<&str> = ["unmanaged", "opportunistic", "proactive"]
            .into_iter()
            .filter(|kind| node.given(kind).is_some())
            .collect();
        if given.len() > 1 {
            out.at(key.span, format!("{strategy} is {} at once", given.join(" and ")));
        }
    }
}
