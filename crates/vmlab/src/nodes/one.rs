//! One node's way through a study.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use ::cluster::{ClusterFailure, ClusterTarget, JobSpec, NodeFailure, NodeFile, NodeRun};
use anyhow::{Context as _, bail};
use guest::Cancel;
use record::journal::{self, JournalEvent};
use runner::node_set::{NodeEntry, NodeState};
use runner::plan::StudyPlan;
use runner::store::{Store, TrialSink as _, texts};

use crate::terminal;

/// The results folder in a pod.
pub(super) const RESULTS: &str = "results";

/// Between two looks at what a node has measured.
const LOOK: Duration = Duration::from_secs(1);

/// So often it is looked whether the pod is well, in looks at its files.
const LOOKS_A_CHECK: u32 = 15;

/// The longest line of a journal, bytes: what more is there is none.
const LONGEST_LINE_BYTES: usize = 64 << 20;

/// Lines of a pod's last words that are told.
const LAST_WORDS: usize = 4;

/// What is to be done on a node.
pub(super) struct NodeTask {
    /// Its place in the list.
    pub(super) number: usize,
    pub(super) job: JobSpec,
    pub(super) namespace: String,
    pub(super) start_s: u64,
    /// The study's text.
    pub(super) study: String,
    /// Where its file is to be in the pod.
    pub(super) there: String,
    pub(super) files: Vec<NodeFile>,
    /// Where its results go.
    pub(super) folder: PathBuf,
}

/// Something that happened with a node.
pub(super) enum NodeNews {
    /// It goes on.
    Step { number: usize, text: String },
    /// How many trials have ended there, of at most how many.
    Trials { number: usize, done: u64, of: Option<u64> },
    /// It has ended.
    Ended { number: usize, end: Box<NodeEntry> },
}

impl NodeNews {
    pub(super) fn number(&self) -> usize {
        match self {
            Self::Step { number, .. }
            | Self::Trials { number, .. }
            | Self::Ended { number, .. } => *number,
        }
    }

    /// Changes the list's entry; false if that stays as it was.
    pub(super) fn change(&self, entry: &mut NodeEntry) -> bool {
        match self {
            Self::Ended { end, .. } => {
                let named = NodeEntry {
                    name: entry.name.clone(),
                    class: entry.class.clone(),
                    folder: entry.folder.clone(),
                    ..NodeEntry::clone(end)
                };
                *entry = named;
                true
            }
            _ => std::mem::replace(&mut entry.state, NodeState::Running) != NodeState::Running,
        }
    }
}

/// Why a node did not finish.
enum UnfinishedNode {
    /// The cluster, or the pod.
    Node(NodeFailure),
    /// The study, in its own vmlab's words.
    Study(String),
    /// Something here.
    Here(anyhow::Error),
}

impl From<NodeFailure> for UnfinishedNode {
    fn from(failure: NodeFailure) -> Self {
        Self::Node(failure)
    }
}

impl From<anyhow::Error> for UnfinishedNode {
    fn from(error: anyhow::Error) -> Self {
        Self::Here(error)
    }
}

/// Runs the study on a node, and tells how it goes.
pub(super) fn follow(
    target: &ClusterTarget,
    task: &NodeTask,
    tell: &Sender<NodeNews>,
    cancel: &Cancel,
) {
    let number = task.number;
    // Nobody who listens is nobody to tell.
    let say = |news: NodeNews| drop(tell.send(news));
    let mut end = NodeEntry::new("", None);
    say(NodeNews::Step { number, text: format!("creating Job {}", task.job.name) });
    let ended = match NodeRun::create(target, &task.namespace, &task.job, cancel) {
        Ok(mut run) => {
            let ended = on_node(&mut run, task, &say, cancel);
            end.phases_s = run.phases_s();
            if ended.is_err() && !cancel.is_cancelled() {
                end.warnings = run.warnings(cancel);
            }
            end.left = run.delete().err();
            ended
        }
        Err(failure) => Err(failure.into()),
    };
    end.state = NodeState::Failed;
    let (kind, reason) = match ended {
        Ok(()) => {
            end.state = NodeState::Complete;
            (None, None)
        }
        Err(UnfinishedNode::Node(NodeFailure::Cluster(ClusterFailure::Cancelled))) => {
            end.state = NodeState::Interrupted;
            (None, None)
        }
        Err(UnfinishedNode::Node(failure)) => (Some(failure.kind()), Some(failure.to_string())),
        Err(UnfinishedNode::Study(said)) => (Some("study"), Some(said)),
        Err(UnfinishedNode::Here(error)) => (Some("here"), Some(terminal::error_text(&error))),
    };
    end.kind = kind.map(str::to_owned);
    end.reason = reason;
    say(NodeNews::Ended { number, end: Box::new(end) });
}

fn on_node(
    run: &mut NodeRun,
    task: &NodeTask,
    say: &impl Fn(NodeNews),
    cancel: &Cancel,
) -> Result<(), UnfinishedNode> {
    let number = task.number;
    let step = |text: &str| say(NodeNews::Step { number, text: text.to_owned() });
    run.wait_running(Duration::from_secs(task.start_s), cancel)?;
    step("its pod runs");
    for file in &task.files {
        step(&format!("copying {}", file.there));
        run.put(file, cancel)?;
    }
    run.put_text(&task.study, &task.there, cancel)?;
    run.put_text("", "go", cancel)?;
    step("the study begins");
    let mut kept =
        FetchedResults { task, store: None, offset: 0, line: Vec::new(), done: 0, of: None };
    let mut looks = 0;
    loop {
        // First, as the pod writes it last.
        let code = run.read_whole("code", cancel)?;
        kept.take(run, say, cancel)?;
        if let Some(code) = code {
            return finish(run, &kept, &String::from_utf8_lossy(&code), cancel);
        }
        looks += 1;
        if looks % LOOKS_A_CHECK == 0 {
            run.check_running(cancel)?;
        }
        run.pause(LOOK, cancel)?;
    }
}

/// The study in the pod has ended.
fn finish(
    run: &NodeRun,
    kept: &FetchedResults<'_>,
    code: &str,
    cancel: &Cancel,
) -> Result<(), UnfinishedNode> {
    let has_ended = matches!(code.trim(), "0" | "1" | "3") && kept.store.is_some();
    let said = match has_ended {
        true => String::new(),
        false => {
            let words = run.read_whole("errors", cancel)?.unwrap_or_default();
            last_words(&String::from_utf8_lossy(&words), code.trim())
        }
    };
    run.put_text("", "collected", cancel)?;
    if has_ended { Ok(()) } else { Err(UnfinishedNode::Study(said)) }
}

/// What is told of what vmlab in the pod said on standard error.
fn last_words(errors: &str, code: &str) -> String {
    let lines: Vec<&str> = errors.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    match last.is_empty() {
        true => format!("vmlab in its pod ended with code {code}"),
        false => format!("vmlab in its pod ended with code {code}: {}", last.join("; ")),
    }
}

/// The part of a node's results that was fetched already.
struct FetchedResults<'a> {
    task: &'a NodeTask,
    store: Option<Store>,
    /// Bytes of the journal that have come.
    offset: u64,
    /// Of these, what is no whole line yet.
    line: Vec<u8>,
    done: u64,
    of: Option<u64>,
}

impl FetchedResults<'_> {
    /// Takes what the node has measured since.
    fn take(
        &mut self,
        run: &NodeRun,
        say: &impl Fn(NodeNews),
        cancel: &Cancel,
    ) -> Result<(), UnfinishedNode> {
        if self.store.is_none() && !self.begin(run, cancel)? {
            return Ok(());
        }
        loop {
            let name = format!("{RESULTS}/journal.jsonl");
            let piece = run.read(&name, self.offset, cancel)?.unwrap_or_default();
            if piece.is_empty() {
                return Ok(());
            }
            self.offset += piece.len() as u64;
            for byte in piece {
                if byte != b'\n' {
                    self.line.push(byte);
                    continue;
                }
                let line = std::mem::take(&mut self.line);
                self.keep(&line, run, say, cancel)?;
            }
            if self.line.len() > LONGEST_LINE_BYTES {
                return Err(anyhow::anyhow!("A line of the node's journal has no end").into());
            }
        }
    }

    /// Makes the folder, when the plan is there.
    fn begin(&mut self, run: &NodeRun, cancel: &Cancel) -> Result<bool, UnfinishedNode> {
        let read = |name: &str| run.read_whole(&format!("{RESULTS}/{name}"), cancel);
        // Whoever writes them writes the plan last.
        let Some(plan) = read("plan.json")? else { return Ok(false) };
        let host = read("host.json")?.unwrap_or_default();
        let plan = StudyPlan::from_json(&plan)
            .context("The plan that the node made can't be read: is its vmlab another version?")?;
        let host = serde_json::from_slice(&host)
            .context("The node's description of itself can't be read")?;
        let trials = |blocks: u32| u64::from(blocks) * u64::from(plan.trials_per_block());
        self.of = plan.total_blocks().map(trials);
        let made = Store::create(&self.task.folder, &plan, &host).map_err(anyhow::Error::from)?;
        self.store = Some(made);
        Ok(true)
    }

    /// Keeps a line of the journal, behind the texts that it names.
    fn keep(
        &mut self,
        line: &[u8],
        run: &NodeRun,
        say: &impl Fn(NodeNews),
        cancel: &Cancel,
    ) -> Result<(), UnfinishedNode> {
        let event = journal::decode(line).context("A line did not arrive whole")?.event;
        let Some(store) = &mut self.store else { return Ok(()) };
        if let JournalEvent::TrialEnded(result) = &event {
            for name in texts(result) {
                let path = format!("{RESULTS}/blobs/{name}");
                let text = run.read_whole(&path, cancel)?.unwrap_or_default();
                check_whole(name, &store.keep(&text).map_err(anyhow::Error::from)?)?;
            }
            self.done += 1;
            let number = self.task.number;
            say(NodeNews::Trials { number, done: self.done, of: self.of });
        }
        store.append(&event).map_err(anyhow::Error::from)?;
        Ok(())
    }
}

/// A text's name is its hash.
fn check_whole(named: &str, kept: &str) -> anyhow::Result<()> {
    if named != kept {
        bail!("A text did not arrive whole ({named})");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_few() {
        assert_eq!(last_words("\n\n", "2"), "vmlab in its pod ended with code 2");
        let many = "a\nb\n\nc\nd\ne\n";
        assert_eq!(last_words(many, "2"), "vmlab in its pod ended with code 2: b; c; d; e");
    }

    #[test]
    fn an_end_keeps_the_name() {
        let mut entry = NodeEntry::new("one", Some("big".to_owned()));
        let step = NodeNews::Step { number: 0, text: String::new() };
        assert!(step.change(&mut entry) && !step.change(&mut entry));
        let mut end = NodeEntry::new("", None);
        end.state = NodeState::Complete;
        assert!(NodeNews::Ended { number: 0, end: Box::new(end) }.change(&mut entry));
        assert_eq!((&*entry.name, &*entry.folder), ("one", "nodes/one"));
        assert_eq!((entry.state, entry.class.as_deref()), (NodeState::Complete, Some("big")));
    }
}
