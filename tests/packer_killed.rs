//! Every command that makes or changes a dataset is killed with SIGKILL before actions of its own,
//! drawn by chance, on a disk and in a bucket. A reader finds what was there before or the whole;
//! the same command again makes the bytes of an undisturbed one, and leaves nothing else.
//!
//! `SHADE_KILLS=200` kills more than `make test`, `SHADE_SEED` before other actions, `SHADE_ROW`
//! only the commands whose names have this in them. What was seen is printed as a table:
//! `make kills` shows it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use shade_formats::index::INDEX_FILE;
use shade_tests::{Action, Actions, Bucket, Packed, left_out, png, program, traced};
use tempfile::TempDir;

/// Kills of each command in `make test`.
const KILLS: usize = 2;
/// Kills in a row before a command may end.
const ROW_MAX: usize = 3;
/// A command. `OUT` is what it makes or changes.
struct Case {
    name: &'static str,
    /// What is run before, undisturbed, from nothing.
    before: &'static [&'static str],
    /// What is killed.
    killed: &'static str,
    /// What is run behind it, to have a dataset.
    after: &'static [&'static str],
}

const fn case(name: &'static str, killed: &'static str) -> Case {
    Case { name, before: &[], killed, after: &[] }
}

const ON_DISK: &[Case] = &[
    case("create", "create photos/train OUT --shard-size 300kB"),
    case("create, compressed", "create photos/train OUT --shard-size 300kB --compress zstd --cls"),
    case("create, splits", "create photos OUT --splits train,val --shard-size 300kB"),
    Case {
        name: "append",
        before: &["create photos/val OUT --labels none"],
        killed: "append photos/train OUT --labels none --shard-size 300kB",
        after: &[],
    },
    case("merge", "merge OUT here.shade more.shade"),
    case("merge, links", "merge OUT here.shade more.shade --link"),
    Case {
        name: "create, a part",
        before: &[
            "plan photos/train OUT --shard-size 300kB --compress zstd",
            "create photos/train OUT --part 1/2",
        ],
        killed: "create photos/train OUT --part 0/2",
        after: &["finish OUT"],
    },
    Case {
        name: "finish",
        before: &["plan photos/train OUT --shard-size 300kB", "create photos/train OUT --part 0/1"],
        killed: "finish OUT",
        after: &[],
    },
    case("index", "index photos/train OUT --no-probe --checksums"),
    Case {
        name: "index, made again",
        before: &["index photos/train OUT --no-probe"],
        killed: "index photos/train OUT --no-probe --checksums --update",
        after: &[],
    },
    case("subset", "subset here.shade OUT --fraction 0.5"),
];

const IN_BUCKET: &[Case] = &[
    case("create", "create photos/train OUT --shard-size 9MiB"),
    case("create, splits", "create photos OUT --splits train,val --shard-size 9MiB"),
    Case {
        name: "append",
        before: &["create photos/val OUT --labels none"],
        killed: "append photos/train OUT --labels none --shard-size 9MiB",
        after: &[],
    },
    case("merge", "merge OUT here.shade more.shade"),
    case("subset", "subset more.shade OUT --copy --fraction 0.5"),
];

/// Images to pack, and where datasets are made: beside them, or in a bucket.
struct World {
    temp: TempDir,
    bucket: Option<Bucket>,
}

/// What was seen of a command.
#[derive(Default)]
struct Seen {
    kills: usize,
    trials: usize,
    whole: usize,
    bytes: usize,
    uploads: usize,
    kinds: Vec<&'static str>,
}

impl World {
    fn new(bucket: Option<Bucket>) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let random = &mut StdRng::seed_from_u64(7);
        // Large enough for several shards, in a bucket of several parts.
        let sizes = if bucket.is_some() { 100_000..700_000 } else { 10_000..40_000 };
        for (split, numbers) in [("train", 0..48u32), ("val", 48..60)] {
            for number in numbers {
                let folder = temp.path().join("photos").join(split).join(format!("class{}", number % 3));
                fs::create_dir_all(&folder).unwrap();
                // What follows an image is kept. A third of it is flat: something to compress.
                let mut image = png(8, 8, number.into());
                let from = image.len();
                image.resize(from + random.random_range(sizes.clone()), 0);
                let noise = from + (image.len() - from) / 3;
                random.fill_bytes(&mut image[noise..]);
                fs::write(folder.join(format!("{number}.png")), image).unwrap();
            }
        }
        let world = Self { temp, bucket };
        for (split, name) in [("val", "here.shade"), ("train", "more.shade")] {
            world.well(&format!("create photos/{split} {name}"), name);
        }
        world
    }

    /// A command about the dataset `name`.
    fn command(&self, words: &str, name: &str) -> Command {
        let mut command = match &self.bucket {
            Some(bucket) => bucket.command("shade-pack"),
            None => Command::new(program("shade-pack")),
        };
        let out = self.address(name);
        let words = words.split(' ').map(|word| if word == "OUT" { out.as_str() } else { word });
        command.current_dir(self.temp.path()).args(words).arg("-q");
        command
    }

    fn address(&self, name: &str) -> String {
        if self.bucket.is_some() { format!("s3://photos/{name}") } else { name.to_owned() }
    }

    /// Runs a command to its end.
    fn well(&self, words: &str, name: &str) {
        let output = self.command(words, name).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Where the dataset `name` is.
    fn folder(&self, name: &str) -> PathBuf {
        match &self.bucket {
            Some(bucket) => bucket.objects().with_file_name(name),
            None => self.temp.path().join(name),
        }
    }

    /// What is beside the datasets, and of commands that are at work.
    fn around(&self) -> Vec<String> {
        let mut names: Vec<String> = names_in(self.temp.path());
        if let Some(bucket) = &self.bucket {
            names.extend(names_in(bucket.objects().parent().unwrap()));
            names.extend(files(&bucket.cache().join("shade/packing")).into_keys());
        }
        names.sort();
        names
    }

    /// A reader finds no dataset, or a whole one, which is what was there before or what is made.
    fn assert_readable(&self, name: &str, allowed: &[&BTreeMap<String, Vec<u8>>]) -> usize {
        let found = files(&self.folder(name));
        let indexes = found.iter().filter(|(path, _)| path.rsplit('/').next() == Some(INDEX_FILE));
        let mut whole = 0;
        for (path, bytes) in indexes {
            let is_right = allowed.iter().any(|files| files.get(path) == Some(bytes));
            assert!(is_right, "{name}: {path} is another index");
            let dataset = path.strip_suffix(INDEX_FILE).unwrap().trim_end_matches('/');
            let dataset = [name, dataset].join("/");
            self.well(&format!("verify {}", self.address(dataset.trim_end_matches('/'))), name);
            whole += 1;
        }
        whole
    }

    fn remove(&self, name: &str) {
        fs::remove_dir_all(self.folder(name)).unwrap();
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// All files below a folder, with their bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let inner = files(&entry.path());
            found.extend(inner.into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// Draws the action before which a command dies that does so much: each kind as often as another.
fn drawn(actions: &Actions, random: &mut StdRng) -> Option<Action> {
    let kinds: Vec<&'static str> = actions.keys().copied().collect();
    let kind = *kinds.get(random.random_range(0..kinds.len().max(1)))?;
    Some(Action { kind, number: random.random_range(1..=actions[kind]) })
}

/// A command is killed until it was `kills` times, each time from a state that is new.
fn killed(world: &World, case: &Case, kills: usize, random: &mut StdRng) -> Seen {
    let errors = world.temp.path().join("errors");
    let run = |words: &[&str], name: &str| words.iter().for_each(|words| world.well(words, name));
    run(case.before, "calm");
    let old = files(&world.folder("calm"));
    let calm = traced(&world.command(case.killed, "calm"), None, &errors);
    assert_eq!(calm.code, Some(0), "{}", fs::read_to_string(&errors).unwrap());
    run(case.after, "calm");
    let new = files(&world.folder("calm"));
    let mut seen = Seen { bytes: new.values().map(Vec::len).sum(), ..Seen::default() };
    assert!(seen.bytes > 0);
    let before = world.around();
    let uploads = || world.bucket.as_ref().map_or(0, |bucket| bucket.uploads().len());
    let uploads_before = uploads();
    while seen.kills < kills {
        run(case.before, "out");
        let mut deaths = Vec::new();
        loop {
            let death = drawn(&calm.actions, random).filter(|_| deaths.len() < ROW_MAX);
            let traced = traced(&world.command(case.killed, "out"), death, &errors);
            let whole = world.assert_readable("out", &[&old, &new]);
            let told = || fs::read_to_string(&errors).unwrap();
            match traced.code {
                None => deaths.push(death.unwrap()),
                Some(0) => break,
                // It was killed behind the last rename.
                Some(2)
                    if world.bucket.is_none()
                        && whole > 0
                        && !deaths.is_empty()
                        && told().contains("exists") =>
                {
                    break;
                }
                Some(code) => panic!("{} ends with {code} after {deaths:?}: {}", case.killed, told()),
            }
            seen.whole += whole.min(1);
        }
        run(case.after, "out");
        let made = files(&world.folder("out"));
        let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&made), names(&new), "{} after {deaths:?}", case.killed);
        assert!(made == new, "{}: other bytes after {deaths:?}", case.killed);
        world.remove("out");
        assert_eq!(world.around(), before, "{}: left behind after {deaths:?}", case.killed);
        seen.kills += deaths.len();
        seen.trials += 1;
        seen.kinds.extend(deaths.iter().map(|death| death.kind));
    }
    world.remove("calm");
    seen.uploads = uploads() - uploads_before;
    seen.kinds.sort_unstable();
    seen.kinds.dedup();
    seen
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn whole_or_as_before_and_the_same_command_makes_the_same_bytes() {
    if cfg!(not(target_arch = "x86_64")) {
        return left_out("actions are told by registers of x86-64");
    }
    let only = std::env::var("SHADE_ROW").unwrap_or_default();
    let of =
        |cases: &'static [Case]| cases.iter().filter(|case| case.name.contains(&only)).collect::<Vec<_>>();
    let (on_disk, in_bucket) = (of(ON_DISK), of(IN_BUCKET));
    let rows = on_disk.len() + in_bucket.len();
    let kills = number("SHADE_KILLS", KILLS * rows).div_ceil(rows);
    println!(
        "| command | kills | datasets made | found whole after a kill | bytes each | kinds of actions | uploads nobody ends |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (place, cases) in [("on disk", on_disk), ("in a bucket", in_bucket)] {
        let mut bucket = (place != "on disk").then(|| Bucket::of(&Packed::mixed(4)));
        if let Some(bucket) = &mut bucket {
            bucket.be("latency_ms=3 seed=5");
        }
        let world = World::new(bucket);
        for (row, case) in cases.into_iter().enumerate() {
            let seed = (number("SHADE_SEED", 1) * 1000 + row) as u64;
            let seen = killed(&world, case, kills, &mut StdRng::seed_from_u64(seed));
            let Seen { kills, trials, whole, bytes, uploads, kinds } = seen;
            let (name, kinds) = (case.name, kinds.len());
            println!("| {name}, {place} | {kills} | {trials} | {whole} | {bytes} | {kinds} | {uploads} |");
        }
    }
}
