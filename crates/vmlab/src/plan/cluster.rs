//! A cluster's forecast as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use report::counted;

use super::boot::BootForecast;
use super::forecast::{ClusterForecast, NodeForecast, StartForecast, VmForecast};

/// What is said of a cluster.
pub(super) fn text(forecast: &ClusterForecast) -> String {
    let mut out = String::new();
    let ClusterForecast { server, kubevirt, nodes, vms, .. } = forecast;
    let of = |state| vms.iter().filter(|vm| vm.state == state).count();
    // Writing to a String can't fail.
    let _ = writeln!(
        out,
        "{server}: KubeVirt {kubevirt}, {}, {}: {} run, {} can start, {} can't, {} unknown\n",
        counted(nodes.len(), "node"),
        counted(vms.len(), "VM"),
        of(StartForecast::Runs),
        of(StartForecast::CanStart),
        of(StartForecast::CanNotStart),
        of(StartForecast::Unknown),
    );
    let heading = ["NODE", "CPUS", "OWN", "FREE", "VMS", "RESERVED", "KUBELET"];
    let rows: Vec<[String; 7]> = nodes.iter().map(node_row).collect();
    out.push_str(&columns(heading, &rows));
    boots(&mut out, nodes);
    let shown: Vec<&VmForecast> = vms.iter().filter(|vm| is_shown(vm)).collect();
    if !shown.is_empty() {
        out.push('\n');
        let heading = ["VM", "STATE", "NODE", "OWN", "FITS", "PCPUS OF ITS VCPUS"];
        let rows: Vec<[String; 6]> = shown.iter().map(|vm| vm_row(vm)).collect();
        out.push_str(&columns(heading, &rows));
        for vm in shown.iter().filter(|vm| !vm.findings.is_empty()) {
            let _ = writeln!(out, "\n{}/{}", vm.namespace, vm.name);
            for finding in &vm.findings {
                let _ = writeln!(out, "  - {finding}");
            }
        }
    }
    let rest = vms.len() - shown.len();
    if rest > 0 {
        let _ = writeln!(
            out,
            "\n{} without pCPUs of their own {}: nothing is wrong with them (--json shows all)",
            counted(rest, "VM"),
            if rest == 1 { "is not shown" } else { "are not shown" },
        );
    }
    let topologies = nodes.iter().filter(|node| node.is_topology_known).count();
    let statics = nodes.iter().filter(|node| is_static(node)).count();
    if topologies < nodes.len() && statics > 0 {
        let _ = writeln!(
            out,
            "\nThe topology of {} of {} is known: --hosts FOLDER gives it, and pins are predicted \
             there",
            topologies,
            counted(nodes.len(), "node"),
        );
    }
    for unread in &forecast.unread {
        let _ = writeln!(out, "\nNot read: {unread}");
    }
    out
}

/// What kernels are told at their boot, and what is wrong with nodes.
fn boots(out: &mut String, nodes: &[NodeForecast]) {
    let mut by_source: BTreeMap<&str, (&BootForecast, usize)> = BTreeMap::new();
    for boot in nodes.iter().filter_map(|node| node.boot.as_ref()) {
        by_source.entry(&boot.source).or_insert((boot, 0)).1 += 1;
    }
    for (source, (boot, count)) in by_source {
        let said =
            if boot.parameters.is_empty() { "nothing".into() } else { boot.parameters.join(" ") };
        // Writing to a String can't fail.
        let _ = writeln!(out, "\nKernel by {source} ({}): {said}", counted(count, "node"));
    }
    for node in nodes.iter().filter(|node| !node.findings.is_empty()) {
        let _ = writeln!(out, "\n{}", node.name);
        for finding in &node.findings {
            let _ = writeln!(out, "  - {finding}");
        }
    }
}

/// Whether there is more to say of a VM than that it is there.
fn is_shown(vm: &VmForecast) -> bool {
    let starts = matches!(vm.state, StartForecast::Runs | StartForecast::CanStart);
    vm.exclusive_pcpus.is_some() || !vm.findings.is_empty() || !starts
}

fn is_static(node: &NodeForecast) -> bool {
    node.kubelet.as_ref().is_some_and(|kubelet| kubelet.is_static)
}

fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn node_row(node: &NodeForecast) -> [String; 7] {
    let (reserved, kubelet) = match &node.kubelet {
        None => ("?".to_owned(), "not known".to_owned()),
        Some(kubelet) if !kubelet.is_static => ("-".to_owned(), "shares all pCPUs".to_owned()),
        Some(kubelet) => {
            let mut said = "static".to_owned();
            for option in &kubelet.options {
                said += ", ";
                said += option;
            }
            if kubelet.topology_manager != "none" {
                said += &format!(", topology {}", kubelet.topology_manager);
            }
            if kubelet.is_memory_static {
                said += ", memory Static";
                said += if kubelet.is_memory_predicted { "" } else { " (not predicted)" };
            }
            (kubelet.reserved_text(), said)
        }
    };
    let cordoned = if node.takes_pods { "" } else { " (takes no pods)" };
    [
        node.name.clone(),
        node.pcpus.to_string(),
        or_dash(node.exclusive_pcpus),
        or_dash(node.free_pcpus),
        node.vms.to_string(),
        reserved,
        kubelet + cordoned,
    ]
}

fn vm_row(vm: &VmForecast) -> [String; 6] {
    let state = match vm.state {
        StartForecast::Runs => "runs",
        StartForecast::CanStart => "can start",
        StartForecast::CanNotStart => "can't start",
        StartForecast::Unknown => "unknown",
    };
    let pins: Vec<String> = vm.pins.iter().map(u32::to_string).collect();
    [
        format!("{}/{}", vm.namespace, vm.name),
        state.to_owned(),
        or_dash(vm.node.as_ref()),
        or_dash(vm.exclusive_pcpus),
        vm.nodes_that_fit.to_string(),
        or_dash(Some(pins.join(",")).filter(|pins| !pins.is_empty())),
    ]
}

/// Rows below their headings, each column as wide as its widest cell.
fn columns<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let width = |at: usize| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.chain([heading[at].len()]).max().unwrap_or(0)
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut out = String::new();
    let mut line = |cells: [&str; N]| {
        let mut text = String::new();
        for (cell, width) in cells.iter().zip(widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(heading);
    rows.iter().for_each(|row| line(row.each_ref().map(String::as_str)));
    out
}
