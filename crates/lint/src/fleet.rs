//! What stays of each VM for the rules that look at all of them together.

use std::borrow::Cow;

use topology::PcpuSet;

use crate::finding::{Finding, LiveDifference, Severity};
use crate::format::ConfigFormat;
use crate::live_difference::live_difference;
use crate::vm::Vm;
use vmconfig::source::{LineColumn, SourceText};

/// One VM among all.
#[derive(Debug)]
pub struct SharedHostVm {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) vcpus: u32,
    pub(crate) vcpus_place: LineColumn,
    /// Each pin with its place.
    pub(crate) pins: Vec<FleetPin>,
    /// What is and was asked of all its vCPUs, if it runs.
    pub(crate) live: Option<LiveDifference>,
    /// Whether some of its vCPUs may run anywhere.
    pub(crate) floats: bool,
    pub(crate) kvm: bool,
    /// Rules that comments silence here.
    pub(crate) allowed: Vec<String>,
}

impl SharedHostVm {
    /// Without the pins in whose lines a comment silences one of the rules `about_fleets`.
    pub(crate) fn new(
        vm: &Vm,
        file: &str,
        source: &SourceText<'_>,
        allowed: &AllowComments,
        about_fleets: &[&str],
    ) -> Self {
        let silenced = |place: &LineColumn| about_fleets.iter().any(|id| allowed.covers(id, place));
        let vcpus_place = source.place(vm.vcpus.span);
        let mut pins = Vec::new();
        for pin in vm.live_pins() {
            let place = source.place(pin.pcpus.span);
            if !silenced(&place) {
                pins.push(FleetPin {
                    vcpu: pin.id.value,
                    pcpus: pin.pcpus.value.clone(),
                    place,
                    live: live_difference(vm, source, pin.span),
                });
            }
        }
        let allowed = allowed.everywhere.clone();
        // A command line can't say pins, and KubeVirt's shared pool ends where
        // dedicated pCPUs begin.
        let tells = vm.format == ConfigFormat::Libvirt || vm.live.is_some();
        let some = vm.live_pins().len() < vm.vcpus.value as usize;
        let floats = tells && some && vm.affinity.is_none();
        Self {
            file: file.to_owned(),
            name: vm.name.clone(),
            vcpus: vm.vcpus.value,
            vcpus_place,
            pins,
            live: live_difference(vm, source, vm.vcpus.span),
            floats,
            kvm: vm.accel.value == "kvm",
            allowed,
        }
    }
}

/// Where one vCPU is pinned.
#[derive(Debug)]
pub(crate) struct FleetPin {
    pub(crate) vcpu: u32,
    pub(crate) pcpus: PcpuSet,
    pub(crate) place: LineColumn,
    pub(crate) live: Option<LiveDifference>,
}

/// Collects what one rule finds among all VMs.
pub(crate) struct FleetDrafts<'a> {
    /// The rule's id, severity and how it is mended.
    pub(crate) rule: &'static str,
    pub(crate) severity: Severity,
    pub(crate) mend: &'static str,
    pub(crate) findings: &'a mut Vec<Finding>,
}

impl FleetDrafts<'_> {
    /// About a VM as a whole.
    pub(crate) fn at(&mut self, vm: &SharedHostVm, message: String, notes: Vec<String>) {
        self.push(vm, &vm.vcpus_place, vm.live.clone(), message, notes);
    }

    /// About one of its pins.
    pub(crate) fn at_pin(
        &mut self,
        vm: &SharedHostVm,
        pin: &FleetPin,
        message: String,
        notes: Vec<String>,
    ) {
        self.push(vm, &pin.place, pin.live.clone(), message, notes);
    }

    fn push(
        &mut self,
        vm: &SharedHostVm,
        place: &LineColumn,
        live: Option<LiveDifference>,
        message: String,
        notes: Vec<String>,
    ) {
        if vm.allowed.iter().any(|id| id == self.rule) {
            return;
        }
        self.findings.push(Finding {
            rule: Cow::Borrowed(self.rule),
            severity: self.severity,
            file: place.file_or(&vm.file),
            vm: vm.name.clone(),
            place: place.clone(),
            message,
            notes,
            help: self.mend.into(),
            live,
            fix: None,
        });
    }
}

const MARK: &str = "vmlab: allow";

/// The ids behind `vmlab: allow `, with commas between them; what follows is a reason.
fn bare(behind: &str) -> Vec<&str> {
    let mut ids = Vec::new();
    let Some(mut rest) = behind.strip_prefix([' ', '\t']) else { return ids };
    loop {
        rest = rest.trim_start();
        let end = rest
            .find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-' && letter != '_')
            .unwrap_or(rest.len());
        // `-->` ends a comment of XML.
        let id = rest[..end].trim_end_matches('-');
        if id.is_empty() {
            return ids;
        }
        ids.push(id);
        match rest[end..].trim_start().strip_prefix(',') {
            Some(more) => rest = more,
            None => return ids,
        }
    }
}

/// Rules that comments in a text silence.
///
/// `vmlab: allow ID` or `vmlab: allow(ID)` in a comment speaks of its own line and of
/// the next one; `vmlab: allow-file ID` or `vmlab: allow-file(ID)` of the whole text.
#[derive(Debug, Default)]
pub(crate) struct AllowComments {
    everywhere: Vec<String>,
    /// Lines from 1.
    lines: Vec<(usize, String)>,
}

impl AllowComments {
    pub(crate) fn new(source: &SourceText<'_>) -> Self {
        let mut allowed = Self::default();
        if !source.text.contains(MARK) {
            return allowed;
        }
        for (index, line) in source.lines().enumerate() {
            let mut rest = line;
            while let Some(found) = rest.find(MARK) {
                rest = &rest[found + MARK.len()..];
                let (file, behind) = match rest.strip_prefix("-file") {
                    Some(behind) => (true, behind),
                    None => (false, rest),
                };
                let ids: Vec<&str> = match behind.strip_prefix('(') {
                    Some(inside) => match inside.split_once(')') {
                        Some((ids, _)) => ids.split(',').map(str::trim).collect(),
                        None => continue,
                    },
                    None => bare(behind),
                };
                for id in ids.into_iter().map(str::to_owned) {
                    match file {
                        true => allowed.everywhere.push(id),
                        false => allowed.lines.push((index + 1, id)),
                    }
                }
            }
        }
        allowed
    }

    pub(crate) fn covers(&self, rule: &str, place: &LineColumn) -> bool {
        // Lines of a file that the text names are others.
        let line = place.file.is_none().then_some(place.line);
        self.everywhere.iter().any(|id| id == rule)
            || self.lines.iter().any(|(at, id)| {
                id == rule && line.is_some_and(|line| *at == line || *at + 1 == line)
            })
    }

    /// The ids in comments, with their lines.
    pub(crate) fn ids(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines
            .iter()
            .map(|(line, id)| (*line, id.as_str()))
            .chain(self.everywhere.iter().map(|id| (1, id.as_str())))
    }
}
