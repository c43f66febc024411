//! What happens, told to whoever watches: not more than can be read, whatever frontends do.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::mpsc::SyncSender;

use crate::event::SwitchEvent;

/// Events of one kind at one port that are told one by one in a second.
const MOST_A_SECOND: u64 = 16;

/// The control thread's end of the events.
#[derive(Debug)]
pub(crate) struct EventTeller {
    events: SyncSender<SwitchEvent>,
    /// In this second, by kind and port: how many, and the last one.
    told: HashMap<(Discriminant<SwitchEvent>, Option<String>), (u64, SwitchEvent)>,
    /// Events for which there was no room.
    missed: u64,
}

impl EventTeller {
    pub(crate) fn new(events: SyncSender<SwitchEvent>) -> Self {
        Self { events, told: HashMap::new(), missed: 0 }
    }

    /// Tells of an event, or counts it if there were many of its kind.
    pub(crate) fn tell(&mut self, event: SwitchEvent) {
        let key = (discriminant(&event), event.port().map(str::to_owned));
        let (count, last) = self.told.entry(key).or_insert_with(|| (0, event.clone()));
        *count += 1;
        if *count > MOST_A_SECOND {
            *last = event;
        } else {
            self.send(event);
        }
    }

    /// A second is over: tells how many there were that were not told one by one.
    pub(crate) fn end_second(&mut self) {
        for (count, last) in std::mem::take(&mut self.told).into_values() {
            if let Some(times) = count.checked_sub(MOST_A_SECOND).filter(|&times| times > 0) {
                self.send(SwitchEvent::Repeated { last: Box::new(last), times });
            }
        }
        if self.missed > 0 {
            let missed = std::mem::take(&mut self.missed);
            self.send(SwitchEvent::Missed { events: missed });
        }
    }

    /// Nobody has to watch, and whoever watches may be slow.
    fn send(&mut self, event: SwitchEvent) {
        let count = match &event {
            SwitchEvent::Missed { events } => *events,
            SwitchEvent::Repeated { times, .. } => *times,
            _ => 1,
        };
        if self.events.try_send(event).is_err() {
            self.missed += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn refused(port: &str) -> SwitchEvent {
        SwitchEvent::Refused { port: port.to_owned() }
    }

    #[test]
    fn a_storm_of_events_is_told_by_its_size() {
        let (events, told) = mpsc::sync_channel(64);
        let mut teller = EventTeller::new(events);
        for _ in 0..50_000 {
            teller.tell(refused("a"));
        }
        teller.tell(refused("b"));
        teller.end_second();
        teller.tell(refused("a"));
        let mut expected = vec![refused("a"); 16];
        expected.push(refused("b"));
        expected.push(SwitchEvent::Repeated { last: Box::new(refused("a")), times: 49_984 });
        expected.push(refused("a"));
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_nobody_reads_is_counted_and_told_once_somebody_does() {
        let (events, told) = mpsc::sync_channel(4);
        let mut teller = EventTeller::new(events);
        for port in 0..10 {
            teller.tell(refused(&port.to_string()));
        }
        for _ in 0..3 {
            teller.end_second();
        }
        assert_eq!(told.try_iter().count(), 4);
        teller.end_second();
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [SwitchEvent::Missed { events: 6 }]);
    }
}
