//! KubeVirt's fields, as its API server knows them, and objects against them.
//!
//! The table is made from KubeVirt's CRDs by a test (`UPDATE_EXPECT=1`); its
//! head says where they come from. A line is a field, indented below the one
//! that holds it: its name, `!` if it is required, what it holds.

use std::sync::LazyLock;

use crate::read::yaml::{Key, Kind, Node};
use vmconfig::source::Span;

const TABLE: &str = include_str!("schema/kubevirt-1.9.0.txt");

static ROOTS: LazyLock<Vec<SchemaField>> = LazyLock::new(|| parse(TABLE));

/// One field and those inside of it.
#[derive(Debug, Clone, Default)]
struct SchemaField {
    name: String,
    required: bool,
    /// Whether it is a list, or a map with any keys, of what `holds` says.
    each: Multiplicity,
    holds: FieldContent,
    fields: Vec<SchemaField>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Multiplicity {
    #[default]
    One,
    List,
    Map,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum FieldContent {
    /// Whatever it is, nobody checks it.
    #[default]
    Any,
    Object,
    /// An object that may have more than the known fields.
    Open,
    String,
    /// One of these.
    Words(Vec<String>),
    Integer,
    Number,
    Boolean,
    /// An integer or a text that means one: `2`, `500m`, `4Gi`.
    Quantity,
    /// An object like those of this kind.
    Like(String),
}

fn parse(table: &str) -> Vec<SchemaField> {
    let mut open: Vec<SchemaField> = vec![SchemaField::default()];
    for line in table.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let depth = line.len() - line.trim_start().len();
        while open.len() > depth + 1 {
            close(&mut open);
        }
        let mut words = line.split_ascii_whitespace();
        let name = words.next().unwrap_or_default();
        let mut field = SchemaField {
            required: name.ends_with('!'),
            name: name.trim_end_matches('!').to_owned(),
            ..SchemaField::default()
        };
        for word in words {
            match word {
                "list" => field.each = Multiplicity::List,
                "map" => field.each = Multiplicity::Map,
                "object" => field.holds = FieldContent::Object,
                "open" => field.holds = FieldContent::Open,
                "string" => field.holds = FieldContent::String,
                "integer" => field.holds = FieldContent::Integer,
                "number" => field.holds = FieldContent::Number,
                "boolean" => field.holds = FieldContent::Boolean,
                "quantity" => field.holds = FieldContent::Quantity,
                "any" => field.holds = FieldContent::Any,
                kind if kind.starts_with('=') => {
                    field.holds = FieldContent::Like(kind[1..].to_owned())
                }
                words => {
                    field.holds =
                        FieldContent::Words(words.split('|').map(str::to_owned).collect());
                }
            }
        }
        open.push(field);
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.pop().map(|root| root.fields).unwrap_or_default()
}

/// Puts the innermost field into the one that holds it.
fn close(open: &mut Vec<SchemaField>) {
    if let Some(done) = open.pop()
        && let Some(parent) = open.last_mut()
    {
        parent.fields.push(done);
    }
}

/// What is wrong with a value.
#[derive(Debug)]
pub(crate) struct SchemaViolation {
    pub(crate) span: Span,
    pub(crate) what: SchemaFault,
}

/// What is wrong, as the API server sees it.
#[derive(Debug)]
pub(crate) enum SchemaFault {
    /// There is no field of this path; beside it there would be these.
    Unknown { path: String, name: String, known: Vec<&'static str> },
    /// Another message of the API server.
    Refused(String),
}

/// All that is wrong with an object; nothing of a kind that is not in the table.
pub(crate) fn problems(kind: &str, object: &Node, at: Span) -> Vec<SchemaViolation> {
    let mut problems = Vec::new();
    // What is there for the whole cluster is alike.
    let kind = kind.replacen("VirtualMachineCluster", "VirtualMachine", 1);
    if let Some(root) = root(&kind) {
        root.check(object, at, "", &mut problems);
    }
    problems
}

fn root(kind: &str) -> Option<&'static SchemaField> {
    ROOTS.iter().find(|root| root.name == kind)
}

impl SchemaField {
    fn field(&self, name: &str) -> Option<&SchemaField> {
        // A VirtualMachine's template holds a VMI's spec.
        self.fields.iter().find(|field| field.name == name)
    }

    /// `at`: where to point when something is missing in it.
    fn check(&'static self, node: &Node, at: Span, path: &str, out: &mut Vec<SchemaViolation>) {
        // An absent value is no value of a wrong type.
        if node.is_null() {
            return;
        }
        match (self.each, &node.kind) {
            (Multiplicity::One, _) => self.check_one(node, at, path, out),
            (Multiplicity::List, Kind::List(items)) => {
                for (index, item) in items.iter().enumerate() {
                    self.check_one(item, item.span, &format!("{path}[{index}]"), out);
                }
            }
            (Multiplicity::Map, Kind::Map(entries)) => {
                for (key, value) in entries {
                    self.check_one(value, key.span, &format!("{path}.{}", key.text), out);
                }
            }
            (Multiplicity::List, _) => wrong_type(node, path, "array", out),
            (Multiplicity::Map, _) => wrong_type(node, path, "object", out),
        }
    }

    fn check_one(&'static self, node: &Node, at: Span, path: &str, out: &mut Vec<SchemaViolation>) {
        if node.is_null() {
            return;
        }
        let of_type = |fits: bool, name: &str, out: &mut Vec<SchemaViolation>| {
            if !fits {
                wrong_type(node, path, name, out);
            }
        };
        match &self.holds {
            FieldContent::Any => {}
            FieldContent::Object | FieldContent::Open => match &node.kind {
                Kind::Map(entries) => self.check_map(entries, at, path, out),
                _ => wrong_type(node, path, "object", out),
            },
            FieldContent::String => of_type(node.type_name() == "string", "string", out),
            FieldContent::Integer => of_type(node.type_name() == "integer", "integer", out),
            FieldContent::Number => {
                of_type(matches!(node.type_name(), "integer" | "number"), "number", out);
            }
            FieldContent::Boolean => of_type(node.type_name() == "boolean", "boolean", out),
            // A bare 1.5 is a number, which the API server takes for a quantity.
            FieldContent::Quantity => of_type(
                matches!(node.type_name(), "integer" | "number" | "string"),
                "integer or string",
                out,
            ),
            FieldContent::Like(kind) => match (&node.kind, root(kind)) {
                (Kind::Map(entries), Some(like)) => like.check_map(entries, at, path, out),
                _ => wrong_type(node, path, "object", out),
            },
            FieldContent::Words(words) => match node.text() {
                Some(text) if words.iter().any(|word| word == text) => {}
                Some(text) => {
                    let known: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                    out.push(SchemaViolation {
                        span: node.span,
                        what: SchemaFault::Refused(format!(
                            "{path}: Unsupported value: {text:?}: supported values: {}",
                            known.join(", ")
                        )),
                    });
                }
                None => wrong_type(node, path, "string", out),
            },
        }
    }

    fn check_map(
        &'static self,
        entries: &[(Key, Node)],
        at: Span,
        path: &str,
        out: &mut Vec<SchemaViolation>,
    ) {
        let below =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        for (key, value) in entries {
            match self.field(&key.text) {
                Some(field) => field.check(value, key.span, &below(&key.text), out),
                None if self.holds == FieldContent::Open => {}
                None => out.push(SchemaViolation {
                    span: key.span,
                    what: SchemaFault::Unknown {
                        path: below(&key.text),
                        name: key.text.clone(),
                        known: self.fields.iter().map(|field| field.name.as_str()).collect(),
                    },
                }),
            }
        }
        for field in self.fields.iter().filter(|field| field.required) {
            if !entries.iter().any(|(key, _)| key.text == field.name) {
                let message = format!("{}: Required value", below(&field.name));
                out.push(SchemaViolation { span: at, what: SchemaFault::Refused(message) });
            }
        }
    }
}

fn wrong_type(node: &Node, path: &str, expected: &str, out: &mut Vec<SchemaViolation>) {
    let found = node.type_name();
    out.push(SchemaViolation {
        span: node.span,
        what: SchemaFault::Refused(format!("{path} in body must be of type {expected}: {found:?}")),
    });
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use expect_test::expect_file;

    use super::*;

    const HEAD: &str = "\
# Fields of KubeVirt 1.9.0's VirtualMachineInstance, VirtualMachine and other kinds.
# Derived from the CRDs of kubevirt/kubevirt, tag v1.9.0, which are licensed under
# the Apache License 2.0. Made by `UPDATE_EXPECT=1 cargo test -p lint schema`.
";

    /// Fields of kinds that are VMs, but for what is known of them by their places.
    const LIKE: [(&str, &str, &str); 2] = [
        ("VirtualMachinePool object", "virtualMachineTemplate", "VirtualMachine"),
        ("VirtualMachineInstanceReplicaSet object", "template", "VirtualMachineInstance"),
    ];

    /// The table's lines for one property of a schema.
    fn say(name: &str, schema: &Node, required: bool, depth: usize, table: &mut String) {
        let text = |node: &Node, key: &str| node.get(key).and_then(Node::text).map(str::to_owned);
        let mut each = "";
        let mut inner = schema;
        if let Some(items) = schema.get("items") {
            (each, inner) = ("list ", items);
        } else if let Some(values) = schema.get("additionalProperties") {
            (each, inner) = ("map ", values);
        }
        let nested = inner.get("items").or_else(|| inner.get("additionalProperties"));
        assert!(each.is_empty() || nested.is_none(), "{name}: a list of lists");
        let open = inner.get("x-kubernetes-preserve-unknown-fields").is_some_and(Node::is_true);
        let kind = text(inner, "type");
        let words = inner.get("enum").map(Node::items).unwrap_or_default();
        let words: Vec<&str> = words.iter().filter_map(Node::text).collect();
        let like = LIKE.iter().find(|(of, field, _)| table.contains(of) && *field == name);
        let holds = match kind.as_deref() {
            Some("object") if depth == 2 && like.is_some() => {
                like.map_or_else(String::new, |(.., kind)| format!("={kind}"))
            }
            _ if inner.get("x-kubernetes-int-or-string").is_some() => "quantity".to_owned(),
            // The API server checks metadata itself, and writes the status.
            Some("object") if depth == 1 && matches!(name, "metadata" | "status") => {
                "any".to_owned()
            }
            Some("object") if open => "open".to_owned(),
            Some(kind) if words.is_empty() => kind.to_owned(),
            Some(_) => words.join("|"),
            None => "any".to_owned(),
        };
        let mark = if required { "!" } else { "" };
        let _ = writeln!(table, "{}{name}{mark} {each}{holds}", " ".repeat(depth));
        if holds == "any" || holds.starts_with('=') {
            return;
        }
        let needed = inner.get("required").map(Node::items).unwrap_or_default();
        let needed: Vec<&str> = needed.iter().filter_map(Node::text).collect();
        for (key, value) in inner.get("properties").map(Node::entries).unwrap_or_default() {
            say(&key.text, value, needed.contains(&key.text.as_str()), depth + 1, table);
        }
    }

    #[test]
    fn the_table_is_that_of_the_crds() {
        let folder =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../vmconfig/testdata/kubevirt-crds");
        let mut table = HEAD.to_owned();
        for (file, kind) in [
            ("virtualmachineinstances.kubevirt.io.yaml", "VirtualMachineInstance"),
            ("virtualmachines.kubevirt.io.yaml", "VirtualMachine"),
            ("migrationpolicies.migrations.kubevirt.io.yaml", "MigrationPolicy"),
            ("virtualmachineclones.clone.kubevirt.io.yaml", "VirtualMachineClone"),
            ("virtualmachineexports.export.kubevirt.io.yaml", "VirtualMachineExport"),
            (
                "virtualmachineinstancemigrations.kubevirt.io.yaml",
                "VirtualMachineInstanceMigration",
            ),
            (
                "virtualmachineinstancereplicasets.kubevirt.io.yaml",
                "VirtualMachineInstanceReplicaSet",
            ),
            (
                "virtualmachineinstancetypes.instancetype.kubevirt.io.yaml",
                "VirtualMachineInstancetype",
            ),
            ("virtualmachinepools.pool.kubevirt.io.yaml", "VirtualMachinePool"),
            ("virtualmachinepreferences.instancetype.kubevirt.io.yaml", "VirtualMachinePreference"),
            ("virtualmachinerestores.snapshot.kubevirt.io.yaml", "VirtualMachineRestore"),
            ("virtualmachinesnapshots.snapshot.kubevirt.io.yaml", "VirtualMachineSnapshot"),
        ] {
            let text = fs::read_to_string(folder.join(file)).unwrap();
            let Ok(documents) = topology::bounded::yaml(&text) else { panic!("{file} is no YAML") };
            let version = &documents[0].get("spec.versions").unwrap().items()[0];
            let mut own = String::new();
            say(kind, version.get("schema.openAPIV3Schema").unwrap(), false, 0, &mut own);
            table += &own;
        }
        expect_file!["schema/kubevirt-1.9.0.txt"].assert_eq(&table);
    }

    #[track_caller]
    fn check(text: &str, expected: &[&str]) {
        let Ok(documents) = topology::bounded::yaml(text) else { panic!("no YAML: {text}") };
        let document = &documents[0];
        let kind = document.get("kind").and_then(Node::text).unwrap();
        let said = |problem: SchemaViolation| match problem.what {
            SchemaFault::Unknown { path, .. } => format!("unknown field {path:?}"),
            SchemaFault::Refused(message) => message,
        };
        let found = problems(kind, document, Span::default());
        assert_eq!(found.into_iter().map(said).collect::<Vec<_>>(), expected, "{text}");
    }

    /// What a real API server of these CRDs answers.
    #[test]
    fn answers_are_those_of_the_api_server() {
        let vmi = |spec: &str| {
            format!("kind: VirtualMachineInstance\nmetadata: {{name: a, x: 1}}\nspec: {spec}\n")
        };
        check(&vmi("{domain: {devices: {}}}"), &[]);
        check(
            &vmi("{domain: {cpu: {dedicatedCPUPlacement: true}, devices: {}}}"),
            &["unknown field \"spec.domain.cpu.dedicatedCPUPlacement\""],
        );
        check(
            &vmi("{domain: {cpu: {cores: two}, devices: {}}}"),
            &["spec.domain.cpu.cores in body must be of type integer: \"string\""],
        );
        check(
            &vmi("{domain: {cpu: {cores: '2', threads: 1}, devices: {}}}"),
            &["spec.domain.cpu.cores in body must be of type integer: \"string\""],
        );
        check(&vmi("{domain: {cpu: {cores: 2}}}"), &["spec.domain.devices: Required value"]);
        check(
            &vmi("{domain: {devices: {disks: [{name: a, disk: {buss: virtio}}]}}}"),
            &["unknown field \"spec.domain.devices.disks[0].disk.buss\""],
        );
        check(
            &vmi("{domain: {rebootPolicy: Halt, devices: {}}}"),
            &[
                "spec.domain.rebootPolicy: Unsupported value: \"Halt\": supported values: \"Reboot\", \"Terminate\"",
            ],
        );
        check(
            &vmi("{domain: {devices: {}, resources: {limits: {cpu: 2, memory: 4Gi, x: 1.5}}}}"),
            &[],
        );
        check(&vmi("{domain: {devices: {}}, nodeSelector: {a: b, c: 'true', d: ~}}"), &[]);
        check(
            &vmi("{domain: {devices: {}}, nodeSelector: {a: true}}"),
            &["spec.nodeSelector.a in body must be of type string: \"boolean\""],
        );
        let vm = "kind: VirtualMachine\nspec:\n  runStrategie: Always\n  template:\n    spec: {domain: {cpus: 1, devices: {}}}\n";
        check(
            vm,
            &[
                "unknown field \"spec.runStrategie\"",
                "unknown field \"spec.template.spec.domain.cpus\"",
            ],
        );
        let set = "kind: VirtualMachineInstanceReplicaSet\nspec:\n  replicas: 2\n  template:\n    spec: {domain: {cpus: 1, devices: {}}}\n";
        check(
            set,
            &["unknown field \"spec.template.spec.domain.cpus\"", "spec.selector: Required value"],
        );
    }
}
