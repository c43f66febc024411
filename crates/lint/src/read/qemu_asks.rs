//! What a command line asks of the host's QEMU.
//!
//! Source: QEMU's manual page; `docs/pcie.txt`.

use std::collections::BTreeSet;

use vmconfig::command_line::{CommandLine, Properties, switch};
use vmconfig::offers::feature_name;
use vmconfig::source::LocatedValue;

use crate::requirements::{Ports, Requirements};

pub(super) fn read(line: &CommandLine) -> Requirements {
    let mut asks = Requirements::default();
    let mut devices: Vec<Properties> = Vec::new();
    let mut has_monitor = false;
    for option in &line.options {
        match option.name.value.as_str() {
            "machine" | "M" => {
                let options = option.properties("type");
                asks.machine = options.at("type").cloned().or(asks.machine.take());
            }
            "cpu" => cpu(&option.properties("model"), &mut asks),
            "device" => devices.push(option.properties("driver")),
            "object" => asks.types.extend(option.properties("qom-type").at("qom-type").cloned()),
            "qmp" | "mon" | "monitor" | "qmp-pretty" => has_monitor = true,
            _ => {}
        }
    }
    // `help` prints a list, and no VM comes of it.
    let drivers = devices.iter().filter_map(|device| device.at("driver"));
    asks.types.extend(drivers.filter(|driver| driver.value != "help").cloned());
    if has_monitor {
        asks.ports = ports(&devices);
    }
    asks
}

fn cpu(options: &Properties, asks: &mut Requirements) {
    asks.model = options.at("model").cloned();
    for (key, at) in options.iter().filter(|(key, _)| *key != "model") {
        let (name, on) = match key.split_at_checked(1) {
            Some(("+", name)) => (name, true),
            Some(("-", name)) => (name, false),
            _ => match switch(&at.value) {
                Some(on) => (key, on),
                None => continue,
            },
        };
        if name == "enforce" {
            asks.exact = on;
        } else if on {
            asks.features.push(LocatedValue::new(feature_name(name), at.span));
        } else {
            asks.disabled.insert(feature_name(name));
        }
    }
}

/// The ports that somebody made; none of them may be meant for later.
fn ports(devices: &[Properties]) -> Option<Ports> {
    let is_port = |device: &&Properties| {
        matches!(device.get("driver"), Some("pcie-root-port" | "ioh3420" | "xio3130-downstream"))
    };
    let taken: BTreeSet<&str> = devices.iter().filter_map(|device| device.get("bus")).collect();
    let ports: Vec<&Properties> = devices.iter().filter(is_port).collect();
    let free = |device: &&&Properties| device.get("id").is_none_or(|id| !taken.contains(id));
    let span = ports.last()?.span();
    Some(Ports { all: ports.len(), free: ports.iter().filter(free).count(), span: Some(span) })
}
