//! `--pair`: every image has the file of its name in the other folder, through all commands.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::SystemTime;

use crate::support::{halt, names, noise, program, stderr_of, tree, write};
use proptest::prelude::*;
use rustix::process::{Pid, Signal, kill_process};
use shade_formats::SampleId;
use shade_formats::checksum::crc32c;
use shade_formats::index::FieldEnd;
use shade_formats::shard::parse_fields;
use shade_pack::dataset::Dataset;

fn command(name: &str, paths: &[&Path], more: &[&str]) -> Command {
    let mut command = program(&[&name]);
    command.args(paths).args(more).arg("-q").stdin(Stdio::null());
    command
}

fn create(source: &Path, out: &Path, more: &[&str]) -> Output {
    command("create", &[source, out], more).output().unwrap()
}

#[track_caller]
fn well(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn refused(output: &Output, code: i32, parts: &[&str]) {
    let text = stderr_of(output);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    for part in parts {
        assert!(text.contains(part), "{part} in: {text}");
    }
}

/// `--pair NAME=...` as an argument.
fn pair(name: &str, folder: &Path, files: &str) -> String {
    format!("{name}={}{files}", folder.display())
}

/// Bytes of fields, by name.
type Fields = BTreeMap<String, Vec<u8>>;

/// Image and fields of each sample, by path.
fn samples(dataset: &Path) -> BTreeMap<String, (Vec<u8>, Fields)> {
    let dataset = Dataset::open(dataset).unwrap();
    let sample = |id| {
        let entry = dataset.index.entry(id).unwrap();
        let shard = fs::read(dataset.shard_path(entry.shard)).unwrap();
        let at = |offset: u64, len: u64| {
            let start = usize::try_from(offset).unwrap();
            &shard[start..start + usize::try_from(len).unwrap()]
        };
        let image = at(entry.offset, entry.stored_len.into()).to_vec();
        let mut fields = Fields::new();
        if let Some(span) = dataset.index.fields(id) {
            let bytes = at(span.offset, span.len);
            assert_eq!(Some(crc32c(bytes)), span.crc32c);
            let parsed = parse_fields(bytes, dataset.index.key(id), span.offset).unwrap();
            let ends: Vec<FieldEnd<'_>> = dataset.index.field_ends(id).collect();
            assert_eq!(ends.len(), parsed.len(), "each field's end is known");
            for (field, end) in parsed.iter().zip(ends) {
                assert_eq!(field.name, end.name);
                assert_eq!(crc32c(&bytes[..end.up_to.blocks as usize * 512]), end.up_to.crc32c);
                fields.insert(field.name.to_owned(), field.bytes.to_vec());
            }
            assert!(parsed.is_sorted_by_key(|field| field.bytes.len()), "the large ones last");
        }
        (dataset.path_text(id), (image, fields))
    };
    (0..dataset.index.len()).map(SampleId).map(sample).collect()
}

/// Images and masks whose bytes begin with one name.
fn written(images: &Path, masks: &Path, stems: &[&str], ending: &str) {
    for stem in stems {
        write(&images.join(format!("{stem}.jpg")), &[stem.as_bytes(), &noise(1, 400)].concat());
        write(&masks.join(format!("{stem}{ending}")), &[stem.as_bytes(), &noise(2, 90)].concat());
    }
}

#[track_caller]
fn assert_paired(dataset: &Path, count: usize, name: &str) {
    let found = samples(dataset);
    assert_eq!(found.len(), count);
    for (path, (image, fields)) in found {
        let stem = path.strip_suffix(".jpg").unwrap().as_bytes();
        assert!(image.starts_with(stem), "{path}");
        assert_eq!(fields.keys().collect::<Vec<_>>(), [name], "{path}");
        let mask = &fields[name];
        assert!(mask.starts_with(stem) && mask[stem.len()..] == noise(2, 90), "{path}");
    }
}

const STEMS: [&str; 6] = ["1", "b.2", "a/1", "a/1.x", "a-b/1", "z/y/\u{fc}"];

#[test]
fn folders_become_a_dataset_and_folders_again() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    for (round, ending) in [".png", "_mask.gif", "_mask"].iter().enumerate() {
        let [images, masks, out, back, again] =
            ["images", "masks", "out", "back", "again"].map(|name| at(&format!("{round} {name}")));
        written(&images, &masks, &STEMS, ending);
        let files = if ending.starts_with('_') { format!("/*{ending}") } else { String::new() };
        let masks_arg = pair("masks", &masks, &files);
        let report = well(&create(&images, &out, &["--pair", &masks_arg, "--shard-size", "4KiB"]));
        assert!(report.contains("6 samples of 1 classes"), "{report}");
        assert_paired(&out, STEMS.len(), "masks");
        let info = well(&program(&[&"info", &out]).output().unwrap());
        assert!(info.contains("pair        masks from files called *"), "{info}");
        well(&command("verify", &[&out], &[]).output().unwrap());
        well(&command("diff", &[&images, &out], &["--pair", &masks_arg]).output().unwrap());
        well(&command("extract", &[&out, &back], &[]).output().unwrap());
        assert_eq!(names(&back), ["images", "masks"]);
        assert!(tree(&back.join("images")) == tree(&images) && tree(&back.join("masks")) == tree(&masks));
        let masks_arg = pair("masks", &back.join("masks"), &files);
        well(&create(&back.join("images"), &again, &["--pair", &masks_arg, "--shard-size", "4KiB"]));
        let times = "dataset.times";
        let [mut one, mut other] = [tree(&out), tree(&again)];
        assert!(one.remove(times).is_some() && other.remove(times).is_some() && one == other);
    }
}

#[test]
fn images_and_masks_may_lie_in_one_folder() {
    let temp = tempfile::tempdir().unwrap();
    let [source, out] = ["scans", "out"].map(|name| temp.path().join(name));
    written(&source, &source, &STEMS, "_mask.jpg");
    let masks_arg = pair("masks", &source, "/*_mask.jpg");
    let report = well(&create(&source, &out, &["--pair", &masks_arg, "--exclude", "*_mask.jpg"]));
    assert!(!report.contains("have no image"), "{report}");
    assert_paired(&out, STEMS.len(), "masks");
}

#[test]
fn several_pairs_classes_splits_and_parts() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    for split in ["train", "val"] {
        let stems = ["ant/1", "bee/2", "bee/3"];
        written(&at("images").join(split), &at("masks").join(split), &stems, "_m.png");
        written(&at("unused"), &at("boxes").join(split), &stems, ".json");
    }
    let (masks, boxes) = (pair("masks", &at("masks"), "/*_m.png"), pair("boxes", &at("boxes"), ""));
    let more = ["--splits", "train,val", "--labels", "folders", "--shard-size", "4KiB"];
    let [one, other] = [[&masks, &boxes], [&boxes, &masks]]
        .map(|pairs| ["--pair", pairs[0], "--pair", pairs[1]].into_iter().chain(more).collect::<Vec<&str>>());
    well(&create(&at("images"), &at("out"), &one));
    for split in ["train", "val"] {
        let out = at("out").join(split);
        assert_eq!(Dataset::open(&out).unwrap().index.class_count(), 2);
        for (path, (_, fields)) in samples(&out) {
            let stem = path.strip_suffix(".jpg").unwrap().as_bytes();
            assert_eq!(fields.keys().collect::<Vec<_>>(), ["boxes", "masks"]);
            assert!(fields.values().all(|field| field.starts_with(stem)), "{path}");
        }
    }
    // The order of options does not count, and parts make the same.
    well(&create(&at("images"), &at("other"), &other));
    well(&command("plan", &[&at("images"), &at("parts")], &one).output().unwrap());
    for part in ["0/2", "1/2"] {
        well(&create(&at("images"), &at("parts"), &["--part", part]));
    }
    well(&command("finish", &[&at("parts")], &[]).output().unwrap());
    assert!(tree(&at("other")) == tree(&at("out")) && tree(&at("parts")) == tree(&at("out")));
    let mut list = command("list", &[&at("images"), &at("listed")], &["--part", "0/2", "--pair", &masks]);
    refused(&list.output().unwrap(), 2, &["pairs cannot be listed in parts"]);
}

#[test]
fn what_has_no_partner_is_told() {
    let temp = tempfile::tempdir().unwrap();
    let [images, masks, out] = ["images", "masks", "out"].map(|name| temp.path().join(name));
    written(&images, &masks, &["a/1", "a/2", "b/1"], ".png");
    let masks_arg = pair("masks", &masks, "");
    let try_it = |more: &[&str]| create(&images, &out, &[&["--pair", &masks_arg], more].concat());
    // Files of other extensions are no partners, and need no image.
    write(&masks.join("Thumbs.db"), b"x");
    write(&masks.join("a/more.png"), b"x");
    let report = well(&try_it(&["--dry-run"]));
    assert!(report.contains("note: 1 files of the pair 'masks' have no image"), "{report}");
    assert!(report.contains("a/more.png") && !report.contains("Thumbs.db"), "{report}");
    well(&try_it(&["--dry-run", "--exclude", "more.png"]));

    write(&images.join("a/3.jpg"), b"x");
    write(&images.join("a/4.jpg"), b"x");
    fs::create_dir(masks.join("a/4.png")).unwrap();
    write(&images.join("a/5.jpg"), b"x");
    write(&masks.join("a/5.png"), b"");
    write(&images.join("b/1.png"), b"x");
    symlink("nowhere", masks.join("b/2.png")).unwrap();
    write(&images.join("b/2.jpg"), b"x");
    symlink(masks.join("a/1.png"), masks.join("b/3.png")).unwrap();
    write(&images.join("b/3.jpg"), b"x");
    refused(&try_it(&[]), 1, &["a/3.jpg", "has no masks", "masks/a/3.png is not there", "--on-bad"]);
    let list = try_it(&["--on-bad", "list"]);
    let parts = ["a/4.png: is not a regular file", "a/5.png: an empty file", "masks/b/2.png is not there"];
    refused(&list, 1, &parts);
    refused(&list, 1, &["b/1.jpg: b/1.png has its name, too", "b/1.png: b/1.jpg has its name, too"]);
    assert!(!out.exists());
    let skipped = try_it(&["--on-bad", "skip"]);
    assert_eq!(skipped.status.code(), Some(4), "{skipped:?}");
    assert_eq!(samples(&out).keys().collect::<Vec<_>>(), ["a/1.jpg", "a/2.jpg", "b/3.jpg"]);
    assert_eq!(samples(&out)["b/3.jpg"].1["masks"], fs::read(masks.join("a/1.png")).unwrap());
}

#[test]
fn a_pair_that_cannot_be_meant_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    written(&at("images"), &at("masks"), &["a/1", "a/2"], "_mask.gif");
    let try_it = |more: &[&str]| create(&at("images"), &at("out"), more);
    let no_stars = pair("masks", &at("masks"), "");
    refused(
        &try_it(&["--pair", &no_stars]),
        1,
        &["none of its 2 files is called like an image", "a/1_mask.gif", "masks/*_mask.gif'"],
    );
    written(&at("images"), &at("both"), &["a/1"], ".png");
    written(&at("images"), &at("both"), &["a/1", "a/2"], ".gif");
    refused(
        &try_it(&["--pair", &pair("masks", &at("both"), "")]),
        1,
        &["two extensions", "a/1.gif and a/1.png", "both/*.png'"],
    );
    well(&try_it(&["--pair", &pair("masks", &at("both"), "/*.gif"), "--dry-run"]));
    let stars = pair("masks", &at("masks"), "/*_mask.gif");
    for (more, parts) in [
        (&["--pair", "masks"][..], &["NAME=FOLDER"][..]),
        (&["--pair", "cls=x"], &["'cls' cannot name a field"]),
        (&["--pair", "images=x"], &["'images' cannot name a field"]),
        (&["--pair", &stars, "--pair", &stars], &["'masks' is given twice"]),
        (&["--pair", &stars, "--labels", "txt"], &["--labels txt"]),
        (&["--pair", &stars, "--from", "list"], &["--pair: SOURCE must be a folder of images"]),
        (&["--pair", &stars, "--part", "0/2"], &["--part"]),
    ] {
        refused(&try_it(more), 2, parts);
    }
    refused(&try_it(&["--pair", &pair("masks", &at("gone"), "")]), 1, &["gone"]);
    let inside = create(&at("images"), &at("masks/out"), &["--pair", &stars]);
    refused(&inside, 2, &["lies inside"]);
    // The names of fields and images must differ in a shard.
    refused(&try_it(&["--pair", &pair("jpg", &at("masks"), "/*_mask.gif")]), 1, &["like its image"]);
    // What people try first.
    let flat = create(&at("images/a"), &at("out"), &[]);
    refused(&flat, 1, &["couldn't find any class folder", "--pair masks=FOLDER"]);
    fs::create_dir(at("set")).unwrap();
    fs::rename(at("images"), at("set/imgs")).unwrap();
    written(&at("unused"), &at("set/masks"), &["1"], ".png");
    let report = well(&create(&at("set"), &at("out"), &["--dry-run"]));
    assert!(report.contains("folders called imgs,masks became classes"), "{report}");
    assert!(report.contains(&format!("--pair masks={}", at("set/masks").display())), "{report}");
}

#[test]
fn append_diff_and_create_know_the_files_of_pairs() {
    let temp = tempfile::tempdir().unwrap();
    let [images, masks, out] = ["images", "masks", "out"].map(|name| temp.path().join(name));
    written(&images, &masks, &["1", "2"], ".png");
    let masks_arg = pair("masks", &masks, "");
    let with = ["--pair", &masks_arg];
    let run = |name: &str, more: &[&str]| command(name, &[&images, &out], more).output().unwrap();
    well(&run("create", &with));
    assert!(well(&run("create", &with)).contains("nothing was written"));
    written(&images, &masks, &["3"], ".png");
    refused(&run("append", &["--labels", "none"]), 2, &["--pair masks=FOLDER"]);
    assert!(well(&run("append", &with)).contains("1 samples in 1 shards appended"));
    assert_paired(&out, 3, "masks");
    well(&run("diff", &with));
    fs::remove_file(out.join("shard-000001.tar")).unwrap();
    assert!(well(&run("create", &with)).contains("was missing, and was made again"));
    assert_paired(&out, 3, "masks");
    // A mask of other bytes, of another time, of another length.
    fs::write(masks.join("2.png"), [b"2".as_slice(), &noise(3, 90)].concat()).unwrap();
    let differs = run("diff", &with);
    assert_eq!(differs.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&differs.stdout).contains("~ 2.jpg: the content of its masks differs"));
    let touched = run("append", &with);
    assert_eq!(touched.status.code(), Some(5), "{touched:?}");
    assert!(String::from_utf8_lossy(&touched.stdout).contains("2.jpg"), "{touched:?}");
    fs::write(masks.join("2.png"), b"short").unwrap();
    refused(&run("create", &with), 2, &["2.jpg", "exists"]);
    // Labels are not lost without a word.
    let labelled = temp.path().join("labelled");
    written(&temp.path().join("by class"), &temp.path().join("by class masks"), &["ant/1"], ".png");
    let classes = temp.path().join("by class");
    let arg = pair("masks", &temp.path().join("by class masks"), "");
    well(&create(&classes, &labelled, &["--pair", &arg, "--labels", "folders"]));
    written(&classes, &temp.path().join("by class masks"), &["bee/2"], ".png");
    let append = |more: &[&str]| command("append", &[&classes, &labelled], more).output().unwrap();
    refused(&append(&["--pair", &arg, "--exclude", "ant"]), 2, &["has labels", "--labels folders"]);
    well(&append(&["--pair", &arg, "--labels", "folders"]));
}

const SMALL: [&str; 6] = ["--shard-size", "8KiB", "--jobs", "1", "--in-flight", "1"];

/// A run that has completed some shards and is halted.
fn halted(mut command: Command, parent: &Path) -> Child {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    loop {
        let folder = names(parent).into_iter().find(|name| name.starts_with("out.part-"));
        let inside = folder.map(|name| names(&parent.join(name))).unwrap_or_default();
        if inside.iter().filter(|name| name.ends_with(".done")).count() > 3 {
            halt(&child);
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be halted");
    }
}

fn many(temp: &Path) -> [PathBuf; 3] {
    let [images, masks, out] = ["images", "masks", "out"].map(|name| temp.join(name));
    let stems: Vec<String> = (0..400).map(|n| format!("{}/{n:03}", n % 5)).collect();
    written(&images, &masks, &stems.iter().map(String::as_str).collect::<Vec<_>>(), "_m.png");
    [images, masks, out]
}

#[test]
fn a_mask_that_is_written_to_meanwhile_is_bad() {
    let temp = tempfile::tempdir().unwrap();
    let [images, masks, out] = many(temp.path());
    let masks_arg = pair("masks", &masks, "/*_m.png");
    let more = [&["--pair", &masks_arg, "--no-shuffle", "--on-bad", "skip"][..], &SMALL].concat();
    let child = halted(command("create", &[&images, &out], &more), temp.path());
    // Behind all that was read: the last of its length, the one before it of another.
    let file = |name: &str| File::options().write(true).open(masks.join(name)).unwrap();
    file("4/399_m.png").write_all_at(b"X", 0).unwrap();
    file("4/394_m.png").write_all_at(&[7; 600], 0).unwrap();
    kill_process(Pid::from_child(&child), Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert_paired(&out, 398, "masks");
    let found = samples(&out);
    assert!(!found.contains_key("4/394.jpg") && !found.contains_key("4/399.jpg"));
}

#[test]
fn killed_work_goes_on_unless_a_mask_has_changed() {
    let temp = tempfile::tempdir().unwrap();
    let [images, masks, out] = many(temp.path());
    let masks_arg = pair("masks", &masks, "/*_m.png");
    let more = [&["--pair", &masks_arg][..], &SMALL].concat();
    let calm = temp.path().join("calm");
    well(&create(&images, &calm, &more));
    for _ in 0..2 {
        let mut child = halted(command("create", &[&images, &out], &more), temp.path());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    // Other files beside the images, by names or by times, are other work.
    let other = pair("other", &masks, "/*_m.png");
    refused(&create(&images, &out, &[&["--pair", &other][..], &SMALL].concat()), 2, &["--restart"]);
    let mask = File::options().write(true).open(masks.join("0/000_m.png")).unwrap();
    let time = mask.metadata().unwrap().modified().unwrap();
    mask.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    refused(&create(&images, &out, &more), 2, &["--restart"]);
    mask.set_modified(time).unwrap();
    well(&create(&images, &out, &more));
    assert!(tree(&out) == tree(&calm));
    assert_paired(&out, 400, "masks");
    assert_eq!(names(temp.path()), ["calm", "images", "masks", "out"]);
}

/// Where an image and a mask of a name may lie, and how they may be called.
const PLACES: [&str; 6] = ["a.jpg", "a.png", "b.jpg", "x/a.jpg", "x/b.c.jpg", "x/.jpg"];
const FILES: [&str; 6] = ["a_m.png", "a_m.gif", "b_m.png", "x/a_m.png", "x/b.c_m.png", "x/.jpg_m.png"];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What is packed, left out and told follows from the names alone.
    #[test]
    fn names_alone_say_what_belongs_together(
        images in proptest::sample::subsequence(PLACES.to_vec(), 1..=PLACES.len()),
        masks in proptest::sample::subsequence(FILES.to_vec(), 1..=FILES.len()),
    ) {
        let temp = tempfile::tempdir().unwrap();
        let [source, below, out] = ["images", "masks", "out"].map(|name| temp.path().join(name));
        images.iter().for_each(|path| write(&source.join(path), path.as_bytes()));
        masks.iter().for_each(|path| write(&below.join(path), path.as_bytes()));
        let output = create(&source, &out, &["--pair", &pair("m", &below, "/*_m.png"), "--on-bad", "skip"]);
        let stem = |path: &str| match path {
            "x/.jpg" => path.to_owned(),
            _ => path.rsplit_once('.').unwrap().0.to_owned(),
        };
        let stems: Vec<String> = images.iter().map(|path| stem(path)).collect();
        let expected: BTreeMap<String, String> = images.iter().zip(&stems)
            .filter(|(_, stem)| stems.iter().filter(|other| other == stem).count() == 1)
            .map(|(path, stem)| ((*path).to_owned(), format!("{stem}_m.png")))
            .filter(|(_, mask)| masks.contains(&mask.as_str()))
            .collect();
        let strangers: BTreeSet<&str> = masks.iter().copied()
            .filter(|mask| mask.strip_suffix("_m.png").is_some_and(|stem| !stems.contains(&stem.to_owned())))
            .collect();
        if expected.is_empty() {
            prop_assert_eq!(output.status.code(), Some(1), "{:?}", output);
            prop_assert!(!out.exists());
            return Ok(());
        }
        let code = if expected.len() == images.len() { 0 } else { 4 };
        prop_assert_eq!(output.status.code(), Some(code), "{:?}", output);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let note = format!("{} files of the pair 'm' have no image", strangers.len());
        prop_assert_eq!(told.contains(&note), !strangers.is_empty(), "{}", told);
        let found: BTreeMap<String, String> = samples(&out).into_iter()
            .map(|(path, (image, fields))| {
                assert_eq!(image, path.as_bytes());
                (path, String::from_utf8(fields["m"].clone()).unwrap())
            })
            .collect();
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn a_file_whose_name_is_no_text_belongs_to_no_image() {
    let temp = tempfile::tempdir().unwrap();
    let [images, masks, out] = ["images", "masks", "out"].map(|name| temp.path().join(name));
    written(&images, &masks, &["1"], ".png");
    fs::write(masks.join(OsStr::from_bytes(b"\xff.png")), b"x").unwrap();
    well(&create(&images, &out, &["--pair", &pair("masks", &masks, "")]));
    assert_paired(&out, 1, "masks");
}
