//! The rules that stand for KubeVirt's admission webhook against the real one,
//! which `scripts/get-kube` builds once.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use lint::{Context, check_text};
use serde_json::{Value, json};
use suite::{Shared, Tier, needs};

/// What can be said of a VM, each a part laid over a plain one. What is not here
/// has no rule: the webhook's words about networks, volumes and devices, and
/// values below 0.
fn changes() -> Vec<Value> {
    let cpu = |cpu: Value| json!({ "cpu": cpu });
    let page = |size: &str| json!({ "memory": { "hugepages": { "pageSize": size } } });
    let policy = |policy: &str| json!({ "ioThreadsPolicy": policy });
    let pool = |count: u32| {
        json!({ "ioThreadsPolicy": "supplementalPool",
                "ioThreads": { "supplementalPoolThreadCount": count } })
    };
    let amount =
        |side: &str, what: &str, amount: &str| json!({ "resources": { side: { what: amount } } });
    vec![
        cpu(json!({ "dedicatedCpuPlacement": true })),
        cpu(json!({ "isolateEmulatorThread": true })),
        cpu(json!({ "numa": { "guestMappingPassthrough": {} } })),
        cpu(json!({ "realtime": {} })),
        cpu(json!({ "threads": 4 })),
        cpu(json!({ "threads": 1 })),
        cpu(json!({ "sockets": 4, "maxSockets": 2 })),
        cpu(json!({ "sockets": 2, "maxSockets": 4 })),
        cpu(json!({ "sockets": null, "cores": null, "threads": null })),
        cpu(json!({ "dedicatedCPUPlacement": true })),
        cpu(json!({ "features": [{ "name": "x2apic", "policy": "maybe" }] })),
        page("2Mi"),
        page("1Gi"),
        page("3Mi"),
        page("2MB"),
        policy("shared"),
        policy("auto"),
        policy("turbo"),
        policy("supplementalPool"),
        pool(0),
        pool(2),
        amount("requests", "cpu", "4"),
        amount("requests", "cpu", "2"),
        amount("requests", "cpu", "3500m"),
        amount("limits", "cpu", "4"),
        amount("limits", "cpu", "8"),
        amount("limits", "cpu", "4500m"),
        amount("requests", "memory", "1Gi"),
        amount("requests", "memory", "512Mi"),
        amount("requests", "memory", "0"),
        amount("limits", "memory", "2Gi"),
        json!({ "memory": { "guest": "1025Mi" } }),
    ]
}

/// The rules that say what the API refuses.
const REFUSALS: &[&str] = &[
    "kubevirt-isolate-needs-dedicated",
    "kubevirt-numa-needs",
    "kubevirt-realtime-needs",
    "kubevirt-threads",
    "kubevirt-iothreads-policy",
    "kubevirt-dedicated-resources",
    "kubevirt-max-sockets",
    "kubevirt-page-size",
    "kubevirt-feature-policy",
    "kubevirt-unknown-field",
    "memory-not-whole-pages",
];

/// A part laid over a value (RFC 7396).
fn merge(value: &mut Value, part: &Value) {
    let Some(part) = part.as_object() else {
        *value = part.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    for (key, part) in part {
        if part.is_null() {
            value.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut value[key], part);
        }
    }
}

/// The plain VM, one with dedicated pCPUs and one with huge pages too; each
/// with every change and with every two.
fn objects() -> Vec<String> {
    let changes = changes();
    let none = json!({});
    let grounds = [vec![], vec![&changes[0]], vec![&changes[0], &changes[11]]];
    let mut objects = BTreeMap::new();
    for (number, ground) in grounds.iter().enumerate() {
        for (at, first) in changes.iter().enumerate() {
            let seconds = changes[at + 1..].iter().filter(|_| number == 0);
            for second in seconds.chain([&none]) {
                let mut domain = json!({ "cpu": { "sockets": 1, "cores": 2, "threads": 2 },
                                         "memory": { "guest": "1Gi" }, "devices": {} });
                for part in ground.iter().copied().chain([first, second]) {
                    merge(&mut domain, part);
                }
                let object = json!({
                    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
                    "metadata": { "name": "vm" }, "spec": { "domain": domain },
                });
                objects.insert(object.to_string(), ());
            }
        }
    }
    objects.into_keys().collect()
}

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name))
}

#[test]
fn the_webhook_agrees() {
    let needed = needs(Tier::Full).pcpus(2).alone_with(Shared::Cache);
    let Some(_turn) = needed.turn() else { return };
    let objects = objects();
    let folder = tempfile::tempdir().unwrap();
    for (number, object) in objects.iter().enumerate() {
        std::fs::write(folder.path().join(format!("{number}.yaml")), object).unwrap();
    }
    let output = script("ask-kube").arg(folder.path()).output().unwrap();
    if output.status.code() == Some(3) {
        suite::skip("no namespaces of one's own: run as root");
        return;
    }
    let said = [output.stdout, output.stderr].concat();
    if output.status.code() == Some(2) {
        suite::skip(String::from_utf8_lossy(&said));
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    let context = Context::default();
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for (number, object) in objects.iter().enumerate() {
        let answer =
            std::fs::read_to_string(folder.path().join(format!("{number}.answer"))).unwrap();
        let takes = answer.starts_with("HTTP/2 201");
        refused += u32::from(!takes);
        let checked = check_text("vm.yaml", object, &context).unwrap();
        let rules: Vec<&str> = checked
            .findings
            .iter()
            .map(|finding| finding.rule)
            .filter(|rule| REFUSALS.contains(rule))
            .collect();
        if takes != rules.is_empty() {
            let message = answer.lines().find(|line| line.contains("\"message\""));
            wrong.push(format!("{object}\n  KubeVirt: {message:?}\n  lint: {rules:?}"));
        }
    }
    assert!(refused > 100 && refused < objects.len() as u32 - 100);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), objects.len(), wrong.join("\n"));
}
