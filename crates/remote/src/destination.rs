//! Where another machine is, and what ssh must know to get there.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A machine that ssh reaches, as `ssh://user@host:port` says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The user there; ssh's own choice if none.
    pub user: Option<String>,
    /// Host name, address, or an alias of the user's `ssh_config`.
    pub host: String,
    /// The port; ssh's own choice if none.
    pub port: Option<u16>,
    /// Private key that alone is offered; ssh's own choice if none.
    pub identity: Option<PathBuf>,
    /// The file that holds the machine's host key; ssh's own if none.
    pub known_hosts: Option<PathBuf>,
}

/// Error type for [`Destination`]'s `from_str`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// It is no `ssh://` address.
    #[error("{0:?} is no address of a machine: write ssh://user@host or ssh://user@host:port")]
    NotSsh(String),
    /// The part between `ssh://` and the port can't be a host's name.
    #[error("{address:?} names no host that ssh could reach: {host:?}")]
    Host {
        /// The whole address.
        address: String,
        /// What stands where the host should be.
        host: String,
    },
    /// The port is not a number from 1 to 65535.
    #[error("{address:?} has the port {port:?}: a number from 1 to 65535 is meant")]
    Port {
        /// The whole address.
        address: String,
        /// What stands where the port should be.
        port: String,
    },
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(address: &str) -> Result<Self, DestinationError> {
        let place = address
            .strip_prefix("ssh://")
            .ok_or_else(|| DestinationError::NotSsh(address.to_owned()))?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let (user, machine) = match place.rsplit_once('@') {
            Some((user, machine)) => (Some(user), machine),
            None => (None, place),
        };
        // An IPv6 address has colons of its own and stands in brackets.
        let (host, port) = match machine.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host, rest.strip_prefix(':')),
            None => match machine.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (machine, None),
            },
        };
        // A leading dash would be read as an option by ssh.
        let plain = |name: &str| {
            !name.is_empty()
                && !name.starts_with('-')
                && !name.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/')
        };
        if !plain(host) || user.is_some_and(|user| !plain(user)) {
            return Err(DestinationError::Host {
                address: address.to_owned(),
                host: machine.to_owned(),
            });
        }
        let port = port.map(|port| {
            port.parse().ok().filter(|port| *port > 0_u16).ok_or_else(|| DestinationError::Port {
                address: address.to_owned(),
                port: port.to_owned(),
            })
        });
        Ok(Self {
            user: user.map(str::to_owned),
            host: host.to_owned(),
            port: port.transpose()?,
            identity: None,
            known_hosts: None,
        })
    }
}

impl Destination {
    /// The ssh command that leads there, for people to type.
    #[must_use]
    pub fn command_line(&self) -> String {
        let mut words = vec!["ssh".to_owned()];
        if let Some(port) = self.port {
            words.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(identity) = &self.identity {
            words.extend(["-i".to_owned(), identity.display().to_string()]);
        }
        if let Some(known_hosts) = &self.known_hosts {
            words
                .extend(["-o".to_owned(), format!("UserKnownHostsFile={}", known_hosts.display())]);
        }
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        words.push(format!("{user}{}", self.host));
        crate::quote(words)
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ssh://")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_said() {
        for (address, user, host, port) in [
            ("ssh://lab", None, "lab", None),
            ("ssh://root@lab:2222", Some("root"), "lab", Some(2222)),
            ("ssh://a@[fe80::1]:22", Some("a"), "fe80::1", Some(22)),
        ] {
            let found: Destination = address.parse().unwrap();
            assert_eq!(
                (found.user.as_deref(), found.host.as_str(), found.port),
                (user, host, port)
            );
            assert_eq!(found.to_string(), address);
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (address, part) in [
            ("lab", "ssh://user@host"),
            ("ssh://", "names no host"),
            ("ssh://-oProxyCommand=x", "names no host"),
            ("ssh://-l@lab", "names no host"),
            ("ssh://lab:0", "port"),
            ("ssh://lab:http", "port"),
            ("ssh://a b", "names no host"),
        ] {
            let error = address.parse::<Destination>().unwrap_err().to_string();
            assert!(error.contains(part), "{address}: {error}");
        }
    }
}
