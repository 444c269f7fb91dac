//! Lists an ImageFolder in a bucket as `image_folder` lists one on a file system: same classes,
//! same samples, same order. A folder is what names have before a `/`; one without an object is
//! none.

use std::collections::BTreeMap;
use std::path::Path;

use shade_formats::limits::NAME_BYTES_MAX;

use super::image_folder::{
    FileFacts, ListedClass, LookFault, add_class, finish, is_image, no_class, without_classes,
};
use super::selection::Selection;
use super::tool_folders;
use crate::catalogue::{Bad, Catalogue, ListedFolder, Paths, SampleStore, check_bytes};
use crate::error::Error;
use crate::source_bucket::{ListedObject, SourceBucket};

/// Images of a class: each folder with its objects, both in order.
type Folders<'a> = BTreeMap<&'a str, Vec<&'a ListedObject>>;

/// Objects below one folder.
#[derive(Default)]
struct ClassObjects<'a> {
    folders: Folders<'a>,
    /// The name of an object that is no image.
    other: Option<&'a str>,
}

/// Lists the images of `listed`, what lies at `root`. With `has_classes` the first folder of a name
/// is its class.
///
/// # Errors
/// No class folder, or no image without classes.
pub(super) fn scan(
    bucket: &SourceBucket,
    listed: &[ListedObject],
    root: &Path,
    selection: &Selection,
    has_classes: bool,
) -> Result<Catalogue, Error> {
    let mut catalogue = Catalogue::new(vec![SampleStore::Bucket(bucket.clone())]);
    catalogue.folders.push(ListedFolder { path: String::new(), changed_ns: SourceBucket::state_of(listed) });
    let mut classes: BTreeMap<&str, ClassObjects<'_>> = BTreeMap::new();
    let mut images_at_root = 0;
    for object in listed.iter().filter(|object| !selection.excludes_below(&object.name)) {
        let (folder, name) = object.name.rsplit_once('/').unwrap_or(("", &object.name));
        let class = match object.name.split_once('/') {
            _ if !has_classes => "",
            Some((class, _)) => class,
            None => {
                images_at_root += usize::from(is_image(name.as_bytes()));
                continue;
            }
        };
        let class = classes.entry(class).or_default();
        if is_image(name.as_bytes()) {
            class.folders.entry(folder).or_default().push(object);
        } else {
            class.other.get_or_insert(name);
        }
    }
    if !has_classes {
        let all = classes.remove("").unwrap_or_default().listed(root);
        catalogue.notes.extend(tool_folders::note(&all.of_tools));
        return without_classes(catalogue, all, root);
    }
    if classes.is_empty() {
        return Err(Error::source(root, no_class(images_at_root)));
    }
    let mut of_tools = Vec::new();
    let names: Vec<String> = classes.keys().map(|class| (*class).to_owned()).collect();
    for (label, class) in (0u32..).zip(classes.into_values()) {
        of_tools.append(&mut add_class(&mut catalogue, class.listed(root), label, root));
    }
    finish(&mut catalogue, names, &of_tools, root);
    Ok(catalogue)
}

impl ClassObjects<'_> {
    fn listed(self, root: &Path) -> ListedClass {
        let (mut paths, mut found, mut bad, mut of_tools) =
            (Paths::default(), Vec::new(), Vec::new(), Vec::new());
        for (folder, objects) in &self.folders {
            if folder.split('/').any(tool_folders::is_of_a_tool) {
                of_tools.push((*folder).to_owned());
            }
            for object in objects {
                paths.push(&object.name);
                let facts = facts(object, root).map_err(|fault| Bad::new(&root.join(&object.name), fault));
                found.push(facts.map_err(|fault| bad.push(fault)).ok());
            }
        }
        let other = self.other.map(str::to_owned);
        ListedClass { folders: Vec::new(), of_tools, other, paths, found, bad }
    }
}

fn facts(object: &ListedObject, root: &Path) -> Result<FileFacts, LookFault> {
    if root.as_os_str().len() + object.name.len() >= NAME_BYTES_MAX {
        return Err(LookFault::LongPath);
    }
    let bytes = check_bytes(object.bytes)?;
    Ok(FileFacts { bytes, changed_ns: object.version.ok_or(LookFault::NoVersion)? })
}
