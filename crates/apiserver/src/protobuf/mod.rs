//! Decodes request bodies in the protobuf encoding of Kubernetes into JSON. Since 1.32, `kubectl create deployment` and
//! similar commands send only protobuf, without a fallback to JSON.
//!
//! Responses are always JSON, which every client accepts. Only kinds that kubectl sends as protobuf are supported.

mod wire;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::api_types::{self, Cardinality, TypeField};
use wire::{Malformed, WireFields, WireValue};

/// Content type of the protobuf encoding.
pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

const MAGIC: &[u8] = b"k8s\0";

/// Reason why a body cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    MissingPrefix,
    #[error("the message is truncated or has a field of the wrong type")]
    Malformed,
    #[error("protobuf is not supported for {api_version}, Kind={kind}; use application/json")]
    UnsupportedKind { api_version: String, kind: String },
}

/// Decodes the object in an envelope (`runtime.Unknown`), with its `apiVersion` and `kind`.
pub(crate) fn decode(bytes: &[u8]) -> Result<Value, DecodeError> {
    let envelope = bytes.strip_prefix(MAGIC).ok_or(DecodeError::MissingPrefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in WireFields::new(envelope) {
        match field? {
            (1, WireValue::Bytes(type_meta)) => (api_version, kind) = decode_two_strings(type_meta)?,
            (2, WireValue::Bytes(inner)) => raw = inner,
            _ => {}
        }
    }
    let name = api_types::type_name(&api_version, &kind);
    let fields = api_types::fields(&name);
    let fields =
        fields.ok_or_else(|| DecodeError::UnsupportedKind { api_version: api_version.clone(), kind: kind.clone() })?;
    let mut object = decode_message(fields, raw)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

fn decode_message(fields: &[TypeField], bytes: &[u8]) -> Result<Map<String, Value>, Malformed> {
    let mut members = Map::new();
    for encoded in WireFields::new(bytes) {
        let (number, wire) = encoded?;
        let Some(field) = fields.iter().find(|field| field.number == number) else { continue };
        match field.cardinality {
            Cardinality::Map => {
                let (key, value) = decode_map_entry(field.kind, wire)?;
                object_member(&mut members, field.name).insert(key, value);
            }
            Cardinality::List => {
                let value = decode_value(field.kind, wire)?;
                let list = members.entry(field.name).or_insert_with(|| json!([]));
                list.as_array_mut().ok_or(Malformed)?.push(value);
            }
            Cardinality::Single => {
                let value = decode_value(field.kind, wire)?;
                match value {
                    Value::Object(inner) if field.name == "." => members.extend(inner),
                    Value::Null => {}
                    value if is_zero(&value) && !field.is_pointer && !field.is_always_encoded => {}
                    value => {
                        members.insert(field.name.to_owned(), value);
                    }
                }
            }
        }
    }
    Ok(members)
}

/// Decodes a map entry, which is a message with a key and a value.
fn decode_map_entry(kind: &str, wire: WireValue<'_>) -> Result<(String, Value), Malformed> {
    let WireValue::Bytes(bytes) = wire else { return Err(Malformed) };
    let mut key = String::new();
    // The encoding omits zero values.
    let mut value = match kind {
        "string" | "bytes" => json!(""),
        "resource.Quantity" => json!("0"),
        _ => json!({}),
    };
    for field in WireFields::new(bytes) {
        match field? {
            (1, WireValue::Bytes(bytes)) => key = decode_string(bytes)?,
            (2, wire) => value = decode_value(kind, wire)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn decode_value(kind: &str, wire: WireValue<'_>) -> Result<Value, Malformed> {
    match (kind, wire) {
        ("string", WireValue::Bytes(bytes)) => Ok(json!(decode_string(bytes)?)),
        ("bytes", WireValue::Bytes(bytes)) => Ok(json!(STANDARD.encode(bytes))),
        ("bool", WireValue::Varint(value)) => Ok(json!(value != 0)),
        ("int" | "int64", WireValue::Varint(value)) => Ok(json!(value.cast_signed())),
        ("resource.Quantity", WireValue::Bytes(bytes)) => Ok(json!(decode_two_strings(bytes)?.0)),
        ("util.intstr.IntOrString", WireValue::Bytes(bytes)) => decode_int_or_string(bytes),
        ("meta.v1.Time" | "meta.v1.MicroTime", WireValue::Bytes(bytes)) => decode_time(kind, bytes),
        ("meta.v1.FieldsV1" | "runtime.RawExtension", WireValue::Bytes(bytes)) => decode_raw_json(bytes),
        (_, WireValue::Bytes(bytes)) => {
            decode_message(api_types::fields(kind).ok_or(Malformed)?, bytes).map(Value::Object)
        }
        _ => Err(Malformed),
    }
}

/// Decodes `IntOrString`: `{type, intVal, strVal}`.
fn decode_int_or_string(bytes: &[u8]) -> Result<Value, Malformed> {
    let (mut is_string, mut number, mut text_value) = (false, 0, String::new());
    for field in WireFields::new(bytes) {
        match field? {
            (1, WireValue::Varint(kind)) => is_string = kind == 1,
            (2, WireValue::Varint(value)) => number = value.cast_signed(),
            (3, WireValue::Bytes(bytes)) => text_value = decode_string(bytes)?,
            _ => {}
        }
    }
    Ok(if is_string { json!(text_value) } else { json!(number) })
}

/// Decodes a time: `{seconds, nanos}`. An empty message is null.
fn decode_time(kind: &str, bytes: &[u8]) -> Result<Value, Malformed> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    for field in WireFields::new(bytes) {
        match field? {
            (1, WireValue::Varint(value)) => seconds = value.cast_signed(),
            (2, WireValue::Varint(value)) => nanoseconds = i32::try_from(value).map_err(|_| Malformed)?,
            _ => {}
        }
    }
    let at = jiff::Timestamp::new(seconds, nanoseconds).map_err(|_| Malformed)?;
    Ok(json!(if kind == "meta.v1.Time" {
        apimachinery::object::format_time(at)
    } else {
        apimachinery::object::format_micro_time(at)
    }))
}

/// Decodes JSON embedded in protobuf.
fn decode_raw_json(bytes: &[u8]) -> Result<Value, Malformed> {
    let mut value = Value::Null;
    for field in WireFields::new(bytes) {
        if let (1, WireValue::Bytes(json)) = field? {
            value = serde_json::from_slice(json).map_err(|_| Malformed)?;
        }
    }
    Ok(value)
}

/// Decodes a message whose fields 1 and 2 are strings.
fn decode_two_strings(bytes: &[u8]) -> Result<(String, String), Malformed> {
    let mut strings = (String::new(), String::new());
    for field in WireFields::new(bytes) {
        match field? {
            (1, WireValue::Bytes(bytes)) => strings.0 = decode_string(bytes)?,
            (2, WireValue::Bytes(bytes)) => strings.1 = decode_string(bytes)?,
            _ => {}
        }
    }
    Ok(strings)
}

fn decode_string(bytes: &[u8]) -> Result<String, Malformed> {
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

fn object_member<'a>(members: &'a mut Map<String, Value>, name: &str) -> &'a mut Map<String, Value> {
    apimachinery::object::members(members.entry(name).or_insert_with(|| json!({})))
}

impl From<Malformed> for DecodeError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a field of type bytes.
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
    fn decodes_zero_pointers_and_omits_empty_values() {
        // As kubectl encodes it: `replicas` is a pointer, `minReadySeconds` is not, `creationTimestamp` is empty.
        let metadata = [field(1, b"web"), field(2, b""), field(8, b"")].concat();
        let container = [field(1, b"main"), field(2, b"nginx")].concat();
        let template = field(2, &field(2, &container));
        let spec = [vec![1 << 3, 0, 5 << 3, 0], field(3, &template)].concat();
        let encoded = envelope("apps/v1", "Deployment", &[field(1, &metadata), field(2, &spec)].concat());
        let decoded = decode(&encoded).unwrap();
        assert_eq!(decoded["metadata"], json!({"name": "web"}));
        assert_eq!(decoded["spec"]["replicas"], json!(0));
        assert!(decoded["spec"].get("minReadySeconds").is_none());
        assert_eq!(decoded["spec"]["template"]["spec"]["containers"], json!([{"name": "main", "image": "nginx"}]));
    }

    #[test]
    fn decodes_maps_bytes_and_embedded_messages() {
        let secret = [field(1, &field(1, b"s")), field(2, &[field(1, b"k"), field(2, b"v")].concat())].concat();
        let decoded = decode(&envelope("v1", "Secret", &secret)).unwrap();
        assert_eq!(decoded["data"], json!({"k": "dg=="}));
        let rule = field(1, &field(2, b"pods"));
        let review = decode(&envelope("authorization.k8s.io/v1", "SelfSubjectAccessReview", &field(2, &rule)));
        assert_eq!(review.unwrap()["spec"]["resourceAttributes"], json!({"verb": "pods"}));
    }

    #[test]
    fn unsupported_kind_names_alternative() {
        let error = decode(&envelope("example.com/v1", "Widget", b"")).unwrap_err();
        assert!(error.to_string().contains("application/json"), "{error}");
        assert_eq!(decode(b"{}"), Err(DecodeError::MissingPrefix));
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes(bytes: Vec<u8>, kind in "Deployment|Job|Pod") {
            let _ = decode(&bytes);
            let api_version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
            let mut encoded = [MAGIC, &[1 << 3 | 2, 0][..]].concat();
            encoded[5] = u8::try_from(api_version.len() + kind.len() + 4).unwrap();
            encoded.extend(field(1, api_version.as_bytes()));
            encoded.extend(field(2, kind.as_bytes()));
            encoded.push(2 << 3 | 2);
            encoded.push(u8::try_from(bytes.len().min(127)).unwrap());
            encoded.extend(&bytes[..bytes.len().min(127)]);
            let _ = decode(&encoded);
        }
    }
}
