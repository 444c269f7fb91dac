//! `create -` packs a tar that comes through a pipe: in its order, whole or not at all, and in less
//! memory than the stream has bytes.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};

use serde_json::Value;
use shade_formats::SampleId;
use shade_pack::dataset::Dataset;

use crate::support::{names, noise, picture, program, run, run_well, stderr_of, tar_of, tree, write};

type Args<'a> = [&'a dyn AsRef<std::ffi::OsStr>];

fn start(out: &Path, more: &Args<'_>) -> Child {
    let fixed: [&dyn AsRef<std::ffi::OsStr>; 3] = [&"create", &"-", &out];
    let mut command = program(&[&fixed, more].concat());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Packs these bytes from a pipe.
fn create(bytes: &[u8], out: &Path, more: &Args<'_>) -> Output {
    let mut child = start(out, more);
    // It may end before it has read all.
    let _ = child.stdin.take().unwrap().write_all(bytes);
    child.wait_with_output().unwrap()
}

#[track_caller]
fn create_well(bytes: &[u8], out: &Path, more: &Args<'_>) -> String {
    let output = create(bytes, out, &[&[&"-q" as &dyn AsRef<std::ffi::OsStr>], more].concat());
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What is refused, and that nothing is left.
#[track_caller]
fn refused(bytes: &[u8], temp: &Path, more: &Args<'_>, code: i32, words: &[&str]) {
    let before = names(temp);
    let output = create(bytes, &temp.join("refused.shade"), more);
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word} in: {text}");
    }
    assert_eq!(names(temp), before, "{text}");
}

fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("a.tar");
    tar_of(&path, members);
    fs::read(path).unwrap()
}

/// Samples with these labels, each with a field, and their folder as a source of its own.
fn source(temp: &Path, labels: &[&str]) -> (PathBuf, Vec<u8>) {
    let members: Vec<(String, Vec<u8>)> = labels
        .iter()
        .enumerate()
        .flat_map(|(n, label)| {
            [
                (format!("{n:04}.ppm"), picture(n as u64, 12, 12)),
                (format!("{n:04}.cls"), label.as_bytes().to_vec()),
                (format!("{n:04}.note"), noise(n as u64, 60)),
            ]
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
    let folder = temp.join("tars");
    tar_of(&folder.join("set.tar"), &members);
    let bytes = fs::read(folder.join("set.tar")).unwrap();
    (folder, bytes)
}

/// Path, label and class of each sample, by id.
fn listed(out: &Path) -> Vec<(String, u32, String)> {
    let Dataset { index, .. } = Dataset::open(out).unwrap();
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    let row = |id| {
        let label = index.entry(id).unwrap().label;
        (text(index.path(id)), label, text(index.class_name(label)))
    };
    (0..index.len()).map(SampleId).map(row).collect()
}

#[test]
fn it_has_what_the_same_tar_in_a_folder_gives() {
    let temp = tempfile::tempdir().unwrap();
    let labels: Vec<&str> = (0..70).map(|n| ["dog", "ant", "cat"][n * n % 3]).collect();
    let (folder, bytes) = source(temp.path(), &labels);
    let (out, other) = (temp.path().join("out"), temp.path().join("other"));
    let text = create_well(&bytes, &out, &[&"--shard-size", &"16KiB"]);
    assert!(text.contains("70 samples of 2 classes in"), "{text}");
    assert!(text.contains("read as a stream"), "{text}");
    run_well(&[&"create", &folder, &other, &"--no-shuffle", &"-q"]);
    let expected: Vec<(String, u32, String)> = listed(&other)
        .into_iter()
        .map(|(path, label, class)| (path.strip_prefix("set/").unwrap().to_owned(), label, class))
        .collect();
    assert_eq!(listed(&out), expected);
    run_well(&[&"verify", &out, &"--decode", &"-q"]);
    // Its shards keep the order of the stream, and none is larger than it may be.
    let shards: Vec<_> = names(&out).into_iter().filter(|name| name.ends_with(".tar")).collect();
    assert!(shards.len() > 5, "{shards:?}");
    assert!(shards.iter().all(|name| fs::metadata(out.join(name)).unwrap().len() <= 16 << 10));
    let index = Dataset::open(&out).unwrap().index;
    let shard = |id| index.entry(SampleId(id)).unwrap().shard;
    assert!((1..70).all(|id| shard(id - 1) <= shard(id)));
    let [back, back_of_other] = [out, other].map(|dataset| {
        let back = dataset.with_extension("back");
        run_well(&[&"extract", &dataset, &back, &"-q"]);
        tree(&back)
    });
    assert_eq!(back.len(), 140, "images and fields");
    assert!(back.values().eq(back_of_other.values()));
}

#[test]
fn equal_streams_give_equal_bytes_whatever_the_threads() {
    let temp = tempfile::tempdir().unwrap();
    let labels: Vec<&str> = (0..50).map(|n| ["9", "0", "3"][n % 3]).collect();
    let (_, bytes) = source(temp.path(), &labels);
    let made = ["1", "3"].map(|jobs| {
        let out = temp.path().join(format!("out{jobs}"));
        create_well(&bytes, &out, &[&"--shard-size", &"20KiB", &"--jobs", &jobs, &"--compress", &"zstd"]);
        tree(&out)
    });
    assert!(made[0] == made[1]);
    assert!(made[0].len() > 3, "some shards");
    let classes = listed(&temp.path().join("out1"));
    assert_eq!(classes[0], ("0000.ppm".to_owned(), 9, "9".to_owned()), "numbers stay numbers");
}

#[test]
fn classes_that_are_named_need_no_look_ahead() {
    let temp = tempfile::tempdir().unwrap();
    let (_, bytes) = source(temp.path(), &["1", "0", "1", "2"]);
    let classes = temp.path().join("classes.json");
    write(&classes, br#"["zebra", "ant", "cow", "yak"]"#);
    let out = temp.path().join("out");
    create_well(&bytes, &out, &[&"--labels", &classes, &"--cls", &"--format", &"raw"]);
    let found: Vec<(u32, String)> =
        listed(&out).into_iter().map(|(_, label, class)| (label, class)).collect();
    let expected = [(1, "ant"), (0, "zebra"), (1, "ant"), (2, "cow")];
    assert_eq!(found, expected.map(|(label, class)| (label, class.to_owned())));
    let shard = fs::read(out.join("shard-000000.tar")).unwrap();
    assert!(shard.windows(12).any(|part| part == b"00000000.cls"), "labels are in the shard");
    refused(&bytes, temp.path(), &[&"--cls"], 2, &["--cls", "--labels FILE"]);
    let unlabelled = temp.path().join("unlabelled");
    create_well(&bytes, &unlabelled, &[&"--labels", &"none"]);
    assert!(listed(&unlabelled).iter().all(|(_, label, class)| (*label, class.as_str()) == (0, "none")));
}

#[test]
fn what_a_stream_cannot_give_is_refused_by_name() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, bytes) = source(temp.path(), &["0", "1"]);
    let pair = format!("masks={}", folder.display());
    let cases: [(&Args<'_>, &[&str]); 9] = [
        (&[&"--part", &"0/2"], &["--part", "read once"]),
        (&[&"--resume"], &["--resume", "cannot be read again"]),
        (&[&"--restart"], &["--restart", "cannot be read again"]),
        (&[&"--dry-run"], &["--dry-run"]),
        (&[&"--splits", &"train,val"], &["--splits", "--labels FILE"]),
        (&[&"--pair", &pair], &["--pair"]),
        (&[&"--from", &"list"], &["--from"]),
        (&[&"--seed", &"1"], &["--seed", "order"]),
        (&[&"--labels", &"folders"], &["--labels folders"]),
    ];
    for (more, words) in cases {
        refused(&bytes, temp.path(), more, 2, words);
    }
    let out = temp.path().join("out");
    create_well(&bytes, &out, &[]);
    for args in [
        &[&"plan" as &dyn AsRef<std::ffi::OsStr>, &"-", &"o"][..],
        &[&"diff", &"-", &out],
        &[&"append", &"-", &out],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains("Only `shade-pack create - OUT` takes it"), "{output:?}");
    }
    let again = create(&bytes, &out, &[]);
    assert_eq!(again.status.code(), Some(2), "it exists: {again:?}");
}

#[test]
fn a_stream_that_is_no_whole_tar_makes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let bytes =
        tar(&[("1.png", &noise(1, 3000)), ("1.cls", b"0"), ("2.png", &noise(2, 3000)), ("2.cls", b"1")]);
    let marks = bytes.len() - 1024;
    let said = |cut: usize, words: &[&str]| refused(&bytes[..cut], temp.path(), &[&"-q"], 1, words);
    said(0, &["standard input", "is empty"]);
    said(marks, &["standard input", "end mark"]);
    said(700, &["cut short", "'1.png' (at byte 0) ends at 3512"]);
    // Within a header, within padding, within the second sample.
    for cut in [100, 3600, 3583, 6000] {
        said(cut, &["standard input"]);
    }
    let with_more = [&bytes[..], &bytes[..]].concat();
    refused(&with_more, temp.path(), &[&"-q"], 1, &["behind a tar's end mark"]);
    let zip = [&[0x1f, 0x8b, 8, 0], &noise(3, 2000)[..]].concat();
    refused(&zip, temp.path(), &[&"-q"], 1, &["gzip", "zcat | shade-pack create - OUT"]);
    refused(&noise(4, 5000), temp.path(), &[&"-q"], 1, &["standard input", "cannot be read on"]);
    // Zeros behind the end mark are what GNU tar fills up with.
    create_well(&[&bytes[..], &[0; 300_000]].concat(), &temp.path().join("out"), &[]);
}

#[test]
fn bad_samples_are_named_by_their_place_in_the_stream() {
    let temp = tempfile::tempdir().unwrap();
    let image = noise(1, 1500);
    let members: Vec<(String, &[u8])> = (0..20)
        .flat_map(|n| {
            let content: &[u8] = if n == 13 { b"" } else { &image };
            [(format!("{n:02}.png"), content), (format!("{n:02}.cls"), b"0" as &[u8])]
        })
        .collect();
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (&name[..], *bytes)).collect();
    let bytes = tar(&members);
    // 512 + 1536 for the image, 1024 for the label.
    let place = format!("sample '13' at byte {}", 13 * 3072);
    refused(
        &bytes,
        temp.path(),
        &[&"-q", &"--shard-size", &"16KiB"],
        1,
        &["standard input", &place, "empty"],
    );
    refused(&bytes, temp.path(), &[&"-q", &"--on-bad", &"list"], 1, &[&place, "no dataset was made"]);
    let out = temp.path().join("out");
    let skipped = create(&bytes, &out, &[&"-q", &"--on-bad", &"skip", &"--json", &"--shard-size", &"16KiB"]);
    assert_eq!(skipped.status.code(), Some(4), "{skipped:?}");
    let report: Value = serde_json::from_slice(&skipped.stdout).unwrap();
    assert_eq!(
        (&report["parts"][0]["samples"], &report["bad"][0]["path"]),
        (&19.into(), &"standard input".into())
    );
    run_well(&[&"verify", &out, &"-q"]);
    // An image that cannot be decoded is found when its piece is packed.
    let place = format!("standard input (03.png at byte {})", 3 * 3072 + 512);
    let decode: &Args<'_> =
        &[&"-q", &"--format", &"raw", &"--exclude", &"0[0-2].png", &"--shard-size", &"4KiB"];
    refused(&bytes, temp.path(), decode, 1, &[&place]);
    // A key that comes again, however far behind.
    let again = tar(&[&members[..], &[("05.png", &image), ("05.cls", b"0")]]
        .concat()
        .into_iter()
        .filter(|(name, _)| !name.starts_with("13"))
        .collect::<Vec<_>>());
    refused(
        &again,
        temp.path(),
        &[&"-q", &"--shard-size", &"16KiB"],
        1,
        &["'05'", "key comes again", "at byte 15360"],
    );
}

#[test]
fn captions_and_a_class_without_a_sample_are_told_as_of_tars() {
    let temp = tempfile::tempdir().unwrap();
    let image = noise(1, 100);
    let out = temp.path().join("out");
    let captions =
        tar(&[("1.png", &image), ("1.txt", b"a cat\non a mat"), ("2.png", &image), ("2.txt", b"dog")]);
    let text = create_well(&captions, &out, &[]);
    assert!(text.contains("captions"), "{text}");
    assert_eq!(listed(&out)[1].2, "none");
    let lost = tar(&[("1.png", &image), ("1.cls", b"a"), ("2.png", b""), ("2.cls", b"b")]);
    let skip: &Args<'_> = &[&"-q", &"--on-bad", &"skip"];
    refused(&lost, temp.path(), skip, 1, &["no sample is left of the classes b", "--allow-empty"]);
    let none = tar(&[("README", b"no sample")]);
    refused(&none, temp.path(), &[&"-q"], 1, &["no sample"]);
}

#[test]
fn a_kill_leaves_what_the_next_run_removes() {
    let temp = tempfile::tempdir().unwrap();
    let (_, bytes) = source(temp.path(), &["0", "1", "0", "1", "1", "0", "0", "1"]);
    let before = names(temp.path());
    let out = temp.path().join("out");
    let mut child = start(&out, &[&"-q", &"--shard-size", &"4KiB"]);
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&bytes[..bytes.len() - 4096]).unwrap();
    pipe.flush().unwrap();
    let part = temp.path().join(format!("out.part-{}", child.id()));
    while !part.join("shard-000002.tar").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(part.exists() && !out.exists());
    create_well(&bytes, &out, &[]);
    let left: Vec<_> = names(temp.path()).into_iter().filter(|name| !before.contains(name)).collect();
    assert_eq!(left, ["out"]);
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn an_interrupt_ends_the_wait_for_the_pipe_and_leaves_nothing() {
    use rustix::process::{Pid, Signal, kill_process};
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    let mut child = start(&out, &[&"-q"]);
    let pipe = child.stdin.take().unwrap();
    while !temp.path().join(format!("out.part-{}", child.id())).exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(130));
    assert!(names(temp.path()).is_empty(), "{:?}", names(temp.path()));
    drop(pipe);
}

/// A stream of a GiB goes through 64 MiB of pieces.
#[test]
fn memory_and_disk_do_not_grow_with_the_stream() {
    let temp = tempfile::tempdir().unwrap();
    let out = temp.path().join("out");
    let mut child =
        start(&out, &[&"-q", &"--no-sync", &"--shard-size", &"32MiB", &"--jobs", &"2", &"--in-flight", &"2"]);
    let mut pipe = child.stdin.take().unwrap();
    let image = noise(1, 1 << 20);
    let mut peak_kib = 0u64;
    for n in 0..256 {
        let one = tar(&[(&format!("{n:04}.png"), &image), (&format!("{n:04}.cls"), b"0")]);
        pipe.write_all(&one[..one.len() - 1024]).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak_kib = peak_kib.max(line.trim().trim_end_matches(" kB").parse().unwrap());
        let part = temp.path().join(format!("out.part-{}", child.id()));
        let spooled = |name: &String| name.contains(".tar.part-");
        if part.exists() {
            assert!(names(&part).iter().filter(|name| spooled(name)).count() <= 3, "{:?}", names(&part));
        }
    }
    pipe.write_all(&[0; 1024]).unwrap();
    drop(pipe);
    assert!(child.wait_with_output().unwrap().status.success());
    assert_eq!(Dataset::open(&out).unwrap().index.len(), 256);
    println!("peak: {} MiB", peak_kib / 1024);
    assert!((1..128 * 1024).contains(&peak_kib), "{peak_kib} KiB for 256 MiB");
}
