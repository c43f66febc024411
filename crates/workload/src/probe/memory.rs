//! Probes of memory: bandwidth, fresh pages, translation, page cache, nodes.

use std::collections::BTreeMap;

use record::{BetterDirection, MetricKind};

use super::{
    PROGRAM, ProbeDocument, ProbeValue, REPEATED, REPEATS, TIME, argv, document, read, take,
    timed_s,
};
use crate::entry::{CatalogueEntry, DefaultValue, MetricDef, Param, bytes, time};
use crate::parse::{CommandOutput, ParseError};
use crate::roles::{RoleCommands, SCRATCH};

pub(crate) static STREAM: CatalogueEntry = CatalogueEntry {
    name: "probe-stream",
    summary: "Memory bandwidth: copy, scale, add, triad (vmlab-probe)",
    about: "STREAM's four loops over three arrays that no cache holds, with its verification; \
            every thread touches its own part first. vmlab's own implementation, whose numbers \
            are those of its loops.",
    measures: "Memory bandwidth: huge pages, pins, node placement.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        Param::int("repeats", (1, 199), 3, "Samples of a run"),
        Param::per_vcpu("threads", 1024, "Threads"),
        Param::int("array_mib", (0, 1 << 24), 0, "Size of each array; 0 for four last caches")
            .unit("MiB"),
        Param::choice(
            "touch",
            &["thread", "first"],
            "thread",
            "Who touches the arrays first: each thread its part, or the first one all",
        ),
    ],
    metrics: &[
        bytes("triad", "a = b + s * c").primary(),
        bytes("copy", "a = b"),
        bytes("scale", "a = s * b"),
        bytes("add", "a = b + c"),
    ],
    repeats: REPEATED,
    example: &[("threads", DefaultValue::Int(2)), ("array_mib", DefaultValue::Int(64))],
    command: |params, facts| {
        argv(
            "stream",
            params,
            &[
                ("threads", params.int_or_vcpus("threads", facts).to_string()),
                ("array-mib", params.int("array_mib").to_string()),
                ("touch", params.text("touch").to_owned()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &STREAM),
    duration_s: |params, facts| facts.computing_s(1.3 + 0.3 * params.int("repeats") as f64),
};

pub(crate) static MALLOC: CatalogueEntry = CatalogueEntry {
    name: "probe-malloc",
    summary: "Fresh memory: page faults, huge pages, giving it back (vmlab-probe)",
    about: "Memory that was never touched is read, written and given back page by page, with \
            small and with huge pages. On the first touch since the VM started the host may have \
            to find a page too.",
    measures: "Page faults of the guest, and of the host below: huge pages, memory backing.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        REPEATS,
        Param::int("threads", (1, 1024), 1, "Threads"),
        Param::int("mib", (0, 1 << 24), 0, "Memory of each thread; 0 for a part of the guest's")
            .unit("MiB"),
        Param::int(
            "warmup",
            (0, 1),
            1,
            "1 to touch everything once before it is measured; with 0 and one repeat, memory \
             that the host has to find is measured too",
        ),
    ],
    metrics: &[
        time("write-fault", "Time of writing to a page that is not there").primary(),
        time("read-fault", "Time of reading one"),
        time("copy-fault", "Time of writing to one that was read"),
        time("unmap", "Time of giving one back"),
        time("huge-fault", "Time of writing to a huge page; absent where there are none")
            .optional(),
        time("huge-unmap", "Time of giving one back; absent where there are none").optional(),
        time("alloc-small", "Time of a small allocation of the program").optional(),
        time("alloc-large", "Time of a large one").optional(),
    ],
    repeats: REPEATED,
    example: &[("mib", DefaultValue::Int(64))],
    command: |params, _| {
        argv(
            "malloc",
            params,
            &[
                ("threads", params.int("threads").to_string()),
                ("mib", params.int("mib").to_string()),
                ("warmup", params.int("warmup").to_string()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &MALLOC),
    duration_s: |params, facts| facts.computing_s(1.3 + 0.3 * params.int("repeats") as f64),
};

pub(crate) static TLB: CatalogueEntry = CatalogueEntry {
    name: "probe-tlb",
    summary: "Latency of touching many pages, small and huge (vmlab-probe)",
    about: "Each touch depends on the one before and goes to another page. In a VM a miss walks \
            two tables, so small pages below small pages cost most.",
    measures: "Nested page tables: huge pages of guest and host.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::int("pages", (16, 1 << 26), 65_536, "Pages; more than any TLB holds"),
    ],
    metrics: &[
        time("touch-4k", "Time of a touch with pages of 4 KiB").primary(),
        time("touch-thp", "The same with huge pages; absent where there are none").optional(),
    ],
    repeats: REPEATED,
    example: &[("pages", DefaultValue::Int(16_384))],
    command: |params, _| argv("tlb", params, &[("pages", params.int("pages").to_string())]),
    parse: |output, params, _| read(output, params, &TLB),
    duration_s: |params, facts| timed_s(params, facts, 2.0) + facts.computing_s(0.5),
};

/// A part of all pages.
const fn hits(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "ratio", BetterDirection::Higher, MetricKind::Count, help).optional()
}

pub(crate) static PAGECACHE: CatalogueEntry = CatalogueEntry {
    name: "probe-pagecache",
    summary: "Scans of a file larger or smaller than the page cache (vmlab-probe)",
    about: "A file on a scratch disk is written, scanned cold and again, rewritten, and a hot \
            part of it read while the rest is scanned, as map-reduce jobs do. Give `size_mib` \
            below and above the guest's memory.",
    measures: "The guest's page cache over the virtual disk.",
    needs: &[PROGRAM],
    beside: RoleCommands {
        scratch_mib: |params, _| params.int("size_mib") as u64 * 21 / 20 + 64,
        ..RoleCommands::NOTHING
    },
    params: &[
        REPEATS,
        Param::int("size_mib", (1, 1 << 24), 512, "Size of the file").unit("MiB"),
        Param::int("hot_percent", (1, 100), 10, "Its hot part").unit("%"),
        Param::int("block_kib", (4, 65_536), 1024, "Size of a request").unit("KiB"),
    ],
    metrics: &[
        bytes("scan-warm", "Bytes a second of the second scan").primary(),
        bytes("scan-cold", "Bytes a second of the first scan"),
        bytes("write", "Bytes a second of writing the file"),
        bytes("rewrite", "Bytes a second of writing it again"),
        bytes("hot", "Bytes a second of the hot part"),
        hits("hits-warm", "Part of the second scan that came from memory"),
        hits("hits-hot", "Part of the hot reads that came from memory"),
    ],
    repeats: "One run does everything `repeats` times; each brings one sample of every metric.",
    example: &[("size_mib", DefaultValue::Int(128)), ("repeats", DefaultValue::Int(1))],
    command: |params, _| {
        argv(
            "pagecache",
            params,
            &[
                ("dir", SCRATCH.to_owned()),
                ("size-mib", params.int("size_mib").to_string()),
                ("hot-percent", params.int("hot_percent").to_string()),
                ("block-kib", params.int("block_kib").to_string()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &PAGECACHE),
    duration_s: |params, facts| {
        let bytes = params.int("size_mib") as f64 * params.int("repeats") as f64;
        bytes * 5.0 / 150.0 + facts.computing_s(0.5)
    },
};

pub(crate) static SHUFFLE: CatalogueEntry = CatalogueEntry {
    name: "probe-shuffle",
    summary: "A sort job through temporary files, and what stays in the page cache (vmlab-probe)",
    about: "Threads sort an input on a scratch disk through temporary files as large as it is, \
            and merge these into an output, as the sort and shuffle of a map-reduce job do. \
            Then the input is read again, as the next job would. `hint` tells the kernel that \
            temporary files are short-lived. Give `size_mib` below and above the guest's memory.",
    measures: "The guest's page cache over the virtual disk, and what reaches the disk.",
    needs: &[PROGRAM],
    beside: RoleCommands {
        scratch_mib: |params, _| params.int("size_mib") as u64 * 16 / 5 + 64,
        ..RoleCommands::NOTHING
    },
    params: &[
        REPEATS,
        Param::per_vcpu("threads", 1024, "Threads, each with its part of the input and the keys"),
        Param::int("size_mib", (1, 1 << 24), 512, "Size of the input").unit("MiB"),
        Param::int("buffer_mib", (1, 1 << 14), 16, "What a thread sorts at a time").unit("MiB"),
        Param::choice(
            "hint",
            &["none", "dontneed", "noreuse", "dontcache"],
            "none",
            "What the kernel is told of temporary files: written out at once and dropped \
             when read, not worth keeping once read (Linux 6.3), dropped by each request (Linux 6.14)",
        ),
    ],
    metrics: &[
        time("job", "Time of the whole job, the output on the disk").primary(),
        time("map", "Time of reading, sorting and spilling"),
        time("reduce", "Time of merging and writing the output"),
        of_disk("read-bytes", "Bytes that the job read from the disk"),
        of_disk("written-bytes", "Bytes that reached the disk during the job"),
        hits("input-kept", "Part of the input that the next reader finds in memory"),
    ],
    repeats: "One run does the job `repeats` times; each brings one sample of every metric.",
    example: &[
        ("size_mib", DefaultValue::Int(128)),
        ("hint", DefaultValue::Text("dontneed")),
        ("repeats", DefaultValue::Int(1)),
    ],
    command: |params, facts| {
        argv(
            "shuffle",
            params,
            &[
                ("dir", SCRATCH.to_owned()),
                ("threads", params.int_or_vcpus("threads", facts).to_string()),
                ("size-mib", params.int("size_mib").to_string()),
                ("buffer-mib", params.int("buffer_mib").to_string()),
                ("hint", params.text("hint").to_owned()),
            ],
        )
    },
    parse: |output, params, _| read(output, params, &SHUFFLE),
    duration_s: |params, facts| {
        let mib = params.int("size_mib") as f64 * params.int("repeats") as f64;
        mib * 6.0 / 150.0 + facts.computing_s(0.5 + mib / 200.0)
    },
};

/// Bytes of a disk; absent where the kernel counts none.
const fn of_disk(name: &'static str, help: &'static str) -> MetricDef {
    MetricDef::new(name, "B", BetterDirection::Lower, MetricKind::Count, help).optional()
}

pub(crate) static NUMA: CatalogueEntry = CatalogueEntry {
    name: "probe-numa",
    summary: "Latency and bandwidth of local and remote memory (vmlab-probe)",
    about: "From every guest node to every guest node: of one repeat, local is the mean over all \
            nodes, and remote the mean over all pairs. A guest with one node only has local \
            memory, wherever the host put it.",
    measures: "Whether guest nodes are where the host's are.",
    needs: &[PROGRAM],
    beside: RoleCommands::NOTHING,
    params: &[
        TIME,
        REPEATS,
        Param::int("mib", (0, 1 << 24), 0, "Memory of a node; 0 for four last caches").unit("MiB"),
    ],
    metrics: &[
        time("local-latency", "Time of a dependent load from the own node").primary(),
        time("remote-latency", "The same from another; absent with one node").optional(),
        bytes("local-bandwidth", "Bytes a second from the own node"),
        bytes("remote-bandwidth", "The same from another; absent with one node").optional(),
    ],
    repeats: REPEATED,
    example: &[("mib", DefaultValue::Int(64))],
    command: |params, _| argv("numa", params, &[("mib", params.int("mib").to_string())]),
    parse: |output, params, _| take(output, over_pairs(output, document(output)?)?, params, &NUMA),
    duration_s: |params, facts| timed_s(params, facts, 8.0) + facts.computing_s(1.0),
};

/// The document with one value of each metric a repeat, where the probe says
/// one a pair of nodes: their mean.
fn over_pairs(
    output: CommandOutput<'_>,
    document: ProbeDocument,
) -> Result<ProbeDocument, ParseError> {
    let mut pairs: BTreeMap<(String, u32), Vec<ProbeValue>> = BTreeMap::new();
    for value in document.metrics {
        pairs.entry((value.name.clone(), value.repeat)).or_default().push(value);
    }
    let mut metrics = Vec::new();
    let mut before: Option<(&str, usize)> = None;
    for ((name, repeat), values) in &pairs {
        // A pair that is missing would move the mean.
        if before.is_some_and(|(of, pairs)| of == name && pairs != values.len()) {
            return Err(output.ended(format!("{name} of all pairs of nodes in repeat {repeat}")));
        }
        before = Some((name, values.len()));
        let (Some(first), sum) =
            (values.first(), values.iter().map(|value| value.value).sum::<f64>())
        else {
            continue;
        };
        if values.iter().any(|value| value.unit != first.unit) {
            return Err(output.ended(format!("{name} in one unit")));
        }
        metrics.push(ProbeValue {
            name: name.clone(),
            value: sum / values.len() as f64,
            unit: first.unit.clone(),
            thread: None,
            repeat: *repeat,
            labels: BTreeMap::new(),
        });
    }
    Ok(ProbeDocument { metrics, ..document })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::GuestFacts;

    fn values(pairs: &[(&str, u32, u32, u32, f64)]) -> String {
        let value = |(name, repeat, vcpus, memory, value): &(&str, u32, u32, u32, f64)| {
            let unit = if name.ends_with("latency") { "s" } else { "B/s" };
            format!(
                r#"{{"name":"{name}","value":{value:?},"unit":"{unit}","repeat":{repeat},"labels":{{"memory-node":"{memory}","vcpu-node":"{vcpus}"}}}}"#
            )
        };
        let values: Vec<String> = pairs.iter().map(value).collect();
        format!(
            r#"{{"version":"0.1","verified":true,"checks":[],"metrics":[{}]}}"#,
            values.join(",")
        ) + "\n"
    }

    fn parse(text: &str) -> Result<Vec<(String, f64)>, ParseError> {
        let params = NUMA.resolve(&BTreeMap::new()).unwrap();
        let output = CommandOutput { stdout: text, stderr: "" };
        let parsed = NUMA.parse(output, &params, &GuestFacts::alone(2, false))?;
        Ok(parsed.samples.into_iter().map(|sample| (sample.metric, sample.value)).collect())
    }

    #[test]
    fn nodes_are_averaged_in_each_repeat() {
        let mut pairs = Vec::new();
        for (name, of_node, of_repeat) in [("latency", 1e-7, 1e-8), ("bandwidth", 1e9, 1e8)] {
            for (memory, vcpus) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let place = if memory == vcpus { "local" } else { "remote" };
                for repeat in 0..2 {
                    let value = f64::from(memory + 1) * of_node + f64::from(repeat) * of_repeat;
                    let name: &str = Box::leak(format!("{place}-{name}").into_boxed_str());
                    pairs.push((name, repeat, vcpus, memory, value));
                }
            }
        }
        let found = parse(&values(&pairs)).unwrap();
        let of = |metric: &str| -> Vec<f64> {
            found.iter().filter(|(name, _)| name == metric).map(|(_, value)| *value).collect()
        };
        assert_eq!(found.len(), 8);
        for place in ["local", "remote"] {
            let close = |found: &[f64], expected: [f64; 2]| {
                assert_eq!(found.len(), 2);
                let pairs = found.iter().zip(expected);
                assert!(pairs.into_iter().all(|(a, b)| (a / b - 1.0).abs() < 1e-12), "{found:?}");
            };
            close(&of(&format!("{place}-latency")), [1.5e-7, 1.6e-7]);
            close(&of(&format!("{place}-bandwidth")), [1.5e9, 1.6e9]);
        }
        pairs.pop();
        let error = parse(&values(&pairs)).unwrap_err().to_string();
        assert!(error.contains("local-bandwidth of all pairs of nodes in repeat 1"), "{error}");
    }

    #[test]
    fn one_node_has_no_remote_memory() {
        let text = values(&[("local-latency", 0, 0, 0, 1e-7), ("local-bandwidth", 0, 0, 0, 1e9)]);
        assert_eq!(parse(&text).unwrap().len(), 2);
    }
}
