//! Jobs of a group wait for each other at an epoch's start, for a twentieth of an epoch at most.

use std::time::Duration;

use crate::replay::{Replay, index, spec};
use shade_core::Event;
use shade_formats::control::redo_to_bytes;
use shade_job::{JobSpec, PlanSpec, Policy, Sampler, group_digest};

const SAMPLES: u32 = 600;
/// A twentieth of an epoch at the pace that a job begins with, 0.1 ms a sample.
const WAIT: Duration = Duration::from_millis(3);

/// Two jobs of a group, of which both have ended their first epoch if `both`, else the first has
/// and the second has just begun.
fn jobs(both: bool) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), Policy::Lookahead, 100 * 512, 8, 5);
    let plan = PlanSpec { sampler: Sampler::Pads, group: group_digest("sweep"), ..PlanSpec::default() };
    let job = JobSpec { plan, ..spec(20, 1) };
    replay.attach_job(0, "a", &job);
    replay.attach_job(1, "b", &job);
    replay.start(0, 0, 0);
    if both {
        replay.start(1, 0, 0);
    }
    replay.run();
    if !both {
        replay.start(1, 0, 0);
    }
    replay.start(0, 1, 0);
    replay
}

fn epoch(replay: &Replay, session: u32) -> Option<u32> {
    replay.core().stats(session).epoch.epoch
}

#[test]
fn a_job_waits_for_one_that_is_about_to_begin_and_no_longer_than_the_limit() {
    let mut replay = jobs(true);
    replay.wait(WAIT / 2);
    assert_eq!(epoch(&replay, 0), Some(0));
    replay.wait(WAIT);
    assert_eq!(epoch(&replay, 0), Some(1), "the other did not come");
    replay.run();
    assert!(replay.ended.contains(&(0, 1)));
}

#[test]
fn both_begin_when_the_other_comes() {
    let mut replay = jobs(true);
    replay.start(1, 1, 0);
    assert_eq!([0, 1].map(|session| epoch(&replay, session)), [Some(1), Some(1)]);
    let before = replay.reads;
    replay.run();
    assert!(replay.reads - before <= u64::from(SAMPLES), "they read nearly the same");
}

/// A job of a daemon that died waits for all of its ranks, and one of them may never come back.
#[test]
fn nobody_waits_for_a_job_whose_ranks_still_come_back() {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), Policy::Lookahead, 100 * 512, 8, 5);
    let plan = PlanSpec { sampler: Sampler::Pads, group: group_digest("sweep"), ..PlanSpec::default() };
    replay.attach_job(0, "a", &JobSpec { plan, ..spec(20, 1) });
    replay.attach_job(1, "b", &JobSpec { plan, ..spec(20, 2) });
    replay.step(Event::TakeRedo { session: 1, bytes: redo_to_bytes([]) });
    replay.start(1, 0, 0);
    for of in 0..2 {
        replay.start(0, of, 0);
        assert_eq!(epoch(&replay, 0), Some(of));
        replay.run();
        assert!(replay.ended.contains(&(0, of)));
    }
    assert!(replay.core().is_postponed(1));
}

#[test]
fn nobody_waits_for_a_job_that_is_far_behind_or_gone_or_alone() {
    assert_eq!(epoch(&jobs(false), 0), Some(1), "far behind");
    let mut replay = jobs(true);
    assert_eq!(epoch(&replay, 0), Some(0));
    replay.detach(1);
    assert_eq!(epoch(&replay, 0), Some(1), "gone");
    replay.run();
    replay.start(0, 2, 0);
    assert_eq!(epoch(&replay, 0), Some(2), "alone");
}
