//! Times the boot of the builtin guest against the raw floor, interleaved:
//! the same QEMU, the same kernel, and an initial RAM disk that holds busybox
//! and prints READY.
//!
//! `boot_bench [ROUNDS] [KIND]`: KIND is tcg (default) or kvm. Prints one line
//! a round and the medians' ratio; asserts nothing.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use guest::image::{BUILTIN, GuestImage, Recipe};
use guest::qemu::{Qemu, find_qemu};
use guest::{Cancel, GuestCommand, Launch, OwnedVm};
use vmconfig::qemu::{Channels, emit};
use vmconfig::{Accel, Arch, BootSource, VmSettings, VmSpec, defaults};

const MEMORY_MIB: u64 = 512;
const LIMIT: Duration = Duration::from_secs(120);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let rounds: usize = args.next().map_or(Ok(7), |text| text.parse())?;
    let accel = match args.next().as_deref() {
        Some("kvm") => Accel::Kvm,
        _ => Accel::Tcg,
    };
    let qemu = find_qemu(Arch::X86_64)?;
    let image =
        guest::image::build(&Recipe::builtin(BUILTIN, Arch::X86_64)?, &mut |_| (), &Cancel::new())?;
    let folder = std::env::temp_dir().join(format!("boot-bench-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let result = measure(rounds, accel, &qemu, &image, &folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn measure(
    rounds: usize,
    accel: Accel,
    qemu: &Qemu,
    image: &GuestImage,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let bare = folder.join("bare.cpio");
    make_bare_initrd(image, &bare)?;
    let (mut floors, mut boots, mut commands, mut ends) = (vec![], vec![], vec![], vec![]);
    for round in 0..rounds {
        // Whoever is first in one round is last in the next.
        if round % 2 == 0 {
            floors.push(floor(accel, qemu, image, &bare)?);
        }
        let (boot, command, end) = vmlab(accel, qemu, image, folder)?;
        boots.push(boot);
        commands.push(command);
        ends.push(end);
        if round % 2 == 1 {
            floors.push(floor(accel, qemu, image, &bare)?);
        }
        let floor = floors[round];
        println!("round {round}: floor {floor:.3} s, vmlab {boot:.3} s, ratio {:.3}", boot / floor);
    }
    let (floor, boot) = (median(&mut floors), median(&mut boots));
    println!("raw floor, spawn to READY          {floor:.3} s");
    println!("vmlab, spawn to the agent's answer {boot:.3} s");
    println!("ratio of medians                   {:.3}", boot / floor);
    println!("ratio of minima                    {:.3}", boots[0] / floors[0]);
    println!("a command that does nothing        {:.3} s", median(&mut commands));
    println!("shutdown                           {:.3} s", median(&mut ends));
    Ok(())
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// busybox and a first process, packed by busybox itself.
fn make_bare_initrd(image: &GuestImage, path: &Path) -> Result<(), Box<dyn Error>> {
    let tree = path.with_extension("tree");
    for folder in ["bin", "dev", "proc"] {
        std::fs::create_dir_all(tree.join(folder))?;
    }
    let busybox = tree.join("bin/busybox");
    let dump = format!("dump /bin/busybox {}", busybox.display());
    let dumped = Command::new("/usr/sbin/debugfs")
        .args(["-R", &dump])
        .arg(&image.root_image)
        .stderr(Stdio::null())
        .status()?;
    if !dumped.success() {
        return Err("debugfs did not give busybox".into());
    }
    let script = "chmod 755 bin/busybox; \
        printf '#!/bin/busybox sh\\n/bin/busybox mount -t devtmpfs dev /dev\\n\
        echo READY >/dev/ttyS0\\nwhile :; do /bin/busybox sleep 1000; done\\n' >init; \
        chmod 755 init; find . | bin/busybox cpio -o -H newc 2>/dev/null >\"$1\"";
    let made =
        Command::new("sh").args(["-c", script, "sh"]).arg(path).current_dir(&tree).status()?;
    if made.success() { Ok(()) } else { Err("no bare initial RAM disk".into()) }
}

/// Seconds from the spawn of QEMU to READY.
fn floor(
    accel: Accel,
    qemu: &Qemu,
    image: &GuestImage,
    initrd: &Path,
) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    let mut child = Command::new(&qemu.path)
        .args(["-machine", defaults::machine(Arch::X86_64), "-accel", accel.name()])
        .args(["-cpu", defaults::cpu_model(accel), "-smp", "1", "-m", &format!("{MEMORY_MIB}M")])
        .args(["-no-user-config", "-nodefaults", "-no-reboot"])
        .args(["-display", "none", "-vga", "none", "-nic", "none", "-serial", "stdio"])
        .arg("-kernel")
        .arg(&image.kernel)
        .arg("-initrd")
        .arg(initrd)
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = child.stdout.take().ok_or("no stdout")?;
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    while !seen.windows(5).any(|window| window == b"READY") {
        let length = output.read(&mut buffer)?;
        if length == 0 {
            return Err("the floor's guest ended early".into());
        }
        seen.extend_from_slice(&buffer[..length]);
    }
    let seconds = started.elapsed().as_secs_f64();
    child.kill()?;
    child.wait()?;
    Ok(seconds)
}

/// Seconds from spawn to the agent's answer, of a command that does nothing,
/// and of the shutdown.
fn vmlab(
    accel: Accel,
    qemu: &Qemu,
    image: &GuestImage,
    folder: &Path,
) -> Result<(f64, f64, f64), Box<dyn Error>> {
    let cancel = Cancel::new();
    let channels = Channels {
        qmp_socket: folder.join("qmp"),
        agent_socket: folder.join("agent"),
        done_socket: folder.join("done"),
        console_socket: folder.join("serial"),
        console_log: folder.join("console"),
    };
    let boot = BootSource::Direct {
        kernel: image.kernel.clone(),
        initrd: image.initrd.clone(),
        root_image: image.root_image.clone(),
        cmdline: image.cmdline.clone(),
    };
    let spec = VmSpec::new(VmSettings {
        memory_mib: MEMORY_MIB,
        ..VmSettings::new("boot-bench", Arch::X86_64, accel, boot)
    })?;
    let args = emit(&spec, &channels, &qemu.capabilities).args;
    let launch = Launch {
        qemu: qemu.path.clone(),
        args,
        channels,
        env: Vec::new(),
        start_limit: guest::START_LIMIT,
    };
    let mut vm = OwnedVm::start(&launch, &cancel)?;
    let boot = vm.wait_ready(LIMIT, &cancel)?.as_secs_f64();
    let nothing = GuestCommand::new(["true"], LIMIT);
    // The first command also waits for the rest of the guest's boot.
    vm.exec(&nothing, &cancel)?;
    let command = vm.exec(&nothing, &cancel)?.wall.as_secs_f64();
    let begun = Instant::now();
    vm.shutdown();
    Ok((boot, command, begun.elapsed().as_secs_f64()))
}
