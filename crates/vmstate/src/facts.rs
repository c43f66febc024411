//! A state as it is printed.

use schemars::JsonSchema;
use serde::Serialize;
use topology::MacAddress;

use crate::field::{Field, FieldKind};
use crate::nic;
use crate::state::{DeviceState, MachineState};
use crate::stream::MemorySections;

/// Version of this form.
const VERSION: u32 = 1;

/// The state of a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StateFacts {
    /// Version of this form: 1.
    pub version: u32,
    /// QEMU's machine type: `pc-q35-7.2`.
    pub machine: Option<String>,
    /// Capabilities of migration that change the stream's form.
    pub capabilities: Vec<String>,
    /// Length of the stream, bytes.
    pub file_bytes: u64,
    /// Memory, where the stream has it.
    pub memory: Option<MemoryFacts>,
    /// Devices, in the order of the stream.
    pub devices: Vec<DeviceFacts>,
}

/// What a stream has of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemoryFacts {
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Blocks of memory.
    pub blocks: Vec<MemoryBlock>,
    /// Pages that were sent whole; 0 where memory was left out. One that the guest wrote
    /// meanwhile counts again.
    pub data_pages: u64,
    /// Pages that were sent as one byte, mostly 0.
    pub uniform_pages: u64,
}

/// A block of memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemoryBlock {
    /// QEMU's name of it: `pc.ram`.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct DeviceFacts {
    /// QEMU's name of it: `apic`, `0000:00:02.0/virtio-net`.
    pub name: String,
    /// Which one of that name.
    pub instance: u32,
    /// Version of its form.
    pub version: u32,
    /// The form's name; null where the stream does not describe the device.
    pub form: Option<String>,
    /// Offset of its section in the file.
    pub at: u64,
    /// Length of its fields.
    pub bytes: u64,
    /// Its address, if it is a NIC of which vmlab knows where that is.
    pub mac: Option<String>,
    /// Its fields, in the order of the stream.
    pub fields: Vec<FieldFacts>,
}

/// A field of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FieldFacts {
    /// The way to it.
    pub name: String,
    /// QEMU's type of it.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Offset in the file.
    pub at: u64,
    /// Bytes of a value.
    pub size: usize,
    /// The value.
    pub value: StateValue,
}

/// The value of a field: a number, true or false, a list of them, an address, or bytes in
/// hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum StateValue {
    /// A number without sign.
    Unsigned(u64),
    /// A number with sign.
    Signed(i64),
    /// True or false.
    Bool(bool),
    /// Values of an array.
    Array(Vec<StateValue>),
    /// An address, or bytes in hexadecimal.
    Text(String),
}

impl MachineState {
    /// All that is printed of it, of the devices that are `wanted`.
    pub fn facts(&self, wanted: impl Fn(&DeviceState) -> bool) -> StateFacts {
        let devices = self.devices.iter().filter(|device| wanted(device));
        StateFacts {
            version: VERSION,
            machine: self.machine().map(str::to_owned),
            capabilities: self.stream.capabilities.clone(),
            file_bytes: self.stream.file_bytes(),
            memory: self.memory().map(|memory| self.memory_facts(memory)),
            devices: devices.map(|device| self.device_facts(device)).collect(),
        }
    }

    fn memory_facts(&self, memory: &MemorySections) -> MemoryFacts {
        let blocks = memory.blocks.iter();
        let blocks = blocks.map(|(name, bytes)| MemoryBlock { name: name.clone(), bytes: *bytes });
        MemoryFacts {
            page_bytes: self.stream.page_bytes,
            blocks: blocks.collect(),
            data_pages: memory.data_pages,
            uniform_pages: memory.uniform_pages,
        }
    }

    fn device_facts(&self, device: &DeviceState) -> DeviceFacts {
        let fields = device.fields.iter().map(|field| FieldFacts {
            name: field.path.clone(),
            type_name: field.type_name.clone(),
            at: self.offset_of(field),
            size: field.size,
            value: self.value_of(field),
        });
        DeviceFacts {
            name: device.name.clone(),
            instance: device.instance,
            version: device.version,
            form: device.form.clone(),
            at: device.at,
            bytes: device.bytes,
            mac: self.mac_of(device),
            fields: fields.collect(),
        }
    }

    /// The address of a NIC.
    #[must_use]
    pub fn mac_of(&self, device: &DeviceState) -> Option<String> {
        nic::mac(self, device).map(|mac| mac.to_string())
    }

    /// The value of a field.
    #[must_use]
    pub fn value_of(&self, field: &Field) -> StateValue {
        let bytes = self.bytes_of(field);
        match field.kind {
            FieldKind::Bytes => StateValue::Text(hex(bytes)),
            FieldKind::Mac => StateValue::Text(
                bytes
                    .try_into()
                    .map_or_else(|_| hex(bytes), |mac| MacAddress::new(mac).to_string()),
            ),
            _ if field.count == 1 => value(field, bytes),
            _ => StateValue::Array(
                bytes.chunks_exact(field.size).map(|element| value(field, element)).collect(),
            ),
        }
    }
}

/// The value of an element that is a number.
pub(crate) fn value(field: &Field, element: &[u8]) -> StateValue {
    let number = field.integer(element).unwrap_or_default();
    match field.kind {
        FieldKind::Bool => StateValue::Bool(number != 0),
        FieldKind::Signed => StateValue::Signed(i64::try_from(number).unwrap_or_default()),
        _ => StateValue::Unsigned(u64::try_from(number).unwrap_or_default()),
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}
