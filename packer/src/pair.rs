//! `--pair NAME=PATH`: a folder whose files belong to the images of another one, by their names.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use shade_formats::limits::FIELD_NAME_BYTES_MAX;
use shade_formats::shard::field_name_is_valid;

/// The folder of the images among those that `extract` writes. No pair has this name.
pub(crate) const IMAGES: &str = "images";

/// A folder of files, one for each image: masks, boxes, captions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    /// Name of the field that an image's file becomes.
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    /// Name of an image's file. Its one `*` stands for the image's name without extension. On the
    /// command line the extension may be missing; listing adds it.
    pub(crate) files: String,
}

/// Why a text is no pair.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PairFault {
    #[error("'{0}' is not NAME=FOLDER, such as masks=photos/masks")]
    Text(String),
    #[error(
        "'{0}' cannot name a field: use 1 to {FIELD_NAME_BYTES_MAX} of A-Z, a-z, 0-9, '_', '.' and '-', with no dot \
         at either end, and neither 'cls' nor '{IMAGES}'"
    )]
    Name(String),
    #[error("'{0}': one '*' may stand in the last part of the path, for the name of an image")]
    Stars(String),
}

impl FromStr for Pair {
    type Err = PairFault;

    fn from_str(text: &str) -> Result<Self, PairFault> {
        let Some((name, path)) = text.split_once('=').filter(|(_, path)| !path.is_empty()) else {
            return Err(PairFault::Text(text.to_owned()));
        };
        if !is_pair(name, "*") {
            return Err(PairFault::Name(name.to_owned()));
        }
        let (folder, files) = match path.rsplit_once('/') {
            Some(("", files)) if files.contains('*') => ("/", files),
            Some((folder, files)) if files.contains('*') => (folder, files),
            None if path.contains('*') => (".", path),
            _ => (path, "*"),
        };
        if folder.contains('*') || files.matches('*').count() > 1 {
            return Err(PairFault::Stars(path.to_owned()));
        }
        Ok(Self { name: name.to_owned(), folder: folder.into(), files: files.to_owned() })
    }
}

impl Pair {
    /// Whether it says the extension of its files.
    pub(crate) fn has_extension(&self) -> bool {
        self.files.rsplit('*').next().is_some_and(|end| end.contains('.'))
    }

    /// The path of the file of the image at `image`, below its folder.
    pub(crate) fn file_of(&self, image: &str) -> String {
        file_of(&self.files, image)
    }

    /// The path without extension of the image that the file at `path` belongs to; `None` if its
    /// name is not that of such files.
    pub(crate) fn image_of(&self, path: &str) -> Option<String> {
        let (before, behind) = self.files.split_once('*')?;
        let (folder, name) = split(path);
        let image = name.strip_prefix(before)?.strip_suffix(behind)?;
        Some(format!("{folder}{image}"))
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.folder.join(&self.files).display())
    }
}

/// Whether a pair may have this name and such files: both become names of files.
pub(crate) fn is_pair(name: &str, files: &str) -> bool {
    let is_name = field_name_is_valid(name) && name != IMAGES;
    is_name && files.matches('*').count() == 1 && !files.contains(['/', '\0'])
}

/// The path that files called `files` have beside the image at `image`.
pub(crate) fn file_of(files: &str, image: &str) -> String {
    let (folder, name) = split(stem(image));
    format!("{folder}{}", files.replacen('*', name, 1))
}

/// A path without its extension. A hidden file's leading dot begins none.
pub(crate) fn stem(path: &str) -> &str {
    let (folder, name) = split(path);
    match name.rfind('.') {
        Some(dot) if dot > 0 => path.get(..folder.len() + dot).unwrap_or(path),
        _ => path,
    }
}

/// The folder of a path, up to its `/`, and the name.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.rfind('/').map_or(0, |slash| slash + 1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pair(text: &str) -> Pair {
        text.parse().unwrap()
    }

    #[test]
    fn a_pair_is_a_name_a_folder_and_names_of_files() {
        for (text, name, folder, files) in [
            ("masks=data/masks", "masks", "data/masks", "*"),
            ("masks=data/masks/", "masks", "data/masks/", "*"),
            ("mask.png=a=b/*_mask.gif", "mask.png", "a=b", "*_mask.gif"),
            ("m=*.png", "m", ".", "*.png"),
            ("m=/m_*", "m", "/", "m_*"),
        ] {
            let Pair { name: got, folder: below, files: names } = pair(text);
            assert_eq!((got.as_str(), below.to_str(), names.as_str()), (name, Some(folder), files), "{text}");
        }
        for text in ["", "masks", "masks=", "=x", "cls=x", "images=x", "a b=x", "m=a*/b", "m=a/**", "m=a*/*"]
        {
            assert!(text.parse::<Pair>().is_err(), "{text}");
        }
        assert!(pair("m=x/*.png").has_extension() && pair("m=x/a.*_b.gif").has_extension());
        assert!(!pair("m=x.y").has_extension() && !pair("m=x/a.*_b").has_extension());
    }

    #[test]
    fn files_are_called_like_their_images() {
        for (files, image, file) in [
            ("*.png", "a/1.jpg", "a/1.png"),
            ("*_mask.gif", "1.jpg", "1_mask.gif"),
            ("mask_*.png", "a.b/c/1.x.jpg", "a.b/c/mask_1.x.png"),
            ("*", "a/.png", "a/.png"),
            ("*.txt", "cat/.png", "cat/.png.txt"),
            ("*.mask.png", "a.b/1", "a.b/1.mask.png"),
        ] {
            assert_eq!(file_of(files, image), file);
            let pair = Pair { files: files.to_owned(), ..pair("m=x") };
            assert_eq!(pair.image_of(file).as_deref(), Some(stem(image)), "{files} {image}");
        }
        assert_eq!(pair("m=x/*_mask.gif").image_of("a/1.gif"), None);
        assert!(
            is_pair("m", "*.png") && !is_pair("m", "a.png") && !is_pair("m", "../*") && !is_pair("..", "*")
        );
        assert_eq!(pair("m=x/ab*ba").image_of("aba"), None, "before and behind do not overlap");
    }

    proptest! {
        #[test]
        fn a_file_leads_back_to_its_image(
            image in "([a-c./]{0,6}/)?[a-c.]{1,6}",
            before in "[a-c._]{0,3}",
            behind in "[a-c._]{0,3}",
        ) {
            let pair = Pair { files: format!("{before}*{behind}"), ..pair("m=x") };
            prop_assert_eq!(pair.image_of(&pair.file_of(&image)), Some(stem(&image).to_owned()));
        }
    }
}
