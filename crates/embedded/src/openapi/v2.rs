//! OpenAPI v2, which kubectl asks where no v3 document knows a kind. A document without definitions lets it go on to say
//! that the kind is not served; a 404 here would be all that its user reads.

use prost::Message;
use serde_json::{Value, json};

use crate::server::VERSION;

/// How client-go asks for a [`Document`].
pub(crate) const ACCEPTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// What it is called in the answer, where `@` may not stand.
pub(crate) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const SWAGGER: &str = "2.0";
const TITLE: &str = "Kubernetes";

/// The head of `openapi.v2.Document` of gnostic.
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

/// `/openapi/v2` as JSON.
pub(crate) fn document() -> Value {
    json!({"swagger": SWAGGER, "info": {"title": TITLE, "version": VERSION}, "paths": {}})
}

/// The same as protobuf.
pub(crate) fn message() -> Vec<u8> {
    let info = Info { title: TITLE.to_owned(), version: VERSION.to_owned() };
    Document { swagger: SWAGGER.to_owned(), info: Some(info) }.encode_to_vec()
}
