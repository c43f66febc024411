//! Faults at moments drawn at random: runs killed and interrupted, their QEMUs killed
//! and stopped, their disk full or read-only, their clock set, their journal damaged.
//! Whatever comes, no trial that was on disk is lost or counted twice, nothing is left
//! running, each host setting is what it was, and the study can be brought to its end.
//!
//! `VMLAB_FAULTS` says how many faults (24), `VMLAB_FAULTS_SEED` which: the moments are
//! not repeated by it, what is done is. docs/reliability.md says what a long run found.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use record::journal::JournalEvent;
use rustix::process::Signal;
use suite::{SharedThing, Tier, needs};

use crate::lab::{events, said, vmlab};
use crate::running::{RunningVmlab, Study, assert_complete, owned_by, results, send};

/// What a study of the rounds has to do with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    /// A VM, and a host setting by variant.
    Settings,
    /// A VM beside stress-ng.
    Load,
    /// Two VMs on a bridge.
    Bridge,
    /// A sandbox on the host instead of a VM.
    Sandbox,
}

const FORMS: [Form; 4] = [Form::Settings, Form::Load, Form::Bridge, Form::Sandbox];

impl Form {
    /// Why it can't be had here.
    fn is_missing(self) -> Option<String> {
        match self {
            Self::Settings => {
                let open = File::options().write(true).open(THP_FILE);
                open.err().map(|error| format!("{THP_FILE}: {error}"))
            }
            Self::Load => (!host::sandbox::has_program("stress-ng"))
                .then(|| "stress-ng is not installed".to_owned()),
            Self::Bridge => host::network::check(false).err().map(|error| error.to_string()),
            Self::Sandbox => {
                host::sandbox::check().err().map(|error| error.to_string()).or_else(|| {
                    (!host::sandbox::has_program("hackbench"))
                        .then(|| "hackbench is not installed".to_owned())
                })
            }
        }
    }

    fn study(self) -> Study {
        let work = "[[workload]]\nrun = \"hackbench\"\nlimit_s = 15\n\
                    params = { groups = 1, loops = 50 }\n";
        let rest = match self {
            Self::Settings => format!(
                "[[variant]]\nname = \"never\"\nhost.thp = \"never\"\n\n\
                 [[variant]]\nname = \"always\"\nhost.thp = \"always\"\n\n{work}"
            ),
            Self::Load => format!(
                "[[load]]\nname = \"busy\"\nstress.percent = 50\n\n\
                 [[variant]]\nname = \"one\"\n\n{work}"
            ),
            Self::Bridge => "[network]\nkind = \"bridge\"\n\n[[variant]]\nname = \"one\"\n\n\
                 [[workload]]\nrun = \"iperf3\"\nlimit_s = 15\nparams = { time_s = 1 }\n"
                .to_owned(),
            Self::Sandbox => format!(
                "[[variant]]\nname = \"host\"\non = \"host\"\n\n\
                 [[variant]]\nname = \"guest\"\n\n{work}"
            ),
        };
        let study = Study::new(2, &rest);
        // A stopped QEMU is waited for.
        study.change("boot_limit_s = 180", "boot_limit_s = 60");
        study
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Killed,
    Interrupted,
    Terminated,
    HungUp,
    JournalFlipped,
    JournalCut,
    LineDuplicated,
    LineRemoved,
    DiskFull,
    DiskReadOnly,
    QemuKilled,
    QemuStopped,
    ClockBack,
    ClockForth,
}

impl Fault {
    /// A run goes on after these, to the study's end.
    const BORNE: [Self; 4] =
        [Self::QemuKilled, Self::QemuStopped, Self::ClockBack, Self::ClockForth];

    /// Half of those that end a run are what users meet: a kill without a warning.
    fn drawn(random: &mut Pcg64) -> Self {
        let others = [
            Self::Interrupted,
            Self::Terminated,
            Self::HungUp,
            Self::JournalFlipped,
            Self::JournalCut,
            Self::LineDuplicated,
            Self::LineRemoved,
            Self::DiskFull,
            Self::DiskReadOnly,
        ];
        match random.random_bool(0.5) {
            true => Self::Killed,
            false => *others.choose(random).unwrap(),
        }
    }

    fn signal(self) -> Signal {
        match self {
            Self::Interrupted => Signal::INT,
            Self::Terminated => Signal::TERM,
            Self::HungUp => Signal::HUP,
            _ => Signal::KILL,
        }
    }
}

/// On this machine.
const THP_FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// What must be as it was: settings, and the folders of runs that ended.
fn host_state() -> (Option<String>, usize) {
    (fs::read_to_string(THP_FILE).ok(), host::owner::stale_runtime_dirs().len())
}

/// A file system for one study's results, which can be full or read-only.
struct Disk {
    path: PathBuf,
    is_mounted: bool,
}

const DISK_MIB: u64 = 64;

impl Disk {
    fn mount(path: PathBuf) -> Self {
        fs::create_dir_all(&path).unwrap();
        let options = format!("size={DISK_MIB}m,mode=700");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", &options, "vmlab-test"]).arg(&path);
        let is_mounted = command.output().is_ok_and(|output| output.status.success());
        Self { path, is_mounted }
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }

    fn fill(&self) {
        let file = File::create(self.filler()).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        let mut step = DISK_MIB << 20;
        let mut at = 0;
        // Until not one page is left.
        while step >= 4096 {
            match rustix::fs::fallocate(&file, flags, at, step) {
                Ok(()) => at += step,
                Err(_) => step /= 2,
            }
        }
    }

    fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        let status = Command::new("mount").args(["-o", &options]).arg(&self.path).status();
        assert!(status.unwrap().success(), "mount -o {options} {}", self.path.display());
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.is_mounted {
            drop(Command::new("umount").arg("-l").arg(&self.path).output());
        }
    }
}

/// A clock that can be set for one program: libfaketime's, where it is installed.
struct Clock {
    preloaded: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn find(folder: &Path) -> Option<Self> {
        let arch = std::env::consts::ARCH;
        let preloaded = format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketimeMT.so.1");
        let preloaded = PathBuf::from(preloaded);
        let offset = folder.join("clock-offset");
        fs::write(&offset, "+0").unwrap();
        preloaded.exists().then_some(Self { preloaded, offset })
    }

    fn env(&self) -> [(&'static str, OsString); 4] {
        [
            ("LD_PRELOAD", self.preloaded.clone().into()),
            ("FAKETIME_TIMESTAMP_FILE", self.offset.clone().into()),
            ("FAKETIME_NO_CACHE", "1".into()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
        ]
    }
}

/// One study under faults, until it is complete.
struct Round<'a> {
    random: &'a mut Pcg64,
    study: Study,
    disk: Disk,
    clock: Option<Clock>,
    /// How long a run of this form takes.
    span: Duration,
    /// The latest moment of a fault, as a share of that.
    latest: f64,
    /// What was on disk when somebody last looked.
    acknowledged: Vec<JournalEvent>,
    before: (Option<String>, usize),
    /// A killed run's leftovers are still there: who begins next, or `clean`, ends them.
    has_leftovers: bool,
}

impl<'a> Round<'a> {
    fn new(random: &'a mut Pcg64, form: Form, span: Duration) -> Self {
        let study = form.study();
        let disk = Disk::mount(study.dir());
        let clock = Clock::find(study.folder());
        let before = host_state();
        Self {
            random,
            study,
            disk,
            clock,
            span,
            // A bit beyond its end, too.
            latest: 1.1,
            acknowledged: Vec::new(),
            before,
            has_leftovers: false,
        }
    }

    /// A new run, or the same one gone on with.
    fn run(&self, env: &[(&str, OsString)]) -> RunningVmlab {
        let dir = self.study.dir();
        let mut command = match dir.join("plan.json").exists() {
            true => vmlab(["run".as_ref(), "--resume".as_ref(), dir.as_os_str()]),
            false => {
                let study = self.study.folder().join("study.toml");
                vmlab(["run".as_ref(), study.as_os_str(), "--out".as_ref(), dir.as_os_str()])
            }
        };
        command.envs(env.iter().map(|(key, value)| (key, value)));
        RunningVmlab::spawn(&mut command, &dir)
    }

    /// Lets a run go on to a moment drawn at random; whether it still goes on then.
    fn let_go_on(&mut self, running: &mut RunningVmlab) -> bool {
        let share = self.random.random_range(0.0..self.latest);
        let moment = Instant::now() + self.span.mul_f64(share);
        while Instant::now() < moment {
            if running.has_ended() {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
        !running.has_ended()
    }

    /// Nothing that was on disk is gone, and nothing stands before it.
    #[track_caller]
    fn keeps(&mut self) {
        let now = events(&self.study.dir());
        let was = &self.acknowledged;
        assert!(now.starts_with(was), "{was:#?}\nis no beginning of\n{now:#?}");
        self.acknowledged = now;
    }

    /// A run left nothing, and the host is as it was before the study.
    #[track_caller]
    fn is_clean(&self, owner: u32) {
        let left = owned_by(owner);
        assert!(left.is_empty(), "left behind: {left:#?}");
        assert!(self.has_leftovers || host_state() == self.before, "{:?}", host_state());
    }

    /// As [`Round::is_clean`], of a run that came to its end: it also ended what an
    /// earlier one had left.
    #[track_caller]
    fn is_clean_at_last(&mut self, owner: u32) {
        self.has_leftovers = false;
        self.is_clean(owner);
    }

    /// Ends a run by a signal at a moment; its number, and whether it met the run.
    fn end(&mut self, signal: Signal) -> (u32, bool) {
        let mut running = self.run(&[]);
        let owner = running.pid();
        let goes_on = self.let_go_on(&mut running);
        self.keeps();
        if goes_on {
            send(owner, signal);
        }
        let ended = running.ended();
        let by_itself = matches!(ended.code, Some(0 | 1));
        if signal != Signal::KILL {
            assert!(by_itself || ended.code == Some(2), "{ended:#?}");
            self.is_clean(owner);
        } else {
            self.has_leftovers = true;
        }
        if by_itself {
            self.is_clean_at_last(owner);
        }
        self.keeps();
        (owner, !by_itself)
    }

    /// After a kill: now and then the next run finds what is left, else `clean` does.
    fn clean_up(&mut self, owner: u32) {
        if self.random.random_bool(0.7) {
            said(&mut vmlab(["clean"])).has_code(0);
            self.is_clean_at_last(owner);
        }
    }

    /// Whether the fault met a run.
    fn suffer(&mut self, fault: Fault) -> bool {
        match fault {
            Fault::Killed | Fault::Interrupted | Fault::Terminated | Fault::HungUp => {
                let (owner, met) = self.end(fault.signal());
                if fault == Fault::Killed {
                    self.clean_up(owner);
                }
                met
            }
            Fault::JournalFlipped
            | Fault::JournalCut
            | Fault::LineDuplicated
            | Fault::LineRemoved => self.damage(fault),
            Fault::DiskFull => self.disk.is_mounted && self.fill_disk(),
            Fault::DiskReadOnly => self.disk.is_mounted && self.forbid_writes(),
            Fault::QemuKilled | Fault::QemuStopped => self.meet_qemu(fault),
            Fault::ClockBack | Fault::ClockForth => self.set_clock(fault),
        }
    }

    /// The journal of a killed run, damaged as no crash does it: it is told, nothing
    /// is added to it, and as it was it serves on.
    fn damage(&mut self, fault: Fault) -> bool {
        let (owner, _) = self.end(Signal::KILL);
        self.clean_up(owner);
        let path = self.study.dir().join("journal.jsonl");
        let good = fs::read(&path).unwrap_or_default();
        // What a crash left of its last write is not a line.
        let whole = good.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<&[u8]> = good[..whole].split_inclusive(|byte| *byte == b'\n').collect();
        if lines.len() < 2 {
            return false;
        }
        let at = self.random.random_range(0..lines.len());
        let damaged = match fault {
            Fault::JournalFlipped => {
                let byte = self.random.random_range(0..whole);
                let mut bytes = good[..whole].to_vec();
                bytes[byte] ^= 1 << self.random.random_range(0..7);
                bytes
            }
            Fault::JournalCut => good[..self.random.random_range(0..whole)].to_vec(),
            Fault::LineDuplicated => [&lines[..=at], &lines[at..]].concat().concat(),
            _ => [&lines[..at], &lines[at + 1..]].concat().concat(),
        };
        fs::write(&path, &damaged).unwrap();
        let dir = self.study.dir();
        let told = said(vmlab(["report", "--verify"]).arg(&dir));
        assert_eq!(told.code, Some(1), "{fault:?} of line {at}: {told:#?}");
        let refused = self.run(&[]).ended();
        assert_eq!(refused.code, Some(2), "{fault:?} of line {at}: {refused:#?}");
        assert!(refused.stderr.contains("journal.jsonl"), "{refused:#?}");
        assert!(fs::read(&path).unwrap() == damaged, "a damaged journal was changed");
        fs::write(&path, good).unwrap();
        true
    }

    /// A disk that is full from a moment on: one error, unless nothing was left to write.
    fn fill_disk(&mut self) -> bool {
        let mut running = self.run(&[]);
        let owner = running.pid();
        let goes_on = self.let_go_on(&mut running);
        self.keeps();
        self.disk.fill();
        let ended = running.ended();
        let met = goes_on && !matches!(ended.code, Some(0 | 1));
        assert!(!met || ended.code == Some(2), "{ended:#?}");
        assert!(!met || ended.stderr.contains("the disk is full"), "{ended:#?}");
        fs::remove_file(self.disk.filler()).unwrap();
        self.is_clean(owner);
        self.keeps();
        met
    }

    /// A disk that can be read only, from the start: one error and no VM.
    fn forbid_writes(&mut self) -> bool {
        self.disk.remount("ro");
        let running = self.run(&[]);
        let owner = running.pid();
        let ended = running.ended();
        self.disk.remount("rw");
        assert_eq!(ended.code, Some(2), "{ended:#?}");
        assert!(ended.stderr.to_lowercase().contains("read-only"), "{ended:#?}");
        self.is_clean(owner);
        self.keeps();
        true
    }

    /// A QEMU killed or stopped behind vmlab's back: an outcome that is recorded.
    fn meet_qemu(&mut self, fault: Fault) -> bool {
        let mut running = self.run(&[]);
        let owner = running.pid();
        self.let_go_on(&mut running);
        // The next one, if there is none just now.
        let mut qemu = None;
        while qemu.is_none() && !running.has_ended() {
            qemu = running.qemus().pop();
            thread::sleep(Duration::from_millis(2));
        }
        if let Some(qemu) = &qemu {
            let signal = match fault {
                Fault::QemuKilled => Signal::KILL,
                _ => Signal::STOP,
            };
            let pid = rustix::process::Pid::from_raw(qemu.pid.try_into().unwrap()).unwrap();
            // It may have ended in between.
            let _ = rustix::process::kill_process(pid, signal);
        }
        let ended = running.ended();
        assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
        self.is_clean_at_last(owner);
        self.keeps();
        qemu.is_some()
    }

    /// A clock that jumps by a day: no wait gets longer, no time is below zero.
    fn set_clock(&mut self, fault: Fault) -> bool {
        let Some(clock) = &self.clock else { return false };
        let (env, path) = (clock.env(), clock.offset.clone());
        let mut running = self.run(&env);
        let owner = running.pid();
        let goes_on = self.let_go_on(&mut running);
        let offset = if fault == Fault::ClockBack { "-1d" } else { "+1d" };
        fs::write(&path, offset).unwrap();
        let ended = running.ended();
        assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
        self.is_clean_at_last(owner);
        self.keeps();
        for result in results(&events(&self.study.dir())) {
            let times = [result.wall_s, result.boot_s.unwrap_or(0.0)];
            assert!(times.iter().all(|time_s| (0.0..600.0).contains(time_s)), "{times:?}");
        }
        goes_on
    }

    /// Brings the study to its end: complete, whole, and the host as before.
    fn complete(mut self) {
        let running = self.run(&[]);
        let owner = running.pid();
        let ended = running.ended();
        assert!(matches!(ended.code, Some(0 | 1)), "{ended:#?}");
        self.keeps();
        self.is_clean_at_last(owner);
        assert_complete(&self.study.dir());
        said(vmlab(["report", "--verify"]).arg(self.study.dir())).has_code(0);
    }
}

/// How long a run takes that nothing befalls: where moments are drawn from.
fn length(random: &mut Pcg64, form: Form) -> Duration {
    let started = Instant::now();
    Round::new(random, form, Duration::ZERO).complete();
    started.elapsed()
}

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, not a number"))
    })
}

/// Faults that met a run, by form and kind.
type Tally = BTreeMap<(Form, Fault), usize>;

fn print(tally: &Tally) {
    for ((form, fault), count) in tally {
        println!("FAULTS: {form:?} {fault:?} {count}");
    }
    println!("FAULTS: {} in all", tally.values().sum::<usize>());
}

#[test]
fn studies_under_faults_lose_nothing_and_leave_nothing() {
    let turn = needs(Tier::Full).pcpus(1);
    let Some(_turn) =
        turn.alone_with(SharedThing::Leftovers).alone_with(SharedThing::Settings).turn()
    else {
        return;
    };
    let wanted = usize::try_from(number("VMLAB_FAULTS", 24)).unwrap();
    let seed = number("VMLAB_FAULTS_SEED", rand::random::<u32>().into());
    println!("VMLAB_FAULTS_SEED={seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut forms = FORMS.to_vec();
    forms.retain(|form| {
        let missing = form.is_missing();
        if let Some(why) = &missing {
            suite::skip_part(&format!("{form:?}"), why);
        }
        missing.is_none()
    });
    said(&mut vmlab(["clean"])).has_code(0);
    let mut spans: BTreeMap<Form, Duration> = BTreeMap::new();
    let mut tally = Tally::new();
    while tally.values().sum::<usize>() < wanted {
        let form = *forms.choose(&mut random).expect("a form that can be had here");
        let span = *spans.entry(form).or_insert_with(|| length(&mut random, form));
        let mut faults: Vec<Fault> =
            (0..random.random_range(1..5)).map(|_| Fault::drawn(&mut random)).collect();
        if random.random_bool(0.5) {
            faults.push(*Fault::BORNE.choose(&mut random).unwrap());
        }
        println!("{form:?}, runs of {:.1} s: {faults:?}", span.as_secs_f64());
        let mut round = Round::new(&mut random, form, span);
        for fault in faults {
            if round.suffer(fault) {
                *tally.entry((form, fault)).or_default() += 1;
            }
        }
        round.complete();
        // Whoever ends it early knows what was done.
        println!("FAULTS: {} so far", tally.values().sum::<usize>());
    }
    print(&tally);
}

/// Kills alone, and many of one study: most meet its run soon after it was gone on with,
/// so that each form is killed in whatever it does first, again and again.
#[test]
fn studies_killed_again_and_again_come_to_their_end() {
    let turn = needs(Tier::Full).pcpus(1);
    let Some(_turn) =
        turn.alone_with(SharedThing::Leftovers).alone_with(SharedThing::Settings).turn()
    else {
        return;
    };
    let wanted = usize::try_from(number("VMLAB_FAULTS", 24)).unwrap();
    let seed = number("VMLAB_FAULTS_SEED", rand::random::<u32>().into());
    println!("VMLAB_FAULTS_SEED={seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut forms = FORMS.to_vec();
    forms.retain(|form| form.is_missing().is_none());
    said(&mut vmlab(["clean"])).has_code(0);
    let mut spans: BTreeMap<Form, Duration> = BTreeMap::new();
    let mut tally = Tally::new();
    while tally.values().sum::<usize>() < wanted {
        let form = *forms.choose(&mut random).expect("a form that can be had here");
        let span = *spans.entry(form).or_insert_with(|| length(&mut random, form));
        let mut round = Round::new(&mut random, form, span);
        // Now and then a trial still comes to its end in between.
        round.latest = 0.3;
        for _ in 0..20 {
            if round.suffer(Fault::Killed) {
                *tally.entry((form, Fault::Killed)).or_default() += 1;
            }
        }
        round.complete();
        // Whoever ends it early knows what was done.
        println!("FAULTS: {} so far", tally.values().sum::<usize>());
    }
    print(&tally);
}

/// Kills of `vmlab settings set` at moments drawn from what it takes, now and then
/// while another one begins. On the real thing: a made-up tree's files can be met
/// between being emptied and being written, the kernel's can't.
#[test]
fn settings_commands_that_are_killed_leave_what_clean_puts_back() {
    let turn = needs(Tier::Test).pcpus(1);
    let Some(_turn) =
        turn.alone_with(SharedThing::Leftovers).alone_with(SharedThing::Settings).turn()
    else {
        return;
    };
    let files = [THP_FILE, "/proc/sys/vm/swappiness"];
    for file in files {
        if let Err(error) = File::options().write(true).open(file) {
            suite::skip(format!("{file}: {error}"));
            return;
        }
    }
    let wanted = match Tier::run() {
        Tier::Full => number("VMLAB_FAULTS", 24),
        Tier::Fast | Tier::Test => 8,
    };
    let values = || files.map(|file| fs::read_to_string(file).unwrap());
    let before = values();
    let thp = if before[0].contains("[never]") { "thp=always" } else { "thp=never" };
    let swappiness = if before[1].trim() == "37" { "swappiness=38" } else { "swappiness=37" };
    let set = || {
        let mut command = vmlab(["settings", "set", thp, swappiness, "--", "true"]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    said(&mut vmlab(["clean"])).has_code(0);
    let seed = number("VMLAB_FAULTS_SEED", rand::random::<u32>().into());
    println!("VMLAB_FAULTS_SEED={seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let started = Instant::now();
    assert!(set().wait().unwrap().success());
    let span = started.elapsed();
    let mut met = 0;
    for _ in 0..wanted {
        let mut first = set();
        let moment = Instant::now() + span.mul_f64(random.random_range(0.0..1.2));
        let mut second = random.random_bool(0.3).then(&set);
        while Instant::now() < moment && first.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_micros(100));
        }
        met += usize::from(first.try_wait().unwrap().is_none());
        for child in std::iter::once(&mut first).chain(&mut second) {
            let _ = child.kill();
            child.wait().unwrap();
        }
        said(&mut vmlab(["clean"])).has_code(0);
        assert_eq!(values(), before);
    }
    println!("FAULTS: {met} of {wanted} kills met a command");
}
