//! Packs what is new behind what is there.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use serde_json::{Value, json};
use shade_formats::index::Index;

use super::ground::Ground;
use super::names::{discard, first_key, first_shard, refuse_taken, unfinished};
use super::news::News;
use super::report::Appended;
use crate::args::PackArgs;
use crate::assemble::{Assembled, Assembly, Packed};
use crate::bucket::{Work as InBucket, out};
use crate::catalogue::Catalogue;
use crate::classes::Relabelled;
use crate::config::{Effort, Layout, OnBad};
use crate::create::{refuse_listed, refuse_packed};
use crate::dataset::Dataset;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::{clean, clean_unfinished, unmark};
use crate::options::{PackOptions, TOOL, Work};
use crate::pack::{Packing, choose_recipe};
use crate::part::Part;
use crate::progress::CommandProgress;
use crate::report::Speed;
use crate::source::Source;
use crate::times::Times;
use crate::workers::Workers;

#[derive(Debug, Args)]
pub(crate) struct AppendArgs {
    /// What is added, and how.
    #[command(flatten)]
    pub(crate) pack: PackArgs,
    /// The dataset's directory, or its address (s3://bucket/prefix). What it has keeps its ids, its
    /// labels and its shards.
    #[arg(value_parser = out())]
    dataset: PathBuf,
    /// Throw away what earlier runs left unfinished, and begin anew. By default the same command
    /// goes on.
    #[arg(long)]
    restart: bool,
    /// Append samples although numbers that label them in SOURCE mean other labels in DATASET.
    ///
    /// Classes are the same if their names are. Where SOURCE's labels are numbers, and a class has
    /// another number in DATASET, append ends and says so unless this is given.
    #[arg(long)]
    relabel: bool,
}

/// The layout that a dataset asks for by its own options; create's defaults if it has none.
///
/// # Errors
/// Its parts were transformed in different ways, and the user does not say which way to take:
/// usage.
fn layout_of(dataset: &Path, is_said: bool) -> Result<Layout, Error> {
    let dataset = Dataset::open(dataset)?;
    let remedy = "`shade-pack index SOURCE OUT --update` indexes what is there now, and ids stay if what is new \
                  comes last";
    let of_datasets = format!(
        "append to the last of the datasets that it was merged of, remove {}, and merge again with --in-place",
        dataset.name.display()
    );
    dataset.refuse_in_place("append", remedy, &of_datasets)?;
    let all = PackOptions::all(dataset.index.options());
    let Some(first) = all.first() else { return Ok(Layout::default()) };
    if !is_said && all.iter().any(|options| options.transform != first.transform) {
        let dir = dataset.name.display();
        let text = format!("{dir} has images that were transformed in different ways: say which by --format");
        return Err(Error::Usage(text));
    }
    Ok(first.layout())
}

/// Whether the dataset has the class that has this label in a source.
fn has_class(dataset: &Dataset, listed: &Catalogue, label: u32) -> bool {
    let name = listed.classes.get(label as usize).map(String::as_bytes);
    dataset.class_names().any(|class| Some(class) == name)
}

/// Refuses samples that lack what all of the dataset's have, unless the user says so: usage.
fn refuse_other_kind(dataset: &Dataset, source: &Source, listed: &Catalogue) -> Result<(), Error> {
    let dir = dataset.name.display();
    if listed.is_unlabelled_by_default && !has_class(dataset, listed, 0) {
        let source = source.path.display();
        return Err(Error::Usage(format!(
            "{dir} has labels, {source} has none: say where they are (--labels txt for .txt members of tars, --labels \
             folders for --pair), or --labels none to append its samples as a class 'none'"
        )));
    }
    let of_dataset = PackOptions::all(dataset.index.options());
    if source.coco.is_none() && !of_dataset.is_empty() && of_dataset.iter().all(|options| options.coco) {
        return Err(Error::Usage(format!(
            "{dir} has boxes of annotations beside its images: --coco FILE says where those of new images are"
        )));
    }
    let mut names = of_dataset.first().into_iter().flat_map(|options| options.pairs.keys());
    let is_lacking = |name: &&String| {
        let in_all = of_dataset.iter().all(|options| options.pairs.contains_key(*name));
        in_all && !listed.pairs.iter().any(|pair| pair.name == **name)
    };
    match names.find(is_lacking) {
        Some(name) => Err(Error::Usage(format!(
            "{dir} has '{name}' beside its images: --pair {name}=FOLDER says where those of new images are"
        ))),
        None => Ok(()),
    }
}

/// Labels of the source that are others in the dataset, if the user accepts that.
fn relabelled(args: &AppendArgs, news: &mut News) -> Result<Option<Relabelled>, Error> {
    let labels = std::mem::take(&mut news.relabelled);
    let relabelled = Relabelled { of: args.pack.source.path.display().to_string(), labels };
    match (relabelled.labels.is_empty(), args.relabel) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(relabelled)),
        (false, false) => {
            let remedy =
                "the dataset keeps its labels; --relabel accepts that these are others than in the source";
            Err(Error::Relabels { relabelled: relabelled.to_string(), remedy })
        }
    }
}

struct AppendJob<'a> {
    args: &'a AppendArgs,
    source: Source,
    layout: Layout,
    effort: Effort,
    ground: Ground,
    dataset: Dataset,
    times: Times,
    stop: &'a Stop,
}

/// Appends what is new.
///
/// # Errors
/// A sample has the path of one in the dataset, but another class or length (another time is told
/// in the report); the dataset cannot be opened, or another command is changing it; the source
/// cannot be listed; a sample cannot be packed; a file cannot be written. The dataset is then what
/// it was, and complete shards are kept for the next run.
pub(crate) fn append(args: &AppendArgs, stop: &Stop) -> Result<Appended, Error> {
    let start = Instant::now();
    let dir = &args.dataset;
    let own = layout_of(dir, args.pack.layout.has_format())?;
    let (source, layout) = (args.pack.source.source()?, args.pack.layout.for_more(own)?);
    let effort = args.pack.effort();
    let (ground, dataset) = Ground::take(dir)?;
    let readers = Workers::start(effort.in_flight)?;
    let mut listed = source.list(&readers, args.pack.output.shown(), stop)?;
    let accept = args.pack.accept();
    let lost = std::mem::take(&mut listed.lost);
    listed.lost = lost.into_iter().filter(|label| !has_class(&dataset, &listed, *label)).collect();
    refuse_listed(&[(source.path.as_path(), &listed)], accept)?;
    refuse_other_kind(&dataset, &source, &listed)?;
    let times = Times::read(&ground.dir)?;
    let job = AppendJob { args, source, layout, effort, ground, dataset, times, stop };
    let (dataset, bucket, here) = (&job.dataset, job.ground.bucket(), &job.ground.dir);
    let mut news = News::new(dataset, &job.times, &listed)?;
    let relabelled = relabelled(args, &mut news)?;
    let mut appended = Appended {
        dataset: dir.clone(),
        source: args.pack.source.path.clone(),
        content_id: dataset.index.content_id().to_string(),
        samples: dataset.index.len(),
        skipped: news.skipped,
        changes: std::mem::take(&mut news.changes),
        bad: std::mem::take(&mut listed.bad),
        notes: std::mem::take(&mut listed.notes),
        relabelled,
        ..Appended::default()
    };
    drop(listed);
    if args.restart {
        discard(dataset, bucket, None)?;
    }
    if news.catalogue.is_empty() {
        return job.unchanged(appended);
    }
    let (samples, bytes) = (news.catalogue.len(), news.catalogue.bytes());
    let progress = CommandProgress::start(args.pack.output.shown(), "appending", samples.into(), bytes);
    let packed = job.pack(&news, &readers, &progress);
    let (assembled, packed) = packed.map_err(|source| unfinished(source, dataset))?;
    progress.finish();
    let mut left = packed;
    left.lost.retain(|label| *label >= dataset.index.class_count());
    // All that is new is bad: it ends as if listing had found that.
    if left.samples == 0 && news.skipped > 0 && left.lost.is_empty() {
        appended.bad.extend(left.bad);
        return job.unchanged(appended);
    }
    if let Err(refused) = refuse_packed(&news.catalogue, &left, accept) {
        job.leave_nothing()?;
        return Err(refused);
    }
    appended.bad.extend(left.bad);
    appended = job.refuse_listed(appended)?;
    stop.check().map_err(|source| unfinished(source, dataset))?;
    job.ground.commit(&assembled, effort.sync, stop).map_err(|source| unfinished(source, dataset))?;
    clean(here).and_then(|()| unmark(here))?;
    let index = Index::open(assembled.index).map_err(|source| Error::Index { path: dir.clone(), source })?;
    appended.appended = index.len() - dataset.index.len();
    appended.samples = index.len();
    appended.content_id = index.content_id().to_string();
    appended.shards = index.shard_count().saturating_sub(dataset.index.shard_count()) as usize;
    appended.new_classes = news.new_classes;
    (appended.bytes, appended.source_bytes) = (left.bytes, left.source_bytes);
    appended.not_decodable = left.not_decodable;
    appended.speed = Speed::since(start, progress.bytes_of_this_run());
    Ok(appended)
}

impl AppendJob<'_> {
    /// Packs what is new; gives the index of all.
    fn pack(
        &self,
        news: &News,
        readers: &Workers,
        progress: &CommandProgress,
    ) -> Result<(Assembled, Packed), Error> {
        let (dir, dataset, catalogue) = (&self.ground.dir, &self.dataset, &news.catalogue);
        let bucket = self.ground.bucket();
        let fault = |source| Error::Index { path: dataset.name.clone(), source };
        let options = PackOptions::new(&self.source, catalogue, &self.layout)?;
        let plan = options.plan(catalogue);
        let work = Work::of([(&options, catalogue)].into_iter());
        // The same source appended to another state of the dataset is other work.
        let id = format!("{}-{}", work.id, dataset.index.content_id());
        discard(dataset, bucket, Some(&id))?;
        refuse_taken(dataset, first_shard(dataset), plan.shard_count())?;
        if let Some(bucket) = bucket {
            let work = InBucket { folder: Some(dir), restart: self.args.restart };
            bucket.prepare_more(&self.args.dataset, first_shard(dataset), work)?;
        }
        clean_unfinished(dir)?;
        let (recipe, _) = choose_recipe(catalogue, &self.layout, readers, self.stop)?;
        let packing = Packing {
            catalogue,
            plan: &plan,
            recipe: &recipe,
            id: &id,
            folder: dir,
            to: self.ground.shards_to(),
            first_shard: first_shard(dataset),
            first_key: first_key(dataset, catalogue)?,
            part: Part::WHOLE,
            first_position: 0,
            on_bad: self.args.pack.accept().on_bad,
            effort: self.effort,
            progress,
            stop: self.stop,
        };
        packing.run(readers)?;
        let new = news.new_classes.iter().map(String::as_bytes);
        let mut assembly = Assembly::new(dataset.class_names().chain(new)).map_err(fault)?;
        let labels: Vec<u32> = (0..dataset.index.class_count()).collect();
        let name = |shard| dataset.index.shard(shard).map_or("", |shard| shard.name).to_owned();
        assembly.add_index(&dataset.index, &self.times, &labels, name).map_err(fault)?;
        let packed = assembly.add_packed(&packing, readers)?;
        let options = options.text(Some(&options.plan_id(catalogue)));
        let assembled = assembly.finish(&options_with(dataset.options(), options)).map_err(fault)?;
        Ok((assembled, packed))
    }

    /// Ends a run that has nothing to append.
    fn unchanged(&self, appended: Appended) -> Result<Appended, Error> {
        // An earlier run may have been killed between its index and the end, or at other work.
        self.leave_nothing()?;
        self.refuse_listed(Appended { unchanged: true, ..appended })
    }

    /// With `--on-bad list` one bad sample is enough to append nothing.
    fn refuse_listed(&self, appended: Appended) -> Result<Appended, Error> {
        if self.args.pack.accept().on_bad == OnBad::List && !appended.bad.is_empty() {
            self.leave_nothing()?;
            return Err(Error::AllBad { bad: appended.bad });
        }
        Ok(appended)
    }

    /// Removes all that is unfinished, and the marker last: while it is there, a file in the place
    /// of a new shard counts as ours.
    fn leave_nothing(&self) -> Result<(), Error> {
        let dir = &self.dataset.dir;
        discard(&self.dataset, self.ground.bucket(), None)?;
        clean(dir).and_then(|()| unmark(dir))
    }
}

/// The options of a dataset with those of what was appended.
fn options_with(dataset: Value, new: Value) -> Value {
    let mut options = match dataset {
        object @ Value::Object(_) => object,
        other => json!({ "tool": TOOL, "merged": [other] }),
    };
    if let Some(object) = options.as_object_mut() {
        // It is not the dataset of that plan any more.
        object.remove("plan");
        let appended = object.entry("appended").or_insert_with(|| json!([]));
        match appended.as_array_mut() {
            Some(appended) => appended.push(new),
            None => *appended = json!([new]),
        }
    }
    options
}
