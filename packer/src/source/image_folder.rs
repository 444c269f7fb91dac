//! Lists an ImageFolder exactly as torchvision's `ImageFolder` does: same classes, same samples,
//! same order.
//!
//! torchvision sorts Python strings, that is by code point, which for UTF-8 is the order of bytes.
//! It sorts the folders of `os.walk(followlinks=True)` by their whole path as one string, so `a-b`
//! comes before `a/b`; a comparison by path components would not. torchvision ignores folders that
//! it may not read, and empty files, and follows links to a parent without end. Here such a path is
//! bad.

use std::fs::{self, DirEntry};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rayon::prelude::*;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
pub(crate) use shade_dataset::changed_ns;
use shade_formats::limits::NAME_BYTES_MAX;

use super::labels::UNLABELLED;
use super::selection::Selection;
use super::tool_folders;
use crate::catalogue::{
    Bad, Catalogue, EmptyClass, LimitFault, ListedFolder, NewSample, Paths, SampleStore, check_bytes,
};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::part::Part;
use crate::progress::CommandProgress;

/// torchvision's `IMG_EXTENSIONS`; upper case counts too.
pub(crate) const EXTENSIONS: [&str; 9] =
    [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// Files of one task: enough to outweigh handing it out, few enough for all threads to have some.
pub(super) const FILES_PER_TASK: usize = 16;

/// A folder that was changed within this time may be changed again within the same tick of its
/// file system's clock: 10 ms on Linux' own ones, and servers keep times to a second at worst.
const FOLDER_SETTLED_NS: i64 = 1_100_000_000;

/// Classes that are listed together, for each thread.
const CLASSES_PER_THREAD: usize = 2;

/// Lists the ImageFolder at `root`, as many folders and files at a time as the current rayon pool
/// has threads. Classes without image are in [`Catalogue::empty`].
///
/// # Errors
/// No class folder; the root cannot be listed; or [`Error::Interrupted`].
pub fn scan(
    root: &Path,
    selection: &Selection,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Catalogue, Error> {
    scan_part(root, selection, Part::WHOLE, progress, stop)
}

/// Lists the classes of one part, all others without samples. The classes of all parts, in order,
/// are what [`scan`] gives.
pub(super) fn scan_part(
    root: &Path,
    selection: &Selection,
    part: Part,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Catalogue, Error> {
    let mut catalogue = Catalogue::new(vec![SampleStore::Folder(root.to_owned())]);
    let walk = FolderWalk::new(root, selection, progress, stop)?;
    catalogue.folders.push(listed_folder(root, ""));
    let entries = read_dir(root).map_err(Error::io("list", root))?;
    let mut classes = Vec::new();
    for entry in &entries {
        match walk.subfolder(entry) {
            Ok(None) => {}
            Ok(Some(name)) if selection.excludes(&name) => {}
            Ok(Some(name)) => classes.push(name),
            Err(bad) => catalogue.bad.push(bad),
        }
    }
    if classes.is_empty() && catalogue.bad.is_empty() {
        let names = entries.iter().map(DirEntry::file_name);
        let images = names.filter(|name| is_image(name.as_encoded_bytes())).count();
        return Err(Error::source(root, no_class(images)));
    }
    classes.sort_unstable();
    let labelled = (0u32..).zip(&classes).filter(|(label, _)| part.has(*label as usize));
    let labelled: Vec<(u32, &String)> = labelled.collect();
    let mut of_tools = Vec::new();
    // Some classes at a time: otherwise all would be in memory twice.
    for some in labelled.chunks(rayon::current_num_threads() * CLASSES_PER_THREAD) {
        let walked: Vec<ListedClass> =
            some.par_iter().map(|(_, class)| walk.class(class)).collect::<Result<_, _>>()?;
        for ((label, _), class) in some.iter().zip(walked) {
            of_tools.append(&mut add_class(&mut catalogue, class, *label, root));
        }
    }
    finish(&mut catalogue, classes, &of_tools, root);
    Ok(catalogue)
}

/// Adds a class. Gives the folders of programs that it has images in.
pub(super) fn add_class(
    catalogue: &mut Catalogue,
    mut class: ListedClass,
    label: u32,
    root: &Path,
) -> Vec<String> {
    let before = catalogue.len();
    let of_tools = std::mem::take(&mut class.of_tools);
    catalogue.folders.append(&mut class.folders);
    let (is_bad, other) = (!class.bad.is_empty(), class.other.take());
    let is_full = !add(catalogue, class, label, root);
    if catalogue.len() == before {
        if is_bad || is_full {
            catalogue.lost.push(label);
        } else {
            catalogue.empty.push(EmptyClass { label, other });
        }
    }
    of_tools
}

/// Names the classes, and says what people should know of them.
pub(super) fn finish(catalogue: &mut Catalogue, classes: Vec<String>, of_tools: &[String], root: &Path) {
    catalogue.notes.extend(splits_note(&classes));
    catalogue.notes.extend(pairs_note(root, &classes));
    catalogue.notes.extend(tool_folders::note(of_tools));
    catalogue.classes = classes;
}

/// Lists all images below `root`, in the order that they would have within one class.
///
/// # Errors
/// No image; the root cannot be listed; or [`Error::Interrupted`].
pub(super) fn scan_unlabelled(
    root: &Path,
    selection: &Selection,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Catalogue, Error> {
    let mut catalogue = Catalogue::new(vec![SampleStore::Folder(root.to_owned())]);
    // A root that cannot be listed is no bad folder of a source but none.
    read_dir(root).map_err(Error::io("list", root))?;
    let mut all = FolderWalk::new(root, selection, progress, stop)?.class("")?;
    catalogue.folders.append(&mut all.folders);
    catalogue.notes.extend(tool_folders::note(&all.of_tools));
    without_classes(catalogue, all, root)
}

/// A catalogue of images that have no classes.
///
/// # Errors
/// There is no image.
pub(super) fn without_classes(
    mut catalogue: Catalogue,
    all: ListedClass,
    root: &Path,
) -> Result<Catalogue, Error> {
    add(&mut catalogue, all, 0, root);
    if catalogue.is_empty() && catalogue.bad.is_empty() {
        let fault = format!("found no image in it. Supported extensions are: {}", EXTENSIONS.join(", "));
        return Err(Error::source(root, fault));
    }
    catalogue.classes = vec![UNLABELLED.to_owned()];
    Ok(catalogue)
}

/// The paths of all files below `root`, of any kind, as far as it can be listed.
///
/// # Errors
/// The root cannot be listed; or [`Error::Interrupted`].
pub(super) fn scan_files(root: &Path, progress: &CommandProgress, stop: &Stop) -> Result<Paths, Error> {
    read_dir(root).map_err(Error::io("list", root))?;
    let selection = Selection::default();
    let names = FolderWalk::new(root, &selection, progress, stop)?.names("", |_| true)?;
    Ok(joined(names.folders))
}

/// Adds a class's samples; says whether the dataset had room for all.
fn add(catalogue: &mut Catalogue, class: ListedClass, label: u32, root: &Path) -> bool {
    let mut has_room = true;
    catalogue.bad.extend(class.bad);
    for (path, found) in class.paths.iter().zip(&class.found) {
        let Some(FileFacts { bytes, changed_ns }) = *found else { continue };
        let sample = NewSample { path, label, bytes, changed_ns, store: 0, offset: 0 };
        if let Err(fault) = catalogue.push(sample) {
            has_room = false;
            catalogue.bad.push(Bad::new(&root.join(path), fault));
        }
    }
    has_room
}

/// Says why a folder with this number of images right in it has no class, and what it may be.
pub(super) fn no_class(images: usize) -> String {
    let remedy = match images {
        0 => String::new(),
        _ => format!(
            ", but {images} images right in it: a CSV file with the columns path and label says their classes, \
             --labels none packs them without labels, and --pair masks=FOLDER with masks of another folder"
        ),
    };
    format!("couldn't find any class folder in it{remedy}")
}

/// Says what folders are called that are rather splits than classes.
fn splits_note(classes: &[String]) -> Option<String> {
    let is_split = |name: &&String| {
        ["train", "training", "val", "valid", "validation", "test", "testing", "dev"]
            .iter()
            .any(|split| split.eq_ignore_ascii_case(name))
    };
    let splits: Vec<&str> = classes.iter().filter(is_split).map(String::as_str).collect();
    (splits.len() >= 2).then(|| {
        let all = splits.join(",");
        format!("folders called {all} became classes; if they are splits: --splits {all}")
    })
}

/// Says what folders are called that are rather images and their masks than classes.
fn pairs_note(root: &Path, classes: &[String]) -> Option<String> {
    let called =
        |names: &[&str]| classes.iter().find(|class| names.iter().any(|n| n.eq_ignore_ascii_case(class)));
    let images = called(&["images", "image", "imgs", "img", "jpegimages"])?;
    let masks = called(&["masks", "mask", "labels", "annotations", "segmentationclass"])?;
    let at = |name| root.join(name).display().to_string();
    Some(format!(
        "folders called {images},{masks} became classes; if one has the masks of the other's images: SOURCE {} with \
         --pair masks={}",
        at(images),
        at(masks)
    ))
}

struct FolderWalk<'a> {
    root: &'a Path,
    folder: OwnedFd,
    selection: &'a Selection,
    progress: &'a CommandProgress,
    stop: &'a Stop,
}

pub(super) struct ListedClass {
    pub(super) folders: Vec<ListedFolder>,
    /// Folders of programs with images in them.
    pub(super) of_tools: Vec<String>,
    /// A file that is no image.
    pub(super) other: Option<String>,
    pub(super) paths: Paths,
    /// For each path; `None` for one that is bad.
    pub(super) found: Vec<Option<FileFacts>>,
    pub(super) bad: Vec<Bad>,
}

#[derive(Clone, Copy)]
pub(super) struct FileFacts {
    pub(super) bytes: u32,
    pub(super) changed_ns: i64,
}

/// Why a file cannot be a sample's, in words that go behind its path.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum LookFault {
    #[error("cannot be looked at: {}", io::Error::from(*.0))]
    Look(Errno),
    #[error("is not a regular file")]
    NoFile,
    #[error("its path is longer than {NAME_BYTES_MAX} bytes")]
    LongPath,
    #[error("the store tells no version of it (ETag): copy it to a file system")]
    NoVersion,
    #[error(transparent)]
    Bytes(#[from] LimitFault),
}

/// Files below a folder of the source, by their names alone.
struct ListedNames {
    /// Each folder with its files, both in order.
    folders: Vec<(String, Vec<String>)>,
    /// Each folder as it was before it was listed.
    listed: Vec<ListedFolder>,
    /// Folders of programs with such files in them.
    of_tools: Vec<String>,
    /// A file of another kind.
    other: Option<String>,
    bad: Vec<Bad>,
}

impl<'a> FolderWalk<'a> {
    fn new(
        root: &'a Path,
        selection: &'a Selection,
        progress: &'a CommandProgress,
        stop: &'a Stop,
    ) -> Result<Self, Error> {
        let folder = open_folder(root).map_err(Error::io("open", root))?;
        Ok(Self { root, folder, selection, progress, stop })
    }

    /// The names of the files of a class that are `wanted`; of all folders if it has no name.
    fn names(&self, class: &str, wanted: impl Fn(&[u8]) -> bool) -> Result<ListedNames, Error> {
        let mut folders = Vec::new();
        let mut ahead = vec![class.to_owned()];
        let (mut bad, mut of_tools, mut other) = (Vec::new(), Vec::new(), None);
        let mut listed = Vec::new();
        while let Some(folder) = ahead.pop() {
            self.stop.check()?;
            let here = self.root.join(&folder);
            listed.push(listed_folder(&here, &folder));
            let entries = match read_dir(&here) {
                Ok(entries) => entries,
                Err(fault) => {
                    bad.push(Bad::new(&here, format!("cannot be listed: {fault}")));
                    continue;
                }
            };
            let mut images = Vec::new();
            for entry in entries {
                match self.subfolder(&entry) {
                    Ok(Some(name)) => {
                        let path = below(&folder, &name);
                        if !self.selection.excludes(&path) {
                            ahead.push(path);
                        }
                    }
                    Ok(None) if !wanted(entry.file_name().as_encoded_bytes()) => {
                        other = other.or_else(|| entry.file_name().into_string().ok());
                    }
                    Ok(None) => match name_of(&entry) {
                        Ok(name) if self.selection.excludes(&below(&folder, &name)) => {}
                        Ok(name) => images.push(name),
                        Err(fault) => bad.push(fault),
                    },
                    Err(fault) => bad.push(fault),
                }
            }
            images.sort_unstable();
            if !images.is_empty() && folder.split('/').any(tool_folders::is_of_a_tool) {
                of_tools.push(folder.clone());
            }
            folders.push((folder, images));
        }
        folders.sort_unstable();
        Ok(ListedNames { folders, listed, of_tools, other, bad })
    }

    /// A class's images, in order; all images if it has no name.
    fn class(&self, class: &str) -> Result<ListedClass, Error> {
        let ListedNames { folders, listed, of_tools, other, mut bad } = self.names(class, is_image)?;
        let paths = joined(folders);
        let looked: Vec<Result<FileFacts, Bad>> = (0..paths.len())
            .into_par_iter()
            .with_min_len(FILES_PER_TASK)
            .map(|number| {
                self.stop.check()?;
                Ok(look(self.folder.as_fd(), self.root, paths.get(number).unwrap_or_default()))
            })
            .collect::<Result<_, Error>>()?;
        let found = looked.into_iter().map(|found| found.map_err(|fault| bad.push(fault)).ok()).collect();
        self.progress.add(paths.len() as u64, 0);
        Ok(ListedClass { folders: listed, of_tools, other, paths, found, bad })
    }

    /// The name of a folder or of a link to one; `None` for anything else. As in Python, a link to
    /// nothing is no folder.
    fn subfolder(&self, entry: &DirEntry) -> Result<Option<String>, Bad> {
        let path = entry.path();
        let cannot = |fault: io::Error| Bad::new(&path, format!("cannot be looked at: {fault}"));
        let kind = entry.file_type().map_err(cannot)?;
        if !kind.is_symlink() {
            return if kind.is_dir() { name_of(entry).map(Some) } else { Ok(None) };
        }
        match fs::metadata(&path) {
            Ok(target) if target.is_dir() => {
                self.refuse_loop(&path, &target)?;
                name_of(entry).map(Some)
            }
            Ok(_) => Ok(None),
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(fault) => Err(cannot(fault)),
        }
    }

    /// Refuses a link to a folder that contains the link, also through other links. Only links can
    /// make such loops.
    fn refuse_loop(&self, link: &Path, target: &fs::Metadata) -> Result<(), Bad> {
        for parent in link.ancestors().skip(1).take_while(|parent| parent.starts_with(self.root)) {
            let found = fs::metadata(parent)
                .map_err(|fault| Bad::new(parent, format!("cannot be looked at: {fault}")))?;
            if (found.dev(), found.ino()) == (target.dev(), target.ino()) {
                let fault = format!("a symbolic link back to {}, a loop without end", parent.display());
                return Err(Bad::new(link, fault));
            }
        }
        Ok(())
    }
}

/// A folder before it is listed. A file that comes later changes it again, unless that happens
/// within a tick of its clock.
pub(super) fn listed_folder(folder: &Path, path: &str) -> ListedFolder {
    let found = rustix::fs::stat(folder).map_or(0, |found| changed_ns(&found));
    ListedFolder { path: path.to_owned(), changed_ns: settled_ns(found) }
}

fn joined(folders: Vec<(String, Vec<String>)>) -> Paths {
    let mut paths = Paths::default();
    for (folder, names) in folders {
        for name in names {
            paths.push_joined(&folder, &name);
        }
    }
    paths
}

/// The path of `name` in a folder; the root has no name.
fn below(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

fn read_dir(folder: &Path) -> io::Result<Vec<DirEntry>> {
    fs::read_dir(folder).and_then(Iterator::collect)
}

pub(super) fn is_image(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| {
        let start = name.len().checked_sub(extension.len());
        start
            .and_then(|start| name.get(start..))
            .is_some_and(|end| end.eq_ignore_ascii_case(extension.as_bytes()))
    })
}

fn name_of(entry: &DirEntry) -> Result<String, Bad> {
    let name = entry.file_name().into_string();
    name.map_err(|_| Bad::new(&entry.path(), "its name is not UTF-8: rename it"))
}

/// Length and age of the image file at `path` below `folder`, which is at `root`. From an open
/// folder the kernel has less path to walk.
pub(super) fn look(folder: BorrowedFd<'_>, root: &Path, path: &str) -> Result<FileFacts, Bad> {
    facts(folder, root, path).map_err(|fault| Bad::new(&root.join(path), fault))
}

/// As [`look`], for any file.
pub(super) fn facts(folder: BorrowedFd<'_>, root: &Path, path: &str) -> Result<FileFacts, LookFault> {
    let found = rustix::fs::statat(folder, path, AtFlags::empty()).map_err(LookFault::Look)?;
    if !FileType::from_raw_mode(found.st_mode).is_file() {
        return Err(LookFault::NoFile);
    }
    if root.as_os_str().len() + path.len() >= NAME_BYTES_MAX {
        return Err(LookFault::LongPath);
    }
    let bytes = check_bytes(u64::try_from(found.st_size).unwrap_or_default())?;
    Ok(FileFacts { bytes, changed_ns: changed_ns(&found) })
}

/// A time of change as it counts for a later comparison: 0 if more may change within a tick of it.
fn settled_ns(changed_ns: i64) -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    let now_ns = now.tv_sec.saturating_mul(1_000_000_000).saturating_add(now.tv_nsec);
    if now_ns.saturating_sub(changed_ns) < FOLDER_SETTLED_NS { 0 } else { changed_ns }
}

/// Opens a folder for looking up what is below it.
pub(crate) fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::is_image;

    #[test]
    fn extensions_count_in_any_case_and_alone() {
        for name in ["a.jpg", "a.JPEG", ".png", "a.b.WebP", "a.tif", "a.tiff", "a.pgm", "a.PpM", "a.bmp"] {
            assert!(is_image(name.as_bytes()), "{name}");
        }
        for name in ["a.gif", "jpg", "a.jpg.txt", "a.npy", "", "a.jpg "] {
            assert!(!is_image(name.as_bytes()), "{name}");
        }
    }
}
