//! vCPUs and their model.
//!
//! Source: qemu-server `CPUConfig.pm`.

use super::config::separated;
use super::maker::{Guest, Maker};
use super::trouble::Trouble;
use crate::command_line::ShellWord;
use crate::source::LocatedValue;

/// vCPUs: as many as sockets and cores make, of which some may be plugged in later.
pub(super) fn smp(maker: &mut Maker<'_>) {
    let count = |at: Option<LocatedValue<u64>>| {
        at.and_then(|at| Some((u32::try_from(at.value).ok()?, at.span)))
    };
    let old = count(maker.number("smp"));
    let sockets = count(maker.number("sockets")).or(old);
    let cores = count(maker.number("cores"));
    let vcpus = count(maker.number("vcpus")).filter(|(vcpus, _)| *vcpus > 0);
    let of = |at: Option<(u32, _)>| at.map_or(1, |(number, _)| number).max(1);
    let max = of(sockets).saturating_mul(of(cores));
    if let Some((vcpus, span)) = vcpus.filter(|(vcpus, _)| *vcpus > max) {
        maker.trouble(Trouble::TooManyVcpus { vcpus, max }, span);
    }
    let place = vcpus.or(cores).or(sockets).map_or(maker.head, |(_, span)| span);
    let span = |at: Option<(u32, _)>| at.map_or(place, |(_, span)| span);
    let word = ShellWord::made(place)
        .with(&format!("{}", vcpus.map_or(max, |(vcpus, _)| vcpus.min(max))), place)
        .with(&format!(",sockets={}", of(sockets)), span(sockets))
        .with(",cores=", span(cores))
        .with(&of(cores).to_string(), span(cores))
        .with(&format!(",maxcpus={max}"), place);
    maker.option("smp", place, word);
}

/// Levels of the x86-64 psABI as `qm` makes them of `qemu64`.
const LEVELS: &[(&str, &str)] = &[
    ("x86-64-v2", "+popcnt,+pni,+sse4.1,+sse4.2,+ssse3"),
    ("x86-64-v2-AES", "+aes,+popcnt,+pni,+sse4.1,+sse4.2,+ssse3"),
    (
        "x86-64-v3",
        "+aes,+popcnt,+pni,+sse4.1,+sse4.2,+ssse3,+avx,+avx2,+bmi1,+bmi2,+f16c,+fma,+abm,+movbe,\
         +xsave",
    ),
    (
        "x86-64-v4",
        "+aes,+popcnt,+pni,+sse4.1,+sse4.2,+ssse3,+avx,+avx2,+bmi1,+bmi2,+f16c,+fma,+abm,+movbe,\
         +xsave,+avx512f,+avx512bw,+avx512cd,+avx512dq,+avx512vl",
    ),
];

/// Models that say no vendor, or whose vendor is not Intel, by their beginnings.
const VENDORS: &[(&str, Option<&str>)] = &[
    ("host", None),
    ("max", None),
    ("kvm", None),
    ("qemu", None),
    ("486", None),
    ("EPYC", Some("AuthenticAMD")),
    ("Opteron", Some("AuthenticAMD")),
    ("athlon", Some("AuthenticAMD")),
    ("phenom", Some("AuthenticAMD")),
];

/// The model with its features, those of Proxmox included.
pub(super) fn model(maker: &mut Maker<'_>) {
    let entry = maker.take("cpu");
    let place = entry.map_or(maker.head, |entry| entry.value.span);
    let mut parts = entry.map(|entry| entry.parts("cputype"));
    let said = parts.as_mut().and_then(|parts| parts.take("cputype"));
    let usual = match (maker.is_arm, maker.is_kvm) {
        (false, true) => "kvm64",
        (false, false) => "qemu64",
        (true, true) => "host",
        (true, false) => "max",
    };
    let (mut name, span) = said.as_ref().map_or((usual, place), |at| (at.value.as_str(), at.span));
    let level = LEVELS.iter().find(|row| row.0 == name);
    if let Some(entry) = entry.filter(|_| name.starts_with("custom-")) {
        maker.keep(entry, "cpu.cputype", name);
        name = "kvm64";
    }
    name = match name {
        "Icelake-Client" => "Icelake-Server",
        "Icelake-Client-noTSX" => "Icelake-Server-noTSX",
        name => name,
    };
    let name = if level.is_some() { "qemu64" } else { name };
    let mut word = ShellWord::made(place).with(name, span);
    let mut features: Vec<&str> = Vec::new();
    if !maker.is_arm {
        of_proxmox(maker, name, &mut features);
    }
    for feature in &features {
        word = word.with(",", place).with(feature, place);
    }
    if let Some((_, flags)) = level {
        word = word.with(",", span).with(flags, span);
    }
    let mut hidden = None;
    if let (Some(entry), Some(mut parts)) = (entry, parts) {
        if let Some(flags) = parts.take("flags") {
            for (flag, at) in separated(&flags) {
                if flag.ends_with("nested-virt") {
                    maker.keep(entry, "cpu.flags", &flag);
                } else {
                    word = word.with(",", at.span).with(&flag, at.span);
                }
            }
        }
        hidden = parts.switch("hidden").filter(|hidden| hidden.value);
        if let Some(vendor) = parts.take("hv-vendor-id") {
            word = word.with(&format!(",hv_vendor_id={}", vendor.value), vendor.span);
        }
        for key in ["guest-phys-bits", "phys-bits", "level"] {
            if let Some(bits) = parts.take(key) {
                let text = match bits.value.as_str() {
                    "host" => ",host-phys-bits=true".to_owned(),
                    bits => format!(",{key}={bits}"),
                };
                word = word.with(&text, bits.span);
            }
        }
        maker.keep_rest(entry, &parts);
    }
    if !maker.is_arm {
        if maker.is_kvm && name != "host" {
            word = word.with(",enforce", place);
        }
        let hidden = hidden.map(|at| at.span).or_else(|| screen(maker));
        if let Some(span) = hidden {
            word = word.with(",kvm=off", span);
        }
        let vendor = VENDORS.iter().find(|row| name.starts_with(row.0));
        if let Some(vendor) = vendor.map_or(Some("GenuineIntel"), |row| row.1) {
            word = word.with(&format!(",vendor={vendor}"), place);
        }
    }
    maker.option("cpu", place, word);
}

/// A graphics card that is the guest's screen: its driver shall see no hypervisor.
fn screen(maker: &Maker<'_>) -> Option<crate::source::Span> {
    let cards = maker.config.entries.iter().filter(|entry| entry.kind() == "hostpci");
    let mut screens = cards.filter_map(|entry| entry.parts("host").switch("x-vga"));
    screens.find(|on| on.value).map(|on| on.span)
}

/// Features that Proxmox adds to every model.
fn of_proxmox(maker: &Maker<'_>, name: &str, features: &mut Vec<&'static str>) {
    if name == "kvm64" {
        features.push("+lahf_lm");
    }
    if name == "kvm64" || name == "kvm32" {
        features.push("+sep");
    }
    if maker.guest == Guest::Solaris {
        features.push("-x2apic");
    }
    if name.starts_with("Opteron") {
        features.push("-rdtscp");
    }
    if maker.is_kvm {
        features.extend(["+kvm_pv_unhalt", "+kvm_pv_eoi"]);
        enlightenments(maker, features);
    }
}

/// What Windows is told of its hypervisor.
fn enlightenments(maker: &Maker<'_>, features: &mut Vec<&'static str>) {
    let Some(version) = maker.guest.windows().filter(|version| *version >= 6) else { return };
    if version < 8 && maker.config.text("bios") == Some("ovmf") {
        return;
    }
    if screen(maker).is_some() {
        features.push("hv_vendor_id=proxmox");
    }
    features.extend(["hv_spinlocks=0x1fff", "hv_vapic", "hv_time"]);
    features.extend(["hv_reset", "hv_vpindex", "hv_runtime"]);
    if version >= 7 {
        features.extend(["hv_relaxed", "hv_synic", "hv_stimer", "hv_ipi"]);
    }
}
