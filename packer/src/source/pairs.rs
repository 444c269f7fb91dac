//! Gives the images of a folder the files of other folders that are called like them: masks, boxes,
//! captions.
//!
//! All files of a pair have one extension, so the path of a file follows from that of its image.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::AsFd;
use std::path::Path;

use rayon::prelude::*;
use rustix::io::Errno;
use shade_formats::SampleId;

use super::Selection;
use super::image_folder::{FILES_PER_TASK, FileFacts, LookFault, facts, open_folder, scan_files};
use crate::catalogue::{Catalogue, FieldContent, Paths};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::pair::{Pair, stem};
use crate::progress::CommandProgress;

/// What is wrong with a pair, or with an image of one.
#[derive(Debug, thiserror::Error)]
enum PairsFault {
    #[error("has no {name}: {file} is not there")]
    Missing { name: String, file: String },
    #[error("its {name}, {file}: {fault}")]
    File { name: String, file: String, fault: LookFault },
    #[error("{other} has its name, too, and a pair goes by names: leave one of them out (--exclude)")]
    Twin { other: String },
    #[error("none of its {files} files is called like an image in {images}{remedy}")]
    Strangers { files: usize, images: String, remedy: String },
    #[error(
        "files of two extensions are called like images, such as {first} and {second}: choose one, such as --pair \
         '{choice}'"
    )]
    Extensions { first: String, second: String, choice: String },
}

/// A pair, and what was found of the file of each image.
struct Column {
    pair: Pair,
    found: Vec<Result<FileFacts, LookFault>>,
}

/// The images by their paths without extension.
struct Stems<'a> {
    first: HashMap<&'a str, SampleId>,
    /// Images that share a path without extension, each with another one.
    twins: HashMap<SampleId, SampleId>,
}

/// Adds the files of all pairs to the images that were `listed` at `root`. An image without its
/// file is bad. Files without an image are counted in [`Catalogue::notes`].
///
/// # Errors
/// A folder cannot be listed, or has no file that is called like an image, or several extensions of
/// such files; or [`Error::Interrupted`].
pub(super) fn join(
    mut listed: Catalogue,
    root: &Path,
    pairs: &[Pair],
    selection: &Selection,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Catalogue, Error> {
    let stems = Stems::of(&listed);
    let (mut columns, mut notes) = (Vec::new(), Vec::new());
    for pair in pairs {
        let files = scan_files(&pair.folder, progress, stop)?;
        let pair = resolved(pair, &files, &stems, root)?;
        notes.extend(strangers_note(&pair, &files, &stems, selection));
        let found = look_at(&pair, &listed, progress, stop)?;
        columns.push(Column { pair, found });
    }
    let mut paired = Catalogue::over(&listed);
    paired.pairs = columns.iter().map(|column| column.pair.clone()).collect();
    for (number, id) in (0..listed.len()).map(SampleId).enumerate() {
        let Some(sample) = listed.sample(id) else { continue };
        let twin = stems.twins.get(&id).and_then(|other| listed.sample(*other));
        let twin = twin.map(|other| PairsFault::Twin { other: other.path.to_owned() });
        let fault = twin.or_else(|| columns.iter().find_map(|column| column.fault(number, sample.path)));
        if let Some(fault) = fault {
            paired.bad.push(sample.bad(fault));
            continue;
        }
        paired.push_from(&listed, id, sample.label).map_err(|fault| Error::source(root, fault))?;
        for Column { pair, found } in &columns {
            let Some(Ok(FileFacts { bytes, changed_ns })) = found.get(number) else { continue };
            let content = FieldContent::File { pair, bytes: *bytes, changed_ns: *changed_ns };
            paired.push_field(&pair.name, content).map_err(|fault| Error::source(root, fault))?;
        }
    }
    paired.take_over(&mut listed);
    paired.notes.append(&mut notes);
    Ok(paired)
}

impl<'a> Stems<'a> {
    fn of(listed: &'a Catalogue) -> Self {
        let (mut first, mut twins) = (HashMap::new(), HashMap::new());
        for (id, sample) in (0u32..).map(SampleId).zip(listed.samples()) {
            let known = *first.entry(stem(sample.path)).or_insert(id);
            if known != id {
                twins.insert(id, known);
                twins.entry(known).or_insert(id);
            }
        }
        Self { first, twins }
    }

    fn has(&self, stem: &str) -> bool {
        self.first.contains_key(stem)
    }
}

impl Column {
    /// What is wrong with the file of the image at `image`.
    fn fault(&self, number: usize, image: &str) -> Option<PairsFault> {
        let Pair { name, folder, .. } = &self.pair;
        let fault = self.found.get(number)?.as_ref().err()?;
        let (name, file) = (name.clone(), folder.join(self.pair.file_of(image)).display().to_string());
        Some(match fault {
            LookFault::Look(Errno::NOENT) => PairsFault::Missing { name, file },
            other => PairsFault::File { name, file, fault: other.clone() },
        })
    }
}

/// The pair with the extension of its files, if it does not say one.
fn resolved(pair: &Pair, files: &Paths, stems: &Stems<'_>, root: &Path) -> Result<Pair, Error> {
    if pair.has_extension() {
        return Ok(pair.clone());
    }
    let mut extensions: BTreeMap<&str, &str> = BTreeMap::new();
    for path in files.iter() {
        let stem = stem(path);
        if pair.image_of(stem).is_some_and(|image| stems.has(&image)) {
            extensions.entry(path.get(stem.len()..).unwrap_or_default()).or_insert(path);
        }
    }
    let with = |extension: &str| Pair { files: format!("{}{extension}", pair.files), ..pair.clone() };
    let mut found = extensions.into_iter();
    let fault = match (found.next(), found.next()) {
        (Some((extension, _)), None) => return Ok(with(extension)),
        // The first one may be empty.
        (Some((_, first)), Some((extension, second))) => PairsFault::Extensions {
            first: first.to_owned(),
            second: second.to_owned(),
            choice: with(extension).to_string(),
        },
        (None, _) => PairsFault::Strangers {
            files: files.len(),
            images: root.display().to_string(),
            remedy: guess(pair, files, stems),
        },
    };
    Err(Error::source(&pair.folder, fault))
}

/// What to say where no file is called like an image: the first one may only have a longer name.
fn guess(pair: &Pair, files: &Paths, stems: &Stems<'_>) -> String {
    let Some(first) = files.get(0) else { return String::new() };
    let name = first.rfind('/').map_or(0, |slash| slash + 1);
    let mut ends = first.char_indices().rev().map(|(at, _)| at).take_while(|at| *at > name);
    let image = ends.find(|at| first.get(..*at).is_some_and(|start| stems.has(start)));
    match image.and_then(|at| first.get(at..)) {
        Some(behind) => {
            let longer = Pair { files: format!("*{behind}"), ..pair.clone() };
            format!(". For names such as {first}: --pair '{longer}'")
        }
        None => format!(". The first is {first}"),
    }
}

/// Says which files have no image.
fn strangers_note(pair: &Pair, files: &Paths, stems: &Stems<'_>, selection: &Selection) -> Option<String> {
    let is_stranger = |path: &&str| {
        pair.image_of(path).is_some_and(|image| !stems.has(&image)) && !selection.excludes_below(path)
    };
    let mut strangers = files.iter().filter(is_stranger);
    let first = pair.folder.join(strangers.next()?);
    let count = strangers.count() + 1;
    Some(format!(
        "{count} files of the pair '{}' have no image that is packed, such as {}",
        pair.name,
        first.display()
    ))
}

fn look_at(
    pair: &Pair,
    listed: &Catalogue,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Vec<Result<FileFacts, LookFault>>, Error> {
    let folder = open_folder(&pair.folder).map_err(Error::io("open", &pair.folder))?;
    let look_at = |id: u32| {
        stop.check()?;
        progress.add(1, 0);
        let image = listed.sample(SampleId(id)).map_or("", |sample| sample.path);
        Ok(facts(folder.as_fd(), &pair.folder, &pair.file_of(image)))
    };
    (0..listed.len()).into_par_iter().with_min_len(FILES_PER_TASK).map(look_at).collect()
}
