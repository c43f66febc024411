//! The description at the end of a stream: JSON with the name, type and size of every
//! field that was written, device by device.
//!
//! Source: QEMU `migration/vmstate.c`, `vmsd_desc_field_start`; `migration/savevm.c`,
//! `should_send_vmdesc`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::cursor::number32;
use crate::error::Problem;
use crate::skim::part;

/// Longest description, bytes: that of a device has some KiB, there are thousands at most.
pub const MAX_DESCRIPTION_BYTES: usize = 64 << 20;

/// What stands before the JSON: the part's byte, and the length.
const HEAD_BYTES: usize = 5;

/// A device, a structure, a field, or a subsection: each has some of these.
#[derive(Debug, Default)]
pub(crate) struct FieldDescription {
    pub(crate) name: String,
    pub(crate) vmsd_name: Option<String>,
    pub(crate) instance: u32,
    pub(crate) kind: String,
    /// Bytes of one element.
    pub(crate) size: u64,
    /// Elements of the same form; `None` for what is no array, or one of its elements.
    pub(crate) array_len: Option<u64>,
    /// Which element of an array it is.
    pub(crate) index: Option<u64>,
    pub(crate) structure: Option<Box<FieldDescription>>,
    pub(crate) fields: Option<Vec<FieldDescription>>,
    pub(crate) subsections: Vec<FieldDescription>,
    /// Its fields are written more than once, as those of a list's elements are.
    pub(crate) repeated: bool,
}

impl<'de> Deserialize<'de> for FieldDescription {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Keys)
    }
}

/// A list's elements put the same keys into one object, which no derived reader takes.
struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = FieldDescription;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a device or a field")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldDescription, A::Error> {
        let mut found = FieldDescription::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "name" => found.name = map.next_value()?,
                "vmsd_name" => found.vmsd_name = Some(map.next_value()?),
                "instance_id" => found.instance = map.next_value()?,
                "type" => found.kind = map.next_value()?,
                "size" => found.size = map.next_value()?,
                "array_len" => found.array_len = Some(map.next_value()?),
                "index" => found.index = Some(map.next_value()?),
                "struct" => found.structure = Some(map.next_value()?),
                "fields" => {
                    found.repeated |= found.fields.is_some();
                    found.fields = Some(map.next_value()?);
                }
                "subsections" => found.subsections = map.next_value()?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}

/// All that a stream says of its own form.
#[derive(Debug, serde::Deserialize)]
pub(crate) struct StreamDescription {
    #[serde(default)]
    pub(crate) page_size: Option<u64>,
    pub(crate) devices: Vec<FieldDescription>,
}

/// Where the description begins in `bytes`, from `from` on: it reaches to the end.
pub(crate) fn find(bytes: &[u8], from: usize) -> Option<usize> {
    // JSON has no byte below 0x20: before the last brace with such a byte behind it lies
    // the length.
    let tail = bytes.get(from..)?;
    let last = tail.iter().rposition(|byte| *byte < b' ' && !byte.is_ascii_whitespace());
    // The length may end with bytes that are text, too.
    let first = last.map_or(0, |last| last.saturating_sub(HEAD_BYTES));
    (first..tail.len().saturating_sub(HEAD_BYTES)).find_map(|at| {
        let length = number32(tail.get(at + 1..at + HEAD_BYTES)?) as usize;
        let is_it = tail[at] == part::DESCRIPTION
            && at + HEAD_BYTES + length == tail.len()
            && tail.get(at + HEAD_BYTES) == Some(&b'{');
        is_it.then_some(from + at)
    })
}

/// Reads the description that begins at `at`.
pub(crate) fn read(bytes: &[u8], at: usize) -> Result<StreamDescription, Problem> {
    let json = bytes.get(at + HEAD_BYTES..).unwrap_or_default();
    if json.len() > MAX_DESCRIPTION_BYTES {
        let (what, most) = ("bytes of description", MAX_DESCRIPTION_BYTES as u64);
        return Err(Problem::TooMany { what, most });
    }
    serde_json::from_slice(json).map_err(|error| Problem::Description(error.to_string()))
}
