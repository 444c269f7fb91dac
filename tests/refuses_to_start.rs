//! `shade-load serve` refuses what it cannot serve: exit code 1, 2 or 3, and a text that says what
//! to do.
#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::ffi::OsStr;
use std::fs;
use std::process::{Command, Output};

use shade_formats::index::INDEX_FILE;
use shade_tests::{Daemon, Packed, program};

fn serve(args: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String) {
    let args = args.iter().map(|arg| arg.as_ref());
    let Output { status, stdout, stderr } =
        Command::new(program("shade-load")).arg("serve").args(args).output().expect("it runs");
    assert!(stdout.is_empty(), "only --private writes there: {}", String::from_utf8_lossy(&stdout));
    (status.code(), String::from_utf8(stderr).expect("text"))
}

#[test]
fn a_damaged_index_is_3_and_names_file_and_byte() {
    let packed = Packed::mixed(10);
    let index = packed.dataset.join(INDEX_FILE);
    let whole = fs::read(&index).unwrap();
    let name = index.display().to_string();
    // Magic, header fields, section table, and far into the sections.
    for at in [0, 9, 20, 30, 60, 70, 100, whole.len() / 2, whole.len() - 1] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        fs::write(&index, &bytes).unwrap();
        let (code, text) = serve(&[&packed.dataset]);
        assert_eq!(code, Some(3), "byte {at}: {text}");
        assert!(text.contains(&name) && text.contains(" at byte "), "byte {at}: {text}");
        assert!(!text.contains("panicked"), "byte {at}: {text}");
    }
    for len in [0, 10, 64, 200, whole.len() - 1] {
        fs::write(&index, &whole[..len]).unwrap();
        let (code, text) = serve(&[&packed.dataset]);
        assert_eq!(code, Some(3), "{len} bytes: {text}");
        assert!(text.contains(&name) && text.contains(" at byte "), "{len} bytes: {text}");
    }
}

#[test]
fn no_dataset_is_1_with_advice() {
    let packed = Packed::mixed(3);
    let (code, text) = serve(&[&packed.images]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(&packed.images.display().to_string()) && text.contains("shade-pack create"),
        "{text}"
    );

    let nowhere = packed.beside("nowhere");
    let (code, text) = serve(&[&nowhere]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&nowhere.display().to_string()), "{text}");
}

#[test]
fn a_second_daemon_for_the_same_dataset_is_1_with_advice() {
    let packed = Packed::mixed(3);
    let first = Daemon::start(&packed.dataset, &[]);
    let (code, text) = serve(&[&packed.dataset]);
    assert_eq!(code, Some(1), "{text}");
    for part in ["any number of jobs", "shade-load status", "shade-load stop", "--socket"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let other = Daemon::start(&packed.dataset, &[&"--socket", &packed.beside("other.socket")]);
    drop((first, other));
}

#[test]
fn a_daemon_that_is_not_needed_learns_that_before_it_reads_the_index() {
    let packed = Packed::mixed(3);
    let first = Daemon::start(&packed.dataset, &[]);
    // A new file, as the first daemon has the old one open. Reading this one would end with 3.
    let index = packed.dataset.join(INDEX_FILE);
    fs::remove_file(&index).unwrap();
    fs::write(&index, b"no index").unwrap();
    let (code, text) = serve(&[&packed.dataset]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("serves this dataset already"), "{text}");
    drop(first);
}

#[test]
fn wrong_usage_is_2() {
    let packed = Packed::mixed(3);
    let dataset = &packed.dataset;
    let wrong: [&[&dyn AsRef<OsStr>]; 9] = [
        &[],
        &[dataset, &"--no-such-option"],
        &[dataset, &"--cache", &"lots"],
        &[dataset, &"--cache", &"120%"],
        &[dataset, &"--depth", &"0"],
        &[dataset, &"--workers", &"0"],
        &[dataset, &"--engine", &"warp"],
        &[dataset, &"--store", &"latency=2"],
        &[dataset, dataset],
    ];
    for args in wrong {
        let (code, text) = serve(args);
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains("--help"), "{text}");
    }
}

#[test]
fn the_log_has_no_colours_when_nobody_can_see_them() {
    let packed = Packed::mixed(3);
    let daemon = Daemon::start(&packed.dataset, &[]);
    let (_, text) = serve(&[&packed.images]);
    assert!(!daemon.log().contains('\u{1b}') && !text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_cache_larger_than_memory_is_1_with_the_figure_that_fits() {
    let packed = Packed::mixed(3);
    packed.claim_to_be_huge();
    for args in [["--cache", "100%"], ["--cache", "4TiB"]] {
        let (code, text) = serve(&[&packed.dataset, &args[0], &args[1]]);
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains("does not fit") && text.contains("at most --cache "), "{text}");
        assert!(text.contains("cache=\""), "as Python has it, too: {text}");
    }
}
