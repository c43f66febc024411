//! syscalls: a tight loop of system calls that do next to nothing.

use std::fs::{File, OpenOptions};
use std::sync::Barrier;

use rustix::process::getppid;

use crate::args::Args;
use crate::document::ProbeResult;
use crate::pace::{self, TimedLoop};
use crate::spec::{
    CPUS, ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS,
    THREADS, WARMUP,
};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "syscalls",
    summary: "System calls a second: write and read on /dev/null, or getppid",
    about: "`devnull` writes `size` bytes to /dev/null and reads `size` from it, in a tight loop: \
            two calls a loop that enter the kernel, find a file, and return. `getppid` enters it \
            and returns. No call waits, so the vCPU never leaves the guest but for interrupts: a \
            VM should be as fast as its host, and what differs is the guest's kernel \
            (mitigations, tracing) or a vCPU that does not get its pCPU.",
    verifies: "each write takes all bytes, each read finds the end of the file, each getppid \
               returns the same process.",
    options: &[
        Opt::choice("call", &["devnull", "getppid"], "devnull", "Which calls the loop makes"),
        Opt::int("size", (1, 65_536), 40, "Bytes that a write gives and a read asks for").unit("B"),
        Opt::int("loops", (0, 1 << 40), 0, "Loops a repeat and thread; 0 to run for --seconds"),
        Opt { default: OptionDefault::Int(1), ..THREADS },
        CPUS,
        SECONDS,
        REPEAT,
        WARMUP,
    ],
    metrics: &[
        ProbeMetric::rate("calls-per-s", "1/s", "System calls a second of all threads together"),
        ProbeMetric::time("call-time", "Mean time of one call"),
        ProbeMetric::rate("thread-calls-per-s", "1/s", "System calls a second of one thread")
            .per_thread(),
        ProbeMetric::time("elapsed", "How long the slowest thread's loops took"),
    ],
    histograms: &[],
    example: "--call devnull --size 40 --seconds 1",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let threads = args.size("threads");
    let (mut calls, mut right) = (0, 0);
    once(args, 0, args.float("warmup"))?;
    for repeat in 0..args.size("repeat") {
        let results = once(args, args.count("loops"), args.float("seconds"))?;
        let rates: Vec<f64> = results.iter().map(|(done, _)| done.rate()).collect();
        let slowest = results.iter().map(|(done, _)| done.elapsed_s).fold(0.0, f64::max);
        let all: u64 = results.iter().map(|(done, _)| done.ops).sum();
        calls += all;
        right += results.iter().map(|(_, right)| right).sum::<u64>();
        outcome.push("calls-per-s", all as f64 / slowest).repeat(repeat);
        outcome.push("call-time", slowest * threads as f64 / all as f64).repeat(repeat);
        outcome.push("elapsed", slowest).repeat(repeat);
        for (thread, rate) in rates.into_iter().enumerate() {
            outcome.push("thread-calls-per-s", rate).repeat(repeat).thread(thread);
        }
    }
    outcome.check("calls", calls == right, format!("{right} of {calls} calls did as they should"));
    Ok(())
}

/// What each thread did, and how many of its calls did what they should.
fn once(args: &Args, loops: u64, seconds: f64) -> Result<Vec<(TimedLoop, u64)>, ProbeError> {
    let threads = args.size("threads");
    let (pins, start) = (args.vcpus("cpus"), Barrier::new(threads));
    let thread = |number: usize| -> Result<(TimedLoop, u64), ProbeError> {
        let ready = vcpus::pin(&pins, number).and_then(|()| SyscallMix::open(args));
        start.wait();
        let mut calls = ready?;
        let mut right = 0;
        let batch = |n| right += calls.batch(n);
        let done =
            if loops > 0 { pace::for_ops(loops, batch) } else { pace::for_seconds(seconds, batch) };
        Ok((TimedLoop { ops: done.ops * calls.per_loop(), ..done }, right))
    };
    std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || (thread)(number))).collect();
        running.into_iter().map(|one| one.join().expect("the thread does not panic")).collect()
    })
}

/// What one thread calls.
enum SyscallMix {
    DevNull { file: File, buffer: Vec<u8> },
    Getppid,
}

impl SyscallMix {
    fn open(args: &Args) -> Result<Self, ProbeError> {
        if args.text("call") == "getppid" {
            return Ok(Self::Getppid);
        }
        let file =
            OpenOptions::new().read(true).write(true).open("/dev/null").tried("open /dev/null")?;
        Ok(Self::DevNull { file, buffer: vec![b'x'; args.size("size")] })
    }

    fn per_loop(&self) -> u64 {
        match self {
            Self::DevNull { .. } => 2,
            Self::Getppid => 1,
        }
    }

    /// Loops `n` times; how many calls did what they should.
    fn batch(&mut self, n: u64) -> u64 {
        let mut right = 0;
        match self {
            Self::DevNull { file, buffer } => {
                for _ in 0..n {
                    right += u64::from(rustix::io::write(&*file, buffer) == Ok(buffer.len()));
                    right += u64::from(rustix::io::read(&*file, &mut **buffer) == Ok(0));
                }
            }
            Self::Getppid => {
                let parent = getppid();
                for _ in 0..n {
                    right += u64::from(getppid() == parent);
                }
            }
        }
        right
    }
}
