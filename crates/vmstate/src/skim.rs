//! Taking a stream as it comes: memory is passed over page by page, the rest is kept.
//!
//! Memory stands before the devices and can be hundreds of GiB; here it costs one buffer.
//! A stream can be read so while QEMU writes it.

use std::mem;

use crate::cursor::{name, number, number32};
use crate::error::{Problem, StreamError};
use crate::stream::{MemorySections, MigrationStream};

/// Most that is kept of a stream, bytes: the devices of thousands of vCPUs have some MiB.
pub const MAX_KEPT_BYTES: usize = 256 << 20;

/// Most blocks of memory.
const MAX_BLOCKS: usize = 65_536;

/// Longest name of a machine, bytes.
const MAX_MACHINE_BYTES: u32 = 1024;

/// Memory is sent over and over while a guest writes it; how often it may come, and how
/// many entries there may be beside.
const MAX_ROUNDS: u64 = 256;
const MAX_ENTRIES: u64 = 1 << 22;

const MAGIC: &[u8] = b"QEVM";
const VERSION: u32 = 3;

/// What libvirt writes before a stream. Source: libvirt `src/qemu/qemu_saveimage.h`.
const LIBVIRT_MAGIC: &[u8] = b"LibvirtQemudSave";
const LIBVIRT_UNFINISHED: &[u8] = b"LibvirtQemudPart";
const LIBVIRT_HEADER_BYTES: usize = 92;

/// What begins a part of a stream.
pub(crate) mod part {
    pub(crate) const END: u8 = 0x00;
    pub(crate) const SECTION_START: u8 = 0x01;
    pub(crate) const SECTION_PART: u8 = 0x02;
    pub(crate) const SECTION_END: u8 = 0x03;
    pub(crate) const SECTION_FULL: u8 = 0x04;
    pub(crate) const SUBSECTION: u8 = 0x05;
    pub(crate) const DESCRIPTION: u8 = 0x06;
    pub(crate) const CONFIGURATION: u8 = 0x07;
    pub(crate) const COMMAND: u8 = 0x08;
    pub(crate) const FOOTER: u8 = 0x7e;
}

/// What an entry of memory is. Source: QEMU `migration/ram.c`, `RAM_SAVE_FLAG_*`.
mod entry {
    pub(super) const UNIFORM: u64 = 0x02;
    pub(super) const SIZES: u64 = 0x04;
    pub(super) const PAGE: u64 = 0x08;
    pub(super) const END: u64 = 0x10;
    pub(super) const SAME_BLOCK: u64 = 0x20;
    pub(super) const XBZRLE: u64 = 0x40;
    pub(super) const COMPRESSED: u64 = 0x100;
    pub(super) const MULTIFD_FLUSH: u64 = 0x200;
}

/// What the next bytes are expected to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Magic,
    Libvirt,
    Version,
    Part,
    MachineLength,
    Machine,
    SubsectionLength,
    Subsection,
    SubsectionVersion,
    PageBits,
    CapabilityCount,
    CapabilityLength,
    Capability,
    Uuid,
    Command,
    CommandData,
    SectionNumber,
    NameLength,
    Name,
    Instance,
    PartNumber,
    Footer,
    Entry,
    BlockNameLength,
    BlockName,
    BlockBytes,
    PageBlockLength,
    PageBlock,
    Fill,
    XbzrleHead,
    CompressedLength,
    Devices,
}

/// Reads a stream as it comes.
#[derive(Debug)]
pub struct Skim {
    step: Token,
    /// How many bytes the step wants.
    wants: usize,
    /// What it has of them already.
    held: Vec<u8>,
    /// Bytes of a page that are passed over first.
    passing: u64,
    /// Offset of the next byte.
    at: u64,
    /// The present part is kept.
    keeping: bool,
    kept: Vec<u8>,
    pieces: Vec<(usize, u64)>,
    machine: Option<String>,
    page_bytes: u64,
    capabilities: Vec<String>,
    capabilities_left: u32,
    /// The last subsection's name.
    subsection: String,
    /// What may follow: a subsection of the configuration.
    configuring: bool,
    part: u8,
    /// The section under way, by name.
    section: Option<String>,
    number: u32,
    memory: Option<MemorySections>,
    memory_number: u32,
    memory_ended: bool,
    /// Flags of the present entry, and bytes of blocks that are not told yet.
    flags: u64,
    sizes_left: u64,
    entries: u64,
    most_entries: u64,
}

impl Default for Skim {
    fn default() -> Self {
        Self {
            step: Token::Magic,
            wants: MAGIC.len(),
            held: Vec::new(),
            passing: 0,
            at: 0,
            keeping: true,
            kept: Vec::new(),
            pieces: Vec::new(),
            machine: None,
            page_bytes: 4096,
            capabilities: Vec::new(),
            capabilities_left: 0,
            subsection: String::new(),
            configuring: false,
            part: 0,
            section: None,
            number: 0,
            memory: None,
            memory_number: 0,
            memory_ended: false,
            flags: 0,
            sizes_left: 0,
            entries: 0,
            most_entries: MAX_ENTRIES,
        }
    }
}

impl Skim {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`StreamError`] with the place, as soon as it is known.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            if self.step == Token::Devices {
                return self.keep(bytes).map_err(|problem| self.error(problem));
            }
            if self.passing > 0 {
                let passed = usize::try_from(self.passing).unwrap_or(usize::MAX).min(bytes.len());
                self.passing -= passed as u64;
                self.at += passed as u64;
                bytes = &bytes[passed..];
                continue;
            }
            if self.held.is_empty() && bytes.len() >= self.wants {
                let (now, later) = bytes.split_at(self.wants);
                self.take(now)?;
                bytes = later;
                continue;
            }
            let count = (self.wants - self.held.len()).min(bytes.len());
            self.held.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.held.len() == self.wants {
                let held = mem::take(&mut self.held);
                self.take(&held)?;
            }
        }
        Ok(())
    }

    /// The stream, which is at its end.
    ///
    /// # Errors
    /// [`StreamError`] if it can't be.
    pub fn finish(self) -> Result<MigrationStream, StreamError> {
        if self.at == 0 && self.held.is_empty() {
            return Err(self.error(Problem::NotAStream));
        }
        if self.step != Token::Devices {
            let at = self.at + self.held.len() as u64;
            return Err(StreamError { at, ..self.error(Problem::Cut) });
        }
        let devices = self.pieces.last().map_or(0, |(kept, _)| *kept);
        Ok(MigrationStream {
            bytes: self.kept,
            pieces: self.pieces,
            devices,
            machine: self.machine,
            page_bytes: self.page_bytes,
            capabilities: self.capabilities,
            memory: self.memory,
            file_bytes: self.at,
        })
    }

    /// Bytes that have been taken.
    #[must_use]
    pub fn seen_bytes(&self) -> u64 {
        self.at + self.held.len() as u64
    }

    fn error(&self, problem: Problem) -> StreamError {
        StreamError { at: self.at, section: self.section.clone(), problem }
    }

    fn take(&mut self, now: &[u8]) -> Result<(), StreamError> {
        self.decide(now).map_err(|problem| self.error(problem))
    }

    /// Keeps `bytes`, which are at `self.at`, if this part is kept; goes on behind them.
    fn keep(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        if self.keeping {
            if self.kept.len() + bytes.len() > MAX_KEPT_BYTES {
                let (what, most) = ("bytes beside memory", MAX_KEPT_BYTES as u64);
                return Err(Problem::TooMany { what, most });
            }
            let follows = self
                .pieces
                .last()
                .is_some_and(|(start, file)| file + (self.kept.len() - start) as u64 == self.at);
            if !follows {
                self.pieces.push((self.kept.len(), self.at));
            }
            self.kept.extend_from_slice(bytes);
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.at += bytes.len() as u64;
    }

    fn next(&mut self, step: Token, wants: usize) -> Result<(), Problem> {
        (self.step, self.wants) = (step, wants);
        // A name may have no letters.
        if wants == 0 { self.decide(&[]) } else { Ok(()) }
    }

    /// The devices follow, with what begins their first section: `begun` bytes of it are
    /// kept already.
    fn begin_devices(&mut self) {
        self.step = Token::Devices;
        let at = self.kept.len();
        if self.pieces.last().is_none_or(|(kept, _)| *kept != at) {
            self.pieces.push((at, self.at));
        }
    }

    fn decide(&mut self, now: &[u8]) -> Result<(), Problem> {
        match self.step {
            Token::Magic if now == MAGIC => {
                self.keep(now)?;
                self.next(Token::Version, 4)
            }
            Token::Magic if self.at == 0 && now == &LIBVIRT_MAGIC[..4] => self.next_libvirt(now),
            Token::Magic => Err(Problem::NotAStream),
            Token::Libvirt => self.decide_libvirt(now),
            Token::Version => {
                let version = number32(now);
                if version != VERSION {
                    return Err(Problem::Version(version));
                }
                self.keep(now)?;
                self.next(Token::Part, 1)
            }
            Token::Part => self.decide_part(now[0], now),
            Token::MachineLength
            | Token::Machine
            | Token::SubsectionLength
            | Token::Subsection
            | Token::SubsectionVersion
            | Token::PageBits
            | Token::CapabilityCount
            | Token::CapabilityLength
            | Token::Capability
            | Token::Uuid => self.decide_configuration(now),
            Token::Command => {
                self.keep(now)?;
                self.next(Token::CommandData, usize::from(now[2]) << 8 | usize::from(now[3]))
            }
            Token::CommandData => {
                self.keep(now)?;
                self.next(Token::Part, 1)
            }
            Token::SectionNumber => {
                self.number = number32(now);
                self.keep(now)?;
                self.next(Token::NameLength, 1)
            }
            Token::NameLength => {
                self.keep(now)?;
                self.next(Token::Name, usize::from(now[0]))
            }
            Token::Name => {
                let text = name(now)?.to_owned();
                if self.part == part::SECTION_FULL {
                    return Err(Problem::BeforeMemory(text));
                }
                if text != "ram" {
                    return Err(Problem::Iterates(text));
                }
                self.section = Some(text);
                self.keep(now)?;
                self.next(Token::Instance, 8)
            }
            Token::Instance => {
                self.memory.get_or_insert_default();
                self.memory_number = self.number;
                self.keep(now)?;
                self.next(Token::Entry, 8)
            }
            Token::PartNumber => {
                self.number = number32(now);
                if self.memory.is_none() || self.number != self.memory_number {
                    return Err(Problem::Part(self.number));
                }
                self.section = Some("ram".to_owned());
                self.memory_ended |= self.part == part::SECTION_END;
                self.keep(now)?;
                self.next(Token::Entry, 8)
            }
            Token::Footer => {
                let found = number32(now);
                if found != self.number {
                    return Err(Problem::OtherEnd { wanted: self.number, found });
                }
                self.keep(now)?;
                (self.keeping, self.section) = (true, None);
                self.next(Token::Part, 1)
            }
            Token::Entry
            | Token::BlockNameLength
            | Token::BlockName
            | Token::BlockBytes
            | Token::PageBlockLength
            | Token::PageBlock
            | Token::Fill
            | Token::XbzrleHead
            | Token::CompressedLength => self.decide_memory(now),
            Token::Devices => self.keep(now),
        }
    }

    fn next_libvirt(&mut self, now: &[u8]) -> Result<(), Problem> {
        self.pass(now);
        self.next(Token::Libvirt, LIBVIRT_HEADER_BYTES - now.len())
    }

    /// libvirt's header: numbers in the order of the machine that wrote it.
    fn decide_libvirt(&mut self, now: &[u8]) -> Result<(), Problem> {
        let magic = &now[..LIBVIRT_MAGIC.len() - MAGIC.len()];
        if magic == &LIBVIRT_UNFINISHED[MAGIC.len()..] {
            return Err(Problem::Unfinished);
        }
        if magic != &LIBVIRT_MAGIC[MAGIC.len()..] {
            return Err(Problem::NotAStream);
        }
        let fields: Vec<u32> = now[magic.len()..]
            .chunks_exact(4)
            .map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]]))
            .collect();
        // A version is small, whoever wrote it.
        let is_swapped = fields[0] > 0xffff;
        let field = |index: usize| match is_swapped {
            true => fields[index].swap_bytes(),
            false => fields[index],
        };
        if field(3) != 0 {
            return Err(Problem::Compressed);
        }
        self.pass(now);
        // The domain's XML.
        self.passing = u64::from(field(1));
        self.next(Token::Magic, MAGIC.len())
    }

    fn decide_part(&mut self, part: u8, now: &[u8]) -> Result<(), Problem> {
        let configuring = mem::take(&mut self.configuring);
        self.part = part;
        // The rounds between the first part of memory and the last hold nothing but pages.
        self.keeping = part != part::SECTION_PART && (part != part::FOOTER || self.keeping);
        match part {
            part::CONFIGURATION => {
                self.keep(now)?;
                self.next(Token::MachineLength, 4)
            }
            part::SUBSECTION if configuring => {
                self.keep(now)?;
                self.next(Token::SubsectionLength, 1)
            }
            part::SECTION_START => {
                self.keep(now)?;
                self.next(Token::SectionNumber, 4)
            }
            part::SECTION_FULL if self.memory.is_some() && !self.memory_ended => {
                self.keep(now)?;
                self.next(Token::SectionNumber, 4)
            }
            part::SECTION_FULL | part::END => {
                self.begin_devices();
                self.keep(now)
            }
            part::SECTION_PART | part::SECTION_END => {
                self.keep(now)?;
                self.next(Token::PartNumber, 4)
            }
            part::COMMAND => {
                self.keep(now)?;
                self.next(Token::Command, 4)
            }
            part::FOOTER if self.section.is_some() => {
                self.keep(now)?;
                self.next(Token::Footer, 4)
            }
            other => Err(Problem::UnknownPart(other)),
        }
    }

    fn decide_configuration(&mut self, now: &[u8]) -> Result<(), Problem> {
        match self.step {
            Token::MachineLength => {
                let length = number32(now);
                if length > MAX_MACHINE_BYTES {
                    let (what, most) = ("bytes of a machine's name", MAX_MACHINE_BYTES.into());
                    return Err(Problem::TooMany { what, most });
                }
                self.keep(now)?;
                return self.next(Token::Machine, length as usize);
            }
            Token::Machine => self.machine = Some(name(now)?.to_owned()),
            Token::SubsectionLength => {
                self.keep(now)?;
                return self.next(Token::Subsection, usize::from(now[0]));
            }
            Token::Subsection => {
                self.subsection = name(now)?.to_owned();
                self.keep(now)?;
                return self.next(Token::SubsectionVersion, 4);
            }
            Token::SubsectionVersion => {
                let (step, wants) = match self.subsection.as_str() {
                    "configuration/target-page-bits" => (Token::PageBits, 4),
                    "configuration/capabilities" => (Token::CapabilityCount, 4),
                    "configuration/uuid" => (Token::Uuid, 16),
                    other => return Err(Problem::UnknownConfiguration(other.to_owned())),
                };
                self.keep(now)?;
                return self.next(step, wants);
            }
            Token::PageBits => {
                let bits = number32(now);
                // Entries of memory have their flags in the lower bits.
                if !(10..=24).contains(&bits) {
                    return Err(Problem::PageBits(bits));
                }
                self.page_bytes = 1 << bits;
            }
            Token::CapabilityCount => {
                self.capabilities_left = number32(now);
                self.keep(now)?;
                return self.next_capability();
            }
            Token::CapabilityLength => {
                self.keep(now)?;
                return self.next(Token::Capability, usize::from(now[0]));
            }
            Token::Capability => {
                let capability = name(now)?.to_owned();
                if capability == "mapped-ram" || capability == "multifd" {
                    return Err(Problem::Capability(capability));
                }
                self.capabilities.push(capability);
                self.capabilities_left -= 1;
                self.keep(now)?;
                return self.next_capability();
            }
            // The UUID.
            _ => {}
        }
        self.keep(now)?;
        self.configuring = true;
        self.next(Token::Part, 1)
    }

    fn next_capability(&mut self) -> Result<(), Problem> {
        if self.capabilities_left == 0 {
            self.configuring = true;
            return self.next(Token::Part, 1);
        }
        // There are some two dozen in all.
        if self.capabilities.len() >= 256 {
            return Err(Problem::TooMany { what: "capabilities", most: 256 });
        }
        self.next(Token::CapabilityLength, 1)
    }

    fn decide_memory(&mut self, now: &[u8]) -> Result<(), Problem> {
        match self.step {
            Token::Entry => self.decide_entry(now),
            Token::BlockNameLength => {
                self.keep(now)?;
                self.next(Token::BlockName, usize::from(now[0]))
            }
            Token::BlockName => {
                let block = name(now)?.to_owned();
                self.keep(now)?;
                let memory = self.memory.get_or_insert_default();
                if memory.blocks.len() >= MAX_BLOCKS {
                    let (what, most) = ("blocks of memory", MAX_BLOCKS as u64);
                    return Err(Problem::TooMany { what, most });
                }
                memory.blocks.push((block, 0));
                let is_told = self.capabilities.iter().any(|name| name == "x-ignore-shared");
                self.next(Token::BlockBytes, if is_told { 16 } else { 8 })
            }
            Token::BlockBytes => {
                let bytes = number(&now[..8]);
                self.keep(now)?;
                if let Some((_, size)) =
                    self.memory.as_mut().and_then(|memory| memory.blocks.last_mut())
                {
                    *size = bytes;
                }
                self.sizes_left = self.sizes_left.checked_sub(bytes).ok_or(Problem::Size {
                    field: "ram".to_owned(),
                    said: self.sizes_left,
                    walked: bytes,
                })?;
                let pages = (bytes / self.page_bytes).saturating_mul(MAX_ROUNDS);
                self.most_entries = self.most_entries.saturating_add(pages);
                self.next_block()
            }
            Token::PageBlockLength => {
                self.pass(now);
                self.next(Token::PageBlock, usize::from(now[0]))
            }
            Token::PageBlock => {
                self.pass(now);
                self.next_content()
            }
            Token::Fill => {
                self.pass(now);
                self.next(Token::Entry, 8)
            }
            Token::XbzrleHead => {
                self.pass(now);
                self.passing = number(&now[1..]);
                self.next(Token::Entry, 8)
            }
            // The length of a compressed page.
            _ => {
                self.pass(now);
                self.passing = number(now);
                self.next(Token::Entry, 8)
            }
        }
    }

    fn decide_entry(&mut self, now: &[u8]) -> Result<(), Problem> {
        let word = number(now);
        let (address, flags) = (word & !(self.page_bytes - 1), word & (self.page_bytes - 1));
        self.entries += 1;
        let memory = self.memory.get_or_insert_default();
        if self.entries > self.most_entries {
            return Err(Problem::TooMany { what: "pages of memory", most: self.most_entries });
        }
        self.flags = flags;
        match flags & !entry::SAME_BLOCK {
            entry::SIZES => {
                self.keep(now)?;
                self.sizes_left = address;
                self.next_block()
            }
            entry::END => {
                self.keep(now)?;
                self.next(Token::Part, 1)
            }
            entry::MULTIFD_FLUSH => {
                self.pass(now);
                self.next(Token::Entry, 8)
            }
            entry::UNIFORM | entry::PAGE | entry::XBZRLE | entry::COMPRESSED => {
                match flags & entry::UNIFORM {
                    0 => memory.data_pages += 1,
                    _ => memory.uniform_pages += 1,
                }
                self.pass(now);
                match flags & entry::SAME_BLOCK {
                    0 => self.next(Token::PageBlockLength, 1),
                    _ => self.next_content(),
                }
            }
            _ => Err(Problem::PageFlags(flags)),
        }
    }

    fn next_block(&mut self) -> Result<(), Problem> {
        match self.sizes_left {
            0 => self.next(Token::Entry, 8),
            _ => self.next(Token::BlockNameLength, 1),
        }
    }

    fn next_content(&mut self) -> Result<(), Problem> {
        match self.flags & !entry::SAME_BLOCK {
            entry::PAGE => {
                self.passing = self.page_bytes;
                self.next(Token::Entry, 8)
            }
            entry::UNIFORM => self.next(Token::Fill, 1),
            entry::XBZRLE => self.next(Token::XbzrleHead, 3),
            _ => self.next(Token::CompressedLength, 4),
        }
    }
}
