//! A job by the arguments of a training, as users give them: the names are those of Python's
//! `Loader` and `Plan`, and C has the same.

use serde_json::{Map, Value};
use shade_formats::limits::PAYLOAD_ALIGN_BYTES;

use crate::declared::with_field;
use crate::{Decode, JobSpec, PlanSpec, Preset, Sampler, SpecError, Tail};

/// Arguments of `Plan` that belong to the job and not to its plan.
const OF_THE_JOB: [&str; 3] = ["tail", "on_error", "bad_max"];

impl JobSpec {
    /// The job of these arguments: a document, and besides
    /// - `preset`: its sampler, order and group, where `plan` has none;
    /// - `train`: with false a validation, whose plan takes each sample once, in order;
    /// - `seed`: that of the plan;
    /// - `image_size`: for `decode`, a [`Cover`](crate::Transform::Cover);
    /// - `tail`, `on_error` and `bad_max` within `plan`. A tail is "even" without it.
    ///
    /// A null is no argument. The ring is rounded up to whole pages. With buckets, images are
    /// decoded in any case. `image_size` gives the height and width that all images have, which
    /// are asked for if a view of `decode` has no crop and there are no buckets.
    ///
    /// # Errors
    /// Names the argument.
    pub fn from_arguments(
        arguments: Map<String, Value>,
        image_size: impl FnOnce() -> Result<[u32; 2], String>,
    ) -> Result<Self, SpecError> {
        let mut given: Map<_, _> = arguments.into_iter().filter(|(_, value)| !value.is_null()).collect();
        let trains = taken(&mut given, "train")?.unwrap_or(true);
        let preset: Preset = taken(&mut given, "preset")?.unwrap_or_default();
        let size = given.remove("image_size");
        let mut spec = Self { tail: Tail::Even, admit: trains, ..Self::default() };
        let mut plan: Map<String, Value> = taken(&mut given, "plan")?.unwrap_or_default();
        plan.retain(|_, value| !value.is_null());
        for name in OF_THE_JOB {
            given.extend(plan.remove(name).map(|value| (name.to_owned(), value)));
        }
        plan.extend(given.remove("seed").map(|seed| ("seed".to_owned(), seed)));
        spec.plan = plan_of(preset, plan, trains)?;
        if let Some(size) = size {
            if given.contains_key("decode") {
                let text = "decode: image_size is given as well; give only one of the two";
                return Err(SpecError::told("decode", text.to_owned()));
            }
            given.insert("decode".to_owned(), serde_json::json!([{ "Cover": { "size": size } }]));
        }
        let bucket = spec.plan.bucket.sizes().next();
        let decode = given.remove("decode").or_else(|| bucket.map(|_| Value::Array(Vec::new())));
        if let Some(decode) = decode {
            spec.decode = Decode::try_from(decode)?.sized(bucket, image_size)?;
        } else {
            for name in ["channels_last", "exact", "normalize"] {
                if given.get(name).is_some_and(|given| *given != Value::Bool(false)) {
                    let text =
                        format!("{name}: raw records are delivered; give image_size or decode as well");
                    return Err(SpecError::told("decode", text));
                }
            }
        }
        for (name, value) in given {
            spec = with_field(&spec, Self::DECLARED, &name, &value)?;
        }
        let ring = spec.ring_bytes.checked_next_multiple_of(PAYLOAD_ALIGN_BYTES);
        spec.ring_bytes = ring.unwrap_or(u64::MAX);
        spec.validate()?;
        Ok(spec)
    }
}

/// The plan of a preset with these arguments.
fn plan_of(preset: Preset, given: Map<String, Value>, trains: bool) -> Result<PlanSpec, SpecError> {
    let mut plan = PlanSpec { sampler: preset.sampler(), order: preset.order(), ..PlanSpec::default() };
    if preset.is_group() {
        plan.group = crate::group_digest(preset.as_str());
    }
    let has_sampler = given.contains_key("sampler");
    for (name, value) in given {
        plan = with_field(&plan, PlanSpec::DECLARED, &name, &value)?;
    }
    if trains {
        return Ok(plan);
    }
    if has_sampler && plan.sampler != Sampler::Sequential {
        let text =
            format!("sampler: got {} in a validation, which takes each sample once, in order", plan.sampler);
        return Err(SpecError::told("sampler", text));
    }
    // The other arguments say how a training draws.
    let PlanSpec { seed, subset_digest, bucket, .. } = plan;
    Ok(PlanSpec { sampler: Sampler::Sequential, seed, subset_digest, bucket, ..PlanSpec::default() })
}

/// Takes an argument.
fn taken<T: serde::de::DeserializeOwned>(
    given: &mut Map<String, Value>,
    name: &'static str,
) -> Result<Option<T>, SpecError> {
    let value = given.remove(name).map(serde_json::from_value).transpose();
    value.map_err(|error| SpecError::told(name, format!("{name}: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{Order, group_digest};

    fn spec(arguments: Value) -> Result<JobSpec, String> {
        let Value::Object(arguments) = arguments else { panic!("{arguments}") };
        JobSpec::from_arguments(arguments, || Ok([32, 48])).map_err(|error| error.to_string())
    }

    #[test]
    fn a_preset_fills_in_what_the_plan_does_not_have() {
        let even = JobSpec { tail: Tail::Even, ..JobSpec::default() };
        assert_eq!(spec(json!({})).unwrap(), even);
        let found = spec(json!({
            "preset": "deepio", "seed": 7, "batch_size": 8, "image_size": [32, 24], "ring_bytes": 5000,
            "plan": {"sampler": "pads", "rep": null, "tail": "drop", "group": "sweep", "explore": 0.5},
        }));
        let error = found.unwrap_err();
        assert!(error.starts_with("group is rep, pace or an order"), "{error}");
        let found = spec(json!({
            "preset": "coordl-prep", "seed": 7, "batch_size": 8, "image_size": [32, 24], "ring_bytes": 5000,
            "plan": {"sampler": "pads", "rep": null, "tail": "drop", "explore": 0.5},
        }));
        let plan = PlanSpec {
            sampler: Sampler::Pads,
            order: Order::Shuffled,
            seed: 7,
            explore: 0.5,
            group: group_digest("coordl-prep"),
            ..PlanSpec::default()
        };
        let decode = Decode::cover(32, 24);
        let expected = JobSpec { plan, decode, batch_size: 8, ring_bytes: 8192, ..JobSpec::default() };
        assert_eq!(found.unwrap(), expected);
    }

    #[test]
    fn a_validation_takes_each_sample_once_whatever_says_how_a_training_draws() {
        for plan in [
            json!({"order": "hits_first", "rep": 3.0, "pace": true, "mix": 0.5, "draw_ahead": true}),
            json!({"strata": 8, "group": "sweep", "cover": 1, "explore": 0.5, "echo": 3.0}),
            json!({"sampler": "sequential"}),
        ] {
            let found = spec(json!({"train": false, "preset": "oneaccess", "plan": plan})).unwrap();
            let plan = PlanSpec { sampler: Sampler::Sequential, ..PlanSpec::default() };
            let expected = JobSpec { plan, admit: false, tail: Tail::Even, ..JobSpec::default() };
            assert_eq!(found, expected);
        }
        let error = spec(json!({"train": false, "plan": {"sampler": "pads"}})).unwrap_err();
        assert!(error.starts_with("sampler: got pads"), "{error}");
    }

    #[test]
    fn a_view_without_a_crop_has_the_images_size() {
        let flip = json!({"RandomHorizontalFlip": {}});
        let whole = json!({"Whole": {"size": [32, 48]}});
        for (given, expected) in [
            (json!([]), json!([[whole]])),
            (json!([flip, {"RandomInvert": {}}]), json!([[whole, flip, {"RandomInvert": {}}]])),
            (
                json!([[{"CenterCrop": {"size": 8}}], [flip]]),
                json!([[{"CenterCrop": {"size": 8}}], [whole, flip]]),
            ),
        ] {
            let with = |decode| spec(json!({ "decode": decode })).unwrap();
            assert_eq!(with(given), with(expected));
        }
        let Value::Object(arguments) = json!({"decode": flip}) else { unreachable!() };
        let error = JobSpec::from_arguments(arguments, || Err("they differ".to_owned())).unwrap_err();
        assert_eq!(error.to_string(), "decode: it has no Resize and no crop, and they differ");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (arguments, expected) in [
            (json!({"batch_size": 0}), "batch_size is 0, but must be 1 to 32768"),
            (json!({"batch_size": "8"}), "batch_size: got \"8\", expected a whole number"),
            (json!({"colour": 1}), "colour: there is no such field"),
            (json!({"preset": "belady"}), "preset: unknown variant `belady`"),
            (json!({"plan": {"hit-cap": 0.5}}), "hit-cap: there is no such field"),
            (json!({"plan": {"hit_cap": 1.5}}), "hit_cap is 1.5, but must be 0 to 1"),
            (json!({"plan": {"rep": 0.5}}), "rep is 0.5, but must be a finite number of at least 1"),
            (json!({"plan": []}), "plan: invalid type"),
            (json!({"image_size": 8, "decode": "none"}), "image_size is given as well"),
            (json!({"image_size": 0}), "decode: Cover: size is 0"),
            (json!({"exact": true}), "exact: raw records"),
            (
                json!({"dtype": "float16"}),
                "dtype: got \"float16\", but raw records are delivered; give image_size",
            ),
            (json!({"normalize": {"mean": [0], "std": [1]}}), "normalize: raw records"),
            (json!({"dtype": "float16", "decode": "none"}), "but images of their own sizes are bytes"),
            (
                json!({"dtype": "float64", "image_size": 8}),
                "dtype: got \"float64\", expected one of \"uint8\"",
            ),
            (
                json!({"image_size": 8, "normalize": {"mean": [0], "std": [1]}}),
                "normalize: got numbers with dtype \"uint8\"",
            ),
            (
                json!({"image_size": 8, "dtype": "float32", "normalize": {"mean": [0], "std": [1, 0, 1]}}),
                "normalize: got {\"mean\":[0],\"std\":[1,0,1]}, expected",
            ),
            (
                json!({
                    "decode": [{"CenterCrop": {"size": 8}}, {"Grayscale": {}}],
                    "dtype": "bfloat16", "normalize": {"mean": [0.5, 0.4, 0.3], "std": [1]},
                }),
                "normalize: an image of grey has one channel",
            ),
            (json!({"decode": 3}), "decode: got 3, expected transforms"),
            (
                json!({"decode": [[{"CenterCrop": {"size": 8}}], {"CenterCrop": {"size": 8}}]}),
                "beside a list",
            ),
            (
                json!({"decode": [[{"CenterCrop": {"size": 8}}], [{"Pad": {"padding": 1}}]]}),
                "view 1: decode: got [Pad], expected",
            ),
            (
                json!({"decode": [{"CenterCrop": {"size": 8}}, {"Solarise": {}}]}),
                "unknown variant `Solarise`",
            ),
            (json!({"decode": [{"CenterCrop": {}}]}), "CenterCrop: missing field `size`"),
            (json!({"decode": [{"CenterCrop": {"size": 8, "p": 1}}]}), "CenterCrop: unknown field `p`"),
        ] {
            let error = spec(arguments.clone()).unwrap_err();
            assert!(error.contains(expected), "{arguments}: {error}");
        }
    }
}
