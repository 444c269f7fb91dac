//! Labels as a source writes them, and the classes they become.
//!
//! Without `--labels`: if every label is a whole number, class `i` is called by its decimal, from 0
//! to the largest one. `2.0`, as pandas writes whole numbers, is the number 2. Otherwise the
//! classes are the distinct labels in order of their bytes; if a number among them would get
//! another label than it says, they are refused.
//!
//! `--labels none` gives all samples label 0, of one class that is called `none`. `--labels
//! folders` and `--labels txt` say where labels are.
//!
//! `--labels FILE` is JSON, in one of these forms:
//! - `["cat", "dog"]`: class names by number. The source's labels are these numbers.
//! - `{"cat": 0, "dog": 1}`: class names with their numbers, which are 0 to n - 1, each once. The
//!   source's labels are the names.
//! - `{"n02121": "cat", "n02084": "dog"}`: a class name for each of the source's labels. Classes
//!   are the distinct names in order of their bytes; labels that share a name become one class. If
//!   the labels are exactly the numbers 0 to n - 1, the object means the same as the list of its
//!   names: numbers stay as they are and nothing is sorted.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use serde_json::{Map, Value};
use shade_dataset::regular;
use shade_formats::limits::{CLASSES_MAX, NAME_BYTES_MAX};

use crate::error::Error;

/// The one class of samples without labels.
pub(crate) const UNLABELLED: &str = "none";

/// More classes than these, for more than half of the samples, are captions and no classes. Who
/// calls a column or a key `label` has decided something.
const CAPTIONS_MIN: usize = 8;

/// Most numbers below the largest label that no sample has. With more, the numbers are ids of
/// something else, taken for labels.
const EMPTY_CLASSES_MAX: u64 = 1_000_000;

/// What `--labels` asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Labels {
    /// Labels are those of the source.
    #[default]
    Own,
    /// There are none.
    None,
    /// The class folders of an ImageFolder.
    Folders,
    /// The `.txt` members of WebDataset tars.
    Txt,
    /// This file names their classes.
    File(PathBuf),
}

impl From<PathBuf> for Labels {
    fn from(path: PathBuf) -> Self {
        match path.to_str() {
            Some(UNLABELLED) => Self::None,
            Some("folders") => Self::Folders,
            Some("txt") => Self::Txt,
            _ => Self::File(path),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LabelFault {
    #[error("its label is empty")]
    Empty,
    #[error("its label has {0} bytes; a class's name has at most {NAME_BYTES_MAX}")]
    Long(usize),
    #[error("its label is not one line of text: {0:?}")]
    Lines(String),
    #[error("its label '{label}' is not in {file}: add it there")]
    NotGiven { label: String, file: String },
    #[error("its label '{0}' is no class")]
    NoClass(String),
}

/// Why labels cannot be classes.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClassesFault {
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("not labels: {FORMS}")]
    Form,
    #[error("names no class: {FORMS}")]
    None,
    #[error("{0} is no class name: {FORMS}")]
    NoName(Value),
    #[error("'{name}' has the number {number}: numbers must be 0 to {last}, each once")]
    Number { name: String, number: Value, last: usize },
    #[error(
        "the label {0} is too large: there are at most {CLASSES_MAX} classes. Name the classes with --labels"
    )]
    Large(u64),
    #[error("labels go up to {largest}, but only {used} of these are in use. Name the classes with --labels")]
    Sparse { largest: u64, used: usize },
    #[error(
        "labels are numbers, but {0} is negative. Name the classes with --labels, or leave these samples out"
    )]
    Negative(String),
    #[error(
        "labels are numbers, but {0} is no whole one. Name the classes with --labels, or give classes that are whole \
         numbers"
    )]
    Fraction(String),
    #[error(
        "among the labels are numbers and texts such as '{text}'; sorted as texts, label {number} would become \
         {label}. Name the classes with --labels, or leave out the samples with such texts"
    )]
    Mixed { text: String, number: u64, label: usize },
    #[error("{0} classes; there are at most {CLASSES_MAX}")]
    Many(usize),
    #[error("a class name of {0} bytes; it has 1 to {NAME_BYTES_MAX}")]
    NameBytes(usize),
}

/// Distinct labels, numbered as they appear.
#[derive(Debug, Default)]
pub(super) struct Texts {
    distinct: Vec<String>,
    numbers: HashMap<String, u32>,
}

/// Classes, and which one a label means.
#[derive(Debug)]
pub(super) struct Classes {
    /// Their names; the label is the position.
    pub(super) names: Vec<String>,
    rule: Rule,
    /// The name of the file that they are from.
    file: Option<String>,
}

#[derive(Debug)]
enum Rule {
    /// A label is a class's number.
    Number,
    /// A label is a class's name, and names are sorted.
    Name,
    /// The user gives the class of each label.
    Given(HashMap<String, u32>),
    /// All samples are of one class.
    One,
}

/// What a label's text is.
enum Text {
    /// A whole number from 0 on.
    Whole,
    /// Another number: negative, a fraction.
    Number,
    Name,
}

impl Texts {
    pub(super) fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        // A source has fewer than 2^32 samples, so it has fewer labels; the catalogue refuses more.
        let number = u32::try_from(self.distinct.len()).unwrap_or(u32::MAX);
        self.distinct.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    /// All distinct ones, by their numbers.
    pub(super) fn distinct(&self) -> &[String] {
        &self.distinct
    }

    pub(super) fn into_distinct(self) -> Vec<String> {
        self.distinct
    }
}

impl Classes {
    /// The classes that `--labels` gives, if it gives any.
    pub(super) fn given(labels: &Labels) -> Result<Option<Self>, Error> {
        let file = match labels {
            Labels::Own | Labels::Folders | Labels::Txt => return Ok(None),
            Labels::None => {
                let names = vec![UNLABELLED.to_owned()];
                return Ok(Some(Self { names, rule: Rule::One, file: None }));
            }
            Labels::File(file) => file,
        };
        let bytes = regular::read_once(file).map_err(Error::io("read", file))?;
        let parsed = serde_json::from_slice(&bytes).map_err(ClassesFault::from);
        let (names, rule) = parsed.and_then(Self::from_json).map_err(|fault| Error::source(file, fault))?;
        Ok(Some(Self { names, rule, file: Some(file.display().to_string()) }))
    }

    /// The classes of a source with these labels, if the user gives none.
    pub(super) fn of_texts<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Result<Self, ClassesFault> {
        let numbers: Option<BTreeSet<u64>> = texts.clone().map(whole).collect();
        let (names, rule) = match numbers {
            Some(numbers) => (numbered(&numbers)?, Rule::Number),
            None => {
                refuse_numbers(texts.clone())?;
                let distinct: BTreeSet<&str> = texts.collect();
                refuse_mixed(&distinct)?;
                (distinct.into_iter().map(str::to_owned).collect(), Rule::Name)
            }
        };
        check_names(&names)?;
        Ok(Self { names, rule, file: None })
    }

    /// Whether labels are numbers of classes in the source, too.
    pub(super) fn are_numbers(&self) -> bool {
        matches!(self.rule, Rule::Number)
    }

    /// Says so if the labels of `samples` samples are captions: texts that hardly come twice.
    pub(super) fn captions(&self, samples: usize) -> Option<String> {
        let classes = self.names.len();
        let is_text = matches!(self.rule, Rule::Name);
        let is_many = classes > CAPTIONS_MIN && classes * 2 > samples;
        let example = self.names.first().filter(|_| is_text && is_many)?;
        Some(format!(
            "{classes} classes for {samples} samples, such as '{example}': captions? --labels none packs samples \
             without labels and keeps such texts as fields. If they are classes, name them: --labels FILE"
        ))
    }

    pub(super) fn label(&self, text: &str) -> Result<u32, LabelFault> {
        let position = |found: usize| u32::try_from(found).ok();
        let label = match &self.rule {
            Rule::Number => whole(text)
                .and_then(|number| u32::try_from(number).ok())
                .filter(|&number| (number as usize) < self.names.len()),
            Rule::Name => self.names.binary_search_by(|name| name.as_str().cmp(text)).ok().and_then(position),
            Rule::Given(labels) => labels.get(text).copied(),
            Rule::One => Some(0),
        };
        label.ok_or_else(|| match &self.file {
            Some(file) => LabelFault::NotGiven { label: text.to_owned(), file: file.clone() },
            None => LabelFault::NoClass(text.to_owned()),
        })
    }

    fn from_json(json: Value) -> Result<(Vec<String>, Rule), ClassesFault> {
        let (names, rule) = match json {
            Value::Array(names) => (strings(names)?, Rule::Number),
            Value::Object(classes) if classes.values().all(Value::is_u64) => by_number(&classes)?,
            Value::Object(classes) if classes.values().all(Value::is_string) => by_label(classes),
            _ => return Err(ClassesFault::Form),
        };
        if names.is_empty() {
            return Err(ClassesFault::None);
        }
        check_names(&names)?;
        Ok((names, rule))
    }
}

const FORMS: &str =
    "give a list of class names, an object from class names to numbers, or one from labels to class names";

/// A label without the blanks around it.
pub(super) fn checked(text: &str) -> Result<&str, LabelFault> {
    match text.trim() {
        "" => Err(LabelFault::Empty),
        text if text.len() > NAME_BYTES_MAX => Err(LabelFault::Long(text.len())),
        text if text.contains(char::is_control) => Err(LabelFault::Lines(text.to_owned())),
        text => Ok(text),
    }
}

/// The whole number that a label is. `007` is a text: a number has one spelling, or two labels
/// could become one by accident. Only zeros may follow a point, as in pandas' `7.0`.
pub(super) fn whole(text: &str) -> Option<u64> {
    let digits = match text.split_once('.') {
        Some((digits, zeros)) if !zeros.is_empty() && zeros.bytes().all(|byte| byte == b'0') => digits,
        Some(_) => return None,
        None => text,
    };
    let plain = digits == "0" || !digits.starts_with('0');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // A number beyond u64 is a number, too, and is refused for its size.
    (plain && is_number).then(|| digits.parse().unwrap_or(u64::MAX))
}

/// What a text is. With leading zeros it is a name.
fn kind_of(text: &str) -> Text {
    if whole(text).is_some() {
        return Text::Whole;
    }
    let has_zeros = text.len() > 1 && text.starts_with('0') && !text.starts_with("0.");
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit()) && text.parse::<f64>().is_ok();
    if is_number && !has_zeros { Text::Number } else { Text::Name }
}

fn numbered(numbers: &BTreeSet<u64>) -> Result<Vec<String>, ClassesFault> {
    let Some(&largest) = numbers.last() else { return Ok(Vec::new()) };
    if largest >= CLASSES_MAX.into() {
        return Err(ClassesFault::Large(largest));
    }
    let empty = (largest + 1).saturating_sub(numbers.len() as u64);
    if empty > EMPTY_CLASSES_MAX {
        return Err(ClassesFault::Sparse { largest, used: numbers.len() });
    }
    Ok((0..=largest).map(|number| number.to_string()).collect())
}

/// Refuses numbers that are no labels where all labels are numbers: as texts, the others would be
/// sorted 0, 1, 10, 2 because of one -1 that means "unknown".
fn refuse_numbers<'a>(texts: impl Iterator<Item = &'a str>) -> Result<(), ClassesFault> {
    let mut first = None;
    for text in texts {
        match kind_of(text) {
            Text::Number => first = first.or(Some(text)),
            Text::Whole => {}
            Text::Name => return Ok(()),
        }
    }
    match first {
        None => Ok(()),
        Some(text) if text.strip_prefix('-').is_some_and(|rest| whole(rest).is_some()) => {
            Err(ClassesFault::Negative(text.to_owned()))
        }
        Some(text) => Err(ClassesFault::Fraction(text.to_owned())),
    }
}

/// Refuses names among which a whole number would get another label than it says.
fn refuse_mixed(sorted: &BTreeSet<&str>) -> Result<(), ClassesFault> {
    let changed = |(label, text): (usize, &&str)| {
        let number = whole(text).filter(|number| usize::try_from(*number) != Ok(label))?;
        Some((label, number))
    };
    let Some((label, number)) = sorted.iter().enumerate().find_map(changed) else { return Ok(()) };
    let text = sorted.iter().find(|text| whole(text).is_none()).copied().unwrap_or_default().to_owned();
    Err(ClassesFault::Mixed { text, number, label })
}

fn strings(values: Vec<Value>) -> Result<Vec<String>, ClassesFault> {
    let name = |value| match value {
        Value::String(name) => Ok(name),
        other => Err(ClassesFault::NoName(other)),
    };
    values.into_iter().map(name).collect()
}

/// `{"cat": 0, "dog": 1}`.
fn by_number(classes: &Map<String, Value>) -> Result<(Vec<String>, Rule), ClassesFault> {
    let mut names = vec![None; classes.len()];
    let mut labels = HashMap::new();
    for (name, number) in classes {
        let place = number.as_u64().and_then(|number| usize::try_from(number).ok());
        match place.and_then(|place| names.get_mut(place)) {
            Some(free @ None) => *free = Some(name.clone()),
            _ => {
                let (name, number, last) = (name.clone(), number.clone(), classes.len().saturating_sub(1));
                return Err(ClassesFault::Number { name, number, last });
            }
        }
        labels.insert(name.clone(), u32::try_from(place.unwrap_or_default()).unwrap_or(u32::MAX));
    }
    Ok((names.into_iter().flatten().collect(), Rule::Given(labels)))
}

/// `{"n02121": "cat", "n02084": "dog"}`.
fn by_label(classes: Map<String, Value>) -> (Vec<String>, Rule) {
    let name = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let numbered: Vec<String> =
        (0..classes.len()).map_while(|label| classes.get(&label.to_string())).map(name).collect();
    if numbered.len() == classes.len() {
        return (numbered, Rule::Number);
    }
    let distinct: BTreeSet<String> = classes.values().map(name).collect();
    let names: Vec<String> = distinct.into_iter().collect();
    let labels = classes.into_iter().filter_map(|(label, value)| {
        let class = names.binary_search(&name(&value)).ok()?;
        Some((label, u32::try_from(class).ok()?))
    });
    let labels = labels.collect();
    (names, Rule::Given(labels))
}

fn check_names(names: &[String]) -> Result<(), ClassesFault> {
    if names.len() as u64 > CLASSES_MAX.into() {
        return Err(ClassesFault::Many(names.len()));
    }
    let is_wrong = |name: &&String| name.is_empty() || name.len() > NAME_BYTES_MAX;
    names.iter().find(is_wrong).map_or(Ok(()), |name| Err(ClassesFault::NameBytes(name.len())))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn of(texts: &[&str]) -> Result<Classes, ClassesFault> {
        Classes::of_texts(texts.iter().copied())
    }

    fn given(json: &str) -> Result<Classes, Error> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("labels.json");
        fs::write(&file, json).unwrap();
        Classes::given(&Labels::File(file)).map(Option::unwrap)
    }

    #[test]
    fn whole_numbers_stay_what_they_are() {
        let classes = of(&["10", "2", "0"]).unwrap();
        assert_eq!(classes.names.len(), 11);
        assert_eq!(classes.names[10], "10");
        assert_eq!((classes.label("2"), classes.label("10")), (Ok(2), Ok(10)));
        assert!(classes.label("11").unwrap_err().to_string().contains("11"));
        assert!(of(&[]).unwrap().names.is_empty());
    }

    #[test]
    fn texts_become_classes_in_the_order_of_their_bytes() {
        let classes = of(&["dog", "cat", "\u{fc}", "Zebra"]).unwrap();
        assert_eq!(classes.names, ["Zebra", "cat", "dog", "\u{fc}"]);
        assert_eq!(classes.label("dog"), Ok(2));
        assert_eq!(of(&["1", "007"]).unwrap().names, ["007", "1"], "leading zeros survive");
    }

    #[test]
    fn numbers_that_cannot_be_labels_are_refused() {
        assert!(of(&["0", "16777216"]).unwrap_err().to_string().contains("16777216"));
        assert!(of(&["0", "99999999999999999999999"]).is_err());
        assert!(of(&["0", "2000000"]).unwrap_err().to_string().contains("only 2"));
        assert!(of(&["0", "1000001"]).is_ok());
        assert!(of(&["0", "-1"]).unwrap_err().to_string().contains("-1"));
        assert!(of(&["-1", "x"]).is_ok());
    }

    #[test]
    fn whole_floats_are_the_numbers_they_are() {
        let texts: Vec<String> = (0..12).map(|n| format!("{n}.0")).collect();
        let classes = Classes::of_texts(texts.iter().map(String::as_str)).unwrap();
        assert_eq!(classes.names.len(), 12);
        for (number, text) in (0u32..).zip(&texts) {
            assert_eq!(classes.label(text), Ok(number));
            assert_eq!(classes.label(&number.to_string()), Ok(number));
        }
        assert_eq!(of(&["1.00", "0", "2.0"]).unwrap().names, ["0", "1", "2"]);
        let given = given(r#"["cat", "dog"]"#).unwrap();
        assert_eq!(given.label("1.0"), Ok(1));
        for text in ["0.5", "-1.0", "1e1", "1.", "+1", ".5"] {
            let fault = of(&["0", text]).unwrap_err().to_string();
            assert!(fault.contains(text) && fault.contains("--labels"), "{fault}");
        }
    }

    #[test]
    fn a_number_among_texts_keeps_its_label_or_is_refused() {
        let numbers: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        let with = |texts: &[&str]| {
            let all = numbers.iter().map(String::as_str).chain(texts.iter().copied()).collect::<Vec<_>>();
            of(&all)
        };
        assert_eq!(with(&["nan"]).unwrap().label("9"), Ok(9));
        for texts in [&["10", "nan"][..], &["?", "10"], &["!"], &["10", "None"]] {
            let fault = with(texts).unwrap_err().to_string();
            assert!(fault.contains("would become") && fault.contains("--labels"), "{fault}");
        }
        assert!(of(&["5", "x"]).is_err());
    }

    #[test]
    fn texts_that_hardly_come_twice_are_captions() {
        let names: Vec<String> = (0..9).map(|n| format!("a dog, {n}")).collect();
        let classes = Classes::of_texts(names.iter().map(String::as_str)).unwrap();
        assert!(classes.captions(17).unwrap().contains("captions? --labels none"));
        assert!(classes.captions(18).is_none());
        let few = of(&["a", "b", "c", "d"]).unwrap();
        assert!(few.captions(5).is_none());
        let numbers: Vec<String> = (0..100).map(|n| n.to_string()).collect();
        let numbers = Classes::of_texts(numbers.iter().map(String::as_str)).unwrap();
        assert!(numbers.captions(100).is_none());
    }

    #[test]
    fn each_form_of_the_labels_file_is_understood() {
        let list = given(r#"["crane", "cat", "crane"]"#).unwrap();
        assert_eq!((list.label("2"), list.names.len()), (Ok(2), 3));
        assert!(list.label("3").unwrap_err().to_string().contains("labels.json"));
        assert!(list.label("cat").is_err());

        let numbers = given(r#"{"dog": 0, "cat": 1}"#).unwrap();
        assert_eq!(numbers.names, ["dog", "cat"]);
        assert_eq!(numbers.label("cat"), Ok(1));
        assert!(numbers.label("0").is_err());

        let names = given(r#"{"n1": "dog", "n2": "cat", "n3": "dog"}"#).unwrap();
        assert_eq!(names.names, ["cat", "dog"]);
        assert_eq!((names.label("n1"), names.label("n2"), names.label("n3")), (Ok(1), Ok(0), Ok(1)));

        let spelled = given(r#"{"1": "a", "0": "z", "2": "a"}"#).unwrap();
        assert_eq!(spelled.names, ["z", "a", "a"]);
        assert_eq!(spelled.label("2"), Ok(2));
    }

    #[test]
    fn a_labels_file_of_another_form_says_what_is_wrong() {
        for (json, part) in [
            ("{", "not JSON"),
            ("3", "give a list"),
            ("[]", "names no class"),
            ("{}", "names no class"),
            ("[1]", "1 is no class name"),
            (r#"[""]"#, "0 bytes"),
            (r#"{"a": 0, "b": "c"}"#, "give a list"),
            (r#"{"a": 0, "b": 0}"#, "each once"),
            (r#"{"a": 0, "b": 2}"#, "'b' has the number 2"),
            (r#"{"a": -1}"#, "give a list"),
        ] {
            let fault = given(json).unwrap_err().to_string();
            assert!(fault.contains(part) && fault.contains("labels.json"), "{json}: {fault}");
        }
        let nowhere = Labels::File("/nowhere.json".into());
        assert!(Classes::given(&nowhere).unwrap_err().to_string().contains("nowhere"));
        assert!(Classes::given(&Labels::Own).unwrap().is_none());
        assert_eq!(Classes::given(&Labels::None).unwrap().unwrap().label("whatever"), Ok(0));
    }

    #[test]
    fn a_label_is_one_line_without_the_blanks_around_it() {
        assert_eq!(checked(" a b\r\n"), Ok("a b"));
        for text in ["", " \n", "a\nb", "a\0", &"x".repeat(4097)] {
            assert!(checked(text).is_err(), "{text:?}");
        }
    }
}
