//! Networks, and the interfaces that are connected to them.

use super::{NETWORK, by_name, interfaces_of, name, networks_of, place, repeated, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const INTERFACES: &str = "https://kubevirt.io/user-guide/network/interfaces_and_networks/";

pub(super) const GOOD: &str = "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: default
      masquerade: {}
      macAddress: 02:00:00:00:00:01
      model: virtio
      ports:
      - name: ssh
        port: 22
    - name: storage
      bridge: {}
networks:
- name: default
  pod: {}
- name: storage
  multus:
    networkName: storage
";

pub(crate) const PAIRS: Rule = Rule {
    id: "kubevirt-network-pair",
    severity: Severity::Error,
    summary: "an interface without a network of its name, or the other way round",
    why: "An interface and a network belong together by their name. The admission webhook refuses \
          one without the other, and two of one name.",
    mend: "Give each network one interface of its name",
    sources: &[NETWORK, INTERFACES],
    affected: &[],
    check: Check::Vm(pairs),
    fires: &[yaml(
        ANY,
        "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: default
      masquerade: {}
networks:
- name: pod
  pod: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn pairs(vm: &Vm, _: &Context, out: &mut Drafts) {
    for (items, others, what, other) in [
        (interfaces_of(vm), networks_of(vm), "interface", "network"),
        (networks_of(vm), interfaces_of(vm), "network", "interface"),
    ] {
        let known = by_name(others);
        for item in items.iter().filter(|item| !known.contains_key(name(item))) {
            out.at(place(item), format!("No {other} has the name {:?} of this {what}", name(item)));
        }
        repeated(items, what, out);
    }
}

pub(crate) const SOURCE: Rule = Rule {
    id: "kubevirt-network-source",
    severity: Severity::Error,
    summary: "networks that are of no kind or of two, or two that are the pod's",
    why: "The admission webhook takes one network of the pod, or one of Multus in its place, and \
          any number of others.",
    mend: "Say pod: {} of one network, and multus with a networkName of the others",
    sources: &[NETWORK, INTERFACES],
    affected: &[],
    check: Check::Vm(source),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: red
      masquerade: {}
    - name: blue
      masquerade: {}
networks:
- name: red
  pod: {}
- name: blue
  pod: {}
",
        ),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: red
      bridge: {}
networks:
- name: red
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn source(vm: &Vm, _: &Context, out: &mut Drafts) {
    let kinds = ["pod", "multus", "resourceClaim"];
    let (mut pod, mut default): (Option<&Node>, Option<&Node>) = (None, None);
    for network in networks_of(vm) {
        let given: Vec<&str> =
            kinds.into_iter().filter(|kind| network.given(kind).is_some()).collect();
        let unknown = network.entries().iter().any(|(key, node)| {
            key.text != "name" && !node.is_null() && !kinds.contains(&key.text.as_str())
        });
        match given.as_slice() {
            [] if !unknown => {
                out.at(place(network), format!("Network {} is of no kind", name(network)));
            }
            [] | [_] => {}
            several => {
                let message =
                    format!("Network {} is {} at once", name(network), several.join(" and "));
                out.at(place(network), message);
            }
        }
        if network.given("pod").is_some()
            && let Some(first) = pod.replace(network)
        {
            out.at(place(network), format!("A second network of the pod, beside {}", name(first)));
        }
        let Some(multus) = network.given("multus") else { continue };
        if word(multus, "networkName").is_none() {
            out.at(place(network), "multus needs a networkName");
        }
        if multus.get("default").is_some_and(Node::is_true)
            && let Some(first) = default.replace(network)
        {
            out.at(place(network), format!("A second default of Multus, beside {}", name(first)));
        }
    }
    if let (Some(pod), Some(default)) = (pod, default) {
        let message = format!("The default of Multus takes the place of {}", name(pod));
        out.at(place(default), message);
    }
}

/// How an interface is bound to its network, one of them.
const BINDINGS: [&str; 5] = ["bridge", "masquerade", "sriov", "passtBinding", "binding"];

/// What was a binding once.
const GONE: [&str; 3] = ["slirp", "macvtap", "passt"];

pub(crate) const BINDING: Rule = Rule {
    id: "kubevirt-binding",
    severity: Severity::Error,
    summary: "a binding that is missing, there twice, gone, or not for this network",
    why: "The admission webhook takes masquerade and passt on the pod's network only, and since \
          KubeVirt 1.3 no slirp, macvtap and passt by their old names. Since 1.9 each interface \
          needs just one binding.",
    mend: "Say masquerade: {} on the pod's network, bridge: {} or sriov: {} on others",
    sources: &[NETWORK, INTERFACES],
    affected: &[],
    check: Check::Vm(binding),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: storage
      masquerade: {}
networks:
- name: storage
  multus:
    networkName: storage
",
        ),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: default
      slirp: {}
networks:
- name: default
  pod: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

fn binding(vm: &Vm, context: &Context, out: &mut Drafts) {
    let networks = by_name(networks_of(vm));
    for interface in interfaces_of(vm) {
        let of = |names: &[&'static str]| -> Vec<&'static str> {
            names.iter().copied().filter(|name| interface.given(name).is_some()).collect()
        };
        let (given, gone) = (of(&BINDINGS), of(&GONE));
        if let Some((key, _)) = gone.first().and_then(|gone| interface.entry(gone))
            && context.kubevirt >= KubevirtVersion::new(1, 3, 0)
        {
            out.at(key.span, format!("The binding {} is gone since KubeVirt 1.3", key.text));
        } else if context.kubevirt >= KubevirtVersion::new(1, 9, 0) {
            // Text that is no field at all is reported by kubevirt-unknown-field.
            match given.as_slice() {
                [] => {
                    let null = BINDINGS.iter().find_map(|name| interface.entry(name));
                    let draft = out.at(
                        place(interface),
                        format!("Interface {} has no binding", name(interface)),
                    );
                    if let Some((key, _)) = null {
                        let key = &key.text;
                        draft.note(format!("{key} without a value says nothing: {key}: {{}}"));
                    }
                }
                [_] => {}
                several => {
                    let message =
                        format!("Interface {} has {}", name(interface), several.join(" and "));
                    out.at(place(interface), message);
                }
            }
        } else if given.len() > 1
            && given.contains(&"binding")
            && context.kubevirt >= KubevirtVersion::new(1, 1, 0)
        {
            let message = format!("Interface {} has {}", name(interface), given.join(" and "));
            out.at(place(interface), message);
        }
        let Some(network) = networks.get(name(interface)) else { continue };
        for binding in ["masquerade", "passtBinding"] {
            if let Some((key, _)) = interface.entry(binding).filter(|(_, node)| !node.is_null())
                && network.given("pod").is_none()
            {
                let message =
                    format!("{binding} is for the pod's network; {} is none", name(network));
                out.at(key.span, message);
            }
        }
    }
}
