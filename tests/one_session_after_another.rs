//! A rank that leaves and attaches again is served at once, with the same job or another.

use shade_client::{Options, Session};
use shade_tests::{Daemon, Packed, spec, take_epoch, try_attach};

#[test]
fn a_loader_that_is_closed_makes_room_for_the_next_at_once() {
    let packed = Packed::mixed(5);
    let daemon = Daemon::start(&packed.dataset, &[]);
    for round in 0..100 {
        // A loader for training, then one for validation: the same rank, another batch size.
        let session = try_attach(&packed.dataset, 0, spec(4 + round % 2, 1))
            .unwrap_or_else(|error| panic!("round {round}: {error}"));
        if round % 3 == 0 {
            session.start_epoch(0, 0).unwrap();
        } else {
            assert_eq!(take_epoch(&session, round).unwrap().len(), session.batches_per_epoch() as usize);
        }
    }
    drop(daemon);
}

#[test]
fn the_dataset_can_be_named_by_its_index_on_both_sides() {
    let packed = Packed::mixed(5);
    let index = packed.dataset.join(shade_formats::index::INDEX_FILE);
    for served in [&packed.dataset, &index] {
        let daemon = Daemon::start(served, &[]);
        for asked in [&packed.dataset, &index] {
            let options = Options { timeout: std::time::Duration::from_secs(60), ..Options::default() };
            let session = Session::connect(asked, "default", 0, spec(4, 1), &options);
            let session = session.unwrap_or_else(|error| {
                panic!("{} asked of the daemon of {}: {error}", asked.display(), served.display())
            });
            assert_eq!(session.samples(), 18);
        }
        drop(daemon);
    }
}
