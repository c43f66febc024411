//! A state for people.

use std::fmt::Write as _;
use std::path::Path;

use vmstate::{DeviceFacts, FieldFacts, Patch, StateDiff, StateFacts, StateValue};

/// Most values of an array that a line has; the others are counted.
const SHOWN_VALUES: usize = 8;

/// Most bytes of a field that a line has.
const SHOWN_BYTES: usize = 32;

/// The state, a text a device.
pub(super) fn lines(facts: &StateFacts, with_memory: bool) -> impl Iterator<Item = String> + '_ {
    let head = with_memory.then(|| head(facts));
    let devices = facts.devices.iter().enumerate().map(move |(number, one)| {
        let gap = if number > 0 || with_memory { "\n" } else { "" };
        format!("{gap}{}", device(one))
    });
    head.into_iter().chain(devices)
}

fn head(facts: &StateFacts) -> String {
    let machine = facts.machine.as_deref().unwrap_or("not told");
    let mut text = format!("machine  {machine}\n");
    match &facts.memory {
        None => text += "memory   not in this file\n",
        Some(memory) => {
            for block in &memory.blocks {
                let _ = writeln!(text, "memory   {}  {} KiB", block.name, block.bytes >> 10);
            }
            let pages = memory.data_pages + memory.uniform_pages;
            let _ = match pages {
                0 => writeln!(text, "pages    left out"),
                _ => writeln!(
                    text,
                    "pages    {} with data, {} of one byte, of {} B",
                    memory.data_pages, memory.uniform_pages, memory.page_bytes
                ),
            };
        }
    }
    if !facts.capabilities.is_empty() {
        let _ = writeln!(text, "sent by  {}", facts.capabilities.join(", "));
    }
    text
}

fn device(device: &DeviceFacts) -> String {
    let form = match &device.form {
        Some(form) => format!("{form} version {}", device.version),
        None => "not described by the file".to_owned(),
    };
    let DeviceFacts { name, instance, at, bytes, .. } = device;
    let mut text = format!("{name}#{instance}  ({form}, {bytes} bytes at {at:#x})\n");
    let widest = device.fields.iter().map(|field| field.name.len()).max().unwrap_or(0).min(40);
    if let Some(mac) = &device.mac {
        let _ = writeln!(text, "  {:widest$}  {mac}", "mac");
    }
    for field in &device.fields {
        let _ = writeln!(text, "  {:widest$}  {}", field.name, field_value(field));
    }
    text
}

fn field_value(field: &FieldFacts) -> String {
    match &field.value {
        StateValue::Array(values) => array(values),
        // Bytes are told apart from an address by their type.
        StateValue::Text(text) if field.type_name == "mac" => text.clone(),
        StateValue::Text(hex) => bytes(hex),
        one => value(one),
    }
}

fn value(value: &StateValue) -> String {
    match value {
        StateValue::Unsigned(number) if *number < 10 => number.to_string(),
        StateValue::Unsigned(number) => format!("{number} ({number:#x})"),
        StateValue::Signed(number) => number.to_string(),
        StateValue::Bool(is) => is.to_string(),
        StateValue::Text(text) => text.clone(),
        StateValue::Array(values) => array(values),
    }
}

/// Short arrays in full, of long ones what is not zero.
fn array(values: &[StateValue]) -> String {
    let short = |value: &StateValue| match value {
        StateValue::Unsigned(number) if *number >= 10 => format!("{number:#x}"),
        other => self::value(other),
    };
    if values.len() <= SHOWN_VALUES {
        return values.iter().map(short).collect::<Vec<_>>().join(" ");
    }
    let zero = |value: &StateValue| {
        matches!(value, StateValue::Unsigned(0) | StateValue::Signed(0) | StateValue::Bool(false))
    };
    let others: Vec<_> = values.iter().enumerate().filter(|(_, value)| !zero(value)).collect();
    let shown = others.iter().take(SHOWN_VALUES);
    let shown: Vec<String> =
        shown.map(|(index, value)| format!("[{index}]={}", short(value))).collect();
    let more = match others.len().checked_sub(SHOWN_VALUES) {
        Some(more) if more > 0 => format!(" and {more} more (--json)"),
        _ => String::new(),
    };
    match others.len() {
        0 => format!("{} values, all 0", values.len()),
        _ => format!("{} values, not 0: {}{more}", values.len(), shown.join(" ")),
    }
}

fn bytes(hex: &str) -> String {
    let count = hex.len() / 2;
    if count <= SHOWN_BYTES {
        return hex.to_owned();
    }
    if hex.bytes().all(|digit| digit == b'0') {
        return format!("{count} bytes, all 0");
    }
    format!("{}... {count} bytes (--json)", &hex[..2 * SHOWN_BYTES])
}

/// What differs, for people.
pub(super) fn diff(diff: &StateDiff) -> String {
    let mut text = String::new();
    if let Some((old, new)) = &diff.machines {
        let told = |machine: &Option<String>| machine.as_deref().unwrap_or("not told").to_owned();
        let _ = writeln!(text, "machine  {} -> {}", told(old), told(new));
    }
    for device in &diff.removed {
        let _ = writeln!(text, "- {device}");
    }
    for device in &diff.added {
        let _ = writeln!(text, "+ {device}");
    }
    let mut last = "";
    for change in &diff.changes {
        if change.device != last {
            let _ = writeln!(text, "{}", change.device);
            last = &change.device;
        }
        let told = |side: &Option<StateValue>| side.as_ref().map_or("-".to_owned(), value);
        let _ =
            writeln!(text, "  {}  {} -> {}", change.field, told(&change.old), told(&change.new));
    }
    text
}

/// What an edit changed, and how the VM is started from it.
pub(super) fn edits(patches: &[Patch], out: &Path) -> String {
    let hex = |bytes: &[u8]| -> String { bytes.iter().map(|byte| format!("{byte:02x}")).collect() };
    let mut text = String::new();
    for patch in patches {
        let (before, after) = (hex(&patch.before), hex(&patch.bytes));
        let _ = match before == after {
            true => writeln!(text, "{}  {after}, as before", patch.what),
            false => writeln!(text, "{}  {before} -> {after}", patch.what),
        };
    }
    let _ = writeln!(
        text,
        "\nStart the VM from it with the arguments that it had, and -incoming 'exec:cat {}'",
        out.display()
    );
    text
}
