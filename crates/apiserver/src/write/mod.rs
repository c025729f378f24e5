//! The write pipeline: one module per stage. [`pipeline`] runs the stages in these orders; the numbers are those in
//! its code.
//!
//! | stage | purpose | create | update |
//! |---|---|---|---|
//! | [`current_definition`] | finds the definition of custom resources | 1 | 1 |
//! | [`decode`] | decodes the body of a request, finds duplicate fields, checks field types | 2 | 2 |
//! | [`prune`] | removes unknown fields and reports them | 3 | 3 |
//! | [`preconditions`] | compares name, UID and resource version with the current object | | 4 |
//! | [`default`] | applies defaults | 4 | 1, 6 |
//! | [`normalize`] | normalizes numbers of custom resources, and the object to the JSON encoding of its Go type | 2, 4, 8 | 2, 6 |
//! | [`managed_fields`] | records field managers in `managedFields` | 5 | 7 |
//! | [`prepare`] | sets the fields owned by the server: name, UID, timestamps, generation, initial status | 1, 4, 5, 7, 15 | 4, 5, 6, 10, 15 |
//! | [`validate`] | rejects invalid objects with all causes | 6, 9 | 12 |
//! | [`warnings`] | reports accepted but suspicious values | 9 | 12 |
//! | [`validation_rules`] | evaluates the CEL rules of custom resources | 11 | 13 |
//! | [`allocate`] | allocates cluster IPs and node ports of Services | 12 | 8 |
//! | [`admit`] | runs the built-in admission plugins and the admission port | 8, 10, 14 | 9, 14 |
//! | commit | stores the object | 16 | 16 |
//!
//! Each attempt to write is a [transaction](crate::transaction): stages read other objects only through it, and the
//! commit fails if one of them has changed since. The write is then tried again from stage 1.
//!
//! A creation runs:
//! 1. definition of custom resources: [`current_definition`]; type, namespace and name: [`prepare`]
//! 2. field types: [`decode`], [`normalize`]
//! 3. unknown fields: [`prune`]
//! 4. defaults: [`default`], [`prepare`], [`normalize`]
//! 5. field managers: [`prepare`], [`managed_fields`]
//! 6. end if the object is a review: [`validate`], [`reviews`](crate::reviews)
//! 7. fields owned by the server: [`prepare`]
//! 8. mutating admission plugins: [`admit`], [`normalize`]
//! 9. validation and warnings: [`validate`], [`warnings`]
//! 10. existence of the namespace: [`admit`]
//! 11. validation rules of custom resources: [`validation_rules`]
//! 12. addresses and ports of Services: [`allocate`]
//! 13. availability of the name
//! 14. admission port: [`admit`]
//! 15. storage version of custom resource definitions: [`prepare`]
//! 16. commit
//!
//! An update runs:
//! 1. definition of custom resources: [`current_definition`]; current object and proposal: [`default`]
//! 2. field types: [`decode`], [`normalize`]
//! 3. unknown fields: [`prune`]
//! 4. preconditions, type and namespace: [`preconditions`], [`prepare`]
//! 5. fields that the request cannot change: [`prepare`]
//! 6. defaults: [`default`], [`prepare`], [`normalize`]
//! 7. field managers: [`managed_fields`]
//! 8. addresses and ports of Services: [`allocate`]
//! 9. mutating admission plugins: [`admit`]
//! 10. fields owned by the server: [`prepare`]
//! 11. end if nothing changed
//! 12. validation and warnings: [`validate`], [`warnings`]
//! 13. validation rules of custom resources: [`validation_rules`]
//! 14. admission port: [`admit`]
//! 15. storage version of custom resource definitions: [`prepare`]
//! 16. commit
//!
//! Nothing is stored before the commit. The stages operate on the resource, the old object and the new object; stages
//! that need other objects, such as Services, PriorityClasses or Namespaces, only read them. A write returns what it
//! [committed](Committed); [`crate::cascade`] carries out what follows from it.

pub(crate) mod admit;
mod allocate;
mod committed;
mod current_definition;
pub(crate) mod decode;
pub(crate) mod default;
mod finalization;
mod managed_fields;
pub(crate) mod normalize;
mod options;
mod pipeline;
pub(crate) mod preconditions;
mod prepare;
pub(crate) mod priority_class;
mod proposal;
pub(crate) mod prune;
mod request;
mod subresource;
mod undecodable_object;
pub(crate) mod validate;
mod validation_rules;
mod warnings;

pub(crate) use committed::{Committed, Transition, WriteResult};
pub(crate) use decode::FieldWarnings;
pub(crate) use finalization::is_removable;
pub(crate) use options::{FieldValidation, RequestBody, WriteOptions};
pub(crate) use pipeline::{create, modify, modify_with_reads};
pub(crate) use proposal::{Proposal, ProposeFn, ProposeWithReadsFn};
pub(crate) use request::WriteRequest;
pub(crate) use subresource::Subresource;
use undecodable_object::UndecodableObject;
