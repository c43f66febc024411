//! libvirt's own schema.

use std::path::Path;
use std::process::Command;

use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRng, TestRunner};
use suite::{Tier, needs};

use super::*;

/// True if the program is there; else the test that calls it is skipped.
pub(super) fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output();
    if let Err(error) = &found {
        suite::skip(format!("{program}: {error}"));
    }
    found.is_ok()
}

/// Where libvirt keeps its schemas.
const SCHEMAS: &str = "/usr/share/libvirt/schemas/domaincommon.rng";

/// The VM without what this machine's libvirt is too old for: iothreads that share a
/// disk's queues came with 10.0, how long they poll with 9.4.
pub(super) fn as_known_here(spec: &VmSpec) -> VmSpec {
    let schema = std::fs::read_to_string(SCHEMAS).unwrap_or_default();
    let knows = |element: &str| schema.contains(&format!("<element name=\"{element}\">"));
    let mut settings = VmSettings::from(spec.clone());
    if !knows("queue") {
        settings.disks.iter_mut().for_each(|disk| disk.queue_iothreads.clear());
    }
    if !knows("poll") {
        settings.iothread_poll_max_ns = None;
    }
    VmSpec::new(settings).unwrap()
}

/// What a program says against an input file, if anything.
fn complaint(program: &str, arguments: &[&str], file: &Path) -> Option<String> {
    let output = Command::new(program).args(arguments).arg(file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (!output.status.success()).then_some(text)
}

#[test]
fn its_schema_takes_every_vm() {
    let Some(_turn) = needs(Tier::Test).pcpus(1).turn() else { return };
    if !installed("virt-xml-validate") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("domain.xml");
    let config = Config::default();
    let rng = TestRng::deterministic_rng(config.rng_algorithm);
    let mut runner = TestRunner::new_with_rng(config, rng);
    for _ in 0..60 {
        let spec = as_known_here(&any_spec().new_tree(&mut runner).unwrap().current());
        // A device that its own bus refuses is not for the schema to know.
        let channels = super::channels(folder.path());
        let launched = super::launched(&channels);
        for text in [emit(&spec).text, emit_launched(&spec, &launched).text] {
            std::fs::write(&file, &text).unwrap();
            if let Some(said) = complaint("virt-xml-validate", &[], &file) {
                panic!("{said}\n{text}");
            }
        }
    }
}
