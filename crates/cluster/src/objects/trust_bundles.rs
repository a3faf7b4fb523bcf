//! Whom pods may trust: cluster trust bundles, put together from those that a volume names.

use std::collections::BTreeSet;
use std::sync::Arc;

use crablet_api::certificates::ClusterTrustBundle;
use crablet_api::core::ClusterTrustBundleProjection;
use crablet_api::selector::Selector;
use crablet_core::translate::Unavailable;
use crablet_x509::pem;

/// The certificates of the bundles that a volume names, each once and always in the same order.
pub(super) fn trust_anchors(
    all: &[Arc<ClusterTrustBundle>],
    wanted: &ClusterTrustBundleProjection,
) -> Result<String, Unavailable> {
    let found: Vec<&Arc<ClusterTrustBundle>> = match (&wanted.name, &wanted.signer_name) {
        (Some(name), _) => all.iter().filter(|bundle| bundle.metadata.name == *name).collect(),
        (None, Some(signer)) => {
            // Without a selector none is meant, and by an empty one all.
            let selector = wanted.label_selector.as_deref().map(Selector::try_from).transpose();
            let selector = selector
                .map_err(|error| Unavailable::Other(format!("while parsing label selector: {error}")))?;
            let is_meant = |bundle: &&Arc<ClusterTrustBundle>| {
                bundle.spec.signer_name == *signer
                    && selector.as_ref().is_some_and(|selector| selector.matches(&bundle.metadata.labels))
            };
            all.iter().filter(is_meant).collect()
        }
        (None, None) => {
            let why = "ClusterTrustBundle projection requires either name or signerName to be set";
            return Err(Unavailable::Other(why.to_owned()));
        }
    };
    if found.is_empty() {
        return Err(Unavailable::NotFound);
    }
    let blocks = found.iter().flat_map(|bundle| pem::blocks(bundle.spec.trust_bundle.as_bytes()));
    let anchors: BTreeSet<Vec<u8>> = blocks.map(|block| block.bytes).collect();
    Ok(anchors.iter().map(|anchor| pem::encode("CERTIFICATE", anchor)).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn bundle(name: &str, signer: &str, label: &str, anchors: &[&[u8]]) -> Arc<ClusterTrustBundle> {
        let text: String = anchors.iter().map(|anchor| pem::encode("CERTIFICATE", anchor)).collect();
        let object = json!({
            "metadata": {"name": name, "labels": {"stage": label}},
            "spec": {"signerName": signer, "trustBundle": format!("# a remark\n{text}")},
        });
        Arc::new(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn those_that_a_volume_names_are_put_together_each_certificate_once() {
        let all = [
            bundle("s:one", "s", "live", &[b"b", b"a"]),
            bundle("s:two", "s", "test", &[b"a", b"c"]),
            bundle("other", "", "live", &[b"d"]),
        ];
        let shown = |wanted: Json| {
            let wanted: ClusterTrustBundleProjection = serde_json::from_value(wanted).unwrap();
            let text = trust_anchors(&all, &wanted)?;
            let blocks = pem::blocks(text.as_bytes()).into_iter();
            Ok(blocks.map(|block| String::from_utf8(block.bytes).unwrap()).collect::<String>())
        };
        let live = json!({"matchLabels": {"stage": "live"}});
        for (wanted, expected) in [
            (json!({"name": "other", "path": "p"}), Ok("d")),
            (json!({"name": "s:one", "path": "p"}), Ok("ab")),
            (json!({"signerName": "s", "labelSelector": {}, "path": "p"}), Ok("abc")),
            (json!({"signerName": "s", "labelSelector": live, "path": "p"}), Ok("ab")),
            (json!({"signerName": "s", "path": "p"}), Err(Unavailable::NotFound)),
            (json!({"name": "none", "path": "p"}), Err(Unavailable::NotFound)),
        ] {
            assert_eq!(shown(wanted.clone()), expected.map(str::to_owned), "{wanted}");
        }
    }
}
