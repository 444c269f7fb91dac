//! `shade-load simulate` replays traces and trainings as closed forms and hand-made examples say,
//! and says what is wrong.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shade_tests::{Packed, eventually, program};
use tempfile::TempDir;

/// A folder for the files of one test.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::write(self.path(name), content).unwrap();
    }

    /// Runs in this folder, with the arguments of one line.
    fn run(&self, args: &str) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &str) -> Command {
        let mut command = Command::new(program("shade-load"));
        command.arg("simulate").args(args.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn json(&self, args: &str) -> Value {
        json(&self.run(&format!("{args} --json")))
    }

    fn text(&self, args: &str) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "one object on one line");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A file of losses: a row an epoch, a loss a sample.
fn csv(epochs: &[&[f32]]) -> String {
    let mut text = "epoch,sample,loss\n".to_owned();
    for (epoch, losses) in epochs.iter().enumerate() {
        text.extend(losses.iter().enumerate().map(|(sample, loss)| format!("{epoch},{sample},{loss}\n")));
    }
    text
}

fn numbers(row: &Value, keys: &[&str]) -> Vec<u64> {
    keys.iter().map(|key| row[*key].as_u64().unwrap_or_else(|| panic!("{key} of {row}"))).collect()
}

fn share(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} of {row}"))
}

const COUNTS: [&str; 6] = ["capacity", "accesses", "hits", "misses", "evictions", "bypasses"];

#[test]
fn a_trace_has_the_hits_that_a_hand_count_has() {
    let files = Files::new();
    files.write("trace.txt", "# five accesses\n10\n20\n10\n\n30 # new\n20\n");
    let found = files.json("--trace trace.txt --policy lru,app --cache 2,3");
    let rows: Vec<(&str, Vec<u64>)> = found["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["policy"].as_str().unwrap(), numbers(row, &COUNTS)))
        .collect();
    let expected = [
        // 30 displaces 20, and 20 displaces 10.
        ("lru", vec![2, 5, 1, 4, 2, 0]),
        ("lru", vec![3, 5, 2, 3, 0, 0]),
        // Scores are equal and nobody but 10 was used: 30 came last and is worth least.
        ("app", vec![2, 5, 2, 3, 0, 1]),
        ("app", vec![3, 5, 2, 3, 0, 0]),
    ];
    assert_eq!(rows, expected);
    assert_eq!(found["samples"], 3);
    for row in found["rows"].as_array().unwrap() {
        assert!(row["bytes_read"].is_null() && row["stall_s"].is_null(), "{row}");
        assert!(share(row, "ns_per_access") > 0.0 && (share(row, "ever_seen_share") - 1.0).abs() < 1e-9);
        assert!((share(row, "hit_ratio") - row["hits"].as_f64().unwrap() / 5.0).abs() < 1e-9);
        assert!(row.get("hit_ratio_ci95").is_none(), "one trace has no interval: {row}");
    }
}

#[test]
fn a_trace_may_come_from_standard_input() {
    let files = Files::new();
    let mut child = files
        .command("--trace - --policy lru --cache 50% --json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"4294967295\n0\n4294967295\n4294967295\n").unwrap();
    let found = json(&child.wait_with_output().unwrap());
    assert_eq!(numbers(&found["rows"][0], &COUNTS), [1, 4, 1, 3, 2, 0]);
}

#[test]
fn sizes_decide_what_fits_and_what_is_read() {
    let files = Files::new();
    files.write("trace.txt", "1\n2\n1\n2\n");
    files.write("sizes.txt", "1 100\n2 900\n3 5\n");
    let found = files.json("--trace trace.txt --sizes-file sizes.txt --policy lru --cache 500,100%");
    assert_eq!(numbers(&found["rows"][0], &COUNTS), [500, 4, 1, 3, 0, 2]);
    assert_eq!(found["rows"][0]["bytes_read"], 1900);
    assert_eq!(numbers(&found["rows"][1], &COUNTS), [1000, 4, 2, 2, 0, 0]);
    assert_eq!(found["bytes"], 1000);
    // In order: samples 0, 1 and 2.
    files.write("sizes.txt", "7\n100\n900\n");
    let found = files.json("--trace trace.txt --sizes-file sizes.txt --policy lru --cache 500");
    assert_eq!(found["rows"][0]["bytes_read"], 1900);
}

#[test]
fn lru_on_permutations_is_the_closed_form() {
    let found = Files::new().json(
        "--samples 10000 --sampler uniform --epochs 6 --skip-epochs 1 --seeds 3 --policy lru --cache 10%,20%,40%",
    );
    for (row, c) in found["rows"].as_array().unwrap().iter().zip([0.1f64, 0.2, 0.4]) {
        let expected = c + (1.0 - c) * (1.0 - c).ln();
        let got = share(row, "hit_ratio");
        assert!((got - expected).abs() < 0.003, "{got} instead of {expected} at {c}");
        let spread = share(row, "hit_ratio_ci95");
        assert!(0.0 < spread && spread < 0.003, "seeds differ, but little: {row}");
        assert_eq!(numbers(row, &["accesses", "repeat_max"]), [50_000, 1]);
        assert!((share(row, "distinct_share") - 1.0).abs() < 1e-9);
    }
}

/// Uniform draws: MIN has 41.2 and 56.1 % at 10 and 20 %, of which a trace of 20 passes that begins
/// cold keeps a little less; LRU has the cache's share.
#[test]
fn lookahead_that_sees_a_whole_trace_is_min() {
    let files = Files::new();
    let mut state = 7u64;
    let mut draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{}\n", (state >> 33) % 1000)
    };
    files.write("trace.txt", (0..20_000).map(|_| draw()).collect::<String>());
    let hits = |more: &str| {
        let found = files.json(&format!("--trace trace.txt --cache 100,200 {more}"));
        [0, 1].map(|at| share(&found["rows"][at], "hit_ratio"))
    };
    let (lru, min) = (hits("--policy lru"), hits("--policy lookahead --lookahead inf"));
    assert!((lru[0] - 0.1).abs() < 0.01 && (lru[1] - 0.2).abs() < 0.01, "{lru:?}");
    assert!((0.38..0.415).contains(&min[0]) && (0.53..0.565).contains(&min[1]), "{min:?}");
    let less = hits("--policy lookahead --lookahead 0.1");
    assert!(lru[0] < less[0] && less[0] < min[0], "{less:?}");
}

/// `loader/core/tests/hit_ratios.rs` has these figures from five seeds of this implementation.
#[test]
fn pads_has_the_hit_ratios_that_the_daemons_cache_has() {
    let found = Files::new().json(
        "--samples 50000 --sampler pads --hit-cap 1 --cover 0 --skip-epochs 4 --seed 1 \
         --policy lru,app,lookahead --cache 20%",
    );
    for (row, expected) in found["rows"].as_array().unwrap().iter().zip([0.204, 0.236, 0.495]) {
        let got = share(row, "hit_ratio");
        assert!((got - expected).abs() < 0.005, "{got} instead of {expected}: {row}");
    }
}

#[test]
fn a_store_slower_than_compute_costs_the_difference_and_a_full_cache_nothing() {
    let files = Files::new();
    let training = "--samples 4000 --sampler uniform --epochs 4 --skip-epochs 1 --policy lru --cache 0,100%";
    // 2 of 4 ms at a time: 2 ms a sample, half of which is hidden behind compute. Links: 3 kB at 1
    // MB/s, 3 ms a sample.
    for (store, expected) in [
        ("--store latency=4ms,depth=2 --compute 1ms/sample", 1.0),
        ("--sizes fixed:3kB --store latency=4ms,bandwidth=1MB --compute 1ms", 2.0),
    ] {
        let found = files.json(&format!("{training} {store}"));
        let got = share(&found["rows"][0], "stall_share");
        assert!((got - expected).abs() < 0.02 * expected, "{store}: {got} instead of {expected}");
        // 3 epochs of 4 s of compute.
        assert!((share(&found["rows"][0], "stall_s") - 12.0 * got).abs() < 1e-6, "{found}");
        assert_eq!(found["rows"][1]["hits"], 12_000);
        assert_eq!(found["rows"][1]["stall_s"], 0.0, "{found}");
    }
}

#[test]
fn a_datasets_records_are_charged_as_the_daemon_charges_them() {
    let packed = Packed::mixed(33);
    let files = Files::new();
    let bytes: usize = packed.sources.iter().map(|source| source.bytes.len()).sum();
    for path in [packed.dataset.clone(), packed.dataset.join("dataset.shade")] {
        let args = "--sampler uniform --epochs 3 --policy lru --cache 100% --batch-size 8";
        let found = files.json(&format!("{} {args}", path.display()));
        let row = &found["rows"][0];
        assert_eq!(numbers(row, &["accesses", "hits", "misses", "evictions"]), [306, 204, 102, 0]);
        assert_eq!(row["bytes_read"], bytes);
        let total = found["bytes"].as_u64().unwrap();
        assert!(total > bytes as u64 && total.is_multiple_of(512), "whole blocks: {total} of {bytes}");
        assert_eq!(row["capacity"], total);
    }
}

/// Neighbours are those of the shards in a dataset, and those of the ids without one.
#[test]
fn a_read_brings_neighbours_and_packages_where_they_lie() {
    let files = Files::new();
    let (packed, more) = (Packed::pngs(299, 8), "--epochs 3 --batch-size 4 --cache 20%");
    let store = "--store latency=2ms,depth=2 --compute 200us --sampler uniform --policy quiver";
    let dataset = packed.dataset.display().to_string();
    for of in [dataset.as_str(), "--samples 900 --sizes fixed:400"] {
        let reads = |how: &str| {
            let row = &files.json(&format!("{of} {more} {store} {how}"))["rows"][0];
            (row["reads"].as_u64().unwrap(), row["bytes_between"].as_u64().unwrap(), share(row, "stall_s"))
        };
        let (alone, together, packages) = (reads(""), reads("--coalesce"), reads("--package-bytes 16KiB"));
        assert!(alone.1 == 0 && together.1 > 0, "{of}: {alone:?} {together:?}");
        assert!(together.0 < alone.0 && 3 * packages.0 < together.0, "{of}: {together:?} {packages:?}");
        assert!(
            packages.2 < together.2 && together.2 <= alone.2,
            "{of}: {alone:?} {together:?} {packages:?}"
        );
    }
    let refused = files.run(&format!("--samples 900 {more} {store} --coalesce"));
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("give --sizes"));
}

/// With the whole dataset in one batch ranks are exact. Samples never scored are worth the same,
/// and then the smaller id more: after the first epoch the cache holds the first fifth.
#[test]
fn recorded_losses_decide_what_is_kept() {
    let files = Files::new();
    let falling: Vec<f32> = (0..1000u16).map(|id| 1000.0 - f32::from(id)).collect();
    let rising: Vec<f32> = (0..1000u16).map(f32::from).collect();
    files.write("falling.csv", csv(&[&falling]));
    files.write("rising.csv", csv(&[&rising]));
    files.write("both.csv", csv(&[&falling, &rising]));
    let row = |file: &str, epochs: &str| {
        let training = "--samples 1000 --batch-size 1000 --sampler uniform --policy app --cache 20%";
        let found = files.json(&format!("{training} --losses {file} {epochs}"));
        numbers(&found["rows"][0], &["hits", "evictions"])
    };
    let second = "--epochs 2 --skip-epochs 1";
    assert_eq!(row("falling.csv", second), [200, 0], "the first fifth is the hardest");
    let [hits, evictions] = row("rising.csv", second)[..] else { panic!("two numbers") };
    // All are looked up before the first read is back. Some come in between and are displaced by
    // harder ones.
    assert!(hits == 200 && evictions >= 200, "the last fifth is: {hits} hits, {evictions} evictions");
    assert_eq!(row("rising.csv", "--epochs 3 --skip-epochs 2"), [200, 0]);
    // The second epoch counts from the end of the second epoch on.
    assert_eq!(row("both.csv", second), [200, 0]);
    assert!(row("both.csv", "--epochs 3 --skip-epochs 2")[1] >= 200);
}

/// As in the daemon: draws with replacement from scores that nobody reported would leave samples
/// out for nothing.
#[test]
fn the_epoch_after_one_without_recorded_losses_is_a_permutation() {
    let files = Files::new();
    let known: Vec<f32> = (0..500u16).map(f32::from).collect();
    files.write("gap.csv", csv(&[&known, &[f32::NAN; 500], &known, &known]));
    files.write("none.csv", csv(&[&[f32::NAN; 500]]));
    let distinct = |file: &str, epoch: u32, options: &str| {
        let found = files.json(&format!(
            "--samples 500 --sampler pads --policy lru --cache 20% --losses {file} --epochs {} --skip-epochs {epoch} {options}",
            epoch + 1
        ));
        share(&found["rows"][0], "distinct_share")
    };
    let permutations = |file, options| {
        (0..5).filter(|&epoch| (distinct(file, epoch, options) - 1.0).abs() < 1e-9).collect::<Vec<_>>()
    };
    assert_eq!(permutations("gap.csv", ""), [0, 2]);
    assert_eq!(permutations("gap.csv", "--draw-ahead"), [0, 1, 3], "judged when it is drawn");
    assert_eq!(permutations("none.csv", ""), [0, 1, 2, 3, 4]);
}

#[test]
fn with_replication_each_policy_has_a_plan_of_its_own() {
    let rows = |rep: u32| {
        let found = Files::new().json(&format!(
            "--samples 5000 --sampler pads --epochs 6 --skip-epochs 1 --seed 3 --policy lru,app --cache 20% --rep {rep}"
        ));
        [0, 1].map(|at| ["distinct_share", "hit_ratio"].map(|key| share(&found["rows"][at], key)))
    };
    let ([lru, app], [lru_twice, app_twice]) = (rows(1), rows(2));
    assert!((lru[0] - app[0]).abs() < 1e-12, "without it the plan is the same: {lru:?} {app:?}");
    assert!((lru_twice[0] - app_twice[0]).abs() > 1e-6, "{lru_twice:?} {app_twice:?}");
    assert!(lru_twice[1] > lru[1] + 0.05 && app_twice[1] > app[1] + 0.05, "{lru_twice:?} {app_twice:?}");
}

#[test]
fn equal_seeds_give_equal_rows() {
    let files = Files::new();
    let rows = |seed: u32| {
        let store = "--store latency=lognormal:2ms:0.5,depth=4 --sizes lognormal:110KB:0.5";
        let mut found = files.json(&format!("--samples 2000 --epochs 3 --seed {seed} --seeds 2 {store}"));
        for row in found["rows"].as_array_mut().unwrap() {
            assert!(row["stall_share_ci95"].is_number(), "{row}");
            row["ns_per_access"].take();
        }
        found["rows"].clone()
    };
    assert_eq!(rows(5), rows(5));
    assert_ne!(rows(5), rows(6));
    let hits = |seed: u32, seeds: u32| {
        let found = files.json(&format!(
            "--samples 2000 --sampler pads --epochs 3 --policy app --cache 20% --seed {seed} --seeds {seeds}"
        ));
        share(&found["rows"][0], "hit_ratio")
    };
    let (first, second) = (hits(5, 1), hits(6, 1));
    assert!((hits(5, 2) - f64::midpoint(first, second)).abs() < 1e-12 && (first - second).abs() > 1e-6);
}

#[test]
fn weights_and_classes_decide_how_often_samples_come() {
    let files = Files::new();
    let weights: String = (0..200).map(|id| format!("{}\n", if id < 100 { 0.0 } else { 0.25 })).collect();
    files.write("weights.txt", weights);
    let row = |args: &str| {
        files.json(&format!("--epochs 3 --policy lookahead --cache 60% {args}"))["rows"][0].clone()
    };
    let exact = row("--samples 200 --sampler weighted --weights weights.txt --replacement false");
    assert_eq!((&exact["sampler"], &exact["repeat_max"]), (&"weighted".into(), &2.into()), "{exact}");
    assert!((share(&exact, "distinct_share") - 0.5).abs() < 1e-9, "{exact}");
    assert!((share(&exact, "ever_seen_share") - 0.5).abs() < 1e-9, "{exact}");
    assert_eq!(exact["misses"], 100, "each sample is read once: the cache has room for all");
    let drawn = row("--samples 200 --sampler weighted --weights weights.txt");
    assert!(share(&drawn, "ever_seen_share") <= 0.5 && drawn["repeat_max"].as_u64() > Some(2), "{drawn}");
    // 500 draws of each class: the 900 come once or not at all, the 100 five times.
    let classes = "--samples 1000 --sampler balanced --class-sizes 900,100 --replacement false";
    let balanced = row(classes);
    assert_eq!(balanced["repeat_max"], 5, "{balanced}");
    assert!((share(&balanced, "distinct_share") - 0.6).abs() < 0.01, "{balanced}");
    let min = files.json(&format!("--epochs 3 --policy min --cache 20% {classes}"));
    assert_eq!(min["rows"][0]["accesses"], 3000, "plans that are known in advance");
    // A dataset brings its own classes.
    let packed = Packed::mixed(33);
    let own =
        files.json(&format!("{} --sampler balanced --policy lru --cache 50%", packed.dataset.display()));
    assert_eq!(own["rows"][0]["sampler"], "balanced");
}

#[test]
fn the_table_has_a_line_a_row_and_is_aligned() {
    let text = Files::new().text(
        "--samples 1000 --sizes fixed:1MB --epochs 2 --cache 5%,100MB --policy lru,app --store depth=1",
    );
    let (about, table) = text.split_once("\n\n").unwrap();
    assert!(
        about.contains("1,000 samples") && about.contains("SIMULATED store latency=1ms,depth=1"),
        "{about}"
    );
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 5, "a head, two policies at two capacities:\n{table}");
    assert!(lines.iter().all(|line| line.chars().count() == lines[0].chars().count()), "{table}");
    for (line, begin) in
        lines.iter().zip(["policy", "lru     5%", "lru     95.37 MiB", "app     5%", "app     95.37 MiB"])
    {
        assert!(line.starts_with(begin), "{line}");
    }
}

#[test]
fn the_recommended_capacity_is_just_enough() {
    let files = Files::new();
    let training =
        "--samples 2560 --sampler uniform --epochs 4 --store latency=4ms,depth=2 --compute 1ms --policy lru";
    let found = files.json(&format!("{training} --cache 0,100% --recommend"));
    let (uncached, all) = (share(&found["rows"][0], "stall_share"), share(&found["rows"][1], "stall_share"));
    let recommended = &found["recommend"][0];
    assert_eq!(recommended["policy"], "lru");
    let capacity = recommended["capacity"].as_u64().unwrap();
    let most = uncached - 0.9 * (uncached - all);
    // One of 256 parts is 10 samples.
    let found = files.json(&format!("{training} --cache {},{capacity}", capacity - 10));
    let [less, enough] = [0, 1].map(|at| share(&found["rows"][at], "stall_share"));
    assert!(enough <= most && most < less, "{less} and {enough} beside {most}: {recommended}");
    assert!((enough - share(recommended, "stall_share")).abs() < 1e-12, "{recommended}");
    let text = files.text(&format!("{training} --cache 20% --recommend"));
    assert!(text.contains(&format!("lru: {} samples", thousands(capacity))), "{text}");
}

fn thousands(number: u64) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

#[test]
fn what_is_wrong_is_said_with_file_and_line() {
    let files = Files::new();
    files.write("trace.txt", "1\n2\n");
    files.write("bad.txt", "1\n2\n3\n4\n5\n6\nx\n");
    files.write("sizes.txt", "1 100\n");
    files.write("zeros.txt", "0\n0\n");
    files.write("nan.txt", "0\nNaN\n");
    files.write("bad-sizes.txt", "1 100\n2 many\n");
    files.write("losses.csv", csv(&[&[1.0, 2.0, 3.0, 4.0]]));
    files.write("no.csv", "1,2,3\n");
    for (args, code, expected) in [
        ("--trace bad.txt --cache 1", 1, "bad.txt line 7: \"x\" is no sample id"),
        ("--trace none.txt --cache 1", 1, "cannot read none.txt: No such file"),
        ("--trace trace.txt --sizes-file bad-sizes.txt", 1, "bad-sizes.txt line 2: \"many\" is no size"),
        ("--trace trace.txt --sizes-file sizes.txt", 1, "sizes.txt: it has no size of sample 2"),
        ("--trace trace.txt --cache 1GiB", 2, "--cache 1GiB: the samples have no sizes"),
        ("--trace trace.txt --skip-epochs 1", 2, "--skip-epochs 1: there are 1 epochs"),
        ("--trace trace.txt --epochs 3", 2, "cannot be used with"),
        ("trace.txt --epochs 3", 2, "cannot be used with"),
        ("trace.txt --recommend", 2, "--store"),
        ("--trace trace.txt --samples 3", 2, "cannot be used with"),
        ("", 2, "required"),
        ("--samples 3 --losses losses.csv", 1, "losses.csv line 5: column sample: sample 3, but there are 3"),
        ("--samples 3 --losses no.csv", 1, "no.csv line 1: no column sample"),
        ("--samples 3 --rep 0.5", 2, "rep is 0.5"),
        ("--samples 3 --sampler weighted", 2, "give --weights FILE"),
        ("--samples 3 --weights losses.csv", 2, "--weights: only --sampler weighted"),
        (
            "--samples 3 --sampler weighted --weights trace.txt",
            1,
            "it has 2 weights, and there are 3 samples",
        ),
        ("--samples 7 --sampler weighted --weights bad.txt", 1, "bad.txt line 7: \"x\" is no weight"),
        ("--samples 2 --sampler weighted --weights zeros.txt", 1, "zeros.txt: weights is 0 for every sample"),
        ("--samples 2 --sampler weighted --weights nan.txt", 1, "nan.txt: weights is NaN for sample 1"),
        ("--samples 3 --sampler balanced", 2, "give --class-sizes"),
        (
            "--samples 3 --sampler balanced --class-sizes 2,2",
            2,
            "the classes have 4 samples, but --samples is 3",
        ),
        ("--samples 3 --sampler balanced --class-sizes 3", 2, "this dataset has fewer than two"),
        ("--samples 3 --class-sizes 2,1", 2, "--class-sizes: only --sampler balanced"),
        ("--samples 3 --replacement maybe", 2, "--replacement"),
        ("--samples 3 --policy lru,best", 2, "best"),
        ("--samples 3 --cache 10%,lots", 2, "lots"),
        ("--samples 3 --sizes 110KB", 2, "lognormal:110KB:0.5"),
        ("--samples 3 --recommend", 2, "--store"),
        ("--samples 3 --compute 1ms", 2, "--store"),
        ("--samples 3 --store bandwidth=1Gbit", 2, "--sizes"),
        ("--samples 3 --store eio=1%", 2, "only `stuck` is simulated"),
        ("--samples 3 --store latency=2000min", 2, "more than an hour"),
        ("no-dataset", 1, "no-dataset"),
    ] {
        let output = files.run(args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {error}");
        assert!(error.contains(expected), "{args}: {error}");
        assert!(output.stdout.is_empty(), "{args}");
    }
    files.write("dataset.shade", "no index");
    assert_eq!(files.run("dataset.shade").status.code(), Some(3));
}

#[test]
fn ctrl_c_ends_it_with_the_rows_that_were_ready() {
    let child = Files::new()
        .command("--samples 20000 --epochs 100000 --json")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Until the handler is there a signal would end it at once.
    let status = format!("/proc/{}/status", child.id());
    eventually("it catches SIGINT", || {
        let status = fs::read_to_string(&status).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim().to_owned();
        u64::from_str_radix(&caught, 16).unwrap() & 2 != 0
    });
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["rows"].as_array().unwrap().len(), 0, "{found}");
}
