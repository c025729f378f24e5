//! Negotiates the response format (`Accept`).

use apimachinery::Status;

use crate::resources::Resource;

/// Format of objects in responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    /// The complete object.
    Object,
    /// `as=Table`
    Table,
    /// `as=PartialObjectMetadata`
    PartialObjectMetadata,
    /// `as=PartialObjectMetadataList`
    PartialObjectMetadataList,
}

// === impl ResponseFormat ===

impl ResponseFormat {
    /// Returns the format of the first supported entry of `Accept`.
    pub(crate) fn negotiate(accept: &str) -> Result<Self, Status> {
        if accept.trim().is_empty() {
            return Ok(Self::Object);
        }
        let entries = accept.split(',').map(|entry| entry.split(';').map(str::trim).collect::<Vec<_>>());
        for entry in entries {
            let Some((media_type, parameters)) = entry.split_first() else { continue };
            if !matches!(*media_type, "application/json" | "*/*" | "application/yaml" | "text/plain") {
                continue;
            }
            let kind = parameters.iter().find_map(|parameter| parameter.strip_prefix("as="));
            let version = parameters.iter().find_map(|parameter| parameter.strip_prefix("v="));
            let is_meta_group = parameters.contains(&"g=meta.k8s.io");
            match kind {
                None => return Ok(Self::Object),
                _ if !is_meta_group || !matches!(version, Some("v1" | "v1beta1")) => {}
                Some("Table") => return Ok(Self::Table),
                Some("PartialObjectMetadata") => return Ok(Self::PartialObjectMetadata),
                Some("PartialObjectMetadataList") => return Ok(Self::PartialObjectMetadataList),
                Some(_) => {}
            }
        }
        Err(Status::not_acceptable("only the following media types are accepted: application/json, application/yaml"))
    }

    /// Rejects PartialObjectMetadata for lists and PartialObjectMetadataList for objects.
    ///
    /// # Errors
    /// 406.
    pub(crate) fn check_applicable(self, resource: &Resource, is_list: bool) -> Result<(), Status> {
        let group =
            if resource.group.is_empty() || resource.group == "events.k8s.io" { "core" } else { &resource.group };
        let package = group.split('.').next().unwrap_or(group);
        let name = if resource.custom {
            "unstructured.Unstructured".to_owned()
        } else {
            format!("{package}.{}", resource.kind)
        };
        let message = match (self, is_list) {
            (Self::PartialObjectMetadata, true) => {
                format!("you requested PartialObjectMetadata, but the requested object is a list (*{name}List)")
            }
            (Self::PartialObjectMetadataList, false) => {
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
    #[case::none("", Some(ResponseFormat::Object))]
    #[case::kubectl_get(
        "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
        Some(ResponseFormat::Table)
    )]
    #[case::kubectl_describe("application/vnd.kubernetes.protobuf,application/json", Some(ResponseFormat::Object))]
    #[case::metadata_list(
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
        Some(ResponseFormat::PartialObjectMetadataList)
    )]
    #[case::protobuf("application/vnd.kubernetes.protobuf", None)]
    fn negotiates_first_supported_type(#[case] accept: &str, #[case] expected: Option<ResponseFormat>) {
        assert_eq!(ResponseFormat::negotiate(accept).ok(), expected);
    }
}
