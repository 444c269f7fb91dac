//! Exports until Ctrl-C: answers scrapes, and writes the file for the textfile collector of
//! node_exporter.

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, bounded};
use shade_dataset::on_stop_signal;

use super::cli::{Export, ExportError};
use super::encode::encode;
use super::hosts::Hosts;
use super::http;
use super::last::LastAnswers;

/// Where Prometheus finds it.
const PORT: u16 = 9432;
/// Scrapes that come closer after each other get the same answer: more looks are no use, and cost
/// the daemons time.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The wait where there is nothing to do before Ctrl-C.
const LONG: Duration = Duration::from_secs(3600);

/// The file's name: the collector takes files that end in `.prom`.
const FILE_NAME: &str = "shade_load.prom";

/// Exports until its user ends it.
///
/// # Errors
/// The address cannot be used, or the first file not be written.
pub fn export(args: &Export) -> Result<(), ExportError> {
    let (stop_in, stop) = bounded(1);
    let handler = move || {
        // A second signal finds the channel full: it ends anyway.
        let _ = stop_in.try_send(());
    };
    on_stop_signal(handler).map_err(ExportError::Start)?;
    let default = || args.textfile.is_none().then_some(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)));
    if let Some(address) = args.listen.or_else(default) {
        listen(address, args)?;
    }
    let interval = args.textfile.as_ref().map_or(LONG, |_| args.interval.max(LOOK_EVERY));
    let mut last = LastAnswers::of(args.socket.clone());
    if let Some(folder) = &args.textfile {
        write_file(folder, &metrics(&mut last).unwrap_or_default())?;
        tracing::info!("a file for node_exporter is in {}: Ctrl-C ends it", folder.display());
    }
    while stop.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        // A disk may be full for a while: the last file stays, and its age tells.
        if let Some(folder) = &args.textfile
            && let Some(text) = metrics(&mut last)
            && let Err(error) = write_file(folder, &text)
        {
            tracing::warn!("{error}");
        }
    }
    Ok(())
}

fn listen(address: SocketAddr, args: &Export) -> Result<(), ExportError> {
    let unusable = |source| ExportError::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(unusable)?;
    let address = listener.local_addr().map_err(unusable)?;
    let looks = Mutex::new((LastAnswers::of(args.socket.clone()), None::<(Instant, Option<String>)>));
    let answer = move || {
        let mut looks = looks.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, answered) = &mut *looks;
        if let Some((at, text)) = answered.as_ref()
            && at.elapsed() < LOOK_EVERY
        {
            return text.clone();
        }
        let text = metrics(last);
        *answered = Some((Instant::now(), text.clone()));
        text
    };
    let hosts = Hosts::new(&args.host);
    http::serve(&listener, hosts, answer).map_err(ExportError::Start)?;
    tracing::info!("metrics are at http://{address}/metrics: Ctrl-C ends it");
    Ok(())
}

/// The metrics of this moment; `None`, and a warning, if daemons cannot be looked for.
fn metrics(last: &mut LastAnswers) -> Option<String> {
    match last.ask() {
        Ok(told) => encode(told).ok(),
        Err(error) => {
            tracing::warn!("{error}");
            None
        }
    }
}

/// Writes the file into `folder`. A reader sees the one before, or the new one, each whole.
///
/// # Errors
/// It cannot be written.
fn write_file(folder: &Path, text: &str) -> Result<(), ExportError> {
    let path = folder.join(FILE_NAME);
    // Two exporters do not write into one file, and the collector does not take it.
    let part = folder.join(format!(".{FILE_NAME}.{}", std::process::id()));
    // What an exporter of this number has left; nobody else has the name.
    let _ = fs::remove_file(&part);
    let written = File::create_new(&part).and_then(|mut file| file.write_all(text.as_bytes()));
    let written = written.and_then(|()| fs::rename(&part, &path));
    written.map_err(|source| {
        let _ = fs::remove_file(&part);
        ExportError::Write { path, source }
    })
}
