//! The wire format of a job's specification and its line in a trace never change by accident.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helper functions too"
)]

use shade_formats::control::{
    Framing, ImageSpec, JobSpec, Moved, OnError, Order, Output, PROTOCOL, PixelStep, PixelSteps, PlanSpec,
    Request, Sampler, Tail, Views,
};
use shade_formats::trace::{Job, Line};

/// All fields but `draw_ahead` differ from their defaults, and neighbours differ from each other.
fn spec() -> JobSpec {
    JobSpec {
        plan: PlanSpec {
            sampler: Sampler::Pads,
            order: Order::Spaced,
            seed: 0x0102_0304_0506_0708,
            rep: 1.5,
            hit_cap: 0.5,
            cover: 7,
            explore: 0.25,
            echo: 3.0,
            prune: 0.75,
            whole_from: 9,
            replacement: false,
            pace: true,
            draw_ahead: false,
            strata: 24,
            mix: 0.25,
            weights_digest: 0x1112_1314_1516_1718,
            subset_digest: 0x2122_2324_2526_2728,
            group: 0,
        },
        batch_size: 256,
        world_size: 8,
        ranks_here: 4,
        tail: Tail::Even,
        output: Output::Raw,
        admit: true,
        on_error: OnError::Substitute,
        bad_max: 0.125,
        ring_bytes: 1 << 20,
    }
}

fn hello(spec: JobSpec) -> Request {
    Request::Hello {
        protocol: PROTOCOL,
        samples: 3,
        content_id: 5,
        dataset: "/d".to_owned(),
        job: "j".to_owned(),
        or_free_name: false,
        rank: 1,
        settings: [("cache".to_owned(), "20%".to_owned())].into_iter().collect(),
        spec,
    }
}

/// The bytes of a Hello's specification, which is the last of it.
fn spec_bytes(spec: JobSpec, length: usize) -> String {
    let bytes = hello(spec).encode();
    assert_eq!(Request::decode(&bytes).unwrap(), hello(spec));
    bytes[bytes.len() - length..].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_raw_specification_has_the_123_bytes_of_control_md() {
    let expected = [
        "02030303",         // sampler, order, tail, on_error
        "0807060504030201", // seed
        "000000000000f83f", // rep
        "000000000000e03f", // hit_cap
        "000000000000d03f", // explore
        "0000000000000840", // echo
        "000000000000e83f", // prune
        "1817161514131211", // weights_digest
        "2827262524232221", // subset_digest
        "0000000000000000", // group
        "09000000",         // whole_from
        "07000000",         // cover
        "18000000",         // strata
        "00010001",         // replacement, pace, draw_ahead, admit
        "00010000",         // batch_size
        "08000000",         // world_size
        "04000000",         // ranks_here
        "0000100000000000", // ring_bytes
        "000000000000c03f", // bad_max
        "0040",             // mix
        "01",               // output: raw
    ];
    assert_eq!(spec_bytes(spec(), 123), expected.concat());
}

#[test]
fn decoded_and_ragged_specifications_go_on_with_their_images() {
    let ragged = JobSpec { output: Output::Ragged { channels_last: true }, ..spec() };
    assert!(spec_bytes(ragged, 124).ends_with("00400301"));
    let framing = Framing::Random { short: 9, padding: 4 };
    let images = ImageSpec {
        height: 2,
        width: 3,
        framing,
        flip: 0.5,
        flip_down: 0.25,
        channels_last: true,
        exact: true,
        ..ImageSpec::default()
    };
    let start = ["02000000", "03000000", "000000000000e03f", "03", "04", "09000000", "04000000"];
    let start = [&start[..], &["000000000000d03f"]].concat().concat();
    let decoded = |view: ImageSpec| JobSpec { output: view.into(), ..spec() };
    assert!(spec_bytes(decoded(images), 159).ends_with(&format!("00400201{start}00")));
    let grey = ImageSpec { framing: Framing::Stretch, exact: false, grey: true, ..images };
    let views = Views::new(&[images, grey]).unwrap();
    let other = ["02000000", "03000000", "000000000000e03f", "05", "02", "000000000000d03f", "00"].concat();
    let two = JobSpec { output: Output::Decoded(views), ..spec() };
    assert!(spec_bytes(two, 186).ends_with(&format!("00400202{start}00{other}")));
    let p = 0.5;
    let moved = Moved { bilinear: true, fill: [6, 7, 8] };
    let range = [1.0, 2.0];
    let jitter =
        PixelStep::ColorJitter { brightness: range, contrast: range, saturation: range, hue: [0.0, p] };
    for (step, bytes) in [
        (PixelStep::Apply { p, count: 9 }, "010000003f09"),
        (jitter, "020000803f000000400000803f000000400000803f00000040000000000000003f"),
        (PixelStep::Grayscale { p }, "030000003f"),
        (PixelStep::GaussianBlur { kernel: [3, 5], sigma: range }, "0403050000803f00000040"),
        (PixelStep::Solarize { threshold: 1.0, p }, "050000003f0000803f"),
        (PixelStep::Posterize { bits: 4, p }, "060000003f04"),
        (PixelStep::Invert { p }, "070000003f"),
        (PixelStep::Autocontrast { p }, "080000003f"),
        (PixelStep::Equalize { p }, "090000003f"),
        (PixelStep::Sharpness { factor: 2.0, p }, "0a0000003f00000040"),
        (
            PixelStep::Erasing { p, scale: range, ratio: range, value: [1, 2, 3] },
            "0b0000003f0000803f000000400000803f00000040010203",
        ),
        (PixelStep::RandAugment { operations: 2, magnitude: 9, bins: 31, moved }, "0c02091f01060708"),
        (PixelStep::TrivialAugmentWide { bins: 31, moved }, "0d1f01060708"),
        (PixelStep::Choice { count: 7 }, "0e07"),
        (PixelStep::Order { count: 5 }, "0f05"),
    ] {
        let length = 159 + bytes.len() / 2;
        let pixels = PixelSteps::new(&[step]).unwrap();
        let one = decoded(ImageSpec { pixels, ..images });
        assert!(spec_bytes(one, length).ends_with(&format!("{start}01{bytes}")), "{step:?}");
    }
}

#[test]
fn a_job_s_line_in_a_trace_stays_as_it_is() {
    let whole = JobSpec { ranks_here: 0, plan: PlanSpec { strata: 1, mix: 0.0, ..spec().plan }, ..spec() };
    let line = Line::Job(Job::new(51_200_999, true, &whole));
    let expected = concat!(
        r#"{"job":{"at_us":51200,"under_way":true,"batch_size":256,"world_size":8,"sampler":"pads","#,
        r#""order":"spaced","tail":"even","seed":72623859790382856,"rep":1.5,"hit_cap":0.5,"cover":7,"#,
        r#""explore":0.25,"echo":3.0,"prune":0.75,"whole_from":9,"replacement":false,"pace":true,"#,
        r#""draw_ahead":false,"weights_digest":1230066625199609624,"subset_digest":2387509390608836392}}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(line.encode()).unwrap(), expected);
    assert_eq!(Line::decode(expected.as_bytes()), Ok(line));
    let newer = expected.replace("\"cover\":7", "\"cover\":7,\"of_a_later_version\":[1]");
    assert!(Line::decode(newer.as_bytes()).is_ok(), "unknown fields are ignored");
    let older = expected
        .replace(r#""echo":3.0,"prune":0.75,"whole_from":9,"replacement":false,"#, "")
        .replace(r#","weights_digest":1230066625199609624,"subset_digest":2387509390608836392"#, "");
    let Ok(Line::Job(older)) = Line::decode(older.as_bytes()) else { panic!("{older}") };
    let PlanSpec { whole_from, replacement, weights_digest, subset_digest, .. } = older.plan;
    let later = (whole_from, replacement, weights_digest, subset_digest);
    assert_eq!(later, (0, true, 0, 0), "what an earlier version did not know is as by default");
    let one_of_several = Line::Job(Job::new(51_200_999, true, &spec()));
    let bytes = one_of_several.encode();
    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(text.contains(r#""world_size":8,"ranks_here":4,"sampler""#), "{text}");
    assert!(text.contains(r#""draw_ahead":false,"strata":24,"mix":0.25,"weights_digest""#), "{text}");
    assert_eq!(Line::decode(&bytes), Ok(one_of_several));
}
