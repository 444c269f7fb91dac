//! The same source and options give the same bytes with any threads, at any time and place.

use crate::support::{noise, run_well, tree, varied_image_folder, write};
use shade_pack::dataset::Dataset;

#[test]
fn one_job_and_four_jobs_write_the_same_bytes() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    varied_image_folder(&source);
    for compress in ["none", "zstd:5"] {
        let packed = ["1", "4"].map(|jobs| {
            let out = temp.path().join(format!("{compress}-{jobs}"));
            let args = ["--jobs", jobs, "--compress", compress, "--shard-size", "16KiB", "--quiet"];
            let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &source, &out];
            all.extend(args.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
            run_well(&all);
            tree(&out)
        });
        assert!(packed[0].len() > 5, "too few shards to tell: {:?}", packed[0].keys());
        assert!(packed[0] == packed[1], "{compress}: bytes differ");
    }
}

#[test]
fn the_seed_moves_records_but_not_ids() {
    let temp = tempfile::tempdir().unwrap();
    let source = temp.path().join("images");
    for number in 0..40u32 {
        write(&source.join(format!("{}/{number:02}.png", number % 3)), &noise(number.into(), 900));
    }
    let order = |args: &[&str]| {
        let out = temp.path().join(format!("out{}", args.concat()));
        let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"create", &source, &out, &"-q"];
        all.extend(args.iter().map(|arg| arg as &dyn AsRef<std::ffi::OsStr>));
        run_well(&all);
        let dataset = Dataset::open(&out).unwrap();
        let on_disk: Vec<String> = dataset
            .samples_by_shard()
            .concat()
            .iter()
            .map(|(sample, _)| dataset.path_text(*sample))
            .collect();
        let mut by_id: Vec<u32> =
            dataset.samples_by_shard().concat().iter().map(|(sample, _)| sample.0).collect();
        by_id.sort_unstable();
        assert_eq!(by_id, (0..40).collect::<Vec<_>>());
        on_disk
    };
    let kept = order(&["--no-shuffle"]);
    assert!(kept.is_sorted());
    let default = order(&["--seed", "0"]);
    assert_ne!(default, kept);
    assert_ne!(default, order(&["--seed", "1"]));
    assert_eq!(default, order(&[]));
}
