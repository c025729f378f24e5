//! What kube-apiserver refuses of a definition (`apiextensions-apiserver/pkg/apis/apiextensions/validation`), in its
//! words and in its order.
//!
//! What all versions have in common counts as said once, at the top: `spec.validation` is the schema of every version.

use apimachinery::status::Cause;
use apimachinery::{go, schema};
use serde_json::{Map, Value, json};

use super::versions;
use crate::object;
use crate::workloads::condition;
use crate::write::names::{LABEL_1035, SUBDOMAIN, is_label, is_label_1035};

const APPROVAL: &str = "api-approved.kubernetes.io";
const COLUMN_TYPES: &str = "boolean,date,integer,number,string";
const COLUMN_FORMATS: &str = "byte,date,date-time,double,float,int32,int64,password";
/// Selectable fields of one version.
const MOST_FIELDS: usize = 8;

/// What is wrong with a definition; `current` is what it was before.
pub(crate) fn causes(current: Option<&Value>, definition: &Value) -> Vec<Cause> {
    let mut found = Vec::new();
    let text = |pointer: &str| object::text(definition, pointer);
    let expected = format!("{}.{}", text("/spec/names/plural"), text("/spec/group"));
    if current.is_none() && text("/metadata/name") != expected {
        let hint = "must be spec.names.plural+\".\"+spec.group";
        found.push(Cause::invalid("metadata.name", &json!(text("/metadata/name")), hint));
    }
    specification(definition, &mut found);
    if let Some(current) = current {
        immutable(current, definition, &mut found);
    }
    stored(definition, &mut found);
    approval(definition, &mut found);
    if definition.pointer("/spec/preserveUnknownFields") == Some(&json!(true)) {
        let hint =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        found.push(Cause::invalid("spec.preserveUnknownFields", &json!(true), hint));
    }
    found
}

fn specification(definition: &Value, found: &mut Vec<Cause>) {
    let text = |pointer: &str| object::text(definition, pointer);
    group(text("/spec/group"), found);
    match text("/spec/scope") {
        "" => found.push(Cause::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let known = ["Cluster", "Namespaced"].map(Value::from);
            found.push(Cause::not_supported("spec.scope", &json!(other), &known));
        }
    }
    let common = Common::of(definition);
    if !common.schema {
        for (index, _) in versions(definition).enumerate().filter(|(_, version)| schema_of(version).is_none()) {
            found.push(Cause::required(format!("spec.versions[{index}].schema.openAPIV3Schema"), ""));
        }
    }
    for (index, version) in versions(definition).enumerate() {
        let at = format!("spec.versions[{index}]");
        own(version, &at, found);
        parts(version, common.negated(), &at, found);
    }
    versions_together(definition, &common, found);
    names_required(definition, found);
    names(definition, found);
    if let Some(first) = versions(definition).next() {
        parts(first, common, "spec", found);
    }
    conversion(definition, found);
}

fn group(group: &str, found: &mut Vec<Cause>) {
    if group.is_empty() {
        found.push(Cause::required("spec.group", ""));
    } else if !group.split('.').all(is_label) {
        found.push(Cause::invalid("spec.group", &json!(group), SUBDOMAIN));
    } else if !group.contains('.') {
        found.push(Cause::invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
}

/// Which parts all versions have in common.
#[derive(Clone, Copy)]
struct Common {
    schema: bool,
    subresources: bool,
    columns: bool,
    selectable: bool,
}

// === impl Common ===

impl Common {
    fn of(definition: &Value) -> Self {
        let is_same = |part: &str| {
            let mut all = versions(definition).map(|version| version.get(part).filter(|part| !part.is_null()));
            all.next().flatten().is_some_and(|first| all.all(|other| other == Some(first)))
        };
        Self {
            schema: is_same("schema"),
            subresources: is_same("subresources"),
            columns: is_same("additionalPrinterColumns"),
            selectable: is_same("selectableFields"),
        }
    }

    fn negated(self) -> Self {
        Self {
            schema: !self.schema,
            subresources: !self.subresources,
            columns: !self.columns,
            selectable: !self.selectable,
        }
    }
}

fn schema_of(version: &Value) -> Option<&Value> {
    version.pointer("/schema/openAPIV3Schema").filter(|schema| !schema.is_null())
}

/// What a version says of itself.
fn own(version: &Value, at: &str, found: &mut Vec<Cause>) {
    let name = object::text(version, "/name");
    if !is_label_1035(name) {
        found.push(Cause::invalid(format!("{at}.name"), &json!(name), LABEL_1035));
    }
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let field = || format!("{at}.deprecationWarning");
    if version["deprecated"] != true {
        found.push(Cause::invalid(field(), &json!(warning), "can only be set for deprecated versions"));
        return;
    }
    if warning.len() > 256 {
        found.push(Cause::invalid(field(), &json!(warning), "must be <= 256 characters long"));
    }
    if warning.is_empty() {
        found.push(Cause::invalid(field(), &json!(warning), "must not be an empty string"));
    }
    if let Some((index, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
        let hint =
            format!("must only contain printable UTF-8 characters; non-printable character found at index {index}");
        found.push(Cause::invalid(field(), &json!(warning), &hint));
    }
}

/// The parts of a version that are looked at here: its own, or those that it has in common with all.
fn parts(version: &Value, which: Common, at: &str, found: &mut Vec<Cause>) {
    let schema = schema_of(version);
    if let (Some(schema), true) = (schema, which.schema) {
        let name = if at == "spec" { "validation" } else { "schema" };
        found.extend(schema::problems(schema, &format!("{at}.{name}.openAPIV3Schema")));
    }
    if let (Some(scale), true) = (version.pointer("/subresources/scale"), which.subresources) {
        self::scale(scale, &format!("{at}.subresources.scale"), found);
    }
    let list = |part: &str| version.get(part).and_then(Value::as_array).into_iter().flatten();
    for (index, column) in list("additionalPrinterColumns").enumerate().filter(|_| which.columns) {
        self::column(column, &format!("{at}.additionalPrinterColumns[{index}]"), found);
    }
    if which.selectable {
        let fields: Vec<&str> = list("selectableFields").map(|field| object::text(field, "/jsonPath")).collect();
        selectable(&fields, schema.unwrap_or(&Value::Null), &format!("{at}.selectableFields"), found);
    }
}

fn scale(scale: &Value, at: &str, found: &mut Vec<Cause>) {
    for (name, roots, hint) in [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec"),
        ("statusReplicasPath", &[".status."], "should be a json path under .status"),
        ("labelSelectorPath", &[".spec.", ".status."], "should be a json path under either .spec or .status"),
    ] {
        let (field, path) = (format!("{at}.{name}"), object::text(scale, &format!("/{name}")));
        if path.is_empty() {
            if name != "labelSelectorPath" {
                found.push(Cause::required(field, ""));
            }
        } else if !path.starts_with('.') {
            found.push(Cause::invalid(field, &json!(path), "must be a simple json path starting with ."));
        } else if !roots.iter().any(|root| path.starts_with(root)) {
            found.push(Cause::invalid(field, &json!(path), hint));
        }
    }
}

fn column(column: &Value, at: &str, found: &mut Vec<Cause>) {
    let text = |field: &str| object::text(column, &format!("/{field}"));
    let known = |known: &str, given: &str| known.split(',').any(|known| known == given);
    if text("name").is_empty() {
        found.push(Cause::required(format!("{at}.name"), ""));
    }
    let (kind, hint) = (text("type"), format!("must be one of {COLUMN_TYPES}"));
    if kind.is_empty() {
        found.push(Cause::required(format!("{at}.type"), &hint));
    } else if !known(COLUMN_TYPES, kind) {
        found.push(Cause::invalid(format!("{at}.type"), &json!(kind), &hint));
    }
    let format = text("format");
    if !format.is_empty() && !known(COLUMN_FORMATS, format) {
        let hint = format!("must be one of {COLUMN_FORMATS}");
        found.push(Cause::invalid(format!("{at}.format"), &json!(format), &hint));
    }
    let path = text("jsonPath");
    if path.is_empty() {
        found.push(Cause::required(format!("{at}.JSONPath"), ""));
    } else if !path.starts_with('.') {
        let hint = "must be a simple json path starting with .";
        found.push(Cause::invalid(format!("{at}.JSONPath"), &json!(path), hint));
    }
}

fn selectable(paths: &[&str], schema: &Value, at: &str, found: &mut Vec<Cause>) {
    let mut seen = std::collections::BTreeSet::new();
    for (index, path) in paths.iter().enumerate() {
        let field = format!("{at}[{index}].jsonPath");
        if path.is_empty() {
            found.push(Cause::required(field, ""));
            continue;
        }
        match schema::kind_at(schema, path) {
            Err(why) => {
                found.push(Cause::invalid(field, &json!(path), &format!("is an invalid path: {why}")));
                continue;
            }
            Ok(kind) if !matches!(kind, "string" | "boolean" | "integer") => {
                let hint = "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed.";
                found.push(Cause::invalid(field.as_str(), &json!(path), hint));
            }
            Ok(_) if path.starts_with(".metadata.") => {
                let hint = "must not point to fields in metadata";
                found.push(Cause::invalid(field.as_str(), &json!(path), hint));
            }
            Ok(_) => {}
        }
        if !seen.insert(path) {
            found.push(Cause::duplicate(field, &json!(path)));
        }
    }
    if seen.len() > MOST_FIELDS {
        let message = format!("Too many: {}: must have at most {MOST_FIELDS} items", seen.len());
        found.push(Cause::new(at, "FieldValueTooMany", message));
    }
}

fn versions_together(definition: &Value, common: &Common, found: &mut Vec<Cause>) {
    let names: Vec<&str> = versions(definition).map(|version| object::text(version, "/name")).collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    if once.len() != names.len() {
        let hint = "must contain unique version names";
        found.push(Cause::invalid_text("spec.versions", &shown(definition, common), hint));
    }
    if versions(definition).filter(|version| version["storage"] == true).count() != 1 {
        let hint = "must have exactly one version marked as storage version";
        found.push(Cause::invalid_text("spec.versions", &shown(definition, common), hint));
    }
    if let Some(first) = names.first().filter(|first| !is_label_1035(first)) {
        found.push(Cause::invalid("spec.version", &json!(first), LABEL_1035));
    }
}

/// The versions as Go's structs of them are written.
fn shown(definition: &Value, common: &Common) -> String {
    let shown = versions(definition).map(|version| {
        let flag = |field: &str| json!(version[field] == true);
        let own = |field: &str, is_common: bool| if is_common { Value::Null } else { version[field].clone() };
        go::record(&[
            ("Name", version["name"].clone()),
            ("Served", flag("served")),
            ("Storage", flag("storage")),
            ("Deprecated", flag("deprecated")),
            ("DeprecationWarning", version["deprecationWarning"].clone()),
            ("Schema", own("schema", common.schema)),
            ("Subresources", own("subresources", common.subresources)),
            ("AdditionalPrinterColumns", own("additionalPrinterColumns", common.columns)),
            ("SelectableFields", own("selectableFields", common.selectable)),
        ])
    });
    format!("[{}]", shown.collect::<Vec<_>>().join(","))
}

fn names_required(definition: &Value, found: &mut Vec<Cause>) {
    for name in ["plural", "singular", "kind", "listKind"] {
        if object::text(definition, &format!("/spec/names/{name}")).is_empty() {
            found.push(Cause::required(format!("spec.names.{name}"), ""));
        }
    }
}

fn names(definition: &Value, found: &mut Vec<Cause>) {
    let text = |name: &str| object::text(definition, &format!("/spec/names/{name}"));
    for (name, is_mixed) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let (at, given) = (format!("spec.names.{name}"), text(name));
        if given.is_empty() {
            continue;
        }
        if is_mixed && !is_label_1035(&given.to_lowercase()) {
            let hint = format!("may have mixed case, but should otherwise match: {LABEL_1035}");
            found.push(Cause::invalid(at, &json!(given), &hint));
        } else if !is_mixed && !is_label_1035(given) {
            found.push(Cause::invalid(at, &json!(given), LABEL_1035));
        }
    }
    let list = |name: &str| object::strings(definition.pointer(&format!("/spec/names/{name}")));
    let all = |name: &str, found: &mut Vec<Cause>| {
        for (index, given) in list(name).into_iter().enumerate().filter(|(_, given)| !is_label_1035(given)) {
            found.push(Cause::invalid(format!("spec.names.{name}[{index}]"), &json!(given), LABEL_1035));
        }
    };
    all("shortNames", found);
    if !text("kind").is_empty() && text("kind") == text("listKind") {
        let hint = "kind and listKind may not be the same";
        found.push(Cause::invalid("spec.names.listKind", &json!(text("listKind")), hint));
    }
    all("categories", found);
}

/// Webhooks for conversion are not called here, so that none is taken.
fn conversion(definition: &Value, found: &mut Vec<Cause>) {
    const CONFIG: &str = "spec.conversion.webhookClientConfig";
    const REVIEWS: &str = "spec.conversion.conversionReviewVersions";
    let webhook = definition.pointer("/spec/conversion/webhook").and_then(Value::as_object);
    let config = webhook.and_then(|webhook| webhook.get("clientConfig")).filter(|config| !config.is_null());
    let reviews = webhook.map(|webhook| object::strings(webhook.get("conversionReviewVersions"))).unwrap_or_default();
    match object::text(definition, "/spec/conversion/strategy") {
        "" => found.push(Cause::required("spec.conversion.strategy", "")),
        "Webhook" if config.is_none() || reviews.is_empty() => {
            if config.is_none() {
                found.push(Cause::required(CONFIG, "required when strategy is set to Webhook"));
            }
            if reviews.is_empty() {
                found.push(Cause::required(REVIEWS, ""));
            }
        }
        "Webhook" => {
            let cause = Cause::not_supported("spec.conversion.strategy", &json!("Webhook"), &[json!("None")]);
            found.push(cause);
        }
        "None" => {
            let hint = "should not be set when strategy is not set to Webhook";
            found.extend(config.map(|_| Cause::forbidden(CONFIG, hint)));
            found.extend(reviews.first().map(|_| Cause::forbidden(REVIEWS, hint)));
        }
        other => {
            let known = ["None", "Webhook"].map(Value::from);
            found.push(Cause::not_supported("spec.conversion.strategy", &json!(other), &known));
        }
    }
}

/// What decides under which name objects are kept.
fn immutable(current: &Value, definition: &Value, found: &mut Vec<Cause>) {
    let is_established = condition::is_true(current, "Established");
    for (pointer, always) in
        [("/spec/scope", false), ("/spec/names/kind", false), ("/spec/group", true), ("/spec/names/plural", true)]
    {
        let (before, after) = (current.pointer(pointer), definition.pointer(pointer));
        if before != after && (always || is_established) {
            let after = after.unwrap_or(&Value::Null);
            found.push(Cause::invalid(pointer[1..].replace('/', "."), after, "field is immutable"));
        }
    }
}

fn stored(definition: &Value, found: &mut Vec<Cause>) {
    let before = object::strings(definition.pointer("/status/storedVersions"));
    let now = versions(definition).find(|version| version["storage"] == true).map(|one| object::text(one, "/name"));
    if before.is_empty() && now.is_none() {
        found.push(Cause::invalid("status.storedVersions", &Value::Null, "must have at least one stored version"));
    }
    for (index, old) in before.iter().enumerate() {
        if !versions(definition).any(|version| version["name"] == **old) {
            let hint = format!(
                "missing from spec.versions; {old} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {old} and removes {old} from status.storedVersions"
            );
            found.push(Cause::invalid(format!("status.storedVersions[{index}]"), &json!(old), &hint));
        }
    }
}

/// Groups of the Kubernetes project want to be asked.
fn approval(definition: &Value, found: &mut Vec<Cause>) {
    const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = object::text(definition, "/spec/group");
    let is_protected =
        ["k8s.io", "kubernetes.io"].iter().any(|one| group == *one || group.ends_with(&format!(".{one}")));
    if !is_protected {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let empty = Map::new();
    let annotations = definition.pointer("/metadata/annotations").and_then(Value::as_object).unwrap_or(&empty);
    let must = format!("protected groups must have approval annotation \"{APPROVAL}\"");
    match annotations.get(APPROVAL).and_then(Value::as_str).unwrap_or_default() {
        "" => found.push(Cause::required(field, &format!("{must}, {SEE}"))),
        given if given.starts_with("unapproved") || given.contains("://") => {}
        given => {
            let hint = format!("{must} with either a URL or a reason starting with \"unapproved\", {SEE}");
            found.push(Cause::invalid(field, &json!(given), &hint));
        }
    }
}
