//! `--calibrate`: what things cost, as it was measured.

use std::path::Path;

use anyhow::{Context as _, bail};
use host::micro;
use host::watch::Moment;
use runner::simulated::constants;
use runner::store;
use sim::costs::MeasuredConstant;
use topology::PcpuSet;

use crate::terminal;

/// The word for a measurement of this machine.
const HERE: &str = "here";

/// The share of the pCPUs' time that others may have had before it is told.
const DISTURBED: f64 = 0.05;

/// Constants from a price list, or from this machine.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<MeasuredConstant>> {
    if path == Path::new(HERE) {
        return here();
    }
    let list = store::read_prices(path)?;
    constants::of_prices(&list).with_context(|| format!("Cannot use {}", path.display()))
}

/// Constants from this machine.
pub(super) fn here() -> anyhow::Result<Vec<MeasuredConstant>> {
    if terminal::is_watched() {
        terminal::note("measuring this machine ...");
    }
    let host = runner::machine::this_host();
    let pcpus = host.allowed.clone().unwrap_or_else(|| host.online());
    // The two that are measured.
    let pair: PcpuSet = pcpus.iter().take(2).collect();
    let before = Moment::before(&pair);
    let found = micro::measure(&pair).context("Cannot measure this machine")?;
    let watch = before.watched_until_now();
    let time_s = (watch.wall_s * f64::from(watch.pcpus)).max(f64::MIN_POSITIVE);
    let lost = (watch.foreign_s.unwrap_or(0.0) + watch.steal_s.unwrap_or(0.0)) / time_s;
    if lost >= DISTURBED {
        terminal::note(&format!(
            "vmlab: others had {:.0} % of the two pCPUs while this machine was measured: of what it says only what is known of other machines too is taken",
            lost * 100.0
        ));
    }
    let (constants, doubts) = constants::believed(constants::of_micro(&found), lost >= DISTURBED);
    for doubt in doubts {
        terminal::note(&format!("vmlab: {doubt}"));
    }
    if constants.is_empty() {
        bail!("Nothing that was measured here can be believed: measure while nothing else runs");
    }
    Ok(constants)
}
