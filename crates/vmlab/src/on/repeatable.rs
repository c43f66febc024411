//! `--deterministic`: the far side in a host that nobody reaches while it runs.
//!
//! It is told everything before it begins, and what it tells is followed in a file
//! ([`replica::RepeatableHost`]). So nothing of this machine reaches it, not even the
//! time that an answer takes.

use std::path::{Component, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use guest::image::{self, GuestImage, Recipe};
use guest::qemu::{Qemu, find_emulator};
use replica::{Programs, RepeatableHost, RunningRepeatableHost};
use runner::study::Study;
use vmconfig::Arch;
use workload::GuestFacts;

use super::messages::{FarRequest, GREETING, to_frame};
use super::place::OnTarget;
use super::{Decoder, FarOutput, FarSide, OnArgs, TURN, binary};
use crate::interrupt::Interrupts;
use crate::progress::Spinner;
use crate::study_file::{BudgetArgs, StudyText};

/// The host's image.
const IMAGE: &str = "host-debian-12";

/// The seed of a study that names none.
const SEED: u64 = 1;

/// How long the host may take until vmlab speaks in it, and then be silent beside what an
/// invocation may take. It takes half a minute to come up where nothing else runs.
const SILENCE_LIMIT: Duration = Duration::from_secs(1800);

/// A second of the host's clock takes about five where guests compute, and more where they
/// wait by PAUSE, at each of which the emulator leaves its loop.
const SECONDS_PER_CLOCK_SECOND: f64 = 10.0;

/// Starts a host whose far side makes the plan of a study, and runs it if `run`.
pub(super) fn talk<'i>(
    on: &OnArgs,
    written: &StudyText,
    budget: &BudgetArgs,
    run: bool,
    interrupts: &'i Interrupts,
) -> anyhow::Result<FarSide<'i>> {
    if !matches!(on.on, Some(OnTarget::Replica(None))) {
        bail!("--deterministic brings up a host of its own: write --on replica");
    }
    let study = written.parse(budget)?;
    if let Some(other) = study.arch.filter(|other| *other != Arch::X86_64) {
        bail!("--deterministic has x86_64 hosts only, and {} is for {other}", written.file);
    }
    let asked = asked(written, &study, budget, run);
    let images = super::files::builtin_images(&study, &written.folder, Arch::X86_64)?;
    let limit = SILENCE_LIMIT.saturating_add(longest_silence(&study));
    start(on, &images, &asked, &beside(written, &study)?, limit, interrupts)
}

/// How long a boot, or an invocation, of the study may be silent at the most.
fn longest_silence(study: &Study) -> Duration {
    // With one vCPU all takes longest; its guests run under the host's KVM.
    let facts = GuestFacts::alone(1, false);
    let limits = study.workloads.iter().map(|workload| runner::freeze::limit_s(workload, &facts));
    let clock_s = limits.fold(study.budget.boot_limit_s, f64::max);
    Duration::try_from_secs_f64(clock_s * SECONDS_PER_CLOCK_SECOND).unwrap_or(Duration::MAX)
}

/// The price list that the vmlab in such a host measures as `words` say.
pub(super) fn calibration(
    on: &OnArgs,
    words: Vec<String>,
    interrupts: &Interrupts,
) -> anyhow::Result<Vec<u8>> {
    let mut asked = to_frame(&FarRequest::Calibrate { words }, b"").encode();
    asked.extend(to_frame(&FarRequest::Alone, b"").encode());
    let mut talk = start(on, &[], &asked, &[], SILENCE_LIMIT, interrupts)?;
    let list = talk.calibration()?;
    talk.end()?;
    Ok(list)
}

/// Starts a host with guests' `images` in which the far side is asked `asked`, and may be
/// silent for `silence_limit`.
fn start<'i>(
    on: &OnArgs,
    images: &[Recipe],
    asked: &[u8],
    beside: &[(PathBuf, PathBuf)],
    silence_limit: Duration,
    interrupts: &'i Interrupts,
) -> anyhow::Result<FarSide<'i>> {
    let arch = Arch::X86_64;
    let vmlab = binary::choose(arch, on.remote_binary.as_deref())?;
    let probe = runner::probe::find(arch)?;
    let spinner = Spinner::start();
    let built = |recipe: &Recipe| -> anyhow::Result<GuestImage> {
        let mut observe = |step| spinner.say(&runner::machine::build_step(&recipe.name, &step));
        image::build(recipe, &mut observe, &interrupts.end)
            .with_context(|| format!("Cannot build the image {}", recipe.name))
    };
    let host = built(&Recipe::host(IMAGE, arch)?)?;
    let guests = images.iter().map(built).collect::<anyhow::Result<Vec<_>>>()?;
    spinner.say("starting the deterministic host");
    // The list, or the host of the results, names it: counts are those of one emulator.
    let qemu = find_emulator(arch)?;
    let repeatable = RepeatableHost {
        qemu: &qemu,
        image: &host,
        guests: &guests,
        programs: Programs { vmlab: &vmlab, probe: &probe },
        asked,
        beside,
    };
    let far = FollowedRun {
        host: repeatable.start()?,
        interrupts: interrupts.clone(),
        silence: Silence { heard: Instant::now(), spoke: false, limit: silence_limit },
        qemu,
    };
    Ok(FarSide {
        far: Box::new(far),
        asked: std::sync::mpsc::channel().0,
        warnings: std::sync::mpsc::channel().1,
        decoder: Decoder::behind(GREETING),
        interrupts,
        is_told_to_end: false,
    })
}

/// All that the far side is ever asked.
fn asked(written: &StudyText, study: &Study, budget: &BudgetArgs, run: bool) -> Vec<u8> {
    let mut budget = budget.clone();
    if study.seed.is_none() {
        budget.seed_if_none(SEED);
    }
    let folder = PathBuf::from(RepeatableHost::STUDY_FOLDER);
    // Where the study lies here would make the results this machine's.
    let file = written.file.rsplit('/').next().unwrap_or(&written.file).to_owned();
    let plan = FarRequest::Plan { file, folder, budget, libvirt: None, run };
    let mut frames = to_frame(&plan, written.text.as_bytes()).encode();
    frames.extend(to_frame(&FarRequest::Alone, b"").encode());
    frames.extend(to_frame(&FarRequest::Go, b"").encode());
    frames
}

/// The disk images, and packages of kernels, that lie beside the study.
fn beside(written: &StudyText, study: &Study) -> anyhow::Result<Vec<(PathBuf, PathBuf)>> {
    let mut beside = Vec::new();
    for path in super::files::image_files(study) {
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            bail!(
                "{}: the image {} does not lie below the study's folder, and the deterministic host has no other files: move it there",
                written.file,
                path.display()
            );
        }
        beside.push((path.clone(), written.folder.join(path)));
    }
    Ok(beside)
}

/// A far side whose words are followed in a file.
struct FollowedRun {
    host: RunningRepeatableHost,
    interrupts: Interrupts,
    silence: Silence,
    qemu: Qemu,
}

/// Since when the host has said nothing.
struct Silence {
    /// When it last said something, or began.
    heard: Instant,
    spoke: bool,
    limit: Duration,
}

impl Silence {
    /// The host says something.
    fn ends(&mut self, now: Instant) {
        (self.heard, self.spoke) = (now, true);
    }

    /// What a host is said to be that is silent for too long.
    fn is_too_long(&self, now: Instant, qemu: &Qemu) -> Option<String> {
        if now.saturating_duration_since(self.heard) <= self.limit {
            return None;
        }
        let limit_s = self.limit.as_secs();
        if !self.spoke {
            return Some(format!("The deterministic host did not come up within {limit_s} s"));
        }
        let hint = match qemu.is_mended() {
            true => "",
            false => {
                ". Its emulator has faults that hang guests, in a deterministic host each time at the same instruction: scripts/build-qemu builds one without (docs/replica.md)"
            }
        };
        Some(format!("The deterministic host has told nothing for {limit_s} s and runs on{hint}"))
    }
}

impl FarOutput for FollowedRun {
    fn read(
        &mut self,
        buffer: &mut [u8],
        _quit: &(dyn Fn() -> bool + Sync),
    ) -> anyhow::Result<Option<usize>> {
        if self.interrupts.end.is_cancelled() {
            bail!("Interrupted: a deterministic study begins anew, it can't go on");
        }
        // What it told before its end is read after it.
        let ended = self.host.has_ended()?;
        match self.host.read(buffer)? {
            0 if ended => Ok(Some(0)),
            0 => {
                if let Some(what) = self.silence.is_too_long(Instant::now(), &self.qemu) {
                    bail!("{what}; the end of its console:\n{}", self.host.last_words());
                }
                // A file tells nobody when it grows.
                std::thread::sleep(TURN);
                Ok(None)
            }
            length => {
                self.silence.ends(Instant::now());
                Ok(Some(length))
            }
        }
    }

    fn ended_early(&mut self, _quit: &(dyn Fn() -> bool + Sync)) -> anyhow::Error {
        anyhow!(
            "The deterministic host ended without a last word; the end of its console:\n{}",
            self.host.last_words()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_tells_nothing_is_not_waited_for() {
        let qemu = |version: &str| Qemu {
            path: PathBuf::from("/usr/bin/qemu-system-x86_64"),
            version_text: version.to_owned(),
            capabilities: vmconfig::qemu::Capabilities::oldest(),
            accelerators: Vec::new(),
        };
        let (old, mended) = (
            qemu("QEMU emulator version 7.2.22"),
            qemu("QEMU emulator version 7.2.22 (mended for vmlab replicas, 7 changes)"),
        );
        let began = Instant::now();
        let after = |seconds: u64| began + Duration::from_secs(seconds);
        let limit = Duration::from_secs(100);
        let mut silence = Silence { heard: began, spoke: false, limit };
        assert_eq!(silence.is_too_long(after(100), &old), None);
        let said = silence.is_too_long(after(101), &old).unwrap();
        assert!(said.contains("did not come up within 100 s"), "{said}");
        // What it says counts anew.
        silence.ends(after(90));
        assert_eq!(silence.is_too_long(after(190), &old), None);
        let said = silence.is_too_long(after(191), &old).unwrap();
        assert!(said.contains("told nothing for 100 s") && said.contains("build-qemu"), "{said}");
        let said = silence.is_too_long(after(191), &mended).unwrap();
        assert!(!said.contains("build-qemu"), "{said}");
    }
}
