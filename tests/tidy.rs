//! The rules of ARCHITECTURE.md as tests: first lines, arrows, where `unsafe` may stand, file lengths, banned names.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files with `unsafe` in them. A new one is a design decision: each needs a reason that no other file already has.
const UNSAFE: &[&str] = &[
    "formats/dataset/src/open.rs",
    "formats/src/ring/region.rs",
    "images/src/decode/jpeg/turbo.rs",
    "loader/src/blocks/arena.rs",
    "loader/src/reads/uring.rs",
    "loader/src/ring/segment.rs",
    "packer/src/memory.rs",
    "trainer-bridge/client/src/segment.rs",
    "trainer-bridge/py/src/buffer.rs",
    "trainer-bridge/py/src/dense.rs",
    "trainer-bridge/py/src/dlpack.rs",
];

/// Production lines a file may have; tests at its end do not count.
const LINES_MAX: usize = 400;

/// What a crate may use of ours. Tests and benches may use everything; nothing may use them.
const CRATES: &[(&str, &[&str])] = &[
    ("formats", &[]),
    ("formats/dataset", &["shade-formats"]),
    ("images", &["shade-formats"]),
    ("packer", &["shade-dataset", "shade-formats", "shade-images"]),
    ("loader", &["shade-dataset", "shade-formats", "shade-images"]),
    ("trainer-bridge/client", &["shade-dataset", "shade-formats"]),
    ("trainer-bridge/py", &["shade-client", "shade-formats", "shade-images"]),
];

/// What a module of the loader may use of the others. `daemon` wires everything; `cli` names the choices of stages.
const LOADER: &[(&str, &[&str])] = &[
    ("importance", &[]),
    ("plan", &["importance"]),
    ("cache", &["importance"]),
    ("log", &["last_words"]),
    ("panics", &["log"]),
    ("proc", &[]),
    ("memfd", &[]),
    ("blocks", &[]),
    ("reads", &["blocks", "panics"]),
    ("batches", &["blocks", "panics"]),
    ("core", &["batches", "blocks", "cache", "importance", "plan", "reads"]),
    ("ring", &["memfd"]),
    ("control", &["core", "log", "panics", "ring"]),
    ("doctor", &["blocks", "proc", "reads"]),
    ("names", &[]),
    ("last_words", &[]),
    ("simulate", &["batches", "blocks", "cache", "core", "names", "plan", "reads"]),
    ("trace", &["control"]),
    ("cli", &["core", "doctor", "names", "reads", "simulate", "trace"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Source files below the root's crates, by path relative to the root.
fn sources(extension: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["formats", "images", "packer", "loader", "trainer-bridge", "tests", "benches", "demo"]
            .map(|d| root().join(d))
            .to_vec();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let made = ["target", "__pycache__", ".venv"].iter().any(|name| path.ends_with(name));
            if path.is_dir() && !made {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == extension) {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(!found.is_empty(), "no .{extension} files below {}", root().display());
    found.sort();
    found
}

fn production(text: &str) -> &str {
    let tests = ["\n#[cfg(test)]\nmod ", "\n#[cfg(test)]\npub(super) mod "];
    tests.iter().filter_map(|start| text.find(start)).min().map_or(text, |end| &text[..end])
}

/// Without comment lines.
fn code(text: &str) -> String {
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

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
        assert!(lines <= LINES_MAX + 100, "{name} has {lines} lines");
    }
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
fn crates_use_only_what_the_arrows_allow() {
    let ours = ["shade-dataset", "shade-formats", "shade-images", "shade-pack", "shade-load", "shade-client"];
    for (folder, allowed) in CRATES {
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("\n[dependencies]").nth(1).unwrap_or("");
        for name in ours {
            let used = dependencies
                .lines()
                .any(|line| line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}.")));
            assert!(!used || allowed.contains(&name), "{folder} must not use {name}");
        }
    }
}

#[test]
fn modules_of_the_loader_use_only_what_the_arrows_allow() {
    for (name, text) in sources("rs") {
        let Some(rest) = name.strip_prefix("loader/src/") else { continue };
        let module = rest.split(['/', '.']).next().unwrap();
        if ["daemon", "main", "lib"].contains(&module) {
            continue;
        }
        let allowed =
            LOADER.iter().find(|(m, _)| *m == module).unwrap_or_else(|| panic!("{module} is in no arrow")).1;
        for used in code(production(&text)).split("crate::").skip(1) {
            let used: String = used.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let known = LOADER.iter().any(|(m, _)| *m == used) || used == "daemon";
            assert!(
                !known || used == module || allowed.contains(&used.as_str()),
                "{name} must not use crate::{used}"
            );
        }
    }
}

#[test]
fn the_pure_modules_have_no_clock_no_threads_and_no_files() {
    let pure = [
        "formats/src/",
        "images/src/",
        "loader/src/importance",
        "loader/src/plan/",
        "loader/src/cache/",
        "loader/src/core/",
        "loader/src/simulate/play",
        "loader/src/simulate/recommend",
        "loader/src/simulate/replay",
        "loader/src/simulate/stall",
    ];
    for (name, text) in sources("rs") {
        if !pure.iter().any(|p| name.starts_with(p)) {
            continue;
        }
        for banned in ["std::fs", "std::thread", "std::net", "Instant::now", "SystemTime", "rustix::"] {
            assert!(!production(&text).contains(banned), "{name} uses {banned}");
        }
    }
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
fn no_file_is_named_for_leftovers() {
    for (name, _) in sources("rs").into_iter().chain(sources("py")) {
        let stem = Path::new(&name).file_stem().unwrap().to_string_lossy().into_owned();
        assert!(
            !["util", "utils", "helpers", "misc", "common", "manager"].contains(&stem.as_str()),
            "{name}"
        );
    }
}

/// Names in quotes that a line of code gives to threads, as far as they are fixed: `shade-fill-` of `shade-fill-{number}`.
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
        if is_test || !["loader/src/", "trainer-bridge/"].iter().any(|part| name.starts_with(part)) {
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
