//! The changes that give a VM pCPUs of its own.

use std::io;

use topology::PcpuSet;

use super::cpuset::{CONTROL, PartitionKind, folder, read_controller, usable, word};
use super::refusal::{SettingRefusal, check_writable};
use super::step::SettingStep;
use super::target::SettingTarget;
use super::tree::SettingsTree;
use super::value::ABSENT;

/// What makes a partition of these pCPUs, or takes it away where there are none.
pub(super) fn partition_steps(
    tree: &SettingsTree,
    kind: PartitionKind,
    pcpus: &PcpuSet,
) -> Result<Vec<SettingStep>, SettingRefusal> {
    let mount = usable(tree)?;
    let folder = folder(&mount, kind);
    if tree.has(&folder) {
        let hint =
            format!("/{folder} is there already: remove it, or restore it with `vmlab clean`");
        return Err(SettingRefusal::Cgroup(hint));
    }
    let partition = SettingTarget::Partition { kind, folder };
    if pcpus.is_empty() {
        return Ok(vec![SettingStep::new(partition, ABSENT.to_owned(), ABSENT.to_owned())]);
    }
    let control = format!("{mount}/{CONTROL}");
    check_writable(&tree.path(&control), &control)?;
    let unreadable = |error: io::Error| SettingRefusal::Unreadable {
        path: control.clone(),
        why: error.to_string(),
    };
    let on = read_controller(tree, &control).map_err(unreadable)?;
    let wanted = format!("{} {pcpus}", word(kind));
    Ok(vec![
        SettingStep::new(SettingTarget::Controller(control), on, "1".to_owned()),
        SettingStep::new(partition, ABSENT.to_owned(), wanted),
    ])
}
