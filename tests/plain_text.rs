//! The rules of CONTRIBUTING.md about text: short front pages, 100 columns, plain patterns,
//! reasons for dependencies.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Columns of text. Tables, byte diagrams and what programs print may be wider.
const COLUMNS_MAX: usize = 100;

/// Lines of the pages that a newcomer reads first.
const LINES_MAX: &[(&str, usize)] = &[("README.md", 150), ("ARCHITECTURE.md", 200)];

/// What a reader must read twice. Sentences that begin with "Of" are another such pattern.
const PATTERNS: &[&str] =
    &[" but for ", " who asks", " whoever ", " is to be ", " are to be ", " so many ", " as of ["];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Files with these extensions, by path relative to the root. Runs on record stay as they were.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let made =
                ["target", "site", "record", "corpus", "demo-out", "study-data"].contains(&name.as_str());
            let left_out = made || name.starts_with('.');
            if path.is_dir() && !left_out {
                folders.push(path);
            } else if path.extension().is_some_and(|e| extensions.iter().any(|wanted| e == *wanted)) {
                let relative = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((relative, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    assert!(found.len() > 10, "no {extensions:?} below {}", root().display());
    found.sort();
    found
}

/// The lines of a page that are checked: prose, shell and Python, but no table, no diagram and no
/// program's output.
fn checked_lines(page: &str) -> Vec<&str> {
    let mut block: Option<&str> = None;
    let mut lines = Vec::new();
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language) };
            continue;
        }
        let is_checked = match block {
            None => !line.starts_with('|'),
            Some(language) => ["sh", "python"].contains(&language),
        };
        if is_checked {
            lines.push(line);
        }
    }
    lines
}

/// The lines of source that are nothing but a comment.
fn comment_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| {
        let line = line.trim_start();
        line.starts_with("//")
            || (line.starts_with('#') && !line.starts_with("#[") && !line.starts_with("#!["))
    })
}

fn is_wide(line: &str) -> bool {
    line.chars().count() > COLUMNS_MAX
}

/// A comment's or a paragraph's own words, with a blank at either end: patterns are whole words.
fn words(line: &str) -> String {
    let text = line.trim_start().trim_start_matches(['/', '!', '#', '-', '*']).trim();
    format!(" {} ", text.to_lowercase())
}

fn begins_with_of(line: &str) -> bool {
    let text = line.trim_start().trim_start_matches(['/', '!', '#', '-', '*']).trim();
    let fronted =
        |at: &str| at.strip_prefix("Of ").is_some_and(|rest| rest.starts_with(|c: char| c.is_lowercase()));
    fronted(text) || text.split(". ").skip(1).any(fronted)
}

fn assert_plain(name: &str, line: &str) {
    let words = words(line);
    let found = PATTERNS.iter().find(|pattern| words.contains(**pattern));
    assert!(found.is_none(), "{name}: {found:?} in {line:?}");
    assert!(!begins_with_of(line), "{name}: begins with Of: {line:?}");
}

#[test]
fn the_front_pages_are_short() {
    for (page, lines_max) in LINES_MAX {
        let lines = fs::read_to_string(root().join(page)).unwrap().lines().count();
        assert!(
            lines <= *lines_max,
            "{page} has {lines} lines, at most {lines_max}: move something to docs/"
        );
    }
}

#[test]
fn pages_are_wrapped() {
    for (name, text) in files(&["md"]) {
        let wide: Vec<&str> = checked_lines(&text).into_iter().filter(|line| is_wide(line)).collect();
        assert!(wide.is_empty(), "{name}: more than {COLUMNS_MAX} columns: {wide:#?}");
    }
}

#[test]
fn comments_are_wrapped() {
    for (name, text) in files(&["rs", "py"]) {
        let wide: Vec<&str> = comment_lines(&text).filter(|line| is_wide(line)).collect();
        assert!(wide.is_empty(), "{name}: more than {COLUMNS_MAX} columns: {wide:#?}");
    }
}

#[test]
fn pages_name_files_that_are_there() {
    let sources = files(&["rs", "py", "toml", "sh"]);
    let mut named = 0;
    for (name, text) in files(&["md"]) {
        for word in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let is_file = [".rs", ".py", ".toml", ".sh"].iter().any(|end| word.ends_with(end))
                && word.chars().all(|c| c.is_alphanumeric() || "/_-.".contains(c));
            if !is_file {
                continue;
            }
            named += 1;
            let found = sources.iter().any(|(path, _)| path == word || path.ends_with(&format!("/{word}")));
            assert!(found, "{name} names {word}, which is nowhere");
        }
    }
    assert!(named > 50, "the search finds only {named} names of files");
}

#[test]
fn pages_are_in_plain_english() {
    for (name, text) in files(&["md"]) {
        for line in checked_lines(&text) {
            assert_plain(&name, line);
        }
    }
}

#[test]
fn comments_are_in_plain_english() {
    for (name, text) in files(&["rs", "py"]) {
        comment_lines(&text).for_each(|line| assert_plain(&name, line));
    }
}

#[test]
fn every_dependency_has_a_reason() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let table = manifest.split("[workspace.dependencies]\n").nth(1).unwrap().split("\n[").next().unwrap();
    let mut before = "";
    let mut reasons = 0;
    for line in table.lines() {
        let is_dependency = line.contains(" = ") && !line.starts_with('#') && !line.contains("path = ");
        assert!(!is_dependency || before.starts_with("# "), "Cargo.toml: say above {line:?} why it is here");
        reasons += usize::from(is_dependency);
        before = line;
    }
    assert!(reasons > 30, "the search finds only {reasons} dependencies");
}

#[test]
fn every_crate_has_a_page() {
    for (name, _) in files(&["toml"]) {
        let Some(folder) = name.strip_suffix("/Cargo.toml") else { continue };
        // These are described by the pages of the folder above them.
        if ["tests", "benches/slow-store"].contains(&folder) {
            continue;
        }
        assert!(root().join(folder).join("README.md").is_file(), "{folder} has no README.md");
    }
}
