//! A further node as it is noted: its name, its addresses, the replica that it is.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use host::owner::Owner;
use replica::ReplicaState;
use serde::{Deserialize, Serialize};

use crate::error::UpError;

/// The first of the addresses of further nodes, which follow each other: the keeper has
/// them, too.
const FIRST_FURTHER: [u8; 4] = [192, 0, 2, 2];
/// So many further nodes can have an address.
pub(crate) const MOST_FURTHER: usize = 200;

/// A further node: an emulated host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MadeNode {
    /// Its name.
    pub name: String,
    /// Its place among them, from 0.
    pub at: usize,
    /// Its address, which the keeper has, too.
    pub address: Ipv4Addr,
    /// The addresses of its pods.
    pub pods: String,
    /// The replica that it is.
    pub replica: String,
    /// Whether that was begun: one of its name may be somebody else's until then.
    #[serde(default)]
    pub begun: bool,
    /// The ssh that connects it with the keeper, once it runs.
    pub connection: Option<Owner>,
}

impl MadeNode {
    /// The node of that place and name in the cluster; `None` if there is no address left.
    pub(crate) fn at(at: usize, name: &str, cluster: &str) -> Option<Self> {
        let (address, pods) = addresses(at)?;
        let replica = format!("{cluster}-{name}");
        let (name, begun, connection) = (name.to_owned(), false, None);
        Some(Self { name, at, address, pods, replica, begun, connection })
    }

    /// # Errors
    /// [`UpError::NodeTaken`], if there is a replica of that name.
    pub(crate) fn check_free(&self) -> Result<(), UpError> {
        let Ok(found) = replica::find(Some(&self.replica)) else { return Ok(()) };
        let (node, replica) = (self.name.clone(), self.replica.clone());
        Err(UpError::NodeTaken { node, replica, state: found.state() })
    }

    /// The file through which its kubelet is reached. Of a socket's path each byte counts.
    pub(crate) fn socket(&self, folder: &Path) -> PathBuf {
        folder.join(format!("node-{}.sock", self.at))
    }

    /// Why it can't be reached, if so.
    pub(crate) fn is_lost(&self) -> Option<String> {
        let state = replica::find(Some(&self.replica)).map(|found| found.state());
        match (state, &self.connection) {
            (Ok(ReplicaState::Up), Some(connection)) if connection.is_alive() => None,
            (Ok(ReplicaState::Up), _) => {
                Some(format!("the ssh that led to {} is gone", self.replica))
            }
            (Ok(state), _) => Some(format!("the replica {} is {}", self.replica, state.word())),
            (Err(error), _) => Some(error.to_string()),
        }
    }
}

/// The address of a further node, counted from 0, and those of its pods.
fn addresses(at: usize) -> Option<(Ipv4Addr, String)> {
    let step = u8::try_from(at).ok().filter(|_| at < MOST_FURTHER)?;
    let [a, b, c, first] = FIRST_FURTHER;
    Some((Ipv4Addr::new(a, b, c, first + step), format!("10.244.{}.0/24", step + 1)))
}
