//! What is signed: requests, trust bundles and pods' own requests.

mod bundles;
mod pem;
mod pod_requests;
mod requests;

use crablet_api::validate::Errors;
use crablet_api::{dns1123_label_errors, dns1123_subdomain_errors};

pub(crate) use bundles::TrustBundles;
pub(crate) use pem::subject;
pub(crate) use pod_requests::PodRequests;
pub(crate) use requests::SigningRequests;

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
