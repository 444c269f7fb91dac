//! Jobs of many kinds that train side by side, and what each is given, as checksums.

use std::time::Duration;

use shade_client::{ClientError, JobSpec, Options, PlanSpec, Sampler, Session};
use shade_formats::checksum::crc32c_append;
use shade_job::{Filters, Pair, Transform, group_digest};

use crate::{Daemon, Packed, Taken, copy, next, spec};

/// The jobs' names. Two draw by importance in a group, with the same transforms.
pub const JOBS: [&str; 4] = ["permutations", "importance", "importance-2", "validation"];

/// What the job with one of [`JOBS`]' names asks for.
///
/// # Panics
/// When there is no such job.
#[must_use]
pub fn job_named(name: &str) -> JobSpec {
    let (scale, ratio) = ([0.25, 1.0], [0.75, 4.0 / 3.0]);
    let interpolation = Filters::default();
    let crops = Transform::RandomResizedCrop { size: Pair([16, 16]), scale, ratio, interpolation };
    let crops = vec![crops, Transform::RandomHorizontalFlip { p: 0.5 }];
    let importance = |seed| {
        let plan =
            PlanSpec { sampler: Sampler::Pads, seed, group: group_digest("sweep"), ..PlanSpec::default() };
        JobSpec { plan, decode: crops.clone().into(), ..spec(8, 1) }
    };
    match name {
        "permutations" => JobSpec { plan: PlanSpec { seed: 5, ..PlanSpec::default() }, ..spec(5, 1) },
        "importance" => importance(1),
        "importance-2" => importance(2),
        "validation" => {
            let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
            JobSpec { plan, admit: false, ..spec(9, 1) }
        }
        _ => panic!("no job {name}"),
    }
}

/// Trains an epoch from batch `first` on. A batch takes `pace`. Jobs by importance report losses
/// that follow from the samples. They are alike in all jobs, with a part of their own.
///
/// # Errors
/// As [`Session::start_epoch`] and [`Session::next`].
pub fn train(
    session: &Session,
    spec: &JobSpec,
    (epoch, first): (u32, u32),
    pace: Duration,
) -> Result<Vec<Taken>, ClientError> {
    session.start_epoch(epoch, first)?;
    let mut taken = Vec::new();
    while let Some(batch) = next(session)? {
        let batch = copy(&batch);
        if !pace.is_zero() {
            std::thread::sleep(pace);
        }
        report(session, spec, &batch)?;
        taken.push(batch);
    }
    Ok(taken)
}

/// Reports the losses of a batch, if the job draws by importance.
///
/// # Errors
/// As [`Session::report`].
pub fn report(session: &Session, spec: &JobSpec, batch: &Taken) -> Result<(), ClientError> {
    if spec.plan.sampler != Sampler::Pads {
        return Ok(());
    }
    let own = u32::try_from(spec.plan.seed).unwrap_or(0);
    let loss = |&id: &u32| (id * 7919 % 1000) as f32 + ((id + own) * 104_729 % 300) as f32;
    let losses: Vec<f32> = batch.ids.iter().map(loss).collect();
    session.report(batch.id, &losses)
}

/// The epoch's number and rows, and checksums of ids, labels and everything else that was
/// delivered. What was a hit is not in it.
#[must_use]
pub fn checksums(epoch: u32, batches: &[Taken]) -> String {
    let rows: usize = batches.iter().map(|batch| batch.ids.len()).sum();
    let [mut ids, mut labels, mut data] = [0; 3];
    for batch in batches {
        assert_eq!(batch.epoch, epoch);
        batch.ids.iter().for_each(|id| ids = crc32c_append(ids, &id.to_le_bytes()));
        batch.labels.iter().for_each(|label| labels = crc32c_append(labels, &label.to_le_bytes()));
        batch.weights.iter().for_each(|weight| data = crc32c_append(data, &weight.to_le_bytes()));
        batch.records.iter().for_each(|record| data = crc32c_append(data, record));
        data = crc32c_append(data, &batch.pixels);
    }
    format!("epoch {epoch}: {rows} rows, ids {ids:08x}, labels {labels:08x}, data {data:08x}")
}

/// Compares what jobs were given, from their first epochs on, with what each is given where nobody
/// disturbs it: by a daemon of its own, with a cache of everything.
///
/// # Panics
/// When it differs, or what a job is given undisturbed is not what the dataset says.
pub fn assert_undisturbed(packed: &Packed, given: &[(&'static str, Vec<String>)]) {
    for name in JOBS {
        let of_job = || given.iter().filter(|(job, _)| *job == name).map(|(_, lines)| lines);
        let epochs = of_job().map(Vec::len).max().unwrap_or(0);
        let expected = undisturbed(packed, name, u32::try_from(epochs).unwrap());
        for lines in of_job() {
            assert_eq!(*lines, expected[..lines.len()], "{name} was given something else");
        }
    }
}

/// The lines of a job's first epochs.
///
/// # Panics
/// When they are not what the dataset says.
#[must_use]
pub fn undisturbed(packed: &Packed, name: &str, epochs: u32) -> Vec<String> {
    let socket = packed.beside(&format!("{name}.socket"));
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"100%", &"--socket", &socket]);
    let spec = job_named(name);
    // A test that kills the daemon starts the next one itself.
    let options = Options { socket: Some(socket), survive: false, ..Options::default() };
    let session = Session::connect(&packed.dataset, name, 0, spec.clone(), &options).unwrap();
    let epoch = |epoch| {
        let batches = train(&session, &spec, (epoch, 0), Duration::ZERO).unwrap();
        is_of(packed, &spec, &batches);
        checksums(epoch, &batches)
    };
    let lines = (0..epochs).map(epoch).collect();
    drop((session, daemon));
    lines
}

/// An epoch has as many rows as there are samples, each with its label and, if raw, its bytes; a
/// permutation has every sample.
fn is_of(packed: &Packed, spec: &JobSpec, batches: &[Taken]) {
    let mut ids = Vec::new();
    for batch in batches {
        for (row, (&id, &label)) in batch.ids.iter().zip(&batch.labels).enumerate() {
            let source = &packed.sources[id as usize];
            assert_eq!(label, source.label, "sample {id}");
            if let Some(record) = batch.records.get(row) {
                assert!(*record == source.bytes, "sample {id}");
            }
            ids.push(id);
        }
    }
    assert_eq!(ids.len(), packed.len());
    if spec.plan.sampler != Sampler::Pads {
        ids.sort_unstable();
        assert!(ids.into_iter().eq((0..).take(packed.len())));
    }
}
