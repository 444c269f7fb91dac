//! Lists an ImageFolder exactly as torchvision's `ImageFolder` does: same classes, same samples, same order.
//!
//! torchvision sorts Python strings, that is by code point, which for UTF-8 is the order of bytes. It sorts the
//! folders `os.walk(followlinks=True)` finds by their whole path as one string, so `a-b` comes before `a/b`; a
//! comparison by path components would not. Where torchvision would carry on in silence or for ever (folders it may
//! not read, symbolic links that lead back to a parent), listing ends with an error that names the path.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rayon::prelude::*;
use shade_formats::limits::{NAME_BYTES_MAX, RECORD_BYTES_MAX, SAMPLES_MAX};

use crate::error::Error;
use crate::interrupt::Stop;

/// torchvision's `IMG_EXTENSIONS`; upper case counts too.
pub const EXTENSIONS: [&str; 9] = [".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"];

/// The samples of an ImageFolder; a sample's id is its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFolder {
    /// Class names; the label is the position.
    pub classes: Vec<String>,
    /// All samples, in torchvision's order.
    pub samples: Vec<Sample>,
}

/// One image file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Path below the root, such as `cat/1.png`.
    pub path: String,
    /// Position of its class.
    pub label: u32,
    /// The file's length when it was listed.
    pub bytes: u64,
}

/// Lists the ImageFolder at `root`, one class per task of the current rayon pool.
///
/// # Errors
/// No class folder; a class without image; a loop of symbolic links; a name that is not UTF-8; an image that is not a
/// regular file or is larger than a record may be; or the operating system refuses.
pub fn scan(root: &Path, stop: &Stop) -> Result<ImageFolder, Error> {
    let classes = list_classes(root)?;
    let walked: Vec<Vec<String>> =
        classes.par_iter().map(|class| list_images(root, class, stop)).collect::<Result<_, _>>()?;
    let empty: Vec<&str> = classes
        .iter()
        .zip(&walked)
        .filter(|(_, paths)| paths.is_empty())
        .map(|(class, _)| class.as_str())
        .collect();
    if !empty.is_empty() {
        let extensions = EXTENSIONS.join(", ");
        let fault = format!(
            "found no valid file for the classes {}. Supported extensions are: {extensions}",
            empty.join(", ")
        );
        return Err(Error::Source { path: root.to_owned(), fault });
    }
    let paths: Vec<(u32, String)> = (0u32..)
        .zip(walked)
        .flat_map(|(label, paths)| paths.into_iter().map(move |path| (label, path)))
        .collect();
    if paths.len() as u64 > SAMPLES_MAX {
        let fault = format!("{} images; a dataset holds at most {SAMPLES_MAX}", paths.len());
        return Err(Error::Source { path: root.to_owned(), fault });
    }
    let samples = paths
        .into_par_iter()
        .map(|(label, path)| {
            stop.check()?;
            let bytes = image_bytes(&root.join(&path))?;
            Ok(Sample { path, label, bytes })
        })
        .collect::<Result<_, Error>>()?;
    Ok(ImageFolder { classes, samples })
}

/// The sorted names of `root`'s folders, hidden ones and links to folders included.
fn list_classes(root: &Path) -> Result<Vec<String>, Error> {
    let mut classes = Vec::new();
    for entry in read_dir(root)? {
        if is_dir(&entry)? {
            refuse_loop(root, &entry)?;
            classes.push(name_of(&entry)?);
        }
    }
    if classes.is_empty() {
        let fault = "couldn't find any class folder in it".to_owned();
        return Err(Error::Source { path: root.to_owned(), fault });
    }
    classes.sort_unstable();
    Ok(classes)
}

/// The paths below `root` of a class's images, in order.
fn list_images(root: &Path, class: &str, stop: &Stop) -> Result<Vec<String>, Error> {
    let mut folders = Vec::new();
    let mut ahead = vec![class.to_owned()];
    while let Some(folder) = ahead.pop() {
        stop.check()?;
        let mut images = Vec::new();
        for entry in read_dir(&root.join(&folder))? {
            if is_dir(&entry)? {
                refuse_loop(root, &entry)?;
                ahead.push(format!("{folder}/{}", name_of(&entry)?));
            } else if is_image(entry.file_name().as_encoded_bytes()) {
                images.push(name_of(&entry)?);
            }
        }
        images.sort_unstable();
        folders.push((folder, images));
    }
    folders.sort_unstable();
    let join = |(folder, images): (String, Vec<String>)| {
        images.into_iter().map(move |image| format!("{folder}/{image}")).collect::<Vec<_>>()
    };
    Ok(folders.into_iter().flat_map(join).collect())
}

fn read_dir(folder: &Path) -> Result<Vec<DirEntry>, Error> {
    let entries = fs::read_dir(folder).and_then(Iterator::collect);
    entries.map_err(Error::io("list", folder))
}

/// Whether this is a folder or a link to one. A link to nothing is none, as in Python.
fn is_dir(entry: &DirEntry) -> Result<bool, Error> {
    let path = entry.path();
    let kind = entry.file_type().map_err(Error::io("look at", &path))?;
    if !kind.is_symlink() {
        return Ok(kind.is_dir());
    }
    match fs::metadata(&path) {
        Ok(target) => Ok(target.is_dir()),
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(fault) => Err(Error::io("follow", &path)(fault)),
    }
}

fn is_image(name: &[u8]) -> bool {
    EXTENSIONS.iter().any(|extension| {
        let start = name.len().checked_sub(extension.len());
        start
            .and_then(|start| name.get(start..))
            .is_some_and(|end| end.eq_ignore_ascii_case(extension.as_bytes()))
    })
}

fn name_of(entry: &DirEntry) -> Result<String, Error> {
    entry.file_name().into_string().map_err(|_| Error::Source {
        path: entry.path(),
        fault: "its name is not UTF-8: rename it".to_owned(),
    })
}

/// Refuses a link to a folder that contains it, be it through other links. Only links can make such loops.
fn refuse_loop(root: &Path, entry: &DirEntry) -> Result<(), Error> {
    let path = entry.path();
    if !entry.file_type().map_err(Error::io("look at", &path))?.is_symlink() {
        return Ok(());
    }
    let identity = |path: &Path| {
        let found = fs::metadata(path).map_err(Error::io("look at", path))?;
        Ok::<_, Error>((found.dev(), found.ino()))
    };
    let target = identity(&path)?;
    for parent in path.ancestors().skip(1).take_while(|parent| parent.starts_with(root)) {
        if identity(parent)? == target {
            let fault = format!("a symbolic link back to {}, a loop without end", parent.display());
            return Err(Error::Source { path, fault });
        }
    }
    Ok(())
}

/// Length of an image file.
fn image_bytes(path: &Path) -> Result<u64, Error> {
    let fault = |fault: String| Err(Error::Source { path: path.to_owned(), fault });
    let found = fs::metadata(path).map_err(Error::io("look at", path))?;
    if !found.is_file() {
        return fault("has an image's extension but is not a regular file".to_owned());
    }
    if found.len() > RECORD_BYTES_MAX {
        return fault(format!("{} bytes; a record holds at most {RECORD_BYTES_MAX}", found.len()));
    }
    if path.as_os_str().len() > NAME_BYTES_MAX {
        return fault(format!("its path is longer than {NAME_BYTES_MAX} bytes"));
    }
    Ok(found.len())
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
