//! The file of `-readconfig`: groups of settings, each what an option says.
//!
//! ```text
//! [device "disk"]
//!   driver = "virtio-blk-pci"
//! ```
//!
//! QEMU reads it with `sscanf`: the quotes around a value must be there, and what stands
//! behind them is passed over. It ends at the first line that it does not take; here the
//! others are read all the same, and that line is told.
//!
//! Source: QEMU `util/qemu-config.c` (`qemu_config_foreach`) and `softmmu/vl.c`
//! (`qemu_parse_config_group`).

use super::QemuOption;
use super::shell::ShellWord;
use crate::source::{LocatedValue, Span};

/// Bytes of a name that QEMU takes.
const MAX_NAME_BYTES: usize = 63;

/// Bytes of a line that QEMU takes.
const MAX_LINE_BYTES: usize = 1022;

/// Groups that have another name than their option.
const RENAMED: &[(&str, &str)] = &[("boot-opts", "boot"), ("memory", "m"), ("smp-opts", "smp")];

/// Groups that are named like their option. A CPU model and `-blockdev` have none.
const LIKE_OPTIONS: &str = "\
    accel action add-fd audiodev chardev device drive fsdev fw_cfg global icount \
    iscsi machine mon msg name net netdev nic numa object option-rom overcommit \
    plugin realtime rtc run-with sandbox semihosting-config spice tpmdev trace vnc";

/// The option that a group is.
fn option_of(group: &str) -> Option<&'static str> {
    let renamed = RENAMED.iter().find(|row| row.0 == group).map(|row| row.1);
    renamed.or_else(|| LIKE_OPTIONS.split(' ').find(|name| *name == group))
}

/// A key or a value where it stands.
type Part<'a> = (&'a str, Span);

/// A group of settings.
struct ConfigGroup<'a> {
    option: &'static str,
    head: Span,
    settings: Vec<(Part<'a>, Part<'a>)>,
}

/// The options that a file makes, and the lines that make none, each with the reason.
#[derive(Debug, Default)]
pub(super) struct ConfigOptions {
    pub(super) options: Vec<QemuOption>,
    pub(super) unread: Vec<LocatedValue<String>>,
}

/// Reads a file whose text begins at the byte `start` of all.
pub(super) fn read(text: &str, start: usize) -> ConfigOptions {
    let mut found = ConfigOptions::default();
    let mut group: Option<ConfigGroup<'_>> = None;
    // Whether what follows belongs to a group that is not known.
    let mut skips = false;
    let mut at = start;
    for whole in text.split_inclusive('\n') {
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line_start = at;
        at += whole.len();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let place = |part: &str| {
            let from = line_start + (part.as_ptr() as usize - line.as_ptr() as usize);
            Span { start: from, end: from + part.len() }
        };
        let mut refuse = |why: &str| {
            let said = line.trim();
            let said = if said.is_empty() { "a line of blanks" } else { said };
            let span = if line.trim().is_empty() { place(line) } else { place(line.trim()) };
            found.unread.push(LocatedValue::new(format!("{said} ({why})"), span));
        };
        if line.len() > MAX_LINE_BYTES {
            refuse("longer than a line that QEMU takes");
            continue;
        }
        if let Some((name, id)) = head(line) {
            if let Some(done) = group.take() {
                done.finish(&mut found);
            }
            skips = option_of(name).is_none();
            let Some(option) = option_of(name) else {
                found.unread.push(LocatedValue::new(
                    format!("[{name}] (no group that is known)"),
                    place(line.trim_end()),
                ));
                continue;
            };
            let mut settings = Vec::new();
            settings.extend(id.map(|id| (("id", place(id)), (id, place(id)))));
            group = Some(ConfigGroup { option, head: place(line.trim_end()), settings });
            continue;
        }
        let Some((key, value)) = setting(line) else {
            refuse("no group, and no key with a value");
            continue;
        };
        match &mut group {
            _ if skips => {}
            None => refuse("it stands in no group"),
            Some(group) => match value {
                Some(value) => group.settings.push(((key, place(key)), (value, place(value)))),
                None => refuse("without quotes, which QEMU takes for an empty value"),
            },
        }
    }
    if let Some(done) = group {
        done.finish(&mut found);
    }
    found
}

/// The first word of a text, behind white space.
fn word(text: &str) -> Option<&str> {
    text.split_ascii_whitespace().next()
}

/// The name and the id of a group that a line begins: `[name "id"]`, `[name]`.
fn head(line: &str) -> Option<(&str, Option<&str>)> {
    let inner = line.strip_prefix('[')?;
    let with_id = || {
        let name = word(inner)?;
        let behind = name.as_ptr() as usize - inner.as_ptr() as usize + name.len();
        let id = inner[behind..].trim_ascii_start().strip_prefix('"')?;
        let id = id.split('"').next()?;
        (!id.is_empty() && name.len() <= MAX_NAME_BYTES).then_some((name, Some(id)))
    };
    let alone = || {
        let name = inner.split(']').next()?;
        (!name.is_empty() && name.len() <= MAX_NAME_BYTES).then_some((name, None))
    };
    with_id().or_else(alone)
}

/// A key and its value; no value where none stands in quotes.
fn setting(line: &str) -> Option<(&str, Option<&str>)> {
    let key = word(line)?;
    if key.len() > MAX_NAME_BYTES || key.contains(['=', ',', '"']) {
        return None;
    }
    let behind = key.as_ptr() as usize - line.as_ptr() as usize + key.len();
    let quoted = line[behind..].trim_ascii_start().strip_prefix('=');
    let quoted = quoted.and_then(|rest| rest.trim_ascii_start().strip_prefix('"'));
    Some((key, quoted.and_then(|rest| rest.split('"').next())))
}

impl ConfigGroup<'_> {
    /// It as the option that a command line would have.
    fn finish(self, found: &mut ConfigOptions) {
        let end = self.settings.last().map_or(self.head.end, |(_, (_, span))| span.end);
        let mut word = ShellWord::made(Span { start: self.head.start, end });
        if self.option == "global" {
            let part = |name: &str| self.settings.iter().rfind(|row| row.0.0 == name);
            let parts = [part("driver"), part("property"), part("value")];
            let [Some((_, driver)), Some((_, property)), Some((_, value))] = parts else {
                let why = "[global] (not all of driver, property and value)";
                found.unread.push(LocatedValue::new(why.to_owned(), self.head));
                return;
            };
            word = word.with(driver.0, driver.1).with(".", property.1);
            word = word.with(property.0, property.1).with("=", value.1).with(value.0, value.1);
        } else {
            for (number, ((key, at), (value, value_at))) in self.settings.iter().enumerate() {
                let comma = if number == 0 { "" } else { "," };
                word = word.with(&format!("{comma}{key}="), *at);
                word = word.with(&value.replace(',', ",,"), *value_at);
            }
        }
        let name = LocatedValue::new(self.option.to_owned(), self.head);
        found.options.push(QemuOption { name, value: Some(word) });
    }
}

#[cfg(test)]
mod tests;
