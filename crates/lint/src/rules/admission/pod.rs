//! Fields of the VM's pod: names, probes, DNS, credentials.

use super::{
    ADMITTERS, REFUSED, is_label, is_subdomain, list, networks_of, place, volumes_of, word,
};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

const GOOD: &str = "\
hostname: web
subdomain: example
dnsPolicy: None
dnsConfig:
  nameservers:
  - 192.0.2.1
readinessProbe:
  tcpSocket:
    port: 22
accessCredentials:
- sshPublicKey:
    source:
      secret:
        secretName: keys
    propagationMethod:
      noCloud: {}
domain:
  memory:
    guest: 1Gi
  devices:
    disks:
    - name: seed
      disk:
        bus: virtio
    interfaces:
    - name: default
      masquerade: {}
networks:
- name: default
  pod: {}
volumes:
- name: seed
  cloudInitNoCloud:
    userData: '#cloud-config'
";

/// Labels that KubeVirt writes itself.
const RESERVED: [&str; 6] = [
    "kubevirt.io/created-by",
    "kubevirt.io/migrationJobUID",
    "kubevirt.io/nodeName",
    "kubevirt.io/migrationTargetNodeName",
    "kubevirt.io/schedulable",
    "kubevirt.io/install-strategy",
];

pub(crate) const NAMES: Rule = Rule {
    id: "kubevirt-name",
    severity: Severity::Error,
    summary: "a hostname, subdomain, service account or label that KubeVirt refuses",
    why: REFUSED,
    mend: "Write small letters, digits and dashes, and leave KubeVirt's own labels to KubeVirt",
    sources: &[ADMITTERS],
    affected: &[],
    check: Check::Vm(names),
    fires: &[yaml(ANY, "hostname: Web_1\ndomain:\n  memory:\n    guest: 1Gi\n  devices: {}\n")],
    quiet: &[yaml(ANY, GOOD)],
};

fn names(vm: &Vm, context: &Context, out: &mut Drafts) {
    let Some(kubevirt) = &vm.kubevirt else { return };
    if let Some((name, span)) = word(&kubevirt.spec, "hostname").filter(|(name, _)| !is_label(name))
    {
        out.at(span, format!("{name:?} is no hostname: small letters, digits, dashes, at most 63"));
    }
    let mut domains = vec!["subdomain"];
    if context.kubevirt >= KubevirtVersion::new(1, 9, 0) {
        domains.push("serviceAccountName");
    }
    for key in domains {
        let given = word(&kubevirt.spec, key);
        if let Some((name, span)) = given.filter(|(name, _)| !is_subdomain(name)) {
            out.at(span, format!("{name:?} is no {key}: names of small letters, digits, dashes"));
        }
    }
    if let Some((own, span)) = word(&kubevirt.spec, "serviceAccountName")
        && context.kubevirt >= KubevirtVersion::new(1, 9, 0)
    {
        for volume in volumes_of(vm) {
            if let Some((other, _)) = word(volume, "serviceAccount.serviceAccountName")
                && other != own
            {
                out.at(
                    span,
                    format!("The volume is of the service account {other}, the VM of {own}"),
                );
            }
        }
    }
    // What came out of a cluster has what KubeVirt wrote.
    if kubevirt.lives() {
        return;
    }
    for (label, _) in kubevirt.labels() {
        if RESERVED.contains(&label.text.as_str()) {
            out.at(label.span, format!("{} is KubeVirt's own label", label.text));
        }
    }
}

pub(crate) const PROBE: Rule = Rule {
    id: "kubevirt-probe",
    severity: Severity::Error,
    summary: "a probe of no kind, of two, or over a network that the pod does not have",
    why: REFUSED,
    mend: "Say one of httpGet, tcpSocket, exec and guestAgentPing; the first two need the pod's \
           network",
    sources: &[
        ADMITTERS,
        "https://kubevirt.io/user-guide/user_workloads/liveness_and_readiness_probes/",
    ],
    affected: &[],
    check: Check::Vm(probe),
    fires: &[yaml(
        ANY,
        "\
readinessProbe:
  tcpSocket:
    port: 22
  exec:
    command: [true]
domain:
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn probe(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(kubevirt) = &vm.kubevirt else { return };
    let of_pod = networks_of(vm).iter().any(|network| network.given("pod").is_some())
        || vm.has_default_network();
    for name in ["readinessProbe", "livenessProbe"] {
        let Some((key, probe)) = kubevirt.spec.entry(name).filter(|(_, node)| !node.is_null())
        else {
            continue;
        };
        let given: Vec<&str> = ["httpGet", "tcpSocket", "exec", "guestAgentPing"]
            .into_iter()
            .filter(|kind| probe.given(kind).is_some())
            .collect();
        if given.len() != 1 {
            let message = match given.as_slice() {
                [] => format!("{name} is of no kind"),
                several => format!("{name} is {} at once", several.join(" and ")),
            };
            out.at(key.span, message);
        }
        for kind in ["httpGet", "tcpSocket"] {
            if !of_pod && given.contains(&kind) {
                out.at(key.span, format!("{kind} needs the pod's network, which the VM is not on"));
            }
        }
    }
}

pub(crate) const DNS: Rule = Rule {
    id: "kubevirt-dns",
    severity: Severity::Error,
    summary: "a dnsPolicy or dnsConfig that Kubernetes does not take",
    why: REFUSED,
    mend: "Write dnsPolicy: ClusterFirst, ClusterFirstWithHostNet, Default, or None with \
           nameservers; at most 3 of them and 6 searches",
    sources: &[
        ADMITTERS,
        "https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/",
    ],
    affected: &[],
    check: Check::Vm(dns),
    fires: &[yaml(ANY, "dnsPolicy: None\ndomain:\n  memory:\n    guest: 1Gi\n  devices: {}\n")],
    quiet: &[yaml(ANY, GOOD)],
};

fn dns(vm: &Vm, _: &Context, out: &mut Drafts) {
    let Some(kubevirt) = &vm.kubevirt else { return };
    let spec = &kubevirt.spec;
    let known = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    super::one_of(spec, "dnsPolicy", &known, out);
    let config = spec.given("dnsConfig");
    let items =
        |key: &str| config.and_then(|node| node.get(key)).map(Node::items).unwrap_or_default();
    let servers = items("nameservers");
    if let Some((_, span)) = word(spec, "dnsPolicy").filter(|(policy, _)| *policy == "None")
        && servers.is_empty()
    {
        out.at(span, "dnsPolicy None needs dnsConfig.nameservers");
        return;
    }
    if let Some(more) = servers.get(3) {
        out.at(more.span, "At most 3 nameservers");
    }
    for server in servers {
        let text = server.text().unwrap_or_default();
        if text.parse::<core::net::IpAddr>().is_err() {
            out.at(server.span, format!("{text:?} is no IP address"));
        }
    }
    let searches = items("searches");
    if let Some(more) = searches.get(6) {
        out.at(more.span, "At most 6 searches");
    }
    let texts: Vec<&str> = searches.iter().filter_map(Node::text).collect();
    if let Some(last) = searches.last()
        && texts.join(" ").len() > 256
    {
        out.at(last.span, "More than 256 characters of searches");
    }
    for search in searches {
        let text = search.text().unwrap_or_default();
        if !is_subdomain(text) {
            out.at(search.span, format!("{text:?} is no domain"));
        }
    }
    for option in items("options").iter().filter(|option| word(option, "name").is_none()) {
        out.at(option.span, "An option needs a name");
    }
}

pub(crate) const CREDENTIALS: Rule = Rule {
    id: "kubevirt-credentials",
    severity: Severity::Error,
    summary: "accessCredentials without one source and one way in",
    why: REFUSED,
    mend: "Say sshPublicKey or userPassword, a secret, one propagationMethod, and the cloud-init \
           volume that it needs",
    sources: &[
        ADMITTERS,
        "https://kubevirt.io/user-guide/user_workloads/accessing_virtual_machines/",
    ],
    affected: &[],
    check: Check::Vm(credentials),
    fires: &[yaml(
        ANY,
        "\
accessCredentials:
- sshPublicKey:
    source:
      secret:
        secretName: keys
    propagationMethod:
      noCloud: {}
domain:
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

fn credentials(vm: &Vm, _: &Context, out: &mut Drafts) {
    let has = |source: &str| volumes_of(vm).iter().any(|volume| volume.given(source).is_some());
    let seeds = [("noCloud", "cloudInitNoCloud"), ("configDrive", "cloudInitConfigDrive")]
        .map(|(name, volume)| (name, volume, has(volume)));
    for credential in list(vm, "accessCredentials") {
        let kinds: Vec<&str> = ["sshPublicKey", "userPassword"]
            .into_iter()
            .filter(|kind| credential.given(kind).is_some())
            .collect();
        if kinds.len() != 1 {
            out.at(place(credential), "A credential is sshPublicKey or userPassword, one of both");
        }
        for kind in kinds {
            let Some((key, inner)) = credential.entry(kind) else { continue };
            if inner.given("source.secret").is_none() {
                out.at(key.span, format!("{kind} needs source.secret"));
            }
            let ways: &[&str] = match kind {
                "sshPublicKey" => &["noCloud", "configDrive", "qemuGuestAgent"],
                _ => &["qemuGuestAgent"],
            };
            let way = inner.given("propagationMethod");
            let given: Vec<&str> = ways
                .iter()
                .copied()
                .filter(|name| way.is_some_and(|way| way.given(name).is_some()))
                .collect();
            if given.len() != 1 {
                out.at(
                    key.span,
                    format!("{kind} needs one propagationMethod: {}", ways.join(", ")),
                );
            }
            for (name, volume, there) in seeds {
                if given.contains(&name) && !there {
                    out.at(key.span, format!("{name} needs a volume that is {volume}"));
                }
            }
            if kind == "sshPublicKey"
                && let Some(agent) = way.and_then(|way| way.given("qemuGuestAgent"))
                && agent.get("users").is_none_or(|users| users.items().is_empty())
            {
                out.at(key.span, "qemuGuestAgent needs users");
            }
        }
    }
}
