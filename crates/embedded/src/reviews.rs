//! Questions that a client asks about itself: answered by what is created, and kept nowhere.
//!
//! There is one caller, whoever holds the credential of [`crate::serve`], and it may do everything.

use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;

/// Common name of the client's certificate; the token stands for the same user.
pub(crate) const USER: &str = "ostler";

/// Organization of the client's certificate.
pub(crate) const GROUP: &str = "system:masters";

/// Writes the answer into the `status` of a review.
pub(crate) fn answer(resource: &Resource, review: &mut Value) {
    let everything = json!(["*"]);
    let status = match resource.kind.as_str() {
        "SelfSubjectReview" => {
            json!({"userInfo": {"username": USER, "groups": [GROUP, "system:authenticated"]}})
        }
        "SelfSubjectRulesReview" => json!({
            "resourceRules": [{"verbs": everything, "apiGroups": everything, "resources": everything}],
            "nonResourceRules": [{"verbs": everything, "nonResourceURLs": everything}],
            "incomplete": false,
        }),
        _ => json!({"allowed": true}),
    };
    object::members(review).insert("status".to_owned(), status);
}
