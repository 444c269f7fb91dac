//! Raw pixels are compressed only where that saves much of large records, and the result tells the
//! decision.

use std::path::Path;

use crate::support::{noise, picture, run_well, write};
use serde_json::Value;

fn pictures(root: &Path, side: u32, count: u64) {
    for number in 0..count {
        write(&root.join(format!("{}/{number:03}.ppm", number % 2)), &picture(number, side, side));
    }
}

/// Packs raw pixels; gives the text of the result, and what `info` says for programs and for
/// people.
fn pack(source: &Path, out: &Path, more: &[&str]) -> (String, Value, String) {
    let mut args: Vec<&dyn AsRef<std::ffi::OsStr>> =
        vec![&"create", &source, &out, &"--format", &"raw", &"-q"];
    args.extend(more.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
    let created = run_well(&args);
    let info = serde_json::from_str(&run_well(&[&"info", &out, &"--json"])).unwrap();
    (created, info, run_well(&[&"info", &out]))
}

#[test]
fn small_pixels_stay_as_they_are_however_well_they_compress() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    pictures(&source, 32, 60);
    let (created, info, about) = pack(&source, &temp.path().join("out"), &[]);
    assert_eq!((&info["compressed"], &info["dictionaries"]), (&0.into(), &0.into()));
    assert!(created.contains("zstd would save 8") && created.contains("--compress zstd"), "{created}");
    assert!(about.contains("zstd        not used: raw pixels train fastest"), "{about}");
    let (created, info, about) = pack(&source, &temp.path().join("asked"), &["--compress", "zstd"]);
    assert_eq!(info["compressed"], 60);
    assert!(!created.contains("would save") && about.contains("zstd        saves 9"), "{created}{about}");
}

#[test]
fn large_pixels_are_compressed_if_that_halves_them() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("flat");
    pictures(&source, 200, 6);
    let (created, info, about) = pack(&source, &temp.path().join("out"), &[]);
    assert_eq!(info["compressed"], 6, "{created}");
    assert!(about.contains("zstd        saves 9") && about.contains("decompress"), "{about}");
    let source = temp.path().join("noisy");
    for number in 0..6u64 {
        // Two of three channels are noise, so zstd can save a third.
        let noise = noise(number, 200 * 200 * 2);
        let pixels = noise.chunks(2).flat_map(|two| [two[0], two[1], 7]);
        let header = b"P6\n200 200\n255\n".to_vec();
        write(&source.join(format!("a/{number}.ppm")), &[header, pixels.collect()].concat());
    }
    let (created, info, _) = pack(&source, &temp.path().join("out 2"), &[]);
    assert!(info["compressed"] == 0 && created.contains("zstd would save"), "{created}");
}
