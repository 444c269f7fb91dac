//! `create -`: a tar that comes through a pipe becomes a dataset, piece by piece.
//!
//! A piece of the stream becomes a shard, packed as any other source. What a stream cannot give,
//! since it is read once and its end is not known, is refused by name.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Read};
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use shade_formats::SampleId;
use shade_formats::index::Index;

use super::args::CreateArgs;
use super::checks::{refuse_bad, refuse_packed};
use super::report::{Created, CreatedPart};
use crate::assemble::{Assembled, Assembly, Packed};
use crate::bucket::{Made, ShardsTo};
use crate::catalogue::{Catalogue, STREAM};
use crate::config::{Accept, Effort, Layout, OnBad};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::leftovers::clean;
use crate::options::PackOptions;
use crate::pack::{Packing, PlacedShard, Recipe, choose_recipe, placed_in};
use crate::part::Part;
use crate::progress::{CommandProgress, Shown};
use crate::publish::sync_dir;
use crate::report::Speed;
use crate::source::{Cut, Labels, Source, SourceKind, StreamClasses, StreamListing, StreamPiece, each_piece};
use crate::times::Times;
use crate::workers::Workers;

/// How often a wait for the pipe looks whether the command should stop.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// Bytes of one read, and that the pipe holds: sixteen times its default, and the most that users
/// may ask for.
const READ_BYTES: usize = 1 << 20;
/// Bytes of a `.cls` member, header included.
const CLS_BYTES: u64 = 1024;

const NOTE: &str = "read as a stream: sample ids and the order on disk are the stream's; a Loader shuffles all \
                    samples";

/// Why options do not go with a stream.
fn refused(args: &CreateArgs) -> Option<&'static str> {
    let new = &args.new;
    let source = &new.pack.source;
    if args.part.is_some() {
        Some("--part: a stream can be read once, and by one machine")
    } else if args.has_resume() || new.restart {
        Some(
            "--resume, --restart: a stream cannot be read again, so an interrupted run leaves nothing to go on with",
        )
    } else if args.dry_run {
        Some("--dry-run: it would use the stream up")
    } else if !new.splits.is_empty() {
        Some("--splits: a stream has no folders. Pack each split by itself, with the same --labels FILE")
    } else if !source.pair.is_empty() {
        Some("--pair: a stream has no folders. Put the files into the tar, as members of the same key")
    } else if source.coco.is_some() {
        Some("--coco: a stream has no folder of images")
    } else if source.kind().is_some_and(|kind| kind != SourceKind::Webdataset) {
        Some("--from: a stream is a tar with WebDataset's names")
    } else if new.pack.layout.has_seed() {
        Some("--seed: a stream is written in its order. A Loader shuffles all samples")
    } else {
        None
    }
}

/// Makes the dataset of the tar on standard input.
///
/// # Errors
/// The arguments do not go with a stream; it is no tar, or is cut short; a sample cannot be packed;
/// a file cannot be written; or [`Error::Interrupted`]. There is no dataset then, and nothing is
/// left.
pub(crate) fn create_from_stream(args: &CreateArgs, stop: &Stop) -> Result<Created, Error> {
    let start = Instant::now();
    let new = &args.new;
    if let Some(why) = refused(args) {
        return Err(Error::Usage(why.to_owned()));
    }
    if io::stdin().is_terminal() {
        let text = "standard input is a terminal: pipe a tar into this command, or give './-' for a file of this name";
        return Err(Error::Usage(text.to_owned()));
    }
    let source = new.pack.source.stream()?;
    if source.labels == Labels::Folders {
        return Err(Error::Usage("--labels folders: a stream has no class folders".to_owned()));
    }
    let layout = Layout { shuffle: None, ..new.pack.layout.for_new()? };
    let listing = StreamListing::new(&source)?;
    if layout.cls && !listing.has_classes() {
        let text = "--cls: labels of a stream get their numbers when it has ended. Name the classes with --labels FILE";
        return Err(Error::Usage(text.to_owned()));
    }
    let mut out = Made::begin(&new.out)?;
    let (effort, accept) = (new.pack.effort(), new.pack.accept());
    let progress = CommandProgress::start(new.pack.output.shown(), "packing", 0, 0);
    let cut = Cut {
        folder: out.folder(),
        bytes_max: layout.shard_bytes,
        more_bytes: if layout.cls { CLS_BYTES } else { 0 },
        progress: &progress,
        stop,
    };
    // A larger pipe needs fewer wake-ups; a file has none.
    let _ = rustix::pipe::fcntl_setpipe_size(rustix::stdio::stdin(), READ_BYTES);
    let readers = Workers::start(effort.in_flight)?;
    let mut packer = StreamPacker::new(listing, &source, &layout, effort, accept, &readers, stop);
    packer.to = out.shards_to();
    let pipe = io::BufReader::with_capacity(READ_BYTES, Pipe { stop });
    each_piece(pipe, &cut, &mut |piece| packer.pack(&piece, cut.folder))?;
    let placed = std::mem::take(&mut packer.placed);
    let (mut created, sync) = (packer.finish(out.folder())?, effort.sync);
    progress.finish();
    clean(out.folder())?;
    if sync {
        sync_dir(out.folder())?;
    }
    out.publish_with(placed, stop)?;
    (created.dataset, created.source) = (new.out.clone(), source.path.clone());
    created.read_bytes = progress.bytes_of_this_run();
    created.speed = Speed::since(start, created.read_bytes);
    Ok(created)
}

/// Standard input. A wait for it ends when the command should stop.
struct Pipe<'a> {
    stop: &'a Stop,
}

impl Read for Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let stdin = rustix::stdio::stdin();
        loop {
            self.stop.check().map_err(io::Error::other)?;
            let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
            match poll(&mut ready, Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(stdin, into)?),
                Err(fault) => return Err(fault.into()),
            }
        }
    }
}

/// What was made of the pieces so far.
struct StreamPacker<'a> {
    listing: StreamListing<'a>,
    source: &'a Source,
    layout: &'a Layout,
    effort: Effort,
    accept: Accept,
    readers: &'a Workers,
    stop: &'a Stop,
    /// Where shards go; `None` if they stay.
    to: Option<ShardsTo<'a>>,
    /// How records are made, and what zstd would save of raw pixels; decided by the first piece.
    recipe: Option<(Recipe, Option<u64>)>,
    assembly: Assembly,
    options: Option<PackOptions>,
    packed: Packed,
    /// Shards that are in a bucket.
    placed: Vec<PlacedShard>,
    shards: u32,
    /// Samples that were listed: the key of the next one.
    keys: u32,
}

impl<'a> StreamPacker<'a> {
    fn new(
        listing: StreamListing<'a>,
        source: &'a Source,
        layout: &'a Layout,
        effort: Effort,
        accept: Accept,
        readers: &'a Workers,
        stop: &'a Stop,
    ) -> Self {
        let (recipe, assembly, packed) = (None, Assembly::default(), Packed::default());
        let (options, placed, shards, keys, to) = (None, Vec::new(), 0, 0, None);
        Self {
            listing,
            source,
            layout,
            effort,
            accept,
            readers,
            stop,
            to,
            recipe,
            assembly,
            options,
            packed,
            placed,
            shards,
            keys,
        }
    }

    /// Packs a piece into the next shard; into several if its samples are many.
    fn pack(&mut self, piece: &StreamPiece, folder: &Path) -> Result<(), Error> {
        let catalogue = self.listing.list(piece, self.stop)?;
        refuse_bad(&catalogue.bad, self.accept.on_bad)?;
        self.packed.bad.extend(catalogue.bad.iter().cloned());
        let options = PackOptions::new(self.source, &catalogue, self.layout)?;
        if !catalogue.is_empty() {
            self.pack_listed(&catalogue, &options, folder)?;
        }
        self.options = Some(options);
        Ok(())
    }

    fn pack_listed(
        &mut self,
        catalogue: &Catalogue,
        options: &PackOptions,
        folder: &Path,
    ) -> Result<(), Error> {
        let (recipe, _) = match &mut self.recipe {
            Some(recipe) => recipe,
            none => none.insert(choose_recipe(catalogue, self.layout, self.readers, self.stop)?),
        };
        let plan = options.plan(catalogue);
        let packing = Packing {
            catalogue,
            plan: &plan,
            recipe,
            // No later run goes on with it.
            id: "stream",
            folder,
            to: self.to,
            first_shard: self.shards,
            first_key: self.keys,
            part: Part::WHOLE,
            first_position: 0,
            on_bad: self.accept.on_bad,
            effort: self.effort,
            // Samples were counted when they were read.
            progress: &CommandProgress::start(Shown::Quiet, "packing", 0, 0),
            stop: self.stop,
        };
        packing.run(self.readers)?;
        let packed = self.assembly.add_packed(&packing, self.readers)?;
        self.shards = self.shards.saturating_add(u32::try_from(plan.shard_count()).unwrap_or(u32::MAX));
        self.keys = self.keys.saturating_add(catalogue.len());
        let all = &mut self.packed;
        all.bytes += packed.bytes;
        all.source_bytes += packed.source_bytes;
        all.compressed += packed.compressed;
        all.samples += packed.samples;
        all.bad.extend(packed.bad);
        all.not_decodable.extend(&packed.not_decodable);
        // No later run goes on with these, and a `create` of a folder that found them would refuse
        // to begin. What they say of objects is compared with the bucket at the end.
        if self.to.is_some() {
            self.placed.extend(placed_in(folder)?);
        }
        packing.forget_done()
    }

    /// Writes the index of all pieces into `folder`.
    fn finish(self, folder: &Path) -> Result<Created, Error> {
        let Self { listing, accept, effort, recipe, mut assembly, options, mut packed, .. } = self;
        if accept.on_bad == OnBad::List && !packed.bad.is_empty() {
            return Err(Error::AllBad { bad: packed.bad });
        }
        if packed.samples == 0 && packed.bad.is_empty() {
            return Err(Error::source(Path::new(STREAM), "it has no sample"));
        }
        let classes = listing.finish(packed.samples as usize)?;
        if let Some(doubt) = &classes.doubt {
            return Err(Error::source(Path::new(STREAM), doubt));
        }
        // Options follow from the arguments: those of all pieces are equal.
        let options = options.map(|options| options.text(None)).unwrap_or_default();
        let fault = |source| Error::Index { path: folder.to_owned(), source };
        let count = classes.labels.as_ref().map_or(classes.names.len(), Vec::len);
        for label in 0..count {
            // Classes that are sorted only now get their names below.
            let name = if classes.labels.is_some() {
                ""
            } else {
                classes.names.get(label).map_or("", String::as_str)
            };
            assembly.push_class(name.as_bytes()).map_err(fault)?;
        }
        let assembled = assembly.finish(&options).map_err(fault)?;
        let (assembled, index) = relabelled(assembled, &classes, &options).map_err(fault)?;
        packed.lost = lost(&index, &classes.known);
        let mut names = Catalogue::default();
        names.classes = classes.names;
        refuse_packed(&names, &packed, accept)?;
        assembled.write(folder, effort.sync)?;
        let part = CreatedPart {
            content_id: Some(index.content_id().to_string()),
            samples: index.len(),
            classes: names.classes.len(),
            shards: index.shard_count() as usize,
            bytes: packed.bytes + assembled.index.len() as u64,
            compressed: packed.compressed,
            not_decodable: packed.not_decodable,
            zstd_would_save_percent: recipe.and_then(|(_, percent)| percent),
            ..CreatedPart::default()
        };
        let notes = classes.note.into_iter().chain([NOTE]).map(str::to_owned).collect();
        let (bad, source_bytes) = (packed.bad, packed.source_bytes);
        Ok(Created { parts: vec![part], source_bytes, bad, notes, ..Created::default() })
    }
}

/// The index with the final labels.
fn relabelled(
    assembled: Assembled,
    classes: &StreamClasses,
    options: &serde_json::Value,
) -> Result<(Assembled, Index), shade_formats::FormatError> {
    let Some(labels) = &classes.labels else {
        let index = Index::open(assembled.index.clone())?;
        return Ok((assembled, index));
    };
    let before = Index::open(assembled.index)?;
    let mut assembly = Assembly::new(classes.names.iter().map(String::as_bytes))?;
    let name = |shard| before.shard(shard).map_or("", |shard| shard.name).to_owned();
    assembly.add_index(&before, &Times::default(), labels, name)?;
    let assembled = assembly.finish(options)?;
    let index = Index::open(assembled.index.clone())?;
    Ok((assembled, index))
}

/// The labels among `known` that no sample has.
fn lost(index: &Index, known: &BTreeSet<u32>) -> Vec<u32> {
    let mut left = known.clone();
    for entry in (0..index.len()).map(SampleId).filter_map(|id| index.entry(id)) {
        left.remove(&entry.label);
    }
    left.into_iter().collect()
}
