//! A daemon with a tier, end to end: once the tier is filled nothing is read from the store. Cache
//! servers are killed in mid-epoch, and every row is right all the same.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use shade_client::Session;
use shade_tests::{
    CacheServers, Daemon, Packed, Taken, attach, cache_server_programs, copy, eventually, next, program,
    sorted_ids, spec_by_epochs, stats, take_epoch, take_rest,
};

/// Slower than any tier on this machine, which is left alone where it is slower than the store.
const STORE: [&str; 2] = ["--store", "latency=300ms"];

/// A daemon that caches a tenth of the dataset.
fn daemon(packed: &Packed, tier: &str, more: &[&str]) -> Daemon {
    let arguments = [&["--cache", "10%", "--tier", tier][..], &STORE, more].concat();
    let arguments: Vec<&dyn AsRef<std::ffi::OsStr>> =
        arguments.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>).collect();
    Daemon::start(&packed.dataset, &arguments)
}

/// Each row is its sample's file and label; the batches are a whole epoch.
fn check(packed: &Packed, batches: &[Taken]) {
    assert!(sorted_ids(batches).into_iter().eq(0..u32::try_from(packed.len()).unwrap()));
    for batch in batches {
        for ((&id, &label), record) in batch.ids.iter().zip(&batch.labels).zip(&batch.records) {
            let source = &packed.sources[id as usize];
            assert!(label == source.label && *record == source.bytes, "sample {id}");
        }
    }
}

/// One count over the job's life.
fn total(session: &Session, name: &str) -> u64 {
    stats(session)["total"][name].as_u64().unwrap()
}

/// Records read from the store.
fn from_store(session: &Session) -> u64 {
    total(session, "reads") + total(session, "coalesced")
}

/// Trains until an epoch reads nothing from the store. Returns the next epoch.
fn fill(packed: &Packed, session: &Session, first: u32) -> u32 {
    eventually("the tier is there", || !stats(session)["tier"].is_null());
    let mut epoch = first;
    eventually("an epoch reads nothing from the store", || {
        let before = (from_store(session), total(session, "hits"), total(session, "tier_hits"));
        check(packed, &take_epoch(session, epoch).unwrap());
        epoch += 1;
        let reads = from_store(session) - before.0;
        let hits = total(session, "hits") - before.1 + total(session, "tier_hits") - before.2;
        assert!(reads > 0 || hits == packed.len() as u64, "{}", stats(session));
        reads == 0
    });
    epoch
}

/// All counts fit together.
fn check_counts(session: &Session) {
    let [misses, prefetches, hits_of_tier] =
        ["misses", "prefetches", "tier_hits"].map(|name| total(session, name));
    assert!(from_store(session) + hits_of_tier <= misses + prefetches, "{}", stats(session));
    let tier = &stats(session)["tier"];
    assert!(tier["used_bytes"].as_u64() <= tier["bytes"].as_u64(), "{tier}");
}

fn with_each(test: impl Fn(&Path)) {
    let folder = tempfile::tempdir().unwrap();
    for (_, program) in cache_server_programs(folder.path()) {
        test(&program);
    }
}

#[test]
fn servers_are_killed_in_mid_epoch_and_every_row_is_right() {
    with_each(|program| {
        // 12 KB each.
        let packed = Packed::pngs(33, 64);
        let mut servers = CacheServers::cluster(program, 3, &["--maxmemory", "32mb"]);
        let daemon = daemon(&packed, &servers.text(), &[]);
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        let mut epoch = fill(&packed, &session, 0);
        assert!(servers.keys() > packed.len() as u64 * 8 / 10, "{} keys", servers.keys());
        check_counts(&session);

        // One of three, then all: each in mid-epoch.
        for kill in [1..2, 0..3] {
            session.start_epoch(epoch, 0).unwrap();
            let mut taken: Vec<Taken> = (0..4).map(|_| copy(&next(&session).unwrap().unwrap())).collect();
            kill.for_each(|at| servers.kill(at));
            taken.extend(take_rest(&session).unwrap());
            check(&packed, &taken);
            epoch += 1;
        }
        let (misses, hits) = (total(&session, "tier_misses"), total(&session, "tier_hits"));
        assert!(misses > 0, "{}", stats(&session));
        // And on, without any.
        check(&packed, &take_epoch(&session, epoch).unwrap());
        assert_eq!(total(&session, "tier_hits"), hits);
        assert_eq!(total(&session, "faults"), 0, "no fault of a record");
        assert!(total(&session, "tier_misses") > misses);
        check_counts(&session);
        let log = daemon.log();
        assert!(log.contains("its records are read from the store"), "{log}");

        // They come back empty, and are filled again.
        (0..servers.count()).for_each(|at| servers.restart(at));
        fill(&packed, &session, epoch + 1);
        assert!(total(&session, "tier_hits") > hits);
        check_counts(&session);
    });
}

#[test]
fn the_next_daemon_finds_what_this_one_stored() {
    with_each(|program| {
        let packed = Packed::pngs(33, 64);
        let servers = CacheServers::cluster(program, 3, &["--maxmemory", "32mb"]);
        let mut first = daemon(&packed, &servers.text(), &[]);
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        fill(&packed, &session, 0);
        drop(session);
        first.signal(Signal::TERM);
        assert!(first.wait().success());
        // A server that answers too late is left alone for some seconds: then another one tries.
        eventually("its first epoch has what the first one stored", || {
            let held = servers.keys();
            let _second = daemon(&packed, &servers.text(), &[]);
            let session = attach(&packed.dataset, 0, spec_by_epochs(8));
            eventually("it knows all of it", || stats(&session)["tier"]["samples"] == held);
            check(&packed, &take_epoch(&session, 0).unwrap());
            total(&session, "tier_hits") > held / 2
        });
    });
}

#[test]
fn wrong_bytes_in_the_tier_are_read_from_the_store() {
    with_each(|program| {
        let packed = Packed::pngs(33, 64);
        let servers = CacheServers::single(program, 1, &["--maxmemory", "32mb"]);
        let _daemon = daemon(&packed, &servers.text(), &[]);
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        let epoch = fill(&packed, &session, 0);
        // What is asked for ahead still comes, and counts, while keys are overwritten.
        let (mut before, mut looks) = (None, 0);
        eventually("nothing is under way", || {
            std::thread::sleep(Duration::from_millis(100));
            let now = (total(&session, "tier_hits"), total(&session, "tier_misses"));
            looks = if before.replace(now) == Some(now) { looks + 1 } else { 0 };
            looks == 20
        });
        let keys = servers.stored(0);
        for (at, key) in keys.iter().enumerate() {
            // Another record's length, or the right one.
            let len = usize::try_from(servers.number(0, &["STRLEN", key])).unwrap();
            let wrong = "x".repeat(if at % 2 == 0 { len } else { len / 2 });
            servers.call(0, &["SET", key, &wrong]);
        }
        let (hits, misses) = (total(&session, "tier_hits"), total(&session, "tier_misses"));
        check(&packed, &take_epoch(&session, epoch).unwrap());
        assert_eq!(total(&session, "tier_hits"), hits, "none of them is right");
        // Those of a server that was late are not looked at, and count as well.
        assert!(total(&session, "tier_misses") - misses >= keys.len() as u64, "{}", stats(&session));
        assert_eq!(total(&session, "faults"), 0);
        // What was wrong is stored anew.
        fill(&packed, &session, epoch + 1);
    });
}

#[test]
fn a_small_tier_keeps_its_limit() {
    with_each(|program| {
        let packed = Packed::pngs(33, 64);
        let servers = CacheServers::single(program, 1, &["--maxmemory", "32mb"]);
        let _daemon = daemon(&packed, &servers.text(), &["--tier-cache", "300000"]);
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        eventually("the tier is there", || !stats(&session)["tier"].is_null());
        for epoch in 0..6 {
            check(&packed, &take_epoch(&session, epoch).unwrap());
            check_counts(&session);
        }
        let tier = stats(&session)["tier"].clone();
        assert_eq!(tier["bytes"], 300_000);
        assert!(tier["samples"].as_u64().unwrap() > 10, "{tier}");
        let bytes: u64 = servers.stored(0).iter().map(|key| servers.number(0, &["STRLEN", key])).sum();
        assert!(bytes <= 300_000, "{bytes}");
    });
}

/// Hits of the cache and of the tier in the last of six epochs, as `simulate` says.
fn simulated(packed: &Packed, tier: &str) -> [u64; 2] {
    let options = "--nodes 1 --sampler uniform --policy lookahead --cache 10% --batch-size 8 --epochs 6 --draw-ahead --json --tier";
    let output = Command::new(program("shade-load"))
        .arg("simulate")
        .arg(&packed.dataset)
        .args(options.split_whitespace())
        .arg(tier)
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let last = &report["rows"][0]["by_epoch"][5];
    let count = |name: &str| (last[name].as_f64().unwrap() * packed.len() as f64).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    ["hit_ratio", "tier_ratio"].map(|name| count(name) as u64)
}

/// Once the cache is full, and the tier has the others or no room for more. On a busy machine a
/// server that is late is left alone for a while, so that takes some epochs more.
#[test]
fn a_daemon_counts_what_simulate_says() {
    with_each(|program| {
        let packed = Packed::pngs(33, 64);
        for tier in ["8000000", "300000"] {
            let servers = CacheServers::single(program, 1, &["--maxmemory", "32mb"]);
            let _daemon = daemon(&packed, &servers.text(), &["--tier-cache", tier]);
            let session = attach(&packed.dataset, 0, spec_by_epochs(8));
            eventually("the tier is there", || !stats(&session)["tier"].is_null());
            (0..5).for_each(|epoch| check(&packed, &take_epoch(&session, epoch).unwrap()));
            let counts = || ["hits", "tier_hits"].map(|name| total(&session, name));
            let expected = simulated(&packed, tier);
            let mut epoch = 5;
            eventually(&format!("hits of cache and tier are near {expected:?}"), || {
                let before = counts();
                check(&packed, &take_epoch(&session, epoch).unwrap());
                epoch += 1;
                let lived = [0, 1].map(|at| counts()[at] - before[at]);
                // Records differ in length: which ones fit depends on the order in which they come.
                [0, 1].iter().all(|&at| lived[at].abs_diff(expected[at]) <= 1)
            });
        }
    });
}

#[test]
fn a_store_that_is_faster_than_the_tier_is_read_instead() {
    with_each(|program| {
        let packed = Packed::pngs(33, 64);
        let servers = CacheServers::single(program, 1, &["--maxmemory", "32mb"]);
        let tier = servers.text();
        let arguments: [&dyn AsRef<std::ffi::OsStr>; 6] =
            [&"--cache", &"10%", &"--tier", &tier, &"--store", &"latency=1us,clock=virtual"];
        let daemon = Daemon::start(&packed.dataset, &arguments);
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        eventually("the tier is there", || !stats(&session)["tier"].is_null());
        let mut epoch = 0;
        eventually("the tier is left alone", || {
            check(&packed, &take_epoch(&session, epoch).unwrap());
            epoch += 1;
            stats(&session)["tier"]["left_alone"] == true
        });
        eventually("the log says so", || daemon.log().contains("left alone"));
        let hits = total(&session, "tier_hits");
        check(&packed, &take_epoch(&session, epoch).unwrap());
        assert_eq!(total(&session, "tier_hits"), hits);
    });
}

#[test]
fn a_password_comes_from_the_environment_alone() {
    with_each(|server| {
        let packed = Packed::pngs(9, 64);
        let servers = CacheServers::single(server, 1, &["--maxmemory", "32mb", "--requirepass", "swordfish"]);
        let start = |password: &str| {
            let mut command = Command::new(program("shade-load"));
            command.env("SHADE_TIER_PASSWORD", password);
            Daemon::start_by(
                command,
                &packed.dataset,
                &[&"--cache", &"10%", &"--tier", &servers.text(), &STORE[0], &STORE[1]],
            )
        };
        let daemon = start("swordfish");
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        fill(&packed, &session, 0);
        assert!(!daemon.log().contains("swordfish"));
        drop((session, daemon));
        let daemon = start("wrong");
        let session = attach(&packed.dataset, 0, spec_by_epochs(8));
        check(&packed, &take_epoch(&session, 0).unwrap());
        assert_eq!(stats(&session)["tier"], Value::Null);
        eventually("it says so", || daemon.log().contains("no server is there"));
        assert!(!daemon.log().contains("swordfish"), "{}", daemon.log());
        drop((session, daemon));
        // In the command line every user of the machine could read it.
        let refused = Command::new(program("shade-load"))
            .arg("serve")
            .arg(&packed.dataset)
            .args(["--tier", "valkey://:swordfish@127.0.0.1:1"])
            .output()
            .unwrap();
        let text = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2));
        assert!(text.contains("SHADE_TIER_PASSWORD"), "{text}");
    });
}
