//! What a trial found of `cpu_pm`, and the words for it in the journal: written and read
//! here alone.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Failure, FailureCause, FailureKind};

/// The fact that tells of it, and the one with what shows it.
const FACT: &str = "cpu_pm";
const EVIDENCE: &str = "cpu_pm.evidence";

/// How the facts begin.
const IN_FORCE: &str = "in force";
const NOT_PROVEN: &str = "not proven";
const NOT_IN_FORCE: &str = "not in force";

/// What a trial found of `cpu_pm`, which its VM was to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuPmFinding {
    /// The guest idled without an exit.
    InForce {
        /// What shows it.
        evidence: String,
    },
    /// Nothing shows whether it is in force.
    NotProven {
        /// Why not.
        why: String,
    },
    /// Nobody looks at it here.
    NotInForce {
        /// Who does not.
        why: String,
    },
}

impl CpuPmFinding {
    /// From the facts of a trial; none if `cpu_pm` was not asked for.
    #[must_use]
    pub fn read(facts: &BTreeMap<String, String>) -> Option<Self> {
        let fact = facts.get(FACT)?;
        let after = |begin: &str| {
            let rest = fact.strip_prefix(begin)?;
            Some(rest.trim_start_matches(": ").to_owned())
        };
        if let Some(why) = after(NOT_PROVEN) {
            return Some(Self::NotProven { why });
        }
        if let Some(why) = after(NOT_IN_FORCE) {
            return Some(Self::NotInForce { why });
        }
        if fact != IN_FORCE {
            // A later version's word, which proves nothing to this one.
            return Some(Self::NotProven { why: fact.clone() });
        }
        Some(Self::InForce { evidence: facts.get(EVIDENCE).cloned().unwrap_or_default() })
    }

    /// Puts it among the facts of a trial.
    pub fn write(&self, facts: &mut BTreeMap<String, String>) {
        facts.insert(FACT.to_owned(), self.to_string());
        match self {
            Self::InForce { evidence } => facts.insert(EVIDENCE.to_owned(), evidence.clone()),
            Self::NotProven { .. } | Self::NotInForce { .. } => facts.remove(EVIDENCE),
        };
    }

    /// True for the facts that [`Self::read`] reads.
    #[must_use]
    pub fn is_told_by(fact: &str) -> bool {
        fact == FACT || fact == EVIDENCE
    }

    /// True unless it is shown to be in force.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        !matches!(self, Self::InForce { .. })
    }
}

impl fmt::Display for CpuPmFinding {
    /// The fact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InForce { .. } => f.write_str(IN_FORCE),
            Self::NotProven { why } => write!(f, "{NOT_PROVEN}: {why}"),
            Self::NotInForce { why } => write!(f, "{NOT_IN_FORCE}: {why}"),
        }
    }
}

/// How the detail of a failure begins by which a VM has no `cpu_pm`.
const DEVIATION: &str = "cpu_pm is not in force: ";
const SAID: &str = "QEMU said ";

/// What shows that a VM has no `cpu_pm`, though its trial claims so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CpuPmDeviation {
    /// KVM refused, QEMU said so and went on.
    Refused {
        /// QEMU's line, quoted.
        said: String,
    },
    /// Nobody said so.
    Halts {
        /// What was counted.
        evidence: String,
    },
}

impl CpuPmDeviation {
    /// KVM refused, by what QEMU printed.
    #[must_use]
    pub fn refused(line: &str) -> Self {
        Self::Refused { said: format!("{line:?}") }
    }

    /// As a trial's failure.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let cause = match self {
            Self::Refused { .. } => FailureCause::CpuPmRefusedByKvm,
            Self::Halts { .. } => FailureCause::CpuPmIgnored,
        };
        let failure = Failure::new(FailureKind::NotAsClaimed, self.to_string());
        Failure { cause: Some(cause), ..failure }
    }
}

impl fmt::Display for CpuPmDeviation {
    /// The failure's detail.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { said } => write!(f, "{DEVIATION}{SAID}{said}"),
            Self::Halts { evidence } => write!(f, "{DEVIATION}{evidence}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = |text: &str| text.to_owned();
        for finding in [
            CpuPmFinding::InForce { evidence: text("no halt exit in 6.0 s of idle vCPUs") },
            CpuPmFinding::NotProven { why: text("the guest never idled") },
            CpuPmFinding::NotInForce { why: text("tcg does not know it") },
        ] {
            let mut facts = BTreeMap::from([(text("guest.thp"), text("madvise"))]);
            finding.write(&mut facts);
            assert_eq!(CpuPmFinding::read(&facts), Some(finding));
        }
        assert_eq!(CpuPmFinding::read(&BTreeMap::new()), None);
    }

    #[test]
    fn causes_are_kept_and_found_in_the_words_of_earlier_versions() {
        let evidence = "3 halt exits".to_owned();
        for deviation in [
            CpuPmDeviation::refused("kvm: guest stopping CPU not supported"),
            CpuPmDeviation::Halts { evidence },
        ] {
            let failure = deviation.failure().within("server");
            assert!(failure.cause.is_some());
            let earlier = Failure { cause: None, ..failure.clone() };
            assert_eq!(earlier.cause(), failure.cause());
            let json = serde_json::to_string(&earlier).unwrap();
            assert_eq!(serde_json::from_str::<Failure>(&json).unwrap(), earlier);
        }
        let other = Failure::new(FailureKind::NotAsClaimed, "kvmclock: asked for on, it is off");
        assert_eq!(other.cause(), None);
        let later = r#"{"kind": "vm-died", "detail": "", "cause": "what-a-later-one-knows"}"#;
        let later: Failure = serde_json::from_str(later).unwrap();
        assert_eq!(later.cause(), Some(FailureCause::Other));
    }

    #[test]
    fn journals_of_earlier_versions_are_read() {
        let read =
            |fact: &str| CpuPmFinding::read(&[("cpu_pm".to_owned(), fact.to_owned())].into());
        let why = "no run".to_owned();
        assert_eq!(read("not proven: no run"), Some(CpuPmFinding::NotProven { why }));
        assert_eq!(read("not proven"), Some(CpuPmFinding::NotProven { why: String::new() }));
        assert_eq!(read("in force"), Some(CpuPmFinding::InForce { evidence: String::new() }));
    }
}
