//! Batches of images of their own sizes: room, places and sides of each row, and what becomes of
//! those that are bad.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::replay::{Replay, Taken, index, index_of_images, spec};
use shade_formats::limits::IMAGE_PIXELS_MAX;
use shade_formats::ring::{BatchLayout, FLAG_SUBSTITUTED, Layout};
use shade_job::{Decode, JobSpec, OnError, PlanSpec, Policy, Sampler, Tail};

const SAMPLES: u32 = 60;

/// (width, height): no two of a class of five are of one size, and the higher of a class is the
/// larger.
fn size(id: u32) -> (u16, u16) {
    let id = u16::try_from(id).unwrap();
    (10 + id, 40 - id % 7)
}

fn job(on_error: OnError) -> JobSpec {
    // In the order of the samples, so that it is known which are together.
    let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
    JobSpec { plan, on_error, decode: Decode::Whole, ..spec(10, 1) }
}

fn replay(size: impl Fn(u32) -> (u16, u16), job: &JobSpec) -> Replay {
    let mut replay = Replay::new(index_of_images(SAMPLES, 5, |_| 300, size), Policy::App, 20_000, 4, 6);
    replay.attach_all(job, 0);
    replay
}

/// Every row has the sides of its sample and a place of its own in the batch.
fn check(taken: &Taken, capacity: u32, size: impl Fn(u32) -> (u16, u16)) {
    assert_eq!(taken.places.len(), taken.ids.len());
    let layout = BatchLayout::of_block(Layout::RaggedChw, capacity, taken.len, &[]).unwrap();
    let mut end = 0;
    for (&id, &(at, height, width)) in taken.ids.iter().zip(&taken.places) {
        let expected = size(id);
        assert_eq!((width, height), (expected.0.into(), expected.1.into()), "sample {id}");
        assert!(at >= end, "sample {id} at {at} runs into the one before, which ends at {end}");
        end = at + 3 * u64::from(height) * u64::from(width);
    }
    assert!(end <= layout.data_len);
}

#[test]
fn each_row_has_its_place_and_its_sides() {
    let mut replay = replay(size, &job(OnError::Raise));
    let taken = replay.epoch(0);
    assert_eq!(
        taken.iter().flat_map(|batch| batch.ids.clone()).collect::<Vec<_>>(),
        (0..SAMPLES).collect::<Vec<_>>()
    );
    for batch in &taken {
        check(batch, 10, size);
        assert_eq!(batch.places[0].0, 0);
        let bytes: u64 =
            batch.places.iter().map(|&(_, height, width)| 3 * u64::from(height) * u64::from(width)).sum();
        let layout = BatchLayout::new(Layout::RaggedChw, 10, bytes).unwrap();
        assert_eq!(batch.len, layout.total, "as much room as the images take, and no more");
    }
}

#[test]
fn a_skipped_row_leaves_the_others_where_they_are() {
    let mut replay = replay(size, &job(OnError::Skip));
    replay.bad.extend([3, 10, 19]);
    let taken = replay.epoch(0);
    taken.iter().for_each(|batch| check(batch, 10, size));
    assert_eq!(taken.iter().map(|batch| batch.skipped).collect::<Vec<_>>(), [1, 2, 0, 0, 0, 0]);
    assert_eq!(taken[1].ids, [11, 12, 13, 14, 15, 16, 17, 18]);
}

#[test]
fn a_substitute_is_the_next_of_its_class_that_fits() {
    let mut fits = replay(size, &job(OnError::Substitute));
    // The class's other images: 0, 5, ... are smaller than 31, 36 and later ones are larger.
    fits.bad.insert(31);
    let taken = fits.epoch(0);
    taken.iter().for_each(|batch| check(batch, 10, size));
    let row = taken[3].flags.iter().position(|flags| flags & FLAG_SUBSTITUTED != 0).unwrap();
    assert_eq!((row, taken[3].ids[row]), (1, 1), "round the end of the dataset");
    assert_eq!((taken[3].substituted, fits.errors.len()), (1, 0));

    // The smallest of its class has room for the next larger ones.
    let mut smallest = replay(size, &job(OnError::Substitute));
    smallest.bad.insert(0);
    let taken = smallest.epoch(0);
    taken.iter().for_each(|batch| check(batch, 10, size));
    assert_eq!((taken[0].ids[0], taken[0].flags[0]), (5, FLAG_SUBSTITUTED), "{:?}", smallest.errors);
}

/// Sample 12 has no size, sample 33 one that no decoder takes on.
fn odd(id: u32) -> (u16, u16) {
    match id {
        12 => (0, 0),
        33 => (u16::MAX, u16::MAX),
        _ => size(id),
    }
}

#[test]
fn an_image_without_a_size_is_a_fault_of_its_own() {
    let mut skips = replay(odd, &job(OnError::Skip));
    let taken = skips.epoch(0);
    taken.iter().for_each(|batch| check(batch, 10, odd));
    assert_eq!(taken.iter().map(|batch| batch.ids.len()).sum::<usize>(), 58);
    assert!(skips.warnings[0].contains("sample 12 (class2/12.png)"), "{:?}", skips.warnings);
    assert!(
        skips.warnings[0].contains("shade-pack") || skips.warnings[0].contains("--format"),
        "{:?}",
        skips.warnings
    );
    assert!(skips.warnings[1].contains(&IMAGE_PIXELS_MAX.to_string()), "{:?}", skips.warnings);

    let mut raises = replay(odd, &job(OnError::Raise));
    assert_eq!(raises.epoch(0).iter().map(|batch| batch.batch).collect::<Vec<_>>(), [0, 2, 4, 5]);
    assert!(raises.errors[0].contains("sample 12"), "{:?}", raises.errors);

    let mut substitutes = replay(odd, &job(OnError::Substitute));
    let taken = substitutes.epoch(0);
    taken.iter().for_each(|batch| check(batch, 10, odd));
    assert_eq!(
        (taken[1].ids[2], taken[3].ids[3]),
        (17, 38),
        "the next of its class has room, whatever its size"
    );
    assert_eq!(substitutes.errors, Vec::<String>::new());
}

#[test]
fn a_dataset_without_any_size_is_refused_when_a_rank_attaches() {
    let replay = replay(|_| (0, 0), &job(OnError::Skip));
    let [text] = &replay.refused[..] else { panic!("{:?}", replay.refused) };
    assert!(text.contains("none of its 60 samples") && text.contains("--format jpeg or raw"), "{text}");
    assert!(replay.accepted.is_empty());
}

#[test]
fn a_ring_has_room_for_three_of_the_largest_batches_or_is_refused() {
    let one_large = |id| if id == 7 { (8000, 4000) } else { (16, 16) };
    let accepted = replay(one_large, &job(OnError::Raise)).accepted[0].payload.bytes;
    let largest = 3 * (8000 * 4000 + 9 * 16 * 16);
    assert!((3 * largest..3 * largest + 3 * 4096 * 2).contains(&accepted), "{accepted}");

    // 2,048 images of 512 MiB are 2^40 bytes.
    let giants = index_of_images(3000, 5, |_| 300, |_| (13_000, 13_000));
    let mut replay = Replay::new(giants, Policy::App, 20_000, 4, 6);
    replay.attach_all(&JobSpec { batch_size: 3000, ..job(OnError::Raise) }, 0);
    assert!(replay.refused[0].contains("lower batch_size"), "{:?}", replay.refused);
}

/// In any layout a padded batch may be longer than the dataset.
#[test]
fn a_few_samples_fill_a_large_batch_up() {
    for decode in [Decode::Raw, Decode::Whole] {
        let mut replay = Replay::new(index(5, 5, |_| 30_000), Policy::App, 20_000, 4, 6);
        replay.attach_all(&JobSpec { decode, tail: Tail::Pad, ..spec(1000, 1) }, 0);
        let taken = replay.epoch(0);
        assert_eq!(
            taken.iter().map(|batch| batch.ids.len()).collect::<Vec<_>>(),
            [1000],
            "{:?}",
            replay.failed
        );
    }
}
