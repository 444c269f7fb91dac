//! Lists a CSV file of paths and labels.
//!
//! The file is RFC 4180 CSV in UTF-8. Its first line names the columns: `path` and `label`,
//! anywhere among others. Without labels `label` is a column like any other. A path is absolute or
//! below the file's folder; ids are the order of the lines. The other columns become one field,
//! `json`: an object of column names and cells, in their order and without empty cells. Cells stay
//! strings, or `007` and `1.10` would come back as other texts.

use std::fmt::Write as _;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use csv::{ErrorKind, StringRecord};
use rayon::prelude::*;
use shade_dataset::{Address, regular};

use super::Selection;
use super::image_folder::{FILES_PER_TASK, FileFacts, look, open_folder};
use super::labels::{Classes, LabelFault, Labels, Texts, UNLABELLED, checked};
use crate::catalogue::{Bad, Catalogue, FieldContent, NewSample, Paths, SampleStore};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::progress::CommandProgress;

/// The field that further columns become.
const FIELD: &str = "json";

/// What is wrong with the file or with one of its lines.
#[derive(Debug, thiserror::Error)]
enum ListFault {
    #[error("lists no sample")]
    Empty,
    #[error("was written to while it was read")]
    Touched,
    #[error(
        "line {line}: {url} is in a bucket, and the files of a list must be on a file system. Give the prefix as SOURCE, or \
         copy the files"
    )]
    Address { line: u64, url: String },
    #[error("line 1: the column '{0}' comes twice")]
    ColumnTwice(String),
    #[error(
        "line 1: the columns 'path' and 'label', separated by commas, are needed; found {0}. Without labels: --labels \
         none"
    )]
    Columns(String),
    #[error(
        "line {line}: '{path}' has a part '..': use absolute paths, or put the file into a folder above all \
         samples"
    )]
    ParentPath { line: u64, path: String },
    #[error("line {line}: it has no path")]
    NoPath { line: u64 },
    #[error("line {line}: its path has a NUL in it")]
    Nul { line: u64 },
    #[error("line {line}: not UTF-8")]
    NotUtf8 { line: u64 },
    #[error("line {line}: {cells} cells, but there are {columns} columns")]
    Cells { line: u64, cells: u64, columns: u64 },
    #[error("line {line}: '{path}' is on line {first} already")]
    PathTwice { line: u64, path: String, first: u64 },
    #[error("line {line}: {fault}")]
    Label { line: u64, fault: LabelFault },
}

/// Lists the samples that the CSV file `file` names, with any extension.
///
/// `.` and empty parts of a path do not count. A sample's path in the dataset has no leading `/`.
/// [`Catalogue::bad`] says what is wrong with single lines.
///
/// # Errors
/// `file` or `labels` cannot be read or has another form; a path has a part `..`; there is no line;
/// labels cannot be classes; or [`Error::Interrupted`].
pub(crate) fn scan(
    file: &Path,
    labels: &Labels,
    selection: &Selection,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Catalogue, Error> {
    let given = Classes::given(labels)?;
    let mut listed = Lines::read(file, *labels != Labels::None, selection, stop)?;
    if listed.lines.is_empty() && listed.bad.is_empty() {
        return Err(Error::source(file, ListFault::Empty));
    }
    let looked = listed.look(progress, stop)?;
    let texts = std::mem::take(&mut listed.texts).into_distinct();
    let classes = match given {
        Some(classes) => classes,
        None => Classes::of_texts(texts.iter().map(String::as_str)).map_err(|f| Error::source(file, f))?,
    };
    let numbers: Vec<Result<u32, LabelFault>> = texts.iter().map(|text| classes.label(text)).collect();
    let mut catalogue = Catalogue::default();
    catalogue.stores.extend([SampleStore::Folder(listed.folder.clone()), SampleStore::Folder("/".into())]);
    catalogue.reserve(listed.lines.len(), listed.paths.iter().map(str::len).sum());
    let mut again = listed.again().into_iter().peekable();
    let mut bad = std::mem::take(&mut listed.bad);
    for ((number, row), found) in listed.lines.iter().enumerate().zip(looked) {
        let path = listed.paths.get(number).unwrap_or_default();
        let line = row.line;
        if let Some((_, first)) = again.next_if(|&(later, _)| later == number) {
            let first = listed.lines.get(first).map_or(0, |row| row.line);
            bad.push(Bad::new(file, ListFault::PathTwice { line, path: path.to_owned(), first }));
            continue;
        }
        let FileFacts { bytes, changed_ns } = match found {
            Ok(found) => found,
            Err(Bad { path, fault }) => {
                bad.push(Bad { path, fault: format!("{fault} (line {line} of {})", file.display()) });
                continue;
            }
        };
        let label = match numbers.get(row.label as usize) {
            Some(Ok(label)) => *label,
            Some(Err(fault)) => {
                bad.push(Bad::new(file, ListFault::Label { line, fault: fault.clone() }));
                continue;
            }
            None => continue,
        };
        let store = u32::from(row.is_absolute);
        let pushed = catalogue.push(NewSample { path, label, bytes, changed_ns, store, offset: 0 });
        let pushed = pushed.and_then(|_| match listed.more.get(number) {
            None | Some("") => Ok(()),
            Some(more) => catalogue.push_field(FIELD, FieldContent::Inline(more.as_bytes())),
        });
        pushed.map_err(|fault| Error::source(file, fault))?;
    }
    if *labels == Labels::Own {
        catalogue.doubt = classes.captions(listed.lines.len());
    }
    catalogue.has_numbers = classes.are_numbers();
    (catalogue.classes, catalogue.bad) = (classes.names, bad);
    catalogue.note_lost(numbers.into_iter().flatten());
    Ok(catalogue)
}

/// What the file's lines say.
struct Lines {
    /// The file's folder, to which paths are relative.
    folder: PathBuf,
    paths: Paths,
    lines: Vec<Line>,
    texts: Texts,
    /// The field of each line; empty for none.
    more: Paths,
    bad: Vec<Bad>,
}

struct Line {
    line: u64,
    /// The label's number among the texts.
    label: u32,
    is_absolute: bool,
}

struct Columns {
    path: usize,
    /// None without labels.
    label: Option<usize>,
    /// All other columns: position, and name as JSON.
    more: Vec<(usize, String)>,
}

impl Lines {
    fn read(file: &Path, has_labels: bool, selection: &Selection, stop: &Stop) -> Result<Self, Error> {
        let opened = regular::open_to_read_once(file).map_err(Error::io("read", file))?;
        let before = opened.metadata().map_err(Error::io("look at", file))?;
        let mut reader = csv::Reader::from_reader(opened);
        let columns = match reader.headers() {
            Ok(header) => Columns::of(header, has_labels).map_err(|fault| Error::source(file, fault))?,
            Err(fault) => return Err(refused(file, fault)),
        };
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut listed = Self {
            folder: folder.unwrap_or(Path::new(".")).to_owned(),
            paths: Paths::default(),
            lines: Vec::new(),
            texts: Texts::default(),
            more: Paths::default(),
            bad: Vec::new(),
        };
        let mut record = StringRecord::new();
        loop {
            stop.check()?;
            match reader.read_record(&mut record) {
                Ok(true) => {}
                Ok(false) => {
                    let now = reader.get_ref().metadata().map_err(Error::io("look at", file))?;
                    let is_same = (before.mtime(), before.mtime_nsec(), before.len())
                        == (now.mtime(), now.mtime_nsec(), now.len());
                    return if is_same || !before.is_file() {
                        Ok(listed)
                    } else {
                        Err(Error::source(file, ListFault::Touched))
                    };
                }
                Err(fault) => {
                    listed.bad.push(Bad::new(file, bad_line(file, fault)?));
                    continue;
                }
            }
            let line = record.position().map_or(0, csv::Position::line);
            let given = record.get(columns.path).unwrap_or_default();
            if let Ok(Address::Url(url)) = Address::parse(given) {
                return Err(Error::source(file, ListFault::Address { line, url: url.to_string() }));
            }
            let Some(path) = plain(given) else {
                return Err(Error::source(file, ListFault::ParentPath { line, path: given.to_owned() }));
            };
            if !path.is_empty() && selection.excludes_below(&path) {
                continue;
            }
            let label = columns.label.map_or(UNLABELLED, |label| record.get(label).unwrap_or_default());
            let fault = match checked(label) {
                Err(fault) => ListFault::Label { line, fault },
                Ok(_) if path.is_empty() => ListFault::NoPath { line },
                Ok(_) if path.contains('\0') => ListFault::Nul { line },
                Ok(label) => {
                    let label = listed.texts.number(label);
                    listed.lines.push(Line { line, label, is_absolute: given.starts_with('/') });
                    listed.paths.push(&path);
                    listed.more.push(&columns.object(&record));
                    continue;
                }
            };
            listed.bad.push(Bad::new(file, fault));
        }
    }

    fn look(&self, progress: &CommandProgress, stop: &Stop) -> Result<Vec<Result<FileFacts, Bad>>, Error> {
        let folder = open_folder(&self.folder).map_err(Error::io("open", &self.folder))?;
        let root = open_folder(Path::new("/")).map_err(Error::io("open", Path::new("/")))?;
        let look_at = |(number, line): (usize, &Line)| {
            stop.check()?;
            progress.add(1, 0);
            let path = self.paths.get(number).unwrap_or_default();
            Ok(if line.is_absolute {
                look(root.as_fd(), Path::new("/"), path)
            } else {
                look(folder.as_fd(), &self.folder, path)
            })
        };
        self.lines.par_iter().enumerate().with_min_len(FILES_PER_TASK).map(look_at).collect()
    }

    /// Lines whose path an earlier line has, in order, each with the first of these.
    fn again(&self) -> Vec<(usize, usize)> {
        let mut order: Vec<usize> = (0..self.paths.len()).collect();
        order.sort_unstable_by_key(|&number| (self.paths.get(number), number));
        let mut again = Vec::new();
        for group in order.chunk_by(|a, b| self.paths.get(*a) == self.paths.get(*b)) {
            let Some((first, later)) = group.split_first() else { continue };
            again.extend(later.iter().map(|later| (*later, *first)));
        }
        again.sort_unstable();
        again
    }
}

impl Columns {
    fn of(header: &StringRecord, has_labels: bool) -> Result<Self, ListFault> {
        let (mut path, mut label, mut more) = (None, None, Vec::new());
        for (position, name) in header.iter().enumerate() {
            if header.iter().take(position).any(|before| before == name) {
                return Err(ListFault::ColumnTwice(name.to_owned()));
            }
            match name {
                "path" => path = Some(position),
                "label" if has_labels => label = Some(position),
                _ => more.push((position, quoted(name))),
            }
        }
        let Some(path) = path.filter(|_| label.is_some() || !has_labels) else {
            let names: Vec<String> = header.iter().map(|name| format!("'{name}'")).collect();
            return Err(ListFault::Columns(names.join(", ")));
        };
        Ok(Self { path, label, more })
    }

    /// The other columns of a line as a JSON object; empty when all are.
    fn object(&self, record: &StringRecord) -> String {
        let mut object = String::new();
        for (position, name) in &self.more {
            let cell = record.get(*position).unwrap_or_default();
            if cell.is_empty() {
                continue;
            }
            let before = if object.is_empty() { '{' } else { ',' };
            // Writing to a String cannot fail.
            let _ = write!(object, "{before}{name}:{}", quoted(cell));
        }
        if !object.is_empty() {
            object.push('}');
        }
        object
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A path without its `.` and empty parts; `None` if it has a part `..`.
fn plain(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    (!parts.contains(&"..")).then(|| parts.join("/"))
}

/// What is wrong with one line, when the lines behind it can be read.
fn bad_line(file: &Path, fault: csv::Error) -> Result<ListFault, Error> {
    let line = fault.position().map_or(0, csv::Position::line);
    match *fault.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Ok(ListFault::Cells { line, cells: len, columns: expected_len })
        }
        ErrorKind::Utf8 { .. } => Ok(ListFault::NotUtf8 { line }),
        _ => Err(refused(file, fault)),
    }
}

fn refused(file: &Path, fault: csv::Error) -> Error {
    let text = fault.to_string();
    match fault.into_kind() {
        ErrorKind::Io(source) => Error::Io { action: "read", path: file.to_owned(), source },
        ErrorKind::Utf8 { .. } => Error::source(file, ListFault::NotUtf8 { line: 1 }),
        _ => Error::source(file, text),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shade_formats::SampleId;

    use super::*;
    use crate::progress::Shown;

    fn quiet() -> CommandProgress {
        CommandProgress::start(Shown::Quiet, "listing", 0, 0)
    }

    fn folder(csv: impl AsRef<[u8]>) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("img")).unwrap();
        for name in ["img/a.jpg", "img/b", "c d.png"] {
            fs::write(folder.path().join(name), name).unwrap();
        }
        fs::write(folder.path().join("empty.jpg"), "").unwrap();
        fs::write(folder.path().join("list.csv"), csv).unwrap();
        folder
    }

    fn scan_in(folder: &Path) -> Result<Catalogue, Error> {
        scan(&folder.join("list.csv"), &Labels::Own, &Selection::default(), &quiet(), &Stop::default())
    }

    fn scanned(csv: impl AsRef<[u8]>) -> Result<Catalogue, Error> {
        scan_in(folder(csv).path())
    }

    fn paths(catalogue: &Catalogue) -> Vec<(&str, u32)> {
        catalogue.samples().map(|sample| (sample.path, sample.label)).collect()
    }

    fn json(catalogue: &Catalogue, id: u32) -> Option<String> {
        let field = catalogue.fields(SampleId(id)).next()?;
        assert_eq!(field.name, "json");
        let FieldContent::Inline(content) = field.content else { panic!("stored") };
        Some(String::from_utf8(content.to_vec()).unwrap())
    }

    #[test]
    fn lines_become_samples_in_their_order() {
        let catalogue = scanned("label,path\n3,img/b\n0,./img//a.jpg\n1,c d.png\n").unwrap();
        assert_eq!(paths(&catalogue), [("img/b", 3), ("img/a.jpg", 0), ("c d.png", 1)]);
        assert_eq!(catalogue.classes, ["0", "1", "2", "3"]);
        assert!(catalogue.bad.is_empty());
        let sample = catalogue.sample(SampleId(0)).unwrap();
        assert_eq!(sample.bytes, 5);
        assert!(sample.changed_ns > 0);
        assert_eq!(catalogue.fields(SampleId(0)).count(), 0);
    }

    #[test]
    fn absolute_paths_lose_their_slash() {
        let folder = folder("");
        let image = folder.path().join("img/a.jpg");
        let csv = format!("path,label\n{},dog\nimg/b, cat \n", image.display());
        fs::write(folder.path().join("list.csv"), csv).unwrap();
        let catalogue = scan_in(folder.path()).unwrap();
        assert_eq!(catalogue.classes, ["cat", "dog"]);
        let sample = catalogue.sample(SampleId(0)).unwrap();
        assert_eq!((format!("/{}", sample.path), sample.file()), (image.display().to_string(), image));
        assert_eq!(catalogue.sample(SampleId(1)).unwrap().file(), folder.path().join("img/b"));
    }

    #[test]
    fn other_columns_become_one_field_of_strings() {
        let csv = "\u{feff}split,path,\"we\"\"ight\",label,note\r\n\
                   train,img/b,007,x,\"two\r\nlines, \"\"so\"\"\"\r\n\
                   ,img/a.jpg,,x,\r\n\
                   true,c d.png,,x,null\r\n";
        let catalogue = scanned(csv).unwrap();
        assert_eq!(
            json(&catalogue, 0).unwrap(),
            r#"{"split":"train","we\"ight":"007","note":"two\r\nlines, \"so\""}"#
        );
        assert_eq!(json(&catalogue, 1), None);
        assert_eq!(json(&catalogue, 2).unwrap(), r#"{"split":"true","note":"null"}"#);
    }

    #[test]
    fn what_is_wrong_with_a_line_is_told_with_its_number() {
        let csv = b"path,label,n\nimg/a.jpg,0,\"a\nb\"\nimg/b,,\nimg/b,0\n,0,\n\xff,0,\nempty.jpg,0,\n\
                    img,0,\nnone.jpg,0,\n./img/a.jpg,1,\n\nc d.png,2,\n";
        let catalogue = scanned(csv).unwrap();
        assert_eq!(paths(&catalogue), [("img/a.jpg", 0), ("c d.png", 2)]);
        let bad: Vec<String> = catalogue.bad.iter().map(Bad::to_string).collect();
        let expected = [
            "list.csv: line 4: its label is empty",
            "list.csv: line 5: 2 cells, but there are 3 columns",
            "list.csv: line 6: it has no path",
            "list.csv: line 7: not UTF-8",
            "empty.jpg: an empty file (line 8 of",
            "img: is not a regular file (line 9 of",
            "none.jpg: cannot be looked at",
            "list.csv: line 11: 'img/a.jpg' is on line 2 already",
        ];
        assert_eq!(bad.len(), expected.len(), "{bad:#?}");
        for (bad, expected) in bad.iter().zip(expected) {
            assert!(bad.contains(expected), "{expected} in {bad}");
        }
    }

    #[test]
    fn a_file_of_another_form_is_refused() {
        for (csv, parts) in [
            ("", &["'path' and 'label'"][..]),
            ("path,label\n", &["lists no sample"]),
            ("file,class\na,b\n", &["'path' and 'label'", "found 'file', 'class'"]),
            ("path;label\na;b\n", &["commas", "'path;label'"]),
            ("path,label,path\n", &["'path' comes twice"]),
            ("path,label\nimg/b,0\nimg/../c,0\n", &["line 3", "'img/../c'", "'..'"]),
            ("path,label\nimg/b,0\nimg/a.jpg,-1\n", &["-1", "--labels"]),
        ] {
            let fault = scanned(csv).unwrap_err().to_string();
            for part in parts.iter().chain(&["list.csv"]) {
                assert!(fault.contains(part), "{csv}: {part} in {fault}");
            }
        }
        let fault = scan_in(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(fault.contains("cannot read /nowhere/list.csv"), "{fault}");
    }

    #[test]
    fn a_labels_file_and_a_selection_are_obeyed() {
        let folder = folder("path,label\nimg/b,x\nimg/a.jpg,x\nc d.png,y\nempty.jpg,z\n");
        let labels = folder.path().join("labels.json");
        fs::write(&labels, r#"["a"]"#).unwrap();
        let selection = Selection::excluding(&["*.jpg".to_owned(), "empty*".to_owned()]).unwrap();
        let file = folder.path().join("list.csv");
        let catalogue =
            scan(&file, &Labels::File(labels.clone()), &selection, &quiet(), &Stop::default()).unwrap();
        assert_eq!((catalogue.len(), catalogue.bad.len()), (0, 2));
        assert!(catalogue.bad[0].fault.contains("line 2: its label 'x' is not in"), "{:?}", catalogue.bad);
        fs::write(&labels, r#"{"y": 0, "x": 1}"#).unwrap();
        let catalogue =
            scan(&file, &Labels::File(labels.clone()), &selection, &quiet(), &Stop::default()).unwrap();
        assert_eq!(paths(&catalogue), [("img/b", 1), ("c d.png", 0)]);
        assert_eq!(catalogue.classes, ["y", "x"]);
    }

    #[test]
    fn a_request_to_stop_is_heard() {
        let folder = folder("path,label\nimg/b,0\n");
        let stop = Stop::default();
        stop.request();
        let fault =
            scan(&folder.path().join("list.csv"), &Labels::Own, &Selection::default(), &quiet(), &stop)
                .unwrap_err();
        assert!(matches!(fault, Error::Interrupted));
    }
}
