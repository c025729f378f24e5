//! Body of `/v1/models`.

use serde::Serialize;

use super::Null;

/// Body of `/v1/models`.
#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<Model<'a>>,
}

/// A served model name.
#[derive(Serialize)]
struct Model<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
    root: &'a str,
    parent: Option<&'a str>,
    max_model_len: Option<usize>,
    permission: [Permission; 1],
}

/// Permissions of a model, which vLLM always grants.
#[derive(Serialize)]
struct Permission {
    id: String,
    object: &'static str,
    created: i64,
    allow_create_engine: bool,
    allow_sampling: bool,
    allow_logprobs: bool,
    allow_search_indices: bool,
    allow_view: bool,
    allow_fine_tuning: bool,
    organization: &'static str,
    group: Null,
    is_blocking: bool,
}

/// Returns the body of `/v1/models`: one entry per served name of the base model.
pub(crate) fn models(names: &[&str], root: &str, max_model_len: usize, created: i64) -> Vec<u8> {
    let data = names
        .iter()
        .map(|name| Model {
            id: name,
            object: "model",
            created,
            owned_by: "vllm",
            root,
            parent: None,
            max_model_len: Some(max_model_len),
            permission: [permission(name, created)],
        })
        .collect();
    serde_json::to_vec(&ModelList { object: "list", data }).unwrap_or_default()
}

fn permission(name: &str, created: i64) -> Permission {
    Permission {
        id: format!("modelperm-{:016x}", xxhash_rust::xxh64::xxh64(name.as_bytes(), 0)),
        object: "model_permission",
        created,
        allow_create_engine: false,
        allow_sampling: true,
        allow_logprobs: true,
        allow_search_indices: false,
        allow_view: true,
        allow_fine_tuning: false,
        organization: "*",
        group: (),
        is_blocking: false,
    }
}
