//! The API over HTTP: one handler that reads the path as kube-apiserver does.
//!
//! A request is read ([`path`], [`call`], with [`query`] and [`shape`]), goes to what tells of the server itself
//! ([`documents`]), to a verb ([`verbs`], a file for each family) or to a part of an object ([`subresources`]), and is
//! answered ([`answer`], [`present`], [`respond`], [`warning`], [`yaml`]).

mod answer;
mod call;
mod documents;
mod path;
mod present;
mod query;
mod respond;
mod selection;
mod shape;
mod subresources;
mod verbs;
mod warning;
mod yaml;

use apimachinery::status::Status;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use http::header;

use crate::resources::Registry;
use crate::server::Server;
use call::Call;
use path::{Asked, Path};

/// The whole API, without TLS or authentication.
pub fn router(server: Server) -> Router {
    Router::new().fallback(handle).with_state(server)
}

async fn handle(State(server): State<Server>, request: Request) -> Response {
    let begun = server.store().since_now();
    let accept = call::header_text(&request, header::ACCEPT);
    let response = match answered(&server, request, &accept).await {
        Ok(response) => response,
        Err(status) => respond::failure(&status),
    };
    // Nobody is told what a crash could undo.
    let response = match server.store().durable(begun).await {
        Ok(()) => response,
        Err(failure) => respond::failure(&failure.status()),
    };
    if yaml::is_asked_for(&accept) { yaml::of(response).await } else { response }
}

/// A body is read whatever comes of it: a connection on which something is left unread cannot be used again.
async fn answered(server: &Server, request: Request, accept: &str) -> Result<Response, Status> {
    let (head, body) = request.into_parts();
    let body = call::whole(body).await?;
    answer(server, Request::from_parts(head, ()), body, accept)
}

fn answer(server: &Server, request: http::Request<()>, body: Bytes, accept: &str) -> Result<Response, Status> {
    let registry = server.registry();
    match Path::parse(request.uri().path()) {
        Path::Document(document) => documents::serve(&registry, &document, accept),
        Path::Unknown => Ok(respond::no_page()),
        Path::Resource(asked) if is_nowhere(&registry, &asked) => Ok(respond::no_page()),
        Path::Resource(asked) => {
            let target = asked.find(&registry)?;
            let call = Call::read(&request, body, accept)?;
            let answer = subresources::serve(server, &target, &call);
            let Some(deprecated) = &target.resource.deprecation else { return answer };
            Ok(warning::prepend(answer.unwrap_or_else(|status| respond::failure(&status)), deprecated))
        }
    }
}

/// Whether nobody feels responsible: for groups that are not there, and for what no definition adds to its group.
fn is_nowhere(registry: &Registry, asked: &Asked) -> bool {
    !registry.serves(&asked.group, &asked.version)
        || registry.is_custom(&asked.group) && registry.get(&asked.group, &asked.version, &asked.plural).is_none()
}

/// A failure from before the API, in its own shape.
pub(crate) fn refuse(status: &Status) -> Response {
    respond::failure(status)
}
