//! Readers: from a text to VMs with places.

pub(crate) mod kubevirt;
mod kubevirt_asks;
pub(crate) mod libvirt;
mod libvirt_asks;
pub(crate) mod proxmox;
pub(crate) mod qemu;
mod qemu_asks;
pub(crate) mod running;
pub(crate) mod template;
pub(crate) mod yaml;

use topology::bounded::MalformedText;

use crate::object::KubeObject;
use crate::rule::ConfigFormat;
use crate::vm::Vm;
use vmconfig::kubevirt::Catalogue;
use vmconfig::source::{LineColumn, SourceText, Span};

/// Error type of reading a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text breaks the rules of its format.
    #[error("{file}:{}:{}: {what}", place.line, place.column)]
    Syntax {
        /// Name of the file.
        file: String,
        /// Where.
        place: Box<LineColumn>,
        /// What is wrong.
        what: String,
    },
    /// Nothing in the text tells its format.
    #[error(
        "{file}: holds no VM: neither libvirt domain XML nor KubeVirt objects nor a QEMU command \
         line nor Proxmox's configuration"
    )]
    Unknown {
        /// Name of the file.
        file: String,
    },
}

/// An error that names the file.
pub(crate) fn in_file(broken: MalformedText, file: &str, text: &str) -> TextError {
    let place = SourceText::new(text).place(Span { start: broken.at, end: broken.at });
    TextError::Syntax { file: file.to_owned(), place: Box::new(place), what: broken.what }
}

/// The format of a text, from what it holds.
pub(crate) fn format_of(text: &str) -> Option<ConfigFormat> {
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if running::holds_running(start) {
        return qemu::holds_command(text).then_some(ConfigFormat::Running);
    }
    if start.starts_with('<') {
        return (text.contains("<domain")).then_some(ConfigFormat::Libvirt);
    }
    if vmconfig::proxmox::holds_vm(text) {
        return Some(ConfigFormat::Proxmox);
    }
    if text.contains("kubevirt.io/") && text.contains("kind") {
        return Some(ConfigFormat::Kubevirt);
    }
    qemu::holds_command(text).then_some(ConfigFormat::Qemu)
}

/// What a text holds.
#[derive(Debug)]
pub(crate) enum ConfigItem {
    /// A VM, or what makes one.
    Vm(Box<Vm>),
    /// An object of KubeVirt that rules know otherwise.
    Object(KubeObject),
}

/// How a text is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadOptions<'a> {
    /// Instance types of KubeVirt that other texts hold.
    pub(crate) types: &'a Catalogue,
    /// Whether each VM is to have its settings, too: [`Vm::parsed`].
    pub(crate) settings: bool,
}

/// Hands out what a text holds one after the other, as a file may hold so many that
/// they do not all fit into memory.
pub(crate) fn read(
    format: ConfigFormat,
    source: &SourceText<'_>,
    wanted: ReadOptions<'_>,
    each: &mut dyn FnMut(ConfigItem),
) -> Result<(), MalformedText> {
    if format == ConfigFormat::Kubevirt {
        return kubevirt::read(source, wanted.types, wanted.settings, each);
    }
    let each = &mut |vm| each(ConfigItem::Vm(Box::new(vm)));
    match format {
        ConfigFormat::Libvirt => libvirt::read(source, wanted.settings, each)?,
        ConfigFormat::Kubevirt => {}
        ConfigFormat::Qemu => qemu::read(source, wanted.settings, each),
        ConfigFormat::Proxmox => proxmox::read(source, wanted.settings).into_iter().for_each(each),
        ConfigFormat::Running => running::read(source, wanted.settings).into_iter().for_each(each),
    }
    Ok(())
}
