//! Generates `docs/reason-codes.md` from the reason codes of the crates, and checks that it is current.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use api::Code;
use operator::ConditionReason;

/// Path of the page, relative to this crate.
const PAGE: &str = "../../docs/reason-codes.md";
/// Environment variable; if set, the page is generated instead of compared.
const WRITE_VARIABLE: &str = "OSTLER_WRITE_DOCS";

const INTRODUCTION: &str = "# Reason codes

Reference of the reason codes in conditions, events, `status.decision`, `ostler plan` and `ostler explain`: the meaning of each
code, and what to do. Codes are stable. The messages with the values may change. `ostler explain KIND/NAME` shows the unmet
condition of an object and suggests changes.

Generated from the code: `OSTLER_WRITE_DOCS=1 cargo test -p ostler --test it reason_codes`.
";

struct Section {
    title: &'static str,
    occurrence: &'static str,
    codes: Vec<Code>,
}

fn sections() -> Vec<Section> {
    use decide::code as decision;
    use plan::code as plan_code;
    let section = |title, occurrence, codes: &[&[Code]]| Section { title, occurrence, codes: codes.concat() };
    let codes = |reasons: &[ConditionReason]| -> Vec<Code> { reasons.iter().map(|reason| reason.code()).collect() };
    vec![
        section(
            "Decisions",
            "`reason` of a plan and of `status.decision`, of `RuntimeResolved` and `AcceleratorResolved`, and of events.",
            &[decision::outcome::ALL],
        ),
        section(
            "Rejected runtimes",
            "`candidates[].rejected` of a plan, `nearest` and `rejected` of `status.decision`, in the order of the checks.",
            &[decision::runtime::ALL],
        ),
        section(
            "Accelerator classes",
            "`candidates[].accelerators[]` of a plan, in the order of the checks.",
            &[decision::class::ALL],
        ),
        section(
            "Warnings",
            "`warnings` of plan and decision, and events.",
            &[decision::warning::ALL, plan_code::warning::ALL],
        ),
        section("Plan errors", "`reason` of a plan, conditions and events.", &[plan_code::error::ALL]),
        section(
            "Conditions and events of services",
            "`InferenceService` of either group, and objects that decisions depend on.",
            &[&codes(ConditionReason::OF_SERVICES)],
        ),
        section(
            "Conditions of classes, role-based services and the base set",
            "`AcceleratorClass`, role-based `InferenceService`, and the ConfigMap of the base set.",
            &[&codes(ConditionReason::OF_CLASSES_AND_ROLES)],
        ),
        section(
            "Conditions of pools and use cases",
            "`BackendPool` and `LLMUseCaseSet`; condition `ModelNameShared` also of services.",
            &[picker::code::ALL],
        ),
        section(
            "Requesters of dual pods",
            "Events of requester Pods. The message is also in the annotation `dual-pods.llm-d.ai/status`.",
            &[actuation::code::ALL],
        ),
    ]
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for Section { title, occurrence, codes } in sections() {
        let _ = write!(page, "\n## {title}\n\n{occurrence}\n\n| Code | Meaning | Action |\n|---|---|---|\n");
        for code in codes {
            let remedy = if code.remedy().is_empty() { "–" } else { code.remedy() };
            let _ = writeln!(page, "| `{code}` | {} | {} |", escape(code.cause()), escape(remedy));
        }
    }
    page
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn page_matches_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let expected = page();
    if std::env::var_os(WRITE_VARIABLE).is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "docs/reason-codes.md is outdated: set {WRITE_VARIABLE}=1 and run this test again");
}

#[test]
fn codes_are_unique_and_documented() {
    for Section { title, codes, .. } in sections() {
        let mut unique = BTreeMap::new();
        for code in codes {
            assert!(unique.insert(code.as_str(), code).is_none(), "{title}: duplicate {code}");
            assert!(code.cause().ends_with('.'), "{title}: {code}");
            assert!(code.remedy().is_empty() || code.remedy().ends_with('.'), "{title}: {code}");
        }
    }
}
