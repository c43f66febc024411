//! Proxmox VE's configurations: the command line that `qm` makes of one, and what that
//! can't say.

use vmconfig::proxmox::{ProxmoxCommand, command, parse_command};
use vmconfig::source::{LocatedValue, SourceText};

use crate::format::ConfigFormat;
use crate::read::qemu;
use crate::vm::Vm;

/// Microseconds of a period in which the limit of a cgroup counts.
const PERIOD_US: f64 = 100_000.0;

pub(crate) fn read(source: &SourceText<'_>, settings: bool) -> Vec<Vm> {
    let read = |command: ProxmoxCommand| {
        let mut vm = vm(&command);
        vm.parsed = settings.then(|| Box::new(parse_command(command, source)));
        vm
    };
    command(source.text).map(read).into_iter().collect()
}

fn vm(command: &ProxmoxCommand) -> Vm {
    let mut vm = qemu::command(&command.line);
    vm.format = ConfigFormat::Proxmox;
    if !command.line.options.iter().any(|option| option.name.value == "name") {
        vm.name = String::new();
    }
    vm.quota = command.cpu_limit.as_ref().map(|limit| {
        #[expect(clippy::cast_possible_truncation, reason = "a number of pCPUs is small")]
        let quota = (limit.value * PERIOD_US) as i64;
        LocatedValue::new(quota, limit.span)
    });
    vm.troubles.clone_from(&command.troubles);
    vm
}
