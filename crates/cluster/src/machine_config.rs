//! OpenShift's MachineConfig: what its operator gave a node as a whole.
//!
//! A node's annotations name the one that was rendered for it, so no pool need be read.
//!
//! Source: openshift/api `machineconfiguration/v1/types.go`; openshift/machine-config-operator
//! `pkg/daemon/constants/constants.go`; Ignition's `config-spec-v3.4`; RFC 2397 (`data:`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use placement::predict::boot::BootParameters;
use placement::predict::kubelet::{KubeletSettings, SettingsSource};
use serde::Deserialize;
use topology::bounded;

/// Where the operator puts a kubelet's settings.
const KUBELET_FILE: &str = "/etc/kubernetes/kubelet.conf";
const ANNOTATION: &str = "machineconfiguration.openshift.io/";

/// Which MachineConfig a node has, and is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineConfigState {
    /// The one that it has.
    pub current: String,
    /// The one that it is to have.
    pub desired: String,
    /// How far that is: `Done`, `Working`, `Degraded`; empty: it does not say.
    pub state: String,
}

impl MachineConfigState {
    /// From a node's annotations.
    pub(crate) fn of(annotations: Option<&BTreeMap<String, String>>) -> Option<Self> {
        let text = |name: &str| annotations?.get(&format!("{ANNOTATION}{name}")).cloned();
        let current = text("currentConfig").filter(|name| !name.is_empty())?;
        let desired = text("desiredConfig").filter(|name| !name.is_empty());
        let desired = desired.unwrap_or_else(|| current.clone());
        Some(Self { current, desired, state: text("state").unwrap_or_default() })
    }
}

/// What a node's kernel is told at its boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeBoot {
    /// The MachineConfig's name.
    pub source: Arc<str>,
    /// What it says.
    pub parameters: BootParameters,
}

/// A MachineConfig, the part that bears on VMs.
#[derive(Debug)]
pub(crate) struct RenderedConfig {
    name: Arc<str>,
    arguments: Vec<String>,
    /// Settings of the kubelet; `None`: it brings none.
    pub(crate) kubelet: Option<Result<KubeletSettings, String>>,
}

#[derive(Deserialize)]
struct ConfigObject {
    metadata: ConfigName,
    spec: ConfigSpec,
}

#[derive(Deserialize)]
struct ConfigName {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigSpec {
    kernel_arguments: Option<Vec<String>>,
    config: Option<Ignition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ignition {
    storage: IgnitionStorage,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IgnitionStorage {
    files: Vec<IgnitionFile>,
}

#[derive(Deserialize)]
struct IgnitionFile {
    path: String,
    #[serde(default)]
    contents: IgnitionContents,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct IgnitionContents {
    source: Option<String>,
    compression: Option<String>,
}

impl RenderedConfig {
    /// From its object.
    pub(crate) fn read(text: &[u8]) -> Result<Self, serde_json::Error> {
        let ConfigObject { metadata, spec } = serde_json::from_slice(text)?;
        let name: Arc<str> = metadata.name.into();
        let files = spec.config.unwrap_or_default().storage.files;
        // Where several have the same path the last one stays.
        let file = files.into_iter().rfind(|file| file.path == KUBELET_FILE);
        let kubelet = file.map(|file| {
            let settings = file.contents.text().and_then(|text| kubelet_settings(&text));
            settings.map_err(|why| format!("{KUBELET_FILE} in it: {why}")).map(|settings| {
                KubeletSettings {
                    source: SettingsSource::MachineConfig(name.to_string()),
                    ..settings
                }
            })
        });
        Ok(Self { name, arguments: spec.kernel_arguments.unwrap_or_default(), kubelet })
    }

    /// What the kernel of a node of so many pCPUs is told by it.
    pub(crate) fn boot(&self, pcpus: u32) -> NodeBoot {
        let parameters = BootParameters::read(self.arguments.iter().map(String::as_str), pcpus);
        NodeBoot { source: Arc::clone(&self.name), parameters }
    }
}

fn kubelet_settings(text: &str) -> Result<KubeletSettings, String> {
    let documents = bounded::yaml(text).map_err(|broken| broken.what)?;
    let [document] = &documents[..] else {
        return Err(format!("{} documents, not one KubeletConfiguration", documents.len()));
    };
    KubeletSettings::from_value(document.json()).map_err(|error| error.to_string())
}

impl IgnitionContents {
    /// What the file holds, where the object holds it.
    fn text(&self) -> Result<String, String> {
        if let Some(way) = self.compression.as_deref().filter(|way| !way.is_empty()) {
            return Err(format!("compressed by {way}, which is not read"));
        }
        let source = self.source.as_deref().unwrap_or("data:,");
        let data = source.strip_prefix("data:").and_then(|rest| rest.split_once(','));
        let Some((media_type, data)) = data else {
            return Err("it comes from elsewhere, and is not fetched".to_owned());
        };
        let bytes = unescaped(data)?;
        let bytes = match media_type.ends_with(";base64") {
            true => STANDARD.decode(bytes).map_err(|error| format!("no base64: {error}"))?,
            false => bytes,
        };
        String::from_utf8(bytes).map_err(|_| "no text in UTF-8".to_owned())
    }
}

/// What stands behind the percent signs of a URL.
fn unescaped(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else {
            return Err("a percent sign without two digits behind it".to_owned());
        };
        bytes.push((high << 4 | low) as u8);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn config(contents: Value) -> RenderedConfig {
        let object = json!({
            "metadata": { "name": "rendered-worker-1" },
            "spec": {
                "kernelArguments": ["isolcpus=managed_irq,domain,2-N nosmt", "nohz_full=2-7"],
                "config": {
                    "ignition": { "version": "3.4.0" },
                    "storage": { "files": [
                        { "path": "/etc/motd", "contents": { "source": "data:,x" } },
                        { "path": KUBELET_FILE, "contents": contents },
                    ]},
                },
            },
        });
        RenderedConfig::read(object.to_string().as_bytes()).expect("a MachineConfig")
    }

    #[test]
    fn a_kubelet_s_file_is_read_as_it_is_packed() {
        let text =
            "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-1\n";
        let packed = format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(text));
        let escaped: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for source in [packed, format!("data:,{escaped}")] {
            let config = config(json!({ "source": source, "compression": "" }));
            let settings = config.kubelet.expect("a file").expect("settings");
            assert!(settings.is_static);
            assert_eq!(settings.reserved.count(), 2);
            let named = SettingsSource::MachineConfig("rendered-worker-1".to_owned());
            assert_eq!(settings.source, named);
        }
        let boot = config(json!({ "source": "data:," })).boot(8);
        assert_eq!(boot.parameters.isolated, boot.parameters.nohz_full);
        assert_eq!(boot.parameters.words.len(), 3);
    }

    #[test]
    fn what_can_not_be_read_is_said() {
        for (contents, said) in [
            (json!({ "source": "data:;base64,AAAA", "compression": "gzip" }), "compressed by gzip"),
            (json!({ "source": "https://example.com/kubelet" }), "it comes from elsewhere"),
            (json!({ "source": "data:;base64,A" }), "no base64: "),
            (json!({ "source": "data:,%e" }), "a percent sign"),
            (json!({ "source": "data:,%ff" }), "no text"),
            (json!({ "source": "data:,a:%20%5B" }), ""),
            (json!({}), "0 documents"),
            (json!({ "source": "data:,topologyManagerPolicy:%20strict" }), "topologyManagerPolicy"),
        ] {
            let why = config(contents.clone()).kubelet.expect("a file").expect_err("an error");
            let why = why.strip_prefix("/etc/kubernetes/kubelet.conf in it: ");
            assert!(why.is_some_and(|why| why.starts_with(said)), "{contents}: {why:?}");
        }
        assert!(RenderedConfig::read(b"{}").is_err());
    }

    #[test]
    fn a_node_names_what_it_has() {
        let annotations: BTreeMap<String, String> = [
            ("machineconfiguration.openshift.io/currentConfig".to_owned(), "one".to_owned()),
            ("machineconfiguration.openshift.io/state".to_owned(), "Done".to_owned()),
        ]
        .into();
        let state = MachineConfigState::of(Some(&annotations)).expect("a state");
        assert_eq!((&*state.current, &*state.desired, &*state.state), ("one", "one", "Done"));
        assert_eq!(MachineConfigState::of(None), None);
    }
}
