//! The fuzz targets' corpus: what holds for any bytes holds for these, which a fuzzer chose for the
//! paths that they take.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::panic::catch_unwind;
use std::path::PathBuf;

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, reason = "it is a crate's")]
mod checks;

/// Runs a target's check on every input of its corpus.
fn replay(target: &str, check: fn(&[u8])) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let inputs: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(inputs.len() > 100, "{}: {} inputs", folder.display(), inputs.len());
    for input in inputs {
        let bytes = std::fs::read(&input).unwrap();
        assert!(catch_unwind(|| check(&bytes)).is_ok(), "{}: see above", input.display());
    }
}

#[test]
fn jpegs() {
    replay("jpeg", checks::jpeg);
}

#[test]
fn images_of_every_kind() {
    replay("any", checks::any);
}
