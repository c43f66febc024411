//! What a command line is made with, and the parts of it that are no devices.
//!
//! Source: qemu-server `config_to_command`.

use std::collections::HashSet;

use topology::PcpuSet;

use super::config::{Config, PropertyString, ProxmoxEntry};
use super::trouble::Trouble;
use crate::UnmodelledSetting;
use crate::command_line::{CommandLine, QemuOption, ShellWord, shell};
use crate::source::{LocatedValue, SourceText, Span};

/// A configuration as a command line, and what that can't say.
#[derive(Debug, Clone)]
pub struct ProxmoxCommand {
    /// The command line; each value stands where what it is made of stands.
    pub line: CommandLine,
    /// Settings that have no place in a VM, in the order of lines.
    pub kept: Vec<UnmodelledSetting>,
    /// Settings that do not do what they say.
    pub troubles: Vec<LocatedValue<Trouble>>,
    /// pCPUs' worth of time that all of the VM's threads together may have
    /// (`cpulimit`); none is no limit.
    pub cpu_limit: Option<LocatedValue<f64>>,
    /// Sections' names: snapshots, and `PENDING`.
    pub sections: Vec<LocatedValue<String>>,
}

/// A family of guests, which decides what they are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Guest {
    Linux,
    /// By its version: 5 is XP, 6 is Vista, 7 to 11 are named so.
    Windows(u32),
    Solaris,
    Other,
}

impl Guest {
    fn of(ostype: Option<&str>) -> Self {
        match ostype {
            Some("l26") => Self::Linux,
            Some("solaris") => Self::Solaris,
            Some("wxp" | "w2k" | "w2k3") => Self::Windows(5),
            Some("w2k8" | "wvista") => Self::Windows(6),
            Some(name) => {
                let version = name.strip_prefix("win").and_then(|number| number.parse().ok());
                version.map_or(Self::Other, Self::Windows)
            }
            None => Self::Other,
        }
    }

    pub(super) fn windows(self) -> Option<u32> {
        match self {
            Self::Windows(version) => Some(version),
            _ => None,
        }
    }
}

/// Makes the command line.
pub(super) struct Maker<'a> {
    pub(super) config: &'a Config,
    pub(super) source: &'a SourceText<'a>,
    /// Where what nobody said stands.
    pub(super) head: Span,
    pub(super) guest: Guest,
    pub(super) is_arm: bool,
    pub(super) is_kvm: bool,
    pub(super) machine: ProxmoxMachine,
    /// Properties of `-machine`.
    flags: ShellWord,
    line: CommandLine,
    kept: Vec<UnmodelledSetting>,
    troubles: Vec<LocatedValue<Trouble>>,
    cpu_limit: Option<LocatedValue<f64>>,
    understood: HashSet<String>,
}

/// The machine type.
pub(super) struct ProxmoxMachine {
    /// Its name, with the version that is meant.
    name: String,
    /// The version, if it is not the newest.
    version: Option<(u32, u32)>,
}

impl ProxmoxMachine {
    pub(super) fn is_q35(&self) -> bool {
        self.name.contains("q35")
    }

    /// Whether it is of this version or a later one.
    pub(super) fn since(&self, major: u32, minor: u32) -> bool {
        self.version.is_none_or(|version| version >= (major, minor))
    }

    fn new(said: Option<&str>, is_arm: bool, guest: Guest, created: Option<(u32, u32)>) -> Self {
        let usual = if is_arm { "virt" } else { "pc" };
        let name = said.unwrap_or(usual).split("+pve").next().unwrap_or(usual);
        let name = name.strip_suffix(".pxe").unwrap_or(name).to_owned();
        let version = name.rsplit('-').next().and_then(version);
        if version.is_some() || guest.windows().is_none() {
            return Self { name, version };
        }
        // Windows takes a new version for a new machine, so `qm` holds on to one.
        let pinned = created.filter(|version| *version >= (9, 1)).unwrap_or((5, 1));
        let long = if name == "pc" { "pc-i440fx" } else { &name };
        let long = if long == "q35" { "pc-q35" } else { long };
        Self { name: format!("{long}-{}.{}", pinned.0, pinned.1), version: Some(pinned) }
    }
}

/// `9.2` of `9.2.0`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.').map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

impl<'a> Maker<'a> {
    pub(super) fn new(config: &'a Config, source: &'a SourceText<'a>, head: Span) -> Self {
        let guest = Guest::of(config.text("ostype"));
        let machine = config.get("machine").and_then(|entry| entry.parts("type").take("type"));
        let said = machine.as_ref().map(|at| at.value.as_str());
        let is_arm = config.text("arch") == Some("aarch64")
            || said.is_some_and(|name| name.starts_with("virt"));
        let is_kvm = match config.get("kvm").and_then(ProxmoxEntry::switch) {
            Some(on) => on,
            // Emulated where the host is of another architecture, as most are.
            None => config.text("arch") != Some("aarch64"),
        };
        let created = config.get("meta").and_then(|meta| meta.parts("").take("creation-qemu"));
        let created = created.and_then(|at| version(&at.value));
        let program = if is_arm { "qemu-system-aarch64" } else { "/usr/bin/kvm" };
        let line = CommandLine {
            before: Vec::new(),
            program: Some(ShellWord::made(head).with(program, head)),
            options: Vec::new(),
            unresolved: Vec::new(),
            unread: Vec::new(),
        };
        Self {
            config,
            source,
            head,
            guest,
            is_arm,
            is_kvm,
            machine: ProxmoxMachine::new(said, is_arm, guest, created),
            flags: ShellWord::made(config.get("machine").map_or(head, |entry| entry.value.span)),
            line,
            kept: Vec::new(),
            troubles: Vec::new(),
            cpu_limit: None,
            understood: HashSet::new(),
        }
    }

    pub(super) fn finish(mut self) -> ProxmoxCommand {
        let config = self.config;
        for entry in &config.entries {
            if self.understood.contains(&entry.key.value) {
                continue;
            }
            if crate::weight::is_setting(entry.kind()) {
                self.keep(entry, &entry.key.value, &entry.value.value);
            } else {
                let trouble = Trouble::UnknownSetting(entry.key.value.clone());
                self.trouble(trouble, entry.key.span);
            }
        }
        for entry in &config.overridden {
            self.trouble(Trouble::SaidAgain(entry.key.value.clone()), entry.key.span);
        }
        for line in &config.broken {
            self.trouble(Trouble::NoSetting(line.value.clone()), line.span);
        }
        for section in &config.sections {
            let line = self.source.line_number(section.span);
            let text = format!("[{}]", section.value);
            self.kept.push(UnmodelledSetting::of_text(line, "section", text));
        }
        ProxmoxCommand {
            line: self.line,
            kept: self.kept,
            troubles: self.troubles,
            cpu_limit: self.cpu_limit,
            sections: config.sections.clone(),
        }
    }

    /// A setting, which is then understood.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a ProxmoxEntry> {
        let entry = self.config.get(key)?;
        self.understood.insert(key.to_owned());
        Some(entry)
    }

    /// All settings of a kind, such as `scsi0` to `scsi30`, by their numbers.
    pub(super) fn take_all(&mut self, kind: &str) -> Vec<(u32, &'a ProxmoxEntry)> {
        let numbered = self.config.entries.iter().filter(|entry| entry.kind() == kind);
        let mut all: Vec<(u32, &ProxmoxEntry)> =
            numbered.filter_map(|entry| Some((entry.number()?, entry))).collect();
        all.sort_by_key(|(number, _)| *number);
        self.understood.extend(all.iter().map(|(_, entry)| entry.key.value.clone()));
        all
    }

    /// A number; anything else is reported.
    pub(super) fn number(&mut self, key: &str) -> Option<LocatedValue<u64>> {
        let entry = self.take(key)?;
        self.read(key, &entry.value, "a number", |text| text.parse().ok())
    }

    /// A switch; anything else is reported.
    pub(super) fn switch(&mut self, key: &str) -> Option<LocatedValue<bool>> {
        let entry = self.take(key)?;
        match entry.switch() {
            Some(on) => Some(LocatedValue::new(on, entry.value.span)),
            None => self.read(key, &entry.value, "a switch (0 or 1)", |_| None),
        }
    }

    /// A value, or the trouble with it.
    pub(super) fn read<T>(
        &mut self,
        key: &str,
        at: &LocatedValue<String>,
        wanted: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<LocatedValue<T>> {
        let value = read(&at.value);
        if value.is_none() {
            let (key, value) = (key.to_owned(), at.value.clone());
            self.trouble(Trouble::BadValue { key, value, wanted }, at.span);
        }
        Some(LocatedValue::new(value?, at.span))
    }

    pub(super) fn trouble(&mut self, trouble: Trouble, span: Span) {
        self.troubles.push(LocatedValue::new(trouble, span));
    }

    pub(super) fn keep(&mut self, entry: &ProxmoxEntry, path: &str, text: &str) {
        let line = self.source.line_number(entry.key.span);
        self.kept.push(UnmodelledSetting::of_text(line, path, text));
    }

    /// Keeps the parts that nobody took.
    pub(super) fn keep_rest(&mut self, entry: &ProxmoxEntry, parts: &PropertyString) {
        for (key, value) in &parts.items {
            self.keep(entry, &format!("{}.{key}", entry.key.value), &value.value);
        }
    }

    /// Adds an option that stands at `place`.
    pub(super) fn option(&mut self, name: &str, place: Span, value: ShellWord) {
        let name = LocatedValue::new(name.to_owned(), place);
        self.line.options.push(QemuOption { name, value: Some(value) });
    }

    /// Adds a property to `-machine`.
    pub(super) fn flag(&mut self, text: &str, place: Span) {
        let comma = if self.flags.text.is_empty() { "" } else { "," };
        let flags = std::mem::take(&mut self.flags);
        self.flags = flags.with(comma, place).with(text, place);
    }

    /// Closes `-machine`, once all have said theirs.
    pub(super) fn close(&mut self) {
        let flags = std::mem::take(&mut self.flags);
        let place = flags.span();
        self.option("machine", place, flags);
    }

    pub(super) fn name(&mut self) {
        if let Some(name) = self.take("name") {
            let span = name.value.span;
            let value = ShellWord::made(span).with(&name.value.value.replace(',', ",,"), span);
            self.option("name", name.key.span, value);
        }
    }

    pub(super) fn affinity(&mut self) {
        let Some(entry) = self.take("affinity") else { return };
        let key = entry.key.value.clone();
        let read = |text: &str| text.parse::<PcpuSet>().ok().filter(|set| !set.is_empty());
        if self.read(&key, &entry.value, "a list of pCPUs", read).is_some() {
            let word = |text: &str, span| ShellWord::made(span).with(text, span);
            self.line.before = vec![
                word("taskset", entry.key.span),
                word("--cpu-list", entry.key.span),
                word(&entry.value.value, entry.value.span),
            ];
        }
    }

    pub(super) fn machine_type(&mut self) {
        let place = self.flags.span();
        let name = self.machine.name.clone();
        self.flag(&format!("type={name}"), place);
        if !self.is_kvm {
            let said = self.config.get("kvm").or(self.config.get("arch"));
            let place = said.map_or(self.head, |entry| entry.value.span);
            self.flag("accel=tcg", place);
        } else if self.is_arm {
            self.flag("accel=kvm", place);
        }
        let _ = (self.take("kvm"), self.take("arch"), self.take("ostype"));
        if let Some(entry) = self.take("machine") {
            let mut parts = entry.parts("type");
            parts.take("type");
            let intel = |text: &str| (text == "intel").then_some(());
            if let Some(at) = parts.take_if("viommu", intel) {
                let text = "intel-iommu,intremap=on,caching-mode=on";
                self.option("device", entry.key.span, ShellWord::made(at.span).with(text, at.span));
                self.flag("kernel-irqchip=split", at.span);
            }
            self.keep_rest(entry, &parts);
        }
        if let Some(acpi) = self.switch("acpi").filter(|acpi| !acpi.value) {
            self.flag("acpi=off", acpi.span);
        }
        if let Some(merge) = self.switch("allow-ksm").filter(|merge| !merge.value) {
            self.flag("mem-merge=off", merge.span);
        }
    }

    /// Source: qemu-server `Cfg2Cmd/Timer.pm`.
    pub(super) fn clock(&mut self) {
        let windows = self.guest.windows();
        let place = self.config.get("ostype").map_or(self.head, |entry| entry.value.span);
        if self.machine_has_hpet() {
            let late = windows.is_some_and(|version| version >= 6);
            if late {
                let text = "kvm-pit.lost_tick_policy=discard";
                self.option("global", place, ShellWord::made(place).with(text, place));
            }
            if late || self.guest == Guest::Linux && self.machine.since(10, 1) {
                self.flag("hpet=off", place);
            }
        }
        let has_acpi = self.config.get("acpi").and_then(ProxmoxEntry::switch) != Some(false);
        let drift = self.switch("tdf").map_or(windows.is_some() && has_acpi, |tdf| tdf.value);
        let local = self.switch("localtime").map_or(windows.is_some(), |local| local.value);
        let start = self.take("startdate").filter(|entry| entry.value.value != "now");
        let base = start.map(|entry| format!("base={}", entry.value.value));
        let base = base.or_else(|| local.then(|| "base=localtime".to_owned()));
        let slew = drift.then(|| "driftfix=slew".to_owned());
        let all: Vec<String> = [slew, base].into_iter().flatten().collect();
        if !all.is_empty() {
            self.option("rtc", place, ShellWord::made(place).with(&all.join(","), place));
        }
    }

    fn machine_has_hpet(&self) -> bool {
        !self.is_arm
    }

    /// What the VM's cgroup may have.
    pub(super) fn limits(&mut self) {
        let Some(entry) = self.take("cpulimit") else { return };
        let read = |text: &str| text.parse().ok().filter(|limit: &f64| *limit >= 0.0);
        let limit = self.read("cpulimit", &entry.value, "a number of pCPUs", read);
        if let Some(limit) = limit.filter(|limit| limit.value > 0.0) {
            self.keep(entry, "cpulimit", &entry.value.value);
            self.cpu_limit = Some(limit);
        }
    }

    /// Arguments of somebody's own, behind all others.
    pub(super) fn arguments(&mut self) {
        let Some(entry) = self.take("args") else { return };
        let Span { start, end } = entry.value.span;
        // As long in bytes, so that places are those in the file.
        let text = " ".repeat(start) + &self.source.text[start..end];
        let commands = shell::commands(&text).into_iter();
        self.line.add(commands.flat_map(|command| command.words).collect());
    }
}
