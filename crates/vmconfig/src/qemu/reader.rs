//! What of a command line is read so far.

use std::collections::BTreeMap;

use crate::command_line::{self, Properties, ShellWord};
use crate::source::SourceText;
use crate::spec::RESERVED;
use crate::{Accel, Arch, BootSource, UnmodelledSetting, VmSettings};

/// One option of the command line, with its line.
#[derive(Debug, Clone)]
pub(super) struct LocatedOption {
    pub(super) line: u32,
    /// With one dash, as it is kept.
    pub(super) name: String,
    pub(super) value: Option<ShellWord>,
}

impl LocatedOption {
    pub(super) fn new(option: command_line::QemuOption, source: &SourceText<'_>) -> Self {
        let line = source.line_number(option.name.span);
        let name = match option.name.value {
            // An image that stands alone is the first disk.
            name if name.is_empty() => "-hda".to_owned(),
            name => format!("-{name}"),
        };
        Self { line, name, value: option.value }
    }

    pub(super) fn text(&self) -> &str {
        self.value.as_ref().map_or("", |word| &word.text)
    }

    pub(super) fn properties(&self, implied: &str) -> Properties {
        self.value.as_ref().map(|word| Properties::read(word, implied)).unwrap_or_default()
    }
}

/// A memory backend and who is to use it.
pub(super) struct BackendObject {
    pub(super) properties: Properties,
    pub(super) line: u32,
    pub(super) size_mib: u64,
}

pub(super) struct CommandLineReader {
    pub(super) settings: VmSettings,
    pub(super) kept: Vec<UnmodelledSetting>,
    pub(super) lines: BTreeMap<String, u32>,
    pub(super) backends: BTreeMap<String, BackendObject>,
    pub(super) whole: Option<String>,
    pub(super) prealloc: bool,
    pub(super) nodes: Vec<(u32, Properties)>,
    pub(super) distances: Vec<(u32, Properties)>,
    pub(super) kernel: Option<String>,
    pub(super) initrd: Option<String>,
    pub(super) iothreads: Vec<String>,
    /// Properties that hold for every CPU model.
    pub(super) cpu_globals: Vec<String>,
}

impl CommandLineReader {
    pub(super) fn new() -> Self {
        // What QEMU does where nobody says anything.
        let settings = VmSettings {
            machine: "pc".to_owned(),
            cpu_model: "qemu64".to_owned(),
            memory_mib: 128,
            ..VmSettings::new("vm", Arch::X86_64, Accel::Tcg, BootSource::Firmware)
        };
        Self {
            settings,
            kept: Vec::new(),
            lines: BTreeMap::new(),
            backends: BTreeMap::new(),
            whole: None,
            prealloc: false,
            nodes: Vec::new(),
            distances: Vec::new(),
            kernel: None,
            initrd: None,
            iothreads: Vec::new(),
            cpu_globals: Vec::new(),
        }
    }

    pub(super) fn keep(&mut self, line: u32, path: &str, text: String) {
        self.kept.push(UnmodelledSetting::of_text(line, path, text));
    }

    pub(super) fn at(&mut self, field: &str, line: u32) {
        self.lines.insert(field.to_owned(), line);
    }

    /// Keeps an option that is not understood, and passes it on.
    pub(super) fn unknown(&mut self, option: &LocatedOption) {
        self.unknown_text(option.line, &option.name, option.value.as_ref().map(|word| &*word.text));
    }

    /// Keeps what is left of an option that is only half understood.
    pub(super) fn unknown_text(&mut self, line: u32, name: &str, value: Option<&str>) {
        self.keep(line, name, value.unwrap_or_default().to_owned());
        let reserved = RESERVED.iter().any(|(reserved, _)| *reserved == name);
        if !reserved {
            self.settings.extra_args.push(name.to_owned());
            self.settings.extra_args.extend(value.map(str::to_owned));
        }
    }

    /// Keeps the properties that nobody took.
    pub(super) fn leftover(&mut self, line: u32, path: &str, properties: &Properties) {
        if let Some(rest) = properties.rest() {
            self.keep(line, path, rest);
        }
    }

    pub(super) fn has_kernel(&self) -> bool {
        self.kernel.is_some()
    }
}
