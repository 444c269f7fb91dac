//! Gives the splits of one source, such as `train/` and `val/`, the same labels.

use crate::catalogue::Catalogue;
use crate::classes::{Relabelled, moved, unite};

/// Gives all catalogues, each with its name, the same class table: the union of theirs. Splits with
/// the same classes stay as they are.
///
/// # Errors
/// Labels that are numbers in the source would become others.
pub(crate) fn unify(catalogues: &mut [(&str, &mut Catalogue)]) -> Result<(), Vec<Relabelled>> {
    let tables: Vec<Vec<&str>> = catalogues
        .iter()
        .map(|(_, catalogue)| catalogue.classes.iter().map(String::as_str).collect())
        .collect();
    let united = unite(&tables);
    let of_numbers = catalogues.iter().zip(tables.iter().zip(&united.labels));
    let relabelled: Vec<Relabelled> = of_numbers
        .filter(|((_, catalogue), _)| catalogue.has_numbers)
        .map(|((name, _), (table, labels))| Relabelled {
            of: (*name).to_owned(),
            labels: moved(table, labels),
        })
        .filter(|relabelled| !relabelled.labels.is_empty())
        .collect();
    if !relabelled.is_empty() {
        return Err(relabelled);
    }
    let names: Vec<String> = united.names.iter().map(|name| (*name).to_owned()).collect();
    let labels = united.labels;
    for ((_, catalogue), labels) in catalogues.iter_mut().zip(labels) {
        catalogue.relabel(names.clone(), &labels);
    }
    Ok(())
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
        unify(&mut [("train", &mut train), ("val", &mut val)]).unwrap();
        assert_eq!(train.classes, ["ant", "bee", "cat", "dog"]);
        assert_eq!(val.classes, train.classes);
        assert_eq!(val.samples().map(|sample| sample.label).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(train.samples().map(|sample| sample.label).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn numbers_stay_what_they_are_in_each_split() {
        let names: Vec<String> = (0..12).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (mut train, mut val) = (catalogue(&names), catalogue(&names[..11]));
        (train.has_numbers, val.has_numbers) = (true, true);
        unify(&mut [("train", &mut train), ("val", &mut val)]).unwrap();
        assert_eq!(val.samples().map(|sample| sample.label).collect::<Vec<_>>(), (0..11).collect::<Vec<_>>());
        assert_eq!(train.classes, val.classes);
        let mut texts = catalogue(&["cat"]);
        let refused = unify(&mut [("train", &mut train), ("val", &mut texts)]).unwrap_err();
        assert!(refused.len() == 1 && refused[0].to_string().contains("train: label 2 ('2') becomes 4"));
        assert_eq!(texts.classes, ["cat"], "nothing is changed then");
    }
}
