//! The size limit of objects. A request body is limited, but patches can add to an object without end.

use apimachinery::Status;

use super::stored_object::UnversionedObject;

/// Maximum size of the JSON text of an object in bytes. A request body has at most 3 MiB; `managedFields` can double that.
const MAX_OBJECT_BYTES: usize = 8 * 1024 * 1024;

/// Whether the object is too large to be stored.
pub(super) fn is_too_large(object: &UnversionedObject) -> bool {
    object.size() > MAX_OBJECT_BYTES
}

/// Returns the error for an object that is too large.
pub(super) fn too_large_error(name: &str) -> Status {
    Status::request_entity_too_large(format!("{name} would be larger than {MAX_OBJECT_BYTES} bytes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::Server;
    use crate::ports::ServerPorts;

    /// A rejected write leaves the object and the revision unchanged.
    #[test]
    fn updates_cannot_grow_an_object_without_end() {
        let server = Server::new(&ServerPorts::default());
        let config_map = |mebibytes: usize| {
            let data: serde_json::Map<String, serde_json::Value> =
                (0..mebibytes).map(|key| (format!("k{key}"), json!("x".repeat(1 << 20)))).collect();
            json!({"metadata": {"namespace": "default", "name": "large"}, "data": data})
        };
        let created = server.create("configmaps", config_map(7)).unwrap();
        let error = server.update("configmaps", config_map(8)).unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (413, "large would be larger than 8388608 bytes"));
        assert_eq!(server.get("configmaps", "default", "large"), Some(created));
        let smaller = server.update("configmaps", config_map(6)).unwrap();
        assert_eq!(smaller["data"].as_object().map(serde_json::Map::len), Some(6));
    }
}
