//! Probes of the scheduler, interrupts, locks and clocks.

use super::{PROGRAM, REPEATED, REPEATS, TIME, argv, read, timed_s};
use crate::entry::{CatalogueEntry, DefaultValue, Param, count, per, quantile, rate, time};
use crate::roles::RoleCommands;

pub(crate) static SYSCALLS: CatalogueEntry = CatalogueEntry {
    name: "probe-syscalls",
    summary: "System calls a second: write and read on /dev/null (vmlab-probe)",
    about: "A tight loop of two calls that enter the kernel and find nothing to do. No call waits, \
            so the vCPU leaves the guest for interrupts only.",
    measures: "Entering the guest's kernel: a VM should be as fast as its host.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::choice("call", &["devnull", "getppid"], "devnull", "Which calls"),
        Param::int("size", (1, 65_536), 40, "Bytes of a call on /dev/null").unit("B"),
        Param::int("threads", (1, 1024), 1, "Threads that call"),
        Param::int("loops", (0, 1 << 40), 0, "Loops of a repeat and thread; 0 to end by time"),
    ],
    metrics: &[
        rate("calls-per-s", "System calls a second of all threads together").primary(),
        time("call-time", "Mean time of one call"),
        time("elapsed", "Time of a repeat"),
    ],
    repeats: REPEATED,
    example: &[("time_ms", DefaultValue::Int(500))],
    command: |params, _| {
        argv(
            "syscalls",
            params,
            &[
                ("call", params.text("call").to_owned()),
                ("size", params.int("size").to_string()),
                ("threads", params.int("threads").to_string()),
                ("loops", params.int("loops").to_string()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &SYSCALLS),
    duration_s: |params, facts| match params.int("loops") {
        0 => timed_s(params, facts, 1.0),
        loops => {
            let all = loops as f64 * params.int("repeats") as f64;
            facts.computing_s(0.2 + all * 2e-7)
        }
    },
};

pub(crate) static SEM: CatalogueEntry = CatalogueEntry {
    name: "probe-sem",
    summary: "Producer and consumer on two semaphores: the cost of sleeping a while (vmlab-probe)",
    about: "Two threads hand over one item at a time. The producer has twice the work, so the \
            consumer sleeps at every item, its vCPU halts, and the next item wakes it by an IPI. \
            Where the guest polls before it halts, or a hog keeps the vCPUs awake, both vanish. \
            Give the guest two vCPUs at least.",
    measures: "Halts and IPIs of short sleeps: haltpoll, idle=poll, halt_poll_ns, cpu-pm.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::int("items", (0, 1 << 40), 0, "Items of a repeat; 0 to end by time"),
        Param::int("loops", (0, 1 << 40), 2000, "Steps of work for an item"),
        Param::choice(
            "hog",
            &["none", "idle", "nice"],
            "none",
            "A thread a vCPU that computes at low priority: none, SCHED_IDLE, or nice 19",
        ),
    ],
    metrics: &[
        rate("items-per-s", "Items handed over a second").primary(),
        time("elapsed", "Time of a repeat"),
        per("sleeps-per-item", "How often one of the two slept"),
        per("wakes-per-item", "How often one woke the other"),
        per(
            "ipis-per-item",
            "Rescheduling and function-call IPIs of the whole guest: which of the two wakes an \
             idle vCPU is the kernel's choice",
        ),
        per("resched-ipis-per-item", "Rescheduling IPIs of the whole guest"),
        per("call-ipis-per-item", "Function-call IPIs of the whole guest"),
        per("switches-per-item", "Context switches of the whole guest"),
    ],
    repeats: REPEATED,
    example: &[("items", DefaultValue::Int(50_000)), ("hog", DefaultValue::Text("idle"))],
    command: |params, _| {
        argv(
            "sem",
            params,
            &[
                ("items", params.int("items").to_string()),
                ("loops", params.int("loops").to_string()),
                ("hog", params.text("hog").to_owned()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &SEM),
    duration_s: |params, facts| match params.int("items") {
        0 => timed_s(params, facts, 1.0),
        items => {
            let item_s = 5e-6 + params.int("loops") as f64 * 4e-9;
            let all = items as f64 * params.int("repeats") as f64;
            facts.computing_s(0.2 + all * item_s)
        }
    },
};

pub(crate) static WAKEUP: CatalogueEntry = CatalogueEntry {
    name: "probe-wakeup",
    summary: "Latency of waking a thread on another vCPU (vmlab-probe)",
    about: "One thread wakes another, which sleeps on another vCPU, and notes when that runs; \
            then both hand one word to and fro as fast as they can. Needs two vCPUs.",
    measures: "One wake-up across vCPUs: IPI, leaving the halt, the host's scheduler.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::int("pause_us", (0, 10_000_000), 50, "How long the other sleeps at least")
            .unit("us"),
    ],
    metrics: &[
        quantile("wakeup-p50", "Latency that half of the wake-ups keep").primary(),
        quantile("wakeup-p99", "Latency that 99 % keep"),
        quantile("wakeup-max", "The greatest latency"),
        time("wakeup-mean", "Mean latency"),
        rate("round-trips-per-s", "Turns of the ping-pong a second"),
    ],
    repeats: REPEATED,
    example: &[("pause_us", DefaultValue::Int(200))],
    command: |params, _| {
        argv("wakeup", params, &[("pause-us", params.int("pause_us").to_string())])
    },
    parse: |output, params, _| read(output, params, &WAKEUP),
    duration_s: |params, facts| timed_s(params, facts, 2.0),
};

pub(crate) static IPI: CatalogueEntry = CatalogueEntry {
    name: "probe-ipi",
    summary: "Cost of interrupts to running vCPUs (membarrier, vmlab-probe)",
    about: "membarrier interrupts every vCPU that runs a thread of the process and returns when \
            all have answered. Needs two vCPUs.",
    measures: "IPIs to vCPUs that run: posted interrupts, AVIC, exits to send one.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::int("targets", (0, 1023), 0, "vCPUs that are interrupted; 0 for all others"),
    ],
    metrics: &[
        time("ipi-mean", "Mean time of one call").primary(),
        quantile("ipi-p50", "Time that half of the calls keep"),
        quantile("ipi-p99", "Time that 99 % keep"),
        quantile("ipi-max", "The longest call"),
        time("syscall-mean", "Mean time of a call that interrupts nobody"),
        per("ipis-per-call", "Interrupts that one call took"),
    ],
    repeats: REPEATED,
    example: &[("targets", DefaultValue::Int(1))],
    command: |params, _| argv("ipi", params, &[("targets", params.int("targets").to_string())]),
    parse: |output, params, _| read(output, params, &IPI),
    duration_s: |params, facts| timed_s(params, facts, 2.0),
};

pub(crate) static LOCK: CatalogueEntry = CatalogueEntry {
    name: "probe-lock",
    summary: "A contended lock, and holders that lose their pCPU (vmlab-probe)",
    about: "All threads take one lock in turn. A ticket lock hands itself to the next in line, so \
            one vCPU that does not run stops all others.",
    measures: "Lock-holder and lock-waiter preemption under overcommit.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::per_vcpu("threads", 1024, "Threads that want the lock"),
        Param::choice("kind", &["ticket", "spin", "mutex"], "ticket", "The lock"),
    ],
    metrics: &[
        rate("acquisitions-per-s", "How often the lock was taken a second").primary(),
        quantile("wait-p50", "Wait that half of the acquisitions keep"),
        quantile("wait-p99", "Wait that 99 % keep"),
        quantile("wait-max", "The longest wait"),
        quantile("hold-max", "The longest time that one held it"),
        count("long-holds", "How often it was held for more than 200 us"),
    ],
    repeats: REPEATED,
    example: &[("kind", DefaultValue::Text("spin"))],
    command: |params, facts| {
        argv(
            "lock",
            params,
            &[
                ("threads", params.int_or_vcpus("threads", facts).to_string()),
                ("kind", params.text("kind").to_owned()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &LOCK),
    duration_s: |params, facts| timed_s(params, facts, 1.0),
};

pub(crate) static CLOCK: CatalogueEntry = CatalogueEntry {
    name: "probe-clock",
    summary: "Cost of reading the clock, by clock source (vmlab-probe)",
    about: "A clock that the guest can read by itself (tsc, kvm-clock) is read without a system \
            call; others enter the kernel, and hpet or acpi_pm leave the guest each time.",
    measures: "The guest's clock source: kvm-clock, tsc, and what each costs.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[TIME, REPEATS],
    metrics: &[
        time("gettimeofday", "Mean time of gettimeofday").primary(),
        time("monotonic", "Mean time of clock_gettime(CLOCK_MONOTONIC)"),
        time("realtime", "Mean time of clock_gettime(CLOCK_REALTIME)"),
        time("coarse", "Mean time of clock_gettime(CLOCK_MONOTONIC_COARSE)"),
        time("kernel", "Mean time of the same by a system call"),
        time("step", "Smallest step that the clock makes").optional(),
    ],
    repeats: REPEATED,
    example: &[("repeats", DefaultValue::Int(5))],
    command: |params, _| argv("clock", params, &[]),
    parse: |output, params, _| read(output, params, &CLOCK),
    duration_s: |params, facts| timed_s(params, facts, 6.0),
};
