//! The predictor's scoreboard: what real kubelets gave beside what is predicted.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use placement::predict::verify::{
    Answer, Experiment, ExperimentRecord, MachineShape, RECORDED, ThreadNumbering, VerifiedPod,
    verify,
};

use crate::exit::FINDINGS;
use crate::{input, terminal};

/// Verifies the experiments of a file, or those that vmlab carries.
///
/// # Errors
/// A file that can't be read or holds no experiments.
pub(super) fn run(file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let (name, text) = match file {
        None => ("The record that vmlab carries".to_owned(), RECORDED.to_owned()),
        Some(path) => {
            let name = path.display().to_string();
            let text = input::text(path).with_context(|| format!("Cannot read {name}"))?;
            (name, text)
        }
    };
    let record = ExperimentRecord::from_json(&text).with_context(|| name.clone())?;
    let ExperimentRecord { kubernetes, experiments, .. } = record;
    anyhow::ensure!(!experiments.is_empty(), "{name} holds no experiments");
    let mut verified = Vec::new();
    for (at, experiment) in experiments.iter().enumerate() {
        let pods = verify(experiment).with_context(|| format!("{name}: experiment {}", at + 1))?;
        verified.push((experiment, pods));
    }
    let (text, all_right) = scoreboard(&verified, &kubernetes);
    terminal::print(&text)?;
    Ok(if all_right { ExitCode::SUCCESS } else { ExitCode::from(FINDINGS) })
}

/// A line for each experiment, those that are wrong below it, and the sum.
fn scoreboard(verified: &[(&Experiment, Vec<VerifiedPod>)], kubernetes: &str) -> (String, bool) {
    let mut out = format!("{:<40} {:>7} {:>8}  KUBELET\n", "MACHINE", "RIGHT", "REJECTED");
    let (mut right, mut all) = (0, 0);
    for (experiment, pods) in verified {
        let good = pods.iter().filter(|pod| pod.is_right()).count();
        let rejected = pods.iter().filter(|pod| matches!(pod.given, Answer::Rejected(_))).count();
        right += good;
        all += pods.len();
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "{:<40} {:>7} {rejected:>8}  {}",
            machine(&experiment.machine),
            format!("{good}/{}", pods.len()),
            kubelet(experiment),
        );
        for pod in pods.iter().filter(|pod| !pod.is_right()) {
            let VerifiedPod { name, pcpus, predicted, given } = pod;
            let _ = writeln!(
                out,
                "  WRONG {name}, {pcpus} pCPUs: predicted {}, given {}",
                answer(predicted),
                answer(given)
            );
        }
    }
    let _ = writeln!(
        out,
        "\n{right} of {all} pods got from the kubelet of Kubernetes {kubernetes} what is predicted"
    );
    (out, right == all)
}

fn answer(answer: &Answer) -> String {
    match answer {
        Answer::Pcpus(pcpus) => pcpus.to_string(),
        Answer::Bound { pcpus, memory_nodes } => {
            format!("{pcpus} with memory of nodes {memory_nodes}")
        }
        Answer::Rejected(why) => why.clone(),
    }
}

/// `2 x 1 x 8 x 2, siblings far`: sockets, nodes, cores, threads.
fn machine(shape: &MachineShape) -> String {
    let MachineShape { sockets, nodes_per_socket, cores_per_node, threads, .. } = shape;
    let mut text = format!("{sockets} x {nodes_per_socket} x {cores_per_node} x {threads}");
    if *threads > 1 {
        text += match shape.thread_numbering {
            ThreadNumbering::Far => ", siblings far",
            ThreadNumbering::Near => ", siblings near",
        };
    }
    if shape.caches_per_node > 1 {
        text += &format!(", {} caches", shape.caches_per_node);
    }
    text
}

/// `0:memory=100Mi`, as the kubelet's option has it.
fn reservation(item: &serde_json::Value) -> String {
    let limits = item["limits"].as_object().into_iter().flatten();
    let limits: Vec<String> =
        limits.map(|(name, amount)| format!("{name}={}", amount.as_str().unwrap_or("?"))).collect();
    format!("{}:{}", item["numaNode"], limits.join(","))
}

/// Its settings without their quotes: options, topology manager, what is reserved.
fn kubelet(experiment: &Experiment) -> String {
    let mut said = Vec::new();
    for (key, value) in &experiment.kubelet {
        if key == "cpuManagerPolicy" || key == "featureGates" {
            continue;
        }
        if let Some(items) = value.as_array() {
            let items: Vec<String> = items.iter().map(reservation).collect();
            said.push(format!("{key} {}", items.join(" ")));
            continue;
        }
        match value.as_object() {
            Some(options) => {
                said.extend(options.iter().map(|(name, value)| match value.as_str() {
                    Some("true") => name.clone(),
                    _ => format!("{key}.{name} {}", value.to_string().trim_matches('"')),
                }))
            }
            None if value == "none" => {}
            None => said.push(format!("{key} {}", value.to_string().trim_matches('"'))),
        }
    }
    said.join(", ")
}
