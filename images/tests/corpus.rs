//! Replays the fuzz targets' corpus: inputs that a fuzzer chose for the code they reach.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::File;
use std::io::Read;
use std::panic::catch_unwind;
use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
#[expect(unreachable_pub, clippy::indexing_slicing, reason = "it is a crate's")]
mod checks;

/// Runs a target's check on every input in the target's archive.
fn replay(target: &str, check: fn(&[u8])) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("fuzz/corpus/{target}.tar.zst"));
    let mut archive = tar::Archive::new(zstd::Decoder::new(File::open(&path).unwrap()).unwrap());
    let mut inputs = 0;
    for member in archive.entries().unwrap() {
        let mut member = member.unwrap();
        let mut input = Vec::new();
        member.read_to_end(&mut input).unwrap();
        let name = member.path().unwrap();
        assert!(catch_unwind(|| check(&input)).is_ok(), "{}: see above", name.display());
        inputs += 1;
    }
    assert!(inputs > 100, "{}: {inputs} inputs", path.display());
}

#[test]
fn jpegs() {
    replay("jpeg", checks::jpeg);
}

#[test]
fn images_of_every_kind() {
    replay("any", checks::any);
}
