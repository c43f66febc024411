//! Whether a program is well, by what it says itself.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Request;
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::kubevirt::{self, INSTANCES, KubeVirtStatus};
use crate::status::NodeStatus;

/// The label of nodes on which KubeVirt puts VMs.
const SCHEDULABLE: &str = "kubevirt.io/schedulable";
/// A program that takes longer is not well.
const LIMIT: Duration = Duration::from_secs(5);

/// How a program is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HealthCheck {
    /// By a page of its own, on the loopback.
    Url { server: &'static str, path: &'static str },
    /// By a page of the API server's, as the administrator.
    Api { path: &'static str },
    /// It takes connections.
    Socket(PathBuf),
}

impl HealthCheck {
    pub(crate) fn url(server: &'static str, path: &'static str) -> Self {
        Self::Url { server, path }
    }

    pub(crate) fn api(path: &'static str) -> Self {
        Self::Api { path }
    }
}

/// Who asks.
pub(crate) struct Prober {
    runtime: Runtime,
    administrator: Client,
}

impl Prober {
    /// One that asks the API server by this kubeconfig.
    pub(crate) fn new(kubeconfig: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::error::Error| format!("Cannot ask the servers: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(&error))?;
        let read = Kubeconfig::read_from(kubeconfig).map_err(|error| failed(&error))?;
        let administrator = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(read, &options)
                .await
                .map_err(|error| failed(&error))?;
            // No proxy of the user's stands before one's own loopback.
            config.proxy_url = None;
            Client::try_from(config).map_err(|error| failed(&error))
        })?;
        Ok(Self { runtime, administrator })
    }

    /// Nothing if the program is well, else why it is not.
    pub(crate) fn ask(&self, probe: &HealthCheck) -> Result<(), String> {
        match probe {
            HealthCheck::Socket(path) => {
                UnixStream::connect(path).map(drop).map_err(|error| error.to_string())
            }
            HealthCheck::Api { path } => self.get(None, path).map(drop),
            HealthCheck::Url { server, path } => self.get(Some(server), path).map(drop),
        }
    }

    /// Puts an object into the cluster.
    pub(crate) fn post(&self, object: &Value) -> Result<(), String> {
        let path = kubevirt::list_path(object).ok_or("It is no object of Kubernetes'")?;
        self.send("POST", &path, "application/json", object)
    }

    /// Changes an object (RFC 7396).
    pub(crate) fn merge(&self, path: &str, change: &Value) -> Result<(), String> {
        self.send("PATCH", path, "application/merge-patch+json", change)
    }

    fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<(), String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, kind)
            .body(body.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        self.answer(&self.administrator, request).map(drop)
    }

    /// The body of a good answer.
    fn get(&self, server: Option<&str>, path: &str) -> Result<String, String> {
        let client = match server {
            None => self.administrator.clone(),
            Some(server) => {
                let url = server.parse().map_err(|error| format!("{server}: {error}"))?;
                let mut config = Config::new(url);
                // They make their certificates themselves, and are on the loopback of a
                // namespace where nobody else is.
                config.accept_invalid_certs = true;
                // A client belongs to the runtime that it is made in.
                let _entered = self.runtime.enter();
                Client::try_from(config).map_err(|error| error.to_string())?
            }
        };
        let request = Request::get(path).body(Vec::new()).map_err(|error| error.to_string())?;
        self.answer(&client, request)
    }

    fn answer(&self, client: &Client, request: Request<Vec<u8>>) -> Result<String, String> {
        self.runtime.block_on(async {
            match tokio::time::timeout(LIMIT, client.request_text(request)).await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {} s", LIMIT.as_secs())),
            }
        })
    }

    fn get_json(&self, path: &str) -> Result<Value, String> {
        serde_json::from_str(&self.get(None, path)?).map_err(|error| error.to_string())
    }

    /// The nodes, as the API server tells.
    pub(crate) fn nodes(&self) -> Result<Vec<NodeStatus>, String> {
        let nodes = self.get_json("/api/v1/nodes")?;
        let pods = self.get_json("/api/v1/pods?fieldSelector=status.phase%3DRunning")?;
        Ok(node_list(&nodes, &pods))
    }

    /// KubeVirt, as it says that it is.
    pub(crate) fn kubevirt(&self) -> Result<KubeVirtStatus, String> {
        let kubevirt = self.get_json(&kubevirt::object_path())?;
        Ok(KubeVirtStatus::of(&kubevirt, &self.get_json(INSTANCES)?))
    }

    /// Whether VMs can be put on the node.
    /// Whether pods can be made in the default namespace.
    pub(crate) fn has_default_account(&self) -> Result<(), String> {
        self.get(None, "/api/v1/namespaces/default/serviceaccounts/default").map(drop)
    }
}

fn node_list(nodes: &Value, pods: &Value) -> Vec<NodeStatus> {
    let items = |list: &Value| list["items"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = items(pods);
    let status = |node: &Value| {
        let name = text(&node["metadata"]["name"]);
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let is_ready = ready.is_some_and(|condition| condition["status"] == "True");
        let reason = match ready {
            None => "it has not told whether it is ready".to_owned(),
            Some(condition) => text(&condition["message"]),
        };
        let info = &node["status"]["nodeInfo"];
        NodeStatus {
            ready: is_ready,
            reason: (!is_ready).then_some(reason),
            kubelet: text(&info["kubeletVersion"]),
            runtime: text(&info["containerRuntimeVersion"]),
            running_pods: pods.iter().filter(|pod| pod["spec"]["nodeName"] == name).count(),
            takes_vms: node["metadata"]["labels"][SCHEDULABLE] == "true",
            name,
            replica: None,
        }
    };
    items(nodes).iter().map(status).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nodes_are_read() {
        let node = |name: &str, conditions: Value| {
            json!({
                "metadata": { "name": name },
                "status": { "conditions": conditions, "nodeInfo": {
                    "kubeletVersion": "v1.36.3", "containerRuntimeVersion": "containerd://1.6.20",
                }},
            })
        };
        let nodes = json!({ "items": [
            node("a", json!([{ "type": "Ready", "status": "True", "message": "posting" }])),
            node("b", json!([{ "type": "Ready", "status": "False", "message": "no CNI" }])),
            node("c", Value::Null),
        ]});
        let pods = json!({ "items": [
            { "spec": { "nodeName": "a" } }, { "spec": { "nodeName": "a" } }, { "spec": {} },
        ]});
        let found = node_list(&nodes, &pods);
        let told: Vec<_> = found
            .iter()
            .map(|node| (node.name.as_str(), node.ready, node.reason.as_deref(), node.running_pods))
            .collect();
        let untold = Some("it has not told whether it is ready");
        assert_eq!(
            told,
            [("a", true, None, 2), ("b", false, Some("no CNI"), 0), ("c", false, untold, 0)]
        );
        assert_eq!(found[0].kubelet, "v1.36.3");
        assert!(node_list(&json!({}), &json!({})).is_empty());
    }
}
