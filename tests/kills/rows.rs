//! The trainings whose daemons are killed.

use std::any::Any;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use shade_client::{JobSpec, Launch, Options, PlanSpec, Sampler, Settings};
use shade_job::{Filters, Pair, Transform, group_digest};
use shade_tests::{Bucket, Packed, add_fields, program, spec};

use crate::killer::{Mortal, Place};
use crate::play::{Loop, Rank};
use crate::stores::{MortalBucket, SlowStore};

/// A training.
pub(crate) struct Training {
    pub(crate) loops: Vec<Loop>,
    pub(crate) places: Vec<Place>,
    pub(crate) all_at_once: bool,
    pub(crate) store: Option<Box<dyn Mortal>>,
    /// What files lie below.
    pub(crate) root: PathBuf,
    /// Removed at the end.
    _kept: Box<dyn Any>,
}

/// A row of the table; `None` where the machine has not what it needs.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) training: fn() -> Option<Training>,
}

pub(crate) const ROWS: &[Row] = &[
    Row { name: "one rank", training: one_rank },
    Row { name: "one rank, records as they are", training: raw },
    Row { name: "eight ranks", training: eight_ranks },
    Row { name: "two nodes", training: two_nodes },
    Row { name: "two nodes, both daemons at once", training: both_at_once },
    Row { name: "four jobs, two in a group", training: four_jobs },
    Row { name: "losses reported", training: with_reports },
    Row { name: "plans by losses (pads)", training: by_losses },
    Row { name: "a guard by deliveries (cover)", training: with_cover },
    Row { name: "extra fields", training: with_fields },
    Row { name: "a validation after each epoch", training: with_validation },
    Row { name: "daemon and slow store at once", training: with_slow_store },
    Row { name: "daemon and bucket at once", training: with_bucket },
];

/// A dataset, and what starts its daemons.
struct World {
    packed: Packed,
    binary: PathBuf,
}

impl World {
    fn new(packed: Packed) -> Self {
        let binary = starter(&packed, &[]);
        Self { packed, binary }
    }

    /// Options of a rank that starts private daemons of `dataset`.
    fn options(&self, dataset: &Path, socket: Option<PathBuf>) -> Options {
        options(&self.binary, dataset, socket)
    }

    /// One rank of a job, in a loop of its own.
    fn alone(&self, job: &str, spec: JobSpec, course: usize) -> Loop {
        self.at(&self.packed.dataset, job, spec, course)
    }

    fn at(&self, dataset: &Path, job: &str, spec: JobSpec, course: usize) -> Loop {
        let options = self.options(dataset, None);
        let (dataset, job) = (dataset.to_owned(), job.to_owned());
        let rank =
            Rank { place: 0, dataset, job, number: 0, spec, options, reports: false, reads_fields: false };
        Loop { ranks: vec![rank], course, pace: Duration::from_millis(1) }
    }

    /// All ranks of a job at one daemon, each in a loop of its own.
    fn ranks(&self, spec: &JobSpec) -> Vec<Loop> {
        let of = |number: u32| {
            let mut alone = self.alone("job", spec.clone(), 0);
            alone.ranks[0].number = number;
            alone
        };
        (0..spec.world_size).map(of).collect()
    }

    fn training(self, loops: Vec<Loop>) -> Option<Training> {
        let places = vec![place(&loops[0].ranks[0].dataset)];
        let root = self.packed.beside("").canonicalize().unwrap();
        Some(Training { loops, places, all_at_once: false, store: None, root, _kept: Box::new(self) })
    }
}

fn place(word: &Path) -> Place {
    Place { word: word.to_str().unwrap().to_owned() }
}

/// A program that is the daemon, with folders of its own for whatever it leaves.
fn starter(packed: &Packed, variables: &[(String, String)]) -> PathBuf {
    let (script, own) = (packed.beside("daemon.sh"), packed.beside("own"));
    let mut text = "#!/bin/sh\n".to_owned();
    for name in ["TMPDIR", "HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME"] {
        let folder = own.join(name);
        fs::create_dir_all(&folder).unwrap();
        text += &format!("export {name}='{}'\n", folder.display());
    }
    for (name, value) in variables {
        text += &format!("export {name}=\"{value}\"\n");
    }
    text += &format!("exec '{}' \"$@\"\n", program("shade-load").display());
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    script
}

fn options(binary: &Path, dataset: &Path, socket: Option<PathBuf>) -> Options {
    let settings = Settings::from_text(r#"{"linger": 0.2}"#).unwrap();
    let launch = Launch::new(binary.to_owned(), dataset, socket.as_deref(), &settings);
    // More die here within an hour than a training would put up with.
    Options { launch: Some(launch), settings, socket, deaths_max: u32::MAX, ..Options::default() }
}

/// A ring for a few batches, so that most deaths are noticed at once.
fn raw_job(plan: PlanSpec, batch_size: u32, world_size: u32) -> JobSpec {
    JobSpec { plan, ring_bytes: 4096, ..spec(batch_size, world_size) }
}

fn decoded(job: JobSpec) -> JobSpec {
    let (scale, ratio) = ([0.25, 1.0], [0.75, 4.0 / 3.0]);
    let interpolation = Filters::default();
    let crop = Transform::RandomResizedCrop { size: Pair([16, 16]), scale, ratio, interpolation };
    let decode = vec![crop, Transform::RandomHorizontalFlip { p: 0.5 }].into();
    JobSpec { decode, ring_bytes: 1 << 15, ..job }
}

fn plan(sampler: Sampler, seed: u64) -> PlanSpec {
    PlanSpec { sampler, seed, ..PlanSpec::default() }
}

fn one_rank() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let loops = world.ranks(&decoded(raw_job(plan(Sampler::Uniform, 7), 6, 1)));
    world.training(loops)
}

fn raw() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let loops = world.ranks(&raw_job(plan(Sampler::Balanced, 3), 6, 1));
    world.training(loops)
}

fn eight_ranks() -> Option<Training> {
    let world = World::new(Packed::mixed(66));
    let loops = world.ranks(&decoded(raw_job(plan(Sampler::Uniform, 7), 2, 8)));
    world.training(loops)
}

/// Two ranks at each of two daemons.
fn two_nodes() -> Option<Training> {
    let world = World::new(Packed::mixed(66));
    let sockets = [0, 1].map(|node| world.packed.beside(&format!("node{node}.socket")));
    let plan = PlanSpec { seed: 5, strata: 12, ..PlanSpec::default() };
    let spec = JobSpec { ranks_here: 2, ..decoded(raw_job(plan, 3, 4)) };
    let mut loops = world.ranks(&spec);
    for (number, of) in loops.iter_mut().enumerate() {
        let (rank, node) = (&mut of.ranks[0], number / 2);
        rank.place = node;
        rank.options = world.options(&world.packed.dataset, Some(sockets[node].clone()));
    }
    let mut training = world.training(loops)?;
    training.places = sockets.iter().map(|socket| place(socket)).collect();
    Some(training)
}

fn both_at_once() -> Option<Training> {
    Some(Training { all_at_once: true, ..two_nodes()? })
}

fn four_jobs() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let group = |seed| PlanSpec { group: group_digest("sweep"), ..plan(Sampler::Pads, seed) };
    let jobs = [
        ("balanced", raw_job(plan(Sampler::Balanced, 5), 5, 1)),
        ("echo", raw_job(plan(Sampler::Echo, 6), 7, 1)),
        ("sweep", decoded(raw_job(group(1), 8, 1))),
        ("sweep-2", decoded(raw_job(group(2), 8, 1))),
    ];
    let alone = |(course, (name, spec)): (usize, (&str, JobSpec))| world.alone(name, spec, course);
    let mut loops: Vec<Loop> = jobs.into_iter().enumerate().map(alone).collect();
    for of in &mut loops {
        of.ranks[0].reports = of.ranks[0].spec.plan.sampler == Sampler::Pads;
    }
    world.training(loops)
}

fn with_reports() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let mut loops = world.ranks(&decoded(raw_job(plan(Sampler::Uniform, 9), 6, 2)));
    loops.iter_mut().for_each(|of| of.ranks[0].reports = true);
    world.training(loops)
}

fn by_losses() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let mut loops = world.ranks(&decoded(raw_job(plan(Sampler::Pads, 9), 6, 2)));
    loops.iter_mut().for_each(|of| of.ranks[0].reports = true);
    world.training(loops)
}

fn with_cover() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let loops = world.ranks(&raw_job(plan(Sampler::Replacement, 6), 6, 2));
    world.training(loops)
}

fn with_fields() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let dataset = world.packed.beside("with-fields");
    add_fields(&world.packed.dataset, &dataset, |sample, path| {
        vec![("json".to_owned(), format!("{{\"of\": \"{path}\", \"times\": {sample}}}").into_bytes())]
    });
    let dataset = dataset.canonicalize().unwrap();
    let mut of = world.at(&dataset, "job", raw_job(plan(Sampler::Uniform, 4), 6, 1), 0);
    of.ranks[0].reads_fields = true;
    world.training(vec![of])
}

fn with_validation() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let mut of = world.alone("job", decoded(raw_job(plan(Sampler::Uniform, 2), 6, 1)), 0);
    let validation = JobSpec { admit: false, ..raw_job(plan(Sampler::Sequential, 0), 9, 1) };
    of.ranks.extend(world.alone("job.eval", validation, 0).ranks);
    world.training(vec![of])
}

fn with_slow_store() -> Option<Training> {
    let world = World::new(Packed::mixed(33));
    let store = SlowStore::mount(&world.packed)?;
    let of = world.at(store.path(), "job", raw_job(plan(Sampler::Uniform, 8), 6, 1), 0);
    let mut training = world.training(vec![of])?;
    training.store = Some(Box::new(store));
    Some(training)
}

fn with_bucket() -> Option<Training> {
    let packed = Packed::mixed(33);
    let bucket = Bucket::of(&packed);
    let opened = bucket.command("shade-pack").args(["info", Bucket::URL]).output().unwrap();
    assert!(opened.status.success(), "{opened:?}");
    let dataset = bucket.known_as();
    let command = bucket.command("shade-load");
    let variables: Vec<(String, String)> = command
        .get_envs()
        .map(|(name, value)| (name.to_str().unwrap().to_owned(), value.unwrap().to_str().unwrap().to_owned()))
        .collect();
    let binary = starter(&packed, &variables);
    let world = World { packed, binary };
    let of = world.at(&dataset, "job", raw_job(plan(Sampler::Uniform, 8), 6, 1), 0);
    let mut training = world.training(vec![of])?;
    training.store = Some(Box::new(MortalBucket(bucket)));
    Some(training)
}

/// Whether a program can be run here.
pub(crate) fn runs(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}
