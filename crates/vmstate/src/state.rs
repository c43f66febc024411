//! Every device of a stream, field by field.

use std::collections::HashMap;

use crate::cursor::Cursor;
use crate::description::{self, FieldDescription};
use crate::error::{Problem, StreamError};
use crate::field::{Field, FieldKind};
use crate::skim::part;
use crate::stream::{MemorySections, MigrationStream};
use crate::virtio;

/// Most fields that are told apart; an array of numbers is one.
pub const MAX_FIELDS: usize = 4 << 20;

/// Bytes of all fields' names together: the names of real machines have a tenth.
const MAX_NAME_BYTES: usize = 256 << 20;

/// A device, or another part of the machine that has state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceState {
    /// As QEMU calls it: `apic`, `0000:00:02.0/virtio-net`.
    pub name: String,
    /// Which one of that name.
    pub instance: u32,
    /// Version of its form.
    pub version: u32,
    /// The form's name, where it is described.
    pub form: Option<String>,
    /// Its fields, in the order of the stream.
    pub fields: Vec<Field>,
    /// Offset of its section in the file, bytes.
    pub at: u64,
    /// Length of its fields, bytes.
    pub bytes: u64,
}

/// The state of a VM.
#[derive(Debug, Clone)]
pub struct MachineState {
    pub(crate) stream: MigrationStream,
    /// The devices, in the order of the stream.
    pub devices: Vec<DeviceState>,
}

impl MachineState {
    /// Reads what a stream says of devices.
    ///
    /// # Errors
    /// [`StreamError`]: a damaged or cut stream, or one that does not describe itself.
    pub fn read(stream: MigrationStream) -> Result<Self, StreamError> {
        let devices = {
            let bytes = stream.bytes();
            let end = StreamError { at: stream.file_bytes, section: None, problem: Problem::Cut };
            let begin = description::find(bytes, stream.devices)
                .ok_or(StreamError { problem: Problem::NoDescription, ..end })?;
            let described = description::read(bytes, begin).map_err(|problem| StreamError {
                at: stream.file_offset(begin),
                section: None,
                problem,
            })?;
            if let Some(said) = described.page_size
                && said != stream.page_bytes
                && stream.memory.is_some()
            {
                let (field, walked) = ("page".to_owned(), stream.page_bytes);
                let problem = Problem::Size { field, said, walked };
                return Err(StreamError { at: stream.file_offset(begin), section: None, problem });
            }
            let forms = described.devices.iter();
            let forms = forms.map(|device| ((device.name.as_str(), device.instance), device));
            let mut walk = SectionWalk {
                // What describes the devices is no part of theirs.
                cursor: Cursor::new(&bytes[..begin], stream.devices),
                bytes: &bytes[..begin],
                forms: forms.collect(),
                left: MAX_FIELDS,
                names_left: MAX_NAME_BYTES,
                section: None,
                fields: Vec::new(),
            };
            let devices = walk.devices(&stream);
            devices.map_err(|problem| StreamError {
                at: stream.file_offset(walk.cursor.at()),
                section: walk.section,
                problem,
            })?
        };
        Ok(Self { stream, devices })
    }

    /// The machine type: `pc-q35-7.2`.
    #[must_use]
    pub fn machine(&self) -> Option<&str> {
        self.stream.machine.as_deref()
    }

    /// What the stream says of memory.
    #[must_use]
    pub fn memory(&self) -> Option<&MemorySections> {
        self.stream.memory.as_ref()
    }

    /// A field's bytes.
    #[must_use]
    pub fn bytes_of(&self, field: &Field) -> &[u8] {
        field.bytes(self.stream.bytes())
    }

    /// Offset of a field in the file, bytes.
    #[must_use]
    pub fn offset_of(&self, field: &Field) -> u64 {
        self.stream.file_offset(field.at)
    }
}

/// Walks the sections of devices.
struct SectionWalk<'a> {
    cursor: Cursor<'a>,
    bytes: &'a [u8],
    forms: HashMap<(&'a str, u32), &'a FieldDescription>,
    /// Fields that may still come.
    left: usize,
    /// Bytes that their names may still have.
    names_left: usize,
    section: Option<String>,
    fields: Vec<Field>,
}

impl SectionWalk<'_> {
    fn devices(&mut self, stream: &MigrationStream) -> Result<Vec<DeviceState>, Problem> {
        let mut devices = Vec::new();
        loop {
            let at = stream.file_offset(self.cursor.at());
            match self.cursor.byte()? {
                part::END => return Ok(devices),
                part::SECTION_FULL => devices.push(self.device(at)?),
                part::COMMAND => {
                    self.cursor.take(2)?;
                    let length = self.cursor.number(2)?;
                    self.cursor.take(usize::try_from(length).map_err(|_| Problem::Cut)?)?;
                }
                part::SECTION_PART | part::SECTION_END => {
                    return Err(Problem::Part(self.cursor.number32()?));
                }
                part::SECTION_START => {
                    self.cursor.take(4)?;
                    return Err(Problem::Iterates(self.cursor.name()?.to_owned()));
                }
                other => return Err(Problem::UnknownPart(other)),
            }
        }
    }

    fn device(&mut self, at: u64) -> Result<DeviceState, Problem> {
        let number = self.cursor.number32()?;
        let name = self.cursor.name()?.to_owned();
        self.section = Some(name.clone());
        let instance = self.cursor.number32()?;
        let version = self.cursor.number32()?;
        let begin = self.cursor.at();
        let form = self.forms.get(&(name.as_str(), instance)).copied();
        match form {
            Some(form) => self.structure(form, "")?,
            None => self.undescribed(number)?,
        }
        let bytes = (self.cursor.at() - begin) as u64;
        self.end(number)?;
        self.section = None;
        tell_apart(&mut self.fields);
        Ok(DeviceState {
            name,
            instance,
            version,
            form: form.and_then(|form| form.vmsd_name.clone()),
            fields: std::mem::take(&mut self.fields),
            at,
            bytes,
        })
    }

    /// A section's footer; streams of machines of QEMU 2.3 and before have none.
    fn end(&mut self, number: u32) -> Result<(), Problem> {
        match self.cursor.peek() {
            Some(part::FOOTER) => {
                self.cursor.byte()?;
                let found = self.cursor.number32()?;
                (found == number).then_some(()).ok_or(Problem::OtherEnd { wanted: number, found })
            }
            Some(part::END | part::SECTION_FULL | part::COMMAND) => Ok(()),
            Some(found) => Err(Problem::NoEnd { found }),
            None => Err(Problem::Cut),
        }
    }

    /// A section that the description leaves out: its bytes, to its footer.
    fn undescribed(&mut self, number: u32) -> Result<(), Problem> {
        let footer: Vec<u8> = std::iter::once(part::FOOTER).chain(number.to_be_bytes()).collect();
        let begin = self.cursor.at();
        let rest = &self.bytes[begin..];
        let is_end = |at: &usize| {
            let after = rest.get(at + footer.len());
            matches!(after, Some(&(part::END | part::SECTION_FULL | part::COMMAND)))
        };
        let mut places = rest.windows(footer.len()).enumerate();
        let end = places
            .by_ref()
            .filter(|(_, window)| *window == footer)
            .map(|(at, _)| at)
            .find(is_end)
            .ok_or(Problem::Cut)?;
        self.leaf("not described", "", FieldKind::Bytes, end, 1)
    }

    /// A structure's fields, and its subsections behind them.
    fn structure(&mut self, form: &FieldDescription, path: &str) -> Result<(), Problem> {
        for field in form.fields.iter().flatten() {
            self.field(field, path)?;
        }
        for subsection in &form.subsections {
            let wanted = subsection.vmsd_name.clone().unwrap_or_default();
            let missing = || Problem::NoSubsection { wanted: wanted.clone() };
            if self.cursor.peek() != Some(part::SUBSECTION) {
                return Err(missing());
            }
            self.cursor.byte()?;
            if self.cursor.name()? != wanted {
                return Err(missing());
            }
            self.cursor.number32()?;
            self.structure(subsection, &join(path, &wanted))?;
        }
        Ok(())
    }

    fn field(&mut self, field: &FieldDescription, path: &str) -> Result<(), Problem> {
        let own = match field.index {
            Some(index) => format!("{}[{index}]", field.name),
            None => field.name.clone(),
        };
        let path = join(path, &own);
        let count = field.array_len.unwrap_or(1);
        let inner = match (&field.structure, &field.fields) {
            (Some(structure), _) => Some(structure.as_ref()),
            // A structure that exists only while it is written.
            (None, Some(_)) if !field.repeated && field.kind == "tmp" => Some(field),
            _ => None,
        };
        let Some(inner) = inner else {
            let (size, count) = (length(field.size)?, length(count)?);
            if field.kind == "virtio" && count == 1 {
                return self.virtio(&path, size);
            }
            return self.leaf(&path, &field.kind, FieldKind::of(&field.kind, size), size, count);
        };
        for element in 0..count {
            let begin = self.cursor.at();
            self.spend(&path)?;
            match field.array_len {
                Some(_) => self.structure(inner, &format!("{path}[{element}]"))?,
                None => self.structure(inner, &path)?,
            }
            let walked = (self.cursor.at() - begin) as u64;
            if walked != field.size {
                return Err(Problem::Size { field: path, said: field.size, walked });
            }
        }
        Ok(())
    }

    /// A virtio device's state, which QEMU describes as bytes.
    fn virtio(&mut self, path: &str, size: usize) -> Result<(), Problem> {
        let begin = self.cursor.at();
        let bytes = self.cursor.take(size)?;
        let is_net = self.section.as_deref().is_some_and(|name| name.ends_with("virtio-net"));
        let Some(parts) = virtio::split(bytes, is_net) else {
            self.cursor = Cursor::new(self.bytes, begin);
            return self.leaf(path, "virtio", FieldKind::Bytes, size, 1);
        };
        for part in parts {
            self.spend(path)?;
            self.fields.push(Field {
                path: join(path, &part.name),
                type_name: part.type_name.to_owned(),
                kind: part.kind,
                size: part.size,
                count: part.count,
                at: begin + part.at,
            });
        }
        Ok(())
    }

    fn leaf(
        &mut self,
        path: &str,
        type_name: &str,
        kind: FieldKind,
        size: usize,
        count: usize,
    ) -> Result<(), Problem> {
        self.spend(path)?;
        let at = self.cursor.at();
        self.cursor.take(size.checked_mul(count).ok_or(Problem::Cut)?)?;
        // What has no bytes has no value.
        if size > 0 && count > 0 {
            let (path, type_name) = (path.to_owned(), type_name.to_owned());
            self.fields.push(Field { path, type_name, kind, size, count, at });
        }
        Ok(())
    }

    /// Counts a field of this name.
    fn spend(&mut self, path: &str) -> Result<(), Problem> {
        let (what, most) = ("fields", MAX_FIELDS as u64);
        self.left = self.left.checked_sub(1).ok_or(Problem::TooMany { what, most })?;
        let (what, most) = ("bytes of fields' names", MAX_NAME_BYTES as u64);
        let left = self.names_left.checked_sub(path.len());
        self.names_left = left.ok_or(Problem::TooMany { what, most })?;
        Ok(())
    }
}

/// Gives the second and each later field of the same name a name of its own.
fn tell_apart(fields: &mut [Field]) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for field in fields {
        let times = seen.entry(field.path.clone()).or_default();
        *times += 1;
        if *times > 1 {
            field.path = format!("{}~{times}", field.path);
        }
    }
}

fn length(number: u64) -> Result<usize, Problem> {
    usize::try_from(number).map_err(|_| Problem::Cut)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}
