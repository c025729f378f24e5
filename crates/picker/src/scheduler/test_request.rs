//! Requests of tests and simulations.

use super::{AdmissionRequest, Permit, RequestedModel, RoutingError, Scheduler};
use crate::{flow_headers::FlowHeaders, request};

const PROMPT: &str = "Why do horses sleep standing?";

/// Admits a completion with a short prompt, which addresses no pool.
pub(super) async fn admit(scheduler: &Scheduler, model: &str) -> Result<Permit, RoutingError> {
    admit_prompt(scheduler, model, PROMPT, None).await
}

/// Admits a completion with this prompt and these headers.
pub(super) async fn admit_prompt(
    scheduler: &Scheduler,
    model: &str,
    prompt: &str,
    flow: Option<&FlowHeaders>,
) -> Result<Permit, RoutingError> {
    let body = format!(r#"{{"model":"{model}","prompt":"{prompt}"}}"#);
    let info = request::parse_request(body.as_bytes()).unwrap();
    let (model, body) = (RequestedModel::Name(model), body.as_bytes());
    let request = AdmissionRequest {
        pool: None,
        model,
        body,
        info: &info,
        path: "/v1/completions",
        flow,
        subset: None,
        session: None,
    };
    scheduler.admit(&request).await
}
