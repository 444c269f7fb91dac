//! One class table for several, and what becomes of each one's labels.
//!
//! A label is a position in a class table. It stays what it is if every table is the beginning of
//! the longest one, and only then. Which labels would change is always known, so that no command
//! changes one without a word.
//!
//! Classes may share a name: the second `crane` of one table is the second `crane` of another.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;

use serde::Serialize;
use shade_formats::printable::OneLine;

/// Changes that are named to people; programs get all.
const NAMED_MAX: usize = 5;

/// A class table for several, and for each of these the new label of each old one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct United<N> {
    pub(crate) names: Vec<N>,
    pub(crate) labels: Vec<Vec<u32>>,
}

/// A label that becomes another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Moved {
    /// The class's name.
    pub(crate) class: String,
    /// Its label there.
    pub(crate) from: u32,
    /// Its label in the dataset.
    pub(crate) to: u32,
}

/// Labels of one dataset, or of one source, that become others.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Relabelled {
    /// The dataset or the source, for people.
    pub(crate) of: String,
    /// Each label that changes.
    pub(crate) labels: Vec<Moved>,
}

/// Unites class tables. In this order:
///
/// 1. If the longest one has all names of each other one in the same order, it is the union. Equal
///    tables stay as they are.
/// 2. If all names are whole numbers, they are sorted by number, unless all tables are sorted as
///    texts, as folders are.
/// 3. Otherwise they are sorted as texts, by their bytes.
pub(crate) fn unite<N: Copy + Ord + Hash + AsRef<[u8]>>(tables: &[Vec<N>]) -> United<N> {
    // The first one of the longest.
    let longest = tables.iter().rev().max_by_key(|table| table.len()).map_or(&[][..], Vec::as_slice);
    let within: Option<Vec<Vec<u32>>> = tables.iter().map(|table| places(table, longest)).collect();
    if let Some(labels) = within {
        return United { names: longest.to_vec(), labels };
    }
    let mut counts: BTreeMap<N, usize> = BTreeMap::new();
    for table in tables {
        let mut own: BTreeMap<N, usize> = BTreeMap::new();
        table.iter().for_each(|name| *own.entry(*name).or_default() += 1);
        for (name, count) in own {
            let most = counts.entry(name).or_default();
            *most = count.max(*most);
        }
    }
    let mut names: Vec<N> =
        counts.into_iter().flat_map(|(name, count)| std::iter::repeat_n(name, count)).collect();
    let is_in_bytes = |table: &Vec<N>| table.is_sorted();
    let is_in_numbers = |table: &Vec<N>| table.is_sorted_by_key(|name| number(name.as_ref()));
    let are_numbers = names.iter().all(|name| number(name.as_ref()).is_some());
    let are_folders = tables.iter().all(is_in_bytes) && !tables.iter().all(is_in_numbers);
    if are_numbers && !are_folders {
        names.sort_by(|a, b| number(a.as_ref()).cmp(&number(b.as_ref())));
    }
    let labels = tables.iter().map(|table| by_name(table, &names)).collect();
    United { names, labels }
}

/// The class table `base` with the names of `more` that it has not, behind its own. Gives the new
/// label of each one of `more`.
pub(crate) fn extend<N: Copy + Eq + Hash>(base: &[N], more: &[N]) -> (Vec<N>, Vec<u32>) {
    if let Some(labels) = places(more, base) {
        return (base.to_vec(), labels);
    }
    let mut known: HashMap<N, usize> = HashMap::new();
    base.iter().for_each(|name| *known.entry(*name).or_default() += 1);
    let mut names = base.to_vec();
    for name in more {
        match known.get_mut(name) {
            Some(left) if *left > 0 => *left -= 1,
            _ => names.push(*name),
        }
    }
    let labels = by_name(more, &names);
    (names, labels)
}

/// The labels of a table that become others.
pub(crate) fn moved<N: AsRef<[u8]>>(table: &[N], labels: &[u32]) -> Vec<Moved> {
    let changes = (0u32..).zip(table).zip(labels).filter(|((from, _), to)| from != *to);
    let moved = |((from, name), to): ((u32, &N), &u32)| {
        let class = String::from_utf8_lossy(name.as_ref()).into_owned();
        Moved { class, from, to: *to }
    };
    changes.map(moved).collect()
}

/// All changes, a line each.
pub(crate) fn told(relabelled: &[Relabelled]) -> String {
    relabelled.iter().map(Relabelled::to_string).collect::<Vec<_>>().join("\n")
}

/// The place of each name of `table` in `long`, if they come there in the same order.
fn places<N: Eq>(table: &[N], long: &[N]) -> Option<Vec<u32>> {
    let mut ahead = (0u32..).zip(long);
    table.iter().map(|name| Some(ahead.find(|(_, known)| *known == name)?.0)).collect()
}

/// The place of each name of `table` in `names`: the second of one name is the second there.
fn by_name<N: Copy + Eq + Hash>(table: &[N], names: &[N]) -> Vec<u32> {
    let mut free: HashMap<N, VecDeque<u32>> = HashMap::new();
    for (place, name) in (0u32..).zip(names) {
        free.entry(*name).or_default().push_back(place);
    }
    table.iter().map(|name| free.get_mut(name).and_then(VecDeque::pop_front).unwrap_or(u32::MAX)).collect()
}

/// A whole number without leading zeros, as something that sorts like it.
fn number(name: &[u8]) -> Option<(usize, &[u8])> {
    let is_plain = name == b"0" || !name.starts_with(b"0");
    let is_number = !name.is_empty() && is_plain && name.iter().all(u8::is_ascii_digit);
    is_number.then_some((name.len(), name))
}

impl std::fmt::Display for Relabelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let change =
            |moved: &Moved| format!("{} ('{}') becomes {}", moved.from, OneLine(&moved.class), moved.to);
        let named: Vec<String> = self.labels.iter().take(NAMED_MAX).map(change).collect();
        write!(f, "{}: label {}", OneLine(&self.of), named.join(", "))?;
        match self.labels.len().saturating_sub(NAMED_MAX) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(names: &[&'static str]) -> Vec<&'static str> {
        names.to_vec()
    }

    fn union(tables: &[&[&'static str]]) -> Vec<&'static str> {
        unite(&tables.iter().map(|names| table(names)).collect::<Vec<_>>()).names
    }

    #[test]
    fn an_extension_keeps_the_longer_table_and_numbers_stay_numbers() {
        assert_eq!(union(&[&["zebra", "ant"], &["zebra", "ant"]]), ["zebra", "ant"]);
        assert_eq!(union(&[&["zebra"], &["zebra", "ant"]]), ["zebra", "ant"]);
        assert_eq!(union(&[&["zebra", "ant", "bee"], &["zebra", "bee"]]), ["zebra", "ant", "bee"]);
        assert_eq!(union(&[&["0", "2", "10"], &["0", "1", "11"]]), ["0", "1", "2", "10", "11"]);
        assert_eq!(union(&[&["1", "10", "2"], &["1", "10", "3"]]), ["1", "10", "2", "3"], "folders");
        assert_eq!(union(&[&["dog", "cat"], &["ant"]]), ["ant", "cat", "dog"]);
        assert_eq!(union(&[&["a", "b", "a"], &["c", "a"]]), ["a", "a", "b", "c"]);
        assert_eq!(union(&[]), [""; 0]);
    }

    #[test]
    fn more_classes_come_behind_those_that_are_there() {
        assert_eq!(extend(&["b", "a"], &["a", "c", "b"]), (vec!["b", "a", "c"], vec![1, 2, 0]));
        assert_eq!(extend(&["a", "b", "a"], &["a", "b", "a"]).1, [0, 1, 2]);
        assert_eq!(extend(&["a"], &["a", "a"]), (vec!["a", "a"], vec![0, 1]));
    }

    #[test]
    fn changes_are_told() {
        let labels = moved(&["cat", "dog"], &[1, 1]);
        let all = Relabelled { of: "x".to_owned(), labels };
        assert_eq!(all.to_string(), "x: label 0 ('cat') becomes 1");
        let names: Vec<String> = (0..7).map(|n| n.to_string()).collect();
        let all = Relabelled { of: "x".to_owned(), labels: moved(&names, &[1, 2, 3, 4, 5, 6, 7]) };
        assert!(all.to_string().ends_with("4 ('4') becomes 5 and 2 more"), "{all}");
    }

    /// Texts and numbers, in any order, some of them twice.
    fn tables() -> impl Strategy<Value = Vec<Vec<String>>> {
        let name = prop_oneof![(0u32..30).prop_map(|n| n.to_string()), "[a-c]{1,2}"];
        let one = proptest::collection::vec(name, 0..14);
        let numbers = (0usize..24).prop_map(|n| (0..n).map(|n| n.to_string()).collect::<Vec<_>>());
        proptest::collection::vec(prop_oneof![one, numbers], 1..4)
    }

    proptest! {
        #[test]
        fn a_union_keeps_what_can_be_kept(tables in tables(), cut in 0usize..14) {
            let mut tables = tables;
            // A beginning of the first one, too.
            let first = tables[0].iter().take(cut).cloned().collect();
            tables.push(first);
            let texts: Vec<Vec<&str>> =
                tables.iter().map(|table| table.iter().map(String::as_str).collect()).collect();
            let United { names, labels } = unite(&texts);
            for (table, labels) in texts.iter().zip(&labels) {
                // Each class is there under its name, and no two classes become one.
                let found: Vec<&str> = labels.iter().map(|label| names[*label as usize]).collect();
                prop_assert_eq!(&found, table);
                let mut distinct = labels.clone();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), table.len());
            }
            // Nothing moves exactly if all are beginnings of one.
            let longest = texts.iter().max_by_key(|table| table.len()).unwrap();
            let can_stay = texts.iter().all(|table| longest.starts_with(table));
            let stays = texts.iter().zip(&labels).all(|(table, labels)| moved(table, labels).is_empty());
            prop_assert_eq!(can_stay, stays);
            // The order of the inputs does not matter for what is in it.
            let mut backwards: Vec<_> = texts.clone();
            backwards.reverse();
            let (mut one, mut other) = (names.clone(), unite(&backwards).names);
            one.sort_unstable();
            other.sort_unstable();
            prop_assert_eq!(one, other);
            // What is united already stays.
            prop_assert_eq!(unite(&[names.clone(), texts[0].clone()]).names.len(), names.len());
        }

        #[test]
        fn an_extended_table_keeps_its_labels(tables in tables()) {
            let texts: Vec<Vec<&str>> =
                tables.iter().map(|table| table.iter().map(String::as_str).collect()).collect();
            let more = texts.last().unwrap();
            let (names, labels) = extend(&texts[0], more);
            prop_assert!(names.starts_with(&texts[0]));
            let found: Vec<&str> = labels.iter().map(|label| names[*label as usize]).collect();
            prop_assert_eq!(&found, more);
        }
    }
}
