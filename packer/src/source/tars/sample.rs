//! Makes a group of members a sample: its image, its label, its fields.

use shade_formats::limits::{NAME_BYTES_MAX, RECORD_BYTES_MAX};

use super::groups::{Group, Member};
use super::label::LabelSource;
use super::names;
use crate::catalogue::{FieldContent, check_bytes};
use crate::source::Selection;

/// A group that is in order.
#[derive(Debug)]
pub(super) struct Made<'a> {
    /// Its path in the dataset.
    pub(super) path: String,
    /// Its label, as the tar has it.
    pub(super) label: &'a str,
    /// Where its image begins.
    pub(super) offset: u64,
    /// Its image's length.
    pub(super) bytes: u32,
    /// The fields' names and contents, in the tar's order.
    pub(super) fields: Vec<(&'a str, FieldContent<'static>)>,
}

/// The sample that a group of the tar `stem` is; `None` if the selection leaves it out.
///
/// # Errors
/// What is wrong with it.
pub(super) fn make<'a>(
    group: &'a Group,
    stem: &str,
    source: LabelSource,
    selection: &Selection,
) -> Result<Option<Made<'a>>, String> {
    let Some(image) = image(group, stem, selection)? else { return Ok(None) };
    if let Some(fault) = &group.fault {
        return Err(fault.clone());
    }
    let path = path(stem, &group.key, &image.extension);
    if !names::is_safe(&path) {
        return Err(format!("its path '{path}' leads elsewhere: use relative names without '..'"));
    }
    if path.len() > NAME_BYTES_MAX {
        return Err(format!("its path is longer than {NAME_BYTES_MAX} bytes"));
    }
    let bytes = check_bytes(image.bytes).map_err(|fault| format!("its image: {fault}"))?;
    let label = label(group, source)?;
    let mut fields = Vec::new();
    for member in &group.members {
        let name = member.extension.as_str();
        let is_label = name == LabelSource::Cls.extension()
            || (source == LabelSource::Txt && name == source.extension());
        if is_label
            || name == image.extension
            || selection.excludes_below(&self::path(stem, &group.key, name))
        {
            continue;
        }
        names::check_field(name)?;
        let bytes = u32::try_from(member.bytes).ok().filter(|&bytes| u64::from(bytes) <= RECORD_BYTES_MAX);
        let bytes = bytes.ok_or_else(|| {
            format!("its {name} has {} bytes; a field holds at most {RECORD_BYTES_MAX}", member.bytes)
        })?;
        fields.push((name, FieldContent::Stored { offset: member.offset, bytes }));
    }
    Ok(Some(Made { path, label, offset: image.offset, bytes, fields }))
}

/// Where the label of a group is that is a sample, whatever its label.
pub(super) fn label_source(group: &Group, stem: &str, selection: &Selection) -> Option<LabelSource> {
    let is_sample = group.fault.is_none() && matches!(image(group, stem, selection), Ok(Some(_)));
    let speaks = |source: &LabelSource| {
        group.labels.iter().any(|(from, told)| from == source && !matches!(told, Ok(None)))
    };
    if is_sample { LabelSource::ALL.into_iter().find(speaks) } else { None }
}

fn path(stem: &str, key: &str, extension: &str) -> String {
    format!("{stem}/{key}.{extension}")
}

/// The member that is the image; `None` if the selection leaves out what could be.
fn image<'a>(group: &'a Group, stem: &str, selection: &Selection) -> Result<Option<&'a Member>, String> {
    let all = group.members.iter().filter(|member| names::is_image(&member.extension));
    let (excluded, images): (Vec<_>, Vec<_>) = all
        .map(|member| member.extension.as_str())
        .partition(|extension| selection.excludes_below(&path(stem, &group.key, extension)));
    if images.is_empty() {
        if !excluded.is_empty() {
            return Ok(None);
        }
        if let Some(fault) = &group.fault {
            return Err(fault.clone());
        }
        let others: Vec<&str> = group.members.iter().map(|member| member.extension.as_str()).collect();
        return Err(format!("no image member; has: {}", others.join(", ")));
    }
    let chosen = names::choose_image(&images)?;
    Ok(group.members.iter().find(|member| member.extension == chosen))
}

fn label(group: &Group, source: LabelSource) -> Result<&str, String> {
    let told = group.labels.iter().find(|(from, _)| *from == source);
    match told {
        Some((_, Ok(Some(label)))) => Ok(label),
        Some((_, Ok(None))) => Err(source.silence().to_owned()),
        Some((_, Err(fault))) => Err(fault.clone()),
        None => Err(format!("no label: it has no {}, where this dataset's labels are", source.extension())),
    }
}
