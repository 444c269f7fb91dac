//! `shade-load report` and `trace --perfetto` show a recorded training as the trace has it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use shade_client::{JobSpec, PlanSpec};
use shade_formats::trace::{Header, Line, Snapshot};
use shade_job::Sampler;
use shade_tests::{
    Daemon, Packed, Recorder, all_ranks_of, copy, eventually, left_out, next, program, recorded_lines, spec,
};
use tempfile::TempDir;

/// A name that is HTML, should nobody escape it.
const JOB: &str = "<img src=x onerror=alert(1)> & \"it\"";
const EPOCHS: u32 = 3;
const RANKS: u32 = 2;

/// A recorded training: a slow store, two ranks, losses.
struct Run {
    folder: TempDir,
    file: PathBuf,
    header: Header,
    lines: Vec<Line>,
}

impl Run {
    /// That of all tests, in a folder of one of them.
    fn shared() -> Self {
        static RECORDED: OnceLock<String> = OnceLock::new();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("run.trace");
        fs::write(&file, RECORDED.get_or_init(recorded)).unwrap();
        let (header, lines) = recorded_lines(&file);
        Self { folder, file, header, lines }
    }

    /// A file of the test's own.
    fn beside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn snapshots(&self) -> Vec<&Snapshot> {
        let lines = self.lines.iter();
        lines
            .filter_map(|line| if let Line::Snapshot(snapshot) = line { Some(snapshot) } else { None })
            .collect()
    }
}

/// The text of a recording of such a training.
fn recorded() -> String {
    let packed = Packed::pngs(33, 16);
    let daemon = Daemon::start(&packed.dataset, &[&"--cache", &"20%", &"--store", &"latency=100ms,depth=4"]);
    let file = packed.beside("run.trace");
    let recorder = Recorder::start_of(JOB, &packed.dataset, &file);
    let plan = PlanSpec { sampler: Sampler::Pads, ..PlanSpec::default() };
    let spec = JobSpec { plan, ..spec(4, RANKS) };
    let reports = all_ranks_of(&packed.dataset, JOB, spec, |_, session| {
        let mut reports = 0;
        for epoch in 0..EPOCHS {
            session.start_epoch(epoch, 0).unwrap();
            while let Some(batch) = next(session).unwrap() {
                let batch = copy(&batch);
                let loss = |id: &u32| f32::from(u16::try_from(id * 37 % 101).unwrap());
                session.report(batch.id, &batch.ids.iter().map(loss).collect::<Vec<_>>()).unwrap();
                reports += 1;
            }
        }
        reports
    });
    let reports: usize = reports.into_iter().sum();
    eventually("the recorder has it all", || {
        fs::read_to_string(&file).unwrap().matches("\"report\"").count() >= reports
    });
    recorder.stop();
    drop(daemon);
    fs::read_to_string(file).unwrap()
}

/// Runs `shade-load` and returns what it logs.
fn shade_load(args: &[&str]) -> String {
    let output = Command::new(program("shade-load")).args(args).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    said
}

/// Chromium without its sandbox, which root does not have, and without a word to the network.
fn chromium(folder: &Path, args: &[&str]) -> Option<std::process::Output> {
    let own = folder.join("chromium");
    let user = format!("--user-data-dir={}", own.display());
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.arg("--hide-scrollbars").arg(user).args(args).stdin(Stdio::null());
    let output = command.output().ok()?;
    // Processes of its own write there for a moment after its end.
    eventually("the browser's folder is gone", || fs::remove_dir_all(&own).is_ok() || !own.exists());
    Some(output)
}

/// The cells of the table in a section of the page.
fn table(page: &str, id: &str) -> Vec<Vec<String>> {
    let section = page.split(&format!("<section id=\"{id}\">")).nth(1).unwrap();
    let body = section.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let cells = |row: &str| {
        row.split("<td>").skip(1).map(|cell| cell.split('<').next().unwrap().to_owned()).collect()
    };
    body.split("<tr>").skip(1).map(cells).collect()
}

fn number(cell: &str) -> f64 {
    cell.parse().unwrap_or_else(|_| panic!("{cell:?} is no number"))
}

fn assert_close(shown: &str, expected: f64, what: &str) {
    assert!(
        (number(shown) - expected).abs() <= 0.01 * expected.abs().max(1.0),
        "{what}: {shown}, not {expected}"
    );
}

#[test]
fn the_page_shows_in_a_browser_what_the_trace_has() {
    let run = &Run::shared();
    let page = run.beside("report.html");
    shade_load(&["report", run.file.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    let written = fs::read_to_string(&page).unwrap();
    let folder = page.parent().unwrap();
    let address = format!("file://{}", page.display());
    let dom = match chromium(folder, &["--dump-dom", &address]) {
        Some(output) => {
            let dom = String::from_utf8(output.stdout).unwrap();
            assert!(dom.contains("</html>"), "{}", String::from_utf8_lossy(&output.stderr));
            draws_the_waits(folder, &address);
            dom
        }
        None => {
            left_out("no chromium here: the page is read as it was written, and not drawn");
            written
        }
    };
    let first = dom.split("<h1").nth(1).unwrap().split("</h1>").next().unwrap();
    assert!(first.contains("&lt;img src=x onerror=alert(1)&gt; &amp; ") && !dom.contains("<img"), "{first}");
    assert!(first.contains(" % for storage</b>: ") && first.contains("shade-load doctor"), "{first}");
    for outside in ["http://", "https://", "<script", "<link", "@import", "url("] {
        assert!(!dom.contains(outside), "the page loads {outside}");
    }
    epochs_are_those_of(run, &dom);
    snapshots_are_those_of(run, &dom);
}

/// The browser draws the area of the waits in its colour.
fn draws_the_waits(folder: &Path, address: &str) {
    let picture = folder.join("report.png");
    let shot = format!("--screenshot={}", picture.display());
    chromium(folder, &["--window-size=1200,700", "--blink-settings=preferredColorScheme=1", &shot, address])
        .unwrap();
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(picture).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    let is_orange = |pixel: &&[u8]| pixel[0] > 190 && (70..150).contains(&pixel[1]) && pixel[2] < 80;
    let orange = pixels.chunks(info.color_type.samples()).filter(is_orange).count();
    assert!(orange > 2000, "{orange} pixels of the colour of waits for storage");
}

fn epochs_are_those_of(run: &Run, page: &str) {
    let (hits, losses, coverage) = (table(page, "hits"), table(page, "losses"), table(page, "coverage"));
    let mut ever: BTreeSet<u32> = BTreeSet::new();
    let samples = f64::from(run.header.samples);
    for epoch in 0..EPOCHS {
        let at = epoch as usize;
        let (mut ids, mut hit, mut reported) = (Vec::new(), 0, Vec::new());
        for line in &run.lines {
            match line {
                Line::Open(open) if open.epoch == epoch => {
                    ids.extend(&open.ids);
                    hit += open.served.chars().filter(|letter| "hj".contains(*letter)).count();
                }
                Line::Report(report) if report.epoch == epoch => {
                    reported.extend(report.losses.iter().flatten())
                }
                _ => {}
            }
        }
        let distinct: BTreeSet<u32> = ids.iter().copied().collect();
        ever.extend(&distinct);
        let accesses = ids.len() as f64;
        assert_close(&hits[at][0], f64::from(epoch), "epoch");
        assert_close(&hits[at][1], 100.0 * hit as f64 / accesses, "hits");
        let bound = number(&hits[at][2]);
        assert!(epoch == 0 || bound >= number(&hits[at][1]), "{hits:?}");
        // The bound of the algorithms' page, 1 - D/N + c, for a cache of a fifth of the bytes.
        let rough = 100.0 * (1.0 - distinct.len() as f64 / accesses + 0.2 * samples / accesses);
        assert!((bound - rough).abs() < 6.0, "{bound} beside {rough}");
        assert_close(&coverage[at][1], 100.0 * distinct.len() as f64 / samples, "distinct");
        assert_close(&coverage[at][2], 100.0 * ever.len() as f64 / samples, "ever seen");
        reported.sort_by(f32::total_cmp);
        assert_close(&losses[at][2], f64::from(reported[(reported.len() - 1) / 2]), "median loss");
    }
    assert_eq!(hits.len(), EPOCHS as usize);
}

fn snapshots_are_those_of(run: &Run, page: &str) {
    let snapshots = run.snapshots();
    let (first, last) = (snapshots[0], snapshots[snapshots.len() - 1]);
    assert!(snapshots.len() > 4, "{} snapshots", snapshots.len());
    let cache = table(page, "cache");
    let used = 100.0 * last.cache_used_bytes as f64 / last.cache_bytes as f64;
    assert_close(&cache[cache.len() - 1][1], used, "cache");
    let ready = table(page, "ready");
    // A rank may have left before the last snapshot.
    for snapshot in &last.by_rank {
        let column = 1 + snapshot.rank as usize;
        assert_close(&ready[ready.len() - 1][column], f64::from(snapshot.in_ring), "in the ring");
    }
    let seconds = (last.at_us - first.at_us) as f64 / 1e6;
    let rate = (last.bytes_read - first.bytes_read) as f64 / 1e6 / seconds;
    let facts = page.split("class=\"facts\">").nth(1).unwrap();
    let shown = facts.split(" MB/s read").next().unwrap().rsplit(' ').next().unwrap();
    assert_close(shown, rate, "MB/s");
    let latency = table(page, "latency");
    assert_close(&latency[latency.len() - 1][1], last.p50_us.unwrap() / 1e3, "p50");
    assert!(number(&latency[latency.len() - 1][1]) >= 100.0, "the store's latency");
}

#[test]
fn a_chrome_trace_has_each_batch_nested_and_in_order() {
    let run = &Run::shared();
    let file = run.beside("run.json");
    shade_load(&["trace", run.file.to_str().unwrap(), "--perfetto", file.to_str().unwrap()]);
    let trace: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let time = |event: &Value, name: &str| event[name].as_u64().unwrap();
    let mut lanes: BTreeMap<(u64, u64), Vec<&Value>> = BTreeMap::new();
    for event in events.iter().filter(|event| event["ph"] == "X") {
        lanes.entry((time(event, "pid"), time(event, "tid"))).or_default().push(event);
    }
    let (mut batches, mut read_us) = (0, 0);
    for slices in lanes.values() {
        let mut parent_ends = 0;
        let mut part_ends = 0;
        for slice in slices {
            let (from, to) = (time(slice, "ts"), time(slice, "ts") + time(slice, "dur"));
            if slice["name"].as_str().unwrap().starts_with("epoch ") {
                assert!(from >= parent_ends, "batches of a lane are after each other: {slice}");
                (parent_ends, part_ends) = (to, from);
                batches += 1;
            } else {
                assert!(from >= part_ends && to <= parent_ends, "parts are within their batch: {slice}");
                part_ends = to;
                read_us += if slice["name"] == "read" { to - from } else { 0 };
            }
        }
    }
    let done =
        run.lines.iter().filter_map(|line| if let Line::Done(done) = line { Some(done) } else { None });
    let (count, expected_us) =
        done.fold((0, 0), |(count, time), done| (count + 1, time + done.read_us - done.opened_us));
    assert_eq!((batches, read_us), (count, expected_us), "microseconds, as in the trace");
    let ranks: BTreeSet<u64> = lanes.keys().map(|lane| lane.0).collect();
    assert_eq!(ranks, (1..=u64::from(RANKS)).collect());
    // Counters, in order, and a rank that waited for storage.
    let mut last: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    let mut waited = 0.0;
    for event in events.iter().filter(|event| event["ph"] == "C") {
        let (name, at) = (event["name"].as_str().unwrap(), time(event, "ts"));
        let before = last.insert((time(event, "pid"), name), at).unwrap_or(0);
        assert!(at >= before, "{event}");
        waited += event["args"]["storage"].as_f64().unwrap_or(0.0);
    }
    assert!(waited > 0.0 && last.keys().any(|(_, name)| *name == "reads submitted"));
    let names: BTreeSet<_> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains("rank 0") && names.contains("rank 1"), "{names:?}");
}

#[test]
fn what_is_no_recording_is_said_and_nothing_is_replaced_by_a_chrome_trace() {
    let run = &Run::shared();
    let fails = |args: &[&str], code: i32, expected: &str| {
        let output = Command::new(program("shade-load")).args(args).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(code) && said.contains(expected), "{args:?}: {said}");
    };
    let other = run.beside("no.trace");
    fs::write(&other, "{\"shade_trace\":99}\n").unwrap();
    let (other, file) = (other.to_str().unwrap(), run.file.to_str().unwrap());
    fails(&["report", other, "-o", "/dev/null"], 1, "version 99");
    fails(&["trace", file, "--perfetto", "/dev/null"], 1, "File exists");
    fails(&["trace", file, "--out", "x", "--perfetto", "y"], 2, "is a recording");
    fails(&["trace", run.folder.path().to_str().unwrap(), "--perfetto", "y"], 2, "--out");
}

#[test]
fn a_recording_without_a_snapshot_is_shown_without_waits() {
    let run = &Run::shared();
    let text = fs::read_to_string(&run.file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("{\"snapshot\""));
    let without: String = lines.map(|line| line.to_owned() + "\n").collect();
    let file = run.beside("without.trace");
    fs::write(&file, without).unwrap();
    let page = run.beside("without.html");
    shade_load(&["report", file.to_str().unwrap(), "-o", page.to_str().unwrap()]);
    let written = fs::read_to_string(page).unwrap();
    assert!(written.contains("is not in this recording") && written.contains("Nothing of it was recorded"));
    assert_eq!(table(&written, "hits").len(), EPOCHS as usize);
}
