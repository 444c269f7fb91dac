//! No two files of a crate import from each other, directly or over other files.
//!
//! A file imports from each file whose names it uses, in `use` or in a path. A re-exported name
//! belongs to the file that defines it. A `pub use` of a file's own children makes a table of
//! contents and is no import. Tests do not count.
#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use shade_tests::{code, production, sources};

/// What each file of a crate names, by module, such as `crate::cache::store`.
type Files = BTreeMap<String, Vec<Named>>;

/// `use path as name`, or a path elsewhere in the code, whose name is the whole path.
struct Named {
    path: String,
    name: String,
    is_public: bool,
}

/// The module of the file at `path` below `src`.
fn module(path: &str) -> String {
    let path = format!("crate/{}", path.trim_end_matches(".rs"));
    let ends = ["/lib", "/main", "/mod"].iter();
    ends.fold(&path[..], |path, end| path.trim_end_matches(end)).replace('/', "::")
}

/// `a::b` and `a::c::d` for `a::{b, c::{d}}`.
fn expand(tree: &str) -> Vec<String> {
    let Some((start, body)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let body = body.rsplit_once('}').map_or(body, |(body, _)| body);
    let mut depth = 0;
    let parts = body.split(|c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty()).flat_map(expand);
    parts.map(|part| format!("{}{part}", start.trim())).collect()
}

fn read(text: &str) -> Vec<Named> {
    let mut found = Vec::new();
    for statement in code(production(text)).split(';') {
        let is_use = |(before, _): &(&str, &str)| before.is_empty() || before.ends_with([' ', '\n']);
        let (before, tree) = statement.rsplit_once("use ").filter(is_use).unwrap_or((statement, ""));
        let is_public = before.rsplit('\n').next().is_some_and(|line| line.trim().starts_with("pub"));
        for path in expand(tree).into_iter().filter(|path| !path.is_empty()) {
            let (path, alias) = path.split_once(" as ").unwrap_or((&path, ""));
            let path = path.trim_end_matches("::self");
            let last = path.rsplit("::").next().unwrap_or_default();
            let name = if alias.is_empty() { last } else { alias };
            found.push(Named { path: path.to_owned(), name: name.to_owned(), is_public });
        }
        let paths = before.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c));
        for path in paths.map(|path| path.trim_matches(':')).filter(|path| path.contains("::")) {
            found.push(Named { path: path.to_owned(), name: path.to_owned(), is_public: false });
        }
    }
    found
}

/// The module of the file that defines what `path` in `module` names, if it is in this crate.
fn resolve(files: &Files, module: &str, path: &str, hops_left: u32) -> Option<String> {
    let hops_left = hops_left.checked_sub(1)?;
    let used = |module: &str, name: &str| files.get(module)?.iter().find(|used| used.name == name);
    let (first, behind) = path.split_once("::").unwrap_or((path, ""));
    let mut at = if first == "crate" { first } else { module }.to_owned();
    let is_child = files.contains_key(&format!("{module}::{first}"));
    if !is_child && !["crate", "self", "super"].contains(&first) {
        let path = &used(module, first)?.path;
        return resolve(files, module, &format!("{path}::{behind}"), hops_left);
    }
    let mut names = path.split("::");
    while let Some(name) = names.next() {
        let below = format!("{at}::{name}");
        if files.contains_key(&below) {
            at = below;
        } else if name == "super" {
            at = at.rsplit_once("::")?.0.to_owned();
        } else if let Some(path) = used(&at, name).filter(|used| used.is_public).map(|used| &used.path) {
            let path = names.fold(path.clone(), |path, name| format!("{path}::{name}"));
            return resolve(files, &at, &path, hops_left).or(Some(at));
        } else if !["crate", "self"].contains(&name) {
            break;
        }
    }
    files.contains_key(&at).then_some(at)
}

fn imports(files: &Files, module: &str) -> BTreeSet<String> {
    let contents = format!("{module}::");
    let resolved = files[module].iter().filter_map(|named| {
        let target = resolve(files, module, &named.path, 8)?;
        let is_contents = named.is_public && target.starts_with(&contents);
        (target != module && !is_contents).then_some(target)
    });
    resolved.collect()
}

/// The circles among files, given by path below `src` with their texts: for each the imports that
/// make it.
fn circles<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let files: Files = files.into_iter().map(|(path, text)| (module(path), read(text))).collect();
    let imports: BTreeMap<&str, BTreeSet<String>> =
        files.keys().map(|module| (module.as_str(), imports(&files, module))).collect();
    let reached = imports.keys().map(|&module| {
        let (mut reached, mut next) = (BTreeSet::new(), vec![module]);
        while let Some(module) = next.pop() {
            next.extend(imports[module].iter().map(String::as_str).filter(|&to| reached.insert(to)));
        }
        (module, reached)
    });
    let reached: BTreeMap<&str, BTreeSet<&str>> = reached.collect();
    let mut circles = BTreeSet::new();
    for (module, reachable) in &reached {
        let is_in = |other: &&str| reachable.contains(other) && reached[other].contains(module);
        let line = |from: &str| {
            let to: Vec<&str> = imports[from].iter().map(String::as_str).filter(is_in).collect();
            format!("{from} -> {}", to.join(" and "))
        };
        let lines: Vec<String> = reachable.iter().copied().filter(is_in).map(line).collect();
        circles.insert(lines.join(", ").replace("crate::", ""));
    }
    circles.into_iter().filter(|circle| !circle.is_empty()).collect()
}

#[test]
fn no_files_import_from_each_other() {
    let sources = sources("rs");
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for (name, text) in &sources {
        let Some((folder, path)) = name.split_once("/src/") else { continue };
        let files = crates.entry(folder).or_default();
        // A program beside a library is a crate of its own.
        let is_second = path == "main.rs" && files.iter().any(|(path, _)| *path == "lib.rs");
        if !is_second && !path.starts_with("bin/") {
            files.push((path, text));
        }
    }
    assert!(crates.len() > 10, "the search finds only {:?}", crates.keys());
    for (folder, files) in crates {
        let circles = circles(files);
        assert!(circles.is_empty(), "{folder}: put what two files need below both: {circles:#?}");
    }
}

/// The imports of `shade-core`'s rooms that go from one to a room behind it in this order, or to
/// what sees all rooms.
fn upward<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    const ROOMS: [&str; 4] = ["crate::figures", "crate::training", "crate::records", "crate::batches"];
    let files: Files = files.into_iter().map(|(path, text)| (module(path), read(text))).collect();
    let room = |module: &str| {
        ROOMS.iter().position(|room| module == *room || module.starts_with(&format!("{room}::")))
    };
    let mut found = Vec::new();
    for from in files.keys() {
        let Some(of) = room(from) else { continue };
        let is_upward = |to: &String| to == "crate::brain" || room(to).is_some_and(|to| to > of);
        found.extend(
            imports(&files, from).iter().filter(|to| is_upward(to)).map(|to| format!("{from} -> {to}")),
        );
    }
    found
}

#[test]
fn a_room_of_the_core_asks_only_rooms_before_it() {
    let sources = sources("rs");
    let of_core = |(name, text): &'_ (String, String)| {
        Some((name.strip_prefix("loader/core/src/")?.to_owned(), text.clone()))
    };
    let files: Vec<_> = sources.iter().filter_map(of_core).collect();
    assert!(files.len() > 50, "the search finds only {} files", files.len());
    let files = || files.iter().map(|(path, text)| (path.as_str(), text.as_str()));
    assert_eq!(upward(files()), Vec::<String>::new(), "tell it as an argument");
    let back = ("training/job.rs", "use crate::records::Records;\nuse crate::brain::Core;");
    let table = ("records/mod.rs", "pub(crate) struct Records;");
    let found = upward([back, table, ("brain.rs", ""), ("batches/ring.rs", "use crate::training::job;")]);
    assert_eq!(found, ["crate::training::job -> crate::brain", "crate::training::job -> crate::records"]);
}

#[test]
fn finds_files_that_use_each_other() {
    let there = ("a.rs", "use crate::b::{self, c::B};");
    for back in [
        "use crate::a::A;",
        "use super::a;",
        "use super::{x, a::{A as Other, *}};",
        "pub use crate::a::A;",
        "fn f() -> crate::a::A {}",
        "use crate as root;\nfn f() { root::a::f() }",
        "mod c;\n#[cfg(test)]\nmod tested;\nuse crate::a::A;",
        "use crate::{\n    x,\n    a::{A},\n};",
    ] {
        assert_eq!(circles([there, ("b.rs", back)]), ["a -> b, b -> a"], "{back}");
    }
    let child = ("a/b.rs", "use super::Wanted;");
    for parent in ["mod b;\nfn f() { b::run() }", "mod b;\nuse b::run;", "mod b;\nuse self::b::run;"] {
        assert_eq!(circles([("a/mod.rs", parent), child]), ["a -> a::b, a::b -> a"], "{parent}");
    }
}

#[test]
fn finds_each_circle_over_other_files() {
    let files = [
        ("a.rs", "use crate::b::C;"),
        ("b/mod.rs", "mod c;\npub(crate) use c::C;"),
        ("b/c.rs", "use super::super::d;"),
        ("d.rs", "use crate::a::A;\nuse crate::e;"),
        ("e.rs", "use crate::f;"),
        ("f.rs", "use crate::e::E;"),
    ];
    assert_eq!(circles(files), ["a -> b::c, b::c -> d, d -> a", "e -> f, f -> e"]);
}

#[test]
fn leaves_tables_of_contents_tests_and_comments_alone() {
    let root = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::{B, go as run};");
    for other in [
        "/// As [`crate::a::A`].\npub struct B;",
        "pub struct B;\n\n#[cfg(test)]\nmod tests {\n    use crate::A;\n}\n",
        "pub struct B;\n\n#[cfg(test)]\n#[expect(lint)]\nmod tests {\n    use crate::A;\n}\n",
        "fn f() { x.a::<u8>() }",
        "use elsewhere::a::A;",
    ] {
        let files = [root, ("a.rs", "use crate::{B, run};"), ("b.rs", other)];
        assert_eq!(circles(files), Vec::<String>::new(), "{other}");
    }
}
