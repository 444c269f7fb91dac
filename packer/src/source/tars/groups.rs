//! Reads one tar's headers, and the members that labels are read from, and puts together the
//! members of one key.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Place;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

use shade_dataset::regular;
use tar::{Archive, Entry, EntryType};

use super::label::{JSON_BYTES_MAX, LabelSource, Told};
use super::names;
use super::window::{TarBytes, TarObject, TarWindow};
use crate::catalogue::Bad;
use crate::error::Error;
use crate::interrupt::Stop;
use crate::source_bucket::{BucketTar, ObjectFault};

/// Most bytes read from one header to the next: its long name, or the label behind it, with room
/// for both.
pub(super) const READ_BYTES_MAX: u64 = 2 * JSON_BYTES_MAX;

/// Bytes that are looked at behind a tar's end mark. GNU tar fills up to a multiple of 10 KiB with
/// zeros.
const TRAILER_BYTES: usize = 64 << 10;

/// Members of one key that follow one another: a sample, if all is well.
#[derive(Debug)]
pub(super) struct Group {
    /// Their name up to the first dot.
    pub(super) key: String,
    /// Where the first one's header begins.
    pub(super) at: u64,
    /// Members with content, in the tar's order.
    pub(super) members: Vec<Member>,
    pub(super) labels: Vec<(LabelSource, Told)>,
    /// What is wrong with it first.
    pub(super) fault: Option<GroupFault>,
}

impl Group {
    /// Whether it has the member that a label may be in.
    pub(super) fn has(&self, source: LabelSource) -> bool {
        self.members.iter().any(|member| member.extension == source.extension())
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum GroupFault {
    #[error("its member '{name}' (at byte {at}) is {what}")]
    Member { name: String, at: u64, what: &'static str },
    #[error("it has two members '.{extension}', the second at byte {at}")]
    Twice { extension: String, at: u64 },
    #[error(
        "its key comes again; its first members are at byte {0}. Keep a sample's members together: sort the \
         tar by name"
    )]
    KeyAgain(u64),
}

#[derive(Debug, thiserror::Error)]
pub(super) enum TarFault {
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("cannot be looked at: {0}")]
    Stat(io::Error),
    #[error(transparent)]
    Object(ObjectFault),
    #[error("an empty file, no tar")]
    Empty,
    #[error("is cut short: it has {bytes} bytes, its last member ends at {end}")]
    Cut { bytes: u64, end: u64 },
    #[error("is cut short: it has {bytes} bytes, its member '{name}' (at byte {at}) ends at {end}")]
    CutMember { bytes: u64, name: String, at: u64, end: u64 },
    #[error("ends without a tar's end mark at byte {0}: it may have been cut short there")]
    NoEnd(u64),
    #[error(
        "goes on at byte {0}, behind a tar's end mark, and that is not read; join tars with `tar --concatenate`"
    )]
    GoesOn(u64),
    #[error("the member at byte {0}: its name is not UTF-8: rename it")]
    Name(u64),
    #[error("is compressed with {0}: decompress it, samples are read in place")]
    Compressed(&'static str),
    #[error("cannot be read on behind byte {at}: {fault}")]
    Header { at: u64, fault: io::Error },
    #[error("cannot be read at byte {at}: {fault}")]
    Label { at: u64, fault: io::Error },
    #[error("{fault}; sample '{key}' is left out with it")]
    Lost { fault: Box<TarFault>, key: String },
}

#[derive(Debug)]
pub(super) struct Member {
    /// The rest of its name, in lower case.
    pub(super) extension: String,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Where a tar is.
#[derive(Clone, Debug)]
pub(super) enum TarPlace {
    File(PathBuf),
    Object(BucketTar),
}

/// A tar, and how people are told of places in it.
#[derive(Clone, Debug)]
pub(super) struct TarFile {
    pub(super) place: TarPlace,
    /// What people know it by.
    pub(super) name: PathBuf,
    /// The place of its first byte in what people know.
    pub(super) base: u64,
}

/// Where the members of each key begin.
pub(super) type KeyPlaces = HashMap<String, u64>;

/// Gives each group of a tar to `take`, until that breaks. Labels are read from the members of
/// `sources`. Keys in `seen` have come before.
///
/// Returns what is wrong with the tar and with members that belong to no group. When a tar cannot
/// be read on, the group at that point is left out: some of its members may be missing.
pub(super) fn each_group(
    tar: &TarFile,
    sources: &[LabelSource],
    seen: &mut KeyPlaces,
    stop: &Stop,
    take: &mut dyn FnMut(Group) -> ControlFlow<()>,
) -> Result<Vec<Bad>, Error> {
    let (bytes, len) = match open(&tar.place, stop) {
        Ok(opened) => opened,
        Err(fault) => return Ok(vec![Bad::new(&tar.name, fault)]),
    };
    let base = tar.base;
    let mut walk = TarWalk { base, sources, stop, take, seen, group: None, faults: Vec::new() };
    let fault = match walk.tar(&bytes, len) {
        Ok(()) => walk.close(),
        Err(end) => Err(end),
    };
    // What the object met comes before what the tar's reader makes of it.
    let fault = match bytes.take_fault() {
        Some(fault) => Err(object_end(tar, fault, stop)),
        None => fault,
    };
    match fault {
        Ok(()) | Err(End::Enough) => {}
        Err(End::Stopped(stopped)) => return Err(stopped),
        Err(End::Fault(fault)) => walk.faults.push(match walk.group.take() {
            Some(group) => TarFault::Lost { fault: Box::new(fault), key: group.key },
            None => fault,
        }),
    }
    Ok(walk.faults.into_iter().map(|fault| Bad::new(&tar.name, fault)).collect())
}

/// The bytes of a tar, and their number.
fn open<'a>(tar: &'a TarPlace, stop: &'a Stop) -> Result<(TarBytes<'a>, u64), TarFault> {
    let (tar, bytes) = match tar {
        TarPlace::File(path) => {
            let file = regular::open(path).map_err(TarFault::Open)?;
            let bytes = file.metadata().map_err(TarFault::Stat)?.len();
            (TarBytes::File(file), bytes)
        }
        TarPlace::Object(tar) => (TarBytes::Object(TarObject::new(tar, stop)), tar.bytes),
    };
    if bytes == 0 { Err(TarFault::Empty) } else { Ok((tar, bytes)) }
}

/// How a walk ends whose object could not be read.
fn object_end(tar: &TarFile, fault: ObjectFault, stop: &Stop) -> End {
    match (stop.check(), fault.of_the_store()) {
        (Err(stopped), _) => End::Stopped(stopped),
        (Ok(()), Some(fault)) => {
            let (url, fault) = (tar.name.display().to_string(), fault.clone());
            End::Stopped(Error::Store { action: "read", url, fault })
        }
        (Ok(()), None) => End::Fault(TarFault::Object(fault)),
    }
}

/// Why a walk ends early.
enum End {
    Enough,
    /// The command ends.
    Stopped(Error),
    Fault(TarFault),
}

struct TarWalk<'a> {
    /// See [`TarFile::base`].
    base: u64,
    sources: &'a [LabelSource],
    stop: &'a Stop,
    take: &'a mut dyn FnMut(Group) -> ControlFlow<()>,
    seen: &'a mut KeyPlaces,
    group: Option<Group>,
    faults: Vec<TarFault>,
}

impl TarWalk<'_> {
    fn tar(&mut self, file: &TarBytes<'_>, file_bytes: u64) -> Result<(), End> {
        let mut archive = Archive::new(TarWindow::new(file, file_bytes, READ_BYTES_MAX));
        let mut at = 0;
        let entries = archive.entries_with_seek().map_err(|fault| unreadable(file, at, fault))?;
        for entry in entries {
            self.stop.check().map_err(End::Stopped)?;
            let entry = entry.map_err(|fault| unreadable(file, at, fault))?;
            at = self.member(entry, file_bytes)?;
        }
        let window = archive.into_inner();
        let at = window.at();
        if at > file_bytes {
            return Err(End::Fault(TarFault::Cut { bytes: file_bytes, end: at }));
        }
        if window.has_ended() {
            return Err(End::Fault(TarFault::NoEnd(at)));
        }
        self.faults.extend(rest_behind(file, at).map(TarFault::GoesOn));
        Ok(())
    }

    /// Adds a member to the group it belongs to; gives where it ends.
    fn member<R: Read>(&mut self, mut entry: Entry<'_, R>, file_bytes: u64) -> Result<u64, End> {
        let kind = entry.header().entry_type();
        let (at, offset, bytes) = (entry.raw_header_position(), entry.raw_file_position(), entry.size());
        let (at, end) = (self.base.saturating_add(at), offset.saturating_add(bytes));
        // Other members (folders, volume labels, settings for all members) hold no sample.
        if !is_content(kind) {
            return Ok(if kind.is_dir() { offset } else { end });
        }
        let sparse = sparse_name(&mut entry);
        let name = sparse.clone().unwrap_or_else(|| entry.path_bytes().into_owned());
        let Ok(name) = String::from_utf8(name) else {
            self.faults.push(TarFault::Name(at));
            return Ok(end);
        };
        let split = names::split(&name);
        if let Some((key, _)) = split {
            self.turn_to(key, at)?;
        }
        if kind_holds_data(kind) && end > file_bytes {
            return Err(End::Fault(TarFault::CutMember { bytes: file_bytes, name, at, end }));
        }
        let Some((_, extension)) = split else { return Ok(end) };
        let extension = extension.to_ascii_lowercase();
        let fault = unusable(kind, sparse.is_some());
        let Some(group) = &mut self.group else { return Ok(end) };
        let twice = group.members.iter().any(|member| member.extension == extension);
        if let Some(what) = fault {
            group.fault.get_or_insert(GroupFault::Member { name, at, what });
        } else if twice {
            group.fault.get_or_insert(GroupFault::Twice { extension: extension.clone(), at });
        }
        if fault.is_none()
            && let Some(source) = self.sources.iter().find(|source| source.extension() == extension)
        {
            let mut content = Vec::new();
            let read = entry.by_ref().take(source.bytes_max() + 1).read_to_end(&mut content);
            read.map_err(|fault| End::Fault(TarFault::Label { at: offset, fault }))?;
            group.labels.push((*source, source.read(&content)));
        }
        group.members.push(Member { extension, offset, bytes });
        Ok(end)
    }

    /// Begins the group of `key`, unless it is open already.
    fn turn_to(&mut self, key: &str, at: u64) -> Result<(), End> {
        if self.group.as_ref().is_some_and(|group| group.key == key) {
            return Ok(());
        }
        self.close()?;
        let mut fault = None;
        match self.seen.entry(key.to_owned()) {
            Place::Occupied(first) => fault = Some(GroupFault::KeyAgain(*first.get())),
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

/// Whether a member of this kind claims to be a file of the sample's.
pub(super) fn is_content(kind: EntryType) -> bool {
    kind_holds_data(kind)
        || kind.is_gnu_sparse()
        || kind.is_hard_link()
        || kind.is_symlink()
        || kind.is_character_special()
        || kind.is_block_special()
        || kind.is_fifo()
}

pub(super) fn kind_holds_data(kind: EntryType) -> bool {
    kind.is_file() || kind.is_contiguous()
}

/// Why the content of a member does not lie at its offset.
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

/// The name of a file that is sparse in the PAX form. Its header looks like that of a plain file
/// with another name, whose content begins with a map of the holes.
pub(super) fn sparse_name<R: Read>(entry: &mut Entry<'_, R>) -> Option<Vec<u8>> {
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
fn unreadable(file: &TarBytes<'_>, at: u64, fault: io::Error) -> End {
    let mut magic = [0; 6];
    let is_read = at == 0 && file.read_at(&mut magic, 0).is_ok_and(|count| count == magic.len());
    End::Fault(match compression(&magic).filter(|_| is_read) {
        Some(with) => TarFault::Compressed(with.name),
        None => TarFault::Header { at, fault },
    })
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Compressed {
    pub(super) name: &'static str,
    /// The program that decompresses it to standard output.
    pub(super) cat: &'static str,
}

/// How a file that begins so is compressed, if it is.
pub(super) fn compression(start: &[u8]) -> Option<Compressed> {
    let (name, cat) = match start {
        [0x1f, 0x8b, ..] => ("gzip", "zcat"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "zstdcat"),
        [b'B', b'Z', b'h', ..] => ("bzip2", "bzcat"),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("xz", "xzcat"),
        _ => return None,
    };
    Some(Compressed { name, cat })
}

/// The first byte behind the end mark that is not zero.
fn rest_behind(file: &TarBytes<'_>, at: u64) -> Option<u64> {
    let mut rest = vec![0; TRAILER_BYTES];
    let count = file.read_at(&mut rest, at).ok()?;
    let found = rest.iter().take(count).position(|byte| *byte != 0)?;
    Some(at.saturating_add(found as u64))
}
