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

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.get(name), Some("true" | "1"))
    }

    pub(crate) fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>, Status> {
        let parse = |value: &str| {
            value
                .parse()
                .map_err(|_| Status::bad_request(format!("strconv.ParseInt: parsing {value:?}: invalid syntax")))
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
        let manager = self.get("fieldManager").unwrap_or(agent).to_owned();
        Ok(Options { manager, field_validation, dry_run: self.dry_run()?, ..Options::default() })
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
                "Invalid includeObject value: unrecognized includeObject value: {other:?}"
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
        refuse_list(cause.into_iter().collect())?;
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
        refuse_list(causes)?;
        let wrong = |status: Status| {
            Status::unexplained(status.message.trim_start_matches("invalid resource version: ").to_owned())
        };
        self.revision().map(drop).map_err(wrong)
    }

    /// # Errors
    /// 400 for selectors that cannot be read, and for a field that the resource does not select by.
    pub(crate) fn selection(&self, resource: &Resource) -> Result<Selection, Status> {
        let text = |name: &str| self.get(name).unwrap_or_default();
        Selection::read(resource, text("labelSelector"), text("fieldSelector"))
    }
}

fn unsupported_match(given: &str) -> Cause {
    let known = ["Exact", "NotOlderThan", ""].map(Value::from);
    Cause::not_supported("resourceVersionMatch", &Value::from(given), &known)
}

fn refuse_list(causes: Vec<Cause>) -> Result<(), Status> {
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("ListOptions.meta.k8s.io", "", causes)) }
}
