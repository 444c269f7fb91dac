//! `shade-load doctor` examines what lies in a bucket, and `simulate` takes the store that it says.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;
use shade_job::StoreModel;
use shade_tests::{Bucket, Cloud, Packed, text};

fn doctor(bucket: &Bucket, args: &[&str]) -> Output {
    let args = args.iter().map(|arg| Cloud::tested().given(arg));
    bucket.command("shade-load").env("SHADE_LOG", "error").arg("doctor").args(args).output().unwrap()
}

fn json(bucket: &Bucket, args: &[&str]) -> Value {
    let output = doctor(bucket, &[&["--json"], args].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// All that is on the server, with its content.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(folder).unwrap().flatten();
    let mut all: Vec<_> =
        files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect();
    all.sort();
    all
}

#[test]
fn a_dataset_is_examined_and_simulated_and_nothing_is_written() {
    let packed = Packed::mixed(33);
    let mut bucket = Bucket::of(&packed);
    let before = content(&bucket.objects());
    bucket.be("latency_ms=5");
    let found = json(&bucket, &[Bucket::URL, "--probe-seconds", "1.5"]);
    assert!(found["path"].is_null(), "{found}");
    let of = &found["bucket"];
    let number = |key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of}"));
    assert_eq!(of["address"], Cloud::tested().given(Bucket::URL));
    assert_eq!(of["dataset"]["samples"], packed.len());
    assert!(of["no_dataset"].is_null());
    assert!(number("latency_p50_ms") > 2.0 && number("latency_p99_ms") > 2.0, "{of}");
    assert!(number("mb_per_s_alone") > 0.0 && number("mb_per_s_a_connection") > 0.0, "{of}");
    assert!(number("cpus_busy") > 0.0 && number("connections_max") >= 8.0, "{of}");
    let limits = ["cpu", "link", "latency", "store"];
    assert!(limits.contains(&of["limit"].as_str().unwrap()), "{of}");
    let epoch = &of["epoch"];
    assert_eq!(epoch["first_requests"], packed.len());
    assert_eq!((epoch["cached_share"].as_f64(), epoch["later_requests"].as_u64()), (Some(1.0), Some(0)));
    let probe = &found["probe"];
    assert_eq!((probe["errors"].as_u64(), probe["unanswered"].as_u64()), (Some(0), Some(0)), "{probe}");
    let depths: Vec<_> =
        probe["steps"].as_array().unwrap().iter().map(|step| step["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths, [1, 4, 16, 64, 256, 1024]);
    let alone = &probe["steps"][0];
    assert!(alone["in_flight_mean"].as_f64().unwrap() < 1.5, "{alone}");
    assert!(depths.contains(&probe["knee_depth"].as_u64().unwrap()), "{probe}");

    let store = probe["store"].as_str().unwrap();
    store.parse::<StoreModel>().unwrap();
    let args = ["simulate", Bucket::URL, "--store", store, "--epochs", "2", "--cache", "20%"];
    let args = args.map(|arg| Cloud::tested().given(arg));
    let output = bucket.command("shade-load").args(args).output().unwrap();
    let told = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(told.contains(&format!("SIMULATED store {store}")), "{told}");

    let output = doctor(&bucket, &[Bucket::URL, "--probe-seconds", "1.5"]);
    let told = text(&output.stdout);
    for word in [Bucket::URL, "samples: ", "latency ", "connection ", "limit ", "epoch ", "--store latency="]
    {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!told.contains("io_uring cannot"), "{told}");
    assert_eq!(content(&bucket.objects()), before);
}

#[test]
fn a_store_that_is_slower_than_the_time_it_is_given_has_figures() {
    let mut bucket = Bucket::of(&Packed::mixed(8));
    json(&bucket, &[Bucket::URL, "--probe-seconds", "0"]);
    bucket.be("latency_ms=300");
    let found = json(&bucket, &[Bucket::URL, "--probe-seconds", "0.3"]);
    let (of, probe) = (&found["bucket"], &found["probe"]);
    assert_eq!(probe["steps"].as_array().unwrap().len(), 6, "{probe}");
    assert!(probe["knee_depth"].is_u64() && probe["unanswered"] == 0, "{probe}");
    assert!(of["limit"].is_string() && of["latency_p50_ms"].as_f64().unwrap() > 290.0, "{of}");
}

#[test]
fn any_objects_are_examined_where_there_is_no_dataset() {
    let packed = Packed::mixed(8);
    let bucket = Bucket::of(&packed);
    fs::remove_file(bucket.object("dataset.shade")).unwrap();
    let found = json(&bucket, &[Bucket::URL, "--probe-seconds", "0.9"]);
    let of = &found["bucket"];
    assert!(of["no_dataset"].as_str().unwrap().contains("dataset.shade"), "{of}");
    assert!(of["dataset"].is_null() && of["epoch"].is_null(), "{of}");
    assert!(of["mb_per_s_alone"].as_f64().unwrap() > 0.0, "{of}");
    let found = json(&bucket, &[Bucket::URL, "--probe-seconds", "0"]);
    assert!(found["probe"].is_null() && found["bucket"]["limit"].is_null(), "{found}");
}

#[test]
fn a_store_that_asks_for_a_slower_pace_is_the_limit() {
    let packed = Packed::mixed(8);
    let mut bucket = Bucket::of(&packed);
    json(&bucket, &[Bucket::URL, "--probe-seconds", "0"]);
    bucket.be("503=0.05 seed=3");
    let found = json(&bucket, &[Bucket::URL, "--probe-seconds", "1.2"]);
    let of = &found["bucket"];
    assert!(of["slow_downs"].as_u64().unwrap() > 0, "{of}");
    assert_eq!(found["probe"]["errors"], 0);
    assert_eq!(of["limit"], "slow_down");
    assert!(topics(&found).contains(&"slow_down"), "{found}");
}

#[test]
fn images_in_a_bucket_are_examined_by_their_index_wherever_it_lies() {
    let packed = Packed::mixed(8);
    let mut bucket = Bucket::holding(&packed.images, "train");
    let local = packed.beside("images.index");
    let local = local.to_str().unwrap();
    for index in ["s3://photos/images.index", local] {
        let args = ["index", "-q", Bucket::URL, index].map(|arg| Cloud::tested().given(arg));
        let output = bucket.command("shade-pack").args(args).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let found = json(&bucket, &[index, "--probe-seconds", "0.3"]);
        let of = &found["bucket"];
        assert_eq!(of["address"], Cloud::tested().given(index));
        assert_eq!(of["records"], Cloud::tested().given(Bucket::URL));
        assert_eq!((&of["dataset"]["samples"], &found["path"]), (&packed.len().into(), &Value::Null));
        assert_eq!((&found["probe"]["errors"], of["limit"].is_string()), (&0.into(), true), "{found}");
    }
    // A store that gives nothing is not waited for, and it is told what it says.
    bucket.be("503=1");
    let found = json(&bucket, &[local, "--probe-seconds", "0.3"]);
    assert!(found["bucket"]["limit"].is_null() && found["probe"]["unanswered"] == 0, "{found}");
    assert!(topics(&found).contains(&"slow_down"), "{found}");
}

fn topics(found: &Value) -> Vec<&str> {
    found["advice"].as_array().unwrap().iter().map(|advice| advice["topic"].as_str().unwrap()).collect()
}

#[test]
fn what_it_cannot_look_at_is_an_error() {
    let packed = Packed::mixed(8);
    let mut bucket = Bucket::of(&packed);
    type Settings = &'static [(&'static str, &'static str)];
    let table: [(&str, Settings, &str); 5] = [
        (Bucket::URL, &[("AWS_SECRET_ACCESS_KEY", "another")], "the store refuses these keys"),
        ("s3://photos/none", &[], "there is nothing at s3://photos/none"),
        ("s3://nobody/train", &[], "there is no such object"),
        (Bucket::URL, &[("AWS_ENDPOINT_URL", "http://no.such.host.invalid")], "cannot be reached"),
        ("ftp://photos/train", &[], "cannot read from 'ftp'"),
    ];
    for (url, env, part) in table {
        let mut command = bucket.command("shade-load");
        let output = command.args(["doctor", url]).envs(env.iter().copied()).output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{url}: {told}");
        assert!(told.contains(part) && told.contains(url.split(':').next().unwrap()), "{url}: {told}");
    }
    // The index may be read, and its records not.
    json(&bucket, &[Bucket::URL, "--probe-seconds", "0"]);
    for shard in 0..packed.index().shard_count() {
        fs::remove_file(bucket.object(packed.index().shard(shade_formats::ShardId(shard)).unwrap().name))
            .unwrap();
    }
    let found = json(&bucket, &[Bucket::URL, "--probe-seconds", "0.6"]);
    let probe = &found["probe"];
    assert!(probe["errors"].as_u64().unwrap() > 0 && probe["knee_depth"].is_null(), "{probe}");
    let first = probe["first_error"].as_str().unwrap();
    assert!(first.starts_with("shard-") && first.contains("there is no such object"), "{first}");
    bucket.be("");
}
