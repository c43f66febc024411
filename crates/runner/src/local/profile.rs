//! `profile = true`: one more invocation behind a trial's runs, with perf beside it in
//! the guest and on the host. Nothing of it is measured, as perf takes time of its own;
//! what the benchmark says meanwhile tells how much.

use std::collections::BTreeMap;
use std::path::Path;

use guest::{Cancel, GuestCommand, thin};
use host::owner::Owner;
use host::perf::{self, GuestSymbols, Recording, Sampled};
use record::{Failure, FailureKind, FoldedStacks, ProfileSide, SideProfile};
use vmconfig::{Accel, Arch, VmSpec};

use super::exec_target::ExecTarget;
use super::role_guest::{MOMENT, RoleGuest};

/// Samples of a side that are aimed at, all processors together.
const SAMPLES: f64 = 6000.0;
/// As many a second and processor at most, so that perf takes little; and no multiple of
/// a tick.
const MOST_HZ: f64 = 199.0;
const LEAST_HZ: f64 = 11.0;

/// Bytes of printed samples that are read: what a guest's agent can say at once.
const MOST_BYTES: usize = 12 << 20;

/// perf's folder in the guest.
const GUEST_FOLDER: &str = "/tmp/vmlab-profile";

/// Samples a second and processor for an invocation of about so many seconds.
pub(super) fn frequency_hz(typical_s: f64, vcpus: u32) -> u32 {
    let all = SAMPLES / (typical_s * f64::from(vcpus)).max(1e-3);
    all.clamp(LEAST_HZ, MOST_HZ) as u32
}

/// Why a side is not profiled.
type NoProfile = String;

/// The outcome of each side, and the folded stacks of those that succeeded.
type ProfileResult = (Vec<SideProfile>, BTreeMap<ProfileSide, Vec<u8>>);

/// Both sides of a profile that is being taken.
#[derive(Debug)]
pub(super) struct Profiling {
    guest: Result<(), NoProfile>,
    host: Result<Recording, NoProfile>,
}

impl Profiling {
    /// Begins in `guest`, whose VM `spec` describes, and on the host; perf's files there lie
    /// in `folder`.
    ///
    /// # Errors
    /// Only if the trial is to end.
    pub(super) fn begin(
        guest: &mut RoleGuest,
        spec: &VmSpec,
        owner: &Owner,
        folder: &Path,
        frequency_hz: u32,
        cancel: &Cancel,
    ) -> Result<Self, Failure> {
        let place = folder.join("profile");
        let begin = |sampled: Sampled<'_>| {
            let is_cancelled = || cancel.is_cancelled();
            Recording::begin(owner, &place, sampled, frequency_hz, &is_cancelled)
                .map_err(|error| crate::host_settings::with_causes(&error))
        };
        let pid = guest.place.threads().map(|threads| threads.pid);
        let symbols = match (spec.accel, &guest.place) {
            (_, ExecTarget::Host(_) | ExecTarget::Hosted(_)) | (Accel::Tcg, _) => Ok(None),
            (Accel::Kvm, ExecTarget::Thin(_)) => thin_symbols(spec.arch).map(Some),
            (Accel::Kvm, ExecTarget::Vm(_)) => heard(symbols(guest, cancel))?.map(Some),
        };
        let host = match (&guest.place, pid, symbols) {
            (ExecTarget::Host(sandbox), ..) => begin(Sampled::Pcpus(sandbox.pcpus())),
            (_, Some(pid), Ok(symbols)) => begin(Sampled::Vm { pid, guest: symbols.as_ref() }),
            (_, _, Err(missing)) => Err(missing),
            (_, None, _) => Err("the VM runs elsewhere".to_owned()),
        };
        let is_linux = matches!(guest.place, ExecTarget::Vm(_));
        let guest = match is_linux {
            true => heard(begin_guest(guest, frequency_hz, cancel))?,
            false => Err("there is no guest with Linux, and so no perf in it".to_owned()),
        };
        Ok(Self { guest, host })
    }

    /// Ends it: what each side brought, and the folded stacks of those that did.
    ///
    /// # Errors
    /// Only if the trial is to end.
    pub(super) fn end(
        self,
        guest: &mut RoleGuest,
        owner: &Owner,
        cancel: &Cancel,
    ) -> Result<ProfileResult, Failure> {
        let host = self.host.and_then(|recording| {
            let ended = recording.end(owner, MOST_BYTES, &|| cancel.is_cancelled());
            ended.map_err(|error| crate::host_settings::with_causes(&error))
        });
        let guest = match self.guest {
            Ok(()) => heard(end_guest(guest, cancel))?,
            Err(missing) => Err(missing),
        };
        let mut texts = BTreeMap::new();
        let sides = [(ProfileSide::Guest, guest), (ProfileSide::Host, host)];
        let sides = sides.map(|(side, told)| {
            let (profile, text) = side_profile(side, told);
            texts.extend(text.map(|text| (side, text)));
            profile
        });
        Ok((sides.into(), texts))
    }
}

/// A side's profile from what it told: what was sampled, then samples.
fn side_profile(
    side: ProfileSide,
    told: Result<Vec<u8>, NoProfile>,
) -> (SideProfile, Option<Vec<u8>>) {
    let missing = |missing: NoProfile| SideProfile {
        side,
        event: None,
        samples: 0,
        cut: false,
        blob: None,
        missing: Some(missing),
    };
    let told = match told {
        Ok(told) => told,
        Err(why) => return (missing(why), None),
    };
    let cut = told.len() >= MOST_BYTES;
    let text = String::from_utf8_lossy(&told);
    let (event, samples) = text.split_once('\n').unwrap_or((&text, ""));
    let folded = FoldedStacks::from_perf_script(samples);
    if folded.samples() == 0 {
        return (missing("perf took no sample".to_owned()), None);
    }
    // `cycles:P`, `cpu-clock`
    let event = event.split(':').next().map(str::trim).filter(|name| !name.is_empty());
    let profile = SideProfile {
        side,
        event: event.map(str::to_owned),
        samples: folded.samples(),
        cut,
        blob: None,
        missing: None,
    };
    (profile, Some(folded.to_text().into_bytes()))
}

/// What a guest answered; a failure of its VM, or an interruption, ends the trial.
fn heard<T>(answer: Result<T, Failure>) -> Result<Result<T, NoProfile>, Failure> {
    match answer {
        Err(Failure {
            kind: FailureKind::WorkloadFailed | FailureKind::TimeLimit, detail, ..
        }) => Ok(Err(detail)),
        Err(failure) => Err(failure),
        Ok(value) => Ok(Ok(value)),
    }
}

fn begin_guest(guest: &mut RoleGuest, frequency_hz: u32, cancel: &Cancel) -> Result<(), Failure> {
    let data = format!("{GUEST_FOLDER}/{}", perf::DATA);
    let frequency_hz = frequency_hz.to_string();
    let script = ["sh", "-c", perf::BEGIN, "sh", GUEST_FOLDER];
    let record = ["perf", "record", "-a", "-g", "-q", "-F", &frequency_hz, "-o", &data];
    let words = script.into_iter().chain(record).chain(["--max-size", perf::MAX_SIZE]);
    guest.must("perf", words, MOMENT, cancel).map(drop)
}

fn end_guest(guest: &mut RoleGuest, cancel: &Cancel) -> Result<Vec<u8>, Failure> {
    guest.must("perf", ["sh", "-c", perf::END, "sh", GUEST_FOLDER], MOMENT, cancel)?;
    let data = format!("{GUEST_FOLDER}/{}", perf::DATA);
    let words = ["sh", "-c", perf::TELL, "sh", &data, &MOST_BYTES.to_string()];
    let mut command = GuestCommand::new(words, MOMENT);
    command.max_output_bytes = MOST_BYTES + 4096;
    let output = guest.exec(&command, cancel).map_err(|stopped| stopped.failure)?;
    Ok(output.stdout)
}

/// The symbols of the thin guest, which has no `/proc`, and none of its own.
fn thin_symbols(arch: Arch) -> Result<GuestSymbols, NoProfile> {
    let kallsyms =
        thin::symbols(arch).map_err(|error| crate::host_settings::with_causes(&error))?;
    Ok(GuestSymbols { kallsyms, modules: Vec::new() })
}

/// The symbols of the guest's kernel; none of one that hides them or has no `/proc`.
fn symbols(guest: &mut RoleGuest, cancel: &Cancel) -> Result<GuestSymbols, Failure> {
    if !matches!(guest.place, ExecTarget::Vm(_)) {
        return Ok(GuestSymbols::default());
    }
    let mut read = |script: &str| -> Result<Vec<u8>, Failure> {
        let mut command = GuestCommand::new(["sh", "-c", script], MOMENT);
        command.max_output_bytes = MOST_BYTES;
        let output = guest.exec(&command, cancel).map_err(|stopped| stopped.failure)?;
        Ok(output.stdout)
    };
    // Data has no samples, and is more than half of it.
    let kallsyms = read("grep -i ' [tw] ' /proc/kallsyms")?;
    Ok(GuestSymbols { kallsyms, modules: read("cat /proc/modules")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_invocations_are_sampled_less_often() {
        assert_eq!(frequency_hz(1.0, 1), 199);
        assert_eq!(frequency_hz(100.0, 2), 30);
        assert_eq!(frequency_hz(1e9, 64), 11);
        assert_eq!(frequency_hz(0.0, 0), 199);
    }

    #[test]
    fn what_a_side_told_is_folded_or_missing() {
        let told = b"cpu-clock:pppH: freq=99\nsh \n\t12 main\n\n".to_vec();
        let (profile, text) = side_profile(ProfileSide::Guest, Ok(told));
        assert_eq!((profile.event.as_deref(), profile.samples), (Some("cpu-clock"), 1));
        assert_eq!(text.unwrap(), b"sh;main 1\n");
        let (profile, text) = side_profile(ProfileSide::Host, Ok(b"cycles\n".to_vec()));
        assert_eq!(profile.missing.as_deref(), Some("perf took no sample"));
        assert_eq!(text, None);
    }
}
