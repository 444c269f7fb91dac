//! A shard that was removed from a finished dataset is made again by the same `create`, byte for
//! byte, or it stays missing. Nothing else is touched.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{names, noise, picture, program, run, run_well, stderr_of, tar_of, tree, write};
use serde_json::Value;
use shade_formats::ShardId;
use shade_pack::dataset::Dataset;

/// A source with every kind of sample that is packed differently.
fn images(root: &Path) {
    for number in 0..40u64 {
        let class = ["ant", "bee", "cat"][usize::try_from(number % 3).unwrap()];
        write(&root.join(format!("{class}/{number:02}.ppm")), &picture(number, 40, 30));
        write(&root.join(format!("{class}/more/{number:02}.png")), &noise(number, 700));
    }
}

fn tars(root: &Path) {
    for tar in 0..3u64 {
        let members: Vec<(String, Vec<u8>)> = (0..10u64)
            .flat_map(|n| {
                let caption = format!("{{\"caption\": \"number {n}\"}}").into_bytes();
                let label = (n % 4).to_string().into_bytes();
                [
                    (format!("{n:04}.ppm"), picture(tar * 10 + n, 20, 20)),
                    (format!("{n:04}.cls"), label),
                    (format!("{n:04}.json"), caption),
                    (format!("{n:04}.mask.bin"), noise(n, 900)),
                ]
            })
            .collect();
        let members: Vec<(&str, &[u8])> =
            members.iter().map(|(name, bytes)| (&name[..], &bytes[..])).collect();
        tar_of(&root.join(format!("part{tar}.tar")), &members);
    }
}

fn create(source: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = program(&[&"create", &source, &out, &"--json", &"-q"]);
    command.args(more);
    command
}

fn created(source: &Path, out: &Path, more: &[&str]) -> Output {
    create(source, out, more).output().unwrap()
}

/// The report of a `create` that succeeds, perhaps with samples left out.
fn well(source: &Path, out: &Path, more: &[&str]) -> Value {
    let output = created(source, out, more);
    assert!(output.status.code().is_some_and(|code| [0, 4].contains(&code)), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn shard_name(number: u32) -> String {
    format!("shard-{number:06}.tar")
}

/// Damages five shards in five ways, and the bytes between records of a sixth.
fn damage(out: &Path) {
    let dataset = Dataset::open(out).unwrap();
    let shards = dataset.samples_by_shard();
    assert!(shards.len() > 6, "{} shards", shards.len());
    let path = |number: u32| dataset.shard_path(ShardId(number));
    let bend = |number: u32, at: u64| {
        let mut bytes = fs::read(path(number)).unwrap();
        bytes[usize::try_from(at).unwrap()] ^= 0x40;
        fs::write(path(number), bytes).unwrap();
    };
    bend(0, shards[0].last().unwrap().1.offset + 3);
    bend(1, shards[1][0].1.offset - 512 + 9);
    let cut = shards[2][0].1.offset + 10;
    fs::OpenOptions::new().write(true).open(path(2)).unwrap().set_len(cut).unwrap();
    fs::remove_file(path(3)).unwrap();
    bend(4, dataset.index.shard(ShardId(4)).unwrap().bytes - 5);
    // Behind the record and its padding: a field, a .cls member, or the next header.
    let (sample, entry) = shards[5][0];
    let behind = dataset.extent(sample, &entry).end;
    bend(5, behind.min(dataset.index.shard(ShardId(5)).unwrap().bytes - 1) - 600);
}

/// Inode and time of each file: a file that was written again has others.
fn states(out: &Path) -> BTreeMap<String, (u64, i64, i64)> {
    let state = |name: String| {
        let found = fs::metadata(out.join(&name)).unwrap();
        (name, (found.ino(), found.mtime(), found.mtime_nsec()))
    };
    names(out).into_iter().map(state).collect()
}

/// Does what `verify` says, and compares all files with what they were.
fn check(source: &Path, out: &Path, more: &[&str]) {
    well(source, out, more);
    let before = tree(out);
    damage(out);
    let verified = run(&[&"verify", &out, &"--json", &"-q"]);
    let found: Value = serde_json::from_slice(&verified.stdout).unwrap();
    let damaged: Vec<String> = found["damaged_shards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| shard["shard"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((verified.status.code(), damaged.len()), (Some(3), 6), "{found:#}");
    // The third is gone already.
    damaged.iter().for_each(|shard| drop(fs::remove_file(shard)));
    let kept = states(out);
    let found = well(source, out, more);
    assert_eq!(found["unchanged"], false, "{found:#}");
    assert_eq!(found["parts"][0]["made_again"], serde_json::json!(damaged));
    assert!(tree(out) == before, "{more:?}: not the same files");
    let now = states(out);
    assert!(kept.iter().all(|(name, state)| now[name] == *state), "a shard that was there was written");
    assert_eq!(well(source, out, more)["unchanged"], true);
    assert_eq!(states(out), now);
}

#[test]
fn shards_of_image_folders_are_made_again_however_they_were_packed() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    images(&source);
    let all: [&[&str]; 8] = [
        &["--shard-size", "12KiB"],
        &["--shard-size", "12KiB", "--cls", "--no-shuffle"],
        &["--shard-size", "12KiB", "--compress", "zstd:5"],
        &["--shard-size", "12KiB", "--compress", "auto", "--cls"],
        &["--shard-size", "4KiB", "--format", "jpeg", "--resize-short", "24", "--exclude", "more"],
        &["--shard-size", "4KiB", "--format", "jpeg", "--restart-markers", "--exclude", "more"],
        &["--shard-size", "4KiB", "--format", "raw", "--max-side", "20", "--exclude", "more"],
        &["--shard-size", "30kB", "--format", "raw", "--compress", "zstd", "--on-bad", "skip"],
    ];
    for (number, more) in all.into_iter().enumerate() {
        let out: PathBuf = temp.path().join(format!("out {number}"));
        check(&source, &out, more);
        let has_dictionary = Dataset::open(&out).unwrap().index.dictionaries().next().is_some();
        assert_eq!(has_dictionary, more.contains(&"--compress"), "{more:?}");
    }
}

#[test]
fn shards_of_tars_with_fields_are_made_again() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("tars"), temp.path().join("out"));
    tars(&source);
    check(&source, &out, &["--shard-size", "12KiB", "--compress", "zstd"]);
}

/// A sample that was left out stays out, also if it was the only one of its shard.
#[test]
fn a_dataset_that_has_only_its_index_gets_all_shards_again() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    let more = ["--shard-size", "4KiB", "--format", "raw", "--on-bad", "skip"];
    well(&source, &out, &more);
    let whole = tree(&out);
    let shards = Dataset::open(&out).unwrap().samples_by_shard();
    assert!(shards.iter().any(Vec::is_empty));
    (0..shards.len()).for_each(|n| fs::remove_file(out.join(shard_name(u32::try_from(n).unwrap()))).unwrap());
    let found = well(&source, &out, &more);
    assert_eq!(found["parts"][0]["made_again"].as_array().unwrap().len(), shards.len());
    assert!(tree(&out) == whole);
}

#[test]
fn a_shard_that_would_become_another_stays_missing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    let more = ["--shard-size", "12KiB"];
    well(&source, &out, &more);
    let whole = tree(&out);
    let dataset = Dataset::open(&out).unwrap();
    let shards = dataset.samples_by_shard();
    for shard in 0..3 {
        fs::remove_file(dataset.shard_path(ShardId(shard))).unwrap();
    }
    let lost = tree(&out);
    let [changed, gone] = [0, 1].map(|shard: usize| dataset.path_text(shards[shard][0].0));
    let original = fs::read(source.join(&changed)).unwrap();
    let mut bytes = original.clone();
    bytes[50] ^= 1;
    fs::write(source.join(&changed), &bytes).unwrap();
    fs::rename(source.join(&gone), temp.path().join("gone")).unwrap();
    // A new class and a new sample: other labels, other ids.
    write(&source.join("aardvark/1.png"), &noise(1, 800));

    // With other options even the third becomes another.
    let output = created(&source, &out, &["--format", "raw", "--exclude", "more"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(tree(&out) == lost, "a shard was made with other options");

    let output = created(&source, &out, &more);
    let text = stderr_of(&output);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let path = |shard| dataset.shard_path(ShardId(shard)).display().to_string();
    assert!(text.contains(&format!("{}: {changed} has other bytes now", path(0))), "{text}");
    assert!(text.contains(&format!("{}: {gone} is not in the source", path(1))), "{text}");
    assert!(text.contains("2 missing shards cannot be made again from this source, 1 were"), "{text}");
    let mut expected = lost;
    expected.insert(shard_name(2), whole[&shard_name(2)].clone());
    assert!(tree(&out) == expected);

    fs::write(source.join(&changed), original).unwrap();
    fs::rename(temp.path().join("gone"), source.join(&gone)).unwrap();
    let output = created(&source, &out, &more);
    assert_eq!(output.status.code(), Some(5), "one was written to and is what it was: {output:?}");
    assert!(tree(&out) == whole, "what is new in the source is no obstacle");
    // Only now the new sample counts.
    let output = created(&source, &out, &more);
    assert!(output.status.code() == Some(2) && stderr_of(&output).contains("samples of the source are new"));
}

#[test]
fn shards_of_splits_are_made_again() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source.join("train"));
    images(&source.join("val"));
    fs::remove_dir_all(source.join("val/ant")).unwrap();
    let options = ["--shard-size", "30kB", "--cls"];
    let more = [&options[..], &["--splits", "train,val"]].concat();
    well(&source, &out, &more);
    let whole = tree(&out);
    let remove =
        || ["train", "val"].map(|split| fs::remove_file(out.join(split).join(shard_name(1))).unwrap());
    remove();
    let found = well(&source, &out, &more);
    for (part, split) in ["train", "val"].iter().enumerate() {
        let path = out.join(split).join(shard_name(1));
        assert_eq!(found["parts"][part]["made_again"], serde_json::json!([path]), "{found:#}");
    }
    assert!(tree(&out) == whole);
    // As `verify` says it, which knows of one split.
    remove();
    for split in ["train", "val"] {
        let text = run_well(&[&"create", &source.join(split), &out.join(split), &"--cls", &"-q"]);
        assert!(text.contains("was missing, and was made again as it was"), "{text}");
    }
    assert!(tree(&out) == whole, "the labels are those of the dataset");
}

#[test]
fn the_same_command_goes_on_after_a_kill() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..400u64 {
        write(&source.join(format!("{}/{number:03}.png", number % 4)), &noise(number, 3000));
    }
    let more = ["--shard-size", "4KiB", "--jobs", "1", "--in-flight", "1"];
    well(&source, &out, &more);
    let whole = tree(&out);
    // The packer may be faster than the kill: then it begins again.
    loop {
        (0..300).for_each(|number| fs::remove_file(out.join(shard_name(number))).unwrap());
        let mut child = create(&source, &out, &more).stdout(Stdio::null()).spawn().unwrap();
        while !out.join(shard_name(5)).exists() {
            assert!(child.try_wait().unwrap().is_none());
        }
        child.kill().unwrap();
        if !child.wait().unwrap().success() {
            break;
        }
    }
    assert!(!out.join(shard_name(299)).exists() && names(&out).iter().any(|name| name == "dataset.changing"));
    let made = states(&out);
    let found = well(&source, &out, &more);
    assert!(found["parts"][0]["made_again"].as_array().unwrap().len() < 300, "{found:#}");
    assert!(tree(&out) == whole);
    let now = states(&out);
    assert!(made.iter().filter(|(name, _)| name.ends_with(".tar")).all(|(name, state)| now[name] == *state));
}

#[test]
fn what_else_is_in_the_folder_stays() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    well(&source, &out, &[]);
    let shard = out.join(shard_name(0));
    fs::rename(&shard, out.join("damaged.tar")).unwrap();
    write(&out.join("mine/shard-000000.tar"), b"mine");
    let kept = states(&out);
    let before = fs::metadata(out.join("damaged.tar")).unwrap().len();
    well(&source, &out, &[]);
    let mut now = states(&out);
    assert!(now.remove(&shard_name(0)).is_some() && now == kept);
    assert_eq!(fs::metadata(&shard).unwrap().len(), before);
    // A link that leads nowhere is the user's, too.
    fs::remove_file(&shard).unwrap();
    std::os::unix::fs::symlink("elsewhere.tar", &shard).unwrap();
    let found = well(&source, &out, &[]);
    assert_eq!(found["unchanged"], true);
    assert!(fs::symlink_metadata(&shard).unwrap().is_symlink());
}

#[test]
fn a_dataset_that_another_command_changes_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    images(&source);
    well(&source, &out, &[]);
    // The claim of a process of another machine.
    fs::write(out.join("dataset.changing"), "another-boot\n\n1\n1\n").unwrap();
    assert_eq!(well(&source, &out, &[])["unchanged"], true, "there is nothing to change");
    fs::remove_file(out.join(shard_name(0))).unwrap();
    let before = tree(&out);
    let output = created(&source, &out, &[]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(stderr_of(&output).contains("another command is changing"), "{output:?}");
    assert!(tree(&out) == before);
}

#[test]
fn the_copy_of_an_index_in_a_bucket_gets_no_shards() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("photos"), temp.path().join("out"));
    images(&source);
    run_well(&[&"create", &source, &out, &"-q"]);
    for name in names(&out).iter().filter(|name| name.ends_with(".tar")) {
        fs::remove_file(out.join(name)).unwrap();
    }
    // As the folder in the user's cache is whose name the error of a record once had.
    fs::write(out.join("origin"), "shade-origin 1\ns3://bucket/train\n").unwrap();
    let before = tree(&out);
    let merged = temp.path().join("merged");
    let commands: [&[&dyn AsRef<std::ffi::OsStr>]; 4] = [
        &[&"create", &source, &out],
        &[&"append", &source, &out],
        &[&"merge", &merged, &out],
        &[&"subset", &out, &merged, &"--fraction", &"1"],
    ];
    for args in commands {
        let output = run(args);
        let text = stderr_of(&output);
        assert!(
            output.status.code() == Some(2) && text.contains("s3://bucket/train: give that address"),
            "{text}"
        );
    }
    assert!(tree(&out) == before && !merged.exists());
}

#[test]
fn an_index_of_tars_that_are_called_as_shards_are_has_none_to_make_again() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    tars(&at("set"));
    fs::rename(at("set").join("part0.tar"), at("set").join(shard_name(0))).unwrap();
    run_well(&[&"index", &at("set"), &at("index"), &"-q"]);
    fs::rename(at("set").join(shard_name(0)), at("set").join("part0.tar")).unwrap();
    let before = tree(temp.path());
    let output = run(&[&"create", &at("set"), &at("index"), &"-q"]);
    assert!(output.status.code() == Some(2) && stderr_of(&output).contains("exists"), "{output:?}");
    assert!(tree(temp.path()) == before);
}
