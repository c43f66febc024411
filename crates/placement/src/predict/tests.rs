//! Agreement with what Kubernetes and KubeVirt themselves answered: see
//! `testdata/kubevirt/NOTICE`.

use serde_json::{Map, Value};

use super::entry::predict_entry;

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
