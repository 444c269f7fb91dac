//! Two daemons with two ranks each deliver together what one daemon delivers to four ranks, and to
//! one.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::HashSet;
use std::path::Path;

use shade_client::{JobSpec, Options, PlanSpec, Sampler, Session, Tail};
use shade_tests::{Daemon, Packed, Taken, sorted_ids, spec, stats, take_epoch};

const STRATA: u32 = 12;
const EPOCHS: u32 = 3;
const BATCH_SIZE: u32 = 5;

fn plan(sampler: Sampler) -> PlanSpec {
    PlanSpec { sampler, seed: 5, strata: STRATA, ..PlanSpec::default() }
}

/// Trains with a daemon for each of `nodes`, which are the numbers of its ranks. Returns all epochs
/// of each rank, in the order of ranks.
fn train(packed: &Packed, job: JobSpec, nodes: &[&[u32]]) -> Vec<Vec<Taken>> {
    let started: Vec<_> = (0..nodes.len())
        .map(|node| {
            let socket = packed.beside(&format!("node{node}.socket"));
            (Daemon::start(&packed.dataset, &[&"--cache", &"20%", &"--socket", &socket]), socket)
        })
        .collect();
    let mut of_ranks = std::thread::scope(|scope| {
        let mut ranks = Vec::new();
        for (node, (_, socket)) in nodes.iter().zip(&started) {
            let job = JobSpec { ranks_here: u32::try_from(node.len()).unwrap(), ..job.clone() };
            for &rank in *node {
                let job = job.clone();
                ranks.push((rank, scope.spawn(move || epochs(&packed.dataset, socket, rank, job))));
            }
        }
        ranks.into_iter().map(|(rank, thread)| (rank, thread.join().unwrap())).collect::<Vec<_>>()
    });
    of_ranks.sort_by_key(|&(rank, _)| rank);
    of_ranks.into_iter().map(|(_, taken)| taken).collect()
}

/// All epochs of a rank, which reports a loss for each sample.
fn epochs(dataset: &Path, socket: &Path, rank: u32, job: JobSpec) -> Vec<Taken> {
    let options = Options { socket: Some(socket.to_owned()), ..Options::default() };
    let session = Session::connect(dataset, "nodes", rank, job.clone(), &options).unwrap();
    let mut all = Vec::new();
    for epoch in 0..EPOCHS {
        for batch in take_epoch(&session, epoch).unwrap() {
            let loss = |&id: &u32| (id * 37 % 101) as f32;
            let losses: Vec<f32> = batch.ids.iter().map(loss).collect();
            session.report(batch.id, &losses).unwrap();
            // What is in a cache depends on the node.
            all.push(Taken { hits: 0, misses: 0, ..batch });
        }
    }
    assert_eq!(stats(&session)["total"]["faults"], 0);
    all
}

#[test]
fn two_nodes_of_two_ranks_are_one_of_four() {
    let packed = Packed::mixed(33);
    let samplers = [Sampler::Uniform, Sampler::Pads, Sampler::Replacement].map(|sampler| (sampler, 0.0));
    for (sampler, mix) in samplers.into_iter().chain([(Sampler::Uniform, 0.5)]) {
        let job = JobSpec { plan: PlanSpec { mix, ..plan(sampler) }, ..spec(BATCH_SIZE, 4) };
        let of_one = train(&packed, job.clone(), &[&[0, 1, 2, 3]]);
        assert!(of_one.iter().all(|rank| rank.len() == of_one[0].len()), "{sampler}: equally many batches");
        for nodes in [[&[0, 1][..], &[2, 3]], [&[0, 3], &[1, 2]]] {
            assert!(train(&packed, job.clone(), &nodes) == of_one, "{sampler} {mix}: {nodes:?}");
        }
        let seen: HashSet<u32> = of_one[0].iter().flat_map(|batch| batch.ids.clone()).collect();
        // With mix more than its share comes to a rank.
        assert_eq!(seen.len() > packed.len().div_ceil(4), mix > 0.0, "{sampler} {mix}: {}", seen.len());
    }
}

/// One rank has the same global batches, as sets: four batches of four ranks at once.
#[test]
fn one_rank_has_the_batches_of_four() {
    let packed = Packed::mixed(33);
    for sampler in [Sampler::Uniform, Sampler::Replacement] {
        let of_four = JobSpec { plan: plan(sampler), tail: Tail::Drop, ..spec(BATCH_SIZE, 4) };
        let ranks = train(&packed, of_four.clone(), &[&[0, 1], &[2, 3]]);
        let alone = train(&packed, JobSpec { batch_size: 4 * BATCH_SIZE, world_size: 1, ..of_four }, &[&[0]]);
        for batch in &alone[0] {
            let is_same = |taken: &&Taken| (taken.epoch, taken.number) == (batch.epoch, batch.number);
            let together: Vec<Taken> = ranks.iter().flatten().filter(is_same).cloned().collect();
            assert_eq!(together.len(), 4, "{sampler}: batch {} of epoch {}", batch.number, batch.epoch);
            assert_eq!(sorted_ids(&together), sorted_ids(std::slice::from_ref(batch)), "{sampler}");
        }
    }
}
