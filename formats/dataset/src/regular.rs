//! The one way to open a file by its name.
//!
//! A name may be that of a pipe, a device or a socket, which somebody put there or mistook for a
//! file. A plain open of a pipe waits for a writer, perhaps for ever. Here nothing waits: what is
//! no regular file is an error that says so. `clippy.toml` forbids the other ways.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, openat, statat,
};
use rustix::io::Errno;

/// Names of what a process has open already, such as `/dev/stdin` and the `/dev/fd/63` of a shell's
/// `<(...)`: they may be pipes.
const OPEN_ALREADY: [&str; 2] = ["/dev/", "/proc/"];

/// Opens the file at `path` for reading. Links are followed.
///
/// # Errors
/// It cannot be opened, or it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    open_at(CWD, path, OFlags::RDONLY).map(File::from)
}

/// Opens the file at `path`, which others may have put there: a link is an error.
///
/// # Errors
/// It cannot be opened, or it is a link or no regular file.
pub fn open_no_link(path: &Path, flags: OFlags) -> io::Result<File> {
    match open_at(CWD, path, flags | OFlags::NOFOLLOW) {
        Err(fault) if fault.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a link, not a regular file"))
        }
        opened => opened.map(File::from),
    }
}

/// Opens the file at `path` below `folder`. Its descriptor is not inherited by other programs.
///
/// # Errors
/// It cannot be opened, or it is no regular file.
pub fn open_at(folder: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    open_with(folder.as_fd(), path, flags, Mode::empty())
}

/// Opens the file at `path` for writing, and makes it if there is none. A link is an error.
///
/// # Errors
/// It cannot be opened or made, or it is a link or no regular file.
pub fn open_or_create(path: &Path, mode: Mode) -> io::Result<File> {
    open_with(CWD, path, OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW, mode).map(File::from)
}

/// Writes a file that a user has named, in place of what is in it, or what the process has open
/// already, such as `/dev/stdout`.
///
/// # Errors
/// It cannot be opened, made or written, or it is no regular file.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if is_open_already(path) {
        return File::from(openat(CWD, path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
            .write_all(bytes);
    }
    let mut file =
        File::from(open_with(CWD, path, OFlags::WRONLY | OFlags::CREATE, Mode::from_raw_mode(0o666))?);
    file.set_len(0)?;
    file.write_all(bytes)
}

fn open_with(folder: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let fd = match openat(folder, path, flags | OFlags::NONBLOCK, mode) {
        // Another process has a lease on the file and gives it up if the open waits.
        Err(Errno::AGAIN) if is_regular(&statat(folder, path, AtFlags::empty())?) => {
            openat(folder, path, flags, mode)?
        }
        // What a socket says, and a pipe that nobody reads.
        Err(Errno::NXIO) => return Err(not_regular(&statat(folder, path, AtFlags::empty())?)),
        // What a folder says to a direct open; a file says so where the file system has none.
        Err(Errno::INVAL) => {
            let found = statat(folder, path, AtFlags::empty())?;
            return Err(if is_regular(&found) { Errno::INVAL.into() } else { not_regular(&found) });
        }
        opened => opened?,
    };
    let found = fstat(&fd)?;
    if !is_regular(&found) {
        return Err(not_regular(&found));
    }
    wait_again(&fd)?;
    Ok(fd)
}

/// Opens `path` that a user has named for one reading from its beginning to its end: a regular
/// file, or what the process has open already, such as `/dev/stdin`.
///
/// # Errors
/// It cannot be opened, or it is a pipe that nobody may ever write to, a device or a folder.
pub fn open_to_read_once(path: &Path) -> io::Result<File> {
    if !is_open_already(path) {
        return open(path);
    }
    let fd = openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    wait_again(&fd)?;
    Ok(File::from(fd))
}

/// The bytes of the file at `path`.
///
/// # Errors
/// It cannot be opened or read, or it is no regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut bytes = Vec::new();
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// All bytes of what [`open_to_read_once`] opens.
///
/// # Errors
/// As those of opening; or it cannot be read.
pub fn read_once(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_to_read_once(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of the file at `path`.
///
/// # Errors
/// It cannot be opened or read, it is no regular file, or no UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Opens a folder, to work below it or to sync it.
///
/// # Errors
/// It cannot be opened, or it is no folder.
pub fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}

fn is_open_already(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    OPEN_ALREADY.iter().any(|folder| path.starts_with(folder.as_bytes()))
}

fn is_regular(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode).is_file()
}

fn not_regular(found: &Stat) -> io::Error {
    let what = match FileType::from_raw_mode(found.st_mode) {
        FileType::Fifo => "a pipe",
        FileType::Directory => "a folder",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "something else",
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, not a regular file"))
}

/// Reads wait again: io_uring fails reads of some file systems where they may not.
fn wait_again(fd: &OwnedFd) -> io::Result<()> {
    let flags = fcntl_getfl(fd)?;
    Ok(fcntl_setfl(fd, flags - OFlags::NONBLOCK)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn what_is_no_file_is_named_and_nothing_waits() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::write(at("file"), b"text").unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("pipe", at("link to a pipe")).unwrap();
        symlink("file", at("link")).unwrap();
        for (name, what) in [
            ("folder", "a folder"),
            ("pipe", "a pipe"),
            ("link to a pipe", "a pipe"),
            ("socket", "a socket"),
            ("/dev/null", "a device"),
        ] {
            let path = at(name);
            let faults = [
                open(&path).err(),
                read(&path).err(),
                read_to_string(&path).err(),
                (name != "/dev/null").then(|| open_to_read_once(&path).err()).flatten(),
                open_at(open_folder(temp.path()).unwrap(), &path, OFlags::RDONLY).err(),
            ];
            for fault in faults.into_iter().flatten() {
                assert_eq!(fault.to_string(), format!("it is {what}, not a regular file"), "{name}");
            }
        }
        let written = open_no_link(&at("pipe"), OFlags::WRONLY).unwrap_err();
        assert!(written.to_string().contains("a pipe"), "{written}");
        assert!(open_no_link(&at("link"), OFlags::RDONLY).is_err());
        assert_eq!(read(&at("link")).unwrap(), b"text");
        assert_eq!(read_to_string(&at("file")).unwrap(), "text");
        assert_eq!(open(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(open_folder(&at("pipe")).is_err() && open_folder(&at("file")).is_err());
        assert!(write(&at("pipe"), b"x").unwrap_err().to_string().contains("a pipe"));
        assert!(open_or_create(&at("pipe"), Mode::RUSR).is_err());
        write(&at("file"), b"new").unwrap();
        write(&at("made"), b"new").unwrap();
        assert_eq!((read(&at("file")).unwrap(), read(&at("made")).unwrap()), (b"new".into(), b"new".into()));
        let fd = open(&at("file")).unwrap();
        assert!(!fcntl_getfl(&fd).unwrap().contains(OFlags::NONBLOCK));
    }

    #[test]
    fn what_is_open_already_may_be_a_pipe() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"ids").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let mut text = String::new();
        open_to_read_once(Path::new(&path)).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "ids");
    }
}
