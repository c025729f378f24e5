//! The volumes of Pods, and where containers mount them.

use std::collections::BTreeSet;

use apimachinery::quantity::Quantity;
use apimachinery::status::Cause;

use super::super::names::label_hints;
use super::environment::{self, Shown};
use super::field::Field;

/// What says how a volume is mounted, or what it is called, and not where it comes from.
const NAME: &str = "name";

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// `volumes` of a Pod.
pub(super) fn causes(volumes: &Field<'_>) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for volume in volumes.each() {
        let name = volume.get(NAME);
        causes.extend(sources(&volume));
        if name.is_empty() {
            causes.push(name.required());
            continue;
        }
        let hints = name.ruled(label_hints);
        if hints.is_empty() && !seen.insert(name.text()) {
            causes.push(name.duplicate());
        }
        causes.extend(hints);
    }
    causes
}

fn sources(volume: &Field<'_>) -> Vec<Cause> {
    let members = volume.value.as_object().into_iter().flatten();
    let mut given: Vec<&str> =
        members.filter(|(name, value)| *name != NAME && !value.is_null()).map(|(name, _)| name.as_str()).collect();
    given.sort_by_key(|name| order(name));
    let mut causes = Vec::new();
    for (index, kind) in given.into_iter().enumerate() {
        let source = volume.get(kind);
        if index > 0 {
            causes.push(source.forbidden("may not specify more than 1 volume type"));
        } else {
            causes.extend(source_causes(kind, &source));
        }
    }
    causes
}

/// In which order kube-apiserver looks for sources.
fn order(kind: &str) -> usize {
    let known = ["emptyDir", "hostPath", "gitRepo", "secret", "nfs", "persistentVolumeClaim", "configMap"];
    known.iter().position(|known| *known == kind).unwrap_or(known.len())
}

fn source_causes(kind: &str, source: &Field<'_>) -> Vec<Cause> {
    match kind {
        "emptyDir" => {
            let limit = source.get("sizeLimit");
            let is_negative = limit.quantity().is_some_and(|limit| limit < Quantity::ZERO);
            let hint = "SizeLimit field must be a valid resource quantity";
            is_negative.then(|| limit.forbidden(hint)).into_iter().collect()
        }
        "hostPath" => {
            let path = source.get("path");
            if path.is_empty() { vec![path.required()] } else { no_steps_back(&path).into_iter().collect() }
        }
        "secret" => named_files(source, "secretName"),
        "configMap" => named_files(source, "name"),
        "persistentVolumeClaim" => required(source, "claimName").into_iter().collect(),
        "nfs" => ["server", "path"].iter().filter_map(|name| required(source, name)).collect(),
        "downwardAPI" => {
            let mut causes: Vec<Cause> = mode(&source.get("defaultMode")).into_iter().collect();
            causes.extend(source.get("items").each().flat_map(|file| pod_file(&file, source)));
            causes
        }
        "projected" => {
            let mut causes: Vec<Cause> = mode(&source.get("defaultMode")).into_iter().collect();
            for projection in source.get("sources").each() {
                for name in ["secret", "configMap"] {
                    causes.extend(files(&projection.get(name)));
                }
                let pod = projection.get("downwardAPI");
                causes.extend(pod.get("items").each().flat_map(|file| pod_file(&file, &pod)));
            }
            causes
        }
        _ => Vec::new(),
    }
}

fn required(source: &Field<'_>, name: &str) -> Option<Cause> {
    let field = source.get(name);
    field.is_empty().then(|| field.required())
}

fn named_files(source: &Field<'_>, name: &str) -> Vec<Cause> {
    required(source, name).into_iter().chain(files(source)).collect()
}

/// The files of a ConfigMap or Secret.
fn files(source: &Field<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = mode(&source.get("defaultMode")).into_iter().collect();
    for item in source.get("items").each() {
        let (key, path) = (item.get("key"), item.get("path"));
        if key.is_empty() {
            causes.push(key.required());
        }
        if path.is_empty() {
            causes.push(path.required());
        } else {
            causes.extend(below(&path));
        }
        causes.extend(mode(&item.get("mode")));
    }
    causes
}

/// A file that shows a field of the Pod. Its parts are told under the name of the volume's source.
fn pod_file(file: &Field<'_>, source: &Field<'_>) -> Vec<Cause> {
    let told = Field::at(file.value, source.path.clone());
    let (path, field, resource) = (told.get("path"), told.get("fieldRef"), told.get("resourceFieldRef"));
    let mut causes = if path.is_empty() { vec![path.required()] } else { below(&path).into_iter().collect() };
    if field.is_set() {
        causes.extend(environment::field_reference(&field, Shown::File));
        if resource.is_set() {
            causes.push(resource.invalid("fieldRef and resourceFieldRef can not be specified simultaneously"));
        }
    } else if resource.is_set() {
        causes.extend(environment::resource_reference(&resource));
    } else {
        causes.push(told.required_because("one of fieldRef and resourceFieldRef is required"));
    }
    causes.extend(mode(&told.get("mode")));
    causes
}

fn mode(mode: &Field<'_>) -> Option<Cause> {
    mode.number().filter(|mode| !(0..=0o777).contains(mode)).map(|_| mode.invalid(MODE))
}

/// A path stays below where it begins.
fn below(path: &Field<'_>) -> Option<Cause> {
    if path.text().starts_with('/') {
        return Some(path.invalid("must be a relative path"));
    }
    no_steps_back(path).or_else(|| path.text().starts_with("..").then(|| path.invalid("must not start with '..'")))
}

fn no_steps_back(path: &Field<'_>) -> Option<Cause> {
    path.text().split('/').any(|part| part == "..").then(|| path.invalid("must not contain '..'"))
}

/// `volumeMounts` of a container; `volumes` are the names that there are.
pub(super) fn mounts(container: &Field<'_>, volumes: &BTreeSet<&str>) -> Vec<Cause> {
    let mounts = container.get("volumeMounts");
    let mut places = BTreeSet::new();
    let mut causes = Vec::new();
    for mount in mounts.each() {
        let [name, place, part, expression] = [NAME, "mountPath", "subPath", "subPathExpr"].map(|name| mount.get(name));
        if name.is_empty() {
            causes.push(name.required());
        }
        if !volumes.contains(name.text()) {
            causes.push(Cause::new(&name.path, "FieldValueNotFound", format!("Not found: {:?}", name.text())));
        }
        if place.is_empty() {
            causes.push(place.required());
        }
        if !places.insert(place.text()) {
            causes.push(place.invalid("must be unique"));
        }
        // Told without the number of the mount, as there.
        causes.extend(below(&Field::at(part.value, format!("{}.subPath", mounts.path))));
        if !expression.is_empty() {
            if !part.is_empty() {
                causes.push(expression.invalid("subPathExpr and subPath are mutually exclusive"));
            }
            causes.extend(below(&Field::at(expression.value, format!("{}.subPathExpr", mounts.path))));
        }
    }
    causes
}
