//! Readers: from a text to VMs with places.

pub(crate) mod kubevirt;
pub(crate) mod libvirt;
pub(crate) mod list;
pub(crate) mod qemu;
pub(crate) mod running;
pub(crate) mod yaml;

use crate::rule::Format;
use crate::vm::Vm;
use vmconfig::source::{Place, Source, Span};

/// Error type of reading a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The text breaks the rules of its format.
    #[error("{file}:{}:{}: {what}", place.line, place.column)]
    Syntax {
        /// Name of the file.
        file: String,
        /// Where.
        place: Box<Place>,
        /// What is wrong.
        what: String,
    },
    /// Nothing in the text tells its format.
    #[error(
        "{file}: holds no VM: neither libvirt domain XML nor KubeVirt objects nor a QEMU command \
         line"
    )]
    Unknown {
        /// Name of the file.
        file: String,
    },
}

/// A place in a text that is wrong, and how.
pub(crate) struct Broken {
    pub(crate) at: usize,
    pub(crate) what: String,
}

impl Broken {
    pub(crate) fn in_file(self, file: &str, text: &str) -> ReadError {
        let place = Source::new(text).place(Span { start: self.at, end: self.at });
        ReadError::Syntax { file: file.to_owned(), place: Box::new(place), what: self.what }
    }
}

/// The format of a text, from what it holds.
pub(crate) fn format_of(text: &str) -> Option<Format> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if running::holds_running(start) {
        return qemu::holds_command(text).then_some(Format::Running);
    }
    if start.starts_with('<') {
        return (text.contains("<domain")).then_some(Format::Libvirt);
    }
    if text.contains("kubevirt.io/") && text.contains("kind") {
        return Some(Format::Kubevirt);
    }
    qemu::holds_command(text).then_some(Format::Qemu)
}

pub(crate) fn read(format: Format, text: &str) -> Result<Vec<Vm>, Broken> {
    match format {
        Format::Libvirt => libvirt::read(text),
        Format::Kubevirt => kubevirt::read(text),
        Format::Qemu => Ok(qemu::read(text)),
        Format::Running => Ok(running::read(text)),
    }
}
