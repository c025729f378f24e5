//! Write requests.

use std::sync::Arc;

use super::options::WriteOptions;
use super::subresource::Subresource;
use crate::resources::Resource;

/// A write request to the objects of a resource.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WriteRequest<'a> {
    /// Storage version of the resource.
    pub(crate) resource: &'a Arc<Resource>,
    /// Part of the object that the request writes.
    pub(crate) subresource: Subresource,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    /// Options of the request.
    pub(crate) options: &'a WriteOptions,
}
