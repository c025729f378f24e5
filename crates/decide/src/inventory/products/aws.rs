//! AWS: Inferentia and Trainium, told apart by the family of the instance type.

use super::{INSTANCE_TYPE, NodeInfo, Product, label, offers, own_labels};

/// Family of instance types, its sizes, and the chip in them.
const FAMILIES: &[(&str, &[&str], &str)] = &[
    ("inf1", &["xlarge", "2xlarge", "6xlarge", "24xlarge"], "aws-inferentia"),
    ("inf2", &["xlarge", "8xlarge", "24xlarge", "48xlarge"], "aws-inferentia2"),
    ("trn1", &["2xlarge", "32xlarge"], "aws-trainium"),
    ("trn1n", &["32xlarge"], "aws-trainium"),
    ("trn2", &["3xlarge", "48xlarge"], "aws-trainium2"),
    ("trn2u", &["48xlarge"], "aws-trainium2"),
];
/// A whole device first, then its old name, then a core.
const RESOURCES: [&str; 3] = ["aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore"];

pub(super) fn detect_products(node: &NodeInfo) -> Vec<Product> {
    let resource = RESOURCES.into_iter().find(|resource| offers(node, resource));
    let family = label(node, INSTANCE_TYPE).and_then(|instance| instance.split_once('.')).map(|(family, _)| family);
    let known = FAMILIES.iter().find(|(name, ..)| Some(*name) == family);
    let chip = |(resource, (_, _, chip)): (&str, &(&str, &[&str], &str))| Product {
        name: (*chip).to_owned(),
        vendor: "aws",
        family: Some("neuron".to_owned()),
        selectors: FAMILIES.iter().filter(|(.., other)| other == chip).flat_map(selectors).collect(),
        resource: resource.to_owned(),
        part: resource == "aws.amazon.com/neuroncore",
        whole: own_labels(node),
        ..Product::default()
    };
    resource.zip(known).map(chip).into_iter().collect()
}

/// Every size of a family: one that joins later is of the same class.
fn selectors<'a>(
    (family, sizes, _): &'a (&str, &[&str], &str),
) -> impl Iterator<Item = std::collections::BTreeMap<String, String>> + 'a {
    sizes.iter().map(move |size| [(INSTANCE_TYPE.to_owned(), format!("{family}.{size}"))].into())
}
