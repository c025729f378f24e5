//! Query parameters.

use std::collections::BTreeMap;

use apimachinery::status::{Cause, Status};
use axum::extract::Query as Pairs;
use http::{Method, Uri};
use serde_json::{Value, json};

use super::selection::Selection;
use crate::resources::Resource;
use crate::table::Include;
use crate::write::{FieldValidation, Options};

/// Decoded, first occurrence wins.
pub(crate) struct Query {
    values: BTreeMap<String, String>,
    /// What kube-apiserver calls the options of the method, `CreateOptions`.
    options: &'static str,
}

// === impl Query ===

impl Query {
    pub(crate) fn parse(method: &Method, uri: &Uri) -> Result<Self, Status> {
        let Pairs(pairs): Pairs<Vec<(String, String)>> =
            Pairs::try_from_uri(uri).map_err(|error| Status::bad_request(error.to_string()))?;
        let mut values = BTreeMap::new();
        for (name, value) in pairs {
            values.entry(name).or_insert(value);
        }
        let options = match *method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            Method::PATCH => "PatchOptions",
            Method::DELETE => "DeleteOptions",
            _ => "ListOptions",
        };
        Ok(Self { values, options })
    }

    /// Empty counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// As Go's decoder of parameters reads one: what is given is true unless it says otherwise, whatever its letters.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| !matches!(value.to_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Status> {
        let parse = |value: &str| {
            value.parse().map_err(|_| {
                let is_number = value.strip_prefix('-').unwrap_or(value).chars().all(|c| c.is_ascii_digit());
                let why = if is_number { "value out of range" } else { "invalid syntax" };
                Status::bad_request(format!("strconv.ParseInt: parsing {value:?}: {why}"))
            })
        };
        self.get(name).map(parse).transpose()
    }

    pub(crate) fn dry_run(&self) -> Result<bool, Status> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(self.unsupported("dryRun", &json!([other]), &["All"])),
        }
    }

    pub(crate) fn write_options(&self, agent: &str) -> Result<Options, Status> {
        let field_validation = match self.get("fieldValidation") {
            None | Some("Warn") => FieldValidation::Warn,
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            Some(other) => {
                let known = ["", "Ignore", "Strict", "Warn"];
                return Err(self.unsupported("fieldValidation", &json!(other), &known));
            }
        };
        if let Some(manager) = self.get("fieldManager") {
            self.check_manager(manager)?;
        }
        let manager = self.get("fieldManager").unwrap_or(agent).to_owned();
        Ok(Options { manager, field_validation, dry_run: self.dry_run()?, ..Options::default() })
    }

    /// A name of bounded length that can be printed.
    fn check_manager(&self, manager: &str) -> Result<(), Status> {
        const LONGEST: usize = 128;
        let mut causes = Vec::new();
        if manager.len() > LONGEST {
            let message = format!("Too long: may not be more than {LONGEST} bytes");
            causes.push(Cause::new("fieldManager", "FieldValueTooLong", message));
        }
        if let Some((at, letter)) = manager.char_indices().find(|(_, letter)| letter.is_control()) {
            let hint = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
            causes.push(Cause::invalid("fieldManager", &json!(manager), &hint));
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&format!("{}.meta.k8s.io", self.options), "", causes))
    }

    fn unsupported(&self, field: &str, value: &Value, known: &[&str]) -> Status {
        let known: Vec<Value> = known.iter().map(|known| json!(known)).collect();
        let cause = Cause::not_supported(field, value, &known);
        Status::invalid(&format!("{}.meta.k8s.io", self.options), "", vec![cause])
    }

    /// What of each object a table carries along.
    pub(crate) fn include(&self) -> Result<Include, Status> {
        match self.get("includeObject") {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("Object") => Ok(Include::Object),
            Some("None") => Ok(Include::Nothing),
            Some(other) => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }

    /// `resourceVersion`, which must be a number.
    pub(crate) fn revision(&self) -> Result<Option<u64>, Status> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                Status::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            })
        };
        self.get("resourceVersion").map(parse).transpose()
    }

    /// # Errors
    /// 504 for a version that nothing has yet.
    pub(crate) fn is_reached(&self, newest: u64) -> Result<(), Status> {
        match self.revision()? {
            Some(wanted) if wanted > newest => Err(Status::too_new(wanted, newest)),
            _ => Ok(()),
        }
    }

    /// The same of a read of one object, where a version that is none is told as a failure.
    ///
    /// # Errors
    /// 500, 504.
    pub(crate) fn check_object_version(&self, newest: u64) -> Result<(), Status> {
        self.is_reached(newest).map_err(unexplained)
    }

    /// What `ValidateListOptions` refuses of a list.
    pub(crate) fn check_list_versions(&self) -> Result<(), Status> {
        const FIELD: &str = "resourceVersionMatch";
        let matching = self.get(FIELD);
        let version = self.get("resourceVersion");
        if self.get("continue").is_some() && version.is_some_and(|version| version != "0") {
            return Err(Status::bad_request("specifying resource version is not allowed when using continue"));
        }
        let cause = match (matching, version) {
            (None, _) => None,
            (Some(_), None) => {
                Some(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
            }
            (Some("Exact"), Some("0")) => {
                Some(Cause::forbidden(FIELD, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""))
            }
            (Some("Exact" | "NotOlderThan"), Some(_)) => None,
            (Some(other), Some(_)) => Some(unsupported_match(other)),
        };
        let mut causes: Vec<Cause> = cause.into_iter().collect();
        if matching.is_some() && self.get("continue").is_some() {
            causes.push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if self.get("sendInitialEvents").is_some() {
            causes.push(Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        refuse_list(causes)?;
        self.revision().map(drop)
    }

    /// What it refuses of a watch.
    pub(crate) fn check_watch_versions(&self) -> Result<(), Status> {
        const FIELD: &str = "resourceVersionMatch";
        let streamed = self.get("sendInitialEvents").is_some();
        let required =
            || Cause::forbidden(FIELD, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
        let causes = match (self.get(FIELD), streamed) {
            (None, true) => vec![required()],
            (Some(_), false) => {
                let hint = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
                vec![Cause::forbidden(FIELD, hint)]
            }
            (Some("NotOlderThan"), true) | (None, false) => Vec::new(),
            (Some(other), true) => {
                vec![required(), Cause::not_supported(FIELD, &json!(other), &[json!("NotOlderThan")])]
            }
        };
        let mut causes = causes;
        if self.get("continue").is_some() {
            causes.push(Cause::forbidden(FIELD, "resourceVersionMatch is forbidden when continue is provided"));
        }
        refuse_list(causes)?;
        self.revision().map(drop).map_err(unexplained)
    }

    /// # Errors
    /// 400 for selectors that cannot be read, and for a field that the resource does not select by.
    pub(crate) fn selection(&self, resource: &Resource) -> Result<Selection, Status> {
        let text = |name: &str| self.get(name).unwrap_or_default();
        Selection::read(resource, text("labelSelector"), text("fieldSelector"))
    }
}

/// A version that is none is told so only of lists.
fn unexplained(status: Status) -> Status {
    match status.message.strip_prefix("invalid resource version: ") {
        Some(why) => Status::unexplained(why.to_owned()),
        None => status,
    }
}

fn unsupported_match(given: &str) -> Cause {
    let known = ["Exact", "NotOlderThan", ""].map(Value::from);
    Cause::not_supported("resourceVersionMatch", &Value::from(given), &known)
}

fn refuse_list(causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("ListOptions.meta.k8s.io", "", causes)) }
}
