//! A real Kubernetes API server with KubeVirt's webhooks, which
//! `scripts/get-kube` builds once.

use std::path::Path;
use std::process::Command;

use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use suite::{SharedThing, Tier, needs};

use crate::builtin::{VARIANTS, variant};
use crate::tests::{a_disk_and_a_nic, direct, with, xeon_4208};

use super::*;

fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(name))
}

/// The server's answers to objects; `None` if it can't be had here.
fn answers(objects: &[String]) -> Option<Vec<String>> {
    let _turn = needs(Tier::Full).pcpus(2).alone_with(SharedThing::Cache).turn()?;
    let folder = tempfile::tempdir().unwrap();
    let file = |number: usize, end: &str| folder.path().join(format!("{number}.{end}"));
    for (number, text) in objects.iter().enumerate() {
        std::fs::write(file(number, "yaml"), text).unwrap();
    }
    let output = script("ask-kube").arg(folder.path()).output().unwrap();
    if output.status.code() == Some(3) {
        suite::skip("no namespaces of one's own: run as root");
        return None;
    }
    let said = [output.stdout, output.stderr].concat();
    if output.status.code() == Some(2) {
        suite::skip(String::from_utf8_lossy(&said));
        return None;
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    let read = |number| std::fs::read_to_string(file(number, "answer")).unwrap();
    Some((0..objects.len()).map(read).collect())
}

#[test]
fn it_takes_every_vm() {
    let host = xeon_4208();
    let of_variant = |arch, name| {
        let with = PatchContext { arch, ..with(direct()) };
        a_disk_and_a_nic().overlay(&variant(name, &host, 4).unwrap()).resolve(&with).unwrap()
    };
    let variants = [Arch::X86_64, Arch::Aarch64]
        .into_iter()
        .flat_map(|arch| VARIANTS.iter().map(move |one| of_variant(arch, one.name)));
    let config = Config::default();
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let drawn = (0..100).map(|_| any_spec().new_tree(&mut runner).unwrap().current());
    let objects: Vec<String> = variants
        .chain(drawn)
        .flat_map(|spec| {
            [KubevirtKind::Instance, KubevirtKind::Machine].map(|kind| emit(&spec, kind).text)
        })
        .collect();
    let Some(answers) = answers(&objects) else { return };
    let refused: Vec<String> = objects
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| !answer.starts_with("HTTP/2 201"))
        .map(|(object, answer)| format!("{object}{answer}"))
        .collect();
    assert!(refused.is_empty(), "{} of {}:\n{}", refused.len(), objects.len(), refused.join("\n"));
}
