//! No text is taken as a token that the server did not sign, and no certificate request makes it panic.
#![no_main]

use crablet_apiserver::cluster::{Cluster, Settings};
use crablet_apiserver::pki::CertificateRequest;
use crablet_apiserver::state::State;
use jiff::Timestamp;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let cluster = Cluster::new(State::default(), Settings::default(), 1);
    let authenticated = cluster.authenticate_token(text, &[], Timestamp::UNIX_EPOCH);
    assert!(authenticated.is_err(), "{authenticated:?}");
    if let Ok(request) = CertificateRequest::parse(text) {
        let _ = (request.common_name(), request.organizations());
        let _ = (request.dns_names(), request.ip_addresses(), request.email_addresses(), request.uris());
    }
});
