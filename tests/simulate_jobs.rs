//! `shade-load simulate --jobs`: several trainings at a time read less over one cache than over a
//! part each, and least in a group.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::process::{Command, Output};

use serde_json::Value;
use shade_tests::program;

fn simulate(args: &str) -> Output {
    Command::new(program("shade-load")).arg("simulate").args(args.split_whitespace()).output().unwrap()
}

/// The rows over one cache and over a part each, at a cache of 20 %.
fn rows(args: &str) -> [Value; 2] {
    let common =
        "--samples 4000 --epochs 5 --skip-epochs 2 --batch-size 32 --cache 20% --policy lookahead --json";
    let output = simulate(&format!("{common} {args}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [shared, apart] = [0, 1].map(|at| report["rows"][at].clone());
    assert!(shared["is_shared"] == true && apart["is_shared"] == false);
    [shared, apart]
}

fn datasets(row: &Value) -> f64 {
    row["datasets_per_epoch"].as_f64().unwrap()
}

#[test]
fn four_jobs_read_what_the_design_says() {
    let [one, parts] = rows("--jobs 4 --sampler pads");
    let [group, _] = rows("--jobs 4 --sampler pads --group");
    assert!((datasets(&parts) - 2.94).abs() < 0.03, "{parts}");
    assert!((datasets(&one) - 1.86).abs() < 0.05, "{one}");
    assert!((datasets(&group) - 0.58).abs() < 0.03, "{group}");
    // Permutations: a cache of a part c/4 hits c/4, one cache that all use at the same time c.
    let [group, parts] = rows("--jobs 4 --sampler uniform --group");
    assert!((datasets(&parts) - 3.8).abs() < 0.01 && (datasets(&group) - 0.8).abs() < 0.05, "{group}");
}

#[test]
fn equal_jobs_wait_alike_and_a_stopped_or_a_greedy_one_makes_no_other_wait() {
    let store = "--sampler pads --sizes fixed:110KB --store latency=2ms,depth=3 --compute 1ms/sample";
    let [scarce, _] = rows(&format!("--jobs 4 {store}"));
    assert!(scarce["jain"].as_f64().unwrap() >= 0.98, "{scarce}");
    let stall =
        |args: &str| rows(&format!("--jobs 2 {store} {args}"))[0]["stall_shares"][0].as_f64().unwrap();
    let alone = stall("--speeds 1,0.001");
    assert!(stall("--speeds 1,1000") < alone + 0.1);
    assert!(stall("--speeds 1,1") < alone + 0.1);
}

#[test]
fn a_job_that_falls_behind_costs_only_what_was_shared() {
    let [near, _] = rows("--jobs 4 --sampler pads --group --speeds 1,1,1,0.985");
    let [far, _] = rows("--jobs 4 --sampler pads --group --speeds 1,1,1,0.5");
    let [independent, _] = rows("--jobs 4 --sampler pads");
    assert!(datasets(&near) < 0.65 && datasets(&near) < datasets(&far));
    assert!(datasets(&far) < datasets(&independent));
}

#[test]
fn what_does_not_go_together_is_refused_by_name() {
    for (args, name) in [
        ("--samples 100 --jobs 1", "--jobs"),
        ("--samples 100 --jobs 17", "--jobs"),
        ("--samples 100 --jobs 3 --speeds 1,1", "--speeds"),
        ("--samples 100 --speeds 1", "--jobs"),
        ("--samples 100 --jobs 2 --group --pace --policy lookahead", "group"),
    ] {
        let output = simulate(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(name), "{args}: {said}");
    }
}
