//! Hashes of templates, in the format of Kubernetes.

use serde_json::Value;

/// Returns the hash of a template: the 32-bit FNV-1a hash of its JSON (with sorted keys) and the collision count. The
/// decimal digits of the hash are encoded with `rand.SafeEncodeString`. The values differ from those of
/// kube-controller-manager, which hashes a dump of Go structs.
pub(crate) fn template_hash(template: &Value, collision_count: i64) -> String {
    let mut input = template.to_string();
    if collision_count > 0 {
        input.push_str(&collision_count.to_string());
    }
    apimachinery::fnv1a_32(input.as_bytes()).to_string().bytes().map(safe_encode).collect()
}

/// Encodes one byte as `rand.SafeEncodeString` does: without vowels, so that no words are formed.
fn safe_encode(byte: u8) -> char {
    const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_templates_have_equal_hashes() {
        let hash = template_hash(&json!({"a": 1, "b": 2}), 0);
        assert_eq!(hash, template_hash(&json!({"b": 2, "a": 1}), 0));
        assert_ne!(hash, template_hash(&json!({"a": 1, "b": 2}), 1));
        assert!(hash.len() <= 10);
    }
}
