//! tlb: touches that each need another page's translation.

use rustix::param::page_size;

use crate::args::Args;
use crate::chase;
use crate::document::ProbeResult;
use crate::machine;
use crate::memory;
use crate::spec::{CPUS, Opt, OptionDefault, Probe, ProbeError, ProbeMetric, REPEAT, SECONDS};
use crate::vcpus;

/// The row of the table.
pub static PROBE: Probe = Probe {
    name: "tlb",
    summary: "Latency of touching many pages, small and huge: the price of address translation",
    about: "A chain of dependent loads goes through one cache line of each page in random order. \
            With small pages the TLB holds the translations of a few pages at most, and in a VM \
            a miss walks two page tables, the guest's and the host's: up to 24 loads instead of \
            4. The same lines behind huge pages need hardly any translation, so the difference \
            of the two is the price. It is low where the host backs the guest with huge pages \
            too. Values carry the label `pages`.",
    verifies: "the chain goes through all pages and back to its beginning.",
    options: &[
        Opt::int(
            "pages",
            (0, 1 << 26),
            0,
            "Small pages to touch; 0 for 16, 64, ... 65536, as far as a quarter of the \
                   free memory holds them",
        ),
        CPUS,
        Opt {
            default: OptionDefault::Float(0.03),
            help: "How long one chain is followed",
            ..SECONDS
        },
        REPEAT,
    ],
    metrics: &[
        ProbeMetric::time("touch-4k", "Mean time of a touch with small pages"),
        ProbeMetric::time("touch-thp", "Mean time of a touch of the same lines with huge pages"),
    ],
    histograms: &[],
    example: "--pages 16384",
    run,
};

fn run(args: &Args, outcome: &mut ProbeResult) -> Result<(), ProbeError> {
    let _pinned = vcpus::pin_scoped(&args.vcpus("cpus"), 0)?;
    let page = page_size();
    outcome.fact("small-page-bytes", page.to_string());
    let free = machine::meminfo("MemAvailable").unwrap_or(1 << 30) as usize;
    let counts: Vec<usize> = match args.size("pages") {
        0 => (2..=8).map(|power| 1 << (2 * power)).filter(|n| n * page <= free / 4).collect(),
        pages if pages * page > free => {
            let text = format!("{pages} pages do not fit into the free memory");
            return Err(ProbeError::Refused(text));
        }
        pages => vec![pages],
    };
    for pages in counts {
        for (metric, kind) in [("touch-4k", "4k"), ("touch-thp", "thp")] {
            // A kernel without huge pages has no second value.
            let Ok(mut map) = memory::map(pages * page, kind) else {
                outcome.warn("The guest has no transparent huge pages");
                continue;
            };
            let words = &mut bytemuck::cast_slice_mut::<u8, u64>(&mut map)[..pages * page / 8];
            chase::link(words, page / 8);
            let mut whole = true;
            for repeat in 0..args.size("repeat") {
                let step_s = chase::step_s(words, pages as u64, args.float("seconds"));
                whole &= step_s.is_some();
                let value = step_s.unwrap_or(0.0);
                outcome.push(metric, value).repeat(repeat).label("pages", pages.to_string());
            }
            outcome.check(format!("cycle {metric} {pages}"), whole, "the chain was followed");
        }
    }
    Ok(())
}
