//! A change of a stream's bytes.

use crate::field::Field;
use crate::state::MachineState;

/// Bytes that replace as many others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Offset in the file, bytes.
    pub at: u64,
    /// What stands there now.
    pub before: Vec<u8>,
    /// What is to stand there.
    pub bytes: Vec<u8>,
    /// The field: `0000:00:02.0/virtio-net#0.virtio.config.mac`.
    pub what: String,
}

impl Patch {
    /// Another value of the element `index` of a field.
    pub(crate) fn of(state: &MachineState, field: &Field, index: usize, bytes: Vec<u8>) -> Self {
        let begin = index * field.size;
        let before = state.bytes_of(field)[begin..begin + bytes.len()].to_vec();
        let what = match field.count {
            1 => field.path.clone(),
            _ => format!("{}[{index}]", field.path),
        };
        Self { at: state.offset_of(field) + begin as u64, before, bytes, what }
    }
}
