//! Anonymous memory whose pages nobody touched yet.

use memmap2::{Advice, MmapMut, MmapOptions};

use crate::error::{ErrorContext as _, ProbeError};
use crate::option::Opt;

/// Which pages back the memory.
pub(crate) const PAGES: Opt = Opt::choice(
    "pages",
    &["default", "4k", "thp"],
    "default",
    "Pages behind the memory: as the guest decides, small ones alone, or transparent huge \
           pages where the guest allows them",
);

/// `bytes` of fresh memory with one of the words of [`PAGES`].
pub(crate) fn map(bytes: usize, pages: &str) -> Result<MmapMut, ProbeError> {
    // Rounded up, so that the last huge page is whole.
    let bytes = bytes.max(1).next_multiple_of(2 << 20);
    let map = MmapOptions::new().len(bytes).map_anon().tried(format!("map {bytes} bytes"))?;
    let advice = match pages {
        "4k" => Some(Advice::NoHugePage),
        "thp" => Some(Advice::HugePage),
        _ => None,
    };
    if let Some(advice) = advice {
        // A kernel without huge pages refuses both, and has small pages alone.
        if let Err(error) = map.advise(advice)
            && pages == "thp"
        {
            return Err(ProbeError::Os { what: String::from("use huge pages"), source: error });
        }
    }
    Ok(map)
}
