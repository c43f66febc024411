//! Facts of VMs that no study started: from saved audits and libvirt's logs.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use host::audit::RunningVm;
use host::audit::cpu_pm::CpuPmState;
use host::audit::libvirt_log::{self, LoggedStart};
use serde::Deserialize;

use super::{CPU_PM, HostFactRow, NOT_ASKED_FOR, UNKNOWN};
use crate::{audit, input};

/// What a start says where no audit looked at the VM.
const STARTED: &str = "QEMU started; `vmlab audit` shows what is in force while the VM runs";

/// The head of a saved audit.
#[derive(Debug, Deserialize)]
struct SavedAuditHeader {
    format: String,
    #[serde(default)]
    version: u32,
}

/// The part of a saved audit that is read.
#[derive(Debug, Deserialize)]
struct SavedAudit {
    #[serde(default)]
    kernel: Option<String>,
    #[serde(default)]
    qemu: Option<String>,
    vms: Vec<RunningVm>,
}

/// The rows of a saved audit, or of a log of libvirt's.
pub(super) fn rows_of(path: &Path) -> anyhow::Result<Vec<HostFactRow>> {
    let name = path.display();
    let mut bytes = Vec::new();
    input::open(path, input::MAX_TEXT_BYTES)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .with_context(|| format!("Cannot read {name}"))?;
    let text = String::from_utf8_lossy(&bytes);
    if text.trim_start().starts_with('{') {
        let what = || format!("{name} is not what `vmlab audit --json` prints");
        let SavedAuditHeader { format, version } =
            serde_json::from_str(&text).with_context(what)?;
        ensure!(format == audit::FORMAT, "{}: its format is {format:?}", what());
        // Of version 1, what is looked at here means the same.
        ensure!(
            version <= audit::VERSION,
            "{name} is an audit of version {version}, and this vmlab reads versions up to {}: \
             use a newer vmlab",
            audit::VERSION
        );
        let audit: SavedAudit = serde_json::from_str(&text).with_context(what)?;
        return Ok(audit.vms.iter().filter_map(|vm| row_of_vm(vm, &audit)).collect());
    }
    if !libvirt_log::is_log(&text) {
        bail!("{name} is no results folder, no audit in JSON and no log of libvirt's VMs");
    }
    let vm = path.file_stem().unwrap_or_default().to_string_lossy();
    Ok(libvirt_log::starts(&text).iter().filter_map(|start| row_of_start(&vm, start)).collect())
}

fn row_of_vm(vm: &RunningVm, audit: &SavedAudit) -> Option<HostFactRow> {
    let halts = vm.halts.filter(|halts| halts.halt_exits > 0);
    let (state, evidence) = match (&vm.cpu_pm, halts) {
        (Some(found), _) => (found.state.to_string(), found.evidence.clone()),
        (None, Some(halts)) => (NOT_ASKED_FOR.to_owned(), halts.to_string()),
        (None, None) => return None,
    };
    let start = vm.start.as_ref();
    let unknown = || UNKNOWN.to_owned();
    Some(HostFactRow {
        fact: CPU_PM.to_owned(),
        variant: vm.label(),
        migrated: vm.asked.incoming,
        kernel: audit.kernel.clone().unwrap_or_else(unknown),
        qemu: match start {
            Some(start) => start.qemu.clone(),
            None => audit.qemu.clone().unwrap_or_else(unknown),
        },
        libvirt: vm.asked.libvirt.then(|| start.map_or_else(unknown, |s| s.libvirt.clone())),
        state,
        evidence,
        trials: 1,
    })
}

fn row_of_start(vm: &str, start: &LoggedStart) -> Option<HostFactRow> {
    let quoted = |line: &String| format!("QEMU said {line:?}");
    let (state, evidence) = if !start.cpu_pm {
        return None;
    } else if let Some(line) = start.refused_by_qemu() {
        (CpuPmState::RefusedByQemu.to_string(), quoted(line))
    } else if let Some(line) = start.refused_by_kvm() {
        (CpuPmState::RefusedByKvm.to_string(), quoted(line))
    } else if start.failed {
        let last = start.said.last().map(quoted).unwrap_or_default();
        let what = if start.incoming { "take the guest over" } else { "start" };
        (format!("not known: the VM did not {what}"), last)
    } else {
        (CpuPmState::NotProven.to_string(), STARTED.to_owned())
    };
    Some(HostFactRow {
        fact: CPU_PM.to_owned(),
        variant: vm.to_owned(),
        migrated: start.incoming,
        kernel: start.kernel.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
        qemu: start.qemu.clone(),
        libvirt: Some(start.libvirt.clone()),
        state,
        evidence,
        trials: 1,
    })
}

/// The rows in order, alike ones as one, without those starts of which an audit
/// of the same VM tells more.
pub(super) fn without_surpassed(mut rows: Vec<HostFactRow>) -> Vec<HostFactRow> {
    rows.sort();
    let key = |row: &HostFactRow| {
        let texts = [&row.fact, &row.variant, &row.kernel, &row.qemu].map(Clone::clone);
        (texts, row.libvirt.clone(), row.migrated)
    };
    let told: Vec<_> = rows.iter().filter(|row| row.evidence != STARTED).map(key).collect();
    rows.retain(|row| row.evidence != STARTED || !told.contains(&key(row)));
    rows.dedup_by(|row, before| {
        let alike = key(row) == key(before)
            && (&row.state, &row.evidence) == (&before.state, &before.evidence);
        before.trials += if alike { row.trials } else { 0 };
        alike
    });
    rows
}
