//! Lists, plans, packs, publishes.

use std::path::Path;
use std::time::Instant;

use super::args::CreateArgs;
use super::missing::make_missing;
use super::planned::{PackJob, Planned};
use super::planning::{Begun, begin, list_all, plan_all, report, sources_of, there, unchanged};
use super::report::{Created, CreatedPart};
use crate::assemble::Packed;
use crate::bucket::Bucket;
use crate::config::{Layout, OnBad};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::{clean, clean_unfinished, complete_shards};
use crate::part::Part;
use crate::progress::CommandProgress;
use crate::publish::{Partial, make_folder, sync_dir};
use crate::report::Speed;
use crate::workers::Workers;

/// Makes the dataset.
///
/// # Errors
/// The arguments are wrong; the source cannot be listed; a sample cannot be packed; a file cannot
/// be written. There is no dataset then; complete shards are kept for the next run.
pub(crate) fn create(args: &CreateArgs, stop: &Stop) -> Result<Created, Error> {
    let start = Instant::now();
    let new = &args.new;
    let (source, layout) = new.checked()?;
    let (effort, accept, shown) = (new.pack.effort(), new.pack.accept(), new.pack.output.shown());
    let readers = Workers::start(effort.in_flight)?;
    let listed = list_all(sources_of(&source, &new.splits), &readers, shown, stop)?;
    let planned = plan_all(listed, &layout, accept)?;
    if args.dry_run {
        return Ok(unchanged(new, &planned, there(&new.out, &planned)?));
    }
    if let Some(created) = make_missing(new, &planned, &layout, &readers, stop)? {
        return Ok(created);
    }
    let mut created = report(new, &planned);
    // The bucket goes last: it removes the folder around what is partial.
    let Begun { work, bucket, mut partial } = match begin(new, &planned, effort.sync)? {
        Ok(begun) => begun,
        Err(there) => return Ok(there),
    };
    let records = planned.iter().map(|planned| u64::from(planned.catalogue.len())).sum();
    let bytes = planned.iter().map(|planned| planned.catalogue.bytes()).sum();
    let progress = &CommandProgress::start(shown, "packing", records, bytes);
    let bucket = bucket.as_ref();
    let job = PackJob { id: &work.id, bucket, accept, effort, readers: &readers, progress, stop };
    for planned in planned {
        let made = make(planned, partial.path(), &layout, &job);
        let (part, packed) = made.map_err(|source| unfinished(source, &mut partial, bucket))?;
        created.source_bytes += packed.source_bytes;
        created.bad.extend(packed.bad);
        created.parts.push(part);
    }
    progress.finish();
    if accept.on_bad == OnBad::List && !created.bad.is_empty() {
        remove_left(bucket);
        return Err(Error::AllBad { bad: created.bad });
    }
    publish(&mut partial, &created, &job).map_err(|source| unfinished(source, &mut partial, bucket))?;
    created.read_bytes = progress.bytes_of_this_run();
    created.speed = Speed::since(start, created.read_bytes);
    Ok(created)
}

/// Makes the datasets appear.
fn publish(partial: &mut Partial, created: &Created, job: &PackJob<'_>) -> Result<(), Error> {
    job.stop.check()?;
    let Some(bucket) = job.bucket else {
        // A plan for parts may be there; these have nothing to do any more.
        clean(partial.path())?;
        return partial.publish();
    };
    for CreatedPart { split, .. } in &created.parts {
        let folder =
            split.as_ref().map_or_else(|| partial.path().to_owned(), |split| partial.path().join(split));
        bucket.publish(&folder, split.as_deref(), Vec::new(), job.stop)?;
    }
    bucket.note_finished();
    Ok(())
}

/// Packs it into its folder below `out`, which then holds shards and index and nothing else.
fn make(
    planned: Planned,
    out: &Path,
    layout: &Layout,
    job: &PackJob<'_>,
) -> Result<(CreatedPart, Packed), Error> {
    let folder = &planned.folder(out);
    if planned.split.is_some() {
        make_folder(folder)?;
    }
    if job.bucket.is_none()
        && let Some(made) = planned.made_before(folder, job)?
    {
        clean(folder)?;
        return Ok(made);
    }
    clean_unfinished(folder)?;
    let prepared = planned.prepare(layout, job.readers, job.stop)?;
    prepared.packing(folder, Part::WHOLE, 0, job).run(job.readers)?;
    let made = prepared.assemble(folder, job)?;
    // Records say which shards a bucket has, until all are there.
    if job.bucket.is_none() {
        clean(folder)?;
    }
    if job.effort.sync {
        sync_dir(folder)?;
    }
    Ok(made)
}

/// Removes what is in a bucket and of use to nobody. If the store does not answer, the next command
/// there does.
fn remove_left(bucket: Option<&Bucket>) {
    let _ = bucket.map_or(Ok(()), |bucket| bucket.remove_left(None));
}

/// Keeps what is complete, and says so; removes the rest.
pub(crate) fn unfinished(source: Error, partial: &mut Partial, bucket: Option<&Bucket>) -> Error {
    let shards = complete_shards(partial.path());
    // Shards without a sample are of no use to anybody.
    let is_empty = matches!(source, Error::NothingLeft { samples: 0, .. });
    if shards == 0 || is_empty {
        remove_left(bucket);
        return source;
    }
    partial.keep();
    let partial = bucket.map_or_else(|| partial.path().to_owned(), |bucket| bucket.url().as_str().into());
    Error::Unfinished { source: Box::new(source), partial, shards }
}
