//! `--on k8s`: a study on the nodes of a cluster, each for itself.
//!
//! Each node gets a Job whose pod runs the whole study; what is measured comes here as it
//! is measured, into an ordinary results folder a node. The list of nodes lies beside them
//! (`nodes.json`) and is written anew whenever a node begins or ends.

mod one;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use ::cluster::{
    ClusterNode, ClusterTarget, JobSpec, MACHINE_ANNOTATION, MANAGED_BY, MarkedKind, NodeFile,
    NodesSurvey, OWNER_ANNOTATION, RUN_LABEL, manifest, survey_nodes,
};
use anyhow::bail;
use guest::Cancel;
use guest::image;
use host::owner::{self, Owner, RuntimeDir};
use runner::machine;
use runner::node_set::{self, NODE_SET_VERSION, NodeEntry, NodeSet, NodeState};
use runner::study::Study;
use serde_json::{Value, json};
use vmconfig::Arch;

use crate::kubernetes::left::{RunInCluster, machine_name};
use crate::kubernetes::named_cluster;
use crate::on::files::{StudyImages, builtin_images, image_files};
use crate::on::node_args::NodeSelection;
use crate::progress::Spinner;
use crate::study_file::{BudgetArgs, StudyText};
use crate::terminal;
use one::{NodeNews, NodeTask, RESULTS, follow};

/// The label of nodes by their machine type, as clouds set it.
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// Digits of a run's id in the names of its Jobs.
const RUN_CHARS: usize = 10;

/// A cluster that answers, and its nodes that are to run the study.
pub(crate) struct ReachedNodes {
    target: ClusterTarget,
    survey: NodesSurvey,
    asked: NodeSelection,
    /// The label of the classes, where nodes have it.
    class_label: Option<String>,
    owner: Owner,
}

/// Looks at the cluster that `--on` names, and chooses the nodes.
///
/// # Errors
/// Why no study can run there.
pub(crate) fn reach(
    (cluster, kubeconfig): (Option<&str>, Option<&Path>),
    asked: NodeSelection,
) -> anyhow::Result<ReachedNodes> {
    let spinner = Spinner::start();
    spinner.say("looking at the cluster");
    let look = |target: &ClusterTarget| survey_nodes(target, asked.selector.as_deref());
    let (mut target, mut survey) = named_cluster(kubeconfig, cluster, look)?;
    target.namespace = Some(survey.namespace.clone());
    if let Some(label) = &asked.one_per {
        let mut seen = BTreeSet::new();
        survey.nodes.retain(|node| match node.offer.labels.get(label) {
            Some(class) => seen.insert(class.clone()),
            None => false,
        });
        if survey.nodes.is_empty() {
            bail!("--one-per {label}: no node that takes pods has this label");
        }
    }
    let has = |label: &str| survey.nodes.iter().any(|it| it.offer.labels.contains_key(label));
    if let Some(label) = asked.class.as_ref().filter(|label| !has(label)) {
        bail!("--node-class {label}: no node that takes pods has this label");
    }
    let default = || Some(INSTANCE_TYPE.to_owned()).filter(|label| has(label));
    let class_label = asked.one_per.clone().or_else(|| asked.class.clone()).or_else(default);
    let started = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos());
    let id = blake3::hash(format!("{started} {}", std::process::id()).as_bytes()).to_hex();
    let owner = Owner::current(&id[..16])?;
    Ok(ReachedNodes { target, survey, asked, class_label, owner })
}

/// How the nodes of a study ended.
pub(crate) struct NodesEnd {
    pub(crate) dir: PathBuf,
    pub(crate) interrupted: bool,
}

impl ReachedNodes {
    /// The Jobs that a run would create, as a List for `kubectl`.
    ///
    /// # Errors
    /// The study can't be read.
    pub(crate) fn jobs(&self, written: &StudyText, budget: &BudgetArgs) -> anyhow::Result<Value> {
        written.parse(budget)?;
        let nodes = self.survey.nodes.iter().enumerate();
        let job =
            |(number, node)| Ok(manifest(&self.job(number, node, &there(written), budget)?));
        let items = nodes.map(job);
        let items: Vec<Value> = items.collect::<anyhow::Result<_>>()?;
        Ok(json!({ "apiVersion": "v1", "kind": "List", "items": items }))
    }

    fn job(
        &self,
        number: usize,
        node: &ClusterNode,
        study: &str,
        budget: &BudgetArgs,
    ) -> anyhow::Result<JobSpec> {
        let run: String = self.owner.run_id.chars().take(RUN_CHARS).collect();
        let words = ["vmlab", "run", study, "--out", RESULTS, "--verbose"];
        let mut command: Vec<String> = words.into_iter().map(str::to_owned).collect();
        command.extend(budget.words());
        let pair = |name: &str, value: String| (name.to_owned(), value);
        Ok(JobSpec {
            name: format!("vmlab-{run}-{number}"),
            node: node.offer.name.clone(),
            image: self.asked.image.clone(),
            kvm: self.asked.kvm.clone(),
            privileged: self.asked.privileged,
            cpus: self.asked.cpus.clone(),
            memory: self.asked.memory.clone(),
            queue: self.asked.queue.clone(),
            limit_s: self.asked.limit_s,
            labels: vec![
                pair(MANAGED_BY.0, MANAGED_BY.1.to_owned()),
                pair(RUN_LABEL, self.owner.run_id.clone()),
            ],
            annotations: vec![
                pair(OWNER_ANNOTATION, serde_json::to_string(&self.owner)?),
                pair(MACHINE_ANNOTATION, machine_name()),
            ],
            command,
        })
    }

    /// Runs the study on all nodes; results go into `out`.
    ///
    /// # Errors
    /// Nothing can be begun: the study, the folder. What goes wrong on a node is in the
    /// list.
    pub(crate) fn run(
        &self,
        written: &StudyText,
        budget: &BudgetArgs,
        out: Option<&Path>,
        verbose: bool,
        cancel: &Cancel,
    ) -> anyhow::Result<NodesEnd> {
        let study = written.parse(budget)?;
        let beside = beside(written, &study)?;
        let name = Path::new(&written.file).file_stem().unwrap_or_default().to_string_lossy();
        let default = || PathBuf::from(format!("results/{name}-{}", machine::timestamp()));
        let dir = out.map_or_else(default, Path::to_owned);
        node_set::create(&dir)?;
        let class = |node: &ClusterNode| {
            let label = self.class_label.as_ref()?;
            node.offer.labels.get(label).cloned()
        };
        let entry = |node: &ClusterNode| NodeEntry::new(&node.offer.name, class(node));
        let set = NodeSet {
            version: NODE_SET_VERSION,
            vmlab: env!("CARGO_PKG_VERSION").to_owned(),
            study: study.title.clone(),
            server: self.survey.server.clone(),
            namespace: self.survey.namespace.clone(),
            image: self.asked.image.clone(),
            class_label: self.class_label.clone(),
            started_unix_s: runner::unix_s(),
            nodes: self.survey.nodes.iter().map(entry).collect(),
        };
        set.write(&dir)?;
        let (mut tasks, mut images) = (VecDeque::new(), Vec::new());
        for (number, node) in self.survey.nodes.iter().enumerate() {
            let mut files = beside.clone();
            let arch = arch_of(&study, node);
            if !images.iter().any(|(known, _)| *known == arch) {
                images.push((arch, built(written, &study, arch)?));
            }
            let of_arch = images.iter().filter(|(known, _)| *known == arch);
            files.extend(of_arch.flat_map(|(_, files)| files.clone()));
            tasks.push_back(NodeTask {
                number,
                job: self.job(number, node, &there(written), budget)?,
                namespace: self.survey.namespace.clone(),
                start_s: self.asked.start_s,
                study: written.text.clone(),
                there: there(written),
                files,
                folder: NodeSet::folder(&dir, &set.nodes[number])?,
            });
        }
        for (node, why) in &self.survey.closed {
            let why: Vec<String> = why.iter().map(ToString::to_string).collect();
            terminal::note(&format!("vmlab: node {node} is left out: {}", why.join("; ")));
        }
        let marker = LeftMarker::new(&self.target, &self.owner)?;
        let set = self.follow_all(set, tasks, &dir, verbose, cancel)?;
        let left = set.nodes.iter().any(|node| node.left.is_some());
        marker.end(left);
        let is_interrupted = |node: &NodeEntry| node.state == NodeState::Interrupted;
        Ok(NodesEnd { dir, interrupted: set.nodes.iter().any(is_interrupted) })
    }

    /// Has so many nodes at a time run, and keeps the list of them.
    fn follow_all(
        &self,
        mut set: NodeSet,
        tasks: VecDeque<NodeTask>,
        dir: &Path,
        verbose: bool,
        cancel: &Cancel,
    ) -> anyhow::Result<NodeSet> {
        let count = tasks.len();
        let parallel = self.asked.parallel.map_or(count, |most| (most as usize).min(count));
        let tasks = Mutex::new(tasks);
        let (tell, news) = channel::<NodeNews>();
        let mut progress = NodesProgress::start(verbose);
        std::thread::scope(|scope| {
            for _ in 0..parallel {
                let (tell, tasks) = (tell.clone(), &tasks);
                scope.spawn(move || work(&self.target, tasks, &tell, cancel));
            }
            drop(tell);
            for one in news {
                let number = one.number();
                let changed = one.change(&mut set.nodes[number]);
                progress.show(&set, &one);
                if changed && let Err(error) = set.write(dir) {
                    // The others go on; the list is written again with the next change.
                    progress.note(&terminal::error_text(&error.into()));
                }
            }
        });
        // Those that had no turn.
        for node in set.nodes.iter_mut().filter(|node| node.state == NodeState::Waiting) {
            node.state = NodeState::Interrupted;
        }
        set.write(dir)?;
        Ok(set)
    }
}

/// Takes nodes until there are none.
fn work(
    target: &ClusterTarget,
    tasks: &Mutex<VecDeque<NodeTask>>,
    tell: &Sender<NodeNews>,
    cancel: &Cancel,
) {
    while !cancel.is_cancelled() {
        let next = tasks.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(task) = next else { return };
        follow(target, &task, tell, cancel);
    }
}

/// Where the study's file is in a pod: a study is called as its file.
fn there(written: &StudyText) -> String {
    let name = Path::new(&written.file).file_name().unwrap_or_default().to_string_lossy();
    format!("study/{}", if name.is_empty() { "study.toml" } else { &*name })
}

/// The disk images, and packages of kernels, that lie beside the study.
fn beside(written: &StudyText, study: &Study) -> anyhow::Result<Vec<NodeFile>> {
    // What can't go over is an error.
    StudyImages::of(written, study)?;
    let files = image_files(study).into_iter().filter(|path| !path.is_absolute());
    let file = |path: PathBuf| NodeFile {
        here: written.folder.join(&path),
        there: Path::new("study").join(&path).display().to_string(),
    };
    Ok(files.map(file).collect())
}

/// The built images that the study boots and that are here: a node without a way to
/// Debian's mirror need not build them.
fn built(written: &StudyText, study: &Study, arch: Arch) -> anyhow::Result<Vec<NodeFile>> {
    let mut files = BTreeMap::new();
    for recipe in builtin_images(study, &written.folder, arch)? {
        let Some(built) = image::find(&recipe) else { continue };
        let folder = built.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entries = std::fs::read_dir(&built.folder).into_iter().flatten().flatten();
        for here in entries.map(|entry| entry.path()).filter(|path| path.is_file()) {
            let name = here.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.insert(format!("cache/vmlab/images/{folder}/{name}"), here);
        }
    }
    // An image is one when its manifest is there, which therefore comes last.
    let mut files: Vec<NodeFile> =
        files.into_iter().map(|(there, here)| NodeFile { here, there }).collect();
    files.sort_by_key(|file| file.there.ends_with("manifest.json"));
    Ok(files)
}

/// The architecture of the study's guests on a node.
fn arch_of(study: &Study, node: &ClusterNode) -> Arch {
    let label = node.offer.labels.get("kubernetes.io/arch").map(String::as_str);
    study.arch.unwrap_or(match label {
        Some("arm64") => Arch::Aarch64,
        _ => Arch::X86_64,
    })
}

/// Says to `vmlab clean` where the Jobs of a killed run are.
struct LeftMarker(RuntimeDir);

impl LeftMarker {
    fn new(target: &ClusterTarget, owner: &Owner) -> anyhow::Result<Self> {
        let runtime = owner::runtime_dir(owner)?;
        RunInCluster::new(target, owner, MarkedKind::Job).write(runtime.path())?;
        Ok(Self(runtime))
    }

    /// What may be left is found by `vmlab clean`.
    fn end(self, left: bool) {
        if left {
            std::mem::forget(self.0);
        }
    }
}

/// Shows how far all nodes are.
struct NodesProgress {
    spinner: Spinner,
    verbose: bool,
    trials: BTreeMap<usize, (u64, Option<u64>)>,
}

impl NodesProgress {
    fn start(verbose: bool) -> Self {
        Self { spinner: Spinner::start(), verbose, trials: BTreeMap::new() }
    }

    fn note(&self, text: &str) {
        self.spinner.note(&format!("vmlab: {text}"));
    }

    fn show(&mut self, set: &NodeSet, news: &NodeNews) {
        let name = &set.nodes[news.number()].name;
        match news {
            NodeNews::Step { text, .. } if self.verbose => self.note(&format!("{name}: {text}")),
            NodeNews::Step { .. } => {}
            NodeNews::Trials { number, done, of } => {
                self.trials.insert(*number, (*done, *of));
            }
            NodeNews::Ended { number, end, .. } => {
                self.trials.remove(number);
                match &end.reason {
                    Some(reason) => self.note(&format!("{name}: {}: {reason}", end.state.word())),
                    None if self.verbose => self.note(&format!("{name}: {}", end.state.word())),
                    None => {}
                }
                if let Some(left) = &end.left {
                    self.note(&format!("{name}: {left}"));
                }
            }
        }
        let count = |state| set.nodes.iter().filter(|node| node.state == state).count();
        let failed = match count(NodeState::Failed) {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        let (done, of) = self
            .trials
            .values()
            .fold((0, 0), |(done, of), (one, all)| (done + one, of + all.unwrap_or(*one)));
        self.spinner.say(&format!(
            "{} of {} nodes complete{failed}; {} run, {done} of at most {of} trials done there",
            count(NodeState::Complete),
            set.nodes.len(),
            count(NodeState::Running),
        ));
    }
}
