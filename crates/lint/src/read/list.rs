//! Lists of pCPUs and nodes as libvirt writes them: the kernel's format, and
//! `^4` takes one out again.
//!
//! Source: libvirt's documentation of the domain XML, element `vcpu`.

use topology::PcpuSet;

pub(crate) fn parse(text: &str) -> Option<PcpuSet> {
    let mut set = PcpuSet::new();
    for part in text.split(',') {
        let part = part.trim();
        if let Some(out) = part.strip_prefix('^') {
            set = set.difference(&out.parse().ok()?);
        } else {
            set = set.union(&part.parse().ok()?);
        }
    }
    Some(set)
}
