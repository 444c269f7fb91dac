//! `plan`, `create --part` and `finish` make the bytes of one `create`, whatever happens to parts.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use crate::support::{halt, names, noise, program, run, run_well, stderr_of, tar_of, tree, write};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shade_pack::dataset::Dataset;

/// Points at which all parts are killed: numbers of bytes in the unfinished folder, spread over the
/// whole pack.
const KILLS: u64 = 20;
const PARTS: u32 = 4;

/// Small shards, and records that share a dictionary.
const OPTIONS: [&str; 6] = ["--shard-size", "60kB", "--compress", "zstd", "--cls", "-q"];

/// Noise that all have, noise of their own, and flat: a dictionary has something to learn.
fn images(source: &Path, count: u64) {
    let common = noise(99, 1500);
    for number in 0..count {
        let path = source.join(format!("{}/{number:03}.bmp", number % 7));
        write(&path, &[b"BM".as_slice(), &common, &noise(number, 2500), &[7; 4000]].concat());
    }
}

fn command(name: &str, source: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = program(&[&name, &source, &out]);
    command.args(more).stdin(Stdio::null());
    command
}

fn well(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn part(source: &Path, out: &Path, part: &str) -> Command {
    command("create", source, out, &["--part", part, "-q"])
}

fn parts(source: &Path, out: &Path, count: u32) {
    for number in 0..count {
        well(&mut part(source, out, &format!("{number}/{count}")));
    }
}

fn finish(out: &Path, more: &[&str]) -> Output {
    program(&[&"finish", &out, &"-q"]).args(more).output().unwrap()
}

/// The one folder of unfinished work.
fn unfinished(out: &Path) -> PathBuf {
    let parent = out.parent().unwrap();
    let name = out.file_name().unwrap().to_str().unwrap();
    let found: Vec<String> =
        names(parent).into_iter().filter(|found| found.starts_with(&format!("{name}.part-"))).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    parent.join(&found[0])
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // A file that is renamed between listing and looking is counted the next time.
    entries.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// Whether two folders have the same files with the same bytes.
fn assert_equal(found: &Path, expected: &Path) {
    let (found, expected) = (tree(found), tree(expected));
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected, "other bytes");
}

#[test]
fn four_parts_killed_at_twenty_points_are_one_run() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, calm] = ["images", "out", "calm"].map(|name| temp.path().join(name));
    images(&source, 600);
    let before = tree(&source);
    well(&mut command("create", &source, &calm, &OPTIONS));
    let shards = names(&calm).iter().filter(|name| name.ends_with(".tar")).count();
    assert!(shards > 20, "too few shards to be killed between: {shards}");
    well(&mut command("plan", &source, &out, &OPTIONS));
    let folder = unfinished(&out);
    let planned = bytes_below(&folder);
    let total = tree(&calm).values().map(|bytes| bytes.len() as u64).sum::<u64>();
    let (mut killed, mut unfinished_finishes) = (0, 0);
    for kill in 0..KILLS {
        // Seeded, so that a failure comes again. There is one point in each twentieth of the pack.
        let point = planned + total * (kill * 256 + u64::from(noise(kill, 1)[0])) / (KILLS * 256);
        let spawn = |number| {
            let mut part = part(&source, &out, &format!("{number}/{PARTS}"));
            part.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
        };
        let mut children: Vec<Child> = (0..PARTS).map(spawn).collect();
        while children.iter_mut().any(|child| child.try_wait().unwrap().is_none()) {
            if bytes_below(&folder) >= point {
                children.iter_mut().for_each(|child| child.kill().unwrap());
            }
        }
        for mut child in children {
            let status = child.wait().unwrap();
            assert!(status.success() || status.code().is_none(), "{status:?}");
            killed += u64::from(!status.success());
        }
        // Nobody sees a dataset before all of it is there.
        let complete = names(&folder).iter().filter(|name| name.ends_with(".done")).count();
        if complete < shards {
            assert_eq!(finish(&out, &[]).status.code(), Some(5));
            assert!(!out.exists());
            unfinished_finishes += 1;
        }
    }
    assert!(killed >= KILLS / 2, "only {killed} kills met a part at work");
    assert!(unfinished_finishes > 0, "finish was never too early");
    parts(&source, &out, PARTS);
    // A machine knows which of its processes have ended: nothing of theirs is left.
    assert!(!names(&folder).iter().any(|name| name.contains(".part-")), "{:?}", names(&folder));
    let output = finish(&out, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_equal(&out, &calm);
    assert!(Dataset::open(&out).unwrap().index.dictionaries().next().is_some());
    assert!(tree(&source) == before, "the source changed");
    assert_eq!(names(temp.path()), ["calm", "images", "out"]);
}

#[test]
fn finish_names_the_parts_that_are_missing() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 200);
    for early in [finish(&out, &[]), part(&source, &out, "0/4").output().unwrap()] {
        assert_eq!(early.status.code(), Some(2), "{early:?}");
        assert!(stderr_of(&early).contains("shade-pack plan"), "{early:?}");
    }
    let told = well(&mut command("plan", &source, &out, &OPTIONS));
    assert!(told.contains("200 samples of 7 classes") && told.contains("--part I/N"), "{told}");
    // Nothing tells into how many parts the user divides it.
    let output = finish(&out, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((output.status.code(), &report["missing_parts"]), (Some(5), &Value::Array(Vec::new())));
    let total = report["shards_total"].as_u64().unwrap();
    assert!(total > 8 && report["missing_shards"].as_array().unwrap().len() as u64 == total, "{report:#}");
    for number in [0, 2] {
        well(&mut part(&source, &out, &format!("{number}/4")));
    }
    let output = finish(&out, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert!(text.contains("2 parts are missing: 1/4, 3/4") && text.contains("--part 1/4"), "{text}");
    assert!(text.contains("shard-000001.tar, shard-000003.tar") && !text.contains("shard-000002"), "{text}");
    let report: Value = serde_json::from_slice(&finish(&out, &["--json"]).stdout).unwrap();
    assert_eq!(report["missing_parts"], serde_json::json!(["1/4", "3/4"]));
    // Other counts make the same shards, and parts of several have no common name.
    well(&mut part(&source, &out, "1/8"));
    let report: Value = serde_json::from_slice(&finish(&out, &["--json"]).stdout).unwrap();
    assert_eq!(report["missing_parts"], serde_json::json!([]));
    assert_eq!(report["missing_shards"][0], "shard-000003.tar");
    // A record of completion without its shard counts for nothing.
    fs::remove_file(unfinished(&out).join("shard-000000.tar")).unwrap();
    let report: Value = serde_json::from_slice(&finish(&out, &["--json"]).stdout).unwrap();
    assert_eq!(report["missing_shards"][0], "shard-000000.tar");
    parts(&source, &out, 3);
    assert!(finish(&out, &[]).status.success());
    let before = tree(&out);
    let again = finish(&out, &[]);
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("finished already"));
    assert!(tree(&out) == before);
    let calm = temp.path().join("calm");
    well(&mut command("create", &source, &calm, &OPTIONS));
    assert_equal(&out, &calm);
}

#[test]
fn one_part_may_run_several_times_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, calm] = ["images", "out", "calm"].map(|name| temp.path().join(name));
    images(&source, 200);
    well(&mut command("create", &source, &calm, &OPTIONS));
    well(&mut command("plan", &source, &out, &OPTIONS));
    let spawn = |_| part(&source, &out, "0/1").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let running: Vec<Child> = (0..4).map(spawn).collect();
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    assert!(finish(&out, &[]).status.success());
    assert_equal(&out, &calm);
}

fn half_written(folder: &Path) -> Vec<String> {
    let is_half = |name: &String| name.starts_with("shard-") && name.contains(".part-");
    names(folder).into_iter().filter(is_half).collect()
}

/// Begins and halts once a shard in `folder` is half written.
fn halted(command: &mut Command, folder: &Path) -> Child {
    let mut child = command.spawn().unwrap();
    while !halts(&mut child, folder) {}
    child
}

/// Halts once a shard is half written. Returns `false`, and goes on, if that was completed before
/// the process stopped.
fn halts(child: &mut Child, folder: &Path) -> bool {
    while half_written(folder).is_empty() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be halted");
    }
    halt(child);
    let is_half_written = !half_written(folder).is_empty();
    if !is_half_written {
        kill_process(Pid::from_child(child), Signal::CONT).unwrap();
    }
    is_half_written
}

#[test]
fn a_part_that_comes_late_harms_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, calm] = ["images", "out", "calm"].map(|name| temp.path().join(name));
    images(&source, 200);
    well(&mut command("create", &source, &calm, &OPTIONS));
    well(&mut command("plan", &source, &out, &OPTIONS));
    let folder = unfinished(&out);
    let mut late = part(&source, &out, "0/1");
    late.args(["--jobs", "1", "--in-flight", "1"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let late = halted(&mut late, &folder);
    parts(&source, &out, 2);
    assert!(finish(&out, &[]).status.success());
    kill_process(Pid::from_child(&late), Signal::CONT).unwrap();
    let output = late.wait_with_output().unwrap();
    // It may have been halted behind its last shard.
    assert!(output.status.success() || stderr_of(&output).contains("is gone"), "{output:?}");
    assert_equal(&out, &calm);
    assert_eq!(names(temp.path()), ["calm", "images", "out"]);
}

/// Copies a folder without folders in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names(from) {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

#[test]
fn a_finish_that_was_killed_is_run_again() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, kept, calm] = ["images", "out", "kept", "calm"].map(|name| temp.path().join(name));
    images(&source, 100);
    well(&mut command("plan", &source, &out, &OPTIONS));
    parts(&source, &out, 2);
    let folder = unfinished(&out);
    copy(&folder, &kept);
    assert!(finish(&out, &[]).status.success());
    fs::rename(&out, &calm).unwrap();
    // Killed before the rename, with the index or before it, and behind it, before all was removed.
    for (at, has_index) in [(&folder, false), (&folder, true), (&out, true)] {
        copy(&kept, at);
        if has_index {
            for name in ["dataset.shade", "dataset.times"] {
                fs::copy(calm.join(name), at.join(name)).unwrap();
            }
        }
        let output = finish(&out, &[]);
        assert!(output.status.success(), "{output:?}");
        assert_equal(&out, &calm);
        assert_eq!(names(temp.path()), ["calm", "images", "kept", "out"]);
        fs::remove_dir_all(&out).unwrap();
    }
}

#[test]
fn what_is_appended_to_a_dataset_that_is_not_yet_cleaned_stays() {
    let temp = tempfile::tempdir().unwrap();
    let [source, more, out] = ["images", "more", "out"].map(|name| temp.path().join(name));
    images(&source, 100);
    for number in 0..200 {
        write(&more.join(format!("new/{number:03}.bmp")), &noise(number, 5000));
    }
    well(&mut command("plan", &source, &out, &OPTIONS));
    parts(&source, &out, 2);
    let kept = temp.path().join("kept");
    copy(&unfinished(&out), &kept);
    assert!(finish(&out, &[]).status.success());
    // As a finish leaves it that is killed behind its rename.
    for name in names(&kept).into_iter().filter(|name| !name.ends_with(".tar")) {
        fs::copy(kept.join(&name), out.join(&name)).unwrap();
    }
    let mut append = program(&[&"append", &more, &out, &"--jobs", &"1", &"--in-flight", &"1", &"-q"]);
    append.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let append = halted(&mut append, &out);
    let before = half_written(&out);
    let output = finish(&out, &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(half_written(&out), before);
    kill_process(Pid::from_child(&append), Signal::CONT).unwrap();
    let output = append.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    run_well(&[&"verify", &out, &"-q"]);
    let is_left =
        |name: &String| name.ends_with(".done") || name == "dataset.plan" || name.contains(".part-");
    assert!(!names(&out).iter().any(is_left), "{:?}", names(&out));
}

#[test]
fn splits_are_listed_and_packed_in_parts() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, calm] = ["images", "out", "calm"].map(|name| temp.path().join(name));
    images(&source.join("train"), 150);
    images(&source.join("val"), 40);
    write(&source.join("val/other/1.bmp"), b"another class");
    write(&source.join("val/other/1.tmp.bmp"), b"left out");
    let options = [&OPTIONS[..], &["--splits", "train,val", "--exclude", "*.tmp.*"]].concat();
    well(&mut command("create", &source, &calm, &options));
    let listing = |part: &str, more: &[&str]| {
        let options = [&["--part", part, "--splits", "train,val", "-q"], more].concat();
        well(&mut command("list", &source, &out, &options))
    };
    let planned = [&options[..], &["--listed"]].concat();
    let mut plan = command("plan", &source, &out, &planned);
    let refused = plan.output().unwrap();
    assert!(
        refused.status.code() == Some(5) && stderr_of(&refused).contains("shade-pack list"),
        "{refused:?}"
    );
    for number in [0, 2] {
        listing(&format!("{number}/3"), &["--exclude", "*.tmp.*"]);
    }
    let refused = plan.output().unwrap();
    assert!(refused.status.code() == Some(5) && stderr_of(&refused).contains("missing: 1/3"), "{refused:?}");
    // Another list than the others.
    listing("1/3", &[]);
    let refused = plan.output().unwrap();
    assert!(!refused.status.success() && stderr_of(&refused).contains("List all parts again"), "{refused:?}");
    listing("1/3", &["--exclude", "*.tmp.*"]);
    listing("1/3", &["--exclude", "*.tmp.*"]);
    well(&mut plan);
    // More parts than shards: some have nothing to do.
    parts(&source, &out, 40);
    let output = finish(&out, &["--json"]);
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["parts"][0]["split"], &report["parts"][1]["samples"]), (&"train".into(), &41.into()));
    assert_equal(&out, &calm);
    assert_eq!(names(temp.path()), ["calm", "images", "out"]);
}

#[test]
fn tars_and_lists_are_packed_in_parts_where_the_source_has_another_path() {
    let temp = tempfile::tempdir().unwrap();
    let [source, moved] = ["here", "there"].map(|name| temp.path().join(name));
    let picture = noise(1, 700);
    for tar in 0..3u32 {
        let key = |number: u32, end: &str| format!("{tar}-{number}.{end}");
        let members: Vec<(String, Vec<u8>)> = (0..8)
            .flat_map(|number| {
                [
                    (key(number, "jpg"), noise(u64::from(tar * 8 + number), 900)),
                    (key(number, "cls"), (number % 3).to_string().into_bytes()),
                    (key(number, "json"), format!("{{\"n\": {number}}}").into_bytes()),
                ]
            })
            .collect();
        let members: Vec<(&str, &[u8])> =
            members.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        tar_of(&source.join(format!("tars/{tar}.tar")), &members);
    }
    let outside = temp.path().join("outside/1.png");
    write(&outside, &picture);
    let mut rows = format!("path,label,caption\n{},bee,\"far, away\"\n", outside.display());
    for number in 0..20 {
        write(&source.join(format!("list/{number}.png")), &noise(number, 800));
        rows += &format!("{number}.png,{},\u{fc} {number}\n", if number % 2 == 0 { "ant" } else { "bee" });
    }
    write(&source.join("list/rows.csv"), rows.as_bytes());
    let size = ["--shard-size", "6kB", "-q"];
    for name in ["tars", "list/rows.csv"] {
        let stem = &name[..4];
        let [out, calm] = ["out", "calm"].map(|kind| temp.path().join(format!("{kind}-{stem}")));
        well(&mut command("create", &source.join(name), &calm, &size));
        well(&mut command("plan", &source.join(name), &out, &size));
        let refused = command("list", &source.join(name), &out, &["--part", "0/2"]).output().unwrap();
        assert!(
            refused.status.code() == Some(2) && stderr_of(&refused).contains("no ImageFolder"),
            "{refused:?}"
        );
        fs::rename(&source, &moved).unwrap();
        parts(&moved.join(name), &out, 3);
        fs::rename(&moved, &source).unwrap();
        assert!(finish(&out, &[]).status.success());
        assert_equal(&out, &calm);
    }
}

#[test]
fn a_source_that_changed_since_the_plan_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 60);
    let image = source.join("3/003.bmp");
    let touch = |seconds| {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        File::options().write(true).open(&image).unwrap().set_modified(time).unwrap();
    };
    well(&mut command("plan", &source, &out, &OPTIONS));
    touch(3600);
    let refused = part(&source, &out, "0/1").output().unwrap();
    let text = stderr_of(&refused);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("3/003.bmp") && text.contains("written to since it was listed"), "{text}");
    assert!(text.contains("shade-pack plan SOURCE OUT --restart"), "{text}");
    // It is another source now: the old plan is in the way until it is thrown away.
    let refused = command("plan", &source, &out, &OPTIONS).output().unwrap();
    assert!(refused.status.code() == Some(2) && stderr_of(&refused).contains("--restart"), "{refused:?}");
    let skipping = [&OPTIONS[..], &["--restart", "--on-bad", "skip"]].concat();
    well(&mut command("plan", &source, &out, &skipping));
    touch(7200);
    for number in 0..2 {
        well(&mut part(&source, &out, &format!("{number}/2")));
    }
    let output = finish(&out, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{report:#}");
    assert!(report["bad"][0]["path"].as_str().unwrap().ends_with("3/003.bmp"), "{report:#}");
    assert_eq!(Dataset::open(&out).unwrap().index.len(), 59);
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn a_plan_that_may_not_be_left_with_holes_is_not_finished() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 30);
    let listing = [&OPTIONS[..], &["--on-bad", "list"]].concat();
    well(&mut command("plan", &source, &out, &listing));
    fs::remove_file(source.join("3/003.bmp")).unwrap();
    for output in [part(&source, &out, "0/1").output().unwrap(), finish(&out, &[])] {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(stderr_of(&output).contains("3/003.bmp"), "{output:?}");
    }
    assert!(!out.exists());
}

#[test]
fn what_listing_found_keeps_a_plan_from_being_finished() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    let told = |output: &Output, code: i32, words: &[&str]| {
        let text = [output.stdout.as_slice(), &output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(output.status.code(), Some(code), "{text}");
        words.iter().for_each(|word| assert!(text.contains(word), "{word} in: {text}"));
    };
    let plan = |how: &[&str]| {
        let options = [&OPTIONS[..], &["--restart", "--on-bad"], how].concat();
        command("plan", &source, &out, &options).output().unwrap()
    };
    images(&source, 30);
    write(&source.join("3/empty.bmp"), b"");
    told(&plan(&["list"]), 0, &["3/empty.bmp"]);
    parts(&source, &out, 2);
    told(&finish(&out, &[]), 1, &["3/empty.bmp", "1 samples cannot be packed"]);
    assert!(!out.exists());
    // With what packing finds.
    told(&plan(&["list"]), 0, &["3/empty.bmp"]);
    fs::remove_file(source.join("5/005.bmp")).unwrap();
    told(&part(&source, &out, "0/1").output().unwrap(), 1, &["5/005.bmp"]);
    told(&finish(&out, &[]), 1, &["3/empty.bmp", "5/005.bmp", "2 samples cannot be packed"]);
    assert!(!out.exists());
    told(&plan(&["skip"]), 0, &["3/empty.bmp"]);
    parts(&source, &out, 2);
    told(&finish(&out, &[]), 4, &["3/empty.bmp"]);
    assert_eq!(Dataset::open(&out).unwrap().index.len(), 29);
}

#[test]
fn a_plan_without_a_sample_is_not_finished() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    for number in 0..3 {
        write(&source.join(format!("{number}/1.bmp")), b"");
    }
    let listing = [&OPTIONS[..], &["--on-bad", "list"]].concat();
    well(&mut command("plan", &source, &out, &listing));
    let output = finish(&out, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stderr_of(&output);
    assert!(text.contains("2/1.bmp") && text.contains("3 samples cannot be packed"), "{text}");
    assert!(!out.exists());
}

#[test]
fn a_damaged_plan_is_refused_and_never_followed() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 40);
    well(&mut command("plan", &source, &out, &OPTIONS));
    let path = unfinished(&out).join("dataset.plan");
    let whole = fs::read(&path).unwrap();
    for at in [0, 20, 62, 100, whole.len() / 2, whole.len() - 2] {
        let mut bent = whole.clone();
        bent[at] ^= 1;
        for bytes in [bent, whole[..at].to_vec()] {
            fs::write(&path, bytes).unwrap();
            for output in [part(&source, &out, "0/1").output().unwrap(), finish(&out, &[])] {
                // What no part has packed is missing before rows are read.
                let code = output.status.code();
                assert!(matches!(code, Some(3 | 5)), "byte {at}: {output:?}");
                let text = stderr_of(&output);
                assert!(code == Some(5) || text.contains("dataset.plan is damaged"), "byte {at}: {text}");
            }
            let shards = names(path.parent().unwrap()).iter().filter(|name| name.ends_with(".tar")).count();
            assert!(shards == 0, "byte {at}: {shards} shards were packed");
        }
    }
    let other = String::from_utf8(whole.clone()).unwrap().replacen("plan 2 ", "plan 9 ", 1);
    fs::write(&path, other).unwrap();
    let output = part(&source, &out, "0/1").output().unwrap();
    assert!(output.status.code() == Some(2) && stderr_of(&output).contains("one version"), "{output:?}");
    // The same plan again puts the same file there.
    well(&mut command("plan", &source, &out, &OPTIONS));
    assert!(fs::read(&path).unwrap() == whole);
}

#[test]
fn one_create_finishes_what_parts_have_begun() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, calm] = ["images", "out", "calm"].map(|name| temp.path().join(name));
    images(&source, 100);
    well(&mut command("create", &source, &calm, &OPTIONS));
    well(&mut command("plan", &source, &out, &OPTIONS));
    well(&mut part(&source, &out, "1/2"));
    let shard = unfinished(&out).join("shard-000001.tar");
    let before = fs::metadata(&shard).unwrap().modified().unwrap();
    well(&mut command("create", &source, &out, &OPTIONS));
    assert_eq!(fs::metadata(out.join("shard-000001.tar")).unwrap().modified().unwrap(), before);
    assert_equal(&out, &calm);
    assert_eq!(names(temp.path()), ["calm", "images", "out"]);
    let told = well(&mut command("plan", &source, &out, &OPTIONS));
    assert!(told.contains("it is there already"), "{told}");
}

#[test]
fn a_damaged_shard_is_packed_again_by_its_part() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out, calm] = ["images", "out", "calm"].map(|name| temp.path().join(name));
    images(&source, 60);
    well(&mut command("create", &source, &calm, &OPTIONS));
    well(&mut command("plan", &source, &out, &OPTIONS));
    parts(&source, &out, 2);
    let shard = unfinished(&out).join("shard-000001.tar");
    let mut bytes = fs::read(&shard).unwrap();
    bytes[700] ^= 1;
    fs::write(&shard, bytes).unwrap();
    parts(&source, &out, 2);
    assert!(finish(&out, &[]).status.success());
    assert_equal(&out, &calm);
}

#[test]
fn an_interrupted_part_says_what_is_complete() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 400);
    well(&mut command("plan", &source, &out, &["--shard-size", "9kB", "-q"]));
    let folder = unfinished(&out);
    let mut running = part(&source, &out, "0/1");
    running.args(["--jobs", "1", "--in-flight", "1"]).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = running.spawn().unwrap();
    while !names(&folder).iter().any(|name| name.ends_with(".done")) {
        assert!(running.try_wait().unwrap().is_none(), "the part ended before it could be interrupted");
    }
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    let output = running.wait_with_output().unwrap();
    if !output.status.success() {
        let text = stderr_of(&output);
        let complete = names(&folder).iter().filter(|name| name.ends_with(".done")).count();
        assert_eq!(output.status.code(), Some(130), "{text}");
        assert!(text.contains(&format!("{complete} of 400 shards of part 0/1 are complete")), "{text}");
        assert!(!names(&folder).iter().any(|name| name.contains(".part-")));
    }
    parts(&source, &out, 1);
    assert!(finish(&out, &[]).status.success());
}

#[test]
fn what_the_plan_has_decided_is_not_said_to_a_part() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 20);
    well(&mut command("plan", &source, &out, &OPTIONS));
    let cases: [(&[&str], &str); 6] = [
        (&["--part", "0/2", "--seed", "3"], "cannot be used with"),
        (&["--part", "0/2", "--on-bad", "skip"], "cannot be used with"),
        (&["--part", "0/2", "--restart"], "cannot be used with"),
        (&["--part", "2/2"], "the last of 2 is 1/2"),
        (&["--part", "two"], "NUMBER/COUNT"),
        (&["--part", "0/0"], "parts"),
    ];
    for (more, say) in cases {
        let output = command("create", &source, &out, more).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains(say), "{more:?}: {}", stderr_of(&output));
    }
    // Nor does a part follow a link, or pack what is not there.
    let nowhere = part(&temp.path().join("nowhere"), &out, "0/1").output().unwrap();
    assert!(nowhere.status.code() == Some(2) && stderr_of(&nowhere).contains("as a source"), "{nowhere:?}");
    let (folder, planted) = (unfinished(&out), temp.path().join("planted"));
    fs::rename(&folder, &planted).unwrap();
    symlink(&planted, &folder).unwrap();
    for output in [part(&source, &out, "0/1").output().unwrap(), finish(&out, &[])] {
        assert!(
            output.status.code() == Some(2) && stderr_of(&output).contains("is no directory"),
            "{output:?}"
        );
    }
    assert_eq!(names(&planted), ["dataset.plan", "dataset.unfinished"]);
}

#[test]
fn plans_of_one_destination_exclude_each_other() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["images", "out"].map(|name| temp.path().join(name));
    images(&source, 20);
    well(&mut command("plan", &source, &out, &OPTIONS));
    let other = command("plan", &source, &out, &["--seed", "9", "-q"]).output().unwrap();
    assert!(other.status.code() == Some(2) && stderr_of(&other).contains("--restart"), "{other:?}");
    well(&mut part(&source, &out, "0/1"));
    // The same plan again keeps what is complete.
    well(&mut command("plan", &source, &out, &OPTIONS));
    assert!(finish(&out, &[]).status.success());
    let refused = run(&[&"plan" as &dyn AsRef<OsStr>, &source, &out, &"--seed", &"9", &"-q"]);
    assert!(refused.status.code() == Some(2) && stderr_of(&refused).contains("exists"), "{refused:?}");
}
