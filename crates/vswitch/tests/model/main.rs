//! The switch's lock-free protocols under a model checker: every order in which threads
//! can meet in them, as the memory model allows (loom).
//!
//! `table.rs`, `sleeper.rs` and `ring` are the switch's own, built with loom's atomics, the
//! rings over a memory of such atomics, too.

mod memory;
mod rings;
mod sync {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence,
    };
}

#[allow(dead_code, unreachable_pub, reason = "a part of it is enough here, and no library")]
#[path = "../../src/ring/mod.rs"]
mod ring;
#[path = "../../src/sleeper.rs"]
mod sleeper;
#[allow(dead_code, reason = "a part of it is enough here")]
#[path = "../../src/table.rs"]
mod table;

use loom::sync::Arc;
use loom::thread;
use sleeper::Sleeper;
use sync::{AtomicBool, AtomicU32, Ordering};
use table::{LearnOutcome, MacTable, Station, WAYS};

/// A model with so many changes of threads at most, where all would take minutes.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn station(number: u8) -> Station {
    Station::new(0, [2, 0, 0, 0, 0, number])
}

/// One set, so that all stations meet in it.
fn table() -> Arc<MacTable> {
    Arc::new(MacTable::with_capacity(4, WAYS))
}

#[test]
fn who_sleeps_is_woken_or_sees_the_work() {
    check(4, || {
        let sleeper = Arc::new(Sleeper::new());
        let work = Arc::new(AtomicBool::new(false));
        let bell = Arc::new(AtomicBool::new(false));
        let brings = {
            let (sleeper, work, bell) =
                (Arc::clone(&sleeper), Arc::clone(&work), Arc::clone(&bell));
            thread::spawn(move || {
                work.store(true, Ordering::Relaxed);
                if sleeper.must_be_woken() {
                    bell.store(true, Ordering::Relaxed);
                }
            })
        };
        sleeper.lie_down();
        let seen = work.load(Ordering::Relaxed);
        brings.join().unwrap();
        assert!(seen || bell.load(Ordering::Relaxed), "it would sleep on its work");
        sleeper.get_up();
    });
}

#[test]
fn nobody_reads_another_station_s_port() {
    check(2, || {
        let table = table();
        // Station n is behind port n; one is forgotten and its place taken by another.
        table.learn(station(1), 1);
        let learns = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.learn(station(2), 2))
        };
        let forgets = {
            let table = Arc::clone(&table);
            thread::spawn(move || table.forget_port(1))
        };
        for number in [1, 2] {
            if let Some(port) = table.port(station(number)) {
                assert_eq!(port, u16::from(number));
            }
        }
        learns.join().unwrap();
        forgets.join().unwrap();
        assert_eq!(table.port(station(1)), None);
        assert_eq!(table.port(station(2)), Some(2));
    });
}

#[test]
fn shares_are_given_back_as_often_as_taken() {
    check(2, || {
        let table = table();
        table.learn(station(1), 0);
        let moves = |port| {
            let table = Arc::clone(&table);
            thread::spawn(move || table.learn(station(1), port))
        };
        let threads = [moves(1), moves(2)];
        let outcomes = threads.map(|thread| thread.join().unwrap());
        assert!(outcomes.iter().all(|outcome| *outcome != LearnOutcome::Full), "{outcomes:?}");
        let held = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        let held: Vec<u32> = table.held.iter().map(held).collect();
        let entries = table.entries();
        for (port, &held) in held.iter().enumerate() {
            let behind = entries.iter().filter(|entry| usize::from(entry.port) == port).count();
            assert_eq!(held as usize, behind, "{entries:?}");
        }
    });
}

/// A ring, of which two threads must never have hold.
#[derive(Default)]
struct Ring {
    taken: AtomicBool,
    position: AtomicU32,
}

impl Ring {
    fn serve(&self) {
        assert!(!self.taken.swap(true, Ordering::Relaxed), "another thread has it");
        let position = self.position.load(Ordering::Relaxed);
        self.position.store(position + 1, Ordering::Relaxed);
        self.taken.store(false, Ordering::Relaxed);
    }
}

/// What a thread may use of a snapshot ends when the control thread has heard that it uses
/// a later one; what another thread serves next is in nobody's snapshot between. That is
/// the order in which `control.rs` and `worker.rs` send, receive and say so.
#[test]
fn a_ring_goes_from_thread_to_thread_and_is_never_served_by_two() {
    check(2, || {
        let ring = Arc::new(Ring::default());
        let start = |ring: &Arc<Ring>, snapshots: usize| {
            let (publish, published) = loom::sync::mpsc::channel::<bool>();
            let (say, heard) = loom::sync::mpsc::channel::<()>();
            let ring = Arc::clone(ring);
            let thread = thread::spawn(move || {
                for _ in 0..snapshots {
                    let serves = published.recv().unwrap();
                    say.send(()).unwrap();
                    if serves {
                        ring.serve();
                    }
                }
            });
            (publish, heard, thread)
        };
        let (first, second) = (start(&ring, 2), start(&ring, 1));
        // The first serves it, then nobody, then the second.
        for (publish, heard, serves) in
            [(&first.0, &first.1, true), (&first.0, &first.1, false), (&second.0, &second.1, true)]
        {
            publish.send(serves).unwrap();
            heard.recv().unwrap();
        }
        first.2.join().unwrap();
        second.2.join().unwrap();
        assert_eq!(ring.position.load(Ordering::Relaxed), 2);
    });
}
