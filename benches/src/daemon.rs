//! A daemon with one rank attached, which takes batches and does nothing with them.

use std::time::{Duration, Instant};

use shade_client::{Decode, JobSpec, Launch, Next, Options, PlanSpec, Session, Settings};

use crate::dataset::Dataset;
use crate::job::job;
use crate::programs::Programs;
use crate::result::Result;

/// A batch that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// State of the daemon's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cache {
    /// Everything is resident.
    Whole,
    /// Nothing is resident.
    None,
}

/// A private daemon and its only rank; the daemon ends with it.
#[derive(Debug)]
pub(crate) struct Rank {
    session: Session,
    cache: Cache,
    epoch: u32,
}

impl Rank {
    /// Starts a daemon and runs the first epoch, which fills its cache and the page cache.
    pub(crate) fn start(
        programs: &Programs,
        dataset: &Dataset,
        decode: Decode,
        cache: Cache,
    ) -> Result<Self> {
        let (cached, size) = match cache {
            Cache::Whole => ("hits", "100%"),
            Cache::None => ("misses", "0"),
        };
        let name = format!("{}-{cached}", if decode == Decode::Raw { "raw" } else { "decoded" });
        let (program, folder) = (programs.load.as_os_str(), dataset.packed.as_os_str());
        // Warnings only. `env` sets this, as a launch takes its environment from this process.
        let mut args = vec!["SHADE_LOG=warn".into(), program.to_owned(), "serve".into(), folder.to_owned()];
        args.extend(["--private", "--socket"].map(Into::into));
        // Beside the daemons of other ranks: one has a cache of another size, and one of another
        // dataset may still be ending.
        let of = format!("shade-benches-{}-{name}-{}", std::process::id(), dataset.side);
        let socket = std::env::temp_dir().join(of);
        args.push(socket.clone().into());
        // Reads from the page cache, as pread beside it, and not from the disk.
        let settings = format!(r#"{{"linger": 0, "cache": "{size}", "io": "buffered"}}"#);
        let settings = Settings::from_text(&settings)?;
        let launch = Some(Launch { binary: "env".into(), args, settings });
        let options = Options { socket: Some(socket), launch, ..Options::default() };
        // Otherwise an epoch has reads of the next one, which rows of its own join.
        let plan = PlanSpec { draw_ahead: true, ..PlanSpec::default() };
        let spec = JobSpec { plan, ..job(decode) };
        let session = Session::connect(&dataset.packed, &name, 0, spec, &options)?;
        let mut rank = Self { session, cache, epoch: 0 };
        rank.take_epoch(None)?;
        Ok(rank)
    }

    /// Runs the next epoch. Returns samples a second from its start request to its end.
    pub(crate) fn epoch(&mut self) -> Result<f64> {
        self.take_epoch(Some(self.cache))
    }

    /// An epoch that was not all hits, or all misses, as `expected` is void.
    fn take_epoch(&mut self, expected: Option<Cache>) -> Result<f64> {
        let started = Instant::now();
        self.session.start_epoch(self.epoch, 0)?;
        self.epoch += 1;
        let (mut records, mut hits, mut misses) = (0, 0, 0);
        loop {
            match self.session.next(PATIENCE)? {
                Next::Batch(batch) => {
                    records += batch.descriptor().records;
                    hits += batch.descriptor().hits;
                    misses += batch.descriptor().misses;
                }
                Next::EpochEnd => break,
                Next::Pending => return Err(format!("no batch for {PATIENCE:?}").into()),
            }
        }
        let rate = f64::from(records) / started.elapsed().as_secs_f64();
        let as_expected = match expected {
            None => true,
            Some(Cache::Whole) => hits == records,
            Some(Cache::None) => misses == records,
        };
        if records != self.session.samples() || !as_expected {
            let all = self.session.samples();
            return Err(format!("void: {records} of {all} records, {hits} hits, {misses} misses").into());
        }
        Ok(rate)
    }
}
