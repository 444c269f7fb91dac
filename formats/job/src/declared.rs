//! Declarations: each parameter's name, type, default, range and help, once. JSON, command lines,
//! Python's classes and digests follow from them.

use std::fmt::Display;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::SpecError;
use crate::values::AUTO;

/// A parameter as a command line or a document shows it.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name of the field.
    pub name: &'static str,
    /// Name of the option and, unless it is a flag, of its value: "hit-cap SHARE". Empty: no
    /// command line has it.
    pub usage: &'static str,
    /// Meaning of the parameter.
    pub help: &'static str,
    /// The names that it can have, each with its line in `--help`. Empty: it is no name.
    pub choices: Choices,
}

impl Parameter {
    /// Name of the option, without dashes.
    #[must_use]
    pub fn option(&self) -> &'static str {
        self.usage.split_once(' ').map_or(self.usage, |(option, _)| option)
    }

    /// What a value is that is as this one, in words.
    fn expected(&self, like: &Value) -> String {
        let names: Vec<_> = self.choices.iter().map(|(name, _)| format!("{name:?}")).collect();
        match like {
            _ if !names.is_empty() => format!("one of {}", names.join(", ")),
            Value::Bool(_) => "true or false".to_owned(),
            Value::Number(number) if number.is_f64() => "a number".to_owned(),
            Value::Number(_) => "a whole number".to_owned(),
            Value::String(text) if text == AUTO => "a whole number, or \"auto\"".to_owned(),
            _ => "a text".to_owned(),
        }
    }

    /// Name of the option's value in `--help`; empty for a flag.
    #[must_use]
    pub fn value_name(&self) -> &'static str {
        self.usage.split_once(' ').map_or("", |(_, value)| value)
    }
}

/// A document whose parameters are declared: a command line can have them.
pub trait Declared: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What the parameters are of.
    const WHAT: &'static str;
    /// Every parameter, in the order of declaration.
    const PARAMETERS: &'static [Parameter];

    /// Refuses what is outside its range, or does not go together.
    ///
    /// # Errors
    /// Names the field.
    fn validate(&self) -> Result<(), SpecError>;

    /// Sets a parameter from its text, as a command line has it.
    ///
    /// # Errors
    /// There is no such parameter, or it cannot have this value.
    fn set(&mut self, name: &str, text: &str) -> Result<(), SpecError> {
        let spec: Self = with_field(self, Self::PARAMETERS, name, &value(text))?;
        spec.validate()?;
        *self = spec;
        Ok(())
    }
}

/// Declares the parameters of a document: `/// help`, then `name: type = default`, its `in` range,
/// the names that it is one `of`, and its `as` option of a command line.
macro_rules! declared {
    ($(#[$meta:meta])* pub struct $spec:ident {$(
        $(#[doc = $help:literal])+ $(#[serde($($serde:tt)+)])?
        $name:ident: $type:ty = $default:expr
            $(, in $least:literal to $most:tt $(in_words $range:literal)?)?
            $(, of $names:ident)? $(, as $usage:literal)?;
    )+}) => {
        $(#[$meta])*
        pub struct $spec {$(
            $(#[doc = $help])+
            $(#[serde($($serde)+)])?
            pub $name: $type,
        )+}

        impl Default for $spec {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl $spec {
            /// Every parameter, in the order of declaration.
            pub const DECLARED: &'static [$crate::Parameter] = &[$($crate::Parameter {
                name: stringify!($name),
                usage: concat!($($usage)?),
                help: concat!($($help),+),
                choices: $crate::declared::first(&[$($names::CHOICES)?]),
            }),+];

            /// Refuses what is outside its range.
            fn check_ranges(&self) -> Result<(), SpecError> {
                $($(
                    let (name, range) = (stringify!($name), [$least, $most]);
                    $crate::declared::check_given(name, self.$name, range, concat!($($range)?))?;
                )?)+
                Ok(())
            }
        }
    };
}

pub(crate) use declared;

/// Names of a choice, as [`Parameter::choices`] has them.
type Choices = &'static [(&'static str, &'static str)];

/// The first of at most one; none at all if there is none.
pub(crate) const fn first(of: &'static [Choices]) -> Choices {
    match of {
        [first, ..] => first,
        [] => &[],
    }
}

/// Refuses a number outside its range, if there is one: `value` is a `T` or an `Option<T>`.
pub(crate) fn check_given<T: PartialOrd + Display>(
    field: &'static str,
    value: impl Into<Option<T>>,
    range: [T; 2],
    words: &str,
) -> Result<(), SpecError> {
    value.into().map_or(Ok(()), |value| SpecError::check_as(field, value, range, words))
}

/// A document as text. Specifications have text keys and finite numbers only, so there always is
/// one.
pub(crate) fn canonical(spec: &impl Serialize) -> String {
    serde_json::to_string(spec).unwrap_or_default()
}

/// `spec` with another value of the field `name`, which is one of `parameters`.
pub(crate) fn with_field<T: Serialize + DeserializeOwned>(
    spec: &T,
    parameters: &[Parameter],
    name: &str,
    value: &Value,
) -> Result<T, SpecError> {
    let wrong = |error: &dyn Display| SpecError::told("job", format!("{name}: {error}"));
    let parameter = parameters.iter().find(|parameter| parameter.name == name);
    let parameter = parameter.ok_or_else(|| wrong(&"there is no such field"))?;
    let mut fields = serde_json::to_value(spec).map_err(|error| wrong(&error))?;
    let had = fields.get_mut(name).map(|field| std::mem::replace(field, value.clone()));
    serde_json::from_value(fields).map_err(|error| {
        let text = error.to_string();
        // Types of Rust are not the user's words.
        let is_of_another_kind = ["invalid ", "unknown variant"].iter().any(|kind| text.starts_with(kind));
        if is_of_another_kind {
            let expected = parameter.expected(&had.unwrap_or_default());
            return wrong(&format_args!("got {value}, expected {expected}"));
        }
        wrong(&text)
    })
}

/// A flag or a number, if the text is one, else the text.
fn value(text: &str) -> Value {
    let flag = text.parse::<bool>().map(Value::from).ok();
    let whole = || text.parse::<u64>().map(Value::from).ok();
    let number = || text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number);
    flag.or_else(whole).or_else(number).unwrap_or_else(|| Value::from(text))
}
