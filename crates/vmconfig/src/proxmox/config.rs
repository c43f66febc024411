//! Proxmox VE's files of a VM: `key: value` by the line, comments, and sections for
//! snapshots, which are no part of the VM that runs.

use crate::source::{LocatedValue, SourceText, Span};

/// One setting.
#[derive(Debug, Clone)]
pub(super) struct ProxmoxEntry {
    pub(super) key: LocatedValue<String>,
    pub(super) value: LocatedValue<String>,
}

/// The settings of a file that hold, in its order.
#[derive(Debug, Default)]
pub(super) struct Config {
    pub(super) entries: Vec<ProxmoxEntry>,
    /// Settings that are said again further down, where they count.
    pub(super) overridden: Vec<ProxmoxEntry>,
    /// Lines that are neither a setting nor a comment nor a section.
    pub(super) broken: Vec<LocatedValue<String>>,
    /// Headings of sections, without their brackets.
    pub(super) sections: Vec<LocatedValue<String>>,
}

impl Config {
    pub(super) fn read(source: &SourceText<'_>) -> Self {
        let mut config = Self::default();
        let mut last: std::collections::HashMap<String, usize> = std::collections::HashMap::new();
        for number in 1..=source.lines().count() {
            let span = source.line_span(number);
            let line = &source.text[span.start..span.end];
            let start = span.start + (line.len() - line.trim_start().len());
            let text = line.trim();
            let at = || LocatedValue::new(text.to_owned(), Span { start, end: start + text.len() });
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            if let Some(name) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                config.sections.push(LocatedValue::new(name.to_owned(), at().span));
                continue;
            }
            if !config.sections.is_empty() {
                continue;
            }
            let Some(entry) = ProxmoxEntry::read(text, start) else {
                config.broken.push(at());
                continue;
            };
            if let Some(before) = last.insert(entry.key.value.clone(), config.entries.len()) {
                config.overridden.push(config.entries[before].clone());
            }
            config.entries.push(entry);
        }
        let mut place = 0..;
        config.entries.retain(|entry| {
            let number = place.next();
            last.get(&entry.key.value).copied() == number
        });
        config
    }

    pub(super) fn get(&self, key: &str) -> Option<&ProxmoxEntry> {
        self.entries.iter().find(|entry| entry.key.value == key)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).map(|entry| entry.value.value.as_str())
    }
}

impl ProxmoxEntry {
    fn read(text: &str, start: usize) -> Option<Self> {
        let (key, rest) = text.split_once(':')?;
        let name = key.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let fits = |letter: char| letter.is_ascii_lowercase() || "-_".contains(letter);
        if !name.starts_with(|letter: char| letter.is_ascii_lowercase()) || !name.chars().all(fits)
        {
            return None;
        }
        let value = rest.trim();
        let from = start + key.len() + 1 + (rest.len() - rest.trim_start().len());
        let key = LocatedValue::new(key.to_owned(), start..start + key.len());
        (!value.is_empty()).then(|| Self {
            key,
            value: LocatedValue::new(value.to_owned(), from..from + value.len()),
        })
    }

    /// The key without its number: `scsi` of `scsi0`.
    pub(super) fn kind(&self) -> &str {
        self.key.value.trim_end_matches(|letter: char| letter.is_ascii_digit())
    }

    /// The key's number.
    pub(super) fn number(&self) -> Option<u32> {
        self.key.value[self.kind().len()..].parse().ok()
    }

    /// Whether a switch is on; Proxmox takes `1`, `on`, `yes` and `true`.
    pub(super) fn switch(&self) -> Option<bool> {
        switch(&self.value.value)
    }

    /// The parts of the value; `implied` is the key of the one without a key.
    pub(super) fn parts(&self, implied: &str) -> PropertyString {
        let mut items = Vec::new();
        let mut from = self.value.span.start;
        for part in self.value.value.split(',') {
            let (key, value, at) = match part.split_once('=') {
                Some((key, value)) => (key, value, from + key.len() + 1),
                None => (implied, part, from),
            };
            if !part.trim().is_empty() {
                let value = LocatedValue::new(value.to_owned(), at..at + value.len());
                items.push((key.trim().to_owned(), value));
            }
            from += part.len() + 1;
        }
        PropertyString { items }
    }
}

/// The `key=value` pairs of one setting that have not been read yet.
#[derive(Debug, Clone)]
pub(super) struct PropertyString {
    pub(super) items: Vec<(String, LocatedValue<String>)>,
}

impl PropertyString {
    pub(super) fn take(&mut self, key: &str) -> Option<LocatedValue<String>> {
        let place = self.items.iter().position(|(name, _)| name == key)?;
        Some(self.items.remove(place).1)
    }

    pub(super) fn take_all(&mut self, key: &str) -> Vec<LocatedValue<String>> {
        let mut all = Vec::new();
        while let Some(at) = self.take(key) {
            all.push(at);
        }
        all
    }

    /// A value if it means something; another one stays.
    pub(super) fn take_if<T>(
        &mut self,
        key: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<LocatedValue<T>> {
        let place = self.items.iter().position(|(name, _)| name == key)?;
        let value = read(&self.items[place].1.value)?;
        Some(LocatedValue::new(value, self.items.remove(place).1.span))
    }

    pub(super) fn switch(&mut self, key: &str) -> Option<LocatedValue<bool>> {
        self.take_if(key, switch)
    }
}

fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some(true),
        "0" | "off" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// The members of a list between semicolons.
pub(super) fn separated(list: &LocatedValue<String>) -> Vec<(String, LocatedValue<()>)> {
    let mut from = list.span.start;
    let mut all = Vec::new();
    for part in list.value.split(';') {
        if !part.is_empty() {
            all.push((part.to_owned(), LocatedValue::new((), from..from + part.len())));
        }
        from += part.len() + 1;
    }
    all
}

/// Keys that only a VM's file has.
const TELLING: &[&str] = &[
    "args",
    "balloon",
    "bios",
    "boot",
    "bootdisk",
    "efidisk",
    "hostpci",
    "hugepages",
    "kvm",
    "machine",
    "meta",
    "numa",
    "ostype",
    "scsihw",
    "smbios",
    "sockets",
    "tpmstate",
    "vcpus",
    "vmgenid",
];

/// Keys of containers, whose files lie beside those of VMs.
const OF_CONTAINERS: &[&str] = &["rootfs", "unprivileged", "hostname", "mp", "features", "swap"];

/// Whether a text is such a file: nothing but settings, two of which only VMs have.
pub(super) fn holds_vm(text: &str) -> bool {
    let first = text.trim_start_matches('\u{feff}').trim_start();
    if !first.starts_with(|letter: char| letter == '#' || letter.is_ascii_lowercase()) {
        return false;
    }
    let mut telling = 0;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with('[') {
            break;
        }
        let Some(entry) = ProxmoxEntry::read(line, 0) else { return false };
        let kind = entry.kind();
        if OF_CONTAINERS.contains(&kind) {
            return false;
        }
        let is_disk = ["scsi", "virtio", "ide", "sata", "net"].contains(&kind)
            && entry.number().is_some()
            && entry.value.value.contains([':', '=', '/', ',']);
        let guest = &entry.value.value;
        let is_guest = kind == "ostype"
            && (["l24", "l26", "other", "solaris"].contains(&guest.as_str())
                || ["win", "w2k", "wxp", "wvista"].iter().any(|start| guest.starts_with(start)));
        if is_guest || ["scsihw", "vmgenid"].contains(&kind) {
            telling += 2;
        }
        telling += u32::from(is_disk || TELLING.contains(&kind));
    }
    let sizes = |key: &str| text.lines().any(|line| line.starts_with(key));
    telling >= 2 || (telling == 1 && (sizes("memory:") || sizes("cores:")))
}
