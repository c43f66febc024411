//! A running switch as OpenMetrics: what `ctl status` says, as counters.

use std::io;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use vswitch::{LinkState, SwitchStatus};

type Labels = Vec<(&'static str, String)>;
type CountFamily = Family<Labels, Counter>;
type SecondsFamily = Family<Labels, Counter<f64, AtomicU64>>;

fn counter(registry: &mut Registry, name: &str, help: &str) -> CountFamily {
    let family = CountFamily::default();
    registry.register(name, help, family.clone());
    family
}

/// The page.
pub(super) fn page(status: &SwitchStatus) -> io::Result<String> {
    let mut registry = Registry::with_prefix("vmlab_switch");
    let up: Family<Labels, Gauge> = Family::default();
    registry.register("port_up", "1 while the port's driver runs rings", up.clone());
    let mut of_ports = |name: &str, help: &str| counter(&mut registry, name, help);
    let frames = of_ports("port_frames", "Frames from the port (in) and to it (out)");
    let bytes = of_ports("port_bytes", "Their bytes, without the Virtio header");
    let flooded = of_ports("port_flooded_frames", "Frames from the port that went to all");
    let drops = of_ports("port_drops", "Frames that were not passed on, by reason");
    let kicks = of_ports("port_kicks", "Kicks of the port's driver");
    let signals = of_ports("port_signals", "Events to the port's driver");
    let lost = of_ports("port_lost_signals", "Events that the kernel refused to deliver");
    let waits = of_ports("port_rate_waits", "Times that the port waited for its rate");
    let segmented =
        of_ports("port_segmented_frames", "Frames to the port that were cut into segments here");
    let checksummed =
        of_ports("port_checksummed_frames", "Frames to the port whose checksum was computed here");
    let connections = of_ports("port_connections", "Frontends that came");
    let busy = SecondsFamily::default();
    let help = "Time of polling threads for the port, about";
    registry.register_with_unit("port_busy", help, Unit::Seconds, busy.clone());
    for port in &status.ports {
        let with = |more: Option<(&'static str, &str)>| {
            let more = more.map(|(name, value)| (name, value.to_owned()));
            std::iter::once(("port", port.name.clone())).chain(more).collect::<Labels>()
        };
        let add = |family: &CountFamily, more: Option<(&'static str, &str)>, value: u64| {
            family.get_or_create(&with(more)).inc_by(value);
        };
        let counts = &port.counts;
        busy.get_or_create(&with(None)).inc_by(counts.busy_ns as f64 / 1e9);
        up.get_or_create(&with(None)).set(i64::from(port.state == LinkState::Running));
        for (way, of_frames, of_bytes) in [
            ("in", counts.frames_in, counts.bytes_in),
            ("out", counts.frames_out, counts.bytes_out),
        ] {
            add(&frames, Some(("direction", way)), of_frames);
            add(&bytes, Some(("direction", way)), of_bytes);
        }
        for (reason, &count) in &counts.drops {
            add(&drops, Some(("reason", reason)), count);
        }
        for (family, value) in [
            (&flooded, counts.flooded),
            (&kicks, counts.kicks),
            (&signals, counts.signals),
            (&lost, counts.signals_lost),
            (&waits, counts.rate_waits),
            (&segmented, counts.segmented),
            (&checksummed, counts.checksummed),
            (&connections, port.connections),
        ] {
            add(family, None, value);
        }
    }
    let time = SecondsFamily::default();
    let help = "Time of a polling thread: busy, looking for work, asleep";
    registry.register_with_unit("thread_time", help, Unit::Seconds, time.clone());
    let bursts = counter(&mut registry, "thread_bursts", "Bursts that held a frame");
    let taken = counter(&mut registry, "thread_frames", "Frames taken from rings");
    for (number, thread) in status.threads.iter().enumerate() {
        let labels = vec![("thread", number.to_string())];
        let counts = &thread.counts;
        for (state, ns) in
            [("busy", counts.busy_ns), ("looking", counts.idle_ns), ("asleep", counts.asleep_ns)]
        {
            let labels = [labels.clone(), vec![("state", state.to_owned())]].concat();
            time.get_or_create(&labels).inc_by(ns as f64 / 1e9);
        }
        bursts.get_or_create(&labels).inc_by(counts.bursts);
        taken.get_or_create(&labels).inc_by(counts.frames);
    }
    let mirrored = counter(&mut registry, "mirror_frames", "Frames for mirrors, by outcome");
    for mirror in &status.mirrors {
        for (outcome, count) in [("written", mirror.written), ("dropped", mirror.dropped)] {
            let labels = vec![("target", mirror.target.clone()), ("outcome", outcome.to_owned())];
            mirrored.get_or_create(&labels).inc_by(count);
        }
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(io::Error::other)?;
    Ok(text)
}
