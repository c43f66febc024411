//! QEMU's command line as it is written: the one reader of it.
//!
//! It knows words, options and their values, each with its place, and what QEMU
//! makes of them where it takes more than one option to know: the accelerator,
//! the topology. What a VM is, in the end, is for those who look at it:
//! [`crate::qemu::parse`] makes a `VmSpec` of it, lint's rules point into it, and
//! the audit compares a running VM with it.
//!
//! Source: QEMU `softmmu/vl.c`, its manual page.

mod before;
mod config_file;
mod options;
mod properties;
pub mod shell;
mod smp;

use crate::source::{LocatedValue, NamedFile, SourceText, Span};

pub use before::Wrappers;
use before::file_name;
pub use options::takes_value;
pub use properties::{Properties, switch};
pub use shell::ShellWord;
pub use smp::Smp;

/// The option that names a file of options.
const READ_CONFIG: &str = "readconfig";

/// Files of options that are read for one text; what names more is no command line.
const MAX_CONFIG_FILES: usize = 64;

/// One option of QEMU's command line.
#[derive(Debug, Clone)]
pub struct QemuOption {
    /// Its name without dashes; empty for an image that stands alone.
    pub name: LocatedValue<String>,
    /// Its value, if it has one.
    pub value: Option<ShellWord>,
}

impl QemuOption {
    /// The value's text, empty if there is none.
    #[must_use]
    pub fn text(&self) -> &str {
        self.value.as_ref().map_or("", |word| &word.text)
    }

    /// The properties of its value; `implied` is the key of the first one.
    #[must_use]
    pub fn properties(&self, implied: &str) -> Properties {
        self.value.as_ref().map(|word| Properties::read(word, implied)).unwrap_or_default()
    }

    /// Where option and value stand.
    #[must_use]
    pub fn span(&self) -> Span {
        let value = self.value.as_ref().map(ShellWord::span);
        value.filter(|span| !span.is_empty()).unwrap_or(self.name.span)
    }
}

/// A command that starts QEMU.
#[derive(Debug, Clone)]
pub struct CommandLine {
    /// What stands before the program: `sudo`, `taskset -c 0-3`.
    pub before: Vec<ShellWord>,
    /// The program, if it is named.
    pub program: Option<ShellWord>,
    /// The options.
    pub options: Vec<QemuOption>,
    /// Words among the options that could not be resolved, and what may be
    /// behind them is not known: `"$@"`, `$(cat args)`.
    pub unresolved: Vec<ShellWord>,
    /// Files of `-readconfig` that were not read, and lines of others that say nothing;
    /// each with the reason where one is known.
    pub unread: Vec<LocatedValue<String>>,
}

/// The accelerators that a command line asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accelerators {
    /// Those to try, in their order; never empty. The first that works is taken.
    pub names: Vec<String>,
    /// Where that is said; none if it is said by no option.
    pub span: Option<Span>,
}

impl Accelerators {
    /// The one that is taken if all of them work.
    #[must_use]
    pub fn first(&self) -> &str {
        &self.names[0]
    }
}

impl CommandLine {
    /// Reads arguments that are already apart, without the program.
    #[must_use]
    pub fn of_arguments(arguments: &[String]) -> Self {
        let words = arguments.iter().map(|text| ShellWord::of_argument(text)).collect();
        Self::new(Vec::new(), None, words)
    }

    /// All commands of a script that start QEMU, with what the files say that stand behind
    /// it ([`Self::config_files`]).
    #[must_use]
    pub fn all_of(source: &SourceText<'_>) -> Vec<Self> {
        Self::all(source.text).into_iter().map(|line| line.with_config_files(source)).collect()
    }

    /// [`Self::one`], with what the files say that stand behind the text.
    #[must_use]
    pub fn one_of(source: &SourceText<'_>) -> Option<Self> {
        Some(Self::one(source.text)?.with_config_files(source))
    }

    /// The files of `-readconfig` that the command lines of a text name, each once, as
    /// `read` finds them: `Ok` holds the text, and the name under which people know it.
    pub fn config_files(
        text: &str,
        read: impl FnMut(&str) -> (String, Result<String, String>),
    ) -> Vec<NamedFile> {
        // Scripts are read once more for it, so only those that may name one.
        if !text.contains(READ_CONFIG) {
            return Vec::new();
        }
        let mut lines = Self::all(text);
        if lines.is_empty() {
            lines.extend(Self::one(text));
        }
        Self::named_files(&lines, read)
    }

    /// Those of arguments that are already apart.
    pub fn config_files_of(
        arguments: &[String],
        read: impl FnMut(&str) -> (String, Result<String, String>),
    ) -> Vec<NamedFile> {
        Self::named_files(&[Self::of_arguments(arguments)], read)
    }

    fn named_files(
        lines: &[Self],
        mut read: impl FnMut(&str) -> (String, Result<String, String>),
    ) -> Vec<NamedFile> {
        let options = lines.iter().flat_map(|line| &line.options);
        let words = options.filter(|option| option.name.value == READ_CONFIG);
        let mut files: Vec<NamedFile> = Vec::new();
        for word in words.filter_map(|option| option.value.as_ref()) {
            let is_new = || files.iter().all(|file| file.name != word.text);
            if word.unresolved.is_empty() && files.len() < MAX_CONFIG_FILES && is_new() {
                let (path, text) = read(&word.text);
                files.push(NamedFile { name: word.text.clone(), path, content: text.into() });
            }
        }
        files
    }

    /// The same with each file of `-readconfig` in its place that stands behind the text.
    #[must_use]
    pub fn with_config_files(mut self, source: &SourceText<'_>) -> Self {
        let mut options = Vec::with_capacity(self.options.len());
        for option in std::mem::take(&mut self.options) {
            let Some(word) = option.value.as_ref().filter(|_| option.name.value == READ_CONFIG)
            else {
                options.push(option);
                continue;
            };
            let said = format!("-{READ_CONFIG} {}", word.text);
            match source.named(&word.text) {
                Some(Ok((text, start))) => {
                    let read = config_file::read(text, start);
                    options.extend(read.options);
                    self.unread.extend(read.unread);
                    continue;
                }
                Some(Err(why)) => {
                    self.unread.push(LocatedValue::new(format!("{said} ({why})"), word.span()));
                }
                None => self.unread.push(LocatedValue::new(said, word.span())),
            }
            options.push(option);
        }
        self.options = options;
        self
    }

    /// All commands of a script that start QEMU.
    #[must_use]
    pub fn all(text: &str) -> Vec<Self> {
        let mut found = Vec::new();
        let mut commands = shell::commands(text).into_iter().peekable();
        while let Some(mut command) = commands.next() {
            let Some(program) = command.words.iter().position(|word| is_program(&word.text)) else {
                continue;
            };
            // One argument a line, without backslashes.
            while command.ends_with_line && misses_value(&command.words[program + 1..]) {
                let Some(more) = commands.next() else { break };
                command.words.extend(more.words);
                command.ends_with_line = more.ends_with_line;
            }
            let arguments = command.words.split_off(program + 1);
            let named = command.words.pop();
            let line = Self::new(command.words, named, arguments);
            if line.starts_a_vm() {
                found.push(line);
            }
        }
        found
    }

    /// The command of a text that starts QEMU, or the arguments of one if the
    /// text names no program. None if there is no option that QEMU knows.
    #[must_use]
    pub fn one(text: &str) -> Option<Self> {
        if let Some(line) = Self::all(text).into_iter().next() {
            return Some(line);
        }
        let words = shell::commands(text).into_iter().flat_map(|command| command.words);
        let mut words: Vec<ShellWord> = words.collect();
        let first = words.iter().position(|word| word.text.starts_with('-'))?;
        let arguments = words.split_off(first);
        Some(Self::new(words, None, arguments))
    }

    fn new(before: Vec<ShellWord>, program: Option<ShellWord>, arguments: Vec<ShellWord>) -> Self {
        let mut line = Self {
            before,
            program,
            options: Vec::new(),
            unresolved: Vec::new(),
            unread: Vec::new(),
        };
        line.add(arguments);
        line
    }

    /// Reads arguments behind those that are there.
    pub(crate) fn add(&mut self, arguments: Vec<ShellWord>) {
        let mut arguments = arguments.into_iter().peekable();
        while let Some(word) = arguments.next() {
            // QEMU takes every option with one dash or with two.
            let dashes = if word.text.starts_with("--") { 2 } else { 1 };
            if word.text.len() <= dashes || !word.text.starts_with('-') {
                if word.unresolved.is_empty() {
                    let name = LocatedValue::new(String::new(), word.span());
                    self.options.push(QemuOption { name, value: Some(word) });
                } else {
                    self.unresolved.push(word);
                }
                continue;
            }
            let name = LocatedValue::new(word.text[dashes..].to_owned(), word.span());
            let may_be_value =
                |next: &ShellWord| !next.text.starts_with('-') && next.unresolved.is_empty();
            let value = match takes_value(&name.value) {
                Some(true) => arguments.next(),
                Some(false) => None,
                None => arguments.next_if(may_be_value),
            };
            if let Some(value) = value.as_ref().filter(|value| !value.unresolved.is_empty()) {
                self.unresolved.push(value.clone());
            }
            self.options.push(QemuOption { name, value });
        }
    }

    /// Whether this can be a command that starts a VM: package managers and
    /// `ls -l /dev/kvm` name the programs, too.
    fn starts_a_vm(&self) -> bool {
        let is_long = |name: &str| name.len() > 1 || matches!(name, "m" | "M");
        !self.unresolved.is_empty()
            || self.options.iter().any(|option| {
                let name = &option.name.value;
                is_long(name) && takes_value(name).is_some()
            })
    }

    /// The program's name, without its folder.
    #[must_use]
    pub fn program_name(&self) -> Option<&str> {
        self.program.as_ref().map(|word| file_name(&word.text))
    }

    /// The architecture that the program's name says: `aarch64` of
    /// `qemu-system-aarch64`.
    #[must_use]
    pub fn arch(&self) -> Option<&str> {
        self.program_name()?.strip_prefix("qemu-system-")
    }

    /// The machine type, without its properties.
    #[must_use]
    pub fn machine(&self) -> Option<LocatedValue<String>> {
        let named = |option: &QemuOption| option.properties("type").at("type").cloned();
        self.options.iter().rev().filter(|option| is_machine(option)).find_map(named)
    }

    /// What QEMU will try to run the guest with. `-accel` may stand several times
    /// and `-machine accel=` may name several, in the order of preference;
    /// `-enable-kvm` is the latter. Where nothing is said a program whose name ends
    /// with `kvm` tries KVM first, and any other emulates.
    #[must_use]
    pub fn accelerators(&self) -> Accelerators {
        let mut by_option: Vec<LocatedValue<String>> = Vec::new();
        let mut by_machine: Option<LocatedValue<String>> = None;
        for option in &self.options {
            match option.name.value.as_str() {
                "accel" => by_option.extend(option.properties("accel").at("accel").cloned()),
                "enable-kvm" => {
                    by_machine = Some(LocatedValue::new("kvm".to_owned(), option.name.span));
                }
                "machine" | "M" => {
                    let named = option.properties("type").at("accel").cloned();
                    by_machine = named.or(by_machine);
                }
                _ => {}
            }
        }
        if let Some(first) = by_option.first() {
            let span = Some(first.span);
            return Accelerators {
                names: by_option.into_iter().map(|at| at.value).collect(),
                span,
            };
        }
        let split = |list: &str| -> Vec<String> {
            list.split(':').filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        if let Some(list) = by_machine
            && let names = split(&list.value)
            && !names.is_empty()
        {
            return Accelerators { names, span: Some(list.span) };
        }
        let is_kvm = self.program_name().is_some_and(|name| name.ends_with("kvm"));
        Accelerators { names: split(if is_kvm { "kvm:tcg" } else { "tcg" }), span: None }
    }

    /// vCPUs and topology, as QEMU completes them, and where they are said: by `-smp`,
    /// or as the machine's own properties `smp.*`, which are the same since QEMU 6.2.
    #[must_use]
    pub fn smp(&self) -> (Smp, Option<Properties>) {
        let machine = self.machine().map(|at| at.value).unwrap_or_default();
        // Properties of several options add up, the later one holds.
        let mut merged: Option<Properties> = None;
        for option in &self.options {
            let read = match option.name.value.as_str() {
                "smp" => option.properties("cpus"),
                "machine" | "M" => option.properties("type").below("smp"),
                _ => continue,
            };
            if read.is_empty() {
                continue;
            }
            merged = Some(match merged {
                Some(earlier) => earlier.overlaid(read),
                None => read,
            });
        }
        let smp = merged.as_ref().map_or(Smp::ONE, |read| Smp::resolve(read, &machine));
        (smp, merged)
    }

    /// Guest memory at the start, bytes: what the last `-m` says, else the machine's own
    /// property `memory.size` (since QEMU 7.1), else the size of its `memory-backend`.
    #[must_use]
    pub fn memory_bytes(&self) -> Option<LocatedValue<u64>> {
        let named = |name: &str| {
            let name = name.to_owned();
            self.options.iter().rev().filter(move |option| option.name.value == name)
        };
        let own = |key: &'static str| {
            let machines = self.options.iter().rev().filter(|option| is_machine(option));
            machines.map(|option| option.properties("type")).find(move |all| all.at(key).is_some())
        };
        let backend = || {
            let id = own("memory-backend")?.at("memory-backend")?.value.clone();
            let mut objects = named("object").map(|option| option.properties("qom-type"));
            objects.find(|object| object.get("id") == Some(id.as_str()))?.bytes("size", 1)
        };
        named("m")
            .find_map(|option| option.properties("size").bytes("size", 1 << 20))
            .or_else(|| own("memory.size")?.bytes("memory.size", 1))
            .or_else(backend)
    }
}

fn is_machine(option: &QemuOption) -> bool {
    matches!(option.name.value.as_str(), "machine" | "M")
}

/// Whether the last of some arguments is an option that needs a value.
fn misses_value(arguments: &[ShellWord]) -> bool {
    let name = arguments.last().map_or("", |word| word.text.trim_start_matches('-'));
    arguments.is_empty() || takes_value(name) == Some(true)
}

/// Whether a word names a program that is QEMU.
fn is_program(word: &str) -> bool {
    let name = file_name(word);
    name.starts_with("qemu-system-") || matches!(name, "qemu-kvm" | "kvm")
}

#[cfg(test)]
mod tests;
