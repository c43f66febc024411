//! Stations that are set by hand, and who sets them.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use vswitch::frontend::FrontendOptions;
use vswitch::{ControlReply, LinkState, Question, SameAddress, SwitchEvent, ask};

use crate::lab::Lab;
use crate::wire::{drops, fill, frame, mac, receive, send_plain, try_receive};

fn pin(mac: &str, port: &str) -> Question {
    Question::Pin { mac: mac.to_owned(), port: port.to_owned() }
}

fn add(lab: &Lab, settings: &str) -> Question {
    Question::Add { port: format!("{}{settings}", lab.path(9).display()) }
}

/// The pinned stations: VLAN and port.
fn pins(lab: &Lab) -> Vec<(u16, String)> {
    let ControlReply::Stations(stations) = lab.switch.ask(Question::Stations) else { panic!() };
    let pinned = stations.into_iter().filter(|station| station.age_s.is_none());
    pinned.map(|station| (station.vlan, station.port)).collect()
}

#[test]
fn an_address_that_another_port_has_by_hand_is_refused() {
    let lab = Lab::new(&["", ",mac=02:00:00:00:00:01", ",trunk=10+20", ",vlan=20"]);
    let one = "02:00:00:00:00:07";
    assert_eq!(lab.switch.ask(pin(one, "p0")), ControlReply::Done);
    // Said again, it is so still.
    assert_eq!(lab.switch.ask(pin(one, "p0")), ControlReply::Done);
    let before = pins(&lab);
    for (question, owner) in [
        (pin(one, "p1"), "p0"),
        (pin("02:00:00:00:00:01", "p0"), "p1"),
        (add(&lab, &format!(",mac={one}")), "p0"),
    ] {
        let ControlReply::Error(error) = lab.switch.ask(question) else { panic!("{owner}") };
        assert!(error.contains(&format!("is port {owner}'s already")), "{error}");
    }
    assert_eq!(pins(&lab), before);
    assert!(!lab.path(9).exists(), "nothing is left of what was refused");
    // In another VLAN, it is another station.
    assert_eq!(lab.switch.ask(pin(one, "p3")), ControlReply::Done);
    let ControlReply::Error(error) = lab.switch.ask(pin(one, "p2")) else { panic!() };
    assert!(error.contains("is port p3's already"), "{error}");
    assert!(!pins(&lab).contains(&(10, "p2".to_owned())), "all of it or nothing");
    // What a pin holds may go; what mac= says may not.
    let unpin = |mac: &str| lab.switch.ask(Question::Unpin { mac: mac.to_owned() });
    assert_eq!(unpin(one), ControlReply::Done);
    assert!(matches!(unpin(one), ControlReply::Error(_)));
    assert!(matches!(unpin("02:00:00:00:00:01"), ControlReply::Error(_)));
    assert_eq!(pins(&lab), [(0, "p1".to_owned())]);
    assert_eq!(lab.switch.ask(pin(one, "p1")), ControlReply::Done);
}

#[test]
fn what_is_set_by_hand_on_a_trunk_holds_in_each_of_its_vlans() {
    let own = "02:00:00:00:00:00";
    let lab = Lab::new(&[&format!(",trunk=10+20,mac={own}"), ",vlan=10", ",vlan=20", ",vlan=10"]);
    let mut ends: Vec<_> =
        (0..4).map(|port| lab.connect(port, FrontendOptions::default())).collect();
    ends.iter_mut().for_each(fill);
    // The trunk has said nothing: without its entry, this would go to all in the VLAN.
    for port in [1_u8, 2] {
        send_plain(&mut ends[usize::from(port)], &frame(mac(0), mac(port), 100));
        let (_, arrived) = receive(&mut ends[0], "the frame to the trunk");
        assert_eq!(arrived.len(), 104, "with its tag");
    }
    assert_eq!(lab.port(1).counts.flooded + lab.port(2).counts.flooded, 0);
    assert!(try_receive(&mut ends[3]).is_none());
    // Nobody else in these VLANs may send from there.
    for port in [1, 2] {
        send_plain(&mut ends[port], &frame(mac(3), mac(0), 100));
        suite::until("the drop", || (drops(&lab, port, "spoofed") == 1).then_some(()));
    }
    // A pin is no other: it takes the station from where it was learned.
    send_plain(&mut ends[1], &frame([0xff; 6], mac(8), 60));
    suite::until("it to be learned", || (lab.port(1).counts.flooded == 1).then_some(()));
    assert_eq!(lab.switch.ask(pin("02:00:00:00:00:08", "p0")), ControlReply::Done);
    let both = [(10, "p0".to_owned()), (20, "p0".to_owned())];
    assert_eq!(pins(&lab), [both[0].clone(), both[0].clone(), both[1].clone(), both[1].clone()]);
}

#[test]
fn two_vms_with_one_address_are_told_of_once() {
    let lab = Lab::new(&["", "", ""]);
    let mut ends: Vec<_> =
        (0..3).map(|port| lab.connect(port, FrontendOptions::default())).collect();
    let mut say = |port: usize, from: u8| {
        let before = lab.port(port).counts.flooded;
        send_plain(&mut ends[port], &frame([0xff; 6], mac(from), 60));
        suite::until("it to be learned", || (lab.port(port).counts.flooded > before).then_some(()));
    };
    // One that moves from port to port, and back, is one.
    for port in [2, 1, 0, 1] {
        say(port, 7);
    }
    assert_eq!(lab.status().same_addresses, []);
    let told = || {
        let events = lab.switch.events().try_iter();
        events.filter(|event| matches!(event, SwitchEvent::SameAddress { .. })).collect::<Vec<_>>()
    };
    let first = suite::until("it to be told", || {
        (0..6).for_each(|number| say(number % 2, 9));
        let told = told();
        (!told.is_empty()).then_some(told)
    });
    let (one, two) = ("p0".to_owned(), "p1".to_owned());
    let address = "02:00:00:00:00:09".to_owned();
    let expected =
        SwitchEvent::SameAddress { first: one.clone(), second: two.clone(), mac: address.clone() };
    assert_eq!(first, [expected]);
    let same = suite::until("it to be in the status", || {
        (0..6).for_each(|number| say(number % 2, 9));
        let same = lab.status().same_addresses;
        (!same.is_empty()).then_some(same)
    });
    assert_eq!(same, [SameAddress { mac: address, vlan: 0, ports: [one, two], addresses: 1 }]);
    // Another one of these two says nothing new.
    suite::until("another one", || {
        (0..6).for_each(|number| say(number % 2, 10));
        (0..6).for_each(|number| say(number % 2, 9));
        lab.status().same_addresses.iter().any(|same| same.addresses == 2).then_some(())
    });
    assert_eq!(told(), []);
    assert_eq!(lab.switch.ask(Question::Remove { port: "p1".to_owned() }), ControlReply::Done);
    assert_eq!(lab.status().same_addresses, []);
}

#[test]
fn who_connects_to_the_control_socket_and_asks_nothing_is_sent_away() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("control");
    let lab = Lab::with(&[""], |config| {
        config.control = Some(control.clone());
        config.patience = Duration::from_secs(1);
    });
    let mut silent: Vec<UnixStream> =
        (0..40).map(|_| UnixStream::connect(&control).unwrap()).collect();
    // Half a question is none.
    for stream in &mut silent {
        stream.write_all(b"{\"version\":1,").unwrap();
    }
    let ControlReply::Status(status) = ask(&control, Question::Status).unwrap() else { panic!() };
    assert_eq!(status.ports[0].state, LinkState::Waiting);
    drop(lab);
}
