//! Reads one tar's headers, and the members that labels are read from, and puts together the members of one key.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::Path;

use tar::{Archive, Entry, EntryType};

use super::label::{JSON_BYTES_MAX, LabelSource, Told};
use super::names;
use super::window::Window;
use crate::catalogue::Bad;
use crate::error::Error;
use crate::interrupt::Stop;

/// Most bytes read from one header on: its long name, or the label behind it, with room for both.
const READ_BYTES_MAX: u64 = 2 * JSON_BYTES_MAX;

/// What is looked at behind a tar's end mark. GNU tar fills up to a multiple of 10 KiB with zeros.
const TRAILER_BYTES: usize = 64 << 10;

/// Members of one key that follow one another: a sample, if all is well.
#[derive(Debug)]
pub(super) struct Group {
    /// Their name up to the first dot.
    pub(super) key: String,
    /// Where the first one's header begins.
    pub(super) at: u64,
    /// Those with content, in the tar's order.
    pub(super) members: Vec<Member>,
    /// What those say that were read.
    pub(super) labels: Vec<(LabelSource, Told)>,
    /// What is wrong with it, first of all.
    pub(super) fault: Option<String>,
}

/// A member of a group.
#[derive(Debug)]
pub(super) struct Member {
    /// The rest of its name, in lower case.
    pub(super) extension: String,
    /// Where its content begins.
    pub(super) offset: u64,
    /// Its length.
    pub(super) bytes: u64,
}

/// Gives each group of a tar to `take`, until that breaks. Labels are read from the members of `sources`.
///
/// Returns what is wrong with the tar and with members that belong to no group. When a tar cannot be read on, the group
/// at that point is left out: some of its members may be missing.
///
/// # Errors
/// [`Error::Interrupted`].
pub(super) fn each_group(
    tar: &Path,
    sources: &[LabelSource],
    stop: &Stop,
    take: &mut dyn FnMut(Group) -> ControlFlow<()>,
) -> Result<Vec<Bad>, Error> {
    let file = match open(tar) {
        Ok(file) => file,
        Err(fault) => return Ok(vec![Bad::new(tar, fault)]),
    };
    let mut walk = Walk { sources, stop, take, seen: HashMap::new(), group: None, faults: Vec::new() };
    let fault = match walk.tar(&file) {
        Ok(()) => walk.close(),
        Err(end) => Err(end),
    };
    match fault {
        Ok(()) | Err(End::Enough) => {}
        Err(End::Stopped(stopped)) => return Err(stopped),
        Err(End::Fault(fault)) => {
            let lost = walk.group.take().map(|group| format!("; sample '{}' is left out with it", group.key));
            walk.faults.push(format!("{fault}{}", lost.unwrap_or_default()));
        }
    }
    Ok(walk.faults.into_iter().map(|fault| Bad::new(tar, fault)).collect())
}

fn open(tar: &Path) -> Result<(File, u64), String> {
    let file = File::open(tar).map_err(|fault| format!("cannot be opened: {fault}"))?;
    let found = file.metadata().map_err(|fault| format!("cannot be looked at: {fault}"))?;
    if !found.is_file() {
        return Err("is not a regular file".to_owned());
    }
    if found.len() == 0 {
        return Err("an empty file, no tar".to_owned());
    }
    Ok((file, found.len()))
}

/// Why a walk does not go on.
enum End {
    /// `take` has what it wants.
    Enough,
    /// The user wants no more.
    Stopped(Error),
    /// The tar is not in order.
    Fault(String),
}

struct Walk<'a> {
    sources: &'a [LabelSource],
    stop: &'a Stop,
    take: &'a mut dyn FnMut(Group) -> ControlFlow<()>,
    /// Where each key's members begin.
    seen: HashMap<String, u64>,
    group: Option<Group>,
    faults: Vec<String>,
}

impl Walk<'_> {
    fn tar(&mut self, (file, file_bytes): &(File, u64)) -> Result<(), End> {
        let mut archive = Archive::new(Window::new(file, *file_bytes, READ_BYTES_MAX));
        let mut at = 0;
        let entries = archive.entries_with_seek().map_err(|fault| unreadable(file, at, &fault))?;
        for entry in entries {
            self.stop.check().map_err(End::Stopped)?;
            let entry = entry.map_err(|fault| unreadable(file, at, &fault))?;
            at = self.member(entry, *file_bytes)?;
        }
        let window = archive.into_inner();
        let at = window.at();
        if at > *file_bytes {
            let fault = format!("is cut short: it has {file_bytes} bytes, its last member ends at {at}");
            return Err(End::Fault(fault));
        }
        if window.has_ended() {
            let fault =
                format!("ends without a tar's end mark at byte {at}: it may have been cut short there");
            return Err(End::Fault(fault));
        }
        if let Some(rest) = rest_behind(file, at) {
            self.faults.push(format!(
                "goes on at byte {rest}, behind a tar's end mark, and that is not read; join tars with `tar --concatenate`"
            ));
        }
        Ok(())
    }

    /// Adds a member to the group it belongs to; gives where it ends.
    fn member<R: Read>(&mut self, mut entry: Entry<'_, R>, file_bytes: u64) -> Result<u64, End> {
        let kind = entry.header().entry_type();
        let (at, offset, bytes) = (entry.raw_header_position(), entry.raw_file_position(), entry.size());
        let end = offset.saturating_add(bytes);
        // What else there is (folders, volume labels, settings for all members) holds no sample.
        if !is_content(kind) {
            return Ok(if kind.is_dir() { offset } else { end });
        }
        let sparse = sparse_name(&mut entry);
        let name = sparse.clone().unwrap_or_else(|| entry.path_bytes().into_owned());
        let Ok(name) = String::from_utf8(name) else {
            self.faults.push(format!("the member at byte {at}: its name is not UTF-8: rename it"));
            return Ok(end);
        };
        let split = names::split(&name);
        if let Some((key, _)) = split {
            self.turn_to(key, at)?;
        }
        if kind_holds_data(kind) && end > file_bytes {
            return Err(End::Fault(format!(
                "is cut short: it has {file_bytes} bytes, its member '{name}' (at byte {at}) ends at {end}"
            )));
        }
        let Some((_, extension)) = split else { return Ok(end) };
        let extension = extension.to_ascii_lowercase();
        let fault = unusable(kind, sparse.is_some());
        let Some(group) = &mut self.group else { return Ok(end) };
        let twice = group.members.iter().any(|member| member.extension == extension);
        if let Some(what) = fault {
            group.fault.get_or_insert(format!("its member '{name}' (at byte {at}) is {what}"));
        } else if twice {
            group.fault.get_or_insert(format!("it has two members '.{extension}', the second at byte {at}"));
        }
        if fault.is_none()
            && let Some(source) = self.sources.iter().find(|source| source.extension() == extension)
        {
            let mut content = Vec::new();
            let read = entry.by_ref().take(source.bytes_max() + 1).read_to_end(&mut content);
            read.map_err(|fault| End::Fault(format!("cannot be read at byte {offset}: {fault}")))?;
            group.labels.push((*source, source.read(&content)));
        }
        group.members.push(Member { extension, offset, bytes });
        Ok(end)
    }

    /// Makes `key`'s group the one to which members are added.
    fn turn_to(&mut self, key: &str, at: u64) -> Result<(), End> {
        if self.group.as_ref().is_some_and(|group| group.key == key) {
            return Ok(());
        }
        self.close()?;
        let mut fault = None;
        match self.seen.entry(key.to_owned()) {
            Place::Occupied(first) => {
                fault = Some(format!(
                    "its key comes again; its first members are at byte {}. Keep a sample's members together: sort the tar by name",
                    first.get()
                ));
            }
            Place::Vacant(place) => {
                place.insert(at);
            }
        }
        self.group = Some(Group { key: key.to_owned(), at, members: Vec::new(), labels: Vec::new(), fault });
        Ok(())
    }

    fn close(&mut self) -> Result<(), End> {
        match self.group.take().map(&mut self.take) {
            Some(ControlFlow::Break(())) => Err(End::Enough),
            Some(ControlFlow::Continue(())) | None => Ok(()),
        }
    }
}

/// Whether such a member claims to be a file of the sample's.
fn is_content(kind: EntryType) -> bool {
    kind_holds_data(kind)
        || kind.is_gnu_sparse()
        || kind.is_hard_link()
        || kind.is_symlink()
        || kind.is_character_special()
        || kind.is_block_special()
        || kind.is_fifo()
}

fn kind_holds_data(kind: EntryType) -> bool {
    kind.is_file() || kind.is_contiguous()
}

/// Why the content of a member is not simply there, at its offset.
fn unusable(kind: EntryType, is_sparse: bool) -> Option<&'static str> {
    if kind.is_hard_link() || kind.is_symlink() {
        Some("a link: store the file itself (tar --dereference --hard-dereference)")
    } else if is_sparse || kind.is_gnu_sparse() {
        Some("stored sparse: pack the tar again without --sparse")
    } else if !kind_holds_data(kind) {
        Some("no file but a device or a pipe")
    } else {
        None
    }
}

/// The name of a file that is sparse in the PAX form. Its header looks like that of a plain file with another name,
/// whose content begins with a map of the holes.
fn sparse_name<R: Read>(entry: &mut Entry<'_, R>) -> Option<Vec<u8>> {
    let plain = entry.path_bytes().into_owned();
    let extensions = entry.pax_extensions().ok().flatten()?;
    let sparse = extensions.flatten().filter(|extension| extension.key_bytes().starts_with(b"GNU.sparse."));
    let mut found = None;
    for extension in sparse {
        let name = found.get_or_insert_with(|| plain.clone());
        if extension.key_bytes() == b"GNU.sparse.name" {
            *name = extension.value_bytes().to_vec();
        }
    }
    found
}

/// Says what is there instead of a header.
fn unreadable(file: &File, at: u64, fault: &io::Error) -> End {
    let mut magic = [0; 6];
    let is_read = at == 0 && file.read_exact_at(&mut magic, 0).is_ok();
    let compressed = match magic {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [b'B', b'Z', b'h', ..] => Some("bzip2"),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => Some("xz"),
        _ => None,
    };
    match compressed.filter(|_| is_read) {
        Some(with) => {
            End::Fault(format!("is compressed with {with}: decompress it, samples are read in place"))
        }
        None => End::Fault(format!("cannot be read on behind byte {at}: {fault}")),
    }
}

/// The first byte behind the end mark that is not zero.
fn rest_behind(file: &File, at: u64) -> Option<u64> {
    let mut rest = vec![0; TRAILER_BYTES];
    let count = file.read_at(&mut rest, at).ok()?;
    let found = rest.iter().take(count).position(|byte| *byte != 0)?;
    Some(at.saturating_add(found as u64))
}
