//! Two ranks, one daemon, one cache: a record that one rank has read is not read again.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use serde_json::Value;
use shade_tests::{Daemon, Packed, all_ranks, spec, stats, take_epoch};

fn count(stats: &Value, part: &str, name: &str) -> u64 {
    stats[part][name].as_u64().unwrap_or_else(|| panic!("no {part}.{name} in {stats}"))
}

#[test]
fn a_second_epoch_with_everything_resident_reads_nothing() {
    let packed = Packed::mixed(33);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    let ranks = all_ranks(&packed.dataset, spec(8, 2), |_, session| {
        let first = take_epoch(session, 0).unwrap();
        let second = take_epoch(session, 1).unwrap();
        (first, second, session.daemon_pid(), stats(session))
    });
    let total = |pick: fn(&shade_tests::Taken) -> u32, batches: &[shade_tests::Taken]| -> u32 {
        batches.iter().map(pick).sum()
    };
    let reads: u32 = ranks.iter().map(|(first, ..)| total(|batch| batch.misses, first)).sum();
    assert_eq!(reads, 102, "the first epoch reads each sample once");
    let bytes: u64 = packed.sources.iter().map(|source| source.bytes.len() as u64).sum();
    for (_, second, pid, stats) in &ranks {
        assert_eq!(*pid, daemon.pid());
        assert_eq!(total(|batch| batch.misses, second), 0);
        assert_eq!(total(|batch| batch.hits, second), 51);
        assert_eq!(count(stats, "epoch", "misses"), 0, "{stats}");
        assert_eq!(count(stats, "epoch", "bytes_read"), 0, "{stats}");
        assert_eq!(count(stats, "total", "misses") + count(stats, "total", "prefetched"), 102);
        assert_eq!(count(stats, "total", "bytes_read"), bytes);
        assert_eq!(stats["resident"].as_u64(), Some(102));
    }
}

#[test]
fn the_cache_outlives_the_ranks_that_filled_it() {
    let packed = Packed::mixed(10);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%"]);
    for run in 0..2 {
        let misses = all_ranks(&packed.dataset, spec(4, 2), |_, session| {
            take_epoch(session, 0).unwrap().iter().map(|batch| batch.misses).sum::<u32>()
        });
        assert_eq!(misses.iter().sum::<u32>(), if run == 0 { 33 } else { 0 }, "run {run}");
    }
    drop(daemon);
}
