//! Images and tars in a bucket are those of a folder: packed, appended or indexed where they are,
//! they give the same bytes, whatever the store answers meanwhile.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use shade_client::{Order, Sampler};
use shade_tests::{
    Bucket, Cloud, Daemon, JOBS, Product, Source, attach, attach_by, attach_to, checksums, eventually,
    job_named, png, spec, take_epoch, take_with_losses, text, train, webdataset,
};
use tempfile::TempDir;

const URL: &str = "s3://photos/source";

/// A source on disk, and in a bucket at [`URL`].
struct Both {
    folder: TempDir,
    bucket: Bucket,
}

/// What a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Folders,
    Tars,
}

const KINDS: [Kind; 2] = [Kind::Folders, Kind::Tars];

/// Images whose names are as odd as files of people may be.
fn images(count: u32) -> Vec<Source> {
    let classes = ["ant hill", "b~e\u{eb}/deep/er", "cat"];
    let image = |number: u32| {
        let class = classes[number as usize % 3];
        let name = format!("{number:03} 50% #+&='{{}}.png");
        let bytes = png(16 + number % 7, 16 + number % 5, number.into());
        Source { path: format!("{class}/{name}"), label: number % 3, bytes }
    };
    (0..count).map(image).collect()
}

fn write(folder: &Path, kind: Kind, images: &[Source]) {
    fs::create_dir_all(folder).unwrap();
    match kind {
        Kind::Folders => images.iter().for_each(|image| {
            let path = folder.join(&image.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &image.bytes).unwrap();
        }),
        Kind::Tars => images.chunks(17).enumerate().for_each(|(number, some)| {
            fs::write(folder.join(format!("part {number}.tar")), webdataset(some)).unwrap();
        }),
    }
}

impl Both {
    /// `count` images; those of the splits `train` and `val` if there are splits.
    fn of(kind: Kind, count: u32, has_splits: bool) -> Self {
        let folder = tempfile::Builder::new().prefix("source-").tempdir().unwrap();
        let (root, images) = (folder.path().join("source"), images(count));
        if has_splits {
            let (train, val) = images.split_at(images.len() / 2);
            write(&root.join("train"), kind, train);
            write(&root.join("val"), kind, val);
        } else {
            write(&root, kind, &images);
        }
        let bucket = Bucket::holding(&root, "source");
        Self { folder, bucket }
    }

    fn local(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file of the source on the server.
    fn object(&self, name: &str) -> PathBuf {
        self.bucket.objects().parent().unwrap().join("source").join(name)
    }

    /// As [`content`], of what lies at `s3://photos/NAME`.
    fn there(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        match Product::objects_at(name) {
            None => content(&self.bucket.objects().with_file_name(name)),
            Some(objects) => {
                let kept = objects.into_iter().filter(|(name, _)| name != "dataset.times");
                kept.map(|(name, bytes)| (name.into(), bytes)).collect()
            }
        }
    }

    fn run(&self, args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
        let mut command = self.bucket.command("shade-pack");
        let given = args.iter().map(|arg| Cloud::tested().given_path(Path::new(arg.as_ref())));
        command.args(given).output().unwrap()
    }

    fn made(&self, command: &str, source: &dyn AsRef<std::ffi::OsStr>, name: &str, more: &[&str]) -> PathBuf {
        let out = self.out(name);
        let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&command, &"-q", source, &out];
        args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        let output = self.run(&args);
        assert!(output.status.success(), "{more:?}: {}", text(&output.stderr));
        out
    }
}

/// All files below a folder by their paths, except the times of the source's files.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut ahead) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(here) = ahead.pop() {
        for path in fs::read_dir(here).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                ahead.push(path);
            } else if path.file_name().unwrap() != "dataset.times" {
                let bytes = fs::read(&path).unwrap();
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), bytes);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn a_dataset_of_a_bucket_is_that_of_the_folder_byte_by_byte() {
    for kind in KINDS {
        for splits in [None, Some("--splits=train,val")] {
            let both = Both::of(kind, 60, splits.is_some());
            let excluding =
                vec!["--exclude=*01*", "--exclude=train/ant hill", "--exclude=train/part 0.tar", "--cls"];
            let mut options = vec![vec![], vec!["--labels=none"], excluding];
            if kind == Kind::Folders {
                options.push(vec!["--labels=folders", "--format=raw", "--compress=auto"]);
            }
            for (number, mut more) in options.into_iter().enumerate() {
                more.extend(["--shard-size=24KiB", "--seed=7"].into_iter().chain(splits));
                let local = both.made("create", &both.local(), &format!("local-{number}"), &more);
                let remote = both.made("create", &URL, &format!("remote-{number}"), &more);
                assert!(content(&local) == content(&remote), "{kind:?} {more:?}");
                let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &URL, &remote];
                args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
                let again = both.run(&args);
                let told = text(&again.stdout) + &text(&again.stderr);
                assert!(again.status.success() && told.contains("nothing was written"), "{told}");
            }
        }
    }
}

#[test]
fn tars_of_many_windows_are_read_like_files() {
    // Members that end behind the 4 MiB that are read at a time, and small ones around them.
    let sides = [700, 20, 1200, 21, 22, 1500, 900, 23, 1300, 24];
    let image = |(number, side): (u32, &u32)| Source {
        path: format!("cat/{number}.png"),
        label: number % 2,
        bytes: png(*side, *side, number.into()),
    };
    let images: Vec<Source> = (0..).zip(&sides).map(image).collect();
    let mut both = Both::of(Kind::Tars, 3, false);
    for folder in [both.local(), both.object("")] {
        fs::write(folder.join("large.tar"), webdataset(&images)).unwrap();
    }
    let before = both.bucket.be("");
    let local = both.made("create", &both.local(), "local", &[]);
    let remote = both.made("create", &URL, "remote", &[]);
    assert!(content(&local) == content(&remote));
    let requests = both.bucket.be("") - before;
    assert!(requests < 60, "a request for each image and label, and some for headers: {requests}");
}

#[test]
fn a_store_that_fails_in_every_way_costs_time_and_no_sample() {
    for kind in KINDS {
        let mut both = Both::of(kind, 30, false);
        let packed = both.made("create", &both.local(), "local", &["--shard-size=24KiB"]);
        let indexed = both.made("index", &URL, "indexed", &[]);
        let bad = [
            "503=0.2 seed=1",
            "500=0.1 429=0.1 latency_ms=2 seed=2",
            "cut=0.2 seed=3",
            "wrong=0.2 503=0.05 cut=0.05 seed=4",
        ];
        for (number, how) in bad.iter().enumerate() {
            both.bucket.be(how);
            let again = both.made("create", &URL, &format!("bad-{number}"), &["--shard-size=24KiB"]);
            assert!(content(&packed) == content(&again), "{kind:?} {how}");
            let again = both.made("index", &URL, &format!("index-{number}"), &[]);
            assert!(content(&indexed) == content(&again), "{kind:?} {how}");
            both.bucket.be("");
        }
    }
}

#[test]
fn an_object_that_is_replaced_meanwhile_is_named_and_nothing_is_made() {
    for kind in KINDS {
        let mut both = Both::of(kind, 60, false);
        let victim = match kind {
            Kind::Folders => "cat/059 50% #+&='{}.png",
            Kind::Tars => "part 3.tar",
        };
        // So that the list is over, and there is time before the last sample is read.
        let slow = "latency_ms=40";
        let before = both.bucket.be(slow);
        let out = both.out("out");
        let mut command = both.bucket.command("shade-pack");
        let url = Cloud::tested().given(URL);
        command.args(["create", &url, "--no-shuffle", "--jobs=1", "--in-flight=1", "-q"]).arg(&out);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // A list, then for each tar its label, its members and what is behind them.
        eventually("samples are read", || both.bucket.be(slow) > before + 18);
        let path = both.object(victim);
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - 1;
        bytes[end] ^= 1;
        fs::write(&path, bytes).unwrap();
        both.bucket.be(slow);
        let output = child.wait_with_output().unwrap();
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{kind:?}: {told}");
        for part in [format!("{URL}/{victim}").as_str(), "another object has taken its place"] {
            assert!(told.contains(part), "{kind:?}: {part} in {told}");
        }
        assert!(!out.exists());
    }
}

#[test]
fn what_is_wrong_is_told_at_once_with_its_address() {
    let mut both = Both::of(Kind::Folders, 6, false);
    let out = both.out("out");
    let refused = |both: &Both, args: &[&dyn AsRef<std::ffi::OsStr>], code: i32, parts: &[&str]| {
        let output = both.run(args);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{told}");
        parts.iter().for_each(|part| assert!(told.contains(part), "{part} in {told}"));
        assert!(!both.out("out").exists());
    };
    for command in ["create", "index"] {
        refused(
            &both,
            &[&command, &"s3://photos/none", &out],
            1,
            &["s3://photos/none", "no object lies below"],
        );
        refused(&both, &[&command, &"s3://none/x", &out], 1, &["cannot list s3://none/x", "no such object"]);
        refused(&both, &[&command, &"ftp://photos/x", &out], 2, &["cannot read from 'ftp'"]);
        let masks = "--pair=masks=s3://photos/masks";
        refused(&both, &[&command, &both.local(), &out, &masks], 2, &["s3://photos/masks is in a bucket"]);
        let masks = "--pair=masks=/data/masks";
        refused(&both, &[&command, &URL, &out, &masks], 2, &["--pair"]);
        refused(&both, &[&command, &URL, &out, &"--from=list"], 2, &["list"]);
    }
    refused(&both, &[&"plan", &URL, &out], 2, &[URL, "shade-pack create"]);
    refused(&both, &[&"list", &URL, &out, &"--part=0/2"], 2, &[URL, "shade-pack create"]);
    let list = both.out("list.csv");
    fs::write(&list, format!("path,label\n{URL}/cat/1.png,0\n")).unwrap();
    refused(&both, &[&"create", &list, &out], 1, &["line 2", URL, "is in a bucket"]);
    both.bucket.be("403=1");
    refused(&both, &[&"create", &URL, &out], 1, &["cannot list", URL, "the store refuses these keys"]);
}

#[test]
fn a_dataset_goes_from_a_bucket_to_a_bucket() {
    for kind in KINDS {
        let mut both = Both::of(kind, 40, false);
        let local = both.made("create", &both.local(), "local", &["--shard-size=24KiB"]);
        let inside = both.run(&[&"create", &URL, &"s3://photos/source/out"]);
        let told = text(&inside.stderr);
        assert!(inside.status.code() == Some(2) && told.contains("lies inside"), "{kind:?}: {told}");
        both.bucket.be("503=0.05 cut=0.05 seed=1");
        let made = both.run(&[&"create", &"-q", &URL, &"s3://photos/out.shade", &"--shard-size=24KiB"]);
        assert!(made.status.success(), "{kind:?}: {}", text(&made.stderr));
        both.bucket.be("");
        assert!(content(&local) == both.there("out.shade"), "{kind:?}");
    }
}

#[test]
fn what_is_new_in_a_bucket_is_appended() {
    for kind in KINDS {
        let mut both = Both::of(kind, 30, false);
        let [local, remote] =
            [("local", both.local().into_os_string()), ("remote", URL.into())].map(|(name, source)| {
                let first = both.made("create", &source, name, &["--shard-size=24KiB"]);
                (first, source)
            });
        let more = images(50).split_off(30);
        let renamed: Vec<Source> = more
            .into_iter()
            .map(|image| Source { path: image.path.replace(".png", "-new.png"), ..image })
            .collect();
        let (here, there) = (both.local(), both.object(""));
        for folder in [&here, &there] {
            match kind {
                Kind::Folders => write(folder, kind, &renamed),
                Kind::Tars => fs::write(folder.join("part 9.tar"), webdataset(&renamed)).unwrap(),
            }
        }
        both.bucket.be("");
        for (dataset, source) in [&local, &remote] {
            let output = both.run(&[&"append", source, dataset, &"-q"]);
            assert!(output.status.success(), "{kind:?}: {}", text(&output.stderr));
        }
        assert!(content(&local.0) == content(&remote.0), "{kind:?}");
    }
}

#[test]
fn an_index_of_a_bucket_gives_every_job_what_the_folder_gives() {
    for kind in KINDS {
        let mut both = Both::of(kind, 60, false);
        let local = both.made("index", &both.local(), "local", &["--no-probe"]);
        let remote = both.made("index", &URL, "remote", &[]);
        let near = Daemon::start(&local, &[&"--cache", &"20%"]);
        let far = Daemon::start_by(both.bucket.command("shade-load"), &remote, &[&"--cache", &"20%"]);
        for name in JOBS {
            let job = job_named(name);
            let given = |dataset: &Path| {
                let session = attach_to(dataset, name, 0, job.clone()).unwrap();
                [0, 1].map(|epoch| {
                    checksums(epoch, &train(&session, &job, (epoch, 0), Duration::ZERO).unwrap())
                })
            };
            assert_eq!(given(&remote), given(&local), "{kind:?} {name}");
        }
        drop((near, far));
        let far = Daemon::start_by(both.bucket.command("shade-load"), &remote, &[&"--cache", &"0"]);
        let near = Daemon::start(&local, &[&"--cache", &"0"]);
        let samplers = Sampler::ALL.iter().map(|sampler| (*sampler, Order::Shuffled));
        let orders = Order::ALL.iter().map(|order| (Sampler::Uniform, *order));
        for (number, (sampler, order)) in samplers.chain(orders).enumerate() {
            let given = |dataset: &Path| {
                let session = attach_by(dataset, &format!("plan-{number}"), sampler, order);
                let [first, second] = take_with_losses(&session);
                [checksums(0, &first), checksums(1, &second)]
            };
            let before = both.bucket.be("503=0.05 cut=0.05 seed=1");
            assert_eq!(given(&remote), given(&local), "{kind:?} {sampler:?} {order:?}");
            assert!(both.bucket.be("") > before);
        }
        drop((near, far));
    }
}

#[test]
fn an_index_of_a_bucket_may_lie_in_a_bucket() {
    const INDEX: &str = "s3://photos/source.index";
    for kind in KINDS {
        let mut both = Both::of(kind, 40, false);
        let local = both.made("index", &URL, "local", &[]);
        let index = |both: &Both, more: &[&str]| {
            let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"index", &"-q", &URL, &INDEX];
            args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
            let output = both.run(&args);
            (output.status.code(), text(&output.stdout) + &text(&output.stderr))
        };
        let (code, told) = index(&both, &[]);
        assert_eq!(code, Some(0), "{told}");
        assert!(content(&local) == both.there("source.index"), "{kind:?}");
        let (code, told) = index(&both, &[]);
        assert!(code == Some(2) && told.contains("s3://photos/source.index exists"), "{told}");
        let (code, told) = index(&both, &["--update"]);
        assert!(code == Some(0) && told.contains("nothing was written"), "{told}");
        let given = |both: &Both, dataset: &Path| {
            let _daemon = Daemon::start_by(both.bucket.command("shade-load"), dataset, &[&"--cache", &"20%"]);
            checksums(0, &take_epoch(&attach(dataset, 0, spec(8, 1)), 0).unwrap())
        };
        assert_eq!(given(&both, &both.bucket.known_as()), given(&both, &local), "{kind:?}");
        let listed = |both: &Both| text(&both.run(&[&"ls", &INDEX]).stdout);
        let before = listed(&both);
        // Behind all others, so that ids stay.
        let more = images(50).split_off(40);
        match kind {
            Kind::Folders => write(&both.object("dog"), kind, &more),
            Kind::Tars => fs::write(both.object("part 9.tar"), webdataset(&more)).unwrap(),
        }
        // A product is given it now.
        both.bucket.be("");
        let (code, told) = index(&both, &["--update"]);
        assert!(code == Some(0) && told.contains("50 samples"), "{told}");
        let after = listed(&both);
        assert!(before.lines().eq(after.lines().take(before.lines().count())), "{before}\n{after}");
        let renewed = both.made("index", &URL, "renewed", &[]);
        assert!(content(&renewed) == both.there("source.index"), "{kind:?}");
        let verified = both.run(&[&"verify", &INDEX]);
        assert!(verified.status.success(), "{}", text(&verified.stderr));
        let mine = both.run(&[&"index", &both.local(), &"s3://photos/mine.index"]);
        assert_eq!(mine.status.code(), Some(2));
        assert!(text(&mine.stderr).contains("would name files of this machine"), "{}", text(&mine.stderr));
        // Only an index of files is replaced.
        assert!(both.run(&[&"create", &"-q", &URL, &"s3://photos/packed"]).status.success());
        let packed = both.run(&[&"index", &"--update", &URL, &"s3://photos/packed"]);
        assert!(text(&packed.stderr).contains("s3://photos/packed is a packed dataset"));
    }
}

#[test]
fn the_commands_that_read_work_on_an_index_of_a_bucket() {
    for kind in KINDS {
        let mut both = Both::of(kind, 40, false);
        let local = both.made("index", &both.local(), "local", &["--no-probe", "--checksums"]);
        let remote = both.made("index", &URL, "remote", &["--checksums"]);
        for command in ["ls", "info"] {
            let [here, there] = [&local, &remote].map(|dataset| {
                let told = text(&both.run(&[&command, dataset]).stdout);
                let own = |line: &&str| {
                    !["content id", "times", "index", "in place", "base"]
                        .iter()
                        .any(|what| line.contains(what))
                };
                let lines: Vec<String> = told.lines().filter(own).map(str::to_owned).collect();
                lines
                    .join("\n")
                    .replace(dataset.to_str().unwrap(), "")
                    .replace(both.local().to_str().unwrap(), URL)
            });
            assert_eq!(here, there, "{kind:?} {command}");
        }
        both.bucket.be("503=0.1 cut=0.1 seed=2");
        let verified = both.run(&[&"verify", &remote]);
        assert!(verified.status.success(), "{kind:?}: {}{}", text(&verified.stdout), text(&verified.stderr));
        both.bucket.be("");
        let out = both.out("extracted");
        let extracted = both.run(&[&"extract", &remote, &out]);
        assert!(extracted.status.success(), "{kind:?}: {}", text(&extracted.stderr));
        let files = content(&out).into_values().filter(|bytes| bytes.starts_with(b"\x89PNG")).count();
        assert_eq!(files, 40, "{kind:?}");
    }
}

#[test]
fn an_object_that_is_not_the_one_that_was_indexed_is_an_error_and_a_new_index_sees_it() {
    for kind in KINDS {
        let both = Both::of(kind, 40, false);
        let index = both.made("index", &URL, "index", &["--update"]);
        let update = |both: &Both| {
            let output = both.run(&[&"index", &"-q", &"--update", &URL, &index]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            text(&output.stdout)
        };
        assert!(update(&both).contains("is as it was, nothing was written"));
        let victim = match kind {
            Kind::Folders => "cat/002 50% #+&='{}.png",
            Kind::Tars => "part 1.tar",
        };
        // The same length and other bytes.
        let path = both.object(victim);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let daemon = Daemon::start_by(both.bucket.command("shade-load"), &index, &[&"--cache", &"0"]);
        let told = take_epoch(&attach(&index, 0, spec(8, 1)), 0).unwrap_err().to_string();
        for part in
            [format!("{URL}/{victim} is not the file that was indexed").as_str(), "its ETag is", "new index"]
        {
            assert!(told.contains(part), "{kind:?}: {part} in {told}");
        }
        drop(daemon);
        assert!(update(&both).contains("made again: something below s3://photos/source was changed"));
        let daemon = Daemon::start_by(both.bucket.command("shade-load"), &index, &[&"--cache", &"0"]);
        take_epoch(&attach(&index, 0, spec(8, 1)), 0).unwrap();
        drop(daemon);
        // What is gone is told, too.
        if kind == Kind::Folders {
            fs::remove_file(&path).unwrap();
            let daemon = Daemon::start_by(both.bucket.command("shade-load"), &index, &[&"--cache", &"0"]);
            let told = take_epoch(&attach(&index, 0, spec(8, 1)), 0).unwrap_err().to_string();
            assert!(told.contains(victim) && told.contains("it is gone"), "{told}");
            drop(daemon);
        }
    }
}

#[test]
fn a_list_of_thousands_goes_on_where_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    // More than two answers of a list.
    let class = folder.path().join("only");
    fs::create_dir(&class).unwrap();
    for number in 0..2300 {
        fs::write(class.join(format!("{number:04}.png")), b"\x89PNG").unwrap();
    }
    let mut bucket = Bucket::holding(folder.path(), "source");
    bucket.be("503=0.3 cut=0.1 seed=1");
    let mut command = bucket.command("shade-pack");
    command.args(["create", &Cloud::tested().given(URL), "--dry-run", "--json"]);
    let output = command.arg(folder.path().join("out")).output().unwrap();
    let report = text(&output.stdout);
    assert!(
        report.contains("\"samples\":2300") || report.contains("\"samples\": 2300"),
        "{report} {}",
        text(&output.stderr)
    );
}
