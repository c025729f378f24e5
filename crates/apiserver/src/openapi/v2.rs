//! OpenAPI v2 without definitions. kubectl requests it for kinds that no v3 document contains. With an empty document,
//! kubectl reports that the kind is not served; with a 404 response, it would report only the 404.

use prost::Message;
use serde_json::{Value, json};

use crate::version::KUBERNETES_VERSION;

/// Media type that client-go sends in `Accept` to request a [`Document`].
pub(crate) const ACCEPT_TYPE: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// Media type of the response, without the `@`, which `Content-Type` does not allow.
pub(crate) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const SWAGGER: &str = "2.0";
const TITLE: &str = "Kubernetes";

/// First fields of gnostic's `openapi.v2.Document`.
#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    swagger: String,
    #[prost(message, optional, tag = "2")]
    info: Option<Info>,
}

#[derive(Clone, PartialEq, Message)]
struct Info {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(string, tag = "2")]
    version: String,
}

/// Returns `/openapi/v2` as JSON.
pub(crate) fn json_document() -> Value {
    json!({"swagger": SWAGGER, "info": {"title": TITLE, "version": KUBERNETES_VERSION}, "paths": {}})
}

/// Returns `/openapi/v2` as protobuf.
pub(crate) fn protobuf_document() -> Vec<u8> {
    let info = Info { title: TITLE.to_owned(), version: KUBERNETES_VERSION.to_owned() };
    Document { swagger: SWAGGER.to_owned(), info: Some(info) }.encode_to_vec()
}
