//! What the tests of all crates share: the tiers of the suite, turns on this
//! machine, skipping, and waiting for conditions. Only tests depend on it.
//!
//! What it prints at the beginning of a line (`SKIP: `, `PART: `, `QUEUE: `,
//! `TURN: `, `WAIT: `) is what `scripts/run-tests` reads.

mod libvirt;
mod turn;

use std::env;
use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

pub use libvirt::{beside_libvirtd, libvirts_cases};
pub use turn::{SharedThing, Turn};

/// The variable that names the tier to run: `fast` (also where it is not set),
/// `test` or `full`.
pub const TIER: &str = "VMLAB_TEST_TIER";

/// How long any condition may take to come true, on a machine that has a lot
/// else to do. The only scale of the suite's time limits: what a test waits for
/// is an event, and this only ends a wait for one that never comes.
pub const PATIENCE: Duration = Duration::from_secs(600);

/// How much of the suite runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// No VM, nothing that takes longer than a second or two.
    Fast,
    /// What holds on main: real VMs, each kind of target once.
    Test,
    /// Everything, also what takes long.
    Full,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Test => "test",
            Self::Full => "full",
        })
    }
}

impl Tier {
    /// The tier that is run.
    ///
    /// # Panics
    /// If [`TIER`] is none of the three words.
    #[must_use]
    pub fn run() -> Self {
        match env::var(TIER).as_deref() {
            Err(env::VarError::NotPresent) | Ok("" | "fast") => Self::Fast,
            Ok("test") => Self::Test,
            Ok("full") => Self::Full,
            other => panic!("{TIER} is {other:?}, not fast, test or full"),
        }
    }

    /// How long a test of this tier may run once it has its turn.
    #[must_use]
    pub fn limit(self) -> Duration {
        PATIENCE
            * match self {
                Self::Fast => 1,
                Self::Test => 3,
                Self::Full => 12,
            }
    }
}

/// What a test needs of this machine.
#[derive(Debug, Clone)]
#[must_use = "ask for a turn"]
pub struct Needs {
    tier: Tier,
    pcpus: usize,
    alone_with: Vec<SharedThing>,
}

/// What a test of `tier` needs: no pCPU to speak of, and nothing for itself.
pub fn needs(tier: Tier) -> Needs {
    Needs { tier, pcpus: 0, alone_with: Vec::new() }
}

impl Needs {
    /// As many pCPUs at once, with a gibibyte of memory each. It gets all that
    /// this machine has if that is less.
    pub fn pcpus(mut self, pcpus: usize) -> Self {
        self.pcpus = pcpus;
        self
    }

    /// Something of this machine that no other test may use meanwhile.
    pub fn alone_with(mut self, shared: SharedThing) -> Self {
        self.alone_with.push(shared);
        self
    }

    /// Waits until there is as much; none where the tier is not run, which it says.
    #[must_use]
    pub fn turn(self) -> Option<Turn> {
        if Tier::run() < self.tier {
            skip(format!("only in the tier {0} (`make {0}`)", self.tier));
            return None;
        }
        println!("QUEUE: {}", name());
        let turn = Turn::wait(self.pcpus, self.alone_with);
        println!("TURN: {}", self.tier.limit().as_secs());
        Some(turn)
    }
}

/// The name of the test that calls it.
fn name() -> String {
    thread::current().name().unwrap_or("a test").to_owned()
}

/// Says that the test that calls it can't be made here, and why. It returns then.
pub fn skip(why: impl fmt::Display) {
    println!("SKIP: {}: {}", name(), line(why));
}

/// Says that a part of the test can't be made here, and why; the others are.
pub fn skip_part(part: &str, why: impl fmt::Display) {
    println!("PART: {}: {part}: {}", name(), line(why));
}

fn line(why: impl fmt::Display) -> String {
    why.to_string().trim().replace('\n', " ")
}

/// Polls until `condition` gives something.
///
/// # Panics
/// After [`PATIENCE`].
#[track_caller]
pub fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    println!("WAIT: {}: {what}", name());
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_ordered_by_what_they_hold() {
        assert!(Tier::Fast < Tier::Test && Tier::Test < Tier::Full);
        let names = [Tier::Fast, Tier::Test, Tier::Full].map(|tier| tier.to_string());
        assert_eq!(names, ["fast", "test", "full"]);
    }

    #[test]
    fn a_test_knows_its_name() {
        assert!(["tests::a_test_knows_its_name", "main"].contains(&name().as_str()));
    }

    #[test]
    fn what_is_true_is_not_waited_for() {
        let mut asked = 0;
        let three = until("three", || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(three, 3);
    }
}
