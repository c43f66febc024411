//! `--calibrate`: what things cost, as it was measured.

use std::path::Path;

use anyhow::Context as _;
use host::micro;
use runner::simulated::constants;
use runner::store;
use sim::costs::MeasuredConstant;

use crate::terminal;

/// The word for a measurement of this machine.
const HERE: &str = "here";

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
    let found = micro::measure(&pcpus).context("Cannot measure this machine")?;
    Ok(constants::of_micro(&found))
}
