//! Numbers of cores that name one core.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Host, Pcpu};

/// Numbers the cores anew in each socket if a description's own numbers do
/// not tell them apart. `cores` names the core of each pCPU by anything that
/// differs between cores.
pub(super) fn name_cores<K: Ord + Copy>(host: &mut Host, cores: &BTreeMap<u32, K>) {
    let ids = |pcpu: &Pcpu| (pcpu.socket, pcpu.die, pcpu.cluster, pcpu.core);
    let both: BTreeSet<_> =
        host.pcpus.iter().filter_map(|pcpu| Some((ids(pcpu), cores.get(&pcpu.id)?))).collect();
    let by_ids: BTreeSet<_> = both.iter().map(|(ids, _)| ids).collect();
    let by_core: BTreeSet<_> = both.iter().map(|(_, core)| core).collect();
    if by_ids.len() == both.len() && by_core.len() == both.len() {
        return;
    }
    host.warnings
        .push("Core numbers repeat in a socket: the cores of each socket are numbered anew".into());
    let mut next: BTreeMap<Option<u32>, u32> = BTreeMap::new();
    let mut named: BTreeMap<K, u32> = BTreeMap::new();
    for pcpu in &mut host.pcpus {
        let Some(core) = cores.get(&pcpu.id) else {
            continue;
        };
        pcpu.core = Some(*named.entry(*core).or_insert_with(|| {
            let next = next.entry(pcpu.socket).or_default();
            *next += 1;
            *next - 1
        }));
    }
}
