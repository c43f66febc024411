//! Connections: frontends that come, go, come back, and ports that do.

use vswitch::frontend::{
    DescriptorLayout, FrameBytes, Frontend, FrontendOptions, Touch, Traffic, TrafficPlan,
};
use vswitch::message::features;
use vswitch::{ControlReply, LinkState, Question, Switch, SwitchConfig};

use crate::lab::{GRACE, Lab, PATIENCE};

fn plan() -> TrafficPlan {
    TrafficPlan {
        flows: TrafficPlan::ring(2),
        bytes: FrameBytes::UpTo(400),
        touch: Touch::All,
        window: 32,
        grace: GRACE,
        pace_per_s: None,
    }
}

/// Sends `frames` more, which all have to arrive.
#[track_caller]
fn send(traffic: &mut Traffic, frames: u64) {
    let before = traffic.tally().sent;
    traffic.run(|tally| tally.sent >= before + frames);
    assert!(traffic.tally().is_whole(), "{:?}", traffic.tally());
}

#[test]
fn a_frontend_that_comes_back_goes_on() {
    let packed = features::RING_PACKED | FrontendOptions::default().features;
    for features in [FrontendOptions::default().features, packed] {
        let options = FrontendOptions { features, ..FrontendOptions::default() };
        let lab = Lab::new(&["", ""]);
        let mut traffic = lab.traffic(2, options, plan());
        for round in 1..=20 {
            send(&mut traffic, 100);
            let again = loop {
                // The last connection may not have ended yet, or this one is refused.
                traffic.ports()[1].channel().shut_down();
                match Frontend::connect(&lab.path(1), options) {
                    Ok(frontend) => break frontend,
                    Err(error) => assert!(error.to_string().contains("gone"), "{error}"),
                }
            };
            traffic.replace(1, again);
            traffic.greet(PATIENCE).unwrap();
            suite::until("the port to count", || (lab.port(1).connections > round).then_some(()));
        }
        send(&mut traffic, 100);
    }
}

#[test]
fn rings_stop_where_they_stand_and_go_on_there() {
    for extra in [0, features::RING_PACKED, features::EVENT_IDX] {
        let options = FrontendOptions::default();
        let options = FrontendOptions { features: options.features | extra, ..options };
        let lab = Lab::new(&["", ""]);
        let mut traffic = lab.traffic(2, options, plan());
        for _ in 0..10 {
            send(&mut traffic, 77);
            let frontend = &mut traffic.ports()[0];
            for index in 0..2 {
                // It goes on until it is stopped.
                let stood = frontend.stop_ring(index).unwrap();
                assert_eq!(stood, frontend.ring(index as usize).base(), "ring {index}");
            }
            frontend.start().unwrap();
        }
        send(&mut traffic, 77);
    }
}

/// Nobody tells it where rings stand: QEMU says where they began, whatever was done since.
#[test]
fn a_switch_that_comes_anew_takes_rings_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    let start = || {
        let ports = paths.iter().map(vswitch::PortConfig::at).collect();
        Switch::start(&SwitchConfig { sandbox: false, ..SwitchConfig::new(ports) }).unwrap()
    };
    for extra in [0, features::RING_PACKED] {
        for shape in [DescriptorLayout::Single, DescriptorLayout::Two, DescriptorLayout::Indirect] {
            let mut switch = start();
            let features = FrontendOptions::default().features | extra;
            let options = FrontendOptions { features, shape, ..FrontendOptions::default() };
            let connect = |path: &std::path::PathBuf| Frontend::connect(path, options).unwrap();
            let mut traffic = Traffic::new(paths.iter().map(connect).collect(), plan());
            traffic.greet(PATIENCE).unwrap();
            // In the first round, and in later ones.
            for frames in [1, 100, 256, 500, 77, 1] {
                send(&mut traffic, frames);
                drop(switch);
                assert!(paths.iter().all(|path| !path.exists()), "sockets are left");
                switch = start();
                for (port, path) in paths.iter().enumerate() {
                    traffic.ports()[port].reconnect(path).unwrap();
                }
                traffic.greet(PATIENCE).unwrap();
            }
            send(&mut traffic, 500);
        }
    }
}

#[test]
fn the_switch_calls_a_frontend_that_listens_again_and_again() {
    let lab = Lab::new(&["", ",server=off"]);
    for _ in 0..3 {
        let listener = std::os::unix::net::UnixListener::bind(lab.path(1)).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let options = FrontendOptions::default();
        let called = Frontend::over(stream, options).unwrap();
        let mut traffic = Traffic::new(vec![lab.connect(0, options), called], plan());
        traffic.greet(PATIENCE).unwrap();
        send(&mut traffic, 100);
        std::fs::remove_file(lab.path(1)).unwrap();
        drop(traffic);
        suite::until("both ports to be left", || {
            let left = |port| lab.port(port).state == LinkState::Waiting;
            (left(0) && left(1)).then_some(())
        });
    }
}

#[test]
fn a_second_frontend_is_sent_away_and_harms_nobody() {
    let lab = Lab::new(&["", ""]);
    let mut traffic = lab.traffic(2, FrontendOptions::default(), plan());
    let error = Frontend::connect(&lab.path(0), FrontendOptions::default()).unwrap_err();
    assert!(error.to_string().contains("gone"), "{error}");
    send(&mut traffic, 200);
}

#[test]
fn ports_come_and_go_while_others_talk() {
    let lab = Lab::new(&["", ""]);
    let mut traffic = lab.traffic(2, FrontendOptions::default(), plan());
    for round in 0..5 {
        let path = lab.folder.path().join(format!("new{round}"));
        let port = format!("{},queues=2", path.display());
        assert_eq!(lab.switch.ask(Question::Add { port: port.clone() }), ControlReply::Done);
        assert!(matches!(lab.switch.ask(Question::Add { port }), ControlReply::Error(_)));
        let _guest = Frontend::connect(&path, FrontendOptions::default()).unwrap();
        send(&mut traffic, 100);
        let port = format!("new{round}");
        assert_eq!(lab.switch.ask(Question::Remove { port: port.clone() }), ControlReply::Done);
        assert!(matches!(lab.switch.ask(Question::Remove { port }), ControlReply::Error(_)));
        assert!(!path.exists());
        send(&mut traffic, 100);
    }
    assert_eq!(lab.status().ports.len(), 2);
}

#[test]
fn a_switch_that_sleeps_wakes_for_the_first_frame() {
    let lab = Lab::new(&["", ""]);
    let extra = [0, features::EVENT_IDX, features::RING_PACKED];
    for extra in extra {
        let options = FrontendOptions { interrupts: true, ..FrontendOptions::default() };
        let options = FrontendOptions { features: options.features | extra, ..options };
        let mut traffic = lab.traffic(2, options, plan());
        for _ in 0..20 {
            let before = lab.status().threads[0].counts.sleeps;
            suite::until("the thread to sleep", || {
                (lab.status().threads[0].counts.asleep_now).then_some(before)
            });
            send(&mut traffic, 1);
        }
        assert!(lab.port(0).counts.kicks > 0 && lab.port(1).counts.signals > 0);
        drop(traffic);
        suite::until("the ports to be free", || {
            (0..2).all(|port| lab.port(port).state == LinkState::Waiting).then_some(())
        });
    }
}
