//! ls prints a line for each sample, with all that the index knows on demand, and stops when its
//! reader has gone.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::{
    noise, program, run, run_well, stderr_of, torchvision_order, varied_image_folder, write,
};
use serde_json::Value;
use shade_formats::SampleId;
use shade_pack::dataset::Dataset;

#[test]
fn samples_come_in_the_order_of_their_ids() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    varied_image_folder(&source);
    run_well(&[&"create", &source, &out, &"--shard-size", &"20kB", &"--compress", &"zstd", &"-q"]);
    let expected: Vec<String> = torchvision_order(&source)
        .into_iter()
        .enumerate()
        .map(|(id, (path, label))| format!("{id}\t{label}\t{path}"))
        .collect();
    let lines: Vec<String> = run_well(&[&"ls", &out]).lines().map(str::to_owned).collect();
    assert_eq!(lines, expected);

    let dataset = Dataset::open(&out).unwrap();
    for (id, line) in (0u32..).map(SampleId).zip(run_well(&[&"ls", &out, &"--long", &"--json"]).lines()) {
        let row: Value = serde_json::from_str(line).unwrap();
        let entry = dataset.index.entry(id).unwrap();
        assert_eq!((&row["id"], &row["path"]), (&id.0.into(), &dataset.path_text(id).into()));
        assert_eq!((&row["offset"], &row["raw_bytes"]), (&entry.offset.into(), &entry.raw_len.into()));
        assert_eq!(row["shard"], dataset.index.shard(entry.shard).unwrap().name);
        assert_eq!((&row["key"], &row["fields_bytes"]), (&id.0.into(), &0.into()));
    }
    let long = run_well(&[&"ls", &out, &"--long"]);
    let flat = long.lines().find(|line| line.contains("bee/flat.bmp")).unwrap();
    assert!(flat.contains("\tzstd\tbmp\t") && flat.contains("\t9014\t"), "{flat}");
    assert!(long.lines().all(|line| line.split('\t').count() == 13));
    let short: Value =
        serde_json::from_str(run_well(&[&"ls", &out, &"--json"]).lines().next().unwrap()).unwrap();
    assert_eq!(short.as_object().unwrap().len(), 3);
}

#[test]
fn classes_and_shards_are_chosen() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..20u64 {
        write(&source.join(format!("{}/{number:02}.png", number % 2)), &noise(number, 3000));
    }
    write(&source.join("1/two\nlines\tand a tab.png"), b"x");
    run_well(&[&"create", &source, &out, &"--shard-size", &"12KiB", &"-q"]);
    let odd = run_well(&[&"ls", &out, &"--class", &"1"]);
    assert!(odd.lines().count() == 11 && odd.lines().all(|line| line.split('\t').nth(1) == Some("1")));
    assert!(odd.contains("\t1/two\\nlines\\tand a tab.png\n"), "{odd}");
    let dataset = Dataset::open(&out).unwrap();
    let in_two = run_well(&[&"ls", &out, &"--shard", &"2"]);
    assert_eq!(in_two.lines().count(), dataset.samples_by_shard()[2].len());
    for (args, say) in [(["--class", "2"], "no class '2'"), (["--shard", "99"], "no shard 99")] {
        let output = run(&[&"ls", &out, &args[0], &args[1]]);
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr_of(&output).contains(say));
    }
}

#[test]
fn a_reader_that_has_enough_ends_it_quietly() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    for number in 0..3000u64 {
        write(&source.join(format!("class with quite a long name/{number:06}.png")), b"x");
    }
    run_well(&[&"create", &source, &out, &"--no-sync", &"-q"]);
    let mut child =
        program(&[&"ls", &out, &"--long"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("0\t0\tclass"));
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
