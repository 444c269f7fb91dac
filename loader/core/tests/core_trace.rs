//! An observer is told of every access, batch, release and loss, and changes nothing; without one
//! nothing is told.

use crate::replay::{Replay, index, spec};
use shade_core::Event;
use shade_formats::trace::Line;
use shade_job::{JobSpec, OnError, Policy, Sampler, Tail};

const SAMPLES: u32 = 1_003;

fn trained(observed: bool, tail: Tail) -> Replay {
    let mut replay = Replay::new(index(SAMPLES, 4, |_| 400), Policy::Lookahead, 100 * 512, 4, 3);
    if observed {
        replay.step(Event::Observe { session: 99, job: Some("job".to_owned()) });
    }
    let mut job = spec(20, 2);
    (job.plan.sampler, job.tail, job.on_error) = (Sampler::Pads, tail, OnError::Skip);
    replay.bad.insert(7);
    replay.attach_all(&job, 0);
    for epoch in 0..3 {
        let taken = replay.epoch(epoch);
        replay.report(&taken, |id| (id * 7919 % SAMPLES) as f32);
    }
    replay
}

#[test]
fn what_is_told_adds_up_to_what_was_counted_and_delivered() {
    for tail in [Tail::Drop, Tail::Pad, Tail::Even] {
        let replay = trained(true, tail);
        let counts = replay.core().stats(0).total.counts.counts;
        let (mut letters, mut delivered, mut losses) = ([0; 5], Vec::new(), 0);
        let (mut opened, mut released, mut looked) = (Vec::new(), 0, 0);
        for line in &replay.traced {
            match line {
                Line::Open(open) => {
                    assert_eq!(open.ids.len(), open.served.len());
                    open.served
                        .bytes()
                        .for_each(|letter| letters["hjmpx".find(char::from(letter)).unwrap()] += 1);
                    opened.push(open);
                }
                Line::Done(done) => {
                    let at = opened.iter().position(|o| (o.rank, o.seq) == (done.rank, done.seq)).unwrap();
                    let open = opened.swap_remove(at);
                    assert!(done.opened_us == open.at_us && done.opened_us <= done.read_us);
                    let ids = done.delivered.clone().unwrap_or_else(|| open.ids.clone());
                    delivered.push((done.epoch, done.batch, done.rank, ids));
                }
                Line::Release(release) => released += u64::from(release.before_seq > 0),
                Line::Report(report) => {
                    let of = (report.epoch, report.batch, report.rank);
                    assert!(delivered.iter().any(|(epoch, batch, rank, _)| (*epoch, *batch, *rank) == of));
                    losses += report.losses.len();
                }
                Line::Job(job) => {
                    let spec = JobSpec::from_value(job.document.clone()).unwrap();
                    assert!(!job.under_way && spec.world_size == 2 && spec.plan.sampler == Sampler::Pads);
                }
                // Counters only rise.
                Line::Snapshot(snapshot) => {
                    assert!(snapshot.hits <= snapshot.accesses && looked <= snapshot.accesses);
                    looked = snapshot.accesses;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(looked <= letters.iter().sum());
        assert!(opened.is_empty());
        let hits = counts.hits - counts.joined;
        let expected = [hits, counts.joined, counts.misses, counts.prefetched, counts.exchanged];
        assert_eq!(letters, expected);
        let taken = replay.taken.iter().map(|taken| (taken.epoch, taken.batch, taken.rank, taken));
        for (epoch, batch, rank, taken) in taken {
            let found = delivered.iter().find(|d| (d.0, d.1, d.2) == (epoch, batch, rank)).unwrap();
            // Padding stands at the end and is left out.
            assert_eq!(found.3[..], taken.ids[..found.3.len()]);
            assert!(!found.3.contains(&7), "it was skipped");
        }
        assert!(losses > 0 && released > 0);
    }
}

#[test]
fn an_observer_changes_nothing_and_nobody_is_told_without_one() {
    let (silent, observed) = (trained(false, Tail::Even), trained(true, Tail::Even));
    assert!(silent.traced.is_empty());
    let counts = |replay: &Replay| replay.core().stats(0).total.counts.counts;
    assert_eq!(counts(&silent), counts(&observed));
    let mut left = observed;
    left.traced.clear();
    left.step(Event::Observe { session: 99, job: None });
    left.epoch(3);
    assert!(left.traced.is_empty());
    // An observer that comes in the middle is told of the job first.
    left.step(Event::Observe { session: 99, job: Some("job".to_owned()) });
    assert!(matches!(&left.traced[..], [Line::Job(job)] if job.under_way));
}
