//! fio: requests to a scratch disk, of one kind or as iozone's operations.
//!
//! Source: fio 3 `HOWTO.rst` and its JSON output (`stat.c`).

use std::fmt::Write as _;

use record::{BetterDirection, Histogram, Labels, LogValue, MetricKind};

use crate::entry::{CatalogueEntry, DefaultValue, GuestFacts, MetricDef, Param};
use crate::params::Params;
use crate::parse::{CommandOutput, ParseError, ParsedOutput};
use crate::pick::{line_of, one_log, one_whole_log};
use crate::roles::{GuestStep, RAW_DISK, RoleCommands, SCRATCH};
use logs::Log;

const fn rate(name: &'static str, unit: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, unit, BetterDirection::Higher, MetricKind::Rate, help)
}

const fn latency(name: &'static str, kind: MetricKind, help: &'static str) -> MetricDef {
    MetricDef::new(name, "s", BetterDirection::Lower, kind, help)
}

/// The operations that read.
const READS: &[&str] = &["read", "randread", "randrw"];

/// Those that write.
const WRITES: &[&str] = &["write", "randwrite", "randrw"];

pub(crate) static ENTRY: CatalogueEntry = CatalogueEntry {
    name: "fio",
    summary: "Requests to a scratch disk: sequential or random, read or write (fio)",
    about: "Every job works on a file of its own, made before the first run. With `direct` the \
            guest's page cache takes no part, so each request reaches the virtual disk. `depth` \
            is how many requests a job has on the way; `sync` has one, whatever it says. With \
            `disks` the requests go to so many empty disks themselves, without a file system \
            between: each is written once before the first run, and every job asks all of them in \
            turn.",
    measures: "The virtual disk: bus, cache mode, aio, queues, iothreads, interrupts.",
    needs: &["fio"],
    beside: RoleCommands {
        setup: |params, _| {
            if raw_disks(params) > 0 {
                return fill(params);
            }
            let mut argv = vec!["fio".to_owned(), "--create_only=1".to_owned()];
            argv.extend(job(params));
            vec![GuestStep::Run(argv), GuestStep::run(["sync"])]
        },
        scratch_mib: |params, _| match raw_disks(params) {
            0 => (params.int("jobs") * params.int("size_mib")) as u64 * 21 / 20 + 64,
            _ => params.int("size_mib") as u64,
        },
        raw_disks,
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::choice(
            "operation",
            &["read", "write", "randread", "randwrite", "randrw"],
            "randread",
            "What the requests do",
        ),
        Param::choice("engine", &["sync", "libaio", "io_uring"], "libaio", "How they are made"),
        Param::int("block_kib", (1, 1 << 16), 4, "Size of a request").unit("KiB"),
        Param::int("depth", (1, 4096), 32, "Requests on the way in one job"),
        Param::int("jobs", (1, 1024), 1, "Jobs at once"),
        Param::int("size_mib", (1, 1 << 24), 1024, "Size of one job's file, or of a disk")
            .unit("MiB"),
        Param::int("disks", (0, 16), 0, "Disks that are asked themselves; 0 is files on one"),
        Param::int("time_s", (1, 86_400), 30, "How long").unit("s"),
        Param::int("ramp_s", (0, 3600), 2, "How long before that nothing counts").unit("s"),
        Param::int(
            "requests",
            (0, 1 << 40),
            0,
            "Requests of one job, in the place of a time: what the run's counters say is then of \
             so many; 0 is by time",
        ),
        Param::bool("direct", true, "Past the guest's page cache (O_DIRECT)"),
    ],
    metrics: &[
        rate("requests-per-s", "1/s", "Requests of all jobs a second, reads and writes").primary(),
        rate("throughput", "B/s", "Bytes of all jobs a second, reads and writes"),
        latency(
            "read-latency-mean",
            MetricKind::Time,
            "Mean time from a read's submission to its completion",
        )
        .only_with("operation", READS),
        latency("read-latency-p99", MetricKind::Quantile, "Time that 99 % of the reads keep")
            .only_with("operation", READS),
        latency(
            "write-latency-mean",
            MetricKind::Time,
            "Mean time from a write's submission to its completion",
        )
        .only_with("operation", WRITES),
        latency("write-latency-p99", MetricKind::Quantile, "Time that 99 % of the writes keep")
            .only_with("operation", WRITES),
    ],
    repeats: "One run lasts `ramp_s` and `time_s`, merges all jobs, and brings one sample of every \
              metric, and a histogram of the latencies of reads and of writes.",
    example: &[("operation", DefaultValue::Text("randwrite")), ("depth", DefaultValue::Int(1))],
    command: |params, _| {
        let mut argv = vec!["fio".to_owned(), "--output-format=json+".to_owned()];
        argv.extend(job(params));
        argv
    },
    parse,
    duration_s: |params, facts| {
        let timed = (params.int("time_s") + params.int("ramp_s")) as f64;
        let asked = match params.int("requests") {
            0 => timed,
            requests => facts.computing_s((requests * params.int("jobs")) as f64 / SLOW_DISK_PER_S),
        };
        asked + facts.computing_s(0.5)
    },
};

/// The job's name.
const JOB: &str = "vmlab";

/// Requests a second of a disk that is not fast, for the estimate of a duration.
const SLOW_DISK_PER_S: f64 = 10_000.0;

/// How many disks are asked themselves.
fn raw_disks(params: &Params) -> u32 {
    u32::try_from(params.int("disks")).unwrap_or(0)
}

/// The disks, as fio has a list of files.
fn disk_list(params: &Params) -> String {
    let all: Vec<String> =
        (1..=raw_disks(params)).map(|number| format!("{RAW_DISK}{number}")).collect();
    all.join(":")
}

/// Writes each disk once: what was never written is answered without being read.
fn fill(params: &Params) -> Vec<GuestStep> {
    let argv = ["fio", "--name=fill", "--rw=write", "--bs=1m", "--ioengine=psync", "--direct=1"];
    let mut argv: Vec<String> = argv.map(str::to_owned).into();
    argv.push(format!("--filename={}", disk_list(params)));
    vec![GuestStep::Run(argv)]
}

fn job(params: &Params) -> Vec<String> {
    let on_disks = raw_disks(params) > 0;
    let place = match on_disks {
        true => format!("--filename={}", disk_list(params)),
        false => format!("--directory={SCRATCH}"),
    };
    let mut argv = vec![
        format!("--name={JOB}"),
        place,
        format!("--rw={}", params.text("operation")),
        format!("--ioengine={}", params.text("engine")),
        format!("--bs={}k", params.int("block_kib")),
        format!("--iodepth={}", params.int("depth")),
        format!("--numjobs={}", params.int("jobs")),
    ];
    if !on_disks {
        argv.push(format!("--size={}m", params.int("size_mib")));
    }
    let requests = params.int("requests");
    if requests > 0 {
        argv.push(format!("--number_ios={requests}"));
    } else {
        argv.push("--time_based".to_owned());
        argv.push(format!("--runtime={}", params.int("time_s")));
    }
    // One seed, so that every boot asks for the same blocks.
    argv.extend(["--group_reporting", "--randseed=1"].map(str::to_owned));
    if params.int("ramp_s") > 0 && requests == 0 {
        argv.push(format!("--ramp_time={}", params.int("ramp_s")));
    }
    if params.bool("direct") {
        argv.push("--direct=1".to_owned());
    }
    argv
}

/// iozone's operations: fio's words for each, and what it measures. A file is
/// written anew, then again, and so on, in iozone's order.
const OPERATIONS: [(&str, &str, &str); 8] = [
    ("write", "write", "Bytes a second of writing a new file"),
    ("rewrite", "write", "Bytes a second of writing it again"),
    ("read", "read", "Bytes a second of reading it"),
    ("reread", "read", "Bytes a second of reading it again"),
    ("random-read", "randread", "Bytes a second of reading it at random places"),
    ("random-write", "randwrite", "Bytes a second of writing it at random places"),
    // From one block's end to the beginning of the one before.
    ("backward-read", "read:-@TWICE@k", "Bytes a second of reading it from its end"),
    ("stride-read", "read:@STRIDE@k", "Bytes a second of reading every seventeenth block"),
];

const JOB_FILE: &str = "/tmp/vmlab-iozone.fio";

pub(crate) static IOZONE: CatalogueEntry = CatalogueEntry {
    name: "fio-iozone",
    summary: "iozone's eight operations on one file, one after the other (fio)",
    about: "A file of `size_mib` is written, written again, read, read again, read and written at \
            random places, read backwards and in strides, as iozone does, each operation once \
            through. Writes end with an fsync, which counts. Published comparisons took 1, 2 and \
            4 GiB, with synchronous requests through the page cache: below the guest's memory \
            the reads come from that.",
    measures: "File operations over the virtual disk, with and without the guest's page cache.",
    needs: &["fio"],
    beside: RoleCommands {
        setup: |params, _| {
            vec![GuestStep::Write { path: JOB_FILE.to_owned(), text: iozone_job(params) }]
        },
        scratch_mib: |params, _| params.int("size_mib") as u64 * 21 / 20 + 64,
        ..RoleCommands::NOTHING
    },
    params: &[
        Param::int("size_mib", (1, 1 << 24), 1024, "Size of the file").unit("MiB"),
        Param::int("record_kib", (1, 1 << 16), 4, "Size of one request").unit("KiB"),
        Param::bool("direct", false, "Past the guest's page cache (O_DIRECT)"),
    ],
    metrics: &[
        rate(OPERATIONS[0].0, "B/s", OPERATIONS[0].2).primary(),
        rate(OPERATIONS[1].0, "B/s", OPERATIONS[1].2),
        rate(OPERATIONS[2].0, "B/s", OPERATIONS[2].2),
        rate(OPERATIONS[3].0, "B/s", OPERATIONS[3].2),
        rate(OPERATIONS[4].0, "B/s", OPERATIONS[4].2),
        rate(OPERATIONS[5].0, "B/s", OPERATIONS[5].2),
        rate(OPERATIONS[6].0, "B/s", OPERATIONS[6].2),
        rate(OPERATIONS[7].0, "B/s", OPERATIONS[7].2),
    ],
    repeats: "One run does every operation once and brings one sample of each; the file is \
              removed before the next.",
    example: &[("size_mib", DefaultValue::Int(256)), ("record_kib", DefaultValue::Int(64))],
    command: |_, _| {
        let script =
            format!("rm -f {SCRATCH}/iozone; sync; exec fio --output-format=json {JOB_FILE}");
        ["sh", "-c", &script].map(str::to_owned).into()
    },
    parse: parse_iozone,
    // A slow disk's 100 MB/s, eight times.
    duration_s: |params, facts| {
        params.int("size_mib") as f64 * 8.0 / 100.0 + facts.computing_s(0.5)
    },
};

fn iozone_job(params: &Params) -> String {
    let record = params.int("record_kib");
    let mut text = format!(
        "[global]\ndirectory={SCRATCH}\nfilename=iozone\nioengine=psync\nbs={record}k\n\
         size={}m\ndirect={}\ninvalidate=0\nrandseed=1\nend_fsync=1\n",
        params.int("size_mib"),
        i64::from(params.bool("direct")),
    );
    for (name, operation, _) in OPERATIONS {
        let operation = operation
            .replace("@TWICE@", &(2 * record).to_string())
            .replace("@STRIDE@", &(16 * record).to_string());
        let _ = writeln!(text, "[{name}]\nstonewall\nrw={operation}");
        if name == "stride-read" {
            // Once through, instead of until as many bytes were read.
            let _ = writeln!(text, "io_size={}k", params.int("size_mib") * 1024 / 17);
        }
    }
    text
}

/// The directions of a job's requests, as its log has them.
const DIRECTIONS: [&str; 2] = ["read", "write"];

/// The value of `metric` of the requests in one direction, of one job or of the only one;
/// nothing if there were none of them.
fn of_direction<'a>(
    log: &'a Log,
    metric: &str,
    direction: &str,
    job: &str,
) -> Option<&'a LogValue> {
    log.values.iter().find(|value| {
        let has = |key: &str, wanted: &str| value.labels.get(key) == Some(wanted);
        value.metric == *metric
            && value.labels.get("percentile").is_none()
            && has("op", direction)
            && has("job", job)
    })
}

/// Both directions' `metric` of a job, added up; nothing if it did neither.
fn sum(log: &Log, metric: &str, job: &str) -> Option<f64> {
    let found: Vec<f64> = DIRECTIONS
        .iter()
        .filter_map(|direction| of_direction(log, metric, direction, job))
        .map(|value| value.value)
        .collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

/// Refuses jobs that are there twice: their sums would be of one of them.
fn one_of_each_job(output: CommandOutput<'_>, log: &Log) -> Result<(), ParseError> {
    match log.values.iter().find(|value| value.labels.get("instance").is_some()) {
        Some(value) => Err(line_of(output, value).expected("one group of jobs of a name")),
        None => Ok(()),
    }
}

fn parse(
    output: CommandOutput<'_>,
    _: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let log = one_whole_log(output, "fio")?;
    one_of_each_job(output, &log)?;
    if let Some(other) = log.values.iter().find(|value| value.labels.get("job") != Some(JOB)) {
        return Err(line_of(output, other).expected(format!("the job {JOB} alone")));
    }
    let mut parsed = ParsedOutput { tool_version: log.version.clone(), ..ParsedOutput::default() };
    let both = |metric: &str, what: &str| {
        sum(&log, metric, JOB).filter(|sum| *sum > 0.0).ok_or_else(|| output.ended(what))
    };
    parsed.push("requests-per-s", both("iops", "a request that was completed")?);
    parsed.push("throughput", both("rate", "a byte that was moved")?);
    for direction in DIRECTIONS {
        let Some(iops) = of_direction(&log, "iops", direction, JOB) else { continue };
        let family = format!("{direction}-latency");
        let of_latency = |metric: &str| {
            of_direction(&log, metric, direction, JOB)
                .map(|value| value.value)
                .ok_or_else(|| line_of(output, iops).expected(format!("its {metric} below it")))
        };
        of_latency("rate")?;
        parsed.push(&format!("{family}-mean"), of_latency("clat-mean")?);
        let is_here = |labels: &Labels| labels.get("op") == Some(direction);
        let is_p99 = |value: &&LogValue| {
            let percentile = value.labels.get("percentile");
            value.metric == *"clat" && percentile == Some("99") && is_here(&value.labels)
        };
        if let Some(value) = log.values.iter().find(is_p99) {
            parsed.push(&format!("{family}-p99"), value.value);
        }
        let mut distributions = log.distributions.iter();
        let all =
            distributions.find(|found| found.histogram.name == "clat" && is_here(&found.labels));
        if let Some(found) = all {
            parsed.histograms.push(Histogram { name: family, ..found.histogram.clone() });
        }
    }
    Ok(parsed)
}

fn parse_iozone(
    output: CommandOutput<'_>,
    _: &Params,
    _: &GuestFacts,
) -> Result<ParsedOutput, ParseError> {
    let log = one_log(output, "fio")?;
    one_of_each_job(output, &log)?;
    let mut parsed = ParsedOutput { tool_version: log.version.clone(), ..ParsedOutput::default() };
    for (name, ..) in OPERATIONS {
        let bytes_per_s = sum(&log, "rate", name).filter(|sum| *sum > 0.0);
        let missing = || output.ended(format!("a byte of the job {name}"));
        parsed.push(name, bytes_per_s.ok_or_else(missing)?);
    }
    Ok(parsed)
}
