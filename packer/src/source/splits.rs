//! Gives the splits of one source, such as `train/` and `val/`, the same labels.

use std::collections::BTreeSet;

use crate::catalogue::Catalogue;

/// Gives all catalogues the same class table: the sorted union of theirs. Splits with the same
/// classes stay as they are.
pub(crate) fn unify<'a>(catalogues: impl Iterator<Item = &'a mut Catalogue>) {
    let catalogues: Vec<&mut Catalogue> = catalogues.collect();
    if catalogues.windows(2).all(|pair| matches!(pair, [a, b] if a.classes == b.classes)) {
        return;
    }
    let union: BTreeSet<String> =
        catalogues.iter().flat_map(|catalogue| catalogue.classes.iter().cloned()).collect();
    let classes: Vec<String> = union.into_iter().collect();
    for catalogue in catalogues {
        let label = |class| u32::try_from(classes.partition_point(|known| known < class)).unwrap_or(u32::MAX);
        let labels: Vec<u32> = catalogue.classes.iter().map(label).collect();
        catalogue.relabel(classes.clone(), &labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{NewSample, SampleStore};

    fn catalogue(classes: &[&str]) -> Catalogue {
        let mut catalogue = Catalogue::new(vec![SampleStore::Folder("root".into())]);
        catalogue.classes = classes.iter().map(|&class| class.to_owned()).collect();
        for label in 0..u32::try_from(classes.len()).unwrap() {
            let sample = NewSample { path: "x", label, bytes: 1, changed_ns: 0, store: 0, offset: 0 };
            catalogue.push(sample).unwrap();
        }
        catalogue
    }

    #[test]
    fn a_class_missing_from_one_split_shifts_no_label() {
        let (mut train, mut val) = (catalogue(&["ant", "bee", "cat"]), catalogue(&["bee", "dog"]));
        unify([&mut train, &mut val].into_iter());
        assert_eq!(train.classes, ["ant", "bee", "cat", "dog"]);
        assert_eq!(val.classes, train.classes);
        assert_eq!(val.samples().map(|sample| sample.label).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(train.samples().map(|sample| sample.label).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
