//! Answers GET /metrics, and nothing else: one request a connection, bounded in size and time.
//!
//! A few threads accept by turns, so one slow client does not keep the others, and no number of
//! clients makes more threads.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hosts::Hosts;

/// Threads, and so requests at a time. Prometheus sends one at a time.
const THREADS: usize = 4;
/// A request of Prometheus has some 300 bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Time for a request to arrive, and again for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before the next try where a connection cannot be accepted, as there are no descriptors.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What OpenMetrics asks for.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Answers from now on, on threads of its own.
///
/// # Errors
/// There is no thread to be had.
pub(super) fn serve(
    listener: &TcpListener,
    hosts: Hosts,
    metrics: impl Fn() -> Option<String> + Send + Sync + 'static,
) -> io::Result<()> {
    let (metrics, hosts) = (Arc::new(metrics), Arc::new(hosts));
    for number in 0..THREADS {
        let (listener, metrics, hosts) = (listener.try_clone()?, Arc::clone(&metrics), Arc::clone(&hosts));
        let answer = move || {
            loop {
                match listener.accept() {
                    // What goes wrong with a client is the client's matter.
                    Ok((client, _)) => drop(answer(client, &hosts, &*metrics)),
                    Err(_) => std::thread::sleep(RETRY_AFTER),
                }
            }
        };
        std::thread::Builder::new().name(format!("shade-export-{number}")).spawn(answer)?;
    }
    Ok(())
}

fn answer(mut client: TcpStream, hosts: &Hosts, metrics: &dyn Fn() -> Option<String>) -> io::Result<()> {
    let request = receive(&mut client)?;
    let (status, kind, body) = match judge(&request, hosts) {
        Ok(()) => match metrics() {
            Some(text) => ("200 OK", OPEN_METRICS, text),
            None => ("500 Internal Server Error", PLAIN, "the daemons cannot be asked\n".to_owned()),
        },
        Err((status, text)) => (status, PLAIN, format!("{text}\n")),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    );
    send(&mut client, (head + &body).as_bytes())?;
    client.shutdown(std::net::Shutdown::Write)
}

/// What is left of the time.
fn left(deadline: Instant) -> io::Result<Option<Duration>> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
}

/// The request's head, or as much of it as a request may have.
fn receive(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while request.len() < REQUEST_BYTES_MAX && !is_whole(&request) {
        client.set_read_timeout(left(deadline)?)?;
        match client.read(&mut part)? {
            0 => break,
            taken => request.extend_from_slice(part.get(..taken).unwrap_or_default()),
        }
    }
    Ok(request)
}

fn send(client: &mut TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !bytes.is_empty() {
        client.set_write_timeout(left(deadline)?)?;
        let sent = client.write(bytes)?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

/// Whether the empty line has come that ends a head.
fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n")
}

/// Whether it is a GET of the metrics; else the status to answer with, and why.
fn judge(request: &[u8], hosts: &Hosts) -> Result<(), (&'static str, &'static str)> {
    const BAD: &str = "400 Bad Request";
    if !is_whole(request) {
        return Err((BAD, "no HTTP request, or a longer one than is taken here"));
    }
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return Err((BAD, "no text in the first line")) };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err((BAD, "no HTTP request"));
    };
    if !version.starts_with("HTTP/1.") {
        return Err((BAD, "HTTP/1.1 is spoken here"));
    }
    match &hosts_of(request)[..] {
        // Browsers never leave it out.
        [] if version == "HTTP/1.0" => {}
        [host] if hosts.has(host) => {}
        [_] => {
            return Err((
                "421 Misdirected Request",
                "this host is not known here: shade-load export --host NAME",
            ));
        }
        _ => return Err((BAD, "one Host header is needed")),
    }
    if method != "GET" {
        return Err(("405 Method Not Allowed", "GET is answered, nothing else"));
    }
    // Parameters have no meaning here.
    if target.split('?').next() != Some("/metrics") {
        return Err(("404 Not Found", "the metrics are at /metrics"));
    }
    Ok(())
}

/// The values of all Host headers.
fn hosts_of(request: &[u8]) -> Vec<String> {
    let head = String::from_utf8_lossy(request);
    let headers = head.split("\r\n").skip(1).take_while(|line| !line.is_empty());
    let host = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim().to_owned())
    };
    headers.filter_map(host).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status(request: &[u8]) -> &'static str {
        judge(request, &Hosts::new(&[])).map_or_else(|(status, _)| status, |()| "200 OK")
    }

    #[test]
    fn a_page_whose_name_was_made_to_resolve_to_this_machine_reads_nothing() {
        for (host, expected) in [
            ("Host: localhost:9432\r\n", "200 OK"),
            ("hOST:127.0.0.1:9432\r\n", "200 OK"),
            ("Host: evil.example:9432\r\n", "421 Misdirected Request"),
            ("Host: \r\n", "421 Misdirected Request"),
            ("Host: localhost\r\nHost: evil.example\r\n", "400 Bad Request"),
            (" Host: localhost\r\n", "400 Bad Request"),
            ("X: a\r\n\r\nHost: localhost\r\n", "400 Bad Request"),
            ("", "400 Bad Request"),
        ] {
            let request = format!("GET /metrics HTTP/1.1\r\n{host}\r\n");
            assert_eq!(status(request.as_bytes()), expected, "{host}");
        }
        assert_eq!(status(b"GET /metrics HTTP/1.0\r\n\r\n"), "200 OK");
    }

    #[test]
    fn only_a_get_of_the_metrics_is_answered_with_them() {
        for (line, expected) in [
            ("GET /metrics HTTP/1.1", "200 OK"),
            ("GET /metrics?name=x HTTP/1.0", "200 OK"),
            ("GET / HTTP/1.1", "404 Not Found"),
            ("GET /metrics/../x HTTP/1.1", "404 Not Found"),
            ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
            ("GET /metrics", "400 Bad Request"),
            ("GET  /metrics HTTP/1.1", "400 Bad Request"),
            ("GET /metrics HTTP/1.1 more", "400 Bad Request"),
            ("GET /metrics HTTP/2", "400 Bad Request"),
            ("", "400 Bad Request"),
        ] {
            assert_eq!(status(format!("{line}\r\nHost: localhost\r\n\r\n").as_bytes()), expected, "{line}");
        }
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\n"), "400 Bad Request", "its end has not come");
        assert_eq!(status(b"GET /\xff HTTP/1.1\r\n\r\n"), "400 Bad Request");
    }

    proptest! {
        #[test]
        fn no_bytes_panic(request in prop::collection::vec(any::<u8>(), 0..200)) {
            let hosts = Hosts::new(&[]);
            let _ = judge(&request, &hosts);
            let _ = judge(&[request.as_slice(), b"\r\n\r\n"].concat(), &hosts);
        }
    }
}
