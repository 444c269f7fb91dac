//! Gives the images of a folder the objects of a file of annotations in COCO's JSON: their boxes,
//! their classes, and whether they are crowds.
//!
//! All three are arrays of NumPy, with as many rows as the image has objects.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use shade_dataset::regular;
use shade_formats::SampleId;

use crate::catalogue::{Catalogue, FieldContent};
use crate::error::Error;
use crate::interrupt::Stop;

/// Names of the fields: float32, n x 4; int64, n; and uint8, n.
pub(crate) const FIELDS: [&str; 3] = ["boxes.npy", "classes.npy", "crowds.npy"];

/// Least alignment of the numbers in a file of NumPy.
const NUMPY_ALIGN_BYTES: usize = 64;

/// What is wrong with a file of annotations, or with an image.
#[derive(Debug, thiserror::Error)]
enum CocoFault {
    #[error("is no file of annotations in COCO's JSON: {0}")]
    Json(serde_json::Error),
    #[error("two of its images have the id {0}")]
    IdTwice(i64),
    #[error("two of its images are called {0}")]
    NameTwice(String),
    #[error("annotation {annotation} is of image {image}, which is not among its images")]
    NoImage { annotation: usize, image: i64 },
    #[error("annotation {annotation} has a box with a negative side")]
    NoBox { annotation: usize },
    #[error("none of its {images} images, such as {first}, lies in {folder}")]
    Strangers { images: usize, first: String, folder: String },
    #[error("{0} has no image of this name")]
    NotListed(String),
}

/// A file of annotations, as far as it counts here.
#[derive(Deserialize)]
struct Annotations {
    images: Vec<Image>,
    annotations: Vec<Object>,
}

#[derive(Deserialize)]
struct Image {
    id: i64,
    /// Its path below the folder of images.
    file_name: String,
}

#[derive(Deserialize)]
struct Object {
    image_id: i64,
    category_id: i64,
    /// Left, top, width and height; none of an object that only has a mask or points.
    bbox: Option<[f32; 4]>,
    #[serde(default, deserialize_with = "zero_or_one")]
    iscrowd: bool,
}

/// Adds to the images that were `listed` at `root` what `file` says of them. An image that it does
/// not name is bad. Names without an image and annotations without a box are counted in
/// [`Catalogue::notes`].
///
/// # Errors
/// The file cannot be read, is no file of annotations, or names no image of the folder; or
/// [`Error::Interrupted`].
pub(super) fn join(mut listed: Catalogue, root: &Path, file: &Path, stop: &Stop) -> Result<Catalogue, Error> {
    let bytes = regular::read_once(file).map_err(Error::io("read", file))?;
    stop.check()?;
    let found: Annotations =
        serde_json::from_slice(&bytes).map_err(|fault| Error::source(file, CocoFault::Json(fault)))?;
    drop(bytes);
    let by_name = by_name(&found).map_err(|fault| Error::source(file, fault))?;
    let mut joined = Catalogue::over(&listed);
    let mut seen = HashSet::new();
    for id in (0..listed.len()).map(SampleId) {
        let Some(sample) = listed.sample(id) else { continue };
        let Some((name, objects)) = by_name.get_key_value(sample.path) else {
            joined.bad.push(sample.bad(CocoFault::NotListed(file.display().to_string())));
            continue;
        };
        seen.insert(*name);
        let pushed = joined.push_from(&listed, id, sample.label).and_then(|_| {
            let contents = arrays(objects);
            FIELDS
                .iter()
                .zip(&contents)
                .try_for_each(|(name, content)| joined.push_field(name, FieldContent::Inline(content)))
        });
        pushed.map_err(|fault| Error::source(file, fault))?;
    }
    let numbered = found.annotations.iter().enumerate();
    let mut boxless = numbered.filter(|(_, object)| object.bbox.is_none());
    if let Some((first, _)) = boxless.next() {
        let (count, at) = (boxless.count() + 1, file.display());
        let text = format!("{count} annotations of {at} have no box and are left out, such as {first}");
        joined.notes.push(text);
    }
    let mut strangers = by_name.keys().filter(|name| !seen.contains(*name));
    if let Some(first) = strangers.next() {
        let count = strangers.count() + 1;
        if seen.is_empty() {
            let (first, folder) = ((*first).to_owned(), root.display().to_string());
            return Err(Error::source(file, CocoFault::Strangers { images: count, first, folder }));
        }
        let at = file.display();
        joined.notes.push(format!("{count} images of {at} are not in the source, such as {first}"));
    }
    joined.take_over(&mut listed);
    Ok(joined)
}

/// The objects of each image that have a box, by its name.
fn by_name(found: &Annotations) -> Result<BTreeMap<&str, Vec<&Object>>, CocoFault> {
    let mut of_image: HashMap<i64, Vec<&Object>> = HashMap::with_capacity(found.images.len());
    for image in &found.images {
        if of_image.insert(image.id, Vec::new()).is_some() {
            return Err(CocoFault::IdTwice(image.id));
        }
    }
    for (annotation, object) in found.annotations.iter().enumerate() {
        let image = object.image_id;
        let objects = of_image.get_mut(&image).ok_or(CocoFault::NoImage { annotation, image })?;
        match object.bbox {
            Some([.., width, height]) if width < 0.0 || height < 0.0 => {
                return Err(CocoFault::NoBox { annotation });
            }
            Some(_) => objects.push(object),
            None => {}
        }
    }
    let mut by_name = BTreeMap::new();
    for Image { id, file_name } in &found.images {
        let objects = of_image.remove(id).unwrap_or_default();
        if by_name.insert(file_name.as_str(), objects).is_some() {
            return Err(CocoFault::NameTwice(file_name.clone()));
        }
    }
    Ok(by_name)
}

/// A truth as programs write it: 0 or 1, or a bool.
fn zero_or_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let found = serde_json::Value::deserialize(deserializer)?;
    match (found.as_bool(), found.as_u64()) {
        (Some(truth), _) => Ok(truth),
        (None, Some(number @ (0 | 1))) => Ok(number == 1),
        _ => Err(D::Error::custom("iscrowd is to be 0, 1, false or true")),
    }
}

/// The contents of [`FIELDS`].
fn arrays(objects: &[&Object]) -> [Vec<u8>; 3] {
    let rows = objects.len();
    let boxes = objects.iter().filter_map(|object| object.bbox).flatten().flat_map(f32::to_le_bytes);
    let classes = objects.iter().flat_map(|object| object.category_id.to_le_bytes());
    let crowds = objects.iter().map(|object| u8::from(object.iscrowd));
    [
        array("<f4", &format!("({rows}, 4)"), boxes),
        array("<i8", &format!("({rows},)"), classes),
        array("|u1", &format!("({rows},)"), crowds),
    ]
}

/// A file of NumPy, version 1.0.
fn array(descr: &str, shape: &str, numbers: impl Iterator<Item = u8>) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    // Magic, version and the header's length come before it, and a line feed ends it.
    let len = (10 + header.len() + 1).next_multiple_of(NUMPY_ALIGN_BYTES) - 10;
    let len = u8::try_from(len).unwrap_or(u8::MAX);
    let mut file = b"\x93NUMPY\x01\0".to_vec();
    file.extend([len, 0]);
    file.extend(format!("{header:<width$}\n", width = usize::from(len) - 1).into_bytes());
    file.extend(numbers);
    file
}
