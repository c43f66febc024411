//! UA: a ball of heat moves through a cube of still cold, and a mesh that is fine
//! only where the ball is moves with it. Its threads follow lists of elements
//! and points that change as it goes, so memory is read and written at places
//! that nothing foretells.
//!
//! A step carries the heat along and lets it spread; each fifth one makes the mesh
//! follow. One operation is a collocation point of an element that the one or the
//! other advances: a step counts the points of all elements once for carrying and
//! once for each step of the conjugate gradients, as NPB 3 does. That is some dozens
//! of floating point operations each: rates do not compare with those of the other
//! benchmarks.
//!
//! Source: H. Feng et al., "Unstructured Adaptive (UA) NAS Parallel Benchmark,
//! Version 1.0", NAS-04-006; NPB 3.4 where the report leaves something open.

mod mesh;
mod mortar;
mod skeleton;
mod solve;
mod spectral;
mod topology;

use std::time::Instant;

use super::{NpbClass, NpbResult, near};
use crate::team::Team;
use solve::Heat;

/// How often the mesh follows the ball, in steps.
const ADAPTS_EACH: usize = 5;

struct UaProblem {
    /// How often an element is halved at most.
    depth: u32,
    steps: usize,
    /// Of the ball.
    radius: f64,
    /// The most elements and mortar points that the mesh comes to.
    elements: u64,
    points: u64,
    /// Published: the temperature's integral at the end.
    integral: f64,
}

fn problem(class: NpbClass) -> UaProblem {
    let (depth, steps, radius, elements, points, integral) = match class {
        NpbClass::S => (4, 50, 0.04, 250, 11_600, 1.890_013_110_962e-3),
        NpbClass::W => (5, 100, 0.06, 700, 26_700, 2.569_794_837_076e-5),
        NpbClass::A => (6, 200, 0.076, 2_400, 92_700, 8.939_996_281_443e-5),
        NpbClass::B => (7, 200, 0.076, 8_800, 334_600, 4.507_561_922_901e-5),
    };
    UaProblem { depth, steps, radius, elements, points, integral }
}

/// Bytes that a class needs.
pub(super) fn bytes(class: NpbClass) -> u64 {
    let problem = problem(class);
    solve::bytes(problem.elements, problem.points)
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let problem = problem(class);
    let mut heat = Heat::new(problem.depth, problem.radius, team);
    // One step touches everything, and is not timed.
    heat.step();
    heat.restart();
    let (begin, mut elements) = (Instant::now(), 0);
    for step in 1..=problem.steps {
        heat.step();
        if step % ADAPTS_EACH == 0 && step < problem.steps {
            heat.adapt();
        }
        elements += heat.mesh.elements.len();
    }
    let seconds = begin.elapsed().as_secs_f64();
    let integral = heat.integral();
    NpbResult {
        seconds,
        operations: (elements * spectral::POINTS * (solve::GRADIENTS + 1)) as f64,
        verified: near(integral, problem.integral, 1e-8),
        detail: format!(
            "integral of the temperature {integral:.13e}, published {:e}",
            problem.integral
        ),
    }
}

#[cfg(test)]
mod tests;
