//! What a URL path asks for (`k8s.io/apiserver/pkg/endpoints/request`).

use std::sync::Arc;

use apimachinery::status::Status;

use crate::resources::{Registry, Resource};
use crate::store::Scope;

/// A path, before looking at which resources exist.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Path {
    Document(Document),
    Resource(Asked),
    Unknown,
}

/// What the server tells of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Document {
    Version,
    Health,
    /// `/api`
    Core,
    /// `/apis`
    Groups,
    Group {
        group: String,
    },
    GroupVersion {
        group: String,
        version: String,
    },
    OpenApiV2,
    OpenApiIndex,
    OpenApi {
        group: String,
        version: String,
    },
}

#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Asked {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    /// `None`: all namespaces, or cluster scope.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// By a path of its own, `/api/v1/watch/…`, as clients did long ago.
    pub(crate) watched: bool,
}

/// A path to a resource that exists.
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    pub(crate) watched: bool,
}

// === impl Path ===

impl Path {
    pub(crate) fn parse(path: &str) -> Self {
        let parts: Vec<String> = path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let owned = |text: &str| text.to_owned();
        Self::Document(match parts.as_slice() {
            ["version"] => Document::Version,
            ["healthz" | "livez" | "readyz", ..] => Document::Health,
            ["api"] => Document::Core,
            ["apis"] => Document::Groups,
            ["api", version] => Document::GroupVersion { group: String::new(), version: owned(version) },
            ["apis", group] => Document::Group { group: owned(group) },
            ["apis", group, version] => Document::GroupVersion { group: owned(group), version: owned(version) },
            ["openapi", "v2"] => Document::OpenApiV2,
            ["openapi", "v3"] => Document::OpenApiIndex,
            ["openapi", "v3", "api", version] => Document::OpenApi { group: String::new(), version: owned(version) },
            ["openapi", "v3", "apis", group, version] => {
                Document::OpenApi { group: owned(group), version: owned(version) }
            }
            ["api", version, "watch", rest @ ..] if !rest.is_empty() => {
                return Self::resource("", version, rest).watched();
            }
            ["apis", group, version, "watch", rest @ ..] if !rest.is_empty() => {
                return Self::resource(group, version, rest).watched();
            }
            ["api", version, rest @ ..] => return Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => return Self::resource(group, version, rest),
            _ => return Self::Unknown,
        })
    }

    /// By the old way to watch: `/api/v1/watch/…`.
    fn watched(self) -> Self {
        match self {
            Self::Resource(asked) => Self::Resource(Asked { watched: true, ..asked }),
            other => other,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let asked = Asked { group: group.to_owned(), version: version.to_owned(), ..Asked::default() };
        let owned = |text: &&str| Some((*text).to_owned());
        let core = group.is_empty();
        Self::Resource(match rest {
            ["namespaces", name, subresource @ ("status" | "finalize")] if core => {
                Asked { plural: "namespaces".to_owned(), name: owned(name), subresource: owned(subresource), ..asked }
            }
            ["namespaces", name] if core => Asked { plural: "namespaces".to_owned(), name: owned(name), ..asked },
            ["namespaces", namespace, plural, rest @ ..] if rest.len() <= 2 => Asked {
                plural: (*plural).to_owned(),
                namespace: owned(namespace),
                name: rest.first().and_then(owned),
                subresource: rest.get(1).and_then(owned),
                ..asked
            },
            [plural, rest @ ..] if rest.len() <= 2 => Asked {
                plural: (*plural).to_owned(),
                name: rest.first().and_then(owned),
                subresource: rest.get(1).and_then(owned),
                ..asked
            },
            _ => return Self::Unknown,
        })
    }
}

// === impl Asked ===

impl Asked {
    pub(crate) fn find(self, registry: &Registry) -> Result<Target, Status> {
        let resource = registry.get(&self.group, &self.version, &self.plural).ok_or_else(Status::no_such_path)?;
        let scoped = self.namespace.is_some();
        if resource.namespaced != scoped && (scoped || self.name.is_some()) {
            return Err(Status::no_such_path());
        }
        let Self { namespace, name, subresource, watched, .. } = self;
        if let Some(dots @ ("." | "..")) = name.as_deref() {
            return Err(Status::bad_request(format!("Name parameter invalid: {dots:?}: may not be '{dots}'")));
        }
        Ok(Target { resource, namespace, name, subresource, watched })
    }
}

// === impl Target ===

impl Target {
    /// The collection that the path is about.
    pub(crate) fn scope(&self) -> Scope {
        Scope { resource: self.resource.storage.clone(), namespace: self.namespace.clone() }
    }

    /// Empty for cluster scope.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    /// Empty for collections.
    pub(crate) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Percent decoding; what is malformed stays as it is and is then not found.
fn decode(part: &str) -> String {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten();
        let value = hex.and_then(|hex| std::str::from_utf8(hex).ok()).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        (rest, _) = match value {
            Some(value) => (&tail[2..], bytes.push(value)),
            None => (tail, bytes.push(*first)),
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| part.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn asked(path: &str) -> (String, Option<String>, Option<String>, Option<String>) {
        match Path::parse(path) {
            Path::Resource(asked) => (asked.plural, asked.namespace, asked.name, asked.subresource),
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
    fn paths_name_resources(
        #[case] path: &str,
        #[case] plural: &str,
        #[case] namespace: Option<&str>,
        #[case] name: Option<&str>,
        #[case] subresource: Option<&str>,
    ) {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        assert_eq!(asked(path), (plural.to_owned(), owned(namespace), owned(name), owned(subresource)));
    }
}
