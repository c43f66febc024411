//! What stays of each VM for the rules that look at all of them together.

use topology::PcpuSet;

use crate::finding::{Finding, Severity};
use crate::rule::Rule;
use crate::source::{Place, Source};
use crate::vm::Vm;

/// One VM among all.
#[derive(Debug)]
pub struct FleetVm {
    pub(crate) file: String,
    pub(crate) name: String,
    pub(crate) vcpus: u32,
    pub(crate) vcpus_place: Place,
    /// Each pin with its place.
    pub(crate) pins: Vec<(u32, PcpuSet, Place)>,
    pub(crate) kvm: bool,
    /// Rules that comments silence here.
    pub(crate) allowed: Vec<String>,
}

impl FleetVm {
    pub(crate) fn new(vm: &Vm, file: &str, source: &Source<'_>, allowed: &Allowed) -> Self {
        let silenced = |place: &Place| {
            crate::RULES
                .iter()
                .any(|rule| rule.is_about_fleets() && allowed.covers(rule.id, place.line))
        };
        let vcpus_place = source.place(vm.vcpus.span);
        let mut pins = Vec::new();
        for pin in vm.live_pins() {
            let place = source.place(pin.pcpus.span);
            if !silenced(&place) {
                pins.push((pin.id.value, pin.pcpus.value.clone(), place));
            }
        }
        let allowed = allowed.everywhere.clone();
        Self {
            file: file.to_owned(),
            name: vm.name.clone(),
            vcpus: vm.vcpus.value,
            vcpus_place,
            pins,
            kvm: vm.accel.value == "kvm",
            allowed,
        }
    }
}

/// Collects what one rule finds among all VMs.
pub(crate) struct FleetDrafts<'a> {
    pub(crate) rule: &'static Rule,
    pub(crate) findings: &'a mut Vec<Finding>,
}

impl FleetDrafts<'_> {
    pub(crate) fn at(&mut self, vm: &FleetVm, place: &Place, message: String, notes: Vec<String>) {
        if vm.allowed.iter().any(|id| id == self.rule.id) {
            return;
        }
        let severity: Severity = self.rule.severity;
        self.findings.push(Finding {
            rule: self.rule.id,
            severity,
            file: vm.file.clone(),
            vm: vm.name.clone(),
            place: place.clone(),
            message,
            notes,
            help: self.rule.mend.to_owned(),
            fix: None,
        });
    }
}

/// Rules that comments in a text silence.
///
/// `vmlab: allow(ID)` in a comment speaks of its own line and of the next one;
/// `vmlab: allow-file(ID)` of the whole text.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    everywhere: Vec<String>,
    /// Lines from 1.
    lines: Vec<(usize, String)>,
}

impl Allowed {
    pub(crate) fn new(source: &Source<'_>) -> Self {
        let mut allowed = Self::default();
        if !source.text.contains("vmlab: allow") {
            return allowed;
        }
        for (index, line) in source.lines().enumerate() {
            let mut rest = line;
            while let Some(found) = rest.find("vmlab: allow") {
                rest = &rest[found + "vmlab: allow".len()..];
                let file = rest.strip_prefix("-file");
                let Some((ids, after)) = file
                    .unwrap_or(rest)
                    .strip_prefix('(')
                    .and_then(|behind| behind.split_once(')'))
                else {
                    continue;
                };
                for id in ids.split(',').map(|id| id.trim().to_owned()) {
                    match file {
                        Some(_) => allowed.everywhere.push(id),
                        None => allowed.lines.push((index + 1, id)),
                    }
                }
                rest = after;
            }
        }
        allowed
    }

    pub(crate) fn covers(&self, rule: &str, line: usize) -> bool {
        self.everywhere.iter().any(|id| id == rule)
            || self.lines.iter().any(|(at, id)| id == rule && (*at == line || *at + 1 == line))
    }

    /// Ids in comments that no rule has, with their lines.
    pub(crate) fn unknown(&self) -> impl Iterator<Item = (usize, &str)> {
        let known = |id: &str| crate::RULES.iter().any(|rule| rule.id == id);
        self.lines
            .iter()
            .map(|(line, id)| (*line, id.as_str()))
            .chain(self.everywhere.iter().map(|id| (1, id.as_str())))
            .filter(move |(_, id)| !known(id))
    }
}
