//! What is at an address before a dataset is made there, and after it was not.

use std::collections::BTreeMap;
use std::path::Path;

use shade_dataset::{Found, Version};
use shade_formats::index::INDEX_FILE;

use super::address::{below, with_none};
use super::made::Bucket;
use super::mark::work_in;
use crate::claim::CLAIM_FILE;
use crate::error::Error;
use crate::leftovers::has_records;
use crate::pack::{PlacedShard, placed_in};
use crate::plan::shard_number;
use crate::times::TIMES_FILE;

/// The work that goes to an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    /// Its folder on this machine, if an earlier run may have begun it.
    pub(crate) folder: Option<&'a Path>,
    /// Whether what earlier runs left is to go.
    pub(crate) restart: bool,
}

/// What the name of an object says.
#[derive(Debug, PartialEq, Eq)]
enum Name {
    /// A shard or times: a pack writes such.
    Pack,
    Index,
    /// What says that this command is at work, or an empty object by which some tools show a
    /// folder.
    Nothing,
    Foreign,
}

/// An object that goes, if it is still of this version.
struct LeftObject {
    name: String,
    version: Version,
}

/// Whose an object is.
#[derive(Debug, PartialEq, Eq)]
enum Whose {
    /// It was removed since it was listed.
    Gone,
    /// This machine has a record of it, and goes on from there.
    Recorded,
    /// A command of this machine did not come to its end.
    Ours,
    /// As ours, of another machine or another cache.
    Anothers,
    /// No pack made it, or it cannot be told.
    Unknown,
}

impl Bucket {
    /// Makes sure that nothing is there that would be lost or be mixed with what is made, and
    /// removes what commands of this machine have left. Removes nothing if it refuses.
    ///
    /// # Errors
    /// There is a dataset, or something that no pack of this machine made: usage.
    pub(crate) fn prepare(&self, out: &Path, work: Work<'_>) -> Result<(), Error> {
        self.refuse_other_work(out, work)?;
        let records = if work.restart { BTreeMap::new() } else { self.records(work.folder)? };
        let at = out.display();
        // Indexes first: what they name must not go before them.
        let (mut indexes, mut rest) = (Vec::new(), Vec::new());
        let mut anothers = 0;
        for found in self.list()? {
            let name = self.name_of(&found);
            if name == Name::Nothing {
                continue;
            }
            let (whose, version) = match name {
                Name::Foreign => (Whose::Unknown, Version::default()),
                _ => self.whose(&found, &records)?,
            };
            let left = LeftObject { name: found.name, version };
            match (name, whose) {
                (_, Whose::Recorded | Whose::Gone) => {}
                // A split that is whole already: a run was killed between two indexes.
                (Name::Index, Whose::Ours) if !records.is_empty() => {}
                (Name::Index, Whose::Ours) if work.restart => indexes.push(left),
                (Name::Index, _) => return Err(exists(out)),
                (_, Whose::Ours) => rest.push(left),
                (_, Whose::Anothers) => {
                    anothers += 1;
                    rest.push(left);
                }
                (_, Whose::Unknown) => {
                    let name = left.name;
                    return Err(Error::Usage(format!(
                        "{at} has '{name}', which no pack of this machine made: remove it, or choose an address where \
                         nothing is"
                    )));
                }
            }
        }
        // With all of its indexes it is no unfinished work, whatever this machine knows of it.
        if indexes.len() == self.splits().len().max(1) {
            return Err(exists(out));
        }
        if anothers > 0 && !work.restart {
            return Err(Error::Usage(format!(
                "{at} has {anothers} objects of an unfinished pack of another machine, or of a cache that is gone: finish \
                 it there, or throw it away with `shade-pack create ... --restart`"
            )));
        }
        // Shards of a split whose index stays are not among them: they are recorded.
        indexes.iter().chain(&rest).try_for_each(|left| self.remove(&left.name, &left.version))
    }

    /// Makes sure that no object of the number `first` or a later one is in the way of shards that
    /// are added, and removes those that commands of this machine have left.
    ///
    /// # Errors
    /// There is one that no command of this machine made: usage.
    pub(crate) fn prepare_more(&self, out: &Path, first: u32, work: Work<'_>) -> Result<(), Error> {
        let records = self.records(work.folder)?;
        let mut left = Vec::new();
        for found in self.list()? {
            if shard_number(&found.name).is_none_or(|number| number < first) {
                continue;
            }
            let (whose, version) = self.whose(&found, &records)?;
            match whose {
                Whose::Recorded | Whose::Gone => {}
                Whose::Ours => left.push(LeftObject { name: found.name, version }),
                Whose::Anothers if work.restart => left.push(LeftObject { name: found.name, version }),
                Whose::Anothers | Whose::Unknown => {
                    return Err(Error::Usage(format!(
                        "{}/{} is there, and is not of the dataset. If another machine was killed while it appended, \
                         --restart removes it; if no pack made it, remove it",
                        out.display(),
                        found.name
                    )));
                }
            }
        }
        left.iter().try_for_each(|left| self.remove(&left.name, &left.version))
    }

    /// Removes what this machine has put there, if nobody goes on with it: there is no index of
    /// ours, and none can come. With `first` only shards of this number and later ones.
    ///
    /// # Errors
    /// The store does not answer; or another command writes there by now, which may have the mark
    /// of this machine, too, where machines share the user's cache.
    pub(crate) fn remove_left(&self, first: Option<u32>) -> Result<(), Error> {
        if self.may_appear() {
            return Ok(());
        }
        let found = self.list()?;
        let mut left = Vec::new();
        for found in &found {
            let name = self.name_of(found);
            let is_meant = match first {
                Some(first) => shard_number(&found.name).is_some_and(|number| number >= first),
                None => matches!(name, Name::Pack | Name::Index),
            };
            if !is_meant {
                continue;
            }
            if let (Whose::Ours, version) = self.whose(found, &BTreeMap::new())? {
                if name == Name::Index {
                    return Ok(());
                }
                left.push(LeftObject { name: found.name.clone(), version });
            }
        }
        left.iter().try_for_each(|left| self.remove(&left.name, &left.version))?;
        self.note_finished();
        Ok(())
    }

    /// Refuses to begin beside other work of this machine for the same address: usage.
    fn refuse_other_work(&self, out: &Path, work: Work<'_>) -> Result<(), Error> {
        for other in work_in(self.folder())? {
            if Some(other.as_path()) == work.folder || work.restart || self.records(Some(&other))?.is_empty()
            {
                continue;
            }
            return Err(Error::Usage(format!(
                "{} holds an unfinished pack for {}: finish that one, or throw it away with `shade-pack create ... \
                 --restart`",
                other.display(),
                out.display()
            )));
        }
        Ok(())
    }

    /// The versions of the objects that the work in `folder` has records of, by their names.
    fn records(&self, folder: Option<&Path>) -> Result<BTreeMap<String, String>, Error> {
        let mut records = BTreeMap::new();
        let Some(folder) = folder else { return Ok(records) };
        for split in with_none(self.splits()) {
            let folder = split.map_or_else(|| folder.to_owned(), |split| folder.join(split));
            if !folder.is_dir() || !has_records(&folder) {
                continue;
            }
            for PlacedShard { name, etag } in placed_in(&folder)? {
                records.insert(below(split, &name), etag);
            }
        }
        Ok(records)
    }

    /// Whose an object is, and which version of it.
    fn whose(&self, found: &Found, records: &BTreeMap<String, String>) -> Result<(Whose, Version), Error> {
        let Some(there) = self.look(&found.name)? else { return Ok((Whose::Gone, Version::default())) };
        let is_recorded = records.get(&found.name).is_some_and(|etag| self.is_placed(&there, etag));
        let whose = match &there.mark {
            _ if is_recorded => Whose::Recorded,
            Some(_) if self.is_marked(&there) => Whose::Ours,
            Some(_) => Whose::Anothers,
            None => Whose::Unknown,
        };
        Ok((whose, there.version))
    }

    fn name_of(&self, found: &Found) -> Name {
        name_of(found, self.splits())
    }
}

pub(super) fn exists(out: &Path) -> Error {
    Error::Usage(format!("{} exists: remove it or choose another destination", out.display()))
}

fn name_of(found: &Found, splits: &[String]) -> Name {
    let Found { name, bytes, .. } = found;
    if *bytes == 0 && (name.is_empty() || splits.contains(name)) {
        return Name::Nothing;
    }
    if name == CLAIM_FILE {
        return Name::Nothing;
    }
    let file = match splits {
        [] => Some(name.as_str()),
        splits => {
            let inside = name.split_once('/').filter(|(split, _)| splits.iter().any(|own| own == split));
            inside.map(|(_, file)| file)
        }
    };
    match file {
        Some(CLAIM_FILE) => Name::Nothing,
        Some(INDEX_FILE) => Name::Index,
        Some(file) if file == TIMES_FILE || shard_number(file).is_some() => Name::Pack,
        _ => Name::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_pack_makes_is_foreign() {
        let of = |name: &str, splits: &[&str]| {
            let splits: Vec<String> = splits.iter().map(|split| (*split).to_owned()).collect();
            name_of(&Found { name: name.to_owned(), bytes: 1, etag: None }, &splits)
        };
        for name in ["shard-000000.tar", "dataset.times"] {
            assert_eq!(of(name, &[]), Name::Pack);
            assert_eq!(of(name, &["train"]), Name::Foreign);
            assert_eq!(of(&format!("train/{name}"), &["train", "val"]), Name::Pack);
            assert_eq!(of(&format!("test/{name}"), &["train", "val"]), Name::Foreign);
            assert_eq!(of(&format!("train/{name}"), &[]), Name::Foreign);
        }
        assert_eq!(of("dataset.shade", &[]), Name::Index);
        assert_eq!(of("val/dataset.shade", &["val"]), Name::Index);
        assert_eq!(of("dataset.changing", &["val"]), Name::Nothing);
        assert_eq!(of("val/dataset.changing", &["val"]), Name::Nothing);
        for name in ["", "shard-1.tar", "shard-000000.tar.done", "photo.jpg", "/shard-000000.tar"] {
            assert_eq!(of(name, &[]), Name::Foreign, "{name}");
        }
        let empty =
            |name: &str| name_of(&Found { name: name.to_owned(), bytes: 0, etag: None }, &["val".to_owned()]);
        assert_eq!((empty(""), empty("val"), empty("mine")), (Name::Nothing, Name::Nothing, Name::Foreign));
    }
}
