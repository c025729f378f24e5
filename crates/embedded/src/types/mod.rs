//! The fields of the built-in kinds, as their Go types have them: `messages.txt`, made by `generate/main.go` from the
//! struct tags of k8s.io/api. It says how they are written in protobuf, and which empty fields JSON has.
//!
//! A paragraph is a type; a line is `NUMBER NAME KIND`. The name `.` means that the members of the value stand in the
//! outer object. `?` after a kind: a pointer, absent and zero are different. `!`: JSON always has the field.

pub(crate) mod fit;
pub(crate) mod place;

use std::collections::HashMap;
use std::sync::OnceLock;

use place::Place;

/// One field of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    /// In protobuf.
    pub(crate) number: u64,
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// The type of each value.
    pub(crate) kind: &'static str,
    /// Absent and zero are different.
    pub(crate) is_pointer: bool,
    /// JSON has the field although its value is zero.
    pub(crate) is_always: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    List,
    /// By a string key.
    Map,
}

/// Only looked up, and that often.
type Types = HashMap<&'static str, Vec<Field>>;

const TEXT: &str = include_str!("messages.txt");

/// The fields of a type such as `apps.v1.Deployment`.
pub(crate) fn fields(name: &str) -> Option<&'static [Field]> {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(read).get(name).map(Vec::as_slice)
}

/// Drops the members that the type does not have, here and below, and returns their paths.
pub(crate) fn retain_known(name: &str, value: &mut serde_json::Value, place: &Place<'_>) -> Vec<String> {
    let (Some(fields), Some(members)) = (fields(held(name)), value.as_object_mut()) else { return Vec::new() };
    let mut unknown = Vec::new();
    members.retain(|member, value| {
        if matches!((place, member.as_str()), (Place::Top, "apiVersion" | "kind")) {
            return true;
        }
        let inner = Place::Member(place, member);
        let Some(field) = fields.iter().find(|field| field.name == member) else {
            unknown.push(inner.to_string());
            return false;
        };
        match value {
            serde_json::Value::Array(items) if field.shape == Shape::List => {
                for (index, item) in items.iter_mut().enumerate() {
                    unknown.extend(retain_known(field.kind, item, &Place::Item(&inner, index)));
                }
            }
            serde_json::Value::Object(entries) if field.shape == Shape::Map => {
                for (key, entry) in entries {
                    unknown.extend(retain_known(field.kind, entry, &Place::Entry(&inner, key)));
                }
            }
            value if field.shape == Shape::One => unknown.extend(retain_known(field.kind, value, &inner)),
            _ => {}
        }
        true
    });
    unknown
}

/// The type of an object where a type may also be something else: a schema where a schema or a list may stand.
fn held(name: &str) -> &str {
    match name {
        "apiextensions.v1.JSONSchemaPropsOrArray" | "apiextensions.v1.JSONSchemaPropsOrBool" => {
            "apiextensions.v1.JSONSchemaProps"
        }
        other => other,
    }
}

/// `apps/v1`, `Deployment` → `apps.v1.Deployment`; options belong to every group.
pub(crate) fn name(api_version: &str, kind: &str) -> String {
    if kind.ends_with("Options") {
        return format!("meta.v1.{kind}");
    }
    match api_version.split_once('/') {
        Some((group, version)) => format!("{}.{version}.{kind}", group.split('.').next().unwrap_or(group)),
        None => format!("core.{api_version}.{kind}"),
    }
}

fn read() -> Types {
    let paragraphs = TEXT.split("\n\n").filter_map(|paragraph| {
        let mut lines = paragraph.trim().lines();
        Some((lines.next()?, lines.filter_map(field).collect()))
    });
    paragraphs.collect()
}

fn field(line: &'static str) -> Option<Field> {
    let mut words = line.splitn(3, ' ');
    let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let bare = kind.trim_end_matches(['?', '!']);
    let (shape, inner) = match (bare.strip_prefix("[]"), bare.strip_prefix("map ")) {
        (Some(inner), _) => (Shape::List, inner),
        (_, Some(inner)) => (Shape::Map, inner),
        _ => (Shape::One, bare),
    };
    let marks = &kind[bare.len()..];
    Some(Field { number, name, shape, kind: inner, is_pointer: marks.contains('?'), is_always: marks.contains('!') })
}
