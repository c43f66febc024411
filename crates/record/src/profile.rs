//! Where processors spent their time: stacks and how often each was met.
//!
//! Source: perf-record(1), perf-script(1); the folded form (a stack a line, its
//! frames from the outermost on, then how often it was met) is that of Brendan
//! Gregg's flame graphs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Sample;

/// Most different stacks that are kept; what is beyond counts as [`OTHERS`].
const MAX_STACKS: usize = 20_000;
/// Most frames of a stack; of a deeper one the outermost are kept.
const MAX_FRAMES: usize = 96;
/// Most characters of a frame's name: those of templates have thousands.
const MAX_NAME: usize = 160;

/// The frame that stands for all stacks beyond [`MAX_STACKS`].
const OTHERS: &str = "[other stacks]";

/// Who looked.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileSide {
    /// perf inside the guest: its kernel and its programs.
    Guest,
    /// perf on the host, on QEMU's process: the host's kernel, QEMU and, where KVM runs
    /// the guest, the guest's kernel as the host saw it.
    Host,
}

impl ProfileSide {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Guest, Self::Host];

    /// Its word in records and file names.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Guest => "guest",
            Self::Host => "host",
        }
    }
}

/// The invocation of a trial that was profiled. It is none of the trial's runs, as perf
/// takes time of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialProfile {
    /// What the benchmark said meanwhile: beside the trial's runs it tells what perf cost.
    pub samples: Vec<Sample>,
    /// Samples a second and processor that were asked for.
    pub frequency_hz: u32,
    /// What each side brought.
    pub sides: Vec<SideProfile>,
}

/// What one side of a trial's profile brought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SideProfile {
    /// Which side.
    pub side: ProfileSide,
    /// What was sampled: `cycles`, or `cpu-clock` where no counter of cycles is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Samples that were taken.
    pub samples: u64,
    /// True if not all that perf wrote was read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
    /// Hash of the folded stacks, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// Stacks, each with how often it was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoldedStacks(BTreeMap<Vec<String>, u64>);

impl FoldedStacks {
    /// Reads what `perf script -F comm,ip,sym` prints: for each sample a line with the
    /// command, a line for each frame from the innermost on, an empty line. A line that
    /// is neither is left out, as is a last sample without its empty line.
    #[must_use]
    pub fn from_perf_script(text: &str) -> Self {
        let mut folded = Self::default();
        let mut stack: Vec<String> = Vec::new();
        let mut command = None;
        for line in text.lines() {
            if line.trim().is_empty() {
                if let Some(command) = command.take() {
                    // The outermost first.
                    stack.push(command);
                    stack.reverse();
                    folded.add(std::mem::take(&mut stack), 1);
                }
                stack.clear();
            } else if line.starts_with([' ', '\t']) && command.is_some() {
                let frame = line.trim_start();
                let (address, name) = frame.split_once(' ').unwrap_or((frame, ""));
                if !address.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    continue;
                }
                stack.push(frame_name(name));
                // Of an endless stack the memory is bounded too; its inner end goes.
                if stack.len() > 4 * MAX_FRAMES {
                    stack.drain(..2 * MAX_FRAMES);
                }
            } else {
                command = Some(frame_name(line));
                stack.clear();
            }
        }
        folded
    }

    /// Reads [`Self::to_text`]; lines that are none of it are left out.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let mut folded = Self::default();
        for line in text.lines() {
            let Some((stack, count)) = line.rsplit_once(' ') else { continue };
            let Ok(count) = count.parse() else { continue };
            folded.add(stack.split(';').map(frame_name).collect(), count);
        }
        folded
    }

    /// The folded form: a stack a line.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (stack, count) in &self.0 {
            let _ = writeln!(text, "{} {count}", stack.join(";"));
        }
        text
    }

    fn add(&mut self, mut stack: Vec<String>, count: u64) {
        stack.truncate(MAX_FRAMES);
        let is_full = self.0.len() >= MAX_STACKS && !self.0.contains_key(&stack);
        let stack = if is_full { vec![OTHERS.to_owned()] } else { stack };
        let known = self.0.entry(stack).or_default();
        *known = known.saturating_add(count);
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.0.values().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The stacks, the outermost frame first.
    pub fn stacks(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.0.iter().map(|(stack, count)| (stack.as_slice(), *count))
    }
}

/// A frame's name without what parts frames, and not longer than is read.
fn frame_name(name: &str) -> String {
    let name = name.trim();
    if name.is_empty() {
        return "[unknown]".to_owned();
    }
    let shown = |c: char| if c == ';' || c.is_control() { ':' } else { c };
    name.chars().map(shown).take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "swapper \n\tffffffff8100 native_safe_halt\n\tffffffff8200 do_idle\n\n\
        perf bench; x\n\t  55d0 [unknown]\n\n\
        swapper \n\tffffffff8100 native_safe_halt\n\tffffffff8200 do_idle\n\n\
        cut\n\t12 half";

    #[test]
    fn samples_are_folded_from_the_outermost_frame_on() {
        let folded = FoldedStacks::from_perf_script(SCRIPT);
        let text = folded.to_text();
        assert_eq!(text, "perf bench: x;[unknown] 1\nswapper;do_idle;native_safe_halt 2\n");
        assert_eq!(folded.samples(), 3);
        assert_eq!(FoldedStacks::from_text(&text), folded);
    }

    #[test]
    fn what_has_no_end_is_bounded() {
        let deep = format!("a\n{}\n", "\t12 f\n".repeat(100_000));
        let folded = FoldedStacks::from_perf_script(&deep);
        assert!(folded.stacks().all(|(stack, _)| stack.len() <= MAX_FRAMES));
        assert_eq!(folded.samples(), 1);
        let wide: String = (0..3 * MAX_STACKS).map(|i| format!("a\n\t12 f{i}\n\n")).collect();
        let folded = FoldedStacks::from_perf_script(&wide);
        assert_eq!(folded.stacks().count(), MAX_STACKS + 1);
        assert_eq!(folded.samples(), 3 * MAX_STACKS as u64);
        let long = FoldedStacks::from_perf_script(&format!("a\n\t12 {}\n\n", "x".repeat(10_000)));
        assert!(long.to_text().len() < 200);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(text in "(?s).{0,400}") {
            let folded = FoldedStacks::from_perf_script(&text);
            proptest::prop_assert_eq!(FoldedStacks::from_text(&folded.to_text()), folded);
            let _ = FoldedStacks::from_text(&text);
        }
    }
}
