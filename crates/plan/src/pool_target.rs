//! Pods that a pool of a role-based service routes requests to.

use api::fusioninfer::ComponentType;
use decide::Warning;

use crate::code;
use crate::labels::{self, Labels};
use crate::owner::Owner;
use crate::role::Role;

/// Pods that a pool routes requests to, and their port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PoolTarget {
    /// Selects leaders or providers only.
    pub selector: Labels,
    pub port: u16,
}

impl PoolTarget {
    /// Returns the roles of a component type, or all roles.
    pub(crate) fn roles(roles: &[Role], component_type: Option<ComponentType>) -> impl Iterator<Item = &Role> {
        roles.iter().filter(move |role| {
            component_type.is_none_or(|component_type| role.labels[labels::COMPONENT_TYPE] == component_type.as_str())
        })
    }

    /// Returns the leaders of `roles`, optionally of one component type. Excludes roles with a different port than the
    /// first one, because all Pods of a pool share the same ports. `None` without roles.
    pub(crate) fn select(
        owner: &Owner,
        roles: &[Role],
        component_type: Option<ComponentType>,
        warnings: &mut Vec<Warning>,
    ) -> Option<Self> {
        let first = Self::roles(roles, component_type).next()?;
        let mut selector = first.serving_selector(labels::from_pairs([(labels::SERVICE, owner.name.as_str())]));
        if let Some(component_type) = component_type {
            selector.insert(labels::COMPONENT_TYPE.to_owned(), component_type.as_str().to_owned());
        }
        if Self::roles(roles, component_type).any(|role| role.port != first.port) {
            selector.insert(labels::ROLE_NAME.to_owned(), first.name.clone());
            let message = format!(
                "Roles serve on different ports; requests are routed only to role {} (port {})",
                first.name, first.port
            );
            warnings.push(Warning::new(code::warning::PORTS_DIFFER, message));
        }
        Some(Self { selector, port: first.port })
    }

    /// Returns whether the pool contains the leaders of `role`.
    pub(crate) fn contains(&self, role: &Role) -> bool {
        let has_value = |key: &str, value: &str| self.selector.get(key).is_none_or(|required| required == value);
        has_value(labels::COMPONENT_TYPE, &role.labels[labels::COMPONENT_TYPE])
            && has_value(labels::ROLE_NAME, &role.name)
    }

    /// Returns whether all roles serve on the same port.
    pub(crate) fn have_equal_ports(roles: &[Role]) -> bool {
        roles.windows(2).all(|roles| roles[0].port == roles[1].port)
    }

    /// Returns the leaders of the prefillers and decoders of a pair. A pool has one port: if the ports of `roles` differ,
    /// returns only the decoders, which can process complete requests.
    pub(crate) fn select_pair(owner: &Owner, roles: &[Role], warnings: &mut Vec<Warning>) -> Option<Self> {
        if Self::have_equal_ports(roles) {
            return Self::select(owner, roles, None, warnings);
        }
        let message = "Prefillers and decoders serve on different ports, but a pool has only one; requests are routed only to decoders";
        warnings.push(Warning::new(code::warning::PORTS_DIFFER, message));
        Self::select(owner, roles, Some(ComponentType::Decoder), warnings)
    }
}
