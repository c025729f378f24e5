//! CRDs of neighbours, compact.
