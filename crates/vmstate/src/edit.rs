//! Giving fields other values: which bytes of the stream change.
//!
//! A field keeps its length, so nothing moves, and the description stays true.

use topology::MacAddress;

use crate::field::{Field, FieldKind};
use crate::nic::set_mac;
use crate::patch::Patch;
use crate::select::{SelectError, Selector};
use crate::state::{DeviceState, MachineState};

/// Error type for [`patches`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// Not DEVICE.FIELD=VALUE.
    #[error("{0:?} is not DEVICE.FIELD=VALUE, for instance virtio-net.mac=52:54:00:12:34:56")]
    Form(String),
    /// No such device, or several.
    #[error(transparent)]
    Device(#[from] SelectError),
    /// The device has no such field.
    #[error("{device} has no field {field:?}; `vmlab state show FILE --device {device}` lists them{}", like(.near))]
    NoField {
        /// The device.
        device: String,
        /// What was asked for.
        field: String,
        /// Fields with a similar name.
        near: Vec<String>,
    },
    /// A whole array.
    #[error("{field} has {count} values: say which, as {field}[0]={value}")]
    Array {
        /// The field.
        field: String,
        /// Its elements.
        count: usize,
        /// What it was to be.
        value: String,
    },
    /// No value for such a field.
    #[error("{value:?} is no value of {field}: it takes {takes}")]
    Value {
        /// The field.
        field: String,
        /// What was given.
        value: String,
        /// What it can be.
        takes: String,
    },
    /// Two values for one field.
    #[error("{0} is set twice")]
    Twice(String),
}

/// Most similar names in a message.
const MOST_NEAR: usize = 8;

fn like(near: &[String]) -> String {
    match near.is_empty() {
        true => String::new(),
        false => format!(" (it has {})", near.join(", ")),
    }
}

/// The bytes that `assignments`, each DEVICE.FIELD=VALUE, change, by their place.
///
/// The field `mac` of a NIC stands for all places where its state has its address.
///
/// # Errors
/// [`EditError`].
pub fn patches(state: &MachineState, assignments: &[String]) -> Result<Vec<Patch>, EditError> {
    let mut all: Vec<Patch> = Vec::new();
    for text in assignments {
        all.extend(assigned(state, text)?);
    }
    all.sort_by_key(|patch| patch.at);
    for pair in all.windows(2) {
        if pair[0].at + pair[0].bytes.len() as u64 > pair[1].at {
            return Err(EditError::Twice(pair[1].what.clone()));
        }
    }
    Ok(all)
}

fn assigned(state: &MachineState, text: &str) -> Result<Vec<Patch>, EditError> {
    let form = || EditError::Form(text.to_owned());
    let (place, value) = text.split_once('=').ok_or_else(form)?;
    // Devices and fields both have dots in their names: the first split that names a
    // device with such a field is it.
    let splits = place.match_indices('.').map(|(at, _)| (&place[..at], &place[at + 1..]));
    let mut first: Option<EditError> = None;
    let mut any = false;
    for (device, field) in splits {
        any = true;
        let Ok(selector) = device.parse::<Selector>() else { continue };
        match set(state, &selector, field, value) {
            Ok(mut patches) => {
                for patch in &mut patches {
                    patch.what = format!("{device}.{}", patch.what);
                }
                return Ok(patches);
            }
            // That the device is another one's tells less than what is wrong with this one.
            Err(error) if is_better(&error, first.as_ref()) => first = Some(error),
            Err(_) => {}
        }
    }
    Err(match first {
        Some(error) if any => error,
        _ => form(),
    })
}

fn is_better(error: &EditError, than: Option<&EditError>) -> bool {
    let is_unknown =
        |error: &EditError| matches!(error, EditError::Device(SelectError::None { .. }));
    match than {
        None => true,
        Some(than) => is_unknown(than) && !is_unknown(error),
    }
}

fn set(
    state: &MachineState,
    selector: &Selector,
    field: &str,
    value: &str,
) -> Result<Vec<Patch>, EditError> {
    let device = selector.one(state)?;
    if let Some((found, index)) = find(device, field) {
        return Ok(vec![set_field(state, found, index, field, value)?]);
    }
    if field == "mac" {
        let wrong = || EditError::Value {
            field: "mac".to_owned(),
            value: value.to_owned(),
            takes: "the address of one NIC, as 52:54:00:12:34:56".to_owned(),
        };
        let mac = value.parse::<MacAddress>().ok().filter(|mac| !mac.is_group());
        let mac = mac.ok_or_else(wrong)?;
        if let Some(patches) = set_mac(state, device, mac) {
            return Ok(patches);
        }
    }
    let words: Vec<&str> =
        field.split(['.', '[', ']', '/']).filter(|word| word.len() > 1).collect();
    let is_near = |one: &&Field| words.iter().any(|word| one.path.contains(word));
    let near = device.fields.iter().filter(is_near).take(MOST_NEAR);
    let near = near.map(|field| field.path.clone()).collect();
    Err(EditError::NoField { device: device.label(), field: field.to_owned(), near })
}

/// The field that `path` names, and which of its elements, if one is named.
fn find<'a>(device: &'a DeviceState, path: &str) -> Option<(&'a Field, Option<usize>)> {
    if let Some(field) = device.fields.iter().find(|field| field.path == path) {
        return Some((field, None));
    }
    let (array, index) = path.strip_suffix(']')?.rsplit_once('[')?;
    let index: usize = index.parse().ok()?;
    let field = device.fields.iter().find(|field| field.path == array && field.count > index)?;
    Some((field, Some(index)))
}

fn set_field(
    state: &MachineState,
    field: &Field,
    index: Option<usize>,
    name: &str,
    value: &str,
) -> Result<Patch, EditError> {
    let index = match index {
        Some(index) => index,
        None if field.count == 1 => 0,
        None => {
            return Err(EditError::Array {
                field: name.to_owned(),
                count: field.count,
                value: value.to_owned(),
            });
        }
    };
    let bytes = encode(field, value).map_err(|takes| EditError::Value {
        field: name.to_owned(),
        value: value.to_owned(),
        takes,
    })?;
    Ok(Patch::of(state, field, index, bytes))
}

/// An element's bytes for `value`.
///
/// # Errors
/// What it takes instead.
fn encode(field: &Field, value: &str) -> Result<Vec<u8>, String> {
    let size = field.size;
    match field.kind {
        FieldKind::Bool => match value {
            "true" | "1" => Ok(vec![1]),
            "false" | "0" => Ok(vec![0]),
            _ => Err("true or false".to_owned()),
        },
        FieldKind::Mac => value
            .parse::<MacAddress>()
            .map(|mac| mac.bytes().to_vec())
            .map_err(|_| "six bytes, as 52:54:00:12:34:56".to_owned()),
        FieldKind::Bytes => hex(value)
            .filter(|bytes| bytes.len() == size)
            .ok_or_else(|| format!("{size} bytes in hexadecimal, {} digits", 2 * size)),
        FieldKind::Unsigned | FieldKind::LittleEndian => {
            let most = u64::MAX >> (64 - 8 * size);
            let number = integer(value).and_then(|number| u64::try_from(number).ok());
            let number = number.filter(|number| *number <= most);
            let number = number.ok_or_else(|| format!("a number from 0 to {most} ({most:#x})"))?;
            let mut bytes = number.to_be_bytes()[8 - size..].to_vec();
            if field.kind == FieldKind::LittleEndian {
                bytes.reverse();
            }
            Ok(bytes)
        }
        FieldKind::Signed => {
            let most = i64::MAX >> (64 - 8 * size);
            let least = -most - 1;
            let number = integer(value).and_then(|number| i64::try_from(number).ok());
            let number = number.filter(|number| (least..=most).contains(number));
            let number = number.ok_or_else(|| format!("a number from {least} to {most}"))?;
            Ok(number.to_be_bytes()[8 - size..].to_vec())
        }
    }
}

/// A number in decimal, or with `0x` in hexadecimal.
fn integer(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse::<u64>(),
    };
    // Neither takes a sign of its own.
    let number = number.ok().filter(|_| !digits.starts_with('+') && !digits.contains("x+"))?;
    Some(sign * i128::from(number))
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}
