//! The classes of the ConfigMap `accelerator-classes-base` in the operator's namespace.

use std::sync::PoisonError;

use cluster::conditions::Transition;
use cluster::object::meta;
use cluster::{Error, Key, Outcome};
use decide::inventory::{BaseSet, Maker, maker, unedited};
use serde_json::Value;

use crate::Operator;
use crate::kinds::{BASE_SET, CLASS};

/// The ConfigMap's name.
pub(crate) const NAME: &str = "accelerator-classes-base";

impl Operator {
    /// Applies what the documents say, removes what they say no longer, and tells what cannot be applied. A class that
    /// a person made or edited stays as it is.
    pub(crate) async fn reconcile_base_set(&self) -> Result<(), Error> {
        if !self.accounts.complete(&[CLASS, BASE_SET]) {
            return Ok(());
        }
        let key = Key::new(&self.namespace, NAME);
        let config_map = self.stores.get(BASE_SET, &key);
        let set = config_map.as_deref().map(BaseSet::read).unwrap_or_default();
        let maker_here = Maker::ConfigMap(format!("{}/{}", key.namespace, key.name));
        let mut problems: Vec<String> = set.faults.iter().map(with_hint).collect();
        for class in &set.classes {
            problems.extend(self.apply_document(class, &maker_here).await?);
        }
        // A document that cannot be read may be of a class that exists: nothing is removed then.
        if set.faults.is_empty() {
            self.remove_others(&set.classes, &maker_here).await?;
        }
        if let Some(config_map) = config_map {
            self.tell_problems(&config_map, &problems).await;
        }
        Ok(())
    }

    /// What kept a document from being applied, in words.
    async fn apply_document(&self, class: &Value, made_here: &Maker) -> Result<Option<String>, Error> {
        let name = meta(class, "name");
        let live = self.stores.get(CLASS, &Key::of(class));
        if live.as_deref().is_some_and(|live| maker(live).as_ref() != Some(made_here)) {
            return Ok(Some(format!("class {name} was not applied: one of that name exists that was made elsewhere")));
        }
        if live.as_deref().is_some_and(|live| !unedited(live)) {
            return Ok(None);
        }
        Ok(match self.make_class(class).await? {
            Outcome::Refused(reason) => Some(format!("class {name} was refused: {reason}")),
            _ => None,
        })
    }

    async fn remove_others(&self, wanted: &[Value], made_here: &Maker) -> Result<(), Error> {
        for class in self.stores.list(CLASS) {
            let ours = maker(&class).as_ref() == Some(made_here) && unedited(&class);
            if ours && !wanted.iter().any(|one| meta(one, "name") == meta(&class, "name")) {
                self.applier.unmake(CLASS, &class).await?;
            }
        }
        Ok(())
    }

    /// One event per problem and version of the ConfigMap.
    async fn tell_problems(&self, config_map: &Value, problems: &[String]) {
        let said = (meta(config_map, "uid").to_owned(), problems.to_vec());
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.as_ref() == Some(&said) {
                return;
            }
            *told = Some(said);
        }
        for message in problems {
            let transition =
                Transition { warning: true, reason: crate::code::INVALID_DOCUMENT.into(), message: message.clone() };
            self.announce(config_map, &transition);
        }
    }
}

fn with_hint(fault: &api::manifest::ManifestError) -> String {
    match &fault.hint {
        Some(hint) => format!("{fault}; hint: {hint}"),
        None => fault.to_string(),
    }
}
