//! Where in an object a value is, written out only for the values that are told.

use std::fmt;

/// A value, from the outside in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// The object itself.
    Top,
    Member(&'a Place<'a>, &'a str),
    /// Of a map, whose names are not fields.
    Entry(&'a Place<'a>, &'a str),
    Item(&'a Place<'a>, usize),
}

/// Fields alone, as `metadata.annotations` for an annotation.
pub(crate) struct Fields<'a>(pub(crate) &'a Place<'a>);

// === impl Place ===

/// As `spec.containers[0].name`.
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top => Ok(()),
            Self::Member(Self::Top, name) | Self::Entry(Self::Top, name) => f.write_str(name),
            Self::Member(outer, name) | Self::Entry(outer, name) => write!(f, "{outer}.{name}"),
            Self::Item(outer, index) => write!(f, "{outer}[{index}]"),
        }
    }
}

// === impl Fields ===

impl fmt::Display for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Place::Top => Ok(()),
            Place::Member(Place::Top, name) => f.write_str(name),
            Place::Member(outer, name) => write!(f, "{}.{name}", Self(outer)),
            Place::Entry(outer, _) | Place::Item(outer, _) => Self(outer).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_with_and_without_what_is_no_field() {
        let spec = Place::Member(&Place::Top, "spec");
        let (list, map) = (Place::Member(&spec, "containers"), Place::Member(&spec, "nodeSelector"));
        let (item, entry) = (Place::Item(&list, 2), Place::Entry(&map, "disk"));
        let name = Place::Member(&item, "name");
        assert_eq!(
            (name.to_string(), Fields(&name).to_string()),
            ("spec.containers[2].name".into(), "spec.containers.name".into())
        );
        assert_eq!(
            (entry.to_string(), Fields(&entry).to_string()),
            ("spec.nodeSelector.disk".into(), "spec.nodeSelector".into())
        );
    }
}
