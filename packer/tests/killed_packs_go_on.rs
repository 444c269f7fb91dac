//! kill -9 at any point, the same command again: the dataset of an undisturbed run, byte for byte.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{names, noise, program, run_well, tree, write};
use shade_pack::dataset::Dataset;

/// Points at which the packer is killed: numbers of bytes in its unfinished folder, spread over the
/// whole pack.
const KILLS: u64 = 20;

fn bytes_below(folder: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // A file that is renamed between listing and looking is counted the next time.
        if let Ok(found) = entry.metadata() {
            bytes += if found.is_dir() { bytes_below(&entry.path()) } else { found.len() };
        }
    }
    bytes
}

fn unfinished(parent: &Path) -> u64 {
    let parts = names(parent).into_iter().filter(|name| name.starts_with("out.part-"));
    parts.map(|name| bytes_below(&parent.join(name))).sum()
}

#[test]
fn twenty_kills_and_the_bytes_are_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..600u64 {
        let path = source.join(format!("{}/{number:03}.bmp", number % 7));
        // Half noise, half flat: compression has something to do.
        write(&path, &[b"BM".as_slice(), &noise(number, 5000), &[7; 5000]].concat());
    }
    let before = tree(&source);
    let options: [&dyn AsRef<OsStr>; 6] =
        [&"--shard-size", &"200kB", &"--compress", &"zstd", &"--cls", &"-q"];
    let args: Vec<&dyn AsRef<OsStr>> =
        [&"create" as &dyn AsRef<OsStr>, &source, &out].into_iter().chain(options).collect();
    let calm = temp.path().join("calm");
    let calmly: Vec<&dyn AsRef<OsStr>> =
        [&"create" as &dyn AsRef<OsStr>, &source, &calm].into_iter().chain(options).collect();
    run_well(&calmly);
    let expected = tree(&calm);
    let total: u64 = expected.values().map(|bytes| bytes.len() as u64).sum();
    assert!(expected.len() > 15, "too few shards to be killed between: {}", expected.len());

    // A reader meanwhile finds no dataset, or a whole one. It does not look while this test removes
    // one that was finished before its kill.
    let (done, removal) = (AtomicBool::new(false), Mutex::new(()));
    let killed = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let looks = removal.lock().unwrap();
                if out.exists() {
                    assert_eq!(Dataset::open(&out).unwrap().index.len(), 600);
                }
                drop(looks);
                std::thread::yield_now();
            }
        });
        let mut killed = 0;
        for kill in 0..KILLS {
            // Seeded, so that a failure comes again. There is one point in each twentieth of the
            // pack.
            let within = u64::from(noise(kill, 1)[0]);
            let point = total * (kill * 256 + within) / (KILLS * 256);
            let mut child = program(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            while child.try_wait().unwrap().is_none() {
                if unfinished(temp.path()) >= point {
                    child.kill().unwrap();
                }
            }
            let status = child.wait().unwrap();
            killed += u64::from(!status.success());
            assert!(status.success() || status.code().is_none(), "{status:?}");
            if out.exists() {
                assert!(tree(&out) == expected);
                let _nobody_looks = removal.lock().unwrap();
                fs::remove_dir_all(&out).unwrap();
            }
        }
        run_well(&args);
        done.store(true, Ordering::Relaxed);
        killed
    });
    assert!(killed >= KILLS / 2, "only {killed} of {KILLS} kills met the packer at work");
    let found = tree(&out);
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    assert!(found == expected, "other bytes after {killed} kills");
    assert!(tree(&source) == before, "the source changed");
    assert_eq!(names(temp.path()), ["calm", "images", "out"]);
}
