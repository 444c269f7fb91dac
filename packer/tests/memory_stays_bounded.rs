//! A million samples: listing, planning, packing and indexing them takes less than 256 MiB.

use std::fs;
use std::process::Stdio;

use crate::support::{noise, program, write};
use shade_pack::dataset::Dataset;

const SAMPLES: u32 = 1_000_000;
const CLASSES: u32 = 1000;
const MEMORY_KIB_MAX: u64 = 256 * 1024;

/// Most memory that the process has had so far, in KiB; 0 once it has ended.
fn peak_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or(0, |line| line.trim().trim_end_matches(" kB").parse().unwrap())
}

#[test]
fn a_million_samples_fit_in_256_mib() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    // Hard links with names as long as ImageNet's: files would take 4 GB. A file has at most 65,000
    // links.
    for class in 0..CLASSES {
        let folder = source.join(format!("n{class:08}"));
        let first = folder.join("first.png");
        write(&first, &noise(class.into(), 60));
        for number in 1..SAMPLES / CLASSES {
            fs::hard_link(&first, folder.join(format!("n{class:08}_{number:06}.JPEG"))).unwrap();
        }
    }
    let mut child =
        program(&[&"create", &source, &out, &"--no-sync", &"-q"]).stdout(Stdio::null()).spawn().unwrap();
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(peak_kib(child.id()));
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(Dataset::open(&out).unwrap().index.len(), SAMPLES);
    println!("peak: {} MiB", peak / 1024);
    assert!((1..MEMORY_KIB_MAX).contains(&peak), "{} MiB at its peak", peak / 1024);
}
