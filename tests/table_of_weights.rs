//! The table of the sampler `weighted` goes to the daemon with each rank's hello, is checked there,
//! and decides what is delivered.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use shade_client::{ClientError, JobSpec, Options, PlanSpec, Sampler, Session, WeightTable};
use shade_formats::control::{REFUSE_BUSY, REFUSE_RESOURCES, REFUSE_SPEC, Reply};
use shade_tests::{Daemon, Packed, Peer, Taken, eventually, noise, spec, take_epoch, take_rest};

/// Samples of the dataset.
const SAMPLES: u32 = 102;

/// Every third sample has no weight, the others 1 to 4.
fn weight(id: u32) -> f64 {
    if id.is_multiple_of(3) { 0.0 } else { f64::from(id % 4 + 1) }
}

fn table(samples: u32) -> WeightTable {
    WeightTable::new((0..samples).map(weight)).unwrap()
}

fn other_table() -> WeightTable {
    WeightTable::new((0..SAMPLES).map(|id| f64::from(id + 1))).unwrap()
}

/// A job that says it has `table`.
fn job(table: &WeightTable, world_size: u32, replacement: bool) -> JobSpec {
    let weights_digest = table.digest();
    let plan = PlanSpec { sampler: Sampler::Weighted, replacement, weights_digest, ..PlanSpec::default() };
    JobSpec { plan, ..spec(6, world_size) }
}

fn try_attach(packed: &Packed, rank: u32, job: JobSpec, table: &WeightTable) -> Result<Session, ClientError> {
    Session::connect_with(&packed.dataset, "default", rank, job, table.clone().into(), &Options::default())
}

fn attach(packed: &Packed, rank: u32, job: JobSpec, table: &WeightTable) -> Session {
    let mut session = None;
    eventually("the rank is free", || {
        session = try_attach(packed, rank, job.clone(), table).ok();
        session.is_some()
    });
    session.unwrap()
}

fn memfd(bytes: &[u8]) -> OwnedFd {
    let memfd = memfd_create("weights", MemfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&memfd, bytes).unwrap();
    memfd
}

fn counts(batches: &[Taken]) -> Vec<u32> {
    let mut counts = vec![0; SAMPLES as usize];
    batches.iter().flat_map(|batch| &batch.ids).for_each(|id| counts[*id as usize] += 1);
    counts
}

#[test]
fn a_hello_without_a_right_table_is_refused_and_hurts_nobody() {
    let packed = Packed::mixed(33);
    let mut daemon = Daemon::start(&packed.dataset, &[]);
    let right = table(SAMPLES);
    let refused = |file: Option<OwnedFd>| {
        let peer = Peer::connect(&packed.dataset);
        let hello = peer.hello(0, job(&right, 1, true));
        assert!(peer.send(&hello.encode(), file.as_ref()));
        let Some((Reply::Refuse { code, text }, _)) = peer.receive() else { panic!("not refused") };
        (code, text)
    };
    let right_bytes = right.to_bytes();
    let huge = memfd(&right_bytes);
    ftruncate(&huge, 4 << 40).unwrap();
    let (pipe, _write) = rustix::pipe::pipe().unwrap();
    let wrong = [
        (None, "needs a table of weights"),
        (Some(memfd(&table(SAMPLES - 1).to_bytes())), "a table for 101 samples"),
        (Some(memfd(&right_bytes[..right_bytes.len() - 1])), "a table for 101.75 samples"),
        (Some(memfd(&table(SAMPLES + 1).to_bytes())), "a table for 103 samples"),
        (Some(memfd(&[])), "a table for 0 samples"),
        (Some(huge), "the dataset's 102 samples"),
        (Some(pipe), "a table for 0 samples"),
        (Some(memfd(&vec![0; right_bytes.len()])), "0 for every sample"),
        (Some(memfd(&noise(1, right_bytes.len()))), "has the digest"),
        (Some(memfd(&other_table().to_bytes())), "has the digest"),
    ];
    for (file, expected) in wrong {
        let (code, text) = refused(file);
        assert_eq!(code, REFUSE_SPEC, "{text}");
        assert!(text.contains(expected), "{text:?} lacks {expected:?}");
    }
    // What cannot be read at all.
    let path = packed.beside("weights");
    std::fs::write(&path, &right_bytes).unwrap();
    let write_only = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert_eq!(refused(Some(write_only.into())).0, REFUSE_RESOURCES);
    assert!(daemon.is_alive());
    let session = attach(&packed, 0, job(&right, 1, true), &right);
    assert_eq!(counts(&take_epoch(&session, 0).unwrap()).iter().sum::<u32>(), SAMPLES);
}

#[test]
fn a_client_whose_table_does_not_fit_the_dataset_asks_no_daemon() {
    let packed = Packed::mixed(33);
    let short = table(SAMPLES - 1);
    let error = try_attach(&packed, 0, job(&short, 1, true), &short).unwrap_err().to_string();
    assert!(error.contains("a table for 101 samples") && error.contains("102 samples"), "{error}");
}

#[test]
fn ranks_share_one_table_and_another_one_is_refused() {
    let packed = Packed::mixed(33);
    let _daemon = Daemon::start(&packed.dataset, &[]);
    let right = table(SAMPLES);
    for replacement in [true, false] {
        let ranks: Vec<Session> =
            (0..2).map(|rank| attach(&packed, rank, job(&right, 2, replacement), &right)).collect();
        let other = other_table();
        match try_attach(&packed, 1, job(&other, 2, replacement), &other).unwrap_err() {
            ClientError::Refused { code: REFUSE_BUSY, text, .. } => {
                assert!(text.contains("other arguments"), "{text}");
            }
            error => panic!("{error}"),
        }
        ranks.iter().for_each(|rank| rank.start_epoch(0, 0).unwrap());
        let batches: Vec<Taken> = ranks.iter().flat_map(|rank| take_rest(rank).unwrap()).collect();
        let counts = counts(&batches);
        assert_eq!(counts.iter().sum::<u32>(), SAMPLES);
        let sum: f64 = (0..SAMPLES).map(weight).sum();
        for (id, &count) in (0..).zip(&counts) {
            let uses = weight(id) / sum * f64::from(SAMPLES);
            let expected = if replacement { 0.0..=20.0 * uses } else { uses.floor()..=uses.ceil() };
            assert!(expected.contains(&f64::from(count)), "{id}: {count} of {uses}");
        }
        for batch in &batches {
            for (&id, &given) in batch.ids.iter().zip(&batch.weights) {
                let uses = weight(id) / sum * f64::from(SAMPLES);
                assert!((f64::from(given) * uses - 1.0).abs() < 1e-6, "{id}: {given}");
            }
        }
    }
}

#[test]
fn a_resumed_run_needs_the_same_table() {
    let packed = Packed::mixed(33);
    let right = table(SAMPLES);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let session = attach(&packed, 0, job(&right, 1, true), &right);
    session.start_epoch(0, 0).unwrap();
    let whole = take_rest(&session).unwrap();
    let state = session.save_state(0, 5).unwrap();
    let next = take_epoch(&session, 1).unwrap();
    drop(session);
    daemon.kill();

    let _daemon = Daemon::start(&packed.dataset, &[]);
    let ids = |batches: &[Taken]| batches.iter().map(|batch| batch.ids.clone()).collect::<Vec<_>>();
    let session = attach(&packed, 0, job(&right, 1, true), &right);
    session.load_state(&state, 0).unwrap();
    session.start_epoch(0, 5).unwrap();
    assert_eq!(ids(&take_rest(&session).unwrap()), ids(&whole)[5..]);
    assert_eq!(ids(&take_epoch(&session, 1).unwrap()), ids(&next));
    drop(session);
    for (other, replacement) in [(other_table(), true), (right, false)] {
        let session = attach(&packed, 0, job(&other, 1, replacement), &other);
        let error = session.load_state(&state, 0).unwrap_err().to_string();
        assert!(error.contains("the same plan arguments, weights and indices"), "{error}");
    }
}
