//! Query parameters of API requests.

use std::collections::BTreeMap;
use std::fmt;

use apimachinery::{Status, StatusCause};
use axum::extract::Query as Pairs;
use http::{Method, Uri};
use serde_json::{Value, json};

use super::selection_predicate::SelectionPredicate;
use crate::resources::Resource;
use crate::table::IncludeObjectPolicy;
use crate::write::{FieldValidation, WriteOptions};

/// Decoded query parameters; the first occurrence of a name wins.
pub(crate) struct Query {
    values: BTreeMap<String, String>,
    /// Kind of the method's options, such as `CreateOptions`.
    options_kind: &'static str,
}

/// A `resourceVersion` that is not a number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InvalidResourceVersion {
    text: String,
}

// === impl Query ===

impl Query {
    /// Parses the query of a URL.
    ///
    /// # Errors
    /// 400 if it cannot be decoded.
    pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Self, Status> {
        let Pairs(pairs): Pairs<Vec<(String, String)>> =
            Pairs::try_from_uri(uri).map_err(|error| Status::bad_request(error.to_string()))?;
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            values.entry(name).or_insert(value);
        }
        let options_kind = match *method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            Method::PATCH => "PatchOptions",
            Method::DELETE => "DeleteOptions",
            _ => "ListOptions",
        };
        Ok(Self { values, options_kind })
    }

    /// Returns a parameter; an empty parameter counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a boolean parameter. As in Go's decoder, every value except `false` and `0` is true, ignoring case.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    /// Parses a number.
    ///
    /// # Errors
    /// 400 if it is invalid.
    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Status> {
        let parse = |value: &str| {
            value.parse().map_err(|_| {
                let is_number = value.strip_prefix('-').unwrap_or(value).chars().all(|c| c.is_ascii_digit());
                let reason = if is_number { "value out of range" } else { "invalid syntax" };
                Status::bad_request(format!("strconv.ParseInt: parsing {value:?}: {reason}"))
            })
        };
        self.get(name).map(parse).transpose()
    }

    /// Parses `dryRun`.
    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(self.unsupported("dryRun", &json!([other]), &["All"])),
        }
    }

    /// Parses the options of a write. `default_manager` is the field manager if `fieldManager` is absent.
    pub(crate) fn write_options(&self, default_manager: &str) -> Result<WriteOptions, Status> {
        let field_validation = match self.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                let supported = ["", "Ignore", "Strict", "Warn"];
                return Err(self.unsupported("fieldValidation", &json!(other), &supported));
            }
        };
        if let Some(manager) = self.get("fieldManager") {
            self.check_manager(manager)?;
        }
        let manager = self.get("fieldManager").unwrap_or(default_manager).to_owned();
        Ok(WriteOptions { manager, field_validation, dry_run: self.dry_run()?, ..WriteOptions::default() })
    }

    /// Validates the length and the characters of a field manager.
    fn check_manager(&self, manager: &str) -> Result<(), Status> {
        const MAX_BYTES: usize = 128;
        let mut causes = Vec::new();
        if manager.len() > MAX_BYTES {
            let message = format!("Too long: may not be more than {MAX_BYTES} bytes");
            causes.push(StatusCause::new("fieldManager", "FieldValueTooLong", message));
        }
        if let Some((index, character)) = manager.char_indices().find(|(_, character)| character.is_control()) {
            let hint = format!("invalid character U+{:04X} (at position {index})", u32::from(character));
            causes.push(StatusCause::invalid("fieldManager", &json!(manager), &hint));
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&format!("{}.meta.k8s.io", self.options_kind), "", causes))
    }

    fn unsupported(&self, field: &str, value: &Value, supported: &[&str]) -> Status {
        let supported: Vec<Value> = supported.iter().map(|known| json!(known)).collect();
        let cause = StatusCause::not_supported(field, value, &supported);
        Status::invalid(&format!("{}.meta.k8s.io", self.options_kind), "", vec![cause])
    }

    /// Parses `includeObject`: the part of each object that table rows contain.
    pub(crate) fn include_object(&self) -> Result<IncludeObjectPolicy, Status> {
        match self.get("includeObject") {
            None | Some("Metadata") => Ok(IncludeObjectPolicy::Metadata),
            Some("Object") => Ok(IncludeObjectPolicy::Object),
            Some("None") => Ok(IncludeObjectPolicy::None),
            Some(other) => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }

    fn resource_version(&self) -> Result<Option<u64>, InvalidResourceVersion> {
        let parse = |text: &str| text.parse().map_err(|_| InvalidResourceVersion { text: text.to_owned() });
        self.get("resourceVersion").map(parse).transpose()
    }

    /// Checks the resource version of a GET of one object.
    ///
    /// # Errors
    /// 500 if it is invalid, 504 if it is newer than `newest`.
    pub(crate) fn check_get_resource_version(&self, newest: u64) -> Result<(), Status> {
        check_reached(self.resource_version().map_err(InvalidResourceVersion::internal_error)?, newest)
    }

    /// Validates the options of a list (`ValidateListOptions`).
    ///
    /// # Errors
    /// 400 or 422 for invalid options, 504 for a resource version newer than `newest`.
    pub(crate) fn check_list_options(&self, newest: u64) -> Result<(), Status> {
        const FIELD: &str = "resourceVersionMatch";
        let version_match = self.get(FIELD);
        let version = self.get("resourceVersion");
        if self.get("continue").is_some() && version.is_some_and(|version| version != "0") {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let cause = match (version_match, version) {
            (None, _) => None,
            (Some(_), None) => Some(StatusCause::forbidden(
                FIELD,
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            )),
            (Some("Exact"), Some("0")) => Some(StatusCause::forbidden(
                FIELD,
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
            )),
            (Some("Exact" | "NotOlderThan"), Some(_)) => None,
            (Some(other), Some(_)) => Some(unsupported_match(other)),
        };
        let mut causes: Vec<StatusCause> = cause.into_iter().collect();
        if version_match.is_some() && self.get("continue").is_some() {
            causes.push(StatusCause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if self.get("sendInitialEvents").is_some() {
            causes.push(StatusCause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        list_options_result(causes)?;
        check_reached(self.resource_version().map_err(InvalidResourceVersion::bad_request)?, newest)
    }

    /// Validates the options of a watch (`ValidateListOptions`). Returns the resource version.
    ///
    /// # Errors
    /// 422 for invalid options, 500 for an invalid resource version.
    pub(crate) fn check_watch_options(&self) -> Result<Option<u64>, Status> {
        const FIELD: &str = "resourceVersionMatch";
        let sends_initial_events = self.get("sendInitialEvents").is_some();
        let required =
            || StatusCause::forbidden(FIELD, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        let causes = match (self.get(FIELD), sends_initial_events) {
            (None, true) => vec![required()],
            (Some(_), false) => {
                let hint = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                vec![StatusCause::forbidden(FIELD, hint)]
            }
            (Some("NotOlderThan"), true) | (None, false) => Vec::new(),
            (Some(other), true) => {
                vec![required(), StatusCause::not_supported(FIELD, &json!(other), &[json!("NotOlderThan")])]
            }
        };
        let mut causes = causes;
        if self.get("continue").is_some() {
            causes.push(StatusCause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        list_options_result(causes)?;
        self.resource_version().map_err(InvalidResourceVersion::internal_error)
    }

    /// Parses the label and field selectors.
    ///
    /// # Errors
    /// 400 for invalid selectors and unsupported fields.
    pub(crate) fn selection_predicate(&self, resource: &Resource) -> Result<SelectionPredicate, Status> {
        let text = |name: &str| self.get(name).unwrap_or_default();
        SelectionPredicate::parse(resource, text("labelSelector"), text("fieldSelector"))
    }
}

// === impl InvalidResourceVersion ===

impl InvalidResourceVersion {
    /// Returns the error of lists.
    fn bad_request(self) -> Status {
        Status::bad_request(format!("invalid resource version: {self}"))
    }

    /// Returns the error of other requests, which kube-apiserver does not wrap.
    fn internal_error(self) -> Status {
        Status::internal_error_verbatim(self.to_string())
    }
}

impl fmt::Display for InvalidResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text } = self;
        let is_number = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let cause = if is_number { "value out of range" } else { "invalid syntax" };
        let reason = format!("strconv.ParseUint: parsing {text:?}: {cause}");
        write!(f, "resourceVersion: Invalid value: {text:?}: {reason}")
    }
}

/// Checks that a requested resource version exists.
fn check_reached(requested: Option<u64>, newest: u64) -> Result<(), Status> {
    match requested {
        Some(requested) if requested > newest => Err(Status::resource_version_too_large(requested, newest)),
        _ => Ok(()),
    }
}

fn unsupported_match(value: &str) -> StatusCause {
    let supported = ["Exact", "NotOlderThan", ""].map(Value::from);
    StatusCause::not_supported("resourceVersionMatch", &Value::from(value), &supported)
}

fn list_options_result(causes: Vec<StatusCause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("ListOptions.meta.k8s.io", "", causes)) }
}
