//! Admission for callers that send the requests themselves, such as a simulation of engines.

use std::net::SocketAddr;

use crate::{
    endpoint_subset::EndpointSubset,
    request::{RequestInfo, parse_request},
    scheduler::{AdmissionRequest, Permit, RequestedModel, Scheduler},
};

/// A request that counts as in flight on the selected endpoint until this value is dropped.
#[derive(Debug)]
pub struct AdmittedRequest {
    permit: Permit,
}

/// A request that cannot be sent to an endpoint. The message names the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdmissionError(String);

/// A request body whose fields have been found.
#[derive(Debug)]
pub struct ParsedBody<'a> {
    bytes: &'a [u8],
    info: RequestInfo,
}

// === impl Scheduler ===

impl Scheduler {
    /// Selects an endpoint for a request with this body to `path`, among those of all pools, as both frontends do.
    ///
    /// # Errors
    /// The body is not an OpenAI request, no pool serves its model, or no endpoint is available.
    pub fn admit_body(&self, path: &str, body: &[u8]) -> Result<AdmittedRequest, AdmissionError> {
        self.admit_parsed(path, &ParsedBody::parse(body)?, None)
    }

    /// Selects an endpoint like [`Self::admit_body`], among those of `subset` if there is one.
    ///
    /// # Errors
    /// No pool serves the model, or no endpoint is available.
    pub fn admit_parsed(
        &self,
        path: &str,
        ParsedBody { bytes: body, info }: &ParsedBody<'_>,
        subset: Option<&EndpointSubset>,
    ) -> Result<AdmittedRequest, AdmissionError> {
        let model = info.model.as_ref().map_or(RequestedModel::Unknown, |model| RequestedModel::Name(&model.name));
        let request = AdmissionRequest { pool: None, model, body, info, path, flow: None, subset, session: None };
        let permit = self.admit_now(&request).map_err(|error| AdmissionError(error.to_string()))?;
        Ok(AdmittedRequest { permit })
    }
}

// === impl ParsedBody ===

impl<'a> ParsedBody<'a> {
    /// Finds the fields of an OpenAI request.
    ///
    /// # Errors
    /// The body is not an OpenAI request.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AdmissionError> {
        let info = parse_request(bytes).map_err(|error| AdmissionError(error.to_string()))?;
        Ok(Self { bytes, info })
    }
}

// === impl AdmittedRequest ===

impl AdmittedRequest {
    /// Returns the address of the selected endpoint.
    pub fn endpoint(&self) -> SocketAddr {
        self.permit.selection.result.endpoint.address
    }

    /// Records that the engine sent the first part of the response: it has computed the prompt.
    pub fn record_first_byte(&self) {
        self.permit.record_first_byte();
    }
}
