//! The programs of a cluster: their settings and command lines.
//!
//! Source: the programs' `--help`; kubernetes.io, "Kubelet Configuration (v1beta1)"; CNI
//! specification 1.0.0; containerd's docs/cri/config.md (1.6).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::authority::{ACCOUNT_KEY, ACCOUNT_PUBLIC, CA, CA_KEY, FRONT_PROXY};
use crate::node::{NODE_ADDRESS, NODE_NAME, PODS, SERVICES};
use crate::probe::Probe;
use crate::store::{CONTAINERD, Made};
use host::state_dir::FileError;

/// The image of a pod's sandbox, which is there from the beginning.
pub(crate) const PAUSE_IMAGE: &str = "vmlab/pause:1";
/// The port of the API server in the namespace.
pub(crate) const API_PORT: u16 = 6443;
/// The API server, for all in the namespace.
pub(crate) const API_SERVER: &str = "https://127.0.0.1:6443";
/// The kubelet's further settings: a folder of files that it reads after its own.
pub(crate) const KUBELET_MORE: &str = "kubelet.d";
/// Lets a process make another one's end in want of memory less likely.
const CAP_SYS_RESOURCE: u32 = 24;

/// A program that runs as long as the cluster.
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// How it is asked whether it is well.
    pub(crate) probe: Probe,
}

/// The words of a command line, separated by spaces, in which `@/` is the folder.
fn words(folder: &Path, text: &str) -> Vec<String> {
    let folder = format!("{}/", folder.display());
    text.split_whitespace().map(|word| word.replace("@/", &folder)).collect()
}

/// etcd, whose data need not survive the machine.
pub(crate) fn etcd(folder: &Path, made: &Made) -> Component {
    Component {
        name: "etcd",
        program: made.programs.join("etcd"),
        args: words(
            folder,
            "--data-dir @/etcd --unsafe-no-fsync --log-level warn \
             --listen-client-urls http://127.0.0.1:2379 \
             --advertise-client-urls http://127.0.0.1:2379 \
             --listen-peer-urls http://127.0.0.1:2380",
        ),
        probe: Probe::url("http://127.0.0.1:2379", "/health"),
    }
}

/// The API server. Nobody translates the addresses of services: it looks up the pods behind
/// those of its webhooks and extensions itself.
pub(crate) fn api_server(folder: &Path, made: &Made) -> Component {
    let text = format!(
        "--etcd-servers=http://127.0.0.1:2379 --bind-address=0.0.0.0 --secure-port={API_PORT} \
         --advertise-address={NODE_ADDRESS} --endpoint-reconciler-type=none \
         --enable-aggregator-routing=true \
         --tls-cert-file=@/apiserver.crt --tls-private-key-file=@/apiserver.key \
         --client-ca-file=@/{CA} --authorization-mode=Node,RBAC \
         --enable-admission-plugins=NodeRestriction --allow-privileged=true \
         --service-account-issuer=https://kubernetes.default.svc \
         --service-account-key-file=@/{ACCOUNT_PUBLIC} \
         --service-account-signing-key-file=@/{ACCOUNT_KEY} \
         --service-cluster-ip-range={SERVICES} \
         --kubelet-client-certificate=@/kubelet-client.crt \
         --kubelet-client-key=@/kubelet-client.key --kubelet-certificate-authority=@/{CA} \
         --kubelet-preferred-address-types=InternalIP \
         --requestheader-client-ca-file=@/{CA} --requestheader-allowed-names={FRONT_PROXY} \
         --requestheader-username-headers=X-Remote-User \
         --requestheader-group-headers=X-Remote-Group \
         --requestheader-extra-headers-prefix=X-Remote-Extra- \
         --proxy-client-cert-file=@/front-proxy.crt --proxy-client-key-file=@/front-proxy.key \
         --shutdown-delay-duration=0"
    );
    Component {
        name: "kube-apiserver",
        program: made.programs.join("kube-apiserver"),
        args: words(folder, &text),
        probe: Probe::api("/readyz"),
    }
}

/// The scheduler and the controllers, which have much in common.
fn follower(
    folder: &Path,
    made: &Made,
    name: &'static str,
    role: &str,
    url: &'static str,
    more: &str,
) -> Component {
    let text = format!(
        "--kubeconfig=@/{role}.kubeconfig --authentication-kubeconfig=@/{role}.kubeconfig \
         --authorization-kubeconfig=@/{role}.kubeconfig --leader-elect=false \
         --bind-address=127.0.0.1 {more}"
    );
    Component {
        name,
        program: made.programs.join(name),
        args: words(folder, &text),
        probe: Probe::url(url, "/healthz"),
    }
}

/// The scheduler.
pub(crate) fn scheduler(folder: &Path, made: &Made) -> Component {
    follower(folder, made, "kube-scheduler", "scheduler", "https://127.0.0.1:10259", "")
}

/// The controllers.
pub(crate) fn controllers(folder: &Path, made: &Made) -> Component {
    let more = format!(
        "--use-service-account-credentials=true \
         --service-account-private-key-file=@/{ACCOUNT_KEY} --root-ca-file=@/{CA} \
         --cluster-signing-cert-file=@/{CA} --cluster-signing-key-file=@/{CA_KEY}"
    );
    let name = "kube-controller-manager";
    follower(folder, made, name, "controllers", "https://127.0.0.1:10257", &more)
}

/// containerd, whose pods get a network of a bridge.
pub(crate) fn containerd(folder: &Path, made: &Made) -> Result<Component, FileError> {
    let networks = folder.join("cni");
    fs::create_dir_all(&networks).map_err(FileError::of("make", &networks))?;
    write(&networks.join("10-vmlab.conflist"), &network())?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    write(&folder.join("containerd.toml"), &containerd_toml(folder, made, &status))?;
    Ok(Component {
        name: "containerd",
        program: PathBuf::from("containerd"),
        args: words(folder, "--config @/containerd.toml"),
        probe: Probe::Socket(folder.join(CONTAINERD)),
    })
}

fn network() -> String {
    let list = json!({
        "cniVersion": "1.0.0", "name": "vmlab",
        "plugins": [
            {
                "type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "ranges": [[{ "subnet": PODS }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "loopback" },
        ],
    });
    format!("{list:#}\n")
}

/// containerd's settings, by what `/proc/self/status` tells of this process.
fn containerd_toml(folder: &Path, made: &Made, status: &str) -> String {
    let (folder, cni, snapshotter) = (folder.display(), made.cni.display(), &made.snapshotter);
    let restrict = !has_capability(status, CAP_SYS_RESOURCE);
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
address = "{folder}/{CONTAINERD}"
[plugins."io.containerd.internal.v1.opt"]
path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = {restrict}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{folder}/cni"
bin_dir = "{cni}"
"#
    )
}

/// Whether a process with this `/proc/self/status` has a capability in effect.
fn has_capability(status: &str, bit: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> bit & 1 == 1)
}

/// The kubelet.
pub(crate) fn kubelet(folder: &Path, made: &Made) -> Result<Component, FileError> {
    write(&folder.join("kubelet.yaml"), &kubelet_settings(folder, made))?;
    let more = folder.join(KUBELET_MORE);
    fs::create_dir_all(&more).map_err(FileError::of("make", &more))?;
    let text = format!(
        "--config @/kubelet.yaml --config-dir @/{KUBELET_MORE} --kubeconfig @/kubelet.kubeconfig \
         --node-ip {NODE_ADDRESS} --hostname-override {NODE_NAME}"
    );
    Ok(Component {
        name: "kubelet",
        program: made.programs.join("kubelet"),
        args: words(folder, &text),
        probe: Probe::url("http://127.0.0.1:10248", "/healthz"),
    })
}

/// The kubelet's settings. JSON is YAML.
fn kubelet_settings(folder: &Path, made: &Made) -> String {
    let at = |name: &str| folder.join(name).display().to_string();
    let settings = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": at(CA) },
        },
        "authorization": { "mode": "Webhook" },
        "tlsCertFile": at("kubelet.crt"),
        "tlsPrivateKeyFile": at("kubelet.key"),
        "containerRuntimeEndpoint": format!("unix://{}", at(CONTAINERD)),
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", made.cgroup),
        "failSwapOn": false,
        "failCgroupV1": false,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        // The disk is the whole machine's: how full others keep it is no reason to throw
        // pods out, or images that can't be fetched again.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
            "imagefs.available": "1%", "imagefs.inodesFree": "1%",
        },
    });
    format!("{settings:#}\n")
}

fn write(path: &Path, text: &str) -> Result<(), FileError> {
    fs::write(path, text).map_err(FileError::of("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_their_folder() {
        assert_eq!(words(Path::new("/f"), "a  --b=@/c @/d"), ["a", "--b=/f/c", "/f/d"]);
    }

    #[test]
    fn capabilities_are_read() {
        let status = "Name:\tx\nCapEff:\t000001fffeffffff\nCapBnd:\t000001ffffffffff\n";
        assert!(!has_capability(status, CAP_SYS_RESOURCE));
        assert!(has_capability(status, CAP_SYS_RESOURCE - 1));
        assert!(has_capability(status, 40) && !has_capability(status, 41));
        assert!(!has_capability("", 0));
    }
}
