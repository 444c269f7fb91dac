//! What is at an address before a dataset is made there.

use std::path::Path;

use shade_dataset::Found;
use shade_formats::index::INDEX_FILE;

use super::made::Bucket;
use crate::claim::CLAIM_FILE;
use crate::error::Error;
use crate::plan::shard_number;
use crate::times::TIMES_FILE;

/// What is known of the work that goes to an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work<'a> {
    /// Names of the folders in it; none for one dataset.
    pub(crate) splits: &'a [String],
    /// Whether this machine has records of shards that it has put there.
    pub(crate) has_records: bool,
    /// Whether what earlier runs left is to go.
    pub(crate) restart: bool,
}

/// What an object is to this work.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// It belongs to a dataset that is being made.
    Ours,
    /// What says that this command is at work.
    Claim,
    Index,
    Foreign,
}

impl Bucket {
    /// Makes sure that nothing is there that would be lost or be mixed with what is made, and
    /// removes what dead commands of this machine have left.
    ///
    /// # Errors
    /// There is a dataset, or something that no pack makes, or unfinished work of another machine:
    /// usage.
    pub(crate) fn prepare(&self, out: &Path, work: Work<'_>) -> Result<(), Error> {
        let found = self.list()?;
        let of = |wanted: Standing| found.iter().filter(move |found| standing(found, work.splits) == wanted);
        let at = out.display();
        if let Some(foreign) = of(Standing::Foreign).next() {
            let name = &foreign.name;
            let text = format!("{at} has '{name}', which is of no pack: choose an address where nothing is");
            return Err(Error::Usage(text));
        }
        // One split may be there already: a run was killed between two indexes.
        if of(Standing::Index).next().is_some() && (work.splits.is_empty() || !work.has_records) {
            return Err(Error::Usage(format!("{at} exists: remove it or choose another destination")));
        }
        let left = of(Standing::Ours).count();
        if left == 0 || (work.has_records && !work.restart) {
            return Ok(());
        }
        if !work.restart && !self.is_of_the_dead() {
            return Err(Error::Usage(format!(
                "{at} has {left} objects of an unfinished pack that this machine does not know: finish it where it began, \
                 throw it away with --restart, or remove them"
            )));
        }
        of(Standing::Ours).try_for_each(|found| self.remove(&found.name))
    }
}

impl Bucket {
    /// Makes sure that no object of the number `first` or a later one is in the way of shards that
    /// are added, and removes those that dead commands of this machine have left. This machine has
    /// records of the shards `known`.
    ///
    /// # Errors
    /// Another machine has left some: usage.
    pub(crate) fn prepare_more(
        &self,
        out: &Path,
        first: u32,
        known: &[u32],
        restart: bool,
    ) -> Result<(), Error> {
        let is_left = |found: &&Found| {
            shard_number(&found.name).is_some_and(|number| number >= first && !known.contains(&number))
        };
        for found in self.list()?.iter().filter(is_left) {
            if !restart && !self.is_of_the_dead() {
                return Err(Error::Usage(format!(
                    "{}/{} is there, and is not of the dataset: if another machine was killed while it appended, --restart \
                     removes it",
                    out.display(),
                    found.name
                )));
            }
            self.remove(&found.name)?;
        }
        Ok(())
    }
}

fn standing(found: &Found, splits: &[String]) -> Standing {
    if found.name == CLAIM_FILE {
        return Standing::Claim;
    }
    let file = match splits {
        [] => Some(found.name.as_str()),
        splits => found
            .name
            .split_once('/')
            .filter(|(split, _)| splits.iter().any(|own| own == split))
            .map(|(_, file)| file),
    };
    match file {
        Some(INDEX_FILE) => Standing::Index,
        Some(file) if file == TIMES_FILE || shard_number(file).is_some() => Standing::Ours,
        _ => Standing::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_pack_makes_is_foreign() {
        let of = |name: &str, splits: &[&str]| {
            let splits: Vec<String> = splits.iter().map(|split| (*split).to_owned()).collect();
            standing(&Found { name: name.to_owned(), bytes: 1, etag: None }, &splits)
        };
        for name in ["shard-000000.tar", "dataset.times"] {
            assert_eq!(of(name, &[]), Standing::Ours);
            assert_eq!(of(name, &["train"]), Standing::Foreign);
            assert_eq!(of(&format!("train/{name}"), &["train", "val"]), Standing::Ours);
            assert_eq!(of(&format!("test/{name}"), &["train", "val"]), Standing::Foreign);
            assert_eq!(of(&format!("train/{name}"), &[]), Standing::Foreign);
        }
        assert_eq!(of("dataset.shade", &[]), Standing::Index);
        assert_eq!(of("val/dataset.shade", &["val"]), Standing::Index);
        assert_eq!(of("dataset.changing", &["val"]), Standing::Claim);
        for name in ["", "shard-1.tar", "shard-000000.tar.done", "photo.jpg", "/shard-000000.tar"] {
            assert_eq!(of(name, &[]), Standing::Foreign, "{name}");
        }
    }
}
