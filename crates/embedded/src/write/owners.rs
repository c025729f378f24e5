//! Notes in `managedFields` who owns what was written.

use apimachinery::apply::{self, UpdateOptions};
use serde_json::Value;

use super::{Face, Options, typed};
use crate::resources::Resource;
use crate::{conversion, object};

/// Of a write other than by server-side apply, which settles the owners itself. `before` is what the object was.
pub(super) fn track(
    resource: &Resource,
    face: Face,
    options: &Options,
    now: jiff::Timestamp,
    before: Option<&Value>,
    after: &mut Value,
) {
    let resource = options.written_as.as_deref().unwrap_or(resource);
    let options = UpdateOptions {
        manager: if options.manager.is_empty() { "unknown".to_owned() } else { options.manager.clone() },
        api_version: resource.api_version(),
        subresource: options.subresource.map(str::to_owned).or_else(|| face.subresource()),
        now: object::time(now),
        blank: typed::blank(resource),
    };
    let Some(mut shown) = conversion::shown(resource, after) else {
        return apply::track_update(&resource.structure, before, after, &options);
    };
    typed::form(resource, &mut shown);
    let before = before.and_then(|before| conversion::shown(resource, before)).map(|mut before| {
        typed::form(resource, &mut before);
        before
    });
    apply::track_update(&resource.structure, before.as_ref(), &mut shown, &options);
    object::copy_metadata(after, "managedFields", &shown);
}
