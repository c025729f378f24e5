//! Components of a service.

/// A component of a service that uses accelerators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// The engine, or the prefill side of a disaggregated pair.
    Engine,
    /// The decode side of a disaggregated pair.
    Decoder,
}

impl Component {
    /// All components, in the order in which they are decided.
    pub const ALL: [Self; 2] = [Self::Engine, Self::Decoder];

    /// Returns the name of the component in manifests and records.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Decoder => "decoder",
        }
    }
}
