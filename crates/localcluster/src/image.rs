//! An image of one program, as an OCI archive: nothing has to be fetched for it.
//!
//! Source: OCI image format specification 1.0 (image-layout, manifest, config).

use std::io;

use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

/// Those who name no registry mean this one.
const REGISTRY: &str = "docker.io";

/// An image that is there.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let hash = digest(&SHA256, &bytes);
        let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { digest: hex, bytes }
    }

    fn json(value: &Value) -> Self {
        Self::new(value.to_string().into_bytes())
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({
            "mediaType": format!("application/vnd.oci.image.{media_type}"),
            "digest": format!("sha256:{}", self.digest),
            "size": self.bytes.len(),
        })
    }
}

fn add(archive: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes.len() as u64);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    archive.append_data(&mut header, path, bytes)
}

/// An archive with the image `name` (`vmlab/pause:1`), in which `program` (its bytes) is
/// all that there is, and is run; the same from the same bytes.
pub(crate) fn archive(name: &str, path: &str, program: &[u8]) -> io::Result<Vec<u8>> {
    let mut layer = tar::Builder::new(Vec::new());
    add(&mut layer, path.trim_start_matches('/'), 0o755, program)?;
    let layer = Blob::new(layer.into_inner()?);
    let config = Blob::json(&json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Entrypoint": [path] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)] },
    }));
    let manifest = Blob::json(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor("config.v1+json"),
        "layers": [layer.descriptor("layer.v1.tar")],
    }));
    let mut descriptor = manifest.descriptor("manifest.v1+json");
    descriptor["annotations"] = json!({ "io.containerd.image.name": format!("{REGISTRY}/{name}") });
    let index = json!({ "schemaVersion": 2, "manifests": [descriptor] });
    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, "oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    add(&mut archive, "index.json", 0o644, index.to_string().as_bytes())?;
    for blob in [&layer, &config, &manifest] {
        add(&mut archive, &format!("blobs/sha256/{}", blob.digest), 0o644, &blob.bytes)?;
    }
    archive.into_inner()
}

/// Go's name for this architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            found.insert(path, bytes);
        }
        found
    }

    #[test]
    fn each_digest_leads_to_what_it_is_of() {
        let program = vec![7_u8; 3000];
        let archive = archive("vmlab/x:1", "/x", &program).unwrap();
        let files = files(&archive);
        let read = |digest: &Value| {
            let hex = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
            let bytes = &files[&format!("blobs/sha256/{hex}")];
            assert_eq!(Blob::new(bytes.clone()).digest, hex);
            bytes.clone()
        };
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let of_image = &index["manifests"][0];
        assert_eq!(of_image["annotations"]["io.containerd.image.name"], "docker.io/vmlab/x:1");
        let manifest: Value = serde_json::from_slice(&read(&of_image["digest"])).unwrap();
        let config: Value = serde_json::from_slice(&read(&manifest["config"]["digest"])).unwrap();
        assert_eq!(config["config"]["Entrypoint"], json!(["/x"]));
        assert_eq!(config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"]);
        let layer = read(&manifest["layers"][0]["digest"]);
        assert_eq!(manifest["layers"][0]["size"], layer.len());
        assert_eq!(self::files(&layer), BTreeMap::from([("x".to_owned(), program)]));
    }
}
