//! The thin guest's operations as a workload.

use thinguest::{MAX_N, Operation};

use super::read;
use crate::entry::{CatalogueEntry, DefaultValue, Param, count, per, quantile, time};
use crate::roles::RoleCommands;

pub(crate) static THIN: CatalogueEntry = CatalogueEntry {
    name: "thin",
    summary: "An exit, an interrupt, a wake-up: one operation of the thin guest, over and over",
    about: "A VM whose whole software is vmlab's thin guest (`vm.kernel = \"builtin:thin\"`) takes \
            `n` samples of one operation behind some that are thrown away. KVM's counters are those \
            of just these samples. `vmlab calibrate --list` tells what each operation is, \
            docs/calibrate.md what a host does for it. The VM's `kernel_cmdline` chooses between \
            ways: `apic=xapic`, `calls=ring3`, `wait=halt`.",
    measures: "What the host charges for one thing that guests do.",
    needs: &["vmlab-thin"],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::choice("operation", Operation::NAMES, "cpuid", "What is done"),
        Param::int("n", (1, MAX_N as i64), 1000, "Samples of a run"),
    ],
    metrics: &[
        time("op-time", "Median time of one operation, less that of an empty one").primary(),
        time("op-mean", "Its mean"),
        quantile("op-p99", "Its 99th percentile"),
        time("op-min", "Its least"),
        count("op-cycles", "The median in cycles of the TSC"),
        per("ipis-per-op", "Interrupts that the guest sent to vCPUs"),
        per("halts-per-op", "HLTs that it executed"),
        time("elapsed", "Time of all samples"),
    ],
    repeats: "One run takes `n` samples and brings one value of every metric.",
    example: &[("operation", DefaultValue::Text("ipi-halt")), ("n", DefaultValue::Int(200))],
    command: |params, _| {
        let n = params.int("n").to_string();
        ["vmlab-thin", params.text("operation"), "--n", &n].map(str::to_owned).into()
    },
    parse: |output, params, _| read(output, params, &THIN),
    duration_s: |params, facts| facts.computing_s(0.1 + params.int("n") as f64 * 20e-6),
};
