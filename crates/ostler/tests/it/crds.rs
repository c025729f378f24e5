//! `ostler crds` prints all CustomResourceDefinitions.

use crate::session::{ostler, outcome};

#[test]
fn prints_all_kinds() {
    let (stdout, _, code) = outcome(&ostler(&["crds"]).output().unwrap());
    assert_eq!(code, Some(0));
    let documents = api::parse_manifest("crds", &stdout).unwrap();
    let names: Vec<_> = documents.iter().map(api::Document::name).collect();
    insta::assert_snapshot!(names.join("\n"), @r"
    acceleratorclasses.ome.io
    basemodels.ome.io
    clusterbasemodels.ome.io
    servingruntimes.ome.io
    clusterservingruntimes.ome.io
    inferenceservices.ome.io
    inferenceservices.fusioninfer.io
    backendpools.inference.networking.x-k8s.io
    llmusecasesets.inference.networking.x-k8s.io
    llmusecases.inference.networking.x-k8s.io
    ");
}
