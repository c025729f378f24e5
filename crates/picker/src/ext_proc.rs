//! Protobuf messages of Envoy's `ext_proc` v3 API and of the gRPC health checking protocol.
//!
//! The messages are written by hand from the published field numbers, so that the build does not need a protobuf compiler.
//! They contain the fields that the endpoint picker reads and writes; decoding skips other fields.

use std::collections::BTreeMap;

use bytes::Bytes;

/// `envoy.service.ext_proc.v3.ProcessingRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingRequest {
    /// Part of the request or response.
    #[prost(oneof = "processing_request::Request", tags = "2, 3, 4, 5, 6, 7")]
    pub request: Option<processing_request::Request>,
    /// Metadata of other filters of the proxy.
    #[prost(message, optional, tag = "8")]
    pub metadata_context: Option<Metadata>,
    /// How the proxy sends bodies; in the first message of a stream.
    #[prost(message, optional, tag = "11")]
    pub protocol_config: Option<ProtocolConfiguration>,
}

/// Oneof of [`ProcessingRequest`].
pub mod processing_request {
    use super::{HttpBody, HttpHeaders, HttpTrailers};

    /// Part of the HTTP request or response that the proxy sends.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Request {
        /// Headers of the request.
        #[prost(message, tag = "2")]
        RequestHeaders(HttpHeaders),
        /// Headers of the response.
        #[prost(message, tag = "3")]
        ResponseHeaders(HttpHeaders),
        /// Chunk of the request body.
        #[prost(message, tag = "4")]
        RequestBody(HttpBody),
        /// Chunk of the response body.
        #[prost(message, tag = "5")]
        ResponseBody(HttpBody),
        /// Trailers of the request.
        #[prost(message, tag = "6")]
        RequestTrailers(HttpTrailers),
        /// Trailers of the response.
        #[prost(message, tag = "7")]
        ResponseTrailers(HttpTrailers),
    }
}

/// `envoy.service.ext_proc.v3.ProtocolConfiguration`: how the proxy sends bodies, as [`BodySendMode`].
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProtocolConfiguration {
    /// Mode of the request body.
    #[prost(enumeration = "BodySendMode", tag = "1")]
    pub request_body_mode: i32,
    /// Mode of the response body.
    #[prost(enumeration = "BodySendMode", tag = "2")]
    pub response_body_mode: i32,
}

/// `ProcessingMode.BodySendMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
pub enum BodySendMode {
    /// The body is not sent.
    None = 0,
    /// Chunks are sent one after another, each answered before the next.
    Streamed = 1,
    /// The whole body is sent in one message.
    Buffered = 2,
    /// The body is sent in one message, truncated at the buffer limit.
    BufferedPartial = 3,
    /// Chunks are sent without waiting for responses.
    FullDuplexStreamed = 4,
}

/// `ProcessingMode.HeaderSendMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
pub enum HeaderSendMode {
    /// Send or skip according to the filter's default.
    Default = 0,
    /// Headers or trailers are sent.
    Send = 1,
    /// Headers or trailers are not sent.
    Skip = 2,
}

/// `envoy.service.ext_proc.v3.HttpHeaders`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpHeaders {
    /// Headers in order.
    #[prost(message, optional, tag = "1")]
    pub headers: Option<HeaderMap>,
    /// Whether this is the last message of the request or response.
    #[prost(bool, tag = "3")]
    pub end_of_stream: bool,
}

/// `envoy.service.ext_proc.v3.HttpBody`: a chunk of a body.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpBody {
    /// Content.
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    /// Whether this is the last message of the request or response.
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

/// `envoy.service.ext_proc.v3.HttpTrailers`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HttpTrailers {
    /// Trailers in order.
    #[prost(message, optional, tag = "1")]
    pub trailers: Option<HeaderMap>,
}

/// `envoy.config.core.v3.HeaderMap`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMap {
    /// Headers in order.
    #[prost(message, repeated, tag = "1")]
    pub headers: Vec<HeaderValue>,
}

/// `envoy.config.core.v3.HeaderValue`. Older proxies set `value` instead of `raw_value`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValue {
    /// Lower-case name.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Value as text.
    #[prost(string, tag = "2")]
    pub value: String,
    /// Value as bytes.
    #[prost(bytes = "bytes", tag = "3")]
    pub raw_value: Bytes,
}

/// `envoy.config.core.v3.Metadata`: metadata of the proxy's filters by namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Metadata {
    /// Structures by namespace.
    #[prost(btree_map = "string, message", tag = "1")]
    pub filter_metadata: BTreeMap<String, Struct>,
}

/// `google.protobuf.Struct`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Struct {
    /// Values by key.
    #[prost(btree_map = "string, message", tag = "1")]
    pub fields: BTreeMap<String, Value>,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// The value.
    #[prost(oneof = "value::Kind", tags = "3, 5, 6")]
    pub kind: Option<value::Kind>,
}

/// Oneof of [`Value`].
pub mod value {
    /// Supported kinds of values.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        /// A string.
        #[prost(string, tag = "3")]
        StringValue(String),
        /// A nested structure.
        #[prost(message, tag = "5")]
        StructValue(super::Struct),
        /// A list.
        #[prost(message, tag = "6")]
        ListValue(super::ListValue),
    }
}

/// `google.protobuf.ListValue`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListValue {
    /// Values in order.
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<Value>,
}

/// `envoy.service.ext_proc.v3.ProcessingResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessingResponse {
    /// Response to a part of the HTTP request or response.
    #[prost(oneof = "processing_response::Response", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub response: Option<processing_response::Response>,
    /// Metadata to set in the proxy.
    #[prost(message, optional, tag = "8")]
    pub dynamic_metadata: Option<Struct>,
    /// Processing mode for the rest of the stream.
    #[prost(message, optional, tag = "9")]
    pub mode_override: Option<ProcessingMode>,
}

/// Oneof of [`ProcessingResponse`].
pub mod processing_response {
    use super::{BodyResponse, HeadersResponse, ImmediateResponse, TrailersResponse};

    /// Response to the part of the HTTP request or response that the proxy sent.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Response {
        /// Answers the request headers.
        #[prost(message, tag = "1")]
        RequestHeaders(HeadersResponse),
        /// Answers the response headers.
        #[prost(message, tag = "2")]
        ResponseHeaders(HeadersResponse),
        /// Answers a chunk of the request body.
        #[prost(message, tag = "3")]
        RequestBody(BodyResponse),
        /// Answers a chunk of the response body.
        #[prost(message, tag = "4")]
        ResponseBody(BodyResponse),
        /// Answers the request trailers.
        #[prost(message, tag = "5")]
        RequestTrailers(TrailersResponse),
        /// Answers the response trailers.
        #[prost(message, tag = "6")]
        ResponseTrailers(TrailersResponse),
        /// Ends the stream: the proxy sends this response to the client.
        #[prost(message, tag = "7")]
        ImmediateResponse(ImmediateResponse),
    }
}

/// `envoy.service.ext_proc.v3.HeadersResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeadersResponse {
    /// Changes to the headers.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// `envoy.service.ext_proc.v3.BodyResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BodyResponse {
    /// Changes to the body.
    #[prost(message, optional, tag = "1")]
    pub response: Option<CommonResponse>,
}

/// `envoy.service.ext_proc.v3.TrailersResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrailersResponse {
    /// Headers to set and to remove.
    #[prost(message, optional, tag = "1")]
    pub header_mutation: Option<HeaderMutation>,
}

/// `envoy.service.ext_proc.v3.CommonResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CommonResponse {
    /// Headers to set and to remove.
    #[prost(message, optional, tag = "2")]
    pub header_mutation: Option<HeaderMutation>,
    /// Replacement of the chunk.
    #[prost(message, optional, tag = "3")]
    pub body_mutation: Option<BodyMutation>,
    /// Whether the proxy discards the selected route and selects it again.
    #[prost(bool, tag = "5")]
    pub clear_route_cache: bool,
}

/// `envoy.service.ext_proc.v3.HeaderMutation`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderMutation {
    /// Headers to set.
    #[prost(message, repeated, tag = "1")]
    pub set_headers: Vec<HeaderValueOption>,
    /// Names of headers to remove.
    #[prost(string, repeated, tag = "2")]
    pub remove_headers: Vec<String>,
}

/// `envoy.config.core.v3.HeaderValueOption`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeaderValueOption {
    /// Name and value.
    #[prost(message, optional, tag = "1")]
    pub header: Option<HeaderValue>,
    /// Action if the header already exists, as [`HeaderAppendAction`].
    #[prost(enumeration = "HeaderAppendAction", tag = "3")]
    pub append_action: i32,
}

/// `HeaderValueOption.HeaderAppendAction`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
pub enum HeaderAppendAction {
    /// Appends a value.
    AppendIfExistsOrAdd = 0,
    /// Adds the header unless it exists.
    AddIfAbsent = 1,
    /// Replaces the header or adds it.
    OverwriteIfExistsOrAdd = 2,
}

/// `envoy.service.ext_proc.v3.BodyMutation`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BodyMutation {
    /// Replacement in mode `FULL_DUPLEX_STREAMED`.
    #[prost(message, optional, tag = "3")]
    pub streamed_response: Option<StreamedBodyResponse>,
}

/// `envoy.service.ext_proc.v3.StreamedBodyResponse`: a chunk in mode `FULL_DUPLEX_STREAMED`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StreamedBodyResponse {
    /// Content.
    #[prost(bytes = "bytes", tag = "1")]
    pub body: Bytes,
    /// Whether this is the last message of the request or response.
    #[prost(bool, tag = "2")]
    pub end_of_stream: bool,
}

/// `envoy.service.ext_proc.v3.ImmediateResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImmediateResponse {
    /// Status.
    #[prost(message, optional, tag = "1")]
    pub status: Option<HttpStatus>,
    /// Headers in order.
    #[prost(message, optional, tag = "2")]
    pub headers: Option<HeaderMutation>,
    /// Content.
    #[prost(bytes = "bytes", tag = "3")]
    pub body: Bytes,
    /// Details for the access log of the proxy.
    #[prost(string, tag = "5")]
    pub details: String,
}

/// `envoy.type.v3.HttpStatus`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HttpStatus {
    /// HTTP status code.
    #[prost(int32, tag = "1")]
    pub code: i32,
}

/// `envoy.extensions.filters.http.ext_proc.v3.ProcessingMode`: which parts the proxy sends, and how.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ProcessingMode {
    /// Mode of the request headers.
    #[prost(enumeration = "HeaderSendMode", tag = "1")]
    pub request_header_mode: i32,
    /// Mode of the response headers.
    #[prost(enumeration = "HeaderSendMode", tag = "2")]
    pub response_header_mode: i32,
    /// Mode of the request body.
    #[prost(enumeration = "BodySendMode", tag = "3")]
    pub request_body_mode: i32,
    /// Mode of the response body.
    #[prost(enumeration = "BodySendMode", tag = "4")]
    pub response_body_mode: i32,
    /// Mode of the request trailers.
    #[prost(enumeration = "HeaderSendMode", tag = "5")]
    pub request_trailer_mode: i32,
    /// Mode of the response trailers.
    #[prost(enumeration = "HeaderSendMode", tag = "6")]
    pub response_trailer_mode: i32,
}

/// `grpc.health.v1.HealthCheckRequest`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HealthCheckRequest {
    /// Name of the service; empty for the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// `grpc.health.v1.HealthCheckResponse`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HealthCheckResponse {
    /// Status.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}

/// `HealthCheckResponse.ServingStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
pub enum ServingStatus {
    /// The status is unknown.
    Unknown = 0,
    /// The service accepts requests.
    Serving = 1,
    /// The service does not accept requests.
    NotServing = 2,
}

// === impl Struct ===

impl Struct {
    /// Returns a structure with one field.
    #[must_use]
    pub fn with_field(key: &str, kind: value::Kind) -> Self {
        Self { fields: [(key.to_owned(), Value { kind: Some(kind) })].into() }
    }
}

// === impl HeaderValue ===

impl HeaderValue {
    /// Returns the value as text, from `raw_value` if it is set.
    #[must_use]
    pub fn text(&self) -> String {
        if self.raw_value.is_empty() {
            self.value.clone()
        } else {
            String::from_utf8_lossy(&self.raw_value).into_owned()
        }
    }
}
