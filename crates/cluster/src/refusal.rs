//! What a server refuses, and what to do about it.

use guest::{Cancellation, GuestFailure};

use crate::api::RequestFailure;
use crate::kind::MadeKind;

/// Something that a cluster refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The namespace has no more of something.
    #[error("A quota of namespace {namespace:?} is reached: {said}")]
    Quota {
        /// The namespace.
        namespace: String,
        /// What the server said.
        said: String,
    },
    /// The namespace will be gone.
    #[error("Namespace {namespace:?} is being deleted: {said}")]
    NamespaceEnds {
        /// The namespace.
        namespace: String,
        /// What the server said.
        said: String,
    },
    /// The role does not allow it.
    #[error(
        "May not {verb} {resource}: `vmlab k8s rbac {role}` prints the role that allows it ({said})"
    )]
    Forbidden {
        /// The verb that a Role would have to allow.
        verb: String,
        /// The resource, as a Role names it.
        resource: String,
        /// The option that has that role printed.
        role: &'static str,
        /// What the server said.
        said: String,
    },
    /// There is nothing to create it in.
    #[error("There is no namespace {namespace:?}, or no {lacks}")]
    NoPlace {
        /// The namespace.
        namespace: String,
        /// Who may be absent.
        lacks: &'static str,
    },
    /// There is none of that name any more.
    #[error("it is gone")]
    Gone,
    /// A token has expired.
    #[error("The API server does not accept the credentials any more ({said})")]
    Unauthorized {
        /// What the server said.
        said: String,
    },
    /// All else.
    #[error("The cluster refuses to {verb} the {what}: {said}")]
    Other {
        /// What it was asked to do.
        verb: String,
        /// With what.
        what: &'static str,
        /// What the server said.
        said: String,
    },
}

/// What is forbidden to everybody in a namespace, by what the server says of it.
///
/// Source: Kubernetes `ResourceQuota` and `NamespaceLifecycle`, admission plugins.
pub(crate) fn of_place(namespace: &str, said: &str) -> Option<Refusal> {
    let (namespace, said) = (namespace.to_owned(), said.to_owned());
    if said.contains("exceeded quota") {
        Some(Refusal::Quota { namespace, said })
    } else if said.contains("being terminated") {
        Some(Refusal::NamespaceEnds { namespace, said })
    } else {
        None
    }
}

/// What a server's refusal of `verb` means; `exec` and `list` are of the pods.
pub(crate) fn refused(
    kind: &MadeKind,
    verb: &str,
    failure: RequestFailure,
    namespace: &str,
) -> Refusal {
    let (resource, right) = match verb {
        "exec" => ("pods/exec".to_owned(), "create"),
        "list" => ("pods".to_owned(), "list"),
        verb => (kind.read.name(), verb),
    };
    let namespace = namespace.to_owned();
    match failure {
        RequestFailure::Forbidden(said) => match of_place(&namespace, &said) {
            Some(refusal) => refusal,
            None => Refusal::Forbidden { verb: right.to_owned(), resource, role: kind.role, said },
        },
        RequestFailure::Absent if verb == "create" => {
            Refusal::NoPlace { namespace, lacks: kind.lacks }
        }
        RequestFailure::Absent => Refusal::Gone,
        RequestFailure::Unauthorized(said) => Refusal::Unauthorized { said },
        RequestFailure::Unreachable(said)
        | RequestFailure::Other(said)
        | RequestFailure::Exists(said) => {
            Refusal::Other { verb: verb.to_owned(), what: kind.what, said }
        }
        RequestFailure::Gone(_) => {
            let said = "the server has forgotten it".to_owned();
            Refusal::Other { verb: verb.to_owned(), what: kind.what, said }
        }
    }
}

/// Why something that was asked of a cluster did not come about.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFailure {
    /// It was cancelled.
    #[error("Interrupted")]
    Cancelled,
    /// The server does not answer any more.
    #[error("{0}")]
    NoAnswer(String),
    /// It refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl From<GuestFailure> for ClusterFailure {
    /// Of what a kept connection says.
    fn from(failure: GuestFailure) -> Self {
        match failure {
            GuestFailure::Cancelled(_) => Self::Cancelled,
            other => Self::NoAnswer(other.to_string()),
        }
    }
}

impl From<ClusterFailure> for GuestFailure {
    fn from(failure: ClusterFailure) -> Self {
        match failure {
            ClusterFailure::Cancelled => Self::Cancelled(Cancellation),
            other => Self::Cluster { detail: other.to_string() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::{INSTANCE, JOB};

    #[test]
    fn a_refusal_says_what_to_do() {
        let check = |kind: &MadeKind, verb: &str, failure: RequestFailure, part: &str| {
            let said = refused(kind, verb, failure, "lab").to_string();
            assert!(said.contains(part), "{part:?}: {said}");
        };
        let forbidden = |said: &str| RequestFailure::Forbidden(said.to_owned());
        check(
            &INSTANCE,
            "create",
            forbidden("exceeded quota: none"),
            "A quota of namespace \"lab\"",
        );
        check(&INSTANCE, "create", forbidden("because it is being terminated"), "is being deleted");
        check(&INSTANCE, "create", forbidden("User \"x\""), "May not create virtualmachine");
        check(
            &INSTANCE,
            "exec",
            forbidden("no"),
            "May not create pods/exec: `vmlab k8s rbac --run`",
        );
        check(&INSTANCE, "create", RequestFailure::Absent, "no namespace \"lab\", or no KubeVirt");
        check(
            &INSTANCE,
            "delete",
            RequestFailure::Other("busy".to_owned()),
            "to delete the instance: busy",
        );
        check(&JOB, "create", forbidden("no"), "create jobs.batch: `vmlab k8s rbac --jobs`");
        check(&JOB, "get", RequestFailure::Absent, "it is gone");
    }
}
