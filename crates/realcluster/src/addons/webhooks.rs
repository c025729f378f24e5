//! Webhook configurations of others, turned from Services into addresses of this machine.

use std::net::SocketAddr;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::RealCluster;

// === impl RealCluster ===

impl RealCluster {
    /// The webhook configurations among `objects`, calling `address`; named `PREFIX` and their own name.
    pub(crate) fn local_webhooks(&self, objects: Vec<Value>, prefix: &str, address: SocketAddr) -> Result<Vec<Value>> {
        let bundle = STANDARD.encode(std::fs::read(self.certificates.authority())?);
        let is_webhooks =
            |object: &Value| object["kind"].as_str().is_some_and(|kind| kind.ends_with("WebhookConfiguration"));
        let mut found: Vec<Value> = objects.into_iter().filter(is_webhooks).collect();
        for object in &mut found {
            let name = format!("{prefix}{}", object["metadata"]["name"].as_str().unwrap_or_default());
            object["metadata"] = json!({"name": name});
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                let path = webhook["clientConfig"]["service"]["path"].as_str().unwrap_or("/");
                webhook["clientConfig"] = json!({"url": format!("https://{address}{path}"), "caBundle": bundle});
            }
        }
        Ok(found)
    }
}
