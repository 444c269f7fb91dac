//! Names of files, classes and members are a stranger's: no command writes what a terminal obeys.

use std::path::Path;
use std::process::Output;

use crate::support::{run, tar_of, write};

/// An attacker's name: escape sequences of one and of two bytes, a bell, a forged line, text shown
/// backwards, separators of lines.
const NAME: &str = "a\u{1b}]0;owned\u{7}\u{9b}31m\nshade-pack: all is well\u{202e}gpj\u{2028}\u{7f}\t";

/// What must not be there. Line ends and tabs are the program's own.
fn is_obeyed(c: char) -> bool {
    shade_formats::printable::is_obeyed(c) && !matches!(c, '\n' | '\t')
}

#[track_caller]
fn is_plain(output: &Output, says: &str) {
    for bytes in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(bytes);
        assert!(!text.contains(is_obeyed), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("shade-pack: all is well")), "{text:?}");
    }
    let all = [output.stdout.clone(), output.stderr.clone()].concat();
    assert!(String::from_utf8_lossy(&all).contains(says), "{says} in {output:?}");
}

/// An ImageFolder with such names, one of its files empty.
fn source(root: &Path) {
    write(&root.join(NAME).join(format!("{NAME}.jpg")), b"no image");
    write(&root.join("b").join(format!("{NAME}.png")), b"");
    write(&root.join("b/good.png"), b"<html>");
}

#[test]
fn every_command_spells_out_control_characters() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    source(&at("source"));
    let skip = ["--on-bad", "skip"];
    is_plain(&run(&[&"create", &at("source"), &at("x")]), "an empty file");
    is_plain(&run(&[&"create", &at("source"), &at("x"), &"--on-bad", &"list"]), "an empty file");
    for json in ["--quiet", "--json"] {
        let out = at(&format!("out{json}"));
        is_plain(&run(&[&"create", &at("source"), &out, &skip[0], &skip[1], &json]), "owned");
        is_plain(
            &run(&[&"plan", &at("source"), &at(&format!("p{json}")), &skip[0], &skip[1], &json]),
            "owned",
        );
        is_plain(&run(&[&"list", &at("source"), &at("l"), &"--part", &"0/1", &json]), "owned");
        for raw in ["jpeg", "raw"] {
            is_plain(&run(&[&"create", &at("source"), &at("x"), &"--format", &raw, &json]), "owned");
        }
    }
    let out = at("out--json");
    is_plain(&run(&[&"info", &out]), "owned");
    is_plain(&run(&[&"info", &out, &"--json"]), "owned");
    for long in ["--long", "--json"] {
        is_plain(&run(&[&"ls", &out, &long]), "owned");
    }
    is_plain(&run(&[&"ls", &out, &"--class", &"none"]), "no class");
    is_plain(&run(&[&"subset", &out, &at("s"), &"--class", &NAME]), "samples");
    is_plain(&run(&[&"verify", &out, &"--decode"]), "owned");
    is_plain(&run(&[&"verify", &out, &"--decode", &"--json"]), "owned");
    is_plain(&run(&[&"diff", &at("source"), &out]), "owned");
    write(&at("other").join(NAME).join(format!("{NAME}2.jpg")), b"text");
    is_plain(&run(&[&"diff", &at("other"), &out]), "owned");
    is_plain(&run(&[&"append", &at("other"), &out, &"--quiet"]), "appended");
    write(&at("other/new\u{1b}c/1.jpg"), b"text");
    is_plain(&run(&[&"append", &at("other"), &out, &"--quiet"]), "new classes");
    is_plain(&run(&[&"merge", &at("m"), &out, &out]), "owned");
    is_plain(&run(&[&"extract", &out, &at("back")]), "4 files");
    is_plain(&run(&[&"info", &at(NAME)]), "owned");
}

#[test]
fn members_and_labels_of_tars_and_lists_are_spelled_out() {
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let name = NAME.replace('.', "");
    let members: Vec<(String, &[u8])> = vec![
        (format!("{name}.jpg"), b"x"),
        (format!("{name}.cls"), b"0"),
        ("b.jpg".to_owned(), b"x"),
        ("b.cls".to_owned(), "1\u{1b}[2J".as_bytes()),
        (format!("c.{name}"), b"x"),
    ];
    let members: Vec<(&str, &[u8])> = members.iter().map(|(name, bytes)| (name.as_str(), *bytes)).collect();
    tar_of(&at("tars").join("a.tar"), &members);
    is_plain(&run(&[&"create", &at("tars"), &at("x"), &"--on-bad", &"list", &"-q"]), "owned");
    let csv = format!("path,label\n\"{}\",\"{}\"\n", NAME, "\u{1b}[2J");
    write(&at("list.csv"), csv.as_bytes());
    is_plain(&run(&[&"create", &at("list.csv"), &at("x"), &"--on-bad", &"list", &"-q"]), "list.csv");
    write(&at("list.csv"), format!("{NAME},x\n").as_bytes());
    is_plain(&run(&[&"create", &at("list.csv"), &at("x"), &"-q"]), "'path' and 'label'");
}
