//! What is signed: requests, trust bundles and pods' own requests.

mod bundles;
mod pod_request_status;
mod pod_requests;
mod requests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crablet_api::validate::Errors;
use crablet_api::{dns1123_label_errors, dns1123_subdomain_errors};
use serde_json::Value;

use crate::object;
use crate::pki::{CertificateRequest, RequestError};

pub(crate) use bundles::TrustBundles;
pub(crate) use pod_requests::PodRequests;
pub(crate) use requests::SigningRequests;

/// The request in a signing request, which is PEM in base64.
pub(crate) fn requested(request: &Value) -> Result<CertificateRequest, RequestError> {
    CertificateRequest::parse(&String::from_utf8_lossy(&decoded(request, &["spec", "request"])))
}

/// The bytes at a path.
fn decoded(object: &Value, path: &[&str]) -> Vec<u8> {
    STANDARD.decode(object::text(object, path)).unwrap_or_default()
}

pub(crate) fn check_signer(errors: &mut Errors, path: &str, signer: &str) {
    if signer.is_empty() {
        return errors.required(path, "");
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let [domain, name] = parts.as_slice() else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return errors.invalid(path, signer, detail);
    };
    if domain.len() > 253 {
        errors.too_long(path, 253);
    }
    let bad = domain.split('.').find(|label| !dns1123_label_errors(label).is_empty());
    for problem in bad.map(dns1123_label_errors).unwrap_or_default() {
        errors.invalid(path, *domain, format!("validating label {:?}: {problem}", bad.unwrap_or_default()));
    }
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        errors.invalid(path, *domain, detail);
    }
    let bad = name.split('.').find(|label| !dns1123_subdomain_errors(label).is_empty());
    for problem in bad.map(dns1123_subdomain_errors).unwrap_or_default() {
        errors.invalid(path, *name, format!("validating label {:?}: {problem}", bad.unwrap_or_default()));
    }
    if signer.len() > 571 {
        errors.too_long(path, 571);
    }
}
