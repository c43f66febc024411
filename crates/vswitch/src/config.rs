//! What a switch is asked to be: ports, threads, where it is asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::port::{MAX_VLAN, Policy, Vlan};
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

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortConfig {
    /// Its socket.
    pub socket: PathBuf,
    /// What it is called; the socket's file name without `.sock` if nobody says.
    pub name: String,
    /// Queues.
    pub queues: u16,
    /// Who listens.
    pub role: SocketRole,
    /// VLAN, isolation, address.
    pub policy: Policy,
}

/// A whole switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Its ports.
    pub ports: Vec<PortConfig>,
    /// The pCPUs of its polling threads, one each; none to let one thread run anywhere.
    pub pcpus: Vec<u32>,
    /// Where it is asked and told while it runs.
    pub control: Option<PathBuf>,
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
    #[error("{text:?}: a port begins with the path of its socket, as in a.sock,queues=2")]
    NoPath {
        /// The whole description.
        text: String,
    },
    /// A word that is no `name=value`.
    #[error(
        "{text:?}: {word:?} is none of queues=N, vlan=N, trunk=N+N, server=on|off, \
             isolated=on|off, mac=ADDRESS, name=NAME"
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
    /// An access VLAN and a trunk.
    #[error("{text:?}: a port has a vlan (its guest sends no tags) or a trunk (it does), not both")]
    VlanAndTrunk {
        /// The whole description.
        text: String,
    },
}

/// The longest path of a Unix socket.
///
/// Source: `unix(7)`, `sun_path` without its end.
pub(crate) const MAX_SOCKET_PATH: usize = 107;

impl PortConfig {
    /// A port with nothing said but its socket.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> Self {
        let socket = socket.into();
        let name = name_of(&socket);
        Self { socket, name, queues: 1, role: SocketRole::Server, policy: Policy::default() }
    }

    /// Reads `PATH[,name=value]...`.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn parse(text: &str) -> Result<Self, PortError> {
        let whole = || text.to_owned();
        let mut words = text.split(',');
        let path = words.next().unwrap_or_default();
        if path.is_empty() || path.contains('=') {
            return Err(PortError::NoPath { text: whole() });
        }
        let mut port = Self::at(path);
        if port.socket.as_os_str().len() > MAX_SOCKET_PATH {
            return Err(PortError::Value {
                text: whole(),
                key: "path".to_owned(),
                value: path.to_owned(),
                expected: format!("the path of a socket has {MAX_SOCKET_PATH} bytes at most"),
            });
        }
        let mut seen: Vec<&str> = Vec::new();
        for word in words {
            let wrong = || PortError::Word { text: whole(), word: word.to_owned() };
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            if seen.contains(&key) {
                return Err(PortError::Twice { text: whole(), key: key.to_owned() });
            }
            seen.push(key);
            let bad = |expected: String| PortError::Value {
                text: whole(),
                key: key.to_owned(),
                value: value.to_owned(),
                expected,
            };
            let switched = || match value {
                "on" => Ok(true),
                "off" => Ok(false),
                _ => Err(bad("on or off".to_owned())),
            };
            match key {
                "queues" => {
                    let queues =
                        value.parse().ok().filter(|queues| (1..=MAX_PAIRS).contains(queues));
                    port.queues = queues.ok_or_else(|| bad(format!("1 to {MAX_PAIRS} queues")))?;
                }
                "vlan" => {
                    port.policy.vlan = Vlan::Access(vlan(value).ok_or_else(|| bad(vlan_words()))?);
                }
                "trunk" => {
                    let vlans: Option<_> = value.split('+').map(vlan).collect();
                    let vlans =
                        vlans.ok_or_else(|| bad(format!("{}, joined by +", vlan_words())))?;
                    port.policy.vlan = Vlan::Trunk(vlans);
                }
                "server" => {
                    port.role = if switched()? { SocketRole::Server } else { SocketRole::Client };
                }
                "isolated" => port.policy.isolated = switched()?,
                "mac" => {
                    let expected = "a station's address, as in 52:54:00:12:34:56";
                    let mac = mac(value).ok_or_else(|| bad(expected.to_owned()))?;
                    port.policy.mac = Some(mac);
                }
                "name" => {
                    let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
                    if value.is_empty() || value.len() > 64 || !value.chars().all(fine) {
                        return Err(bad("1 to 64 letters, digits, - _ or .".to_owned()));
                    }
                    port.name = value.to_owned();
                }
                _ => return Err(wrong()),
            }
        }
        if seen.contains(&"vlan") && seen.contains(&"trunk") {
            return Err(PortError::VlanAndTrunk { text: whole() });
        }
        Ok(port)
    }
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
pub(crate) fn mac(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2)?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    (parts.next().is_none() && mac[0] & 1 == 0 && mac != [0; 6]).then_some(mac)
}

/// An address as it is written.
#[must_use]
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
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
    #[error("The ports {first} and {second} have the same {what}: {value}")]
    Same {
        /// Name of one.
        first: String,
        /// Name of the other.
        second: String,
        /// What they share.
        what: &'static str,
        /// Its value.
        value: String,
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
    let same = |what, value| {
        let (first, second) = (one.name.clone(), other.name.clone());
        Err(ConfigError::Same { first, second, what, value })
    };
    if one.socket == other.socket {
        return same("socket", one.socket.display().to_string());
    }
    if one.name == other.name {
        return same("name", format!("{} (give one a name=)", one.name));
    }
    match (one.policy.mac, other.policy.mac) {
        (Some(a), Some(b)) if a == b && one.policy.vlan == other.policy.vlan => {
            same("address", mac_text(a))
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
            pcpus: Vec::new(),
            control: None,
            age_s: DEFAULT_AGE_S,
            patience: DEFAULT_PATIENCE,
            sandbox: true,
        }
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
            if self.control.as_ref() == Some(&port.socket) {
                return Err(ConfigError::ControlIsPort { path: port.socket.clone() });
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
                socket: "b".into(),
                name: "web".to_owned(),
                queues: 4,
                role: SocketRole::Client,
                policy: Policy {
                    vlan: Vlan::Access(10),
                    isolated: true,
                    mac: Some([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
                },
            }
        );
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
            ("a.sock,mac=ff:ff:ff:ff:ff:ff", "a station's address"),
            ("a.sock,name=a b", "1 to 64 letters"),
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
            ([format!("a.sock,{mac}"), format!("b.sock,{mac}")], "address: 52:54:00:00:00:01"),
        ] {
            let error = check(&[&ports[0], &ports[1]]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(
            check(&[&format!("a.sock,vlan=1,{mac}"), &format!("b.sock,vlan=2,{mac}")]),
            Ok(())
        );
        let many: Vec<String> = (0..65).map(|number| format!("{number}.sock")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(check(&many).unwrap_err().contains("64 at most"));
    }
}
