//! A network that the VMs of one trial are alone in.
//!
//! It lives in a network namespace of its own, so that neither the host's
//! addresses nor its firewall play a part and no packet leaves the machine.
//! The namespace has no name: a holder process, marked like every process of
//! vmlab, keeps it, reading from a pipe that ends with vmlab however vmlab
//! ends. Bridge and tap devices go with the namespace, and that with its last
//! process; so there is nothing that could be left behind beside processes,
//! which `vmlab clean` finds by their marks.
//!
//! Needs root (`CAP_SYS_ADMIN` for the namespace, `CAP_NET_ADMIN` in it).
//!
//! Source: `network_namespaces(7)`, `ip-link(8)`, `ip-tuntap(8)`, Linux
//! `Documentation/networking/tuntap.rst`.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use vmconfig::qemu::Netdev;

use crate::holder::{self, MADE};
use crate::owner::Owner;
use crate::program::find;

/// First descriptor under which QEMU gets a macvtap device.
const FIRST_FD: u32 = 3;

/// What connects the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortLink {
    /// A bridge, with a tap device for each port.
    Bridge,
    /// macvtap devices in bridge mode on one device that leads nowhere.
    Macvtap,
}

/// A port of the network, for one interface of a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPort {
    /// Address of the guest's interface, `52:54:00:12:34:56`.
    pub mac: String,
    /// Pairs of queues, at least 1.
    pub queues: u32,
}

/// Error type for [`LabNetwork::new`] and [`check`].
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The user may not.
    #[error(
        "A network between VMs needs root: run vmlab as root, or write network.kind = \"user\""
    )]
    NotRoot,
    /// A program is missing.
    #[error("{program} is not installed: run `apt-get install {package}`")]
    Missing {
        /// The program.
        program: &'static str,
        /// What holds it.
        package: &'static str,
    },
    /// A device is missing.
    #[error("There is no {device}: run `modprobe {module}`{instead}")]
    NoDevice {
        /// The device.
        device: &'static str,
        /// The kernel's module that makes it.
        module: &'static str,
        /// What else would do, to read behind.
        instead: &'static str,
    },
    /// The kernel refused.
    #[error("Cannot make the network: {detail}")]
    Refused {
        /// What was said.
        detail: String,
    },
    /// The holder could not be started.
    #[error("Cannot start {program}")]
    Start {
        /// The program.
        program: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Programs that make a network and Debian's packages with them.
const PROGRAMS: [(&str, &str); 3] =
    [("unshare", "util-linux"), ("nsenter", "util-linux"), ("ip", "iproute2")];

/// Whether a network with or without vhost can be made here, as far as that is
/// plain to see.
///
/// # Errors
/// [`NetworkError`] says what to do.
pub fn check(vhost: bool) -> Result<(), NetworkError> {
    if !rustix::process::geteuid().is_root() {
        return Err(NetworkError::NotRoot);
    }
    for (program, package) in PROGRAMS {
        if find(program).is_none() {
            return Err(NetworkError::Missing { program, package });
        }
    }
    let device = |device: &'static str, module, instead| {
        let there = Path::new(device).exists();
        if there { Ok(()) } else { Err(NetworkError::NoDevice { device, module, instead }) }
    };
    device("/dev/net/tun", "tun", "")?;
    if vhost {
        device("/dev/vhost-net", "vhost_net", ", or write network.vhost = false")?;
    }
    Ok(())
}

/// A network; it ends on drop.
#[derive(Debug)]
pub struct LabNetwork {
    switch: PortLink,
    ports: Vec<NetworkPort>,
    holder: Child,
    folder: PathBuf,
}

impl LabNetwork {
    /// Makes a network with `ports`; its holder carries `owner`'s mark, and
    /// device nodes lie in `folder`.
    ///
    /// # Errors
    /// [`NetworkError`].
    pub fn new(
        switch: PortLink,
        ports: &[NetworkPort],
        folder: &Path,
        owner: &Owner,
    ) -> Result<Self, NetworkError> {
        check(false)?;
        let start = |source| NetworkError::Start { program: "unshare", source };
        let mut command = Command::new(find("unshare").unwrap_or_else(|| "unshare".into()));
        command
            .args(["--net", "--mount", "--propagation=private", "sh", "-ec"])
            .arg(script(switch, ports))
            .arg("sh")
            .arg(folder)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        let mut holder = holder::spawn(&mut command, owner).map_err(start)?;
        let made = holder::first_line(&mut holder).map_err(start)? == MADE;
        // From here on the holder is ended on drop.
        let mut network = Self { switch, ports: ports.to_vec(), holder, folder: folder.to_owned() };
        if made {
            return Ok(network);
        }
        Err(NetworkError::Refused {
            detail: holder::complaint(&mut network.holder).map_err(start)?,
        })
    }

    /// The words before a program's own that start it in the network, as the
    /// process of the first word: pids and signals are the program's.
    #[must_use]
    pub fn enter(&self, port: usize) -> Vec<String> {
        let process = self.holder.id();
        let program = find("nsenter").unwrap_or_else(|| "nsenter".into());
        let mut words =
            vec![program.display().to_string(), format!("--net=/proc/{process}/ns/net")];
        if self.switch == PortLink::Macvtap {
            let node = self.folder.join(name(port));
            let mut script = String::new();
            for fd in self.fds(port) {
                let _ = write!(script, "exec {fd}<>\"$0\"; ");
            }
            script.push_str("exec \"$@\"");
            words.extend(["sh", "-ec", &script].map(str::to_owned));
            words.push(node.display().to_string());
        }
        words
    }

    /// What QEMU is connected to at a port.
    #[must_use]
    pub fn netdev(&self, port: usize, vhost: bool) -> Netdev {
        let vhost = Some(vhost);
        match self.switch {
            PortLink::Bridge => Netdev::Tap { ifname: name(port), vhost },
            PortLink::Macvtap => Netdev::TapDescriptors { fds: self.fds(port).collect(), vhost },
        }
    }

    fn fds(&self, port: usize) -> std::ops::Range<u32> {
        FIRST_FD..FIRST_FD + self.ports.get(port).map_or(1, |port| port.queues)
    }
}

impl Drop for LabNetwork {
    fn drop(&mut self) {
        // It may be gone already; either way it is reaped.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn name(port: usize) -> String {
    format!("port{port}")
}

/// What the holder does: `$1` is the folder for device nodes.
fn script(switch: PortLink, ports: &[NetworkPort]) -> String {
    // Multicast and neighbour discovery of the devices' own would be noise.
    let mut text = String::from(
        "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null || :\n\
         ip link set lo up\n\
         ip link add switch0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
         ip link set switch0 up\n",
    );
    if switch == PortLink::Macvtap {
        // Only a namespace's own view of /sys names its devices. A port gives
        // the bridge its carrier.
        text.push_str(
            "mount -t sysfs sysfs /sys\n\
             ip link add inner type veth peer name outer\n\
             ip link set inner master switch0 up\nip link set outer up\n",
        );
    }
    for (number, port) in ports.iter().enumerate() {
        let name = name(number);
        match switch {
            PortLink::Bridge => {
                let many = if port.queues > 1 { " multi_queue" } else { "" };
                let _ = writeln!(
                    text,
                    "ip tuntap add dev {name} mode tap{many}\nip link set {name} master switch0 up"
                );
            }
            PortLink::Macvtap => {
                let _ = writeln!(
                    text,
                    "ip link add link switch0 name {name} address {} type macvtap mode bridge\n\
                     ip link set {name} up\n\
                     number=$(cat /sys/class/net/{name}/macvtap/tap*/dev)\n\
                     rm -f \"$1/{name}\"\n\
                     mknod \"$1/{name}\" c ${{number%:*}} ${{number#*:}}",
                    port.mac
                );
            }
        }
    }
    let _ = write!(text, "echo {MADE}\nexec cat >/dev/null");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(queues: u32) -> [NetworkPort; 2] {
        ["52:54:00:00:00:01", "52:54:00:00:00:02"]
            .map(|mac| NetworkPort { mac: mac.to_owned(), queues })
    }

    /// A network in a folder of its own, if this machine lets us.
    fn made(switch: PortLink, queues: u32) -> Option<(tempfile::TempDir, LabNetwork)> {
        let folder = tempfile::tempdir().expect("temp folder");
        let owner = Owner::current("network-test").expect("this process");
        match LabNetwork::new(switch, &ports(queues), folder.path(), &owner) {
            Ok(network) => Some((folder, network)),
            Err(error) => {
                suite::skip(format!("{switch:?}: {error}"));
                None
            }
        }
    }

    fn inside(network: &LabNetwork, port: usize, argv: &[&str]) -> String {
        let words = network.enter(port);
        let output = Command::new(&words[0]).args(&words[1..]).args(argv).output().expect("run");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    #[test]
    fn a_bridge_is_alone_in_its_namespace_and_goes_with_its_holder() {
        let Some((_folder, network)) = made(PortLink::Bridge, 4) else { return };
        let links = inside(&network, 0, &["ip", "-o", "link"]);
        let names: Vec<&str> = links.lines().filter_map(|line| line.split(": ").nth(1)).collect();
        for wanted in ["lo", "switch0", "port0", "port1"] {
            assert!(names.contains(&wanted), "{links}");
        }
        assert!(!names.contains(&"eth0"), "{links}");
        let tap = Netdev::Tap { ifname: "port1".to_owned(), vhost: Some(true) };
        assert_eq!(network.netdev(1, true), tap);
        let holder = network.holder.id();
        drop(network);
        assert!(!Path::new(&format!("/proc/{holder}/ns/net")).exists());
    }

    #[test]
    fn macvtap_devices_come_as_open_descriptors() {
        let Some((_folder, network)) = made(PortLink::Macvtap, 2) else { return };
        let open = inside(&network, 1, &["readlink", "/proc/self/fd/3", "/proc/self/fd/4"]);
        assert_eq!(open.lines().filter(|line| line.ends_with("/port1")).count(), 2, "{open}");
        let opened = Netdev::TapDescriptors { fds: vec![3, 4], vhost: Some(false) };
        assert_eq!(network.netdev(1, false), opened);
    }

    #[test]
    fn the_holder_ends_with_the_pipe_from_vmlab() {
        let Some((_folder, mut network)) = made(PortLink::Bridge, 1) else { return };
        drop(network.holder.stdin.take());
        assert!(network.holder.wait().expect("it ends").success());
    }

    #[test]
    fn what_the_kernel_refuses_is_said() {
        let folder = tempfile::tempdir().expect("temp folder");
        let owner = Owner::current("network-test").expect("this process");
        let bad = [NetworkPort { mac: "no address".to_owned(), queues: 1 }];
        let error = LabNetwork::new(PortLink::Macvtap, &bad, folder.path(), &owner)
            .expect_err("no address")
            .to_string();
        assert!(error.contains("needs root") || error.contains("Cannot make"), "{error}");
    }
}
