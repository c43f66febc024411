//! Naming a device of a state.

use std::fmt;
use std::str::FromStr;

use crate::state::{DeviceState, MachineState};

/// Which device is meant: `apic`, `apic#1`, `virtio-net`, `0000:00:02.0/virtio-net`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    name: String,
    instance: Option<u32>,
}

/// Error type for [`Selector`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// What stands behind `#` is not a number.
    #[error("{0:?} is no device: write NAME or NAME#INSTANCE, for instance apic#1")]
    Form(String),
    /// There is none.
    #[error("There is no device {wanted}; there are {}", list(.known))]
    None {
        /// What was asked for.
        wanted: String,
        /// All names, without instances.
        known: Vec<String>,
    },
    /// There are more than one.
    #[error("{wanted} is more than one device: {}", list(.found))]
    Many {
        /// What was asked for.
        wanted: String,
        /// All that it is.
        found: Vec<String>,
    },
}

/// Most names in a message.
const MOST_NAMES: usize = 40;

fn list(names: &[String]) -> String {
    let shown = names.iter().take(MOST_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(MOST_NAMES) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

impl FromStr for Selector {
    type Err = SelectError;

    fn from_str(text: &str) -> Result<Self, SelectError> {
        let (name, instance) = match text.rsplit_once('#') {
            Some((name, instance)) => {
                let instance = instance.parse();
                (name, Some(instance.map_err(|_| SelectError::Form(text.to_owned()))?))
            }
            None => (text, None),
        };
        match name.is_empty() {
            true => Err(SelectError::Form(text.to_owned())),
            false => Ok(Self { name: name.to_owned(), instance }),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instance {
            Some(instance) => write!(f, "{}#{instance}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Selector {
    /// Whether it means `device`.
    #[must_use]
    pub fn is(&self, device: &DeviceState) -> bool {
        let last = device.name.rsplit('/').next();
        let named = device.name == self.name
            || last == Some(self.name.as_str())
            || device.form.as_ref() == Some(&self.name);
        named && self.instance.is_none_or(|instance| instance == device.instance)
    }

    /// The devices that it means.
    ///
    /// # Errors
    /// [`SelectError::None`], with the names that there are.
    pub fn all<'a>(&self, state: &'a MachineState) -> Result<Vec<&'a DeviceState>, SelectError> {
        let found: Vec<&DeviceState> =
            state.devices.iter().filter(|device| self.is(device)).collect();
        if found.is_empty() {
            let mut known: Vec<String> =
                state.devices.iter().map(|device| device.name.clone()).collect();
            known.sort();
            known.dedup();
            return Err(SelectError::None { wanted: self.to_string(), known });
        }
        Ok(found)
    }

    /// The one device that it means.
    ///
    /// # Errors
    /// [`SelectError`], also if it means several.
    pub fn one<'a>(&self, state: &'a MachineState) -> Result<&'a DeviceState, SelectError> {
        match self.all(state)?.as_slice() {
            [device] => Ok(device),
            several => Err(SelectError::Many {
                wanted: self.to_string(),
                found: several.iter().map(|device| device.label()).collect(),
            }),
        }
    }
}

impl DeviceState {
    /// Its name with the instance, as a [`Selector`] reads it.
    #[must_use]
    pub fn label(&self) -> String {
        format!("{}#{}", self.name, self.instance)
    }
}
