//! `shade-load simulate --nodes`: nodes with strata hit like one node with all of the cache, wait
//! for the slowest rank and the shared store as closed forms say, and go on when one is lost.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;
use shade_tests::program;

fn simulate(args: &str) -> Output {
    Command::new(program("shade-load")).arg("simulate").args(args.split_whitespace()).output().unwrap()
}

fn report(args: &str) -> Value {
    let output = simulate(&format!("--policy lookahead --json {args}"));
    assert!(output.status.success(), "{args}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row(args: &str) -> Value {
    report(args)["rows"][0].clone()
}

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// A figure of each epoch.
fn by_epoch(row: &Value, key: &str) -> Vec<f64> {
    row["by_epoch"].as_array().unwrap().iter().map(|epoch| number(epoch, key)).collect()
}

fn assert_near(got: f64, expected: f64, tolerance: f64) {
    assert!((got - expected).abs() <= tolerance, "{got} instead of {expected}");
}

const SAMPLES: &str = "--samples 4032 --batch-size 16 --skip-epochs 2";
const TRAINING: &str = "--samples 4032 --batch-size 16 --skip-epochs 2 --epochs 5 --cache 20%";

#[test]
fn nodes_with_strata_hit_like_one_node_and_with_one_plan_far_less() {
    for sampler in ["pads", "uniform"] {
        let hits = |args: &str| {
            number(&row(&format!("{TRAINING} --seeds 3 --sampler {sampler} {args}")), "hit_ratio")
        };
        let one = hits("--nodes 1");
        assert_near(hits("--nodes 4"), one, 0.02);
        assert_near(hits("--nodes 2 --ranks-per-node 2"), one, 0.02);
        let sliced = hits("--nodes 4 --global-plan");
        assert!(sliced < one / 2.0, "{sampler}: {sliced} instead of {one}");
    }
}

#[test]
fn several_jobs_share_the_caches_of_several_nodes() {
    let rows = |args: &str| {
        let report = report(&format!("{TRAINING} --seeds 3 --sampler pads {args}"));
        let rows = report["rows"].as_array().unwrap();
        [0, 1].map(|at| number(&rows[at], "datasets_per_epoch"))
    };
    let one = rows("--jobs 2");
    let nodes = rows("--jobs 2 --nodes 4");
    let group = rows("--jobs 2 --nodes 4 --group");
    for way in 0..2 {
        assert_near(nodes[way], one[way], 0.1);
    }
    assert!(group[0] < nodes[0] - 0.1 && nodes[0] < nodes[1], "{group:?}, {nodes:?}");
    let row = row(&format!("{TRAINING} --jobs 2 --nodes 2 --sampler uniform --store latency=2ms,depth=4"));
    assert!(row["stall_shares"].as_array().unwrap().len() == 2 && row["jain"].is_number(), "{row}");
    assert_eq!(by_epoch(&row, "datasets").len(), 5);
}

#[test]
fn a_cache_that_is_enough_is_found_for_nodes_and_jobs() {
    let store = "--sizes fixed:110KB --store latency=2ms,bandwidth=1Gbit,depth=8 --sampler pads";
    for ranks in ["--nodes 2", "--jobs 2", "--nodes 2 --jobs 2"] {
        let found = report(&format!("--samples 1000 --epochs 3 --cache 20% --recommend {store} {ranks}"));
        let found = &found["recommend"][0];
        let [none, some, all] =
            ["stall_share_uncached", "stall_share", "stall_share_all_cached"].map(|key| number(found, key));
        assert!(all <= some && some <= none - 0.9 * (none - all) + 1e-9, "{ranks}: {found}");
        assert!((0.05..0.95).contains(&number(found, "capacity_share")), "{ranks}: {found}");
    }
}

#[test]
fn caches_that_hold_the_dataset_together_read_it_once() {
    for sampler in ["pads", "uniform"] {
        let row = row(&format!("{SAMPLES} --epochs 5 --cache 4193 --nodes 4 --sampler {sampler}"));
        let read = by_epoch(&row, "datasets");
        assert_eq!(read, [1.0, 0.0, 0.0, 0.0, 0.0], "{sampler}: a permutation first, then all hit");
    }
}

#[test]
fn tiers_bring_what_the_caches_have_no_room_for() {
    // Caches have a fifth together, and each node's tier has room for a fifth more.
    let row = row(&format!("{SAMPLES} --epochs 5 --cache 20% --nodes 4 --sampler uniform --tier 21%"));
    assert_eq!(by_epoch(&row, "datasets"), [1.0, 0.0, 0.0, 0.0, 0.0], "nothing is read from the store");
    for (hits, of_tier) in by_epoch(&row, "hit_ratio").into_iter().zip(by_epoch(&row, "tier_ratio")).skip(1) {
        assert_near(hits, 0.2, 0.001);
        assert_near(hits + of_tier, 1.0, 1e-9);
    }
    assert_eq!(number(&row, "store_ratio"), 0.0);
}

#[test]
fn a_tier_that_is_too_small_has_what_is_used_next() {
    let train = |args: &str| row(&format!("{TRAINING} --nodes 4 --sampler pads {args}"));
    let (without, with) = (train(""), train("--tier 5%"));
    assert_eq!((number(&without, "tier_ratio"), number(&without, "tier_writes")), (0.0, 0.0));
    assert_near(number(&with, "hit_ratio"), number(&without, "hit_ratio"), 0.02);
    // Any fifth of the samples would bring a fifth of the misses.
    let share = number(&with, "tier_ratio") / (1.0 - number(&with, "hit_ratio"));
    assert!(share > 0.25, "{share}");
    let sum = ["hit_ratio", "tier_ratio", "store_ratio"].map(|key| number(&with, key)).iter().sum();
    assert_near(sum, 1.0, 1e-9);
}

#[test]
fn a_tier_takes_as_long_as_its_model_says() {
    // Once it has all records, 20 of them come in a step, 1 ms each: 20 ms, of which 10 are
    // computed.
    let args = "--samples 4000 --epochs 14 --skip-epochs 12 --batch-size 20 --cache 0 --sampler uniform --nodes 1 \
                --compute 500us --sizes fixed:1000 --store latency=40ms";
    let row = row(&format!("{args} --tier 16MB --tier-store latency=0ms,bandwidth=1MB"));
    assert_near(number(&row, "tier_ratio"), 1.0, 0.01);
    assert_near(number(&row, "stall_share"), 1.0, 0.03);
}

#[test]
fn a_lost_node_leaves_its_strata_and_the_others_keep_what_they_have() {
    let train = |args: &str| row(&format!("{SAMPLES} --epochs 6 --sampler pads {args}"));
    let row = train("--cache 20% --nodes 4 --lose 1@3 --strata 24");
    assert_eq!(by_epoch(&row, "strata_moved"), [0.0, 0.0, 0.0, 6.0, 0.0, 0.0]);
    let hits = by_epoch(&row, "hit_ratio");
    // A quarter of the cache is gone. What is left holds three quarters of what was cached.
    assert!(hits[3] > hits[2] / 2.0 && hits[3] < hits[2], "{hits:?}");
    assert!((hits[5] - hits[4]).abs() < 0.02, "{hits:?}");
    // Three nodes with the same caches that were never four.
    let three = train("--cache 15% --nodes 3");
    assert_near(hits[5], by_epoch(&three, "hit_ratio")[5], 0.025);
}

#[test]
fn a_store_that_is_too_slow_for_all_costs_what_it_is_slower() {
    // 20 reads of 4 ms a step, 2 at a time: 40 ms, of which 10 are computed.
    let args =
        "--samples 8000 --epochs 2 --batch-size 10 --cache 0 --sampler uniform --nodes 2 --compute 1ms";
    let row = row(&format!("{args} --store latency=4ms,depth=2"));
    assert_near(number(&row, "stall_share"), 3.0, 0.03);
    assert_near(number(&row, "time_s"), 2.0 * 400.0 * 0.04, 0.4);
    // One of them alone has half of the slots, and so takes as long.
    assert_near(number(&row, "efficiency"), 1.0, 0.01);
}

#[test]
fn each_nodes_link_is_its_own() {
    // 10 records of 3,000 bytes at 1 MB/s: 30 ms a batch, of which 10 are computed.
    let args =
        "--samples 8000 --epochs 2 --batch-size 10 --cache 0 --sampler uniform --nodes 4 --compute 1ms";
    let row = row(&format!("{args} --sizes fixed:3000 --store latency=0ms --nic 1MB"));
    assert_near(number(&row, "stall_share"), 2.0, 0.03);
    assert_near(number(&row, "efficiency"), 1.0, 0.01);
}

#[test]
fn a_step_waits_for_its_slowest_rank() {
    let args = "--samples 64000 --epochs 1 --batch-size 20 --cache 0 --sampler uniform --compute 1ms";
    let slowest =
        |ranks: &str| number(&row(&format!("{args} {ranks} --straggle lognormal:0.1")), "straggle_share");
    // The expected greatest of 8 normal values is 1.42 standard deviations.
    assert_near(slowest("--nodes 8"), (0.1f64 * 1.42).exp() - 1.0, 0.02);
    assert_near(slowest("--nodes 2 --ranks-per-node 4"), slowest("--nodes 8"), 0.02);
    assert_near(slowest("--nodes 1"), 0.0, 0.02);
}

#[test]
fn stragglers_have_no_part_in_the_loaders_efficiency() {
    // A store that nobody waits for, except before the first step.
    let args = "--samples 64000 --epochs 1 --batch-size 20 --cache 0 --sampler uniform --compute 1ms";
    let quick = row(&format!("{args} --nodes 8 --store latency=1ms --straggle lognormal:0.1"));
    assert_near(number(&quick, "efficiency"), (-0.1f64 * 1.42).exp(), 0.02);
    assert_near(number(&quick, "loader_efficiency"), 1.0, 0.005);
}

#[test]
fn strata_that_change_nodes_are_read_anew() {
    // Everything is cached. A quarter of 24 strata passes on, three of four of them to other nodes.
    let row =
        row(&format!("{SAMPLES} --epochs 9 --cache 4400 --nodes 4 --sampler uniform --strata 24 --mix 0.25"));
    let (moved, read) = (by_epoch(&row, "strata_moved"), by_epoch(&row, "datasets"));
    let (mean, all) = (moved[1..].iter().sum::<f64>() / 8.0, [moved[0], read[0]]);
    assert!(all == [0.0, 1.0] && (3.0..=6.0).contains(&mean), "{moved:?}");
    for (moved, read) in moved.iter().zip(read).skip(1) {
        assert_near(read, moved / 24.0, 1e-9);
    }
}

#[test]
fn equal_arguments_give_equal_results() {
    let args = format!(
        "{TRAINING} --nodes 4 --ranks-per-node 2 --sampler pads --sizes lognormal:110KB:0.5 --nic 1Gbit \
         --store latency=lognormal:2ms:0.5,depth=16,bandwidth=2Gbit --straggle lognormal:0.05 --strata 48 --lose 2@3 \
         --tier 5%"
    );
    let report = || {
        let mut report = report(&args);
        // The only figure that a clock makes.
        report["rows"][0].as_object_mut().unwrap().remove("ns_per_access").unwrap();
        report
    };
    assert_eq!(report(), report());
}

#[test]
fn people_are_given_a_table() {
    let output = simulate(&format!(
        "{TRAINING} --nodes 4 --policy lookahead --sampler pads --lose 3@2 --strata 12 --tier 5%"
    ));
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["4 nodes", "12 strata", "tier of 5%", "tier %", "boundary s", "lookahead at 20%, by epoch"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn no_table_is_wider_than_100_columns() {
    let output = simulate(&format!(
        "{TRAINING} --nodes 2 --jobs 2 --policy lookahead --sampler pads --tier 5% --seeds 2 \
         --sizes fixed:110KB --store latency=2ms,depth=32,bandwidth=8Gbit"
    ));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    for head in ["hit %", "tier %", "bytes read", "waits %", "Jain", "stragglers %", "loader's %"] {
        assert_eq!(text.matches(head).count(), 1, "{head}: {text}");
    }
}

#[test]
fn what_does_not_go_together_is_refused_by_name() {
    for (args, name) in [
        ("--samples 100 --nodes 0", "--nodes"),
        ("--samples 100 --nodes 1001", "--nodes"),
        ("--samples 100 --nodes 2 --jobs 2 --lose 1@1", "--jobs"),
        ("--samples 100 --nodes 2 --jobs 2 --mix 0.1", "--jobs"),
        ("--samples 100 --nodes 2 --jobs 2 --global-plan", "--jobs"),
        ("--samples 100 --ranks-per-node 2", "--nodes"),
        ("--samples 100 --nodes 2 --nic 1Gbit", "--store"),
        ("--samples 100 --nodes 4 --strata 6", "--strata"),
        ("--samples 100 --nodes 4 --strata 4 --lose 1@2", "--strata"),
        ("--samples 100 --nodes 4 --strata 12 --lose 4@2", "--lose"),
        ("--samples 100 --nodes 4 --strata 12 --lose 3", "--lose"),
        ("--samples 100 --nodes 2 --global-plan --rep 2", "--global-plan"),
        // In the daemon's own words.
        ("--samples 100 --nodes 2 --sampler sequential", "must be 1 with the sampler sequential"),
        ("--samples 100 --nodes 2 --sampler iis", "must be 1 with the samplers iis, infobatch and seta"),
        ("--samples 100 --nodes 2 --sampler seta", "must be 1 with the samplers iis, infobatch and seta"),
        ("--samples 100 --nodes 2 --sampler pads --pace", "must be 1 with pace"),
        ("--samples 100 --strata 2 --sampler sequential", "must be 1 with the sampler sequential"),
        ("--samples 100 --nodes 2 --policy min", "min"),
        ("--samples 100 --nodes 2 --mix 2", "--mix"),
        ("--samples 100 --nodes 2 --mix 0.1 --draw-ahead", "--draw-ahead"),
        ("--samples 100 --tier 5%", "--nodes"),
        ("--samples 100 --nodes 2 --tier 1GB", "--tier 1GB"),
        ("--samples 100 --nodes 2 --tier 5% --tier-store latency=1ms", "--store"),
        ("--samples 100 --nodes 2 --global-plan --tier 5%", "--global-plan"),
    ] {
        let output = simulate(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(name), "{args}: {said}");
    }
}
