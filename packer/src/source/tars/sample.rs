//! Makes a group of members a sample: its image, its label, its fields.

use shade_formats::limits::{FIELD_NAME_BYTES_MAX, NAME_BYTES_MAX, RECORD_BYTES_MAX};
use shade_formats::shard::field_name_is_valid;

use super::groups::{Group, GroupFault, Member};
use super::label::{LabelSource, TarLabelFault};
use super::names;
use crate::catalogue::{FieldContent, LimitFault, check_bytes, is_safe_path};
use crate::source::Selection;

#[derive(Debug, thiserror::Error)]
pub(super) enum NoSample {
    #[error(transparent)]
    Group(#[from] GroupFault),
    #[error(transparent)]
    Label(#[from] TarLabelFault),
    #[error(transparent)]
    Limit(#[from] LimitFault),
    #[error("its path '{0}' leads elsewhere: use relative names without '..'")]
    PathElsewhere(String),
    #[error("its path is longer than {NAME_BYTES_MAX} bytes")]
    PathBytes,
    #[error("its image: {0}")]
    Image(LimitFault),
    #[error("which of {0} is its image? Name that one without a second dot{keys}", keys = keys_end(.0))]
    Images(String),
    #[error("no image member; has: {0}{keys}", keys = keys_end(.0))]
    NoImage(String),
    #[error("{}", from.silence())]
    Silent { from: LabelSource },
    #[error(
        "no label: it has no {0}, where this dataset's labels are; --labels none packs samples without labels{keys}",
        keys = keys_end(.1)
    )]
    NoLabel(&'static str, String),
    #[error(
        "the extension {0:?} cannot name a field: use 1 to {FIELD_NAME_BYTES_MAX} of A-Z, a-z, 0-9, '_', '.' \
         and '-', with no dot at either end"
    )]
    FieldName(String),
    #[error("its {name} has {bytes} bytes; a field holds at most {RECORD_BYTES_MAX}")]
    FieldBytes { name: String, bytes: u64 },
}

/// Reminds of where keys end, if that may surprise: after a name such as `img.v1.0.jpg`.
fn keys_end(extensions: &str) -> String {
    let Some(dotted) = extensions.split(", ").find(|extension| extension.contains('.')) else {
        return String::new();
    };
    format!(
        ". A key ends at the first dot of a name: rename members if '{dotted}' was not meant to be an extension"
    )
}

#[derive(Debug)]
pub(super) struct TarSample<'a> {
    pub(super) path: String,
    /// Its label, as the tar has it; empty without labels.
    pub(super) label: &'a str,
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// The fields' names and contents, in the tar's order.
    pub(super) fields: Vec<(&'a str, FieldContent<'static>)>,
}

/// The sample that a group of the tar `stem` is; `None` if the selection leaves it out. Without a
/// `source` of labels it has none.
pub(super) fn make<'a>(
    group: &'a Group,
    stem: &str,
    source: Option<LabelSource>,
    selection: &Selection,
) -> Result<Option<TarSample<'a>>, NoSample> {
    let Some(image) = image(group, stem, selection)? else { return Ok(None) };
    if let Some(fault) = &group.fault {
        return Err(fault.clone().into());
    }
    let path = path(stem, &group.key, &image.extension);
    if !is_safe_path(&path) {
        return Err(NoSample::PathElsewhere(path));
    }
    if path.len() > NAME_BYTES_MAX {
        return Err(NoSample::PathBytes);
    }
    let bytes = check_bytes(image.bytes).map_err(NoSample::Image)?;
    let label = source.map_or(Ok(""), |source| label(group, source))?;
    let mut fields = Vec::new();
    for member in &group.members {
        let name = member.extension.as_str();
        if name == LabelSource::Cls.extension()
            || name == image.extension
            || selection.excludes_below(&self::path(stem, &group.key, name))
        {
            continue;
        }
        if !field_name_is_valid(name) {
            return Err(NoSample::FieldName(name.to_owned()));
        }
        let bytes = u32::try_from(member.bytes).ok().filter(|&bytes| u64::from(bytes) <= RECORD_BYTES_MAX);
        let too_long = || NoSample::FieldBytes { name: name.to_owned(), bytes: member.bytes };
        let bytes = bytes.ok_or_else(too_long)?;
        fields.push((name, FieldContent::Stored { offset: member.offset, bytes }));
    }
    Ok(Some(TarSample { path, label, offset: image.offset, bytes, fields }))
}

/// Where the label of a group is, if the group is a sample. A caption, unlike a label, may be a
/// `.txt` of any form.
pub(super) fn label_source(
    group: &Group,
    stem: &str,
    may_be_caption: bool,
    selection: &Selection,
) -> Option<LabelSource> {
    let is_sample = group.fault.is_none() && matches!(image(group, stem, selection), Ok(Some(_)));
    let speaks = |source: &LabelSource| {
        let is_caption = may_be_caption && *source == LabelSource::Txt;
        group.labels.iter().any(|(from, told)| from == source && (is_caption || !matches!(told, Ok(None))))
    };
    if is_sample { LabelSource::ALL.into_iter().find(speaks) } else { None }
}

fn extensions(group: &Group) -> String {
    let all: Vec<&str> = group.members.iter().map(|member| member.extension.as_str()).collect();
    all.join(", ")
}

/// A member's path in the dataset; without the tar's name if that is empty.
fn path(stem: &str, key: &str, extension: &str) -> String {
    let slash = if stem.is_empty() { "" } else { "/" };
    format!("{stem}{slash}{key}.{extension}")
}

/// The member that is the image; `None` if the selection leaves out what could be.
fn image<'a>(group: &'a Group, stem: &str, selection: &Selection) -> Result<Option<&'a Member>, NoSample> {
    let all = group.members.iter().filter(|member| names::is_image(&member.extension));
    let (excluded, images): (Vec<_>, Vec<_>) = all
        .map(|member| member.extension.as_str())
        .partition(|extension| selection.excludes_below(&path(stem, &group.key, extension)));
    if images.is_empty() {
        if !excluded.is_empty() {
            return Ok(None);
        }
        if let Some(fault) = &group.fault {
            return Err(fault.clone().into());
        }
        return Err(NoSample::NoImage(extensions(group)));
    }
    let chosen = names::choose_image(&images).ok_or_else(|| NoSample::Images(images.join(", ")))?;
    Ok(group.members.iter().find(|member| member.extension == chosen))
}

pub(super) fn label(group: &Group, source: LabelSource) -> Result<&str, NoSample> {
    match group.labels.iter().find(|(from, _)| *from == source) {
        Some((_, Ok(Some(label)))) => Ok(label),
        Some((_, Ok(None))) => Err(NoSample::Silent { from: source }),
        Some((_, Err(fault))) => Err(fault.clone().into()),
        None => Err(NoSample::NoLabel(source.extension(), extensions(group))),
    }
}
