//! extract writes below its folder only, and never one file over another, with any index.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{
    PROGRAM, left_out, names, noise, picture, run, run_well, stderr_of, tar_of, tree, write,
};
use serde_json::Value;
use shade_formats::ShardId;
use shade_formats::checksum::crc32c;
use shade_formats::index::{Codec, Entry, FieldsRow, INDEX_FILE, IndexBuilder, Media, Shard};
use shade_formats::shard::{END_OF_ARCHIVE, member_header, member_name};

/// Adds a member with this name and content.
fn member(shard: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    shard.extend(member_header(name, bytes.len() as u64).unwrap());
    shard.extend(bytes);
    shard.resize(shard.len().next_multiple_of(512), 0);
}

/// A dataset of samples with these paths, each with these fields.
fn forge(dir: &Path, samples: &[(&str, &[&str])]) {
    forge_with(dir, samples, "");
}

/// A dataset that says this of how it was made.
fn forge_with(dir: &Path, samples: &[(&str, &[&str])], options: &str) {
    let mut shard = Vec::new();
    let mut entries = Vec::new();
    for (key, (_, fields)) in (0u32..).zip(samples) {
        let record = format!("record {key}");
        let offset = shard.len() as u64 + 512;
        member(&mut shard, &member_name(key, "png"), record.as_bytes());
        let start = shard.len();
        for field in *fields {
            member(&mut shard, &member_name(key, field), field.as_bytes());
        }
        let span = &shard[start..];
        let blocks = u32::try_from(span.len() / 512).unwrap();
        let row =
            if span.is_empty() { FieldsRow::default() } else { FieldsRow { blocks, crc32c: crc32c(span) } };
        let len = u32::try_from(record.len()).unwrap();
        let entry = Entry {
            shard: ShardId(0),
            offset,
            stored_len: len,
            raw_len: len,
            crc32c: Some(crc32c(record.as_bytes())),
            label: 0,
            width: 0,
            height: 0,
            codec: Codec::None,
            media: Media::Other,
        };
        entries.push((entry, row));
    }
    shard.extend(END_OF_ARCHIVE);
    let mut index = IndexBuilder::new();
    let records = u32::try_from(samples.len()).unwrap();
    index
        .push_shard(Shard { name: "s.tar", bytes: shard.len() as u64, crc32c: crc32c(&shard), records })
        .unwrap();
    index.push_class(b"cat").unwrap();
    for ((entry, _), (path, _)) in entries.iter().zip(samples) {
        index.push_sample(entry, path.as_bytes()).unwrap();
    }
    index.set_options(options);
    index.set_fields(entries.iter().map(|(_, row)| *row).collect());
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("s.tar"), shard).unwrap();
    fs::write(dir.join(INDEX_FILE), index.finish().unwrap()).unwrap();
}

/// Exit code and message of an extraction that must leave nothing.
fn refused(samples: &[(&str, &[&str])]) -> (Option<i32>, String) {
    let temp = tempfile::tempdir().unwrap();
    let (dataset, back) = (temp.path().join("dataset"), temp.path().join("back"));
    forge(&dataset, samples);
    let output = run(&[&"extract", &dataset, &back, &"-q"]);
    assert_eq!(names(temp.path()), ["dataset"], "{samples:?}");
    (output.status.code(), stderr_of(&output))
}

#[test]
fn no_pair_leads_out() {
    let temp = tempfile::tempdir().unwrap();
    let back = temp.path().join("back");
    let forged = |pairs: &str| {
        let dataset = temp.path().join("dataset");
        let _ = fs::remove_dir_all(&dataset);
        let made = r#""tool": "x", "shuffle": false, "seed": null, "shard_bytes": 4096, "compress": "none""#;
        let samples: [(&str, &[&str]); 3] =
            [("a/1.png", &["m"]), ("a/1.jpg", &["n"]), ("b.png", &["m", "n"])];
        forge_with(&dataset, &samples, &format!("{{{made}, \"pairs\": {pairs}}}"));
        run(&[&"extract", &dataset, &back, &"-q"])
    };
    for pairs in
        [r#"{"..": "*.x"}"#, r#"{"m": "../*"}"#, r#"{"m": "x"}"#, r#"{"a/b": "*"}"#, r#"{"images": "*.x"}"#]
    {
        let output = forged(pairs);
        assert_eq!(output.status.code(), Some(3), "{pairs}: {output:?}");
        assert!(stderr_of(&output).contains("may lead elsewhere"), "{output:?}");
        assert_eq!(names(temp.path()), ["dataset"], "{pairs}");
    }
    assert!(forged(r#"{"m": "*.x"}"#).status.success());
    let paths = [
        "images/a/1.jpg",
        "images/a/1.n",
        "images/a/1.png",
        "images/b.n",
        "images/b.png",
        "m/a/1.x",
        "m/b.x",
    ];
    assert_eq!(tree(&back).keys().collect::<Vec<_>>(), paths);
}

#[test]
fn no_path_leads_out() {
    for path in [
        "../escaped.png",
        "/tmp/escaped.png",
        "cat/../../escaped.png",
        "cat/..",
        "cat/./1.png",
        "cat/\0.png",
        "",
        "cat//1.png",
        "cat/",
    ] {
        let (code, text) = refused(&[("cat/fine.png", &[]), (path, &[])]);
        assert_eq!(code, Some(3), "{path:?}: {text}");
        assert!(text.contains("sample 1") && text.contains("may lead elsewhere"), "{path:?}: {text}");
    }
}

#[test]
fn two_samples_never_share_a_file() {
    let (code, text) = refused(&[("cat/1.png", &[]), ("cat/2.png", &[]), ("cat/1.png", &[])]);
    assert!(code == Some(3) && text.contains("samples 0 and 2 have the same path 'cat/1.png'"), "{text}");
    let (code, text) = refused(&[("cat", &[]), ("cat/2.png", &[])]);
    assert!(
        code == Some(3) && text.contains("sample 0 has the path 'cat', which is another's folder"),
        "{text}"
    );
}

#[test]
fn a_field_never_takes_the_place_of_another_file() {
    for samples in [
        &[("cat/1.png", &["json"][..]), ("cat/1.jpg", &["json"][..])][..],
        &[("cat/1.png", &["jpg"][..]), ("cat/1.jpg", &[][..])][..],
        &[("cat.png", &["d"][..]), ("cat.d/1.jpg", &[][..])][..],
    ] {
        let (code, text) = refused(samples);
        assert!(code == Some(1) && text.contains("field"), "{code:?} {text}");
    }
}

#[test]
fn links_beside_the_destination_are_not_followed() {
    let temp = tempfile::tempdir().unwrap();
    let (dataset, elsewhere) = (temp.path().join("dataset"), temp.path().join("elsewhere"));
    forge(&dataset, &[("cat/1.png", &["json"])]);
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, temp.path().join("out")).unwrap();
    let output = run(&[&"extract", &dataset, &temp.path().join("out"), &"-q"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(names(&elsewhere).is_empty());
    // A name in a shard is no path: this record lies where the index says.
    run_well(&[&"extract", &dataset, &temp.path().join("back"), &"-q"]);
    let back = tree(&temp.path().join("back"));
    assert_eq!(back.keys().collect::<Vec<_>>(), ["cat/1.json", "cat/1.png"]);
    assert_eq!(back["cat/1.png"], b"record 0");
}

#[test]
fn fields_come_back_beside_their_images() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, back) = (temp.path().join("tars"), temp.path().join("out"), temp.path().join("back"));
    let (image, mask) = (picture(1, 9, 9), noise(3, 70_000));
    tar_of(
        &source.join("set.tar"),
        &[
            ("one.ppm", &image),
            ("one.cls", b"0"),
            ("one.mask.bin", &mask),
            ("one.json", b"{}"),
            ("two.ppm", &image),
            ("two.cls", b"1"),
        ],
    );
    run_well(&[&"create", &source, &out, &"-q"]);
    let report: Value =
        serde_json::from_str(&run_well(&[&"extract", &out, &back, &"--json", &"-q"])).unwrap();
    assert_eq!(
        (&report["samples"], &report["fields"], &report["note"]),
        (&2.into(), &2.into(), &Value::Null)
    );
    let back = tree(&back);
    assert_eq!(
        back.keys().collect::<Vec<_>>(),
        ["set/one.json", "set/one.mask.bin", "set/one.ppm", "set/two.ppm"]
    );
    assert!(
        back["set/one.mask.bin"] == mask && back["set/one.ppm"] == image && back["set/one.json"] == b"{}"
    );
}

#[test]
fn transformed_images_keep_their_names_and_it_says_so() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out, back) = (temp.path().join("images"), temp.path().join("out"), temp.path().join("back"));
    write(&source.join("cat/1.ppm"), &picture(1, 40, 30));
    run_well(&[&"create", &source, &out, &"--format", &"jpeg", &"-q"]);
    let text = run_well(&[&"extract", &out, &back, &"-q"]);
    assert!(text.contains("note: images were transformed"), "{text}");
    assert!(tree(&back)["cat/1.ppm"].starts_with(b"\xff\xd8"));
    assert!(run_well(&[&"info", &out]).contains("transform   --format jpeg --quality 90"));
    let marked = temp.path().join("marked");
    run_well(&[&"create", &source, &marked, &"--restart-markers", &"-q"]);
    assert!(run_well(&[&"info", &marked]).contains("transform   --format keep --restart-markers"));
    let raw = temp.path().join("raw");
    let refused = run(&[&"create", &source, &raw, &"--format", &"raw", &"--restart-markers"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr_of(&refused).contains("--restart-markers is for JPEGs"));
}

/// Another user who may write beside the destination, and in it if he can, while the program works
/// with a mask that lets everybody write.
#[test]
fn another_user_cannot_lead_it_elsewhere() {
    if !rustix::process::geteuid().is_root() {
        return left_out("only root becomes another user");
    }
    let temp = tempfile::tempdir().unwrap();
    let [source, dataset, beside, victim] =
        ["images", "dataset", "beside", "victim"].map(|name| temp.path().join(name));
    for number in 0..600u64 {
        write(&source.join(format!("c{}/d{}/{number}.png", number % 3, number / 3)), &noise(number, 100));
    }
    run_well(&[&"create", &source, &dataset, &"-q"]);
    fs::create_dir(&victim).unwrap();
    fs::create_dir(&beside).unwrap();
    for folder in [temp.path(), &beside] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
    }
    // Renames whatever appears, plants links to the victim's folder, also in what it can write to.
    // He goes on while a file is there: what a killed shell has just started goes on without it.
    let go_on = temp.path().join("go_on");
    let attack = format!(
        "cd {beside} && while [ -e {go_on} ]; do for p in *.part-* out; do\n\
           cd \"$p\" || continue\n\
           > planted && [ ! -e dataset.shade ] && set -- */*/* && [ $# -lt 600 ] && echo \"wrote into $p\" >> ../../log\n\
           cd {beside}\n\
           for c in c0 c1 c2; do mv \"$p/$c\" \"$p/x$c\" && ln -s {victim} \"$p/$c\"; done\n\
           mv \"$p\" stolen.$RANDOM && ln -s {victim} \"$p\"; done; done",
        beside = beside.display(),
        go_on = go_on.display(),
        victim = victim.display()
    );
    for name in ["extract", "subset", "merge", "create"] {
        for round in 0..3 {
            let out = beside.join("out");
            fs::write(&go_on, "").unwrap();
            let mut attacker = Command::new("setpriv");
            attacker.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", &attack]);
            let mut attacker = attacker.stderr(Stdio::null()).spawn().unwrap();
            let (program, images, packed, out) =
                (PROGRAM, source.display(), dataset.display(), out.display());
            let line = match name {
                "extract" => format!("umask 000; exec {program} extract {packed} {out} -q"),
                "subset" => {
                    format!("umask 000; exec {program} subset {packed} {out} --fraction 0.9 --copy -q")
                }
                "merge" => format!("umask 000; exec {program} merge {out} {packed} -q"),
                _ => format!("umask 000; exec {program} create {images} {out} --shard-size 8KiB -q"),
            };
            let output = Command::new("bash").args(["-c", &line]).output().unwrap();
            fs::remove_file(&go_on).unwrap();
            attacker.wait().unwrap();
            assert!(name != "extract" || names(&victim).is_empty(), "{name} {round}: {output:?}");
            // In unfinished work he could do nothing. What is whole gets the user's own mode just
            // before it is renamed.
            let log = fs::read_to_string(temp.path().join("log")).unwrap_or_default();
            assert!(!log.contains(".part-"), "{name} {round}: {log}");
            for entry in fs::read_dir(&beside).unwrap() {
                let path = entry.unwrap().path();
                if path.is_symlink() { fs::remove_file(&path) } else { fs::remove_dir_all(&path) }.unwrap();
            }
            fs::read_dir(&victim).unwrap().for_each(|entry| fs::remove_file(entry.unwrap().path()).unwrap());
        }
    }
}

#[test]
fn what_is_published_has_the_mode_of_other_folders() {
    let temp = tempfile::tempdir().unwrap();
    let [source, dataset] = ["images", "dataset"].map(|name| temp.path().join(name));
    write(&source.join("cat/1.png"), b"x");
    run_well(&[&"create", &source, &dataset, &"-q"]);
    for umask in ["000", "002", "022", "027", "077"] {
        let script = format!(
            "umask {umask}; cd \"$1\"; mkdir plain; \"$0\" create images a -q && \"$0\" extract a b -q && \
             \"$0\" merge c a -q && \"$0\" subset a d --fraction 1 -q && \"$0\" plan images e -q && \
             stat -c %a e.part-* && \"$0\" create images e --part 0/1 -q && \"$0\" finish e -q && \
             stat -c %a plain a b b/cat c d e; rm -r plain a b c d e"
        );
        let output = Command::new("bash").args(["-c", &script, PROGRAM]).arg(temp.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let modes: Vec<&str> = text.lines().filter(|line| line.len() == 3).collect();
        let expected = format!("{:o}", 0o777 & !u32::from_str_radix(umask, 8).unwrap());
        assert_eq!(modes[0], "700", "{umask}: {text}");
        assert!(modes.len() == 8 && modes[1..].iter().all(|mode| *mode == expected), "{umask}: {text}");
    }
}
