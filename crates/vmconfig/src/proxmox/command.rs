//! The command line that `qm` makes of a configuration, as far as it says what the VM
//! is: what connects it to Proxmox is left out.
//!
//! Source: qemu-server `config_to_command`.

use super::config::Config;
use super::maker::{Maker, ProxmoxCommand};
use super::{cpu, devices, memory};
use crate::source::{SourceText, Span};

/// The command line of a configuration; none if there is no setting.
#[must_use]
pub fn command(text: &str) -> Option<ProxmoxCommand> {
    let source = SourceText::new(text);
    let config = Config::read(&source);
    let head = config.get("name").or(config.entries.first())?;
    let head = Span { start: head.key.span.start, end: head.value.span.end };
    let mut maker = Maker::new(&config, &source, head);
    maker.name();
    maker.affinity();
    maker.machine_type();
    cpu::smp(&mut maker);
    cpu::model(&mut maker);
    memory::make(&mut maker);
    maker.clock();
    devices::make(&mut maker);
    maker.limits();
    maker.arguments();
    maker.close();
    let mut command = maker.finish();
    // Files of options in `args` are on the host that it is of.
    command.line = command.line.with_config_files(&source);
    Some(command)
}
