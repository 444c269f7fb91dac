//! Ends a command that would make less of its source than people expect: samples are bad, a class
//! has none, labels are captions.

use std::path::Path;

use crate::assemble::Packed;
use crate::catalogue::{Bad, Catalogue, EmptyClass};
use crate::config::{Accept, OnBad};
use crate::error::Error;
use crate::source::{EXTENSIONS, is_tar};

/// Classes that are named to people.
const NAMED_MAX: usize = 20;

/// Refuses what listing found, unless the user accepts it. The catalogues are those of all splits,
/// each with its source, and have one class table.
///
/// # Errors
/// A sample is bad; a class has no image in any split, or lost its last one; nothing is left;
/// labels seem to be captions.
pub(crate) fn refuse_listed(listed: &[(&Path, &Catalogue)], accept: Accept) -> Result<(), Error> {
    for (source, catalogue) in listed {
        refuse_bad(&catalogue.bad, accept.on_bad)?;
        if let Some(doubt) = &catalogue.doubt {
            return Err(Error::source(source, doubt));
        }
    }
    let counts: Vec<Vec<u32>> = listed.iter().map(|(_, catalogue)| catalogue.counts()).collect();
    let has_samples = |label: u32| counts.iter().any(|split| split.get(label as usize) > Some(&0));
    for (source, catalogue) in listed {
        let empty = catalogue.empty.iter().filter(|empty| !has_samples(empty.label));
        let empty: Vec<&EmptyClass> = empty.collect();
        // `list` names what is bad first.
        let waits = accept.on_bad == OnBad::List && !catalogue.bad.is_empty();
        if !accept.allow_empty && !waits && !empty.is_empty() {
            return Err(Error::source(source, no_file(&empty, catalogue)));
        }
        match accept.on_bad {
            OnBad::Skip => refuse_left(catalogue, &catalogue.bad, catalogue.len(), &catalogue.lost, accept)?,
            _ if catalogue.is_empty() && catalogue.bad.is_empty() => {
                return Err(Error::source(source, "it has no sample"));
            }
            OnBad::Fail | OnBad::List => {}
        }
    }
    Ok(())
}

/// Ends a run at the first bad file that listing found, unless such files are skipped. `list` still
/// reads everything.
pub(super) fn refuse_bad(bad: &[Bad], on_bad: OnBad) -> Result<(), Error> {
    match (on_bad, bad.first()) {
        (OnBad::Fail, Some(first)) => Err(Error::Bad { first: first.clone(), more: bad.len() - 1 }),
        _ => Ok(()),
    }
}

/// Refuses what packing left of a catalogue, if bad samples were skipped.
pub(crate) fn refuse_packed(catalogue: &Catalogue, packed: &Packed, accept: Accept) -> Result<(), Error> {
    match accept.on_bad {
        OnBad::Skip => refuse_left(catalogue, &packed.bad, packed.samples, &packed.lost, accept),
        OnBad::Fail | OnBad::List => Ok(()),
    }
}

/// Refuses a dataset without a sample, and classes that lost their last one; `bad` was skipped.
pub(crate) fn refuse_left(
    catalogue: &Catalogue,
    bad: &[Bad],
    samples: u32,
    lost: &[u32],
    accept: Accept,
) -> Result<(), Error> {
    let refuse = |fault| Err(Error::NothingLeft { bad: bad.to_vec(), samples, fault });
    if samples == 0 {
        return refuse("no sample is left, so nothing is made".to_owned());
    }
    if lost.is_empty() || accept.allow_empty {
        return Ok(());
    }
    let names = named(lost, catalogue);
    refuse(format!("no sample is left of the classes {names}; --allow-empty keeps classes without a sample"))
}

/// torchvision's words, and what to do.
fn no_file(empty: &[&EmptyClass], catalogue: &Catalogue) -> String {
    let labels: Vec<u32> = empty.iter().map(|empty| empty.label).collect();
    let (names, extensions) = (named(&labels, catalogue), EXTENSIONS.join(", "));
    let other = empty.iter().find_map(|empty| empty.other.as_ref().map(|other| (empty.label, other)));
    let remedy = match other {
        Some((label, other)) if is_tar(Path::new(other)) => {
            let name = named(&[label], catalogue);
            format!(
                "'{name}' holds tars, such as {other}: give that folder as SOURCE, or --splits for several"
            )
        }
        _ => {
            let such =
                other.map_or_else(String::new, |(_, other)| format!("There are files such as {other}. "));
            format!("{such}--exclude NAME leaves a folder out, --allow-empty keeps classes without a sample")
        }
    };
    format!("found no valid file for the classes {names}. Supported extensions are: {extensions}. {remedy}")
}

fn named(labels: &[u32], catalogue: &Catalogue) -> String {
    let name = |label: &u32| catalogue.classes.get(*label as usize).map_or("", String::as_str);
    let names: Vec<&str> = labels.iter().take(NAMED_MAX).map(name).collect();
    match labels.len().saturating_sub(NAMED_MAX) {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}
