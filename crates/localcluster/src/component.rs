//! The programs of a cluster: their settings and command lines.
//!
//! Source: the programs' `--help`; kubernetes.io, "Kubelet Configuration (v1beta1)"; CNI
//! specification 1.0.0; containerd's docs/cri/config.md (1.6).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::authority::{ACCOUNT_KEY, ACCOUNT_PUBLIC, CA, CA_KEY, FRONT_PROXY};
use crate::image::CONTAINERD;
use crate::node::{NODE_ADDRESS, NODE_NAME, PODS, SERVICES};
use crate::probe::HealthCheck;
use crate::store::ClusterManifest;
use host::state_dir::FileError;

/// The image of a pod's sandbox, which is there from the beginning.
pub(crate) const PAUSE_IMAGE: &str = "vmlab/pause:1";
/// The port of the API server in the namespace.
pub(crate) const API_PORT: u16 = 6443;
/// The API server, for all in the namespace.
pub(crate) const API_SERVER: &str = "https://127.0.0.1:6443";
/// The kubelet's further settings: a folder of files that it reads after its own.
pub(crate) const KUBELET_MORE: &str = "kubelet.d";
/// The user's, in that folder.
pub(crate) const KUBELET_OF_USER: &str = "50-more.conf";
/// The files of kubelet and containerd in their folder.
pub(crate) const KUBELET_YAML: &str = "kubelet.yaml";
pub(crate) const KUBELET_KUBECONFIG: &str = "kubelet.kubeconfig";
pub(crate) const CONTAINERD_TOML: &str = "containerd.toml";
/// The pods' network, in its folder.
pub(crate) const NETWORK: &str = "10-vmlab.conflist";
/// What a kubelet listens on.
pub(crate) const KUBELET_PORT: u16 = 10250;
/// Lets a process make another one's end in want of memory less likely.
const CAP_SYS_RESOURCE: u32 = 24;

/// A program that runs as long as the cluster.
pub(crate) struct Component {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// How it is asked whether it is well.
    pub(crate) probe: HealthCheck,
}

/// The words of a command line, separated by spaces, in which `@/` is the folder.
fn words(folder: &Path, text: &str) -> Vec<String> {
    let folder = format!("{}/", folder.display());
    text.split_whitespace().map(|word| word.replace("@/", &folder)).collect()
}

/// etcd, whose data need not survive the machine.
pub(crate) fn etcd(folder: &Path, made: &ClusterManifest) -> Component {
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
        probe: HealthCheck::url("http://127.0.0.1:2379", "/health"),
    }
}

/// The API server. Nobody translates the addresses of services: it looks up the pods behind
/// those of its webhooks and extensions itself.
pub(crate) fn api_server(folder: &Path, made: &ClusterManifest) -> Component {
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
        probe: HealthCheck::api("/readyz"),
    }
}

/// The scheduler and the controllers, which have much in common.
fn follower(
    folder: &Path,
    made: &ClusterManifest,
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
        probe: HealthCheck::url(url, "/healthz"),
    }
}

/// The scheduler.
pub(crate) fn scheduler(folder: &Path, made: &ClusterManifest) -> Component {
    follower(folder, made, "kube-scheduler", "scheduler", "https://127.0.0.1:10259", "")
}

/// The controllers.
pub(crate) fn controllers(folder: &Path, made: &ClusterManifest) -> Component {
    let more = format!(
        "--use-service-account-credentials=true \
         --service-account-private-key-file=@/{ACCOUNT_KEY} --root-ca-file=@/{CA} \
         --cluster-signing-cert-file=@/{CA} --cluster-signing-key-file=@/{CA_KEY}"
    );
    let name = "kube-controller-manager";
    follower(folder, made, name, "controllers", "https://127.0.0.1:10257", &more)
}

/// containerd, whose pods get a network of a bridge.
pub(crate) fn containerd(folder: &Path, made: &ClusterManifest) -> Result<Component, FileError> {
    let networks = folder.join("cni");
    fs::create_dir_all(&networks).map_err(FileError::of("make", &networks))?;
    write(&networks.join(NETWORK), &network(PODS))?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let settings = ContainerdSettings {
        root: Path::new("/var/lib/containerd"),
        socket: &folder.join(CONTAINERD),
        snapshotter: &made.snapshotter,
        restrict_oom: !has_capability(&status, CAP_SYS_RESOURCE),
        networks: &networks,
        plugins: &made.cni,
    };
    write(&folder.join(CONTAINERD_TOML), &settings.text())?;
    Ok(Component {
        name: "containerd",
        program: PathBuf::from("containerd"),
        args: words(folder, &format!("--config @/{CONTAINERD_TOML}")),
        probe: HealthCheck::Socket(folder.join(CONTAINERD)),
    })
}

/// The pods' network on a node, by the addresses that they have there.
pub(crate) fn network(pods: &str) -> String {
    let list = json!({
        "cniVersion": "1.0.0", "name": "vmlab",
        "plugins": [
            {
                "type": "bridge", "bridge": "pods0", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "ranges": [[{ "subnet": pods }]],
                    "routes": [{ "dst": "0.0.0.0/0" }],
                },
            },
            { "type": "loopback" },
        ],
    });
    format!("{list:#}\n")
}

/// What containerd is told.
pub(crate) struct ContainerdSettings<'a> {
    /// Where images and containers lie.
    pub(crate) root: &'a Path,
    /// Where it listens.
    pub(crate) socket: &'a Path,
    pub(crate) snapshotter: &'a str,
    /// Whether it may not make others' end in want of memory less likely.
    pub(crate) restrict_oom: bool,
    /// The folder of the pods' networks, and of the plugins that make them.
    pub(crate) networks: &'a Path,
    pub(crate) plugins: &'a Path,
}

impl ContainerdSettings<'_> {
    /// Its file.
    pub(crate) fn text(&self) -> String {
        let Self { snapshotter, restrict_oom, .. } = self;
        let (root, socket) = (self.root.display(), self.socket.display());
        let (networks, plugins) = (self.networks.display(), self.plugins.display());
        format!(
            r#"version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
path = "{root}/opt"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE_IMAGE}"
restrict_oom_score_adj = {restrict_oom}
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "{snapshotter}"
[plugins."io.containerd.grpc.v1.cri".cni]
conf_dir = "{networks}"
bin_dir = "{plugins}"
"#
        )
    }
}

/// Whether a process with this `/proc/self/status` has a capability in effect.
fn has_capability(status: &str, bit: u32) -> bool {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .is_some_and(|set| set >> bit & 1 == 1)
}

/// The kubelet.
pub(crate) fn kubelet(folder: &Path, made: &ClusterManifest) -> Result<Component, FileError> {
    let settings = KubeletConfig {
        authority: &folder.join(CA),
        certificate: &folder.join("kubelet.crt"),
        key: &folder.join("kubelet.key"),
        containerd: &folder.join(CONTAINERD),
        cgroup: &made.cgroup,
        // At the addresses of further nodes the keeper listens.
        address: NODE_ADDRESS,
    };
    write(&folder.join(KUBELET_YAML), &settings.text())?;
    let more = folder.join(KUBELET_MORE);
    fs::create_dir_all(&more).map_err(FileError::of("make", &more))?;
    Ok(Component {
        name: "kubelet",
        program: made.programs.join("kubelet"),
        args: kubelet_args(folder, NODE_NAME, NODE_ADDRESS),
        probe: HealthCheck::url("http://127.0.0.1:10248", "/healthz"),
    })
}

/// A kubelet's command line, whose files are in the folder.
pub(crate) fn kubelet_args(folder: &Path, node: &str, address: &str) -> Vec<String> {
    let text = format!(
        "--config @/{KUBELET_YAML} --config-dir @/{KUBELET_MORE} \
         --kubeconfig @/{KUBELET_KUBECONFIG} --node-ip {address} --hostname-override {node}"
    );
    words(folder, &text)
}

/// What a kubelet is told.
pub(crate) struct KubeletConfig<'a> {
    pub(crate) authority: &'a Path,
    pub(crate) certificate: &'a Path,
    pub(crate) key: &'a Path,
    /// containerd's socket.
    pub(crate) containerd: &'a Path,
    /// The cgroup below which its pods are; all if empty.
    pub(crate) cgroup: &'a str,
    /// Where it listens.
    pub(crate) address: &'a str,
}

impl KubeletConfig<'_> {
    /// Its file. JSON is YAML.
    pub(crate) fn text(&self) -> String {
        let shown = |path: &Path| path.display().to_string();
        let settings = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": shown(self.authority) },
            },
            "authorization": { "mode": "Webhook" },
            "address": self.address,
            "tlsCertFile": shown(self.certificate),
            "tlsPrivateKeyFile": shown(self.key),
            "containerRuntimeEndpoint": format!("unix://{}", self.containerd.display()),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": format!("/{}", self.cgroup),
            "failSwapOn": false,
            "failCgroupV1": false,
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
            // The disk is the whole machine's: how full others keep it is no reason to throw
            // pods out, or images that can't be fetched again.
            "imageGCHighThresholdPercent": 100,
            "evictionHard": {
                "memory.available": "100Mi", "nodefs.available": "1%",
                "nodefs.inodesFree": "1%", "imagefs.available": "1%",
                "imagefs.inodesFree": "1%",
            },
        });
        format!("{settings:#}\n")
    }
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
