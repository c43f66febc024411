//! The rules on KubeVirt's split siblings held against what a real kubelet gave: which
//! pCPUs a pod got is recorded, and which of them each vCPU got is arithmetic.
//!
//! Source: KubeVirt 0.44.0, `formatDomainCPUTune`: vCPU i on the i-th of the pod's pCPUs;
//! <https://github.com/kubevirt/kubevirt/pull/6251>: core by core.

use std::collections::BTreeMap;

use lint::{Context, Kubelet, check_text};
use placement::predict::kubelet::{KubeletSettings, ReservedCpus};
use placement::predict::verify::{
    Answer, Experiment, ExperimentRecord, RECORDED, Step, ThreadNumbering,
};
use serde_json::json;
use topology::{Host, PcpuSet};

/// The first pod of an experiment, which found its node empty, as linting supposes it.
fn first(experiment: &Experiment) -> Option<(u32, PcpuSet)> {
    let (Step::Pod { pcpus, memory, .. }, Answer::Pcpus(given)) =
        (experiment.steps.first()?, experiment.answers.first()?)
    else {
        return None;
    };
    // A guest of two cores or more, of two threads each.
    let fits = memory.is_empty() && *pcpus >= 4 && pcpus.is_multiple_of(2);
    (fits && experiment.machine.threads == 2).then(|| (*pcpus, given.clone()))
}

/// The socket, node and core of a pCPU.
type HostCore = (Option<u32>, Option<u32>, Option<u32>);

/// The host core of each pCPU.
fn cores(host: &Host) -> BTreeMap<u32, HostCore> {
    host.pcpus.iter().map(|pcpu| (pcpu.id, (pcpu.socket, pcpu.node, pcpu.core))).collect()
}

/// Whether a guest core's threads come to lie on two host cores.
fn is_split(vcpus: &[u32], cores: &BTreeMap<u32, HostCore>) -> bool {
    vcpus.chunks(2).any(|pair| cores[&pair[0]] != cores[&pair[1]])
}

/// The rules that fire.
fn found(pcpus: u32, version: &str, mut context: Context) -> Vec<String> {
    context.kubevirt = version.parse().unwrap();
    let domain = json!({
        "cpu": { "sockets": 1, "cores": pcpus / 2, "threads": 2, "dedicatedCpuPlacement": true },
        "memory": { "guest": "1Gi" }, "devices": {},
    });
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": { "name": "vm" }, "spec": { "domain": domain },
    });
    let checked = check_text("vm.json", &object.to_string(), &context).unwrap();
    checked.findings.into_iter().map(|finding| finding.rule.to_string()).collect()
}

/// What linting knows of the node of an experiment.
fn node(experiment: &Experiment) -> (Context, Host) {
    let text = json!({ "kubeletconfig": experiment.kubelet }).to_string();
    let settings = KubeletSettings::from_configz(text.as_bytes()).unwrap();
    let host = experiment.machine.host().unwrap();
    let mut context = Context::default();
    let ReservedCpus::Set(reserved) = &settings.reserved else { panic!("{text}") };
    context.reserved = reserved.clone();
    context.kubelet = Kubelet {
        options: settings.options,
        topology: settings.topology,
        topology_options: settings.topology_options,
        memory: settings.memory.clone(),
        cfs_quota: settings.cfs_quota,
    };
    (context.on(host.clone()), host)
}

#[test]
fn siblings_are_split_where_the_kubelet_s_answers_say_so() {
    let record = ExperimentRecord::from_json(RECORDED).unwrap();
    let (mut split, mut whole, mut far) = (0, 0, 0);
    for experiment in &record.experiments {
        let Some((pcpus, given)) = first(experiment) else { continue };
        let (_, host) = node(experiment);
        let cores = cores(&host);
        let will_split = |version| {
            let (context, _) = node(experiment);
            let found = found(pcpus, version, context);
            found.iter().any(|rule| rule == "kubevirt-will-split-siblings")
        };
        // Where the host is not known.
        let may_split = |version| {
            let found = found(pcpus, version, Context::default());
            found.iter().any(|rule| rule == "kubevirt-siblings-split")
        };
        let what = format!("{:?} of {:?} got {given}", pcpus, experiment.machine);

        // 0.44: in the order of their numbers.
        let numbered: Vec<u32> = given.iter().collect();
        let mismatch = is_split(&numbered, &cores);
        assert_eq!(will_split("0.44.0"), mismatch, "{what}");
        if mismatch {
            // Without the host: it may happen, and here it did.
            assert!(may_split("0.44.0"), "{what}");
            split += 1;
            far += u32::from(experiment.machine.thread_numbering == ThreadNumbering::Far);
        }

        // Mended: by their cores.
        let mut by_core = numbered;
        by_core.sort_by_key(|pcpu| (cores[pcpu], *pcpu));
        let stays = is_split(&by_core, &cores);
        for mended in ["0.44.2", "0.45.1"] {
            assert_eq!(will_split(mended), stays, "{what}");
            assert!(!may_split(mended), "{what}");
        }
        whole += u32::from(mismatch && !stays);
    }
    // All that 0.44 split were mended, and siblings that are numbered far are what it split.
    assert!(
        split > 0 && far == split && whole == split,
        "{split} split, {far} far, {whole} mended"
    );
}
