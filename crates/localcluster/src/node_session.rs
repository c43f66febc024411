//! What is done in a further node's host, over ssh.

use std::path::Path;
use std::time::Duration;

use host::owner::{self, Owner};
use remote::{EMULATED_SILENCE_LIMIT, Patience, SshOptions, SshSession};
use replica::Replica;

use crate::error::LoadError;
use crate::image::{CONTAINERD, IMAGES};
use crate::made_node::MadeNode;

/// Where the files of a node lie in it, on its disk.
pub(crate) const PLACE: &str = "/scratch/node";
/// An emulated host answers slowly.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// Whether all is to end.
pub(crate) type CancelCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// Does something in the node's host.
pub(crate) fn with_session<T>(
    replica: &Replica,
    is_cancelled: CancelCheck<'_>,
    work: impl FnOnce(&SshSession) -> Result<T, String>,
) -> Result<T, String> {
    let owner = Owner::current("cluster").map_err(|error| error.to_string())?;
    let runtime = owner::runtime_dir(&owner).map_err(|error| error.to_string())?;
    let env = owner.env();
    let options = SshOptions {
        folder: runtime.path(),
        env: &env,
        interactive: false,
        silence_limit: EMULATED_SILENCE_LIMIT,
    };
    let destination = replica.destination().ok_or("its host has no port")?;
    let patience = Patience::new(ANSWER_LIMIT, is_cancelled);
    let session = SshSession::open(&destination, &options, patience).map_err(told)?;
    work(&session)
}

/// An error with what caused it.
pub(crate) fn told(error: impl std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// Gives a node the images of an archive; what was loaded, in ctr's words.
pub(crate) fn load(
    node: &MadeNode,
    archive: &Path,
    is_cancelled: CancelCheck<'_>,
) -> Result<Vec<String>, LoadError> {
    let failed =
        |said: String| LoadError::Node { path: archive.to_owned(), node: node.name.clone(), said };
    let replica = replica::find_up(Some(&node.replica)).map_err(|e| failed(e.to_string()))?;
    let patience = Patience::unlimited(is_cancelled);
    let there = format!("{PLACE}/loaded.tar");
    let script = format!(
        "cd {PLACE}; ctr --address {CONTAINERD} --namespace {IMAGES} images import loaded.tar; \
         code=$?; rm loaded.tar; exit $code"
    );
    let output = with_session(&replica, is_cancelled, |session| {
        session.put(archive, &there, 0o600, patience).map_err(told)?;
        session.command(["sh", "-c", &script]).output(patience).map_err(told)
    });
    let output = output.map_err(failed)?;
    if output.code != 0 {
        let said = output.stderr.trim().to_owned();
        return Err(LoadError::Refused { path: archive.to_owned(), said });
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}
