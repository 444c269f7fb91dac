//! Tools that know nothing of shade read the shards: the tar crate, `tar`, Python's tarfile.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::support::{left_out, run_well, varied_image_folder};
use shade_formats::ShardId;
use shade_formats::shard::{member_name, record_extension};
use shade_pack::dataset::Dataset;

#[test]
fn every_reader_finds_the_same_members() {
    let temp = tempfile::tempdir().unwrap();
    let (source, out) = (temp.path().join("images"), temp.path().join("out"));
    varied_image_folder(&source);
    run_well(&[&"create", &source, &out, &"--compress", &"zstd", &"-q"]);
    let dataset = Dataset::open(&out).unwrap();
    let shard = dataset.shard_path(ShardId(0));
    let bytes = fs::read(&shard).unwrap();
    let mut expected = BTreeMap::new();
    let mut names = Vec::new();
    for (sample, entry) in &dataset.samples_by_shard()[0] {
        let at = usize::try_from(entry.offset).unwrap();
        let name = member_name(sample.0, &record_extension(&dataset.path_text(*sample), entry, false));
        expected.insert(name.clone(), bytes[at..at + entry.stored_len as usize].to_vec());
        names.push(name);
    }
    let mut archive = tar::Archive::new(&bytes[..]);
    let mut found = BTreeMap::new();
    for member in archive.entries().unwrap() {
        let mut member = member.unwrap();
        let mut record = Vec::new();
        std::io::copy(&mut member, &mut record).unwrap();
        found.insert(member.path().unwrap().to_str().unwrap().to_owned(), record);
    }
    assert!(found == expected);

    let listed = |command: &mut Command| match command.output() {
        Ok(output) => {
            assert!(output.status.success(), "{output:?}");
            assert!(output.stderr.is_empty(), "{output:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text.lines().collect::<Vec<_>>(), names);
        }
        Err(fault) => left_out(&format!("{command:?}: {fault}")),
    };
    listed(Command::new("tar").arg("tf").arg(&shard));
    let script = "import sys, tarfile\nfor member in tarfile.open(sys.argv[1]): print(member.name)";
    listed(Command::new("python3").args(["-c", script]).arg(&shard));
}
