//! The API over HTTP: one handler that reads the path as kube-apiserver does, one file for each family of verbs.

mod delete;
mod evict;
mod list;
mod listing;
mod logs;
mod patch;
mod path;
mod query;
mod respond;
mod scale;
mod watch;
mod write;

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use apimachinery::status::Status;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use http::{Method, header};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use crate::resources::Registry;
use crate::server::{Server, VERSION};
use crate::{discovery, openapi};
use path::{Asked, Path, Target};
use query::Query;
use respond::{Shape, object, text};

/// Largest request body in bytes, as kube-apiserver's.
const LARGEST_BODY: usize = 3 * 1024 * 1024;

/// How long a body may take to arrive.
const SLOWEST_BODY: Duration = Duration::from_secs(30);

/// One request, read as far as the kinds do not matter.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) query: Query,
    pub(crate) shape: Shape,
    /// Without its parameters.
    pub(crate) content_type: String,
    /// The default of `fieldManager`: the first word of the user agent.
    pub(crate) agent: String,
    pub(crate) body: bytes::Bytes,
}

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
    let path = Path::parse(request.uri().path());
    let accept = header_text(&request, header::ACCEPT);
    match path {
        Path::Version => Ok(object(&version())),
        Path::Health => Ok(text("ok")),
        Path::Core => Ok(respond::discovery(&accept, &server.registry(), true)),
        Path::Groups => Ok(respond::discovery(&accept, &server.registry(), false)),
        Path::Group { group } => {
            discovery::group(&server.registry(), &group).map(|found| object(&found)).ok_or_else(Status::no_such_path)
        }
        Path::GroupVersion { group, version } => discovery::resources(&server.registry(), &group, &version)
            .map(|found| object(&found))
            .ok_or_else(Status::no_such_path),
        Path::OpenApiV2 => Ok(respond::openapi_v2(&accept)),
        Path::OpenApiIndex => Ok(object(&openapi::index(&server.registry()))),
        Path::OpenApi { group, version } => {
            discovery::resources(&server.registry(), &group, &version).ok_or_else(Status::no_such_path)?;
            Ok(object(&openapi::group_version(&server.registry(), &group, &version)))
        }
        Path::Unknown => Ok(respond::no_page()),
        Path::Resource(asked) if is_nowhere(&server.registry(), &asked) => Ok(respond::no_page()),
        Path::Resource(asked) => {
            let target = asked.find(&server.registry())?;
            let call = read(request, &accept).await?;
            let answer = serve(server, &target, &call);
            Ok(match &target.resource.deprecation {
                Some(warning) => {
                    respond::first_warning(answer.unwrap_or_else(|status| respond::failure(&status)), warning)
                }
                None => answer?,
            })
        }
    }
}

/// Whether nobody feels responsible: for groups that are not there, and for what no definition adds to its group.
fn is_nowhere(registry: &Registry, asked: &Asked) -> bool {
    !registry.serves(&asked.group, &asked.version)
        || registry.is_custom(&asked.group) && registry.get(&asked.group, &asked.version, &asked.plural).is_none()
}

fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    match target.subresource.as_deref() {
        None => {}
        Some("status") if target.resource.status => {}
        Some("finalize") if target.resource.plural == "namespaces" => {}
        Some("scale") if target.resource.scale.is_some() => return scale::serve(server, target, call),
        Some("log") if target.resource.storage == "pods" && call.method == Method::GET => {
            return logs::serve(server, target, &call.query);
        }
        Some("binding") if target.resource.storage == "pods" && call.method == Method::POST => {
            return write::bind(server, target, call);
        }
        Some("eviction") if target.resource.storage == "pods" && call.method == Method::POST => {
            return evict::serve(server, target, call);
        }
        Some("exec" | "attach" | "portforward") if target.resource.storage == "pods" => {
            return Err(unavailable(target));
        }
        Some(_) if target.resource.custom => {
            return Err(Status::not_found(&target.resource.qualified(), target.name()));
        }
        Some(_) => return Err(Status::no_such_path()),
    }
    match (&call.method, target.name.is_some()) {
        (&Method::GET, _) if call.query.flag("watch") => watch::serve(server, target, call),
        (&Method::GET, false) => list::serve(server, target, call),
        (&Method::GET, true) => list::one(server, target, call),
        (&Method::POST, false) => write::create(server, target, call),
        (&Method::PUT, true) => write::replace(server, target, call),
        (&Method::PATCH, true) => patch::serve(server, target, call),
        (&Method::DELETE, true) => delete::one(server, target, call),
        (&Method::DELETE, false) => delete::collection(server, target, call),
        _ => Err(Status::method_not_allowed()),
    }
}

/// Nothing here speaks the streaming protocols of these.
fn unavailable(target: &Target) -> Status {
    let what = match target.subresource.as_deref() {
        Some("portforward") => {
            "port-forward is not available here: the Pod's own address is reachable from this machine"
        }
        Some("attach") => "attach is not available here: read the container's output with `kubectl logs -f`",
        _ => "exec is not available here: containers are processes of this machine",
    };
    Status::not_implemented(format!("pod {}: {what}", target.name()))
}

async fn read(request: Request, accept: &str) -> Result<Call, Status> {
    let content_type = header_text(&request, header::CONTENT_TYPE);
    let content_type = content_type.split(';').next().unwrap_or_default().trim().to_owned();
    let agent = header_text(&request, header::USER_AGENT);
    let agent = agent.split(['/', ' ']).next().unwrap_or_default().to_owned();
    let query = Query::parse(request.method(), request.uri())?;
    let shape = Shape::negotiate(accept)?;
    let method = request.method().clone();
    let body: Body = request.into_body();
    let mut whole = pin!(Limited::new(body, LARGEST_BODY).collect());
    // Most bodies are there with their head, and need no clock.
    let whole = match futures::poll!(&mut whole) {
        Poll::Ready(whole) => whole,
        Poll::Pending => tokio::time::timeout(SLOWEST_BODY, whole).await.map_err(|_| {
            let limit = SLOWEST_BODY.as_secs();
            Status::too_slow(format!("the body of the request did not arrive within {limit} seconds"))
        })?,
    };
    let body = whole.map_err(|error| {
        if error.downcast_ref::<http_body_util::LengthLimitError>().is_some() {
            Status::too_large(format!("limit is {LARGEST_BODY} bytes"))
        } else {
            Status::bad_request(format!("the body could not be read: {error}"))
        }
    })?;
    Ok(Call { method, query, shape, content_type, agent, body: body.to_bytes() })
}

fn header_text(request: &Request, name: header::HeaderName) -> String {
    let values = request.headers().get_all(name);
    values.iter().filter_map(|value| value.to_str().ok()).collect::<Vec<_>>().join(",")
}

fn version() -> Value {
    let mut parts = VERSION.trim_start_matches('v').split('.');
    json!({
        "major": parts.next(), "minor": parts.next(), "gitVersion": VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
    })
}

/// A failure from before the API, in its own shape.
pub(crate) fn refuse(status: &Status) -> Response {
    respond::failure(status)
}
