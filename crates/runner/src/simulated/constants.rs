//! The simulator's constants from measurements of a machine, instead of its priors.

use host::micro::{MeasuredTime, MicroBenchmarks};
use sim::costs::{MeasuredConstant, PRIORS};

use crate::calibration::Calibration;

/// Error type for [`of_prices`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NoConstants {
    /// Emulated time is no cost.
    #[error("{0}: what things cost can't be taken from it")]
    Emulated(String),
    /// The prices are no times.
    #[error("The prices are {0}, and how long one takes is not known")]
    NoTime(&'static str),
    /// None of the operations that constants come from was measured.
    #[error(
        "It has the price of no CPUID, nor of an IPI or a spinning round trip: measure with `vmlab calibrate --all`"
    )]
    Nothing,
}

/// The median of a prior.
fn median_of(name: &str) -> f64 {
    PRIORS.iter().find(|prior| prior.name == name).map_or(0.0, |prior| prior.median)
}

fn measured(name: &'static str, of: MeasuredTime) -> MeasuredConstant {
    // What is not above zero can't be drawn from.
    let floor = |value: f64| value.max(1.0);
    MeasuredConstant { name, low: floor(of.low), median: floor(of.median), high: floor(of.high) }
}

/// Constants from a price list of `vmlab calibrate`.
///
/// An exit and an entry are half of a CPUID each. An IPI to a vCPU that spins takes the
/// sender's exit and entry, the host's work, the way and the handler. One to a halted
/// vCPU takes the pCPU's wake-up more.
///
/// # Errors
/// [`NoConstants`].
pub fn of_prices(list: &Calibration) -> Result<Vec<MeasuredConstant>, NoConstants> {
    if list.environment.is_emulated_time() || list.is_software_kvm() {
        let sentence = list.environment_sentence().trim_end_matches('.').to_owned();
        return Err(NoConstants::Emulated(sentence));
    }
    if list.ns_of_count().is_none() {
        return Err(NoConstants::NoTime(list.count.name()));
    }
    let spread = |operation: &str| {
        let (centre, interval) = list.estimate_ns(list.price(operation)?)?;
        // One boot tells nothing of boots: a tenth either way.
        let (low, high) = interval.map_or((0.9 * centre, 1.1 * centre), |it| (it.lo, it.hi));
        Some(MeasuredTime { low, median: centre, high })
    };
    let mut constants = Vec::new();
    let cpuid = spread("cpuid");
    if let Some(cpuid) = cpuid {
        let half = cpuid.map(|ns| ns / 2.0);
        constants.extend([measured("exit_ns", half), measured("entry_ns", half)]);
    }
    if let Some(trip) = spread("sem-spin") {
        constants.push(measured("handoff_ns", trip.map(|ns| ns / 2.0)));
    }
    let ipi = spread("ipi-spin");
    if let (Some(ipi), Some(cpuid)) = (ipi, cpuid) {
        let rest = cpuid.median + median_of("resched_ipi_ns") + median_of("irq_ns");
        constants.push(measured("ipi_exit_work_ns", ipi.map(|ns| ns - rest)));
    }
    if let (Some(halted), Some(ipi)) = (spread("ipi-halt"), ipi) {
        let rest = ipi.median + median_of("switch_ns") + median_of("sched_hold_ns");
        // It slept for as long as the other needed: what is said of longer sleeps stays.
        constants.push(measured("idle_wake_short_ns", halted.map(|ns| ns - rest)));
    }
    if constants.is_empty() { Err(NoConstants::Nothing) } else { Ok(constants) }
}

/// Whether the two pCPUs slow each other as threads of one core do.
#[must_use]
pub fn share_a_core(found: &MicroBenchmarks) -> bool {
    /// What two cores of one package cost each other is less.
    const APART: f64 = 0.85;
    found.beside_work.median < APART
}

/// Constants from [`host::micro::measure`]: a remote cache line is half of a hand-over
/// (there and back is two), waking and switching share what both take.
#[must_use]
pub fn of_micro(found: &MicroBenchmarks) -> Vec<MeasuredConstant> {
    let half = |of: MeasuredTime| of.map(|ns| ns / 2.0);
    let own = found.wake_and_switch;
    // Who is idle waits for a line.
    let rest = own.median + found.handoff.median;
    let factor = |name, of: MeasuredTime| {
        let MeasuredTime { low, median, high } = of;
        MeasuredConstant { name, low, median, high }
    };
    let mut constants = vec![
        measured("handoff_ns", found.handoff),
        measured("check_ns", half(found.handoff)),
        measured("lock_transfer_ns", half(found.handoff)),
        measured("guest_wake_ns", half(own)),
        measured("guest_switch_ns", half(own)),
        measured("idle_wake_ns", found.wake_idle.map(|ns| ns - rest)),
        measured("idle_wake_short_ns", found.wake_idle.map(|ns| ns - rest)),
    ];
    if share_a_core(found) {
        constants.push(factor("smt_compute_factor", found.beside_work));
        constants.push(factor("smt_spin_factor", found.beside_spin));
    }
    constants
}

/// What of a measurement can be believed: of a constant that is far from all that is known
/// of it something else was measured, such as who else ran. Where others had a part of the
/// pCPUs (`is_disturbed`), what is outside of what is known is no constant of the machine.
///
/// Gives what is taken, and a sentence for each that is not.
#[must_use]
pub fn believed(
    constants: Vec<MeasuredConstant>,
    is_disturbed: bool,
) -> (Vec<MeasuredConstant>, Vec<String>) {
    /// A quiet machine's may be so many times beyond.
    const QUIET: f64 = 4.0;
    let beyond = if is_disturbed { 1.0 } else { QUIET };
    let mut doubts = Vec::new();
    let mut taken = constants;
    taken.retain(|known| {
        let Some(prior) = PRIORS.iter().find(|prior| prior.name == known.name) else { return true };
        let range = prior.low / beyond..=prior.high * beyond;
        let believed = range.contains(&known.median);
        if !believed {
            doubts.push(format!(
                "{} was measured as {:.3}, and is known as {} .. {}: not taken",
                known.name, known.median, prior.low, prior.high
            ));
        }
        believed
    });
    (taken, doubts)
}

#[cfg(test)]
mod tests {
    use record::Environment;

    use super::*;
    use crate::calibration::tests::{list, price};

    fn found(constants: &[MeasuredConstant], name: &str) -> f64 {
        constants.iter().find(|known| known.name == name).map_or(f64::NAN, |known| known.median)
    }

    #[test]
    fn prices_become_constants() {
        // 2 GHz: 4000 cycles are 2 us.
        let all = list(vec![
            price("nothing", 10, &[(0.0, &[]), (0.0, &[])]),
            price("cpuid", 10, &[(4_000.0, &[("exits", 10.0)]), (4_000.0, &[("exits", 10.0)])]),
            price("ipi-spin", 10, &[(10_000.0, &[]), (10_000.0, &[])]),
            price("sem-spin", 10, &[(400.0, &[]), (400.0, &[])]),
        ]);
        let constants = of_prices(&all).unwrap();
        let near = |name: &str, expected: f64| {
            let value = found(&constants, name);
            assert!((value / expected - 1.0).abs() < 0.01, "{name}: {value}");
        };
        near("exit_ns", 1_000.0);
        near("handoff_ns", 100.0);
        near("ipi_exit_work_ns", 5_000.0 - 2_000.0 - 1_000.0 - 1_000.0);
        for known in &constants {
            assert!(PRIORS.iter().any(|prior| prior.name == known.name), "{known:?}");
        }
    }

    #[test]
    fn what_others_took_is_no_cost() {
        let of = |name, median| measured(name, MeasuredTime { low: median, median, high: median });
        let all = |handoff| vec![of("handoff_ns", handoff), of("guest_wake_ns", 1_500.0)];
        let names = |constants: &[MeasuredConstant]| {
            constants.iter().map(|known| known.name).collect::<Vec<_>>()
        };
        // 60 to 250 ns are known. A hand-over between sockets takes longer; 4 us are turns.
        for (handoff, is_disturbed, expected) in [
            (120.0, false, true),
            (120.0, true, true),
            (600.0, false, true),
            (600.0, true, false),
            (4_432.0, false, false),
            (4_432.0, true, false),
        ] {
            let (taken, doubts) = believed(all(handoff), is_disturbed);
            assert_eq!(names(&taken).contains(&"handoff_ns"), expected, "{handoff} {is_disturbed}");
            assert!(names(&taken).contains(&"guest_wake_ns"));
            assert_eq!(doubts.len(), usize::from(!expected), "{doubts:?}");
        }
        let (_, doubts) = believed(all(4_432.0), false);
        let told = "handoff_ns was measured as 4432.000, and is known as 60 .. 250: not taken";
        assert_eq!(doubts, [told]);
    }

    #[test]
    fn emulated_time_is_no_cost() {
        let mut all = list(vec![price("cpuid", 10, &[(4_000.0, &[])])]);
        all.environment = Environment::Tcg;
        assert!(matches!(of_prices(&all), Err(NoConstants::Emulated(_))));
        all.environment = Environment::Kvm;
        all.prices.clear();
        assert_eq!(of_prices(&all), Err(NoConstants::Nothing));
    }
}
