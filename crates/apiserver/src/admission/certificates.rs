//! Who approves, signs and attests for whom: upstream's `CertificateApproval`, `CertificateSigning`,
//! `CertificateSubjectRestriction` and `ClusterTrustBundleAttest`.

use serde_json::Value;

use super::{Operation, forbidden};
use crate::access;
use crate::access::attributes::{Attributes, ObjectAttributes};
use crate::access::escalation::is_for_the_collector;
use crate::cluster::{Call, Cluster};
use crate::object;
use crate::resources::Subresource;
use crate::rules::certificates;
use crate::rules::metadata::same;
use crate::status::Refusal;
use crate::who::MASTERS;

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

pub(super) fn check(
    cluster: &Cluster,
    call: &Call<'_>,
    operation: Operation,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Refusal> {
    match (call.target.resource.plural, call.target.subresource, operation, old) {
        ("certificatesigningrequests", None, Operation::Create, _) => check_subject(call, object),
        ("certificatesigningrequests", Some(Subresource::Approval), Operation::Update, Some(old)) => {
            require(cluster, call, old, "approve", "approve requests with")
        }
        ("certificatesigningrequests", Some(Subresource::Status), Operation::Update, Some(old)) => {
            let is_kept = |field: &str| same(&object["status"][field], &old["status"][field]);
            match is_kept("certificate") && is_kept("conditions") {
                true => Ok(()),
                false => require(cluster, call, old, "sign", "sign requests with"),
            }
        }
        ("clustertrustbundles", None, _, old) => {
            let is_signers = !object::text(object, &["spec", "signerName"]).is_empty();
            match is_signers && !old.is_some_and(|old| is_for_the_collector(object, old)) {
                true => require(cluster, call, object, "attest", "attest for"),
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Nobody becomes an administrator by a certificate that others sign.
fn check_subject(call: &Call<'_>, request: &Value) -> Result<(), Refusal> {
    if request["spec"]["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    match certificates::requested(request) {
        Err(error) => Err(forbidden(call, request, format!("failed to parse CSR: {error}"))),
        Ok(wanted) if wanted.organizations().iter().any(|group| group == MASTERS) => {
            let why = format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
            Err(forbidden(call, request, why))
        }
        Ok(_) => Ok(()),
    }
}

/// Refuses what the sender may not do in the name of a signer, nor of all signers of its domain.
fn require(
    cluster: &Cluster,
    call: &Call<'_>,
    object: &Value,
    verb: &str,
    what: &str,
) -> Result<(), Refusal> {
    let signer = object::text(object, &["spec", "signerName"]);
    let domain = signer.split('/').next().unwrap_or_default();
    let may = |name: &str| {
        let about = ObjectAttributes::new("certificates.k8s.io", "signers", "", name);
        access::authorize(&cluster.state, &Attributes::new(&call.request.user, verb, about)).allowed
    };
    match may(signer) || may(&format!("{domain}/*")) {
        true => Ok(()),
        false => Err(forbidden(call, object, format!("user not permitted to {what} signerName {signer:?}"))),
    }
}
