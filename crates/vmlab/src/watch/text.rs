//! What a store holds, as text.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::bail;
use fleet::stored::{StoredReadings, StoredVm, utc};
use record::Unit;

pub(super) fn summary(held: &StoredReadings, path: &Path) -> String {
    let mut text = format!("{} of {}\n\n", path.display(), held.host);
    let span = held
        .read_unix_s
        .map_or_else(String::new, |[first, last]| format!(", {} to {} UTC", utc(first), utc(last)));
    let _ = writeln!(text, "Readings  {}{span}", held.readings);
    let _ = writeln!(text, "Seen      {} VMs, {} boots of the host", held.vms_seen, held.boots);
    let _ = writeln!(text, "Size      {}", Unit("B".to_owned()).show(held.bytes as f64));
    let _ = writeln!(text, "Format    {}, version {}", held.format, held.version);
    if held.vms.is_empty() {
        return text;
    }
    let width = held.vms.iter().map(|vm| vm.name.chars().count()).max().unwrap_or(0).max(4);
    let _ = writeln!(
        text,
        "\n{:width$} {:>8} {:>6} {:>9} {:>11} {:>11}  in",
        "last reading",
        "pid",
        "vCPUs",
        "counters",
        "run",
        "wait",
        width = width.max(12),
    );
    for vm in &held.vms {
        let seconds = |name| match vm.counters.get(name) {
            Some(value) => Unit("s".to_owned()).show(value),
            None => "-".to_owned(),
        };
        let pid = if vm.pid == 0 { "host".to_owned() } else { vm.pid.to_string() };
        let environment = vm.environment.map_or_else(String::new, |one| one.to_string());
        let _ = writeln!(
            text,
            "{:width$} {pid:>8} {:>6} {:>9} {:>11} {:>11}  {environment}",
            vm.name,
            vm.vcpus,
            vm.counters.0.len(),
            seconds("vcpu.run_s"),
            seconds("vcpu.wait_s"),
            width = width.max(12),
        );
    }
    text
}

pub(super) fn counters(held: &StoredReadings, name: &str) -> anyhow::Result<String> {
    let named: Vec<&StoredVm> = held.vms.iter().filter(|vm| vm.name == name).collect();
    if named.is_empty() {
        let names: Vec<&str> = held.vms.iter().map(|vm| vm.name.as_str()).collect();
        bail!("The last reading has no VM called {name}: it has {}", names.join(", "));
    }
    let mut text = String::new();
    for vm in named {
        for (counter, value) in &vm.counters.0 {
            let unit = record::counter(counter).map_or("", |known| known.unit);
            let value = Unit(unit.to_owned()).show(*value);
            let _ = writeln!(text, "{counter:32} {value}");
        }
    }
    Ok(text)
}
