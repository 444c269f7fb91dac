//! A training stopped in the middle of an epoch delivers the identical rest from a saved state,
//! under every policy, although the cache is empty then and the plan was drawn from what was in it.

use crate::replay::{Replay, Taken, index, spec};
use shade_core::Event;
use shade_job::{JobSpec, Order, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 300;
const WORLD_SIZE: u32 = 2;
/// Batches of each rank that come before the stop.
const BEFORE: u32 = 6;

fn replay(policy: Policy, job: &JobSpec, seed: u64) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), policy, 100 * 512, 4, seed);
    replay.attach_all(job, 0);
    replay
}

fn loss(id: u32) -> f32 {
    (id * 31 % 97) as f32
}

fn in_order(mut taken: Vec<Taken>) -> Vec<Taken> {
    taken.sort_by_key(|taken| (taken.epoch, taken.rank, taken.batch));
    taken
}

/// Two epochs and the draw of the third; then a stop in the second, and its rest from another
/// daemon.
fn stop_and_go_on(policy: Policy, plan: PlanSpec) {
    let what = format!("{policy:?} {} {} rep {}", plan.sampler, plan.order, plan.rep);
    let job = JobSpec { plan, ..spec(10, WORLD_SIZE) };
    let mut first = replay(policy, &job, 7);
    let taken = first.epoch(0);
    first.report(&taken, loss);
    first.taken.clear();
    (0..WORLD_SIZE).for_each(|rank| first.start(rank, 1, 0));
    let is_before = |taken: &&Taken| taken.batch < BEFORE;
    while first.taken.iter().filter(is_before).count() < (BEFORE * WORLD_SIZE) as usize {
        assert!(first.tick(), "{what}: the epoch is longer than that");
    }
    // Batches after the stop may have been delivered; they are asked for again.
    let reported: Vec<Taken> = first.taken.iter().filter(is_before).cloned().collect();
    first.report(&reported, loss);
    let state = first.save(1, BEFORE);
    assert!(!first.core().is_idle(), "{what}: reads are under way");
    first.run();
    let rest: Vec<Taken> = first.taken.iter().filter(|taken| taken.batch >= BEFORE).cloned().collect();
    let rest = in_order(rest);
    first.report(&rest, loss);

    let mut second = replay(policy, &job, 8);
    for rank in 0..WORLD_SIZE {
        second.step(Event::LoadState { strata: 0, session: rank, bytes: state.clone() });
    }
    (0..WORLD_SIZE).for_each(|rank| second.start(rank, 1, BEFORE));
    second.run();
    let resumed = in_order(std::mem::take(&mut second.taken));
    assert_eq!(resumed, rest, "{what}");

    // The next epoch is the same as well, unless what is resident decides.
    let depends = matches!(policy, Policy::Icache | Policy::Quiver);
    if plan.rep <= 1.0 && plan.order == Order::Shuffled && !depends {
        second.report(&resumed, loss);
        assert_eq!(in_order(second.epoch(2)), in_order(first.epoch(2)), "{what}");
    }
}

#[test]
fn the_rest_is_identical_under_every_policy() {
    for &policy in Policy::ALL {
        for (&sampler, &order) in
            Sampler::ALL.iter().flat_map(|sampler| Order::ALL.iter().map(move |order| (sampler, order)))
        {
            for rep in [1.0, 2.0] {
                stop_and_go_on(policy, PlanSpec { sampler, order, rep, ..PlanSpec::default() });
            }
        }
    }
}

/// Two epochs of `echo` on a cache of 10 batches, then a state; and what loads it.
fn echoes(cache_samples: u64, gap: Option<u32>, state: Option<&[u8]>) -> (Replay, Vec<Taken>) {
    let plan = PlanSpec { sampler: Sampler::Echo, gap, ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(10, WORLD_SIZE) };
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), Policy::App, cache_samples * 512, 4, 7);
    replay.attach_all(&job, 0);
    for rank in state.iter().flat_map(|_| 0..WORLD_SIZE) {
        let bytes = state.unwrap_or_default().to_vec();
        replay.step(Event::LoadState { strata: 0, session: rank, bytes });
    }
    let taken = in_order(replay.epoch(0));
    (replay, taken)
}

/// The layout of before there was a gap.
fn without_gap(state: &[u8]) -> Vec<u8> {
    let [head, rest] = [8..76, 80..state.len() - 4].map(|part| state.get(part).unwrap_or_default());
    let mut before = [b"SHADEST9", head, rest].concat();
    let crc = shade_formats::checksum::crc32c(&before);
    before.extend(crc.to_le_bytes());
    before
}

#[test]
fn repeats_are_as_far_apart_as_the_cache_held_when_the_job_began() {
    let (mut small, of_small) = echoes(100, None, None);
    let of_next = in_order(small.epoch(1));
    let state = small.save(1, 0);
    let (mut large, of_large) = echoes(290, None, None);
    assert_ne!(of_small, of_large, "10 batches of 20 samples, and 29");
    assert_eq!(echoes(100, Some(8), None).1, of_small);
    assert_eq!(echoes(290, Some(23), None).1, of_large);
    for cache_samples in [0, 300, 600, 3000] {
        assert_eq!(echoes(cache_samples, None, None).1, echoes(1, Some(60), None).1, "{cache_samples}");
    }

    // The state's gap, whatever the cache is now.
    for gap in [None, Some(8)] {
        let (mut resumed, again) = echoes(290, gap, Some(&state));
        assert_eq!(again, of_small);
        assert_eq!(in_order(resumed.epoch(1)), of_next);
    }
    let (refused, _) = echoes(290, Some(9), Some(&state));
    assert!(refused.failed[0].contains("gap is 9, and not 8: give Plan(gap=8)"), "{:?}", refused.failed);
    large.epoch(1);
    let (_, again) = echoes(100, None, Some(&large.save(1, 0)));
    assert_eq!(again, of_large);

    // A state of before there was a gap.
    let (mut before, taken) = echoes(100, Some(60), None);
    let before = without_gap(&before.save(1, 0));
    assert_eq!(echoes(100, None, Some(&before)).1, taken);
}

#[test]
fn plans_drawn_by_residents_are_not_those_of_an_empty_cache() {
    let drawn = |cache_bytes| {
        let job = JobSpec {
            plan: PlanSpec { sampler: Sampler::Pads, rep: 2.0, ..PlanSpec::default() },
            ..spec(10, WORLD_SIZE)
        };
        let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), Policy::App, cache_bytes, 4, 7);
        replay.attach_all(&job, 0);
        let taken = replay.epoch(0);
        replay.report(&taken, loss);
        in_order(replay.epoch(1))
    };
    assert_ne!(drawn(100 * 512), drawn(0), "otherwise the test above shows nothing");
}

#[test]
fn whether_losses_were_reported_is_in_the_state() {
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(10, WORLD_SIZE) };
    for reports in [true, false] {
        let mut first = replay(Policy::Lru, &job, 7);
        let taken = first.epoch(0);
        if reports {
            first.report(&taken, loss);
        }
        // After the epoch, before the next is drawn: no report comes any more.
        let state = first.save(1, 0);
        let mut second = replay(Policy::Lru, &job, 8);
        for rank in 0..WORLD_SIZE {
            second.step(Event::LoadState { strata: 0, session: rank, bytes: state.clone() });
        }
        let next = in_order(second.epoch(1));
        assert_eq!(next, in_order(first.epoch(1)));
        let mut ids: Vec<u32> = next.iter().flat_map(|taken| taken.ids.clone()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(
            ids.len() < SAMPLES as usize,
            reports,
            "drawn by importance only where losses were reported"
        );
    }
}

#[test]
fn ranks_that_load_different_states_are_told() {
    let job = JobSpec { plan: PlanSpec::default(), ..spec(10, WORLD_SIZE) };
    let mut first = replay(Policy::Lru, &job, 7);
    let [one, other] = [(); 2].map(|()| {
        let taken = first.epoch(0);
        first.report(&taken, loss);
        let state = first.save(1, 0);
        first.epoch(1);
        state
    });
    assert_ne!(one, other);
    let mut second = replay(Policy::Lru, &job, 8);
    let load = |replay: &mut Replay, rank: u32, state: &[u8]| {
        replay.step(Event::LoadState { strata: 0, session: rank, bytes: state.to_vec() });
    };
    load(&mut second, 0, &one);
    second.start(0, 1, 0);
    load(&mut second, 1, &other);
    assert_eq!(second.failed.len(), 2, "both ranks are told: {:?}", second.failed);
    assert!(second.failed[0].contains("rank 1 loads another state than ranks [0]"), "{:?}", second.failed);
    load(&mut second, 1, &one);
    second.start(1, 1, 0);
    second.run();
    assert_eq!(second.taken.len(), 30, "rank 0 goes on where it was");
    // Later they may all load another one.
    load(&mut second, 1, &other);
    load(&mut second, 0, &other);
    assert_eq!(second.failed.len(), 2, "{:?}", second.failed);
}

/// The other rank's open batches are void, not even published as empty ones.
#[test]
fn a_rank_whose_epoch_another_one_ends_is_given_nothing_more_of_it() {
    let job = JobSpec { plan: PlanSpec::default(), ..spec(10, WORLD_SIZE) };
    let mut replay = replay(Policy::Lru, &job, 7);
    let state = replay.save(0, 0);
    (0..WORLD_SIZE).for_each(|rank| replay.start(rank, 0, 0));
    // Until batches have rows that are done, and others that are not.
    (0..60).for_each(|_| assert!(replay.tick()));
    assert!(!replay.core().is_idle(), "reads are under way");
    let before = replay.taken.len();
    replay.step(Event::LoadState { strata: 0, session: 0, bytes: state.clone() });
    replay.run();
    assert_eq!((replay.taken.len(), replay.failed.len()), (before, 1), "{:?}", replay.failed);
    replay.step(Event::LoadState { strata: 0, session: 1, bytes: state });
    assert_eq!(replay.epoch(0).len(), 30);
    assert_eq!(replay.failed.len(), 1, "{:?}", replay.failed);
}

/// A large state takes long to read. Meanwhile ranks go on, say more, and leave.
#[test]
fn a_state_that_takes_its_time_is_the_same() {
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(10, WORLD_SIZE) };
    let mut first = replay(Policy::Lookahead, &job, 7);
    let taken = first.epoch(0);
    first.report(&taken, loss);
    first.epoch(1);
    let state = first.save(1, BEFORE);
    let load = |rank: u32| Event::LoadState { strata: 0, session: rank, bytes: state.clone() };
    let in_epoch = |aside_at_once: bool| {
        let mut second = replay(Policy::Lookahead, &job, 8);
        (0..WORLD_SIZE).for_each(|rank| second.start(rank, 0, 0));
        (0..60).for_each(|_| assert!(second.tick()));
        assert!(!second.core().is_idle(), "reads are under way");
        second.aside_at_once = aside_at_once;
        second
    };
    let rest = |aside_at_once: bool| {
        let mut second = in_epoch(aside_at_once);
        (0..WORLD_SIZE).for_each(|rank| second.step(load(rank)));
        (0..WORLD_SIZE).for_each(|rank| second.start(rank, 1, BEFORE));
        second.run();
        second.taken.retain(|taken| taken.epoch == 1);
        in_order(std::mem::take(&mut second.taken))
    };
    let at_once = rest(true);
    assert_eq!(at_once.len(), 30 - (BEFORE * WORLD_SIZE) as usize);
    assert_eq!(rest(false), at_once);

    let mut second = in_epoch(false);
    second.step(load(0));
    second.step(load(1));
    (0..WORLD_SIZE).for_each(|rank| second.step(Event::Detach(rank)));
    second.run();
    assert!(second.core().is_idle() && second.core().session_count() == 0);
}
