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
    use vmconfig::ImageReference;

    use super::NodeArgs;

    /// What is asked of the nodes.
    #[derive(Debug, Clone)]
    pub(crate) struct NodeSelection {
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
        pub(crate) fn asked(&self) -> anyhow::Result<NodeSelection> {
            let image = self.node_image.clone().context(
                "Name the container image with --node-image: `scripts/make-packages oci` makes one",
            )?;
            image
                .parse::<ImageReference>()
                .with_context(|| format!("--node-image {image:?} is no image"))?;
            if let Some(queue) = &self.node_queue {
                check_queue(queue)?;
            }
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
            Ok(NodeSelection {
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

    /// A queue is an object, and its name the value of a label.
    ///
    /// Source: Kubernetes, "Object Names and IDs" (DNS subdomain names) and "Labels and
    /// Selectors" (63 characters).
    fn check_queue(name: &str) -> anyhow::Result<()> {
        let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_part = |part: &str| {
            part.bytes().all(|byte| is_word(byte) || byte == b'-')
                && part.bytes().next().is_some_and(is_word)
                && part.bytes().last().is_some_and(is_word)
        };
        if name.len() > 63 || !name.split('.').all(is_part) {
            bail!(
                "--node-queue {name:?} is no name of a queue: at most 63 small letters, digits, - and ., the first and the last a letter or a digit"
            );
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn asked(image: &str, queue: Option<&str>) -> anyhow::Result<NodeSelection> {
            let args = NodeArgs {
                node_image: Some(image.to_owned()),
                node_queue: queue.map(str::to_owned),
                node_kvm: "none".to_owned(),
                ..NodeArgs::default()
            };
            args.asked()
        }

        #[test]
        fn what_no_cluster_takes_is_refused_before_one_is_asked() {
            asked("registry.example/vmlab:1", Some("lab-1.day")).unwrap();
            for (image, says) in [
                ("", "--node-image \"\" is no image: nothing is written"),
                ("a b", "--node-image \"a b\" is no image: \"a b\" is no part"),
            ] {
                let said = format!("{:#}", asked(image, None).unwrap_err());
                assert!(said.starts_with(says), "{said}");
            }
            for queue in ["Bad Queue!", "", "-x", "x.", &"a".repeat(64)] {
                let said = asked("vmlab:1", Some(queue)).unwrap_err().to_string();
                assert!(said.starts_with(&format!("--node-queue {queue:?} is no name")), "{said}");
            }
        }
    }
}

#[cfg(feature = "kubernetes")]
pub(crate) use said::NodeSelection;
