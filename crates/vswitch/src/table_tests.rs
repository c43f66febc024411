//! The MAC table: what it learns, forgets and keeps. In a file of its own, as `table.rs`
//! is also built with the atomics of a model checker (`tests/model`).

use std::sync::atomic::Ordering;

use crate::table::*;

fn station(number: u32) -> Station {
    let [a, b, c, d] = number.to_be_bytes();
    Station::new(0, [2, 0, a, b, c, d])
}

#[test]
fn a_station_that_moves_to_and_fro_is_told_from_one_that_moves() {
    let table = MacTable::new(4);
    let rivals = || table.entries().iter().map(|entry| entry.rival).collect::<Vec<_>>();
    // From port to port, and back once.
    for port in [0, 1, 2, 3, 0, 1, 0] {
        table.learn(station(1), port);
    }
    assert_eq!((rivals(), table.rivalries()), (vec![None], 0));
    for round in 0..20 {
        table.set_now(round);
        for port in [1, 0, 0] {
            table.learn(station(1), port);
        }
    }
    assert_eq!((rivals(), table.rivalries()), (vec![Some(1)], 1));
    assert_eq!(table.port(station(1)), Some(0));
    // Whoever has gone is nobody's rival, nor does it stay one without moving.
    table.forget_learned(1);
    assert_eq!(rivals(), [None]);
    for port in [1, 0].repeat(9) {
        table.learn(station(1), port);
    }
    assert_eq!((rivals(), table.rivalries()), (vec![Some(1)], 2));
    (0..3).for_each(|_| table.calm());
    assert_eq!(rivals(), [Some(1)]);
    table.calm();
    assert_eq!(rivals(), [None]);
    table.set_static(station(1), 2);
    assert_eq!(rivals(), [None]);
}

#[test]
fn stations_are_learned_move_and_age() {
    let table = MacTable::new(4);
    assert_eq!(table.port(station(1)), None);
    assert_eq!(table.learn(station(1), 2), LearnOutcome::New);
    assert_eq!(table.learn(station(1), 2), LearnOutcome::Known);
    assert_eq!(table.port(station(1)), Some(2));
    // The same address in another VLAN is another station.
    assert_eq!(table.port(Station::new(7, station(1).mac())), None);
    table.set_now(10);
    assert_eq!(table.learn(station(1), 3), LearnOutcome::New);
    assert_eq!(table.port(station(1)), Some(3));
    table.set_now(309);
    table.age(300);
    let entry = FdbEntry { station: station(1), port: 3, age_s: Some(299), rival: None };
    assert_eq!(table.entries(), [entry]);
    table.set_now(310);
    table.age(300);
    assert_eq!(table.entries(), []);
    assert!(table.held.iter().all(|held| held.load(Ordering::Relaxed) == 0));
}

#[test]
fn what_is_set_by_hand_stays() {
    let table = MacTable::new(4);
    table.learn(station(1), 0);
    assert_eq!(table.set_static(station(1), 1), StaticOutcome::New);
    assert_eq!(table.learn(station(1), 0), LearnOutcome::Refused);
    assert_eq!(table.learn(station(1), 1), LearnOutcome::Known);
    table.set_now(10_000);
    table.age(1);
    table.forget_learned(1);
    assert_eq!(table.port(station(1)), Some(1));
    table.forget_port(1);
    assert_eq!(table.port(station(1)), None);
}

#[test]
fn one_port_cannot_take_the_room_of_others() {
    let table = MacTable::new(4);
    for number in 0..100_000 {
        table.learn(station(number), 0);
    }
    assert!(table.entries().len() <= PORT_CAPACITY as usize);
    for number in 200_000..201_000 {
        assert_eq!(table.learn(station(number), 1), LearnOutcome::New, "{number}");
    }
    for number in 200_000..201_000 {
        assert_eq!(table.port(station(number)), Some(1));
    }
}

#[test]
fn groups_are_told_by_their_bit() {
    assert!(Station::new(5, [1, 0, 0x5e, 0, 0, 1]).is_group());
    assert!(Station::new(0, [0xff; 6]).is_group());
    assert!(!Station::new(4094, [2, 0, 0, 0, 0, 1]).is_group());
    let station = Station::new(4094, [2, 3, 4, 5, 6, 7]);
    assert_eq!((station.vlan(), station.mac()), (4094, [2, 3, 4, 5, 6, 7]));
}

#[test]
fn threads_that_learn_move_and_forget_at_once_never_read_another_s_port() {
    let table = MacTable::new(8);
    std::thread::scope(|scope| {
        for thread in 0..3_u16 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..20_000_u32 {
                    // Station n is behind port n % 8, whoever says so.
                    let number = round.wrapping_mul(7919).wrapping_add(u32::from(thread)) % 512;
                    table.learn(station(number), (number % 8) as u16);
                    if let Some(port) = table.port(station(number)) {
                        assert_eq!(u32::from(port), number % 8);
                    }
                }
            });
        }
        for round in 0..40 {
            table.forget_port(round % 8);
        }
    });
    let held: u32 = table.held.iter().map(|held| held.load(Ordering::Relaxed)).sum();
    assert_eq!(held as usize, table.entries().len());
}

#[test]
fn what_is_set_by_hand_is_told_and_goes_alone() {
    let table = MacTable::with_capacity(2, 64);
    assert_eq!(table.set_static(station(1), 0), StaticOutcome::New);
    assert_eq!(table.set_static(station(1), 0), StaticOutcome::Known);
    // What was learned elsewhere makes way.
    table.learn(station(2), 0);
    assert_eq!(table.set_by_hand(station(2)), None);
    assert_eq!(table.set_static(station(2), 1), StaticOutcome::New);
    assert_eq!(table.set_by_hand(station(2)), Some(1));
    table.forget_station(station(1));
    let left: Vec<_> = table.entries().iter().map(|entry| (entry.station, entry.port)).collect();
    assert_eq!(left, [(station(2), 1)]);
    assert_eq!([0, 1].map(|port| table.held[port].load(Ordering::Relaxed)), [0, 1]);
}
