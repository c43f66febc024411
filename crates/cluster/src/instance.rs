//! A VirtualMachineInstance of vmlab's own, from its creation until nothing of it is left.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use guest::{AgentLink as _, Cancel, ExecOutput, GuestCommand, GuestFailure, exec_over};
use serde_json::Value;

use crate::agent::{PodAgent, SessionAgent};
use crate::api::{ClusterTarget, RequestFailure};
use crate::events::KubeEvent;
use crate::kind::INSTANCE;
use crate::made::{OwnedObject, text_at};
use crate::resource::PODS;
use crate::session::Session;

/// So often what happened is looked at while an instance is on its way up.
const LOOK_AT_EVENTS: Duration = Duration::from_secs(5);

/// So often KubeVirt may fail to make a domain of an instance before that is final.
const MOST_SYNC_FAILURES: u64 = 3;

/// An instance that this process created. What is left of it is deleted when it is dropped.
pub struct Instance {
    made: OwnedObject,
    agent: Option<PodAgent>,
    pod: Option<String>,
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.made.fmt(f)
    }
}

/// Where an instance is on its way.
enum InstanceStage {
    /// Its agent answers KubeVirt, on this node.
    Connected,
    /// It will not get there.
    Failed(GuestFailure),
}

impl Instance {
    /// Creates the instance of `manifest` (YAML), whose name is `name`.
    ///
    /// # Errors
    /// What the cluster refuses, with what to do about it.
    pub fn create(
        target: &ClusterTarget,
        namespace: &str,
        name: &str,
        manifest: &str,
        cancel: &Cancel,
    ) -> Result<Self, GuestFailure> {
        let failed = |detail: String| GuestFailure::Cluster { detail };
        let session = Session::connect(target).map_err(|error| failed(error.to_string()))?;
        let text = ("application/yaml", manifest);
        let made = OwnedObject::create(session, &INSTANCE, namespace, name, text, cancel)?;
        Ok(Self { made, agent: None, pod: None })
    }

    fn read(&self, cancel: &Cancel) -> Result<Option<Value>, GuestFailure> {
        Ok(self.made.read(cancel)?)
    }

    /// Waits until the guest's agent answers; the time since the instance was created.
    ///
    /// # Errors
    /// Why it does not: no node takes it, its image can't be had, KubeVirt makes no domain
    /// of it, somebody deleted it.
    pub fn wait_ready(
        &mut self,
        limit: Duration,
        cancel: &Cancel,
    ) -> Result<Duration, GuestFailure> {
        let until = self.made.created + limit;
        let stage = loop {
            let next = until.min(Instant::now() + LOOK_AT_EVENTS);
            if let Some(stage) = self.made.watch(next, cancel, stage)? {
                break stage;
            }
            if let Some(failure) = self.not_made(cancel) {
                break InstanceStage::Failed(failure);
            }
            if Instant::now() >= until {
                return Err(self.too_late(limit, cancel));
            }
        };
        if let InstanceStage::Failed(failure) = stage {
            return Err(self.explained(failure, cancel));
        }
        let pod = self.find_pod(cancel)?;
        let mut agent = PodAgent::new(&self.made.namespace, &pod, &self.made.name);
        self.pod = Some(pod);
        let mut over = SessionAgent { session: &self.made.session, agent: &mut agent };
        over.begin(64 << 10, u64::MAX, until.max(Instant::now() + Duration::from_secs(10)));
        over.ask("guest-ping", None, cancel)?;
        self.agent = Some(agent);
        Ok(self.made.created.elapsed())
    }

    /// The pod of virt-launcher in which the VM runs.
    fn find_pod(&self, cancel: &Cancel) -> Result<String, GuestFailure> {
        let pods = self.pods(cancel)?;
        let runs = |pod: &&Value| text_at(pod, "/status/phase") == "Running";
        let pod = pods.iter().find(runs).or(pods.first());
        pod.map(|pod| text_at(pod, "/metadata/name").to_owned()).ok_or_else(|| GuestFailure::Died {
            detail: "its virt-launcher pod is gone".to_owned(),
        })
    }

    fn pods(&self, cancel: &Cancel) -> Result<Vec<Value>, GuestFailure> {
        Ok(self.made.pods(cancel)?)
    }

    /// Runs a command in the guest to its end.
    ///
    /// # Errors
    /// As of a VM of this machine; and [`GuestFailure::Cluster`], where the way to the
    /// guest is gone for longer than it is tried again.
    pub fn exec(
        &mut self,
        command: &GuestCommand,
        cancel: &Cancel,
    ) -> Result<ExecOutput, GuestFailure> {
        let Some(agent) = &mut self.agent else {
            return Err(GuestFailure::Died { detail: "it has no agent yet".to_owned() });
        };
        let mut over = SessionAgent { session: &self.made.session, agent };
        let ended = exec_over(&mut over, command, cancel);
        match ended {
            // What became of the VM tells more than that nobody answers.
            Err(
                failure @ (GuestFailure::Died { .. }
                | GuestFailure::Hung { .. }
                | GuestFailure::Agent { .. }
                | GuestFailure::Cluster { .. }),
            ) => match self.check_alive(cancel) {
                Err(ended) => Err(ended),
                // Of a namespace that goes, pods may be gone before the instance is told.
                Ok(()) => Err(self.explained(failure, cancel)),
            },
            other => other,
        }
    }

    /// Whether the instance still runs.
    ///
    /// # Errors
    /// What became of it.
    pub fn check_alive(&self, cancel: &Cancel) -> Result<(), GuestFailure> {
        match self.read(cancel)?.as_ref() {
            None => Err(deleted()),
            Some(object) => match ended(object) {
                Some(failure) => Err(self.explained(failure, cancel)),
                None => Ok(()),
            },
        }
    }

    /// `failure` with the last warnings of the cluster, or what they made of the pod: a guest
    /// whose pod is evicted shuts down.
    fn explained(&self, failure: GuestFailure, cancel: &Cancel) -> GuestFailure {
        let has_ended =
            matches!(failure, GuestFailure::Shutdown { .. } | GuestFailure::Died { .. });
        let pods = has_ended.then(|| self.pods(cancel).ok()).flatten();
        let failure = match pods.and_then(|pods| pod_end(&pods)) {
            Some(detail) => GuestFailure::Cluster { detail },
            None => failure,
        };
        let warnings = self.warnings(cancel);
        if warnings.is_empty() {
            return failure;
        }
        let more = |detail: String| {
            // Of what is said already no more.
            let said = |one: &&String| {
                let reason = one.split(':').next().unwrap_or_default();
                !detail.contains(reason)
            };
            let new: Vec<String> = warnings.iter().filter(said).cloned().collect();
            match new.is_empty() {
                true => detail,
                false => format!("{detail}; events: {}", new.join("; ")),
            }
        };
        match failure {
            GuestFailure::Died { detail } => GuestFailure::Died { detail: more(detail) },
            GuestFailure::Cluster { detail } => GuestFailure::Cluster { detail: more(detail) },
            other => other,
        }
    }

    /// Why KubeVirt can't make a domain of the instance, which events alone tell.
    fn not_made(&self, cancel: &Cancel) -> Option<GuestFailure> {
        let mut events = self.events(cancel);
        events.retain(|event| event.reason == "SyncFailed");
        let tried: u64 = events.iter().map(|event| event.count).sum();
        let last = events.pop().filter(|_| tried >= MOST_SYNC_FAILURES)?;
        Some(GuestFailure::Refused { detail: last.message })
    }

    /// The last warnings about the instance and its pod.
    fn warnings(&self, cancel: &Cancel) -> Vec<String> {
        let mut warnings: Vec<String> = self
            .events(cancel)
            .iter()
            .filter(|event| event.is_warning && event.reason != "MissingClusterDNS")
            .map(|event| format!("{}: {}", event.reason, event.message))
            .collect();
        warnings.dedup();
        warnings.split_off(warnings.len().saturating_sub(3))
    }

    /// What happened with the instance and its pods, as far as it may be read.
    pub fn events(&self, cancel: &Cancel) -> Vec<KubeEvent> {
        let pod: Vec<&str> = self.pod.iter().map(String::as_str).collect();
        self.made.events(&pod, cancel)
    }

    /// Why it was not up in time.
    fn too_late(&self, limit: Duration, cancel: &Cancel) -> GuestFailure {
        let object = match self.read(cancel) {
            Ok(object) => object.unwrap_or_default(),
            Err(failure) => return failure,
        };
        let phase = text_at(&object, "/status/phase");
        let warnings = self.warnings(cancel);
        if phase == "Running" {
            return GuestFailure::NeverAnswered { limit };
        }
        let mut detail =
            format!("the instance was {phase:?} and not running after {} s", limit.as_secs());
        for (kind, _, why) in conditions(&object).filter(|(_, holds, _)| !holds) {
            if !why.is_empty() {
                detail += &format!("; {kind}: {why}");
            }
        }
        if !warnings.is_empty() {
            detail += &format!("; events: {}", warnings.join("; "));
        }
        GuestFailure::Cluster { detail }
    }

    /// The instance as it is now, for whoever records it.
    ///
    /// # Errors
    /// The server does not tell.
    pub fn object(&self, cancel: &Cancel) -> Result<Value, GuestFailure> {
        Ok(self.read(cancel)?.unwrap_or_default())
    }

    /// The pod in which it runs, as the server has it.
    ///
    /// # Errors
    /// The server does not tell.
    pub fn pod(&self, cancel: &Cancel) -> Result<Option<Value>, GuestFailure> {
        let mut pods = self.pods(cancel)?;
        pods.retain(|pod| Some(text_at(pod, "/metadata/name")) == self.pod.as_deref());
        Ok(pods.pop())
    }

    /// What the server answers at `path`; why it does not, in a line.
    pub(crate) fn text(&self, path: &str, cancel: &Cancel) -> Result<Vec<u8>, String> {
        let session = &self.made.session;
        let answer = session.ask("for an object", cancel, || session.api.get(path));
        answer.map_err(|failure| failure.to_string())?.map_err(|failure| match failure {
            RequestFailure::Forbidden(said) => format!("may not read {path}: {said}"),
            RequestFailure::Absent => format!("there is no {path}"),
            RequestFailure::Unauthorized(said)
            | RequestFailure::Unreachable(said)
            | RequestFailure::Exists(said)
            | RequestFailure::Other(said) => said,
            RequestFailure::Gone(_) => "it is gone".to_owned(),
        })
    }

    /// What a script in virt-launcher's container prints: `$V` is virsh there, `$1` the
    /// domain.
    ///
    /// # Errors
    /// The way there is gone.
    pub fn print(&self, script: &str, cancel: &Cancel) -> Result<String, GuestFailure> {
        let Some(agent) = &self.agent else {
            return Err(GuestFailure::Died { detail: "it has no pod yet".to_owned() });
        };
        let session = &self.made.session;
        let answer =
            session.ask("to run a command in a pod", cancel, || agent.print(session, script))?;
        Ok(answer.map_err(|failure| self.made.refused("exec", failure))?)
    }

    /// The end of what the guest printed on its serial console, where KubeVirt keeps it.
    pub fn console(&self, cancel: &Cancel) -> Vec<u8> {
        let pods = match &self.pod {
            Some(pod) => vec![pod.clone()],
            None => {
                let pods = self.pods(cancel).unwrap_or_default();
                pods.iter().map(|pod| text_at(pod, "/metadata/name").to_owned()).collect()
            }
        };
        let Some(pod) = pods.first() else { return Vec::new() };
        let path = format!(
            "{}/{pod}/log?container=guest-console-log&limitBytes=1048576",
            PODS.path(Some(&self.made.namespace))
        );
        let session = &self.made.session;
        match session.ask("for a log", cancel, || session.api.get(&path)) {
            Ok(Ok(text)) => text,
            _ => Vec::new(),
        }
    }

    /// Deletes the instance and waits until it and its pod are gone.
    ///
    /// # Errors
    /// Why something of it may be left.
    pub fn delete(&mut self) -> Result<(), String> {
        self.agent = None;
        self.made.delete()
    }
}

/// Conditions: type, whether it holds, reason and message.
fn conditions(object: &Value) -> impl Iterator<Item = (&str, bool, String)> {
    let all = object.pointer("/status/conditions").and_then(Value::as_array);
    all.into_iter().flatten().map(|one| {
        let (reason, message) = (text_at(one, "/reason"), text_at(one, "/message"));
        let why = match (reason, message) {
            ("", why) | (why, "") => why.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        (text_at(one, "/type"), one["status"] == "True", why)
    })
}

/// How somebody else ended the pod of an instance that has ended; `None`: nobody did.
///
/// Source: Kubernetes, "Pod disruption conditions".
fn pod_end(pods: &[Value]) -> Option<String> {
    let Some(pod) = pods.first() else {
        return Some(
            "its pod was deleted: an eviction, a drained node, or its namespace is being deleted"
                .to_owned(),
        );
    };
    let evicted = conditions(pod).find(|(kind, holds, _)| *kind == "DisruptionTarget" && *holds);
    if let Some((_, _, why)) = evicted {
        return Some(format!("its pod was evicted from its node ({why})"));
    }
    let is_deleted = pod.pointer("/metadata/deletionTimestamp").is_some();
    is_deleted.then(|| {
        "somebody else deleted its pod: a drained node, or its namespace is being deleted"
            .to_owned()
    })
}

fn deleted() -> GuestFailure {
    let detail = "somebody else deleted the instance: an eviction, a drained node, or its \
                  namespace is being deleted";
    GuestFailure::Cluster { detail: detail.to_owned() }
}

/// The failure of an instance that is at its end.
fn ended(object: &Value) -> Option<GuestFailure> {
    let phase = text_at(object, "/status/phase");
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Some(deleted());
    }
    if object.pointer("/status/evacuationNodeName").is_some() {
        let detail = "the instance is being evacuated from its node".to_owned();
        return Some(GuestFailure::Cluster { detail });
    }
    match phase {
        "Succeeded" => Some(GuestFailure::Shutdown { detail: "phase Succeeded".to_owned() }),
        "Failed" => {
            let why: Vec<String> = conditions(object)
                .filter(|(_, holds, why)| !holds && !why.is_empty())
                .map(|(kind, _, why)| format!("{kind}: {why}"))
                .collect();
            let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
            let detail = format!("KubeVirt says that the instance failed{why}");
            Some(GuestFailure::Died { detail })
        }
        _ => None,
    }
}

/// What an instance's object says of its way up.
fn stage(object: Option<&Value>) -> Option<InstanceStage> {
    let Some(object) = object else { return Some(InstanceStage::Failed(deleted())) };
    if let Some(failure) = ended(object) {
        return Some(InstanceStage::Failed(failure));
    }
    for (kind, holds, why) in conditions(object) {
        if kind == "AgentConnected" && holds {
            return Some(InstanceStage::Connected);
        }
        if kind == "Synchronized" && !holds {
            let final_words = [
                "ImagePullBackOff",
                "ErrImageNeverPull",
                "InvalidImageName",
                "exceeded quota",
                "being terminated",
                "unsupported configuration",
            ];
            if final_words.iter().any(|word| why.contains(word)) {
                return Some(InstanceStage::Failed(GuestFailure::Cluster { detail: why }));
            }
        }
    }
    None
}

/// Phases of an instance and when it came to each, s after its creation.
#[must_use]
pub fn phases_s(object: &Value) -> BTreeMap<String, f64> {
    let seconds = |text: &str| text.parse::<k8s_openapi::jiff::Timestamp>().ok();
    let created = seconds(text_at(object, "/metadata/creationTimestamp"));
    let all = object.pointer("/status/phaseTransitionTimestamps").and_then(Value::as_array);
    let of = |one: &Value| {
        let at = seconds(text_at(one, "/phaseTransitionTimestamp"))?;
        let since = at.duration_since(created?).as_secs_f64();
        Some((text_at(one, "/phase").to_owned(), since))
    };
    all.into_iter().flatten().filter_map(of).collect()
}

/// The instance's conditions, a line each: `Ready: True`, `Ready: False (why)`.
#[must_use]
pub fn condition_lines(object: &Value) -> Vec<String> {
    conditions(object)
        .map(|(kind, holds, why)| match (holds, why.as_str()) {
            (true, _) => format!("{kind}: True"),
            (false, "") => format!("{kind}: False"),
            (false, why) => format!("{kind}: False ({why})"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn instance(phase: &str, conditions: Value) -> Value {
        json!({
            "metadata": { "name": "vm", "creationTimestamp": "2026-01-02T03:04:05Z" },
            "status": {
                "phase": phase, "conditions": conditions,
                "phaseTransitionTimestamps": [
                    { "phase": "Pending", "phaseTransitionTimestamp": "2026-01-02T03:04:05Z" },
                    { "phase": "Running", "phaseTransitionTimestamp": "2026-01-02T03:04:11Z" },
                ],
            },
        })
    }

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
        json!([{ "type": kind, "status": status, "reason": reason, "message": message }])
    }

    #[test]
    fn an_instance_is_up_when_its_agent_is() {
        let waits = condition("Ready", "False", "GuestNotRunning", "not yet");
        assert!(stage(Some(&instance("Scheduling", waits))).is_none());
        let up = instance("Running", condition("AgentConnected", "True", "", ""));
        assert!(matches!(stage(Some(&up)), Some(InstanceStage::Connected)));
        assert_eq!(phases_s(&up)["Running"], 6.0);
        assert_eq!(condition_lines(&up), ["AgentConnected: True"]);
    }

    #[test]
    fn a_guest_whose_pod_is_evicted_did_not_shut_down_by_itself() {
        let pod = |reason: &str, deleted: Option<&str>| {
            let conditions = condition("DisruptionTarget", "True", reason, "evicting");
            let conditions = if reason.is_empty() { json!([]) } else { conditions };
            let mut pod = json!({ "metadata": {}, "status": { "conditions": conditions } });
            if let Some(at) = deleted {
                pod["metadata"]["deletionTimestamp"] = at.into();
            }
            vec![pod]
        };
        assert_eq!(pod_end(&pod("", None)), None);
        let evicted = pod_end(&pod("EvictionByEvictionAPI", Some("2026-01-02T03:05:05Z")));
        let expected = "its pod was evicted from its node (EvictionByEvictionAPI: evicting)";
        assert_eq!(evicted.as_deref(), Some(expected));
        let deleted = pod_end(&pod("", Some("2026-01-02T03:05:05Z"))).expect("an end");
        assert!(deleted.contains("deleted its pod"), "{deleted}");
        assert!(pod_end(&[]).expect("an end").contains("an eviction"));
    }

    #[test]
    fn what_ends_an_instance_is_told() {
        let check = |object: Option<&Value>, part: &str| {
            let Some(InstanceStage::Failed(failure)) = stage(object) else { panic!("{object:?}") };
            assert!(failure.to_string().contains(part), "{part:?}: {failure}");
        };
        check(None, "somebody else deleted");
        for (reason, message) in [
            ("ImagePullBackOff", "Back-off pulling image"),
            ("FailedCreate", "pods \"x\" is forbidden: exceeded quota: none"),
        ] {
            let failed = condition("Synchronized", "False", reason, message);
            check(Some(&instance("Scheduling", failed)), message);
        }
        let mut leaving = instance("Running", json!([]));
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:05:05Z");
        check(Some(&leaving), "a drained node");
        let mut drained = instance("Running", json!([]));
        drained["status"]["evacuationNodeName"] = json!("one");
        check(Some(&drained), "evacuated");
        let failed = condition("Ready", "False", "PodTerminating", "it ends");
        check(Some(&instance("Failed", failed)), "Ready: PodTerminating: it ends");
        check(Some(&instance("Succeeded", json!([]))), "shut down by itself");
    }
}
