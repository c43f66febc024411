//! `vmlab-thin`: a VM's whole software, which measures what its host charges.
//!
//! It is started by PVH's entry, reads the plan on its command line, does it, says
//! what it found on the first serial port, and ends the VM. `unsafe` is in [`metal`]
//! alone.

#![no_std]
#![no_main]

mod apic;
mod clock;
mod console;
mod exit;
mod files;
mod firmware;
mod items;
#[expect(unsafe_code, reason = "the machine itself")]
mod metal;
mod operations;
mod vcpus;

use core::panic::PanicInfo;

use thinguest::{BadPlan, Hello, Item, Plan, Record, read_items};

use firmware::StartInfo;
use metal::instruction::Port;
use metal::vcpu::MAX_VCPUS;
use operations::Bench;

/// The first vCPU.
fn main(start_info: u32) -> ! {
    console::begin();
    for mask in Port::PIC_MASKS {
        mask.write(0xff);
    }
    run(start_info);
    exit::leave()
}

fn run(start_info: u32) {
    let start = StartInfo::at(start_info);
    let mut buffer = [0; 4096];
    let cmdline = start.map_or("", |start| start.cmdline(&mut buffer));
    let tables = start.and_then(|start| start.tables());
    if let Some(how) = tables.and_then(|tables| tables.power_off()) {
        exit::set_power_off(how);
    }
    let mut pool = start.and_then(|start| start.pool());
    let far = tables.and_then(|tables| tables.far_memory());
    let far = far.and_then(|(begin, end)| pool.as_mut()?.split(begin, end));
    let hpet = tables.and_then(|tables| tables.hpet());
    let io_apic = tables.and_then(|tables| tables.io_apic());
    let mut ids = [0; MAX_VCPUS];
    let vcpus = tables.map_or(1, |tables| tables.local_apics(&mut ids));
    metal::memory::take_page_0_away();
    let plan = match Plan::read(cmdline) {
        Ok(plan) => plan,
        Err(why) => return console::write(&Record::Refused(why)),
    };
    if !apic::choose(plan.apic) {
        return console::write(&Record::Refused(BadPlan::Apic));
    }
    apic::begin();
    apic::measure_timer();
    let pvclock = clock::start_pvclock();
    let (tsc_khz, source) = clock::rate(pvclock);
    let own = metal::vcpu::VCPUS[0].apic_id.load(core::sync::atomic::Ordering::SeqCst);
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
        apic: apic::mode(),
        tsc_khz,
        clock: source,
        deadline: apic::has_deadline(),
        kvm: clock::is_kvm(),
    }));
    let mut bench = Bench {
        vcpus: started,
        handshake: plan.handshake,
        provoked: plan.provoked,
        mmio: plan.mmio.map(u64::from).or(hpet),
        io_apic,
        pvclock,
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
    vcpus::work(index)
}

#[panic_handler]
fn on_panic(_: &PanicInfo<'_>) -> ! {
    console::write(&Record::Panic);
    exit::leave()
}
