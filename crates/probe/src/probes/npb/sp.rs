//! SP: a flow whose factors are made diagonal, so that each value has its own
//! pentadiagonal equations: little computing for each value that is moved.

use super::flow::{
    self, C1C5, C2, C3C4, DAMPING, FOURTH, FlowField, FlowProblem, FlowView, GridLine, PointState,
    PointValues, fourth,
};
use super::{NpbClass, NpbResult};
use crate::team::Team;

/// A row of a pentadiagonal matrix.
type PentadiagonalRow = [f64; 5];

fn problem(class: NpbClass) -> FlowProblem {
    let (n, steps, dt, residual, error) = match class {
        NpbClass::S => (
            12,
            100,
            0.015,
            [
                2.747_031_545_134e-2,
                1.036_074_670_529e-2,
                1.623_574_506_51e-2,
                1.584_055_722_446e-2,
                3.484_904_060_936e-2,
            ],
            [
                2.728_925_855_738e-5,
                1.036_444_664_084e-5,
                1.615_479_828_717e-5,
                1.575_070_499_448e-5,
                3.417_766_618_339e-5,
            ],
        ),
        NpbClass::W => (
            36,
            400,
            0.0015,
            [
                1.893_253_733_584e-3,
                1.717_075_447_775e-4,
                2.778_153_350_936e-4,
                2.887_475_409_984e-4,
                3.143_611_161_242e-3,
            ],
            [
                7.542_088_599_534e-5,
                6.512_852_253_086e-6,
                1.049_092_285_688e-5,
                1.128_838_671_535e-5,
                1.212_845_639_773e-4,
            ],
        ),
        NpbClass::A => (
            64,
            400,
            0.0015,
            [
                2.479_982_239_93,
                1.127_633_796_437,
                1.502_897_788_877,
                1.421_781_621_17,
                2.129_211_303_514,
            ],
            [
                1.090_014_029_782e-4,
                3.734_395_176_928e-5,
                5.009_278_540_654e-5,
                4.767_109_393_953e-5,
                1.362_161_339_921e-4,
            ],
        ),
        NpbClass::B => (
            102,
            400,
            0.001,
            [
                6.903_293_579_998e1,
                3.095_134_488_084e1,
                4.103_336_647_017e1,
                3.864_769_009_604e1,
                5.643_482_272_596e1,
            ],
            [
                9.810_006_190_188e-3,
                1.022_827_905_67e-3,
                1.720_597_911_692e-3,
                1.694_479_428_231e-3,
                1.847_456_263_981e-2,
            ],
        ),
    };
    FlowProblem { n, steps, dt, gain: 1.0, residual, error }
}

/// Bytes that a class needs.
pub(super) fn bytes(class: NpbClass) -> u64 {
    flow::bytes(problem(class).n)
}

pub(super) fn run(class: NpbClass, team: &Team) -> NpbResult {
    let problem = problem(class);
    let n = problem.n as f64;
    let operations = 881.174 * n.powi(3) - 4683.91 * n.powi(2) + 11_484.5 * n - 19_272.4;
    FlowField::new(&problem, team).run(&problem, operations * problem.steps as f64, |flow| {
        for axis in 0..3 {
            flow.lines(axis, |n| [(); 3].map(|()| vec![[0.0; 5]; n]), solve);
        }
    })
}

/// Solves a line: for the three waves that move with the flow, and for those
/// that move faster and slower than it by the speed of sound.
fn solve(
    rows: &mut [Vec<PentadiagonalRow>; 3],
    view: &FlowView<'_>,
    line: GridLine,
    change: &mut [PointValues],
) {
    let state = |i: usize| &view.states[line.at(i)];
    let inside = 1..view.n - 1;
    if line.axis == 0 {
        for i in inside.clone() {
            into_waves(state(i), &mut change[i]);
        }
    }
    let waves: [&[usize]; 3] = [&[0, 1, 2], &[3], &[4]];
    for ((rows, waves), sound) in rows.iter_mut().zip(waves).zip([0.0, 1.0, -1.0]) {
        factor(rows, view, line, sound);
        pentadiagonal(rows, change, waves);
    }
    for i in inside {
        match line.axis {
            0 => turn_to_y(&mut change[i]),
            1 => turn_to_z(&mut change[i]),
            _ => out_of_waves(state(i), view.u[line.at(i)][0], &mut change[i]),
        }
    }
}

/// The matrix of one sort of waves along a line; `sound` says how often the
/// speed of sound is added to the flow's.
fn factor(rows: &mut [PentadiagonalRow], view: &FlowView<'_>, line: GridLine, sound: f64) {
    let n = view.n;
    let steps = (n - 1) as f64;
    let (first, second) = (view.dt * 0.5 * steps, view.dt * steps * steps);
    let speed = |i: usize| {
        let state = &view.states[line.at(i)];
        first * (state.velocity[line.axis] + sound * state.sound)
    };
    // Of heat, which spreads faster than momentum does.
    let spread =
        |i: usize| second * (DAMPING[line.axis] + C1C5 * C3C4 * view.states[line.at(i)].inverse);
    // On the faces nothing changes.
    for end in [0, n - 1] {
        rows[end] = [0.0, 0.0, 1.0, 0.0, 0.0];
    }
    for (i, row) in rows.iter_mut().enumerate().take(n - 1).skip(1) {
        *row = fourth(i, n).map(|weight| view.dt * FOURTH * weight);
        row[1] -= speed(i - 1) + spread(i - 1);
        row[2] += 1.0 + 2.0 * spread(i);
        row[3] += speed(i + 1) - spread(i + 1);
    }
}

/// Solves for these values of the inner points: forward, row by row, so that
/// each has a 1 and two values after it; then back.
fn pentadiagonal(rows: &mut [PentadiagonalRow], change: &mut [PointValues], values: &[usize]) {
    let last = rows.len() - 1;
    for i in 1..last {
        // Where there is no point two before, its weight is 0.
        let (before, far_before) = (i - 1, i.saturating_sub(2));
        let [far, mut near, mut own, mut next, far_next] = rows[i];
        near -= far * rows[far_before][3];
        own -= far * rows[far_before][4] + near * rows[before][3];
        next -= near * rows[before][4];
        let scale = 1.0 / own;
        for m in values.iter().copied() {
            let known = near * change[before][m] + far * change[far_before][m];
            change[i][m] = scale * (change[i][m] - known);
        }
        rows[i] = [0.0, 0.0, 1.0, scale * next, scale * far_next];
    }
    for i in (1..last).rev() {
        let far = (i + 2).min(last);
        for m in values.iter().copied() {
            change[i][m] -= rows[i][3] * change[i + 1][m] + rows[i][4] * change[far][m];
        }
    }
}

const HALF_ROOT: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// From changes of the values to those of the waves along x.
fn into_waves(state: &PointState, change: &mut PointValues) {
    let [r1, r2, r3, r4, r5] = *change;
    let [x, y, z] = state.velocity;
    let (inverse, sound) = (state.inverse, state.sound);
    let pressure = C2 * (state.specific * r1 - x * r2 - y * r3 - z * r4 + r5) / (sound * sound);
    let moved = HALF_ROOT * inverse * (x * r1 - r2);
    let heard = HALF_ROOT * inverse * sound * pressure;
    *change = [
        r1 - pressure,
        -inverse * (z * r1 - r4),
        inverse * (y * r1 - r3),
        heard - moved,
        heard + moved,
    ];
}

/// From waves along x to those along y ...
fn turn_to_y(change: &mut PointValues) {
    let [r1, r2, r3, r4, r5] = *change;
    let (t1, t2) = (HALF_ROOT * r3, 0.5 * (r4 + r5));
    *change = [-r2, r1, HALF_ROOT * (r4 - r5), t2 - t1, t2 + t1];
}

/// ... and to those along z ...
fn turn_to_z(change: &mut PointValues) {
    let [r1, r2, r3, r4, r5] = *change;
    let (t1, t2) = (HALF_ROOT * r1, 0.5 * (r4 + r5));
    *change = [HALF_ROOT * (r4 - r5), -r3, r2, t2 - t1, t2 + t1];
}

/// ... and back to changes of the values.
fn out_of_waves(state: &PointState, density: f64, change: &mut PointValues) {
    let [r1, r2, r3, r4, r5] = *change;
    let [x, y, z] = state.velocity;
    let factor = HALF_ROOT * density;
    let t1 = factor / state.sound * (r4 + r5);
    let t2 = r3 + t1;
    let t3 = factor * (r4 - r5);
    *change = [
        t2,
        -density * r2 + x * t2,
        density * r1 + y * t2,
        z * t2 + t3,
        density * (y * r1 - x * r2)
            + state.specific * t2
            + state.sound * state.sound / C2 * t1
            + z * t3,
    ];
}
