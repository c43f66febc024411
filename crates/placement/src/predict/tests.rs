//! Agreement with what Kubernetes and KubeVirt themselves answered: see
//! `testdata/kubevirt/NOTICE`.

use serde_json::{Map, Value};

use super::entry::predict_entry;
use super::kubelet::{Order, TakeError, take_distributed};
use super::kubevirt::{CpuPool, Crossing, GuestShape};
use super::{KubeletHost, PcpuPosition, SiblingLists};

const VECTORS: &str = include_str!("../../testdata/kubevirt/kubevirt-vectors.json");

/// Keys that hold results, by kind. `vcpupin` of a NUMA mapping is an input.
fn result_keys(kind: &str, entry: &Value) -> &'static [&'static str] {
    match (kind, entry["fn"].as_str()) {
        ("kubevirtUnit", Some("numaMapping")) => {
            &["cells", "memnodes", "hugepages", "numatuneMemory", "noSharePages", "error"]
        }
        ("kubevirtUnit", _) => &["vcpupin", "threads", "error"],
        ("kubevirtHand", _) => &["vcpupin", "iothreadpin", "emulatorpin", "error"],
        ("kubeletUnit", _) => &["result", "error"],
        _ => &["cpuset", "rejected", "results"],
    }
}

/// Takes the results out of an entry; what is left is all that a prediction
/// sees.
fn strip(kind: &str, entry: &mut Value) -> Value {
    let mut expected = Map::new();
    let keys = result_keys(kind, entry);
    let entry = entry.as_object_mut().expect("an object");
    if kind == "endToEnd" {
        let kubelet = entry["kubelet"].as_object_mut().expect("an object");
        for key in ["cpuset", "rejected"] {
            expected.insert(key.into(), kubelet.remove(key).expect(key));
        }
    }
    for key in keys {
        if let Some(value) = entry.remove(*key) {
            expected.insert((*key).into(), value);
        }
    }
    expected.into()
}

fn check_all(kind: &str, expected_count: usize) {
    let vectors: Value = serde_json::from_str(VECTORS).expect("JSON");
    let entries = vectors[kind].as_array().expect("a list");
    assert_eq!(entries.len(), expected_count);
    for (number, entry) in entries.iter().enumerate() {
        let mut input = entry.clone();
        let expected = strip(kind, &mut input);
        input["kind"] = kind.into();
        let predicted = predict_entry(&input).unwrap_or_else(|error| panic!("{number}: {error:?}"));
        assert_eq!(predicted, expected, "{kind} {number}: {input}");
    }
}

#[test]
fn kubevirts_own_pool_and_numa_tests_agree() {
    check_all("kubevirtUnit", 37);
}

#[test]
fn kubevirts_converter_tests_agree() {
    check_all("kubevirtHand", 7);
}

#[test]
fn the_kubelets_own_tests_agree() {
    check_all("kubeletUnit", 71);
}

#[test]
fn whole_predictions_agree() {
    check_all("endToEnd", 140);
}

/// Eight nodes of four cores. The balanced answer would be 0-15: from the
/// fourth node on, the kubelet overwrites the combination that it chose.
#[test]
fn four_nodes_are_not_the_ones_that_were_chosen() {
    let machine = nodes_of(8, 4, 1);
    let all = machine.pcpus();
    let taken = take_distributed(&machine, &all, 16, 1, Order::Packed).expect("enough");
    assert_eq!(taken.to_string(), "0-11,28-31");
    // Three nodes are safe.
    let taken = take_distributed(&machine, &all, 12, 1, Order::Packed).expect("enough");
    assert_eq!(taken.to_string(), "0-11");
}

/// Pairs are asked for and every node has an odd one out: dealing the rest round
/// robin never ends in the kubelet, here it is an error.
#[test]
fn an_endless_loop_is_said() {
    let machine = nodes_of(4, 5, 1);
    let taken = take_distributed(&machine, &machine.pcpus(), 14, 2, Order::Packed);
    assert_eq!(taken, Err(TakeError::Endless));
}

fn nodes_of(nodes: u32, cores: u32, threads: u32) -> KubeletHost {
    let seats = (0..nodes * cores * threads).map(|pcpu| PcpuPosition {
        pcpu,
        core: pcpu / threads * threads,
        socket: 0,
        node: pcpu / threads / cores,
        uncore: 0,
    });
    KubeletHost::new(seats).expect("distinct pCPUs")
}

/// On a host whose siblings are neighbours, versions from 1.4 see no siblings:
/// a pod with a lone thread is then filled across cores.
#[test]
fn lost_sibling_lists_misplace_guests() {
    let machine = nodes_of(1, 4, 2);
    let whole = |lists| {
        let guest = GuestShape { sockets: 1, cores: 2, threads: 2 };
        let cells = machine.cells(lists);
        CpuPool::new(guest, &cells, &[1, 2, 3, 4, 5], Crossing::Relaxed)
            .fit_cores()
            .expect("enough")
    };
    assert_eq!(whole(SiblingLists::Whole), [2, 3, 4, 5]);
    assert_eq!(whole(SiblingLists::RangesLost), [1, 2, 3, 4]);
}
