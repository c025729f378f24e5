//! Why a condition stands as it does: codes of the operator's own, beside those of decisions.

use cluster::{Condition, State, Tone};

use crate::readiness::Code;

/// A reason of a condition or an event that no decision gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Runtime and classes are chosen.
    Selected,
    /// No component asks for an accelerator class.
    NotRequired,
    /// There is no runtime, so there is no class.
    RuntimeNotResolved,
    /// Nothing is chosen, so nothing runs.
    NotPlanned,
    /// Every workload is ready.
    AllReady,
    /// The service is ready.
    Ready,
    /// Another choice would be taken today.
    BetterChoice,
    /// The service cannot be read.
    InvalidSpec,
    /// The runtime that the service names cannot be read.
    RuntimeUnreadable,
    /// The model that the service names cannot be read.
    ModelUnreadable,
    /// An object could not be read and is left out of every choice.
    LeftOut,
    /// An object that was left out takes part again.
    Readable,
    /// A kind that decisions depend on has not been read yet.
    ClusterNotRead,
    /// An object of that name is somebody else's.
    ObjectNotOurs,
    /// The cluster does not serve a kind.
    KindMissing,
    /// The API server does not take an object.
    ObjectRefused,
    /// A Gateway does not take the service's route, or finds nothing behind it.
    RouteNotAccepted,
    /// What Pods and workloads say.
    Workload(Code),
}

impl Reason {
    /// Every reason, for the list of codes.
    pub const ALL: [Reason; 26] = [
        Reason::Selected,
        Reason::NotRequired,
        Reason::RuntimeNotResolved,
        Reason::NotPlanned,
        Reason::AllReady,
        Reason::Ready,
        Reason::BetterChoice,
        Reason::InvalidSpec,
        Reason::RuntimeUnreadable,
        Reason::ModelUnreadable,
        Reason::LeftOut,
        Reason::Readable,
        Reason::ClusterNotRead,
        Reason::ObjectNotOurs,
        Reason::KindMissing,
        Reason::ObjectRefused,
        Reason::RouteNotAccepted,
        Reason::Workload(Code::ImagePullFailed),
        Reason::Workload(Code::ContainerCreateFailed),
        Reason::Workload(Code::CrashLoop),
        Reason::Workload(Code::PodFailed),
        Reason::Workload(Code::PodsNotCreated),
        Reason::Workload(Code::Unschedulable),
        Reason::Workload(Code::NotReadyYet),
        Reason::Workload(Code::Starting),
        Reason::Workload(Code::RollingOut),
    ];

    /// The code as conditions and events carry it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Selected => "Selected",
            Reason::NotRequired => "NotRequired",
            Reason::RuntimeNotResolved => "RuntimeNotResolved",
            Reason::NotPlanned => "NotPlanned",
            Reason::AllReady => "AllReady",
            Reason::Ready => "Ready",
            Reason::BetterChoice => "BetterChoice",
            Reason::InvalidSpec => "InvalidSpec",
            Reason::RuntimeUnreadable => "RuntimeUnreadable",
            Reason::ModelUnreadable => "ModelUnreadable",
            Reason::LeftOut => "LeftOut",
            Reason::Readable => "Readable",
            Reason::ClusterNotRead => "ClusterNotRead",
            Reason::ObjectNotOurs => "ObjectNotOurs",
            Reason::KindMissing => "KindMissing",
            Reason::ObjectRefused => "ObjectRefused",
            Reason::RouteNotAccepted => "RouteNotAccepted",
            Reason::Workload(code) => code.as_str(),
        }
    }

    /// How a condition with this reason is told.
    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            // The choice has an event of its own, with the numbers.
            Reason::Selected | Reason::NotRequired | Reason::RuntimeNotResolved | Reason::NotPlanned => {
                Tone::Consequence
            }
            // `Ready` says it.
            Reason::AllReady => Tone::Consequence,
            Reason::Ready | Reason::BetterChoice | Reason::Readable | Reason::ClusterNotRead => Tone::News,
            Reason::InvalidSpec
            | Reason::RuntimeUnreadable
            | Reason::ModelUnreadable
            | Reason::LeftOut
            | Reason::ObjectNotOurs
            | Reason::KindMissing
            | Reason::ObjectRefused
            | Reason::RouteNotAccepted => Tone::Problem,
            Reason::Workload(code) => code.tone(),
        }
    }

    /// What it means, and what to do about it; the latter is empty where nothing is to be done.
    #[must_use]
    pub fn explained(self) -> (&'static str, &'static str) {
        match self {
            Reason::Selected => ("Runtime and accelerator classes are chosen.", ""),
            Reason::NotRequired => ("No component asks for an accelerator class; Pods stay as the runtime says.", ""),
            Reason::RuntimeNotResolved => ("There is no runtime yet, so there is no class.", "See RuntimeResolved."),
            Reason::NotPlanned => (
                "Nothing runs until a runtime and its accelerators are found.",
                "See RuntimeResolved and AcceleratorResolved.",
            ),
            Reason::AllReady => ("Every workload of the service is ready.", ""),
            Reason::Ready => ("Every component is ready on the current generation.", ""),
            Reason::BetterChoice => (
                "The service keeps its choice; another one would be taken today.",
                "`ostler redecide KIND/NAME` accepts it.",
            ),
            Reason::InvalidSpec => (
                "The object cannot be read; the message names the field.",
                "Correct the field; `ostler lint -f FILE` finds it before applying.",
            ),
            Reason::RuntimeUnreadable => (
                "The runtime that the service names cannot be read.",
                "Correct the field of the runtime that the message names.",
            ),
            Reason::ModelUnreadable => (
                "The model that the service names cannot be read.",
                "Correct the field of the model that the message names.",
            ),
            Reason::LeftOut => {
                ("The object cannot be read and takes part in no choice.", "Correct the field that the message names.")
            }
            Reason::Readable => ("The object takes part in choices again.", ""),
            Reason::ClusterNotRead => (
                "The operator has not been able to read a kind that decisions depend on.",
                "Give its account list and watch on that kind; `kubectl auth can-i list KIND --as …` tells.",
            ),
            Reason::ObjectNotOurs => (
                "An object of that name belongs to somebody else and is not touched.",
                "Rename the service, or delete that object.",
            ),
            Reason::KindMissing => (
                "The cluster does not serve a kind that the service needs.",
                "Install what serves it; the service goes on by itself.",
            ),
            Reason::ObjectRefused => (
                "The API server does not take an object; the message has its words.",
                "Correct the field of service or runtime; quota and rights are tried again.",
            ),
            Reason::RouteNotAccepted => (
                "A Gateway does not take the service's HTTPRoute or InferencePool; the message has its words.",
                "Correct httproute of the router, or the Gateway's listeners and allowedRoutes.",
            ),
            Reason::Workload(code) => code.explained(),
        }
    }

    /// The code with its meaning.
    #[must_use]
    pub fn code(self) -> api::code::Code {
        let (cause, remedy) = self.explained();
        api::code::Code::listed(self.as_str(), cause, remedy)
    }

    /// A condition of type `kind` for this reason.
    #[must_use]
    pub fn condition(self, kind: &'static str, state: impl Into<State>, message: impl Into<String>) -> Condition {
        Condition::new(kind, state, self.code(), message).told_as(self.tone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The variants, named in a match without a rest: one that is added and not listed does not compile.
    macro_rules! variants {
        ($($own:ident)+; $($of_pods:ident)+) => {{
            fn _none_is_missing(reason: Reason) {
                match reason {
                    $(Reason::$own => {})+
                    $(Reason::Workload(Code::$of_pods) => {})+
                }
            }
            BTreeSet::from([$(Reason::$own,)+ $(Reason::Workload(Code::$of_pods),)+])
        }};
    }

    #[test]
    fn all_is_all() {
        let variants = variants!(
            Selected NotRequired RuntimeNotResolved NotPlanned AllReady Ready BetterChoice InvalidSpec RuntimeUnreadable
            ModelUnreadable LeftOut Readable ClusterNotRead ObjectNotOurs KindMissing ObjectRefused RouteNotAccepted;
            ImagePullFailed ContainerCreateFailed CrashLoop PodFailed PodsNotCreated Unschedulable NotReadyYet Starting RollingOut
        );
        assert_eq!(BTreeSet::from(Reason::ALL), variants);
    }

    #[test]
    fn every_code_is_one_reason_and_problems_have_a_remedy() {
        let codes: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(codes.len(), Reason::ALL.len());
        for reason in Reason::ALL {
            let (cause, remedy) = reason.explained();
            assert!(!cause.is_empty() && (reason.tone() != Tone::Problem || !remedy.is_empty()), "{reason:?}");
        }
    }
}
