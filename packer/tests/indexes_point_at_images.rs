//! An index points at images where they are: every command reads it as it reads a packed dataset,
//! or says what to do instead.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use shade_formats::SampleId;
use shade_formats::index::{FieldPlace, PlacesKind};
use shade_pack::dataset::Dataset;

use crate::support::{
    names, noise, picture, run, run_well, stderr_of, tar_of, torchvision_order, tree, varied_image_folder,
    write,
};

struct Rig {
    temp: tempfile::TempDir,
}

impl Rig {
    fn new() -> Self {
        Self { temp: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Tars with fields before and behind the records, and long names in two forms.
    fn tars(&self) -> PathBuf {
        let source = self.path("tars");
        fs::create_dir(&source).unwrap();
        for tar in 0..2u32 {
            let mut builder = tar::Builder::new(File::create(source.join(format!("t{tar}.tar"))).unwrap());
            let mut add = |name: &str, bytes: &[u8]| {
                let mut header = tar::Header::new_gnu();
                header.set_size(bytes.len() as u64);
                header.set_mode(0o644);
                builder.append_data(&mut header, name, bytes).unwrap();
            };
            for sample in 0..5u32 {
                // Beyond ustar's 100 bytes for some.
                let key = if sample == 3 { format!("{}/3", "folder".repeat(20)) } else { sample.to_string() };
                let number = tar * 5 + sample;
                let before = sample % 2 == 0;
                if before {
                    add(&format!("{key}.json"), format!("{{\"n\":{number}}}").as_bytes());
                }
                add(&format!("{key}.ppm"), &picture(number.into(), 20 + number, 10));
                add(&format!("{key}.cls"), (sample % 2).to_string().as_bytes());
                if !before {
                    add(&format!("{key}.json"), format!("{{\"n\":{number}}}").as_bytes());
                }
                if sample != 1 {
                    add(&format!("{key}.mask.png"), &noise(number.into(), 700 * sample as usize));
                }
            }
            builder.finish().unwrap();
        }
        source
    }
}

/// A TIFF as libtiff writes it: its directory lies behind this many bytes of pixels.
fn tiff(width: u16, height: u16, pixels: usize) -> Vec<u8> {
    let directory = u32::try_from(8 + pixels).unwrap();
    let mut bytes = b"II\x2a\0".to_vec();
    bytes.extend(directory.to_le_bytes());
    bytes.extend(noise(pixels as u64, pixels));
    let entries = [(254u16, 0u16), (256, width), (257, height)];
    bytes.extend(3u16.to_le_bytes());
    for (tag, value) in entries {
        // One value of 16 bits.
        for part in [tag, 3, 1, 0, value, 0] {
            bytes.extend(part.to_le_bytes());
        }
    }
    bytes.extend(0u32.to_le_bytes());
    bytes
}

/// What is there of each sample: path, label, width, height, media.
fn listed(dataset: &Path) -> Vec<(String, u32, u16, u16, String)> {
    let dataset = Dataset::open(dataset).unwrap();
    let of = |id| {
        let entry = dataset.index.entry(id).unwrap();
        (dataset.path_text(id), entry.label, entry.width, entry.height, entry.media.name().to_owned())
    };
    (0..dataset.index.len()).map(SampleId).map(of).collect()
}

/// Packs and indexes, and expects the same of both, with their fields.
fn assert_like_packed(rig: &Rig, source: &Path, kind: PlacesKind, more: &[&str]) {
    let before = tree(source);
    let (packed, index) = (rig.path("packed"), rig.path("index"));
    let [create, point] = ["create", "index"].map(|command| {
        let mut args = vec![command.to_owned(), "-q".to_owned()];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    });
    let args = |args: &[String], out: &Path| {
        let all: Vec<std::ffi::OsString> =
            args.iter().map(Into::into).chain([source.into(), out.into()]).collect();
        let all: Vec<&dyn AsRef<std::ffi::OsStr>> =
            all.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>).collect();
        run_well(&all)
    };
    args(&create, &packed);
    let told = args(&point, &index);
    assert!(told.contains("stay where they are") && told.contains("no checksums"), "{told}");
    assert_eq!(names(&index), ["dataset.shade"], "nothing else is written");
    assert_eq!(listed(&index), listed(&packed));
    let dataset = Dataset::open(&index).unwrap();
    assert_eq!(dataset.index.places().unwrap().kind, kind);
    assert!(!dataset.index.has_checksums());
    let classes = |dataset: &Dataset| {
        (0..).map_while(|label| dataset.index.class_name(label)).map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    assert_eq!(classes(&dataset), classes(&Dataset::open(&packed).unwrap()));
    for (of, back) in [(&packed, "back-packed"), (&index, "back")] {
        run_well(&[&"extract", of, &rig.path(back), &"-q"]);
    }
    assert!(tree(&rig.path("back")) == tree(&rig.path("back-packed")), "bytes, fields too");
    let whole = run_well(&[&"verify", &index, &"-q"]);
    assert!(whole.contains("are whole") && whole.contains("were only read"), "{whole}");
    args(&[vec!["diff".to_owned()], point[1..].to_vec()].concat(), &index);
    let long = run_well(&[&"ls", &"-l", &index]);
    assert_eq!(long.lines().count(), dataset.index.len() as usize);
    assert!(run_well(&[&"info", &index]).contains("in place"), "it says what it is");

    let checked = rig.path("checked");
    let mut with = point.clone();
    with.push("--checksums".to_owned());
    assert!(!args(&with, &checked).contains("no checksums"));
    let of = Dataset::open(&checked).unwrap();
    assert!(of.index.has_checksums() && of.index.content_id() != dataset.index.content_id());
    assert!(!run_well(&[&"verify", &checked, &"-q"]).contains("only read"));
    assert_eq!(listed(&checked), listed(&packed));
    assert!(tree(source) == before, "a source is only read");
}

#[test]
fn an_image_folder_is_what_it_would_be_packed() {
    let rig = Rig::new();
    let source = rig.path("images");
    varied_image_folder(&source);
    assert_like_packed(&rig, &source, PlacesKind::Files, &[]);
    let listed: Vec<(String, u32)> =
        listed(&rig.path("index")).into_iter().map(|(path, label, ..)| (path, label)).collect();
    assert_eq!(listed, torchvision_order(&source));
}

#[test]
fn a_tiff_whose_directory_lies_behind_its_pixels_has_its_size() {
    // Behind what is read first, across its end, and behind the most that is read of other kinds.
    let images = [tiff(120, 80, 30_000), tiff(90, 61, (16 << 10) - 20), tiff(300, 333, 300_000)];
    let expected: [(u16, u16); 3] = [(120, 80), (90, 61), (300, 333)];
    for kind in [PlacesKind::Files, PlacesKind::Tars] {
        let rig = Rig::new();
        let source = rig.path("source");
        if kind == PlacesKind::Files {
            for (number, image) in images.iter().enumerate() {
                write(&source.join(format!("cat/{number}.tif")), image);
            }
        } else {
            let of = |(number, image): (usize, &Vec<u8>)| {
                [(format!("{number}.tif"), image.clone()), (format!("{number}.cls"), b"0".to_vec())]
            };
            let members: Vec<(String, Vec<u8>)> = images.iter().enumerate().flat_map(of).collect();
            let members: Vec<(&str, &[u8])> =
                members.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
            tar_of(&source.join("a.tar"), &members);
        }
        assert_like_packed(&rig, &source, kind, &[]);
        let found: Vec<(u16, u16)> =
            listed(&rig.path("index")).into_iter().map(|(.., width, height, _)| (width, height)).collect();
        assert_eq!(found, expected, "{kind:?}");
    }
}

#[test]
fn images_without_labels_and_files_left_out_too() {
    let rig = Rig::new();
    let source = rig.path("flat");
    for number in 0..7 {
        write(&source.join(format!("{number}.ppm")), &picture(number, 9, 8));
    }
    assert_like_packed(&rig, &source, PlacesKind::Files, &["--labels", "none", "--exclude", "3.*"]);
    assert_eq!(listed(&rig.path("index")).len(), 6);
}

#[test]
fn tars_are_what_they_would_be_packed_with_their_fields() {
    let rig = Rig::new();
    let source = rig.tars();
    assert_like_packed(&rig, &source, PlacesKind::Tars, &[]);
    let dataset = Dataset::open(&rig.path("checked")).unwrap();
    let places: Vec<FieldPlace<'_>> = dataset.index.field_places(SampleId(0), None).collect();
    assert_eq!(places.iter().map(|place| place.name).collect::<Vec<_>>(), ["json", "mask.png"]);
    assert!(places.iter().all(|place| place.crc32c.is_some()));
    assert!(places[0].offset < dataset.index.entry(SampleId(0)).unwrap().offset, "before its record");
}

#[test]
fn a_damaged_file_is_found_by_its_checksum_and_a_changed_one_by_its_time() {
    let rig = Rig::new();
    let (source, index) = (rig.path("images"), rig.path("index"));
    for number in 0..4 {
        write(&source.join(format!("cat/{number}.ppm")), &picture(number, 30, 20));
    }
    run_well(&[&"index", &source, &index, &"--checksums", &"-q"]);
    let victim = source.join("cat/2.ppm");
    let time = fs::metadata(&victim).unwrap().modified().unwrap();
    let mut bytes = fs::read(&victim).unwrap();
    bytes[100] ^= 1;
    let set =
        |time: SystemTime| File::options().write(true).open(&victim).unwrap().set_modified(time).unwrap();
    fs::write(&victim, &bytes).unwrap();
    // As a disk would damage it: neither length nor time tell.
    set(time);
    let damaged = run(&[&"verify", &index, &"-q"]);
    let text = String::from_utf8(damaged.stdout.clone()).unwrap();
    assert_eq!(damaged.status.code(), Some(3), "{damaged:?}");
    assert!(text.contains("cat/2.ppm") && text.contains("checksum mismatch"), "{text}");
    bytes[100] ^= 1;
    fs::write(&victim, &bytes).unwrap();
    set(time + Duration::from_secs(3));
    let changed = run(&[&"verify", &index, &"-q"]);
    let text = String::from_utf8(changed.stdout.clone()).unwrap();
    assert_eq!(changed.status.code(), Some(3), "{changed:?}");
    assert!(text.contains("cat/2.ppm") && text.contains("differs by 3.000 s"), "{text}");
    assert!(text.contains("make the index again"), "{text}");
}

#[test]
fn update_makes_it_again_only_if_a_folder_or_a_tar_was_changed() {
    let rig = Rig::new();
    let (source, index) = (rig.path("images"), rig.path("index"));
    for number in 0..3 {
        write(&source.join(format!("cat/deep/{number}.ppm")), &picture(number, 9, 8));
    }
    let old = SystemTime::now() - Duration::from_secs(100);
    let age = |folder: &Path| File::open(folder).unwrap().set_modified(old).unwrap();
    let age_all = || ["", "cat", "cat/deep"].iter().for_each(|folder| age(&source.join(folder)));
    let update = |more: &[&dyn AsRef<std::ffi::OsStr>]| {
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
            vec![&"index", &source, &index, &"--update", &"--no-probe", &"-q"];
        args.extend(more);
        run_well(&args)
    };
    age_all();
    assert!(update(&[]).contains("stay where they are"));
    let before = fs::read(index.join("dataset.shade")).unwrap();
    assert!(update(&[]).contains("nothing was written"));
    assert!(fs::read(index.join("dataset.shade")).unwrap() == before);
    write(&source.join("cat/deep/3.ppm"), &picture(3, 9, 8));
    let again = update(&[]);
    assert!(again.contains("4 samples") && again.contains("the folder") && again.contains("deep"), "{again}");
    // It was changed a moment ago: a file may have come since, within a tick of the clock.
    assert!(update(&[]).contains("made again"));
    age_all();
    assert!(update(&[]).contains("made again") && update(&[]).contains("nothing was written"));
    assert!(update(&[&"--exclude", &"0.*"]).contains("with other options"));

    // What cannot be read, by damage or by age, is made again, if no shard says that it was packed.
    let alone = index.join("dataset.shade");
    fs::write(&alone, b"damaged").unwrap();
    assert!(update(&[]).contains("made again"));
    fs::write(&alone, b"damaged").unwrap();
    write(&index.join("shard-000000.tar"), b"precious");
    let refused = run(&[&"index", &source, &index, &"--update", &"-q"]);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");

    let tars = rig.path("tars");
    let of_tars = rig.path("of-tars");
    let (name, image) = ("1.ppm", picture(1, 9, 8));
    tar_of(&tars.join("a.tar"), &[(name, &image), ("1.cls", b"0")]);
    age(&tars);
    let update = || run_well(&[&"index", &tars, &of_tars, &"--update", &"-q"]);
    assert!(update().contains("1 samples") && update().contains("nothing was written"));
    // What a file of labels says counts, and not only what it is called.
    let names = rig.path("names.json");
    let update =
        || run_well(&[&"index", &tars, &of_tars, &"--labels", &names, &"--update", &"--no-probe", &"-q"]);
    for classes in [r#"["zero"]"#, r#"["null"]"#] {
        fs::write(&names, classes).unwrap();
        assert!(
            update().contains("with other options") && update().contains("nothing was written"),
            "{classes}"
        );
    }
    let update = || run_well(&[&"index", &tars, &of_tars, &"--update", &"-q"]);
    assert!(update().contains("with other options"));
    tar_of(&tars.join("a.tar"), &[(name, &image), ("1.cls", b"1")]);
    assert!(update().contains("a.tar was changed"));
}

#[test]
fn what_it_cannot_be_or_do_is_said_with_what_to_do() {
    let rig = Rig::new();
    let (source, index) = (rig.path("images"), rig.path("index"));
    write(&source.join("cat/1.ppm"), &picture(1, 9, 8));
    write(&source.join("cat/page.jpg"), b"<html>");
    let told = run_well(&[&"index", &source, &index, &"-q"]);
    assert!(told.contains("cannot be decoded by trainers: 1 HTML"), "{told}");
    let refused = |args: &[&dyn AsRef<std::ffi::OsStr>], code: i32, say: &str| {
        let output = run(args);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(stderr_of(&output).contains(say), "{} does not say {say}", stderr_of(&output));
    };
    let new = rig.path("new");
    refused(&[&"index", &source, &index, &"-q"], 2, "exists");
    refused(&[&"index", &source, &source.join("inside"), &"-q"], 2, "lies inside");
    refused(&[&"merge", &new, &index, &index, &"-q"], 2, "in shards of its own");
    refused(&[&"subset", &index, &new, &"--fraction", &"0.5", &"-q"], 2, "Plan(indices=...)");
    refused(&[&"append", &source, &index, &"-q"], 2, "--update");
    write(&rig.path("list.csv"), b"path,label\nimages/cat/1.ppm,cat\n");
    refused(&[&"index", &rig.path("list.csv"), &new, &"-q"], 2, "shade-pack create");
    let pair = format!("masks={}", source.display());
    refused(&[&"index", &source.join("cat"), &new, &"--pair", &pair, &"-q"], 2, "--pair");
    write(&rig.path("gz/a.tar.gz"), b"\x1f\x8b");
    refused(&[&"index", &rig.path("gz"), &new, &"-q"], 1, "decompress");
    let packed = rig.path("packed");
    run_well(&[&"create", &source, &packed, &"-q"]);
    refused(&[&"index", &source, &packed, &"--update", &"-q"], 2, "a packed dataset");
    refused(&[&"create", &source, &index, &"-q"], 2, "exists");
    // Files that were bad when listed, and those that turn out so.
    write(&source.join("cat/empty.png"), b"");
    refused(&[&"index", &source, &new, &"-q"], 1, "an empty file");
    let skipped = run(&[&"index", &source, &new, &"--on-bad", &"skip", &"-q"]);
    assert_eq!(skipped.status.code(), Some(4), "{skipped:?}");
    assert_eq!(listed(&new).len(), 2);
}

#[test]
fn the_result_says_what_packing_would_gain_as_measured() {
    let rig = Rig::new();
    let (source, index) = (rig.path("images"), rig.path("index"));
    for number in 0..5 {
        write(&source.join(format!("cat/{number}.ppm")), &picture(number, 30, 20));
    }
    let told = run_well(&[&"index", &source, &index, &"-q"]);
    assert!(told.contains("measured here with 5 files") && told.contains("shade-pack create"), "{told}");
    let json = run_well(&[&"index", &source, &rig.path("other"), &"-q", &"--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["probe"]["files_per_s"].as_f64().unwrap() > 0.0, "{json}");
    assert!(json["probe"]["records_per_s"].as_f64().unwrap() > 0.0, "{json}");
    assert_eq!((&json["samples"], &json["files"], &json["checksums"]), (&5.into(), &5.into(), &false.into()));
}
