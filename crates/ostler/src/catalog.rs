//! The shipped catalogue: accelerator classes, runtimes and models, as the YAML of `catalog/`.

use anyhow::Result;
use api::manifest::{self, Document};

const FILES: &[(&str, &str)] = &[
    ("catalog/classes.yaml", include_str!("../../../catalog/classes.yaml")),
    ("catalog/models.yaml", include_str!("../../../catalog/models.yaml")),
    ("catalog/runtimes.yaml", include_str!("../../../catalog/runtimes.yaml")),
];

/// Every shipped object, in file order.
pub(crate) fn documents() -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for (name, text) in FILES {
        documents.extend(manifest::read(name, text)?);
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_catalogue_reads_and_lints_clean() {
        for document in super::documents().unwrap() {
            assert_eq!(api::lint::check(&document), [], "{} {:?}", document.source, document.name());
        }
    }
}
