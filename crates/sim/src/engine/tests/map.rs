//! Memory of who ran where.

use super::*;

/// However long is drawn, so much is kept and no more, and where it ends is told.
#[test]
fn a_map_is_bounded() {
    let mut model = storm(true);
    model.map_from_ns = Some(0);
    let mut world = EngineState::new(&model);
    let mark = |at_ns| TraceSegment::PauseExit { pcpu: 0, at_ns };
    world.map = vec![mark(0); MOST_SEGMENTS - 1];
    for now in [5, 6, 7] {
        world.now = now;
        assert_eq!(world.keeps_map(), now < 7);
        world.map_keeps(mark(now));
    }
    assert_eq!((world.map.len(), world.map_until), (MOST_SEGMENTS, Some(6)));
    world.now = 100;
    let outcome = world.into_outcome();
    assert_eq!(outcome.map_until_ns, Some(6));
    assert_eq!(crate::map::Map::of_run(&model, outcome, "long").to_ns, 6);
}
