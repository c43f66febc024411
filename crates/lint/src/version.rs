//! Versions of Kubernetes and of kernels; those of KubeVirt are `placement`'s.

use std::fmt;
use std::str::FromStr;

/// `major.minor.patch`; a missing patch is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReleaseVersion(pub u32, pub u32, pub u32);

/// Error type of [`ReleaseVersion`]'s `from_str`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no version: write it like 1.36.0")]
pub struct ParseReleaseError(String);

impl FromStr for ReleaseVersion {
    type Err = ParseReleaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseReleaseError(text.to_owned());
        let bare = text.trim().trim_start_matches('v');
        // What follows a dash or a plus is a build's own.
        let bare = bare.split(['-', '+']).next().unwrap_or_default();
        let mut parts = bare.split('.').map(|part| part.parse::<u32>().map_err(|_| error()));
        let mut next = || parts.next().transpose();
        let (major, minor, patch) = (next()?, next()?, next()?);
        match (major, minor, next()?) {
            (Some(major), Some(minor), None) => Ok(Self(major, minor, patch.unwrap_or(0))),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for ReleaseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}
