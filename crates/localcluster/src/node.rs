//! What the programs find around them in the namespaces: mounts, interfaces, settings.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use host::state_dir::FileError;

use crate::made_node::MadeNode;

/// The node's name.
pub(crate) const NODE_NAME: &str = "vmlab";
/// Its address, which may not be that of the loopback (RFC 5737: for documentation).
pub(crate) const NODE_ADDRESS: &str = "192.0.2.1";
/// Where pods look for the API server: the first of the services' addresses.
pub(crate) const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// Its port there.
pub(crate) const SERVICE_PORT: u16 = 443;
/// The services' addresses.
pub(crate) const SERVICES: &str = "10.96.0.0/24";
/// The pods' addresses.
pub(crate) const PODS: &str = "10.244.0.0/24";

/// What is the cluster's own below the folder, and where it is seen. In `/run` there are
/// files with fixed names of containerd, its shims, and plugins.
const OWN: [(&str, &str); 2] = [("var-lib", "/var/lib"), ("var-log", "/var/log")];

/// Folders of the host that are not seen in the namespaces.
pub(crate) const HIDDEN: [&str; 3] = ["/run", "/var/lib", "/var/log"];

/// What a kubelet sets in the whole kernel; it sees copies of them.
const TUNABLES: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

/// Runs a program of the system's; what it said if it failed.
fn run(program: &str, args: &[&str]) -> Result<(), String> {
    let said = |why: &str| format!("{program} {}: {why}", args.join(" "));
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| said(&error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(said(String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn path(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is not UTF-8", path.display()))
}

/// Makes the mounts of the namespace.
pub(crate) fn make_mounts(folder: &Path) -> Result<(), String> {
    // What containers mount for others is seen by those, and not by the host: `unshare`
    // has made all private.
    run("mount", &["--make-rshared", "/"])?;
    run("mount", &["-t", "tmpfs", "-o", "mode=0755", "tmpfs", "/run"])?;
    for (own, place) in OWN {
        let own = folder.join(own);
        fs::create_dir_all(&own).map_err(|error| error.to_string())?;
        run("mount", &["--bind", path(&own)?, place])?;
    }
    let copies = folder.join("tunables");
    fs::create_dir_all(&copies).map_err(|error| error.to_string())?;
    for name in TUNABLES {
        let setting = Path::new("/proc/sys").join(name);
        let copy = copies.join(name.replace('/', "."));
        // What this kernel lacks needs no copy.
        let Ok(value) = fs::read(&setting) else { continue };
        fs::write(&copy, value)
            .map_err(FileError::of("write", &copy))
            .map_err(|e| e.to_string())?;
        run("mount", &["--bind", path(&copy)?, path(&setting)?])?;
    }
    Ok(())
}

/// Makes the interfaces of the namespace. It has the addresses of further nodes, too: who
/// comes there is led to them.
pub(crate) fn make_interfaces(nodes: &[MadeNode]) -> Result<(), String> {
    run("ip", &["link", "set", "lo", "up"])?;
    run("ip", &["address", "add", &format!("{SERVICE_ADDRESS}/32"), "dev", "lo"])?;
    // Not every kernel has dummies; one end of a pair does as well.
    if run("ip", &["link", "add", "node0", "type", "dummy"]).is_err() {
        run("ip", &["link", "add", "node0", "type", "veth", "peer", "name", "node1"])?;
        run("ip", &["link", "set", "node1", "up"])?;
    }
    run("ip", &["address", "add", &format!("{NODE_ADDRESS}/24"), "dev", "node0"])?;
    for node in nodes {
        run("ip", &["address", "add", &format!("{}/32", node.address), "dev", "lo"])?;
    }
    run("ip", &["link", "set", "node0", "up"])
}
