//! The results of one study on many nodes: `nodes.json` names them and says how each ended;
//! beneath it lies an ordinary results folder of each.
//!
//! ```text
//! DIR/nodes.json      the nodes, their classes, how each ended
//!     nodes/NAME/     the results folder of a node (see `store`)
//! ```

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::store::{self, ResultsError};

/// Version of `nodes.json`.
pub const NODE_SET_VERSION: u32 = 1;

const FILE: &str = "nodes.json";
const NODES: &str = "nodes";

/// No set is larger: a hundred thousand nodes are some 50 MiB.
const MAX_NODE_SET_BYTES: usize = 64 << 20;

/// Error type for everything that touches `nodes.json`.
#[derive(Debug, thiserror::Error)]
pub enum NodeSetError {
    /// It can't be read or written.
    #[error(transparent)]
    Store(#[from] ResultsError),
    /// It is larger than any.
    #[error("{path} has more than {} MiB: it is no list of nodes", MAX_NODE_SET_BYTES >> 20)]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// It is none.
    #[error("{path}:{line}: not a list of nodes: {message}")]
    Bad {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Another vmlab wrote it.
    #[error(
        "{path} has version {version}, and this vmlab reads versions up to {NODE_SET_VERSION}: use a newer vmlab"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// A node's folder is not beneath it.
    #[error("{path}: the results of node {node} lie at {folder:?}, which is not beneath it")]
    Elsewhere {
        /// The file.
        path: PathBuf,
        /// The node.
        node: String,
        /// What it names.
        folder: String,
    },
}

/// A study on many nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSet {
    /// [`NODE_SET_VERSION`] of the writer.
    pub version: u32,
    /// The vmlab that wrote it.
    pub vmlab: String,
    /// The study's title.
    pub study: String,
    /// The API server's URL.
    pub server: String,
    /// The namespace of the Jobs.
    pub namespace: String,
    /// The container image.
    pub image: String,
    /// The node label whose values are the classes of hardware.
    pub class_label: Option<String>,
    /// When it began, s since 1970.
    pub started_unix_s: f64,
    /// The nodes, by name.
    pub nodes: Vec<NodeEntry>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeEntry {
    /// Its name in the cluster.
    pub name: String,
    /// Its class of hardware.
    pub class: Option<String>,
    /// Its results folder, from that of the set.
    pub folder: String,
    /// How far it is.
    pub state: NodeState,
    /// Why it brings no results or not all, in a word: `evicted`, `image`, `study`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The same in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What could not be taken away from the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    /// Phases of its pod, s after the Job was created.
    #[serde(default)]
    pub phases_s: BTreeMap<String, f64>,
    /// The cluster's last warnings about it.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// How far a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It has not begun.
    Waiting,
    /// It runs, or whoever followed it was killed.
    Running,
    /// The study came to its end there.
    Complete,
    /// It did not.
    Failed,
    /// The whole was interrupted.
    Interrupted,
}

impl NodeState {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

impl NodeEntry {
    /// A node that has not begun. Its folder bears its name: Kubernetes allows none in it
    /// that a path could not have.
    #[must_use]
    pub fn new(name: &str, class: Option<String>) -> Self {
        Self {
            name: name.to_owned(),
            class,
            folder: format!("{NODES}/{name}"),
            state: NodeState::Waiting,
            kind: None,
            reason: None,
            left: None,
            phases_s: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }
}

impl NodeSet {
    /// Where the results of `node` lie, if those of the set lie in `dir`.
    ///
    /// # Errors
    /// [`NodeSetError::Elsewhere`].
    pub fn folder(dir: &Path, node: &NodeEntry) -> Result<PathBuf, NodeSetError> {
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_));
        let folder = Path::new(&node.folder);
        if node.folder.is_empty() || !folder.components().all(inside) {
            return Err(NodeSetError::Elsewhere {
                path: dir.join(FILE),
                node: node.name.clone(),
                folder: node.folder.clone(),
            });
        }
        Ok(dir.join(folder))
    }

    /// Writes it into `dir`, wholly or not at all.
    ///
    /// # Errors
    /// [`NodeSetError`] names the file.
    pub fn write(&self, dir: &Path) -> Result<(), NodeSetError> {
        let text = serde_json::to_string_pretty(self).expect("all keys are strings") + "\n";
        store::write_derived(dir, FILE, text.as_bytes())?;
        Ok(())
    }
}

/// True if `dir` holds the results of a study on many nodes.
#[must_use]
pub fn is_node_set(dir: &Path) -> bool {
    dir.join(FILE).is_file()
}

/// Reads the set in `dir`.
///
/// # Errors
/// [`NodeSetError`] names the file.
pub fn read(dir: &Path) -> Result<NodeSet, NodeSetError> {
    let path = dir.join(FILE);
    let text = store::read_plain(&path)?;
    if text.len() > MAX_NODE_SET_BYTES {
        return Err(NodeSetError::TooLarge { path });
    }
    let bad = |error: serde_json::Error| NodeSetError::Bad {
        path: path.clone(),
        line: error.line(),
        message: error.to_string(),
    };
    // A newer one may have other fields.
    #[derive(Deserialize)]
    struct NodeSetHeader {
        version: u32,
    }
    let NodeSetHeader { version } = serde_json::from_slice(&text).map_err(bad)?;
    if version > NODE_SET_VERSION {
        return Err(NodeSetError::Newer { path, version });
    }
    let set: NodeSet = serde_json::from_slice(&text).map_err(bad)?;
    for node in &set.nodes {
        NodeSet::folder(dir, node)?;
    }
    Ok(set)
}

/// Whether a set can begin in `dir`, as far as that is known without writing anything.
///
/// # Errors
/// [`ResultsError`]: the folder holds results, or can't be written.
pub fn check_new(dir: &Path) -> Result<(), ResultsError> {
    if is_node_set(dir) {
        return Err(ResultsError::HoldsNodes(dir.to_owned()));
    }
    store::check_new(dir)
}

/// Makes the folder of a new set.
///
/// # Errors
/// As of [`check_new`].
pub fn create(dir: &Path) -> Result<(), ResultsError> {
    check_new(dir)?;
    std::fs::create_dir_all(dir.join(NODES)).map_err(|source: io::Error| ResultsError::Io {
        action: "make the folder",
        path: dir.join(NODES),
        hint: "",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set() -> NodeSet {
        NodeSet {
            version: NODE_SET_VERSION,
            vmlab: "0.1.0".to_owned(),
            study: "s".to_owned(),
            server: "https://x".to_owned(),
            namespace: "lab".to_owned(),
            image: "i".to_owned(),
            class_label: None,
            started_unix_s: 1.5,
            nodes: vec![NodeEntry::new("one", Some("big".to_owned()))],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_node_set(dir.path()));
        create(dir.path()).unwrap();
        set().write(dir.path()).unwrap();
        assert!(is_node_set(dir.path()));
        assert_eq!(read(dir.path()).unwrap(), set());
        assert!(matches!(create(dir.path()), Err(ResultsError::HoldsNodes(_))));
    }

    #[test]
    fn what_is_no_set_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let check = |text: &str, part: &str| {
            std::fs::write(dir.path().join(FILE), text).unwrap();
            let said = read(dir.path()).unwrap_err().to_string();
            assert!(said.contains(part), "{part:?}: {said}");
        };
        check("{\n  \"version\": 1\n", "nodes.json:3: not a list of nodes");
        check("[]", "nodes.json:1: not a list");
        check("{\"version\": 2, \"more\": 1}", "has version 2");
        let mut wrong = set();
        for folder in ["../elsewhere", "/etc", "", "nodes/../../x"] {
            folder.clone_into(&mut wrong.nodes[0].folder);
            check(&serde_json::to_string(&wrong).unwrap(), "not beneath it");
        }
    }
}
