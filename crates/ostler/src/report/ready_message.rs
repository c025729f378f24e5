//! The message of the condition `Ready`.

use serde_json::Value;

/// Returns the message of the condition `Ready` of a service. The status of a ready service omits it; then it contains the ready
/// replicas of each role in `components`, or nothing if these have no roles.
pub(crate) fn ready_message(components: &Value, ready: &Value) -> String {
    if let Some(message) = ready["message"].as_str() {
        return message.to_owned();
    }
    let components = components.as_object().into_iter().flatten();
    let roles = components
        .filter_map(|(name, role)| Some((name, role["readyReplicas"].as_i64()?, role["desiredReplicas"].as_i64()?)));
    let counts: Vec<String> = roles.map(|(name, ready, desired)| format!("{name} {ready} of {desired}")).collect();
    if counts.is_empty() { String::new() } else { format!("Ready replicas: {}", counts.join(", ")) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case::message(json!({}), json!({"message": "m"}), "m")]
    #[case::roles(json!({"decode": {"desiredReplicas": 2, "readyReplicas": 2}, "w": {"desiredReplicas": 1, "readyReplicas": 1}}),
        json!({}), "Ready replicas: decode 2 of 2, w 1 of 1")]
    #[case::components(json!({"engine": {"replicas": 1, "readyReplicas": 1}}), json!({}), "")]
    #[case::no_status(Value::Null, json!({}), "")]
    fn status_of_a_ready_service_has_no_message(
        #[case] components: Value,
        #[case] ready: Value,
        #[case] expected: &str,
    ) {
        assert_eq!(ready_message(&components, &ready), expected);
    }
}
