//! Finds the tars of a folder, reads several at a time and puts together what they hold, in the
//! order of their names.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::groups::{KeyPlaces, TarFile, TarPlace, each_group};
use super::label::{LabelSource, TarLabelFault};
use super::sample::{NoSample, label, label_source, make};
use crate::catalogue::{Bad, Catalogue, LimitFault, ListedFolder, NewSample, SampleStore};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::progress::CommandProgress;
use crate::source::Selection;
use crate::source::image_folder::{changed_ns, listed_folder};
use crate::source::labels::{Classes, LabelFault, Labels, Texts};
use crate::source_bucket::{BucketTar, Identity, ListedObject, SourceBucket};

/// What people should know of tars with captions.
pub(super) const CAPTIONS: &str = "no sample has a label: .txt members are captions, which are kept as fields. If they are \
                        classes: --labels txt";

/// Ends of names of compressed tars.
const COMPRESSED: [&str; 9] =
    [".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4", ".tgz", ".tbz2", ".txz", ".tzst"];

/// Whether a file's name is that of a tar. Compressed tars do not count: samples are read in place.
pub(crate) fn is_tar(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("tar"))
}

/// Whether a file's name is that of a compressed tar.
pub(crate) fn is_compressed_tar(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    COMPRESSED.iter().any(|ending| name.ends_with(ending))
}

/// The tars of a bucket, and what lies there.
#[derive(Clone, Copy)]
pub(crate) struct TarObjects<'a> {
    pub(crate) bucket: &'a SourceBucket,
    pub(crate) listed: &'a [ListedObject],
}

/// Lists the tars right in `folder`, or among `objects` if that is an address, by name, and their
/// samples in the order of their members.
///
/// A sample's members follow one another and share a key, their name up to the first dot of its
/// last part. One of them is the image. The label is in `.cls` or in `.json` (`label`, `cls` or
/// `class`), for all samples in the first of these that the first sample has. `--labels` may say
/// that it is in `.txt`. Otherwise, if the first sample has nothing but a `.txt`, that is a
/// caption, and the dataset has no labels. Other members become fields, and `.txt` in any case;
/// `.cls` does not. A sample's path is the tar's name without `.tar`, the key and the image's
/// extension. A pattern of `selection` that matches the path a member would have leaves out that
/// member, and the sample if it is its image.
///
/// # Errors
/// No tar, or none with a sample in it; labels that cannot be classes; the folder or `labels`
/// cannot be read; or [`Error::Interrupted`]. What is wrong with single samples and tars is in
/// [`Catalogue::bad`].
pub(crate) fn scan(
    folder: &Path,
    objects: Option<TarObjects<'_>>,
    labels: &Labels,
    selection: &Selection,
    progress: &CommandProgress,
    stop: &Stop,
) -> Result<Catalogue, Error> {
    let mut catalogue = Catalogue::default();
    let tars = tars_of(folder, objects, selection, &mut catalogue)?;
    let source = match labels {
        Labels::None => None,
        Labels::Txt => Some(LabelSource::Txt),
        // Without it, all samples lack a label.
        Labels::Own | Labels::Folders | Labels::File(_) => {
            Some(find_labels(&tars, *labels == Labels::Own, selection, stop)?.unwrap_or(LabelSource::Cls))
        }
    };
    let has_captions = *labels == Labels::Own && source == Some(LabelSource::Txt);
    let source = source.filter(|_| !has_captions);
    let given = Classes::given(if has_captions { &Labels::None } else { labels })?;
    let list = |tar: &Tar| {
        let rule = LabelRule { source, has_captions };
        let listed = tar.samples(rule, &mut KeyPlaces::new(), selection, stop)?;
        progress.add(listed.len().into(), 0);
        Ok(listed)
    };
    let listed: Vec<Catalogue> = tars.par_iter().map(list).collect::<Result<_, Error>>()?;
    let samples = listed.iter().map(|tar| tar.len() as usize).sum();
    if samples == 0 && catalogue.bad.is_empty() && listed.iter().all(|tar| tar.bad.is_empty()) {
        return Err(Error::source(folder, format_args!("no sample in its {} tars", tars.len())));
    }
    let classes = match given {
        Some(classes) => classes,
        None => {
            let texts = listed.iter().flat_map(|tar| &tar.classes).map(String::as_str);
            Classes::of_texts(texts).map_err(|fault| Error::source(folder, fault))?
        }
    };
    if *labels == Labels::Own {
        catalogue.doubt = classes.captions(samples);
    }
    if has_captions {
        catalogue.is_unlabelled_by_default = true;
        catalogue.notes.push(CAPTIONS.to_owned());
    }
    let known: HashSet<u32> =
        listed.iter().flat_map(|tar| &tar.classes).filter_map(|text| classes.label(text).ok()).collect();
    let path_bytes = listed.iter().flat_map(Catalogue::samples).map(|sample| sample.path.len()).sum();
    catalogue.reserve(samples, path_bytes);
    for (tar, number) in listed.into_iter().zip(0u32..) {
        add(&mut catalogue, tar, number, &classes).map_err(|fault| Error::source(folder, fault))?;
    }
    catalogue.has_numbers = classes.are_numbers();
    catalogue.classes = classes.names;
    catalogue.note_lost(known.into_iter());
    Ok(catalogue)
}

/// A tar whose samples are listed.
pub(super) struct Tar {
    pub(super) file: TarFile,
    /// Its name without `.tar`: the folder of its samples; empty for none.
    pub(super) stem: String,
    pub(super) store: SampleStore,
    pub(super) changed_ns: i64,
}

/// Which members are labels.
#[derive(Clone, Copy, Debug)]
pub(super) struct LabelRule {
    /// `None` if samples have none.
    pub(super) source: Option<LabelSource>,
    /// Whether texts are captions, which nobody said.
    pub(super) has_captions: bool,
}

/// The tars in a folder or among objects, by name. What identifies the folder's state is noted, and
/// tars that cannot be read are bad.
fn tars_of(
    folder: &Path,
    objects: Option<TarObjects<'_>>,
    selection: &Selection,
    catalogue: &mut Catalogue,
) -> Result<Vec<Tar>, Error> {
    let names = match objects {
        None => {
            catalogue.folders.push(listed_folder(folder, ""));
            names_in(folder)?
        }
        Some(TarObjects { listed, .. }) => {
            let changed_ns = SourceBucket::state_of(listed);
            catalogue.folders.push(ListedFolder { path: String::new(), changed_ns });
            listed
                .iter()
                .filter(|object| !object.name.contains('/'))
                .map(|object| object.name.as_str().into())
                .collect()
        }
    };
    let (names, compressed) = chosen(folder, names, selection)?;
    let mut tars = Vec::new();
    for (path, stem) in stems(folder, names, &compressed, &mut catalogue.bad) {
        match objects {
            None => tars.push(Tar::at(path, stem)),
            Some(objects) => match objects.tar(&path, stem) {
                Ok(tar) => tars.push(tar),
                Err(fault) => catalogue.bad.push(fault),
            },
        }
    }
    Ok(tars)
}

/// Names of what is right in a folder.
fn names_in(folder: &Path) -> Result<Vec<OsString>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::io("list", folder))?;
    entries.map(|entry| Ok(entry.map_err(Error::io("list", folder))?.file_name())).collect()
}

/// The names of tars among `names`, and those of compressed ones, both in order.
///
/// # Errors
/// There is no tar.
fn chosen(
    folder: &Path,
    names: Vec<OsString>,
    selection: &Selection,
) -> Result<(Vec<OsString>, Vec<String>), Error> {
    let (mut tars, mut compressed) = (Vec::new(), Vec::new());
    for name in names {
        let text = name.to_string_lossy().into_owned();
        if selection.excludes(&text) {
            continue;
        }
        if is_compressed_tar(Path::new(&name)) {
            compressed.push(text);
        } else if is_tar(Path::new(&name)) {
            tars.push((text, name));
        }
    }
    tars.sort_unstable();
    compressed.sort_unstable();
    if tars.is_empty() {
        let fault = match compressed.first() {
            Some(name) => format!(
                "only compressed tars in it, such as {name}: decompress them, samples are read in place"
            ),
            None => "no file with the extension .tar in it".to_owned(),
        };
        return Err(Error::source(folder, fault));
    }
    Ok((tars.into_iter().map(|(_, name)| name).collect(), compressed))
}

/// The path of each tar, and its name without extension. Others are `bad`.
fn stems(
    folder: &Path,
    names: Vec<OsString>,
    compressed: &[String],
    bad: &mut Vec<Bad>,
) -> Vec<(PathBuf, String)> {
    for name in compressed {
        bad.push(Bad::new(&folder.join(name), "a compressed tar: decompress it, samples are read in place"));
    }
    let mut known = HashSet::new();
    let mut tars = Vec::new();
    for name in names {
        let path = folder.join(name);
        let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned) else {
            bad.push(Bad::new(&path, "its name is not UTF-8: rename it"));
            continue;
        };
        if known.insert(stem.clone()) {
            tars.push((path, stem));
        } else {
            bad.push(Bad::new(&path, format!("another tar is called '{stem}', too: rename one of them")));
        }
    }
    tars
}

impl TarObjects<'_> {
    /// The tar at the address `path`, in the state in which it was listed.
    fn tar(&self, path: &Path, stem: String) -> Result<Tar, Bad> {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let place = self.listed.binary_search_by(|object| object.name.as_str().cmp(name)).ok();
        let identity = place.and_then(|place| self.listed.get(place)).and_then(ListedObject::identity);
        let fault = "the store tells no version of it (ETag): copy it to a file system";
        let Identity { bytes, version } = identity.ok_or_else(|| Bad::new(path, fault))?;
        let tar = BucketTar { bucket: self.bucket.clone(), name: name.to_owned(), bytes, version };
        let store = SampleStore::BucketTar(tar.clone());
        let file = TarFile { place: TarPlace::Object(tar), name: path.to_owned(), base: 0 };
        Ok(Tar { file, stem, store, changed_ns: version })
    }
}

/// Where the labels are: in the first of the label members that the first sample has. With
/// `may_be_captions`, `.txt` may be of any form.
pub(super) fn find_labels(
    tars: &[Tar],
    may_be_captions: bool,
    selection: &Selection,
    stop: &Stop,
) -> Result<Option<LabelSource>, Error> {
    let mut found = None;
    for tar in tars {
        // Faults will be found again.
        each_group(&tar.file, &LabelSource::ALL, &mut KeyPlaces::new(), stop, &mut |group| {
            found = label_source(&group, &tar.stem, may_be_captions, selection);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        if found.is_some() {
            break;
        }
    }
    Ok(found)
}

impl Tar {
    /// The tar at `path`, in the state in which it is now.
    fn at(path: PathBuf, stem: String) -> Self {
        let changed_ns = rustix::fs::stat(&path).map_or(0, |found| changed_ns(&found));
        let store = SampleStore::Container(path.clone());
        let file = TarFile { name: path.clone(), place: TarPlace::File(path), base: 0 };
        Self { file, stem, store, changed_ns }
    }

    /// Lists the samples. Their classes are the tar's own: its labels as texts, numbered as they
    /// appear. Keys in `seen` have come before.
    pub(super) fn samples(
        &self,
        rule: LabelRule,
        seen: &mut KeyPlaces,
        selection: &Selection,
        stop: &Stop,
    ) -> Result<Catalogue, Error> {
        let LabelRule { source, has_captions } = rule;
        let mut catalogue = Catalogue::default();
        catalogue.stores.push(self.store.clone());
        let changed_ns = self.changed_ns;
        let mut texts = Texts::default();
        let faults = each_group(&self.file, source.as_slice(), seen, stop, &mut |group| {
            let added = make(&group, &self.stem, source, selection).and_then(|made| {
                let Some(made) = made else { return Ok(()) };
                if has_captions && group.has(LabelSource::Cls) {
                    return Err(NoSample::Label(TarLabelFault::AmongCaptions));
                }
                let label = texts.number(made.label);
                let (path, bytes, offset) = (made.path.as_str(), made.bytes, made.offset);
                catalogue.push(NewSample { path, label, bytes, changed_ns, store: 0, offset })?;
                for (name, content) in &made.fields {
                    catalogue.push_field(name, *content)?;
                }
                Ok(())
            });
            if let Err(fault) = added {
                // A class stays one, and the labels of others stay what they are, if all of its
                // samples are bad.
                if let Some(Ok(text)) = source.map(|source| label(&group, source)) {
                    texts.number(text);
                }
                let fault = format!("sample '{}' at byte {}: {fault}", group.key, group.at);
                catalogue.bad.push(Bad::new(&self.file.name, fault));
            }
            ControlFlow::Continue(())
        })?;
        catalogue.bad.extend(faults);
        catalogue.classes = texts.into_distinct();
        Ok(catalogue)
    }
}

/// Adds one tar's samples, labelled by the dataset's classes.
pub(super) fn add(
    catalogue: &mut Catalogue,
    tar: Catalogue,
    store: u32,
    classes: &Classes,
) -> Result<(), LimitFault> {
    let labels: Vec<Result<u32, LabelFault>> = tar.classes.iter().map(|text| classes.label(text)).collect();
    catalogue.bad.extend(tar.bad.iter().cloned());
    for (id, sample) in (0u32..).zip(tar.samples()) {
        let label = match labels.get(sample.label as usize) {
            Some(Ok(label)) => *label,
            Some(Err(fault)) => {
                let fault = format!("sample '{}' at byte {}: {fault}", sample.path, sample.shown_offset());
                catalogue.bad.push(Bad::new(&sample.shown_file(), fault));
                continue;
            }
            None => continue,
        };
        let (path, bytes, changed_ns, offset) = (sample.path, sample.bytes, sample.changed_ns, sample.offset);
        catalogue.push(NewSample { path, label, bytes, changed_ns, store, offset })?;
        for field in tar.fields(shade_formats::SampleId(id)) {
            catalogue.push_field(field.name, field.content)?;
        }
    }
    catalogue.stores.extend(tar.stores);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;
    use shade_formats::SampleId;
    use tar::{Builder, EntryType, Header};

    use super::*;
    use crate::progress::Shown;

    fn quiet() -> CommandProgress {
        CommandProgress::start(Shown::Quiet, "listing", 0, 0)
    }

    use crate::catalogue::FieldContent;

    type Tarball = Builder<Vec<u8>>;

    fn header(bytes: usize, kind: EntryType) -> Header {
        let mut header = Header::new_gnu();
        header.set_size(bytes as u64);
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header
    }

    /// Adds members; names as long as one likes, as GNU tar writes them.
    fn with<'a>(mut tar: Tarball, members: impl IntoIterator<Item = (&'a str, &'a str)>) -> Tarball {
        for (name, content) in members {
            let mut header = header(content.len(), EntryType::Regular);
            tar.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        tar
    }

    fn tar<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
        with(Builder::new(Vec::new()), members).into_inner().unwrap()
    }

    /// A member whose name the tar crate would refuse or change.
    fn raw(tar: &mut Tarball, name: &[u8], kind: EntryType, content: &[u8]) {
        let mut header = header(content.len(), kind);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.set_cksum();
        tar.append(&header, content).unwrap();
    }

    fn folder(tars: &[(&str, Vec<u8>)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in tars {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn scanned(tars: &[(&str, Vec<u8>)]) -> Result<Catalogue, Error> {
        scan(folder(tars).path(), None, &Labels::Own, &Selection::default(), &quiet(), &Stop::default())
    }

    fn one(bytes: Vec<u8>) -> Catalogue {
        scanned(&[("a.tar", bytes)]).unwrap()
    }

    fn paths(catalogue: &Catalogue) -> Vec<(&str, u32)> {
        catalogue.samples().map(|sample| (sample.path, sample.label)).collect()
    }

    fn faults(catalogue: &Catalogue) -> Vec<&str> {
        catalogue.bad.iter().map(|bad| bad.fault.as_str()).collect()
    }

    /// The one fault there is, and what it must say.
    #[track_caller]
    fn only_fault(catalogue: &Catalogue, parts: &[&str]) {
        let faults = faults(catalogue);
        assert_eq!(faults.len(), 1, "{faults:?}");
        for part in parts {
            assert!(faults[0].contains(part), "{part} in: {}", faults[0]);
        }
        assert!(catalogue.bad[0].path.ends_with("a.tar"), "{}", catalogue.bad[0].path);
    }

    #[test]
    fn samples_come_in_the_order_of_tars_and_members() {
        let second = tar([("x.cls", "1"), ("x.JPG", "second"), ("__meta__/1.json", "{}"), ("README", "no")]);
        let first = tar([
            ("./b/1.jpg", "first"),
            ("./b/1.cls", "3\n"),
            ("./b/1.json", "{}"),
            ("a.cls", "0"),
            ("a.png", "other"),
            ("a.mask.png", "mask"),
            ("a.txt", "two\nlines"),
        ]);
        let tars = [("2.tar", second), ("1.TAR", first), ("notes.txt", b"no tar".to_vec())];
        let folder = folder(&tars);
        let catalogue =
            scan(folder.path(), None, &Labels::Own, &Selection::default(), &quiet(), &Stop::default())
                .unwrap();
        assert_eq!(faults(&catalogue), [""; 0]);
        assert_eq!(paths(&catalogue), [("1/b/1.jpg", 3), ("1/a.png", 0), ("2/x.jpg", 1)]);
        assert_eq!(catalogue.classes, ["0", "1", "2", "3"]);
        let mut content = Vec::new();
        for (id, sample) in (0..).zip(catalogue.samples()) {
            let file = fs::File::open(sample.file()).unwrap();
            assert_eq!(sample.changed_ns, changed_ns(&rustix::fs::fstat(&file).unwrap()));
            let mut read = |name: &str, offset, bytes: u32| {
                let mut found = vec![0; bytes as usize];
                file.read_exact_at(&mut found, offset).unwrap();
                content.push(format!("{name}={}", String::from_utf8(found).unwrap()));
            };
            read("image", sample.offset, sample.bytes);
            for field in catalogue.fields(SampleId(id)) {
                let FieldContent::Stored { offset, bytes } = field.content else { panic!("inline") };
                read(field.name, offset, bytes);
            }
        }
        let expected =
            ["image=first", "json={}", "image=other", "mask.png=mask", "txt=two\nlines", "image=second"];
        assert_eq!(content, expected);
    }

    #[test]
    fn long_names_of_gnu_and_pax_are_read() {
        let long = "d".repeat(150) + "/1.jpg";
        let mut tar = with(Builder::new(Vec::new()), [(long.as_str(), "x")]);
        tar = with(tar, [(long.replace("jpg", "cls").as_str(), "0")]);
        for (name, content) in [("\u{fc}/2.jpg", "y"), ("\u{fc}/2.cls", "1")] {
            tar.append_pax_extensions([("path", name.as_bytes()), ("mtime", b"1.5".as_slice())]).unwrap();
            raw(&mut tar, b"short", EntryType::Regular, content.as_bytes());
        }
        let catalogue = one(tar.into_inner().unwrap());
        assert_eq!(faults(&catalogue), [""; 0]);
        assert_eq!(paths(&catalogue), [(format!("a/{long}").as_str(), 0), ("a/\u{fc}/2.jpg", 1)]);
    }

    #[test]
    fn labels_come_from_where_the_first_sample_has_them() {
        let json = r#"{"label": "cat"}"#;
        let catalogue = one(tar([
            ("0.txt", "no image, so no sample"),
            ("1.jpg", "x"),
            ("1.json", json),
            ("1.txt", "a"),
            ("2.cls", "9"),
            ("2.jpg", "x"),
            ("2.json", r#"{"class": "dog"}"#),
            ("3.jpg", "x"),
            ("3.cls", "1"),
        ]));
        assert_eq!(paths(&catalogue), [("a/1.jpg", 0), ("a/2.jpg", 1)]);
        assert_eq!(catalogue.classes, ["cat", "dog"]);
        let fields = |id| catalogue.fields(SampleId(id)).map(|field| field.name).collect::<Vec<_>>();
        assert_eq!((fields(0), fields(1)), (vec!["json", "txt"], vec!["json"]));
        assert!(faults(&catalogue)[0].contains("no image member; has: txt"), "{:?}", catalogue.bad);
        assert!(faults(&catalogue)[1].contains("sample '3' at byte"), "{:?}", catalogue.bad);
        assert!(faults(&catalogue)[1].contains("it has no json"), "{:?}", catalogue.bad);

        let texts = tar([("1.jpg", "x"), ("1.txt", "a cat\n"), ("2.jpg", "x"), ("2.txt", "a\nb")]);
        let folder = folder(&[("a.tar", texts)]);
        let labels = Labels::Txt;
        let asked =
            scan(folder.path(), None, &labels, &Selection::default(), &quiet(), &Stop::default()).unwrap();
        assert_eq!((paths(&asked), &asked.classes[..]), (vec![("a/1.jpg", 0)], &["a cat".to_owned()][..]));
        let fields: Vec<&str> = asked.fields(SampleId(0)).map(|field| field.name).collect();
        assert_eq!(fields, ["txt"], "a text stays a field, also if it is the label");
        only_fault(&asked, &["'2'", "not one line"]);

        let none = one(tar([("1.jpg", "x"), ("2.jpg", "x")]));
        assert_eq!((none.len(), none.bad.len()), (0, 2));
    }

    #[test]
    fn texts_are_captions_unless_they_are_asked_for() {
        // The first one is no text of one line: a caption all the same.
        let catalogue = one(tar([
            ("1.jpg", "x"),
            ("1.json", r#"{"url": "u"}"#),
            ("1.txt", "a\nb"),
            ("2.jpg", "x"),
            ("2.txt", ""),
            ("3.jpg", "x"),
        ]));
        assert_eq!(paths(&catalogue), [("a/1.jpg", 0), ("a/2.jpg", 0), ("a/3.jpg", 0)]);
        assert_eq!(catalogue.classes, ["none"]);
        assert!(catalogue.is_unlabelled_by_default && catalogue.doubt.is_none());
        assert!(catalogue.notes[0].contains("captions") && catalogue.notes[0].contains("--labels txt"));
        let fields = |id| catalogue.fields(SampleId(id)).map(|field| field.name).collect::<Vec<_>>();
        assert_eq!((fields(0), fields(1), fields(2)), (vec!["json", "txt"], vec!["txt"], vec![]));

        let labelled =
            one(tar([("1.jpg", "x"), ("1.txt", "a"), ("1.cls", "3"), ("2.jpg", "x"), ("2.cls", "0")]));
        assert_eq!(paths(&labelled), [("a/1.jpg", 3), ("a/2.jpg", 0)]);
        assert!(!labelled.is_unlabelled_by_default && labelled.notes.is_empty());

        let mixed =
            one(tar([("1.jpg", "x"), ("1.txt", "a"), ("2.jpg", "x"), ("2.txt", "b"), ("2.cls", "3")]));
        assert_eq!(paths(&mixed), [("a/1.jpg", 0)]);
        only_fault(&mixed, &["'2'", "it has a cls", "--labels none"]);
    }

    #[test]
    fn a_labels_file_names_the_classes() {
        let folder =
            folder(&[("a.tar", tar([("1.jpg", "x"), ("1.cls", "7"), ("2.jpg", "x"), ("2.cls", "8")]))]);
        let labels = folder.path().join("labels.json");
        fs::write(&labels, r#"{"7": "cat", "9": "ant"}"#).unwrap();
        let catalogue = scan(
            folder.path(),
            None,
            &Labels::File(labels),
            &Selection::default(),
            &quiet(),
            &Stop::default(),
        )
        .unwrap();
        assert_eq!(paths(&catalogue), [("a/1.jpg", 1)]);
        assert_eq!(catalogue.classes, ["ant", "cat"]);
        only_fault(&catalogue, &["a/2.jpg", "'8' is not in", "labels.json"]);
    }

    #[test]
    fn what_is_no_sample_is_named_with_its_reason() {
        let good = [("0.jpg", "x"), ("0.cls", "0")];
        for (members, parts) in [
            (&[("1.jpg", ""), ("1.cls", "0")][..], &["'1' at byte 2048", "an empty file"][..]),
            (&[("1.jpg", "x")], &["no label", "no cls"]),
            (&[("1.jpg", "x"), ("1.cls", "")], &["label is empty"]),
            (&[("1.txt", "x"), ("1.cls", "0")], &["no image member; has: txt, cls"]),
            (&[("1.jpg", "x"), ("1.cls", "0"), ("1.a b", "x")], &["\"a b\"", "name a field"]),
            // A reader of the shard would refuse it.
            (&[("1.jpg", "x"), ("1.cls", "0"), ("1.json.", "{}")], &["\"json.\"", "name a field"]),
            (&[("1.jpg", "x"), ("1.JPG", "x"), ("1.cls", "0")], &["two members '.jpg'", "at byte 3072"]),
            (&[("1.a.png", "x"), ("1.b.png", "x"), ("1.cls", "0")], &["a.png, b.png"]),
            (&[("0.json", "x")], &[]),
            (
                &[("1.jpg", "x"), ("1.cls", "0"), ("0.txt", "")],
                &["'0' at byte 4096", "comes again", "at byte 0"],
            ),
        ] {
            let catalogue = one(tar(good.iter().chain(members).copied()));
            assert_eq!(paths(&catalogue)[0], ("a/0.jpg", 0), "{members:?}");
            if !parts.is_empty() {
                only_fault(&catalogue, parts);
            }
        }
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for name in [&b"/x.jpg"[..], b"../x.jpg", b"a/../x.jpg", b"a//x.jpg", b"a/./x.jpg"] {
            let mut tar = with(Builder::new(Vec::new()), [("0.jpg", "x"), ("0.cls", "0")]);
            raw(&mut tar, name, EntryType::Regular, b"x");
            let catalogue = one(tar.into_inner().unwrap());
            assert_eq!(catalogue.len(), 1);
            only_fault(&catalogue, &["leads elsewhere"]);
        }
        let mut tar = with(Builder::new(Vec::new()), [("0.jpg", "x"), ("0.cls", "0")]);
        raw(&mut tar, b"\xff.jpg", EntryType::Regular, b"x");
        only_fault(&one(tar.into_inner().unwrap()), &["at byte 2048", "not UTF-8"]);
    }

    #[test]
    fn content_that_is_not_in_its_place_makes_a_sample_bad() {
        for (kind, part) in [
            (EntryType::Symlink, "a link"),
            (EntryType::Link, "a link"),
            (EntryType::Fifo, "a device or a pipe"),
            (EntryType::Char, "a device or a pipe"),
        ] {
            let mut tar = with(Builder::new(Vec::new()), [("0.jpg", "x"), ("0.cls", "0"), ("1.cls", "0")]);
            raw(&mut tar, b"1.jpg", kind, b"");
            only_fault(&one(tar.into_inner().unwrap()), &["'1'", "'1.jpg'", part]);
        }
        let mut tar = with(Builder::new(Vec::new()), [("0.jpg", "x"), ("0.cls", "0"), ("1.cls", "0")]);
        tar.append_pax_extensions([("GNU.sparse.major", b"1".as_slice()), ("GNU.sparse.name", b"1.jpg")])
            .unwrap();
        raw(&mut tar, b"GNUSparseFile.0/1.jpg", EntryType::Regular, b"1\n0\n1\nx");
        only_fault(&one(tar.into_inner().unwrap()), &["'1'", "'1.jpg'", "sparse"]);

        let mut tar = with(Builder::new(Vec::new()), [("0.jpg", "x"), ("0.cls", "0"), ("1.cls", "0")]);
        let mut sparse = header(1, EntryType::GNUSparse);
        sparse.set_path("1.jpg").unwrap();
        let gnu = sparse.as_gnu_mut().unwrap();
        gnu.set_real_size(1001);
        gnu.sparse[0].set_offset(1000);
        gnu.sparse[0].set_length(1);
        sparse.set_cksum();
        tar.append(&sparse, &b"x"[..]).unwrap();
        only_fault(&one(tar.into_inner().unwrap()), &["sparse"]);
    }

    #[test]
    fn folders_and_settings_between_members_do_not_count() {
        let mut tar = with(Builder::new(Vec::new()), [("d/0.jpg", "x")]);
        raw(&mut tar, b"d.e/", EntryType::Directory, b"");
        raw(&mut tar, b"pax_global_header", EntryType::XGlobalHeader, b"12 path=abc\n");
        tar = with(tar, [("d/0.cls", "0")]);
        let catalogue = one(tar.into_inner().unwrap());
        assert_eq!((paths(&catalogue), faults(&catalogue)), (vec![("a/d/0.jpg", 0)], vec![]));
    }

    #[test]
    fn the_selection_leaves_out_tars_samples_and_fields() {
        let content =
            tar([("1.jpg", "x"), ("1.cls", "0"), ("1.json", "{}"), ("b/2.jpg", "x"), ("b/2.cls", "5")]);
        let folder = folder(&[("a.tar", content.clone()), ("b.tar", content)]);
        let with = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
            let selection = Selection::excluding(&patterns).unwrap();
            scan(folder.path(), None, &Labels::Own, &selection, &quiet(), &Stop::default())
        };
        let catalogue = with(&["b.tar", "*.json", "a/b"]).unwrap();
        assert_eq!((paths(&catalogue), faults(&catalogue)), (vec![("a/1.jpg", 0)], vec![]));
        assert_eq!(catalogue.fields(SampleId(0)).count(), 0);
        assert_eq!(catalogue.classes, ["0"]);
        assert!(with(&["*.jpg"]).unwrap_err().to_string().contains("no sample in its 2 tars"));
    }

    #[test]
    fn a_folder_without_readable_tars_says_why() {
        let said = |tars: &[(&str, Vec<u8>)]| scanned(tars).unwrap_err().to_string();
        assert!(said(&[("a.txt", vec![])]).contains(".tar in it"));
        assert!(said(&[("a.tar.gz", vec![]), ("b.tgz", vec![])]).contains("only compressed tars"));
        let tars = [("a.tar", tar([("1.jpg", "x"), ("1.cls", "0")])), ("b.tar.zst", vec![])];
        let catalogue = scanned(&tars).unwrap();
        assert_eq!(faults(&catalogue), ["a compressed tar: decompress it, samples are read in place"]);
        let twice = scanned(&[tars[0].clone(), ("a.TAR", tars[0].1.clone())]).unwrap();
        assert_eq!(twice.len(), 1);
        assert!(faults(&twice)[0].contains("another tar is called 'a'"));
        assert!(
            scan(
                Path::new("/nowhere"),
                None,
                &Labels::Own,
                &Selection::default(),
                &quiet(),
                &Stop::default()
            )
            .is_err()
        );
        assert!(is_tar(Path::new("x/a.Tar")) && !is_tar(Path::new("a.tar.gz")) && !is_tar(Path::new(".tar")));
    }

    #[test]
    fn files_that_are_no_tars_are_bad() {
        only_fault(&one(vec![]), &["empty"]);
        only_fault(&one(vec![b'x'; 2000]), &["cannot be read on behind byte 0"]);
        only_fault(&one(b"\x1f\x8b\x08\0\0\0\0".to_vec()), &["gzip", "decompress"]);
        let good = tar([("1.jpg", "x"), ("1.cls", "0")]);
        let joined = one([good.clone(), good].concat());
        assert_eq!(joined.len(), 1);
        only_fault(&joined, &["goes on at byte 3072", "--concatenate"]);
    }

    #[test]
    fn a_tar_cut_anywhere_keeps_its_whole_samples() {
        let names: Vec<String> =
            (0..6).flat_map(|n| ["cls", "jpg", "json"].map(|e| format!("{n}.{e}"))).collect();
        let content = "7".repeat(700);
        let whole = tar(names
            .iter()
            .map(|name| (name.as_str(), if name.ends_with("cls") { "7" } else { &*content })));
        // A sample is a cls of two blocks, and a jpg and a json of three.
        let end = whole.len() - 1024;
        assert_eq!(end, 6 * 8 * 512);
        for cut in (0..whole.len()).step_by(256) {
            let catalogue = one(whole[..cut].to_vec());
            if cut >= end + 512 {
                // Half an end mark, or a whole one.
                assert_eq!((catalogue.len(), catalogue.bad.len()), (6, 0), "cut at {cut}");
                continue;
            }
            // The last one before the cut may lack members, so it is known to be whole when another
            // has begun.
            let begun = (cut.saturating_sub(512) / 4096).min(5);
            assert_eq!(catalogue.len() as usize, begun, "cut at {cut}");
            assert_eq!(catalogue.bad.len(), 1, "cut at {cut}");
        }
    }

    #[test]
    fn a_request_to_stop_is_heard() {
        let folder = folder(&[("a.tar", tar([("1.jpg", "x"), ("1.cls", "0")]))]);
        let stop = Stop::default();
        stop.request();
        let fault =
            scan(folder.path(), None, &Labels::Own, &Selection::default(), &quiet(), &stop).unwrap_err();
        assert!(matches!(fault, Error::Interrupted));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..4000)) {
            prop_assert_eq!(one(bytes).bad.len(), 1);
        }

        /// Damage behind a right checksum, where it gets further.
        #[test]
        fn a_damaged_header_never_panics(
            member in 0usize..4,
            at in 0usize..512,
            damage in proptest::collection::vec(any::<u8>(), 1..40),
        ) {
            let long = "d".repeat(150) + ".jpg";
            let mut bytes = tar([("1.jpg", "x"), ("1.cls", "0"), (long.as_str(), "y"), ("3.jpg", "x")]);
            let start = [0, 1024, 2048, 3072][member];
            for (to, from) in bytes[start..start + 512].iter_mut().skip(at).zip(damage) {
                *to = from;
            }
            let sum: u32 = bytes[start..start + 512]
                .iter()
                .enumerate()
                .map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) })
                .sum();
            bytes[start + 148..start + 156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            let folder = folder(&[("a.tar", bytes)]);
            // Damage may also leave no sample at all, or none that is bad.
            let _ = scan(folder.path(), None, &Labels::Own, &Selection::default(), &quiet(), &Stop::default());
        }
    }
}
