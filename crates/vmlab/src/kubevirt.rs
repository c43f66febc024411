//! `--on kubevirt`: a study's VMs as VirtualMachineInstances of a cluster.

mod hosted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ::cluster::{ClusterNode, ClusterSurvey, ClusterTarget, survey};
use anyhow::{Context as _, bail};
use guest::Cancel;
use guest::image::{self, oci::OciImage};
use localcluster::{ClusterState, LocalCluster};
use runner::freeze::{FrozenPlan, freeze};
use runner::instances;
use runner::kubevirt_facts::KubevirtFacts;
use runner::machine::{self, Need};
use runner::plan::StudyPlan;
use runner::study::{RunsOn, Study};
use topology::bounded::{FileProblems, LineProblem};
use topology::{Host, HostVirtualisation, Pcpu};
use vmconfig::kubevirt::EMULATOR_LABEL;

use crate::kubernetes::named_cluster;
use crate::on::KubevirtPlace;
use crate::progress::Spinner;
use crate::study_file::{BudgetArgs, StudyText};
use crate::terminal;

pub(crate) use hosted::ClusterHosting;

/// The repository of the images that vmlab itself gives to its clusters.
const REPOSITORY: &str = "vmlab/guest";

/// A cluster that answers, and may do what a run needs.
pub(crate) struct ReachedCluster {
    pub(crate) target: ClusterTarget,
    survey: ClusterSurvey,
    /// Container images by the images' names in the study; an empty name means any.
    images: BTreeMap<String, String>,
    /// The cluster, if it is one of vmlab's own.
    local: Option<LocalCluster>,
}

/// Looks at the cluster that `--on` names.
///
/// # Errors
/// Why no study can run there.
pub(crate) fn reach(place: &KubevirtPlace) -> anyhow::Result<ReachedCluster> {
    let spinner = Spinner::start();
    spinner.say("looking at the cluster");
    let (mut target, survey) =
        named_cluster(place.kubeconfig.as_deref(), place.cluster.as_deref(), survey)?;
    target.namespace = Some(survey.namespace.clone());
    let local = localcluster::list().unwrap_or_default().into_iter().find(|cluster| {
        let server = cluster.server();
        cluster.state() == ClusterState::Up && server.as_deref() == Some(survey.server.as_str())
    });
    let mut images = BTreeMap::new();
    for said in &place.images {
        // A reference has no `=`.
        let (name, reference) = said.split_once('=').unwrap_or(("", said));
        reference
            .parse::<vmconfig::ImageReference>()
            .with_context(|| format!("--kubevirt-image {said:?} names no image"))?;
        images.insert(name.to_owned(), reference.to_owned());
    }
    Ok(ReachedCluster { target, survey, images, local })
}

impl ReachedCluster {
    /// The plan of a study in this cluster, and what stands for its nodes. With
    /// [`Need::Run`] its images are given to a cluster of vmlab's own, and the cluster is
    /// asked whether it takes the instances.
    ///
    /// # Errors
    /// Everything that stands in the way, with its line of the study.
    pub(crate) fn prepare(
        &self,
        written: &StudyText,
        budget: &BudgetArgs,
        need: Need,
        cancel: &Cancel,
    ) -> anyhow::Result<(StudyPlan, Host)> {
        let study = written.parse(budget)?;
        let facts = self.facts(&study)?;
        let host = host_of(&self.survey.nodes);
        self.tell_of_emulated();
        let machine = instances::machine(&study, &written.folder, host.clone(), facts)?;
        let seed = budget.seed().or(study.seed).unwrap_or_else(machine::fresh_seed);
        let file = written.file.clone();
        let plan = match freeze(&study, &machine, seed, runner::unix_s()) {
            Ok(FrozenPlan { plan, warnings }) => {
                for LineProblem { line, message } in warnings {
                    terminal::note(&format!("{file}:{line}: warning: {message}"));
                }
                plan
            }
            Err(problems) => bail!(FileProblems { file, problems }),
        };
        let mut problems = instances::refusals(&study, &plan);
        if problems.is_empty() && need == Need::Run {
            problems = self.refusals(&study, &plan)?;
        }
        match need {
            Need::Run if !problems.is_empty() => bail!(FileProblems { file, problems }),
            Need::Run => self.give_images(&plan, cancel)?,
            // A plan may be looked at where it can't be run.
            Need::Plan => {
                for LineProblem { line, message } in problems {
                    terminal::note(&format!(
                        "{file}:{line}: warning: a run would be refused: {message}"
                    ));
                }
            }
        }
        Ok((plan, host))
    }

    fn facts(&self, study: &Study) -> anyhow::Result<KubevirtFacts> {
        let names = instances::image_names(study);
        let known = |name: &str| name.is_empty() || names.iter().any(|known| known == name);
        if let Some(name) = self.images.keys().find(|name| !known(name)) {
            bail!(
                "--kubevirt-image {name}=...: the study boots no such image, but {}",
                names.join(", ")
            );
        }
        let any = self.images.get("");
        if any.is_some() && names.len() > 1 {
            bail!(
                "The study boots several images: say --kubevirt-image NAME=REF for each of {}",
                names.join(", ")
            );
        }
        let mut images = BTreeMap::new();
        for name in names {
            let named = self.images.get(&name).or(any).cloned();
            let own = || self.local.as_ref().and_then(|_| own_reference(&name));
            if let Some(reference) = named.or_else(own) {
                images.insert(name, reference);
            }
        }
        let nodes = self.survey.nodes.iter().map(|node| node.offer.name.clone()).collect();
        Ok(KubevirtFacts {
            server: self.survey.server.clone(),
            namespace: self.survey.namespace.clone(),
            version: self.survey.kubevirt.clone(),
            is_emulated: self.survey.is_emulated,
            nodes,
            images,
        })
    }

    /// What the cluster itself has against the instances.
    fn refusals(&self, study: &Study, plan: &StudyPlan) -> anyhow::Result<Vec<LineProblem>> {
        let mut problems = Vec::new();
        for variant in
            plan.variants.iter().filter(|one| one.aa_of.is_none() && one.on == RunsOn::Vm)
        {
            let text = instances::shown(plan, &variant.spec, &variant.image).text;
            if let Some(said) = self.survey.refusal(&text)? {
                let line = study.line_of_variant(&variant.name);
                let message = format!("{}: the cluster refuses the instance: {said}", variant.name);
                problems.push(LineProblem { line, message });
            }
        }
        Ok(problems)
    }

    /// Gives the images of vmlab's own that a plan boots to a cluster of vmlab's own.
    fn give_images(&self, plan: &StudyPlan, cancel: &Cancel) -> anyhow::Result<()> {
        let (Some(local), Some(facts)) = (&self.local, &plan.kubevirt) else { return Ok(()) };
        let spinner = Spinner::start();
        for (name, reference) in &facts.images {
            if own_reference(name).as_ref() != Some(reference) {
                continue;
            }
            let recipe = image::recipe(name)?;
            let say = |progress| spinner.say(&machine::build_step(&recipe.name, &progress));
            let built = image::build(&recipe, &mut { say }, cancel)?;
            spinner.say(&format!("giving {reference} to the cluster's node"));
            let archive = tempfile_in(&built.folder)?;
            let image = OciImage::container_disk(&built, recipe.arch, reference);
            image
                .write_archive(archive.as_file(), &built.folder)
                .with_context(|| format!("Cannot write the image {reference}"))?;
            local.load(archive.path(), None, &|| cancel.is_cancelled())?;
            cancel.check()?;
        }
        Ok(())
    }

    /// Where some nodes are emulated and others are not, each trial counts as emulated.
    fn tell_of_emulated(&self) {
        let nodes = self.survey.nodes.iter();
        let (emulated, real): (Vec<_>, Vec<_>) =
            nodes.partition(|node| node.offer.labels.contains_key(EMULATOR_LABEL));
        if emulated.is_empty() || real.is_empty() {
            return;
        }
        let names = |nodes: &[&ClusterNode]| {
            nodes.iter().map(|node| node.offer.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        terminal::note(&format!(
            "warning: an emulator executes the instructions of {} ({EMULATOR_LABEL}), not those of \
             {}: all counts as emulated time; `kubectl cordon` keeps VMs from nodes",
            names(&emulated),
            names(&real)
        ));
    }

    /// Refuses to go on with a plan elsewhere than where it was begun.
    ///
    /// # Errors
    /// What differs.
    pub(crate) fn check_same(&self, plan: &StudyPlan) -> anyhow::Result<()> {
        let Some(begun) = &plan.kubevirt else {
            bail!(
                "The study was not begun in a cluster: the blocks would not compare; leave --on out, or start anew"
            );
        };
        let here = (&self.survey.server, &self.survey.namespace, &self.survey.kubevirt);
        if (&begun.server, &begun.namespace, &begun.version) != here {
            bail!(
                "The study was begun at {}, namespace {}, KubeVirt {}; this is {}, {}, {}: the blocks would not compare; start anew",
                begun.server,
                begun.namespace,
                begun.version,
                here.0,
                here.1,
                here.2
            );
        }
        self.give_images(plan, &Cancel::new())
    }
}

/// The file of an archive, which is gone with what is returned.
fn tempfile_in(folder: &Path) -> anyhow::Result<TemporaryFile> {
    let path = folder.join(format!(".containerdisk-{}.tar", std::process::id()));
    let file =
        std::fs::File::create(&path).with_context(|| format!("Cannot write {}", path.display()))?;
    Ok(TemporaryFile { path, file })
}

struct TemporaryFile {
    path: PathBuf,
    file: std::fs::File,
}

impl TemporaryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn as_file(&self) -> &std::fs::File {
        &self.file
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

/// How vmlab itself names the container image of one of its guests.
fn own_reference(name: &str) -> Option<String> {
    let recipe = image::recipe(name.strip_prefix("builtin:")?).ok()?;
    Some(format!("{REPOSITORY}:{}", recipe.tag()))
}

/// What stands for the nodes that take VMs: the smallest of what they have, as far as the
/// API tells; it does not tell which pCPUs are siblings.
fn host_of(nodes: &[ClusterNode]) -> Host {
    let pcpus = nodes.iter().map(|node| node.cpus).min().unwrap_or(0);
    let memory_bytes = nodes.iter().map(|node| node.offer.memory_bytes).min();
    let same = |of: &dyn Fn(&ClusterNode) -> Option<String>| {
        let first = nodes.first().and_then(of);
        first.filter(|first| nodes.iter().all(|node| of(node).as_ref() == Some(first)))
    };
    let arch = same(&|node| node.offer.labels.get("kubernetes.io/arch").cloned());
    let arch = arch.map(|arch| match arch.as_str() {
        "amd64" => "x86_64".to_owned(),
        "arm64" => "aarch64".to_owned(),
        other => other.to_owned(),
    });
    let emulator = nodes.iter().find_map(|node| node.offer.labels.get(EMULATOR_LABEL));
    let virtualised = HostVirtualisation {
        is_vm: emulator.map(|_| true),
        signs: emulator.map(|_| format!("label {EMULATOR_LABEL}")).into_iter().collect(),
        emulator: emulator.map(|name| match name.as_str() {
            "tcg" => "QEMU (TCG)".to_owned(),
            other => other.to_owned(),
        }),
        counts_instructions: false,
    };
    Host {
        virtualised,
        hostname: same(&|node| Some(node.offer.name.clone())),
        kernel: same(&|node| Some(node.kernel.clone())),
        arch,
        memory_bytes,
        pcpus: (0..pcpus).map(|id| Pcpu { id, online: true, ..Pcpu::default() }).collect(),
        ..Host::default()
    }
}
