//! Bodies in Kubernetes' protobuf, read into the JSON they stand for: since 1.32 kubectl sends what
//! `create deployment` and its like make in no other way, and takes a refusal as final.
//!
//! Answers are always JSON, which every client accepts. Kinds that no kubectl command sends so are refused.

mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::types::{self, Field, Shape};
use wire::{Fields, Malformed, Wire};

/// What clients call it.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Why a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    #[error("the message ends early or has a field of the wrong kind")]
    Malformed,
    #[error("{api_version}, Kind={kind} is not read from protobuf here; send it as application/json")]
    Unknown { api_version: String, kind: String },
}

/// The object in an envelope (`runtime.Unknown`), with its `apiVersion` and `kind`.
pub(crate) fn read(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::NoPrefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Fields::of(envelope) {
        match field? {
            (1, Wire::Bytes(type_meta)) => (api_version, kind) = texts(type_meta)?,
            (2, Wire::Bytes(inner)) => raw = inner,
            _ => {}
        }
    }
    let name = types::name(&api_version, &kind);
    let fields = types::fields(&name);
    let fields =
        fields.ok_or_else(|| ProtobufError::Unknown { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut object = message(fields, raw)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn message(fields: &[Field], bytes: &[u8]) -> Result<Map<String, Value>, Malformed> {
    let mut members = Map::new();
    for sent in Fields::of(bytes) {
        let (number, wire) = sent?;
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        match field.shape {
            Shape::Map => {
                let (key, value) = entry(field.kind, wire)?;
                object_at(&mut members, field.name).insert(key, value);
            }
            Shape::List => {
                let value = one(field.kind, wire)?;
                let list = members.entry(field.name).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or(Malformed)?.push(value);
            }
            Shape::One => {
                let value = one(field.kind, wire)?;
                match value {
                    Value::Object(inner) if field.name == "." => members.extend(inner),
                    Value::Null => {}
                    value if is_zero(&value) && !field.is_pointer && !field.is_always => {}
                    value => {
                        members.insert(field.name.to_owned(), value);
                    }
                }
            }
        }
    }
    Ok(members)
}

/// An entry of a map is a message of its key and its value.
fn entry(kind: &str, wire: Wire<'_>) -> Result<(String, Value), Malformed> {
    let Wire::Bytes(bytes) = wire else { return Err(Malformed) };
    let mut key = String::new();
    // Left out of the entry when it is zero.
    let mut value = match kind {
        "string" | "bytes" => json!(""),
        "resource.Quantity" => json!("0"),
        _ => json!({}),
    };
    for field in Fields::of(bytes) {
        match field? {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, wire) => value = one(kind, wire)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn one(kind: &str, wire: Wire<'_>) -> Result<Value, Malformed> {
    match (kind, wire) {
        ("string", Wire::Bytes(bytes)) => Ok(json!(text(bytes)?)),
        ("bytes", Wire::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        ("bool", Wire::Varint(value)) => Ok(json!(value != 0)),
        ("int", Wire::Varint(value)) => Ok(json!(value.cast_signed())),
        ("resource.Quantity", Wire::Bytes(bytes)) => Ok(json!(texts(bytes)?.0)),
        ("util.intstr.IntOrString", Wire::Bytes(bytes)) => int_or_string(bytes),
        ("meta.v1.Time" | "meta.v1.MicroTime", Wire::Bytes(bytes)) => time(kind, bytes),
        ("meta.v1.FieldsV1" | "runtime.RawExtension", Wire::Bytes(bytes)) => raw(bytes),
        (_, Wire::Bytes(bytes)) => message(types::fields(kind).ok_or(Malformed)?, bytes).map(Value::Object),
        _ => Err(Malformed),
    }
}

/// `{type, intVal, strVal}`.
fn int_or_string(bytes: &[u8]) -> Result<Value, Malformed> {
    let (mut is_text, mut number, mut word) = (false, 0, String::new());
    for field in Fields::of(bytes) {
        match field? {
            (1, Wire::Varint(kind)) => is_text = kind == 1,
            (2, Wire::Varint(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => word = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(word) } else { json!(number) })
}

/// `{seconds, nanos}`; an empty message is no time.
fn time(kind: &str, bytes: &[u8]) -> Result<Value, Malformed> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in Fields::of(bytes) {
        match field? {
            (1, Wire::Varint(value)) => seconds = value.cast_signed(),
            (2, Wire::Varint(value)) => nanoseconds = i32::try_from(value).map_err(|_| Malformed)?,
            _ => {}
        }
    }
    let at = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| Malformed)?;
    Ok(json!(if kind == "meta.v1.Time" { crate::object::time(at) } else { crate::object::micro_time(at) }))
}

/// JSON inside protobuf.
fn raw(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut value = Value::Null;
    for field in Fields::of(bytes) {
        if let (1, Wire::Bytes(json)) = field? {
            value = serde_json::from_slice(json).map_err(|_| Malformed)?;
        }
    }
    Ok(value)
}

/// The first two texts of a message.
fn texts(bytes: &[u8]) -> Result<(String, String), Malformed> {
    let mut found = (String::new(), String::new());
    for field in Fields::of(bytes) {
        match field? {
            (1, Wire::Bytes(bytes)) => found.0 = text(bytes)?,
            (2, Wire::Bytes(bytes)) => found.1 = text(bytes)?,
            _ => {}
        }
    }
    Ok(found)
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

fn object_at<'a>(members: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    crate::object::members(members.entry(name).or_insert_with(|| json!({})))
}

impl From<Malformed> for ProtobufError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A field of bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, message)].concat()
    }

    #[test]
    fn a_deployment_keeps_no_replicas_and_drops_empty_texts() {
        // As kubectl marshals: `replicas` is a pointer, `minReadySeconds` is not, `creationTimestamp` is empty.
        let metadata = [field(1, b"web"), field(2, b""), field(8, b"")].concat();
        let container = [field(1, b"main"), field(2, b"nginx")].concat();
        let template = field(2, &field(2, &container));
        let spec = [vec![1 << 3, 0, 5 << 3, 0], field(3, &template)].concat();
        let sent = envelope("apps/v1", "Deployment", &[field(1, &metadata), field(2, &spec)].concat());
        let read = read(&sent).unwrap();
        assert_eq!(read["metadata"], json!({"name": "web"}));
        assert_eq!(read["spec"]["replicas"], json!(0));
        assert!(read["spec"].get("minReadySeconds").is_none());
        assert_eq!(read["spec"]["template"]["spec"]["containers"], json!([{"name": "main", "image": "nginx"}]));
    }

    #[test]
    fn maps_bytes_and_inlined_messages() {
        let secret = [field(1, &field(1, b"s")), field(2, &[field(1, b"k"), field(2, b"v")].concat())].concat();
        let read_secret = read(&envelope("v1", "Secret", &secret)).unwrap();
        assert_eq!(read_secret["data"], json!({"k": "dg=="}));
        let rule = field(1, &field(2, b"pods"));
        let review = read(&envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", &field(2, &rule)));
        assert_eq!(review.unwrap()["spec"]["resourceAttributes"], json!({"verb": "pods"}));
    }

    #[test]
    fn what_is_not_known_says_what_to_send() {
        let error = read(&envelope("example.com/v1", "Widget", b"")).unwrap_err();
        assert!(error.to_string().contains("application/json"), "{error}");
        assert_eq!(read(b"{}"), Err(ProtobufError::NoPrefix));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, kind in "Deployment|Job|Pod") {
            let _ = read(&bytes);
            let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
            let mut sent = [MAGIC, &[1 << 3 | 2, 0][..]].concat();
            sent[5] = u8::try_from(api_version.len() + kind.len() + 4).unwrap();
            sent.extend(field(1, api_version.as_bytes()));
            sent.extend(field(2, kind.as_bytes()));
            sent.push(2 << 3 | 2);
            sent.push(u8::try_from(bytes.len().min(127)).unwrap());
            sent.extend(&bytes[..bytes.len().min(127)]);
            let _ = read(&sent);
        }
    }
}
