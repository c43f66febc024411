//! What a switch is asked to be: ports, threads, where it is asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use topology::MacAddress;

use crate::port::{MAX_VLAN, MIN_MTU, Policy, Vlan};
use crate::session::MAX_PAIRS;

/// Which end of a port's socket the switch is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SocketRole {
    /// The switch listens, frontends connect (QEMU: `server=off`).
    #[default]
    Server,
    /// The frontend listens, the switch connects, and again when it is gone.
    Client,
}

/// What a port leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortEnd {
    /// A vhost-user frontend.
    Socket {
        /// Where it meets the switch.
        path: PathBuf,
        /// Who listens.
        role: SocketRole,
    },
    /// The host's network, by a tap interface.
    Tap {
        /// The interface's name.
        interface: String,
        /// The bridge that the interface is put into.
        bridge: Option<String>,
    },
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// What it leads to.
    pub end: PortEnd,
    /// What it is called; the socket's file name without `.sock`, or the interface's, if
    /// nobody says.
    pub name: String,
    /// Queues.
    pub queues: u16,
    /// VLAN, isolation, address, rate.
    pub policy: Policy,
}

/// Frames of some ports that are written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorConfig {
    /// A file, a FIFO, or `-` for standard output.
    pub target: PathBuf,
    /// Names of the ports; all that there are at the start if none is named.
    pub ports: Vec<String>,
    /// Bytes of each frame at most.
    pub snap: u32,
    /// Bytes of the whole capture at most.
    pub limit: Option<u64>,
}

/// Mode and group of sockets; what the process would give them where nothing is said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketRights {
    /// The nine bits of `chmod(1)`.
    pub mode: Option<u32>,
    /// The group's number.
    pub group: Option<u32>,
}

/// A whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Its ports.
    pub ports: Vec<PortConfig>,
    /// What is written down of them.
    pub mirrors: Vec<MirrorConfig>,
    /// The pCPUs of its polling threads, one each; none to let one thread run anywhere.
    pub pcpus: Vec<u32>,
    /// Where it is asked and told while it runs.
    pub control: Option<PathBuf>,
    /// Of the sockets of its ports.
    pub rights: SocketRights,
    /// Seconds after which a station that is not heard is forgotten.
    pub age_s: u32,
    /// How long a frontend may take to say its first word, and to end one.
    pub patience: Duration,
    /// Keeps only the rights that it needs once it runs.
    pub sandbox: bool,
}

/// How long a frontend may be silent where it has to say something.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(10);
/// Seconds after which a station is forgotten (IEEE 802.1Q's recommended value).
pub const DEFAULT_AGE_S: u32 = 300;

/// Error type for [`PortConfig::parse`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PortError {
    /// No path.
    #[error(
        "{text:?}: a port begins with the path of its socket, as in a.sock,queues=2, or with tap:NAME"
    )]
    NoPath {
        /// The whole description.
        text: String,
    },
    /// A word that is no `name=value`.
    #[error(
        "{text:?}: {word:?} is none of queues=N, vlan=N, trunk=N+N, server=on|off, \
             isolated=on|off, uplink=on|off, mac=ADDRESS, rate=RATE, mtu=N, bridge=NAME, name=NAME"
    )]
    Word {
        /// The whole description.
        text: String,
        /// The word.
        word: String,
    },
    /// A value that is none.
    #[error("{text:?}: {key}={value}: {expected}")]
    Value {
        /// The whole description.
        text: String,
        /// Name of the setting.
        key: String,
        /// Its value.
        value: String,
        /// What it has to be.
        expected: String,
    },
    /// A setting twice.
    #[error("{text:?}: {key} is given twice")]
    Twice {
        /// The whole description.
        text: String,
        /// Name of the setting.
        key: String,
    },
}

/// Error type for [`PortConfig::set`]: what is expected instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{expected}")]
pub struct SettingError {
    expected: String,
}

impl SettingError {
    fn new(expected: impl Into<String>) -> Self {
        Self { expected: expected.into() }
    }
}

/// The longest path of a Unix socket.
///
/// Source: `unix(7)`, `sun_path` without its end.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

/// What the description of a tap port begins with.
const TAP: &str = "tap:";
/// The longest name of a network interface (`IFNAMSIZ` without its end).
const MAX_INTERFACE: usize = 15;

impl PortConfig {
    /// A port with nothing said but its socket.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        let path = socket.into();
        let name = name_of(&path);
        let end = PortEnd::Socket { path, role: SocketRole::Server };
        Self { end, name, queues: 1, policy: Policy::default() }
    }

    /// A port to the host's network.
    #[must_use]
    pub fn tap(interface: impl Into<String>) -> Self {
        let interface = interface.into();
        let name = interface.clone();
        let end = PortEnd::Tap { interface, bridge: None };
        Self { end, name, queues: 1, policy: Policy::default() }
    }

    /// A port at this path, whatever is in it.
    ///
    /// # Errors
    /// [`SettingError`] if it can't be a socket's.
    pub fn of_socket(path: impl Into<PathBuf>) -> Result<Self, SettingError> {
        let path = path.into();
        match path.as_os_str().len() {
            0 => Err(SettingError::new("a socket has a path")),
            1..=MAX_SOCKET_PATH => Ok(Self::at(path)),
            _ => Err(SettingError::new(format!(
                "the path of a socket has {MAX_SOCKET_PATH} bytes at most"
            ))),
        }
    }

    /// A port to the host's network by the interface of this name.
    ///
    /// # Errors
    /// [`SettingError`] if it can't be an interface's.
    pub fn of_tap(interface: &str) -> Result<Self, SettingError> {
        if !is_interface(interface) {
            return Err(SettingError::new(interface_words()));
        }
        Ok(Self::tap(interface))
    }

    /// Its socket, if it has one.
    #[must_use]
    pub fn socket(&self) -> Option<&Path> {
        match &self.end {
            PortEnd::Socket { path, .. } => Some(path),
            PortEnd::Tap { .. } => None,
        }
    }

    /// True if the frontend listens.
    #[must_use]
    pub fn calls(&self) -> bool {
        matches!(self.end, PortEnd::Socket { role: SocketRole::Client, .. })
    }

    /// What it leads to, as its description begins.
    #[must_use]
    pub fn end_text(&self) -> String {
        match &self.end {
            PortEnd::Socket { path, .. } => path.display().to_string(),
            PortEnd::Tap { interface, .. } => format!("{TAP}{interface}"),
        }
    }

    /// Reads `PATH[,name=value]...` or `tap:INTERFACE[,name=value]...`.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn parse(text: &str) -> Result<Self, PortError> {
        let whole = || text.to_owned();
        let mut words = text.split(',');
        let begin = words.next().unwrap_or_default();
        let value = |key: &str, value: &str, source: SettingError| PortError::Value {
            text: whole(),
            key: key.to_owned(),
            value: value.to_owned(),
            expected: source.expected,
        };
        let mut port = if let Some(interface) = begin.strip_prefix(TAP) {
            Self::of_tap(interface).map_err(|error| value("tap", interface, error))?
        } else {
            if begin.is_empty() || begin.contains('=') {
                return Err(PortError::NoPath { text: whole() });
            }
            Self::of_socket(begin).map_err(|error| value("path", begin, error))?
        };
        let mut seen: Vec<&str> = Vec::new();
        for word in words {
            let wrong = || PortError::Word { text: whole(), word: word.to_owned() };
            let (key, given) = word.split_once('=').ok_or_else(wrong)?;
            if seen.contains(&key) {
                return Err(PortError::Twice { text: whole(), key: key.to_owned() });
            }
            seen.push(key);
            let known = port.set(key, given).map_err(|error| value(key, given, error))?;
            known.then_some(()).ok_or_else(wrong)?;
        }
        Ok(port)
    }

    /// Takes in one setting, as its description words it; false if there is none of this
    /// name. Of those that exclude each other, the second is refused.
    ///
    /// # Errors
    /// [`SettingError`] if it can't have this value.
    pub fn set(&mut self, key: &str, given: &str) -> Result<bool, SettingError> {
        let bad = SettingError::new;
        let switched = || match given {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(bad("on or off".to_owned())),
        };
        let is_tap = matches!(self.end, PortEnd::Tap { .. });
        match key {
            "server" | "queues" if is_tap => {
                return Err(bad(format!("{key} is for socket ports alone")));
            }
            "bridge" if !is_tap => return Err(bad("bridge is for tap ports alone".to_owned())),
            "vlan" | "trunk" if self.policy.vlan != Vlan::Unaware => {
                let both =
                    "a port has a vlan (its guest sends no tags) or a trunk (it does), not both";
                return Err(bad(both.to_owned()));
            }
            "queues" => {
                let queues = given.parse().ok().filter(|queues| (1..=MAX_PAIRS).contains(queues));
                self.queues = queues.ok_or_else(|| bad(format!("1 to {MAX_PAIRS} queues")))?;
            }
            "vlan" => {
                self.policy.vlan = Vlan::Access(vlan(given).ok_or_else(|| bad(vlan_words()))?);
            }
            "trunk" => {
                let vlans: Option<_> = given.split('+').map(vlan).collect();
                let vlans = vlans.ok_or_else(|| bad(format!("{}, joined by +", vlan_words())))?;
                self.policy.vlan = Vlan::Trunk(vlans);
            }
            "server" => {
                let listens = switched()?;
                if let PortEnd::Socket { role, .. } = &mut self.end {
                    *role = if listens { SocketRole::Server } else { SocketRole::Client };
                }
            }
            "bridge" => {
                if !is_interface(given) {
                    return Err(bad(interface_words()));
                }
                if let PortEnd::Tap { bridge, .. } = &mut self.end {
                    *bridge = Some(given.to_owned());
                }
            }
            "isolated" => self.policy.isolated = switched()?,
            "uplink" => self.policy.uplink = switched()?,
            "mac" => {
                let expected = "a station's address, as in 52:54:00:12:34:56";
                let mac = station_address(given).ok_or_else(|| bad(expected.to_owned()))?;
                self.policy.mac = Some(mac);
            }
            "rate" => {
                self.policy.rate = Some(given.parse().map_err(|error| bad(format!("{error}")))?)
            }
            "mtu" => {
                let mtu = given.parse().ok().filter(|mtu| (MIN_MTU..=u16::MAX).contains(mtu));
                let mtu = mtu.ok_or_else(|| bad(format!("{MIN_MTU} to {} bytes", u16::MAX)))?;
                self.policy.mtu = Some(mtu);
            }
            "name" => {
                let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                if given.is_empty() || given.len() > 64 || !given.chars().all(fine) {
                    return Err(bad("1 to 64 letters, digits, - _ or .".to_owned()));
                }
                given.clone_into(&mut self.name);
            }
            _ => return Ok(false),
        }
        if self.policy.isolated && self.policy.uplink {
            let both = "a port is isolated or the isolated ones' uplink, not both";
            return Err(bad(both.to_owned()));
        }
        Ok(true)
    }
}

fn is_interface(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_graphic() && !"/:,=%".contains(c);
    !name.is_empty()
        && name.len() <= MAX_INTERFACE
        && name.chars().all(fine)
        && name != "."
        && name != ".."
}

fn interface_words() -> String {
    format!("the name of a network interface has 1 to {MAX_INTERFACE} characters, as in vmtap0")
}

/// Error type for [`MirrorConfig::parse`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// No file.
    #[error(
        "{text:?}: a mirror begins with its file, as in frames.pcapng,ports=a+b (- is standard output)"
    )]
    NoTarget {
        /// The whole description.
        text: String,
    },
    /// A word that is none.
    #[error(
        "{text:?}: {word:?} is none of ports=NAME+NAME, snap=BYTES, limit=BYTES (with KiB, MiB, GiB)"
    )]
    Word {
        /// The whole description.
        text: String,
        /// The word.
        word: String,
    },
}

/// The longest frame with room to spare: more of it can't be written down.
const WHOLE_FRAME: u32 = 65_600;
/// What a capture in a file holds at most if nobody says: a disk is soon full.
const DEFAULT_LIMIT: u64 = 1 << 30;

impl MirrorConfig {
    /// One of all ports in this file, with what holds if nobody says more.
    #[must_use]
    pub fn to(target: impl Into<PathBuf>) -> Self {
        let target = target.into();
        let limit = Some(DEFAULT_LIMIT).filter(|_| target != Path::new("-"));
        Self { target, ports: Vec::new(), snap: WHOLE_FRAME, limit }
    }

    /// Reads `FILE[,ports=NAME+NAME][,snap=BYTES][,limit=BYTES]`.
    ///
    /// # Errors
    /// [`MirrorError`].
    pub fn parse(text: &str) -> Result<Self, MirrorError> {
        let mut words = text.split(',');
        let target = words.next().filter(|target| !target.is_empty() && !target.contains('='));
        let target = target.ok_or_else(|| MirrorError::NoTarget { text: text.to_owned() })?;
        let mut mirror = Self::to(target);
        for word in words {
            let wrong = || MirrorError::Word { text: text.to_owned(), word: word.to_owned() };
            let (key, given) = word.split_once('=').ok_or_else(wrong)?;
            match mirror.set(key, given) {
                Ok(true) => {}
                Ok(false) | Err(_) => return Err(wrong()),
            }
        }
        Ok(mirror)
    }

    /// Takes in one setting, as its description words it; false if there is none of this
    /// name.
    ///
    /// # Errors
    /// [`SettingError`] if it can't have this value.
    pub fn set(&mut self, key: &str, given: &str) -> Result<bool, SettingError> {
        match key {
            "ports" if !given.split('+').any(str::is_empty) => {
                self.ports = given.split('+').map(str::to_owned).collect();
            }
            "ports" => return Err(SettingError::new("names of ports")),
            "snap" => {
                let snap = bytes(given).and_then(|snap| u32::try_from(snap).ok());
                let snap = snap.filter(|&snap| snap >= 14);
                let expected = "bytes of a frame, 14 at least, as in 128 or 64KiB";
                self.snap = snap.ok_or_else(|| SettingError::new(expected))?.min(WHOLE_FRAME);
            }
            "limit" => {
                let expected = "bytes of the file, as in 256MiB (KiB, MiB, GiB, TiB)";
                self.limit = Some(bytes(given).ok_or_else(|| SettingError::new(expected))?);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A number of bytes, as in `64KiB`; of other units it is not plain whether 1024 is meant.
fn bytes(text: &str) -> Option<u64> {
    let is_plain = text.ends_with("iB") || text.bytes().all(|byte| byte.is_ascii_digit());
    topology::bytes::parse(text, 1).filter(|_| is_plain)
}

fn name_of(socket: &Path) -> String {
    let name = socket.file_name().unwrap_or(socket.as_os_str()).to_string_lossy();
    name.strip_suffix(".sock").filter(|name| !name.is_empty()).unwrap_or(&name).to_owned()
}

fn vlan_words() -> String {
    format!("a VLAN is a number from 1 to {MAX_VLAN}")
}

fn vlan(text: &str) -> Option<u16> {
    text.parse().ok().filter(|vlan| (1..=MAX_VLAN).contains(vlan))
}

/// A station's address; none for what is none, or a group's.
#[must_use]
pub(crate) fn station_address(text: &str) -> Option<MacAddress> {
    let mac: MacAddress = text.parse().ok()?;
    (!mac.is_group() && mac.bytes() != [0; 6]).then_some(mac)
}

/// Error type for [`SwitchConfig::check`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// More ports than a switch has.
    #[error("{count} ports: a switch has {} at most", crate::port::MAX_PORTS)]
    Ports {
        /// As many were asked for.
        count: usize,
    },
    /// Two ports have the same.
    #[error("The ports {first} and {second} have the same {what}: {value}{advice}")]
    Same {
        /// Name of one.
        first: String,
        /// Name of the other.
        second: String,
        /// What they share.
        what: &'static str,
        /// Its value.
        value: String,
        /// What to do.
        advice: &'static str,
    },
    /// A mirror names a port that there is not.
    #[error("The mirror {} names the port {port}: there is none of that name", target.display())]
    NoPort {
        /// Of the mirror.
        target: PathBuf,
        /// As it is named.
        port: String,
    },
    /// An address that is another port's by hand.
    #[error(
        "{mac} is port {port}'s already, by mac= or a pin: unpin it first (vmlab switch ctl \
             unpin {mac}), or remove that port"
    )]
    Pinned {
        /// The address.
        mac: String,
        /// Name of the port that has it.
        port: String,
    },
    /// No more stations can be set by hand.
    #[error("The MAC table has no room for {mac}: ports have too many stations, or VLANs")]
    TableFull {
        /// The address.
        mac: String,
    },
    /// The control socket is a port's.
    #[error("{} is the control socket and a port's: give each a path of its own", path.display())]
    ControlIsPort {
        /// Of both.
        path: PathBuf,
    },
}

/// What no two ports may share, if `one` and `other` do.
///
/// # Errors
/// [`ConfigError::Same`].
pub(crate) fn differ(one: &PortConfig, other: &PortConfig) -> Result<(), ConfigError> {
    let same = |what, value, advice| {
        let (first, second) = (one.name.clone(), other.name.clone());
        Err(ConfigError::Same { first, second, what, value, advice })
    };
    match (&one.end, &other.end) {
        (PortEnd::Socket { path: a, .. }, PortEnd::Socket { path: b, .. }) if a == b => {
            return same("socket", a.display().to_string(), " (each VM needs a socket of its own)");
        }
        (PortEnd::Tap { interface: a, .. }, PortEnd::Tap { interface: b, .. }) if a == b => {
            return same("interface", a.clone(), " (each tap port needs one of its own)");
        }
        _ => {}
    }
    if one.name == other.name {
        return same("name", one.name.clone(), " (give one a name=)");
    }
    match (one.policy.mac, other.policy.mac) {
        (Some(a), Some(b)) if a == b && one.policy.vlan.overlaps(&other.policy.vlan) => {
            let advice = " (give each port another mac=, and its VM's -device the same one)";
            same("address", a.to_string(), advice)
        }
        _ => Ok(()),
    }
}

impl SwitchConfig {
    /// A switch with these ports and nothing else said.
    #[must_use]
    pub fn new(ports: Vec<PortConfig>) -> Self {
        Self {
            ports,
            mirrors: Vec::new(),
            pcpus: Vec::new(),
            control: None,
            rights: SocketRights::default(),
            age_s: DEFAULT_AGE_S,
            patience: DEFAULT_PATIENCE,
            sandbox: true,
        }
    }

    /// True if it has a port whose frontend listens.
    pub(crate) fn connects(&self) -> bool {
        self.ports.iter().any(PortConfig::calls)
    }

    /// Finds what contradicts itself.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let count = self.ports.len();
        if count > crate::port::MAX_PORTS {
            return Err(ConfigError::Ports { count });
        }
        for (index, port) in self.ports.iter().enumerate() {
            self.ports[..index].iter().try_for_each(|earlier| differ(earlier, port))?;
            if let (Some(control), Some(socket)) = (&self.control, port.socket())
                && control == socket
            {
                return Err(ConfigError::ControlIsPort { path: control.clone() });
            }
        }
        for mirror in &self.mirrors {
            let named = |name: &&String| !self.ports.iter().any(|port| port.name == **name);
            if let Some(port) = mirror.ports.iter().find(named) {
                let (target, port) = (mirror.target.clone(), port.clone());
                return Err(ConfigError::NoPort { target, port });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_read_with_all_that_is_said() {
        assert_eq!(PortConfig::parse("/run/a.sock"), Ok(PortConfig::at("/run/a.sock")));
        let port = PortConfig::parse(
            "b,queues=4,vlan=10,server=off,isolated=on,mac=52:54:00:12:34:56,name=web",
        );
        assert_eq!(
            port.unwrap(),
            PortConfig {
                end: PortEnd::Socket { path: "b".into(), role: SocketRole::Client },
                name: "web".to_owned(),
                queues: 4,
                policy: Policy {
                    vlan: Vlan::Access(10),
                    isolated: true,
                    mac: Some(MacAddress::new([0x52, 0x54, 0, 0x12, 0x34, 0x56])),
                    ..Policy::default()
                },
            }
        );
        let port =
            PortConfig::parse("tap:t0,bridge=br0,uplink=on,mtu=9000,rate=1gbit+5kpps").unwrap();
        let bridge = Some("br0".to_owned());
        assert_eq!(port.end, PortEnd::Tap { interface: "t0".to_owned(), bridge });
        assert_eq!(
            (port.name.as_str(), port.policy.mtu, port.policy.uplink),
            ("t0", Some(9000), true)
        );
        assert_eq!(port.policy.rate.unwrap().to_string(), "1gbit+5kpps");
        let port = PortConfig::parse("b.sock,trunk=10+20+10").unwrap();
        assert_eq!(port.policy.vlan, Vlan::Trunk([10, 20].into()));
        assert_eq!(port.name, "b");
    }

    #[test]
    fn what_is_wrong_with_a_port_is_said() {
        let long = format!("/{}", "x".repeat(120));
        for (text, expected) in [
            ("", "a port begins with the path"),
            ("queues=2", "a port begins with the path"),
            ("a.sock,4", "\"4\" is none of queues=N"),
            ("a.sock,color=red", "\"color=red\" is none of"),
            ("a.sock,queues=0", "queues=0: 1 to 64 queues"),
            ("a.sock,queues=65", "queues=65: 1 to 64 queues"),
            ("a.sock,vlan=5000", "vlan=5000: a VLAN is a number from 1 to 4094"),
            ("a.sock,vlan=0", "vlan=0: a VLAN is"),
            ("a.sock,trunk=1+4095", "trunk=1+4095: a VLAN is"),
            ("a.sock,vlan=1,trunk=2", "not both"),
            ("a.sock,vlan=1,vlan=2", "vlan is given twice"),
            ("a.sock,server=yes", "server=yes: on or off"),
            ("a.sock,mac=1:2:3:4:5:6", "a station's address"),
            ("a.sock,mac=52:54:00:+1:+2:03", "a station's address"),
            ("a.sock,mac=ff:ff:ff:ff:ff:ff", "a station's address"),
            ("a.sock,name=a b", "1 to 64 letters"),
            ("a.sock,rate=100", "a rate has a unit"),
            ("a.sock,mtu=10", "mtu=10: 256 to 65535 bytes"),
            ("a.sock,mtu=70000", "mtu=70000: 256 to 65535 bytes"),
            ("a.sock,isolated=on,uplink=on", "isolated or the isolated ones' uplink, not both"),
            ("a.sock,bridge=br0", "bridge is for tap ports alone"),
            ("tap:", "the name of a network interface"),
            ("tap:an-interface-too-long", "the name of a network interface"),
            ("tap:t0,queues=2", "queues is for socket ports alone"),
            ("tap:t0,server=off", "server is for socket ports alone"),
            ("tap:t0,bridge=a/b", "the name of a network interface"),
            (&long, "107 bytes at most"),
        ] {
            let error = PortConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn ports_that_contradict_each_other_are_found() {
        let check = |ports: &[&str]| {
            let ports = ports.iter().map(|text| PortConfig::parse(text).unwrap()).collect();
            SwitchConfig::new(ports).check().map_err(|error| error.to_string())
        };
        assert_eq!(check(&["a.sock", "b.sock"]), Ok(()));
        let mac = "mac=52:54:00:00:00:01";
        for (ports, expected) in [
            ([String::from("a.sock"), String::from("a.sock,name=b")], "the same socket: a.sock"),
            ([String::from("x/a.sock"), String::from("y/a.sock")], "the same name: a"),
            (
                [format!("a.sock,{mac}"), format!("b.sock,{mac}")],
                "address: 52:54:00:00:00:01 (give each port another mac=",
            ),
        ] {
            let error = check(&[&ports[0], &ports[1]]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(
            check(&[&format!("a.sock,vlan=1,{mac}"), &format!("b.sock,vlan=2,{mac}")]),
            Ok(())
        );
        // What a trunk carries, an access port is in.
        for other in ["vlan=10", "trunk=10+30"] {
            let error =
                check(&[&format!("a.sock,trunk=10+20,{mac}"), &format!("b.sock,{other},{mac}")]);
            assert!(error.unwrap_err().contains("address: 52:54:00:00:00:01"), "{other}");
        }
        let apart = [format!("a.sock,trunk=10+20,{mac}"), format!("b.sock,vlan=30,{mac}")];
        assert_eq!(check(&[&apart[0], &apart[1]]), Ok(()));
        let many: Vec<String> = (0..65).map(|number| format!("{number}.sock")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(check(&many).unwrap_err().contains("64 at most"));
    }

    #[test]
    fn a_mirror_is_read_with_all_that_is_said() {
        let mirror = MirrorConfig::parse("a.pcapng,ports=a+b,snap=128,limit=2MiB").unwrap();
        assert_eq!((mirror.snap, mirror.limit), (128, Some(2 << 20)));
        assert_eq!(mirror.ports, ["a", "b"]);
        assert_eq!(MirrorConfig::parse("-").unwrap().limit, None);
        for (text, expected) in [
            ("", "a mirror begins with its file"),
            ("ports=a", "a mirror begins with its file"),
            ("f,ports=", "\"ports=\" is none of"),
            ("f,ports=a++b", "is none of"),
            ("f,snap=1", "\"snap=1\" is none of"),
            ("f,limit=2GB", "\"limit=2GB\" is none of"),
            ("f,limit=99999999999TiB", "is none of"),
        ] {
            let error = MirrorConfig::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let mirrors = vec![MirrorConfig::parse("f,ports=a+c").unwrap()];
        let config = SwitchConfig { mirrors, ..SwitchConfig::new(vec![PortConfig::at("a.sock")]) };
        assert!(config.check().unwrap_err().to_string().contains("names the port c"));
    }
}
