//! `[workload.NAME]`: classes of workloads, as programs of tasks.

use super::node::{ScenarioNode, ScenarioValue, TableReader, number_of};
use crate::model::{
    Barrier, EarlyHalt, GuestLock, GuestTask, LockKind, LockProtection, Op, PageListStep,
    PvLockRules, RepeatSteps, SimChannel, SimVm, WorkClass,
};
use crate::random::Duration;
use crate::sched::KernelRelease;

/// More steps of all tasks' programs would not fit into memory with the sweep's others.
pub(super) const MOST_STEPS: u64 = 1_000_000;

/// Names of what is counted.
#[derive(Default)]
pub(super) struct Meters {
    pub(super) names: Vec<String>,
}

impl Meters {
    fn of(&mut self, name: &str) -> u32 {
        let known = self.names.iter().position(|known| known == name);
        known.unwrap_or_else(|| {
            self.names.push(name.to_owned());
            self.names.len() - 1
        }) as u32
    }
}

/// What a workload puts into a guest.
#[derive(Default)]
pub(super) struct GuestWork {
    tasks: Vec<GuestTask>,
    locks: Vec<GuestLock>,
    barriers: Vec<Barrier>,
    channels: Vec<SimChannel>,
}

impl GuestWork {
    /// What is wrong with them in a VM of `vcpus`.
    pub(super) fn problem(&self, vcpus: u32) -> Option<String> {
        let beyond = self.tasks.iter().find(|task| task.pin.is_some_and(|pin| pin >= vcpus));
        if let Some(task) = beyond {
            return Some(format!("{} is pinned beyond the VM's {vcpus} vCPUs", task.name));
        }
        // By barrier: how many tasks meet there, and the last one.
        let mut meet = vec![(0u32, usize::MAX); self.barriers.len()];
        for (index, task) in self.tasks.iter().enumerate() {
            for op in &task.program {
                if let Op::Barrier(at) = op
                    && meet[*at as usize].1 != index
                {
                    meet[*at as usize] = (meet[*at as usize].0 + 1, index);
                }
            }
        }
        self.barriers.iter().zip(meet).find_map(|(barrier, (tasks, _))| {
            (tasks != barrier.parties).then(|| {
                let (name, parties) = (&barrier.name, barrier.parties);
                format!("{tasks} tasks meet at the barrier {name:?}, which waits for {parties}")
            })
        })
    }

    /// Adds all to `vm`, numbered after what is there.
    pub(super) fn join(mut self, vm: &mut SimVm) {
        let (locks, barriers, channels) =
            (vm.locks.len() as u32, vm.barriers.len() as u32, vm.channels.len() as u32);
        for op in self.tasks.iter_mut().flat_map(|task| &mut task.program) {
            match op {
                Op::Lock(at) | Op::Unlock(at) => *at += locks,
                Op::Pages(step) => step.zone += locks,
                Op::Barrier(at) => *at += barriers,
                Op::Send(at) | Op::Receive(at) => *at += channels,
                _ => {}
            }
        }
        vm.tasks.append(&mut self.tasks);
        vm.locks.append(&mut self.locks);
        vm.barriers.append(&mut self.barriers);
        vm.channels.append(&mut self.channels);
    }

    fn task(&mut self, name: &str, pin: Option<u32>, program: Vec<Op>) {
        let name = format!("{name} task {}", self.tasks.len());
        self.tasks.push(GuestTask { name, program, pin, weight: 1024 });
    }

    fn lock(&mut self, name: String, (kind, keeps_off): (LockKind, LockProtection)) -> u32 {
        self.locks.push(GuestLock { name, kind, keeps_off });
        self.locks.len() as u32 - 1
    }

    fn channel(&mut self, name: String, initial: u64, capacity: u64) -> u32 {
        self.channels.push(SimChannel { name, initial, capacity });
        self.channels.len() as u32 - 1
    }
}

/// A distribution of times: `work = { exponential_us = 45 }`, or a plain number
/// of µs.
pub(super) fn duration(table: &TableReader<'_>, key: &'static str) -> Option<Duration> {
    let node = table.get(key)?;
    let found = distribution(node);
    if found.is_none() {
        table.wrong(
            key,
            node,
            "must be a number of us, or one of { constant_us = X }, { exponential_us = MEAN }, \
             { uniform_us = [LOW, HIGH] }, { normal_us = [MEAN, SD] }, \
             { lognormal_us = [MEDIAN, SIGMA] }; no less than 0 and at most 6e8",
        );
    }
    found
}

fn distribution(node: &ScenarioNode) -> Option<Duration> {
    /// Ten minutes.
    const LONGEST_US: f64 = 6e8;
    let us = |node: &ScenarioNode| {
        let value = number_of(node).filter(|value| (0.0..=LONGEST_US).contains(value))?;
        Some((value * 1e3).round() as u64)
    };
    let table = match &node.value {
        ScenarioValue::Table(table) => table,
        _ => return us(node).map(Duration::Constant),
    };
    let (kind, value) = table.iter().next().filter(|_| table.len() == 1)?;
    let pair = || match &value.value {
        ScenarioValue::List(items) if items.len() == 2 => Some((&items[0], &items[1])),
        _ => None,
    };
    Some(match kind.as_str() {
        "constant_us" => Duration::Constant(us(value)?),
        "exponential_us" => Duration::Exponential(us(value)?),
        "uniform_us" => {
            let (low, high) = pair()?;
            let (low, high) = (us(low)?, us(high)?);
            (low <= high).then_some(Duration::Uniform(low, high))?
        }
        "normal_us" => {
            let (mean, sd) = pair()?;
            Duration::Normal(us(mean)?, us(sd)?)
        }
        "lognormal_us" => {
            let (median, sigma) = pair()?;
            let sigma = number_of(sigma).filter(|sigma| (0.0..=5.0).contains(sigma))?;
            Duration::Lognormal(us(median)?, sigma)
        }
        _ => return None,
    })
}

fn needed(table: &TableReader<'_>, key: &'static str) -> Duration {
    if table.get(key).is_none() {
        table.problem(table.line, format!("This workload needs {key}: {key} = 10 is 10 us"));
    }
    duration(table, key).unwrap_or(Duration::Constant(1_000))
}

/// How waiting for a lock of a guest of `kernel` works, and what it keeps off.
fn lock_kind(
    table: &TableReader<'_>,
    kernel: KernelRelease,
    keeps_off: LockProtection,
) -> (LockKind, LockProtection) {
    /// `SPIN_THRESHOLD` is 2^15 rounds of PAUSE; some 40 cycles each at 2.4 GHz.
    const SPIN_NS: u64 = 500_000;
    let spin_ns = table.time("lock_spin_us", SPIN_NS, 1e3);
    let known = PvLockRules::defaults(kernel);
    let early = [
        ("never", EarlyHalt::Never),
        ("halted", EarlyHalt::Halted),
        ("preempted", EarlyHalt::Preempted),
    ];
    let steals = table.flag("lock_steals", known.steals);
    // Who spins beside the queue is one who steals.
    let unfair = table.flag("lock_unfair", known.unfair) && steals;
    let rules = PvLockRules {
        steals,
        unfair,
        early: table.choice("lock_halts_early", &early, known.early),
    };
    let kinds = [
        ("fair", LockKind::Fair),
        ("unfair", LockKind::Unfair),
        ("paravirtual", LockKind::Paravirtual { spin_ns, rules }),
        ("sleeping", LockKind::Sleeping),
        ("shared", LockKind::Shared),
    ];
    let kind = table.choice("lock", &kinds, LockKind::Fair);
    let words = [
        ("nothing", LockProtection::Nothing),
        ("preemption", LockProtection::Preemption),
        ("interrupts", LockProtection::Interrupts),
    ];
    let keeps_off = table.choice("keeps_off", &words, keeps_off);
    if !matches!(kind, LockKind::Sleeping | LockKind::Shared) {
        return (kind, keeps_off);
    }
    if let Some(node) = table.get("keeps_off").filter(|_| keeps_off > LockProtection::Nothing) {
        table.wrong("keeps_off", node, "a lock that does not spin keeps nothing off");
    }
    (kind, LockProtection::Nothing)
}

/// `spin_us` of a barrier: a number, or "forever".
fn spin_ns(table: &TableReader<'_>) -> u64 {
    match table.get("spin_us") {
        Some(ScenarioNode { value: ScenarioValue::Text(text), .. }) if text == "forever" => {
            u64::MAX
        }
        _ => table.time("spin_us", 0, 1e3),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum WorkloadKind {
    SpinLock,
    Barrier,
    Messages,
    PingPong,
    Flush,
    Calls,
    Pages,
    Requests,
    Compute,
    Stream,
    Program,
}

const KINDS: [(&str, WorkloadKind); 11] = [
    ("spin-lock", WorkloadKind::SpinLock),
    ("barrier", WorkloadKind::Barrier),
    ("messages", WorkloadKind::Messages),
    ("ping-pong", WorkloadKind::PingPong),
    ("flush", WorkloadKind::Flush),
    ("calls", WorkloadKind::Calls),
    ("pages", WorkloadKind::Pages),
    ("requests", WorkloadKind::Requests),
    ("compute", WorkloadKind::Compute),
    ("stream", WorkloadKind::Stream),
    ("program", WorkloadKind::Program),
];

/// Whether so many steps of all tasks can be simulated; else that is told.
fn fits(table: &TableReader<'_>, steps: u64) -> bool {
    if steps > MOST_STEPS {
        let message = format!("These tasks have {steps} steps: at most {MOST_STEPS} can be");
        table.problem(table.line, message + " simulated");
    }
    steps <= MOST_STEPS
}

/// Reads the workload `name` for a VM of so many vCPUs with such a kernel.
pub(super) fn read(
    name: &str,
    table: &TableReader<'_>,
    (vcpus, kernel): (u32, KernelRelease),
    meters: &mut Meters,
) -> GuestWork {
    if table.get("class").is_none() {
        let words: Vec<_> = KINDS.iter().map(|(word, _)| *word).collect();
        let words = words.join(", ");
        table.problem(table.line, format!("A workload needs a class: one of {words}"));
    }
    let kind = table.choice("class", &KINDS.map(|(word, kind)| (word, Some(kind))), None);
    let meter = table.text("meter").map_or(name, |(meter, _)| meter);
    let done = Op::Done(meters.of(meter));
    let mut parts = GuestWork::default();
    let Some(kind) = kind else {
        table.excuse();
        return parts;
    };
    if kind == WorkloadKind::Program {
        program(name, table, (kernel, done), &mut parts);
        return parts;
    }
    let tasks = table.whole("tasks", u64::from(vcpus), 1, 10_000) as u32;
    let pinned = table.flag("pinned", kind == WorkloadKind::SpinLock);
    let pin = |task: u32| pinned.then_some(task % vcpus);
    let class = class(table, kind);
    let work = |key| Op::Work(needed(table, key), class);
    match kind {
        WorkloadKind::SpinLock => {
            let own = work("work");
            let hold = Op::Work(needed(table, "hold"), WorkClass { kernel: true, ..class });
            let count = table.whole("locks", 1, 1, 10_000) as u32;
            let kind = lock_kind(table, kernel, LockProtection::Nothing);
            if !fits(table, u64::from(tasks) * u64::from(count) * 5) {
                return parts;
            }
            let locks: Vec<u32> =
                (0..count).map(|lock| parts.lock(format!("{name} lock {lock}"), kind)).collect();
            for task in 0..tasks {
                // Each goes through all locks, beginning at another one.
                let order = (0..count).map(|step| locks[((task + step) % count) as usize]);
                let steps = order.flat_map(|at| [own, Op::Lock(at), hold, Op::Unlock(at), done]);
                parts.task(name, pin(task), steps.collect());
            }
        }
        WorkloadKind::Barrier => {
            let own = work("work");
            let spin_ns = spin_ns(table);
            parts.barriers.push(Barrier {
                name: format!("{name} barrier"),
                parties: tasks,
                spin_ns,
            });
            for task in 0..tasks {
                // A step counts once, not once a task.
                let mut steps = vec![own, Op::Barrier(0)];
                if task == 0 {
                    steps.push(done);
                }
                parts.task(name, pin(task), steps);
            }
        }
        WorkloadKind::Messages => {
            let send = work("send_work");
            let receive = work("receive_work");
            let groups = table.whole("groups", 1, 1, 1_000) as u32;
            let pairs = table.whole("pairs", 20, 1, 1_000) as u32;
            let room = table.whole("capacity", 16, 1, 1_000_000);
            table.get("tasks");
            if !fits(table, u64::from(groups * pairs) * (2 * u64::from(pairs) + 3)) {
                return parts;
            }
            for group in 0..groups {
                let pipes: Vec<u32> = (0..pairs)
                    .map(|pair| parts.channel(format!("{name} pipe {group}.{pair}"), 0, room))
                    .collect();
                for pair in 0..pairs {
                    // As hackbench: every sender writes to each receiver in turn.
                    let turns = (0..pairs).map(|step| pipes[((pair + step) % pairs) as usize]);
                    let steps = turns.flat_map(|pipe| [send, Op::Send(pipe)]).collect();
                    let vcpu = (group * pairs + pair) % vcpus;
                    parts.task(name, pinned.then_some(vcpu), steps);
                    let pipe = pipes[pair as usize];
                    let steps = vec![Op::Receive(pipe), receive, done];
                    parts.task(name, pinned.then_some(vcpu), steps);
                }
            }
        }
        WorkloadKind::PingPong => {
            let produce = work("produce_work");
            let consume = work("consume_work");
            let ahead = table.whole("ahead", 1, 1, 1_000_000);
            let items = parts.channel(format!("{name} items"), 0, u64::MAX);
            let room = parts.channel(format!("{name} room"), ahead, u64::MAX);
            table.get("tasks");
            parts.task(name, pin(0), vec![Op::Receive(room), produce, Op::Send(items), done]);
            parts.task(name, pin(1), vec![Op::Receive(items), consume, Op::Send(room)]);
        }
        WorkloadKind::Flush | WorkloadKind::Calls => {
            let own = work("work");
            let others = if kind == WorkloadKind::Flush { Op::Flush } else { Op::Call };
            for task in 0..tasks {
                parts.task(name, pin(task), vec![own, others, done]);
            }
        }
        WorkloadKind::Pages => {
            let steps = pages(name, table, (kernel, class, done), &mut parts);
            if !fits(table, u64::from(tasks) * steps.len() as u64) {
                return parts;
            }
            for task in 0..tasks {
                parts.task(name, pin(task), steps.clone());
            }
        }
        WorkloadKind::Requests => {
            let service = work("work");
            let sleep = Op::Sleep(needed(table, "sleep"));
            for task in 0..tasks {
                parts.task(name, pin(task), vec![sleep, Op::Begin, service, done]);
            }
        }
        WorkloadKind::Compute | WorkloadKind::Stream | WorkloadKind::Program => {
            let own = work("work");
            for task in 0..tasks {
                parts.task(name, pin(task), vec![own, done]);
            }
        }
    }
    if parts.tasks.iter().any(|task| !takes_time(&task.program, &parts.barriers)) {
        // Where all of several are nothing, the first one is told.
        let keys = ["work", "sleep", "hold", "fault_work"];
        if let Some((key, node)) = keys.iter().find_map(|key| Some((key, table.get(key)?))) {
            table.wrong(key, node, "no step of the workload takes time: at least 1 ns is needed");
        }
    }
    parts
}

/// A buffer's pages are touched for the first time one by one, and given back together. As
/// the kernel does it, pages come from and go to a CPU's own list; where that runs empty or full
/// a batch moves between it and the zone, under the zone's lock (`rmqueue_bulk`,
/// `free_pcppages_bulk`). They are put on and taken off the lists of memory to reclaim in groups
/// under theirs (`pagevec_lru_move_fn`, `release_pages`). Faults share `mmap_sem`. Between
/// unmapping and giving back is the flush of the TLBs.
fn pages(
    name: &str,
    table: &TableReader<'_>,
    (kernel, class, done): (KernelRelease, WorkClass, Op),
    parts: &mut GuestWork,
) -> Vec<Op> {
    let since = |major, minor| kernel >= KernelRelease { major, minor };
    let in_kernel = WorkClass { kernel: true, ..class };
    let pages = table.whole("pages", 128, 1, 100_000) as u32;
    // zone_batchsize(), doubled by d8a759b57035.
    let batch = if since(4, 19) { 63 } else { 31 };
    let batch = table.whole("batch", batch, 1, 100_000) as u32;
    // pageset_set_batch().
    let high = table.whole("list_high", 6 * u64::from(batch), batch.into(), 1_000_000) as u32;
    // PAGEVEC_SIZE; and SWAP_CLUSTER_MAX, since release_pages() takes all pages at once.
    let list_batch = table.whole("list_batch", 15, 1, 100_000) as u32;
    let release_batch = if since(3, 18) { 32 } else { u64::from(list_batch) };
    let release_batch = table.whole("release_batch", release_batch, 1, 100_000) as u32;
    let fault = Op::Work(needed(table, "fault_work"), in_kernel);
    let touch = Op::Work(needed(table, "touch_work"), class);
    let release = needed(table, "release_work");
    let hold = needed(table, "page_hold");
    let kind = lock_kind(table, kernel, LockProtection::Interrupts);
    let zone = parts.lock(format!("{name} free pages"), kind);
    let lists = parts.lock(format!("{name} lists"), kind);
    let map = parts.lock(format!("{name} mmap_sem"), (LockKind::Shared, LockProtection::Nothing));
    let under = |lock: u32, pages: u32| {
        [Op::Lock(lock), Op::Work(hold.times(pages), in_kernel), Op::Unlock(lock)]
    };
    let groups = |size: u32| (0..pages).step_by(size as usize).map(move |at| size.min(pages - at));
    let own_list = |taken: bool, pages: u32| {
        let batched = under(zone, batch);
        let steps = batched.len() as u32;
        let moved = Op::Pages(PageListStep { zone, taken, pages, batch, high, steps });
        std::iter::once(moved).chain(batched)
    };
    let round = [Op::Lock(map), fault, Op::Unlock(map), touch];
    // Since 6.4 a fault takes the lock of its part of the map instead (lock_vma_under_rcu).
    let round = if since(6, 4) { &[fault, touch] } else { &round[..] };
    let mut steps = Vec::new();
    for size in groups(list_batch.min(batch)) {
        steps.extend(own_list(true, size));
        steps.extend(round);
        let repeated = round.len() as u32;
        steps.push(Op::Repeat(RepeatSteps { steps: repeated, times: size, depth: 0 }));
        steps.extend(under(lists, size));
    }
    steps.extend([Op::Work(release.times(pages), in_kernel), Op::Flush]);
    steps.extend(groups(release_batch).flat_map(|size| under(lists, size)));
    steps.extend(groups(batch).flat_map(|size| own_list(false, size)));
    steps.push(done);
    steps
}

/// Whether something in a program takes time, or waits for others who take it.
fn takes_time(program: &[Op], barriers: &[Barrier]) -> bool {
    program.iter().any(|op| match op {
        Op::Work(duration, _) | Op::Sleep(duration) => duration.mean_ns() > 0.0,
        Op::Barrier(at) => barriers[*at as usize].parties > 1,
        Op::Send(_) | Op::Receive(_) => true,
        // Nor does a flush, where nobody else runs, or a call where nobody else is.
        _ => false,
    })
}

fn class(table: &TableReader<'_>, kind: WorkloadKind) -> WorkClass {
    let stream = kind == WorkloadKind::Stream;
    let default = if stream { 1.0 } else { 0.0 };
    let memory = table.number("memory_bound", 0.0, 1.0).unwrap_or(default);
    let in_kernel = matches!(
        kind,
        WorkloadKind::SpinLock | WorkloadKind::Messages | WorkloadKind::Flush | WorkloadKind::Calls
    );
    WorkClass {
        stream,
        memory_permille: (memory * 1_000.0) as u16,
        kernel: table.flag("in_kernel", in_kernel),
    }
}

/// Steps in words of the format.
fn program(
    name: &str,
    table: &TableReader<'_>,
    (kernel, done): (KernelRelease, Op),
    parts: &mut GuestWork,
) {
    let mut locks = Vec::new();
    for (lock, node) in table.table("locks").entries() {
        let reader = TableReader::new(node, lock, table.problems());
        let kind = lock_kind(&reader, kernel, LockProtection::Nothing);
        reader.finish();
        parts.lock(lock.to_owned(), kind);
        locks.push(lock);
    }
    let mut barriers = Vec::new();
    for (barrier, node) in table.table("barriers").entries() {
        let reader = TableReader::new(node, barrier, table.problems());
        let parties = reader.whole("parties", 2, 1, 100_000) as u32;
        let spin_ns = spin_ns(&reader);
        reader.finish();
        parts.barriers.push(Barrier { name: barrier.to_owned(), parties, spin_ns });
        barriers.push(barrier);
    }
    let mut channels = Vec::new();
    for (channel, node) in table.table("channels").entries() {
        let reader = TableReader::new(node, channel, table.problems());
        let initial = reader.whole("initial", 0, 0, 1 << 40);
        let capacity = reader.whole("capacity", u64::MAX >> 1, 1, u64::MAX >> 1);
        reader.finish();
        parts.channel(channel.to_owned(), initial, capacity);
        channels.push(channel);
    }
    let groups = table.tables("task");
    if groups.is_empty() {
        table.problem(table.line, "A program needs a [[workload.NAME.task]] with steps");
    }
    for group in groups {
        let count = group.whole("count", 1, 1, 10_000);
        let vcpu = group.get("vcpu").map(|_| group.whole("vcpu", 0, 0, 1_023) as u32);
        let weight = group.whole("weight", 1024, 2, 100_000) as u32;
        let in_kernel = group.flag("in_kernel", false);
        let mut program = Vec::new();
        match group.get("steps") {
            Some(ScenarioNode { value: ScenarioValue::List(items), .. }) if !items.is_empty() => {
                let known = (&locks[..], &barriers[..], &channels[..]);
                let steps = Steps { group: &group, known, kernel: in_kernel, done };
                steps.read(items, 0, &mut program);
            }
            Some(node) => group.wrong("steps", node, "must be a list of steps"),
            None => group.problem(group.line, "A task needs steps"),
        }
        if let Some(node) = group.get("steps")
            && group.problems().borrow().is_empty()
        {
            if let Err(message) = sound(&program, &locks, &parts.locks) {
                group.problem(node.line, format!("steps: {message}"));
            } else if !takes_time(&program, &parts.barriers) {
                group.wrong("steps", node, "nothing takes time");
            }
        }
        let fits = fits(&group, count * program.len() as u64);
        group.finish();
        if !fits {
            continue;
        }
        for _ in 0..count {
            parts.task(name, vcpu, program.clone());
            if let Some(task) = parts.tasks.last_mut() {
                task.weight = weight;
            }
        }
    }
}

/// What can be seen of a program before it runs: every lock that it takes it gives back,
/// once, in each round of what it repeats, and it waits for nothing else while it keeps
/// interrupts off.
fn sound(program: &[Op], names: &[&str], locks: &[GuestLock]) -> Result<(), String> {
    let mut held: Vec<u32> = Vec::new();
    // The locks held before each step.
    let mut before = Vec::with_capacity(program.len());
    for op in program {
        before.push(held.clone());
        let keeps_off = || {
            let off = |lock: &&u32| locks[**lock as usize].keeps_off == LockProtection::Interrupts;
            held.iter().find(off)
        };
        match op {
            Op::Lock(lock) if held.contains(lock) => {
                return Err(format!("the lock {:?} is taken twice", names[*lock as usize]));
            }
            Op::Unlock(lock) => match held.iter().position(|known| known == lock) {
                Some(at) => {
                    held.remove(at);
                }
                None => {
                    let name = names[*lock as usize];
                    return Err(format!("the lock {name:?} is given back but not held"));
                }
            },
            Op::Repeat(RepeatSteps { steps, .. }) => {
                let first = before.len() - 1 - *steps as usize;
                let odd = |lock: &&u32| held.contains(lock) != before[first].contains(lock);
                let changed = held.iter().chain(&before[first]).find(odd);
                if let Some(lock) = changed {
                    let name = names[*lock as usize];
                    return Err(format!(
                        "the lock {name:?} is not held at the end of a round of repeat as at its \
                         beginning"
                    ));
                }
            }
            Op::Work(..) | Op::Begin | Op::Done(_) => {}
            Op::Lock(lock) if locks[*lock as usize].kind != LockKind::Sleeping => held.push(*lock),
            _ if let Some(lock) = keeps_off() => {
                let name = names[*lock as usize];
                return Err(format!("it waits while the lock {name:?} keeps interrupts off"));
            }
            Op::Lock(lock) => held.push(*lock),
            _ => {}
        }
    }
    if let Some(lock) = held.first() {
        return Err(format!("the lock {:?} is never given back", names[*lock as usize]));
    }
    Ok(())
}

/// How the steps of a program's task are read.
struct Steps<'r, 'a> {
    group: &'r TableReader<'a>,
    /// Locks, barriers, channels.
    known: (&'r [&'r str], &'r [&'r str], &'r [&'r str]),
    kernel: bool,
    done: Op,
}

impl Steps<'_, '_> {
    /// Reads steps that are within `depth` repetitions.
    fn read(&self, items: &[ScenarioNode], depth: usize, program: &mut Vec<Op>) {
        for item in items {
            match &item.value {
                ScenarioValue::Table(keys) if keys.contains_key("repeat") => {
                    self.repeat(item, depth, program);
                }
                _ => program.extend(self.one(item)),
            }
        }
    }

    /// `{ repeat = 3, steps = [...] }`
    fn repeat(&self, item: &ScenarioNode, depth: usize, program: &mut Vec<Op>) {
        let reader = TableReader::new(item, "repeat", self.group.problems());
        let times = reader.whole("repeat", 1, 1, 1_000_000) as u32;
        let first = program.len();
        match reader.get("steps") {
            _ if depth == RepeatSteps::MOST_NESTED => {
                let most = RepeatSteps::MOST_NESTED;
                let message = format!("repeat is nested deeper than {most} times");
                reader.problem(item.line, message);
            }
            Some(ScenarioNode { value: ScenarioValue::List(items), .. }) if !items.is_empty() => {
                self.read(items, depth + 1, program);
            }
            _ => reader.problem(item.line, "repeat needs steps: { repeat = 3, steps = [...] }"),
        }
        reader.finish();
        let steps = (program.len() - first) as u32;
        program.push(Op::Repeat(RepeatSteps { steps, times, depth: depth as u32 }));
    }

    fn one(&self, item: &ScenarioNode) -> Option<Op> {
        let &Self { group, known: (locks, barriers, channels), kernel, done } = self;
        let class = WorkClass { kernel, ..WorkClass::COMPUTE };
        match &item.value {
            ScenarioValue::Text(word) => match word.as_str() {
                "flush" => return Some(Op::Flush),
                "call" => return Some(Op::Call),
                "begin" => return Some(Op::Begin),
                "done" => return Some(done),
                _ => {}
            },
            ScenarioValue::Table(keys) if keys.len() == 1 => {
                let reader = TableReader::new(item, "a step", group.problems());
                let named = |key, known: &[&str]| {
                    let (name, line) = reader.text(key)?;
                    let found = known.iter().position(|known| *known == name);
                    if found.is_none() {
                        reader.problem(line, format!("{key} = {name:?}: the workload has none"));
                    }
                    found.map(|at| at as u32)
                };
                let op = match keys.keys().next().map_or("", String::as_str) {
                    "work" => duration(&reader, "work").map(|work| Op::Work(work, class)),
                    "stream" => {
                        let class = WorkClass { stream: true, memory_permille: 1_000, kernel };
                        duration(&reader, "stream").map(|work| Op::Work(work, class))
                    }
                    "sleep" => duration(&reader, "sleep").map(Op::Sleep),
                    "lock" => named("lock", locks).map(Op::Lock),
                    "unlock" => named("unlock", locks).map(Op::Unlock),
                    "barrier" => named("barrier", barriers).map(Op::Barrier),
                    "send" => named("send", channels).map(Op::Send),
                    "receive" => named("receive", channels).map(Op::Receive),
                    _ => None,
                };
                if op.is_some() || !group.problems().borrow().is_empty() {
                    return op;
                }
            }
            _ => {}
        }
        group.wrong(
            "steps",
            item,
            "a step is \"flush\", \"call\", \"begin\" or \"done\", or one of { work = T }, { stream = T }, \
             { sleep = T }, { lock = NAME }, { unlock = NAME }, { barrier = NAME }, \
             { send = NAME }, { receive = NAME }, { repeat = N, steps = [...] }",
        );
        None
    }
}
