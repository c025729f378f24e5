//! Watches of custom resources, started and stopped as their CustomResourceDefinitions are installed and removed.

use cluster::{CUSTOM_RESOURCE_DEFINITION, Changes, Kind, Stores, Watches, is_served};

use crate::kinds::{OSTLER_APIS, RESOURCE_FLAVORS};

/// What happened to the watch of a kind.
#[derive(Debug)]
pub(super) enum WatchUpdate {
    /// The watch runs as before, or is still not needed.
    Unchanged,
    /// The kind is served now.
    Started,
    /// The kind is no longer served; contains the deletions of the cached objects.
    Stopped(Changes),
}

/// Starts or stops the watch of a kind that is served or no longer served.
pub(super) fn update_watch(stores: &Stores, watches: &mut Watches, kind: Kind) -> WatchUpdate {
    let resource = kind.group_resource();
    let update = set_watched(watches, kind, is_served(stores, kind));
    match &update {
        WatchUpdate::Started if stores.has_synced(CUSTOM_RESOURCE_DEFINITION) => {
            tracing::info!(resource, "API is installed, starting its watch");
        }
        WatchUpdate::Stopped(_) => {
            tracing::warn!(resource, "API is no longer installed; services that need it are not ready");
        }
        WatchUpdate::Started | WatchUpdate::Unchanged => {}
    }
    update
}

/// Starts or stops the watch of one version of Kueue's ResourceFlavor: only the preferred served version is watched.
pub(super) fn update_flavor_watch(stores: &Stores, watches: &mut Watches, kind: Kind) -> WatchUpdate {
    let preferred = RESOURCE_FLAVORS.into_iter().find(|kind| is_served(stores, *kind));
    set_watched(watches, kind, preferred == Some(kind))
}

fn set_watched(watches: &mut Watches, kind: Kind, is_needed: bool) -> WatchUpdate {
    match is_needed {
        true if start(watches, kind) => WatchUpdate::Started,
        false if watches.is_running(kind) => WatchUpdate::Stopped(watches.stop(kind)),
        _ => WatchUpdate::Unchanged,
    }
}

fn start(watches: &mut Watches, kind: Kind) -> bool {
    if OSTLER_APIS.contains(&kind) { watches.start(kind) } else { watches.start_optional(kind) }
}

/// Logs the ostler APIs that are not installed. They may be installed at any time.
pub(super) fn log_missing_apis(stores: &Stores) {
    let missing_apis: Vec<String> =
        OSTLER_APIS.iter().filter(|kind| !is_served(stores, **kind)).map(Kind::group_resource).collect();
    if !missing_apis.is_empty() {
        tracing::warn!(
            resources = missing_apis.join(", "),
            "ostler CRDs are not installed; install them with: ostler crds | kubectl apply --server-side -f -"
        );
    }
}
