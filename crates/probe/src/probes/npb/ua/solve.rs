//! One step of the heat's way: it is carried along, then it spreads.
//!
//! What carries it, and its source, are taken at four times between the old one
//! and the new one (Runge and Kutta's method of the fourth order), element by
//! element. Spreading is implicit, and couples all: ten steps of conjugate
//! gradients, scaled by the diagonal, for the values within elements and the
//! mortar points.
//!
//! Each thread has equally many elements and mortar points. Elements write what
//! they give to mortar points at places of their own, and the points sum it up in
//! the order of the elements: nothing is written by two threads. How many there are
//! changes but the rounding of the conjugate gradients' products.
//!
//! Source: NAS-04-006, sections 2 and 3.

use std::ops::Range;

use super::mesh::{HeatBall, Mesh, SpectralElement};
use super::mortar::{Diagonal, Diagonals, MortarValues};
use super::skeleton::Skeleton;
use super::spectral::{Basis, ElementBlock, N, POINTS, STRIDES, sum_along};
use super::topology::FACES;
use crate::team::Team;

/// How fast the ball and what it heats move along each axis.
const VELOCITY: f64 = 3.0;

/// How fast heat spreads.
const DIFFUSIVITY: f64 = 0.005;

/// Where the ball is at first.
const START: [f64; 3] = [3.0 / 7.0, 2.0 / 7.0, 2.0 / 7.0];

/// Steps of the conjugate gradients.
pub(super) const GRADIENTS: usize = 10;

/// What belongs to one size of elements.
struct ElementScale {
    /// Half of the edge.
    half: f64,
    weights: Diagonal,
    /// 1 / the diagonal within an element; 0 on its surface.
    inverse: ElementBlock,
}

/// The values within elements, and on their surface as far as it matters.
#[derive(Default)]
struct Blocks {
    temperature: Vec<ElementBlock>,
    residual: Vec<ElementBlock>,
    /// What spreading changes.
    change: Vec<ElementBlock>,
    direction: Vec<ElementBlock>,
    /// What the operator makes of the direction.
    image: Vec<ElementBlock>,
}

/// The values of the mortar points.
#[derive(Default)]
struct Mortars {
    temperature: Vec<f64>,
    residual: Vec<f64>,
    change: Vec<f64>,
    direction: Vec<f64>,
    image: Vec<f64>,
    /// 1 / the diagonal; 0 on the unit cube's surface, which keeps its value.
    inverse: Vec<f64>,
    /// 1 / how many elements share a point in the mean.
    inverse_count: Vec<f64>,
}

/// The heat of the unit cube, at one time.
pub(super) struct Heat<'a> {
    team: &'a Team,
    pub(super) mesh: Mesh,
    basis: Basis,
    diagonals: Diagonals,
    scales: Vec<ElementScale>,
    skeleton: Skeleton,
    radius: f64,
    dt: f64,
    time: f64,
    blocks: Blocks,
    mortars: Mortars,
    /// What each element gives to each of its mortar points.
    given: Vec<f64>,
}

/// Places of mortar points that an element has on the average, rounded up; one
/// with smaller neighbours on all sides has 386.
pub(super) const PLACES: u64 = 200;

/// Bytes that so many elements and mortar points need: an element has 5 blocks, and
/// 2 more while the mesh changes; a place its number, what is given, who sums it,
/// and something to number it by; a point its 7 values and where it is summed.
pub(super) fn bytes(elements: u64, points: u64) -> u64 {
    elements * (7 * size_of::<ElementBlock>() as u64 + PLACES * 24) + points * 100
}

impl<'a> Heat<'a> {
    /// A cold cube, whose mesh is fine where the ball is at first.
    pub(super) fn new(depth: u32, radius: f64, team: &'a Team) -> Self {
        let (basis, mesh) = (Basis::new(), Mesh::new(depth));
        let dt = 0.04 * 0.5_f64.powi(depth as i32);
        let diagonals = Diagonals::new(&basis);
        let scales = (0..=depth).map(|level| scale(level, dt, &diagonals)).collect();
        let skeleton = Skeleton::new(&mesh, team);
        let blocks = Blocks { temperature: vec![[0.0; POINTS]], ..Blocks::default() };
        let mut heat = Self {
            team,
            mesh,
            basis,
            diagonals,
            scales,
            skeleton,
            radius,
            dt,
            time: 0.0,
            blocks,
            mortars: Mortars::default(),
            given: Vec::new(),
        };
        heat.adapt();
        heat
    }

    /// Makes it cold again, at the first time.
    pub(super) fn restart(&mut self) {
        self.time = 0.0;
        self.blocks.temperature.fill([0.0; POINTS]);
    }

    /// The ball as it is `later`.
    pub(super) fn ball(&self, later: f64) -> HeatBall {
        let time = self.time + later;
        HeatBall { centre: START.map(|at| at + VELOCITY * time), radius: self.radius }
    }

    /// Makes the mesh follow the ball.
    pub(super) fn adapt(&mut self) {
        let ball = self.ball(0.0);
        if !self.mesh.adapt(&ball, &self.basis, &mut self.blocks.temperature, self.team) {
            return;
        }
        self.skeleton = Skeleton::new(&self.mesh, self.team);
        let blocks = &mut self.blocks;
        for values in
            [&mut blocks.residual, &mut blocks.change, &mut blocks.direction, &mut blocks.image]
        {
            values.resize(self.mesh.elements.len(), [0.0; POINTS]);
        }
        let mortars = &mut self.mortars;
        for values in [
            &mut mortars.temperature,
            &mut mortars.residual,
            &mut mortars.change,
            &mut mortars.direction,
            &mut mortars.image,
            &mut mortars.inverse,
            &mut mortars.inverse_count,
        ] {
            values.resize(self.skeleton.count(), 0.0);
        }
        self.given.resize(self.skeleton.places(), 0.0);
        self.count_shares();
        self.sum_diagonal();
    }

    /// How many elements share each mortar point.
    fn count_shares(&mut self) {
        let (team, skeleton) = (self.team, &self.skeleton);
        team.each(skeleton.cut(team, &mut self.given), |thread, given| {
            let range = team.range(skeleton.shapes.len(), thread);
            for (shape, given) in
                skeleton.shapes[range.clone()].iter().zip(skeleton.each(range, given))
            {
                shape.share(&[1.0; POINTS], given);
            }
        });
        let given = &self.given;
        team.each(team.cut(&mut self.mortars.inverse_count, 1), |thread, counts| {
            for (point, count) in team.range(skeleton.count(), thread).zip(counts) {
                *count = 1.0 / skeleton.sum(point, given);
            }
        });
    }

    /// The diagonal of the mortar points.
    fn sum_diagonal(&mut self) {
        let (team, skeleton, elements) = (self.team, &self.skeleton, &self.mesh.elements);
        let (diagonals, scales) = (&self.diagonals, &self.scales);
        team.each(skeleton.cut(team, &mut self.given), |thread, given| {
            let range = team.range(elements.len(), thread);
            for (i, given) in range.clone().zip(skeleton.each(range, given)) {
                let weights = scales[elements[i].level as usize].weights;
                diagonals.reduce(&skeleton.shapes[i], weights, given);
            }
        });
        let given = &self.given;
        team.each(team.cut(&mut self.mortars.inverse, 1), |thread, inverses| {
            for (point, inverse) in team.range(skeleton.count(), thread).zip(inverses) {
                *inverse =
                    if skeleton.outside[point] { 0.0 } else { 1.0 / skeleton.sum(point, given) };
            }
        });
    }

    /// A step.
    pub(super) fn step(&mut self) {
        self.carry();
        let mut rho = self.begin_spreading();
        for gradient in 1..=GRADIENTS {
            let along = self.image_of_direction();
            let next = self.follow(rho / along);
            if gradient < GRADIENTS {
                self.turn(next / rho);
            }
            rho = next;
        }
        self.end_spreading();
        self.time += self.dt;
    }

    /// Carries the heat along and adds the source's, element by element, and sets
    /// the mortar points to the means of what their elements bring.
    fn carry(&mut self) {
        let balls = [0.0, 0.5 * self.dt, self.dt].map(|later| self.ball(later));
        let (team, skeleton) = (self.team, &self.skeleton);
        let (mesh, basis, dt) = (&self.mesh, &self.basis, self.dt);
        let scales = &self.scales;
        let parts = team
            .cut(&mut self.blocks.temperature, 1)
            .into_iter()
            .zip(team.cut(&mut self.blocks.residual, 1))
            .zip(skeleton.cut(team, &mut self.given));
        team.each(parts, |thread, ((temperatures, residuals), given)| {
            let range = team.range(mesh.elements.len(), thread);
            let given = skeleton.each(range.clone(), given);
            for (((i, temperature), residual), given) in
                range.zip(temperatures).zip(residuals).zip(given)
            {
                let element = &mesh.elements[i];
                let scale = &scales[element.level as usize];
                let rate = carried(basis, mesh, element, scale, &balls, dt, temperature);
                for (((temperature, residual), rate), weight) in
                    temperature.iter_mut().zip(residual).zip(&rate).zip(&basis.weights)
                {
                    *temperature += dt * rate;
                    *residual = scale.weights.mass * weight * *temperature;
                }
                skeleton.shapes[i].share(temperature, given);
            }
        });
        let (given, counts) = (&self.given, &self.mortars.inverse_count);
        team.each(team.cut(&mut self.mortars.temperature, 1), |thread, temperatures| {
            for (point, temperature) in team.range(skeleton.count(), thread).zip(temperatures) {
                *temperature = skeleton.sum(point, given) * counts[point];
            }
        });
    }

    /// Begins with the temperatures that carrying brought: sets the residual and
    /// the first direction. The residual's square, scaled.
    fn begin_spreading(&mut self) -> f64 {
        let (team, skeleton, basis) = (self.team, &self.skeleton, &self.basis);
        let (elements, scales) = (&self.mesh.elements, &self.scales);
        let (blocks, mortars) = (&mut self.blocks, &mut self.mortars);
        let parts = team
            .cut(&mut blocks.temperature, 1)
            .into_iter()
            .zip(team.cut(&mut blocks.residual, 1))
            .zip(team.cut(&mut blocks.change, 1))
            .zip(team.cut(&mut blocks.direction, 1))
            .zip(skeleton.cut(team, &mut self.given));
        let given_temperatures = &mortars.temperature;
        let inside: f64 = team
            .each(parts, |thread, ((((temperatures, residuals), changes), directions), given)| {
                let range = team.range(elements.len(), thread);
                let given = skeleton.each(range.clone(), given);
                let (mut gathered, mut image) = (MortarValues::new(), [0.0; POINTS]);
                let mut rho = 0.0;
                for (((((i, temperature), residual), change), direction), given) in
                    range.zip(temperatures).zip(residuals).zip(changes).zip(directions).zip(given)
                {
                    let (shape, scale) = (&skeleton.shapes[i], &scales[elements[i].level as usize]);
                    let points = gathered.of(given_temperatures, skeleton.numbers(i));
                    shape.expand(&basis.projection, points, temperature);
                    spread(basis, scale, temperature, &mut image);
                    for (residual, image) in residual.iter_mut().zip(&image) {
                        *residual -= image;
                    }
                    shape.reduce(&basis.projection, residual, given);
                    change.fill(0.0);
                    for ((direction, residual), inverse) in
                        direction.iter_mut().zip(&*residual).zip(&scale.inverse)
                    {
                        *direction = inverse * residual;
                    }
                    rho += product_inside(residual, direction);
                }
                rho
            })
            .iter()
            .sum();
        let parts = team
            .cut(&mut mortars.residual, 1)
            .into_iter()
            .zip(team.cut(&mut mortars.change, 1))
            .zip(team.cut(&mut mortars.direction, 1));
        let (given, inverses) = (&self.given, &mortars.inverse);
        let between: f64 = team
            .each(parts, |thread, ((residuals, changes), directions)| {
                changes.fill(0.0);
                let range = team.range(inverses.len(), thread);
                let mut rho = 0.0;
                for ((point, residual), direction) in range.zip(residuals).zip(directions) {
                    *residual = skeleton.sum(point, given);
                    *direction = inverses[point] * *residual;
                    rho += *residual * *direction;
                }
                rho
            })
            .iter()
            .sum();
        inside + between
    }

    /// Sets the image of the direction; their product.
    fn image_of_direction(&mut self) -> f64 {
        let (team, skeleton, basis) = (self.team, &self.skeleton, &self.basis);
        let (elements, scales) = (&self.mesh.elements, &self.scales);
        let (blocks, mortars) = (&mut self.blocks, &mut self.mortars);
        let parts = team
            .cut(&mut blocks.direction, 1)
            .into_iter()
            .zip(team.cut(&mut blocks.image, 1))
            .zip(skeleton.cut(team, &mut self.given));
        let given_directions = &mortars.direction;
        let inside: f64 = team
            .each(parts, |thread, ((directions, images), given)| {
                let range = team.range(elements.len(), thread);
                let given = skeleton.each(range.clone(), given);
                let mut gathered = MortarValues::new();
                let mut along = 0.0;
                for (((i, direction), image), given) in range.zip(directions).zip(images).zip(given)
                {
                    let shape = &skeleton.shapes[i];
                    let points = gathered.of(given_directions, skeleton.numbers(i));
                    shape.expand(&basis.projection, points, direction);
                    spread(basis, &scales[elements[i].level as usize], direction, image);
                    shape.reduce(&basis.projection, image, given);
                    along += product_inside(direction, image);
                }
                along
            })
            .iter()
            .sum();
        let (given, directions) = (&self.given, &mortars.direction);
        let between: f64 = team
            .each(team.cut(&mut mortars.image, 1), |thread, images| {
                let mut along = 0.0;
                for (point, image) in team.range(directions.len(), thread).zip(images) {
                    *image = skeleton.sum(point, given);
                    along += directions[point] * *image;
                }
                along
            })
            .iter()
            .sum();
        inside + between
    }

    /// Goes `far` along the direction; the square of the residual then, scaled.
    fn follow(&mut self, far: f64) -> f64 {
        let (team, elements, scales) = (self.team, &self.mesh.elements, &self.scales);
        let (blocks, mortars) = (&mut self.blocks, &mut self.mortars);
        let (directions, images) = (&blocks.direction, &blocks.image);
        let (mortar_directions, mortar_images) = (&mortars.direction, &mortars.image);
        let inverses = &mortars.inverse;
        let parts = team
            .cut(&mut blocks.change, 1)
            .into_iter()
            .zip(team.cut(&mut blocks.residual, 1))
            .zip(team.cut(&mut mortars.change, 1))
            .zip(team.cut(&mut mortars.residual, 1));
        let step = |change: &mut f64, residual: &mut f64, direction: &f64, image: &f64| {
            *change += far * direction;
            *residual -= far * image;
        };
        let rhos = team.each(parts, |thread, (((changes, residuals), points), point_residuals)| {
            let mut rho = 0.0;
            for ((i, change), residual) in
                team.range(elements.len(), thread).zip(changes).zip(residuals)
            {
                for (((change, residual), direction), image) in
                    change.iter_mut().zip(residual.iter_mut()).zip(&directions[i]).zip(&images[i])
                {
                    step(change, residual, direction, image);
                }
                rho += scaled_square(residual, &scales[elements[i].level as usize].inverse);
            }
            let range = team.range(inverses.len(), thread);
            for ((i, change), residual) in range.zip(points).zip(point_residuals) {
                step(change, residual, &mortar_directions[i], &mortar_images[i]);
                rho += *residual * *residual * inverses[i];
            }
            rho
        });
        rhos.iter().sum()
    }

    /// Turns the direction to the residual's, less what is left of its own.
    fn turn(&mut self, left: f64) {
        let (team, elements, scales) = (self.team, &self.mesh.elements, &self.scales);
        let (blocks, mortars) = (&mut self.blocks, &mut self.mortars);
        let (residuals, point_residuals) = (&blocks.residual, &mortars.residual);
        let inverses = &mortars.inverse;
        let parts =
            team.cut(&mut blocks.direction, 1).into_iter().zip(team.cut(&mut mortars.direction, 1));
        team.each(parts, |thread, (directions, points)| {
            for (i, direction) in team.range(elements.len(), thread).zip(directions) {
                let inverse = &scales[elements[i].level as usize].inverse;
                for ((direction, residual), inverse) in
                    direction.iter_mut().zip(&residuals[i]).zip(inverse)
                {
                    *direction = left * *direction + inverse * residual;
                }
            }
            for (i, direction) in team.range(inverses.len(), thread).zip(points) {
                *direction = left * *direction + inverses[i] * point_residuals[i];
            }
        });
    }

    /// Adds what spreading changes.
    fn end_spreading(&mut self) {
        let (team, skeleton, basis) = (self.team, &self.skeleton, &self.basis);
        let (blocks, changes) = (&mut self.blocks, &self.mortars.change);
        let count = blocks.temperature.len();
        let parts =
            team.cut(&mut blocks.temperature, 1).into_iter().zip(team.cut(&mut blocks.change, 1));
        team.each(parts, |thread, (temperatures, inside)| {
            let mut gathered = MortarValues::new();
            for ((i, temperature), change) in
                team.range(count, thread).zip(temperatures).zip(inside)
            {
                let points = gathered.of(changes, skeleton.numbers(i));
                skeleton.shapes[i].expand(&basis.projection, points, change);
                for (temperature, change) in temperature.iter_mut().zip(change) {
                    *temperature += *change;
                }
            }
        });
    }

    /// The temperature's integral over the unit cube.
    pub(super) fn integral(&self) -> f64 {
        let blocks = self.blocks.temperature.iter().zip(&self.mesh.elements);
        let integrals = blocks.map(|(block, element)| {
            let sum: f64 = block.iter().zip(&self.basis.weights).map(|(value, w)| value * w).sum();
            sum * self.scales[element.level as usize].half.powi(3)
        });
        integrals.sum()
    }
}

fn scale(level: u32, dt: f64, diagonals: &Diagonals) -> ElementScale {
    let half = 0.5_f64.powi(level as i32 + 1);
    let weights = Diagonal { stiffness: DIFFUSIVITY * half, mass: half.powi(3) / dt };
    let mut inverse = [0.0; POINTS];
    for at in inside() {
        let Diagonal { stiffness, mass } = diagonals.whole[at];
        inverse[at] = 1.0 / (weights.stiffness * stiffness + weights.mass * mass);
    }
    ElementScale { half, weights, inverse }
}

/// The points within an element.
fn inside() -> impl Iterator<Item = usize> {
    let range: Range<usize> = 1..N - 1;
    let rows = range.clone().flat_map(move |k| range.clone().map(move |j| (k * N + j) * N));
    rows.flat_map(|row| row + 1..row + N - 1)
}

/// The product of two blocks within an element.
#[inline]
fn product_inside(a: &ElementBlock, b: &ElementBlock) -> f64 {
    inside().map(|at| a[at] * b[at]).sum()
}

/// The square of a block, scaled by a diagonal that is 0 on the surface.
#[inline]
fn scaled_square(block: &ElementBlock, inverse: &ElementBlock) -> f64 {
    inside().map(|at| block[at] * block[at] * inverse[at]).sum()
}

/// What the operator, second derivatives and 1 / dt, makes of a block.
#[inline]
fn spread(basis: &Basis, scale: &ElementScale, block: &ElementBlock, image: &mut ElementBlock) {
    sum_along(&basis.stiffness, block, image);
    let Diagonal { stiffness, mass } = scale.weights;
    for ((image, value), weight) in image.iter_mut().zip(block).zip(&basis.weights) {
        *image = weight * (stiffness * *image + mass * value);
    }
}

/// How fast the temperature of an element changes over a step of `dt` by being
/// carried along and heated; `balls` are the source at its beginning, in its
/// middle and at its end. On the unit cube's surface it does not.
fn carried(
    basis: &Basis,
    mesh: &Mesh,
    element: &SpectralElement,
    scale: &ElementScale,
    balls: &[HeatBall; 3],
    dt: f64,
    block: &ElementBlock,
) -> ElementBlock {
    let sources = balls.map(|ball| source(basis, mesh, element, &ball));
    let rate = |block: &ElementBlock, source: &ElementBlock| {
        let mut rate = [0.0; POINTS];
        sum_along(&basis.derivative, block, &mut rate);
        for (rate, source) in rate.iter_mut().zip(source) {
            *rate = source - VELOCITY / scale.half * *rate;
        }
        rate
    };
    let later = |dt: f64, rate: &ElementBlock| -> ElementBlock {
        std::array::from_fn(|at| block[at] + dt * rate[at])
    };
    let first = rate(block, &sources[0]);
    let second = rate(&later(0.5 * dt, &first), &sources[1]);
    let third = rate(&later(0.5 * dt, &second), &sources[1]);
    let fourth = rate(&later(dt, &third), &sources[2]);
    let mut mean: ElementBlock = std::array::from_fn(|at| {
        (first[at] + 2.0 * second[at] + 2.0 * third[at] + fourth[at]) / 6.0
    });
    let end = 1 << mesh.depth;
    for face in &FACES {
        let at = element.place[face.axis];
        if (face.side == 0 && at == 0) || (face.side == 1 && at + mesh.size(element.level) == end) {
            for at in face.points {
                mean[at] = 0.0;
            }
        }
    }
    mean
}

/// The heat that the ball brings to each point of an element: most in its
/// centre, none at its surface.
fn source(basis: &Basis, mesh: &Mesh, element: &SpectralElement, ball: &HeatBall) -> ElementBlock {
    let (first, size) = mesh.extent(element);
    let mut source = [0.0; POINTS];
    if !ball.touches((first, size)) {
        return source;
    }
    let squares: [[f64; N]; 3] = std::array::from_fn(|axis| {
        basis.nodes.map(|node| {
            let distance = first[axis] + size * (0.5 * node + 0.5) - ball.centre[axis];
            distance * distance
        })
    });
    for (at, source) in source.iter_mut().enumerate() {
        let square: f64 = (0..3).map(|axis| squares[axis][at / STRIDES[axis] % N]).sum();
        if square <= ball.radius * ball.radius {
            *source = (std::f64::consts::PI / ball.radius * square.sqrt()).cos() + 1.0;
        }
    }
    source
}
