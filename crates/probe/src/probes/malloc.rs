//! malloc: what fresh memory costs.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use rustix::param::page_size;

use crate::args::{Args, OptionValue};
use crate::document::ProbeResult;
use crate::machine;
use crate::memory;
use crate::pace;
use crate::spec::{
    CPUS, ErrorContext as _, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, THREADS,
};
use crate::team::Team;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "malloc",
    summary: "Fresh memory: page faults, the zero page, huge pages, giving it back",
    about: "Maps memory and touches each page once: by reading, which maps the shared zero page; \
            by writing to such a page, which copies it; by writing at once, which clears a page; \
            and the same with transparent huge pages, where one fault clears 2 MiB. Then the \
            memory is given back. In a VM a page that the guest never touched also faults in the \
            host, so the first run after boot is dearer than the second: `warmup` 0 measures it. \
            The C library's allocator is timed on blocks of 64 B and of 1 MiB.",
    verifies: "every page reads as zeros, and the kernel counted a fault for each small page.",
    options: &[
        Opt { default: OptionDefault::Int(1), ..THREADS },
        CPUS,
        Opt::int(
            "mib",
            (0, 1 << 24),
            0,
            "Memory to touch; 0 for 256 MiB, at most a quarter of the free memory",
        )
        .unit("MiB"),
        REPEAT,
        Opt::int("warmup", (0, 1), 1, "1 to go through everything once before it measures"),
    ],
    metrics: &[
        ProbeMetric::time("read-fault", "Mean time of the first read of a page (zero page)"),
        ProbeMetric::time("copy-fault", "Mean time of the first write to a page that was read"),
        ProbeMetric::time("write-fault", "Mean time of the first write to a page"),
        ProbeMetric::time("unmap", "Mean time to give a small page back"),
        ProbeMetric::time("huge-fault", "Mean time of the first write to a huge page"),
        ProbeMetric::time("huge-unmap", "Mean time to give a huge page back"),
        ProbeMetric::rate("write-fault-rate", "B/s", "Fresh memory a second in small pages"),
        ProbeMetric::rate("huge-fault-rate", "B/s", "Fresh memory a second in huge pages"),
        ProbeMetric::time("alloc-small", "Mean time to allocate, touch and free 64 B"),
        ProbeMetric::time("alloc-large", "Mean time to allocate, touch and free 1 MiB"),
    ],
    histograms: &[],
    example: "--mib 512 --threads 2",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let team = Team::new(args.size("threads"), &args.vcpus("cpus"))?;
    let free = machine::meminfo("MemAvailable").unwrap_or(1 << 30);
    let bytes = match args.size("mib") {
        0 => (256 << 20).min(free as usize / 4) >> 21 << 21,
        mib => mib << 20,
    };
    if bytes as u64 > free {
        let mib = bytes >> 20;
        return Err(ProbeError::Refused(format!("{mib} MiB do not fit into the free memory")));
    }
    outcome.param("mib", OptionValue::Int((bytes >> 20) as i64));
    let huge = huge_page_bytes();
    outcome
        .fact("huge-page-bytes", huge.map_or_else(|| "none".to_owned(), |huge| huge.to_string()));
    if huge.is_none() {
        outcome.warn("The guest has no transparent huge pages");
    }
    if args.int("warmup") == 1 {
        once(&team, bytes, huge)?;
    }
    let (mut faults, mut zeros) = (0, true);
    for repeat in 0..args.size("repeat") {
        let once = once(&team, bytes, huge)?;
        faults += once.missed_faults;
        zeros &= once.zeros;
        for (name, value) in &once.values {
            outcome.push(name, *value).repeat(repeat);
        }
        if let Some(used) = once.huge_bytes
            && huge.is_some()
            && used < bytes as u64 / 2
        {
            outcome.warn("Most of the memory that asked for huge pages got small ones");
        }
    }
    outcome.check("zeros", zeros, "every fresh page was read");
    outcome.check("faults", faults == 0, format!("{faults} first touches were not faults"));
    Ok(())
}

struct MallocRepeat {
    values: Vec<(&'static str, f64)>,
    missed_faults: u64,
    zeros: bool,
    huge_bytes: Option<u64>,
}

fn once(team: &Team, bytes: usize, huge: Option<usize>) -> Result<MallocRepeat, ProbeError> {
    let page = page_size();
    let pages = (bytes.next_multiple_of(2 << 20) / page) as f64;
    let mut once =
        MallocRepeat { values: Vec::new(), missed_faults: 0, zeros: true, huge_bytes: None };

    let mut small = memory::map(bytes, "4k")?;
    let (begin, before) = (Instant::now(), minor_faults()?);
    let sums = team.each(team.cut(&mut small, page), |_, part| {
        part.chunks(page).map(|page| u64::from(black_box(page)[0])).sum::<u64>()
    });
    once.values.push(("read-fault", begin.elapsed().as_secs_f64() / pages));
    once.missed_faults += (pages as u64).saturating_sub(minor_faults()? - before);
    once.zeros &= sums.iter().all(|sum| *sum == 0);
    once.values.push(("copy-fault", write_s(team, &mut small, page) / pages));
    drop(small);

    let mut small = memory::map(bytes, "4k")?;
    let before = minor_faults()?;
    let took_s = write_s(team, &mut small, page);
    once.missed_faults += (pages as u64).saturating_sub(minor_faults()? - before);
    once.values.push(("write-fault", took_s / pages));
    once.values.push(("write-fault-rate", pages * page as f64 / took_s));
    once.zeros &= small.iter().enumerate().all(|(at, byte)| (*byte == 1) == (at % page == 0));
    let begin = Instant::now();
    drop(small);
    once.values.push(("unmap", begin.elapsed().as_secs_f64() / pages));

    if let Some(huge) = huge {
        let mut map = memory::map(bytes, "thp")?;
        let before = machine::anon_huge_bytes();
        let took_s = write_s(team, &mut map, page);
        let huge_pages = (map.len() / huge) as f64;
        once.values.push(("huge-fault", took_s / huge_pages));
        once.values.push(("huge-fault-rate", map.len() as f64 / took_s));
        once.huge_bytes =
            machine::anon_huge_bytes().zip(before).map(|(now, before)| now.saturating_sub(before));
        let begin = Instant::now();
        drop(map);
        once.values.push(("huge-unmap", begin.elapsed().as_secs_f64() / huge_pages));
    }
    for (name, size) in [("alloc-small", 64), ("alloc-large", 1 << 20)] {
        let each_s = pace::for_seconds(0.02, |n| {
            for _ in 0..n {
                let mut block: Vec<u8> = Vec::with_capacity(black_box(size));
                block.push(1);
                black_box(&mut block);
            }
        })
        .each_s();
        once.values.push((name, each_s));
    }
    Ok(once)
}

/// Writes one byte to each page; how long it took.
fn write_s(team: &Team, map: &mut [u8], page: usize) -> f64 {
    let begin = Instant::now();
    team.each(team.cut(map, page), |_, part| {
        for page in part.chunks_mut(page) {
            black_box(page)[0] = 1;
        }
    });
    begin.elapsed().as_secs_f64()
}

/// Page faults without I/O of this process so far: field 10 of `/proc/self/stat`.
fn minor_faults() -> Result<u64, ProbeError> {
    let text = fs::read_to_string("/proc/self/stat").tried("read /proc/self/stat")?;
    // The second field holds the program's name, and may hold anything.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = fields.split_whitespace().nth(7).and_then(|word| word.parse().ok());
    field.ok_or_else(|| ProbeError::Refused(format!("No fault count in /proc/self/stat: {text}")))
}

/// Size of a transparent huge page, if the guest gives any on request.
fn huge_page_bytes() -> Option<usize> {
    let folder = Path::new("/sys/kernel/mm/transparent_hugepage");
    let enabled = machine::read_trimmed(&folder.join("enabled"))?;
    let size = machine::read_trimmed(&folder.join("hpage_pmd_size"))?;
    if enabled.contains("[never]") { None } else { size.parse().ok() }
}
