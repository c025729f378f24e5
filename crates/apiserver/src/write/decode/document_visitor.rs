//! Serde visitor that visits the maps and lists of a document and ignores scalars.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Callbacks for maps and lists. An implementation visits nested values with another [`ValueVisitor`].
pub(super) trait DocumentVisitor {
    /// Visits a map.
    fn map<'de, A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error>;
    /// Visits a list.
    fn list<'de, A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error>;
}

/// Visits a value of any type.
pub(super) struct ValueVisitor<W>(pub(super) W);

// === impl ValueVisitor ===

impl<'de, W: DocumentVisitor> DeserializeSeed<'de> for ValueVisitor<W> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, W: DocumentVisitor> Visitor<'de> for ValueVisitor<W> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a document")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.map(map)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        self.0.list(items)
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }
}
