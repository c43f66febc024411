//! Devices of the host that a guest has for itself.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::InvalidVm;

/// A PCI device of the host that the guest drives itself, through VFIO.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostDevice {
    /// The one at this address. QEMU `-device vfio-pci,host=`, libvirt
    /// `<hostdev type='pci' managed='yes'>`.
    Pci(PciAddress),
    /// Any that a cluster's node offers by this name, `vendor.com/device`. KubeVirt
    /// `hostDevices` with `deviceName`.
    Resource(String),
}

/// Where a function is on the host's PCI buses: `0000:3b:00.0`. Without a domain
/// (`3b:00.0`) it is the first one's.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct PciAddress {
    /// Its domain.
    pub domain: u32,
    /// Its bus.
    pub bus: u8,
    /// Its slot, 0 to 31.
    pub slot: u8,
    /// Its function, 0 to 7.
    pub function: u8,
}

/// Why a text is no PCI address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Not the address of a PCI device: {0:?}; write it as lspci -D does, \"0000:3b:00.0\"")]
pub struct ParsePciAddressError(String);

impl PciAddress {
    /// The address with these parts, if there can be one.
    #[must_use]
    pub fn new(domain: u32, bus: u32, slot: u32, function: u32) -> Option<Self> {
        let bus = u8::try_from(bus).ok()?;
        let slot = u8::try_from(slot).ok().filter(|slot| *slot < 32)?;
        let function = u8::try_from(function).ok().filter(|function| *function < 8)?;
        Some(Self { domain, bus, slot, function })
    }
}

impl FromStr for PciAddress {
    type Err = ParsePciAddressError;

    fn from_str(text: &str) -> Result<Self, ParsePciAddressError> {
        let read = || {
            let hex = |part: &str, most: usize| {
                let digits = (1..=most).contains(&part.len())
                    && part.bytes().all(|byte| byte.is_ascii_hexdigit());
                digits.then(|| u32::from_str_radix(part, 16).ok())?
            };
            let (front, function) = text.rsplit_once('.')?;
            let (front, slot) = front.rsplit_once(':')?;
            let (domain, bus) = front.rsplit_once(':').unwrap_or(("0", front));
            Self::new(hex(domain, 8)?, hex(bus, 2)?, hex(slot, 2)?, hex(function, 1)?)
        };
        read().ok_or_else(|| ParsePciAddressError(text.to_owned()))
    }
}

impl fmt::Display for PciAddress {
    /// As the kernel names it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, slot, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{slot:02x}.{function:x}")
    }
}

impl TryFrom<String> for PciAddress {
    type Error = ParsePciAddressError;

    fn try_from(text: String) -> Result<Self, ParsePciAddressError> {
        text.parse()
    }
}

impl From<PciAddress> for String {
    fn from(address: PciAddress) -> Self {
        address.to_string()
    }
}

impl HostDevice {
    /// Its address, if it is known.
    #[must_use]
    pub fn pci(&self) -> Option<PciAddress> {
        match self {
            Self::Pci(address) => Some(*address),
            Self::Resource(_) => None,
        }
    }
}

pub(crate) fn check(devices: &[HostDevice]) -> Result<(), InvalidVm> {
    let refuse = |message: String| Err(InvalidVm::Contradiction { field: "host_devices", message });
    for (number, device) in devices.iter().enumerate() {
        match device {
            HostDevice::Pci(address) if devices[..number].contains(device) => {
                return refuse(format!("has {address} twice"));
            }
            HostDevice::Resource(name)
                if name.is_empty() || name.chars().any(|c| c.is_control() || c.is_whitespace()) =>
            {
                return refuse(format!("number {number} is no name of a resource: {name:?}"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_one_form() {
        for (text, expected) in [
            ("0000:3b:00.0", Some("0000:3b:00.0")),
            ("3B:1f.7", Some("0000:3b:1f.7")),
            ("10000:1:0.1", Some("10000:01:00.1")),
            ("3b:20.0", None),
            ("3b:00.8", None),
            ("3b:00", None),
            ("1:2:3:4.0", None),
            (":00.0", None),
            ("+3b:00.0", None),
            ("", None),
        ] {
            let found = text.parse::<PciAddress>().ok().map(|address| address.to_string());
            assert_eq!(found.as_deref(), expected, "{text}");
        }
    }
}
