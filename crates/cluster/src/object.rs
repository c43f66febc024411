//! An object of KubeVirt as the server has it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::resource::ResourceKind;

/// An object, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterObject {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace, where its kind has them.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The node that it runs on (`status.nodeName` of an instance).
    pub node: Option<String>,
    /// The node that an instance's pod is bound to, while the instance says none yet.
    pub bound_to: Option<String>,
    /// Kind and name of what made it.
    pub owner: Option<(String, String)>,
    /// When it was made, as the server writes it (RFC 3339, UTC): sorts by time.
    pub created: String,
    /// Whether it has come to its end (phases Succeeded and Failed).
    pub is_over: bool,
    /// All of it, in the lines in which `kubectl get -o json` shows it.
    pub text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    metadata: ObjectMeta,
    #[serde(default)]
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMeta {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    creation_timestamp: Option<String>,
    #[serde(default)]
    owner_references: Vec<OwnerReference>,
}

#[derive(Deserialize)]
struct OwnerReference {
    kind: String,
    name: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    node_name: Option<String>,
    phase: Option<String>,
}

impl ClusterObject {
    /// Reads an item of a list of this kind, which may leave out its kind.
    pub(crate) fn read(kind: &ResourceKind, item: &RawValue) -> Result<Self, serde_json::Error> {
        let mut value: Value = serde_json::from_str(item.get())?;
        let Header { metadata, status } = Header::deserialize(&value)?;
        if let Value::Object(fields) = &mut value {
            let version = format!("{}/{}", kind.group, kind.version);
            fields.insert("apiVersion".to_owned(), version.into());
            fields.insert("kind".to_owned(), kind.kind.into());
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("managedFields");
            }
        }
        let status = status.unwrap_or_default();
        let phase = status.phase.as_deref();
        Ok(Self {
            kind: kind.kind,
            namespace: metadata.namespace,
            name: metadata.name,
            node: status.node_name.filter(|node| !node.is_empty()),
            bound_to: None,
            owner: metadata.owner_references.into_iter().map(|one| (one.kind, one.name)).next(),
            created: metadata.creation_timestamp.unwrap_or_default(),
            is_over: matches!(phase, Some("Succeeded" | "Failed")),
            text: shown(&value)?,
        })
    }

    /// `namespace/name`, or the name alone.
    #[must_use]
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// The lines of `kubectl get -o json`: keys sorted, four blanks a level.
fn shown(value: &Value) -> Result<String, serde_json::Error> {
    let mut out = Vec::new();
    let layout = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, layout))?;
    // JSON is UTF-8.
    Ok(String::from_utf8(out).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::{INSTANCES, VMS};

    fn read(kind: &ResourceKind, text: &str) -> Result<ClusterObject, serde_json::Error> {
        ClusterObject::read(kind, &RawValue::from_string(text.to_owned())?)
    }

    #[test]
    fn a_list_leaves_out_the_kind_and_the_lines_are_kubectls() {
        let object = read(
            &VMS,
            r#"{"metadata":{"name":"web","namespace":"shop","managedFields":[{"manager":"x"}]},
                "spec":{"running":true}}"#,
        )
        .expect("an object");
        assert_eq!(object.path(), "shop/web");
        assert_eq!(
            object.text,
            "\
{
    \"apiVersion\": \"kubevirt.io/v1\",
    \"kind\": \"VirtualMachine\",
    \"metadata\": {
        \"name\": \"web\",
        \"namespace\": \"shop\"
    },
    \"spec\": {
        \"running\": true
    }
}"
        );
    }

    #[test]
    fn an_instance_tells_its_node_and_its_owner() {
        let object = read(
            &INSTANCES,
            r#"{"metadata":{"name":"web","namespace":"shop","creationTimestamp":"2026-01-02T03:04:05Z",
                "ownerReferences":[{"kind":"VirtualMachine","name":"web","uid":"1"}]},
                "status":{"nodeName":"one","phase":"Running"}}"#,
        )
        .expect("an object");
        assert_eq!(object.node.as_deref(), Some("one"));
        assert_eq!(object.owner, Some(("VirtualMachine".to_owned(), "web".to_owned())));
        assert!(!object.is_over);
        assert!(read(&INSTANCES, "{}").is_err());
    }
}
