//! Every model is a scenario; a made-up study is played to its end.

use guest::Cancel;
use record::{Environment, Outcome};
use sim::scenario::Scenario;
use topology::{Host, KernelModule, Kvm, Pcpu};
use workload::UnderTest;

use super::*;
use crate::execute::{Lab, execute};
use crate::plan::PlanWorkload;
use crate::store::{Contents, Store};
use crate::study::HostLoad;

fn host() -> Host {
    let pcpu = |id| Pcpu {
        id,
        online: true,
        socket: Some(0),
        core: Some(id / 2),
        thread: Some(id % 2),
        ..Pcpu::default()
    };
    Host {
        pcpus: (0..8).map(pcpu).collect(),
        arch: Some("x86_64".to_owned()),
        kernel: Some("5.15.0-1".to_owned()),
        memory_bytes: Some(16 << 30),
        tunables: [("halt_poll_ns".to_owned(), "50000".to_owned())].into(),
        ..Host::default()
    }
}

const STUDY: &str = r#"
vmlab = 1
title = "A made-up study"
[budget]
blocks = 3
[[variant]]
name = "two"
vm.vcpus = 2
[[variant]]
name = "one"
vm.vcpus = 1
[[variant]]
name = "pinned"
vm.vcpus = 2
vm.pins = [1, 3]
host.halt_poll_ns = 0
[[load]]
name = "idle"
[[load]]
name = "busy"
stress.percent = 50
[[workload]]
run = "hackbench"
params = { groups = 1, fds = 4, loops = 100 }
[[workload]]
run = "fio"
"#;

fn made(text: &str) -> Result<FrozenPlan, Vec<LineProblem>> {
    let study = Study::parse("made-up.toml", text).expect("the test's study is sound");
    plan(&study, Path::new(""), host(), 7, 1.0e9)
}

#[test]
fn a_study_is_played_to_its_end() {
    let FrozenPlan { plan, .. } = made(STUDY).expect("it can be played");
    assert_eq!(plan.environment(), Environment::Simulated);
    assert_eq!(plan.workloads.len(), 1);
    let (label, why) = &plan.later[0];
    assert!(label == "fio" && why.contains("disks"), "{label}: {why}");
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let dir = folder.path().join(name);
        let mut store = Store::create(&dir, &plan, &host()).unwrap();
        let cancel = Cancel::new();
        let host = host();
        let mut lab = SimulatedLab::new(&plan, &host, cancel.clone());
        execute(&plan, &[], &mut store, &mut lab, &cancel, &mut |_| {}).unwrap();
        drop(store);
        let contents = crate::store::read(&dir).unwrap();
        values(&contents)
    };
    let first = run("first");
    assert_eq!(first, run("second"), "one seed is one answer");
    let of = |variant: &str| {
        let mut all = first.iter().filter(|(name, ..)| name == variant).map(|(.., value)| *value);
        all.next().unwrap()
    };
    assert!(of("two") < of("one"), "{first:?}");
}

fn values(contents: &Contents) -> Vec<(String, u32, f64)> {
    let ended = contents.events.iter().filter_map(|event| match event {
        record::journal::JournalEvent::TrialEnded(result) => Some(result),
        _ => None,
    });
    ended
        .map(|result| {
            assert_eq!(result.outcome, Outcome::Completed);
            // What counters are divided by is the simulated time, not that of playing it.
            let counted_s = scenario::DURATION_MS as f64 / 1e3;
            assert!((result.runs[0].wall_s - counted_s).abs() < 1e-9, "{result:?}");
            let value = result.runs[0].samples[0].value;
            (result.trial.variant.clone(), result.trial.block, value)
        })
        .collect()
}

#[test]
fn what_is_set_reaches_the_scenario() {
    let FrozenPlan { plan, .. } = made(STUDY).unwrap();
    let host = host();
    let cell = |load: &str, variant: &str| {
        let load = plan.loads.iter().find(|known| known.name == load).unwrap();
        let variant = plan.variants.iter().find(|known| known.name == variant).unwrap();
        scenario::of_cell(&plan, &host, load, variant, &plan.workloads[0]).unwrap().text
    };
    let idle = cell("idle", "two");
    assert!(idle.contains("halt_poll_us = 50.0") && !idle.contains("stress-ng"), "{idle}");
    let busy = cell("busy", "pinned");
    for part in ["halt_poll_us = 0.0", "stress-ng", "threads = 4", "pins = [\"1\", \"3\"]"] {
        assert!(busy.contains(part), "{part}: {busy}");
    }
}

#[test]
fn a_guest_polls_for_as_long_as_it_is_told() {
    let check = |cmdline: &str, expected: &str| {
        let vm = format!("vm.vcpus = 2\nvm.kernel_cmdline = \"{cmdline}\"");
        let FrozenPlan { plan, .. } = made(&STUDY.replacen("vm.vcpus = 2", &vm, 1)).unwrap();
        let (load, variant) = (&plan.loads[0], &plan.variants[0]);
        let cell = scenario::of_cell(&plan, &host(), load, variant, &plan.workloads[0]);
        let text = cell.unwrap().text;
        let poll = text.lines().find(|line| line.starts_with("idle_poll_us"));
        assert_eq!(poll.unwrap_or_default(), expected, "{cmdline}");
        // It is one that can be played.
        Scenario::parse("cell.toml", &text, |_| Ok(host())).unwrap();
    };
    let forced = |more: &str| format!("cpuidle_haltpoll.force=1 {more}");
    check(&forced(""), "idle_poll_us = 200.0");
    check(&forced("haltpoll.guest_halt_poll_ns=50000"), "idle_poll_us = 50.0");
    check(&forced("haltpoll.guest_halt_poll_ns=0x1388"), "idle_poll_us = 5.0");
    check(&forced("haltpoll.guest_halt_poll_ns=0"), "idle_poll_us = 0.0");
    // What the kernel can't read leaves its own.
    check(&forced("haltpoll.guest_halt_poll_ns=soon"), "idle_poll_us = 200.0");
    // Without the driver nobody heeds it.
    check("haltpoll.guest_halt_poll_ns=50000", "");
}

/// A window of 0 switches pause exits off on AMD, and makes Intel exit in every loop.
#[test]
fn a_window_of_pause_exits_is_the_processors_own() {
    let FrozenPlan { plan, .. } = made(STUDY).unwrap();
    let check = |module: &str, settings: &[(&str, &str)], expected: &str| {
        let module = KernelModule { name: module.to_owned(), ..KernelModule::default() };
        let tunables = settings.iter().map(|(id, value)| ((*id).into(), (*value).into()));
        let kvm = Kvm { modules: vec![module], ..Kvm::default() };
        let host = Host { tunables: tunables.collect(), kvm, ..host() };
        let cell =
            scenario::of_cell(&plan, &host, &plan.loads[0], &plan.variants[0], &plan.workloads[0]);
        let text = cell.unwrap().text;
        let ple = text.lines().filter(|line| line.starts_with("ple"));
        assert_eq!(ple.collect::<Vec<_>>().join(", "), expected, "{settings:?}");
        // It is one that can be played.
        Scenario::parse("cell.toml", &text, |_| Ok(host.clone())).unwrap();
    };
    check("kvm_intel", &[("ple_window", "4800")], "ple_window_ns = 2000.0");
    check("kvm_intel", &[("ple_window", "0")], "ple_window_ns = 0.0");
    check("kvm_intel", &[("ple_window", "0"), ("ple_gap", "0")], "ple = false");
    check("kvm_amd", &[("ple_window", "3000")], "ple_window_ns = 80000.0");
    check("kvm_amd", &[("ple_window", "0")], "ple = false");
    check("kvm_amd", &[("ple_gap", "0")], "ple = false");
}

#[test]
fn a_study_without_models_is_refused() {
    let lu = "run = \"probe-npb\"\nparams = { benchmark = \"lu\" }";
    for (run, why) in [("run = \"boot\"", "how many steps"), (lu, "wait for one neighbour")] {
        let text = STUDY
            .replace("run = \"hackbench\"\nparams = { groups = 1, fds = 4, loops = 100 }", run);
        let problems = made(&text).unwrap_err();
        assert!(problems[0].message.contains(why), "{problems:?}");
    }
}

/// Without the rule both cells are the same, and the report would say "no difference".
#[test]
fn what_the_model_lacks_gets_no_verdict() {
    const IDLE: &str = "[[load]]\nname = \"idle\"";
    let with = |more: &str| STUDY.replace(IDLE, &format!("{more}\n{IDLE}"));
    // One of several that is only about huge pages: left out, and told.
    let huge = "[[variant]]\nname = \"huge\"\nvm.vcpus = 2\nvm.host.thp = \"always\"";
    let FrozenPlan { plan, .. } = made(&with(huge)).unwrap();
    let names: Vec<_> = plan.variants.iter().map(|variant| variant.name.as_str()).collect();
    assert!(!names.contains(&"huge") && names.contains(&"one"), "{names:?}");
    let [(name, why)] = &plan.variants_left_out[..] else { panic!("{plan:?}") };
    assert_eq!(name, "huge");
    assert!(why.contains("\"two\" is host.thp, vm.host.thp, of which"), "{why}");
    // Where nothing is left, there is nothing to run.
    let alone = r#"
vmlab = 1
title = "Memory"
[vm]
vcpus = 2
[[variant]]
name = "small"
[[variant]]
name = "large"
vm.memory_mib = 2048
[[workload]]
run = "perf-pipe"
"#;
    let problems = made(alone).unwrap_err();
    assert_eq!((problems.len(), problems[0].line), (1, 8), "{problems:?}");
    assert!(problems[0].message.contains("vm.memory_mib"), "{problems:?}");
}

/// A variant may reach the model with one workload and not with another; and what is the
/// same in the study too is no gap of the model.
#[test]
fn a_cell_that_the_model_lacks_fails() {
    let study = |more: &str| {
        format!(
            r#"
vmlab = 1
title = "Parameters"
[budget]
blocks = 2
[vm]
vcpus = 2
[[variant]]
name = "few"
[[variant]]
name = "many"
params.hackbench = {{ groups = 2 }}
{more}
[[workload]]
run = "hackbench"
params = {{ groups = 1, fds = 4, loops = 100 }}
[[workload]]
run = "perf-pipe"
"#
        )
    };
    let cells = |more: &str| {
        let FrozenPlan { plan, .. } = made(&study(more)).unwrap();
        let host = host();
        let many = plan.variants.iter().find(|variant| variant.name == "many").unwrap().clone();
        let mut lab = SimulatedLab::new(&plan, &host, Cancel::new());
        lab.begin_block(&plan.loads[0]).unwrap();
        let played = plan.workloads.iter().map(|workload| {
            let key = record::journal::TrialKey {
                id: "0".repeat(16),
                attempt: 0,
                block: 0,
                load: plan.loads[0].name.clone(),
                workload: workload.label.clone(),
                variant: many.name.clone(),
                order: 0,
            };
            lab.trial(&key, &many, workload, &mut |_| {}).result.outcome
        });
        played.collect::<Vec<_>>()
    };
    assert_eq!(cells(""), [Outcome::Completed, Outcome::Completed]);
    let outcomes = cells("vm.memory_mib = 2048");
    assert_eq!(outcomes[0], Outcome::Completed);
    let Outcome::Failed(failure) = &outcomes[1] else { panic!("{outcomes:?}") };
    assert_eq!(failure.kind, record::FailureKind::NotModelled);
    assert!(failure.detail.contains("is vm.memory_mib, of which"), "{failure}");
}

#[test]
fn dbench_in_memory_waits_for_no_disk() {
    for (files, why) in [("tmpfs", "file system"), ("disk", "disks are not")] {
        let run = format!("run = \"dbench\"\nparams = {{ files = {files:?} }}");
        let text = STUDY
            .replace("run = \"hackbench\"\nparams = { groups = 1, fds = 4, loops = 100 }", &run);
        let problems = made(&text).unwrap_err();
        let said = &problems[0].message;
        let dbench = said.split("dbench: ").nth(1).unwrap();
        assert!(
            dbench.starts_with("the simulator can't play it: ") && dbench.contains(why),
            "{said}"
        );
    }
}

/// Each name has a model with the defaults or with what its reason asks for, and the
/// model is a sound scenario that gets something done.
#[test]
fn every_model_plays() {
    let FrozenPlan { plan, .. } = made(STUDY).unwrap();
    for name in models::NAMES {
        let entry = workload::find(name).unwrap();
        let mut params = std::collections::BTreeMap::new();
        match *name {
            "probe-npb" => {
                params.insert("benchmark".to_owned(), workload::ParamValue::Text("cg".into()))
            }
            "hackbench" => params.insert("groups".to_owned(), workload::ParamValue::Int(1)),
            _ => None,
        };
        let resolved = entry.resolve(&params).unwrap();
        let workload = PlanWorkload {
            label: (*name).to_owned(),
            workload: (*name).to_owned(),
            metrics: entry.metrics(&resolved).map(workload::MetricDef::to_metric).collect(),
            params,
            under_test: UnderTest::Both,
            ..plan.workloads[0].clone()
        };
        let host = host();
        let mut lab = SimulatedLab::new(&plan, &host, Cancel::new());
        lab.begin_block(&HostLoad::idle()).unwrap();
        let played =
            scenario::of_cell(&plan, &host, &HostLoad::idle(), &plan.variants[0], &workload);
        let cell = played.unwrap_or_else(|why| panic!("{name}: {why}"));
        let scenario = Scenario::parse(name, &cell.text, |_| Ok(host.clone()));
        let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{}", cell.text));
        let mut model = scenario.cells[0].draw(1, 0);
        (model.warmup_ns, model.duration_ns) = (0, 60_000_000);
        let outcome = sim::run(&model, || true).unwrap();
        assert!(outcome.meters[0].done > 0, "{name}: {outcome:?}");
        for (metric, scale) in &cell.model.metrics {
            let value = scale.value(outcome.meters[0].per_s);
            assert!(value.is_finite() && value > 0.0, "{name}: {metric} {value}");
            assert!(entry.metric(metric).is_some(), "{name}: {metric}");
        }
    }
}

/// The probe's producer works half of its time before it waits for the item before: where
/// work takes longer than a wake-up, the consumer alone sleeps, once for each item.
#[test]
fn of_two_on_semaphores_one_sleeps() {
    let FrozenPlan { plan, .. } = made(STUDY).unwrap();
    let entry = workload::find("probe-sem").unwrap();
    let params = [("loops".to_owned(), workload::ParamValue::Int(200_000))].into();
    let resolved = entry.resolve(&params).unwrap();
    let workload = PlanWorkload {
        label: "sem".to_owned(),
        workload: "probe-sem".to_owned(),
        metrics: entry.metrics(&resolved).map(workload::MetricDef::to_metric).collect(),
        params,
        ..plan.workloads[0].clone()
    };
    // Pinned, and without polling.
    let variant = &plan.variants[2];
    let cell = scenario::of_cell(&plan, &host(), &HostLoad::idle(), variant, &workload).unwrap();
    let scenario = Scenario::parse("sem", &cell.text, |_| Ok(host())).unwrap();
    let mut model = scenario.cells[0].draw(1, 0);
    (model.warmup_ns, model.duration_ns) = (0, 100_000_000);
    let outcome = sim::run(&model, || true).unwrap();
    let (items, halts) = (outcome.meters[0].done, outcome.counters.halt_exits);
    assert!((200..=260).contains(&items), "{outcome:?}");
    // The tick interrupts some halts.
    assert!((items..items + items / 3).contains(&halts), "{halts} halts of {items} items");
}
