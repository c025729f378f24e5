//! Self-subject reviews, which are evaluated in the create request and not stored.
//!
//! There is a single user, who authenticates with the [credentials](crate::secure_serving) and has all permissions.

use apimachinery::object;
use serde_json::{Value, json};

use crate::resources::Resource;

/// User name: common name of the client certificate. The bearer token authenticates the same user.
pub(crate) const USER: &str = "ostler";

/// Group: organization of the client certificate.
pub(crate) const GROUP: &str = "system:masters";

/// Fills in the `status` of a review.
pub(crate) fn fill_status(resource: &Resource, review: &mut Value) {
    let all = json!(["*"]);
    let status = match resource.kind.as_str() {
        "SelfSubjectReview" => {
            json!({"userInfo": {"username": USER, "groups": [GROUP, "system:authenticated"]}})
        }
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": all, "apiGroups": all, "resources": all}],
            "nonResourceRules": [{"verbs": all, "nonResourceURLs": all}],
            "incomplete": false,
        }),
        _ => json!({"allowed": true}),
    };
    object::members(review).insert("status".to_owned(), status);
}
