//! Splits, lists and tars, with patterns that leave files out, give the datasets that were meant.

use std::fs::{self, File};
use std::path::Path;

use crate::support::{names, noise, run, run_well, stderr_of, tar_of, tree, write};
use shade_formats::SampleId;
use shade_formats::shard::parse_fields;
use shade_pack::dataset::Dataset;

/// Path and class of every sample.
fn samples(dataset: &Path) -> Vec<(String, String)> {
    let dataset = Dataset::open(dataset).unwrap();
    let class = |label| String::from_utf8(dataset.index.class_name(label).unwrap().to_vec()).unwrap();
    (0..dataset.index.len())
        .map(SampleId)
        .map(|id| (dataset.path_text(id), class(dataset.index.entry(id).unwrap().label)))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(path, class)| ((*path).to_owned(), (*class).to_owned())).collect()
}

#[test]
fn splits_are_labelled_alike_and_appear_together() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for (number, path) in
        ["train/ant/1.png", "train/cat/1.png", "val/ant/2.png", "val/bee/3.png"].iter().enumerate()
    {
        write(&source.join(path), &noise(number as u64, 300));
    }
    let text = run_well(&[&"create", &source, &out, &"--splits", &"train,val", &"-q"]);
    assert!(text.contains("out/train: 2 samples of 3 classes"), "{text}");
    assert_eq!(names(&out), ["train", "val"]);
    assert_eq!(samples(&out.join("train")), pairs(&[("ant/1.png", "ant"), ("cat/1.png", "cat")]));
    assert_eq!(samples(&out.join("val")), pairs(&[("ant/2.png", "ant"), ("bee/3.png", "bee")]));
    for split in ["train", "val"] {
        assert_eq!(names(&out.join(split)), ["dataset.shade", "dataset.times", "shard-000000.tar"]);
        assert_eq!(Dataset::open(&out.join(split)).unwrap().index.class_count(), 3);
        run_well(&[&"verify", &out.join(split), &"-q"]);
    }
    let missing = run(&[&"create", &source, &temp.path().join("o"), &"--splits", &"train,test", &"-q"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    assert!(stderr_of(&missing).contains("images/test"), "{missing:?}");
}

#[test]
fn excluded_files_and_folders_are_not_there() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for path in ["cat/1.png", "cat/1.tmp.png", "cat/thumbs/2.png", ".ipynb_checkpoints/3.png", "dog/4.png"] {
        write(&source.join(path), b"x");
    }
    let args: &[&dyn AsRef<std::ffi::OsStr>] = &[
        &"create",
        &source,
        &out,
        &"-q",
        &"--exclude",
        &"*.tmp.png",
        &"--exclude",
        &".ipynb_checkpoints",
        &"--exclude",
        &"cat/thumbs",
    ];
    run_well(args);
    assert_eq!(samples(&out), pairs(&[("cat/1.png", "cat"), ("dog/4.png", "dog")]));
    let wrong = run(&[&"create", &source, &temp.path().join("o"), &"--exclude", &"a[", &"-q"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
}

/// Makes datasets of the splits by `create`, and again by `list`, `plan` and parts where the source
/// can be listed so.
fn splits(source: &Path, out: &Path, is_listed: bool, options: &[&str]) {
    let command = |more: &[&str], options: &[&str]| {
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&more[0], &source, &out, &"-q"];
        args.extend(more[1..].iter().chain(options).map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        run_well(&args);
    };
    command(&["create"], options);
    if !is_listed {
        return;
    }
    let created = tree(out);
    fs::remove_dir_all(out).unwrap();
    for part in ["0/2", "1/2"] {
        command(&["list", "--part", part], options);
    }
    command(&["plan", "--listed"], options);
    command(&["create", "--part", "0/1"], &[]);
    run_well(&[&"finish", &out, &"-q"]);
    assert!(tree(out) == created);
}

#[test]
fn patterns_match_paths_below_the_source_and_below_a_split() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    for path in [
        "train/ant/1.png",
        "train/ant/thumbs/2.png",
        "train/broken/3.png",
        "val/ant/4.png",
        "val/ant/thumbs/5.png",
        "val/broken/6.png",
    ] {
        write(&at("images").join(path), path.as_bytes());
    }
    let options = ["--splits", "train,val", "--exclude", "train/broken", "--exclude", "ant/thumbs"];
    splits(&at("images"), &at("out"), true, &options);
    assert_eq!(samples(&at("out/train")), pairs(&[("ant/1.png", "ant")]));
    assert_eq!(samples(&at("out/val")), pairs(&[("ant/4.png", "ant"), ("broken/6.png", "broken")]));
    let members: [(&str, &[u8]); 4] = [("1.jpg", b"x"), ("1.cls", b"0"), ("2.jpg", b"y"), ("2.cls", b"0")];
    for tar in ["train/a.tar", "train/b.tar", "val/a.tar", "val/b.tar"] {
        tar_of(&at("tars").join(tar), &members);
    }
    let options = ["--splits", "train,val", "--exclude", "train/a/1.*", "--exclude", "/val/b.tar"];
    splits(&at("tars"), &at("of-tars"), false, &options);
    let all = [("a/2.jpg", "0"), ("b/1.jpg", "0"), ("b/2.jpg", "0")];
    assert_eq!(samples(&at("of-tars/train")), pairs(&all));
    assert_eq!(samples(&at("of-tars/val")), pairs(&[("a/1.jpg", "0"), ("a/2.jpg", "0")]));
    // Paths in a list lie below the source as they are, whatever the list is called.
    write(&at("lists/1.png"), b"x");
    write(&at("lists/ant/1.png"), b"y");
    write(&at("lists/one.csv"), b"path,label\n1.png,bee\nant/1.png,bee\n");
    splits(&at("lists"), &at("of-lists"), false, &["--splits", "one.csv", "--exclude", "*/1.png"]);
    assert_eq!(samples(&at("of-lists/one.csv")), pairs(&[("1.png", "bee")]));
}

#[test]
fn a_list_keeps_its_order_its_labels_and_its_columns() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for path in ["b.png", "deep/a.dat", "c.jpg"] {
        write(&source.join(path), path.as_bytes());
    }
    let absolute = source.join("c.jpg");
    let list = format!(
        "label,path,score\ntabby,b.png,0.5\n\"big, cat\",deep/a.dat,\ntabby,{},7\n",
        absolute.display()
    );
    write(&source.join("list.csv"), list.as_bytes());
    run_well(&[&"create", &source.join("list.csv"), &out, &"-q"]);
    let stripped = absolute.to_str().unwrap().trim_start_matches('/').to_owned();
    assert_eq!(samples(&out), pairs(&[("b.png", "tabby"), ("deep/a.dat", "big, cat"), (&stripped, "tabby")]));
    let dataset = Dataset::open(&out).unwrap();
    let fields = |sample| {
        let (id, shard) = (SampleId(sample), dataset.index.entry(SampleId(sample)).unwrap().shard);
        let span = dataset.index.fields(id)?;
        let bytes = fs::read(dataset.shard_path(shard)).unwrap();
        let at = usize::try_from(span.offset).unwrap();
        let span_bytes = &bytes[at..at + usize::try_from(span.len).unwrap()];
        assert_eq!(Some(shade_formats::checksum::crc32c(span_bytes)), span.crc32c);
        let parsed = parse_fields(span_bytes, dataset.index.key(id), span.offset).unwrap();
        assert_eq!((parsed.len(), parsed[0].name), (1, "json"));
        Some(String::from_utf8(parsed[0].bytes.to_vec()).unwrap())
    };
    assert_eq!(fields(0).as_deref(), Some(r#"{"score":"0.5"}"#));
    assert_eq!(fields(1), None);
    assert_eq!(fields(2).as_deref(), Some(r#"{"score":"7"}"#));
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn tars_are_read_in_place_and_keep_what_else_they_hold() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, back) = (temp.path().join("tars"), temp.path().join("out"), temp.path().join("back"));
    fs::create_dir(&source).unwrap();
    for tar in 0..2u64 {
        let mut builder = tar::Builder::new(File::create(source.join(format!("t{tar}.tar"))).unwrap());
        let mut add = |name: String, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            builder.append_data(&mut header, name, bytes).unwrap();
        };
        for sample in 0..3u64 {
            // A name beyond ustar's 100 bytes: GNU's long form.
            let key = format!("{}/{sample:03}", "folder".repeat(20));
            add(format!("{key}.jpg"), &noise(tar * 3 + sample, 900));
            add(format!("{key}.cls"), (sample % 2).to_string().as_bytes());
            add(format!("{key}.txt"), b"a caption");
        }
        builder.finish().unwrap();
    }
    let before = tree(&source);
    run_well(&[&"create", &source, &out, &"--shard-size", &"4KiB", &"-q"]);
    run_well(&[&"verify", &out, &"-q"]);
    run_well(&[&"extract", &out, &back, &"-q"]);
    let found = tree(&back);
    for (number, (path, class)) in (0u64..).zip(samples(&out)) {
        assert!(path.starts_with(&format!("t{}/folder", number / 3)), "{path}");
        assert_eq!(class, (number % 3 % 2).to_string());
        assert!(found[&path] == noise(number, 900), "{path}");
    }
    assert!(tree(&source) == before);
}
