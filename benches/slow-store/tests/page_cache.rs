//! What the slow store's kernel keeps of a file from one opening to the next.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output};

use rustix::process::geteuid;

/// The operations that the store is sent when one file is read twice, then under this name. None
/// where nothing can be mounted.
fn operations(options: &[&str], again: &str) -> Option<BTreeMap<String, u64>> {
    let scratch = tempfile::tempdir().unwrap();
    let (source, mount) = (scratch.path().join("source"), scratch.path().join("mount"));
    std::fs::create_dir(&source).unwrap();
    std::fs::create_dir(&mount).unwrap();
    std::fs::write(source.join("file"), "a record").unwrap();
    std::fs::hard_link(source.join("file"), source.join("link")).unwrap();
    let trial = mounted(&source, &mount, &["--", "true"]);
    if !trial.status.success() {
        let why = String::from_utf8_lossy(&trial.stderr).into_owned();
        assert!(why.contains("cannot mount") || why.contains("unshare"), "{why}");
        // Past the harness, which hides what a passing test prints.
        let _ = writeln!(std::io::stderr(), "LEFT OUT: the slow store's page cache: {}", why.trim());
        return None;
    }
    let told = scratch.path().join("told.json");
    // It leaves a process in the mount, which ends a little later, as a daemon of a Loader does.
    let script = "cat \"$1/file\" \"$1/$2\"; cd \"$1\"; sleep 0.5 > /dev/null 2>&1 &";
    let mut words = vec!["--delay-us", "100", "--at-once", "2", "--out", told.to_str().unwrap()];
    words.extend(options);
    words.extend(["--", "sh", "-c", script, "sh", mount.to_str().unwrap(), again]);
    let output = mounted(&source, &mount, &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"a recorda record");
    let told: serde_json::Value = serde_json::from_slice(&std::fs::read(told).unwrap()).unwrap();
    Some(serde_json::from_value(told["operations"].clone()).unwrap())
}

/// Runs the slow store in a mount namespace of its own. `words` are options before `--`, and the
/// command after it.
fn mounted(source: &Path, mount: &Path, words: &[&str]) -> Output {
    let end_of_options = words.iter().position(|&word| word == "--").unwrap();
    let (options, command) = words.split_at(end_of_options);
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount");
    if !geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.arg(env!("CARGO_BIN_EXE_shade-slow-store"));
    unshare.args(options).arg(source).arg(mount).args(command).output().unwrap()
}

#[test]
fn contents_stay_from_one_opening_to_the_next() {
    let Some(operations) = operations(&[], "file") else { return };
    assert_eq!((operations["open"], operations["read"]), (2, 1));
}

#[test]
fn without_a_page_cache_each_opening_reads_anew() {
    let Some(operations) = operations(&["--no-page-cache"], "file") else { return };
    assert_eq!((operations["open"], operations["read"]), (2, 2));
}

#[test]
fn a_link_has_the_contents_of_its_file_unless_it_is_shown_as_a_file_of_its_own() {
    let Some(shared) = operations(&[], "link") else { return };
    assert_eq!((shared["open"], shared["read"]), (2, 1));
    let apart = operations(&["--links-apart"], "link").unwrap();
    assert_eq!((apart["open"], apart["read"]), (2, 2));
}
