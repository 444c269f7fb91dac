//! The lists that parts make for `plan`: `OUT.lists/list-000003-of-000512`.
//!
//! Each of its runs is a class. A part has every `count`-th class, of each split.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use shade_formats::SampleId;

use super::rows::{decode, encode};
use super::runs::{Kind, RunsFile, RunsWriter};
use crate::catalogue::{Bad, Catalogue, EmptyClass, SampleStore};
use crate::error::Error;
use crate::files::temporary;
use crate::leftovers::remove_files;
use crate::part::Part;

/// What a list's name begins with.
const LIST: &str = "list-";

/// Missing lists that are named.
const NAMED_MAX: usize = 8;

/// What a part has listed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ListedPart {
    pub(crate) part: Part,
    /// Patterns of what was left out.
    pub(crate) exclude: Vec<String>,
    /// One for the whole source, or one for each split.
    pub(crate) splits: Vec<ListedSplit>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedSplit {
    pub(crate) split: Option<String>,
    /// The classes of all parts.
    pub(crate) classes: Vec<String>,
    /// What this part has found and cannot be packed.
    pub(crate) bad: Vec<Bad>,
    /// Labels of this part's classes of which all is bad.
    #[serde(default)]
    pub(crate) lost: Vec<u32>,
    /// This part's classes without an image.
    #[serde(default)]
    pub(crate) empty: Vec<EmptyClass>,
    /// What people should know of the source, each in one line.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
}

/// Writes what a part has listed, a catalogue for each split.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_list(
    out: &Path,
    listed: &ListedPart,
    catalogues: &[Catalogue],
    sync: bool,
) -> Result<PathBuf, Error> {
    let folder = folder_of(out);
    match fs::create_dir(&folder) {
        Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => {}
        created => created.map_err(Error::io("create", &folder))?,
    }
    let path = folder.join(name_of(listed.part));
    let mut writer = RunsWriter::create(&path, Kind::List)?;
    let mut rows = Vec::new();
    for catalogue in catalogues {
        // Samples lie class by class.
        let mut next = (0..catalogue.len()).map(SampleId).peekable();
        for label in own_labels(listed.part, catalogue.classes.len()) {
            rows.clear();
            let mut samples = 0;
            while let Some(id) =
                next.next_if(|id| catalogue.sample(*id).is_some_and(|sample| sample.label == label))
            {
                encode(catalogue, id, &mut rows).map_err(|fault| Error::source(&path, fault))?;
                samples += 1;
            }
            writer.run(samples, &rows)?;
        }
    }
    writer.finish(listed, sync)?;
    Ok(path)
}

/// Reads the lists of all parts. Gives what all say of the source, and a catalogue for each split,
/// as one listing of the source would. `root` is the folder of a split.
///
/// # Errors
/// Lists are missing, damaged, or disagree about classes.
pub(crate) fn read_lists(
    out: &Path,
    root: impl Fn(Option<&str>) -> PathBuf,
) -> Result<(ListedPart, Vec<Catalogue>), Error> {
    let lists = open_all(out)?;
    let (first, _) = lists.first().ok_or_else(|| none(out))?;
    for (listed, file) in &lists {
        let classes = |listed: &'_ ListedPart| {
            let of = |split: &ListedSplit| (split.split.clone(), split.classes.clone());
            listed.splits.iter().map(of).collect::<Vec<_>>()
        };
        if listed.exclude != first.exclude || classes(listed) != classes(first) {
            let fault = "splits, classes or --exclude are others than in the list before it: the source changed, or the \
                         options did. List all parts again";
            return Err(Error::source(&file.path, fault));
        }
    }
    let mut catalogues = Vec::new();
    let mut before = vec![0; lists.len()];
    for (number, split) in first.splits.iter().enumerate() {
        let store = SampleStore::Folder(root(split.split.as_deref()));
        let mut catalogue = Catalogue::new(vec![store]);
        catalogue.classes.clone_from(&split.classes);
        for label in 0..split.classes.len() {
            let position = label % lists.len();
            let (Some((_, file)), Some(run)) = (lists.get(position), before.get_mut(position)) else {
                continue;
            };
            add_class(&mut catalogue, file, *run, label)?;
            *run += 1;
        }
        for (listed, _) in &lists {
            let Some(split) = listed.splits.get(number) else { continue };
            catalogue.bad.extend_from_slice(&split.bad);
            catalogue.lost.extend_from_slice(&split.lost);
            catalogue.empty.extend_from_slice(&split.empty);
            for note in &split.notes {
                if !catalogue.notes.contains(note) {
                    catalogue.notes.push(note.clone());
                }
            }
        }
        catalogue.bad.sort_by(|a, b| a.path.cmp(&b.path));
        catalogue.set_whole_ids(Vec::new());
        catalogues.push(catalogue);
    }
    let (first, _) = lists.into_iter().next().ok_or_else(|| none(out))?;
    Ok((first, catalogues))
}

/// Removes the lists of `out`, which are of no use once the dataset is there.
pub(crate) fn remove_lists(out: &Path) -> Result<(), Error> {
    let folder = folder_of(out);
    // Not through a link.
    if !fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    remove_files(&folder, |name| {
        let list = temporary(name).map_or(name, |(list, _)| list);
        part_of(list).is_some()
    })?;
    // Anything else in it is not ours.
    let _ = fs::remove_dir(&folder);
    Ok(())
}

fn add_class(catalogue: &mut Catalogue, file: &RunsFile, run: usize, label: usize) -> Result<(), Error> {
    let start = catalogue.len();
    let wrong = |fault: String| file.damaged(format!("class {label}: {fault}"));
    let ids = decode(&file.read(run)?, catalogue).map_err(wrong)?;
    let expected = file.runs.get(run).map_or(0, |run| run.samples);
    if ids.len() as u64 != u64::from(expected) {
        return Err(wrong(format!("{} samples, not {expected}", ids.len())));
    }
    let labels = (start..catalogue.len()).filter_map(|id| Some(catalogue.sample(SampleId(id))?.label));
    if labels.into_iter().any(|found| found as usize != label) {
        return Err(wrong("it has samples of another class".to_owned()));
    }
    Ok(())
}

/// The lists in the order of their parts, all of one count.
fn open_all(out: &Path) -> Result<Vec<(ListedPart, RunsFile)>, Error> {
    let folder = folder_of(out);
    let mut found = found(&folder)?;
    found.sort_unstable_by_key(|(part, _)| *part);
    let Some(count) = found.first().map(|(part, _)| part.count()) else { return Err(none(out)) };
    if let Some((other, _)) = found.iter().find(|(part, _)| part.count() != count) {
        return Err(Error::Usage(format!(
            "{} has lists of {count} parts and of {}: remove the folder and list again",
            folder.display(),
            other.count()
        )));
    }
    let there: Vec<u32> = found.iter().map(|(part, _)| part.number()).collect();
    let missing: Vec<String> = (0..count)
        .filter(|number| there.binary_search(number).is_err())
        .map(|number| format!("{number}/{count}"))
        .collect();
    if !missing.is_empty() {
        let named = missing.get(..NAMED_MAX).map_or_else(
            || missing.join(", "),
            |some| format!("{} and {} more", some.join(", "), missing.len() - some.len()),
        );
        return Err(Error::MissingParts(format!(
            "{}: {} of {count} lists are missing: {named}\nshade-pack list SOURCE {} --part I/{count} makes them",
            folder.display(),
            missing.len(),
            out.display()
        )));
    }
    let mut lists = Vec::new();
    for (part, path) in found {
        let (file, listed): (_, ListedPart) = RunsFile::open(&path, Kind::List)?;
        let runs: usize =
            listed.splits.iter().map(|split| own_labels(part, split.classes.len()).count()).sum();
        if listed.part != part || runs != file.runs.len() {
            return Err(file.damaged(format!(
                "it is of part {} and has {} classes",
                listed.part,
                file.runs.len()
            )));
        }
        lists.push((listed, file));
    }
    Ok(lists)
}

fn own_labels(part: Part, classes: usize) -> impl Iterator<Item = u32> {
    (0u32..).zip(0..classes).filter(move |(_, position)| part.has(*position)).map(|(label, _)| label)
}

/// All lists in a folder; none if there is no folder.
fn found(folder: &Path) -> Result<Vec<(Part, PathBuf)>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Error::io("list", folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", folder))?;
        found.extend(entry.file_name().to_str().and_then(part_of).map(|part| (part, entry.path())));
    }
    Ok(found)
}

fn none(out: &Path) -> Error {
    let (folder, out) = (folder_of(out), out.display());
    let folder = folder.display();
    Error::MissingParts(format!("{folder} has no lists: shade-pack list SOURCE {out} --part I/N makes them"))
}

fn folder_of(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".lists");
    out.with_file_name(name)
}

fn name_of(part: Part) -> String {
    format!("{LIST}{:06}-of-{:06}", part.number(), part.count())
}

fn part_of(name: &str) -> Option<Part> {
    let (number, count) = name.strip_prefix(LIST)?.split_once("-of-")?;
    let part = Part::new(number.parse().ok()?, count.parse().ok()?).ok()?;
    (name_of(part) == name).then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_parts() {
        let part = Part::new(3, 512).unwrap();
        assert_eq!(part_of(&name_of(part)), Some(part));
        for name in ["", "list-1-of-2", "list-000003-of-000003", "list-000000-of-000000", "x"] {
            assert_eq!(part_of(name), None, "{name}");
        }
    }
}
