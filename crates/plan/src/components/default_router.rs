//! The router that runs if neither the service nor the runtime sets an image for one: the SGLang Model Gateway, which balances
//! requests over OpenAI servers, and coordinates prefill and decode of SGLang.

use serde_json::{Value, json};

use super::pod_spec::PORT;
use crate::launch;
use crate::names;
use crate::owner::Owner;
use crate::role::Role;

/// Image of the router, and its flags: package sglang-router 0.3.2 (README and `router_args.py`).
const IMAGE: &str = "docker.io/lmsysorg/sgl-model-gateway:v0.3.2";

/// Returns the container of the default router in front of `engines`; `None` if it does not support them. It sends requests to
/// the Services of the components.
pub(super) fn container(owner: &Owner, engines: &[Role]) -> Option<Value> {
    let url = |component: &str| {
        let role = engines.iter().find(|role| role.component == component)?;
        let service = names::component(&owner.name, component);
        Some(format!("http://{service}.{}:{}", owner.namespace, role.port))
    };
    let runs = |engine: &str| engines.iter().all(|role| launch_engine(role) == Some(engine));
    let routes = match (url("engine")?, url("decoder")) {
        (engine, None) if runs("sglang") || runs("vllm") => vec!["--worker-urls".to_owned(), engine],
        (prefill, Some(decode)) if runs("sglang") => {
            vec!["--pd-disaggregation".to_owned(), "--prefill".to_owned(), prefill, "--decode".to_owned(), decode]
        }
        _ => return None,
    };
    let listen = ["--host", "0.0.0.0", "--port"].map(str::to_owned);
    let args = [listen.to_vec(), vec![PORT.to_string()], routes].concat();
    Some(json!({"image": IMAGE, "command": ["python3", "-m", "sglang_router.launch_router"], "args": args}))
}

fn launch_engine(role: &Role) -> Option<&'static str> {
    launch::inspect(role.template.pointer("/spec/containers/0")?).engine
}
