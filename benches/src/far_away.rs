//! `shade-pack create` beside `tar cf` of a tree in a store that takes 2 ms for every operation.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::figure::{Figure, Unit};
use crate::images::{SMALL_PHOTO, photos};
use crate::programs::tar;
use crate::result::Result;
use crate::scratch::Scratch;
use crate::tree::Tree;

const RUNS: usize = 3;
const DELAY_US: u32 = 2_000;
/// tar sends three operations for each file in sequence: some 10 s in all.
const FILES: u32 = 1_500;

/// The slow store's report about a command.
#[derive(Debug, Deserialize)]
struct Told {
    seconds: f64,
    operations: BTreeMap<String, u64>,
}

/// Files a second and operations per file. No rows where the store cannot be mounted.
pub(crate) fn run(scratch: &Scratch) -> Result<Vec<Figure>> {
    let images = photos(FILES.into(), &SMALL_PHOTO)?;
    let tree = Tree::repeat("JPEG 10 KB", scratch.folder(), FILES, &images)?;
    if let Err(why) = over_store(scratch, &tree, &Command::new("true")) {
        eprintln!("skipped: the slow store does not run here: {why}");
        return Ok(Vec::new());
    }
    let out = scratch.folder().join("out");
    let mount = scratch.folder().join("mount");
    let mut create = scratch.programs.create(&mount, &out);
    create.arg("--no-sync");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        ours.push(over_store(scratch, &tree, &create)?);
        fs::remove_dir_all(&out)?;
        theirs.push(over_store(scratch, &tree, &tar(&mount, &out))?);
        fs::remove_file(&out)?;
    }
    let [rate, operations] = figures("shade-pack create", &tree, &ours);
    let [rival, its_operations] = figures("tar cf", &tree, &theirs);
    Ok(vec![rate.beside(&rival), operations, rival, its_operations])
}

fn figures(name: &str, tree: &Tree, runs: &[Told]) -> [Figure; 2] {
    let files = f64::from(tree.files);
    let label = format!("{name}, 2 ms store, {}", tree.name);
    let rates = runs.iter().map(|told| files / told.seconds).collect();
    let operations = runs.iter().map(|told| told.operations.values().sum::<u64>() as f64 / files).collect();
    [
        Figure::new(label.clone(), Unit::FilesPerSecond, rates).of_bytes(tree.mean_bytes()),
        Figure::new(format!("{label}, operations"), Unit::PerFile, operations),
    ]
}

/// Runs a command with the tree at `mount`, mounted anew, so the kernel has nothing cached.
///
/// It has a mount namespace of its own, whose mounts end with its last process.
fn over_store(scratch: &Scratch, tree: &Tree, command: &Command) -> Result<Told> {
    let (mount, told) = (scratch.folder().join("mount"), scratch.folder().join("told.json"));
    fs::create_dir_all(&mount)?;
    let mut slow = Command::new("unshare");
    slow.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        slow.args(["--user", "--map-root-user"]);
    }
    slow.arg(scratch.programs.slow_store()?).args(["--delay-us", &DELAY_US.to_string()]);
    slow.arg("--out").arg(&told).args([&tree.source, &mount]);
    slow.arg("--").arg(command.get_program()).args(command.get_args());
    ended_well(&mut slow)?;
    read(&told)
}

fn ended_well(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("unshare: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{}: {}", output.status, said.trim()).into()) }
}

fn read(told: &Path) -> Result<Told> {
    Ok(serde_json::from_slice(&fs::read(told)?)?)
}
