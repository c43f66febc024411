//! The rules that stand for KubeVirt's admission webhook against the real one,
//! which `scripts/get-kube` builds once; and over KubeVirt's own examples.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use lint::{ConfigFormat, Context, DEFAULT_KUBEVIRT, KubevirtVersion, RULES, check_text};
use serde_json::{Value, json};
use suite::{SharedThing, Tier, needs};

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
    "kubevirt-number",
    "kubevirt-resources",
    "kubevirt-no-memory",
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

/// The answers of a real API server with KubeVirt's webhooks to objects; `None` if it
/// can't be had here. Of `gates` KubeVirt has those on that are named, with none those
/// that `scripts/ask-kube` names.
fn answers(objects: &[String], gates: &[&str]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let file = |number: usize, end: &str| folder.path().join(format!("{number}.{end}"));
    for (number, object) in objects.iter().enumerate() {
        std::fs::write(file(number, "yaml"), object).unwrap();
    }
    let output = script("ask-kube").arg(folder.path()).arg(gates.join(",")).output().unwrap();
    if output.status.code() == Some(3) {
        suite::skip("no namespaces of one's own: run as root");
        return None;
    }
    let said = [output.stdout, output.stderr].concat();
    if output.status.code() == Some(2) {
        suite::skip(String::from_utf8_lossy(&said));
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    let read = |number| std::fs::read_to_string(file(number, "answer")).unwrap();
    Some((0..objects.len()).map(read).collect())
}

fn is_taken(answer: &str) -> bool {
    answer.starts_with("HTTP/2 201")
}

/// The server's reason.
fn reason(answer: &str) -> &str {
    answer.lines().find(|line| line.contains("\"message\"")).unwrap_or(answer)
}

/// What `scripts/get-kube` builds.
const ASKED: KubevirtVersion = KubevirtVersion::new(1, 7, 0);

/// Rules whose examples, but those for that very version, are about what this version of
/// the webhook does not look at.
const LATER: [&str; 5] = [
    "kubevirt-container-path",
    "kubevirt-utility-volume",
    "kubevirt-resource-claim",
    "kubevirt-device-claim",
    "kubevirt-port-ranges",
];

/// Rules about what a dry run alone does not refuse: a limit is looked at by another
/// roll-out strategy only, an instance type that is not there is no conflict, and gates
/// are those of another cluster.
const NO_REFUSAL: [&str; 3] =
    ["kubevirt-memory-limit", "kubevirt-instancetype-conflict", "kubevirt-feature-gate-off"];

/// Whether it is KubeVirt's code: issues tell of other things than refusals.
fn is_source(source: &str) -> bool {
    let path = source.strip_prefix("https://github.com/kubevirt/kubevirt/");
    path.is_some_and(|path| path.starts_with("blob/") || path.starts_with("tree/"))
}

/// Whether an example is about this webhook: for its version, or for all.
fn is_asked(rule: &lint::Rule, example: &lint::RuleExample) -> bool {
    let version = example.world.context().kubevirt;
    let of_all = version == DEFAULT_KUBEVIRT && !LATER.contains(&rule.id);
    example.format == ConfigFormat::Kubevirt && (version == ASKED || of_all)
}

/// The webhook refuses each example that a rule for what it refuses fires on, and takes
/// each that it is quiet about.
#[test]
fn the_webhook_refuses_what_rules_say() {
    let needed = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache);
    let Some(_turn) = needed.turn() else { return };
    let mut asked = Vec::new();
    for rule in RULES {
        let about = rule.severity == lint::Severity::Error
            && rule.id.starts_with("kubevirt-")
            && rule.sources.iter().any(|source| is_source(source));
        if !about || NO_REFUSAL.contains(&rule.id) {
            continue;
        }
        let quiet: Vec<_> = rule.quiet().collect();
        for (examples, refused) in [(rule.fires, true), (&quiet, false)] {
            for example in examples.iter().filter(|example| is_asked(rule, example)) {
                asked.push((rule.id, example.document(), refused));
            }
        }
    }
    let objects: Vec<String> = asked.iter().map(|(_, document, _)| document.clone()).collect();
    let Some(answers) = answers(&objects, &[]) else { return };
    let mut wrong = Vec::new();
    for ((rule, document, refused), answer) in asked.iter().zip(&answers) {
        if is_taken(answer) == *refused {
            wrong.push(format!("{rule}: {}\n{document}", reason(answer)));
        }
    }
    assert!(asked.len() > 100, "{}", asked.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), asked.len(), wrong.join("\n"));
}

/// The feature gates that a text's VMs need, as rules see them.
fn gates(text: &str) -> Vec<String> {
    let mut context = Context::default();
    context.kubevirt = ASKED;
    let findings = check_text("vm.yaml", text, &context).unwrap().findings;
    let told = findings.iter().filter(|finding| finding.rule == "kubevirt-feature-gate");
    told.filter_map(|told| told.message.rsplit(' ').next().map(str::to_owned)).collect()
}

/// The webhook takes what needs a feature gate where that is on, and nowhere else.
#[test]
fn the_webhook_asks_for_feature_gates() {
    let needed = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache);
    let Some(_turn) = needed.turn() else { return };
    let rule = lint::find("kubevirt-feature-gate").unwrap();
    let examples = rule.fires.iter().filter(|example| is_asked(rule, example));
    let objects: Vec<String> = examples.map(lint::RuleExample::document).collect();
    let named: Vec<Vec<String>> = objects.iter().map(|object| gates(object)).collect();
    assert!(named.len() >= 10 && named.iter().all(|gates| !gates.is_empty()), "{named:?}");
    let on: Vec<&str> = named.iter().flatten().map(String::as_str).collect();
    for (on, taken) in [(&["CPUManager"][..], false), (&on, true)] {
        let Some(answers) = answers(&objects, on) else { return };
        for (object, answer) in objects.iter().zip(&answers) {
            assert_eq!(is_taken(answer), taken, "{on:?}: {}\n{object}", reason(answer));
        }
    }
}

/// What is right to rules is right to the webhook, with the gates that rules name.
#[test]
fn the_webhook_takes_right_configurations() {
    let needed = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache);
    let Some(_turn) = needed.turn() else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/right");
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        // Nobody posts a list, or what has a cluster's marks.
        if path.extension().is_some_and(|end| end == "yaml") && !text.contains("kind: List") {
            objects.push(text);
        }
    }
    assert!(objects.len() >= 12, "{}", objects.len());
    let named: Vec<String> = objects.iter().flat_map(|object| gates(object)).collect();
    let mut on: Vec<&str> = named.iter().map(String::as_str).collect();
    // A matter of the cluster's own architecture.
    on.push("MultiArchitecture");
    let Some(answers) = answers(&objects, &on) else { return };
    for (object, answer) in objects.iter().zip(&answers) {
        assert!(is_taken(answer), "{}\n{object}", reason(answer));
    }
}

#[test]
fn the_webhook_agrees() {
    let needed = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache);
    let Some(_turn) = needed.turn() else { return };
    let objects = objects();
    let Some(answers) = answers(&objects, &[]) else { return };
    let mut context = Context::default();
    context.kubevirt = KubevirtVersion::new(1, 7, 0);
    let (mut wrong, mut refused) = (Vec::new(), 0);
    for (object, answer) in objects.iter().zip(&answers) {
        let takes = is_taken(answer);
        refused += u32::from(!takes);
        let checked = check_text("vm.yaml", object, &context).unwrap();
        let rules: Vec<&str> = checked
            .findings
            .iter()
            .map(|finding| &*finding.rule)
            .filter(|rule| REFUSALS.contains(rule))
            .collect();
        if takes != rules.is_empty() {
            wrong.push(format!("{object}\n  KubeVirt: {}\n  lint: {rules:?}", reason(answer)));
        }
    }
    assert!(refused > 100 && refused < objects.len() as u32 - 100);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), objects.len(), wrong.join("\n"));
}

/// What is rightly said of KubeVirt's own examples: they say `memory.guest` beside an
/// instance type that exists, which KubeVirt refuses, or show slow devices on purpose.
const RIGHT: [(&str, &str); 12] = [
    ("vm-cirros-clarge.yaml", "kubevirt-instancetype-conflict"),
    ("vm-cirros-clarge-virtio.yaml", "kubevirt-instancetype-conflict"),
    ("vm-cirros-clarge-windows.yaml", "kubevirt-instancetype-conflict"),
    ("vm-cirros-cluster-csmall.yaml", "kubevirt-instancetype-conflict"),
    ("vm-cirros-csmall.yaml", "kubevirt-instancetype-conflict"),
    ("vm-windows-clarge-windows.yaml", "kubevirt-instancetype-conflict"),
    ("vm-cirros-clarge-windows.yaml", "disk-emulated"),
    ("vm-cirros-sata.yaml", "disk-emulated"),
    ("vm-windows-clarge-windows.yaml", "disk-emulated"),
    ("vmi-sata.yaml", "disk-emulated"),
    ("vmi-windows.yaml", "disk-emulated"),
    ("vmi-windows.yaml", "nic-emulated"),
];

/// Right configurations, written by KubeVirt's developers: an error or a warning there
/// is a false alarm, but for those above.
#[test]
fn examples_of_kubevirt_are_clean() {
    let needed = needs(Tier::Full).alone_with(SharedThing::Cache);
    let Some(_turn) = needed.turn() else { return };
    let output = script("get-kubevirt-examples").output().unwrap();
    if output.status.code() == Some(2) {
        suite::skip(String::from_utf8_lossy(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = String::from_utf8(output.stdout).unwrap();
    let mut context = Context::default();
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(folder.trim()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            if let Some(types) = lint::instancetypes(&text) {
                context.instancetypes.extend(&types);
            }
            texts.push((path.file_name().unwrap().to_str().unwrap().to_owned(), text));
        }
    }
    let mut vms = 0;
    let mut found = Vec::new();
    for (name, text) in texts.iter().filter(|(_, text)| lint::holds_vms(text)) {
        let checked = check_text(name, text, &context).unwrap();
        vms += checked.vms.len();
        for finding in checked.findings {
            let known = RIGHT.contains(&(name.as_str(), &*finding.rule));
            if finding.severity > lint::Severity::Hint && !known {
                found.push(format!("{name}: {}: {}", finding.rule, finding.message));
            }
        }
    }
    assert!(vms >= 35, "{vms} VMs");
    assert!(found.is_empty(), "{}", found.join("\n"));
}
