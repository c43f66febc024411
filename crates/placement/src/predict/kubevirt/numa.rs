//! Guest nodes that mirror the host nodes under the vCPUs.
//!
//! Source: KubeVirt, `numaMapping` in `converter/vcpu/vcpu.go`; unchanged in
//! what is computed here from 0.44 to 1.9.

use std::collections::BTreeMap;

use super::PinError;
use crate::predict::machine::CapabilitiesCell;

/// What NUMA passthrough makes of the pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestNuma {
    /// Guest nodes, numbered from 0 in the order of the host's.
    pub nodes: Vec<PredictedNode>,
    /// Size of the huge pages behind each node.
    pub page_bytes: u64,
    /// Whether same-page merging is off (realtime guests).
    pub no_share_pages: bool,
}

/// One guest node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PredictedNode {
    /// vCPUs that are pinned into the host node.
    pub vcpus: Vec<u32>,
    /// Memory: an equal share, however many vCPUs the node has.
    pub memory_bytes: u64,
    /// The host node that its memory comes from, strictly.
    pub host_node: u32,
}

/// The guest's memory, as far as passthrough looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedMemory {
    /// Size.
    pub bytes: u64,
    /// Size of a huge page; `None` without huge pages.
    pub page_bytes: Option<u64>,
    /// Whether the guest is a realtime guest.
    pub realtime: bool,
}

/// Maps pins (vCPU and pCPU) to guest nodes; `None` on a host that reports no
/// nodes.
///
/// # Errors
/// [`PinError`] in KubeVirt's words.
pub fn mirror_nodes(
    pins: &[(u32, u32)],
    cells: &[CapabilitiesCell],
    memory: PredictedMemory,
) -> Result<Option<GuestNuma>, PinError> {
    if cells.is_empty() {
        return Ok(None);
    }
    // A pCPU that stands in two cells belongs to the last.
    let cell_of: BTreeMap<u32, u32> =
        cells.iter().flat_map(|cell| cell.pcpus.iter().map(|pcpu| (pcpu.id, cell.id))).collect();
    let mut vcpus: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (vcpu, pcpu) in pins {
        let missing = PinError::NotInTopology { vcpu: *vcpu, pcpu: *pcpu };
        vcpus.entry(*cell_of.get(pcpu).ok_or(missing)?).or_default().push(*vcpu);
    }
    let page = memory.page_bytes.ok_or(PinError::NoHugepages)?;
    let count = u64::try_from(vcpus.len()).unwrap_or(u64::MAX);
    let bytes = memory.bytes;
    if bytes < count.saturating_mul(page) {
        // KubeVirt multiplies the page size by a mebibyte once too often here.
        let shown = count.wrapping_mul(page.wrapping_mul(1 << 20));
        return Err(PinError::NotEnoughMemory { bytes, shown });
    }
    let rest = bytes.checked_rem(page).ok_or(PinError::DivideByZero)?;
    if rest != 0 {
        return Err(PinError::NotWholePages { bytes, page });
    }
    let longer = (bytes / page).checked_rem(count).unwrap_or(0);
    let each = (bytes / page).checked_div(count).unwrap_or(0) * page;
    let involved = cells.iter().filter_map(|cell| Some((cell.id, vcpus.get(&cell.id)?)));
    let nodes = involved
        .zip(0u64..)
        .map(|((host_node, vcpus), at)| PredictedNode {
            vcpus: vcpus.clone(),
            memory_bytes: each + if at < longer { page } else { 0 },
            host_node,
        })
        .collect();
    Ok(Some(GuestNuma { nodes, page_bytes: page, no_share_pages: memory.realtime }))
}
