//! What the switch is asked and told while it runs, and its answers.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use topology::MacAddress;

use super::Control;
use crate::config::{PortConfig, station_address};
use crate::counters::PortCounts;
use crate::event::SwitchEvent;
use crate::question::{
    ControlReply, LinkState, MirrorStatus, PortStatus, Question, SameAddress, StationStatus,
    SwitchStatus, ThreadStatus, VERSION,
};
use crate::words::feature_words;

impl Control {
    pub(super) fn answer(&mut self, question: Question) -> ControlReply {
        let done = |result: Result<(), String>| match result {
            Ok(()) => ControlReply::Done,
            Err(error) => ControlReply::Error(error),
        };
        match question {
            Question::Status => ControlReply::Status(Box::new(self.status())),
            Question::Stations => ControlReply::Stations(self.stations()),
            Question::Add { port } => done(self.add_described(&port)),
            Question::Remove { port } => done(self.port_named(&port).map(|port| self.remove(port))),
            Question::Pin { mac, port } => done(self.pin(&mac, &port)),
            Question::Unpin { mac } => done(self.unpin(&mac)),
            Question::Forget { port } => done(self.forget(port.as_deref())),
            Question::End => {
                self.ending = true;
                ControlReply::Done
            }
        }
    }

    fn add_described(&mut self, text: &str) -> Result<(), String> {
        let config = PortConfig::parse(text).map_err(|error| error.to_string())?;
        self.add(config).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        })?;
        self.fabric.publish();
        Ok(())
    }

    fn pin(&mut self, text: &str, port: &str) -> Result<(), String> {
        let mac = station_address(text).ok_or_else(|| format!("{text} is no station's address"))?;
        let port = self.port_named(port)?;
        let Some(slot) = &self.slots[port] else { return Ok(()) };
        let number = u16::try_from(port).expect("few ports");
        let set = self.set_by_hand(&slot.config.policy.vlan, mac, number);
        set.map_err(|error| error.to_string())
    }

    fn unpin(&mut self, text: &str) -> Result<(), String> {
        let mac = station_address(text).ok_or_else(|| format!("{text} is no station's address"))?;
        let entries = self.table.entries().into_iter();
        let pins: Vec<_> = entries
            .filter(|entry| entry.age_s.is_none() && entry.station.mac() == mac.bytes())
            .filter(|entry| {
                let slot = self.slots[usize::from(entry.port)].as_ref();
                slot.is_none_or(|slot| slot.config.policy.mac != Some(mac))
            })
            .collect();
        if pins.is_empty() {
            return Err(format!(
                "{text} is pinned to no port (what mac= says stays with its port)"
            ));
        }
        pins.iter().for_each(|entry| self.table.forget_station(entry.station));
        Ok(())
    }

    fn forget(&mut self, port: Option<&str>) -> Result<(), String> {
        let ports = match port {
            Some(port) => vec![self.port_named(port)?],
            None => (0..self.slots.len()).collect(),
        };
        for port in ports {
            self.table.forget_learned(u16::try_from(port).expect("few ports"));
        }
        Ok(())
    }

    fn status(&self) -> SwitchStatus {
        let ports = self.slots.iter().zip(&self.fabric.snapshot.ports);
        let ports = ports.filter_map(|(slot, view)| {
            let slot = slot.as_ref()?;
            let device = view.as_ref().and_then(|view| view.device.as_ref());
            let rings = device.map_or(0, |device| device.queues().count());
            let tap = device.and_then(|device| device.tap.as_ref());
            let state = match &slot.connection {
                None if tap.is_some_and(|tap| !tap.is_gone()) => LinkState::Running,
                None => LinkState::Waiting,
                Some(_) if rings == 0 => LinkState::Connected,
                Some(_) => LinkState::Running,
            };
            let stopped = slot.stopped.iter().map(|(&ring, &why)| (ring, why.to_owned()));
            Some(PortStatus {
                name: slot.config.name.clone(),
                socket: slot.config.end_text(),
                state,
                queues: slot.config.queues,
                rings: u16::try_from(rings).unwrap_or(u16::MAX),
                features: device.map(|device| feature_words(device.features)).unwrap_or_default(),
                counts: PortCounts {
                    rate_waits: view
                        .as_ref()
                        .and_then(|view| view.limiter.as_ref())
                        .map_or(0, |limiter| limiter.waits()),
                    ..slot.counters.read()
                },
                stopped: stopped.collect(),
                last_error: match tap {
                    Some(tap) if tap.is_gone() => Some("The tap interface was removed".to_owned()),
                    _ => slot.last_error.clone(),
                },
                unreachable: slot.unreachable.clone(),
                connections: slot.connections,
            })
        });
        let threads = self.fabric.threads.iter();
        let mirrors = self.mirrors.iter().map(|mirror| MirrorStatus {
            target: mirror.target.clone(),
            written: mirror.tally.written.load(Ordering::Relaxed),
            dropped: mirror.tally.dropped.load(Ordering::Relaxed),
        });
        SwitchStatus {
            version: VERSION,
            moves: self.fabric.moves,
            same_addresses: self.same_addresses().into_values().collect(),
            mirrors: mirrors.collect(),
            pid: std::process::id(),
            up_s: self.began.elapsed().as_secs(),
            ports: ports.collect(),
            threads: threads
                .map(|thread| ThreadStatus { pcpu: thread.pcpu, counts: thread.counters.read() })
                .collect(),
        }
    }

    /// Pairs of ports that share addresses, by their numbers.
    fn same_addresses(&self) -> BTreeMap<[usize; 2], SameAddress> {
        let mut pairs = BTreeMap::new();
        if self.table.rivalries() == 0 {
            return pairs;
        }
        let name = |port: usize| Some(self.slots.get(port)?.as_ref()?.config.name.clone());
        for entry in self.table.entries() {
            let Some(rival) = entry.rival else { continue };
            let mut pair = [usize::from(entry.port), usize::from(rival)];
            pair.sort_unstable();
            let (Some(first), Some(second)) = (name(pair[0]), name(pair[1])) else { continue };
            let (mac, vlan) =
                (MacAddress::new(entry.station.mac()).to_string(), entry.station.vlan());
            let ports = [first, second];
            let same = pairs.entry(pair).or_insert(SameAddress { mac, vlan, ports, addresses: 0 });
            same.addresses += 1;
        }
        pairs
    }

    /// Tells of ports that share an address, each pair once while both are connected.
    pub(super) fn tell_same_addresses(&mut self) {
        let rivalries = self.table.rivalries();
        if rivalries == self.rivalries {
            return;
        }
        self.rivalries = rivalries;
        for (pair, same) in self.same_addresses() {
            if self.told_same.insert(pair) {
                let ([first, second], mac) = (same.ports, same.mac);
                self.events.tell(SwitchEvent::SameAddress { first, second, mac });
            }
        }
    }

    fn stations(&self) -> Vec<StationStatus> {
        let entries = self.table.entries().into_iter();
        entries
            .filter_map(|entry| {
                let slot = self.slots[usize::from(entry.port)].as_ref()?;
                Some(StationStatus {
                    mac: MacAddress::new(entry.station.mac()).to_string(),
                    vlan: entry.station.vlan(),
                    port: slot.config.name.clone(),
                    age_s: entry.age_s,
                })
            })
            .collect()
    }
}
