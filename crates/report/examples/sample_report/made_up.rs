//! Reports with MADE-UP numbers, to look at and to test with. Nothing here was
//! measured; the noise comes from a formula.

use record::journal::TrialKey;
use record::{BetterDirection, Environment, Failure, FailureKind, Metric, MetricKind, Unit};
use report::{
    AccountPart, Accounting, BootPoint, CellResults, CountScope, CounterMove, Curve, LabelledText,
    Method, NoPrice, PricedEvent, PublishedClaim, PublishedKind, PublishedValue, Quantile,
    REPORT_VERSION, Report, ReportFact, ReportVariant, ResultGroup, ShownEstimate, ShownInterval,
    ShownVerdict, TABLE_SHARES, TrialFailure, UnpricedEvents, VariantAccount, VariantJudgement,
    VariantRole, WorkloadLatencies,
};
use stats::{Comparison, Engine, PairedBlocks, Relation, SequentialTest};

const LEVEL: f64 = 0.95;

/// Four variants (one of them an A/A arm) under two loads; one trial failed.
pub(crate) fn two_loads() -> Report {
    let names = ["1-vcpu", "2-vcpu", "4-vcpu", "1-vcpu-again"];
    let mut report = empty("smp", "Does a second vCPU help hackbench?");
    report.question = Some(
        "Compare a VM with 1, 2 and 4 vCPUs, on an idle host and while others use half of it."
            .to_owned(),
    );
    for (i, name) in names.into_iter().enumerate() {
        let vcpus = ["1", "2", "4", "1"][i];
        report.variants.push(variant(name, vcpus, i));
    }
    report.loads = vec![
        named("idle", "nothing else runs"),
        named("half", "stress-ng on half of the pCPUs, anywhere"),
    ];
    report.workloads = vec![
        named("hackbench", "hackbench -g 10 -l 200, 3 runs a boot"),
        named("cyclictest", "cyclictest -q -t1 -p80 -l 2000, 1 run a boot"),
    ];
    let time = metric("time", "s", BetterDirection::Lower, MetricKind::Time);
    let p99 = metric("latency-p99", "s", BetterDirection::Lower, MetricKind::Quantile);
    for (load, slow) in [("idle", 1.0_f64), ("half", 1.7)] {
        let centres = [1.206 * slow, 0.641 * slow * slow.sqrt(), 0.598 * slow * slow, 1.206 * slow];
        let mut group = group(&report, load, "hackbench", time.clone(), &centres, 5, 3);
        if load == "idle" {
            let source = "made-up numbers, Table 1 (1 and 2 vCPUs)";
            group.published =
                vec![published("1-vcpu", 1.3, source), published("2-vcpu", 0.62, source)];
            group.judge_published("1-vcpu", LEVEL);
            group.claims = vec![
                claim(
                    &group,
                    "4-vcpu",
                    "2-vcpu",
                    PublishedKind::Order { relation: Relation::AtLeastAsGood },
                ),
                claim(&group, "2-vcpu", "1-vcpu", counter_ratio("kvm.exits", 0.75, 0.8)),
            ];
        }
        group.movers = vec![
            moved("guest.ipi_reschedule", "count", "2-vcpu", 12.0, 48_210.0),
            moved("guest.context_switches", "count", "2-vcpu", 312_000.0, 187_000.0),
            moved("vcpu.wait_s", "s", "2-vcpu", 0.002, 0.041),
            moved("guest.ipi_call_function", "count", "4-vcpu", 0.0, 1_930.0),
            moved("guest.tlb_shootdowns", "count", "4-vcpu", 0.0, 0.0),
        ];
        report.groups.push(group);
        let centres = [91e-6 * slow, 88e-6 * slow, 2.9e-4 * slow * slow, 91e-6 * slow];
        report.groups.push(group_of(&report, load, "cyclictest", p99.clone(), &centres));
    }
    report.host = Some(host());
    let elapsed = metric("elapsed", "s", BetterDirection::Lower, MetricKind::Time);
    let mut unmeasured = empty_group("idle", "kernbench", elapsed);
    let source = "made-up numbers, Table 2";
    unmeasured.published =
        vec![published("1-vcpu", 5000.0, source), published("2-vcpu", 2600.0, source)];
    report.groups.push(unmeasured);
    report.workloads.push(named("kernbench", "not run: it needs a compiler in the guest"));
    // One boot of 4-vcpu is missing in the loaded cyclictest.
    let cell = &mut report.groups[3].cells[2];
    cell.boots.retain(|boot| boot.block != 2);
    report.failures.push(failure("half", "cyclictest", "4-vcpu", 2));
    report.warnings.push(
        "The host's own hypervisor took 0.4 s from it during block 3 (steal): trials 31 to 38."
            .to_owned(),
    );
    report
}

/// The two loads, with more quantiles of the wake-ups.
pub(crate) fn latency() -> Report {
    let mut report = two_loads();
    let p99: Vec<ResultGroup> =
        report.groups.iter().filter(|group| group.metric.name == "latency-p99").cloned().collect();
    for (name, factor) in [("latency-p50", 0.4), ("latency-p999", 2.5), ("latency-max", 9.0)] {
        for group in &p99 {
            let mut group = group.clone();
            group.metric.name = name.to_owned();
            group.primary = false;
            for boot in group.cells.iter_mut().flat_map(|cell| &mut cell.boots) {
                boot.value *= factor;
                boot.samples.iter_mut().for_each(|sample| *sample *= factor);
            }
            report.groups.push(group);
        }
    }
    report
}

/// The same with the samples counted.
pub(crate) fn counted() -> Report {
    let mut report = latency();
    for load in ["idle", "half"] {
        let curve = |(i, variant): (usize, &ReportVariant)| {
            let last: u32 = if load == "idle" { 34 } else { 30 };
            let point = |step: u32| {
                let share = 1.0 - 10f64.powf(-f64::from(step) / 8.0);
                let tail = f64::from(step) / 8.0;
                let centre = 4e-5 * (1.0 + 0.3 * i as f64) * (1.0 + tail * tail);
                let band = ShownInterval {
                    lo: centre / (1.0 + 0.1 * tail),
                    hi: centre * (1.0 + 0.2 * tail),
                };
                Quantile { share, estimate: ShownEstimate { centre, interval: Some(band) } }
            };
            let mut quantiles: Vec<Quantile> = (1..=last).map(point).collect();
            for (share, step) in TABLE_SHARES.into_iter().zip([2_u32, 8, 16, 24, 32]) {
                if step <= last {
                    quantiles[step as usize - 1].share = share;
                }
            }
            let missing = "too few samples for p99.99: 150000 of 200000".to_owned();
            Curve {
                variant: variant.name.clone(),
                boots: 5,
                samples: if load == "idle" { 400_000 } else { 150_000 },
                overflows: 0,
                quantiles,
                missing: if load == "idle" { Vec::new() } else { vec![missing] },
            }
        };
        report.distributions.push(WorkloadLatencies {
            load: load.to_owned(),
            workload: "cyclictest".to_owned(),
            name: "latency".to_owned(),
            unit: Unit::from("s"),
            curves: report.variants.iter().enumerate().map(curve).collect(),
        });
    }
    report
}

/// The same under KVM, with one difference taken apart and an event without a price.
pub(crate) fn accounted() -> Report {
    let mut report = two_loads();
    report.environment = Environment::Kvm;
    report.environment_why = None;
    let about = |centre: f64, width: f64| ShownEstimate {
        centre,
        interval: Some(ShownInterval { lo: centre - width, hi: centre + width }),
    };
    let part = |event, count: f64, price: f64, amount: (f64, f64)| AccountPart {
        event,
        count,
        price: about(price, price * 0.02),
        amount: about(amount.0, amount.1),
    };
    let account = VariantAccount {
        load: "half".to_owned(),
        workload: "hackbench".to_owned(),
        metric: "time".to_owned(),
        variant: "4-vcpu".to_owned(),
        of: CountScope::Run,
        blocks: 5,
        difference: about(0.41, 0.06),
        parts: vec![
            part(PricedEvent::IpiToHalted, 23_000.0, 10e-6, (0.23, 0.05)),
            part(PricedEvent::Wakeup, 15_700.0, 7e-6, (0.11, 0.01)),
            part(PricedEvent::PageFault, 8_000.0, 2.5e-6, (0.02, 0.002)),
        ],
        unexplained: about(0.05, 0.08),
        unpriced: vec![UnpricedEvents {
            event: PricedEvent::Port,
            count: 120.0,
            operation: "pio-qemu".to_owned(),
            why: NoPrice::NotMeasured,
        }],
        exits_by_reason_only: None,
    };
    report.accounting =
        Some(Accounting::Used { accounts: vec![account], other_settings: Vec::new() });
    report
}

/// Twenty variants whose values lie worlds apart, under KVM, with names that
/// try to be markup.
pub(crate) fn many() -> Report {
    let mut report = empty("matrix", "Twenty configurations of one VM");
    report.environment = Environment::Kvm;
    report.environment_why = None;
    for i in 0..20 {
        let name = match i {
            0 => "baseline".to_owned(),
            7 => "<script>alert('x')</script> & \"quotes\"".to_owned(),
            11 => {
                "a-variant-with-a-very-long-name-that-goes-on-and-on-until-nobody-reads-it-any-more"
                    .to_owned()
            }
            12 => "虛擬機-兩個虛擬處理器".to_owned(),
            _ => format!("pin-scheme-{i:02}"),
        };
        report.variants.push(variant(&name, "2", i));
    }
    report.loads = vec![named("idle", "nothing else runs")];
    report.workloads = vec![named("fio", "fio --rw=randread --bs=4k")];
    let rate = metric("iops", "1/s", BetterDirection::Higher, MetricKind::Rate);
    let centres: Vec<f64> = (0..20).map(|i| 800.0 * 1.31f64.powi(i)).collect();
    let group = group(&report, "idle", "fio", rate, &centres, 6, 40);
    report.groups.push(group);
    report
}

/// One block, one variant without a value: no interval anywhere.
pub(crate) fn poor() -> Report {
    let mut report = empty("first-try", "first-try");
    report.method.blocks_done = 1;
    for (i, name) in ["a", "b", "never-boots"].into_iter().enumerate() {
        report.variants.push(variant(name, "1", i));
    }
    report.loads = vec![named("idle", "nothing else runs")];
    report.workloads = vec![named("sysbench-cpu", "sysbench cpu run")];
    let rate = metric("events-per-s", "1/s", BetterDirection::Higher, MetricKind::Rate);
    let mut group = group(&report, "idle", "sysbench-cpu", rate, &[411.0, 398.0, 400.0], 1, 1);
    let cell = &mut group.cells[2];
    cell.boots.clear();
    cell.estimate = None;
    cell.judgement = Some(VariantJudgement {
        ratio: None,
        blocks: 0,
        p: None,
        q: None,
        looks: Vec::new(),
        verdict: ShownVerdict::Invalid,
        more_blocks: None,
        why: Some(stats::Invalidity::TooFewBlocks { blocks: 0 }),
        host: Vec::new(),
        notes: vec!["No boot of never-boots brought a value.".to_owned()],
    });
    report.groups.push(group);
    report.failures.push(failure("idle", "sysbench-cpu", "never-boots", 0));
    report
}

/// A report of a study that has not begun.
pub(crate) fn empty(study: &str, title: &str) -> Report {
    Report {
        version: REPORT_VERSION,
        study: study.to_owned(),
        title: title.to_owned(),
        question: None,
        scale: None,
        environment: Environment::Tcg,
        place: None,
        environment_why: Some(
            "No guest booted under /dev/kvm within 20 s, so QEMU emulates.".to_owned(),
        ),
        about: vec![
            fact("started", "2026-01-02 03:04 UTC"),
            fact("vmlab", "0.1.0"),
            fact("QEMU", "7.2.22 (Debian)"),
            fact("host kernel", "6.1.0-made-up"),
            fact("guest image", "builtin:debian-12 (recipe 0123456789abcdef)"),
        ],
        host: None,
        method: Method {
            seed: 20_260_102,
            blocks_planned: Some(5),
            blocks_done: 5,
            test: "Student's t on the logarithms of the ratios inside the blocks".to_owned(),
            level: LEVEL,
            ended: Some("all planned blocks are done".to_owned()),
            wall_s: Some(754.0),
        },
        variants: Vec::new(),
        loads: Vec::new(),
        workloads: Vec::new(),
        suites: Vec::new(),
        groups: Vec::new(),
        distributions: Vec::new(),
        host_beside: Vec::new(),
        accounting: None,
        profiles: Vec::new(),
        profile_overheads: Vec::new(),
        failures: Vec::new(),
        damage: Vec::new(),
        warnings: Vec::new(),
        reproduce: vec![format!("vmlab run studies/{study}.toml --seed 20260102")],
        files: vec![fact("samples", "results/samples.csv"), fact("journal", "results/journal")],
    }
}

/// One socket with four cores of two threads.
fn host() -> topology::Host {
    let pcpu = |id: u32| topology::Pcpu {
        id,
        online: true,
        socket: Some(0),
        core: Some(id % 4),
        thread: Some(id / 4),
        node: Some(0),
        ..topology::Pcpu::default()
    };
    topology::Host {
        kernel: Some("6.1.0-made-up".to_owned()),
        cpu_model: Some("Made-up CPU".to_owned()),
        memory_bytes: Some(16 << 30),
        pcpus: (0..8).map(pcpu).collect(),
        warnings: vec!["cpufreq is hidden: clock speeds are unknown".to_owned()],
        ..topology::Host::default()
    }
}

fn variant(name: &str, vcpus: &str, index: usize) -> ReportVariant {
    let role = match index {
        0 => VariantRole::Baseline,
        _ if name.ends_with("-again") => VariantRole::AaArm,
        _ => VariantRole::Candidate,
    };
    let mut qemu_lines = vec![
        "-machine q35".to_owned(),
        "-accel tcg,thread=multi".to_owned(),
        "-cpu max".to_owned(),
        format!("-smp {vcpus},sockets=1,cores={vcpus},threads=1"),
        "-m 1024M".to_owned(),
        "-nodefaults -no-user-config -display none".to_owned(),
        "-kernel vmlinuz".to_owned(),
        "-append \"console=ttyS0 quiet\"".to_owned(),
    ];
    if index > 3 {
        qemu_lines.push(format!("-object made-up,id=n{index}"));
    }
    let s = if vcpus == "1" { "" } else { "s" };
    let summary = format!("{vcpus} vCPU{s}, 1 GiB");
    let (losses, on_host) = (Vec::new(), false);
    let found = [("guest.clocksource", "kvm-clock"), ("host.halt_poll_ns", "200000")];
    let fact =
        |(name, value): (&str, &str)| ReportFact { name: name.to_owned(), value: value.to_owned() };
    let found = found.map(fact).to_vec();
    ReportVariant {
        name: name.to_owned(),
        summary,
        role,
        on_host,
        qemu_lines,
        losses,
        found,
        further: Vec::new(),
    }
}

fn group_of(
    report: &Report,
    load: &str,
    workload: &str,
    metric: Metric,
    centres: &[f64],
) -> ResultGroup {
    group(report, load, workload, metric, centres, 5, 1)
}

fn group(
    report: &Report,
    load: &str,
    workload: &str,
    metric: Metric,
    centres: &[f64],
    blocks: u32,
    samples: usize,
) -> ResultGroup {
    let arms = report.variants.len() as u32;
    let first = report.groups.len() as u32 * arms * blocks;
    let mut cells: Vec<CellResults> = Vec::new();
    for (i, variant) in report.variants.iter().enumerate() {
        let boots: Vec<BootPoint> = (0..blocks)
            .map(|block| {
                // A shuffle of a kind: every block begins with another arm.
                let place = (i as u32 + block * 3) % arms;
                let drift = 1.0 + 0.01 * f64::from(block);
                let boot = centres[i] * drift * (1.0 + 0.02 * noise(block as usize * 31 + i * 7));
                let sample =
                    |k: usize| boot * (1.0 + 0.03 * noise(block as usize * 97 + i * 13 + k * 5));
                let samples: Vec<f64> = (0..samples).map(sample).collect();
                let mut sorted = samples.clone();
                sorted.sort_by(f64::total_cmp);
                BootPoint {
                    block,
                    order: first + block * arms + place,
                    value: sorted[sorted.len() / 2],
                    samples,
                    counted: true,
                }
            })
            .collect();
        let logs: Vec<f64> = boots.iter().map(|boot| boot.value.ln()).collect();
        let estimate = stats::t_test(&logs, LEVEL).map_or(
            ShownEstimate { centre: boots[0].value, interval: None },
            |test| ShownEstimate {
                centre: test.mean.exp(),
                interval: Some(ShownInterval {
                    lo: test.interval.lo.exp(),
                    hi: test.interval.hi.exp(),
                }),
            },
        );
        cells.push(CellResults {
            variant: variant.name.clone(),
            boots,
            estimate: Some(estimate),
            judgement: None,
        });
    }
    let better = metric.better;
    let (baseline, others) = cells.split_first_mut().expect("every made-up report has variants");
    for (cell, variant) in others.iter_mut().zip(&report.variants[1..]) {
        let pairs = cell.boots.iter().zip(&baseline.boots);
        let log_ratios = pairs.map(|(b, a)| (b.value / a.value).ln()).collect();
        let comparison = Comparison {
            blocks: PairedBlocks { log_ratios },
            better,
            margin: 0.03,
            aa: variant.role == VariantRole::AaArm,
            host: Vec::new(),
        };
        let engine = SequentialTest::within(blocks, 1.0 - LEVEL).expect("there are blocks");
        cell.judgement = Some(VariantJudgement::of(&engine, &comparison));
    }
    ResultGroup { primary: true, margin: Some(0.03), cells, ..empty_group(load, workload, metric) }
}

/// A group that nobody measured.
fn empty_group(load: &str, workload: &str, metric: Metric) -> ResultGroup {
    ResultGroup {
        load: load.to_owned(),
        workload: workload.to_owned(),
        metric,
        primary: false,
        margin: None,
        cells: Vec::new(),
        movers: Vec::new(),
        counts: Vec::new(),
        steadiness: Vec::new(),
        published: Vec::new(),
        claims: Vec::new(),
    }
}

/// Between -1 and 1, the same every time, near a bell.
fn noise(seed: usize) -> f64 {
    let one = |seed: usize| ((seed as f64 * 12.9898).sin() * 43_758.547).fract();
    (one(seed + 1) + one(seed + 1000) + one(seed + 2000)) / 1.5
}

fn failure(load: &str, workload: &str, variant: &str, block: u32) -> TrialFailure {
    TrialFailure {
        trial: TrialKey {
            id: "00112233445566ff".to_owned(),
            block,
            attempt: 0,
            load: load.to_owned(),
            workload: workload.to_owned(),
            variant: variant.to_owned(),
            order: 47,
        },
        failure: Failure::new(FailureKind::GuestPanicked, "the console said: Kernel panic - not syncing: VFS: Unable to mount root fs"
                .to_owned()),
        console_tail: Some(
            "[    1.204] VFS: Cannot open root device \"vda\" or unknown-block(0,0)\n\
             [    1.205] \u{1b}[31mKernel panic\u{1b}[0m - not syncing: VFS: Unable to mount root fs\n\
             [    1.206] CPU: 0 PID: 1 Comm: swapper/0 Not tainted <6.1.0-made-up> #1"
                .to_owned(),
        ),
        console_file: Some("results/blobs/0f3a".to_owned()),
        state_file: None,
    }
}

fn moved(counter: &str, unit: &str, variant: &str, from: f64, to: f64) -> CounterMove {
    let meaning = record::counter(counter).map(|counter| counter.meaning).unwrap_or_default();
    CounterMove {
        counter: counter.to_owned(),
        unit: Unit::from(unit),
        meaning: meaning.to_owned(),
        variant: variant.to_owned(),
        baseline_value: from,
        variant_value: to,
        // What cyclictest timed: 100 000 wake-ups a run.
        per_operation: (unit != "B").then_some((from / 1e5, to / 1e5)),
    }
}

fn published(variant: &str, value: f64, source: &str) -> PublishedValue {
    PublishedValue {
        variant: variant.to_owned(),
        value: Some(value),
        ratio: None,
        range: None,
        ratio_range: None,
        runs: Vec::new(),
        sd: None,
        source: source.to_owned(),
        agreement: None,
    }
}

/// What is said of two variants, judged by their boots.
fn claim(group: &ResultGroup, variant: &str, than: &str, says: PublishedKind) -> PublishedClaim {
    let logs = |name: &str| {
        let boots = group.cell(name).into_iter().flat_map(|cell| &cell.boots);
        boots.map(|boot| boot.value.ln()).collect::<Vec<f64>>()
    };
    let log_ratios: Vec<f64> =
        logs(than).iter().zip(logs(variant)).map(|(than, variant)| variant - than).collect();
    let blocks = u32::try_from(log_ratios.len()).expect("few blocks");
    let comparison = Comparison {
        blocks: PairedBlocks { log_ratios },
        better: BetterDirection::Lower,
        margin: 0.03,
        aa: false,
        host: Vec::new(),
    };
    let engine = SequentialTest::within(blocks, 1.0 - LEVEL).expect("there are blocks");
    let source = "made-up numbers, Figure 3";
    PublishedClaim::unmeasured(says, variant, Some(than), source)
        .judged(&comparison, &engine.judge(&comparison))
}

fn counter_ratio(counter: &str, lo: f64, hi: f64) -> PublishedKind {
    let published = ShownInterval { lo, hi };
    PublishedKind::CounterRatio { counter: counter.to_owned(), of: CountScope::Run, published }
}

fn metric(name: &str, unit: &str, better: BetterDirection, kind: MetricKind) -> Metric {
    Metric { name: name.to_owned(), unit: Unit::from(unit), better, kind }
}

fn named(name: &str, summary: &str) -> LabelledText {
    LabelledText { name: name.to_owned(), summary: summary.to_owned() }
}

fn fact(name: &str, value: &str) -> ReportFact {
    ReportFact { name: name.to_owned(), value: value.to_owned() }
}
