//! The wire format of every message never changes by accident.

use shade_formats::control::{PROTOCOL, Reply, Request};

/// Numbers whose bytes differ, so that fields that change places are seen.
const A: u32 = 0x0403_0201;
const B: u32 = 0x1413_1211;
const C: u32 = 0x2423_2221;
const LONG: u64 = 0x3837_3635_3433_3231;
const CONTENT: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

const A_BYTES: &str = "01020304";
const B_BYTES: &str = "11121314";
const C_BYTES: &str = "21222324";
const LONG_BYTES: &str = "3132333435363738";
const CONTENT_BYTES: &str = "000102030405060708090a0b0c0d0e0f";
/// "/d", "j" and "ab", each with its length before it.
const D_BYTES: &str = "020000002f64";
const J_BYTES: &str = "010000006a";
const AB_BYTES: &str = "020000006162";
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn requests() {
    let (dataset, job) = ("/d".to_owned(), "j".to_owned());
    let protocol = hex(&PROTOCOL.to_le_bytes());
    let hello = Request::Hello {
        protocol: PROTOCOL,
        samples: A,
        content_id: CONTENT,
        dataset: dataset.clone(),
        job: job.clone(),
        or_free_name: true,
        rank: B,
        survives: true,
        settings: "ab".to_owned(),
        document: "ab".to_owned(),
    };
    let bytes = [
        "01000100",
        &protocol,
        A_BYTES,
        CONTENT_BYTES,
        D_BYTES,
        J_BYTES,
        "01",
        B_BYTES,
        "01",
        AB_BYTES,
        AB_BYTES,
    ];
    assert_eq!(hex(&hello.encode()), bytes.concat());
    assert_eq!(Request::decode(&hello.encode()), Ok(hello));
    let (samples, content_id) = (A, CONTENT);
    let cases: [(Request, &[&str]); 22] = [
        (Request::TakeBase { loads: A, begun: B }, &["12000100", A_BYTES, B_BYTES]),
        (Request::TakeRedo, &["13000100"]),
        (
            Request::StartEpoch { generation: A, epoch: B, first_batch: C, has_taken: true },
            &["02000100", A_BYTES, B_BYTES, C_BYTES, "01"],
        ),
        (
            Request::Report { epoch: A, batch: B, losses: vec![1.0, -2.0] },
            &["03000100", A_BYTES, B_BYTES, "02000000", "0000803f", "000000c0"],
        ),
        (Request::ReportValidation { score: 1.5 }, &["04000100", "000000000000f83f"]),
        (Request::Stats, &["05000100"]),
        (Request::SaveState { epoch: A, batch: B }, &["06000100", A_BYTES, B_BYTES]),
        (Request::LoadState { strata: A }, &["07000100", A_BYTES]),
        (Request::Bye, &["08000100"]),
        (Request::Avoid { samples: vec![A, B] }, &["14000100", "02000000", A_BYTES, B_BYTES]),
        (Request::Replace { protocol: PROTOCOL }, &["15000100", &protocol]),
        (Request::Bound { why: "ab".to_owned() }, &["16000100", AB_BYTES]),
        (Request::ResizeAgain { cache_bytes: LONG }, &["17000100", LONG_BYTES]),
        (
            Request::Observe { protocol: PROTOCOL, samples, content_id, dataset, job },
            &["09000100", &protocol, A_BYTES, CONTENT_BYTES, D_BYTES, J_BYTES],
        ),
        (Request::Status { protocol: PROTOCOL }, &["0a000100", &protocol]),
        (Request::Stop { protocol: PROTOCOL, drain: true }, &["0b000100", &protocol, "01"]),
        (Request::Resize { protocol: PROTOCOL, cache: "ab".to_owned() }, &["0c000100", &protocol, AB_BYTES]),
        (Request::Log, &["0d000100"]),
        (
            Request::Held { protocol: PROTOCOL, samples, content_id, strata: B },
            &["0e000100", &protocol, A_BYTES, CONTENT_BYTES, B_BYTES],
        ),
        (Request::Seat, &["0f000100"]),
        (Request::TellScores { epoch: A }, &["10000100", A_BYTES]),
        (Request::TakeScores, &["11000100"]),
    ];
    for (request, bytes) in cases {
        assert_eq!(hex(&request.encode()), bytes.concat(), "{request:?}");
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
}

#[test]
fn replies() {
    let protocol = hex(&PROTOCOL.to_le_bytes());
    let text = || "ab".to_owned();
    let welcome = Reply::Welcome {
        protocol: PROTOCOL,
        pid: A,
        samples: B,
        classes: C,
        content_id: CONTENT,
        batches_per_epoch: A,
        payload_bytes: LONG,
        job: "j".to_owned(),
        settings: "ab".to_owned(),
    };
    let cases: [(Reply, &[&str]); 14] = [
        (Reply::Base { epoch: A, bytes: LONG }, &["0e000100", A_BYTES, LONG_BYTES]),
        (
            welcome,
            &[
                "01000100",
                &protocol,
                A_BYTES,
                B_BYTES,
                C_BYTES,
                CONTENT_BYTES,
                A_BYTES,
                LONG_BYTES,
                J_BYTES,
                AB_BYTES,
            ],
        ),
        (Reply::Refuse { code: 0x0201, text: text() }, &["02000100", "0102", AB_BYTES]),
        (Reply::Stats { json: text() }, &["03000100", AB_BYTES]),
        (Reply::State { bytes: LONG }, &["04000100", LONG_BYTES]),
        (
            Reply::StateLoaded { epoch: A, first_batch: B, batches: C },
            &["05000100", A_BYTES, B_BYTES, C_BYTES],
        ),
        (Reply::Failed { text: text() }, &["06000100", AB_BYTES]),
        (
            Reply::Observing { protocol: PROTOCOL, pid: A, samples: B, content_id: CONTENT },
            &["07000100", &protocol, A_BYTES, B_BYTES, CONTENT_BYTES],
        ),
        (Reply::Interrupted { text: text() }, &["08000100", AB_BYTES]),
        (Reply::Status { protocol: PROTOCOL, json: text() }, &["09000100", &protocol, AB_BYTES]),
        (Reply::Stopping { protocol: PROTOCOL, pid: A }, &["0a000100", &protocol, A_BYTES]),
        (
            Reply::Resized { protocol: PROTOCOL, before_bytes: LONG, cache_bytes: LONG + 1 },
            &["0b000100", &protocol, LONG_BYTES, "3232333435363738"],
        ),
        (
            Reply::Held { protocol: PROTOCOL, strata: A, bytes: LONG },
            &["0c000100", &protocol, A_BYTES, LONG_BYTES],
        ),
        (Reply::Taken, &["0d000100"]),
    ];
    for (reply, bytes) in cases {
        assert_eq!(hex(&reply.encode()), bytes.concat(), "{reply:?}");
        assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }
}
