//! Records field managers in `managedFields`.

use apimachinery::{UpdateOptions, object, track_update};
use serde_json::Value;

use super::{WriteRequest, normalize};
use crate::conversion;

/// Records the field manager of a write other than server-side apply, which updates `managedFields` itself. `old` is
/// the object before the write.
pub(super) fn record_manager(
    request: &WriteRequest<'_>,
    now: jiff::Timestamp,
    old: Option<&Value>,
    object: &mut Value,
) {
    let WriteRequest { resource, subresource, options, .. } = *request;
    let resource = options.request_resource.as_deref().unwrap_or(resource);
    let options = UpdateOptions {
        manager: if options.manager.is_empty() { "unknown".to_owned() } else { options.manager.clone() },
        api_version: resource.api_version(),
        subresource: options.subresource.map(str::to_owned).or_else(|| subresource.managed_fields_name()),
        now: object::format_time(now),
        empty_object: normalize::empty_object(resource),
    };
    let Some(mut converted) = conversion::from_storage(resource, object) else {
        return track_update(&resource.merge_schema, old, object, &options);
    };
    normalize::normalize(resource, &mut converted);
    let before = old.and_then(|before| conversion::from_storage(resource, before)).map(|mut before| {
        normalize::normalize(resource, &mut before);
        before
    });
    track_update(&resource.merge_schema, before.as_ref(), &mut converted, &options);
    object::copy_metadata_field(object, "managedFields", &converted);
}
