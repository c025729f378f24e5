//! Parses URL paths of the API (`k8s.io/apiserver/pkg/endpoints/request`).

use std::borrow::Cow;
use std::sync::Arc;

use apimachinery::Status;
use percent_encoding::percent_decode_str;

use crate::resources::{Registry, Resource};
use crate::store::CollectionKey;

/// Parsed path, before looking up the resource.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestPath {
    /// A path that does not name a resource.
    NonResource(NonResourcePath),
    /// A path of a resource.
    Resource(ResourcePath),
    /// A path that kube-apiserver does not serve.
    Unknown,
}

/// Path that does not name a resource: discovery, OpenAPI, version and health.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NonResourcePath {
    /// `/version`
    Version,
    /// `/healthz`, `/livez` and `/readyz`
    Health,
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    /// `/apis/GROUP`
    Group {
        /// API group; empty for the core group.
        group: String,
    },
    /// `/api/VERSION` and `/apis/GROUP/VERSION`
    GroupVersion {
        /// API group; empty for the core group.
        group: String,
        /// Version of the group.
        version: String,
    },
    /// `/openapi/v2`
    OpenApiV2,
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/api/VERSION` and `/openapi/v3/apis/GROUP/VERSION`
    OpenApi {
        /// API group; empty for the core group.
        group: String,
        /// Version of the group.
        version: String,
    },
}

/// Path of a resource; the resource may not exist.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct ResourcePath {
    /// API group; empty for the core group.
    pub(crate) group: String,
    /// Version of the group.
    pub(crate) version: String,
    /// Plural name of the resource.
    pub(crate) plural: String,
    /// `None` for all namespaces and for cluster scope.
    pub(crate) namespace: Option<String>,
    /// `None` for collections.
    pub(crate) name: Option<String>,
    /// `None` for the main resource.
    pub(crate) subresource: Option<String>,
    /// Whether the path is of the deprecated form `/api/v1/watch/…`.
    pub(crate) is_watch: bool,
}

/// Request path with the resource that it names.
pub(crate) struct RequestTarget {
    /// The resource in the version of the path.
    pub(crate) resource: Arc<Resource>,
    /// `None` for all namespaces and for cluster scope.
    pub(crate) namespace: Option<String>,
    /// `None` for collections.
    pub(crate) name: Option<String>,
    /// `None` for the main resource.
    pub(crate) subresource: Option<String>,
    /// Whether the path is of the deprecated form `/api/v1/watch/…`.
    pub(crate) is_watch: bool,
}

// === impl RequestPath ===

impl RequestPath {
    /// Parses the path of a URL.
    pub(crate) fn parse(path: &str) -> Self {
        let segments: Vec<String> = path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let owned = |text: &str| text.to_owned();
        Self::NonResource(match segments.as_slice() {
            ["version"] => NonResourcePath::Version,
            ["healthz" | "livez" | "readyz", ..] => NonResourcePath::Health,
            ["api"] => NonResourcePath::Core,
            ["apis"] => NonResourcePath::Groups,
            ["api", version] => NonResourcePath::GroupVersion { group: String::new(), version: owned(version) },
            ["apis", group] => NonResourcePath::Group { group: owned(group) },
            ["apis", group, version] => NonResourcePath::GroupVersion { group: owned(group), version: owned(version) },
            ["openapi", "v2"] => NonResourcePath::OpenApiV2,
            ["openapi", "v3"] => NonResourcePath::OpenApiIndex,
            ["openapi", "v3", "api", version] => {
                NonResourcePath::OpenApi { group: String::new(), version: owned(version) }
            }
            ["openapi", "v3", "apis", group, version] => {
                NonResourcePath::OpenApi { group: owned(group), version: owned(version) }
            }
            ["api", version, "watch", rest @ ..] if !rest.is_empty() => {
                return Self::resource("", version, rest).with_watch();
            }
            ["apis", group, version, "watch", rest @ ..] if !rest.is_empty() => {
                return Self::resource(group, version, rest).with_watch();
            }
            ["api", version, rest @ ..] => return Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => return Self::resource(group, version, rest),
            _ => return Self::Unknown,
        })
    }

    /// Marks a path of the deprecated form `/api/v1/watch/…`.
    fn with_watch(self) -> Self {
        match self {
            Self::Resource(resource_path) => Self::Resource(ResourcePath { is_watch: true, ..resource_path }),
            other => other,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let resource_path =
            ResourcePath { group: group.to_owned(), version: version.to_owned(), ..ResourcePath::default() };
        let owned = |text: &&str| Some((*text).to_owned());
        let is_core = group.is_empty();
        Self::Resource(match rest {
            ["namespaces", name, subresource @ ("status" | "finalize")] if is_core => ResourcePath {
                plural: "namespaces".to_owned(),
                name: owned(name),
                subresource: owned(subresource),
                ..resource_path
            },
            ["namespaces", name] if is_core => {
                ResourcePath { plural: "namespaces".to_owned(), name: owned(name), ..resource_path }
            }
            ["namespaces", namespace, plural, rest @ ..] if rest.len() <= 2 => ResourcePath {
                plural: (*plural).to_owned(),
                namespace: owned(namespace),
                name: rest.first().and_then(owned),
                subresource: rest.get(1).and_then(owned),
                ..resource_path
            },
            [plural, rest @ ..] if rest.len() <= 2 => ResourcePath {
                plural: (*plural).to_owned(),
                name: rest.first().and_then(owned),
                subresource: rest.get(1).and_then(owned),
                ..resource_path
            },
            _ => return Self::Unknown,
        })
    }
}

// === impl NonResourcePath ===

impl NonResourcePath {
    /// Reports whether the path is an OpenAPI document, which is generated for each request.
    pub(crate) fn is_openapi(&self) -> bool {
        matches!(self, Self::OpenApiV2 | Self::OpenApiIndex | Self::OpenApi { .. })
    }
}

// === impl ResourcePath ===

impl ResourcePath {
    /// Looks up the resource.
    ///
    /// # Errors
    /// 404 if the resource is not served in this scope, 400 for an invalid name.
    pub(crate) fn resolve(self, registry: &Registry) -> Result<RequestTarget, Status> {
        let resource = registry.get(&self.group, &self.version, &self.plural).ok_or_else(Status::path_not_found)?;
        let has_namespace = self.namespace.is_some();
        if resource.namespaced != has_namespace && (has_namespace || self.name.is_some()) {
            return Err(Status::path_not_found());
        }
        let Self { namespace, name, subresource, is_watch, .. } = self;
        if let Some(name @ ("." | "..")) = name.as_deref() {
            return Err(Status::bad_request(format!("Name parameter invalid: {name:?}: may not be '{name}'")));
        }
        Ok(RequestTarget { resource, namespace, name, subresource, is_watch })
    }
}

// === impl RequestTarget ===

impl RequestTarget {
    /// Returns the store key of the collection.
    pub(crate) fn collection_key(&self) -> CollectionKey {
        CollectionKey { resource: self.resource.storage.clone(), namespace: self.namespace.clone() }
    }

    /// Returns the namespace, or `""` for cluster scope and for all namespaces.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// Returns the name, or `""` for collections.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Percent-decodes a path segment. Malformed escapes and invalid UTF-8 are left as they are.
fn decode(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8().map_or_else(|_| segment.to_owned(), Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn resource_path(path: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        match RequestPath::parse(path) {
            RequestPath::Resource(resource_path) => {
                (resource_path.plural, resource_path.namespace, resource_path.name, resource_path.subresource)
            }
            other => panic!("{path} is {other:?}"),
        }
    }

    #[rstest]
    #[case("/api/v1/pods", "pods", None, None, None)]
    #[case("/api/v1/namespaces", "namespaces", None, None, None)]
    #[case("/api/v1/namespaces/x", "namespaces", None, Some("x"), None)]
    #[case("/api/v1/namespaces/x/status", "namespaces", None, Some("x"), Some("status"))]
    #[case("/api/v1/namespaces/x/pods/p/log", "pods", Some("x"), Some("p"), Some("log"))]
    #[case("/apis/apps/v1/namespaces/x/deployments", "deployments", Some("x"), None, None)]
    #[case("/apis/g/v1/things/a%3Ab/status", "things", None, Some("a:b"), Some("status"))]
    fn parses_resource_paths(
        #[case] path: &str,
        #[case] plural: &str,
        #[case] namespace: Option<&str>,
        #[case] name: Option<&str>,
        #[case] subresource: Option<&str>,
    ) {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        assert_eq!(resource_path(path), (plural.to_owned(), owned(namespace), owned(name), owned(subresource)));
    }
}
