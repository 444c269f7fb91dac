//! A source or a destination that is not in order has an outcome that names the path, and leaves no
//! half dataset.

use std::fs::{self, File};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use crate::support::{PROGRAM, left_out, names, noise, own_mounts, run, run_well, stderr_of, write};
use serde_json::Value;
use shade_pack::config::{Effort, OnBad};
use shade_pack::dataset::Dataset;
use shade_pack::interrupt::Stop;
use shade_pack::pack::{Packing, Recipe};
use shade_pack::part::Part;
use shade_pack::plan::PackPlan;
use shade_pack::progress::{CommandProgress, Shown};
use shade_pack::source::{Selection, image_folder};
use shade_pack::workers::Workers;

/// A folder with all that cannot be packed, and three samples that can.
fn odd(source: &Path) {
    for number in 0..3u64 {
        write(&source.join(format!("cat/{number}.png")), &noise(number, 500));
    }
    write(&source.join("cat/empty.png"), b"");
    symlink("gone", source.join("cat/dangling.png")).unwrap();
    symlink(".", source.join("cat/loop")).unwrap();
    fs::write(source.join("cat").join(std::ffi::OsStr::from_bytes(b"\xff.jpg")), b"x").unwrap();
    let fifo = Command::new("mkfifo").arg(source.join("cat/pipe.jpg")).status().unwrap();
    assert!(fifo.success());
}

const FAULTS: [(&str, &str); 5] = [
    ("cat/empty.png", "an empty file"),
    ("cat/dangling.png", "cannot be looked at"),
    ("cat/loop", "a loop without end"),
    ("cat/\u{fffd}.jpg", "not UTF-8"),
    ("cat/pipe.jpg", "is not a regular file"),
];

#[test]
fn by_default_the_first_ends_the_run_and_it_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    odd(&source);
    let output = run(&[&"create", &source, &out, &"-q"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr_of(&output);
    assert!(text.contains("cat/dangling.png") && text.contains("--on-bad skip"), "{text}");
    assert_eq!(names(temp.path()), ["images"]);
}

#[test]
fn list_names_all_and_makes_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    odd(&source);
    let output = run(&[&"create", &source, &out, &"-q", &"--on-bad", &"list"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr_of(&output);
    for (path, fault) in FAULTS {
        assert!(text.lines().any(|line| line.contains(path) && line.contains(fault)), "{path}: {text}");
    }
    assert!(text.contains("5 samples cannot be packed"), "{text}");
    assert_eq!(names(temp.path()), ["images"]);
}

#[test]
fn skip_leaves_them_out_and_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    odd(&source);
    let output = run(&[&"create", &source, &out, &"-q", &"--on-bad", &"skip", &"--json"]);
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bad = report["bad"].as_array().unwrap();
    assert_eq!(bad.len(), 5);
    for (path, fault) in FAULTS {
        let named = |bad: &&Value| bad["path"].as_str().unwrap().contains(path);
        let found = bad.iter().find(named).unwrap();
        assert!(found["fault"].as_str().unwrap().contains(fault), "{found}");
    }
    run_well(&[&"verify", &out, &"-q"]);
    assert_eq!(Dataset::open(&out).unwrap().index.len(), 3);
}

/// Lists `source`, does `change`, packs: what `create` does, with a change in the middle.
fn pack_after(source: &Path, out: &Path, on_bad: OnBad, change: impl FnOnce()) -> Result<(), String> {
    let (stop, progress) = (Stop::default(), CommandProgress::start(Shown::Quiet, "packing", 0, 0));
    let catalogue = image_folder::scan(source, &Selection::default(), &progress, &stop).unwrap();
    let plan = PackPlan::new(catalogue.len(), |_| 1024, None, 1 << 20);
    change();
    fs::create_dir(out).unwrap();
    let two = NonZeroUsize::new(2).unwrap();
    let packing = Packing {
        catalogue: &catalogue,
        plan: &plan,
        recipe: &Recipe::default(),
        id: "test",
        folder: out,
        to: None,
        first_shard: 0,
        first_key: 0,
        part: Part::WHOLE,
        first_position: 0,
        on_bad,
        effort: Effort { jobs: two, in_flight: two, sync: true },
        progress: &progress,
        stop: &stop,
    };
    packing.run(&Workers::start(two).unwrap()).map_err(|fault| fault.to_string())
}

#[test]
fn files_that_change_or_vanish_after_listing_are_named() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    let image = source.join("cat/1.png");
    let touch = || {
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        File::options().write(true).open(&image).unwrap().set_modified(later).unwrap();
    };
    let changes: [(&str, &dyn Fn()); 4] = [
        ("it had 9 bytes when listed, 10 when read", &|| write(&image, b"ten bytes!")),
        ("it had 9 bytes when listed, 8 when read", &|| write(&image, b"8 bytes!")),
        ("it was written to since it was listed", &touch),
        ("cannot be opened: No such file", &|| fs::remove_file(&image).unwrap()),
    ];
    for (number, (say, change)) in changes.into_iter().enumerate() {
        write(&image, b"nine byte");
        write(&source.join("cat/2.png"), b"another");
        let out = temp.path().join(number.to_string());
        let text = pack_after(&source, &out, OnBad::Fail, change).unwrap_err();
        assert!(text.contains(say) && text.contains("cat/1.png"), "{text}");
        assert!(names(&out).is_empty(), "{:?}", names(&out));
    }
}

#[test]
fn a_file_that_vanishes_meanwhile_can_be_skipped_and_ids_stay_dense() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..5u64 {
        write(&source.join(format!("cat/{number}.png")), &noise(number, 700));
    }
    let vanish = || fs::remove_file(source.join("cat/2.png")).unwrap();
    pack_after(&source, &out, OnBad::Skip, vanish).unwrap();
    let done = shade_pack::pack::read_done(&out, shade_formats::ShardId(0), "test").unwrap().unwrap();
    assert_eq!(done.records().map(|record| record.sample.0).collect::<Vec<_>>(), [0, 1, 3, 4]);
    assert_eq!(done.bad.len(), 1);
    assert!(done.bad[0].path.ends_with("cat/2.png"));
}

#[test]
fn a_full_disk_is_named_and_freeing_space_lets_the_pack_go_on() {
    let temp = tempfile::tempdir().unwrap();
    let (source, disk) = (temp.path().join("images"), temp.path().join("disk"));
    for number in 0..40u64 {
        write(&source.join(format!("cat/{number:02}.png")), &noise(number, 50_000));
    }
    fs::create_dir(&disk).unwrap();
    // A remount with another size may be refused in a user namespace.
    let script = "mount -t tmpfs -o size=16m tmpfs \"$2\" || exit; head -c 15m /dev/zero > \"$2/zeros\"\n\
        \"$0\" create \"$1\" \"$2/out\" --shard-size 300kB -q; echo \"exit $?\"\n\
        ls \"$2\"; rm \"$2/zeros\"\n\
        \"$0\" create \"$1\" \"$2/out\" --shard-size 300kB -q && \"$0\" verify \"$2/out\" -q && ls \"$2\"";
    let Some(mut apart) = own_mounts() else { return };
    let output = apart.args(["sh", "-c", script, PROGRAM]).arg(&source).arg(&disk).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let (text, fault) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.contains("exit 1\nout.part-"), "{text}{fault}");
    assert!(fault.contains("No space left") && fault.contains("shard-0000"), "{fault}");
    assert!(text.ends_with("whole\nout\n"), "{text}{fault}");
}

#[test]
fn what_may_not_be_read_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("cat/1.png"), b"x");
    write(&source.join("cat/2.png"), b"y");
    let unreadable = source.join("cat/2.png");
    fs::set_permissions(&unreadable, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    // Root may read everything, so the test gives that up. The program is passed as an open file:
    // other users may not reach its path.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-all", "--inh-caps", "-all", "--"]).arg(PROGRAM);
    command.args(["create"]).arg(&source).arg(&out).arg("-q");
    let output = if fs::metadata("/proc/self").unwrap().uid() == 0 {
        match command.output() {
            Ok(output) => output,
            Err(fault) => {
                return left_out(&format!("root cannot give up its rights here: {fault}"));
            }
        }
    } else {
        run(&[&"create", &source, &out, &"-q"])
    };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = stderr_of(&output);
    assert!(text.contains("cat/2.png") && text.contains("Permission denied"), "{text}");
    assert!(!out.exists());
}

#[test]
fn names_of_255_bytes_and_records_of_300_mib_are_packed() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    let long = format!("cat/{}.png", "n".repeat(251));
    write(&source.join(&long), b"a long name");
    write(&source.join("cat/huge.png"), b"x");
    // Sparse: it takes no space in the source.
    File::options().write(true).open(source.join("cat/huge.png")).unwrap().set_len(300 << 20).unwrap();
    run_well(&[&"create", &source, &out, &"--shard-size", &"1MiB", &"--no-sync", &"-q"]);
    let dataset = Dataset::open(&out).unwrap();
    assert_eq!(dataset.index.path(shade_formats::SampleId(1)), Some(long.as_bytes()));
    assert_eq!(dataset.index.entry(shade_formats::SampleId(0)).unwrap().stored_len, 300 << 20);
    run_well(&[&"verify", &out, &"-q"]);
}

#[test]
fn a_record_beyond_the_format_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    write(&source.join("cat/1.png"), b"x");
    File::options().write(true).open(source.join("cat/1.png")).unwrap().set_len((1 << 30) + 1).unwrap();
    let output = run(&[&"create", &source, &out, &"-q"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr_of(&output);
    assert!(text.contains("cat/1.png") && text.contains("a record holds at most"), "{text}");
}
