//! Members' names: WebDataset's key and extension.

use crate::source::image_folder::EXTENSIONS;

/// Extensions of one part, in the order in which one of several images is chosen.
const PREFERRED: [&str; 9] = ["jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "tif", "tiff"];

/// A member's key, up to the first dot of its base name, and its extension, the rest. A leading
/// `./` does not count.
///
/// `None` for names that WebDataset passes over: names without extension, hidden files, and names
/// that begin with `__...__`.
pub(super) fn split(mut name: &str) -> Option<(&str, &str)> {
    while let Some(rest) = name.strip_prefix("./") {
        name = rest;
    }
    let first = name.split('/').next().unwrap_or_default();
    if first.len() >= 4 && first.starts_with("__") && first.ends_with("__") {
        return None;
    }
    let base = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = base + name.get(base..)?.find('.')?;
    if dot == base {
        return None;
    }
    Some((name.get(..dot)?, name.get(dot + 1..)?))
}

/// Whether the last part of an extension is an image's.
pub(super) fn is_image(extension: &str) -> bool {
    let last = extension.rsplit('.').next().unwrap_or_default();
    EXTENSIONS.iter().any(|known| known.strip_prefix('.') == Some(last))
}

/// The extension of the sample's image, of several; `None` if it cannot be told.
pub(super) fn choose_image<'a>(images: &[&'a str]) -> Option<&'a str> {
    if let [only] = images {
        return Some(only);
    }
    PREFERRED.iter().find_map(|preferred| images.iter().find(|image| *image == preferred)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_end_at_the_first_dot_of_the_base_name() {
        for (name, expected) in [
            ("0001.jpg", Some(("0001", "jpg"))),
            ("./0001.mask.PNG", Some(("0001", "mask.PNG"))),
            ("a.b/c.d/e.f.g", Some(("a.b/c.d/e", "f.g"))),
            ("/abs/x.jpg", Some(("/abs/x", "jpg"))),
            ("x.", Some(("x", ""))),
            ("README", None),
            ("a.b/README", None),
            (".hidden.jpg", None),
            ("a/._x.jpg", None),
            ("__shard__.json", Some(("__shard__", "json"))),
            ("__meta__", None),
            ("__meta__/x.jpg", None),
            ("./__meta__/x.jpg", None),
            ("a/", None),
            ("", None),
        ] {
            assert_eq!(split(name), expected, "{name}");
        }
    }

    #[test]
    fn one_member_is_the_image() {
        for extension in ["jpg", "mask.png", "TIFF".to_lowercase().as_str(), "webp"] {
            assert!(is_image(extension), "{extension}");
        }
        for extension in ["", "txt", "jpg.txt", "xjpg", "npy"] {
            assert!(!is_image(extension), "{extension}");
        }
        assert_eq!(choose_image(&["tiff", "png", "jpeg"]), Some("jpeg"));
        assert_eq!(choose_image(&["a.jpg", "bmp"]), Some("bmp"));
        assert_eq!(choose_image(&["left.png"]), Some("left.png"));
        assert_eq!(choose_image(&["left.png", "right.png"]), None);
    }

    #[test]
    fn every_image_extension_has_a_preference() {
        assert_eq!(PREFERRED.len(), EXTENSIONS.len());
        assert!(PREFERRED.iter().all(|extension| is_image(extension)));
    }
}
