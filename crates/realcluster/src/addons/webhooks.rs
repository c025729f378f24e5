//! Rewrites webhook configurations to call a local address instead of a Service.

use std::net::SocketAddr;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::RealCluster;

// === impl RealCluster ===

impl RealCluster {
    /// Returns the webhook configurations among `objects`, changed to call `address` and with `prefix` before their names.
    pub(crate) fn local_webhooks(&self, objects: Vec<Value>, prefix: &str, address: SocketAddr) -> Result<Vec<Value>> {
        let bundle = STANDARD.encode(std::fs::read(self.certificates.ca_certificate())?);
        let is_webhook_configuration =
            |object: &Value| object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration"));
        let mut configurations: Vec<Value> = objects.into_iter().filter(is_webhook_configuration).collect();
        for object in &mut configurations {
            let name = format!("{prefix}{}", object["metadata"]["name"].as_str().unwrap_or_default());
            object["metadata"] = json!({"name": name});
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or("/");
                webhook["clientConfig"] = json!({"url": format!("https://{address}{path}"), "caBundle": bundle});
            }
        }
        Ok(configurations)
    }
}
