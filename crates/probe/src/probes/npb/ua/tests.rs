//! What holds of every mesh that a run comes to, by comparing all pairs of its
//! elements, and that threads change nothing.

use std::collections::HashMap;

use super::mesh::{Mesh, NeighbourKind, SpectralElement};
use super::mortar::{ElementShape, INNER, SPLIT_INNER};
use super::skeleton::Skeleton;
use super::solve::{Heat, PLACES};
use super::spectral::{Basis, N};
use super::topology::{EDGES, FACES, NEIGHBOURS};
use super::{ADAPTS_EACH, problem};
use crate::probes::npb::NpbClass;
use crate::team::Team;

/// Calls `look` with each mesh of the smallest class, and how many steps before
/// it were.
fn each_mesh(mut look: impl FnMut(&Heat<'_>, usize)) {
    let problem = problem(NpbClass::S);
    let team = Team::new(2, &[]).unwrap();
    let mut heat = Heat::new(problem.depth, problem.radius, &team);
    look(&heat, 0);
    for step in 1..problem.steps {
        heat.step();
        if step % ADAPTS_EACH == 0 {
            heat.adapt();
            look(&heat, step);
        }
    }
}

/// First and last place along each axis.
fn span(mesh: &Mesh, element: &SpectralElement) -> [(u32, u32); 3] {
    element.place.map(|at| (at, at + mesh.size(element.level)))
}

/// If two stretches have more than an end in common.
fn overlap(one: (u32, u32), other: (u32, u32)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// If two elements meet in part of a face or of an edge.
fn meet(one: [(u32, u32); 3], other: [(u32, u32); 3]) -> bool {
    let along = (0..3).filter(|axis| overlap(one[*axis], other[*axis])).count();
    let touching = (0..3).all(|axis| one[axis].0 <= other[axis].1 && other[axis].0 <= one[axis].1);
    touching && (along == 1 || along == 2)
}

#[test]
fn the_mesh_fills_the_cube_and_its_neighbours_differ_by_one_level() {
    each_mesh(|heat, step| {
        let mesh = &heat.mesh;
        let volume: u64 = mesh.elements.iter().map(|e| u64::from(mesh.size(e.level)).pow(3)).sum();
        assert_eq!(volume, 1 << (3 * mesh.depth), "after {step}");
        for (i, one) in mesh.elements.iter().enumerate() {
            for other in &mesh.elements[..i] {
                let spans = (span(mesh, one), span(mesh, other));
                let inside = (0..3).all(|axis| overlap(spans.0[axis], spans.1[axis]));
                assert!(!inside, "after {step}: {one:?} and {other:?} have a place in common");
                let differ = one.level.abs_diff(other.level);
                assert!(differ <= 1 || !meet(spans.0, spans.1), "after {step}: {one:?} {other:?}");
            }
        }
        let ball = heat.ball(0.0);
        let touched = |element: &SpectralElement| ball.touches(mesh.extent(element));
        for element in &mesh.elements {
            assert!(element.level == mesh.depth || !touched(element), "after {step}: {element:?}");
        }
        // No finer than the ball or a neighbour needs.
        for children in mesh.elements.windows(8) {
            let (first, parent) = (&children[0], 2 * mesh.size(children[0].level));
            if children.iter().any(|child| child.level != first.level)
                || first.place.iter().any(|at| at % parent != 0)
            {
                continue;
            }
            let needed = |child: &SpectralElement| {
                mesh.elements.iter().any(|other| {
                    other.level > child.level && meet(span(mesh, child), span(mesh, other))
                })
            };
            let why = children.iter().any(|child| touched(child) || needed(child));
            assert!(why, "after {step}: {children:?} may be one");
        }
    });
}

#[test]
fn neighbours_know_each_other() {
    each_mesh(|heat, step| {
        let mesh = &heat.mesh;
        for element in &mesh.elements {
            for step_to in &NEIGHBOURS[..FACES.len()] {
                let back = step_to.map(|step| -step);
                let across = mesh.elements.iter().filter(|other| {
                    let (one, other) = (span(mesh, element), span(mesh, other));
                    (0..3).all(|axis| match step_to[axis] {
                        0 => overlap(one[axis], other[axis]),
                        1 => one[axis].1 == other[axis].0,
                        _ => one[axis].0 == other[axis].1,
                    })
                });
                let across: Vec<&SpectralElement> = across.collect();
                let found = mesh.beside(element, *step_to);
                let what = format!("after {step}: {element:?} {step_to:?} {found:?} {across:?}");
                match (found, &across[..]) {
                    (NeighbourKind::Outside, []) => {}
                    (NeighbourKind::Element(level), [other]) => {
                        assert_eq!(level, other.level, "{what}");
                        let seen = mesh.beside(other, back);
                        let larger = other.level < element.level;
                        let same = NeighbourKind::Element(element.level);
                        assert_eq!(
                            seen,
                            if larger { NeighbourKind::Finer } else { same },
                            "{what}"
                        );
                    }
                    (NeighbourKind::Finer, [_, _, _, _]) => {
                        for other in across {
                            assert_eq!(other.level, element.level + 1, "{what}");
                            let level = element.level;
                            assert_eq!(
                                mesh.beside(other, back),
                                NeighbourKind::Element(level),
                                "{what}"
                            );
                        }
                    }
                    _ => panic!("{what}"),
                }
            }
        }
    });
}

/// What is split of an element: what any smaller one has a part of.
fn expected_shape(mesh: &Mesh, element: &SpectralElement) -> ElementShape {
    let own = span(mesh, element);
    let end = |axis: usize, side: usize| if side == 0 { own[axis].0 } else { own[axis].1 };
    let smaller: Vec<_> = mesh.elements.iter().filter(|o| o.level > element.level).collect();
    let shared = |axes: &dyn Fn(usize, (u32, u32)) -> bool| {
        smaller.iter().any(|other| (0..3).all(|axis| axes(axis, span(mesh, other)[axis])))
    };
    let faces = FACES.iter().enumerate().map(|(i, face)| {
        let split = shared(&|axis, other| {
            let at = end(axis, face.side);
            if axis == face.axis {
                other.0 <= at && at <= other.1
            } else {
                overlap(own[axis], other)
            }
        });
        u8::from(split) << i
    });
    let edges = EDGES.iter().enumerate().map(|(i, edge)| {
        let split = shared(&|axis, other| {
            let at = end(axis, edge.sides[axis]);
            if axis == edge.axis {
                overlap(own[axis], other)
            } else {
                other.0 <= at && at <= other.1
            }
        });
        u16::from(split) << i
    });
    ElementShape::new(faces.sum(), edges.sum())
}

/// Where the mortar points of an element lie, in the order that its shape has
/// them, in billionths of the smallest edge.
fn places(
    mesh: &Mesh,
    basis: &Basis,
    element: &SpectralElement,
    shape: &ElementShape,
) -> Vec<[i64; 3]> {
    let place = |fractions: [f64; 3]| -> [i64; 3] {
        std::array::from_fn(|axis| {
            let size = f64::from(mesh.size(element.level));
            (1e9 * (f64::from(element.place[axis]) + size * fractions[axis])).round() as i64
        })
    };
    let node = |i: usize| 0.5 + 0.5 * basis.nodes[i];
    let line = |split: bool| -> Vec<f64> {
        if !split {
            return (1..=INNER).map(node).collect();
        }
        let half = |i: usize| i / (N - 1);
        (1..=SPLIT_INNER).map(|i| 0.5 * (half(i) as f64 + node(i % (N - 1)))).collect()
    };
    let corners = (0..8).map(|corner| [0, 1, 2].map(|axis| f64::from(corner >> axis & 1)));
    let mut places: Vec<_> = corners.map(place).collect();
    for (i, edge) in EDGES.iter().enumerate() {
        for at in line(shape.edge_split(i)) {
            let mut fractions = edge.sides.map(|side| side as f64);
            fractions[edge.axis] = at;
            places.push(place(fractions));
        }
    }
    for (i, face) in FACES.iter().enumerate() {
        let line = line(shape.face_split(i));
        for up in &line {
            for along in &line {
                let mut fractions = [face.side as f64; 3];
                (fractions[face.along[0]], fractions[face.along[1]]) = (*along, *up);
                places.push(place(fractions));
            }
        }
    }
    places
}

#[test]
fn a_mortar_point_has_one_number_and_one_place() {
    let (basis, bounds) = (Basis::new(), problem(NpbClass::S));
    let team = Team::new(3, &[]).unwrap();
    each_mesh(|heat, step| {
        let mesh = &heat.mesh;
        let skeleton = Skeleton::new(mesh, &team);
        assert!(mesh.elements.len() as u64 <= bounds.elements, "after {step}");
        assert!(skeleton.count() as u64 <= bounds.points, "after {step}");
        let most = mesh.elements.len() as u64 * PLACES;
        assert!(skeleton.places() as u64 <= most, "after {step}: {}", skeleton.places());
        let mut numbers = HashMap::new();
        let mut places_of = vec![None; skeleton.count()];
        for (i, element) in mesh.elements.iter().enumerate() {
            let shape = &skeleton.shapes[i];
            assert_eq!(*shape, expected_shape(mesh, element), "after {step}: {element:?}");
            let places = places(mesh, &basis, element, shape);
            assert_eq!(places.len(), skeleton.numbers(i).len());
            for (place, number) in places.into_iter().zip(skeleton.numbers(i)) {
                assert_eq!(*numbers.entry(place).or_insert(number), number, "{element:?}");
                let known = places_of[*number as usize].get_or_insert(place);
                assert_eq!(*known, place, "after {step}: {element:?} {number}");
            }
        }
        let end = 1_000_000_000_i64 << mesh.depth;
        for (number, place) in places_of.into_iter().enumerate() {
            let place = place.expect("every number is some element's");
            let outside = place.iter().any(|at| *at == 0 || *at == end);
            assert_eq!(skeleton.outside[number], outside, "after {step}: {place:?}");
        }
        // What each element gives to each of its points comes to them all.
        let ones = vec![1.0; skeleton.places()];
        let sums: f64 = (0..skeleton.count()).map(|point| skeleton.sum(point, &ones)).sum();
        assert_eq!(sums, skeleton.places() as f64, "after {step}");
    });
}

#[test]
fn threads_change_only_the_rounding() {
    let after = |threads: usize| {
        let problem = problem(NpbClass::S);
        let team = Team::new(threads, &[]).unwrap();
        let mut heat = Heat::new(problem.depth, problem.radius, &team);
        for _ in 0..2 * ADAPTS_EACH {
            heat.step();
        }
        heat.adapt();
        heat.step();
        (heat.mesh.elements.clone(), heat.integral())
    };
    let (elements, integral) = after(1);
    for threads in [2, 3, 16] {
        let (same, other) = after(threads);
        assert!(same == elements, "{threads} threads");
        let differ = ((other - integral) / integral).abs();
        assert!(differ < 1e-13, "{integral} and {other}, {threads} threads");
    }
}
