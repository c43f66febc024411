//! Words that tell a tool's output.

use super::text::Cut;

/// Words that tell a tool's output.
pub(crate) struct Signature {
    pub(super) needle: &'static str,
    pub(super) place: SignPosition,
    pub(super) weight: u32,
    /// Printed once a run, by which runs are told apart.
    pub(super) opens: bool,
    /// Where the tool's reader knows nothing of the lines before.
    anew: bool,
    /// What else must hold for the line, without what surrounds it.
    pub(super) check: Option<fn(&str) -> bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SignPosition {
    /// The line begins with it.
    Start,
    /// Anywhere in a line.
    Within,
    /// In a JSON document, which begins before.
    Json,
}

/// A sign that no other tool prints.
pub(super) const STRONG: u32 = 10;
/// A sign that others may print too: it counts where nothing else does.
const WEAK: u32 = 1;

/// A line's beginning that this tool alone prints, once a run.
pub(crate) const fn opens(needle: &'static str) -> Signature {
    Signature {
        needle,
        place: SignPosition::Start,
        weight: STRONG,
        opens: true,
        anew: false,
        check: None,
    }
}

/// A line's beginning that this tool alone prints, any number of times.
pub(crate) const fn part(needle: &'static str) -> Signature {
    Signature { opens: false, ..opens(needle) }
}

/// A line's beginning that others print as well.
pub(crate) const fn hint(needle: &'static str) -> Signature {
    part(needle).weak()
}

/// A word of a JSON document that this tool alone prints, once a document.
pub(crate) const fn json(needle: &'static str) -> Signature {
    Signature { place: SignPosition::Json, ..opens(needle) }
}

/// A word of a JSON document that this tool alone prints, any number of times.
pub(crate) const fn json_part(needle: &'static str) -> Signature {
    Signature { place: SignPosition::Json, ..part(needle) }
}

impl Signature {
    /// The sign may stand anywhere in its line.
    pub(crate) const fn within(self) -> Self {
        Self { place: SignPosition::Within, ..self }
    }

    /// The sign only counts in a line for which `check` is true.
    pub(crate) const fn when(self, check: fn(&str) -> bool) -> Self {
        Self { check: Some(check), ..self }
    }

    /// Others print it as well.
    pub(crate) const fn weak(self) -> Self {
        Self { weight: WEAK, ..self }
    }

    /// At a line with the sign, the tool's reader forgets what it knows of the
    /// lines before: a run can be read in pieces that begin there.
    pub(crate) const fn anew(self) -> Self {
        Self { anew: true, ..self }
    }

    pub(super) fn begins_anew(&self) -> bool {
        self.anew
    }

    /// Whether a line, without what surrounds it, has the sign.
    pub(super) fn is_in(&self, line: &str) -> bool {
        let found = match self.place {
            SignPosition::Start => line.starts_with(self.needle),
            SignPosition::Within | SignPosition::Json => line.place(self.needle).is_some(),
        };
        found && self.check.is_none_or(|check| check(line))
    }
}
