//! Which nodes of a cluster run a study, and as what: options of `vmlab run --on k8s`.

use clap::Args;

/// The options.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "With --on k8s")]
pub(crate) struct NodeArgs {
    /// The container image, with vmlab and QEMU, as `scripts/make-packages oci` makes it and
    /// you pushed it.
    #[arg(long, value_name = "REF", requires = "on")]
    node_image: Option<String>,
    /// Nodes with these labels alone, as kubectl selects them [default: all].
    #[arg(long, value_name = "SELECTOR", requires = "on")]
    nodes: Option<String>,
    /// One node of each value of this label, the first by name that takes pods.
    #[arg(long, value_name = "LABEL", requires = "on", conflicts_with = "node_class")]
    one_per: Option<String>,
    /// The label whose values are the classes of hardware that the report tells apart
    /// [default: that of --one-per, else node.kubernetes.io/instance-type].
    #[arg(long, value_name = "LABEL", requires = "on")]
    node_class: Option<String>,
    /// So many nodes at a time [default: all].
    #[arg(long, value_name = "N", requires = "on",
        value_parser = clap::value_parser!(u32).range(1..))]
    parallel: Option<u32>,
    /// How guests come by /dev/kvm: `none`, they are emulated; `hostpath`, the node's, in a
    /// privileged container; or the resource of a device plugin, such as
    /// devices.kubevirt.io/kvm.
    #[arg(long, value_name = "HOW", requires = "on", default_value = "none")]
    node_kvm: String,
    /// CPUs of each pod, request and limit, as Kubernetes writes them: whole ones, with
    /// memory, are pCPUs of its own where the kubelet has the static policy.
    #[arg(long, value_name = "CPUS", requires = "on")]
    node_cpus: Option<String>,
    /// Memory of each pod, request and limit: 4Gi.
    #[arg(long, value_name = "MEMORY", requires = "on")]
    node_memory: Option<String>,
    /// A privileged container: studies that change settings of the node.
    #[arg(long, requires = "on")]
    node_privileged: bool,
    /// The LocalQueue of Kueue that admits the Jobs.
    #[arg(long, value_name = "QUEUE", requires = "on")]
    node_queue: Option<String>,
    /// Minutes that a pod may take to start, in its queue, too.
    #[arg(long, value_name = "N", requires = "on", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    node_start_minutes: u64,
    /// Minutes after which Kubernetes ends a Job.
    #[arg(long, value_name = "N", requires = "on", default_value_t = 1440,
        value_parser = clap::value_parser!(u64).range(1..=100_000))]
    node_limit_minutes: u64,
}

impl NodeArgs {
    /// Whether any of them is given.
    pub(crate) fn is_given(&self) -> bool {
        let words = [
            &self.node_image,
            &self.nodes,
            &self.one_per,
            &self.node_class,
            &self.node_cpus,
            &self.node_memory,
            &self.node_queue,
        ];
        words.into_iter().any(Option::is_some)
            || self.parallel.is_some()
            || self.node_privileged
            || self.node_kvm != "none"
    }
}

#[cfg(feature = "kubernetes")]
mod said {
    use ::cluster::KvmAccess;
    use anyhow::{Context as _, bail};

    use super::NodeArgs;

    /// What is asked of the nodes.
    #[derive(Debug, Clone)]
    pub(crate) struct NodesAsked {
        pub(crate) image: String,
        pub(crate) selector: Option<String>,
        pub(crate) one_per: Option<String>,
        pub(crate) class: Option<String>,
        pub(crate) parallel: Option<u32>,
        pub(crate) kvm: KvmAccess,
        pub(crate) cpus: Option<String>,
        pub(crate) memory: Option<String>,
        pub(crate) privileged: bool,
        pub(crate) queue: Option<String>,
        pub(crate) start_s: u64,
        pub(crate) limit_s: u64,
    }

    impl NodeArgs {
        /// # Errors
        /// What is missing, or is no amount.
        pub(crate) fn asked(&self) -> anyhow::Result<NodesAsked> {
            let image = self.node_image.clone().context(
                "Name the container image with --node-image: `scripts/make-packages oci` makes one",
            )?;
            let kvm = match self.node_kvm.as_str() {
                "none" => KvmAccess::None,
                "hostpath" => KvmAccess::HostPath,
                name if name.contains('/') => KvmAccess::Resource(name.to_owned()),
                other => bail!(
                    "--node-kvm {other}: write none, hostpath, or a resource such as devices.kubevirt.io/kvm"
                ),
            };
            for (option, amount) in
                [("--node-cpus", &self.node_cpus), ("--node-memory", &self.node_memory)]
            {
                let Some(amount) = amount else { continue };
                if amount.parse::<vmconfig::kubevirt::Quantity>().is_err() {
                    bail!("{option} {amount}: write an amount as Kubernetes does, 4 or 8Gi");
                }
            }
            Ok(NodesAsked {
                image,
                selector: self.nodes.clone(),
                one_per: self.one_per.clone(),
                class: self.node_class.clone(),
                parallel: self.parallel,
                kvm,
                cpus: self.node_cpus.clone(),
                memory: self.node_memory.clone(),
                privileged: self.node_privileged,
                queue: self.node_queue.clone(),
                start_s: self.node_start_minutes * 60,
                limit_s: self.node_limit_minutes * 60,
            })
        }
    }
}

#[cfg(feature = "kubernetes")]
pub(crate) use said::NodesAsked;
