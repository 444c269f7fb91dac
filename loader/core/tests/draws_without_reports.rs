//! Importance needs losses: after an epoch in which nobody reported any, the next plan is a
//! permutation, and one warning says so.

use crate::replay::{Replay, Taken, index, spec};
use shade_core::Event;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler};

const SAMPLES: u32 = 600;
const BY_LOSS: [Sampler; 3] = [Sampler::Pads, Sampler::Iis, Sampler::Cis];

fn job(sampler: Sampler, draw_ahead: bool, world_size: u32) -> JobSpec {
    let plan = PlanSpec { sampler, draw_ahead, rep: 1.5, cover: 0, ..PlanSpec::default() };
    JobSpec { plan, ..spec(10, world_size) }
}

fn replay(job: &JobSpec) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 5, |_| 300), Policy::Lru, 100 * 512, 4, 1);
    replay.attach_all(job, 0);
    replay
}

fn loss(id: u32) -> f32 {
    (id * 7919 % SAMPLES) as f32
}

/// What each batch holds, in the order of the plan.
fn batches(mut taken: Vec<Taken>) -> Vec<Vec<u32>> {
    taken.sort_by_key(|taken| (taken.batch, taken.rank));
    taken.into_iter().map(|taken| taken.ids).collect()
}

fn is_permutation(taken: &[Taken]) -> bool {
    let mut ids: Vec<u32> = taken.iter().flat_map(|taken| taken.ids.clone()).collect();
    ids.sort_unstable();
    ids.into_iter().eq(0..SAMPLES)
        && taken.iter().flat_map(|taken| &taken.weights).all(|&weight| weight == 1.0)
}

/// Warnings about reports.
fn told(replay: &Replay) -> Vec<&String> {
    replay.warnings.iter().filter(|text| text.contains("no loss was reported")).collect()
}

fn reports_missing(replay: &Replay) -> bool {
    replay.core().stats(0).epoch.reports_missing
}

#[test]
fn every_epoch_is_that_of_the_sampler_uniform() {
    for (sampler, draw_ahead, world_size) in
        BY_LOSS.into_iter().flat_map(|sampler| [(sampler, false, 1), (sampler, true, 1), (sampler, false, 3)])
    {
        let what = format!("{sampler}, draw_ahead {draw_ahead}, {world_size} ranks");
        let mut silent = replay(&job(sampler, draw_ahead, world_size));
        let mut uniform = replay(&job(Sampler::Uniform, draw_ahead, world_size));
        for epoch in 0..9 {
            let taken = silent.epoch(epoch);
            assert!(is_permutation(&taken), "{what}, epoch {epoch}");
            assert_eq!(batches(taken), batches(uniform.epoch(epoch)), "{what}, epoch {epoch}");
            assert_eq!(reports_missing(&silent), epoch > 0, "{what}, epoch {epoch}");
            assert!(!reports_missing(&uniform), "nobody waits for losses");
        }
        let texts = told(&silent);
        assert_eq!(texts.len(), 1, "{what}: {texts:?}");
        let drawn = if draw_ahead { 2 } else { 1 };
        for part in ["in epoch 0", sampler.as_str(), &format!("epoch {drawn} is a permutation")] {
            assert!(texts[0].contains(part), "{:?} lacks {part:?}", texts[0]);
        }
        assert!(told(&uniform).is_empty());
    }
}

#[test]
fn one_loss_of_any_rank_is_enough_and_is_counted() {
    let mut replay = replay(&job(Sampler::Pads, false, 3));
    let taken = replay.epoch(0);
    let of_last: Vec<Taken> = taken.into_iter().filter(|taken| (taken.rank, taken.batch) == (2, 7)).collect();
    let report = |replay: &mut Replay, rows: usize| {
        let mut part = of_last.clone();
        part[0].ids.truncate(rows);
        replay.report(&part, loss);
    };
    report(&mut replay, 1);
    // The same once more, and then two more.
    report(&mut replay, 1);
    report(&mut replay, 3);
    for counts in [replay.core().stats(0).epoch.counts, replay.core().stats(0).total.counts] {
        assert_eq!((counts.counts.reported, counts.counts.delivered), (3, u64::from(SAMPLES)));
        assert!((counts.reported_share - 3.0 / f64::from(SAMPLES)).abs() < 1e-12);
    }
    assert!(!is_permutation(&replay.epoch(1)));
    assert!(!reports_missing(&replay) && told(&replay).is_empty());
    assert_eq!(replay.core().stats(0).epoch.counts.counts.reported, 0, "of this epoch none came");
}

#[test]
fn what_is_no_loss_of_a_batch_is_no_report() {
    let mut replay = replay(&job(Sampler::Pads, false, 1));
    replay.epoch(0);
    replay.step(Event::Report { session: 0, epoch: 0, batch: 3, losses: Vec::new() });
    replay.step(Event::Report { session: 0, epoch: 0, batch: 999, losses: vec![1.0] });
    assert!(is_permutation(&replay.epoch(1)));
    assert_eq!(told(&replay).len(), 1);
}

/// Which epochs of nine are permutations, where only some are reported.
fn permutations(draw_ahead: bool, reported: impl Fn(u32) -> bool) -> (Vec<u32>, usize) {
    let mut replay = replay(&job(Sampler::Pads, draw_ahead, 2));
    let mut permutations = Vec::new();
    for epoch in 0..9 {
        let taken = replay.epoch(epoch);
        if is_permutation(&taken) {
            permutations.push(epoch);
        }
        if reported(epoch) {
            replay.report(&taken, loss);
        }
    }
    let warnings = told(&replay).len();
    (permutations, warnings)
}

#[test]
fn the_epoch_after_one_without_reports_is_a_permutation() {
    assert_eq!(permutations(false, |_| true), (vec![0], 0));
    assert_eq!(
        permutations(false, |epoch| ![2, 3, 6].contains(&epoch)),
        (vec![0, 3, 4, 7], 1),
        "it is said once"
    );
}

/// A plan that is drawn an epoch early is judged by what had been reported by then.
#[test]
fn a_plan_drawn_early_goes_by_the_epoch_that_ended_when_it_was_drawn() {
    assert_eq!(permutations(true, |_| true), (vec![0, 1], 0), "nobody could report before epoch 0");
    assert_eq!(permutations(true, |epoch| ![2, 3, 6].contains(&epoch)), (vec![0, 1, 4, 5, 8], 1));
}

#[test]
fn losses_that_come_an_epoch_late_are_reports() {
    let mut replay = replay(&job(Sampler::Pads, false, 1));
    let mut late = replay.epoch(0);
    for epoch in 1..4 {
        let taken = replay.epoch(epoch);
        assert_eq!(is_permutation(&taken), epoch == 1, "epoch {epoch}");
        replay.report(&late, loss);
        let counts = replay.core().stats(0).epoch.counts.counts;
        assert_eq!(counts.reported, 0, "they are no losses of this epoch");
        late = taken;
    }
    assert_eq!(replay.core().stats(0).total.counts.counts.reported, 3 * u64::from(SAMPLES));
}

#[test]
fn an_epoch_of_which_nothing_was_delivered_is_not_missed() {
    let mut replay = replay(&job(Sampler::Pads, false, 2));
    // One rank alone begins nothing; then both change their mind at once.
    replay.start(0, 0, 0);
    replay.run();
    (0..2).for_each(|rank| replay.start(rank, 5, 0));
    replay.run();
    assert!(is_permutation(&replay.taken));
    assert!(told(&replay).is_empty());
}

/// A training makes an iterator, which starts an epoch, and then chooses another one.
#[test]
fn a_plan_that_nobody_took_from_does_not_use_up_the_losses() {
    for draw_ahead in [false, true] {
        let epochs = |changes_its_mind: bool| {
            let mut replay = replay(&job(Sampler::Pads, draw_ahead, 2));
            for epoch in 0..3 {
                let taken = replay.epoch(epoch);
                replay.report(&taken, loss);
            }
            if changes_its_mind {
                // Drawn, and replaced twice, before anything of them comes.
                for epoch in [3, 9] {
                    (0..2).for_each(|rank| replay.start(rank, epoch, 0));
                }
            }
            let fifth = replay.epoch(5);
            assert!(!is_permutation(&fifth), "draw_ahead {draw_ahead}");
            assert!(!reports_missing(&replay) && told(&replay).is_empty());
            let sixth = replay.epoch(6);
            assert!(is_permutation(&sixth) != draw_ahead, "epoch 5 was taken, and nothing of it reported");
            let seventh = replay.epoch(7);
            assert!(is_permutation(&seventh) && told(&replay).len() == 1);
            [fifth, sixth, seventh].map(batches)
        };
        assert!(epochs(true) == epochs(false), "draw_ahead {draw_ahead}");
    }
}

#[test]
fn one_rank_that_took_a_batch_makes_an_epoch_count() {
    let mut replay = replay(&job(Sampler::Pads, false, 2));
    let taken = replay.epoch(0);
    replay.report(&taken, loss);
    (0..2).for_each(|rank| replay.start(rank, 1, 0));
    let start = |session, has_taken| Event::StartEpoch {
        session,
        generation: 3,
        epoch: 2,
        first_batch: 0,
        has_taken,
    };
    replay.step(start(0, false));
    assert!(told(&replay).is_empty(), "the other rank's word is awaited");
    replay.step(start(1, true));
    assert!(reports_missing(&replay));
    assert_eq!(told(&replay).len(), 1);
}

#[test]
fn a_rank_that_left_may_have_trained() {
    let job = job(Sampler::Pads, false, 2);
    let mut replay = replay(&job);
    let taken = replay.epoch(0);
    replay.report(&taken, loss);
    (0..2).for_each(|rank| replay.start(rank, 1, 0));
    replay.detach(1);
    replay.attach(2, 1, &job);
    [0, 2].into_iter().for_each(|session| replay.start(session, 2, 0));
    assert!(reports_missing(&replay));
}

#[test]
fn the_scores_of_all_ranks_are_one_validation() {
    // The last epoch's hits depend on whether `rep` applied.
    let trained = |reporters: &[u32], score: fn(u32, u32) -> f64| {
        let plan = PlanSpec { sampler: Sampler::Pads, rep: 3.0, ..PlanSpec::default() };
        let mut replay = replay(&JobSpec { plan, ..spec(10, 4) });
        for epoch in 0..7 {
            let taken = replay.epoch(epoch);
            replay.report(&taken, loss);
            for &rank in reporters {
                replay.step(Event::Validation { session: rank, score: score(epoch, rank) });
            }
        }
        let taken = batches(replay.epoch(7));
        let distinct = replay.core().stats(0).epoch.plan.distinct;
        (taken, distinct)
    };
    let rises = |epoch, _| f64::from(epoch);
    let (alone, few) = trained(&[0], rises);
    let (all, _) = trained(&[0, 1, 2, 3], rises);
    assert!(all == alone, "four ranks' scores of an epoch are one");
    let (falls, many) = trained(&[3, 1, 0, 2], |epoch, _| -f64::from(epoch));
    assert!(falls != alone && many > few + SAMPLES / 20, "rep rests: {many} distinct samples, {few} with it");
    // Each rank its own part: the lowest rank's holds, in whatever order they come.
    let (parts, _) = trained(&[3, 1, 0, 2], |epoch, rank| if rank == 0 { f64::from(epoch) } else { 9.0 });
    assert!(parts == alone);
}

#[test]
fn what_a_validation_was_is_in_the_state() {
    let plan = PlanSpec { sampler: Sampler::Pads, rep: 3.0, ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(10, 2) };
    let mut first = replay(&job);
    for epoch in 0..4 {
        let taken = first.epoch(epoch);
        first.report(&taken, loss);
        first.step(Event::Validation { session: 1, score: 1.0 - f64::from(epoch) });
    }
    let state = first.save(4, 0);
    let mut second = replay(&job);
    (0..2).for_each(|rank| second.step(Event::LoadState { strata: 0, session: rank, bytes: state.clone() }));
    assert_eq!(second.save(4, 0), state);
    // The lower rank's score of the same epoch takes the place of the one that was saved.
    let [first, second] = [&mut first, &mut second].map(|replay| {
        replay.step(Event::Validation { session: 0, score: 5.0 });
        replay.save(4, 0)
    });
    assert_eq!(first.len(), state.len());
    assert_eq!(first, second);
}
