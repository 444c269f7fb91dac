//! `shade-load export` gives Prometheus what daemons count, takes no harm from other clients, and
//! the docs and the dashboard know its metrics.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shade_formats::control::socket_name;
use shade_tests::{Daemon, Packed, attach_to, eventually, program, root, spec, take_epoch};

/// `shade-load export` of one dataset's daemon.
struct Exporter {
    child: Child,
    /// What it said first.
    said: String,
}

impl Exporter {
    fn start(packed: &Packed, args: &[&str]) -> Self {
        let name = socket_name(rustix::process::geteuid().as_raw(), &packed.dataset);
        let socket = format!("@{}", String::from_utf8(name).unwrap());
        Self::of(&[&["--socket", &socket], args].concat())
    }

    fn of(args: &[&str]) -> Self {
        let mut command = Command::new(program("shade-load"));
        command.arg("export").args(args);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, said }
    }

    fn address(&self) -> &str {
        self.said.split("http://").nth(1).unwrap().split('/').next().unwrap()
    }

    /// Answer to these bytes, after which nothing more is sent.
    fn answer(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        // It may have refused by now.
        let _ = stream.write_all(request);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Values by name with labels, as they are written.
    fn scrape(&self) -> BTreeMap<String, f64> {
        let answer = self.answer(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("openmetrics-text"), "{head}");
        samples(body)
    }

    /// Ctrl-C.
    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads OpenMetrics text. What is no sample must be a comment, and its end must be there.
fn samples(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// The metrics of samples, without labels.
fn names(samples: &BTreeMap<String, f64>) -> BTreeSet<String> {
    samples.keys().map(|name| name.split('{').next().unwrap().to_owned()).collect()
}

/// The value of the only sample of a metric whose labels have this text.
fn value(samples: &BTreeMap<String, f64>, metric: &str, labels: &str) -> f64 {
    let of_metric = |name: &&String| name.split('{').next() == Some(metric) && name.contains(labels);
    let found: Vec<_> = samples.keys().filter(of_metric).collect();
    assert_eq!(found.len(), 1, "{metric} with {labels}: {found:?}");
    samples[found[0]]
}

/// The metrics that docs/monitoring.md has a row for, and the labels that it tells.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = fs::read_to_string(root().join("docs/monitoring.md")).unwrap();
    let ticked = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    let row = |line: &str| {
        let cells: Vec<_> = line.split('|').collect();
        let name = ticked(cells.get(1)?).first()?.clone();
        name.starts_with("shade_").then(|| (name, ticked(cells[3]).into_iter().collect()))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn a_scrape_tells_of_a_training_what_it_waits_for_and_the_docs_know_each_metric() {
    let packed = Packed::mixed(33);
    let job = "a \"job\"\\";
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"1%", &"--store", &"latency=20ms"]);
    let exporter = Exporter::start(&packed, &["--listen", "127.0.0.1:0"]);
    let training = attach_to(&packed.dataset, job, 0, spec(4, 1)).unwrap();
    take_epoch(&training, 0).unwrap();
    let before = exporter.scrape();
    take_epoch(&training, 1).unwrap();
    let mut now = BTreeMap::new();
    // Scrapes within 0.1 s get one answer.
    eventually("the second epoch is told", || {
        now = exporter.scrape();
        value(&now, "shade_accesses_total", "") >= 204.0
    });
    let labels = r#"job="a \"job\"\\""#;
    assert!(value(&before, "shade_accesses_total", labels) >= 102.0);
    // A scrape that comes late finds the second epoch read ahead.
    let read = |samples| value(samples, "shade_read_bytes_total", labels);
    assert!(read(&before) > 0.0 && read(&now) >= read(&before), "{now:?}");
    let waited = |samples| value(samples, "shade_wait_seconds_total", r#"rank="0",cause="storage""#);
    // The second epoch's first batches were filled before it began.
    assert!(waited(&before) > 0.0 && waited(&now) >= waited(&before), "{now:?}");
    assert!((value(&now, "shade_epoch", labels) - 1.0).abs() < 1e-9);
    assert!((value(&now, "shade_daemons", "") - 1.0).abs() < 1e-9);
    let process = format!("pid=\"{}\"", daemon.pid());
    assert!((value(&now, "shade_daemon_info", &process) - 1.0).abs() < 1e-9);
    assert!(value(&now, "shade_read_latency_seconds", "0.99") >= 0.02);

    // The page has each metric with its labels, and no other.
    let told = documented();
    assert_eq!(names(&now), told.keys().cloned().collect());
    for name in now.keys() {
        let labels = name.split_once('{').map_or("", |(_, labels)| labels);
        let keys: BTreeSet<_> = labels
            .split(&[',', '{'][..])
            .filter_map(|label| Some(label.split_once("=\"")?.0.to_owned()))
            .collect();
        assert_eq!(keys, told[name.split('{').next().unwrap()], "{name}");
    }

    // The daemon ends, and the exporter does not.
    drop(training);
    drop(daemon);
    eventually("the daemon is silent", || {
        (value(&exporter.scrape(), "shade_daemons_silent", "") - 1.0).abs() < 1e-9
    });
    exporter.stop();
}

#[test]
fn other_clients_are_refused_and_keep_nobody_from_being_answered() {
    let packed = Packed::mixed(3);
    let _daemon = Daemon::start(&packed.dataset, &[]);
    let exporter = Exporter::start(&packed, &["--listen", "127.0.0.1:0"]);
    // Three of the four threads wait for the rest of a request.
    let slow: Vec<_> = (0..3).map(|_| TcpStream::connect(exporter.address()).unwrap()).collect();
    slow.iter().for_each(|mut stream| stream.write_all(b"GET /metr").unwrap());
    let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 20_000]].concat();
    for (request, status) in [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".as_slice(), "404"),
        (b"POST /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "405"),
        (b"GET /metrics HTTP/1.1\r\n\r\n", "400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"),
        (b"nonsense\r\n\r\n", "400"),
        (b"", "400"),
    ] {
        let answer = exporter.answer(request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // A reset may come before the answer is read.
    let answer = exporter.answer(&long);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!((value(&exporter.scrape(), "shade_daemons", "") - 1.0).abs() < 1e-9);
    drop(slow);
    exporter.stop();
}

#[test]
fn a_file_for_node_exporter_is_always_whole() {
    let packed = Packed::mixed(3);
    let _daemon = Daemon::start(&packed.dataset, &[]);
    let folder = packed.beside("textfiles");
    fs::create_dir(&folder).unwrap();
    let args = ["--textfile", folder.to_str().unwrap(), "--interval", "20ms"];
    let exporter = Exporter::start(&packed, &args);
    let file = folder.join("shade_load.prom");
    let uptime = || {
        let samples = samples(&fs::read_to_string(&file).unwrap());
        value(&samples, "shade_daemon_uptime_seconds", "")
    };
    let first = uptime();
    eventually("it is written again", || uptime() > first);
    exporter.stop();
    let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, [file], "no part of a file is left");
}

#[test]
fn an_address_or_a_folder_that_cannot_be_used_is_said() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (args, expected) in [
        (["--listen", &address], "--listen"),
        (["--textfile", "/nowhere/at/all"], "/nowhere/at/all/shade_load.prom"),
    ] {
        let output = Command::new(program("shade-load")).arg("export").args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.contains(expected), "{said}");
    }
}

/// Every name that looks like a metric of ours in the queries of a dashboard.
fn queried(path: &Path) -> BTreeSet<String> {
    fn texts(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::String(text) => found.push(text.clone()),
            Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
            Value::Object(fields) => fields.values().for_each(|value| texts(value, found)),
            _ => {}
        }
    }
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let mut found = Vec::new();
    texts(&dashboard, &mut found);
    let words =
        found.iter().flat_map(|text| text.split(|letter: char| letter != '_' && !letter.is_alphanumeric()));
    words.filter(|word| word.starts_with("shade_")).map(str::to_owned).collect()
}

#[test]
fn each_metric_of_the_dashboard_is_exported() {
    let told = documented();
    let asked = queried(&root().join("docs/grafana-dashboard.json"));
    assert!(asked.len() > 8, "{asked:?}");
    let unknown: Vec<_> = asked.iter().filter(|name| !told.contains_key(*name)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn a_silent_daemon_keeps_its_last_figures_and_hides_no_other() {
    let (healthy, silent) = (Packed::mixed(33), Packed::mixed(33));
    let _daemon = Daemon::start(&healthy.dataset, &[]);
    let stopped = Daemon::start(&silent.dataset, &[]);
    // It asks all daemons, those of other tests among them.
    let exporter = Exporter::of(&["--listen", "127.0.0.1:0"]);
    let of = |packed: &Packed| format!("dataset=\"{}\"", packed.dataset.display());
    let up = |samples: &BTreeMap<String, f64>, packed| value(samples, "shade_daemon_up", &of(packed));
    eventually("both answer", || {
        let all = exporter.scrape();
        [&healthy, &silent].iter().all(|packed| {
            all.iter().any(|(name, up)| {
                name.starts_with("shade_daemon_up{") && name.contains(&of(packed)) && *up > 0.5
            })
        })
    });
    stopped.signal(Signal::STOP);
    let training = attach_to(&healthy.dataset, "lively", 0, spec(4, 1)).unwrap();
    take_epoch(&training, 0).unwrap();
    let mut now = BTreeMap::new();
    eventually("the healthy one's figures are told", || {
        now = exporter.scrape();
        now.iter().any(|(name, value)| {
            name.starts_with("shade_accesses_total{") && name.contains("lively") && *value >= 102.0
        })
    });
    assert!(up(&now, &healthy) > 0.5 && up(&now, &silent) < 0.5, "{now:?}");
    assert!(value(&now, "shade_cache_capacity_bytes", &of(&silent)) > 0.0, "as it told last");
    assert!(value(&now, "shade_daemons_silent", "") >= 1.0);
    stopped.signal(Signal::CONT);
    eventually("it answers again", || up(&exporter.scrape(), &silent) > 0.5);
}

#[test]
fn a_page_of_an_attacker_reads_nothing_by_a_name_that_leads_here() {
    let packed = Packed::mixed(3);
    let _daemon = Daemon::start(&packed.dataset, &[]);
    let exporter = Exporter::start(&packed, &["--listen", "127.0.0.1:0", "--host", "node-7.cluster"]);
    let port = exporter.address().rsplit(':').next().unwrap().to_owned();
    let answer =
        |host: &str| exporter.answer(format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    // The browser asks its page's own host, whose name the attacker has made lead to 127.0.0.1.
    for host in
        ["evil.example".to_owned(), format!("evil.example:{port}"), format!("localhost.evil.example:{port}")]
    {
        let got = answer(&host);
        assert!(got.starts_with("HTTP/1.1 421 ") && !got.contains("shade_"), "{host}: {got}");
    }
    for host in ["localhost", "127.0.0.1", "[::1]", "node-7.cluster"] {
        let got = answer(&format!("{host}:{port}"));
        assert!(got.starts_with("HTTP/1.1 200 ") && got.contains("shade_daemons"), "{host}: {got}");
    }
}
