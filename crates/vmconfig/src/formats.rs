//! What every format gives back beside its text or its VM.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HostDevice, InvalidVm, VmSettings, VmSpec};

/// Something that a format can't say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// The field, with its value.
    pub what: String,
    /// Why not, and who sees to it instead.
    pub why: String,
    /// Paths of the fields of [`VmSettings`] that reading the text again does
    /// not give back: `pins.vcpus`, `disks.0.iothread`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<String>,
}

impl Loss {
    pub(crate) fn new(field: &str, what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into(), fields: vec![field.to_owned()] }
    }

    pub(crate) fn also(mut self, field: &str) -> Self {
        self.fields.push(field.to_owned());
        self
    }
}

/// A text in some format, and what it can't say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmittedText {
    /// The text.
    pub text: String,
    /// What the VM is besides.
    pub losses: Vec<Loss>,
}

/// Something in a text that has no place in a [`VmSpec`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnmodelledSetting {
    /// Its line, from 1.
    pub line: u32,
    /// The file that holds the line, if it is one that the text names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Where it stands: `/domain/devices/video`, `spec.domain.firmware`,
    /// `-device`.
    pub path: String,
    /// It, verbatim.
    pub text: String,
}

impl UnmodelledSetting {
    /// One of the text itself.
    pub(crate) fn of_text(line: u32, path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { line, file: None, path: path.into(), text: text.into() }
    }
}

/// A VM as a text describes it.
///
/// The settings are not checked: a text from the wild may describe what can't
/// be, and whoever looks for faults wants to see it. [`ParsedVm::spec`] checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedVm {
    /// The VM.
    pub settings: VmSettings,
    /// What has no place in it, in the order of lines.
    pub kept: Vec<UnmodelledSetting>,
    /// Lines of the fields that the text sets, by path: `pins.vcpus.0`,
    /// `memory.huge_pages`; the VM's own by the empty path. A field that isn't listed has a default.
    /// They are counted through the text and the files behind it: [`ParsedVm::in_file`].
    pub lines: BTreeMap<String, u32>,
    /// The files that the text names, by the line that is their first one.
    pub files: BTreeMap<u32, String>,
}

impl ParsedVm {
    /// The VM, if it can be.
    ///
    /// # Errors
    /// [`InvalidVm`] names the first field that can't be, and its value.
    pub fn spec(&self) -> Result<VmSpec, InvalidVm> {
        VmSpec::new(self.settings.clone())
    }

    /// The line of a field, or of the nearest field around it that has one.
    #[must_use]
    pub fn line(&self, field: &str) -> Option<u32> {
        let mut path = field;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rsplit_once('.')?.0;
        }
    }

    /// The file that holds such a line, if it is not the text itself, and the line's number
    /// there.
    #[must_use]
    pub fn in_file(&self, line: u32) -> (Option<&str>, u32) {
        match self.files.range(..=line).next_back() {
            Some((first, file)) => (Some(file), line - first + 1),
            None => (None, line),
        }
    }

    /// The line where the VM begins, of texts that may hold several.
    #[must_use]
    pub fn line_of_vm(&self) -> Option<u32> {
        self.lines.get("").copied()
    }

    /// The settings in their one way of saying things.
    pub(crate) fn finish(mut self) -> Self {
        self.settings.normalise();
        self.kept.sort_by(|one, other| (&one.file, one.line).cmp(&(&other.file, other.line)));
        self
    }
}

/// What only a cluster can say: a device by the name that its nodes offer it under.
pub(crate) fn resource_losses(spec: &VmSettings) -> impl Iterator<Item = Loss> {
    spec.host_devices.iter().enumerate().filter_map(|(number, device)| match device {
        HostDevice::Pci(_) => None,
        HostDevice::Resource(name) => {
            let why = "only a node of Kubernetes knows which device that is; give its address";
            let what = format!("host device {number}, one of {name:?}");
            Some(Loss::new("host_devices", what, why))
        }
    })
}

/// What no format of a VM can say, because it is for somebody else to do.
pub(crate) fn wish_losses(spec: &VmSettings) -> Vec<Loss> {
    let mut losses: Vec<Loss> = spec
        .host
        .set()
        .into_iter()
        .map(|(name, value)| {
            let why = "it is a setting of the whole host, not of a VM";
            Loss::new(&format!("host.{name}"), format!("host.{name} = {value}"), why)
        })
        .collect();
    losses.extend(spec.delegated.set().into_iter().map(|name| {
        let why = "somebody has to choose the pCPUs here: write pins";
        Loss::new(&format!("delegated.{name}"), format!("delegated.{name}"), why)
    }));
    losses
}
