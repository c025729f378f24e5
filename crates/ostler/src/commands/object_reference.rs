//! The object of a command: `KIND/NAME` or `KIND NAME`, parsed and read from the cluster in the same way for all commands.

use anyhow::Result;
use cluster::Kind;
use kube::Client;
use operator::kinds;
use serde_json::Value;

use crate::cluster_objects;
use crate::report::errors::error_with_hint;

/// A kind that commands accept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ObjectKind {
    pub kind: Kind,
    pub object_type: ObjectType,
    /// Short names, categories and general names, in lower case. Singular and plural are accepted in addition.
    aliases: &'static [&'static str],
}

/// What an object describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectType {
    /// An InferenceService of `ome.io`, for which a runtime and accelerators are selected.
    OmeService,
    /// An InferenceService of `fusioninfer.io`.
    RoleBasedService,
    /// An AcceleratorClass.
    Class,
    /// A ServingRuntime or ClusterServingRuntime.
    Runtime,
    /// A BaseModel or ClusterBaseModel.
    Model,
    /// A Pod, as a requester or provider of dual pods.
    Pod,
    /// A Node, whose GPUs dual pods use.
    Node,
    /// A BackendPool.
    Pool,
    /// An LLMUseCaseSet or LLMUseCase.
    UseCases,
}

/// The objects that a command accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AcceptedObjects {
    /// Objects of all kinds in [`KINDS`].
    Any,
    /// Services of both groups.
    Services,
    /// Services that use selection, which those of `fusioninfer.io` do not.
    ServicesWithSelection,
}

/// An object as written on the command line: the kinds that it may have, and its name.
#[derive(Debug)]
pub(super) struct ObjectReference {
    kinds: Vec<&'static ObjectKind>,
    name: String,
}

/// An object as read from the cluster.
pub(super) struct FoundObject {
    pub kind: &'static ObjectKind,
    pub value: Value,
}

/// The accepted kinds. General names refer to several kinds.
static KINDS: [ObjectKind; 12] = [
    ObjectKind {
        kind: kinds::OME_SERVICE,
        object_type: ObjectType::OmeService,
        aliases: &["isvc", "service", "inference"],
    },
    ObjectKind {
        kind: kinds::FUSIONINFER_SERVICE,
        object_type: ObjectType::RoleBasedService,
        aliases: &["fisvc", "service", "inference"],
    },
    ObjectKind { kind: kinds::ACCELERATOR_CLASS, object_type: ObjectType::Class, aliases: &["aclass", "class"] },
    ObjectKind { kind: kinds::SERVING_RUNTIME, object_type: ObjectType::Runtime, aliases: &["srt", "runtime"] },
    ObjectKind {
        kind: kinds::CLUSTER_SERVING_RUNTIME,
        object_type: ObjectType::Runtime,
        aliases: &["csrt", "runtime"],
    },
    ObjectKind { kind: kinds::BASE_MODEL, object_type: ObjectType::Model, aliases: &["model"] },
    ObjectKind { kind: kinds::CLUSTER_BASE_MODEL, object_type: ObjectType::Model, aliases: &["model"] },
    ObjectKind { kind: kinds::POD, object_type: ObjectType::Pod, aliases: &["po"] },
    ObjectKind { kind: kinds::NODE, object_type: ObjectType::Node, aliases: &["no"] },
    ObjectKind { kind: kinds::BACKEND_POOL, object_type: ObjectType::Pool, aliases: &["bpool", "pool"] },
    ObjectKind { kind: kinds::LLM_USE_CASE_SET, object_type: ObjectType::UseCases, aliases: &["lucs", "usecase"] },
    ObjectKind { kind: kinds::LLM_USE_CASE, object_type: ObjectType::UseCases, aliases: &["luc", "usecase"] },
];

// === impl ObjectReference ===

impl ObjectReference {
    /// Parses `KIND/NAME`, or `KIND` and a separate `name`. The kind is a singular, plural, short or general name, optionally
    /// followed by `.GROUP`, in upper or lower case.
    ///
    /// # Errors
    /// Fails for any other form, and for kinds that the command does not accept. The hint lists the accepted kinds.
    pub(super) fn parse(object: &str, name: Option<&str>, accepted: AcceptedObjects) -> Result<Self> {
        let text = [Some(object), name].into_iter().flatten().collect::<Vec<_>>().join(" ");
        let invalid_object =
            || error_with_hint(format!("`{text}` is not KIND/NAME of {}", accepted.description()), accepted.hint());
        let words = match name {
            None => object.split_once('/'),
            Some(name) => Some((object, name)).filter(|(kind, _)| !kind.contains('/')),
        };
        let (kind, name) = words.filter(|(_, name)| !name.is_empty()).ok_or_else(invalid_object)?;
        let named: Vec<&ObjectKind> = KINDS.iter().filter(|candidate| candidate.is_named(kind)).collect();
        let kinds: Vec<&ObjectKind> =
            named.iter().copied().filter(|candidate| accepted.includes(candidate.object_type)).collect();
        if !kinds.is_empty() {
            return Ok(Self { kinds, name: name.to_owned() });
        }
        let is_service = named.iter().any(|kind| AcceptedObjects::Services.includes(kind.object_type));
        if is_service {
            return Err(error_with_hint(
                format!("{text}: role-based services do not use selection"),
                "edit the roles of the service instead",
            ));
        }
        Err(invalid_object())
    }

    /// Reads the object from the cluster.
    ///
    /// # Errors
    /// Fails if no object that the user may read, or objects of several kinds, have the name.
    pub(super) async fn read(&self, client: &Client, namespace: &str) -> Result<FoundObject> {
        let (mut objects, mut forbidden) = (Vec::new(), None);
        for kind in &self.kinds {
            match cluster_objects::get(client, kind.kind, namespace, &self.name).await {
                Ok(value) => objects.extend(value.map(|value| FoundObject { kind, value })),
                // The object may be of another kind that the name stands for.
                Err(error) if cluster_objects::forbidden_message(&error).is_some() => {
                    forbidden.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match objects.len() {
            0 => Err(forbidden.unwrap_or_else(|| self.not_found(namespace))),
            1 => Ok(objects.remove(0)),
            _ => {
                let names: Vec<String> = objects.iter().map(|object| object.kind.qualified_name(&self.name)).collect();
                Err(error_with_hint(format!("`{}` is ambiguous", self.name), format!("write {}", names.join(" or "))))
            }
        }
    }

    fn not_found(&self, namespace: &str) -> anyhow::Error {
        let mut names: Vec<&str> = self.kinds.iter().map(|kind| kind.kind.kind).collect();
        names.dedup();
        let is_namespaced = self.kinds.iter().any(|kind| kind.kind.namespaced);
        let location = if is_namespaced { format!(" in namespace `{namespace}`") } else { String::new() };
        // Of two kinds with the same name, only one was read.
        let one_of_two = self.kinds.first().filter(|kind| self.kinds.len() == 1 && kind.has_namesake());
        let group = one_of_two.map(|kind| format!(" of {}", kind.kind.group)).unwrap_or_default();
        let resource = match (one_of_two, self.kinds.first()) {
            (Some(kind), _) => kind.kind.group_resource(),
            (None, first) => first.map(|kind| kind.kind.plural.to_owned()).unwrap_or_default(),
        };
        let hint = if is_namespaced {
            format!("`kubectl get {resource} -A` lists them; set the namespace with -n")
        } else {
            format!("`kubectl get {resource}` lists them")
        };
        error_with_hint(format!("{} `{}`{group} not found{location}", names.join(" or "), self.name), hint)
    }
}

// === impl ObjectKind ===

impl ObjectKind {
    /// Returns whether `kind` is a name of this kind, optionally followed by its group.
    fn is_named(&self, kind: &str) -> bool {
        let lower_case = kind.to_lowercase();
        let (name, group) =
            lower_case.split_once('.').map_or((lower_case.as_str(), None), |(name, group)| (name, Some(group)));
        let has_name = name == self.kind.plural || name == self.singular() || self.aliases.contains(&name);
        has_name && group.is_none_or(|group| group == self.kind.group)
    }

    fn singular(&self) -> String {
        self.kind.kind.to_lowercase()
    }

    /// Returns whether another group has a kind with the same name.
    fn has_namesake(&self) -> bool {
        KINDS.iter().any(|other| other.kind.kind == self.kind.kind && other.kind.group != self.kind.group)
    }

    /// Returns `KIND.GROUP/NAME`, which is unambiguous; `KIND/NAME` in the core group.
    pub(super) fn qualified_name(&self, name: &str) -> String {
        match self.kind.group {
            "" => format!("{}/{name}", self.singular()),
            group => format!("{}.{group}/{name}", self.singular()),
        }
    }
}

// === impl AcceptedObjects ===

impl AcceptedObjects {
    fn includes(self, object_type: ObjectType) -> bool {
        match self {
            Self::Any => true,
            Self::Services => matches!(object_type, ObjectType::OmeService | ObjectType::RoleBasedService),
            Self::ServicesWithSelection => object_type == ObjectType::OmeService,
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Any => "a supported kind",
            Self::Services => "a service",
            Self::ServicesWithSelection => "an InferenceService of ome.io",
        }
    }

    fn hint(self) -> &'static str {
        match self {
            Self::Any => {
                "write inferenceservice/NAME, acceleratorclass/NAME, runtime/NAME, model/NAME, backendpool/NAME, usecase/NAME, pod/NAME \
                 or node/NAME"
            }
            Self::Services | Self::ServicesWithSelection => "write inferenceservice/NAME",
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const OME: &str = "inferenceservice.ome.io/chat";
    const ROLES: &str = "inferenceservice.fusioninfer.io/chat";
    const CLASS: &str = "acceleratorclass.ome.io/chat";

    /// Returns the objects that `words` may refer to, or the error.
    fn parse(words: &str, accepted: AcceptedObjects) -> Vec<String> {
        let (object, name) = words.split_once(' ').map_or((words, None), |(object, name)| (object, Some(name)));
        match ObjectReference::parse(object, name, accepted) {
            Ok(ObjectReference { kinds, name }) => kinds.iter().map(|kind| kind.qualified_name(&name)).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    /// `explain` accepts any object, `scale` and `rollout` accept services, and `redecide` those that use selection.
    #[rstest]
    #[case::singular("inferenceservice/chat", &[OME, ROLES], &[OME, ROLES], &[OME])]
    #[case::plural("inferenceservices/chat", &[OME, ROLES], &[OME, ROLES], &[OME])]
    #[case::general_name("service/chat", &[OME, ROLES], &[OME, ROLES], &[OME])]
    #[case::category("inference/chat", &[OME, ROLES], &[OME, ROLES], &[OME])]
    #[case::short_name("isvc/chat", &[OME], &[OME], &[OME])]
    #[case::group("inferenceservice.ome.io/chat", &[OME], &[OME], &[OME])]
    #[case::plural_with_group("inferenceservices.ome.io/chat", &[OME], &[OME], &[OME])]
    #[case::short_name_with_group("isvc.ome.io/chat", &[OME], &[OME], &[OME])]
    #[case::upper_case("InferenceService.OME.io/chat", &[OME], &[OME], &[OME])]
    #[case::two_words("inferenceservice chat", &[OME, ROLES], &[OME, ROLES], &[OME])]
    #[case::two_words_with_group("isvc.ome.io chat", &[OME], &[OME], &[OME])]
    #[case::role_based("fisvc/chat", &[ROLES], &[ROLES], &["fisvc/chat: role-based services do not use selection"])]
    #[case::role_based_with_group(
        "service.fusioninfer.io chat",
        &[ROLES],
        &[ROLES],
        &["service.fusioninfer.io chat: role-based services do not use selection"]
    )]
    #[case::class(
        "class/chat",
        &[CLASS],
        &["`class/chat` is not KIND/NAME of a service"],
        &["`class/chat` is not KIND/NAME of an InferenceService of ome.io"]
    )]
    fn resolves_kinds(
        #[case] words: &str,
        #[case] any: &[&str],
        #[case] services: &[&str],
        #[case] with_selection: &[&str],
    ) {
        assert_eq!(parse(words, AcceptedObjects::Any), any);
        assert_eq!(parse(words, AcceptedObjects::Services), services);
        assert_eq!(parse(words, AcceptedObjects::ServicesWithSelection), with_selection);
    }

    #[rstest]
    #[case::runtimes("runtime/a", &["servingruntime.ome.io/a", "clusterservingruntime.ome.io/a"])]
    #[case::runtime("srt/a", &["servingruntime.ome.io/a"])]
    #[case::cluster_runtime("csrt a", &["clusterservingruntime.ome.io/a"])]
    #[case::models("model/a", &["basemodel.ome.io/a", "clusterbasemodel.ome.io/a"])]
    #[case::model("basemodels.ome.io/a", &["basemodel.ome.io/a"])]
    #[case::class("aclass/a", &["acceleratorclass.ome.io/a"])]
    #[case::pod("pod/a", &["pod/a"])]
    #[case::node("no a", &["node/a"])]
    #[case::pool("bpool/a", &["backendpool.inference.networking.x-k8s.io/a"])]
    #[case::set("lucs/a", &["llmusecaseset.inference.networking.x-k8s.io/a"])]
    #[case::use_case("luc a", &["llmusecase.inference.networking.x-k8s.io/a"])]
    fn resolves_kinds_without_services(#[case] words: &str, #[case] expected: &[&str]) {
        assert_eq!(parse(words, AcceptedObjects::Any), expected);
    }

    #[rstest]
    fn rejects_other_forms(
        #[values("chat", "job/chat", "isvc/", "isvc", "/chat", "isvc.apps/chat", "isvc/chat x", "job chat", "isvc ")]
        words: &str,
        #[values(AcceptedObjects::Any, AcceptedObjects::Services, AcceptedObjects::ServicesWithSelection)]
        accepted: AcceptedObjects,
    ) {
        assert_eq!(parse(words, accepted), [format!("`{words}` is not KIND/NAME of {}", accepted.description())]);
    }

    /// Commands accept the names that `kubectl` accepts.
    #[test]
    fn accepts_names_of_the_definitions() {
        for crd in api::crds() {
            let (group, names) = (crd["spec"]["group"].as_str().unwrap(), &crd["spec"]["names"]);
            let is_object_kind = |kind: &&ObjectKind| names["kind"] == kind.kind.kind && group == kind.kind.group;
            let Some(kind) = KINDS.iter().find(is_object_kind) else { continue };
            let short_names = names["shortNames"].as_array().into_iter().flatten();
            for name in short_names.chain(["kind", "plural", "singular"].map(|field| &names[field])) {
                let name = name.as_str().unwrap();
                assert!(kind.is_named(name), "{name}");
                assert!(kind.is_named(&format!("{name}.{group}")), "{name}");
            }
        }
    }

    #[rstest]
    #[case("isvc/chat", "InferenceService `chat` of ome.io not found in namespace `n`")]
    #[case("service/chat", "InferenceService `chat` not found in namespace `n`")]
    #[case("class/a", "AcceleratorClass `a` not found")]
    #[case("runtime/a", "ServingRuntime or ClusterServingRuntime `a` not found in namespace `n`")]
    fn describes_missing_objects(#[case] object: &str, #[case] expected: &str) {
        let reference = ObjectReference::parse(object, None, AcceptedObjects::Any).unwrap();
        assert_eq!(reference.not_found("n").to_string(), expected);
    }
}
