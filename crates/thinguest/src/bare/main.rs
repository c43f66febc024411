//! `vmlab-thin`: a VM's whole software, which measures what its host charges.
//!
//! It is started by PVH's entry, reads the plan on its command line, does it, says
//! what it found on the first serial port, and ends the VM. `unsafe` is in [`metal`]
//! alone.

#![no_std]
#![no_main]

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod console;
mod files;
mod found;
mod items;
#[expect(unsafe_code, reason = "the machine itself")]
mod metal;
mod operations;
mod sampler;
mod vcpus;
mod virtio;
mod work;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use core::panic::PanicInfo;
use core::sync::atomic::Ordering;

use thinguest::{BadPlan, Hello, Item, Plan, Record, read_items};

#[cfg(target_arch = "aarch64")]
use aarch64 as machine;
use found::{CMDLINE_BYTES, MachineParts};
use machine::{exit, interrupts, operations::Machine};
use metal::vcpu::{MAX_VCPUS, VCPUS};
use operations::Bench;
#[cfg(target_arch = "x86_64")]
use x86_64 as machine;

/// The first vCPU; `boot` is what the loader handed over.
fn main(boot: u64) -> ! {
    run(boot);
    exit::leave()
}

fn run(boot: u64) {
    let mut buffer = [0; CMDLINE_BYTES];
    let MachineParts { cmdline, pool, far, ids, vcpus, devices } = machine::find(boot, &mut buffer);
    machine::serial::begin();
    let plan = match Plan::read(cmdline) {
        Ok(plan) => plan,
        Err(why) => return console::write(&Record::Refused(why)),
    };
    if !interrupts::choose(plan.apic) {
        return console::write(&Record::Refused(BadPlan::Apic));
    }
    interrupts::begin();
    interrupts::measure_timer();
    let machine = Machine::begin(devices, plan.mmio.map(u64::from));
    let (tsc_khz, source) = machine.clock_rate();
    let own = VCPUS[0].id.load(Ordering::SeqCst);
    let mut started = 1;
    for id in ids.iter().take(vcpus).filter(|id| **id != own) {
        // Their numbers have no gaps: the first that doesn't start is the last tried.
        if started == MAX_VCPUS || !vcpus::start(started, *id) {
            break;
        }
        started += 1;
    }
    console::write(&Record::Hello(Hello {
        vcpus: vcpus as u32,
        started: started as u32,
        apic: interrupts::mode(),
        tsc_khz,
        clock: source,
        deadline: interrupts::has_deadline(),
        kvm: machine::clock::is_kvm(),
        timer_irq: interrupts::timer_irq(),
    }));
    let mut bench = Bench {
        vcpus: started,
        handshake: plan.handshake,
        provoked: plan.provoked,
        machine,
        pool,
        far,
        khz: tsc_khz,
        samples: metal::memory::samples(),
        io: metal::memory::io_buffer(),
        calls: plan.calls,
        wait: plan.wait,
    };
    plan.items().for_each(|item| do_item(&mut bench, item));
    if plan.orders {
        return take_orders(&mut bench);
    }
    console::write(&Record::Bye);
}

/// Does what comes over the serial line, until that is no list of items.
fn take_orders(bench: &mut Bench) {
    let mut line = [0; 1024];
    loop {
        match read_items(console::wait_for_line(&mut line)) {
            Ok(items) => items.for_each(|item| do_item(bench, item)),
            Err(why) => return console::write(&Record::Refused(why)),
        }
    }
}

fn do_item(bench: &mut Bench, item: Item) {
    console::write(&match bench.measure(item) {
        Ok(done) => Record::Done(done),
        Err(why) => Record::Skipped(item.operation, why),
    });
}

/// Every other vCPU.
fn other_main(index: usize) -> ! {
    work::work(index)
}

#[panic_handler]
fn on_panic(_: &PanicInfo<'_>) -> ! {
    console::write(&Record::Panic);
    exit::leave()
}
