//! Four ranks stop in the middle of an epoch; two go on, and then six, each in a new daemon.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, HashSet};

use shade_client::{JobSpec, PlanSpec, Sampler, Session};
use shade_tests::{Daemon, Packed, Taken, attach, copy, next, spec, take_rest};

fn ranks(packed: &Packed, strata: u32, world_size: u32) -> Vec<Session> {
    let plan = PlanSpec { sampler: Sampler::Pads, seed: 3, strata, ..PlanSpec::default() };
    let job = JobSpec { plan, world_size, ..spec(4, world_size) };
    (0..world_size).map(|rank| attach(&packed.dataset, rank, job.clone())).collect()
}

/// Reports losses that follow from the samples.
fn report(session: &Session, batch: &Taken) {
    let losses: Vec<f32> = batch.ids.iter().map(|&id| (id * 37 % 101) as f32).collect();
    session.report(batch.id, &losses).unwrap();
}

/// Takes this many batches of each rank.
fn take(ranks: &[Session], batches: u32) -> Vec<Taken> {
    let mut taken = Vec::new();
    for rank in ranks {
        for _ in 0..batches {
            let batch = copy(&next(rank).unwrap().unwrap());
            report(rank, &batch);
            taken.push(batch);
        }
    }
    taken
}

fn ledger<'a>(taken: impl IntoIterator<Item = &'a Taken>) -> BTreeMap<u32, u32> {
    let mut ledger = BTreeMap::new();
    taken.into_iter().flat_map(|taken| &taken.ids).for_each(|&id| *ledger.entry(id).or_default() += 1);
    ledger
}

fn take_all(ranks: &[Session]) -> Vec<Taken> {
    let rest: Vec<Vec<Taken>> = ranks.iter().map(|rank| take_rest(rank).unwrap()).collect();
    let counts: HashSet<usize> = rest.iter().map(Vec::len).collect();
    assert_eq!(counts.len(), 1, "equally many batches");
    let rest: Vec<Taken> = rest.into_iter().flatten().collect();
    assert!(rest.iter().all(|batch| !batch.ids.is_empty()));
    rest
}

#[test]
fn the_ranks_of_each_world_deliver_a_part_of_one_plan() {
    let packed = Packed::mixed(33);
    for strata in [1, 12] {
        let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
        let four = ranks(&packed, strata, 4);
        let start = |ranks: &[Session], epoch, batch| {
            ranks.iter().for_each(|rank| rank.start_epoch(epoch, batch).unwrap());
        };
        start(&four, 0, 0);
        for rank in &four {
            take_rest(rank).unwrap().iter().for_each(|batch| report(rank, batch));
        }
        start(&four, 1, 0);
        let mut delivered = take(&four, 2);
        let mut state = four[3].save_state(1, 2).unwrap();
        let planned = ledger(delivered.iter().chain(&take_all(&four)));
        assert_eq!(planned.values().sum::<u32>(), 102);
        drop(four);
        daemon.kill();

        // 102 samples, 32 of them delivered: four batches of eight. Then 48: two of 24.
        for (world_size, first_batch, batches, most) in [(2, 4, 13, Some(2)), (6, 2, 5, None)] {
            let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"40%"]);
            let ranks = ranks(&packed, 1, world_size);
            for rank in &ranks {
                let resumed = rank.load_state(&state, 0).unwrap();
                assert_eq!((resumed.epoch, resumed.first_batch, resumed.batches), (1, first_batch, batches));
            }
            start(&ranks, 1, first_batch);
            delivered.extend(most.map_or_else(|| take_all(&ranks), |most| take(&ranks, most)));
            state = ranks[0].save_state(1, first_batch + most.unwrap_or(batches)).unwrap();
            drop(ranks);
            daemon.kill();
        }
        assert_eq!(ledger(&delivered), planned, "{strata} strata");
    }
}
