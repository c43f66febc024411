//! What interfaces say of themselves.

use std::collections::HashSet;

use topology::MacAddress;

use super::networks::GOOD;
use super::{
    NETWORK, REFUSED, by_name, interfaces_of, is_pci_address, name, networks_of, one_of, place,
    word,
};
use crate::context::Context;
use crate::finding::{Drafts, Severity};
use crate::read::yaml::Node;
use crate::rule::{AffectedVersions, Check, Rule, yaml};
use crate::rules::worlds::ANY;
use crate::vm::Vm;
use placement::predict::KubevirtVersion;

pub(crate) const VALUES: Rule = Rule {
    id: "kubevirt-interface-value",
    severity: Severity::Error,
    summary: "a model, MAC, PCI address, state or name of an interface that KubeVirt refuses",
    why: REFUSED,
    mend: "Write model: virtio, a MAC of six bytes, a PCI address like 0000:3b:00.0",
    sources: &[NETWORK],
    affected: &[],
    check: Check::Vm(values),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: default
      model: vmxnet3
      masquerade: {}
networks:
- name: default
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
    - name: default
      macAddress: 02-00-5e-10-00
      masquerade: {}
networks:
- name: default
  pod: {}
",
        ),
    ],
    quiet: &[yaml(ANY, GOOD)],
};

/// The address of the bridge in the pod that masquerade makes.
const BRIDGE: &str = "02:00:00:00:00:00";

fn values(vm: &Vm, context: &Context, out: &mut Drafts) {
    let networks_by_name = by_name(networks_of(vm));
    // The one that the pod's default route is on.
    let default = networks_of(vm).iter().find(|network| {
        network.given("pod").is_some() || network.get("multus.default").is_some_and(Node::is_true)
    });
    for interface in interfaces_of(vm) {
        let own = name(interface);
        if own.is_empty() || !own.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            let message = format!("{own:?} is no name of an interface: letters, digits, - and _");
            out.at(place(interface), message);
        }
        let models = ["virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139"];
        let known: Vec<&str> = models
            .into_iter()
            .filter(|model| *model != "igb" || context.kubevirt >= KubevirtVersion::new(1, 4, 0))
            .collect();
        one_of(interface, "model", &known, out);
        if let Some((mac, span)) = word(interface, "macAddress") {
            if mac.parse::<MacAddress>().is_err() {
                out.at(span, format!("{mac:?} is no MAC address of six bytes"));
            } else if mac == BRIDGE && interface.given("masquerade").is_some() {
                out.at(span, format!("{mac} is the address of the bridge in the pod"));
            }
        }
        if let Some((address, span)) = word(interface, "pciAddress")
            && !is_pci_address(address)
        {
            out.at(span, format!("{address:?} is no PCI address: 0000:3b:00.0"));
        }
        state(interface, default, context, out);
        if networks_by_name.get(own).is_some_and(|network| network.given("pod").is_some()) {
            ports(interface, out);
        }
        dhcp(interface, out);
    }
}

fn state(interface: &Node, default: Option<&Node>, context: &Context, out: &mut Drafts) {
    let Some((state, span)) = word(interface, "state") else { return };
    if context.kubevirt < KubevirtVersion::new(1, 0, 0) {
        return;
    }
    let links = context.kubevirt >= KubevirtVersion::new(1, 5, 0);
    let known: &[&str] = if links { &["absent", "up", "down"] } else { &["absent"] };
    one_of(interface, "state", known, out);
    if links && matches!(state, "up" | "down") && interface.given("sriov").is_some() {
        out.at(span, "The link of an SR-IOV interface can't be set");
    }
    if state == "absent" && interface.given("bridge").is_none() {
        out.at(span, "Only an interface with the binding bridge can be absent");
    }
    if state == "absent" && default.is_some_and(|network| name(network) == name(interface)) {
        out.at(span, "The interface of the default network can't be absent");
    }
}

fn ports(interface: &Node, out: &mut Drafts) {
    let mut seen = HashSet::new();
    for port in interface.get("ports").map(Node::items).unwrap_or_default() {
        one_of(port, "protocol", &["TCP", "UDP"], out);
        match port.given("port").map(|node| (node, node.integer())) {
            None => {
                out.at(place(port), "A port needs its number");
            }
            Some((node, Some(number))) if !(1..65_536).contains(&number) => {
                out.at(node.span, format!("{number} is no port: 1 to 65535"));
            }
            Some(_) => {}
        }
        if let Some((name, span)) = word(port, "name") {
            if !seen.insert(name) {
                out.at(span, format!("A second port of the name {name:?}"));
            }
            if !is_port_name(name) {
                out.at(span, format!("{name:?} is no name of a port"));
            }
        }
    }
}

/// A service's name (RFC 6335): at most 15 small letters, digits and dashes.
fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && name.chars().any(|c| c.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

fn dhcp(interface: &Node, out: &mut Drafts) {
    let items = |path: &str| interface.get(path).map(Node::items).unwrap_or_default();
    for server in items("dhcpOptions.ntpServers") {
        let text = server.text().unwrap_or_default();
        if text.parse::<core::net::Ipv4Addr>().is_err() {
            out.at(server.span, format!("{text:?} is no IPv4 address"));
        }
    }
    let mut seen = HashSet::new();
    for option in items("dhcpOptions.privateOptions") {
        let Some(node) = option.given("option") else { continue };
        let Some(number) = node.integer() else { continue };
        if !(224..=254).contains(&number) {
            out.at(node.span, format!("{number} is no private option of DHCP: 224 to 254"));
        }
        if !seen.insert(number) {
            out.at(node.span, format!("Option {number} is there twice"));
        }
    }
}

pub(crate) const PORT_RANGES: Rule = Rule {
    id: "kubevirt-port-ranges",
    severity: Severity::Error,
    summary: "portRanges of an interface that KubeVirt refuses",
    why: REFUSED,
    mend: "Write at most 10 ranges of TCP or UDP that do not overlap, on an interface with masquerade \
           and without ports",
    sources: &[NETWORK],
    affected: &[AffectedVersions::kubevirt(Some("1.9.0"), None)],
    check: Check::Vm(port_ranges),
    fires: &[
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: default
      masquerade: {}
      portRanges:
      - protocol: TCP
        start: 8000
        end: 8100
      - protocol: TCP
        start: 8100
        end: 8200
networks:
- name: default
  pod: {}
",
        )
        .mended(&[
            (
                "        end: 8100\n      - protocol: TCP",
                "        end: 8100\n      - protocol: UDP",
            ),
            ("start: 8100", "start: 8000"),
            ("end: 8200", "end: 8000"),
        ]),
        yaml(
            ANY,
            "\
domain:
  memory:
    guest: 1Gi
  devices:
    interfaces:
    - name: default
      bridge: {}
      portRanges:
      - protocol: TCP
        start: 8100
        end: 8000
networks:
- name: default
  pod: {}
",
        ),
    ],
    quiet: &[],
};

/// Ranges of ports that an interface may have.
const MOST_RANGES: usize = 10;

fn port_ranges(vm: &Vm, _: &Context, out: &mut Drafts) {
    let networks = by_name(networks_of(vm));
    for interface in interfaces_of(vm) {
        let of_pod = |network: &&Node| network.given("pod").is_some();
        let Some((key, ranges)) = interface
            .entry("portRanges")
            .filter(|(_, node)| !node.is_null())
            .filter(|_| networks.get(name(interface)).is_some_and(of_pod))
        else {
            continue;
        };
        if interface.given("ports").is_some() {
            out.at(key.span, "portRanges beside ports: one of both is taken");
        }
        if interface.given("masquerade").is_none() {
            out.at(key.span, "portRanges are for interfaces with masquerade");
        }
        if let Some(more) = ranges.items().get(MOST_RANGES) {
            out.at(more.span, format!("At most {MOST_RANGES} portRanges"));
            continue;
        }
        // Not more than a handful: each is held against those before it.
        let mut seen: Vec<(&str, i64, i64)> = Vec::new();
        for range in ranges.items() {
            let number = |name: &str| range.get(name).and_then(Node::integer).unwrap_or(0);
            let protocol = range.get("protocol").and_then(Node::text).unwrap_or_default();
            let (start, end) = (number("start"), number("end"));
            if !matches!(protocol, "TCP" | "UDP") {
                out.at(range.span, format!("protocol {protocol:?} is none of TCP, UDP"));
            } else if ![start, end].iter().all(|port| (1..65_536).contains(port)) {
                out.at(range.span, format!("{start} to {end} are no ports: 1 to 65535"));
            } else if start > end {
                out.at(range.span, format!("{start} is behind {end}"));
            } else if let Some((_, from, to)) =
                seen.iter().find(|(of, from, to)| *of == protocol && start <= *to && *from <= end)
            {
                let message = format!("{start} to {end} overlap {from} to {to} of {protocol}");
                out.at(range.span, message);
            } else {
                seen.push((protocol, start, end));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_names_are_those_that_go_takes() {
        for (text, right) in [("http-8", true), ("80", false), ("a--b", false), ("A", false)] {
            assert_eq!(is_port_name(text), right, "{text}");
        }
    }
}
