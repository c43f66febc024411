//! A laboratory of which the truth is known: two configurations, a host with
//! its noise, and a clock.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use stats::{AdaptiveTrial, Arm};

/// What makes the numbers move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// Little of everything.
    Quiet,
    /// Each boot draws its luck.
    Boots,
    /// Iterations differ more than boots.
    Iterations,
    /// A boot is of the fast sort or of the slow one.
    Bimodal,
    /// The host gets slower, and wanders.
    Drift,
    /// An iteration resembles the one before.
    Autocorrelation,
    /// Some iterations are interrupted.
    Outliers,
    /// Others use the host now and then; steal shows it.
    Neighbours,
    /// B's boots differ more than A's.
    Unequal,
    /// Boots that are slow are very slow.
    Skew,
    /// B warms up for longer.
    WarmUp,
    /// B warms up a little, A not.
    ShortWarmUp,
    /// B's slow iterations are slower and more; its typical one is not.
    Tail,
    /// Levels, bursts and a long memory, as hosts show them over hours.
    Trace,
    /// Most boots are alike, some far off, either way.
    HeavyTails,
    /// Two sorts of boots that are far from each other.
    FarModes,
    /// Others slow a whole boot; steal shows it.
    Bursts,
    /// Others always take the same share of the CPUs, 0 to 60 %; steal shows it.
    Constant,
    /// Others come and go, half of the time, and take 0 to 60 % of the CPUs;
    /// steal shows it.
    Bursty,
    /// B's first 2 to 6 iterations are slow, by boot.
    StepWarmUp,
    /// B warms up by more in some boots than in others.
    UnequalWarmUp,
    /// B warms up ever more slowly.
    TailWarmUp,
}

/// The smallest difference that matters.
pub(crate) const MARGIN: f64 = 0.03;
/// What B takes by what A takes: nothing (twice, for its rate of false claims),
/// just below the margin, at the margin, and beyond, both ways.
pub(crate) const TRUTHS: [f64; 14] = [
    1.0,
    1.0,
    1.02,
    1.0 / 1.02,
    1.03,
    1.0 / 1.03,
    1.05,
    1.0 / 1.05,
    1.06,
    1.0 / 1.06,
    1.1,
    1.0 / 1.1,
    1.3,
    1.0 / 1.3,
];

impl Noise {
    pub(crate) const ALL: [Self; 19] = [
        Self::Quiet,
        Self::Boots,
        Self::Iterations,
        Self::Bimodal,
        Self::Drift,
        Self::Autocorrelation,
        Self::Outliers,
        Self::Neighbours,
        Self::Unequal,
        Self::Skew,
        Self::WarmUp,
        Self::ShortWarmUp,
        Self::Tail,
        Self::Trace,
        Self::HeavyTails,
        Self::FarModes,
        Self::Bursts,
        Self::Constant,
        Self::Bursty,
    ];

    /// Warm-ups of shapes that the engine was not tuned on.
    pub(crate) const WARM_UPS: [Self; 3] =
        [Self::StepWarmUp, Self::UnequalWarmUp, Self::TailWarmUp];

    /// Standard deviations of boots (A, B) and of iterations.
    fn spread(self) -> [f64; 3] {
        match self {
            Self::Quiet => [0.004, 0.004, 0.006],
            Self::Boots => [0.022, 0.022, 0.01],
            Self::Iterations => [0.003, 0.003, 0.03],
            Self::Bimodal => [0.004, 0.004, 0.01],
            Self::Unequal => [0.006, 0.03, 0.01],
            Self::Skew => [0.0, 0.0, 0.01],
            Self::Trace => [0.008, 0.008, 0.012],
            _ => [0.01, 0.01, 0.01],
        }
    }
}

/// One case: a host, A, and B that takes `effect` times as long (as a
/// logarithm).
pub(crate) struct Laboratory {
    noise: Noise,
    effect: f64,
    scale: f64,
    random: Pcg64,
    clock_s: f64,
    /// The host's slow state, and when it was last moved.
    wander: f64,
    level: f64,
    busy_until_s: f64,
    busy_from_s: f64,
    busy_by: f64,
    /// How much noise this case has, times what is usual.
    size: f64,
    /// The iteration before, where iterations resemble each other.
    neighbour: f64,
    /// How much others slow this boot.
    burst: f64,
    /// Iterations that B's step takes in this boot; how far from cold it begins, 0.3 to 1.7 times
    /// as far as usual.
    step: f64,
    coldness: f64,
    /// Share of slow boots, drawn for each case.
    slow_share: f64,
    slope: f64,
    /// The share that others take when they are there, and how much longer
    /// things take for it than it tells.
    pub(crate) share: f64,
    cost: f64,
    /// Whether others take that share beside B alone.
    pub(crate) with_b: bool,
    /// What others took of each boot of B.
    pub(crate) stolen: Vec<f64>,
    /// Machine seconds spent.
    pub(crate) spent_s: f64,
}

pub(crate) const BOOT_S: f64 = 8.0;
pub(crate) const INVOCATION_S: f64 = 1.0;
pub(crate) const ITERATION_S: f64 = 1.0;

impl Laboratory {
    pub(crate) fn new(noise: Noise, effect: f64, seed: u64) -> Self {
        let mut random = Pcg64::seed_from_u64(seed);
        let scale = 10_f64.powf(random.random_range(-3.0..6.0));
        let size = [0.8, 1.4, 2.4][random.random_range(0..3)];
        let slow_share = random.random_range(0.2..0.6);
        let slope = random.random_range(-0.08..0.08) / 600.0;
        let (mut share, mut cost) = (0.0, 1.0);
        if matches!(noise, Noise::Constant | Noise::Bursty) {
            share = random.random_range(0.0..0.6);
            cost = random.random_range(0.5..1.5);
        }
        Self {
            noise,
            effect,
            scale,
            random,
            clock_s: 0.0,
            wander: 0.0,
            level: 0.0,
            busy_until_s: 0.0,
            busy_from_s: 0.0,
            busy_by: 0.0,
            size,
            neighbour: 0.0,
            burst: 0.0,
            step: 0.0,
            coldness: 1.0,
            slow_share,
            slope,
            share,
            cost,
            with_b: false,
            stolen: Vec::new(),
            spent_s: 0.0,
        }
    }

    /// Heads or tails, for designs that draw the order.
    pub(crate) fn coin(&mut self) -> bool {
        self.random.random()
    }

    fn normal(&mut self) -> f64 {
        let (u, v): (f64, f64) = (self.random.random(), self.random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.random.random::<f64>()).ln()
    }

    /// Time passes: the host drifts and others come and go.
    fn pass(&mut self, seconds: f64) {
        self.clock_s += seconds;
        self.spent_s += seconds;
        match self.noise {
            Noise::Drift => self.wander += self.size * 0.0015 * seconds.sqrt() * self.normal(),
            Noise::Trace => {
                let keep = (-seconds / 200.0).exp();
                self.wander = self.wander * keep
                    + self.size * 0.02 * (1.0 - keep * keep).sqrt() * self.normal();
                if self.random.random::<f64>() < seconds / 400.0 {
                    self.level = self.size * 0.02 * self.normal();
                }
            }
            Noise::Neighbours if self.clock_s > self.busy_until_s => {
                self.busy_from_s = self.clock_s + 150.0 * self.exponential();
                self.busy_until_s = self.busy_from_s + 30.0 * self.exponential();
                self.busy_by = 0.05 + 0.15 * self.random.random::<f64>();
            }
            Noise::Bursty if self.clock_s > self.busy_until_s => {
                self.busy_from_s = self.clock_s + 40.0 * self.exponential();
                self.busy_until_s = self.busy_from_s + 40.0 * self.exponential();
                self.share = self.random.random_range(0.0..0.6);
            }
            _ => {}
        }
    }

    /// What others take now from a trial of B, or of A.
    fn taken(&self, is_b: bool) -> f64 {
        match self.noise {
            Noise::Constant if is_b || !self.with_b => self.share,
            Noise::Bursty if self.is_busy() && (is_b || !self.with_b) => self.share,
            _ => 0.0,
        }
    }

    /// Boots `arm` and measures.
    pub(crate) fn run(&mut self, arm: Arm, invocations: usize, iterations: usize) -> AdaptiveTrial {
        let started_s = self.clock_s;
        let is_b = arm == Arm::B;
        self.pass(BOOT_S);
        let luck = self.boot(is_b);
        let mut trial =
            AdaptiveTrial { arm, started_s: Some(started_s), invocations: vec![], steal: vec![] };
        for _ in 0..invocations {
            self.pass(INVOCATION_S);
            let mut stolen = 0.0;
            let mut value = |iteration: usize| {
                self.pass(ITERATION_S);
                stolen += (self.steal() + self.taken(is_b)) / iterations as f64;
                let log = luck + self.common(is_b, iteration as f64) + self.iteration(is_b);
                self.scale * log.exp()
            };
            let values = (0..iterations).map(&mut value).collect();
            trial.invocations.push(values);
            trial.steal.push(stolen);
        }
        if is_b {
            self.stolen.push(trial.steal.iter().sum::<f64>() / trial.steal.len() as f64);
        }
        trial
    }

    /// What the boot draws for all its iterations.
    fn boot(&mut self, is_b: bool) -> f64 {
        let [sd_a, sd_b, _] = self.noise.spread();
        let luck = self.size * self.normal() * if is_b { sd_b } else { sd_a };
        self.neighbour = self.normal();
        match self.noise {
            Noise::StepWarmUp => self.step = f64::from(self.random.random_range(2..=6)),
            Noise::UnequalWarmUp => self.coldness = self.random.random_range(0.3..1.7),
            _ => {}
        }
        let is_slow = self.random.random::<f64>() < self.slow_share;
        match self.noise {
            Noise::Bimodal if is_slow => luck + 0.05 * self.size,
            Noise::FarModes if is_slow => luck + 0.15,
            // Student's t with two degrees of freedom.
            Noise::HeavyTails => luck / self.exponential().max(1e-3).sqrt(),
            Noise::Skew => luck + 0.02 * self.size * (self.exponential() - 1.0),
            Noise::Bursts => {
                self.burst = if self.random.random::<f64>() < 0.15 {
                    0.1 + 0.3 * self.random.random::<f64>()
                } else {
                    0.0
                };
                luck + self.burst
            }
            _ => luck,
        }
    }

    fn is_busy(&self) -> bool {
        (self.busy_from_s..self.busy_until_s).contains(&self.clock_s)
    }

    /// Share of the present iteration that others take.
    fn steal(&self) -> f64 {
        match self.noise {
            Noise::Neighbours if self.is_busy() => 0.7 * self.busy_by,
            Noise::Bursts => 0.8 * self.burst,
            _ => 0.0,
        }
    }

    /// The effect, the host's present state and the warm-up.
    fn common(&self, is_b: bool, iteration: f64) -> f64 {
        let effect = if is_b { self.effect } else { 0.0 };
        let taken = -(1.0 - self.taken(is_b)).ln() * self.cost;
        effect
            + taken
            + match self.noise {
                Noise::Drift => self.slope * self.clock_s + self.wander,
                Noise::Trace => self.wander + self.level,
                Noise::WarmUp if is_b => 0.3 * (-iteration / 4.0).exp(),
                Noise::WarmUp => 0.2 * (-iteration / 1.5).exp(),
                Noise::StepWarmUp if is_b && iteration < self.step => 0.15,
                Noise::UnequalWarmUp if is_b => 0.3 * self.coldness * (-iteration / 4.0).exp(),
                Noise::TailWarmUp if is_b => 0.2 / (1.0 + iteration).powi(2),
                Noise::ShortWarmUp if is_b => 0.08 * (-iteration / 1.5).exp(),
                _ => 0.0,
            }
    }

    /// The noise of a single iteration.
    fn iteration(&mut self, is_b: bool) -> f64 {
        let [_, _, sd] = self.noise.spread();
        let noise = self.size * sd * self.normal();
        let chance: f64 = self.random.random();
        match self.noise {
            Noise::Autocorrelation => {
                let keep = 0.85_f64;
                self.neighbour = keep * self.neighbour + (1.0 - keep * keep).sqrt() * self.normal();
                0.02 * self.size * self.neighbour
            }
            Noise::Outliers if chance < 0.08 => noise + 0.3 * self.size * self.exponential(),
            Noise::Neighbours if self.is_busy() => noise + self.busy_by * (0.5 + chance),
            Noise::Tail if is_b && chance < 0.06 => noise + 0.8 * self.exponential(),
            Noise::Tail if !is_b && chance < 0.02 => noise + 0.3 * self.exponential(),
            Noise::Trace if chance < 0.03 => noise + 0.15 * self.exponential(),
            _ => noise,
        }
    }
}
