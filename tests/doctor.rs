//! `shade-load doctor` reports as text and as JSON, with and without a dataset, and ends on a
//! signal.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shade_formats::ShardId;
use shade_formats::index::INDEX_FILE;
use shade_job::StoreModel;
use shade_tests::{Packed, eventually, program};

/// Long enough that every depth gets its reads.
const PROBE: [&str; 2] = ["--probe-seconds", "0.5"];

fn doctor() -> Command {
    let mut command = Command::new(program("shade-load"));
    // A file system that refuses direct reads is worth a warning, not a failed test.
    command.arg("doctor").env("SHADE_LOG", "error");
    command
}

/// Exit code and standard output. Standard error must be empty.
fn text(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), String::from_utf8(output.stdout).unwrap())
}

fn json(args: &[&dyn AsRef<OsStr>]) -> Value {
    let (code, text) = text(doctor().arg("--json").args(args.iter().map(|arg| arg.as_ref())));
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(text.lines().count(), 1, "one object on one line: {text}");
    serde_json::from_str(&text).unwrap()
}

fn assert_machine(machine: &Value) {
    assert!(machine["kernel"]["release"].as_str().unwrap().contains('.'), "{machine}");
    let io_uring = &machine["io_uring"];
    assert_eq!(io_uring["usable"].as_bool().unwrap(), io_uring["setup"].is_string(), "{machine}");
    assert_ne!(io_uring["setup"].is_string(), io_uring["reason"].is_string(), "{machine}");
    let memory = &machine["memory"];
    assert!(memory["available_bytes"].as_u64().unwrap() > 0, "{machine}");
    assert!(memory["total_bytes"].as_u64() >= memory["available_bytes"].as_u64(), "{machine}");
    assert!(machine["memlock"]["cap_ipc_lock"].is_boolean() && machine["cpus"].as_u64().unwrap() > 0);
}

fn assert_advice(advice: &Value) {
    for advice in advice.as_array().unwrap() {
        for key in ["topic", "fact", "advice"] {
            assert!(!advice[key].as_str().unwrap().is_empty(), "{advice}");
        }
        assert!(advice["change"].is_string() || advice["change"].is_null(), "{advice}");
    }
}

/// Where `path` is mounted, as `df` says.
fn mount_point(path: &Path) -> String {
    let df = Command::new("df").arg("--output=target").arg(path).output().unwrap();
    let text = String::from_utf8(df.stdout).unwrap();
    text.lines().nth(1).unwrap().trim().to_owned()
}

#[test]
fn a_dataset_is_described_and_probed() {
    let packed = Packed::mixed(33);
    let found = json(&[&packed.dataset, &PROBE[0], &PROBE[1]]);
    assert_machine(&found["machine"]);
    assert_advice(&found["advice"]);

    let path = &found["path"];
    assert_eq!(path["path"].as_str(), packed.dataset.to_str());
    assert_eq!(path["mount"]["mount_point"].as_str(), Some(mount_point(&packed.dataset).as_str()));
    assert!(!path["mount"]["options"].as_array().unwrap().is_empty() && path["mount"]["type"].is_string());
    assert!(path["io"]["direct"].is_boolean() && path["io"]["why"].is_string(), "{path}");
    assert!(path["no_dataset"].is_null());
    let dataset = &path["dataset"];
    let number = |key: &str| dataset[key].as_u64().unwrap();
    assert_eq!(number("samples"), packed.len() as u64);
    let bytes: u64 = packed.sources.iter().map(|source| source.bytes.len() as u64).sum();
    assert_eq!(number("record_bytes"), bytes);
    assert_eq!(number("record_mean_bytes"), bytes / packed.len() as u64);
    assert!(number("record_p99_bytes") >= number("record_mean_bytes"));
    assert!(number("record_max_bytes") >= number("record_p99_bytes"));
    assert_eq!(number("shards"), u64::from(packed.index().shard_count()));

    let probe = &found["probe"];
    assert_eq!((probe["errors"].as_u64(), probe["unanswered"].as_u64()), (Some(0), Some(0)), "{probe}");
    assert_eq!(probe["interrupted"].as_bool(), Some(false));
    let engine = probe["engine"].as_str().unwrap();
    assert!(engine.starts_with("uring") || engine.starts_with("threads"), "{engine}");
    let direct = path["io"]["direct"].as_bool().unwrap();
    assert!(engine.contains(if direct { "direct: " } else { "buffered: " }), "{engine}: {path}");
    assert_steps(probe);
}

fn assert_steps(probe: &Value) {
    let steps = probe["steps"].as_array().unwrap();
    let depths: Vec<_> = steps.iter().map(|step| step["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths, [1, 4, 16, 64, 256]);
    assert!(depths.contains(&probe["knee_depth"].as_u64().unwrap()), "{probe}");
    probe["store"].as_str().unwrap().parse::<StoreModel>().unwrap();
    for step in steps {
        let number = |key: &str| step[key].as_f64().unwrap();
        assert!(number("iops") > 0.0 && number("mb_per_s") > 0.0 && number("reads") > 0.0, "{step}");
        assert!((number("reads") / number("seconds") / number("iops") - 1.0).abs() < 1e-6, "{step}");
        let latencies = ["p50", "p90", "p99", "max"].map(|name| number(&format!("latency_{name}_us")));
        assert!(latencies.is_sorted(), "{step}");
        let in_flight = number("in_flight_mean");
        assert!(in_flight > 0.0 && in_flight <= number("depth") * 1.01, "{step}");
    }
}

#[test]
fn the_text_says_the_same() {
    let packed = Packed::mixed(33);
    let (code, text) = text(doctor().arg(&packed.dataset).args(PROBE));
    assert_eq!(code, Some(0));
    let samples = format!("samples: {}", packed.len());
    let expected =
        ["kernel", "io_uring", "memlock", "memory", "CPUs", "mount", &samples, "p99 ms", "knee", "to change"];
    for word in expected {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains('\r'), "nothing for terminals: {text}");
}

#[test]
fn a_folder_without_a_dataset_is_described_and_not_probed() {
    let packed = Packed::mixed(3);
    let found = json(&[&packed.images]);
    assert_eq!(found["path"]["mount"]["mount_point"].as_str(), Some(mount_point(&packed.images).as_str()));
    assert!(found["path"]["dataset"].is_null() && found["probe"].is_null(), "{found}");
    assert!(found["path"]["no_dataset"].as_str().unwrap().contains(INDEX_FILE), "{found}");
    let (code, text) = text(doctor().arg(&packed.images));
    assert_eq!(code, Some(0));
    assert!(text.contains("needs a packed dataset") && text.contains("mount"), "{text}");
}

#[test]
fn without_a_path_the_machine_is_described() {
    let found = json(&[]);
    assert_machine(&found["machine"]);
    assert_advice(&found["advice"]);
    assert!(found["path"].is_null() && found["probe"].is_null(), "{found}");
    let (code, text) = text(&mut doctor());
    assert_eq!(code, Some(0));
    assert!(text.contains("io_uring") && !text.contains("mount "), "{text}");
}

#[test]
fn nothing_is_read_in_0_seconds() {
    let packed = Packed::mixed(3);
    let found = json(&[&packed.dataset, &"--probe-seconds", &"0"]);
    assert!(found["probe"].is_null() && found["path"]["dataset"].is_object(), "{found}");
}

#[test]
fn every_key_is_documented() {
    let packed = Packed::mixed(3);
    let found = json(&[&packed.dataset, &PROBE[0], &PROBE[1]]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let documented = fs::read_to_string(root.join("loader/daemon/src/doctor/REPORT.md")).unwrap();
    let mut left = vec![&found];
    while let Some(value) = left.pop() {
        left.extend(value.as_array().into_iter().flatten());
        for (key, value) in value.as_object().into_iter().flatten() {
            let abridged = key.strip_prefix("latency").unwrap_or(key);
            let known = [format!("{key}`"), format!("`{abridged}`"), format!("`{key}.")]
                .iter()
                .any(|name| documented.contains(name));
            assert!(known, "REPORT.md does not describe {key}");
            left.push(value);
        }
    }
}

#[test]
fn records_that_are_bad_are_counted_and_the_first_is_named() {
    let packed = Packed::mixed(3);
    for sample in 0..u32::try_from(packed.len()).unwrap() {
        packed.damage(sample);
    }
    let output =
        doctor().arg("--json").arg(&packed.dataset).args(PROBE).env("SHADE_LOG", "off").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let probe = &found["probe"];
    assert!(probe["errors"].as_u64().unwrap() > 0 && probe["knee_depth"].is_null(), "{probe}");
    assert!(probe["first_error"].as_str().unwrap().contains("checksum mismatch"), "{probe}");
    let topics: Vec<_> =
        found["advice"].as_array().unwrap().iter().map(|a| a["topic"].as_str().unwrap()).collect();
    assert!(topics.contains(&"errors"), "{topics:?}");
}

/// A program without root's right to read every file.
fn without_override(program: PathBuf) -> Command {
    if !rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    let without = "-dac_override,-dac_read_search";
    command.args(["--bounding-set", without, "--inh-caps", without]).arg(program);
    command
}

#[test]
fn shards_that_may_not_be_read_are_a_matter_of_permission_and_not_of_damage() {
    let packed = Packed::mixed(33);
    let index = packed.index();
    for shard in 0..index.shard_count() {
        let path = packed.dataset.join(index.shard(ShardId(shard)).unwrap().name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    }
    let mut doctor = without_override(program("shade-load"));
    let output = doctor.args(["doctor", "--json"]).arg(&packed.dataset).args(PROBE).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("Permission denied") && error.contains("shard-"), "{error}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let probe = &found["probe"];
    assert!(probe["forbidden"].as_str().unwrap().contains("Permission denied"), "{probe}");
    // Only the reads in flight.
    assert!(probe["errors"].as_u64().unwrap() <= 8, "{probe}");
    let topics: Vec<_> =
        found["advice"].as_array().unwrap().iter().map(|a| a["topic"].as_str().unwrap()).collect();
    assert!(topics.contains(&"permission"), "{topics:?}");
    assert!(!topics.contains(&"errors") && !topics.contains(&"shards"), "{topics:?}");
}

#[test]
fn what_it_cannot_look_at_is_an_error() {
    let packed = Packed::mixed(3);
    let code_and_error = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.stdout.is_empty(), "{output:?}");
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let nowhere = packed.beside("nowhere");
    let (code, error) = code_and_error(doctor().arg(&nowhere));
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains(nowhere.to_str().unwrap()), "{error}");
    for wrong in [["--probe-seconds", "-1"], ["--probe-seconds", "soon"], ["a", "b"]] {
        let (code, error) = code_and_error(doctor().args(wrong));
        assert_eq!(code, Some(2), "{error}");
    }
    fs::write(packed.dataset.join(INDEX_FILE), "no index").unwrap();
    let (code, error) = code_and_error(doctor().arg(&packed.dataset));
    assert_eq!(code, Some(3), "{error}");
}

#[test]
fn a_signal_ends_the_probe_and_what_was_found_is_still_said() {
    let packed = Packed::mixed(10);
    let child = doctor()
        .arg("--json")
        .arg(&packed.dataset)
        .args(["--probe-seconds", "200"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Before its handler is installed a signal ends it at once. The reads start after that.
    let tasks = format!("/proc/{}/task", child.id());
    let reading = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        name.starts_with("shade-uring") || name.starts_with("shade-read")
    };
    eventually("it reads", || fs::read_dir(&tasks).unwrap().flatten().any(reading));
    std::thread::sleep(Duration::from_millis(200));
    // It has 200 s left to probe.
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["probe"]["interrupted"].as_bool(), Some(true), "{found}");
    assert!(found["machine"]["kernel"].is_object(), "{found}");
}
