//! KubeVirt's versions, and what changed between them.
//!
//! Code asks for an ability by name and never compares version numbers: fixes
//! were back-ported, so "0.44 or 0.45" says nothing. Every range below was read
//! in the tagged sources.

use std::fmt;
use std::str::FromStr;

/// A release of KubeVirt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubevirtVersion {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
    /// Patch number.
    pub patch: u32,
}

/// Something that KubeVirt does in some versions only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ability {
    /// Guest threads are placed on the threads of one host core (kubevirt#6251,
    /// back-ported); before, vCPU i simply got the i-th pCPU.
    PlacesByCore,
    /// CPU hot-plug: `maxSockets` adds sockets that are not enabled.
    SocketHotplug,
    /// The emulator thread gets a second pCPU to make the sum even, where the
    /// annotation asks for it.
    EvenParity,
    /// virt-handler drops sibling lists that libvirt writes as ranges.
    LosesSiblingRanges,
    /// The IOThread policy `supplementalPool` exists.
    SupplementalPool,
    /// The pod's parity counts the supplemental pool twice, virt-launcher's
    /// counts it at most once.
    ParityCountsPoolTwice,
    /// Any IOThread together with dedicated pCPUs crashes virt-launcher
    /// (kubevirt#16271): pins are made before the IOThreads are.
    IothreadsCrash,
    /// The pool's threads are pinned to pCPUs of the pod; before, to the
    /// numbers after the vCPU count, whatever they are (kubevirt#16996, back-ported by
    /// kubevirt#18653).
    PoolInsidePod,
    /// IOThreads are divided over the enabled vCPUs; before, over all that
    /// hot-plug could add.
    IothreadsOverEnabled,
    /// arm64 survives `maxSockets` with dedicated pCPUs (kubevirt#16395).
    HotplugOnArm,
    /// IOThreads that are wished for but not made are an error with a text.
    ReportsMissingIothreads,
    /// Pods with dedicated pCPUs ask for the node's label `kubevirt.io/cpumanager`;
    /// before, for `cpumanager`.
    LabelsWithDomain,
}

/// Half-open range of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubevirtRange {
    /// The first version.
    pub from: KubevirtVersion,
    /// One behind the last; none: still so.
    pub until: Option<KubevirtVersion>,
}

/// Where an ability is there.
struct AbilityRange {
    ability: Ability,
    range: KubevirtRange,
}

const fn version((major, minor, patch): (u32, u32, u32)) -> KubevirtVersion {
    KubevirtVersion::new(major, minor, patch)
}

const fn since(ability: Ability, from: (u32, u32, u32)) -> AbilityRange {
    AbilityRange { ability, range: KubevirtRange { from: version(from), until: None } }
}

const fn between(ability: Ability, from: (u32, u32, u32), until: (u32, u32, u32)) -> AbilityRange {
    let range = KubevirtRange { from: version(from), until: Some(version(until)) };
    AbilityRange { ability, range }
}

const ABILITIES: &[AbilityRange] = &[
    between(Ability::PlacesByCore, (0, 44, 2), (0, 45, 0)),
    since(Ability::PlacesByCore, (0, 45, 1)),
    since(Ability::SocketHotplug, (1, 0, 0)),
    since(Ability::EvenParity, (1, 2, 0)),
    since(Ability::LosesSiblingRanges, (1, 4, 0)),
    since(Ability::SupplementalPool, (1, 5, 0)),
    between(Ability::IothreadsCrash, (1, 5, 0), (1, 7, 5)),
    since(Ability::ParityCountsPoolTwice, (1, 6, 0)),
    since(Ability::ReportsMissingIothreads, (1, 8, 0)),
    since(Ability::LabelsWithDomain, (1, 8, 0)),
    since(Ability::PoolInsidePod, (1, 8, 5)),
    since(Ability::IothreadsOverEnabled, (1, 9, 0)),
    since(Ability::HotplugOnArm, (1, 9, 0)),
];

impl Ability {
    /// The versions that have it: the range of this number, counted from 0 in order of
    /// versions.
    ///
    /// # Panics
    /// If there are fewer: in a constant, so where that is compiled.
    pub const fn range(self, number: usize) -> KubevirtRange {
        let (mut row, mut seen) = (0, 0);
        while row < ABILITIES.len() {
            if ABILITIES[row].ability as u8 == self as u8 {
                if seen == number {
                    return ABILITIES[row].range;
                }
                seen += 1;
            }
            row += 1;
        }
        panic!("The ability has fewer ranges")
    }

    /// The first version that has it.
    pub const fn first(self) -> KubevirtVersion {
        self.range(0).from
    }
}

/// The newest release whose source was read.
pub const NEWEST_KNOWN: KubevirtVersion = KubevirtVersion::new(1, 9, 0);

impl KubevirtVersion {
    /// A release by its three numbers.
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Whether this release does something.
    pub fn can(self, ability: Ability) -> bool {
        ABILITIES
            .iter()
            .filter(|row| row.ability == ability)
            .any(|row| self >= row.range.from && row.range.until.is_none_or(|until| self < until))
    }

    /// Whether the release is newer than any whose source was read.
    pub fn is_unknown(self) -> bool {
        (self.major, self.minor) > (NEWEST_KNOWN.major, NEWEST_KNOWN.minor)
    }
}

impl fmt::Display for KubevirtVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}.{}", self.major, self.minor, self.patch))
    }
}

/// Error type for reading a [`KubevirtVersion`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Not a KubeVirt version: {0:?} (write all three numbers, as 1.9.0)")]
pub struct ParseVersionError(String);

/// `1.9.0` or `v1.9.0`. Two numbers are refused: 0.44.1 and 0.44.2 differ.
impl FromStr for KubevirtVersion {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseVersionError(text.into());
        let mut numbers = [0; 3];
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.');
        for number in &mut numbers {
            let part = parts.next().ok_or_else(error)?;
            if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(error());
            }
            *number = part.parse().map_err(|_| error())?;
        }
        if parts.next().is_some() {
            return Err(error());
        }
        let [major, minor, patch] = numbers;
        Ok(Self { major, minor, patch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn core_placement_follows_the_back_ports() {
        let by_core =
            |text: &str| text.parse::<KubevirtVersion>().expect(text).can(Ability::PlacesByCore);
        for old in ["0.30.0", "0.44.0", "0.44.1", "v0.45.0"] {
            assert!(!by_core(old), "{old}");
        }
        for new in ["0.44.2", "0.44.3", "0.45.1", "0.46.0", "0.59.0", "1.0.0", "v1.9.0", "1.12.3"] {
            assert!(by_core(new), "{new}");
        }
    }

    #[test]
    fn iothreads_crash_from_1_5_0_to_1_7_4() {
        let crashes =
            |text: &str| text.parse::<KubevirtVersion>().expect(text).can(Ability::IothreadsCrash);
        assert!(["1.5.0", "1.6.3", "1.7.0", "1.7.4"].into_iter().all(crashes));
        assert!(!["1.4.9", "1.7.5", "1.8.0", "1.9.0"].into_iter().any(crashes));
    }

    #[test]
    fn bad_versions_are_refused() {
        for bad in ["", "1", "0.44", "1.9.", "1.9.0.1", "1.9.0-rc.0", "+1.9.0", "1.9.99999999999"] {
            let error = bad.parse::<KubevirtVersion>().expect_err(bad).to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
    }
}
