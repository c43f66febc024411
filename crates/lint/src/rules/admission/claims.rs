//! Devices that Kubernetes hands out by claims (dynamic resource allocation).

use std::collections::{HashMap, HashSet};

use super::{REFUSED, interfaces_of, is_label, is_subdomain, list, name, networks_of, place, word};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::{ANY, KUBEVIRT_1_7};
use crate::vm::Vm;
use placement::predict::KubevirtVersion;
use vmconfig::source::Span;

const DRA: &str = "https://github.com/kubevirt/kubevirt/blob/main/pkg/dra/admitter/dra_admitter.go";

pub(crate) const CLAIMS: Rule = Rule {
    id: "kubevirt-resource-claim",
    severity: Severity::Error,
    summary: "a resource claim that is there twice, or names none or two",
    why: REFUSED,
    mend: "Name each claim once, with resourceClaimName or resourceClaimTemplateName",
    sources: &[DRA],
    affected: &[AffectedVersions::kubevirt(Some("1.9.0"), None)],
    check: Check::Vm(claims),
    fires: &[yaml(
        ANY,
        "\
resourceClaims:
- name: gpu
  resourceClaimName: a
  resourceClaimTemplateName: b
domain:
  memory:
    guest: 1Gi
  devices: {}
",
    )],
    quiet: &[yaml(ANY, GOOD)],
};

const GOOD: &str = "\
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
";

fn claims(vm: &Vm, _: &Context, out: &mut Drafts) {
    super::repeated(list(vm, "resourceClaims"), "claim", out);
    for claim in list(vm, "resourceClaims") {
        let names = ["resourceClaimName", "resourceClaimTemplateName"];
        match names.iter().filter(|name| claim.given(name).is_some()).count() {
            0 => {
                out.at(place(claim), format!("Say one of {}", names.join(", ")));
            }
            1 => {}
            _ => {
                out.at(place(claim), format!("Say only one of {}", names.join(", ")));
            }
        }
        for node in names.iter().filter_map(|name| claim.given(name)) {
            let text = node.text().unwrap_or_default();
            if !is_subdomain(text) {
                out.at(node.span, format!("{text:?} is no name of a claim"));
            }
        }
        if !is_label(name(claim)) {
            out.at(place(claim), format!("{:?} is no name of a claim", name(claim)));
        }
    }
}

pub(crate) const DEVICES: Rule = Rule {
    id: "kubevirt-device-claim",
    severity: Severity::Error,
    summary: "a GPU, host device or network whose claim is missing, half said or another's",
    why: REFUSED,
    mend: "Say deviceName, or claimName and requestName of a claim in resourceClaims, each pair for \
           one device",
    sources: &[DRA],
    affected: &[AffectedVersions::kubevirt(Some("1.6.0"), None)],
    check: Check::Vm(devices),
    fires: &[
        yaml(
            KUBEVIRT_1_7,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    gpus:
    - name: gpu
      deviceName: nvidia.com/A100
      claimName: gpu
",
        ),
        yaml(
            ANY,
            "\
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
            ANY,
            "\
resourceClaims:
- name: gpu
  resourceClaimTemplateName: gpu
domain:
  memory:
    guest: 1Gi
  devices:
    gpus:
    - name: first
      claimName: gpu
      requestName: large
    - name: second
      claimName: gpu
      requestName: large
",
        ),
        yaml(
            ANY,
            "\
resourceClaims:
- name: nic
  resourceClaimTemplateName: nic
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: fast
      bridge: {}
networks:
- name: fast
  resourceClaim:
    claimName: nic
    requestName: vf
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

/// A device's claim and the request in it, if it has one.
struct DeviceClaim<'a> {
    claim: Option<&'a str>,
    request: Option<&'a str>,
}

fn claim_of(node: &Node) -> Option<DeviceClaim<'_>> {
    let text = |key| word(node, key).map(|(text, _)| text);
    let given = node.given("claimName").is_some() || node.given("requestName").is_some();
    given.then(|| DeviceClaim { claim: text("claimName"), request: text("requestName") })
}

/// Claims of an object, and who asked for what of them.
struct ClaimRequests<'a> {
    known: HashSet<&'a str>,
    pairs: HashMap<(&'a str, &'a str), &'a str>,
}

impl<'a> ClaimRequests<'a> {
    /// Takes what a device asks for.
    fn take(&mut self, owner: &'a str, claim: &DeviceClaim<'a>, span: Span, out: &mut Drafts) {
        let (Some(of), Some(request)) = (claim.claim, claim.request) else {
            let missing = if claim.claim.is_none() { "claimName" } else { "requestName" };
            out.at(span, format!("{owner} has no {missing}"));
            return;
        };
        if !self.known.contains(of) {
            out.at(span, format!("resourceClaims has no {of:?}"));
        }
        if let Some(first) = self.pairs.insert((of, request), owner) {
            out.at(span, format!("{first} has the request {request} of {of} already"));
        }
    }
}

fn devices(vm: &Vm, context: &Context, out: &mut Drafts) {
    let known = list(vm, "resourceClaims").iter().map(name).collect();
    let mut asked = ClaimRequests { known, pairs: HashMap::new() };
    let newest = context.kubevirt >= KubevirtVersion::new(1, 9, 0);
    for (path, since) in
        [("gpus", KubevirtVersion::new(1, 6, 0)), ("hostDevices", KubevirtVersion::new(1, 8, 0))]
    {
        if context.kubevirt < since {
            continue;
        }
        let all = list(vm, &format!("domain.devices.{path}"));
        let plain = |device: &&Node| word(device, "deviceName").is_some();
        let by_claim = |device: &Node| !plain(&device) && claim_of(device).is_some();
        if newest
            && path == "gpus"
            && let Some(other) = all.iter().find(|device| by_claim(device))
            && let Some(first) = all.iter().find(plain)
        {
            let message = format!("{} has a deviceName and {} a claim", name(first), name(other));
            out.at(place(other), message);
        }
        for device in all {
            match (word(device, "deviceName"), claim_of(device)) {
                (Some(_), None) => {}
                (None, Some(claim)) => asked.take(name(device), &claim, place(device), out),
                (Some((_, span)), Some(_)) => {
                    out.at(span, format!("{} has a deviceName and a claim", name(device)));
                }
                (None, None) => {
                    let message = format!("{} has neither deviceName nor a claim", name(device));
                    out.at(place(device), message);
                }
            }
        }
    }
    if newest {
        claimed_networks(vm, &mut asked, out);
    }
}

fn claimed_networks<'a>(vm: &'a Vm, asked: &mut ClaimRequests<'a>, out: &mut Drafts) {
    let multus = networks_of(vm).iter().find(|network| network.given("multus").is_some());
    for network in networks_of(vm) {
        let Some(source) = network.given("resourceClaim") else { continue };
        if let Some(multus) = multus {
            let message = format!("{} is of Multus, which does not go with claims", name(multus));
            out.at(place(network), message);
        }
        let own = interfaces_of(vm).iter().find(|interface| name(interface) == name(network));
        if let Some(interface) = own
            && ["sriov", "binding"].iter().all(|binding| interface.given(binding).is_none())
        {
            let message = format!("{} is of a claim: it needs sriov or a plugin", name(interface));
            out.at(place(interface), message);
        }
        let claim = claim_of(source).unwrap_or(DeviceClaim { claim: None, request: None });
        asked.take(name(network), &claim, place(network), out);
    }
}
