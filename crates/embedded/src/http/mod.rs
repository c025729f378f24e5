//! The API over HTTP: one handler that reads the path as kube-apiserver does.
//!
//! A request is read ([`path`], [`call`], with [`query`] and [`shape`]), goes to what tells of the server itself
//! ([`documents`]), to a verb ([`verbs`], a file for each family) or to a part of an object ([`subresources`]), and is
//! answered ([`answer`], [`present`], [`respond`], [`warning`]).

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

use apimachinery::status::Status;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::Response;
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
    let response = match answer(&server, request).await {
        Ok(response) => response,
        Err(status) => respond::failure(&status),
    };
    // Nobody is told what a crash could undo.
    match server.store().durable(begun).await {
        Ok(()) => response,
        Err(failure) => respond::failure(&failure.status()),
    }
}

async fn answer(server: &Server, request: Request) -> Result<Response, Status> {
    let accept = call::header_text(&request, header::ACCEPT);
    let registry = server.registry();
    match Path::parse(request.uri().path()) {
        Path::Document(document) => documents::serve(&registry, &document, &accept),
        Path::Unknown => Ok(respond::no_page()),
        Path::Resource(asked) if is_nowhere(&registry, &asked) => Ok(respond::no_page()),
        Path::Resource(asked) => {
            let target = asked.find(&registry)?;
            let call = Call::read(request, &accept).await?;
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
