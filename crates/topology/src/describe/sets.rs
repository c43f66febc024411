//! Sets of pCPUs in descriptions, with a limit on what they cost: a short text
//! like `0-65535`, repeated, would fill memory.

use crate::PcpuSet;

/// The highest pCPU number that is believed: twice what Linux can have
/// (`CONFIG_MAXSMP`).
const MAX_PCPU: u32 = 16_383;

/// The most pCPUs that all sets of one description may name together: 64
/// sets (caches, cores, nodes) around each of as many pCPUs as can be.
const MAX_NAMED: usize = 1 << 20;

/// Reads sets and counts how many pCPUs they name.
pub(super) struct Sets {
    left: usize,
}

impl Sets {
    pub(super) fn new() -> Sets {
        Sets { left: MAX_NAMED }
    }

    fn charge(&mut self, pcpus: usize) -> Result<(), String> {
        self.left = self
            .left
            .checked_sub(pcpus)
            .ok_or_else(|| format!("All lists together name more than {MAX_NAMED} pCPUs"))?;
        Ok(())
    }

    /// Counts what a list would name; what is not a list costs nothing.
    pub(super) fn charge_list(&mut self, text: &str) -> Result<(), String> {
        for part in text.split(',') {
            if let Some((first, last)) = range(part) {
                let pcpus = last.saturating_sub(first).min(MAX_PCPU) as usize + 1;
                self.charge(pcpus)?;
            }
        }
        Ok(())
    }

    /// Reads a list: `0-3,8`. Blank is the empty set.
    pub(super) fn list(&mut self, text: &str) -> Result<PcpuSet, String> {
        let mut pcpus = PcpuSet::new();
        if text.trim().is_empty() {
            return Ok(pcpus);
        }
        for part in text.split(',') {
            let (first, last) = Some(part)
                .filter(|part| !part.contains(':'))
                .and_then(range)
                .filter(|(first, last)| first <= last && *last <= MAX_PCPU)
                .ok_or("Not a list of pCPUs like 0-3,8")?;
            self.charge((last - first) as usize + 1)?;
            pcpus.extend(first..=last);
        }
        Ok(pcpus)
    }

    /// Reads hwloc's masks: `0x000000ff` or `0x1,,0xffffffff`, 32 bits a
    /// group, highest first; an empty group is zero. Also lscpu's `-x`.
    pub(super) fn mask(&mut self, text: &str) -> Result<PcpuSet, String> {
        const WHY: &str = "Not a mask of pCPUs like 0x000000ff";
        let mut pcpus = PcpuSet::new();
        let groups: Vec<&str> = text.trim().split(',').collect();
        // Without commas a mask may be longer than 32 bits.
        let alone = groups.len() == 1;
        for (at, group) in groups.iter().rev().enumerate() {
            let digits = group.trim();
            let digits = digits.strip_prefix("0x").unwrap_or(digits);
            if !alone && digits.len() > 8 {
                return Err(WHY.into());
            }
            let mut first = u32::try_from(at).ok().and_then(|at| at.checked_mul(32)).ok_or(WHY)?;
            for digit in digits.chars().rev() {
                let bits = digit.to_digit(16).ok_or(WHY)?;
                for bit in (0..4).filter(|bit| bits >> bit & 1 == 1) {
                    if first + bit > MAX_PCPU {
                        return Err(format!("Names pCPUs above {MAX_PCPU}"));
                    }
                    self.charge(1)?;
                    pcpus.insert(first + bit);
                }
                first = first.saturating_add(4).min(MAX_PCPU + 1);
            }
        }
        Ok(pcpus)
    }
}

/// `3` or `0-3`.
fn range(part: &str) -> Option<(u32, u32)> {
    let part = part.trim();
    // A stride names no more than its range.
    let part = part.split_once(':').map_or(part, |(range, _)| range);
    match part.split_once('-') {
        Some((first, last)) => Some((number(first)?, number(last)?)),
        None => number(part).map(|only| (only, only)),
    }
}

/// Reads a decimal number, digits only.
pub(super) fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

/// Reads a pCPU's number.
pub(super) fn pcpu(text: &str) -> Option<u32> {
    number(text).filter(|id| *id <= MAX_PCPU)
}
