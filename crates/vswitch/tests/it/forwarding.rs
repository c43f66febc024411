//! Frames arrive at the right port, whole, once, in order: over every kind of ring
//! and layout of buffers.

use vswitch::frontend::{
    DescriptorLayout, FrameBytes, FrontendOptions, Touch, Traffic, TrafficFlow, TrafficPlan,
};
use vswitch::message::features;

use crate::lab::{GRACE, Lab, PATIENCE};

const FRAMES: u64 = 5000;

/// Sends frames over all flows and holds what arrives to what was sent.
#[track_caller]
fn check(ports: usize, settings: &str, options: FrontendOptions, plan: TrafficPlan) {
    let lab = Lab::new(&vec![settings; ports]);
    let traffic = lab.traffic(ports, options, plan);
    check_traffic(&lab, traffic);
}

/// The same of traffic between ports that know of each other.
#[track_caller]
fn check_traffic(lab: &Lab, mut traffic: Traffic) {
    traffic.run(|tally| tally.sent >= FRAMES);
    let tally = traffic.tally().clone();
    assert!(tally.is_whole() && tally.foreign == 0, "{tally:?} {:#?}", lab.status());
    for port in lab.status().ports {
        assert_eq!(port.counts.drops.len(), 0, "{port:?}");
        assert_eq!(port.stopped.len(), 0, "{port:?}");
    }
}

fn two_ways(bytes: FrameBytes) -> TrafficPlan {
    TrafficPlan {
        flows: TrafficPlan::ring(2),
        bytes,
        touch: Touch::All,
        window: 64,
        grace: GRACE,
        pace_per_s: None,
    }
}

fn with(features: u64) -> FrontendOptions {
    let options = FrontendOptions::default();
    FrontendOptions { features: options.features | features, ..options }
}

/// Every kind of ring.
fn rings() -> [FrontendOptions; 4] {
    [
        with(0),
        with(features::EVENT_IDX | features::IN_ORDER),
        with(features::RING_PACKED),
        with(features::RING_PACKED | features::EVENT_IDX),
    ]
}

#[test]
fn frames_of_all_lengths_arrive_whole_and_in_order() {
    for options in rings() {
        check(2, "", options, two_ways(FrameBytes::UpTo(1500)));
    }
}

#[test]
fn chains_and_tables_are_followed() {
    for options in rings() {
        for shape in [DescriptorLayout::Two, DescriptorLayout::Indirect] {
            check(2, "", FrontendOptions { shape, ..options }, two_ways(FrameBytes::UpTo(1500)));
        }
    }
}

#[test]
fn large_frames_are_spread_over_small_buffers() {
    for options in rings() {
        let lab = Lab::new(&["", ""]);
        // Up to four buffers take a frame.
        let buffers = [(0, 2048), (1, 512)];
        let ends =
            buffers.map(|(port, buffer)| lab.connect(port, FrontendOptions { buffer, ..options }));
        let flows = vec![TrafficFlow { from: 0, to: 1 }];
        let plan = TrafficPlan { flows, window: 32, ..two_ways(FrameBytes::UpTo(1800)) };
        let mut traffic = Traffic::new(ends.into(), plan);
        traffic.greet(PATIENCE).unwrap();
        check_traffic(&lab, traffic);
    }
}

#[test]
fn many_ports_send_to_each_other() {
    for options in rings() {
        let flows = TrafficPlan::mesh(4);
        let bytes = FrameBytes::Fixed(64);
        let plan = TrafficPlan {
            flows,
            bytes,
            touch: Touch::All,
            window: 16,
            grace: GRACE,
            pace_per_s: None,
        };
        check(4, "", options, plan);
    }
}

#[test]
fn ports_with_several_queues_keep_the_order_of_each_flow() {
    for options in rings() {
        let options = FrontendOptions { pairs: 4, ..options };
        let flows = TrafficPlan::mesh(3);
        let bytes = FrameBytes::UpTo(300);
        let plan = TrafficPlan {
            flows,
            bytes,
            touch: Touch::All,
            window: 16,
            grace: GRACE,
            pace_per_s: None,
        };
        check(3, ",queues=4", options, plan);
    }
}
