//! The simulated store slows reads down as a distant one would and says that it is a simulation.
//! Engines report their names.

use std::time::{Duration, Instant};

use serde_json::Value;
use shade_tests::{Daemon, Packed, attach, spec, stats, take_epoch};

#[test]
fn a_delay_costs_at_least_what_depth_cannot_hide() {
    let packed = Packed::mixed(33);
    let (delay, depth) = (Duration::from_millis(2), 4);
    let args: [&dyn AsRef<std::ffi::OsStr>; 6] =
        [&"--store", &"latency=2ms", &"--depth", &"4", &"--cache", &"0"];
    let daemon = Daemon::start(&packed.dataset, &args);
    // The daemon reads ahead from the moment a rank attaches.
    let started = Instant::now();
    let session = attach(&packed.dataset, 0, spec(8, 1));
    for epoch in 0..2 {
        let batches = take_epoch(&session, epoch).unwrap();
        let misses: u32 = batches.iter().map(|batch| batch.misses).sum();
        // The second epoch is filled ahead, and may join the reads of the first.
        assert!(misses == 102 || epoch == 1, "{misses}: nothing is in a cache of 0 bytes");
        let stats = stats(&session);
        let count = |reads: &Value| u32::try_from(reads.as_u64().unwrap()).unwrap();
        // What the next epoch has asked for already is counted, and not yet answered.
        let reads = count(&stats["total"]["reads"]) - count(&stats["reads_submitted"]);
        assert!(0 < reads && reads <= 204, "{reads} reads bring 204 records, neighbours together");
        let (took, least) = (started.elapsed(), delay * reads / depth);
        assert!(
            took >= least,
            "{reads} reads of {delay:?}, {depth} at a time, in {took:?}: at least {least:?}"
        );
    }
    let engine = stats(&session)["engine"].as_str().unwrap().to_owned();
    assert!(engine.contains("SIMULATED") && engine.contains("2ms"), "{engine}");
    assert!(daemon.log().contains(&engine), "the log says the same: {}", daemon.log());
}

#[test]
fn a_bandwidth_costs_what_the_bytes_take() {
    let packed = Packed::mixed(33);
    let args: [&dyn AsRef<std::ffi::OsStr>; 4] = [&"--store", &"latency=1ms,bandwidth=1MB", &"--cache", &"0"];
    let daemon = Daemon::start(&packed.dataset, &args);
    // The daemon reads ahead from the moment a rank attaches.
    let started = Instant::now();
    let session = attach(&packed.dataset, 0, spec(8, 1));
    take_epoch(&session, 0).unwrap();
    let bytes: usize = packed.sources.iter().map(|source| source.bytes.len()).sum();
    let least = Duration::from_secs_f64(bytes as f64 / 1e6);
    assert!(started.elapsed() >= least, "{bytes} bytes at 1 MB/s in {:?}", started.elapsed());
    let engine = stats(&session)["engine"].as_str().unwrap().to_owned();
    assert!(engine.contains("SIMULATED"), "{engine}");
    drop(daemon);
}

#[test]
fn every_engine_delivers_and_says_which_it_is() {
    let packed = Packed::mixed(20);
    let engine_of = |args: &[&dyn AsRef<std::ffi::OsStr>]| {
        let daemon = Daemon::start(&packed.dataset, args);
        let session = attach(&packed.dataset, 0, spec(8, 1));
        for batch in take_epoch(&session, 0).unwrap() {
            for (id, record) in batch.ids.iter().zip(&batch.records) {
                assert!(*record == packed.sources[*id as usize].bytes, "sample {id}");
            }
        }
        let engine = stats(&session)["engine"].as_str().unwrap().to_owned();
        assert!(daemon.log().contains(&engine), "the log says the same: {}", daemon.log());
        engine
    };
    let threads = engine_of(&[&"--engine", &"threads"]);
    assert!(threads.starts_with("threads"), "{threads}");
    let buffered = engine_of(&[&"--engine", &"threads", &"--io", &"buffered"]);
    assert!(buffered.contains("buffered"), "{buffered}");
    // Which engine it is depends on kernel and container.
    let auto = engine_of(&[]);
    assert!(auto.starts_with("uring") || auto.starts_with("threads"), "{auto}");
}
