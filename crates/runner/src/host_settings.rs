//! The host's part of a study: settings that hold for all of it, for a load's
//! blocks, or for a variant's trials.
//!
//! A setting that any variant names is made before each trial and put back
//! after it, so that all trials are alike in that; one that only loads name is
//! made for the block; the others hold for the whole study. Where several name
//! it, the variant counts before the load, and the load before the study.

use std::collections::BTreeSet;

use host::audit::thread::SchedulingPolicy;
use host::ground;
use host::scheduler::{self, Scheduling};
use host::settings::{self, ChangeError, SettingChange, SettingChanges, SettingsTree};
use topology::PcpuSet;
use topology::bounded::LineProblem;
use vmconfig::{Scheduler, VmSpec};

use crate::plan::{PlanVariant, StudyPlan};
use crate::study::{HostLoad, Study};
pub use crate::study::{HostSettings, SettingOwner, describe};

/// The settings that make a partition, on whose pCPUs nothing runs that was not
/// taken in.
const PARTITIONS: [&str; 2] = ["partition_pcpus", "isolated_pcpus"];

/// The setting by which guests have devices of the host.
const VFIO: &str = "vfio_pci";

/// What `spec` wishes of the host, as settings.
pub(crate) fn wishes_of(spec: &VmSpec) -> HostSettings {
    let plain = |value: String| match value.as_str() {
        "true" => "1".to_owned(),
        "false" => "0".to_owned(),
        _ => value,
    };
    let mut wishes: HostSettings =
        spec.host.set().into_iter().map(|(id, value)| (id.to_owned(), plain(value))).collect();
    let devices: Vec<String> =
        spec.host_devices.iter().filter_map(|device| Some(device.pci()?.to_string())).collect();
    if !devices.is_empty() {
        wishes.insert(VFIO.to_owned(), devices.join(","));
    }
    wishes
}

impl StudyPlan {
    /// The settings for the whole study.
    #[must_use]
    pub fn study_settings(&self) -> HostSettings {
        let (by_load, by_variant) = (self.ids_of_loads(), self.ids_of_variants());
        let all = self.host_settings.iter();
        all.filter(|(id, _)| !by_load.contains(id) && !by_variant.contains(id))
            .map(|(id, value)| (id.clone(), value.clone()))
            .collect()
    }

    /// The settings for a block under `load`, beside those of the study.
    #[must_use]
    pub fn block_settings(&self, load: &HostLoad) -> HostSettings {
        let by_variant = self.ids_of_variants();
        let ids = self.ids_of_loads().into_iter().filter(|id| !by_variant.contains(id));
        self.choose(ids, &[&load.host, &self.host_settings])
    }

    /// The settings for a trial of `variant` under `load`, beside those of the
    /// block.
    #[must_use]
    pub fn trial_settings(&self, load: &HostLoad, variant: &PlanVariant) -> HostSettings {
        let ids = self.ids_of_variants().into_iter();
        self.choose(ids, &[&variant.host_settings, &load.host, &self.host_settings])
    }

    fn ids_of_loads(&self) -> BTreeSet<&String> {
        self.loads.iter().flat_map(|load| load.host.keys()).collect()
    }

    fn ids_of_variants(&self) -> BTreeSet<&String> {
        self.variants.iter().flat_map(|variant| variant.host_settings.keys()).collect()
    }

    /// The value of each id by the first who names it; ids that nobody names
    /// stay as the host has them.
    fn choose<'a>(
        &self,
        ids: impl Iterator<Item = &'a String>,
        by: &[&HostSettings],
    ) -> HostSettings {
        ids.filter_map(|id| {
            let value = by.iter().find_map(|settings| settings.get(id))?;
            Some((id.clone(), value.clone()))
        })
        .collect()
    }

    /// What makes `settings` so.
    ///
    /// # Errors
    /// When a plan that was edited names what there is not.
    pub fn wish(&self, settings: &HostSettings) -> Result<SettingChanges, ChangeError> {
        let changes = settings.iter().map(|(id, value)| SettingChange::new(id, made_as(id, value)));
        Ok(SettingChanges { changes: changes.collect::<Result<_, _>>()?, reload: self.reload })
    }
}

/// The value that `id = value` is made as: whoever stops merging wants nothing to
/// be merged, not even what was merged in the trial before.
fn made_as<'a>(id: &str, value: &'a str) -> &'a str {
    if id == ground::KSM && value == "0" { ground::KSM_UNMERGED } else { value }
}

/// What of `plan` can't be had on the machine of `tree`: settings and
/// scheduling, by line of the study. Nothing is changed.
#[must_use]
pub fn refusals(study: &Study, plan: &StudyPlan, tree: &SettingsTree) -> Vec<LineProblem> {
    let mut problems = Vec::new();
    for (key, clearance) in plan.ground.clearances() {
        if let Some(refused) = clearance.refusal(tree) {
            let line = study.line_of_ground(key);
            problems.push(LineProblem { line, message: format!("ground.{key}: {refused}") });
        }
    }
    let mut check = |of: SettingOwner<'_>, settings: &HostSettings| {
        let whose = match of {
            SettingOwner::Study => String::new(),
            SettingOwner::Load(name) | SettingOwner::Variant(name) => format!("{name}: "),
        };
        for (id, value) in settings {
            let refused = match SettingChange::new(id, value) {
                Ok(change) => {
                    let wish = SettingChanges { changes: vec![change], reload: plan.reload };
                    settings::plan(tree, &wish).err().map(|error| with_causes(&error))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(refused) = refused {
                let line = study.line_of_setting(of, id);
                problems.push(LineProblem { line, message: format!("{whose}{refused}") });
            }
        }
    };
    check(SettingOwner::Study, &plan.host_settings);
    for load in &plan.loads {
        check(SettingOwner::Load(&load.name), &load.host);
    }
    for variant in plan.variants.iter().filter(|variant| variant.aa_of.is_none()) {
        check(SettingOwner::Variant(&variant.name), &variant.host_settings);
    }
    let partitions = Partitions::of(plan);
    for variant in plan.variants.iter().filter(|variant| variant.aa_of.is_none()) {
        let line = study.line_of(&variant.name, "scheduler");
        let mut say = |message: String| {
            problems.push(LineProblem { line, message: format!("{}: {message}", variant.name) });
        };
        for scheduler in schedulers(&variant.spec) {
            if let Err(error) = scheduler::check(scheduling(scheduler)) {
                say(format!("scheduler {scheduler} can't be had here: {}", with_causes(&error)));
            }
        }
        if let Some(message) = partitions.empty_under(variant) {
            say(message);
        }
    }
    problems
}

/// What is set for the whole study, for each load, and for which settings the
/// variants differ: the same for all variants.
struct Partitions<'a> {
    plan: &'a StudyPlan,
    study: HostSettings,
    blocks: Vec<HostSettings>,
    by_variant: BTreeSet<&'a String>,
}

impl<'a> Partitions<'a> {
    fn of(plan: &'a StudyPlan) -> Self {
        let blocks = plan.loads.iter().map(|load| plan.block_settings(load)).collect();
        let by_variant = plan.ids_of_variants();
        Self { plan, study: plan.study_settings(), blocks, by_variant }
    }

    /// A partition into which no thread of the VM goes takes pCPUs from everybody
    /// and gives them to nobody.
    fn empty_under(&self, variant: &PlanVariant) -> Option<String> {
        let plan = self.plan;
        let pins = &variant.spec.pins;
        let pinned: Vec<&PcpuSet> =
            pins.vcpus.values().chain(&pins.emulator).chain(pins.iothreads.values()).collect();
        let is_empty = |id: &String, value: &String| {
            let is_partition = PARTITIONS.contains(&id.as_str());
            let Some(pcpus) = is_partition.then(|| value.parse::<PcpuSet>().ok()).flatten() else {
                return false;
            };
            !pinned.iter().any(|pin| !pin.is_empty() && pin.is_subset(&pcpus))
        };
        plan.loads.iter().zip(&self.blocks).find_map(|(load, block)| {
            let by = [&variant.host_settings, &load.host, &plan.host_settings];
            let trial = plan.choose(self.by_variant.iter().copied(), &by);
            let all = [&self.study, block, &trial];
            let found = all.into_iter().flatten().find(|(id, value)| is_empty(id, value));
            found.map(|(id, pcpus)| {
                format!("{id} = {pcpus}, but no thread is pinned there: pin vCPUs to it (vm.pins)")
            })
        })
    }
}

fn schedulers(spec: &VmSpec) -> BTreeSet<Scheduler> {
    let all = &spec.scheduler;
    all.vcpus.values().chain(&all.emulator).chain(all.iothreads.values()).copied().collect()
}

/// The kernel's word for a scheduler.
pub(crate) fn scheduling(scheduler: Scheduler) -> Scheduling {
    let (policy, priority) = match scheduler {
        Scheduler::Fifo(priority) => (SchedulingPolicy::Fifo, priority),
        Scheduler::Rr(priority) => (SchedulingPolicy::RoundRobin, priority),
        Scheduler::Batch => (SchedulingPolicy::Batch, 0),
        Scheduler::Idle => (SchedulingPolicy::Idle, 0),
    };
    Scheduling { policy, priority }
}

/// An error with its causes, on one line.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", with_causes(cause)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use super::*;
    use crate::testing::{STUDY, plan_of};

    const WITH_HOST: &str = r#"
[host]
thp = "never"
ksm = true
swappiness = 10
reload = true
"#;

    /// The study of the tests with settings on all levels.
    fn text() -> String {
        let levels = STUDY
            .replace("name = \"a\"", "name = \"a\"\nhost.thp = 'always'")
            .replace("vm.vcpus = 2", "vm.vcpus = 2\nvm.host.numa_balancing = true")
            .replace(
                "name = \"busy\"",
                "name = \"busy\"\nhost = { swappiness = 90, thp = 'madvise' }",
            );
        levels
            .replace("[[variant]]\nname = \"a\"", &format!("{WITH_HOST}[[variant]]\nname = \"a\""))
    }

    #[test]
    fn each_setting_is_made_at_the_level_that_names_it_last() {
        let plan = plan_of(&text());
        let said = |settings: HostSettings| describe(&settings).join(", ");
        assert_eq!(said(plan.study_settings()), "ksm = 1");
        let [idle, busy] = plan.loads.as_slice() else { panic!("two loads") };
        assert_eq!(said(plan.block_settings(idle)), "swappiness = 10");
        assert_eq!(said(plan.block_settings(busy)), "swappiness = 90");
        let trial = |load, variant: usize| said(plan.trial_settings(load, &plan.variants[variant]));
        assert_eq!(trial(idle, 0), "thp = always");
        assert_eq!(trial(busy, 0), "thp = always");
        assert_eq!(trial(idle, 1), "numa_balancing = 1, thp = never");
        assert_eq!(trial(busy, 2), "thp = madvise");
        assert!(plan.wish(&plan.study_settings()).expect("known").reload);
        assert_eq!(plan.variants[0].summary, "host.thp = \"always\"");
        // No setting is made on two levels at once.
        for (load, variant) in plan.loads.iter().zip(&plan.variants) {
            let levels = [
                plan.study_settings(),
                plan.block_settings(load),
                plan.trial_settings(load, variant),
            ];
            let ids: Vec<&String> = levels.iter().flat_map(BTreeMap::keys).collect();
            assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        }
    }

    #[test]
    fn merging_that_is_stopped_leaves_nothing_merged() {
        let plan = plan_of(&text().replace("ksm = true", "ksm = false"));
        let check = |id: &str, value: &str, made: &str| {
            let settings = HostSettings::from([(id.to_owned(), value.to_owned())]);
            let wish = plan.wish(&settings).expect("known");
            assert_eq!(wish.changes, [SettingChange::new(id, made).expect("known")]);
        };
        assert_eq!(plan.study_settings()["ksm"], "0", "the plan keeps the study's word");
        check("ksm", "0", "2");
        check("ksm", "1", "1");
        check("numa_balancing", "0", "0");
    }

    #[test]
    fn what_the_machine_refuses_is_said_by_line() {
        let folder = tempfile::tempdir().expect("temp folder");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("has one")).expect("mkdir");
            fs::write(path, text).expect("written");
        };
        file("sys/kernel/mm/transparent_hugepage/enabled", "always [never]\n");
        file("sys/kernel/mm/ksm/run", "0\n");
        file("proc/sys/vm/swappiness", "60\n");
        file("sys/devices/system/cpu/online", "0-3\n");
        let text = text().replace(
            "vm.memory_mib = 256",
            "vm.pins = ['0']\nhost.isolated_pcpus = '1'\nvm.scheduler.vcpus = 'batch'",
        );
        let study = Study::parse("s.toml", &text).expect("sound");
        let plan = plan_of(&text);
        let problems = refusals(&study, &plan, &SettingsTree::at(folder.path()));
        let lines: Vec<String> =
            problems.iter().map(|one| format!("{}: {}", one.line, one.message)).collect();
        let line_of = |word: &str| text.lines().position(|line| line.contains(word)).unwrap() + 1;
        for (line, words) in [
            (
                line_of("thp = 'madvise'"),
                "busy: Host setting thp can't be \"madvise\" here: It can't",
            ),
            (
                line_of("numa_balancing"),
                "b: Host setting numa_balancing can't be \"1\" here: /proc",
            ),
            (
                line_of("isolated_pcpus"),
                "c: Host setting isolated_pcpus can't be \"1\" here: cgroup",
            ),
            (line_of("'batch'"), "c: isolated_pcpus = 1, but no thread is pinned there: pin vCPUs"),
        ] {
            let begin = format!("{line}: {words}");
            let found = lines.iter().any(|one| one.starts_with(&begin));
            assert!(found, "{begin:?} is not in {lines:#?}");
        }
        assert_eq!(lines.len(), 4, "{lines:#?}");
    }

    #[test]
    fn wrong_settings_are_refused_by_line() {
        let check = |from: &str, to: &str, words: &[&str]| {
            let text = text();
            assert!(text.contains(from), "{from}");
            let text = text.replacen(from, to, 1);
            let error = Study::parse("s.toml", &text).expect_err(to).to_string();
            let line = text.lines().position(|line| line.contains(to)).expect("there") + 1;
            assert!(error.starts_with(&format!("s.toml:{line}: ")), "{to}: {error}");
            for word in words {
                assert!(error.contains(word), "{word:?} is not in {error}");
            }
        };
        check("ksm = true", "ksn = true", &["no such host setting", "did you mean \"ksm\""]);
        check("ksm = true", "xyzzy = true", &["`vmlab settings list` shows all"]);
        check("ksm = true", "ksm = 7", &["ksm cannot be \"7\"; it takes 0, 1, 2"]);
        check("ksm = true", "ksm = [1]", &["ksm: a array can't be a setting"]);
        check("reload = true", "reload = 1", &["reload = 1: must be true or false"]);
        check("host.thp = 'always'", "host.thp = 'now'", &["thp cannot be \"now\""]);
        check("swappiness = 90", "swappiness = 900", &["from 0 to 200"]);
        check(
            "stress.percent = 50",
            "vms = { count = 1, workload = 'hackbench', vm.host.ksm = true }",
            &["host.ksm = true is for the whole host", "of a load"],
        );
    }
}
