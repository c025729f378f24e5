//! The API over HTTP. One handler serves all paths, which are parsed as in kube-apiserver.
//!
//! A request is received ([`request_body`]), parsed ([`path`], [`request`], [`query`], [`response_format`]), moved to
//! another thread if it needs much CPU time ([`cost`], [`crate::cpu_threads`]), and handled by a discovery or OpenAPI
//! document ([`non_resource`]), a verb ([`verbs`]) or a subresource ([`subresources`]). Responses are built in
//! [`object_response`], [`representation`], [`response`], [`warning_header`] and [`yaml`].

mod cost;
mod non_resource;
mod object_response;
mod path;
mod query;
mod representation;
mod request;
mod request_body;
mod response;
mod response_format;
mod selection_predicate;
mod subresources;
mod verbs;
mod warning_header;
mod yaml;

use apimachinery::{Status, catch_future_panic};
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header;
use http_server::{BodyMemory, BodyReservation};

use crate::resources::Registry;
use crate::server::Server;
use path::{RequestPath, RequestTarget, ResourcePath};
use request::ApiRequest;
pub(crate) use request_body::body_memory;

/// Returns the API as an HTTP service without TLS and authentication, for example for `kube::Client::new`.
pub fn router(server: &Server) -> Router {
    Router::new().fallback(handle).with_state(server.clone())
}

async fn handle(State(server): State<Server>, request: Request) -> Response {
    // Held until the write is durable: the body, the object and its journal entry are in memory until then.
    let mut reservation = BodyReservation::default();
    let epoch = server.store().epoch();
    let accept = request::header_text(&request, header::ACCEPT);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match catch_future_panic(read_and_dispatch(&server, request, &accept, &mut reservation)).await {
        Ok(Ok(response)) => response,
        Ok(Err(status)) => response::status_response(&status),
        Err(panic) => {
            tracing::error!(%method, path, %panic, "failed to handle a request");
            response::panic_page()
        }
    };
    // Send a response only after the writes that it depends on are durable.
    let response = match server.store().wait_durable(epoch).await {
        Ok(()) => response,
        Err(failure) => response::status_response(&failure.status()),
    };
    if yaml::is_preferred(&accept) { yaml::to_yaml(server.cpu_threads(), response).await } else { response }
}

/// Reads the body before the request is handled, because a connection with an unread body cannot be reused.
async fn read_and_dispatch(
    server: &Server,
    request: Request,
    accept: &str,
    reservation: &mut BodyReservation,
) -> Result<Response, Status> {
    let (head, body) = request.into_parts();
    let memory = head.extensions.get::<BodyMemory>().cloned();
    let _head_reservation = request_body::reserve_head(&head, memory.as_ref())?;
    let body = request_body::read_body(body, memory).await?;
    *reservation = body.reservation;
    dispatch(server, Request::from_parts(head, ()), body.bytes, accept).await
}

async fn dispatch(server: &Server, request: http::Request<()>, body: Bytes, accept: &str) -> Result<Response, Status> {
    let mut registry = server.registry();
    let path = RequestPath::parse(request.uri().path());
    if let RequestPath::Resource(path) = &path
        && is_unserved(&registry, path)
    {
        // Another request may just have stored the definition.
        let name = format!("{}.{}", path.plural, path.group);
        if !server.is_definition_served(&name) {
            let server = server.clone();
            server.cpu_threads().clone().run(move || server.serve_definition(&name)).await?;
        }
        registry = server.registry();
    }
    match path {
        RequestPath::NonResource(path) if path.is_openapi() => {
            let accept = accept.to_owned();
            server.cpu_threads().run(move || non_resource::serve(&registry, &path, &accept)).await?
        }
        RequestPath::NonResource(path) => non_resource::serve(&registry, &path, accept),
        RequestPath::Unknown => Ok(response::not_found_page()),
        RequestPath::Resource(path) if is_unserved(&registry, &path) => Ok(response::not_found_page()),
        RequestPath::Resource(path) => {
            let target = path.resolve(&registry)?;
            let api_request = ApiRequest::read(&request, body, accept)?;
            if !cost::is_expensive(server, &target, &api_request) {
                return serve_resource(server, &target, &api_request);
            }
            let work = {
                let server = server.clone();
                move || serve_resource(&server, &target, &api_request)
            };
            server.cpu_threads().run(work).await?
        }
    }
}

fn serve_resource(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    let response = subresources::serve(server, target, request);
    let Some(deprecation) = &target.resource.deprecation_warning else { return response };
    Ok(warning_header::prepend(response.unwrap_or_else(|status| response::status_response(&status)), deprecation))
}

/// Reports whether a path gets the plain-text 404 page, as unknown groups and unknown resources of custom groups do.
fn is_unserved(registry: &Registry, path: &ResourcePath) -> bool {
    registry.get(&path.group, &path.version, &path.plural).is_none()
        && (!registry.serves(&path.group, &path.version) || registry.is_custom(&path.group))
}

/// Returns a response with a Status, for errors outside the API handlers.
pub(crate) fn status_response(status: &Status) -> Response {
    response::status_response(status)
}
