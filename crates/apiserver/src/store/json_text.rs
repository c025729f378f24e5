//! Encoding of JSON values with long strings.

use serde_json::Value;

use crate::cpu_threads::offer_cpu;

/// Length in bytes of the pieces in which a string is encoded. The serializer of `serde_json` examines each byte of a string for
/// escapes, which takes half a millisecond for 1 MiB.
const PIECE_LENGTH: usize = 64 * 1024;

/// Appends the JSON text of a value, the same as that of `serde_json`.
pub(super) fn write_value(json: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Array(items) => write_items(json, items),
        Value::Object(members) => {
            json.push(b'{');
            let mut separator: &[u8] = b"";
            for (name, value) in members {
                json.extend_from_slice(separator);
                write_string(json, name);
                json.push(b':');
                write_value(json, value);
                separator = b",";
            }
            json.push(b'}');
        }
        Value::String(text) => write_string(json, text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            // Writing JSON values to memory does not fail.
            let _ = serde_json::to_writer(json, value);
        }
    }
}

fn write_items(json: &mut Vec<u8>, items: &[Value]) {
    json.push(b'[');
    let mut separator: &[u8] = b"";
    for item in items {
        json.extend_from_slice(separator);
        write_value(json, item);
        separator = b",";
    }
    json.push(b']');
}

/// Appends a string with quotes.
pub(super) fn write_string(json: &mut Vec<u8>, mut text: &str) {
    json.push(b'"');
    while text.len() > PIECE_LENGTH {
        let (piece, rest) = text.split_at(text.floor_char_boundary(PIECE_LENGTH));
        write_piece(json, piece);
        offer_cpu();
        text = rest;
    }
    write_piece(json, text);
    json.push(b'"');
}

/// Appends a part of a string without quotes.
fn write_piece(json: &mut Vec<u8>, piece: &str) {
    if !needs_escapes(piece) {
        return json.extend_from_slice(piece.as_bytes());
    }
    let start = json.len();
    // Writing JSON values to memory does not fail.
    let _ = serde_json::to_writer(&mut *json, piece);
    json.pop();
    json.remove(start);
}

/// Returns whether a string contains quotes, backslashes or control characters. Without branches, so that the compiler examines
/// many bytes at a time.
fn needs_escapes(text: &str) -> bool {
    text.bytes().fold(false, |found, byte| found | (byte < b' ') | (byte == b'"') | (byte == b'\\'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn text(value: &Value) -> String {
        let mut json = Vec::new();
        write_value(&mut json, value);
        String::from_utf8(json).unwrap()
    }

    #[rstest]
    #[case::scalars(json!([null, true, -1, 1.5, 18_446_744_073_709_551_615_u64, "", [], {}]))]
    #[case::escapes(json!({"\"\\": "\u{0}\u{1f}\n\u{7f} /é\u{2028}", "b": [{"c": "d"}, 2]}))]
    #[case::long(json!("x".repeat(PIECE_LENGTH * 2 + 1)))]
    #[case::one_piece(json!("x".repeat(PIECE_LENGTH)))]
    #[case::escape_in_the_second_piece(json!(format!("{}\n{}", "x".repeat(PIECE_LENGTH), "y".repeat(PIECE_LENGTH))))]
    #[case::character_across_pieces(json!(format!("x{}\"", "é".repeat(PIECE_LENGTH))))]
    fn text_is_that_of_serde_json(#[case] value: Value) {
        assert_eq!(text(&value), value.to_string());
    }

    proptest! {
        #[test]
        fn strings_have_the_text_of_serde_json(string in any::<String>(), repetitions in 0_usize..20_000) {
            let value = json!(string.repeat(repetitions.min(200_000 / (string.len() + 1))));
            prop_assert_eq!(text(&value), value.to_string());
        }
    }
}
