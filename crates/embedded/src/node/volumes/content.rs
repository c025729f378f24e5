//! What a volume holds. Pure.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::VolumeError;
use super::payload::File;
use crate::node::environment::{Sources, downward, resource_field};
use crate::object;
use crate::workloads::ownership::string_map;

/// One volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// By relative path.
    Files(BTreeMap<String, File>),
    Empty,
    Host {
        path: String,
        kind: String,
    },
}

const DEFAULT_MODE: u32 = 0o644;

/// Reads one entry of `spec.volumes`.
pub(super) fn of(volume: &Value, pod: &Value, sources: &dyn Sources) -> Result<Content, VolumeError> {
    let name = object::text(volume, "/name").to_owned();
    let members = volume.as_object().into_iter().flatten();
    let source = members.map(|(kind, source)| (kind.as_str(), source)).find(|(kind, _)| *kind != "name");
    let Some((kind, source)) = source else { return Ok(Content::Empty) };
    let files = match kind {
        "emptyDir" => return Ok(Content::Empty),
        "hostPath" => {
            let text = |field: &str| object::text(source, field).to_owned();
            return Ok(Content::Host { path: text("/path"), kind: text("/type") });
        }
        "configMap" | "secret" | "downwardAPI" => part(kind, source, mode(source, "defaultMode"), pod, sources),
        "projected" => projected(source, pod, sources),
        other => return Err(VolumeError::Unsupported { volume: name, what: other.to_owned() }),
    };
    files.map(Content::Files).map_err(|why| VolumeError::SetUp { volume: name, why })
}

type Files = BTreeMap<String, File>;

fn projected(volume: &Value, pod: &Value, sources: &dyn Sources) -> Result<Files, String> {
    let default = mode(volume, "defaultMode");
    let mut files = Files::new();
    for source in list(volume, "sources") {
        let Some((kind, source)) = source.as_object().into_iter().flatten().next() else { continue };
        files.extend(part(kind, source, default, pod, sources)?);
    }
    Ok(files)
}

fn part(kind: &str, source: &Value, default: Option<u32>, pod: &Value, sources: &dyn Sources) -> Result<Files, String> {
    let default = default.unwrap_or(DEFAULT_MODE);
    match kind {
        "configMap" => keys(source, default, "configmap", |name| sources.config_map(name).map(|map| texts_of(&map))),
        "secret" => keys(source, default, "secret", |name| sources.secret(name).map(|secret| decoded(&secret, "data"))),
        "downwardAPI" => fields(source, default, pod, sources),
        other => Err(format!("{other} is not available here")),
    }
}

/// All keys of an object, or those that `items` name.
fn keys(
    source: &Value,
    default: u32,
    kind: &str,
    find: impl FnOnce(&str) -> Option<BTreeMap<String, Vec<u8>>>,
) -> Result<Files, String> {
    // The volume of a Secret says `secretName`, a projected one `name`.
    let name = ["/secretName", "/name"].map(|field| object::text(source, field)).into_iter().find(|it| !it.is_empty());
    let name = name.unwrap_or_default();
    let optional = source.get("optional") == Some(&Value::Bool(true));
    let Some(mut data) = find(name) else {
        return if optional { Ok(Files::new()) } else { Err(format!("{kind} \"{name}\" not found")) };
    };
    let mut items = list(source, "items").peekable();
    if items.peek().is_none() {
        return Ok(data.into_iter().map(|(key, content)| (key, File { content, mode: default })).collect());
    }
    let mut files = Files::new();
    for item in items {
        let key = object::text(item, "/key");
        match data.remove(key) {
            Some(content) => {
                files.insert(path(item)?, File { content, mode: mode(item, "mode").unwrap_or(default) });
            }
            None if optional => {}
            None => return Err(no_key(kind, key)),
        }
    }
    Ok(files)
}

fn no_key(kind: &str, key: &str) -> String {
    match kind {
        "configmap" => format!("configmap references non-existent config key: {key}"),
        _ => format!("references non-existent {kind} key: {key}"),
    }
}

/// The downward API as files.
fn fields(source: &Value, default: u32, pod: &Value, sources: &dyn Sources) -> Result<Files, String> {
    let mut files = Files::new();
    for item in list(source, "items") {
        let content = match (item.get("fieldRef"), item.get("resourceFieldRef")) {
            (Some(field), _) => downward(object::text(field, "/fieldPath"), pod),
            (None, Some(field)) => resource_field(field, &Value::Null, pod, sources),
            (None, None) => continue,
        };
        let file = File { content: content.into_bytes(), mode: mode(item, "mode").unwrap_or(default) };
        files.insert(path(item)?, file);
    }
    Ok(files)
}

/// `path` of an item, which stays inside the volume.
fn path(item: &Value) -> Result<String, String> {
    let path = object::text(item, "/path");
    let inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !inside || path.starts_with("..") {
        return Err(format!("invalid path {path:?}"));
    }
    Ok(path.to_owned())
}

fn texts_of(map: &Value) -> BTreeMap<String, Vec<u8>> {
    let mut all = decoded(map, "binaryData");
    all.extend(string_map(map.get("data")).into_iter().map(|(key, text)| (key, text.into_bytes())));
    all
}

fn decoded(object: &Value, field: &str) -> BTreeMap<String, Vec<u8>> {
    let pairs = string_map(object.get(field)).into_iter();
    pairs.map(|(key, text)| (key, STANDARD.decode(text).unwrap_or_default())).collect()
}

fn mode(source: &Value, field: &str) -> Option<u32> {
    source.get(field).and_then(Value::as_u64).and_then(|mode| u32::try_from(mode & 0o777).ok())
}

fn list<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    value.get(field).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;
    use serde_json::json;

    use super::*;

    struct Fixed;

    impl Sources for Fixed {
        fn config_map(&self, name: &str) -> Option<Arc<Value>> {
            let map = json!({"data": {"level": "high", "port": "1"}, "binaryData": {"blob": "AAE="}});
            (name == "settings").then(|| Arc::new(map))
        }
        fn secret(&self, name: &str) -> Option<Arc<Value>> {
            (name == "hf").then(|| Arc::new(json!({"data": {"token": "c2VjcmV0"}})))
        }
        fn pod(&self, _name: &str) -> Option<Arc<Value>> {
            None
        }
        fn volume(&self, _claim: &str) -> Option<Arc<Value>> {
            None
        }
        fn allocatable(&self) -> apimachinery::pod::Amounts {
            BTreeMap::new()
        }
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "labels": {"b": "2", "a": "say \"hi\""}},
            "spec": {"containers": [{"name": "c", "resources": {"limits": {"memory": "2Gi"}}}]},
        })
    }

    /// `path=content` of every file, one blank apart.
    fn shown(volume: Value) -> String {
        match of(&volume, &pod(), &Fixed) {
            Ok(Content::Files(files)) => {
                let file = |(path, file): (&String, &File)| {
                    format!("{path}={} {:o}", String::from_utf8_lossy(&file.content).escape_debug(), file.mode)
                };
                files.iter().map(file).collect::<Vec<_>>().join("; ")
            }
            Ok(other) => format!("{other:?}"),
            Err(error) => error.to_string(),
        }
    }

    #[rstest]
    #[case::all_keys(json!({"name": "v", "configMap": {"name": "settings"}}), "blob=\\0\\u{1} 644; level=high 644; port=1 644")]
    #[case::some_keys(json!({"name": "v", "configMap": {"name": "settings", "defaultMode": 256, "items": [{"key": "level", "path": "a/b"}]}}), "a/b=high 400")]
    #[case::a_mode(json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "level", "path": "l", "mode": 493}]}}), "l=high 755")]
    #[case::no_map(json!({"name": "v", "configMap": {"name": "nope"}}), r#"MountVolume.SetUp failed for volume "v" : configmap "nope" not found"#)]
    #[case::optional_map(json!({"name": "v", "configMap": {"name": "nope", "optional": true}}), "")]
    #[case::no_key(json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "k", "path": "p"}]}}), r#"MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: k"#)]
    #[case::optional_key(json!({"name": "v", "configMap": {"name": "settings", "optional": true, "items": [{"key": "k", "path": "p"}]}}), "")]
    #[case::out_of_the_volume(json!({"name": "v", "configMap": {"name": "settings", "items": [{"key": "level", "path": "../x"}]}}), r#"MountVolume.SetUp failed for volume "v" : invalid path "../x""#)]
    #[case::secret(json!({"name": "v", "secret": {"secretName": "hf"}}), "token=secret 644")]
    #[case::no_secret(json!({"name": "v", "secret": {"secretName": "x"}}), r#"MountVolume.SetUp failed for volume "v" : secret "x" not found"#)]
    #[case::downward(json!({"name": "v", "downwardAPI": {"items": [
        {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}, {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
        {"path": "mem", "resourceFieldRef": {"containerName": "c", "resource": "limits.memory", "divisor": "1Mi"}}]}}),
        r#"labels=a=\"say \\\"hi\\\"\"\nb=\"2\" 644; mem=2048 644; name=p 644"#)]
    #[case::projected(json!({"name": "v", "projected": {"sources": [
        {"secret": {"name": "hf"}}, {"configMap": {"name": "settings", "items": [{"key": "port", "path": "port"}]}}]}}), "port=1 644; token=secret 644")]
    #[case::token(json!({"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}), r#"MountVolume.SetUp failed for volume "v" : serviceAccountToken is not available here"#)]
    #[case::empty(json!({"name": "v", "emptyDir": {}}), "Empty")]
    #[case::host(json!({"name": "v", "hostPath": {"path": "/m", "type": "Directory"}}), r#"Host { path: "/m", kind: "Directory" }"#)]
    #[case::driver(json!({"name": "v", "csi": {"driver": "d"}}), r#"volume "v": csi is not available here; use emptyDir, hostPath, configMap, secret, downwardAPI, projected or a claim of a hostPath or local volume"#)]
    fn volumes(#[case] volume: Value, #[case] expect: &str) {
        assert_eq!(shown(volume), expect);
    }
}
