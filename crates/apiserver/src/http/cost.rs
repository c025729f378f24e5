//! Estimates the CPU time of a request before it is handled.

use http::Method;
use memchr::memmem;

use super::path::RequestTarget;
use super::representation;
use super::request::ApiRequest;
use super::response_format::ResponseFormat;
use crate::resources::definition;
use crate::server::Server;

/// Size in bytes of the request body and the stored object from which a write is expensive: parsing, validating and
/// encoding them takes about a millisecond.
pub(super) const LARGE_OBJECT: usize = 32 * 1024;

/// Number of objects from which parsing all of them is expensive.
const MANY_OBJECTS: usize = 100;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Reads an object, or opens a watch, which is encoded while it is sent.
    Read { bytes: usize },
    /// Sends stored objects.
    List,
    /// Parses this number of objects.
    ParseObjects(usize),
    /// Writes an object.
    Write(Write),
    /// Deletes objects, with their dependents and contents.
    Delete,
}

/// Properties of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Write {
    /// Size of the request body and the stored object.
    bytes: usize,
    /// Whether validation evaluates CEL rules.
    has_rules: bool,
    /// Whether the write changes a custom resource definition: its schema and rules are compiled.
    is_definition: bool,
    /// Whether the object is terminating: its removal continues the deletion of others.
    is_terminating: bool,
}

/// Reports whether a request can take more than about a millisecond of CPU time.
pub(super) fn is_expensive(server: &Server, target: &RequestTarget, request: &ApiRequest) -> bool {
    work(server, target, request).is_expensive()
}

fn work(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Work {
    let resource = &target.resource;
    let stored = target.name.as_deref().and_then(|name| {
        let key = resource.object_key(target.namespace(), name);
        server.store().get_stored(&key)
    });
    let stored_text = stored.as_ref().map_or(&b""[..], |stored| stored.json());
    match request.method {
        Method::GET if target.is_watch || request.query.flag("watch") => Work::Read { bytes: 0 },
        Method::GET if target.name.is_some() => Work::Read { bytes: stored_text.len() },
        Method::GET => {
            let selects =
                ["labelSelector", "fieldSelector"].iter().any(|selector| request.query.get(selector).is_some());
            let is_text =
                request.format == ResponseFormat::Object && representation::is_stored_representation(resource);
            if selects || !is_text { Work::ParseObjects(server.store().count(&resource.storage)) } else { Work::List }
        }
        Method::DELETE => Work::Delete,
        _ => Work::Write(Write {
            bytes: request.body.len() + stored_text.len(),
            has_rules: resource.has_rules,
            is_definition: resource.storage == definition::STORAGE,
            is_terminating: memmem::find(stored_text, b"\"deletionTimestamp\"").is_some(),
        }),
    }
}

// === impl Work ===

impl Work {
    fn is_expensive(self) -> bool {
        match self {
            Self::List => false,
            Self::Read { bytes } => bytes >= LARGE_OBJECT,
            Self::ParseObjects(count) => count >= MANY_OBJECTS,
            Self::Write(Write { bytes, has_rules, is_definition, is_terminating }) => {
                bytes >= LARGE_OBJECT || has_rules || is_definition || is_terminating
            }
            Self::Delete => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::small_object(Work::Read { bytes: 100 }, false)]
    #[case::large_object(Work::Read { bytes: LARGE_OBJECT }, true)]
    #[case::list(Work::List, false)]
    #[case::few_objects(Work::ParseObjects(MANY_OBJECTS - 1), false)]
    #[case::many_objects(Work::ParseObjects(MANY_OBJECTS), true)]
    #[case::small_write(Work::Write(Write { bytes: 100, ..Write::default() }), false)]
    #[case::large_write(Work::Write(Write { bytes: LARGE_OBJECT, ..Write::default() }), true)]
    #[case::rules(Work::Write(Write { has_rules: true, ..Write::default() }), true)]
    #[case::definition(Work::Write(Write { is_definition: true, ..Write::default() }), true)]
    #[case::terminating(Work::Write(Write { is_terminating: true, ..Write::default() }), true)]
    #[case::deletion(Work::Delete, true)]
    fn expensive_work(#[case] work: Work, #[case] expected: bool) {
        assert_eq!(work.is_expensive(), expected);
    }
}
