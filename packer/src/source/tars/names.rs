//! Members' names: WebDataset's key and extension, and which paths a dataset may have.

use crate::source::image_folder::EXTENSIONS;

/// Which of several images is the sample's, when each has an extension of one part.
const PREFERRED: [&str; 9] = ["jpg", "jpeg", "png", "webp", "ppm", "pgm", "bmp", "tif", "tiff"];

/// Longest name of a field.
const FIELD_NAME_BYTES_MAX: usize = 64;

/// A member's key, up to the first dot of its base name, and its extension, the rest; `./` before it does not count.
///
/// `None` for what WebDataset passes over: names without extension, hidden files, and what begins with `__...__`.
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

/// Which of these extensions, all of images, is the sample's.
///
/// # Errors
/// It cannot be told.
pub(super) fn choose_image<'a>(images: &[&'a str]) -> Result<&'a str, String> {
    if let [only] = images {
        return Ok(only);
    }
    let preferred = PREFERRED.iter().find_map(|preferred| images.iter().find(|image| *image == preferred));
    preferred.copied().ok_or_else(|| {
        format!("which of {} is its image? Name that one without a second dot", images.join(", "))
    })
}

/// Whether an extension can name a field.
///
/// # Errors
/// Why not.
pub(super) fn check_field(extension: &str) -> Result<(), String> {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    if (1..=FIELD_NAME_BYTES_MAX).contains(&extension.len()) && extension.bytes().all(known) {
        return Ok(());
    }
    Err(format!(
        "the extension {extension:?} cannot name a field: use 1 to {FIELD_NAME_BYTES_MAX} of A-Z, a-z, 0-9, '_', '.' and '-'"
    ))
}

/// Whether a path is relative and made of plain names: `extract` will create it below its destination.
pub(super) fn is_safe(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
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
        assert_eq!(choose_image(&["tiff", "png", "jpeg"]), Ok("jpeg"));
        assert_eq!(choose_image(&["a.jpg", "bmp"]), Ok("bmp"));
        assert_eq!(choose_image(&["left.png"]), Ok("left.png"));
        assert!(choose_image(&["left.png", "right.png"]).unwrap_err().contains("left.png, right.png"));
    }

    #[test]
    fn every_image_extension_has_a_preference() {
        assert_eq!(PREFERRED.len(), EXTENSIONS.len());
        assert!(PREFERRED.iter().all(|extension| is_image(extension)));
    }

    #[test]
    fn odd_names_are_refused() {
        for field in ["json", "mask.png", "a_b-9", &"x".repeat(64)] {
            assert!(check_field(field).is_ok(), "{field}");
        }
        for field in ["", "a b", "\u{fc}", "a/b", &"x".repeat(65)] {
            assert!(check_field(field).is_err(), "{field}");
        }
        for path in ["a/b.jpg", "a/..b/c"] {
            assert!(is_safe(path), "{path}");
        }
        for path in ["", "/a", "a//b", "a/../b", "a/./b", "a/", "a\0"] {
            assert!(!is_safe(path), "{path:?}");
        }
    }
}
