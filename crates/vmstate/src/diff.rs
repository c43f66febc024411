//! What differs between two states.

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::facts::{StateValue, hex};
use crate::field::{Field, FieldKind};
use crate::state::{DeviceState, MachineState};

/// Most bytes of a field of bytes that a difference shows.
const SHOWN_BYTES: usize = 32;

/// A field whose value differs between two states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FieldChange {
    /// The device with its instance: `apic#0`.
    pub device: String,
    /// The field; of an array the element, of bytes the first that differs.
    pub field: String,
    /// Its value in the first state; null where it is not there.
    pub old: Option<StateValue>,
    /// Its value in the second state; null where it is not there.
    pub new: Option<StateValue>,
}

/// What differs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StateDiff {
    /// Version of this form: 1.
    pub version: u32,
    /// The machine types, if they differ.
    pub machines: Option<(Option<String>, Option<String>)>,
    /// Devices of the first state alone.
    pub removed: Vec<String>,
    /// Devices of the second state alone.
    pub added: Vec<String>,
    /// Fields, in the order of the first state.
    pub changes: Vec<FieldChange>,
}

impl StateDiff {
    /// Whether nothing differs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.machines.is_none()
            && self.removed.is_empty()
            && self.added.is_empty()
            && self.changes.is_empty()
    }
}

/// Compares two states, of the devices that are `wanted`.
pub fn compare(
    old: &MachineState,
    new: &MachineState,
    wanted: impl Fn(&DeviceState) -> bool,
) -> StateDiff {
    let machines = (old.machine() != new.machine())
        .then(|| [old, new].map(|state| state.machine().map(str::to_owned)))
        .map(|[old, new]| (old, new));
    let mut diff = StateDiff { version: 1, machines, ..StateDiff::default() };
    let mut left: HashMap<(&str, u32), &DeviceState> = new
        .devices
        .iter()
        .filter(|device| wanted(device))
        .map(|device| ((device.name.as_str(), device.instance), device))
        .collect();
    for device in old.devices.iter().filter(|device| wanted(device)) {
        match left.remove(&(device.name.as_str(), device.instance)) {
            None => diff.removed.push(device.label()),
            Some(other) => compare_devices(old, device, new, other, &mut diff.changes),
        }
    }
    let added = new.devices.iter().filter(|device| {
        left.get(&(device.name.as_str(), device.instance))
            .is_some_and(|remaining| std::ptr::eq(*remaining, *device))
    });
    diff.added = added.map(DeviceState::label).collect();
    diff
}

fn compare_devices(
    old_state: &MachineState,
    old: &DeviceState,
    new_state: &MachineState,
    new: &DeviceState,
    changes: &mut Vec<FieldChange>,
) {
    let label = old.label();
    let mut left: HashMap<&str, &Field> =
        new.fields.iter().map(|field| (field.path.as_str(), field)).collect();
    for field in &old.fields {
        let Some(other) = left.remove(field.path.as_str()) else {
            let old = Some(old_state.value_of(field));
            let (device, field) = (label.clone(), field.path.clone());
            changes.push(FieldChange { device, field, old, new: None });
            continue;
        };
        let bytes = [old_state.bytes_of(field), new_state.bytes_of(other)];
        let same_form = (field.kind, field.size) == (other.kind, other.size);
        if bytes[0] == bytes[1] && same_form {
            continue;
        }
        match (field.kind, field.count, other.count) {
            (FieldKind::Bytes, ..) if same_form => changes.push(bytes_change(&label, field, bytes)),
            (kind, count, others) if same_form && count == others && count > 1 => {
                debug_assert!(kind != FieldKind::Bytes);
                let elements = bytes.map(|bytes| bytes.chunks_exact(field.size));
                let [old, new] = elements;
                for (index, (old, new)) in old.zip(new).enumerate().filter(|(_, (a, b))| a != b) {
                    changes.push(FieldChange {
                        device: label.clone(),
                        field: format!("{}[{index}]", field.path),
                        old: Some(crate::facts::value(field, old)),
                        new: Some(crate::facts::value(other, new)),
                    });
                }
            }
            _ => changes.push(FieldChange {
                device: label.clone(),
                field: field.path.clone(),
                old: Some(old_state.value_of(field)),
                new: Some(new_state.value_of(other)),
            }),
        }
    }
    for field in new.fields.iter().filter(|field| left.contains_key(field.path.as_str())) {
        let new = Some(new_state.value_of(field));
        let (device, field) = (label.clone(), field.path.clone());
        changes.push(FieldChange { device, field, old: None, new });
    }
}

/// Of long bytes what follows the first that differs.
fn bytes_change(label: &str, field: &Field, [old, new]: [&[u8]; 2]) -> FieldChange {
    let first = old.iter().zip(new).position(|(old, new)| old != new);
    let first = first.unwrap_or(old.len().min(new.len()));
    let is_short = old.len().max(new.len()) <= SHOWN_BYTES;
    let from = if is_short { 0 } else { first };
    let shown = |bytes: &[u8]| {
        let end = bytes.len().min(from + SHOWN_BYTES);
        StateValue::Text(hex(&bytes[from.min(end)..end]))
    };
    let place = if is_short { String::new() } else { format!("[{from}..]") };
    FieldChange {
        device: label.to_owned(),
        field: format!("{}{place}", field.path),
        old: Some(shown(old)),
        new: Some(shown(new)),
    }
}
