//! How fast VMs are said and read in each format: `cargo run --release -p
//! vmconfig --example format_bench [VMS]`. Prints VMs a second; asserts
//! nothing about time.

use std::time::Instant;

use vmconfig::{Accel, Arch, BootSource, DiskFormat, PatchContext, VmPatch, VmSpec, qemu};

/// A VM as production has them: pinned, two nodes, two disks, a NIC.
fn vm(number: u32) -> VmSpec {
    let text = format!(
        "topology = {{ sockets = 2, cores = 4, threads = 2 }}\npins = {pins:?}\n\
         emulator_pin = '0'\niothreads = 1\niothread_pins = {{ 1 = '1' }}\nmemory_mib = {mib}\n\
         memory = {{ huge_pages = '2M' }}\nnuma = [ {{}}, {{}} ]\n\
         disks = [ {{ source = {{ file = '/img/{number}.raw' }}, cache = 'none', io = 'native', \
         iothread = 1 }} ]\nnics = [ {{ backend = 'user' }} ]",
        pins = (2..18).map(|pcpu| pcpu.to_string()).collect::<Vec<_>>(),
        mib = 1024 * (2 + u64::from(number % 8) * 2),
    );
    let patch: VmPatch = toml::from_str(&text).expect("the patch is written above");
    let name = format!("vm-{number}");
    let boot = BootSource::Disk { image: "/img/root.qcow2".into(), format: DiskFormat::Qcow2 };
    let with = PatchContext { name: &name, arch: Arch::X86_64, auto_accel: Accel::Kvm, boot };
    patch.resolve(&with).expect("the VM is sound")
}

fn measure(
    format: &str,
    vms: &[VmSpec],
    emit: impl Fn(&VmSpec) -> String,
    read: impl Fn(&str) -> bool,
) {
    let started = Instant::now();
    let texts: Vec<String> = vms.iter().map(emit).collect();
    let emitted_s = started.elapsed().as_secs_f64();
    let started = Instant::now();
    let understood = texts.iter().filter(|text| read(text)).count();
    let read_s = started.elapsed().as_secs_f64();
    let bytes: usize = texts.iter().map(String::len).sum();
    println!(
        "{format:9} emit {:>8.0} VMs/s   parse {:>8.0} VMs/s ({:.1} MB/s), {understood} of {} understood",
        vms.len() as f64 / emitted_s,
        vms.len() as f64 / read_s,
        bytes as f64 / 1e6 / read_s,
        vms.len(),
    );
}

fn main() {
    let count = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5_000);
    let vms: Vec<VmSpec> = (0..count).map(vm).collect();
    let capabilities = qemu::Capabilities::current();
    measure(
        "qemu",
        &vms,
        |vm| qemu::emit_plain(vm, &capabilities).option_lines().join(" "),
        |text| qemu::parse(text).is_ok(),
    );
    measure(
        "libvirt",
        &vms,
        |vm| vmconfig::libvirt::emit(vm).text,
        |text| vmconfig::libvirt::parse(text).is_ok(),
    );
    measure(
        "kubevirt",
        &vms,
        |vm| vmconfig::kubevirt::emit(vm, vmconfig::kubevirt::KubevirtKind::Instance).text,
        |text| vmconfig::kubevirt::parse(text).is_ok(),
    );
    measure(
        "json",
        &vms,
        |vm| vmconfig::json::emit(vm).text,
        |text| vmconfig::json::parse(text).is_ok(),
    );
}
