//! Body of `/v1/models`.

use serde::Serialize;

use super::Null;
use crate::Config;

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

/// Returns the body of `/v1/models`: one entry per served name of the base model, and per adapter.
pub(crate) fn models(config: &Config, created: i64) -> Vec<u8> {
    let model = |id, root, parent, max_model_len| Model {
        id,
        object: "model",
        created,
        owned_by: "vllm",
        root,
        parent,
        max_model_len,
        permission: [permission(id, created)],
    };
    let names = config.model_names().into_iter();
    let base = names.map(|name| model(name, config.model.as_str(), None, Some(config.max_model_len)));
    let parent = Some(config.default_model_name());
    let adapters = config.lora_modules.iter().map(|module| model(&module.name, &module.path, parent, None));
    let data = base.chain(adapters).collect();
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
