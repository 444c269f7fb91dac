//! append adds what a dataset does not have, and leaves the rest as it is, also when it is killed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::support::{names, noise, picture, program, run, run_well, stderr_of, tar_of, tree, write};
use serde_json::Value;
use shade_formats::SampleId;
use shade_pack::dataset::Dataset;

fn images(root: &Path, classes: &[&str], numbers: std::ops::Range<u64>) {
    for number in numbers {
        let class = classes[usize::try_from(number).unwrap() % classes.len()];
        write(&root.join(format!("{class}/{number:04}.ppm")), &picture(number, 20, 10));
    }
}

fn append(source: &Path, out: &Path, more: &[&str]) -> Value {
    let mut args: Vec<&dyn AsRef<OsStr>> = vec![&"append", &source, &out, &"--json", &"-q"];
    args.extend(more.iter().map(|arg| arg as &dyn AsRef<OsStr>));
    serde_json::from_str(&run_well(&args)).unwrap()
}

/// Id, label and path of each sample.
fn lines(out: &Path) -> Vec<String> {
    run_well(&[&"ls", &out]).lines().map(str::to_owned).collect()
}

/// What is wrong with the images that a dataset gives back, compared with these.
fn assert_gives_back(out: &Path, back: &Path, sources: &[&Path]) {
    run_well(&[&"verify", &out, &"-q"]);
    run_well(&[&"extract", &out, &back, &"-q"]);
    let mut expected = BTreeMap::new();
    for source in sources {
        expected.extend(tree(source));
    }
    assert!(tree(back) == expected);
}

#[test]
fn new_samples_and_classes_come_behind_what_is_there() {
    let temp = tempfile::tempdir().unwrap();
    let (first, more, out) = (temp.path().join("first"), temp.path().join("more"), temp.path().join("out"));
    images(&first, &["bee", "dog"], 0..30);
    images(&more, &["ant", "bee", "cat", "dog"], 100..140);
    for name in ["bee/0000.ppm", "dog/0001.ppm"] {
        write(&more.join(name), &fs::read(first.join(name)).unwrap());
        let packed = fs::metadata(first.join(name)).unwrap().modified().unwrap();
        fs::File::options().write(true).open(more.join(name)).unwrap().set_modified(packed).unwrap();
    }
    run_well(&[&"create", &first, &out, &"--shard-size", &"8KiB", &"--compress", &"zstd:7", &"--cls", &"-q"]);
    let (before, files) = (lines(&out), tree(&out));
    let report = append(&more, &out, &[]);
    assert_eq!(
        (&report["appended"], &report["skipped"], &report["samples"]),
        (&40.into(), &2.into(), &70.into())
    );
    assert_eq!(report["new_classes"], serde_json::json!(["ant", "cat"]));
    let after = lines(&out);
    assert_eq!(after[..30], before);
    let labels: BTreeMap<&str, &str> = after
        .iter()
        .map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            (columns[2].split('/').next().unwrap(), columns[1])
        })
        .collect();
    assert_eq!(labels, BTreeMap::from([("bee", "0"), ("dog", "1"), ("ant", "2"), ("cat", "3")]));
    let now = tree(&out);
    assert!(files.iter().all(|(name, bytes)| !name.ends_with(".tar") || now[name] == *bytes));
    let others: Vec<&String> = now.keys().filter(|name| !name.ends_with(".tar")).collect();
    assert_eq!(others, ["dataset.shade", "dataset.times"]);
    let info: Value = serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap();
    assert_eq!(info["options"]["compress"], info["options"]["appended"][0]["compress"]);
    assert_eq!(info["options"]["appended"][0]["shard_bytes"], 8192);
    assert_gives_back(&out, &temp.path().join("back"), &[&first, &more]);

    // The same command again, then another source.
    let same = append(&more, &out, &[]);
    assert_eq!((&same["unchanged"], &same["skipped"]), (&true.into(), &42.into()));
    assert!(tree(&out) == now);
    assert!(run_well(&[&"append", &more, &out, &"-q"]).contains("nothing new"));
    images(&more, &["eel"], 200..205);
    assert_eq!(append(&more, &out, &[])["appended"], 5);
    assert_gives_back(&out, &temp.path().join("back again"), &[&first, &more]);
    let dataset = Dataset::open(&out).unwrap();
    let keys: Vec<u32> = (0..dataset.index.len()).map(|id| dataset.index.key(SampleId(id))).collect();
    assert_eq!(keys, (0..75).collect::<Vec<_>>());
    // Appended shards are made again like the others, and so are those that they came to.
    let whole = tree(&out);
    let last = names(&out).into_iter().rfind(|name| name.ends_with(".tar")).unwrap();
    for (source, shard) in [(&more, last.as_str()), (&first, "shard-000001.tar")] {
        fs::remove_file(out.join(shard)).unwrap();
        run_well(&[&"create", source, &out, &"--compress", &"zstd:7", &"--cls", &"-q"]);
        assert!(tree(&out) == whole);
    }
}

#[test]
fn what_is_there_with_another_content_or_class_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source, &["bee", "dog"], 0..10);
    run_well(&[&"create", &source, &out, &"-q"]);
    let before = tree(&out);
    write(&source.join("bee/0004.ppm"), b"shorter");
    images(&source, &["cat"], 50..60);
    let output = run(&[&"append", &source, &out, &"-q"]);
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("bee/0004.ppm") && text.contains("of 613 bytes, not 7"), "{text}");
    let list = temp.path().join("list.csv");
    write(&temp.path().join("bee/0000.ppm"), &picture(0, 20, 10));
    fs::write(&list, "path,label\nbee/0000.ppm,wasp\n").unwrap();
    let output = run(&[&"append", &list, &out, &"-q"]);
    assert!(stderr_of(&output).contains("of the class 'bee', not 'wasp'"), "{output:?}");
    let output = run(&[&"append", &source, &temp.path().join("nothing"), &"-q"]);
    assert!(output.status.code() == Some(1) && stderr_of(&output).contains("is no dataset"), "{output:?}");
    assert!(tree(&out) == before);
}

#[test]
fn bad_samples_are_left_out_or_end_it_without_a_trace() {
    let temp = tempfile::tempdir().unwrap();
    let (first, more, out) = (temp.path().join("first"), temp.path().join("more"), temp.path().join("out"));
    images(&first, &["bee"], 0..10);
    images(&more, &["bee"], 100..140);
    write(&more.join("bee/no image.png"), &noise(1, 300));
    let format: [&dyn AsRef<OsStr>; 6] =
        [&"--format", &"jpeg", &"--quality", &"80", &"--shard-size", &"8KiB"];
    let mut args: Vec<&dyn AsRef<OsStr>> = vec![&"create", &first, &out, &"-q"];
    args.extend(format);
    run_well(&args);
    let before = tree(&out);
    let output = run(&[&"append", &more, &out, &"-q", &"--on-bad", &"list"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("no image.png"), "{output:?}");
    assert!(tree(&out) == before, "{:?}", names(&out));
    let output = run(&[&"append", &more, &out, &"-q", &"--on-bad", &"skip", &"--json"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["appended"], report["bad"].as_array().unwrap().len()), (&40.into(), 1));
    run_well(&[&"verify", &out, &"--decode", &"-q"]);
    let info: Value = serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap();
    assert_eq!(
        (&info["media"]["jpeg"], &info["options"]["appended"][0]["transform"]["quality"]),
        (&50.into(), &80.into())
    );
}

#[test]
fn bad_files_beside_what_is_there_are_nothing_new() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source, &["bee"], 0..10);
    // Only packing finds that this is bad.
    write(&source.join("bee/no image.png"), &noise(1, 300));
    let skip: [&dyn AsRef<OsStr>; 3] = [&"--on-bad", &"skip", &"-q"];
    let told = |args: &[&dyn AsRef<OsStr>], code: i32| {
        let output = run(&[args, &skip].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        if code == 4 { String::from_utf8(output.stdout).unwrap() } else { stderr_of(&output) }
    };
    told(&[&"create", &source, &out, &"--format", &"jpeg"], 4);
    let before = tree(&out);
    let is_as_before = || assert!(tree(&out) == before, "{:?}", names(&out));
    for more in [&[][..], &[&"--restart" as &dyn AsRef<OsStr>]] {
        let args: [&dyn AsRef<OsStr>; 4] = [&"append", &source, &out, &"--json"];
        let report: Value = serde_json::from_str(&told(&[&args[..], more].concat(), 4)).unwrap();
        assert_eq!(
            (&report["unchanged"], &report["skipped"], &report["samples"], &report["appended"]),
            (&true.into(), &10.into(), &10.into(), &0.into())
        );
        assert_eq!(report["bad"].as_array().unwrap().len(), 1, "{report}");
        is_as_before();
    }
    let text = told(&[&"append", &source, &out], 4);
    assert!(text.contains("bee/no image.png") && text.contains("nothing new"), "{text}");
    assert!(text.contains("each of the source's 10 other paths"), "{text}");
    for on_bad in ["fail", "list"] {
        let output = run(&[&"append", &source, &out, &"--on-bad", &on_bad, &"-q"]);
        assert!(output.status.code() == Some(1) && stderr_of(&output).contains("no image.png"), "{output:?}");
        is_as_before();
    }
    // A class that would have no sample, and a source of which nothing is left.
    write(&temp.path().join("alone/bee/neither.png"), &noise(2, 300));
    write(&source.join("cat/nor this.png"), &noise(3, 300));
    for source in [source, temp.path().join("alone")] {
        assert!(told(&[&"append", &source, &out], 1).contains("no sample is left"));
        is_as_before();
    }
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn tars_with_fields_are_appended_to_tars() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("tars"), temp.path().join("out"));
    let tar = |name: &str, salt: u64| {
        let members: Vec<(String, Vec<u8>)> = (0..9u64)
            .flat_map(|n| {
                let (image, caption) = (picture(salt + n, 9, 9), format!("caption {n}").into_bytes());
                let (label, n) = (if n < 5 { "x" } else { "y" }, n);
                let label = label.as_bytes().to_vec();
                [(format!("{n}.ppm"), image), (format!("{n}.cls"), label), (format!("{n}.caption"), caption)]
            })
            .collect();
        let members: Vec<(&str, &[u8])> =
            members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
        tar_of(&source.join(name), &members);
    };
    tar("a.tar", 1);
    run_well(&[&"create", &source, &out, &"-q"]);
    tar("b.tar", 100);
    assert_eq!(append(&source, &out, &[])["appended"], 9);
    run_well(&[&"verify", &out, &"-q"]);
    let back = temp.path().join("back");
    run_well(&[&"extract", &out, &back, &"-q"]);
    let back = tree(&back);
    assert_eq!(back["b/3.caption"], b"caption 3");
    assert_eq!(back.len(), 36);
}

/// Begins to append many small shards and returns when some are complete.
fn begin(source: &Path, out: &Path) -> std::process::Child {
    let args: &[&dyn AsRef<OsStr>] =
        &[&"append", &source, &out, &"--shard-size", &"4KiB", &"--jobs", &"1", &"--in-flight", &"1", &"-q"];
    let mut child = program(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The program may end first, if this test gets no CPU time. Every test allows for that.
    while child.try_wait().unwrap().is_none() {
        if names(out).iter().filter(|name| name.ends_with(".done")).count() > 3 {
            break;
        }
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_killed_append_leaves_the_old_dataset_and_is_resumed() {
    let temp = tempfile::tempdir().unwrap();
    let (first, more, out) = (temp.path().join("first"), temp.path().join("more"), temp.path().join("out"));
    images(&first, &["bee", "dog"], 0..20);
    for number in 0..400u64 {
        write(&more.join(format!("{}/n{number:03}.png", number % 3)), &noise(number, 2500));
    }
    run_well(&[&"create", &first, &out, &"--shard-size", &"4KiB", &"-q"]);
    let before = tree(&out);
    let mut child = begin(&more, &out);
    // While it runs, another command is refused, and readers see the old dataset.
    let second = run(&[&"append", &more, &out, &"-q"]);
    child.kill().unwrap();
    if child.wait().unwrap().success() {
        return;
    }
    assert!(second.status.code() == Some(2) && stderr_of(&second).contains("another command"), "{second:?}");
    let after = tree(&out);
    assert!(before.iter().all(|(name, bytes)| after[name] == *bytes));
    run_well(&[&"verify", &out, &"-q"]);
    assert_eq!(lines(&out).len(), 20);
    let done = names(&out).iter().filter(|name| name.ends_with(".done")).count();
    assert!(done > 3);
    let stamp = |name: &str| fs::metadata(out.join(name)).unwrap().modified().unwrap();
    let kept =
        names(&out).into_iter().find_map(|name| name.strip_suffix(".done").map(str::to_owned)).unwrap();
    let written = stamp(&kept);
    // The same command goes on from there.
    let report = append(&more, &out, &["--shard-size", "4KiB"]);
    assert_eq!((&report["appended"], report["shards"].as_u64().unwrap() > 300), (&400.into(), true));
    assert_eq!(stamp(&kept), written, "{kept} was packed again");
    assert_gives_back(&out, &temp.path().join("back"), &[&first, &more]);
    assert!(
        !names(&out)
            .iter()
            .any(|name| name.contains(".part-") || name.ends_with(".done") || name.ends_with(".changing"))
    );
}

#[test]
fn a_dataset_behind_a_link_grows_and_is_gone_on_with_by_its_own_path() {
    let temp = tempfile::tempdir().unwrap();
    let (first, some, more) = (temp.path().join("first"), temp.path().join("some"), temp.path().join("more"));
    let (out, link) = (temp.path().join("far/out"), temp.path().join("link"));
    images(&first, &["bee", "dog"], 0..20);
    images(&some, &["ant"], 50..60);
    fs::create_dir(temp.path().join("far")).unwrap();
    run_well(&[&"create", &first, &out, &"--shard-size", &"4KiB", &"-q"]);
    symlink("far/out", &link).unwrap();
    let report = append(&some, &link, &[]);
    assert_eq!((&report["appended"], report["dataset"].as_str()), (&10.into(), link.to_str()));
    assert_eq!(append(&some, &link, &[])["unchanged"], true);
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("far/out"));
    for number in 0..400u64 {
        write(&more.join(format!("{}/n{number:03}.png", number % 3)), &noise(number, 2500));
    }
    let mut child = begin(&more, &link);
    child.kill().unwrap();
    if child.wait().unwrap().success() {
        return;
    }
    let stamp = |name: &str| fs::metadata(out.join(name)).unwrap().modified().unwrap();
    let kept =
        names(&out).into_iter().find_map(|name| name.strip_suffix(".done").map(str::to_owned)).unwrap();
    let written = stamp(&kept);
    assert_eq!(append(&more, &out, &["--shard-size", "4KiB"])["appended"], 400);
    assert_eq!(stamp(&kept), written, "{kept} was packed again");
    assert_gives_back(&out, &temp.path().join("back"), &[&first, &some, &more]);
    let is_left = |name: &String| {
        !name.ends_with(".tar") && !["dataset.shade", "dataset.times"].contains(&name.as_str())
    };
    assert!(!names(&out).iter().any(is_left), "{:?}", names(&out));
}

#[test]
fn an_append_of_something_else_leaves_nothing_of_an_unfinished_one() {
    for then in ["other", "nothing new", "restart"] {
        begin_and_kill(then);
    }
}

fn begin_and_kill(then: &str) {
    let temp = tempfile::tempdir().unwrap();
    let (first, more, out) = (temp.path().join("first"), temp.path().join("more"), temp.path().join("out"));
    images(&first, &["bee", "dog"], 0..20);
    let other = temp.path().join("other");
    images(&other, &["bee"], 500..503);
    for number in 0..400u64 {
        write(&more.join(format!("{}/n{number:03}.png", number % 3)), &noise(number, 2500));
    }
    run_well(&[&"create", &first, &out, &"-q"]);
    let mut child = begin(&more, &out);
    child.kill().unwrap();
    if child.wait().unwrap().success() {
        return;
    }
    if then == "restart" {
        let again = append(&more, &out, &["--restart", "--shard-size", "4KiB"]);
        assert_eq!(again["appended"], 400);
        assert!(!names(&out).iter().any(|name| name.ends_with(".done")));
        return;
    }
    match then {
        "other" => assert_eq!(append(&other, &out, &[])["appended"], 3),
        _ => assert_eq!(append(&first, &out, &[])["unchanged"], true),
    }
    run_well(&[&"verify", &out, &"-q"]);
    let dataset = Dataset::open(&out).unwrap();
    // Index and times, and shards.
    let expected = 2 + usize::try_from(dataset.index.shard_count()).unwrap();
    // A shard that was killed between its name and its record of completion may remain.
    assert!(names(&out).len() <= expected + 1, "{:?}", names(&out));
    let is_unfinished = |name: &String| name.ends_with(".done") || name == "dataset.unfinished";
    assert!(!names(&out).iter().any(is_unfinished), "{:?}", names(&out));
}
