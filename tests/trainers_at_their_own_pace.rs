//! Trainers may lag, hold batches, release them in any order, leave an epoch early, or start in its
//! middle.

use std::time::Duration;

use shade_client::{Decode, JobSpec, Next};
use shade_tests::{
    Daemon, Packed, Taken, attach, copy, eventually, next, sorted_ids, spec, stats, take_epoch, take_rest,
};

#[test]
fn a_rank_that_lags_costs_its_own_ring_only() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"0", &"--depth", &"2"]);
    // A ring has room for about eight batches; an epoch has 26.
    let spec = JobSpec { ring_bytes: 128 << 10, ..spec(2, 2) };
    let [quick, slow] = [0, 1].map(|rank| attach(&packed.dataset, rank, spec.clone()));
    slow.start_epoch(0, 0).unwrap();
    let mine = take_epoch(&quick, 0).unwrap();
    assert_eq!(
        mine.len(),
        quick.batches_per_epoch() as usize,
        "all of it, though the other has taken nothing"
    );
    let its = take_rest(&slow).unwrap();
    assert!(sorted_ids(&[mine, its].concat()).into_iter().eq(0..102));
    drop(daemon);
}

#[test]
fn batches_are_held_and_given_back_in_any_order() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%"]);
    // Room for some nine batches, the age of the oldest one held, and for less than an epoch.
    let session = attach(&packed.dataset, 0, JobSpec { ring_bytes: 256 << 10, ..spec(4, 1) });
    let mut held = Vec::new();
    for epoch in 0..4 {
        session.start_epoch(epoch, 0).unwrap();
        let mut taken = Vec::new();
        while let Some(batch) = next(&session).unwrap() {
            let seen = copy(&batch);
            taken.push(seen.clone());
            held.push((batch, seen));
            if held.len() == 5 {
                // Keeps another batch each time and releases the others in another order.
                held.rotate_left(1 + (epoch as usize + taken.len()) % 4);
                held.truncate(1);
            }
            for (batch, before) in &held {
                assert!(
                    copy(batch) == *before,
                    "batch {} was overwritten in the trainer's hands",
                    before.number
                );
            }
        }
        assert!(sorted_ids(&taken).into_iter().eq(0..102));
        for batch in &taken {
            for (id, record) in batch.ids.iter().zip(&batch.records) {
                assert!(*record == packed.sources[*id as usize].bytes, "sample {id}");
            }
        }
    }
    drop(daemon);
}

#[test]
fn whatever_is_kept_every_batch_comes() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    for decode in [Decode::Raw, Decode::cover(16, 16)] {
        // Keeps all 51 batches, the first, or every tenth for three epochs, in the smallest ring.
        for kept_every in [1, 51, 10] {
            let session = attach(
                &packed.dataset,
                0,
                JobSpec { decode: decode.clone(), ring_bytes: 4096, ..spec(2, 1) },
            );
            let mut kept = Vec::new();
            for epoch in 0..3 {
                session.start_epoch(epoch, 0).unwrap();
                let mut taken = Vec::new();
                while let Some(batch) = next(&session).unwrap() {
                    let seen = copy(&batch);
                    if seen.number.is_multiple_of(kept_every) {
                        kept.push((batch, seen.clone()));
                    }
                    taken.push(seen);
                }
                assert!(sorted_ids(&taken).into_iter().eq(0..102), "one of {kept_every}, epoch {epoch}");
            }
            for (batch, before) in &kept {
                assert!(
                    copy(batch) == *before,
                    "batch {} was overwritten in the trainer's hands",
                    before.number
                );
            }
        }
    }
    drop(daemon);
}

#[test]
fn an_epoch_left_early_is_forgotten_and_what_was_taken_of_it_stays() {
    let packed = Packed::pngs(33, 16);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"10%"]);
    let job = JobSpec { decode: Decode::cover(16, 16), ..spec(4, 1) };
    let session = attach(&packed.dataset, 0, job.clone());
    for epoch in 0..20 {
        session.start_epoch(epoch, 0).unwrap();
        // At another moment each time, also before the first batch.
        for _ in 0..epoch % 4 {
            drop(next(&session).unwrap());
        }
    }
    let batches = take_epoch(&session, 20).unwrap();
    assert!(batches.iter().all(|batch| batch.epoch == 20));
    assert!(sorted_ids(&batches).into_iter().eq(0..102));
    drop(daemon);
}

#[test]
fn a_batch_kept_from_an_epoch_left_early_does_not_stop_the_next() {
    let packed = Packed::pngs(33, 16);
    let daemon = Daemon::start(&packed.dataset, &[]);
    // Eight batches of 4.
    let session = attach(&packed.dataset, 0, JobSpec { ring_bytes: 32 << 10, ..spec(4, 1) });
    session.start_epoch(0, 0).unwrap();
    // Python's loop variable keeps a batch like this after `break`.
    let kept = next(&session).unwrap().unwrap();
    let before = copy(&kept);
    // Meanwhile the daemon fills the ring.
    eventually("the ring is full", || stats(&session)["total"]["accesses"].as_u64() >= Some(28));
    session.start_epoch(1, 0).unwrap();
    let first = copy(&next(&session).unwrap().unwrap());
    assert_eq!((first.epoch, first.number), (1, 0));
    assert!(copy(&kept) == before);
    drop(kept);
    let rest = take_rest(&session).unwrap();
    assert!(sorted_ids(&[vec![first], rest].concat()).into_iter().eq(0..102));
    drop(daemon);
}

#[test]
fn an_epoch_can_be_started_in_its_middle_and_at_its_end() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let session = attach(&packed.dataset, 0, spec(8, 1));
    let whole = take_epoch(&session, 0).unwrap();
    let content = |batch: &Taken| (batch.number, batch.ids.clone(), batch.records.clone());
    for first in [5, 12, 13] {
        session.start_epoch(0, first).unwrap();
        let rest = take_rest(&session).unwrap();
        let expected = whole.iter().skip(first as usize).map(content);
        assert!(rest.iter().map(content).eq(expected), "from batch {first} on");
    }
    assert!(matches!(session.next(Duration::ZERO).unwrap(), Next::EpochEnd), "the end stays the end");
    drop(daemon);
}
