//! Studies against machines that can and can't run them.

use super::*;
use crate::testing::{STUDY, machine};

fn problems(from: &str, to: &str) -> Vec<String> {
    assert!(STUDY.contains(from), "{from:?} is not in the study");
    let study = Study::parse("s.toml", &STUDY.replacen(from, to, 1)).unwrap();
    match freeze(&study, &machine(), 1, 0.0) {
        Ok(_) => Vec::new(),
        Err(problems) => problems
            .iter()
            .map(|problem| format!("{}: {}", problem.line, problem.message))
            .collect(),
    }
}

#[test]
fn what_the_machine_cannot_do_is_said_with_line_and_value() {
    let check = |from: &str, to: &str, line: usize, words: &[&str]| {
        let problems = problems(from, to);
        let all = problems.join("\n");
        assert!(all.starts_with(&format!("{line}: ")), "{to}: {all:?}");
        for word in words {
            assert!(all.contains(word), "{to}: {word:?} is not in {all}");
        }
    };
    check("vm.memory_mib = 256", "vm.memory_mib = 999999", 13, &["c: ", "999999", "8192 MiB"]);
    check("vm.vcpus = 2", "vm.vcpus = 2\nvm.pins = ['9']", 11, &["b: ", "pCPU 9"]);
    check("vm.vcpus = 2", "vm.vcpus = 2000", 10, &["b: ", "2000"]);
    check("vm.vcpus = 2", "vm.accel = 'kvm'", 10, &["no /dev/kvm"]);
    check("vm.vcpus = 2", "vm.cpu_model = 'host'", 10, &["host"]);
    check("vm.vcpus = 2", "vm.image = '/no/such.qcow2'", 10, &["/no/such.qcow2"]);
    check(
        "stress.percent = 50",
        "stress = { percent = 50, placement = 'off-vm' }",
        16,
        &["unpinned", "\"a\""],
    );
    check("stress.percent = 50", "stress.percent = 0.1", 16, &["0.1 %", "less than 1 %"]);
    check(
        "stress.percent = 50",
        "vms = { count = 900, workload = 'hackbench' }",
        16,
        &["922624 MiB of memory", "this host has"],
    );
}

#[test]
fn an_image_without_a_workloads_programs_is_refused() {
    let line = STUDY.lines().find(|line| line.starts_with("run = ")).unwrap();
    for name in ["kernbench", "pgbench"] {
        let run = format!("run = \"{name}\"");
        let found = problems(line, &run).join("\n");
        assert!(found.contains(&format!("lacks the programs of {name}")), "{found}");
        assert!(found.contains("image = \"builtin:debian-12-full\""), "{found}");
    }
}

#[test]
fn built_in_variants_follow_the_host() {
    let text = STUDY
        .replace("name = \"b\"\nvm.vcpus = 2", "name = \"b\"\nuse = 'pin'\nvm.vcpus = 4")
        .replace("name = \"c\"", "use = 'def'");
    let plan = crate::testing::plan_of(&text);
    let pins = &plan.variants[1].spec.pins.vcpus;
    assert_eq!(pins.len(), 4, "{pins:?}");
    let summary = &plan.variants[1].summary;
    assert!(summary.starts_with("pin: ") && summary.contains("pins = { 0 = "), "{summary}");
    let problems = problems("name = \"b\"\nvm.vcpus = 2", "use = 'pin'\nvm.vcpus = 8");
    assert!(problems[0].contains("the host has 4"), "{problems:?}");
}

#[test]
fn the_plan_survives_its_own_format() {
    let plan = crate::testing::plan();
    let again = StudyPlan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(again.to_json(), plan.to_json());
    assert_eq!(again.hash(), plan.hash());
}

#[test]
fn host_load_keeps_off_all_pins() {
    let text = STUDY
        .replace("name = \"a\"", "name = \"a\"\nvm.pins = ['0']")
        .replace("vm.vcpus = 2", "vm.vcpus = 2\nvm.pins = ['1', '2']")
        .replace("vm.memory_mib = 256", "vm.pins = ['0']")
        .replace("stress.percent = 50", "stress = { percent = 25, placement = 'off-vm' }");
    let plan = crate::testing::plan_of(&text);
    let left = off_vm_pcpus(&machine().host, plan.variants.iter().map(|v| &v.spec));
    assert_eq!(left.to_string(), "3");
}

/// The plan of a study whose second variant is on the host, without what this
/// machine may lack: root, programs.
fn on_host(variant: &str) -> Result<StudyPlan, Vec<String>> {
    let text = STUDY.replace("name = \"b\"\nvm.vcpus = 2", &format!("name = \"b\"\n{variant}"));
    let study = Study::parse("s.toml", &text).unwrap();
    let machine =
        MachineFacts { host: Host { arch: Some("x86_64".into()), ..machine().host }, ..machine() };
    let lacks = |problem: &LineProblem| {
        ["needs root", "is not installed", "not on this host"]
            .iter()
            .any(|word| problem.message.contains(word))
    };
    match freeze(&study, &machine, 1, 0.0) {
        Ok(frozen) => Ok(frozen.plan),
        Err(problems) if problems.iter().all(lacks) => {
            suite::skip(&problems[0].message);
            Err(Vec::new())
        }
        Err(problems) => Err(problems
            .iter()
            .filter(|problem| !lacks(problem))
            .map(|problem| format!("{}: {}", problem.line, problem.message))
            .collect()),
    }
}

#[test]
fn a_variant_on_the_host_gets_as_many_pcpus_as_the_vm_has_vcpus() {
    let check = |variant: &str, expected: &str| {
        let Ok(plan) = on_host(variant) else { return };
        let planned = &plan.variants[1];
        assert_eq!(planned.on, RunsOn::Host);
        assert_eq!(planned.environment, record::Environment::Host);
        assert_eq!(planned.summary, format!("on the host itself, pCPU(s) {expected}"));
        assert_eq!(plan.variants[0].on, RunsOn::Vm);
        let text = plan.to_json();
        assert_eq!(text.matches("\"on\": \"host\"").count(), 1);
        let again = StudyPlan::from_json(text.as_bytes()).unwrap();
        assert_eq!(again.variants[1].on, RunsOn::Host);
        // The least real of both.
        assert_eq!(plan.environment(), record::Environment::Tcg);
    };
    // As the built-in variant `pin` would: pCPU 0 last.
    check("on = 'host'\nvm.vcpus = 2", "1-2");
    check("on = 'host'\nvm.vcpus = 2\nvm.pins = ['0', '3']", "0,3");
}

#[test]
fn a_host_that_cannot_take_the_vms_place_is_said() {
    let check = |variant: &str, words: &[&str]| {
        let all = on_host(variant).expect_err("it can't be").join("\n");
        for word in words {
            assert!(all.contains(word), "{variant}: {word:?} is not in {all:?}");
        }
    };
    check("on = 'host'\nvm.vcpus = 5", &["b: on = \"host\"", "5 vCPUs", "the host has 4"]);
    check("on = 'host'\nvm.vcpus = 2\nvm.pins = ['0-2', '0-2']", &["3 pCPU(s) (0-2)", "2 vCPU(s)"]);
    check("on = 'host'\nvm.pins = ['9']", &["pCPU 9"]);
    let study = STUDY.replace("name = \"b\"\nvm.vcpus = 2", "name = \"b\"\non = 'host'");
    let study =
        study.replace("run = \"hackbench\"", "run = \"ab\"") + "[network]\nkind = 'macvtap'\n";
    let study = Study::parse("s.toml", &study).unwrap();
    let problems = freeze(&study, &machine(), 1, 0.0).unwrap_err();
    let all: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
    assert!(all.join("\n").contains("write network.kind = \"bridge\""), "{all:?}");
    let foreign = MachineFacts { arch: Arch::Aarch64, ..machine() };
    let problems = freeze(&study, &foreign, 1, 0.0).unwrap_err();
    assert!(
        problems.iter().any(|one| one.message.contains("the guests are aarch64")),
        "{problems:?}"
    );
}

#[test]
fn what_is_said_of_a_loads_vms_names_the_load() {
    let crowded = STUDY.replace(
        "[[workload]]",
        "[[load]]\nname = 'crowd'\nvms = { count = 1, workload = 'hackbench', vm.vcpus = 64 }\n\n[[workload]]",
    );
    let study = Study::parse("s.toml", &crowded).unwrap();
    let frozen = freeze(&study, &machine(), 1, 0.0).unwrap();
    let messages: Vec<&str> = frozen.warnings.iter().map(|one| one.message.as_str()).collect();
    assert!(
        messages.iter().any(|message| message.starts_with("the other VM of load \"crowd\": ")),
        "{messages:?}"
    );
    assert!(messages.iter().all(|message| !message.starts_with(':')), "{messages:?}");
}

/// The study's load with other VMs, as `words` says; its plan.
fn with_other_vms(words: &str) -> StudyPlan {
    let vms = format!("vms = {{ workload = 'hackbench', {words} }}");
    crate::testing::plan_of(&STUDY.replace("stress.percent = 50", &vms))
}

#[test]
fn other_vms_have_what_is_their_own_and_what_the_variant_changes() {
    let others = |plan: &StudyPlan, variant: usize| -> Vec<(u32, u64, usize)> {
        let (load, variant) = (&plan.loads[1], &plan.variants[variant]);
        (0..load.vms.as_ref().unwrap().count)
            .map(|number| plan.other_vm(load, Some(variant), number).unwrap().1)
            .map(|spec| (spec.vcpus(), spec.memory_mib, spec.pins.vcpus.len()))
            .collect()
    };
    let own = "count = 3, each.1 = { memory_mib = 512, pins = ['3'] }";
    let plan = with_other_vms(own);
    for variant in 0..3 {
        assert_eq!(others(&plan, variant), [(1, 1024, 0), (1, 512, 1), (1, 1024, 0)]);
    }
    assert!(plan.variants.iter().all(|variant| variant.other_vms.is_empty()));

    // The first has nothing of its own, the second two vCPUs, the third less memory.
    let plan = with_other_vms(&format!("{own}, follow_variant = true"));
    assert_eq!(others(&plan, 0), [(1, 1024, 0), (1, 512, 1), (1, 1024, 0)]);
    assert_eq!(others(&plan, 1), [(2, 1024, 0), (2, 512, 1), (2, 1024, 0)]);
    assert_eq!(others(&plan, 2), [(1, 256, 0), (1, 512, 1), (1, 256, 0)]);
    assert!(plan.other_vms.is_empty() && plan.single_other_vms.is_empty());
    assert!(plan.other_vm(&plan.loads[1], None, 0).is_none(), "there is no variant to follow");
    let again = StudyPlan::from_json(plan.to_json().as_bytes()).unwrap();
    assert_eq!(again.to_json(), plan.to_json());
    // What the load says itself holds.
    let plan = with_other_vms("count = 1, follow_variant = true, vm.memory_mib = 384");
    assert_eq!(others(&plan, 2), [(1, 384, 0)]);
}

#[test]
fn a_variants_pins_and_devices_are_not_the_other_vms() {
    let text = STUDY
        .replace("vm.vcpus = 2", "vm.vcpus = 2\nvm.pins = ['0', '1']\nvm.hints.cpu_pm = true")
        .replace(
            "stress.percent = 50",
            "vms = { count = 1, workload = 'hackbench', follow_variant = true }",
        );
    let plan = crate::testing::plan_of(&text);
    let (_, spec) = plan.other_vm(&plan.loads[1], Some(&plan.variants[1]), 0).unwrap();
    assert_eq!((spec.hints.cpu_pm, spec.pins.is_empty()), (Some(true), true));
    // The thin guest runs no load, whoever asks for it.
    let thin = text.replace("vm.hints.cpu_pm = true", "vm.kernel = 'builtin:thin'");
    let study = Study::parse("s.toml", &thin).unwrap();
    let mut machine = machine();
    let thin = machine.images.values().next().cloned().unwrap();
    machine.images.insert(study.variants[1].vm.image(), thin);
    let found = freeze(&study, &machine, 1, 0.0).unwrap_err();
    let said = "the other VM of load \"busy\": the thin guest is only for the VM under test";
    assert!(found.iter().any(|problem| problem.message.contains(said)), "{found:?}");
}

#[test]
fn all_of_a_loads_vms_need_memory_those_of_the_largest_variant_too() {
    let load = |words: &str| {
        let words = format!("vms = {{ workload = 'hackbench', {words} }}");
        problems("stress.percent = 50", &words).join("\n")
    };
    assert_eq!(load("count = 7"), "", "8 GiB here, one of them under test");
    assert!(load("count = 7, each.0.memory_mib = 2048").contains("need 9216 MiB"));
    let text = STUDY.replace("vm.memory_mib = 256", "vm.memory_mib = 2048").replace(
        "stress.percent = 50",
        "vms = { count = 4, workload = 'hackbench', follow_variant = true }",
    );
    let study = Study::parse("s.toml", &text).unwrap();
    let found = freeze(&study, &machine(), 1, 0.0).unwrap_err();
    assert!(found[0].message.contains("need 10240 MiB"), "{found:?}");
}
