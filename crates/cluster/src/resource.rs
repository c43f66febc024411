//! What is asked of a cluster, and the role that allows it.

use std::fmt::Write as _;

/// One kind of thing that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceKind {
    /// API group; empty: the core's.
    pub group: &'static str,
    /// Version of the group.
    pub version: &'static str,
    /// Resource, with its subresource: `nodes/proxy`.
    pub resource: &'static str,
    /// What it is called in an object.
    pub kind: &'static str,
    /// `list` or `get`.
    pub verb: &'static str,
    /// Whether objects of it have a namespace.
    pub namespaced: bool,
    /// What it is read for.
    pub purpose: &'static str,
}

impl ResourceKind {
    /// Path of the list; of one namespace where objects have one.
    pub(crate) fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.resource),
            None => format!("{root}/{}", self.resource),
        }
    }

    /// `virtualmachines.kubevirt.io`, as kubectl says it.
    pub(crate) fn name(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }
}

const fn core(
    resource: &'static str,
    kind: &'static str,
    verb: &'static str,
    namespaced: bool,
    purpose: &'static str,
) -> ResourceKind {
    ResourceKind { group: "", version: "v1", resource, kind, verb, namespaced, purpose }
}

const fn kubevirt(
    resource: &'static str,
    kind: &'static str,
    namespaced: bool,
    purpose: &'static str,
) -> ResourceKind {
    ResourceKind {
        group: "kubevirt.io",
        version: "v1",
        resource,
        kind,
        verb: "list",
        namespaced,
        purpose,
    }
}

const fn instancetype(
    resource: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> ResourceKind {
    ResourceKind {
        group: "instancetype.kubevirt.io",
        version: "v1beta1",
        resource,
        kind,
        verb: "list",
        namespaced,
        purpose: "what VMs mean by their instance types and preferences",
    }
}

pub(crate) const NAMESPACES: ResourceKind = core(
    "namespaces",
    "Namespace",
    "get",
    false,
    "whether the one that is meant is there, where it holds no VM",
);
pub(crate) const NODES: ResourceKind =
    core("nodes", "Node", "list", false, "labels, and what is there for pods");
pub(crate) const KUBELETS: ResourceKind = core(
    "nodes/proxy",
    "Node",
    "get",
    false,
    "the kubelets' settings (/configz); this right also lets its owner run commands in pods",
);
pub(crate) const PODS: ResourceKind =
    core("pods", "Pod", "list", true, "who has pCPUs or memory of a node alone");
pub(crate) const KUBEVIRTS: ResourceKind =
    kubevirt("kubevirts", "KubeVirt", true, "version and feature gates");
pub(crate) const VMS: ResourceKind = kubevirt("virtualmachines", "VirtualMachine", true, "the VMs");
pub(crate) const INSTANCES: ResourceKind = kubevirt(
    "virtualmachineinstances",
    "VirtualMachineInstance",
    true,
    "the VMs that run, and on which node",
);
pub(crate) const JOBS: ResourceKind = ResourceKind {
    group: "batch",
    version: "v1",
    resource: "jobs",
    kind: "Job",
    verb: "list",
    namespaced: true,
    purpose: "a study's part on each node",
};
pub(crate) const INSTANCETYPES: [ResourceKind; 4] = [
    instancetype("virtualmachineinstancetypes", "VirtualMachineInstancetype", true),
    instancetype("virtualmachineclusterinstancetypes", "VirtualMachineClusterInstancetype", false),
    instancetype("virtualmachinepreferences", "VirtualMachinePreference", true),
    instancetype("virtualmachineclusterpreferences", "VirtualMachineClusterPreference", false),
];
pub(crate) const PROFILES: ResourceKind = ResourceKind {
    group: "performance.openshift.io",
    version: "v2",
    resource: "performanceprofiles",
    kind: "PerformanceProfile",
    verb: "list",
    namespaced: false,
    purpose: "OpenShift's: reserved pCPUs and topology policy where a kubelet can't be asked",
};
pub(crate) const MACHINE_CONFIGS: ResourceKind = ResourceKind {
    group: "machineconfiguration.openshift.io",
    version: "v1",
    resource: "machineconfigs",
    kind: "MachineConfig",
    verb: "get",
    namespaced: false,
    purpose: "OpenShift's: kernel parameters of nodes, settings of kubelets that can't be asked",
};

/// Everything that is read, in that order.
pub const READS: [ResourceKind; 13] = {
    let [a, b, c, d] = INSTANCETYPES;
    let (configs, profiles, namespaces) = (MACHINE_CONFIGS, PROFILES, NAMESPACES);
    [NODES, KUBELETS, PODS, KUBEVIRTS, VMS, INSTANCES, a, b, c, d, configs, profiles, namespaces]
};

/// Something that a run does in its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// API group; empty: the core's.
    pub group: &'static str,
    /// Resource, with its subresource.
    pub resource: &'static str,
    /// What it does with it.
    pub verbs: &'static [&'static str],
    /// What for.
    pub purpose: &'static str,
}

impl Right {
    /// `virtualmachineinstances.kubevirt.io`, as kubectl says it.
    pub(crate) fn name(&self) -> String {
        match self.group {
            "" => self.resource.to_owned(),
            group => format!("{}.{group}", self.resource),
        }
    }
}

/// All that a run does in its namespace; which nodes there are, and which KubeVirt, it
/// reads as well.
pub const RIGHTS_OF_RUNS: [Right; 4] = [
    Right {
        group: "kubevirt.io",
        resource: "virtualmachineinstances",
        verbs: &["create", "get", "list", "watch", "delete"],
        purpose: "the VMs of a study",
    },
    Right {
        group: "",
        resource: "pods",
        verbs: &["list", "watch"],
        purpose: "where they run, and that nothing of them is left",
    },
    Right {
        group: "",
        resource: "pods/exec",
        verbs: &["create", "get"],
        purpose: "the guests' agents, through libvirt in virt-launcher",
    },
    Right { group: "", resource: "events", verbs: &["list"], purpose: "why a VM does not start" },
];

/// What a run does without where it may not.
const RIGHT_TO_LOGS: Right = Right {
    group: "",
    resource: "pods/log",
    verbs: &["get"],
    purpose: "the console of a guest that fails, without which it is not kept",
};

/// All that a study over nodes does in its namespace; which nodes there are it reads as
/// well.
pub const RIGHTS_OF_JOBS: [Right; 4] = [
    Right {
        group: "batch",
        resource: "jobs",
        verbs: &["create", "get", "list", "watch", "delete"],
        purpose: "a study's part on each node",
    },
    Right {
        group: "",
        resource: "pods",
        verbs: &["list", "watch"],
        purpose: "whether they run, and that nothing of them is left",
    },
    Right {
        group: "",
        resource: "pods/exec",
        verbs: &["create", "get"],
        purpose: "the study goes in, its results come out",
    },
    Right { group: "", resource: "events", verbs: &["list"], purpose: "why a pod does not start" },
];

/// What a run reads of the whole cluster.
const READS_OF_RUNS: [ResourceKind; 4] = [NODES, KUBELETS, PODS, KUBEVIRTS];

/// A ClusterRole that allows runs, as YAML, with a binding where there is somebody to bind
/// it to. Without `kubelets` it leaves out what placements are predicted from.
#[must_use]
pub fn role_of_runs(name: &str, kubelets: bool, subject: Option<&RoleSubject>) -> String {
    let mut out = head(name);
    rights(&mut out, RIGHTS_OF_RUNS.iter().chain([&RIGHT_TO_LOGS]));
    rules(&mut out, READS_OF_RUNS.iter().filter(|read| kubelets || **read != KUBELETS));
    out + &binding(name, subject)
}

/// A ClusterRole that allows studies over nodes, as YAML, with a binding where there is
/// somebody to bind it to.
#[must_use]
pub fn role_of_jobs(name: &str, subject: Option<&RoleSubject>) -> String {
    let mut out = head(name);
    rights(&mut out, &RIGHTS_OF_JOBS);
    rules(&mut out, [NODES].iter());
    out + &binding(name, subject)
}

fn rights<'a>(out: &mut String, rights: impl IntoIterator<Item = &'a Right>) {
    for Right { group, resource, verbs, purpose } in rights {
        let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
        // Writing to a String can't fail.
        let _ = write!(
            out,
            "# {purpose}\n- apiGroups: [\"{group}\"]\n  resources: [\"{resource}\"]\n  verbs: \
             [{}]\n",
            verbs.join(", ")
        );
    }
}

/// Whom a role is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleSubject {
    /// A user by name.
    User(String),
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// A ClusterRole that allows [`READS`], as YAML, with a binding where there is somebody to
/// bind it to. Without `kubelets` it leaves out what is more than reading.
#[must_use]
pub fn role(name: &str, kubelets: bool, subject: Option<&RoleSubject>) -> String {
    let mut out = head(name);
    rules(&mut out, READS.iter().filter(|read| kubelets || **read != KUBELETS));
    out + &binding(name, subject)
}

fn head(name: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: \
         {name}\nrules:\n"
    )
}

fn rules<'a>(out: &mut String, reads: impl Iterator<Item = &'a ResourceKind>) {
    for read in reads {
        let ResourceKind { group, resource, verb, purpose, .. } = read;
        // Writing to a String can't fail.
        let _ = write!(
            out,
            "# {purpose}\n- apiGroups: [\"{group}\"]\n  resources: [\"{resource}\"]\n  verbs: \
             [\"{verb}\"]\n"
        );
    }
}

fn binding(name: &str, subject: Option<&RoleSubject>) -> String {
    let Some(subject) = subject else { return String::new() };
    let subject = match subject {
        RoleSubject::User(user) => {
            format!("- apiGroup: rbac.authorization.k8s.io\n  kind: User\n  name: {user:?}\n")
        }
        RoleSubject::ServiceAccount { namespace, name } => {
            format!("- kind: ServiceAccount\n  namespace: {namespace}\n  name: {name}\n")
        }
    };
    format!(
        "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  \
         name: {name}\nroleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  \
         name: {name}\nsubjects:\n{subject}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_where_the_server_has_them() {
        assert_eq!(NODES.path(Some("a")), "/api/v1/nodes");
        assert_eq!(VMS.path(None), "/apis/kubevirt.io/v1/virtualmachines");
        assert_eq!(VMS.path(Some("a")), "/apis/kubevirt.io/v1/namespaces/a/virtualmachines");
        assert_eq!(VMS.name(), "virtualmachines.kubevirt.io");
    }

    #[test]
    fn the_role_holds_every_read_and_nothing_else() {
        let text = role("reader", true, None);
        let documents = topology::bounded::yaml(&text).expect("YAML");
        let [role] = &documents[..] else { panic!("one document: {text}") };
        let rules = role.get("rules").expect("rules").items();
        assert_eq!(rules.len(), READS.len());
        for (rule, read) in rules.iter().zip(READS) {
            let one = |key| rule.get(key).and_then(|list| list.items().first()?.text());
            assert_eq!(one("apiGroups"), Some(read.group));
            assert_eq!(one("resources"), Some(read.resource));
            assert_eq!(one("verbs"), Some(read.verb));
        }
        let account = RoleSubject::ServiceAccount { namespace: "lab".into(), name: "vmlab".into() };
        let bound = super::role("reader", false, Some(&account));
        assert!(!bound.contains("nodes/proxy"), "{bound}");
        assert_eq!(topology::bounded::yaml(&bound).expect("YAML").len(), 2);
    }
}
