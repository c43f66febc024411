//! What is counted: frames and bytes of a port, drops by reason, the work of a
//! polling thread. Written by the threads, read by whoever asks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a frame was not passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum DropReason {
    /// The sender's descriptors make no sense.
    Malformed,
    /// Shorter than an Ethernet header.
    Runt,
    /// The header asks for what was not agreed on, or lies outside of the frame.
    BadOffload,
    /// The sender's address belongs to another port.
    Spoofed,
    /// The tag names a VLAN that the port does not carry.
    Vlan,
    /// The receiver is behind the sender's own port.
    SamePort,
    /// Both ports are isolated.
    Isolated,
    /// The receiver's port has no running queue.
    NotConnected,
    /// The receiver has given no buffer.
    NoBuffer,
    /// The frame fits in no buffer of the receiver.
    TooLong,
    /// The polling thread that serves the receiver does not keep up.
    Crossing,
    /// Longer than a port's MTU allows.
    Mtu,
}

impl DropReason {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Malformed,
        Self::Runt,
        Self::BadOffload,
        Self::Spoofed,
        Self::Vlan,
        Self::SamePort,
        Self::Isolated,
        Self::NotConnected,
        Self::NoBuffer,
        Self::TooLong,
        Self::Crossing,
        Self::Mtu,
    ];

    /// Its name in tables and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Runt => "runt",
            Self::BadOffload => "bad_offload",
            Self::Spoofed => "spoofed",
            Self::Vlan => "vlan",
            Self::SamePort => "same_port",
            Self::Isolated => "isolated",
            Self::NotConnected => "not_connected",
            Self::NoBuffer => "no_buffer",
            Self::TooLong => "too_long",
            Self::Crossing => "crossing",
            Self::Mtu => "mtu",
        }
    }
}

/// What a receiver left to do here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OffloadWork {
    /// Nothing: the frame went as it came.
    None,
    /// To compute a checksum.
    Checksum,
    /// To cut segments, with their checksums.
    Segments,
}

/// A port's counters. "In" is from the guest to the switch.
#[derive(Debug, Default)]
pub struct PortCounters {
    frames_in: AtomicU64,
    bytes_in: AtomicU64,
    frames_out: AtomicU64,
    bytes_out: AtomicU64,
    flooded: AtomicU64,
    kicks: AtomicU64,
    signals: AtomicU64,
    signals_lost: AtomicU64,
    segmented: AtomicU64,
    checksummed: AtomicU64,
    busy_ns: AtomicU64,
    drops: [AtomicU64; DropReason::ALL.len()],
}

impl PortCounters {
    /// The guest sent `frames` of `bytes`.
    #[inline]
    pub fn count_in(&self, frames: u64, bytes: u64) {
        self.frames_in.fetch_add(frames, Ordering::Relaxed);
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The guest was given `frames` of `bytes`.
    #[inline]
    pub fn count_out(&self, frames: u64, bytes: u64) {
        self.frames_out.fetch_add(frames, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes, Ordering::Relaxed);
    }

    /// `frames` of the guest went to all.
    pub fn count_flooded(&self, frames: u64) {
        self.flooded.fetch_add(frames, Ordering::Relaxed);
    }

    /// The guest kicked.
    pub fn count_kick(&self) {
        self.kicks.fetch_add(1, Ordering::Relaxed);
    }

    /// The guest was sent an event, or the kernel refused to.
    #[inline]
    pub fn count_signal(&self, sent: bool) {
        let counter = if sent { &self.signals } else { &self.signals_lost };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done here for a frame, as the guest takes no offload.
    #[inline]
    pub(crate) fn count_work(&self, work: OffloadWork) {
        match work {
            OffloadWork::None => return,
            OffloadWork::Checksum => &self.checksummed,
            OffloadWork::Segments => &self.segmented,
        }
        .fetch_add(1, Ordering::Relaxed);
    }

    /// Polling threads worked for the guest for about this time.
    #[inline]
    pub(crate) fn count_busy(&self, time: Duration) {
        let time_ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.busy_ns.fetch_add(time_ns, Ordering::Relaxed);
    }

    /// `frames` were dropped.
    #[inline]
    pub fn count_drop(&self, reason: DropReason, frames: u64) {
        self.drops[reason as usize].fetch_add(frames, Ordering::Relaxed);
    }

    /// What was counted of that.
    pub(crate) fn busy_ns(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed)
    }

    /// Their values.
    #[must_use]
    pub fn read(&self) -> PortCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PortCounts {
            frames_in: get(&self.frames_in),
            bytes_in: get(&self.bytes_in),
            frames_out: get(&self.frames_out),
            bytes_out: get(&self.bytes_out),
            flooded: get(&self.flooded),
            kicks: get(&self.kicks),
            signals: get(&self.signals),
            signals_lost: get(&self.signals_lost),
            rate_waits: 0,
            segmented: get(&self.segmented),
            checksummed: get(&self.checksummed),
            busy_ns: get(&self.busy_ns),
            drops: DropReason::ALL
                .into_iter()
                .map(|reason| (reason.name().to_owned(), get(&self.drops[reason as usize])))
                .filter(|&(_, count)| count > 0)
                .collect(),
        }
    }
}

/// A port's counters at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortCounts {
    /// Frames from the guest.
    pub frames_in: u64,
    /// Their bytes, without the Virtio header.
    pub bytes_in: u64,
    /// Frames to the guest.
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames from the guest that went to all ports.
    pub flooded: u64,
    /// Kicks of the guest.
    pub kicks: u64,
    /// Events to the guest.
    pub signals: u64,
    /// Events that the kernel refused to deliver.
    #[serde(default)]
    pub signals_lost: u64,
    /// How often the guest had frames and had to wait for its rate.
    #[serde(default)]
    pub rate_waits: u64,
    /// Frames to the guest that were cut into segments here, because it takes none.
    #[serde(default)]
    pub segmented: u64,
    /// Frames to the guest whose checksum was computed here, because it does not.
    #[serde(default)]
    pub checksummed: u64,
    /// Time of polling threads for frames from the guest, and for those from other threads
    /// to it: an estimate, as one of many bursts is timed.
    #[serde(default)]
    pub busy_ns: u64,
    /// Frames that were not passed on, by reason, where there were any: from this
    /// guest for what is wrong with them, to this guest for what it lacks.
    pub drops: std::collections::BTreeMap<String, u64>,
}

/// A polling thread's counters.
#[derive(Debug, Default)]
pub struct ThreadCounters {
    pub(crate) bursts: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) idle_ns: AtomicU64,
    /// Sleeps that are over.
    asleep_ns: AtomicU64,
    sleeps: AtomicU64,
    /// Since when it sleeps. Nobody but who asks for the counters makes it wait.
    asleep_since: Mutex<Option<Instant>>,
}

impl ThreadCounters {
    /// It goes to sleep.
    pub(crate) fn fall_asleep(&self) {
        *self.asleep_since.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// It is awake again.
    pub(crate) fn wake_up(&self) {
        let mut since = self.asleep_since.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(since) = since.take() {
            self.asleep_ns.fetch_add(ns(since), Ordering::Relaxed);
            self.sleeps.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Their values.
    #[must_use]
    pub fn read(&self) -> ThreadCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // A sleep is added when it is over: one that lasts counts as far as it has come.
        let since = self.asleep_since.lock().unwrap_or_else(PoisonError::into_inner);
        ThreadCounts {
            bursts: get(&self.bursts),
            frames: get(&self.frames),
            busy_ns: get(&self.busy_ns),
            idle_ns: get(&self.idle_ns),
            asleep_ns: get(&self.asleep_ns) + since.map_or(0, ns),
            sleeps: get(&self.sleeps),
            asleep_now: since.is_some(),
        }
    }
}

/// Time since then.
fn ns(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A polling thread's counters at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadCounts {
    /// Bursts that held a frame.
    pub bursts: u64,
    /// Frames taken from rings.
    pub frames: u64,
    /// Passes that found work.
    pub busy_ns: u64,
    /// Passes that found none.
    pub idle_ns: u64,
    /// Waiting for kicks.
    pub asleep_ns: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// It waits for a kick.
    pub asleep_now: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_that_lasts_is_counted_as_far_as_it_has_come() {
        let counters = ThreadCounters::default();
        counters.fall_asleep();
        let began = Instant::now();
        while began.elapsed().is_zero() {}
        let first = counters.read();
        assert!(first.asleep_now && first.asleep_ns > 0 && first.sleeps == 0, "{first:?}");
        counters.wake_up();
        let after = counters.read();
        assert!(after.asleep_ns >= first.asleep_ns, "{first:?}, {after:?}");
        assert_eq!((after.asleep_now, after.sleeps), (false, 1));
        assert_eq!(counters.read(), after);
    }
}
