//! Studies whose variants measure several VMs at once.

use std::fs;
use std::path::Path;
use std::process::Command;

use record::{FailureKind, Outcome};
use suite::{Tier, needs};

use crate::lab::{CommandOutput, events, vmlab};
use crate::running::{Study, assert_complete, owned_by, results};
use crate::trials::two_pcpus;

/// The values of a metric of one run.
fn values(run: &record::journal::RunResult, name: &str) -> Vec<f64> {
    run.samples.iter().filter(|one| one.metric == name).map(|one| one.value).collect()
}

#[test]
fn two_vms_are_measured_together() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let (first, last) = two_pcpus().unwrap_or_default();
    let study = Study::new(
        1,
        &format!(
            "[[variant]]\nname = \"one\"\n\n\
             [[variant]]\nname = \"two\"\n\
             measured = {{ vms = 3, each.0 = {{ pins = [{last}] }}, each.1 = {{ pins = [{first}], memory_mib = 320 }}, left_out = [2] }}\n\n\
             [[workload]]\nrun = \"sysbench-cpu\"\nparams = {{ time_s = 1 }}\n\
             background = {{ run = \"hackbench\", params = {{ groups = 1, loops = 5 }} }}\n"
        ),
    );
    let mut running = study.start_told();
    let owner = running.pid();
    let both = running.until("both VMs", |_| {
        let vms = owned_by(owner);
        let named = |name: &str| vms.iter().find(|owned| owned.is_vm(name)).cloned();
        named("trial").zip(named("vm1"))
    });
    assert!(both.0.command_line.contains("-m 256M"), "{both:?}");
    assert!(both.1.command_line.contains("-m 320M"), "{both:?}");
    let said = running.wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    assert!(said.stdout.contains("events-per-s.sum"), "{said:#?}");

    let contents = assert_complete(&study.dir());
    let all = results(&contents.events);
    for result in &all {
        assert!(result.outcome.is_completed(), "{result:#?}");
        let run = &result.runs[0];
        let vms = if result.trial.variant == "one" { 1 } else { 2 };
        let of = |name: &str| match values(run, name)[..] {
            [value] => value,
            ref other => panic!("{name}: {other:?} in {run:#?}"),
        };
        let (sum, mean) = (of("events-per-s.sum"), of("events-per-s.mean"));
        assert!((sum / mean / f64::from(vms) - 1.0).abs() < 1e-9, "{sum} {mean}");
        assert!(of("events-per-s.worst") <= mean && of("events-per-s.spread") >= 1.0, "{run:#?}");
        assert!(values(run, "events-per-s").is_empty(), "{run:#?}");
        assert_eq!(run.blobs.contains_key("vm1-stdout"), vms == 2, "{:?}", run.blobs);
        if vms == 2 {
            assert_eq!(result.vcpu_affinity[..2], [last.to_string(), first.to_string()]);
            assert!(run.blobs.contains_key("vm2-stdout"), "{:?}", run.blobs);
        }
    }
    // Counters are those of all VMs.
    let present_bytes = |variant: &str| {
        let result = all.iter().find(|result| result.trial.variant == variant).unwrap();
        result.runs[0].counters.get("memory.present_bytes").unwrap()
    };
    let (one, two) = (present_bytes("one"), present_bytes("two"));
    assert!(two > 1.5 * one, "{two} {one}");
    let html = fs::read_to_string(study.dir().join("report.html")).unwrap();
    assert!(html.contains("Measured together with two-1, the same but for"));
}

/// Its failure says which of them it was, and the others' work ends: it would go on for
/// longer than this test waits.
#[test]
fn a_vm_that_dies_among_several_is_named() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let study = Study::new(
        1,
        "[[variant]]\nname = \"two\"\nmeasured.vms = 2\n\n\
         [[workload]]\nrun = \"sysbench-cpu\"\nparams = { time_s = 1200 }\n",
    );
    let mut running = study.start_told();
    let owner = running.pid();
    running.until_benchmark();
    owned_by(owner).into_iter().find(|owned| owned.is_vm("vm1")).expect("VM 1").kill();
    let said = running.wait();
    assert_eq!(said.code, Some(1), "{said:#?}");
    let all = results(&events(&study.dir()));
    let Outcome::Failed(failure) = &all[0].outcome else { panic!("{:#?}", all[0]) };
    assert_eq!(failure.kind, FailureKind::VmDied, "{failure:?}");
    assert!(failure.detail.contains("VM 1"), "{failure:?}");
}

/// Who else places VMs: a cluster's node by its rules, and where memory came to lie.
#[test]
fn vms_are_where_others_would_put_them() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    let host = runner::machine::this_host();
    let online = host.online();
    let (Some(first), true) = (online.first(), online.len() > 1) else {
        return suite::skip("one pCPU: a node of a cluster has none to give");
    };
    let node = host.pcpus.iter().find(|pcpu| pcpu.id == first).and_then(|pcpu| pcpu.node);
    let node = node.unwrap_or(0);
    let study = Study::new(
        1,
        &format!(
            "[[variant]]\nname = \"kubevirt\"\n\
             measured.placement.kubevirt = {{ reserved = \"{first}\" }}\n\n\
             [[variant]]\nname = \"memory\"\nvm.memory.prealloc = true\n\
             vm.vcpus = 2\nvm.numa = [{{}}, {{}}]\nmeasured = {{ vms = 2, placement = \"memory\" }}\n\n\
             [[variant]]\nname = \"bound\"\nvm.vcpus = 2\n\
             vm.numa = [{{ host_nodes = \"{node}\" }}, {{ host_nodes = \"{node}\" }}]\n\n\
             [[workload]]\nrun = \"hackbench\"\nparams = {{ groups = 1, loops = 5 }}\n"
        ),
    );
    let said = study.start().wait();
    assert_eq!(said.code, Some(0), "{said:#?}");
    for result in results(&assert_complete(&study.dir()).events) {
        assert!(result.outcome.is_completed(), "{result:#?}");
        let pcpus = |list: &String| list.parse::<topology::PcpuSet>().unwrap();
        let affinity: Vec<_> = result.vcpu_affinity.iter().map(pcpus).collect();
        if result.trial.variant == "kubevirt" {
            assert_eq!(affinity.len(), 1, "{result:#?}");
            assert!(affinity[0].len() == 1 && !affinity[0].contains(first), "{result:#?}");
            continue;
        }
        // Which of two mappings alike is which guest node's memory, QEMU tells.
        if result.trial.variant == "bound" {
            continue;
        }
        assert_eq!(affinity.len(), 4, "{result:#?}");
        for (number, pcpus) in affinity.iter().enumerate() {
            // Two vCPUs a VM, one a guest node.
            let (vm, node) = (number / 2, number % 2);
            let told = &result.facts[&format!("memory of guest node {node}, VM {vm}")];
            let of_node = |node| host.select(|pcpu| pcpu.online && pcpu.node == Some(node));
            let home = (0..64).find(|node| told.starts_with(&format!("node {node} has "))).unwrap();
            assert_eq!(*pcpus, of_node(home), "{told}");
        }
    }
}

/// What stands in the way is said by line before anything boots.
#[test]
fn what_can_t_be_measured_together_is_said() {
    let check = |measured: &str, workload: &str, part: &str| {
        let study = Study::new(
            1,
            &format!(
                "[[variant]]\nname = \"several\"\nmeasured = {{ {measured} }}\n\n\
                 [[workload]]\nrun = \"{workload}\"\n"
            ),
        );
        let path = study.folder().join("study.toml");
        let mut command = vmlab(["run".as_ref(), path.as_os_str(), "--dry-run".as_ref()]);
        let said = CommandOutput::of(command.output().unwrap());
        assert_eq!(said.code, Some(2), "{said:#?}");
        assert!(said.stderr.contains("study.toml:") && said.stderr.contains(part), "{said:#?}");
    };
    check("vms = 0", "hackbench", "vms = 0: must be 1 to 256");
    check("vms = 257", "hackbench", "vms = 257: must be 1 to 256");
    check("vms = 2, each.2 = { memory_mib = 512 }", "hackbench", "there is no VM 2 among 2");
    check("vms = 2, left_out = [0]", "hackbench", "leave out another");
    check("placement = \"memory\"", "hackbench", "write memory.prealloc = true");
    check("placement.kubevirt.version = \"9\"", "hackbench", "kubevirt: ");
    check(
        "vms = 64, placement.kubevirt = { kubelet = \"full-pcpus-only\" }",
        "hackbench",
        "the kubelet rejects VM ",
    );
    check("vms = 2", "iperf3", "two roles");
    check("vms = 200, each.0 = { memory_mib = 900000 }", "hackbench", "200 VMs need");
    check("vms = 64, placement = \"planned\"", "hackbench", "of 64 VMs have a place on this host");
}

/// On a described host each VM has pCPUs and a meter of its own.
#[test]
fn several_vms_are_simulated_where_the_planner_puts_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study.toml");
    fs::write(
        &path,
        "vmlab = 1\ntitle = \"Four\"\nbaseline = \"same\"\n\n[budget]\nblocks = 2\n\n\
         [measured]\nvms = 4\n\n[vm]\nvcpus = 2\nmemory_mib = 2048\n\n\
         [[variant]]\nname = \"same\"\nvm.pins = [0, 1]\n\n\
         [[variant]]\nname = \"planned\"\nmeasured.placement = \"planned\"\n\n\
         [[workload]]\nrun = \"probe-lock\"\n",
    )
    .unwrap();
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies/hosts/four-sockets.json");
    let on = format!("sim:{}", host.display());
    let out = folder.path().join("results");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vmlab"));
        command.arg("run").arg(&path).args(["--on", &on, "--out"]).arg(&out);
        CommandOutput::of(command.output().unwrap())
    };
    // Where memory comes to lie is not played, and not passed over.
    let study = fs::read_to_string(&path).unwrap();
    let followed = study.replace("\"planned\"\n\n", "\"memory\"\n\n");
    fs::write(&path, followed).unwrap();
    let said = run();
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("not in the simulator's model"), "{said:#?}");
    fs::write(&path, study).unwrap();
    let said = run();
    assert_eq!(said.code, Some(0), "{said:#?}");
    let report: serde_json::Value =
        serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let groups = report["groups"].as_array().unwrap();
    let sum = groups.iter().find(|group| group["primary"] == true).unwrap();
    assert_eq!(sum["metric"]["name"], "acquisitions-per-s.sum", "{sum:#}");
    let centre = |index: usize| sum["cells"][index]["estimate"]["centre"].as_f64().unwrap();
    // Four VMs on two pCPUs do less than on eight.
    assert!(centre(1) > 2.0 * centre(0), "{} {}", centre(0), centre(1));
}
