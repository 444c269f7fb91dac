//! Errors, signals and kills never leave half a dataset under its name, and never touch the source.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]

mod support;

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use shade_formats::{SampleId, ShardId};
use shade_pack::Error;
use shade_pack::config::{Compression, CreateConfig};
use shade_pack::create::create;
use shade_pack::image_folder::scan;
use shade_pack::interrupt::Stop;
use shade_pack::pack::Packing;
use shade_pack::progress::{Progress, Shown};
use support::{names, noise, program, run, run_well, stderr_of, write};

/// Many small shards, so that a signal meets the packer in the middle.
fn many(source: &Path) {
    for number in 0..400u64 {
        write(&source.join(format!("{}/{number:03}.png", number % 4)), &noise(number, 3000));
    }
}

/// Starts to pack and returns once the first shard is there.
fn begin(source: &Path, out: &Path) -> Child {
    let args: &[&dyn AsRef<std::ffi::OsStr>] =
        &[&"create", &source, &out, &"--shard-size", &"4KiB", &"--jobs", &"1", &"-q"];
    let mut child = program(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let parent = out.parent().unwrap();
    let partial = |name: &String| name.starts_with("out.part-");
    // The program may also end first, if this test gets no time to look; every test allows for that.
    while child.try_wait().unwrap().is_none() {
        let folder: Option<PathBuf> = names(parent).into_iter().find(partial).map(|name| parent.join(name));
        let shards = folder.and_then(|folder| fs::read_dir(folder).ok()).map_or(0, Iterator::count);
        if shards > 1 {
            break;
        }
        std::thread::yield_now();
    }
    child
}

fn partials(folder: &Path) -> usize {
    names(folder).iter().filter(|name| name.contains(".part-")).count()
}

#[test]
fn a_killed_pack_leaves_no_dataset_and_a_rerun_works() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    many(&source);
    let before = support::tree(&source);
    let mut child = begin(&source, &out);
    child.kill().unwrap();
    let status = child.wait().unwrap();
    if status.success() {
        fs::remove_dir_all(&out).unwrap();
    } else {
        assert!(!out.exists());
        assert_eq!(partials(temp.path()), 1);
    }
    run_well(&[&"create", &source, &out, &"-q"]);
    run_well(&[&"verify", &out, &"-q"]);
    assert!(support::tree(&source) == before, "the source changed");
}

#[test]
fn signals_end_with_130_and_clean_up() {
    for signal in [Signal::INT, Signal::TERM] {
        let temp = tempfile::tempdir().unwrap();
        let (source, out) = (temp.path().join("images"), temp.path().join("out"));
        many(&source);
        let mut child = begin(&source, &out);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        if status.success() {
            run_well(&[&"verify", &out, &"-q"]);
        } else {
            assert_eq!(status.code(), Some(130));
            assert_eq!(names(temp.path()), ["images"]);
        }
    }
}

#[test]
fn a_request_to_stop_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    many(&source);
    let config = CreateConfig {
        source,
        out,
        shard_bytes: 4096,
        shuffle: Some(0),
        compression: Compression::None,
        jobs: NonZeroUsize::MIN,
    };
    let stop = Stop::default();
    stop.request();
    assert!(matches!(create(&config, Shown::Quiet, &stop), Err(Error::Interrupted)));
    assert_eq!(names(temp.path()), ["images"]);
}

#[test]
fn an_error_while_packing_names_the_path_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("cat/1.png"), b"x");
    fs::create_dir(source.join("cat/2.png")).unwrap();
    std::os::unix::fs::symlink("nothing", source.join("cat/3.png")).unwrap();
    let output = run(&[&"create", &source, &out]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr_of(&output).contains("cat/3.png"), "{output:?}");
    assert_eq!(names(temp.path()), ["images"]);
}

#[test]
fn files_that_change_or_vanish_after_listing_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    let image = source.join("cat/1.png");
    let changes: [(&str, &dyn Fn()); 3] = [
        ("it had 9 bytes when listed, more when read", &|| write(&image, b"ten bytes!")),
        ("it had 9 bytes when listed, 8 when read", &|| write(&image, b"8 bytes!")),
        ("cannot open", &|| fs::remove_file(&image).unwrap()),
    ];
    for (number, (say, change)) in changes.into_iter().enumerate() {
        write(&image, b"nine byte");
        let folder = scan(&source, &Stop::default()).unwrap();
        change();
        let out = temp.path().join(number.to_string());
        fs::create_dir(&out).unwrap();
        let packing = Packing {
            source: &source,
            samples: &folder.samples,
            out: &out,
            compression: Compression::None,
            progress: &Progress::start(Shown::Quiet, "packing", 1, 9),
            stop: &Stop::default(),
        };
        let text = packing.pack_shard(ShardId(0), &[SampleId(0)]).unwrap_err().to_string();
        assert!(text.contains(say) && text.contains("cat/1.png"), "{text}");
    }
}

#[test]
fn existing_destinations_and_nonsense_are_usage_errors() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("cat/1.png"), b"x");
    run_well(&[&"create", &source, &out, &"-q"]);
    let packed = support::tree(&out);
    let missing = temp.path().join("no/such/out");
    let inside = source.join("out");
    let other = temp.path().join("other");
    let cases: [(&[&dyn AsRef<std::ffi::OsStr>], &str); 10] = [
        (&[&"create", &source, &out], "exists: remove it"),
        (&[&"extract", &out, &source], "exists: remove it"),
        (&[&"create", &source, &missing], "create it first"),
        (&[&"create", &source, &inside], "lies inside"),
        (&[&"create", &temp.path().join("nothing"), &other], "is not a directory"),
        (&[&"create", &source, &other, &"--shard-size", &"1"], "4KiB to 2TiB"),
        (&[&"create", &source, &other, &"--compress", &"gzip"], "neither 'none' nor 'zstd'"),
        (&[&"create", &source, &other, &"--jobs", &"0"], "--jobs"),
        (&[&"create", &source, &other, &"--no-shuffle", &"--seed", &"1"], "cannot be used with"),
        (&[&"publish"], "unrecognized subcommand"),
    ];
    for (args, say) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(stderr_of(&output).contains(say), "{} does not say {say}", stderr_of(&output));
        assert!(output.stdout.is_empty());
    }
    assert!(support::tree(&out) == packed);
    assert_eq!(names(temp.path()), ["images", "out"]);
}
