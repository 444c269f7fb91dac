//! The schemas in docs/schemas are those of the types that are printed. Tests of the crates that
//! print include this file.

use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

/// Asserts that docs/schemas/NAME.json describes the type. `title` is what prints it. After a
/// change of the type, the test writes the file anew with SHADE_WRITE_SCHEMAS=1.
pub(crate) fn is_described<T: JsonSchema>(name: &str, title: &str) {
    let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    for_readers_of_json(&mut schema);
    schema["title"] = title.into();
    let undescribed = undescribed(&schema);
    assert!(undescribed.is_empty(), "{title}: the fields {undescribed:?} have no doc comment");
    let made = format!("{schema:#}\n");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = root.ancestors().find(|folder| folder.join("docs/schemas").is_dir()).unwrap();
    let path = root.join(format!("docs/schemas/{name}.json"));
    if std::env::var_os("SHADE_WRITE_SCHEMAS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(made == committed, "{} is not up to date: run it with SHADE_WRITE_SCHEMAS=1", path.display());
}

/// Keys without a description.
fn undescribed(schema: &Value) -> Vec<&str> {
    let types = schema["$defs"].as_object().into_iter().flat_map(|types| types.values());
    let keys = types.chain([schema]).filter_map(|schema| schema["properties"].as_object()).flatten();
    keys.filter(|(_, key)| key["description"].is_null()).map(|(name, _)| name.as_str()).collect()
}

/// Descriptions are doc comments. Here they have no links into the code, and null for `None`.
/// Defaults are for those who read a status back.
fn for_readers_of_json(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if let Some(Value::String(text)) = members.get_mut("description") {
                *text = without_links(text).replace("`None`", "null").replace('\n', " ");
                members.remove("default");
            }
            members.values_mut().for_each(for_readers_of_json);
        }
        Value::Array(list) => list.iter_mut().for_each(for_readers_of_json),
        _ => {}
    }
}

/// Turns [`name`](target) and [`name`] into `name`. A value of an enum is its name in lower case.
fn without_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap();
        let name = name.rsplit_once("::").map_or(name.to_owned(), |(_, value)| value.to_lowercase());
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        shown += &format!("`{name}`{}", target.map_or(rest, |(_, rest)| rest));
    }
    shown
}
