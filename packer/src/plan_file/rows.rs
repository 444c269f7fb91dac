//! A sample in a plan or a list: a line of JSON.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use shade_formats::SampleId;

use crate::catalogue::{Catalogue, Field, FieldContent, NewSample, SampleStore, is_safe_path};

/// All that the catalogue knows of a sample.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row<'a> {
    id: u32,
    label: u32,
    bytes: u32,
    changed_ns: i64,
    #[serde(default, skip_serializing_if = "is_first")]
    store: u32,
    #[serde(default, skip_serializing_if = "is_start")]
    offset: u64,
    #[serde(borrow)]
    path: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<FieldRow>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum FieldRow {
    /// Name and content.
    Inline(String, String),
    /// Name, and offset and bytes in the sample's container.
    Stored(String, u64, u32),
    /// Name of the pair, and bytes and time of the file.
    File(String, u32, i64),
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_first(store: &u32) -> bool {
    *store == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
fn is_start(offset: &u64) -> bool {
    *offset == 0
}

/// Appends the row of sample `id`.
pub(super) fn encode(catalogue: &Catalogue, id: SampleId, out: &mut Vec<u8>) -> Result<(), String> {
    let (Some(sample), Some(store)) = (catalogue.sample(id), catalogue.store_of(id)) else {
        return Err(format!("there is no sample {}", id.0));
    };
    let field = |field: Field<'_>| {
        let name = field.name.to_owned();
        match field.content {
            FieldContent::Inline(content) => match std::str::from_utf8(content) {
                Ok(text) => Ok(FieldRow::Inline(name, text.to_owned())),
                Err(_) => Err(format!("the field {} of {} is not UTF-8", field.name, sample.path)),
            },
            FieldContent::Stored { offset, bytes } => Ok(FieldRow::Stored(name, offset, bytes)),
            FieldContent::File { bytes, changed_ns, .. } => Ok(FieldRow::File(name, bytes, changed_ns)),
        }
    };
    let row = Row {
        id: id.0,
        label: sample.label,
        bytes: sample.bytes,
        changed_ns: sample.changed_ns,
        store,
        offset: sample.offset,
        path: Cow::Borrowed(sample.path),
        fields: catalogue.fields(id).map(field).collect::<Result<_, _>>()?,
    };
    serde_json::to_writer(&mut *out, &row).map_err(|fault| fault.to_string())?;
    out.push(b'\n');
    Ok(())
}

/// Adds all samples of a run to a catalogue that has their classes and stores. Gives their ids, as
/// they were written.
pub(super) fn decode(bytes: &[u8], catalogue: &mut Catalogue) -> Result<Vec<SampleId>, String> {
    let mut ids = Vec::new();
    for row in serde_json::Deserializer::from_slice(bytes).into_iter::<Row<'_>>() {
        let row = row.map_err(|fault| fault.to_string())?;
        let path = row.path.as_ref();
        let wrong = |what: &str| format!("sample {}, '{path}': {what}", row.id);
        match catalogue.stores.get(row.store as usize) {
            None => return Err(wrong(&format!("there is no store {}", row.store))),
            Some(SampleStore::Folder(_)) if !is_safe_path(path) => {
                return Err(wrong("it leads out of its folder"));
            }
            Some(_) => {}
        }
        if row.label as usize >= catalogue.classes.len() {
            return Err(wrong(&format!("there is no class {}", row.label)));
        }
        let Row { label, bytes, changed_ns, store, offset, .. } = row;
        let sample = NewSample { path, label, bytes, changed_ns, store, offset };
        catalogue.push_of_whole(SampleId(row.id), sample).map_err(|fault| wrong(&fault.to_string()))?;
        for field in &row.fields {
            let pushed = match field {
                FieldRow::Inline(name, content) => {
                    catalogue.push_field(name, FieldContent::Inline(content.as_bytes()))
                }
                &FieldRow::Stored(ref name, offset, bytes) => {
                    catalogue.push_field(name, FieldContent::Stored { offset, bytes })
                }
                &FieldRow::File(ref name, bytes, changed_ns) => {
                    let pair = catalogue.pairs.iter().find(|pair| pair.name == *name).cloned();
                    let pair = pair.ok_or_else(|| wrong(&format!("there is no pair {name}")))?;
                    catalogue.push_field(name, FieldContent::File { pair: &pair, bytes, changed_ns })
                }
            };
            pushed.map_err(|fault| wrong(&fault.to_string()))?;
        }
        ids.push(SampleId(row.id));
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn catalogue() -> Catalogue {
        let mut catalogue =
            Catalogue::new(vec![SampleStore::Folder("root".into()), SampleStore::Container("a.tar".into())]);
        catalogue.classes = vec!["ant".to_owned(), "bee".to_owned()];
        catalogue
    }

    fn filled() -> Catalogue {
        let mut filled = catalogue();
        for (number, path) in ["ant/1.png", "bee/\u{fc} \"quoted\".png", "a/b\n"].into_iter().enumerate() {
            let (label, store) = (u32::from(number > 0), u32::from(number == 2));
            let offset = if store == 1 { 512 } else { 0 };
            filled.push(NewSample { path, label, bytes: 7, changed_ns: -9, store, offset }).unwrap();
        }
        filled.push_field("json", FieldContent::Inline("{\"a\": \"\u{fc}\"}".as_bytes())).unwrap();
        filled.push_field("txt", FieldContent::Stored { offset: 1 << 40, bytes: 3 }).unwrap();
        filled
    }

    fn encoded(catalogue: &Catalogue) -> Vec<u8> {
        let mut bytes = Vec::new();
        // In another order, as a shard has them.
        for id in [2, 0, 1] {
            encode(catalogue, SampleId(id), &mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn samples_come_back_with_their_ids_and_fields() {
        let (whole, mut part) = (filled(), catalogue());
        let ids = decode(&encoded(&whole), &mut part).unwrap();
        assert_eq!(ids, [2, 0, 1].map(SampleId));
        for (number, id) in (0..3).map(SampleId).zip(ids) {
            assert_eq!(part.whole_id(number), id);
            assert_eq!(part.sample(number), whole.sample(id));
            assert!(part.fields(number).eq(whole.fields(id)));
        }
    }

    #[test]
    fn rows_that_lead_elsewhere_are_refused() {
        let good = r#"{"id":0,"label":0,"bytes":7,"changed_ns":1,"store":0,"offset":0,"path":"ant/1.png"}"#;
        assert_eq!(decode(good.as_bytes(), &mut catalogue()).unwrap().len(), 1);
        for (old, new) in [
            ("ant/1.png", "/etc/passwd"),
            ("ant/1.png", "../secret"),
            ("ant/1.png", ""),
            (r#""label":0"#, r#""label":2"#),
            (r#""store":0"#, r#""store":2"#),
            (r#""bytes":7"#, r#""bytes":0"#),
            (r#""bytes":7"#, r#""bytes":-1"#),
            (r#""bytes":7"#, r#""bytes":4294967295"#),
            (r#""id":0,"#, ""),
            ("}", ""),
        ] {
            let bad = good.replacen(old, new, 1);
            assert!(decode(bad.as_bytes(), &mut catalogue()).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            at in 0usize..300,
        ) {
            let _ = decode(&bytes, &mut catalogue());
            let mut rows = encoded(&filled());
            let at = at % rows.len();
            rows.splice(at..at, bytes);
            let _ = decode(&rows, &mut catalogue());
        }
    }
}
