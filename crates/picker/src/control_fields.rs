//! Fields of request bodies by which proxies connect the engines of a prefill/decode pair. An engine opens connections to the
//! addresses in them, so clients must not set them.

use crate::json_scanner::ObjectFields;

/// Top-level fields. vLLM: `kv_transfer_params` contains `remote_host` and `remote_port`, `ec_transfer_params` those of an
/// encoder. SGLang: `bootstrap_*`. TensorRT-LLM: `disaggregated_params` contains `ctx_info_endpoint` and a serialized state.
const CONTROL_FIELDS: [&str; 7] = [
    "kv_transfer_params",
    "ec_transfer_params",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "bootstrap_pair_key",
    "disaggregated_params",
];

/// Further arguments of vLLM's engine: the server passes them on in the object that contains the fields of vLLM too.
const ENGINE_ARGUMENTS: &str = "vllm_xargs";

/// Identifier of a request in vLLM.
const REQUEST_ID: &str = "request_id";

/// Header with the identifier of a request. It takes precedence over the body.
pub(crate) const REQUEST_ID_HEADER: &str = "x-request-id";

/// vLLM's connectors P2P NCCL and MoRI-IO read the address of the other engine behind these texts in the identifier.
const ADDRESSES_IN_REQUEST_ID: [&str; 2] = ["___prefill_addr_", "___decode_addr_"];

/// Whether clients may set control fields.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ControlFields {
    /// Requests with such a field are rejected.
    #[default]
    Reject,
    /// The fields are forwarded: a trusted proxy sets them, and no client can reach the gateway without this proxy.
    Forward,
}

/// A request that names engines to connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Unsupported parameter: `{name}` with addresses of engines is accepted from trusted proxies only.")]
pub(crate) struct UnsupportedField {
    /// Name of the field or header.
    pub(crate) name: &'static str,
}

// === impl ControlFields ===

impl ControlFields {
    /// Checks the control field that [`control_field`] found in a body.
    ///
    /// # Errors
    /// Clients may not set it.
    pub(crate) fn check_field(self, name: Option<&'static str>) -> Result<(), UnsupportedField> {
        match name {
            Some(name) if self == Self::Reject => Err(UnsupportedField { name }),
            _ => Ok(()),
        }
    }

    /// Checks the values of the header `x-request-id`.
    ///
    /// # Errors
    /// One of them names engines to connect to, and clients may not do that.
    pub(crate) fn check_request_ids<V: AsRef<[u8]>>(
        self,
        values: impl IntoIterator<Item = V>,
    ) -> Result<(), UnsupportedField> {
        let is_control_field = values.into_iter().any(|value| names_engines(&String::from_utf8_lossy(value.as_ref())));
        self.check_field(is_control_field.then_some(REQUEST_ID_HEADER))
    }
}

/// Returns the name of the top-level field `key` if it names engines to connect to. The value `null` does not.
pub(crate) fn control_field(key: &str, value: &[u8]) -> Option<&'static str> {
    if value == b"null" {
        return None;
    }
    match key {
        ENGINE_ARGUMENTS => contains_control_field(value).then_some(ENGINE_ARGUMENTS),
        REQUEST_ID => serde_json::from_slice(value).is_ok_and(|id: String| names_engines(&id)).then_some(REQUEST_ID),
        _ => CONTROL_FIELDS.into_iter().find(|field| *field == key),
    }
}

/// Returns whether the identifier of a request names engines to connect to.
fn names_engines(request_id: &str) -> bool {
    ADDRESSES_IN_REQUEST_ID.iter().any(|address| request_id.contains(address))
}

fn contains_control_field(object: &[u8]) -> bool {
    let keys = ObjectFields::of(object).flatten().map(|field| serde_json::from_slice(&object[field.key]));
    keys.flatten().any(|key: String| CONTROL_FIELDS.contains(&key.as_str()))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::vllm("kv_transfer_params", r#"{"remote_host":"169.254.169.254"}"#, true)]
    #[case::encoder("ec_transfer_params", "{}", true)]
    #[case::sglang("bootstrap_host", r#""169.254.169.254""#, true)]
    #[case::room("bootstrap_room", "[1]", true)]
    #[case::tensorrt("disaggregated_params", r#"{"ctx_info_endpoint":"a"}"#, true)]
    #[case::null("kv_transfer_params", "null", false)]
    #[case::other_field("messages", r#"[{"kv_transfer_params":{}}]"#, false)]
    #[case::engine_arguments("vllm_xargs", r#"{"a":1,"kv_transfer_params":"x"}"#, true)]
    #[case::escaped_key("vllm_xargs", r#"{"kv_transfer_param\u0073":"x"}"#, true)]
    #[case::harmless_arguments("vllm_xargs", r#"{"a":["kv_transfer_params"],"b":{"kv_transfer_params":1}}"#, false)]
    #[case::request_id("request_id", r#""___prefill_addr_10.0.0.1:80___decode_addr_10.0.0.2:80_1""#, true)]
    #[case::escaped_request_id("request_id", r#""\u005f__decode_addr_10.0.0.2:80""#, true)]
    #[case::harmless_request_id("request_id", r#""prefill_addr-1""#, false)]
    fn finds_fields_that_name_engines(#[case] key: &'static str, #[case] value: &str, #[case] is_control_field: bool) {
        assert_eq!(control_field(key, value.as_bytes()), is_control_field.then_some(key));
    }
}
