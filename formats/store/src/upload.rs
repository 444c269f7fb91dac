//! What is said about writing an object.

use std::io;

use crate::answer::StoreFault;

/// Which one of all that an object has been, as far as the store says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// The ETag.
    pub etag: Option<String>,
    /// What Google Cloud Storage calls generation.
    pub number: Option<String>,
}

/// What is written beside an object, where the store can: whose work it is, and of which content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Whose work it is, in letters and digits.
    pub work: String,
    /// A hash of its bytes.
    pub content: u64,
}

// A build that writes nothing has no use for it.
#[cfg(any(feature = "client", test))]
impl Mark {
    pub(crate) fn text(&self) -> String {
        format!("{}-{:016x}", self.work, self.content)
    }

    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let (work, content) = text.split_once('-')?;
        Some(Self { work: work.to_owned(), content: u64::from_str_radix(content, 16).ok()? })
    }
}

/// An object as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Its length in bytes.
    pub bytes: u64,
    /// Its version.
    pub version: Version,
    /// The mark that it was written with, if any.
    pub mark: Option<Mark>,
}

/// When an object is written.
#[derive(Clone, Copy, Debug)]
pub enum When<'a> {
    /// In place of one that is there, too.
    Always,
    /// If there is none of this name.
    Absent,
    /// If the one that is there is still of this version.
    Still(&'a Version),
}

impl<'a> When<'a> {
    /// If what is there has not changed since it was looked at. Always, where the store says no
    /// version.
    #[must_use]
    pub fn unchanged(looked: Option<&'a Looked>) -> Self {
        looked.map_or(Self::Absent, |looked| Self::still(&looked.version))
    }

    /// Whether it is now, by what was looked at.
    #[must_use]
    pub fn holds(self, looked: Option<&Looked>) -> bool {
        match self {
            Self::Always => true,
            Self::Absent => looked.is_none(),
            Self::Still(version) => looked.is_some_and(|looked| looked.version == *version),
        }
    }

    /// If the one that is there is still of this version. Always, if it is none.
    #[must_use]
    pub fn still(version: &'a Version) -> Self {
        if *version == Version::default() { Self::Always } else { Self::Still(version) }
    }
}

/// What became of a write under a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// It is there, in this version.
    Done(Version),
    /// The condition does not hold; nothing was written.
    Refused,
}

/// Why an object in parts was not written.
#[derive(Debug)]
pub enum UploadFault {
    /// The store does not take it.
    Store(StoreFault),
    /// Its bytes cannot be read.
    Read(io::Error),
    /// It was to stop.
    Stopped,
}

/// An object in parts that is being written.
#[derive(Clone, Copy, Debug)]
pub struct Upload<'a> {
    /// Its name below the address.
    pub name: &'a str,
    /// What the store calls this upload, by [`begin`](crate::Uploads::begin).
    pub id: &'a str,
    /// Its length in bytes, not 0.
    pub bytes: u64,
    /// The hash of its bytes.
    pub content: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let mark = Mark { work: "0a1b".to_owned(), content: 7 };
        assert_eq!(mark.text(), "0a1b-0000000000000007");
        assert_eq!(Mark::of_text(&mark.text()), Some(mark));
        for text in ["", "0a1b", "0a1b-", "0a1b-x"] {
            assert_eq!(Mark::of_text(text), None, "{text}");
        }
    }
}
