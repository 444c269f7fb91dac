//! Batches of 256 records from a bucket, one in a thousand of whose answers takes a second more:
//! how long a trainer that takes them at once waits for each, and what it costs in requests, with
//! and without asking late ones a second time. By the daemon, as it decides which are late.

use std::path::Path;
use std::time::{Duration, Instant};

use shade_client::{Decode, JobSpec, Launch, Next, Options, PlanSpec, Session};
use shade_formats::SampleId;
use shade_formats::index::{INDEX_FILE, Index};

use crate::bucket_server::{RECORD_BYTES, Server};
use crate::figure::{Figure, Unit};
use crate::job::job;
use crate::programs::Programs;
use crate::result::Result;
use crate::synthetic::entries;

const RUNS: u32 = 4;
/// Epochs of a run, after the one in which the depth is found.
const EPOCHS: u32 = 3;
/// A batch that takes longer is an error.
const PATIENCE: Duration = Duration::from_secs(60);

/// Rates, times of batches and the requests for each record, by run.
#[derive(Debug, Default)]
struct Took {
    rate: Vec<f64>,
    p99_ms: Vec<f64>,
    requests: Vec<f64>,
}

/// A daemon's life.
#[derive(Clone, Copy, Debug)]
struct Run {
    number: u32,
    /// Whether it asks late ones again.
    hedge: bool,
}

/// Waits and requests, with late answers asked again and without, in turn.
pub(crate) fn run(folder: &Path, index: &Index, server: &mut Server) -> Result<Vec<Figure>> {
    let crc32c = |id| index.entry(SampleId(id)).and_then(|entry| entry.crc32c).unwrap_or_default();
    let checksums: Vec<u32> = (0..index.len()).map(crc32c).collect();
    std::fs::write(folder.join(INDEX_FILE), entries(&checksums, RECORD_BYTES)?.0)?;
    let programs = Programs::find()?;
    let (mut without, mut with) = (Took::default(), Took::default());
    for run in 0..RUNS {
        train(&programs, folder, Run { number: run, hedge: false }, server, &mut without)?;
        train(&programs, folder, Run { number: run, hedge: true }, server, &mut with)?;
    }
    let rows = |name: &str, took: Took| {
        let figure = |what: &str, unit, values| {
            Figure::new(format!("{what}, 110 KB, requests of 30 ms, late ones {name}"), unit, values)
        };
        [
            figure("trained from a bucket", Unit::RecordsPerSecond, took.rate),
            figure("batch from a bucket, p99", Unit::Ms, took.p99_ms),
            figure("requests of a record", Unit::PerFile, took.requests),
        ]
    };
    Ok(rows("asked again", with).into_iter().chain(rows("waited for", without)).collect())
}

/// Trains some epochs by a private daemon, and adds what they took.
fn train(
    programs: &Programs,
    folder: &Path,
    Run { number, hedge }: Run,
    server: &mut Server,
    took: &mut Took,
) -> Result<()> {
    let socket =
        std::env::temp_dir().join(format!("shade-benches-{}-late-{hedge}-{number}", std::process::id()));
    let mut args = vec!["SHADE_LOG=warn".into(), programs.load.clone().into(), "serve".into(), folder.into()];
    args.extend(["--private", "--linger", "0s", "--cache", "0", "--socket"].map(Into::into));
    args.push(socket.clone().into());
    args.extend(hedge.then(|| "--hedge".into()));
    let launch = Some(Launch { binary: "env".into(), args });
    let options = Options { socket: Some(socket), launch, ..Options::default() };
    let plan = PlanSpec { seed: u64::from(number), ..PlanSpec::default() };
    let session = Session::connect(folder, "late", 0, JobSpec { plan, ..job(Decode::Raw) }, &options)?;
    let mut times = Vec::new();
    epoch(&session, 0, &mut Vec::new())?;
    let (before, begun) = (server.requests()?, Instant::now());
    for number in 1..=EPOCHS {
        epoch(&session, number, &mut times)?;
    }
    let records = f64::from(session.samples()) * f64::from(EPOCHS);
    took.rate.push(records / begun.elapsed().as_secs_f64());
    took.requests.push((server.requests()? - before) as f64 / records);
    times.sort_by(f64::total_cmp);
    took.p99_ms.extend(times.get((times.len() * 99 / 100).min(times.len().saturating_sub(1))));
    Ok(())
}

/// The times for which the batches of an epoch were waited for, ms.
fn epoch(session: &Session, number: u32, times: &mut Vec<f64>) -> Result<()> {
    session.start_epoch(number, 0)?;
    loop {
        let asked = Instant::now();
        match session.next(PATIENCE)? {
            Next::Batch(_) => times.push(asked.elapsed().as_secs_f64() * 1e3),
            Next::EpochEnd => return Ok(()),
            Next::Pending => return Err(format!("no batch for {PATIENCE:?}").into()),
        }
    }
}
