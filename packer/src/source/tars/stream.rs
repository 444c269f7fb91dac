//! Lists the samples of a stream piece by piece. Which classes there are is known at its end,
//! unless the user names them.

use std::collections::BTreeSet;
use std::path::Path;

use super::cut::StreamPiece;
use super::folder::{CAPTIONS, LabelRule, Tar, add, find_labels};
use super::groups::{KeyPlaces, TarFile, TarPlace};
use super::label::LabelSource;
use crate::catalogue::{Catalogue, STREAM, SampleStore};
use crate::error::Error;
use crate::interrupt::Stop;
use crate::source::Source;
use crate::source::labels::{Classes, Labels, Texts};

/// What is known of a stream's labels so far.
#[derive(Debug)]
pub(crate) struct StreamListing<'a> {
    source: &'a Source,
    /// Decided by the first piece: all samples have their labels from the same member.
    rule: Option<LabelRule>,
    /// The classes, if they are known beforehand.
    given: Option<Classes>,
    /// Labels otherwise, numbered as they appear.
    texts: Texts,
    /// Labels in the stream, also of samples that are bad.
    known: BTreeSet<u32>,
    /// A key may come once in the whole stream.
    seen: KeyPlaces,
}

/// The classes of a stream that was read to its end.
#[derive(Debug, Default)]
pub(crate) struct StreamClasses {
    /// Their names, by label.
    pub(crate) names: Vec<String>,
    /// The label of each class of the pieces' catalogues; `None` if they are the same.
    pub(crate) labels: Option<Vec<u32>>,
    /// Labels in the stream, also of samples that are bad.
    pub(crate) known: BTreeSet<u32>,
    /// Why its labels may be none.
    pub(crate) doubt: Option<String>,
    /// What people should know of the labels.
    pub(crate) note: Option<&'static str>,
}

impl<'a> StreamListing<'a> {
    /// Before the first piece.
    ///
    /// # Errors
    /// The file with the classes cannot be read, or names none.
    pub(crate) fn new(source: &'a Source) -> Result<Self, Error> {
        let given = Classes::given(&source.labels)?;
        let (texts, known, seen) = (Texts::default(), BTreeSet::new(), KeyPlaces::new());
        Ok(Self { source, rule: None, given, texts, known, seen })
    }

    /// Whether the labels that pieces get are those of the dataset.
    pub(crate) fn has_classes(&self) -> bool {
        self.given.is_some()
    }

    /// Lists the samples of the next piece. Unless classes are given, its class table has all
    /// labels so far as texts, numbered as they appear.
    pub(crate) fn list(&mut self, piece: &StreamPiece, stop: &Stop) -> Result<Catalogue, Error> {
        let selection = &self.source.selection;
        let (path, base) = (piece.path().to_owned(), piece.base());
        let store = SampleStore::Piece { path: path.clone(), base };
        let file = TarFile { place: TarPlace::File(path), name: STREAM.into(), base };
        let tars = [Tar { file, stem: String::new(), store, changed_ns: 0 }];
        let rule = match self.rule {
            Some(rule) => rule,
            None => self.decide(&tars, stop)?,
        };
        let [tar] = tars;
        let mut listed = tar.samples(rule, &mut self.seen, selection, stop)?;
        match &self.given {
            Some(classes) => {
                let labels = listed.classes.iter().filter_map(|text| classes.label(text).ok());
                self.known.extend(labels);
                let mut catalogue = Catalogue::default();
                add(&mut catalogue, listed, 0, classes)
                    .map_err(|fault| Error::source(Path::new(STREAM), fault))?;
                catalogue.classes.clone_from(&classes.names);
                Ok(catalogue)
            }
            None => {
                let labels: Vec<u32> = listed.classes.iter().map(|text| self.texts.number(text)).collect();
                listed.relabel(self.texts.distinct().to_vec(), &labels);
                Ok(listed)
            }
        }
    }

    /// Says from which members labels come: by the first sample.
    fn decide(&mut self, tars: &[Tar], stop: &Stop) -> Result<LabelRule, Error> {
        let labels = &self.source.labels;
        let is_own = *labels == Labels::Own;
        let found = match labels {
            Labels::None => None,
            Labels::Txt => Some(LabelSource::Txt),
            // Without it, all samples lack a label.
            Labels::Own | Labels::Folders | Labels::File(_) => {
                Some(find_labels(tars, is_own, &self.source.selection, stop)?.unwrap_or(LabelSource::Cls))
            }
        };
        let has_captions = is_own && found == Some(LabelSource::Txt);
        if has_captions {
            self.given = Classes::given(&Labels::None)?;
        }
        let rule = LabelRule { source: found.filter(|_| !has_captions), has_captions };
        self.rule = Some(rule);
        Ok(rule)
    }

    /// The classes, once all pieces are listed, of `samples` samples.
    ///
    /// # Errors
    /// Labels cannot be classes.
    pub(crate) fn finish(self, samples: usize) -> Result<StreamClasses, Error> {
        let note = self.rule.is_some_and(|rule| rule.has_captions).then_some(CAPTIONS);
        if let Some(classes) = self.given {
            let (names, known) = (classes.names, self.known);
            return Ok(StreamClasses { names, known, note, ..StreamClasses::default() });
        }
        let fault = |fault: &dyn std::fmt::Display| Error::source(Path::new(STREAM), fault);
        let texts = self.texts.into_distinct();
        let classes = Classes::of_texts(texts.iter().map(String::as_str)).map_err(|found| fault(&found))?;
        let label = |text: &String| classes.label(text).map_err(|found| fault(&found));
        let labels: Vec<u32> = texts.iter().map(label).collect::<Result<_, Error>>()?;
        let is_own = self.source.labels == Labels::Own;
        let doubt = if is_own { classes.captions(samples) } else { None };
        let known = labels.iter().copied().collect();
        let is_same = texts == classes.names;
        Ok(StreamClasses { labels: (!is_same).then_some(labels), names: classes.names, known, doubt, note })
    }
}
