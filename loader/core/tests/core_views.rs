//! Rows with several views: where each is, what it shows, and how large the ring is.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use crate::replay::{Replay, Taken, index, shown_of, spec};
use shade_formats::ViewShape;
use shade_formats::ring::{BatchLayout, Layout};
use shade_job::{
    Decode, InTurn, JobSpec, OnError, Pair, PlanSpec, Policy, Sampler, Tail, Transform, group_digest,
};

const SAMPLES: u32 = 60;

fn views() -> Decode {
    let cover = |size| Transform::Cover { size: Pair(size) };
    let grey = vec![cover([3, 5]), Transform::Grayscale { num_output_channels: 1 }];
    Decode::Views([vec![cover([8, 8])], grey, vec![cover([2, 2])]].map(InTurn).into())
}

fn job(on_error: OnError) -> JobSpec {
    let plan = PlanSpec { sampler: Sampler::Uniform, ..PlanSpec::default() };
    JobSpec { plan, on_error, bad_max: 1.0, tail: Tail::Even, decode: views(), ..spec(10, 1) }
}

fn replay() -> Replay {
    Replay::new(index(SAMPLES, 3, |_| 400), Policy::App, 20 * 512, 4, 5)
}

/// Each delivered row's views show what its worker said.
fn check(taken: &Taken, views: usize) {
    let rows = taken.ids.len();
    assert_eq!((taken.crops.len(), taken.flipped.len()), (views * rows, views * rows));
    for view in 0..views {
        for (row, &sample) in taken.ids.iter().enumerate() {
            let expected = shown_of(sample, view);
            let found = (taken.crops[view * rows + row], taken.flipped[view * rows + row]);
            assert_eq!(found, (expected.crop, expected.flipped), "view {view} of sample {sample}");
        }
    }
}

#[test]
fn every_row_has_what_each_of_its_views_shows() {
    for on_error in [OnError::Skip, OnError::Substitute] {
        let mut replay = replay();
        replay.bad.extend([7, 21, 22]);
        replay.attach_all(&job(on_error), 0);
        replay.start(0, 0, 0);
        replay.run();
        assert_eq!(replay.ended.len(), 1, "{:?}", replay.errors);
        let rows: usize = replay.taken.iter().map(|taken| taken.ids.len()).sum();
        assert_eq!(rows, if on_error == OnError::Skip { 57 } else { 60 });
        replay.taken.iter().for_each(|taken| check(taken, 3));
    }
}

#[test]
fn a_block_has_room_for_all_views_and_no_more() {
    let mut replay = replay();
    replay.attach_all(&job(OnError::Raise), 0);
    replay.start(0, 0, 0);
    replay.run();
    let shapes = [(8, 8, 3), (3, 5, 1), (2, 2, 3)];
    let shapes =
        shapes.map(|(height, width, channels)| ViewShape { height, width, channels, ..ViewShape::default() });
    let layout = BatchLayout::of_views(Layout::Nchw, 10, &shapes).unwrap();
    assert!(replay.taken.iter().all(|taken| taken.len == layout.total));
    assert_eq!(replay.taken.len(), 6);
}

#[test]
fn records_have_no_views() {
    let mut replay = replay();
    replay.attach_all(&JobSpec { decode: Decode::Raw, ..job(OnError::Raise) }, 0);
    replay.start(0, 0, 0);
    replay.run();
    replay.taken.iter().for_each(|taken| check(taken, 0));
}

#[test]
fn jobs_of_a_group_share_all_views_of_a_row() {
    let mut replay = Replay::decoding_once(index(SAMPLES, 3, |_| 400), 100 * 512, 1 << 20, 5);
    let plan = PlanSpec { group: group_digest("sweep"), ..job(OnError::Raise).plan };
    for session in 0..2 {
        replay.attach_job(session, &session.to_string(), &JobSpec { plan, ..job(OnError::Raise) });
    }
    for session in 0..2 {
        replay.start(session, 0, 0);
    }
    replay.run();
    assert_eq!([replay.made, replay.copied], [u64::from(SAMPLES); 2]);
    assert_eq!(replay.taken.len(), 12);
    replay.taken.iter().for_each(|taken| check(taken, 3));
}
