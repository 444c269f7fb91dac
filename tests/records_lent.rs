//! A session that is broken off has the records that it was lent until its process is dead: it may still look at them.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::Value;
use shade_client::{Output, PlanSpec, Sampler};
use shade_formats::control::{Reply, Request};
use shade_tests::{Daemon, Packed, Peer, attach, eventually, spec, stats, take_epoch};

/// So many records of `stats` were lent in all.
fn lent(stats: &Value) -> u64 {
    stats["total"]["lent"].as_u64().unwrap()
}

#[test]
fn what_a_process_may_still_look_at_is_lent_to_nobody_else() {
    // 67 KB each: 17 pages.
    let packed = Packed::pngs(5, 150);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    let idle = daemon.session_resources();
    let mut job = spec(4, 1);
    job.output = Output::Raw;
    job.plan = PlanSpec { sampler: Sampler::Uniform, ..job.plan };
    job.ring_bytes = 4 << 20;
    let all = packed.len() as u64;

    // Everything is read, and known to be good.
    let first = attach(&packed.dataset, 0, job);
    take_epoch(&first, 0).unwrap();
    drop(first);

    // An epoch that nobody takes lies in the ring, which has room for it.
    let peer = Peer::connect(&packed.dataset);
    let rank_is_free = || {
        assert!(peer.ask(&peer.hello(0, job)));
        matches!(peer.receive(), Some((Reply::Welcome { .. }, fds)) if fds.len() == 6)
    };
    assert!(rank_is_free());
    assert!(peer.ask(&Request::StartEpoch { generation: 1, epoch: 0, first_batch: 0 }));
    eventually("all records are lent", || {
        assert!(peer.ask(&Request::Stats));
        match peer.receive() {
            Some((Reply::Stats { json }, _)) => lent(&serde_json::from_str(&json).unwrap()) == all,
            other => panic!("no stats: {other:?}"),
        }
    });
    assert!(peer.send(b"nonsense", None));
    assert!(matches!(peer.receive(), Some((Reply::Failed { .. }, _))), "the daemon says why");
    assert!(peer.receive().is_none(), "and hangs up");
    eventually("the session is gone", || daemon.session_resources() == idle);

    // This process, which is the peer's, lives on. Records come all the same, as copies.
    let next = attach(&packed.dataset, 0, job);
    for epoch in 0..2 {
        let taken = take_epoch(&next, epoch).unwrap();
        assert_eq!(taken.iter().map(|batch| batch.ids.len() as u64).sum::<u64>(), all);
    }
    assert_eq!(lent(&stats(&next)), 0);
}
