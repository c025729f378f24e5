//! The router that runs if neither the service nor the runtime sets an image for one: the SGLang Model Gateway, which forwards
//! requests to the Service of the engine. It does not coordinate prefill and decode, which requires the addresses of the Pods.

use serde_json::{Value, json};

use super::pod_spec::PORT;
use crate::launch;
use crate::names;
use crate::owner::Owner;
use crate::role::Role;

/// Image of the router, and its flags: package sglang-router 0.3.2 (README, which names the tag `latest`, and `router_args.py`).
const IMAGE: &str = "docker.io/lmsysorg/sgl-model-gateway:v0.3.2";

/// Returns the container of the default router in front of `engines`; `None` if it does not support them.
pub(super) fn container(owner: &Owner, engines: &[Role]) -> Option<Value> {
    let engine = engines.first()?;
    // The engine may consist of several replica sets, which share its Service.
    let is_supported =
        |role: &Role| role.component == engine.component && matches!(launch_engine(role), Some("sglang" | "vllm"));
    if !engines.iter().all(is_supported) {
        return None;
    }
    let service = names::component(&owner.name, &engine.component);
    let url = format!("http://{service}.{}:{}", owner.namespace, engine.port);
    let listen = ["--host", "0.0.0.0", "--port"].map(str::to_owned);
    let args = [listen.to_vec(), vec![PORT.to_string(), "--worker-urls".to_owned(), url]].concat();
    Some(json!({"image": IMAGE, "command": ["python3", "-m", "sglang_router.launch_router"], "args": args}))
}

fn launch_engine(role: &Role) -> Option<&'static str> {
    launch::inspect(role.template.pointer("/spec/containers/0")?).engine
}
