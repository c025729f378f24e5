//! Field paths, represented as linked lists of segments. A path is formatted only when an error or a warning contains
//! it.

use std::fmt;

/// Path of a value in an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FieldPath<'a> {
    /// The object.
    Root,
    /// Field of a struct.
    Member(&'a FieldPath<'a>, &'a str),
    /// Entry of a map.
    Entry(&'a FieldPath<'a>, &'a str),
    /// Item of a list.
    Item(&'a FieldPath<'a>, usize),
}

/// Displays the field names of a path without indices and map keys, such as `metadata.annotations` for an annotation.
pub(crate) struct FieldNames<'a>(pub(crate) &'a FieldPath<'a>);

// === impl FieldPath ===

/// Formats the path as `spec.containers[0].name`.
impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Member(Self::Root, name) | Self::Entry(Self::Root, name) => f.write_str(name),
            Self::Member(outer, name) | Self::Entry(outer, name) => write!(f, "{outer}.{name}"),
            Self::Item(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

// === impl FieldNames ===

impl fmt::Display for FieldNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            FieldPath::Root => Ok(()),
            FieldPath::Member(FieldPath::Root, name) => f.write_str(name),
            FieldPath::Member(outer, name) => write!(f, "{}.{name}", Self(outer)),
            FieldPath::Entry(outer, _) | FieldPath::Item(outer, _) => Self(outer).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_paths_with_and_without_indices_and_keys() {
        let spec = FieldPath::Member(&FieldPath::Root, "spec");
        let (list, map) = (FieldPath::Member(&spec, "containers"), FieldPath::Member(&spec, "nodeSelector"));
        let (item, entry) = (FieldPath::Item(&list, 2), FieldPath::Entry(&map, "disk"));
        let name = FieldPath::Member(&item, "name");
        assert_eq!(
            (name.to_string(), FieldNames(&name).to_string()),
            ("spec.containers[2].name".into(), "spec.containers.name".into())
        );
        assert_eq!(
            (entry.to_string(), FieldNames(&entry).to_string()),
            ("spec.nodeSelector.disk".into(), "spec.nodeSelector".into())
        );
    }
}
