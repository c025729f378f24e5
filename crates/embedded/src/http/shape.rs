//! What a client wants to see of objects (`Accept`).

use apimachinery::status::Status;

use crate::resources::Resource;

/// What the client wants to see of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Full,
    /// `as=Table`
    Table,
    /// `as=PartialObjectMetadata`
    Metadata,
    /// `as=PartialObjectMetadataList`
    MetadataList,
}

// === impl Shape ===

impl Shape {
    /// The first entry of `Accept` that can be served.
    pub(crate) fn negotiate(accept: &str) -> Result<Self, Status> {
        if accept.trim().is_empty() {
            return Ok(Self::Full);
        }
        let entries = accept.split(',').map(|entry| entry.split(';').map(str::trim).collect::<Vec<_>>());
        for entry in entries {
            let Some((media, parameters)) = entry.split_first() else { continue };
            if !matches!(*media, "application/json" | "*/*" | "application/yaml" | "text/plain") {
                continue;
            }
            let kind = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
            let version = parameters.iter().find_map(|parameter| parameter.strip_prefix("v="));
            let group_is_known = parameters.contains(&"g=meta.k8s.io");
            match kind {
                None => return Ok(Self::Full),
                _ if !group_is_known || !matches!(version, Some("v1" | "v1beta1")) => {}
                Some("Table") => return Ok(Self::Table),
                Some("PartialObjectMetadata") => return Ok(Self::Metadata),
                Some("PartialObjectMetadataList") => return Ok(Self::MetadataList),
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable("only the following media types are accepted: application/json, application/yaml"))
    }

    /// Refuses the metadata of a list as that of an object, and the other way round.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn suits(self, resource: &Resource, is_list: bool) -> Result<(), Status> {
        let group =
            if resource.group.is_empty() || resource.group == "events.k8s.io" { "core" } else { &resource.group };
        let package = group.split('.').next().unwrap_or(group);
        let name = if resource.custom {
            "unstructured.Unstructured".to_owned()
        } else {
            format!("{package}.{}", resource.kind)
        };
        let message = match (self, is_list) {
            (Self::Metadata, true) => {
                format!("you requested PartialObjectMetadata, but the requested object is a list (*{name}List)")
            }
            (Self::MetadataList, false) => {
                format!("you requested PartialObjectMetadataList, but the requested object is not a list (*{name})")
            }
            _ => return Ok(()),
        };
        Err(Status::not_acceptable(message))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::none("", Some(Shape::Full))]
    #[case::kubectl_get(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        Some(Shape::Table)
    )]
    #[case::kubectl_describe("application/vnd.kubernetes.protobuf,application/json", Some(Shape::Full))]
    #[case::owns("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Shape::MetadataList))]
    #[case::protobuf("application/vnd.kubernetes.protobuf", None)]
    fn the_first_served_type_wins(#[case] accept: &str, #[case] expected: Option<Shape>) {
        assert_eq!(Shape::negotiate(accept).ok(), expected);
    }
}
