//! A field: where its bytes are, and what they mean.

use crate::cursor::number;

/// What a field's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A number without sign.
    Unsigned,
    /// A number with sign.
    Signed,
    /// A number whose lowest byte is first, as a guest's drivers read it.
    LittleEndian,
    /// True or false.
    Bool,
    /// The address of a NIC.
    Mac,
    /// Bytes that are not described further.
    Bytes,
}

/// A field, or an array of numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// The way to it in its device: `lvt[0]`, `e1000/mit_state.mac_reg[ITR]`.
    pub path: String,
    /// QEMU's name of its type.
    pub type_name: String,
    /// What its bytes are.
    pub kind: FieldKind,
    /// Bytes of an element.
    pub size: usize,
    /// Elements.
    pub count: usize,
    /// Where it is in the stream without memory.
    pub(crate) at: usize,
}

/// Longest field whose bytes are taken for a number.
const NUMBER_BYTES: usize = 8;

impl FieldKind {
    /// What QEMU's type of `size` bytes is. Source: QEMU `migration/vmstate-types.c`.
    pub(crate) fn of(type_name: &str, size: usize) -> Self {
        let base = type_name.split(' ').next().unwrap_or_default();
        if !(1..=NUMBER_BYTES).contains(&size) {
            return Self::Bytes;
        }
        match base {
            "bool" if size == 1 => Self::Bool,
            "uint8" | "uint16" | "uint32" | "uint64" | "cpsr" | "fpscr" => Self::Unsigned,
            "int8" | "int16" | "int32" | "int64" | "timer" => Self::Signed,
            _ => Self::Bytes,
        }
    }
}

impl Field {
    /// All its bytes, which are in `bytes`.
    pub(crate) fn bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        bytes.get(self.at..self.at + self.len()).unwrap_or_default()
    }

    /// Bytes of all elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.size * self.count
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One element's number; `None` for what is none.
    pub(crate) fn integer(&self, element: &[u8]) -> Option<i128> {
        let unsigned = i128::from(number(element));
        match self.kind {
            FieldKind::Unsigned | FieldKind::Bool => Some(unsigned),
            FieldKind::Signed => {
                let bits = 8 * element.len();
                let is_negative = unsigned >> (bits - 1) & 1 == 1;
                Some(if is_negative { unsigned - (1 << bits) } else { unsigned })
            }
            FieldKind::LittleEndian => {
                Some(element.iter().rev().fold(0, |number, byte| number << 8 | i128::from(*byte)))
            }
            FieldKind::Mac | FieldKind::Bytes => None,
        }
    }
}
