//! How the fluxes of a flow's point follow its values: the blocks of BT's and
//! LU's equations. Rows are fluxes, columns are values.
//!
//! Source: RNR-94-007, chapter 3.

use super::flow::{ALONG, C1, C1C5, C2, C3C4, PointState, PointValues};

pub(super) type Matrix5x5 = [[f64; 5]; 5];

/// Of what the flow itself carries along `axis`.
#[inline]
pub(super) fn flux(u: &PointValues, state: &PointState, axis: usize) -> Matrix5x5 {
    let velocity = state.velocity;
    let own = 1 + axis;
    let speed = velocity[axis];

    let mut flux = [[0.0; 5]; 5];
    flux[0][own] = 1.0;
    for m in 1..4 {
        flux[m][0] = -velocity[m - 1] * speed;
        flux[m][m] = speed;
        // The same in the other rows' own column, and twice on the diagonal.
        flux[m][own] += velocity[m - 1];
        flux[4][m] = -C2 * velocity[m - 1] * speed;
    }
    flux[own][0] += C2 * state.specific;
    for m in 1..4 {
        flux[own][m] -= C2 * velocity[m - 1];
    }
    flux[own][4] = C2;
    let energy = u[4] * state.inverse;
    flux[4][0] = (2.0 * C2 * state.specific - C1 * energy) * speed;
    flux[4][own] += C1 * energy - C2 * state.specific;
    flux[4][4] = C1 * speed;
    flux
}

/// Of viscosity and heat along `axis`.
#[inline]
pub(super) fn viscous(u: &PointValues, state: &PointState, axis: usize) -> Matrix5x5 {
    let (inverse, velocity) = (state.inverse, state.velocity);
    let own = 1 + axis;

    let mut viscous = [[0.0; 5]; 5];
    let heat = C3C4 * C1C5 * inverse;
    viscous[4][0] = -heat * (u[4] * inverse);
    for m in 1..4 {
        let factor = C3C4 * inverse * if m == own { ALONG } else { 1.0 };
        viscous[m][0] = -factor * velocity[m - 1];
        viscous[m][m] = factor;
        viscous[4][0] -= (factor - heat) * velocity[m - 1] * velocity[m - 1];
        viscous[4][m] = (factor - heat) * velocity[m - 1];
    }
    viscous[4][4] = heat;
    viscous
}

/// b = b - a x.
#[inline]
pub(super) fn take(b: &mut PointValues, a: &Matrix5x5, x: &PointValues) {
    for (b, a) in b.iter_mut().zip(a) {
        *b -= a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
    }
}
