//! Floats instead of bytes: what a document says of them, and their arithmetic's numbers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use shade_formats::Dtype;

use crate::SpecError;

/// Colours of a pixel.
const COLOURS: usize = 3;
/// Largest mean and deviation.
const NUMBER_MAX: f64 = 1e9;
/// Smallest deviation. Less than that is 0 in single precision, or nearly.
const STD_MIN: f64 = 1e-30;

/// The mean and the deviation of each colour, for images from 0 to 1: `{"mean": [0.5], "std":
/// [0.2, 0.2, 0.25]}`. One number is for all colours.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value")]
pub struct Normalize {
    /// Taken from red, green and blue.
    pub mean: [f64; COLOURS],
    /// Red, green and blue are divided by it afterwards.
    pub std: [f64; COLOURS],
}

impl TryFrom<Value> for Normalize {
    type Error = SpecError;

    fn try_from(value: Value) -> Result<Self, SpecError> {
        let expected = format!(
            "{{\"mean\": numbers, \"std\": numbers}}, each one number, or three for red, green and blue, \
             of at most {NUMBER_MAX:e}, and no std of 0"
        );
        let wrong = || SpecError::told("normalize", format!("got {value}, expected {expected}"));
        let given = value.as_object().filter(|given| given.len() == 2).ok_or_else(wrong)?;
        let [mean, std] = ["mean", "std"].map(|name| given.get(name).and_then(of_each_colour));
        let (mean, std) = mean.zip(std).ok_or_else(wrong)?;
        if std.iter().any(|std| std.abs() < STD_MIN) {
            return Err(wrong());
        }
        Ok(Self { mean, std })
    }
}

/// A list of a number for each colour, or of one for all.
fn of_each_colour(list: &Value) -> Option<[f64; COLOURS]> {
    let number = |value: &Value| value.as_f64().filter(|number| number.abs() <= NUMBER_MAX);
    match list.as_array()?.as_slice() {
        [all] => Some([number(all)?; COLOURS]),
        [red, green, blue] => Some([number(red)?, number(green)?, number(blue)?]),
        _ => None,
    }
}

/// What the bytes of decoded images become: `(byte / 255 - mean) / std` in single precision, each
/// step rounded, and then rounded once to the type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floats {
    /// The type: not [`Dtype::Uint8`].
    pub dtype: Dtype,
    /// The mean of red, green and blue.
    pub mean: [f32; COLOURS],
    /// The deviation of red, green and blue.
    pub std: [f32; COLOURS],
}

impl Floats {
    /// The floats that a job asks for; `None` if its images stay bytes.
    ///
    /// # Errors
    /// It asks for bytes that are normalized.
    pub(crate) fn new(dtype: Dtype, normalize: Option<Normalize>) -> Result<Option<Self>, SpecError> {
        if dtype == Dtype::Uint8 {
            let text = "normalize: got numbers with dtype \"uint8\", but bytes have no mean of 0 and deviation of \
                        1: give dtype \"float32\", \"float16\" or \"bfloat16\" as well";
            return normalize.map_or(Ok(None), |_| Err(SpecError::told("normalize", text.to_owned())));
        }
        let Normalize { mean, std } = normalize.unwrap_or(Normalize { mean: [0.0; 3], std: [1.0; 3] });
        Ok(Some(Self { dtype, mean: mean.map(narrow), std: std.map(narrow) }))
    }

    /// Whether all colours become floats alike, as grey must.
    #[must_use]
    pub fn are_of_grey(&self) -> bool {
        [self.mean, self.std].iter().all(|[red, green, blue]| red == green && red == blue)
    }
}

/// The nearest number of single precision, as torch has it.
#[expect(clippy::cast_possible_truncation, reason = "rounding is what is wanted, and the range is checked")]
fn narrow(number: f64) -> f32 {
    number as f32
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_number_is_for_all_colours() {
        let read = |value| serde_json::from_value::<Normalize>(value);
        let found = read(json!({"mean": [0.5], "std": [0.25, 0.5, 1]})).unwrap();
        assert_eq!(found, Normalize { mean: [0.5; 3], std: [0.25, 0.5, 1.0] });
        assert_eq!(read(serde_json::to_value(found).unwrap()).unwrap(), found);
        for bad in [
            json!([[0.5], [0.5]]),
            json!({"mean": [0.5]}),
            json!({"mean": 0.5, "std": [1]}),
            json!({"mean": [0.5, 0.5], "std": [1]}),
            json!({"mean": [0.5], "std": [1, 0, 1]}),
            json!({"mean": [0.5], "std": [1e-40]}),
            json!({"mean": [2e9], "std": [1]}),
            json!({"mean": [0.5], "std": [1], "dtype": "float16"}),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.starts_with("got {") || error.starts_with("got ["), "{error}");
        }
    }

    #[test]
    fn bytes_stay_bytes_unless_a_type_is_asked_for() {
        assert_eq!(Floats::new(Dtype::Uint8, None), Ok(None));
        let plain = Floats::new(Dtype::Float16, None).unwrap().unwrap();
        assert_eq!(plain, Floats { dtype: Dtype::Float16, mean: [0.0; 3], std: [1.0; 3] });
        assert!(plain.are_of_grey());
        let normalize = Normalize { mean: [0.5; 3], std: [0.25, 0.5, 1.0] };
        assert!(!Floats::new(Dtype::Float32, Some(normalize)).unwrap().unwrap().are_of_grey());
        let error = Floats::new(Dtype::Uint8, Some(normalize)).unwrap_err().to_string();
        assert!(error.contains("give dtype"), "{error}");
    }
}
