//! The further nodes of `vmlab cluster up`: which hosts, with how much memory and what
//! settings of their kubelets.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use guest::Cancel;
use guest::image::NODE;
use localcluster::NodeRequest;
use placement::plan::Size;
use replica::Replica;
use vmconfig::Arch;

use crate::progress::Spinner;
use crate::replica::{WantedReplica, words_for};

/// The node that is this machine.
const THIS: &str = "vmlab";

/// What the command line says of nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeOptions<'a> {
    /// `[NAME=]HOST`.
    pub(super) nodes: &'a [String],
    /// `[NODE=]SIZE`.
    pub(super) memory: &'a [String],
    /// `[NODE=]SIZE`.
    pub(super) huge_pages: &'a [String],
    /// `[NODE=]FILE`.
    pub(super) kubelet: &'a [String],
}

/// The nodes, looked up.
pub(super) struct PlannedNodes {
    /// Settings of this machine's kubelet.
    pub(super) kubelet: Option<PathBuf>,
    further: Vec<PlannedNode>,
}

struct PlannedNode {
    name: String,
    kubelet: Option<PathBuf>,
    huge_page_bytes: u64,
    replica: WantedReplica,
}

/// How a node's replica is brought up.
type ReplicaStarter<'a> = Box<dyn Fn(&str) -> Result<Replica, String> + 'a>;

impl NodeOptions<'_> {
    /// Looks up all hosts, before anything is begun.
    ///
    /// # Errors
    /// A host that is not known or can't be a node here; options for a node that there is
    /// not, or twice for one.
    pub(super) fn read(&self, cluster: &str) -> anyhow::Result<PlannedNodes> {
        let mut hosts = Vec::new();
        for text in self.nodes {
            let (name, host) = match text.split_once('=') {
                // Of a file's path the name is not a name.
                Some((name, host)) if !name.contains('/') => (name.to_owned(), host),
                _ => (default_name(text), text.as_str()),
            };
            hosts.push((name, host));
        }
        let further_names: BTreeSet<&str> = hosts.iter().map(|(name, _)| name.as_str()).collect();
        let names: BTreeSet<&str> = further_names.iter().copied().chain([THIS]).collect();
        let kubelet = NodeValues::read("--kubelet", self.kubelet, &names)?;
        // What this machine has is as it is.
        let memory = NodeValues::read("--node-memory", self.memory, &further_names)?;
        let huge_pages = NodeValues::read("--node-huge-pages", self.huge_pages, &further_names)?;
        let mut further = Vec::new();
        for (name, host) in &hosts {
            let size = memory.size_of(name)?.map(|size| format!("{}MiB", size.in_mib()));
            let huge_page_bytes = huge_pages.size_of(name)?.unwrap_or(Size(0)).0;
            let replica = look_up(cluster, name, host, size.as_deref())
                .with_context(|| format!("--node {name}={host}"))?;
            let kubelet = kubelet.of(name).map(PathBuf::from);
            further.push(PlannedNode { name: name.clone(), kubelet, huge_page_bytes, replica });
        }
        Ok(PlannedNodes { kubelet: kubelet.of(THIS).map(PathBuf::from), further })
    }
}

/// A host's name is its node's; a file's name without its ending.
fn default_name(host: &str) -> String {
    Path::new(host).file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

fn look_up(
    cluster: &str,
    name: &str,
    host: &str,
    memory: Option<&str>,
) -> anyhow::Result<WantedReplica> {
    let Some(mut words) = words_for(host) else {
        let names: Vec<_> = replica::KNOWN.iter().map(|known| known.name).collect();
        bail!("{host:?} is no file that describes a host, and none of {}", names.join(", "));
    };
    let replica = format!("{cluster}-{name}");
    words.extend(["--name", &replica, "--image", NODE]);
    words.extend(memory.iter().flat_map(|size| ["--memory", size]));
    let wanted = WantedReplica::of(words)?;
    // Its kubelet is this machine's program.
    let here = Arch::from_name(std::env::consts::ARCH);
    if here != Some(wanted.arch()) {
        bail!(
            "it is {}, and the kubelet that scripts/get-kube builds here is {}'s",
            wanted.arch(),
            std::env::consts::ARCH
        );
    }
    Ok(wanted)
}

/// The values of an option that is for all nodes or for one.
struct NodeValues<'a> {
    option: &'a str,
    all: Option<&'a str>,
    one: Vec<(&'a str, &'a str)>,
}

impl<'a> NodeValues<'a> {
    fn read(option: &'a str, values: &'a [String], names: &BTreeSet<&str>) -> anyhow::Result<Self> {
        let mut read = Self { option, all: None, one: Vec::new() };
        for value in values {
            match value.split_once('=') {
                Some((node, own)) if names.contains(node) => {
                    if read.one.iter().any(|(other, _)| *other == node) {
                        bail!("{option} is there twice for the node {node}");
                    }
                    read.one.push((node, own));
                }
                Some((node, _)) if !node.contains('/') && !Path::new(value).exists() => {
                    let names: Vec<&str> = names.iter().copied().collect();
                    bail!("{option} {value}: no node is {node:?}; there are {}", names.join(", "));
                }
                _ if read.all.is_some() => bail!("{option} is there twice for all nodes"),
                _ => read.all = Some(value),
            }
        }
        Ok(read)
    }

    fn of(&self, node: &str) -> Option<&'a str> {
        let own = self.one.iter().find(|(one, _)| *one == node);
        own.map(|(_, value)| *value).or(self.all)
    }

    /// The same as an amount of memory.
    fn size_of(&self, node: &str) -> anyhow::Result<Option<Size>> {
        let size = |text: &str| text.parse().with_context(|| format!("{} {text}", self.option));
        self.of(node).map(size).transpose()
    }
}

impl PlannedNodes {
    /// How each node's replica is brought up.
    pub(super) fn ways<'a>(
        &'a self,
        spinner: &'a Spinner,
        cancel: &'a Cancel,
    ) -> Vec<ReplicaStarter<'a>> {
        let way = |node: &'a PlannedNode| -> ReplicaStarter<'a> {
            Box::new(move |_| {
                node.replica.bring_up(spinner, cancel).map_err(|error| format!("{error:#}"))
            })
        };
        self.further.iter().map(way).collect()
    }

    /// The nodes as they are asked for.
    pub(super) fn requests<'a>(&'a self, ways: &'a [ReplicaStarter<'a>]) -> Vec<NodeRequest<'a>> {
        let nodes = self.further.iter().zip(ways);
        let request = |(node, way): (&'a PlannedNode, &'a ReplicaStarter<'a>)| NodeRequest {
            name: &node.name,
            kubelet: node.kubelet.as_deref(),
            huge_page_bytes: node.huge_page_bytes,
            bring_up: &**way,
        };
        nodes.map(request).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(nodes: &[&str], memory: &[&str], kubelet: &[&str]) -> anyhow::Result<PlannedNodes> {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let (nodes, memory, kubelet) = (owned(nodes), owned(memory), owned(kubelet));
        let huge_pages = &memory;
        NodeOptions { nodes: &nodes, memory: &memory, huge_pages, kubelet: &kubelet }.read("lab")
    }

    #[test]
    fn options_are_for_all_nodes_or_for_one() {
        let names: BTreeSet<&str> = ["a", "b", THIS].into();
        let values = ["x.yaml".to_owned(), "b=y.yaml".to_owned(), "vmlab=/f/z=1.yaml".to_owned()];
        let read = NodeValues::read("--kubelet", &values, &names).unwrap();
        let of = |node| read.of(node);
        assert_eq!((of("a"), of("b")), (Some("x.yaml"), Some("y.yaml")));
        assert_eq!(of(THIS), Some("/f/z=1.yaml"));
        let none = NodeValues::read("--kubelet", &[], &names).unwrap();
        assert_eq!(none.of("a"), None);
    }

    #[test]
    fn mistakes_are_named() {
        for (nodes, memory, kubelet, says) in [
            (&["two-nods"][..], &[][..], &[][..], "none of xeon-4208"),
            (&["two-nodes"], &[], &["three=x.yaml"], "no node is \"three\"; there are two-nodes"),
            (&["two-nodes"], &[], &["a.yaml", "b.yaml"], "twice for all nodes"),
            (&["a=two-nodes"], &[], &["a=1.yaml", "a=2.yaml"], "twice for the node a"),
            (&["a=two-nodes"], &["much"], &[], "--node-memory much"),
            (&["a=two-nodes"], &["vmlab=1GiB"], &[], "no node is \"vmlab\"; there are a"),
        ] {
            let error = read(nodes, memory, kubelet).err().expect("an error");
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }
}
