//! What the behaviour tests share: a varied ImageFolder, and the real program.

#[path = "../../../tests/src/left_out.rs"]
#[expect(unreachable_pub, reason = "it is a crate's")]
mod left_out;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

pub(crate) use left_out::left_out;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_shade-pack");

pub(crate) fn program(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args.iter().map(|arg| arg.as_ref()));
    command
}

/// Runs the program to its end.
pub(crate) fn run(args: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    program(args).output().unwrap()
}

/// Runs the program, expects success, gives standard output.
pub(crate) fn run_well(args: &[&dyn AsRef<std::ffi::OsStr>]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Halts a process. It goes on for a moment after the signal, so this waits until it has stopped.
pub(crate) fn halt(child: &Child) {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let process = Pid::from_child(child);
    kill_process(process, Signal::STOP).unwrap();
    let (_, status) = waitpid(Some(process), WaitOptions::UNTRACED).unwrap().unwrap();
    assert!(status.stopped(), "it ended before it could be halted");
}

pub(crate) fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A copy of the program where any user may run it. Another process copies it: a file that a
/// process has open for writing cannot be run, and a test that starts a process meanwhile would
/// pass on the open file.
pub(crate) fn copy_program(to: &Path) {
    assert!(Command::new("cp").args([Path::new(PROGRAM), to]).status().unwrap().success());
}

pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Noise: it begins like no image, and zstd cannot compress it.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Every form that torchvision's rule covers: upper case, dots, hidden and nested folders whose
/// order by string differs from their order by parts, links to folders and files, ignored files.
pub(crate) fn varied_image_folder(root: &Path) {
    let elsewhere = root.with_extension("elsewhere");
    write(&elsewhere.join("linked/far.jpg"), b"\xff\xd8\xff\xc0\0\x0b\x08\0\x05\0\x07\x01");
    let files = [
        "zebra/1.png",
        "zebra/10.png",
        "zebra/2.PNG",
        "zebra/a b.webp",
        "zebra/\u{fc}.bmp",
        "zebra/\u{1f600}.tif",
        "zebra/\u{ff5e}.tif",
        "Ant/x.JPeG",
        "Ant/.png",
        "Ant/a/1.jpg",
        "Ant/a-b/1.jpg",
        "Ant/a/b/1.jpg",
        "Ant/a.b/1.jpg",
        "Ant/deep/er/still/1.pgm",
        ".hidden/1.ppm",
        "\u{e9}t\u{e9}/1.tiff",
        "a.dot.jpg/in.jpg",
        "bee/0.jpg",
    ];
    for (number, file) in files.iter().enumerate() {
        write(&root.join(file), &noise(number as u64, 700 * number + 1));
    }
    // One file that zstd compresses well, and one that must not be compressed.
    write(&root.join("bee/flat.bmp"), &[b"BM\0\0\0\0\0\0\0\0\x36\0\0\0", &[7; 9000][..]].concat());
    write(&root.join("bee/flat.jpg"), &[b"\xff\xd8\xff\xe0", &[7; 9000][..]].concat());
    for ignored in ["zebra/notes.txt", "Ant/Thumbs.db", "bee/1.gif", "README.md", "stray.jpg"] {
        write(&root.join(ignored), b"not a sample");
    }
    symlink(elsewhere.join("linked"), root.join("linked class")).unwrap();
    symlink(elsewhere.join("linked"), root.join("bee/linked inside")).unwrap();
    symlink("0.jpg", root.join("bee/link to a file.jpg")).unwrap();
    symlink("nowhere", root.join("bee/dangling.txt")).unwrap();
    fs::create_dir(root.join("Ant/empty folder")).unwrap();
}

/// torchvision's rule in its plainest form: sort (folder, file) by code points, class by class.
pub(crate) fn torchvision_order(root: &Path) -> Vec<(String, u32)> {
    fn walk(folder: &Path, found: &mut Vec<(Vec<char>, Vec<char>)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else {
                let name = path.file_name().unwrap().to_str().unwrap().chars().collect();
                found.push((folder.to_str().unwrap().chars().collect(), name));
            }
        }
    }
    let chars = |path: PathBuf| path.file_name().unwrap().to_str().unwrap().chars().collect::<Vec<char>>();
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let mut classes: Vec<Vec<char>> = entries.filter(|path| path.is_dir()).map(chars).collect();
    classes.sort();
    let mut samples = Vec::new();
    for (label, class) in (0..).zip(classes) {
        let mut found = Vec::new();
        walk(&root.join(class.into_iter().collect::<String>()), &mut found);
        found.sort();
        for (folder, name) in found {
            let path: PathBuf =
                [folder, name].map(|part| part.into_iter().collect::<String>()).iter().collect();
            let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let known = ["jpg", "jpeg", "png", "ppm", "bmp", "pgm", "tif", "tiff", "webp"];
            if known.iter().any(|known| path.to_lowercase().ends_with(&format!(".{known}"))) {
                samples.push((path, label));
            }
        }
    }
    samples
}

/// All files below `root`, links followed, and their bytes.
pub(crate) fn tree(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut ahead = vec![root.to_owned()];
    while let Some(folder) = ahead.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                ahead.push(path);
            } else if path.is_file() {
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Names in `folder`, sorted.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A tar of these members.
pub(crate) fn tar_of(path: &Path, members: &[(&str, &[u8])]) {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in members {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, *bytes).unwrap();
    }
    write(path, &tar.into_inner().unwrap());
}

/// A picture of this size that compresses a little, as a PPM.
pub(crate) fn picture(seed: u64, width: u32, height: u32) -> Vec<u8> {
    let noise = noise(seed, 16);
    let pixels = (0..width * height * 3).map(|n| noise[(n / 40) as usize % 16].wrapping_add((n % 7) as u8));
    [format!("P6\n{width} {height}\n255\n").into_bytes(), pixels.collect()].concat()
}

/// `unshare` into a namespace in which file systems can be mounted: without root in a user
/// namespace, too. `None`, and told as left out, where the system gives neither.
pub(crate) fn own_mounts() -> Option<Command> {
    let command = |way: &[&str]| {
        let mut command = Command::new("unshare");
        command.arg("--mount").args(way);
        command
    };
    let ways: [&[&str]; 2] = [&[], &["--user", "--map-root-user"]];
    let works = |way: &&&[&str]| {
        let tried = command(way).args(["mount", "-t", "tmpfs", "none", "/proc"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let found = ways.iter().find(works).map(|way| command(way));
    if found.is_none() {
        left_out("no file system can be mounted here");
    }
    found
}

/// A library for LD_PRELOAD that fails closes and notes syncs: see `faults.c`.
pub(crate) fn faults(folder: &Path) -> PathBuf {
    let library = folder.join("faults.so");
    if !library.exists() {
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&library);
        cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/faults.c")).arg("-ldl");
        assert!(cc.status().unwrap().success());
    }
    library
}
