//! Where QEMU keeps the memory of its backends, which no file of the kernel's tells:
//! `smaps` knows sizes and flags, and guest nodes of one size have the same.
//!
//! Source: QEMU `softmmu/memory.c` (`mtree_print_flatview`), `monitor/hmp-cmds.c`
//! (`hmp_gpa2hva`): `info mtree -f` has a line for each part of the guest's physical memory,
//! with the backend's id; `gpa2hva` tells where such an address is in QEMU.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::OwnedVm;
use crate::Cancel;

/// How long the monitor may take for all of it.
const LIMIT: Duration = Duration::from_secs(10);

impl OwnedVm {
    /// An address in QEMU's process that belongs to each memory backend, by its id; a
    /// backend that QEMU does not tell of is absent.
    pub fn ram_addresses(&mut self, cancel: &Cancel) -> BTreeMap<String, u64> {
        let until = Instant::now() + LIMIT;
        let mut found = BTreeMap::new();
        let tree = self.ask_human("info mtree -f", until, cancel).unwrap_or_default();
        for (backend, physical) in first_of_each(&tree) {
            let line = format!("gpa2hva {physical:#x}");
            let said = self.ask_human(&line, until, cancel).unwrap_or_default();
            if let Some((of, address)) = host_address(&said)
                && of == backend
            {
                found.insert(backend, address);
            }
        }
        found
    }
}

/// The first physical address of each piece of RAM, by its name.
fn first_of_each(tree: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in tree.lines() {
        let Some((range, rest)) = line.trim().split_once(" (prio ") else { continue };
        let Some((_, name)) = rest.split_once(", ram): ") else { continue };
        let first = range.split('-').next().and_then(|first| u64::from_str_radix(first, 16).ok());
        // Behind the name: where in it the part begins, and how KVM has it.
        let name = name.split_whitespace().next();
        if let (Some(first), Some(name)) = (first, name) {
            found.entry(name.to_owned()).or_insert(first);
        }
    }
    found
}

/// The name and the address in `Host virtual address for 0x0 (mem0) is 0x7efdafe00000`.
fn host_address(said: &str) -> Option<(&str, u64)> {
    let (_, rest) = said.trim().split_once('(')?;
    let (name, rest) = rest.split_once(')')?;
    let address = rest.trim().strip_prefix("is 0x")?;
    Some((name, u64::from_str_radix(address, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ram_is_found_in_what_the_monitor_prints() {
        let tree = "FlatView #0\r\n AS \"memory\", root: system\r\n Root memory region: system\r\n  \
            0000000000000000-00000000000bffff (prio 0, ram): mem0 KVM\r\n  \
            00000000000c0000-00000000000dffff (prio 1, rom): pc.rom KVM\r\n  \
            0000000000100000-0000000007ffffff (prio 0, ram): mem0 @0000000000100000 KVM\r\n  \
            0000000008000000-000000000fffffff (prio 0, ram): mem1 KVM\r\n  \
            00000000fec00000-00000000fec00fff (prio 0, i/o): ioapic\r\n";
        let expected = [("mem0".to_owned(), 0), ("mem1".to_owned(), 0x0800_0000)];
        assert_eq!(first_of_each(tree), expected.into());
        let said = "Host virtual address for 0x8000000 (mem1) is 0x7efd97e00000\r\n";
        assert_eq!(host_address(said), Some(("mem1", 0x7efd_97e0_0000)));
        for other in ["", "No memory is mapped at address 0x1", "(mem0) is 0xzz", "() is"] {
            assert_eq!(host_address(other), None, "{other}");
        }
        assert!(first_of_each("no tree (prio 0, ram): x\n(prio").is_empty());
    }
}
