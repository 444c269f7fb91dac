//! The rules of ARCHITECTURE.md that Cargo cannot keep: first lines, where `unsafe` may be, which
//! files only compute, file lengths, banned names, threads.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use shade_tests::{code, production, root, sources};

/// Files with `unsafe` in them. A new one is a design decision: it needs a reason that no file in
/// the list already has.
const UNSAFE: &[&str] = &[
    "formats/dataset/src/open.rs",
    "formats/shm/src/mapped.rs",
    "formats/shm/src/region.rs",
    "formats/shm/src/segments.rs",
    "images/src/decode/jpeg/turbo.rs",
    "loader/daemon/src/batches/fatal.rs",
    "loader/daemon/src/detach.rs",
    "loader/reads/src/blocks/arena.rs",
    "loader/reads/src/blocks/mapping.rs",
    "loader/reads/src/uring.rs",
    "packer/src/memory.rs",
    "trainer-bridge/capi/src/calls.rs",
    "trainer-bridge/capi/src/memory.rs",
    "trainer-bridge/client/src/dlpack.rs",
    "trainer-bridge/py/src/buffer.rs",
    "trainer-bridge/py/src/dense.rs",
    "trainer-bridge/py/src/dlpack.rs",
];

/// Files that read the clock of the wall, which may jump: for what a person reads, and for seeds.
/// All waits are by the monotonic clock, which does not.
const WALL_CLOCK: &[&str] = &[
    "loader/daemon/src/daemon/observer.rs",
    "loader/daemon/src/doctor/picks.rs",
    "loader/daemon/src/doctor/requests.rs",
    "loader/reads/src/gate.rs",
    // Whether a file was written to a moment ago, and so may be again without another time.
    "packer/src/pack/state.rs",
    "packer/src/source/image_folder.rs",
];

/// Lines a function may have, as clippy.toml says for Rust.
const FUNCTION_LINES_MAX: usize = 70;
/// Production lines a file may have; tests at its end do not count.
const LINES_MAX: usize = 600;

/// Crates and modules that compute and do nothing else: no clock, no threads, no files.
const PURE: &[&str] = &[
    "formats/layout/src/",
    "images/src/",
    "loader/core/src/",
    "loader/simulate/src/play",
    "loader/simulate/src/recommend",
    "loader/simulate/src/store",
    "loader/simulate/src/trainer",
    "loader/simulate/src/world",
];

#[test]
fn every_source_file_says_first_what_it_is_for() {
    for (name, text) in sources("rs") {
        assert!(text.starts_with("//! "), "{name} must begin with `//! `");
    }
    for (name, text) in sources("py") {
        assert!(text.starts_with("\"\"\"") || text.starts_with("#!"), "{name} must begin with a docstring");
    }
}

#[test]
fn files_are_short() {
    for (name, text) in sources("rs") {
        let is_test = name.contains("/tests/") || name.starts_with("tests/");
        let lines = production(&text).lines().count();
        assert!(
            is_test || lines <= LINES_MAX,
            "{name} has {lines} production lines: split it by stage or by verb"
        );
    }
    for (name, text) in sources("py") {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{name} has {lines} lines");
    }
}

/// A pair says nothing of what its parts are, and two of one type change places unnoticed.
#[test]
fn no_function_takes_a_tuple_apart() {
    for (name, text) in sources("rs") {
        if name.contains("/tests/") || name.starts_with("tests/") || name.starts_with("benches/") {
            continue;
        }
        for line in production(&text).lines().map(str::trim_start) {
            let in_signature = line.starts_with('(') || line.contains("fn ");
            // A conversion is from the tuple itself, and `()` has no parts.
            let is_other = line.contains("fn from(") || line.contains("(): ()") || line.contains('|');
            let takes_apart = in_signature && line.contains("): (") && !is_other;
            assert!(!takes_apart, "{name}: name the type, or take its parts: {line}");
        }
    }
}

/// Clippy says so of Rust.
#[test]
fn functions_in_python_are_short() {
    for (name, text) in sources("py") {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            if !code.starts_with("def ") && !code.starts_with("async def ") {
                continue;
            }
            let indent = line.len() - code.len();
            // The signature may end with a line that is as far to the left as `def`.
            let is_inside = |line: &&&str| {
                let code = line.trim_start();
                code.is_empty() || code.starts_with(')') || line.len() - code.len() > indent
            };
            let body = lines[at + 1..].iter().take_while(is_inside).collect::<Vec<_>>();
            let length = 1 + body.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
            assert!(length <= FUNCTION_LINES_MAX, "{name}:{}: the function has {length} lines", at + 1);
        }
    }
}

#[test]
fn the_clock_of_the_wall_is_read_in_the_listed_files_only() {
    let mut found = BTreeSet::new();
    for (name, text) in sources("rs") {
        if name.contains("/tests/") || name.starts_with("tests/") || name.starts_with("benches/") {
            continue;
        }
        if code(&text).contains("SystemTime::now") || code(&text).contains("ClockId::Realtime") {
            found.insert(name);
        }
    }
    let listed: BTreeSet<String> = WALL_CLOCK.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(found, listed);
}

#[test]
fn unsafe_stands_in_the_listed_files_only() {
    let mut found = BTreeSet::new();
    for (name, text) in sources("rs") {
        if name.contains("/tests/") || name.starts_with("tests/") || name.starts_with("benches/") {
            continue;
        }
        let code = code(&text);
        if ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word)) {
            found.insert(name);
        }
    }
    let listed: BTreeSet<String> = UNSAFE.iter().map(|&name| name.to_owned()).collect();
    assert_eq!(found, listed, "left: files with unsafe; right: the list in this test");
}

#[test]
fn the_pure_modules_have_no_clock_no_threads_and_no_files() {
    for (name, text) in sources("rs") {
        if !PURE.iter().any(|part| name.starts_with(part)) {
            continue;
        }
        for banned in ["std::fs", "std::thread", "std::net", "Instant::now", "SystemTime", "rustix::"] {
            assert!(!production(&text).contains(banned), "{name} uses {banned}");
        }
    }
}

/// The manifests hold all other arrows between crates. This one would be lost in a list of many.
#[test]
fn the_core_depends_on_the_formats_alone() {
    let manifest = fs::read_to_string(root().join("loader/core/Cargo.toml")).unwrap();
    let ours: Vec<&str> = manifest.lines().filter(|line| line.starts_with("shade-")).collect();
    let expected = ["formats", "job"].map(|name| format!("shade-{name} = {{ workspace = true }}"));
    assert_eq!(ours, expected);
}

#[test]
fn the_baseline_jpeg_decoder_uses_nothing_else_of_its_crate() {
    let folder = "images/src/decode/jpeg/baseline/";
    let files: Vec<_> = sources("rs").into_iter().filter(|(name, _)| name.starts_with(folder)).collect();
    assert!(files.len() > 10, "{}", files.len());
    for (name, text) in files {
        let code = code(&text);
        let is_entry = name == format!("{folder}mod.rs");
        let own = production(&code);
        for banned in ["crate::", "super::super", "shade_"] {
            assert!(!own.contains(banned), "{name} uses {banned}");
        }
        assert!(!is_entry || !own.contains("super::"), "{name} uses what is above it");
    }
}

#[test]
fn each_file_of_tests_is_run() {
    let read = |name: &str| fs::read_to_string(root().join("tests").join(name)).unwrap();
    let (manifest, main) = (read("Cargo.toml"), read("main.rs"));
    let files = sources("rs");
    let names = files.iter().filter_map(|(name, _)| name.strip_prefix("tests/")?.strip_suffix(".rs"));
    let names: Vec<&str> = names.filter(|name| !name.contains('/') && *name != "main").collect();
    assert!(names.len() > 60, "{names:?}");
    for name in names {
        let is_run = manifest.contains(&format!("\"{name}.rs\"")) || main.contains(&format!("\nmod {name};"));
        assert!(is_run, "tests/{name}.rs is no module of tests/main.rs, and no [[test]] of tests/Cargo.toml");
    }
}

#[test]
fn no_file_is_named_for_leftovers() {
    for (name, _) in sources("rs").into_iter().chain(sources("py")) {
        let stem = Path::new(&name).file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "helpers", "misc", "common", "manager"].contains(&stem.as_str()),
            "{name}"
        );
    }
}

/// Names in quotes that a line of code gives to threads, without their numbers: `shade-fill-` for
/// `shade-fill-{number}`.
fn thread_names(line: &str) -> impl Iterator<Item = &str> {
    let names_a_thread = line.contains(".name(") || line.contains("on_thread(");
    line.split('"')
        .skip(1)
        .step_by(2)
        .filter(move |text| names_a_thread && text.starts_with("shade-"))
        .map(|text| text.split('{').next().unwrap_or(text))
}

#[test]
fn the_architecture_lists_every_thread_by_its_name() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut found = BTreeSet::new();
    for (name, text) in sources("rs") {
        let is_test = name.contains("/tests/");
        if is_test || !["loader/", "formats/", "trainer-bridge/"].iter().any(|part| name.starts_with(part)) {
            continue;
        }
        let text = code(production(&text));
        assert!(!text.contains("thread::spawn("), "{name}: a thread that outlives a call has a name");
        for thread in text.lines().flat_map(thread_names) {
            found.insert(thread.to_owned());
            assert!(
                page.contains(&format!("`{thread}")),
                "{name}: the tables in ARCHITECTURE.md, Threads, have no row for {thread:?}"
            );
        }
    }
    assert!(found.len() > 10, "the search finds only {found:?}");
}
