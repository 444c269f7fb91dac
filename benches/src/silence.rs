//! The longest time for which the daemon's main thread serves nobody: with a large dataset whose
//! records are tiny, while jobs begin epochs, come and go, resize the cache, and save and load
//! states. The daemon itself measures it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use shade_client::{Decode, Launch, Next, Options, Session, Settings};
use shade_formats::checksum::crc32c_append;
use shade_formats::index::INDEX_FILE;
use shade_job::{JobSpec, PlanSpec, Sampler};

use crate::figure::{Figure, Unit};
use crate::job::job;
use crate::result::Result;
use crate::scratch::Scratch;
use crate::synthetic::{SHARD_FILE, entries};

/// As many as ImageNet has for training.
pub(crate) const SAMPLES: u32 = 1_281_167;
/// For which the figures are told, too: every part of them grows as the number of samples at most.
const LARGE: f64 = 100e6;
const RECORD_BYTES: u32 = 64;
const BATCH_SIZE: u32 = 4096;
const JOBS: [usize; 2] = [1, 8];
const TURNS: u32 = 3;
const BUDGET_MS: f64 = 100.0;
/// A batch that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks at a resize under way.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Milliseconds for each act, with one job and with eight.
pub(crate) fn run(scratch: &Scratch, samples: u32) -> Result<Vec<Figure>> {
    let folder = scratch.folder().join("silence.shade");
    fs::create_dir_all(&folder)?;
    let checksum = crc32c_append(0, &[0; RECORD_BYTES as usize]);
    let (index, shard_bytes) = entries(&vec![checksum; samples as usize], RECORD_BYTES)?;
    fs::write(folder.join(INDEX_FILE), index)?;
    // All records are zeros, so no byte of them takes room on the disk.
    File::create(folder.join(SHARD_FILE))?.set_len(shard_bytes)?;
    let mut figures = Vec::new();
    for jobs in JOBS {
        figures.extend(with_jobs(scratch, &folder, jobs, samples)?);
    }
    Ok(figures)
}

fn with_jobs(scratch: &Scratch, folder: &Path, jobs: usize, samples: u32) -> Result<Vec<Figure>> {
    let socket = std::env::temp_dir().join(format!("shade-benches-silence-{}", std::process::id()));
    let mut daemon = Silent { scratch, folder: folder.to_owned(), socket, sessions: Vec::new() };
    for number in 0..jobs {
        let session = daemon.attach(number)?;
        daemon.sessions.push(session);
    }
    let acts: [(&str, Act); 6] = [
        ("an epoch's start", |daemon, turn| daemon.begin_epoch(turn)),
        ("a saved state", |daemon, turn| daemon.save(turn)),
        ("a loaded state", |daemon, turn| daemon.load(turn)),
        ("a job comes and goes", |daemon, turn| daemon.come_and_go(turn)),
        ("a fifth of the cache", |daemon, _| daemon.resize("20%")),
        ("the whole cache again", |daemon, _| daemon.resize("100%")),
    ];
    // The first epoch fills the cache.
    daemon.begin_epoch(0)?;
    daemon.take_all(0)?;
    let mut longest = vec![Vec::new(); acts.len()];
    for turn in 1..=TURNS {
        for ((_, act), longest) in acts.iter().zip(&mut longest) {
            daemon.silence_ms()?;
            longest.push(act(&mut daemon, turn)?.max(daemon.silence_ms()?));
        }
    }
    let large = LARGE / f64::from(samples);
    let name =
        |what: &str| format!("silence, {what}, {jobs} jobs, {:.2} million samples", f64::from(samples) / 1e6);
    let rows = acts.iter().zip(longest).flat_map(|((what, _), longest)| {
        let told = longest.iter().map(|ms| ms * large).collect();
        let budgeted = Figure::new(name(what), Unit::Ms, longest).with_budget(BUDGET_MS);
        [
            budgeted,
            Figure::new(format!("the same, told for 100 million: {what}, {jobs} jobs"), Unit::Ms, told),
        ]
    });
    Ok(rows.collect())
}

/// An act in a turn. Returns what silence it has seen itself, in milliseconds.
type Act = fn(&mut Silent<'_>, u32) -> Result<f64>;

/// A daemon and its jobs, each of one rank.
struct Silent<'a> {
    scratch: &'a Scratch,
    folder: PathBuf,
    socket: PathBuf,
    sessions: Vec<Session>,
}

impl Silent<'_> {
    fn attach(&self, number: usize) -> Result<Session> {
        let (program, folder) = (self.scratch.programs.load.as_os_str(), self.folder.as_os_str());
        let mut args = vec!["SHADE_LOG=warn".into(), program.to_owned(), "serve".into(), folder.to_owned()];
        args.extend(["--private", "--socket"].map(Into::into));
        args.push(self.socket.clone().into());
        let settings = Settings::from_text(r#"{"linger": 0, "cache": "100%", "io": "buffered"}"#)?;
        let launch = Some(Launch { binary: "env".into(), args, settings });
        let options = Options { socket: Some(self.socket.clone()), launch, ..Options::default() };
        // Half of them by losses: these plans are the slowest.
        let sampler = if number.is_multiple_of(2) { Sampler::Pads } else { Sampler::Uniform };
        let plan = PlanSpec { sampler, seed: number as u64, ..PlanSpec::default() };
        let spec = JobSpec { plan, batch_size: BATCH_SIZE, ..job(Decode::Raw) };
        Ok(Session::connect(&self.folder, &format!("silence-{number}"), 0, spec, &options)?)
    }

    fn first(&self) -> Result<&Session> {
        Ok(self.sessions.first().ok_or("no job")?)
    }

    fn stats(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.first()?.stats()?)?)
    }

    /// The longest since the last call.
    fn silence_ms(&self) -> Result<f64> {
        Ok(self
            .stats()?
            .get("silence_ns")
            .and_then(serde_json::Value::as_f64)
            .ok_or("no silence in stats()")?
            / 1e6)
    }

    /// All jobs begin it at once, and take their first batch.
    fn begin_epoch(&mut self, epoch: u32) -> Result<f64> {
        for session in &self.sessions {
            session.start_epoch(epoch, 0)?;
        }
        for session in &self.sessions {
            let Next::Batch(batch) = session.next(PATIENCE)? else { return Err("no batch".into()) };
            let losses: Vec<f32> = (0..batch.descriptor().records).map(|row| row as f32).collect();
            session.report(batch.id(), &losses)?;
        }
        Ok(0.0)
    }

    /// The first job takes the rest of its epoch.
    fn take_all(&self, epoch: u32) -> Result<()> {
        let session = self.first()?;
        loop {
            match session.next(PATIENCE)? {
                Next::Batch(_) => {}
                Next::EpochEnd => return Ok(()),
                Next::Pending => return Err(format!("no batch of epoch {epoch} for {PATIENCE:?}").into()),
            }
        }
    }

    fn save(&mut self, epoch: u32) -> Result<f64> {
        self.first()?.save_state(epoch, 1)?;
        Ok(0.0)
    }

    fn load(&mut self, epoch: u32) -> Result<f64> {
        let session = self.first()?;
        let state = session.save_state(epoch, 1)?;
        self.silence_ms()?;
        session.load_state(&state, 1)?;
        Ok(0.0)
    }

    fn come_and_go(&mut self, _epoch: u32) -> Result<f64> {
        let session = self.attach(self.sessions.len())?;
        let jobs = |daemon: &Self| -> Result<usize> {
            Ok(daemon.stats()?.get("jobs").and_then(serde_json::Value::as_array).map_or(0, Vec::len))
        };
        let mut longest_ms = self.silence_ms()?;
        drop(session);
        while jobs(self)? > self.sessions.len() {
            std::thread::sleep(LOOK_EVERY);
            longest_ms = longest_ms.max(self.silence_ms()?);
        }
        Ok(longest_ms)
    }

    /// Until the cache has its size; a job reads meanwhile.
    fn resize(&mut self, size: &str) -> Result<f64> {
        let cache_bytes = self.first()?.resize_cache(size)?;
        let mut longest_ms: f64 = 0.0;
        loop {
            let stats = self.stats()?;
            longest_ms = longest_ms
                .max(stats.get("silence_ns").and_then(serde_json::Value::as_f64).unwrap_or(0.0) / 1e6);
            if stats
                .get("cache_used_bytes")
                .and_then(serde_json::Value::as_u64)
                .is_some_and(|used| used <= cache_bytes)
            {
                return Ok(longest_ms);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}
