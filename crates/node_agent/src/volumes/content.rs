//! The content of volumes. Pure.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use apimachinery::object;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::atomic_writer::VolumeFile;
use super::error::VolumeError;
use crate::environment::{ObjectSource, pod_field, resource_field};

/// The content of one volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VolumeContent {
    /// Files by relative path.
    Files(BTreeMap<String, VolumeFile>),
    /// An empty directory.
    Empty,
    /// A path on the host.
    Host { path: String, kind: String },
}

const DEFAULT_MODE: u32 = 0o644;

/// Returns the content of one entry of `spec.volumes`.
pub(super) fn volume_content(
    volume: &Value,
    pod: &Value,
    sources: &dyn ObjectSource,
) -> Result<VolumeContent, VolumeError> {
    let name = object::text(volume, "/name").to_owned();
    let members = volume.as_object().into_iter().flatten();
    let source = members.map(|(kind, source)| (kind.as_str(), source)).find(|(kind, _)| *kind != "name");
    let Some((kind, source)) = source else { return Ok(VolumeContent::Empty) };
    let files = match kind {
        "emptyDir" => return Ok(VolumeContent::Empty),
        "hostPath" => {
            let text = |field: &str| object::text(source, field).to_owned();
            return Ok(VolumeContent::Host { path: text("/path"), kind: text("/type") });
        }
        "configMap" | "secret" | "downwardAPI" => {
            source_files(kind, source, file_mode(source, "defaultMode"), pod, sources)
        }
        "projected" => projected_files(source, pod, sources),
        _ => return Err(VolumeError::Unsupported { volume: name, volume_source: kind.to_owned() }),
    };
    files.map(VolumeContent::Files).map_err(|message| VolumeError::SetUp { volume: name, message })
}

type Files = BTreeMap<String, VolumeFile>;

/// Returns the files of all sources of a projected volume.
fn projected_files(volume: &Value, pod: &Value, sources: &dyn ObjectSource) -> Result<Files, String> {
    let default_mode = file_mode(volume, "defaultMode");
    let mut files = Files::new();
    for source in object::items(volume.get("sources")) {
        let Some((kind, source)) = source.as_object().into_iter().flatten().next() else { continue };
        files.extend(source_files(kind, source, default_mode, pod, sources)?);
    }
    Ok(files)
}

/// Returns the files of a ConfigMap, Secret or downward API source.
fn source_files(
    kind: &str,
    source: &Value,
    default_mode: Option<u32>,
    pod: &Value,
    sources: &dyn ObjectSource,
) -> Result<Files, String> {
    let default_mode = default_mode.unwrap_or(DEFAULT_MODE);
    match kind {
        "configMap" => key_files(source, default_mode, "configmap", |name| {
            sources.config_map(name).map(|config_map| config_map_data(&config_map))
        }),
        "secret" => key_files(source, default_mode, "secret", |name| {
            sources.secret(name).map(|secret| decode_data(&secret, "data"))
        }),
        "downwardAPI" => downward_files(source, default_mode, pod, sources),
        _ => Err(format!("volume source {kind} is not supported")),
    }
}

/// Returns the files of all keys of an object, or of the keys in `items`.
fn key_files(
    source: &Value,
    default_mode: u32,
    kind: &str,
    get_data: impl FnOnce(&str) -> Option<BTreeMap<String, Vec<u8>>>,
) -> Result<Files, String> {
    // Secret volumes have the field `secretName`; ConfigMap volumes and projected sources have `name`.
    let name =
        ["/secretName", "/name"].map(|field| object::text(source, field)).into_iter().find(|name| !name.is_empty());
    let name = name.unwrap_or_default();
    let is_optional = source.get("optional") == Some(&Value::Bool(true));
    let Some(mut data) = get_data(name) else {
        return if is_optional { Ok(Files::new()) } else { Err(format!("{kind} \"{name}\" not found")) };
    };
    let mut items = object::items(source.get("items")).peekable();
    if items.peek().is_none() {
        return Ok(data.into_iter().map(|(key, content)| (key, VolumeFile { content, mode: default_mode })).collect());
    }
    let mut files = Files::new();
    for item in items {
        let key = object::text(item, "/key");
        match data.remove(key) {
            Some(content) => {
                files.insert(
                    item_path(item)?,
                    VolumeFile { content, mode: file_mode(item, "mode").unwrap_or(default_mode) },
                );
            }
            None if is_optional => {}
            None => return Err(missing_key_message(kind, key)),
        }
    }
    Ok(files)
}

/// Returns the kubelet's error message for a missing key.
fn missing_key_message(kind: &str, key: &str) -> String {
    match kind {
        "configmap" => format!("configmap references non-existent config key: {key}"),
        _ => format!("references non-existent {kind} key: {key}"),
    }
}

/// Returns the files of the downward API.
fn downward_files(source: &Value, default_mode: u32, pod: &Value, sources: &dyn ObjectSource) -> Result<Files, String> {
    let mut files = Files::new();
    for item in object::items(source.get("items")) {
        let content = match (item.get("fieldRef"), item.get("resourceFieldRef")) {
            (Some(field), _) => pod_field(object::text(field, "/fieldPath"), pod),
            (None, Some(field)) => resource_field(field, &Value::Null, pod, sources),
            (None, None) => continue,
        };
        let file = VolumeFile { content: content.into_bytes(), mode: file_mode(item, "mode").unwrap_or(default_mode) };
        files.insert(item_path(item)?, file);
    }
    Ok(files)
}

/// Returns the `path` of an item, which must stay inside the volume.
fn item_path(item: &Value) -> Result<String, String> {
    let path = object::text(item, "/path");
    let is_inside = Path::new(path).components().all(|component| matches!(component, Component::Normal(_)));
    if path.is_empty() || !is_inside || path.starts_with("..") {
        return Err(format!("invalid path {path:?}"));
    }
    Ok(path.to_owned())
}

/// Returns the data and binary data of a ConfigMap.
fn config_map_data(config_map: &Value) -> BTreeMap<String, Vec<u8>> {
    let mut data = decode_data(config_map, "binaryData");
    data.extend(object::string_map(config_map.get("data")).into_iter().map(|(key, text)| (key, text.into_bytes())));
    data
}

/// Decodes the base64 values of a field.
fn decode_data(object: &Value, field: &str) -> BTreeMap<String, Vec<u8>> {
    let pairs = object::string_map(object.get(field)).into_iter();
    pairs.map(|(key, text)| (key, STANDARD.decode(text).unwrap_or_default())).collect()
}

/// Returns the permission bits of a file.
fn file_mode(source: &Value, field: &str) -> Option<u32> {
    source.get(field).and_then(Value::as_u64).and_then(|mode| u32::try_from(mode & 0o777).ok())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::environment::FixedSource;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"b": "2", "a": "say \"hi\""}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "2Gi"}}}]},
        })
    }

    /// Returns `path=content mode` of every file.
    fn format_content(volume: Value) -> String {
        match volume_content(&volume, &pod(), &FixedSource) {
            Ok(VolumeContent::Files(files)) => {
                let file = |(path, file): (&String, &VolumeFile)| {
                    format!("{path}={} {:o}", String::from_utf8_lossy(&file.content).escape_debug(), file.mode)
                };
                files.iter().map(file).collect::<Vec<_>>().join("; ")
            }
            Ok(content) => format!("{content:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[rstest]
    #[case::all_keys(json!({"name": "v", "configMap": {"name": "settings"}}), "blob=\\0\\u{1} 644; level=high 644; port=1 644")]
    #[case::some_keys(json!({"name": "v", "configMap": {"name": "settings", "defaultMode": 256, "items": [{"key": "level", "path": "a/b"}]}}), "a/b=high 400")]
    #[case::item_mode(json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "level", "path": "l", "mode": 493}]}}), "l=high 755")]
    #[case::missing_map(json!({"name": "v", "configMap": {"name": "nope"}}), r#"MountVolume.SetUp failed for volume "v" : configmap "nope" not found"#)]
    #[case::optional_map(json!({"name": "v", "configMap": {"name": "nope", "optional": true}}), "")]
    #[case::missing_key_message(json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "k", "path": "p"}]}}), r#"MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: k"#)]
    #[case::optional_key(json!({"name": "v", "configMap": {"name": "settings", "optional": true, "items": [{"key": "k", "path": "p"}]}}), "")]
    #[case::path_outside_volume(json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "level", "path": "../x"}]}}), r#"MountVolume.SetUp failed for volume "v" : invalid path "../x""#)]
    #[case::secret(json!({"name": "v", "secret": {"secretName": "hf"}}), "token=secret 644")]
    #[case::no_secret(json!({"name": "v", "secret": {"secretName": "x"}}), r#"MountVolume.SetUp failed for volume "v" : secret "x" not found"#)]
    #[case::downward(json!({"name": "v", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}, {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "mem", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}}]}}),
        r#"labels=a=\"say \\\"hi\\\"\"\nb=\"2\" 644; mem=2048 644; name=p 644"#)]
    #[case::projected(json!({"name": "v", "projected": {"sources": [
        {"secret": {"name": "hf"}}, {"configMap": {"name": "settings", "items": [{"key": "port", "path": "port"}]}}]}}), "port=1 644; token=secret 644")]
    #[case::token(json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}), r#"MountVolume.SetUp failed for volume "v" : volume source serviceAccountToken is not supported"#)]
    #[case::empty(json!({"name": "v", "emptyDir": {}}), "Empty")]
    #[case::host(json!({"name": "v", "hostPath": {"path": "/m", "type": "Directory"}}), r#"Host { path: "/m", kind: "Directory" }"#)]
    #[case::driver(json!({"name": "v", "csi": {"driver": "d"}}), r#"volume "v": volume source csi is not supported; use emptyDir, hostPath, configMap, secret, downwardAPI, projected or a claim of a hostPath or local volume"#)]
    fn reads_volume_content(#[case] volume: Value, #[case] expect: &str) {
        assert_eq!(format_content(volume), expect);
    }
}
