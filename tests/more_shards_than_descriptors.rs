//! A dataset may have more shards than a process may open files: every record still comes.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::process::Command;

use shade_client::{FLAG_SUBSTITUTED, JobSpec, OnError};
use shade_tests::{Daemon, Packed, Source, attach, class_names, png, program, spec, stats, take_epoch};

/// Limit of the daemon's open files.
const FILES_MAX: usize = 100;

/// A dataset of more than twice as many shards, a record or two in each.
fn many_shards() -> Packed {
    let sources = (0..2).flat_map(|label: u32| {
        (0..120).map(move |number: u32| {
            let path = format!("{}/{number:03}.png", class_names()[label as usize]);
            Source { path, label, bytes: png(32, 32, u64::from(1000 * label + number)) }
        })
    });
    let packed = Packed::in_shards_of("4KiB", sources.collect());
    let shards = packed.index().shard_count() as usize;
    assert!(shards > 2 * FILES_MAX, "{shards} shards");
    packed
}

/// A daemon whose shell has set this limit: soft and hard, or the soft one alone.
fn limited(packed: &Packed, limit: &str, args: &[&dyn AsRef<OsStr>]) -> Daemon {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("ulimit {limit} && exec \"$0\" \"$@\"")).arg(program("shade-load"));
    Daemon::start_by(command, &packed.dataset, args)
}

#[test]
fn every_record_is_delivered_by_either_engine_whatever_on_error_says() {
    let packed = many_shards();
    for engine in ["auto", "threads"] {
        for on_error in [OnError::Skip, OnError::Substitute] {
            let args: [&dyn AsRef<OsStr>; 4] = [&"--engine", &engine, &"--cache", &"0"];
            let daemon = limited(&packed, &format!("-n {FILES_MAX}"), &args);
            let session = attach(&packed.dataset, 0, JobSpec { on_error, ..spec(16, 1) });
            for epoch in 0..2 {
                let batches = take_epoch(&session, epoch).unwrap();
                let mut ids = Vec::new();
                for batch in &batches {
                    for (at, &id) in batch.ids.iter().enumerate() {
                        assert!(batch.records[at] == packed.sources[id as usize].bytes, "sample {id}");
                        assert_eq!(batch.flags[at] & FLAG_SUBSTITUTED, 0, "{engine}: a stand-in");
                        ids.push(id);
                    }
                }
                ids.sort_unstable();
                let expected: Vec<u32> = (0..).take(packed.len()).collect();
                assert_eq!(ids, expected, "{engine}, {on_error:?}: every sample once");
            }
            assert_eq!(stats(&session)["total"]["faults"].as_u64(), Some(0));
            let open = daemon.open_files();
            let shards = open.iter().filter(|file| file.to_string_lossy().contains("/shard-")).count();
            assert!(shards <= FILES_MAX / 2, "{engine}: {shards} shards are open");
        }
    }
}

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    let packed = many_shards();
    let daemon = limited(&packed, "-S -n 64", &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", daemon.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let values: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(values[0], values[1], "{line}");
    assert_ne!(values[0], "64", "or the test says nothing");
}
