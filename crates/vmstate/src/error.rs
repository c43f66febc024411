//! What is wrong with a stream, and where.

/// Error type for [`Skim`](crate::Skim) and [`MachineState::read`](crate::MachineState::read).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("At byte {at}{}: {problem}", in_section(.section))]
pub struct StreamError {
    /// Offset in the file, bytes.
    pub at: u64,
    /// The section, as the stream names it.
    pub section: Option<String>,
    /// What it is.
    pub problem: Problem,
}

fn in_section(section: &Option<String>) -> String {
    section.as_ref().map_or_else(String::new, |name| format!(", in section {name:?}"))
}

/// What can be wrong with a stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Another kind of file.
    #[error(
        "this is no migration stream of QEMU's, which begins with QEVM: give a file that \
         `vmlab capture`, QEMU's `migrate` or `virsh save` wrote"
    )]
    NotAStream,
    /// A stream of a version that no QEMU of this century writes.
    #[error("the stream is of version {0}; version 3 is read")]
    Version(u32),
    /// libvirt packed it.
    #[error(
        "libvirt has compressed this file: save it with `save_image_format = \"raw\"` in \
         /etc/libvirt/qemu.conf"
    )]
    Compressed,
    /// libvirt did not finish it.
    #[error("libvirt did not finish writing this file")]
    Unfinished,
    /// It is shorter than it says.
    #[error("the stream ends in the middle: it was cut; capture the VM anew")]
    Cut,
    /// There is more than is read.
    #[error("more than {most} {what}, which is the most that is read")]
    TooMany {
        /// What there is so much of.
        what: &'static str,
        /// The limit.
        most: u64,
    },
    /// A name that is not text.
    #[error("a name of {0} bytes is no text: the stream is damaged")]
    Name(usize),
    /// A byte that begins nothing.
    #[error("byte {0:#04x} begins no part of a stream: the stream is damaged")]
    UnknownPart(u8),
    /// A part of the configuration that this reader does not know.
    #[error("the configuration has a part {0:?} that vmlab does not know; it is of a newer QEMU")]
    UnknownConfiguration(String),
    /// Memory that is sent otherwise.
    #[error("memory was sent by {0}, which is not read: capture the VM with that capability off")]
    Capability(String),
    /// A section that comes in parts, other than memory.
    #[error("{0:?} is sent in parts like memory, in a form that vmlab does not know")]
    Iterates(String),
    /// A device's state that stands before the memory.
    #[error("the state of {0:?} stands before the memory, in a form that vmlab does not know")]
    BeforeMemory(String),
    /// Memory again, behind the devices.
    #[error("part of section {0} where devices' state is expected")]
    Part(u32),
    /// A page with unknown flags.
    #[error("a page of memory has flags {0:#x}, which no QEMU writes: the stream is damaged")]
    PageFlags(u64),
    /// A page size that is none.
    #[error("pages of 2^{0} bytes")]
    PageBits(u32),
    /// A section does not end where it should.
    #[error("the section's end is expected, byte {found:#04x} is found: the stream is damaged")]
    NoEnd {
        /// The byte.
        found: u8,
    },
    /// A section ends that did not begin.
    #[error("section {found} ends where section {wanted} should")]
    OtherEnd {
        /// Number of the section that began.
        wanted: u32,
        /// Number of the section that ends.
        found: u32,
    },
    /// There is no description.
    #[error(
        "the stream does not describe its devices at its end: it was cut, or its VM ran with \
         `suppress-vmdesc=on`; start QEMU with `-machine ...,suppress-vmdesc=off`, and capture \
         the VM anew"
    )]
    NoDescription,
    /// The description is no description.
    #[error("the stream's description of its devices can't be read: {0}")]
    Description(String),
    /// The description and the stream differ.
    #[error("field {field:?} takes {walked} bytes, but is described with {said}")]
    Size {
        /// The field.
        field: String,
        /// Bytes that the description says.
        said: u64,
        /// Bytes that its parts take.
        walked: u64,
    },
    /// Another subsection than described, or none.
    #[error("the described part {wanted:?} is not there: the stream is damaged")]
    NoSubsection {
        /// Its name.
        wanted: String,
    },
}
