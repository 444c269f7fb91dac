//! Sample ids, labels and classes are those of torchvision's ImageFolder.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::support::{left_out, run, run_well, stderr_of, torchvision_order, varied_image_folder, write};
use shade_formats::SampleId;
use shade_pack::Error;
use shade_pack::catalogue::Catalogue;
use shade_pack::dataset::Dataset;
use shade_pack::interrupt::Stop;
use shade_pack::progress::{CommandProgress, Shown};
use shade_pack::source::{Selection, image_folder};

#[test]
fn a_varied_folder_is_ordered_as_the_rule_says() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    varied_image_folder(&source);
    run_well(&[&"create", &source, &out, &"--shard-size", &"16KiB", &"--quiet"]);
    let Dataset { index, .. } = Dataset::open(&out).unwrap();
    let packed: Vec<(String, u32)> = (0..index.len())
        .map(SampleId)
        .map(|sample| {
            let path = String::from_utf8(index.path(sample).unwrap().to_vec()).unwrap();
            (path, index.entry(sample).unwrap().label)
        })
        .collect();
    let expected = torchvision_order(&source);
    assert_eq!(packed, expected);
    assert!(expected.len() > 20 && index.class_count() == 7, "the folder lost its variety");
    let by_string: Vec<&str> =
        expected.iter().map(|(path, _)| path.as_str()).filter(|path| path.contains("/a")).collect();
    assert_eq!(by_string[..4], ["Ant/a/1.jpg", "Ant/a-b/1.jpg", "Ant/a.b/1.jpg", "Ant/a/b/1.jpg"]);
}

/// Against torchvision itself, where this machine has it: the project's virtual environment, else
/// `python3`.
#[test]
fn torchvision_itself_agrees() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    varied_image_folder(&source);
    let script = "import os, sys, json\n\
        try: from torchvision.datasets import ImageFolder\n\
        except ImportError: sys.exit(77)\n\
        root = sys.argv[1]\n\
        folder = ImageFolder(root)\n\
        print(json.dumps([folder.classes, [[os.path.relpath(p, root), t] for p, t in folder.samples]]))";
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.venv/bin/python");
    let python = if own.exists() { own.as_path() } else { Path::new("python3") };
    let output = match Command::new(python).args(["-c", script]).arg(&source).output() {
        Ok(output) if output.status.code() != Some(77) => output,
        _ => return left_out(&format!("{} cannot import torchvision", python.display())),
    };
    assert!(output.status.success(), "{output:?}");
    let (classes, samples): (Vec<String>, Vec<(String, u32)>) =
        serde_json::from_slice(&output.stdout).unwrap();
    let ours = scan(&source, &Stop::default()).unwrap();
    assert_eq!(ours.classes, classes);
    assert_eq!(ours.samples().map(|s| (s.path.to_owned(), s.label)).collect::<Vec<_>>(), samples);
    assert!(ours.bad.is_empty());
}

fn scan(root: &Path, stop: &Stop) -> Result<Catalogue, Error> {
    image_folder::scan(
        root,
        &Selection::default(),
        &CommandProgress::start(Shown::Quiet, "listing", 0, 0),
        stop,
    )
}

/// What is wrong with the folder as a whole, else with its first bad file.
fn fault(root: &Path) -> String {
    match scan(root, &Stop::default()) {
        Ok(catalogue) => catalogue.bad[0].to_string(),
        Err(fault) => fault.to_string(),
    }
}

#[test]
fn a_folder_without_classes_and_a_class_without_images_are_named() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().join("stray.jpg"), b"x");
    assert!(fault(temp.path()).contains("couldn't find any class folder"));
    write(&temp.path().join("cat/1.jpg"), b"x");
    write(&temp.path().join("dog/1.gif"), b"x");
    fs::create_dir(temp.path().join("eel")).unwrap();
    let refused = run(&[&"create", &temp.path(), &temp.path().with_extension("shade"), &"-q"]);
    let text = stderr_of(&refused);
    assert!(text.contains("found no valid file for the classes dog, eel"), "{text}");
    assert!(text.contains(".jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff, .webp"), "{text}");
}

#[test]
fn loops_of_links_are_named() {
    for target in ["..", "../..", "../../elsewhere"] {
        let temp = tempfile::tempdir().unwrap();
        let source = temp.path().join("images");
        write(&source.join("cat/1.jpg"), b"x");
        fs::create_dir(temp.path().join("elsewhere")).unwrap();
        symlink("../images/cat", temp.path().join("elsewhere/and back")).unwrap();
        symlink(target, source.join("cat/link")).unwrap();
        let text = fault(&source);
        assert!(text.contains("loop") && text.contains("cat/link"), "{target}: {text}");
    }
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().join("cat/1.jpg"), b"x");
    symlink(".", temp.path().join("me")).unwrap();
    assert!(fault(temp.path()).contains("loop"));
}

#[test]
fn what_cannot_become_a_sample_is_named() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().join("cat/1.jpg"), b"x");
    symlink("gone", temp.path().join("cat/2.jpg")).unwrap();
    assert!(fault(temp.path()).contains("cat/2.jpg"));
    fs::remove_file(temp.path().join("cat/2.jpg")).unwrap();
    fs::write(temp.path().join("cat").join(std::ffi::OsStr::from_bytes(b"\xff.txt")), b"ignored").unwrap();
    assert!(scan(temp.path(), &Stop::default()).unwrap().bad.is_empty());
    fs::write(temp.path().join("cat").join(std::ffi::OsStr::from_bytes(b"\xff.jpg")), b"x").unwrap();
    let text = fault(temp.path());
    assert!(text.contains("not UTF-8") && text.contains("cat/"), "{text}");
}

#[test]
fn a_request_to_stop_is_heard_while_listing() {
    let temp = tempfile::tempdir().unwrap();
    write(&temp.path().join("cat/1.jpg"), b"x");
    let stop = Stop::default();
    assert!(!stop.request());
    assert!(matches!(scan(temp.path(), &stop), Err(Error::Interrupted)));
}
