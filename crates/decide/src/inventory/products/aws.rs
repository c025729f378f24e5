//! AWS: Inferentia and Trainium, identified by the instance type.

use super::product::{INSTANCE_TYPE, Product, clone_labels, has_resource, label};
use crate::inventory::NodeInfo;

/// Instance type family, its sizes, and its chip.
const FAMILIES: &[(&str, &[&str], &str)] = &[
    ("inf1", &["xlarge", "2xlarge", "6xlarge", "24xlarge"], "aws-inferentia"),
    ("inf2", &["xlarge", "8xlarge", "24xlarge", "48xlarge"], "aws-inferentia2"),
    ("trn1", &["2xlarge", "32xlarge"], "aws-trainium"),
    ("trn1n", &["32xlarge"], "aws-trainium"),
    ("trn2", &["3xlarge", "48xlarge"], "aws-trainium2"),
    ("trn2u", &["48xlarge"], "aws-trainium2"),
];
/// Resource names in order of preference: device, former name of the device, core.
const RESOURCES: [&str; 3] = ["aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore"];

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let resource = RESOURCES.into_iter().find(|resource| has_resource(node, resource));
    let family = label(node, INSTANCE_TYPE).and_then(|instance| instance.split_once('.')).map(|(family, _)| family);
    let entry = FAMILIES.iter().find(|(name, ..)| Some(*name) == family);
    let product = |(resource, (_, _, chip)): (&str, &(&str, &[&str], &str))| Product {
        name: (*chip).to_owned(),
        vendor: "aws",
        family: Some("neuron".to_owned()),
        selectors: FAMILIES.iter().filter(|(.., other)| other == chip).flat_map(selectors).collect(),
        resource: resource.to_owned(),
        is_partition: resource == "aws.amazon.com/neuroncore",
        device_labels: clone_labels(node),
        ..Product::default()
    };
    resource.zip(entry).map(product).into_iter().collect()
}

/// Returns a selector for every size of a family.
fn selectors<'a>(
    (family, sizes, _): &'a (&str, &[&str], &str),
) -> impl Iterator<Item = std::collections::BTreeMap<String, String>> + 'a {
    sizes.iter().map(move |size| [(INSTANCE_TYPE.to_owned(), format!("{family}.{size}"))].into())
}
