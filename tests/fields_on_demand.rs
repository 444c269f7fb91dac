//! The trainer itself reads extra fields on demand, checks them, and names damaged ones.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use shade_client::{ClientError, Content, Field, FieldsReader};
use shade_formats::index::{INDEX_FILE, Index};
use shade_formats::{ContentId, SampleId};
use shade_tests::{Packed, add_fields};

const BIG: usize = 300_000;

/// Every third sample has no field, every fourth only its label's, one has a large field.
fn fields_of(sample: u32) -> Vec<(String, Vec<u8>)> {
    let text = |name: &str, text: String| (name.to_owned(), text.into_bytes());
    let mut fields = vec![text("json", format!(r#"{{"sample":{sample}}}"#))];
    fields.push(text("cls", "0".to_owned()));
    fields.push(text("caption.txt", "words ".repeat(sample as usize * 20)));
    match sample {
        7 => fields.push(("mask.bin".to_owned(), vec![9; BIG])),
        _ if sample.is_multiple_of(3) => fields.clear(),
        _ if sample.is_multiple_of(4) => fields.retain(|(name, _)| name == "cls"),
        _ => fields.rotate_left(2),
    }
    fields
}

fn expected(sample: u32) -> Vec<Field> {
    let fields = fields_of(sample).into_iter().filter(|(name, _)| name != "cls");
    fields.map(|(name, bytes)| Field { name, bytes }).collect()
}

struct Rig {
    packed: Packed,
    folder: PathBuf,
    index: Index,
}

impl Rig {
    fn new() -> Self {
        let packed = Packed::mixed(12);
        let folder = packed.beside("with-fields");
        add_fields(&packed.dataset, &folder, |sample, _| fields_of(sample));
        let index = read_index(&folder);
        Self { packed, folder, index }
    }

    fn reader(&self, buffered: bool) -> FieldsReader {
        FieldsReader::new(&self.folder, Content::of(&self.index), buffered)
    }

    /// Changes a byte of the shard that holds `sample`, `at` bytes into its fields.
    fn damage(&self, sample: u32, at: u64) -> String {
        let shard = self.index.shard(self.index.entry(SampleId(sample)).unwrap().shard).unwrap().name;
        let mut bytes = fs::read(self.folder.join(shard)).unwrap();
        bytes[usize::try_from(self.index.fields(SampleId(sample)).unwrap().offset + at).unwrap()] ^= 1;
        fs::write(self.folder.join(shard), bytes).unwrap();
        shard.to_owned()
    }
}

fn read_index(folder: &Path) -> Index {
    Index::open(fs::read(folder.join(INDEX_FILE)).unwrap()).unwrap()
}

#[test]
fn fields_come_in_the_order_asked_for_directly_and_through_the_page_cache() {
    let rig = Rig::new();
    assert!(rig.index.shard_count() > 1, "the test means several shards");
    let all: Vec<i64> = (0..i64::from(rig.index.len())).rev().chain([7, 7, 0]).collect();
    let expected: Vec<_> = all.iter().map(|&sample| expected(u32::try_from(sample).unwrap())).collect();
    for buffered in [false, true] {
        let reader = rig.reader(buffered);
        for _ in 0..2 {
            assert!(reader.read(&all).unwrap() == expected);
        }
        assert!(reader.read(&[7]).unwrap()[0].iter().any(|field| field.bytes.len() == BIG));
        assert_eq!(reader.read(&[]).unwrap(), Vec::<Vec<Field>>::new());
    }
}

#[test]
fn damage_names_sample_path_shard_and_place() {
    let rig = Rig::new();
    let reader = rig.reader(false);
    let shard = rig.damage(7, 700);
    let error = reader.read(&[1, 7, 2]).unwrap_err();
    assert!(matches!(error, ClientError::Fields { sample: 7, .. }), "{error:?}");
    let text = error.to_string();
    let place = rig.index.fields(SampleId(7)).unwrap().offset;
    let path = &rig.packed.sources[7].path;
    let name = format!("fields of sample 7 ({path}) in shard {shard} at byte {place}: checksum mismatch");
    assert!(text.starts_with(&name), "{text} does not start with {name}");
    // Others in the shard are whole, and the reader goes on.
    assert_eq!(reader.read(&[1, 2]).unwrap(), [expected(1), expected(2)]);
    rig.damage(7, 700);
    assert_eq!(reader.read(&[7]).unwrap(), [expected(7)]);
    fs::remove_file(rig.folder.join(&shard)).unwrap();
    let text = rig.reader(false).read(&[7]).unwrap_err().to_string();
    assert!(text.contains(&shard) && text.contains("No such file"), "{text}");
    fs::write(rig.folder.join(&shard), vec![0; 1024]).unwrap();
    let text = rig.reader(true).read(&[7]).unwrap_err().to_string();
    assert!(text.contains("the shard ends early"), "{text}");
}

#[test]
fn ids_from_elsewhere_are_refused() {
    let rig = Rig::new();
    let reader = rig.reader(false);
    for id in [-1, i64::from(rig.index.len()), i64::MAX, i64::MIN, 1 << 32] {
        let text = reader.read(&[1, id]).unwrap_err().to_string();
        assert!(text.contains(&format!("sample: got {id}, expected an id below")), "{text}");
    }
}

#[test]
fn a_dataset_without_fields_gives_none_and_its_shards_are_not_touched() {
    let packed = Packed::pngs(5, 16);
    let index = packed.index();
    for shard in (0..index.shard_count()).map(shade_formats::ShardId) {
        fs::remove_file(packed.dataset.join(index.shard(shard).unwrap().name)).unwrap();
    }
    let reader = FieldsReader::new(&packed.dataset, Content::of(&index), false);
    assert_eq!(reader.read(&[0, 3]).unwrap(), [vec![], vec![]]);
    fs::remove_file(packed.dataset.join(INDEX_FILE)).unwrap();
    assert_eq!(reader.read(&[0]).unwrap(), [vec![]], "nothing is read but the index, once");
    assert!(reader.read(&[1 << 20]).is_err());
}

#[test]
fn an_index_that_is_missing_damaged_or_replaced_is_named() {
    let rig = Rig::new();
    let other =
        FieldsReader::new(&rig.folder, Content { id: ContentId(5), ..Content::of(&rig.index) }, false);
    let text = other.read(&[0]).unwrap_err().to_string();
    assert!(text.contains(INDEX_FILE) && text.contains("was replaced"), "{text}");
    let path = rig.folder.join(INDEX_FILE);
    let whole = fs::read(&path).unwrap();
    let reader = rig.reader(false);
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    assert!(matches!(reader.read(&[1]), Err(ClientError::Index { .. })));
    fs::remove_file(&path).unwrap();
    assert!(reader.read(&[1]).unwrap_err().to_string().contains("is no dataset"));
    fs::write(&path, whole).unwrap();
    assert_eq!(reader.read(&[1]).unwrap(), [expected(1)], "a failure is not kept");
}
