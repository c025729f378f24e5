//! Validation of volumes and volume mounts.

use std::collections::BTreeSet;

use apimachinery::{Quantity, StatusCause};

use super::super::names::label_hints;
use super::environment::{self, FieldRefTarget};
use super::field::Field;

/// Name field of a volume; all other fields are volume sources.
const NAME: &str = "name";

const INVALID_MODE_MESSAGE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates `volumes` of a Pod.
pub(super) fn causes(volumes: &Field<'_>) -> Vec<StatusCause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for volume in volumes.items() {
        let name = volume.get(NAME);
        causes.extend(check_sources(&volume));
        if name.is_empty() {
            causes.push(name.required());
            continue;
        }
        let hints = name.check(label_hints);
        if hints.is_empty() && !seen.insert(name.text()) {
            causes.push(name.duplicate());
        }
        causes.extend(hints);
    }
    causes
}

fn check_sources(volume: &Field<'_>) -> Vec<StatusCause> {
    let members = volume.value.as_object().into_iter().flatten();
    let mut source_names: Vec<&str> =
        members.filter(|(name, value)| *name != NAME && !value.is_null()).map(|(name, _)| name.as_str()).collect();
    source_names.sort_by_key(|name| validation_order(name));
    let mut causes = Vec::new();
    for (index, kind) in source_names.into_iter().enumerate() {
        let source = volume.get(kind);
        if index > 0 {
            causes.push(source.forbidden("may not specify more than 1 volume type"));
        } else {
            causes.extend(source_causes(kind, &source));
        }
    }
    causes
}

/// Returns the position of a volume source type in the order in which kube-apiserver validates them.
fn validation_order(kind: &str) -> usize {
    let order = ["emptyDir", "hostPath", "gitRepo", "secret", "nfs", "persistentVolumeClaim", "configMap"];
    order.iter().position(|known| *known == kind).unwrap_or(order.len())
}

fn source_causes(kind: &str, source: &Field<'_>) -> Vec<StatusCause> {
    match kind {
        "emptyDir" => {
            let limit = source.get("sizeLimit");
            let is_negative = limit.quantity().is_some_and(|limit| limit < Quantity::ZERO);
            let hint = "SizeLimit field must be a valid resource quantity";
            is_negative.then(|| limit.forbidden(hint)).into_iter().collect()
        }
        "hostPath" => {
            let path = source.get("path");
            if path.is_empty() { vec![path.required()] } else { check_no_backsteps(&path).into_iter().collect() }
        }
        "secret" => check_object_source(source, "secretName"),
        "configMap" => check_object_source(source, "name"),
        "persistentVolumeClaim" => check_required(source, "claimName").into_iter().collect(),
        "nfs" => ["server", "path"].iter().filter_map(|name| check_required(source, name)).collect(),
        "downwardAPI" => {
            let mut causes: Vec<StatusCause> = check_mode(&source.get("defaultMode")).into_iter().collect();
            causes.extend(source.get("items").items().flat_map(|file| check_downward_api_file(&file, source)));
            causes
        }
        "projected" => {
            let mut causes: Vec<StatusCause> = check_mode(&source.get("defaultMode")).into_iter().collect();
            for projection in source.get("sources").items() {
                for name in ["secret", "configMap"] {
                    causes.extend(check_files(&projection.get(name)));
                }
                causes.extend(check_token_lifetime(&projection.get("serviceAccountToken.expirationSeconds")));
                let pod = projection.get("downwardAPI");
                causes.extend(pod.get("items").items().flat_map(|file| check_downward_api_file(&file, &pod)));
            }
            causes
        }
        _ => Vec::new(),
    }
}

fn check_token_lifetime(seconds: &Field<'_>) -> Option<StatusCause> {
    match seconds.number()? {
        ..600 => Some(seconds.invalid("may not specify a duration less than 10 minutes")),
        600..=0x1_0000_0000 => None,
        _ => Some(seconds.invalid("may not specify a duration larger than 2^32 seconds")),
    }
}

fn check_required(source: &Field<'_>, name: &str) -> Option<StatusCause> {
    let field = source.get(name);
    field.is_empty().then(|| field.required())
}

fn check_object_source(source: &Field<'_>, name: &str) -> Vec<StatusCause> {
    check_required(source, name).into_iter().chain(check_files(source)).collect()
}

/// Validates the file modes and items of a ConfigMap or Secret volume.
fn check_files(source: &Field<'_>) -> Vec<StatusCause> {
    let mut causes: Vec<StatusCause> = check_mode(&source.get("defaultMode")).into_iter().collect();
    for item in source.get("items").items() {
        let (key, path) = (item.get("key"), item.get("path"));
        if key.is_empty() {
            causes.push(key.required());
        }
        if path.is_empty() {
            causes.push(path.required());
        } else {
            causes.extend(check_relative_path(&path));
        }
        causes.extend(check_mode(&item.get("mode")));
    }
    causes
}

/// Validates a file of a downward API volume. As in kube-apiserver, errors have the field path of the volume source,
/// not of the file.
fn check_downward_api_file(file: &Field<'_>, source: &Field<'_>) -> Vec<StatusCause> {
    let file_field = Field::at(file.value, source.path.clone());
    let (path, field, resource) =
        (file_field.get("path"), file_field.get("fieldRef"), file_field.get("resourceFieldRef"));
    let mut causes =
        if path.is_empty() { vec![path.required()] } else { check_relative_path(&path).into_iter().collect() };
    if field.is_set() {
        causes.extend(environment::check_field_reference(&field, FieldRefTarget::File));
        if resource.is_set() {
            causes.push(resource.invalid("fieldRef and resourceFieldRef can not be specified simultaneously"));
        }
    } else if resource.is_set() {
        causes.extend(environment::check_resource_reference(&resource));
    } else {
        causes.push(file_field.required_with_hint("one of fieldRef and resourceFieldRef is required"));
    }
    causes.extend(check_mode(&file_field.get("mode")));
    causes
}

fn check_mode(mode: &Field<'_>) -> Option<StatusCause> {
    mode.number().filter(|mode| !(0..=0o777).contains(mode)).map(|_| mode.invalid(INVALID_MODE_MESSAGE))
}

/// Checks that a path is relative and does not leave its directory.
fn check_relative_path(path: &Field<'_>) -> Option<StatusCause> {
    if path.text().starts_with('/') {
        return Some(path.invalid("must be a relative path"));
    }
    check_no_backsteps(path).or_else(|| path.text().starts_with("..").then(|| path.invalid("must not start with '..'")))
}

fn check_no_backsteps(path: &Field<'_>) -> Option<StatusCause> {
    path.text().split('/').any(|sub_path| sub_path == "..").then(|| path.invalid("must not contain '..'"))
}

/// Validates `volumeMounts` of a container. `volumes` contains the names of the Pod's volumes.
pub(super) fn check_mounts(container: &Field<'_>, volumes: &BTreeSet<&str>) -> Vec<StatusCause> {
    let mounts = container.get("volumeMounts");
    let mut mount_paths = BTreeSet::new();
    let mut causes = Vec::new();
    for mount in mounts.items() {
        let [name, mount_path, sub_path, sub_path_expr] =
            [NAME, "mountPath", "subPath", "subPathExpr"].map(|name| mount.get(name));
        if name.is_empty() {
            causes.push(name.required());
        }
        if !volumes.contains(name.text()) {
            causes.push(StatusCause::new(&name.path, "FieldValueNotFound", format!("Not found: {:?}", name.text())));
        }
        if mount_path.is_empty() {
            causes.push(mount_path.required());
        }
        if !mount_paths.insert(mount_path.text()) {
            causes.push(mount_path.invalid("must be unique"));
        }
        // kube-apiserver reports these fields without the index of the mount.
        causes.extend(check_relative_path(&Field::at(sub_path.value, format!("{}.subPath", mounts.path))));
        if !sub_path_expr.is_empty() {
            if !sub_path.is_empty() {
                causes.push(sub_path_expr.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            causes.extend(check_relative_path(&Field::at(sub_path_expr.value, format!("{}.subPathExpr", mounts.path))));
        }
    }
    causes
}
