//! Short hashes of templates, in the shape Kubernetes gives them.

use serde_json::Value;

/// FNV-1a, 32 bit, of the template's JSON (keys are sorted) and the collision count, written as Kubernetes' safe
/// encoding of the decimal number. The values differ from a real cluster's, which hashes a Go print of its structs.
pub(crate) fn template(template: &Value, collisions: i64) -> String {
    let mut text = template.to_string();
    if collisions > 0 {
        text.push_str(&collisions.to_string());
    }
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash.to_string().bytes().map(safe).collect()
}

/// `rand.SafeEncodeString`: no vowels, so no words.
fn safe(byte: u8) -> char {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_templates_have_equal_hashes() {
        let one = template(&json!({"a": 1, "b": 2}), 0);
        assert_eq!(one, template(&json!({"b": 2, "a": 1}), 0));
        assert_ne!(one, template(&json!({"a": 1, "b": 2}), 1));
        assert!(one.len() <= 10);
    }
}
