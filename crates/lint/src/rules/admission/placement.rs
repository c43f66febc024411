//! Where the VM's pod may be placed.

use std::collections::HashSet;

use super::labels::{check_labels, check_node_term, check_selector, is_key, is_value, items};
use super::{ADMITTERS, REFUSED, is_label, list, one_of, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;

const GOOD: &str = "\
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - key: cpu-model.node.kubevirt.io/Icelake-Server
          operator: Exists
        - key: example.com/cores
          operator: Gt
          values: ['15']
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            app: db
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: DoNotSchedule
  labelSelector:
    matchLabels:
      app: db
nodeSelector:
  kubernetes.io/arch: amd64
tolerations:
- key: dedicated
  operator: Equal
  value: vms
  effect: NoSchedule
domain:
  memory:
    guest: 1Gi
  devices: {}
";

pub(crate) const AFFINITY: Rule = Rule {
    id: "kubevirt-affinity",
    severity: Severity::Error,
    summary: "an affinity or a topology spread constraint that Kubernetes does not take",
    why: REFUSED,
    mend: "Give each term a topologyKey, each weight 1 to 100, and each operator the values that it \
           takes: In and NotIn some, Exists and DoesNotExist none, Gt and Lt one",
    sources: &[
        ADMITTERS,
        "https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/",
    ],
    affected: &[AffectedVersions::kubevirt(Some("0.57.0"), None)],
    check: Check::Vm(affinity),
    fires: &[
        yaml(
            ANY,
            "\
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - key: example.com/realtime
          operator: Exists
          values: ['true']
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
        yaml(
            ANY,
            "\
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 200
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
        yaml(
            ANY,
            "\
topologySpreadConstraints:
- maxSkew: 0
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: DoNotSchedule
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
        yaml(
            ANY,
            "\
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchFields:
        - key: metadata.uid
          operator: In
          values: [a]
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
        yaml(
            ANY,
            "\
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
- maxSkew: 2
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

fn affinity(vm: &Vm, _: &Context, out: &mut Drafts) {
    if let Some(nodes) = vm.kube("affinity.nodeAffinity") {
        if let Some((key, required)) = nodes.entry(REQUIRED).filter(|(_, node)| !node.is_null()) {
            let terms = items(required, "nodeSelectorTerms");
            if terms.is_empty() {
                out.at(key.span, "At least one of nodeSelectorTerms is needed");
            }
            terms.iter().for_each(|term| check_node_term(term, out));
        }
        for preferred in items(nodes, PREFERRED) {
            check_weight(preferred, out);
            if let Some(term) = preferred.given("preference") {
                check_node_term(term, out);
            }
        }
    }
    for kind in ["affinity.podAffinity", "affinity.podAntiAffinity"] {
        let Some(pods) = vm.kube(kind) else { continue };
        items(pods, REQUIRED).iter().for_each(|term| check_pod_term(term, out));
        for preferred in items(pods, PREFERRED) {
            check_weight(preferred, out);
            if let Some(term) = preferred.given("podAffinityTerm") {
                check_pod_term(term, out);
            }
        }
    }
    spread(list(vm, "topologySpreadConstraints"), out);
}

fn check_weight(term: &Node, out: &mut Drafts) {
    let Some(node) = term.given("weight") else { return };
    if let Some(weight) = node.integer().filter(|weight| !(1..=100).contains(weight)) {
        out.at(node.span, format!("{weight} is no weight: 1 to 100"));
    }
}

fn check_pod_term(term: &Node, out: &mut Drafts) {
    check_selector(term.given("labelSelector"), out);
    check_selector(term.given("namespaceSelector"), out);
    for namespace in items(term, "namespaces") {
        let text = namespace.text().unwrap_or_default();
        if !is_label(text) {
            out.at(namespace.span, format!("{text:?} is no name of a namespace"));
        }
    }
    check_topology_key(term, out);
}

fn check_topology_key(term: &Node, out: &mut Drafts) {
    match word(term, "topologyKey") {
        None => {
            out.at(term.span, "A topologyKey is needed: kubernetes.io/hostname");
        }
        Some((key, span)) if !is_key(key) => {
            out.at(span, format!("{key:?} is no key of a label"));
        }
        Some(_) => {}
    }
}

fn spread(constraints: &[Node], out: &mut Drafts) {
    let mut seen = HashSet::new();
    for constraint in constraints {
        if let Some(node) = constraint.given("maxSkew")
            && node.integer().is_some_and(|skew| skew <= 0)
        {
            out.at(node.span, "maxSkew is at least 1");
        }
        check_topology_key(constraint, out);
        one_of(constraint, "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"], out);
        check_selector(constraint.given("labelSelector"), out);
        let text = |key: &str| word(constraint, key).map(|(text, _)| text).unwrap_or_default();
        let (key, way) = (text("topologyKey"), text("whenUnsatisfiable"));
        if !seen.insert((key, way)) {
            out.at(constraint.span, format!("A second constraint of {key} and {way}"));
        }
    }
}

const VALIDATION: &str = "https://github.com/kubernetes/kubernetes/blob/master/pkg/apis/core/\
                          validation/validation.go";

pub(crate) const POD: Rule = Rule {
    id: "kubevirt-pod-refused",
    severity: Severity::Error,
    summary: "a node selector or a toleration with which no pod can be made",
    why: "KubeVirt takes the object without a look at these; virt-controller copies them into the \
          pod, which the API server refuses, and the VMI stays Pending.",
    mend: "Write labels as Kubernetes has them, operator: Exists without a value, and tolerationSeconds \
           with effect: NoExecute only",
    sources: &[
        VALIDATION,
        "https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/",
    ],
    affected: &[],
    check: Check::Vm(pod),
    fires: &[
        yaml(
            ANY,
            "\
tolerations:
- key: dedicated
  operator: Exists
  value: vms
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
        yaml(
            ANY,
            "\
nodeSelector:
  kubernetes.io/hostname: 'node 1'
domain:
  memory:
    guest: 1Gi
  devices: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn pod(vm: &Vm, _: &Context, out: &mut Drafts) {
    check_labels(vm.kube("nodeSelector"), out);
    for toleration in list(vm, "tolerations") {
        let key = word(toleration, "key");
        if let Some((key, span)) = key.filter(|(key, _)| !is_key(key)) {
            out.at(span, format!("{key:?} is no key of a taint"));
        }
        // Lt and Gt are for clusters with a feature gate.
        one_of(toleration, "operator", &["Equal", "Exists", "Lt", "Gt"], out);
        one_of(toleration, "effect", &["NoSchedule", "PreferNoSchedule", "NoExecute"], out);
        let operator = word(toleration, "operator").map_or("Equal", |(operator, _)| operator);
        if key.is_none() && operator != "Exists" {
            out.at(toleration.span, "A toleration without a key needs operator: Exists");
        }
        if let Some((value, span)) = word(toleration, "value") {
            if operator == "Exists" {
                out.at(span, "operator: Exists takes no value");
            } else if !is_value(value) {
                out.at(span, format!("{value:?} is no value of a taint"));
            }
        }
        let effect = word(toleration, "effect").map(|(effect, _)| effect);
        if let Some(seconds) = toleration.given("tolerationSeconds")
            && effect != Some("NoExecute")
        {
            out.at(seconds.span, "tolerationSeconds is for effect: NoExecute only");
        }
    }
}
