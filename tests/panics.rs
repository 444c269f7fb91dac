//! A panic on any thread of the daemon ends it, and every trainer is told why.

use std::time::Duration;

use shade_client::{ClientError, Next};
use shade_job::{Capacity, DaemonSpec};
use shade_load::daemon::{DaemonError, ServeConfig, serve};
use shade_tests::{Packed, attach, next, spec};

#[test]
fn every_session_and_whoever_started_the_daemon_are_told() {
    let packed = Packed::mixed(33);
    let config = ServeConfig {
        dataset: packed.dataset.clone(),
        settings: DaemonSpec {
            cache: Some(Capacity::Share(1.0)),
            // It answers after a minute, so trainers wait.
            store: Some("latency=1min".parse().unwrap()),
            workers: Some(1),
            ..DaemonSpec::default()
        },
        socket: None,
        is_private: false,
        replaces: false,
        started_by: None,
    };
    // The daemon runs in this process, so that the test can make one of its threads panic.
    let daemon = std::thread::spawn(move || serve(&config, |_| {}));
    let sessions = [attach(&packed.dataset, 0, spec(8, 2)), attach(&packed.dataset, 1, spec(8, 2))];
    for session in &sessions {
        session.start_epoch(0, 0).unwrap();
        assert!(matches!(session.next(Duration::ZERO).unwrap(), Next::Pending));
    }
    let lost = std::thread::Builder::new().name("shade-lost".into());
    lost.spawn(|| panic!("at a record")).unwrap().join().unwrap_err();
    for session in &sessions {
        let Err(ClientError::Failed { text }) = next(session).map(drop) else { panic!("not told why") };
        assert!(text.contains("shade-lost") && text.contains("at a record"), "{text}");
        assert!(matches!(next(session).map(drop), Err(ClientError::DaemonGone { .. })));
    }
    let error = daemon.join().unwrap().unwrap_err();
    assert!(matches!(error, DaemonError::Defect(_)) && error.exit_code() == 1, "{error}");
    assert!(error.to_string().contains("at a record"), "{error}");
}
