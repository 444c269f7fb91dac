//! Documents: they come back as they were written, their canonical form does not change by
//! accident, and whatever a stranger sends is a job or an error.

use proptest::prelude::*;
use serde_json::{Value, json};
use shade_formats::Dtype;
use shade_job::{
    AutoAugmentPolicy, Buckets, Colour, Decode, Degrees, FieldKind, Fields, Filters, InTurn, Interpolation,
    JOB_BYTES_MAX, JobSpec, Normalize, OnError, Order, Pair, PlanSpec, Resampling, Sampler, Shear, Side,
    Tail, Transform,
};

fn any_of<T: Copy + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> + Clone {
    prop::sample::select(all)
}

fn share() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0_f64]
}

fn chance() -> impl Strategy<Value = f32> {
    prop_oneof![Just(0.1_f32), 0.0..=1.0_f32]
}

fn size() -> impl Strategy<Value = Pair<u32>> {
    [1_u32..300, 1_u32..300].prop_map(Pair)
}

/// What moves pixels.
fn places() -> impl Strategy<Value = Transform> {
    prop_oneof![
        (any::<[u8; 3]>(), 0.0..90.0_f32).prop_map(|(fill, most)| Transform::RandomRotation {
            degrees: Degrees([-most, most]),
            interpolation: Interpolation::Nearest,
            center: (most > 45.0).then_some([most.into(), -1.5]),
            fill: Colour(fill)
        }),
        (any::<[u8; 3]>(), 0.0..80.0_f32).prop_map(|(fill, most)| Transform::RandomAffine {
            degrees: Degrees([most, 90.0]),
            translate: Pair([0.0, 1.0]),
            scale: Pair([0.5, most.max(0.5)]),
            shear: Shear([0.0, most, -most, 0.0]),
            interpolation: Interpolation::Bilinear,
            fill: Colour(fill),
            center: (most > 40.0).then_some([0.25, most.into()])
        }),
        (share(), chance()).prop_map(|(distortion_scale, p)| Transform::RandomPerspective {
            distortion_scale,
            p,
            interpolation: Interpolation::Bicubic,
            fill: Colour::default()
        }),
        (1_u8..=10, -1_i8..=16, prop::option::of(any::<[u8; 3]>())).prop_map(
            |(severity, chain_depth, fill)| Transform::AugMix {
                severity,
                mixture_width: 3,
                chain_depth,
                alpha: 1.0,
                all_ops: severity > 5,
                interpolation: Interpolation::Nearest,
                fill: fill.map(Colour)
            }
        ),
        prop::option::of(any::<[u8; 3]>()).prop_map(|fill| Transform::ElasticTransform {
            alpha: Pair([50.0, 4.5]),
            sigma: Pair([0.0; 2]),
            interpolation: Interpolation::Bilinear,
            fill: fill.map(Colour)
        }),
        any::<[u8; 3]>().prop_map(|fill| Transform::AutoAugment {
            policy: AutoAugmentPolicy::Svhn,
            interpolation: Interpolation::Nearest,
            fill: Colour(fill)
        }),
        any::<[u8; 3]>().prop_map(|fill| Transform::TrivialAugmentWide {
            num_magnitude_bins: 31,
            interpolation: Interpolation::Bilinear,
            fill: Colour(fill)
        }),
    ]
}

fn pixels() -> impl Strategy<Value = Transform> {
    let leaf = prop_oneof![
        chance().prop_map(|p| Transform::RandomInvert { p }),
        (0.0..=256.0_f32, chance()).prop_map(|(threshold, p)| Transform::RandomSolarize { threshold, p }),
        (1_u8..=8, chance()).prop_map(|(bits, p)| Transform::RandomPosterize { bits, p }),
        (any::<[u8; 3]>(), chance()).prop_map(|(value, p)| Transform::RandomErasing {
            p,
            scale: [0.02, 0.33],
            ratio: [0.3, 3.3],
            value: Colour(value)
        }),
        places(),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let part = prop::collection::vec(inner, 0..3).prop_map(InTurn);
        prop_oneof![
            (part.clone(), chance()).prop_map(|(transforms, p)| Transform::RandomApply { transforms, p }),
            prop::collection::vec(part.clone(), 0..3)
                .prop_map(|transforms| Transform::RandomOrder { transforms }),
            prop::collection::vec(part, 1..3).prop_map(|transforms| {
                let p = Some(vec![0.5; transforms.len()]);
                Transform::RandomChoice { transforms, p }
            }),
        ]
    })
}

fn view() -> impl Strategy<Value = InTurn> {
    let framing = prop_oneof![
        size().prop_map(|size| vec![Transform::Cover { size }]),
        (size(), 1_u32..300).prop_map(|(size, short)| {
            vec![
                Transform::Resize { size: Side::Shorter(short), interpolation: Resampling::Bicubic },
                Transform::CenterCrop { size },
            ]
        }),
        (size(), 0_u32..9).prop_map(|(size, padding)| vec![Transform::RandomCrop { size, padding }]),
        (size(), share(), share()).prop_map(|(size, a, b)| vec![Transform::RandomResizedCrop {
            size,
            scale: [a.min(b).max(1e-3), a.max(b).max(1e-3)],
            ratio: [0.75, 4.0 / 3.0],
            interpolation: Filters::Either([Resampling::Lanczos, Resampling::Box])
        }]),
    ];
    (framing, prop::option::of(share()), prop::collection::vec(pixels(), 0..4)).prop_map(
        |(mut view, flip, pixels)| {
            view.extend(flip.map(|p| Transform::RandomHorizontalFlip { p }));
            view.extend(pixels);
            InTurn(view)
        },
    )
}

fn decode() -> impl Strategy<Value = Decode> {
    prop_oneof![
        Just(Decode::Raw),
        Just(Decode::Whole),
        prop::collection::vec(view(), 1..4).prop_map(Decode::Views)
    ]
}

fn fields() -> impl Strategy<Value = Fields> {
    let kinds = ["bytes", "text", "json", "float32[512]", "int64[]", "uint8[*,4]"];
    let kinds = kinds.map(|kind| kind.parse::<FieldKind>().ok());
    prop::sample::select(kinds.to_vec())
        .prop_map(|kind| kind.map_or_else(Fields::default, |kind| [("caption", kind)].into()))
}

fn normalize() -> impl Strategy<Value = Option<Normalize>> {
    prop::option::of(([-9.0..9.0_f64, -9.0..9.0, -9.0..9.0], [0.1..9.0_f64, 0.1..9.0, 0.1..9.0]))
        .prop_map(|numbers| numbers.map(|(mean, std)| Normalize { mean, std }))
}

prop_compose! {
    fn spec()(
        sampler in any_of(Sampler::ALL), order in any_of(Order::ALL), tail in any_of(Tail::ALL),
        on_error in any_of(OnError::ALL), decode in decode(), seed: u64, shares in [share(), share(), share()],
        factors in [1.0..1e300_f64, 1.0..9.0_f64], cover: u32, fields in fields(), dtype in any_of(&Dtype::ALL), normalize in normalize(), digests: [u64; 2], flags: [bool; 4],
        batch_size in 1_u32..9000, ring in 0_u64..1 << 20, sizes in prop::collection::vec([1..99_u32, 1..99], 0..4),
    ) -> JobSpec {
        JobSpec {
            plan: PlanSpec {
                sampler, order, seed, cover,
                rep: factors[0], echo: factors[1], hit_cap: shares[0], explore: shares[1], mix: shares[2],
                bucket: Buckets::new(&sizes).unwrap_or(Buckets::NONE), weights_digest: digests[0], subset_digest: digests[1], pace: flags[0], draw_ahead: flags[1],
                ..PlanSpec::default()
            },
            batch_size, tail, on_error, decode, channels_last: flags[2], exact: flags[3], dtype, normalize, fields, bad_max: shares[0],
            ring_bytes: ring * 4096,
            ..JobSpec::default()
        }
    }
}

/// JSON of any form, in words that documents have.
fn any_json() -> impl Strategy<Value = Value> {
    let word = any_of(&[
        "plan",
        "bucket",
        "decode",
        "size",
        "RandomCrop",
        "Resize",
        "RandomApply",
        "transforms",
        "p",
        "batch_size",
        "group",
        "none",
        "pads",
        "strata",
        "mix",
        "GaussianBlur",
        "kernel_size",
        "RandomChoice",
        "ColorJitter",
        "hue",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3..300_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 60, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..4)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    #[test]
    fn a_document_comes_back_and_its_canonical_form_is_its_own(spec in spec()) {
        let text = spec.to_text();
        let read = JobSpec::from_text(&text).unwrap();
        prop_assert_eq!(&read.to_text(), &text);
        prop_assert_eq!(read.validate(), spec.validate());
        prop_assert_eq!(read.plan.digest(), spec.plan.digest());
        prop_assert_eq!(JobSpec::from_value(spec.to_value()).unwrap().to_text(), text);
        prop_assert_eq!(read, spec);
    }

    #[test]
    fn what_strangers_send_is_a_job_or_an_error(json in any_json(), text in ".{0,60}") {
        for text in [json.to_string(), text, json!({"decode": json, "plan": json}).to_string()] {
            if let Ok(spec) = JobSpec::from_text(&text) {
                let _ = spec.validate();
                prop_assert_eq!(JobSpec::from_text(&spec.to_text()).unwrap(), spec);
            }
        }
        if let Value::Object(arguments) = json
            && let Ok(spec) = JobSpec::from_arguments(arguments, || Ok([8, 8]))
        {
            prop_assert_eq!(spec.validate(), Ok(()));
        }
    }
}

/// A change of it refuses all saved states and all trainers of before: then count the protocol and
/// the state's magic up.
#[test]
fn the_canonical_form_does_not_change_by_accident() {
    let default = r#"{"plan":{"sampler":"uniform","order":"shuffled","seed":0,"rep":1.0,"hit_cap":0.6,"cover":5,"explore":0.0,"echo":2.0,"gap":"auto","prune":0.5,"whole_from":0,"replacement":true,"pace":false,"draw_ahead":false,"strata":1,"mix":0.0,"parts":[],"epoch_length":"first","bucket":[],"weights_digest":0,"subset_digest":0,"group":0},"batch_size":1,"world_size":1,"ranks_here":0,"pool_scores":false,"tail":"drop","decode":null,"channels_last":false,"dtype":"uint8","normalize":null,"exact":false,"fields":{},"admit":true,"on_error":"raise","bad_max":0.01,"ring_bytes":0}"#;
    assert_eq!(JobSpec::default().to_text(), default);
    assert_eq!(JobSpec::from_text("{}").unwrap(), JobSpec::default());
    assert_eq!(PlanSpec::default().digest(), 1_251_418_270_495_400_952);
}

#[test]
fn every_parameter_of_the_plan_counts_for_its_digest_except_strata_and_gap() {
    let plan = PlanSpec::default();
    let value = serde_json::to_value(plan).unwrap();
    for parameter in PlanSpec::DECLARED {
        let mut other = value.clone();
        other[parameter.name] = match &value[parameter.name] {
            Value::Bool(flag) => (!flag).into(),
            Value::String(name) if name == "uniform" => "pads".into(),
            Value::String(name) if name == "auto" => 24.into(),
            Value::String(name) if name == "first" => "longest".into(),
            Value::Array(_) if parameter.name == "bucket" => json!([[7, 5]]),
            Value::Array(_) => json!([[7, 0.5]]),
            Value::String(_) => "spaced".into(),
            Value::Number(number) if number.is_f64() => (number.as_f64().unwrap() + 0.125).into(),
            number => (number.as_u64().unwrap() + 1).into(),
        };
        let other: PlanSpec = serde_json::from_value(other).unwrap();
        assert_ne!(other, plan, "{}", parameter.name);
        assert_eq!(
            other.digest() == plan.digest(),
            ["strata", "gap"].contains(&parameter.name),
            "{}",
            parameter.name
        );
    }
}

#[test]
fn a_document_has_a_limit() {
    let text = |bytes: usize| format!("{}{}", " ".repeat(bytes - 2), "{}");
    JobSpec::from_text(&text(JOB_BYTES_MAX)).unwrap();
    let error = JobSpec::from_text(&text(JOB_BYTES_MAX + 1)).unwrap_err();
    assert!(error.to_string().contains("65537, but must be at most 65536"), "{error}");
    let error = JobSpec::from_text(&format!("{{\"decode\":{}", "[".repeat(60_000))).unwrap_err();
    assert!(error.to_string().contains("recursion limit"), "{error}");
}

#[test]
fn the_example_of_the_readme_is_a_job() {
    let readme = include_str!("../README.md");
    let example = readme.split("```text\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let spec = JobSpec::from_text(example).unwrap();
    spec.validate().unwrap();
    assert_eq!(spec.output().unwrap().views()[0].flip, 0.5);
}
