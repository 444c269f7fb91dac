//! Every sample of the plan reaches exactly one rank, once, with its label, bytes and pixels.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::io::Cursor;

use shade_client::{Decode, FLAG_PADDING, JobSpec, PlanSpec, Sampler, Tail};
use shade_tests::{Daemon, Packed, Taken, all_ranks, spec, take_epoch};

/// The rows of all batches: sample id, label, flags and record.
fn rows(batches: &[Taken]) -> Vec<(u32, u32, u32, &[u8])> {
    let row = |batch: &Taken, at: usize| (batch.ids[at], batch.labels[at], batch.flags[at]);
    let of =
        |batch| (0..Taken::clone(batch).ids.len()).map(move |at| (row(batch, at), &batch.records[at][..]));
    batches.iter().flat_map(of).map(|((id, label, flags), record)| (id, label, flags, record)).collect()
}

fn assert_like_source(packed: &Packed, batches: &[Taken]) {
    for (id, label, _, record) in rows(batches) {
        let source = &packed.sources[id as usize];
        assert_eq!(label, source.label, "label of sample {id} ({})", source.path);
        assert!(record == source.bytes, "bytes of sample {id} ({}) differ from the file's", source.path);
    }
}

#[test]
fn raw_epochs_over_one_two_and_three_ranks_are_the_image_folder() {
    let packed = Packed::mixed(33);
    for world_size in 1..=3 {
        let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"30%"]);
        // 102 samples are a multiple of no batch size used here, so the last batches are short.
        let job = spec(8, world_size);
        let ranks = all_ranks(&packed.dataset, job, |_, session| {
            let epochs = [0, 1].map(|epoch| take_epoch(session, epoch).unwrap());
            for batches in &epochs {
                assert_eq!(batches.len(), session.batches_per_epoch() as usize);
                assert!(batches.iter().map(|batch| batch.number).eq(0..session.batches_per_epoch()));
            }
            epochs
        });
        for epoch in 0..2 {
            let mut ids = Vec::new();
            for rank in &ranks {
                assert_eq!(rank[epoch].len(), ranks[0][epoch].len(), "batches of each rank");
                assert_like_source(&packed, &rank[epoch]);
                let kept =
                    rows(&rank[epoch]).into_iter().filter(|(_, _, flags, _)| flags & FLAG_PADDING == 0);
                ids.extend(kept.map(|(id, ..)| id));
            }
            ids.sort_unstable();
            assert!(ids.iter().copied().eq(0..102), "world size {world_size}, epoch {epoch}: {ids:?}");
        }
        drop(daemon);
    }
}

#[test]
fn importance_epochs_have_the_plan_s_length_and_repeat_samples() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%"]);
    let plan = PlanSpec { sampler: Sampler::Pads, seed: 7, ..PlanSpec::default() };
    let job = JobSpec { plan, tail: Tail::Pad, ..spec(6, 2) };
    let ranks = all_ranks(&packed.dataset, job, |_, session| {
        [0, 1].map(|epoch| {
            let batches = take_epoch(session, epoch).unwrap();
            for batch in &batches {
                // One class is always hard.
                let loss = |&label: &u32| if label == 2 { 5.0 } else { 0.1 };
                let losses: Vec<f32> = batch.labels.iter().map(loss).collect();
                session.report(batch.id, &losses).unwrap();
            }
            batches
        })
    });
    for epoch in 0..2 {
        let mut ids = Vec::new();
        for rank in &ranks {
            assert_eq!(rank[epoch].len(), 9, "ceil(102 / (2 x 6))");
            assert_like_source(&packed, &rank[epoch]);
            let planned = rows(&rank[epoch]).into_iter().filter(|(_, _, flags, _)| flags & FLAG_PADDING == 0);
            ids.extend(planned.map(|(id, ..)| id));
        }
        assert_eq!(ids.len(), 102, "epoch {epoch} delivers as many samples as the dataset has");
        let hard = ids.iter().filter(|&&id| packed.sources[id as usize].label == 2).count();
        ids.sort_unstable();
        ids.dedup();
        if epoch == 0 {
            assert_eq!(ids.len(), 102, "the first epoch is a permutation");
        } else {
            assert!(ids.len() < 102, "drawn with replacement");
            assert!(hard > 35, "{hard} draws of the hard class, which has 35 of 102 samples");
        }
    }
    drop(daemon);
}

#[test]
fn decoded_images_of_the_right_size_are_exact() {
    const SIDE: u32 = 24;
    let packed = Packed::pngs(20, SIDE);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let job = JobSpec { decode: Decode::cover(SIDE, SIDE), ..spec(8, 2) };
    let ranks = all_ranks(&packed.dataset, job, |_, session| take_epoch(session, 0).unwrap());
    let mut seen = Vec::new();
    for batch in ranks.iter().flatten() {
        let images = batch.pixels.chunks_exact((3 * SIDE * SIDE) as usize);
        assert_eq!(images.len(), batch.ids.len());
        for ((&id, &label), image) in batch.ids.iter().zip(&batch.labels).zip(images) {
            let source = &packed.sources[id as usize];
            assert_eq!(label, source.label);
            assert!(image == planes(&source.bytes), "pixels of sample {id} ({})", source.path);
            seen.push(id);
        }
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..63));
    drop(daemon);
}

/// The pixels of an RGB PNG as three planes.
fn planes(file: &[u8]) -> Vec<u8> {
    let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a PNG of ours");
    let mut pixels = vec![0; reader.output_buffer_size().expect("small")];
    reader.next_frame(&mut pixels).expect("a PNG of ours");
    (0..3).flat_map(|channel| pixels.iter().skip(channel).step_by(3).copied().collect::<Vec<_>>()).collect()
}
