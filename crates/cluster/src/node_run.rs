//! A study on one node: its Job, from its creation until its results were taken and
//! nothing of it is left.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Read as _, SeekFrom};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use guest::Cancel;
use serde_json::Value;

use crate::api::{ClusterTarget, RequestFailure};
use crate::events::KubeEvent;
use crate::exec::{ExecLoop, LoopAnswer, PodExec};
use crate::job::{CONTAINER, JobSpec, WORK, manifest};
use crate::kind::JOB;
use crate::made::{OwnedObject, text_at};
use crate::refusal::{ClusterFailure, Refusal, of_place};
use crate::session::{Session, tokio_sleep};

/// So often events are looked at while a pod is on its way up.
const LOOK_AT_EVENTS: Duration = Duration::from_secs(5);

/// Most that is read of a file in one piece, bytes.
const MOST_PIECE_BYTES: u64 = 1 << 20;

/// Most that is read of a whole file: a plan, a text that a trial named, bytes.
const MOST_WHOLE_BYTES: u64 = 256 << 20;

/// An API server that does not answer for longer has lost the node.
const MOST_SILENCE: Duration = Duration::from_secs(600);

/// Prints, for each request `NUMBER OFFSET MOST NAME`, so much of a file of `$1`.
const SERVE: &str = "cd \"$1\" || exit\n\
    while IFS=' ' read -r n offset most name; do\n\
    s=$(wc -c <\"$name\") 2>/dev/null || { echo \"$n 1 0\"; continue; }\n\
    l=$((s - offset))\n\
    [ $l -ge 0 ] || l=0\n\
    [ $l -le \"$most\" ] || l=$most\n\
    echo \"$n 0 $l\"\n\
    [ $l -eq 0 ] || tail -c +$((offset + 1)) \"$name\" | head -c $l\n\
    done\n";

/// So much is given of a file at once, bytes: what a broken connection costs. One that
/// brings nothing back for as long as an answer may take counts as broken, so that a piece is
/// halved where it does not arrive, down to the least.
const PUT_PIECE_BYTES: u64 = 8 << 20;
const LEAST_PUT_PIECE_BYTES: u64 = 128 << 10;

/// Writes `$4` bytes into the file `$2` of `$1`, from offset `$3` on; the file is there
/// when it has all of its `$5` bytes. A piece that was begun before and broke may still come
/// to its end, so that each is whole before it is added.
const PUT: &str = r#"set -e
cd "$1"
mkdir -p "$(dirname "$2")"
part=$2.part
piece=$part.$$
trap 'rm -f "$piece"' EXIT
size() { wc -c <"$1"; }
head -c "$4" >"$piece"
[ "$(size "$piece")" -eq "$4" ]
if [ "$3" -gt 0 ] && [ ! -e "$part" ]; then
    # The last piece came, and the answer was lost.
    [ "$(size "$2")" -eq "$5" ]
else
    touch "$part"
    if [ "$(size "$part")" -gt "$3" ]; then
        head -c "$3" "$part" >"$part.cut"
        mv "$part.cut" "$part"
    fi
    [ "$(size "$part")" -eq "$3" ]
    cat "$piece" >>"$part"
    [ $(($3 + $4)) -lt "$5" ] || mv "$part" "$2"
fi
echo whole
"#;

/// Why a node brings no results, or not all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeFailure {
    /// The cluster did not do its part.
    #[error(transparent)]
    Cluster(#[from] ClusterFailure),
    /// The image can't be had.
    #[error("The image can't be had: {0}")]
    Image(String),
    /// The pod did not start.
    #[error("The pod did not start within {limit_s} s: {why}")]
    NotStarted {
        /// The limit, s.
        limit_s: u64,
        /// What the cluster says.
        why: String,
    },
    /// The pod was put off its node.
    #[error("The pod was put off its node: {0}")]
    Evicted(String),
    /// Kubernetes ended the Job at its limit.
    #[error("The Job ran into its limit: {0}")]
    Deadline(String),
    /// Somebody deleted it.
    #[error("Somebody else deleted the pod or its Job: a drained node, or an end of its namespace")]
    Deleted,
    /// Its container ended.
    #[error("The pod ended: {0}")]
    Ended(String),
    /// What the pod was asked for has no end.
    #[error("{file} in the pod has more than {} MiB, which is the most that is read", MOST_WHOLE_BYTES >> 20)]
    TooLarge {
        /// The file.
        file: String,
    },
    /// A file of the study can't be read here.
    #[error("Cannot read {file}: {reason}")]
    File {
        /// The file.
        file: String,
        /// Why.
        reason: String,
    },
}

impl NodeFailure {
    /// The failure in a word, for tables and programs.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cluster(ClusterFailure::Cancelled) => "interrupted",
            Self::Cluster(ClusterFailure::NoAnswer(_)) => "no-answer",
            Self::Cluster(ClusterFailure::Refused(Refusal::Quota { .. })) => "quota",
            Self::Cluster(ClusterFailure::Refused(Refusal::Forbidden { .. })) => "forbidden",
            Self::Cluster(ClusterFailure::Refused(_)) => "refused",
            Self::Image(_) => "image",
            Self::NotStarted { .. } => "not-started",
            Self::Evicted(_) => "evicted",
            Self::Deadline(_) => "deadline",
            Self::Deleted => "deleted",
            Self::Ended(_) => "ended",
            Self::File { .. } => "file",
            Self::TooLarge { .. } => "too-large",
        }
    }
}

/// A file that a study needs on its node.
#[derive(Debug, Clone)]
pub struct NodeFile {
    /// Where it is here.
    pub here: PathBuf,
    /// Where it is to be, below [`WORK`].
    pub there: String,
}

/// A study on a node. What is left of it is deleted when it is dropped.
pub struct NodeRun {
    made: OwnedObject,
    pod: Option<PodExec>,
    open: Cell<Option<ExecLoop>>,
    number: Cell<u64>,
    last_answer: Cell<Instant>,
    phases_s: RefCell<BTreeMap<&'static str, f64>>,
}

impl NodeRun {
    /// Creates the Job.
    ///
    /// # Errors
    /// What the cluster refuses, with what to do about it.
    pub fn create(
        target: &ClusterTarget,
        namespace: &str,
        spec: &JobSpec,
        cancel: &Cancel,
    ) -> Result<Self, NodeFailure> {
        let session = Session::connect(target)
            .map_err(|error| ClusterFailure::NoAnswer(error.to_string()))?;
        let text = manifest(spec).to_string();
        let text = ("application/json", text.as_str());
        let made = OwnedObject::create(session, &JOB, namespace, &spec.name, text, cancel)?;
        Ok(Self {
            made,
            pod: None,
            open: Cell::default(),
            number: Cell::new(0),
            last_answer: Cell::new(Instant::now()),
            phases_s: RefCell::default(),
        })
    }

    /// Phases of the pod and when each was seen first, s after the Job's creation.
    #[must_use]
    pub fn phases_s(&self) -> BTreeMap<String, f64> {
        let phases = self.phases_s.borrow();
        phases.iter().map(|(phase, since)| ((*phase).to_owned(), *since)).collect()
    }

    fn reached(&self, phase: &'static str) {
        let since = self.made.created.elapsed().as_secs_f64();
        self.phases_s.borrow_mut().entry(phase).or_insert(since);
    }

    /// Waits until the pod's container runs.
    ///
    /// # Errors
    /// Why it does not.
    pub fn wait_running(&mut self, limit: Duration, cancel: &Cancel) -> Result<(), NodeFailure> {
        let until = self.made.created + limit;
        let pod = loop {
            let next = until.min(Instant::now() + LOOK_AT_EVENTS);
            let look = |pods: &[Value]| {
                let found = stage(pods);
                match &found {
                    PodStage::Absent => {}
                    PodStage::Waits { scheduled: false, .. } => self.reached("created"),
                    PodStage::Waits { .. } => self.reached("scheduled"),
                    PodStage::Runs(_) | PodStage::Failed(_) => self.reached("running"),
                }
                matches!(found, PodStage::Runs(_) | PodStage::Failed(_)).then_some(found)
            };
            match self.made.watch_pods(next, cancel, look)? {
                Some(PodStage::Runs(pod)) => break pod,
                Some(PodStage::Failed(failure)) => return Err(failure),
                _ => {}
            }
            if let Some(failure) = self.refused_pod(cancel)? {
                return Err(failure);
            }
            if Instant::now() >= until {
                return Err(self.too_late(limit, cancel)?);
            }
        };
        let namespace = self.made.namespace.clone();
        self.pod = Some(PodExec { namespace, pod, container: CONTAINER });
        self.last_answer.set(Instant::now());
        Ok(())
    }

    /// What keeps Kubernetes from making the pod at all, which the Job alone tells.
    fn refused_pod(&self, cancel: &Cancel) -> Result<Option<NodeFailure>, NodeFailure> {
        let Some(job) = self.made.read(cancel)? else { return Ok(Some(NodeFailure::Deleted)) };
        if let Some(failure) = job_failure(&job) {
            return Ok(Some(failure));
        }
        let events = self.made.events(&[], cancel);
        let refused = events.iter().rev().find(|event| event.reason == "FailedCreate");
        Ok(refused.and_then(|event| {
            let said = event.message.clone();
            let refusal = of_place(&self.made.namespace, &said).or_else(|| {
                // Of PodSecurity, an admission webhook, a limit range.
                let is_final = said.contains("forbidden") || said.contains("denied");
                is_final.then(|| Refusal::Other { verb: "create".to_owned(), what: "pod", said })
            })?;
            Some(ClusterFailure::from(refusal).into())
        }))
    }

    fn too_late(&self, limit: Duration, cancel: &Cancel) -> Result<NodeFailure, NodeFailure> {
        let limit_s = limit.as_secs();
        let job = self.made.read(cancel)?.unwrap_or_default();
        let why = match stage(&self.made.pods(cancel)?) {
            PodStage::Waits { why, .. } if !why.is_empty() => why,
            _ if job.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) => {
                "its queue has not admitted it".to_owned()
            }
            _ => {
                let warnings = self.warnings(cancel);
                match warnings.is_empty() {
                    true => "nobody says why".to_owned(),
                    false => warnings.join("; "),
                }
            }
        };
        Ok(NodeFailure::NotStarted { limit_s, why })
    }

    /// What happened with the Job and its pod, as far as it may be read.
    #[must_use]
    pub fn events(&self, cancel: &Cancel) -> Vec<KubeEvent> {
        let pod: Vec<&str> = self.pod.iter().map(|pod| pod.pod.as_str()).collect();
        self.made.events(&pod, cancel)
    }

    /// The last warnings among them.
    #[must_use]
    pub fn warnings(&self, cancel: &Cancel) -> Vec<String> {
        let events = self.events(cancel);
        // Of every pod of a cluster without DNS.
        let tells = |event: &&KubeEvent| event.is_warning && event.reason != "MissingClusterDNS";
        let warnings = events.iter().filter(tells);
        let mut said: Vec<String> =
            warnings.map(|event| format!("{}: {}", event.reason, event.message)).collect();
        said.dedup();
        said.split_off(said.len().saturating_sub(3))
    }

    /// What comes of `ask`, which is asked again while the API server is away: the study
    /// goes on without it. A pod that has come to its end is told as that.
    fn patiently<T>(
        &self,
        cancel: &Cancel,
        mut ask: impl FnMut(&Session, &PodExec) -> Result<T, ClusterFailure>,
    ) -> Result<T, NodeFailure> {
        let Some(pod) = &self.pod else { return Err(NodeFailure::Ended("not yet".to_owned())) };
        loop {
            match ask(&self.made.session, pod) {
                Ok(value) => {
                    self.last_answer.set(Instant::now());
                    return Ok(value);
                }
                Err(ClusterFailure::NoAnswer(_)) if self.is_patient() => {
                    // What became of the pod tells more.
                    match self.ended(cancel) {
                        Ok(Some(failure)) => return Err(failure),
                        Ok(None) => {}
                        Err(ClusterFailure::NoAnswer(_)) if self.is_patient() => {}
                        Err(failure) => return Err(failure.into()),
                    }
                    let pause = Duration::from_secs(1);
                    let waited =
                        self.made.session.wait(Instant::now() + pause, cancel, tokio_sleep(pause));
                    waited.map_err(ClusterFailure::from)?;
                }
                Err(ClusterFailure::Refused(Refusal::Gone)) => {
                    return Err(self.ended(cancel)?.unwrap_or(NodeFailure::Deleted));
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    fn is_patient(&self) -> bool {
        self.last_answer.get().elapsed() < MOST_SILENCE
    }

    /// What became of the pod, if it has come to its end.
    fn ended(&self, cancel: &Cancel) -> Result<Option<NodeFailure>, ClusterFailure> {
        let Some(job) = self.made.read(cancel)? else { return Ok(Some(NodeFailure::Deleted)) };
        if let Some(failure) = job_failure(&job) {
            return Ok(Some(failure));
        }
        Ok(match stage(&self.made.pods(cancel)?) {
            PodStage::Failed(failure) => Some(failure),
            PodStage::Absent => Some(NodeFailure::Deleted),
            PodStage::Waits { .. } | PodStage::Runs(_) => None,
        })
    }

    /// Whether the pod still runs.
    ///
    /// # Errors
    /// What became of it.
    pub fn check_running(&self, cancel: &Cancel) -> Result<(), NodeFailure> {
        match self.ended(cancel) {
            Ok(Some(failure)) => Err(failure),
            Ok(None) => Ok(()),
            Err(ClusterFailure::NoAnswer(_)) if self.is_patient() => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Puts a file into the pod.
    ///
    /// # Errors
    /// It can't be read here, or does not arrive.
    pub fn put(&self, file: &NodeFile, cancel: &Cancel) -> Result<(), NodeFailure> {
        let unread = |error: std::io::Error| NodeFailure::File {
            file: file.here.display().to_string(),
            reason: error.to_string(),
        };
        let mut from = std::fs::File::open(&file.here).map_err(unread)?;
        let size = from.metadata().map_err(unread)?.len();
        self.put_from(&mut from, size, &file.there, cancel)
    }

    /// Puts a text into the pod.
    ///
    /// # Errors
    /// It does not arrive.
    pub fn put_text(&self, text: &str, there: &str, cancel: &Cancel) -> Result<(), NodeFailure> {
        let mut from = std::io::Cursor::new(text.as_bytes());
        self.put_from(&mut from, text.len() as u64, there, cancel)
    }

    fn put_from(
        &self,
        from: &mut (impl std::io::Read + std::io::Seek),
        size: u64,
        there: &str,
        cancel: &Cancel,
    ) -> Result<(), NodeFailure> {
        let (mut offset, mut most) = (0, PUT_PIECE_BYTES);
        loop {
            let given = self.patiently(cancel, |session, pod| {
                let piece = most.min(size - offset);
                most = (piece / 2).max(LEAST_PUT_PIECE_BYTES);
                let [at, bytes, all] = [offset, piece, size].map(|number| number.to_string());
                let command = ["sh", "-c", PUT, "sh", WORK, there, &at, &bytes, &all];
                let unread = |error: std::io::Error| ClusterFailure::NoAnswer(error.to_string());
                from.seek(SeekFrom::Start(offset)).map_err(unread)?;
                let mut from = from.by_ref().take(piece);
                let until = Instant::now() + MOST_SILENCE;
                let given = pod.give(session, &command, &mut from, piece);
                let printed = match session.wait(until, cancel, given)? {
                    Some(Ok(printed)) => printed,
                    Some(Err(failure)) => return Err(self.of_exec(failure)),
                    None => return Err(ClusterFailure::NoAnswer("it takes too long".to_owned())),
                };
                match printed.trim() {
                    "whole" => Ok(piece),
                    said => Err(ClusterFailure::NoAnswer(format!("{there}: {said:?}"))),
                }
            })?;
            most = given.max(LEAST_PUT_PIECE_BYTES);
            offset += given;
            if offset == size {
                return Ok(());
            }
        }
    }

    /// A connection that breaks is one that may be had again.
    fn of_exec(&self, failure: RequestFailure) -> ClusterFailure {
        match failure {
            RequestFailure::Unreachable(said) | RequestFailure::Other(said) => {
                ClusterFailure::NoAnswer(said)
            }
            failure => self.made.refused("exec", failure),
        }
    }

    /// What a file below [`WORK`] has from `offset` on, some mebibytes at most; `None`
    /// where there is no such file.
    ///
    /// # Errors
    /// The pod does not tell.
    pub fn read(
        &self,
        name: &str,
        offset: u64,
        cancel: &Cancel,
    ) -> Result<Option<Vec<u8>>, NodeFailure> {
        let request = format!("{offset} {MOST_PIECE_BYTES} {name}");
        self.patiently(cancel, |session, pod| {
            let what = "for a file of a pod";
            let answer = session.ask(what, cancel, || self.request(session, pod, &request))?;
            let LoopAnswer { status, text } = answer.map_err(|failure| self.of_exec(failure))?;
            Ok(text.filter(|_| status == 0))
        })
    }

    /// All of a file; `None` where there is none.
    ///
    /// # Errors
    /// The pod does not tell, or tells more than 256 MiB.
    pub fn read_whole(&self, name: &str, cancel: &Cancel) -> Result<Option<Vec<u8>>, NodeFailure> {
        let mut whole = Vec::new();
        loop {
            let Some(piece) = self.read(name, whole.len() as u64, cancel)? else {
                return Ok(None);
            };
            let is_last = (piece.len() as u64) < MOST_PIECE_BYTES;
            whole.extend(piece);
            if whole.len() as u64 > MOST_WHOLE_BYTES {
                return Err(NodeFailure::TooLarge { file: name.to_owned() });
            }
            if is_last {
                return Ok(Some(whole));
            }
        }
    }

    /// One request over the connection that there is, or a new one.
    async fn request(
        &self,
        session: &Session,
        pod: &PodExec,
        request: &str,
    ) -> Result<LoopAnswer, RequestFailure> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => pod.answer(session, &["sh", "-c", SERVE, "sh", WORK]).await?,
        };
        let number = self.number.get() + 1;
        self.number.set(number);
        let most = usize::try_from(MOST_PIECE_BYTES).unwrap_or(usize::MAX);
        let answer = open.ask(number, request, most).await?;
        self.open.set(Some(open));
        Ok(answer)
    }

    /// Waits a moment; the connection is served meanwhile.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn pause(&self, time: Duration, cancel: &Cancel) -> Result<(), NodeFailure> {
        let until = Instant::now() + time;
        let waited = self.made.session.wait(until, cancel, tokio_sleep(time));
        waited.map_err(ClusterFailure::from)?;
        Ok(())
    }

    /// Deletes the Job and waits until it and its pod are gone.
    ///
    /// # Errors
    /// Why something of it may be left.
    pub fn delete(&mut self) -> Result<(), String> {
        self.open.set(None);
        self.made.delete()
    }
}

/// Where a pod is on its way.
#[derive(Debug, PartialEq)]
enum PodStage {
    /// There is none.
    Absent,
    /// It is not up yet, and why.
    Waits { scheduled: bool, why: String },
    /// Its container runs; the pod's name.
    Runs(String),
    /// It will not, or no more.
    Failed(NodeFailure),
}

/// Reasons of a container that waits which no waiting mends.
const NO_IMAGE: [&str; 4] =
    ["ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ErrImageNotFound"];

/// Reasons of a pod that failed for which its node, or who drains it, is answerable.
const OFF_ITS_NODE: [&str; 6] =
    ["Evicted", "Preempting", "NodeLost", "NodeShutdown", "Terminated", "Shutdown"];

fn stage(pods: &[Value]) -> PodStage {
    let Some(pod) = pods.first() else { return PodStage::Absent };
    let conditions = || pod.pointer("/status/conditions").and_then(Value::as_array);
    let condition = |kind: &str| {
        let mut all = conditions().into_iter().flatten();
        all.find(|one| one["type"] == kind)
    };
    let why = |object: &Value| {
        let (reason, message) = (text_at(object, "/reason"), text_at(object, "/message"));
        match (reason, message) {
            ("", why) | (why, "") => why.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        }
    };
    if let Some(disrupted) = condition("DisruptionTarget").filter(|one| one["status"] == "True") {
        return PodStage::Failed(NodeFailure::Evicted(why(disrupted)));
    }
    let status = &pod["status"];
    let container = &status["containerStatuses"][0]["state"];
    match text_at(pod, "/status/phase") {
        "Failed" if text_at(status, "/reason") == "DeadlineExceeded" => {
            return PodStage::Failed(NodeFailure::Deadline(why(status)));
        }
        "Failed" if OFF_ITS_NODE.contains(&text_at(status, "/reason")) => {
            return PodStage::Failed(NodeFailure::Evicted(why(status)));
        }
        "Failed" | "Succeeded" => {
            let ended = &container["terminated"];
            let mut said = why(status);
            if let Some(code) = ended["exitCode"].as_i64() {
                let more = why(ended);
                said += &format!("{}exit code {code}", if said.is_empty() { "" } else { "; " });
                said += &if more.is_empty() { String::new() } else { format!(" ({more})") };
            }
            return PodStage::Failed(NodeFailure::Ended(said));
        }
        _ if pod.pointer("/metadata/deletionTimestamp").is_some() => {
            return PodStage::Failed(NodeFailure::Deleted);
        }
        _ => {}
    }
    if container["running"].is_object() {
        return PodStage::Runs(text_at(pod, "/metadata/name").to_owned());
    }
    let waiting = &container["waiting"];
    if NO_IMAGE.contains(&text_at(waiting, "/reason")) {
        return PodStage::Failed(NodeFailure::Image(why(waiting)));
    }
    let scheduled = condition("PodScheduled");
    let is_scheduled = scheduled.is_some_and(|one| one["status"] == "True");
    let why = match scheduled {
        Some(not) if !is_scheduled => why(not),
        _ => why(waiting),
    };
    PodStage::Waits { scheduled: is_scheduled, why }
}

/// Why a Job has failed as a whole.
fn job_failure(job: &Value) -> Option<NodeFailure> {
    let conditions = job.pointer("/status/conditions").and_then(Value::as_array);
    let mut failed = conditions.into_iter().flatten().filter(|one| {
        one["status"] == "True" && (one["type"] == "Failed" || one["type"] == "FailureTarget")
    });
    let failed = failed.find(|one| one["reason"] == "DeadlineExceeded")?;
    Some(NodeFailure::Deadline(text_at(failed, "/message").to_owned()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Vec<Value> {
        vec![json!({ "metadata": { "name": "it" }, "status": status })]
    }

    fn waiting(reason: &str) -> Value {
        let state = json!({ "waiting": { "reason": reason, "message": "said" } });
        json!({ "phase": "Pending", "containerStatuses": [{ "state": state }] })
    }

    #[test]
    fn a_file_arrives_in_pieces_whatever_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2500_u32).map(|at| (at % 251) as u8).collect();
        let put = |offset: usize, given: &[u8], length: usize| {
            let place = folder.path().to_str().unwrap();
            let numbers = [offset, length, bytes.len()].map(|number| number.to_string());
            let mut shell = Command::new("sh");
            shell.args(["-c", PUT, "sh", place, "a/b"]).args(numbers);
            let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            shell.stdin.take().unwrap().write_all(given).unwrap();
            let output = shell.wait_with_output().unwrap();
            output.stdout == b"whole\n"
        };
        let there = || std::fs::read(folder.path().join("a/b")).ok();
        assert!(put(0, &bytes[..1000], 1000));
        // It breaks in the middle, and an answer is lost: what came is given again.
        assert!(!put(1000, &bytes[1000..1100], 1000));
        assert!(put(1000, &bytes[1000..2000], 1000));
        assert!(put(1000, &bytes[1000..2000], 1000));
        assert!(!put(2400, &bytes[2400..], 100), "there is a hole before it");
        assert_eq!(there(), None);
        assert!(put(2000, &bytes[2000..], 500));
        assert_eq!(there().as_ref(), Some(&bytes));
        assert!(put(2000, &bytes[2000..], 500));
        assert_eq!(there(), Some(bytes.clone()));
        let names = std::fs::read_dir(folder.path().join("a")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["b"], "nothing of a piece that broke stays");
    }

    #[test]
    fn a_pod_comes_up_or_says_why_not() {
        assert_eq!(stage(&[]), PodStage::Absent);
        let unschedulable = json!({ "phase": "Pending", "conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }] });
        let why = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.".to_owned();
        assert_eq!(stage(&pod(unschedulable)), PodStage::Waits { scheduled: false, why });
        let running = json!({ "phase": "Running", "containerStatuses": [{
            "state": { "running": { "startedAt": "2026-01-02T03:04:05Z" } },
        }] });
        assert_eq!(stage(&pod(running.clone())), PodStage::Runs("it".to_owned()));
        // A pull that fails once is tried again.
        assert!(matches!(stage(&pod(waiting("ErrImagePull"))), PodStage::Waits { .. }));
        let failed = |pods: &[Value]| match stage(pods) {
            PodStage::Failed(failure) => failure,
            other => panic!("{other:?}"),
        };
        for reason in ["ImagePullBackOff", "ErrImageNeverPull"] {
            let said = format!("{reason}: said");
            assert_eq!(failed(&pod(waiting(reason))), NodeFailure::Image(said));
        }
        let evicted = json!({ "phase": "Failed", "reason": "Evicted", "message": "low on disk" });
        assert_eq!(failed(&pod(evicted)).kind(), "evicted");
        let mut drained = running.clone();
        drained["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        }]);
        assert_eq!(failed(&pod(drained)).kind(), "evicted");
        let mut deleted = pod(running);
        deleted[0]["metadata"]["deletionTimestamp"] = json!("2026-01-02T03:04:05Z");
        assert_eq!(failed(&deleted), NodeFailure::Deleted);
        let killed = json!({ "phase": "Failed", "containerStatuses": [{
            "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } },
        }] });
        let said = "exit code 137 (OOMKilled)".to_owned();
        assert_eq!(failed(&pod(killed)), NodeFailure::Ended(said));
        let late = json!({ "phase": "Failed", "reason": "DeadlineExceeded", "message": "" });
        assert_eq!(failed(&pod(late)).kind(), "deadline");
    }

    #[test]
    fn a_job_beyond_its_limit_is_told() {
        let job = json!({ "status": { "conditions": [{
            "type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "late",
        }] } });
        assert_eq!(job_failure(&job), Some(NodeFailure::Deadline("late".to_owned())));
        assert_eq!(job_failure(&json!({ "status": {} })), None);
    }
}
