//! Decides which files of a source are left out: `--exclude GLOB`.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::error::Error;

/// Patterns of what is left out. The default leaves out nothing.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    patterns: Vec<String>,
    excluded: GlobSet,
    /// The folder of the source that paths are relative to; `None` if that is the source itself.
    folder: Option<String>,
}

impl Selection {
    /// Leaves out what matches one of `patterns`. A pattern without `/` matches a name at any
    /// depth, one with `/` a path below the source; `*` and `?` stay within a name, `**` crosses
    /// folders. A folder that matches is left out whole.
    pub(crate) fn excluding(patterns: &[String]) -> Result<Self, Error> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let anywhere = if pattern.contains('/') {
                pattern.trim_start_matches('/').to_owned()
            } else {
                format!("**/{pattern}")
            };
            let glob = GlobBuilder::new(anywhere.trim_end_matches('/')).literal_separator(true).build();
            let refused =
                |fault: globset::Error| Error::Usage(format!("--exclude '{pattern}': {}", fault.kind()));
            set.add(glob.map_err(refused)?);
        }
        let excluded = set.build().map_err(|fault| Error::Usage(format!("--exclude {fault}")))?;
        Ok(Self { patterns: patterns.to_vec(), excluded, folder: None })
    }

    /// The selection for paths that are relative to `folder` of the source. They match as they are,
    /// and with the folder's name before them.
    pub(crate) fn below(&self, folder: &str) -> Self {
        Self { folder: Some(folder.to_owned()), ..self.clone() }
    }

    /// The selection for paths that are relative to the source itself.
    pub(crate) fn at_source(&self) -> Self {
        Self { folder: None, ..self.clone() }
    }

    /// Whether the file or folder at `path`, relative to the source, is left out.
    pub(crate) fn excludes(&self, path: &str) -> bool {
        let in_folder = |folder: &String| self.excluded.is_match(format!("{folder}/{path}"));
        !self.excluded.is_empty()
            && (self.excluded.is_match(path) || self.folder.as_ref().is_some_and(in_folder))
    }

    /// Whether `path` or a folder above it is left out: for sources that list files without their
    /// folders.
    pub(crate) fn excludes_below(&self, path: &str) -> bool {
        if self.excluded.is_empty() {
            return false;
        }
        let folders = path.match_indices('/').filter_map(|(at, _)| path.get(..at));
        folders.chain([path]).any(|part| self.excludes(part))
    }

    pub(crate) fn patterns(&self) -> &[String] {
        &self.patterns
    }
}

#[cfg(test)]
mod tests {
    use super::Selection;

    #[test]
    fn patterns_match_names_anywhere_or_paths_from_the_source() {
        let of = |pattern: &str| Selection::excluding(&[pattern.to_owned()]).unwrap();
        for (pattern, path, excluded) in [
            ("*.png", "cat/1.png", true),
            ("*.png", "cat/1.jpg", false),
            (".ipynb_checkpoints", ".ipynb_checkpoints", true),
            (".ipynb_checkpoints", "cat/.ipynb_checkpoints", true),
            ("cat/*.png", "cat/1.png", true),
            ("cat/*.png", "cat/kitten/1.png", false),
            ("cat/**", "cat/kitten/1.png", true),
            ("/cat/1.png", "cat/1.png", true),
            ("cat/", "cat", true),
            ("cat", "bobcat", false),
            ("{cat,dog}", "dog", true),
        ] {
            assert_eq!(of(pattern).excludes(path), excluded, "{pattern} {path}");
        }
        assert!(of("cat").excludes_below("a/cat/1.png"));
        assert!(!of("cat").excludes("a/cat/1.png"));
        assert!(!Selection::default().excludes_below("a/b"));
        assert!(Selection::excluding(&["a[".to_owned()]).unwrap_err().to_string().contains("a["));
    }

    #[test]
    fn below_a_folder_paths_match_with_its_name_and_without() {
        for (pattern, path, excluded) in [
            ("train/cat", "cat", true),
            ("/train/cat/*.png", "cat/1.png", true),
            ("val/cat", "cat", false),
            ("cat/*.png", "cat/1.png", true),
            ("*/cat", "cat", true),
            ("*.png", "cat/1.png", true),
            ("train", "cat", false),
            ("train/cat", "cat/1.png", false),
        ] {
            let of_source = Selection::excluding(&[pattern.to_owned()]).unwrap();
            let below = of_source.below("train");
            assert_eq!(below.excludes(path), excluded, "{pattern} {path}");
            assert_eq!(below.at_source().excludes(path), of_source.excludes(path), "{pattern} {path}");
        }
        let below = Selection::excluding(&["train/cat".to_owned()]).unwrap().below("train");
        assert!(below.excludes_below("cat/deep/1.png") && !below.excludes_below("dog/cat/1.png"));
    }
}
