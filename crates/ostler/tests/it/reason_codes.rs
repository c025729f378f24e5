//! `docs/reason-codes.md` is written from the lists of codes in the crates, and kept in step with them here.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use api::code::Code;

/// Where the page is, from this crate's folder.
const PAGE: &str = "../../docs/reason-codes.md";
/// Set, the page is written anew instead of compared.
const WRITE: &str = "OSTLER_WRITE_DOCS";

const INTRODUCTION: &str = "# Reason codes

Every code that stands in a condition, an event, `status.decision`, `ostler plan` or `ostler explain`: what it means, and what
to do. Codes are stable; messages beside them carry the numbers and may change. `ostler explain KIND/NAME` follows the codes of
one object down to the unmet condition and tells which one change helps.

Written from the code: `OSTLER_WRITE_DOCS=1 cargo test -p ostler --test it reason_codes`.
";

struct Section {
    title: &'static str,
    where_found: &'static str,
    codes: Vec<Code>,
}

fn sections() -> Vec<Section> {
    use decide::code as decided;
    use plan::code as planned;
    let section = |title, where_found, codes: &[&[Code]]| Section { title, where_found, codes: codes.concat() };
    let reasons: Vec<Code> = operator::reason::Reason::ALL.iter().map(|reason| reason.code()).collect();
    vec![
        section(
            "Decisions",
            "`reason` of a plan and of `status.decision`, of `RuntimeResolved` and `AcceleratorResolved`, and of events.",
            &[decided::outcome::ALL],
        ),
        section(
            "Runtimes that cannot serve",
            "`candidates[].rejected` of plan and decision, in the order of the checks.",
            &[decided::runtime::ALL],
        ),
        section(
            "Classes",
            "`candidates[].accelerators[]` of plan and decision, in the order of the checks.",
            &[decided::class::ALL],
        ),
        section(
            "Warnings",
            "`warnings` of plan and decision, and events.",
            &[decided::warning::ALL, planned::warning::ALL],
        ),
        section(
            "Services that cannot be laid out",
            "`reason` of a plan, conditions and events.",
            &[planned::refusal::ALL],
        ),
        section(
            "Conditions and events of services",
            "`InferenceService` of either group, and objects that decisions read.",
            &[&reasons],
        ),
        section(
            "Conditions of classes and roles, base set",
            "`AcceleratorClass`, role-based `InferenceService`, and the ConfigMap of the base set.",
            &[operator::code::ALL],
        ),
        section("Conditions of pools and use cases", "`BackendPool` and `LLMUseCaseSet`.", &[picker::code::ALL]),
    ]
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for Section { title, where_found, codes } in sections() {
        let _ = write!(page, "\n## {title}\n\n{where_found}\n\n| code | means | do |\n|---|---|---|\n");
        for code in codes {
            let remedy = if code.remedy().is_empty() { "–" } else { code.remedy() };
            let _ = writeln!(page, "| `{code}` | {} | {} |", escaped(code.cause()), escaped(remedy));
        }
    }
    page
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

#[test]
fn the_page_is_in_step_with_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let wanted = page();
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, wanted, "docs/reason-codes.md is out of step: set {WRITE}=1 and run this test again");
}

#[test]
fn one_list_has_a_code_once_and_says_what_it_means() {
    for Section { title, codes, .. } in sections() {
        let mut seen = BTreeMap::new();
        for code in codes {
            assert!(seen.insert(code.as_str(), code).is_none(), "{title}: {code} twice");
            assert!(code.cause().ends_with('.'), "{title}: {code}");
            assert!(code.remedy().is_empty() || code.remedy().ends_with('.'), "{title}: {code}");
        }
    }
}
