//! What the other vCPUs do: the job that the first gives them, and sleep otherwise.

use core::sync::atomic::Ordering;

use crate::items;
use crate::machine::interrupts;
use crate::metal::instruction::{interrupts_on, relax};
use crate::metal::vcpu::VCPUS;
use crate::vcpus::{Job, answer, halt_while, job, return_line};

/// What a vCPU but the first does.
pub(crate) fn work(index: usize) -> ! {
    let vcpu = &VCPUS[index];
    interrupts::begin();
    loop {
        let now = job(index);
        vcpu.doing.store(now, Ordering::SeqCst);
        if now == Job::Spin as u32 {
            interrupts_on();
            while job(index) == now {
                relax();
            }
        } else if now == Job::Answer as u32 {
            answer(index, now);
        } else if now == Job::Return as u32 {
            return_line(index, now);
        } else if now == Job::Consume as u32 {
            items::consume(index, now);
        } else {
            halt_while(index, || job(index) == now);
        }
    }
}
