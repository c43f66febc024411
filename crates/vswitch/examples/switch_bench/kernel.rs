//! The kernel's own bridge, between tap devices and between pairs of veth.

use std::process::Command;

use vswitch::frontend::{FrontendOptions, Touch, TrafficPlan};

use crate::machine::Distance;
use crate::peers::{Kind, Peer};
use crate::rows::{self, verdict};
use crate::trial::{DropCounts, Figure, Judge, UnusableTrial, again};

/// What each is to be faster by.
const GOAL: f64 = 30.0;

/// Compares 64 B one way. False if the kernel's bridge could not be measured.
pub(crate) fn compare(
    script: &str,
    rounds: usize,
    peers: &mut [Peer],
    judge: &mut Judge,
    dropped: &mut DropCounts,
) -> bool {
    let Some(ours) = peers.iter_mut().find(|peer| peer.kind == Kind::Ours) else { return false };
    let plan = TrafficPlan { touch: Touch::All, ..rows::all().swap_remove(0).plan };
    let mut fine = true;
    for way in ["tap", "veth"] {
        let mut all = Vec::new();
        for _ in 0..rounds {
            let both = again(dropped, || {
                let theirs = bridge(script, way, judge).map_err(UnusableTrial::Failed)?;
                let measured =
                    judge.trial(ours, FrontendOptions::default(), &plan, 2, Figure::Rate)?;
                Ok((measured.distance, measured.value, theirs))
            });
            match both {
                Ok(both) => all.extend(both),
                Err(error) => {
                    eprintln!("switch_bench: no Linux bridge to compare with ({way}): {error}");
                    fine = false;
                    break;
                }
            }
        }
        if all.is_empty() && fine {
            println!("64 B, Linux bridge, {way}: no trial could be kept");
        }
        for distance in [Distance::Near, Distance::Far] {
            let of: Vec<[f64; 2]> = all
                .iter()
                .filter(|(found, ..)| *found == distance)
                .map(|&(_, ours, theirs)| [ours, theirs])
                .collect();
            if of.is_empty() {
                continue;
            }
            let mean =
                [0, 1].map(|side| of.iter().map(|pair| pair[side]).sum::<f64>() / of.len() as f64);
            let ratios: Vec<f64> = of.iter().map(|[ours, theirs]| ours / theirs).collect();
            println!(
                "{:24} {:5} vmlab {:6.2} Mpps, {way}-bridge-{way} {:.3} Mpps: {}",
                format!("64 B, Linux bridge, {way}"),
                distance.name(),
                mean[0] / 1e6,
                mean[1] / 1e6,
                verdict(&ratios, Figure::Rate, (distance == Distance::Near).then_some(GOAL))
            );
        }
    }
    fine
}

/// Frames a second through the kernel's bridge.
fn bridge(script: &str, way: &str, judge: &Judge) -> Result<f64, String> {
    let pcpus = [judge.pcpus.generator.to_string(), judge.pcpus.switch.to_string()];
    let length_ms = judge.length.as_millis().to_string();
    let output = Command::new(script).arg(way).args(&pcpus).arg(length_ms).output();
    let output = output.map_err(|error| format!("{script}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(said.trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.trim().parse().map_err(|_| format!("{script} said {text:?}"))
}
