//! The cluster's own certificate authority, and what it signs: one certificate for each
//! server and each client, by the names that Kubernetes gives their roles.
//!
//! Source: kubernetes.io, "PKI certificates and requirements".

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use crate::made_node::MadeNode;
use crate::node::{NODE_ADDRESS, NODE_NAME, SERVICE_ADDRESS};
use crate::store::write_private;
use host::state_dir::FileError;

/// The authority's certificate.
pub(crate) const CA: &str = "ca.crt";
/// Its key, with which the controllers sign requests for certificates.
pub(crate) const CA_KEY: &str = "ca.key";
/// Signs the tokens of service accounts.
pub(crate) const ACCOUNT_KEY: &str = "accounts.key";
/// Proves them.
pub(crate) const ACCOUNT_PUBLIC: &str = "accounts.pub";

/// Whom a certificate is for.
pub(crate) struct Role {
    /// The names of its files.
    pub(crate) name: &'static str,
    /// The user.
    common_name: &'static str,
    /// The group.
    organization: Option<&'static str>,
}

const MASTERS: Option<&str> = Some("system:masters");

/// Everybody who has a certificate.
pub(crate) const ROLES: [Role; 7] = [
    Role { name: "apiserver", common_name: "kube-apiserver", organization: None },
    Role { name: "admin", common_name: "vmlab", organization: MASTERS },
    Role { name: "scheduler", common_name: "system:kube-scheduler", organization: None },
    Role { name: "controllers", common_name: "system:kube-controller-manager", organization: None },
    Role { name: "kubelet", common_name: NODE_USER, organization: NODES },
    Role { name: "kubelet-client", common_name: "apiserver-kubelet-client", organization: MASTERS },
    Role { name: "front-proxy", common_name: FRONT_PROXY, organization: None },
];

/// Whom extensions of the API believe what they say of users.
pub(crate) const FRONT_PROXY: &str = "front-proxy-client";

/// Before the name of its node, the name of a kubelet.
const USER_OF_NODE: &str = "system:node:";
const NODE_USER: &str = "system:node:vmlab";
const _: () = assert!(NODE_USER.len() == USER_OF_NODE.len() + NODE_NAME.len());
const NODES: Option<&str> = Some("system:nodes");

/// The names of the files of a further node's kubelet.
pub(crate) fn role_of_node(node: &str) -> String {
    format!("node-{node}")
}

/// Where servers are reached.
fn server_names() -> Vec<String> {
    ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", NODE_NAME]
        .into_iter()
        .chain(["127.0.0.1", NODE_ADDRESS])
        .map(str::to_owned)
        .chain([SERVICE_ADDRESS.to_string()])
        .collect()
}

/// Makes all keys and certificates in `folder`, also those of further nodes.
pub(crate) fn make(folder: &Path, nodes: &[MadeNode]) -> Result<(), FileError> {
    let failed = |error: rcgen::Error| FileError {
        doing: "make certificates in",
        path: folder.to_owned(),
        source: io::Error::other(error),
    };
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        write_private(&path, text.as_bytes()).map_err(FileError::of("write", &path))
    };
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "vmlab");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::CrlSign,
    ];
    let key = KeyPair::generate().map_err(failed)?;
    write(CA, params.self_signed(&key).map_err(failed)?.pem())?;
    write(CA_KEY, key.serialize_pem())?;
    let authority = Issuer::new(params, key);
    let sign = |name: &str, common_name: &str, organization: Option<&str>, names: Vec<String>| {
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(names).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        params.key_usages =
            vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let signed = params.signed_by(&key, &authority).map_err(failed)?;
        write(&format!("{name}.crt"), signed.pem())?;
        write(&format!("{name}.key"), key.serialize_pem())
    };
    for role in &ROLES {
        sign(role.name, role.common_name, role.organization, server_names())?;
    }
    for MadeNode { name, address, .. } in nodes {
        let user = format!("{USER_OF_NODE}{name}");
        let names = vec![name.clone(), address.to_string()];
        sign(&role_of_node(name), &user, NODES, names)?;
    }
    let accounts = KeyPair::generate().map_err(failed)?;
    write(ACCOUNT_KEY, accounts.serialize_pem())?;
    write(ACCOUNT_PUBLIC, accounts.public_key_pem())
}

/// A kubeconfig with which `role` reaches the API server at `server`. JSON is YAML.
pub(crate) fn kubeconfig(
    folder: &Path,
    cluster: &str,
    server: &str,
    role: &str,
) -> Result<String, FileError> {
    let read = |name: String| {
        let path = folder.join(name);
        fs::read(&path).map(|bytes| BASE64.encode(bytes)).map_err(FileError::of("read", &path))
    };
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": cluster, "cluster": {
            "server": server, "certificate-authority-data": read(CA.to_owned())?,
        }}],
        "users": [{ "name": role, "user": {
            "client-certificate-data": read(format!("{role}.crt"))?,
            "client-key-data": read(format!("{role}.key"))?,
        }}],
        "contexts": [{ "name": cluster, "context": { "cluster": cluster, "user": role } }],
        "current-context": cluster,
    });
    Ok(format!("{config:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_gets_a_key_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let node = MadeNode::at(0, "two", "lab").unwrap();
        make(folder.path(), &[node]).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for name in ROLES.iter().map(|role| role.name).chain(["node-two"]) {
            for ending in ["crt", "key"] {
                let text = fs::read_to_string(folder.path().join(format!("{name}.{ending}")));
                let text = text.unwrap();
                assert!(text.starts_with("-----BEGIN "), "{text}");
                assert!(seen.insert(text), "{name}.{ending} is another's");
            }
        }
        let config = kubeconfig(folder.path(), "lab", "https://127.0.0.1:1", "admin").unwrap();
        let config: serde_json::Value = serde_json::from_str(&config).unwrap();
        assert_eq!(config["clusters"][0]["cluster"]["server"], "https://127.0.0.1:1");
        let data = config["users"][0]["user"]["client-key-data"].as_str().unwrap();
        let key = String::from_utf8(BASE64.decode(data).unwrap()).unwrap();
        assert_eq!(key, fs::read_to_string(folder.path().join("admin.key")).unwrap());
        assert!(NODE_USER.ends_with(NODE_NAME));
    }
}
