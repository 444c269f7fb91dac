//! Nodes whose daemons outlive a training: the next one's ranks tell the seats by which each node
//! keeps the strata that it has cached.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::replay::{Replay, Taken, index, spec};
use shade_core::Event;
use shade_core::plan::Strata;
use shade_formats::SampleId;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler, Seats, held_from_bytes, seats_for};

const SAMPLES: u32 = 700;
const STRATA: u32 = 24;
const BATCH_SIZE: u32 = 10;

fn job(world_size: u32, ranks_here: usize) -> JobSpec {
    let plan = PlanSpec { sampler: Sampler::Pads, strata: STRATA, ..PlanSpec::default() };
    JobSpec { plan, ranks_here: u32::try_from(ranks_here).unwrap(), ..spec(BATCH_SIZE, world_size) }
}

/// A daemon whose cache has room for the whole dataset, without a rank.
fn node() -> Replay {
    Replay::new(index(SAMPLES, 5, |_| 400), Policy::Lookahead, 800 * 512, 6, 1)
}

/// These ranks attach, as sessions of the same numbers from `first` on, and tell `seats`.
fn attach(node: &mut Replay, first: u32, ranks: &[u32], world_size: u32, seats: &Seats) {
    for &rank in ranks {
        node.attach(first + rank, rank, &job(world_size, ranks.len()));
        node.step(Event::Seat { session: first + rank, bytes: seats.to_bytes() });
    }
    assert!(node.failed.is_empty(), "{:?}", node.failed);
}

fn leave(node: &mut Replay, first: u32, ranks: &[u32]) {
    ranks.iter().for_each(|&rank| node.detach(first + rank));
}

fn ids(taken: &[Taken]) -> Vec<u32> {
    let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
    ids.sort_unstable();
    ids
}

/// Any seats that 700 samples in 24 strata can have: the first 4 have one sample more.
fn reversed() -> Seats {
    Seats::new((0..4).rev().chain((4..STRATA).rev()).collect(), SAMPLES).unwrap()
}

#[test]
fn a_node_that_is_lost_leaves_its_strata_and_the_others_read_no_more() {
    let mut nodes = [node(), node(), node()];
    for (at, node) in (0..).zip(&mut nodes) {
        attach(node, 0, &[at], 3, &Seats::IN_ORDER);
    }
    let all: Vec<Taken> = nodes.iter_mut().flat_map(|node| node.epoch(0)).collect();
    assert!(ids(&all).into_iter().eq(0..SAMPLES));
    let reads: Vec<u64> = nodes.iter().map(|node| node.reads).collect();
    assert_eq!(reads.iter().sum::<u64>(), u64::from(SAMPLES));
    for (at, node) in (0..).zip(&mut nodes) {
        leave(node, 0, &[at]);
    }
    // Node 1 does not come back, and the others change their ranks.
    let held = |node: &Replay| {
        let (strata, bytes) = node.core().held(0).unwrap();
        assert_eq!(strata, STRATA);
        held_from_bytes(&bytes, strata)
    };
    let holds: Vec<_> = [&nodes[2], &nodes[0]].map(held).into();
    assert_eq!(holds[0], (2..STRATA).step_by(3).map(|stratum| (stratum, 255)).collect::<Vec<_>>());
    let seats = seats_for(SAMPLES, STRATA, &[0, 1], &holds);
    assert_ne!(seats, Seats::IN_ORDER);
    let mut taken = Vec::new();
    for (rank, at) in [(0, 2), (1, 0)] {
        attach(&mut nodes[at], 10, &[rank], 2, &seats);
        taken.extend(nodes[at].epoch(0));
    }
    assert!(ids(&taken).into_iter().eq(0..SAMPLES), "each sample once");
    let more: u64 = [2, 0].map(|at| nodes[at].reads - reads[at]).iter().sum();
    // A stratum of 29 samples for each rank, where lengths differ.
    assert!((reads[1]..=reads[1] + 2 * 30).contains(&more), "{more} read of a lost node's {}", reads[1]);
    // The plan of other numbers of strata is drawn from the same caches.
    let (strata, bytes) = nodes[0].core().held(48).unwrap();
    assert_eq!((strata, held_from_bytes(&bytes, 48).len()), (48, held(&nodes[0]).len() * 2));
    assert!(nodes[0].core().held(SAMPLES + 1).is_err());
}

/// Daemons read the samples of their seats' strata only, and a lookahead cache keeps no others.
#[test]
fn a_node_reads_the_strata_of_its_seats() {
    let index = index(SAMPLES, 5, |_| 400);
    let strata = Strata::new(SAMPLES, STRATA, index.content_id().0).unwrap();
    let seats = reversed();
    let mut nodes = [node(), node()];
    let mut seen = vec![0; SAMPLES as usize];
    for (at, node) in (0..).zip(&mut nodes) {
        attach(node, 0, &[at, at + 2], 4, &seats);
        for epoch in 0..3 {
            let taken = node.epoch(epoch);
            node.report(&taken, |id| (id * 31 % 97) as f32);
            let first = taken.iter().filter(|taken| taken.epoch == 0);
            first.flat_map(|taken| &taken.ids).for_each(|&id| seen[id as usize] += 1);
        }
        let is_own = |&id: &u32| seats.seat(strata.of(SampleId(id))) % 2 == at;
        assert!(node.read.iter().all(is_own));
        assert_eq!(node.core().stats(at).epoch.planned, (0..SAMPLES).filter(is_own).count());
    }
    assert_eq!(seen, vec![1; SAMPLES as usize]);
}

#[test]
fn ranks_that_tell_other_seats_are_refused() {
    let failure = |node: &mut Replay, session: u32, bytes: Vec<u8>| {
        node.step(Event::Seat { session, bytes });
        node.failed.pop()
    };
    let mut node = node();
    node.attach(0, 0, &job(2, 0));
    node.attach(1, 1, &job(2, 0));
    let text = failure(&mut node, 0, vec![1; 9]).unwrap();
    assert!(text.contains("9 bytes") && text.contains("24 strata"), "{text}");
    assert_eq!(failure(&mut node, 0, reversed().to_bytes()), None);
    assert_eq!(failure(&mut node, 0, reversed().to_bytes()), None, "twice is no harm");
    node.start(1, 0, 0);
    let text = node.failed.pop().unwrap();
    assert!(text.contains("rank 1 tells no seats, and rank 0 has"), "{text}");
    let text = failure(&mut node, 1, Vec::new()).unwrap();
    assert!(text.contains("rank 1 tells other seats than rank 0"), "{text}");
    assert_eq!(failure(&mut node, 1, reversed().to_bytes()), None);
    assert_eq!(ids(&node.epoch(0)).len(), SAMPLES as usize);
    // In a job that has begun without.
    node.detach(0);
    node.detach(1);
    node.attach(2, 0, &job(2, 0));
    node.attach(3, 1, &job(2, 0));
    node.start(2, 0, 0);
    let text = failure(&mut node, 3, reversed().to_bytes()).unwrap();
    assert!(text.contains("rank 1 tells seats after the job's first epoch has begun"), "{text}");
}

/// The rest of a saved epoch has the seats with which it was drawn; the next has those that the
/// ranks tell, or the same.
#[test]
fn a_state_has_its_seats() {
    let begin = |seats: &Seats| {
        let mut node = node();
        attach(&mut node, 0, &[0, 1], 2, seats);
        node
    };
    let mut first = begin(&reversed());
    first.epoch(0);
    let state = first.save(0, 0);
    let loaded = |seats: &Seats| {
        let mut node = begin(seats);
        for session in [0, 1] {
            node.step(Event::LoadState { strata: 0, session, bytes: state.clone() });
        }
        assert!(node.failed.is_empty(), "{:?}", node.failed);
        node
    };
    let of = |taken: Vec<Taken>| {
        let mut of: Vec<_> = taken.into_iter().map(|taken| (taken.rank, taken.batch, taken.ids)).collect();
        of.sort_unstable();
        of
    };
    let mut second = loaded(&reversed());
    let rest = of(second.epoch(0));
    assert_eq!(rest, of(first.epoch(0)));
    let next = of(first.epoch(1));
    assert_eq!(of(second.epoch(1)), next);
    let mut other = loaded(&Seats::IN_ORDER);
    assert_eq!(of(other.epoch(0)), rest);
    let in_order = of(other.epoch(1));
    assert_ne!(in_order, next);
    let all = |taken: &[(u32, u32, Vec<u32>)]| {
        let mut all: Vec<u32> = taken.iter().flat_map(|(_, _, ids)| ids.clone()).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(all(&in_order), all(&next), "the same draws at other seats");
    // Damaged: a stratum twice.
    let mut bad = state.clone();
    let strata = reversed().to_bytes();
    let at = state.windows(strata.len()).position(|bytes| bytes == strata).unwrap();
    bad.copy_within(at + 4..at + 8, at);
    let len = bad.len() - 4;
    let crc = shade_formats::checksum::crc32c(&bad[..len]).to_le_bytes();
    bad[len..].copy_from_slice(&crc);
    let mut node = begin(&reversed());
    node.step(Event::LoadState { strata: 0, session: 0, bytes: bad });
    assert!(node.failed[0].contains("each stratum once"), "{:?}", node.failed);
}
