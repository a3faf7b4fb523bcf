//! Asking an API server for a certificate: a `CertificateSigningRequest` is created, and what becomes of it followed.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use crablet_api::certificates::{
    CertificateSigningRequest, CertificateSigningRequestSpec, RequestConditionType,
};
use crablet_api::meta::ObjectMeta;
use crablet_api::{Bytes, Text};
use crablet_client::{Chance, Client, Event, Follower, Selection};
use crablet_host::clock::Clock;
use crablet_x509::{Certificate, CertificateError, CertificateRequest, KeyPair, PublicKey, pem};
use jiff::Timestamp;
use sha2::{Digest, Sha512_256};
use tokio::sync::watch;
use tracing::{debug, info};

use crate::manager::ConnectError;
use crate::progress::{Progress, Stage};
use crate::store::StoreError;
use crate::template::{Signer, Template};

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("cannot make a key or a request")]
    Make(#[from] CertificateError),
    #[error("cannot connect to the API server")]
    Connect(#[source] ConnectError),
    #[error("cannot create certificate signing request")]
    Create(#[source] crablet_client::Error),
    #[error("cannot retrieve certificate signing request")]
    Retrieve(#[source] crablet_client::Error),
    #[error("cannot watch the certificate signing request {name}")]
    Watch { name: Text, source: crablet_client::Error },
    #[error("the certificate signing request {name} is there already, and is not ours: {why}")]
    Incompatible { name: Text, why: &'static str },
    #[error("certificate signing request {name} is denied, reason: {reason}, message: {message}")]
    Denied { name: Text, reason: Text, message: Text },
    #[error("certificate signing request {name} failed, reason: {reason}, message: {message}")]
    Failed { name: Text, reason: Text, message: Text },
    #[error("certificate signing request {name} was deleted")]
    Deleted { name: Text },
    #[error("certificate signing request {name} was replaced by another one of that name")]
    Replaced { name: Text },
    #[error("certificate signing request {name} was not signed within {} min", after.as_secs() / 60)]
    TimedOut { name: Text, after: Duration },
    #[error("the node's addresses changed while certificate signing request waited to be signed")]
    Outdated,
    #[error("cannot keep the certificate")]
    Store(#[from] StoreError),
    #[error("cannot write the kubeconfig")]
    Kubeconfig(#[from] crablet_client::WriteKubeconfigError),
    #[error("cannot read the bootstrap kubeconfig")]
    BootstrapKubeconfig(#[from] crablet_client::KubeconfigError),
}

/// What a request is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// As the server likes.
    Generated,
    /// After what is asked for: who asks for the same again finds the request from before.
    Digested,
}

/// One request, on its way.
pub(crate) struct Asking<'a> {
    pub(crate) client: Client,
    pub(crate) signer: Signer,
    pub(crate) template: &'a Template,
    pub(crate) key: &'a KeyPair,
    pub(crate) naming: Naming,
    /// How long to wait for somebody to approve and to sign.
    pub(crate) patience: Duration,
    pub(crate) clock: &'a Clock,
    pub(crate) chance: Chance,
    pub(crate) progress: &'a watch::Sender<Progress>,
}

impl Asking<'_> {
    /// The certificate, in PEM.
    pub(crate) async fn obtain(self) -> Result<String, RequestError> {
        let since = self.clock.now();
        self.stage(Stage::Asks { since });
        let request = self.begin().await?;
        let name = request.metadata.name.clone();
        let patience = self.patience;
        let waiting = tokio::time::timeout(patience, self.wait(request));
        waiting.await.unwrap_or(Err(RequestError::TimedOut { name, after: patience }))
    }

    /// Creates the request, or finds the one from before.
    async fn begin(&self) -> Result<CertificateSigningRequest, RequestError> {
        let mut metadata = ObjectMeta::default();
        match self.naming {
            Naming::Generated => metadata.generate_name = "csr-".into(),
            Naming::Digested => metadata.name = digested_name(self.key, self.template, self.signer).into(),
        }
        let name = metadata.name.clone();
        let request = CertificateSigningRequest {
            metadata,
            spec: CertificateSigningRequestSpec {
                request: Bytes::from(self.template.request(self.key)?.as_str()),
                signer_name: self.signer.name().into(),
                usages: self.signer.usages().into(),
                ..CertificateSigningRequestSpec::default()
            },
            ..CertificateSigningRequest::default()
        };
        match self.client.create(&request).await {
            Ok(created) => {
                info!(csr = %created.metadata.name, signer = self.signer.name(), "Certificate signing request created");
                Ok(created)
            }
            Err(error) if error.is_already_exists() && !name.is_empty() => {
                let found: CertificateSigningRequest =
                    self.client.get("", &name).await.map_err(RequestError::Retrieve)?;
                if let Some(why) =
                    incompatible(&found, self.template, self.signer, self.key, self.clock.now())
                {
                    return Err(RequestError::Incompatible { name, why });
                }
                info!(csr = %name, signer = self.signer.name(), "Certificate signing request from before is used");
                Ok(found)
            }
            Err(error) => Err(RequestError::Create(error)),
        }
    }

    /// Follows the request to its end.
    async fn wait(&self, mut request: CertificateSigningRequest) -> Result<String, RequestError> {
        let (name, uid) = (request.metadata.name.clone(), request.metadata.uid.clone());
        let since = self.clock.now();
        let selection = Selection::named("", &name);
        let mut follower: Follower<CertificateSigningRequest> =
            Follower::new(self.client.clone(), &selection, self.chance.clone());
        loop {
            if request.metadata.uid != uid {
                return Err(RequestError::Replaced { name });
            }
            match verdict(&request)? {
                Verdict::Signed(certificate) => {
                    info!(csr = %name, "Certificate signing request is issued");
                    return Ok(certificate);
                }
                Verdict::Approved => self.stage(Stage::Approved { request: name.clone(), since }),
                Verdict::Pending => self.stage(Stage::Pending { request: name.clone(), since }),
            }
            request = loop {
                match follower.next().await {
                    Event::All(all) => match all.into_iter().find(|found| found.metadata.name == name) {
                        Some(found) => break found,
                        None => return Err(RequestError::Deleted { name }),
                    },
                    Event::Set(changed) => break changed,
                    Event::Gone(_) => return Err(RequestError::Deleted { name }),
                    Event::Trouble { error, again_in } => {
                        debug!(csr = %name, err = %error, ?again_in, "A certificate signing request cannot be watched");
                        let error = RequestError::Watch { name: name.clone(), source: error };
                        self.trouble(error);
                    }
                    Event::Resumed => {}
                }
            };
        }
    }

    fn stage(&self, stage: Stage) {
        Progress::enter(self.progress, stage);
    }

    fn trouble(&self, error: RequestError) {
        let now: Timestamp = self.clock.now();
        self.progress.send_modify(|progress| progress.note(Arc::new(error), now));
    }
}

enum Verdict {
    Pending,
    Approved,
    /// In PEM.
    Signed(String),
}

fn verdict(request: &CertificateSigningRequest) -> Result<Verdict, RequestError> {
    let mut approved = false;
    for condition in &request.status.conditions {
        let (name, reason, message) =
            (request.metadata.name.clone(), condition.reason.clone(), condition.message.clone());
        match &condition.r#type {
            RequestConditionType::Denied => return Err(RequestError::Denied { name, reason, message }),
            RequestConditionType::Failed => return Err(RequestError::Failed { name, reason, message }),
            RequestConditionType::Approved => approved = true,
            RequestConditionType::Other(_) => {}
        }
    }
    let certificate = request.status.certificate.as_deref().unwrap_or_default();
    Ok(match approved {
        true if !certificate.is_empty() => Verdict::Signed(String::from_utf8_lossy(certificate).into_owned()),
        true => Verdict::Approved,
        false => Verdict::Pending,
    })
}

/// Why a request that was found is none that we could have made.
fn incompatible(
    found: &CertificateSigningRequest,
    template: &Template,
    signer: Signer,
    key: &KeyPair,
    now: Timestamp,
) -> Option<&'static str> {
    let Ok(request) = CertificateRequest::parse(&String::from_utf8_lossy(&found.spec.request)) else {
        return Some("it cannot be read");
    };
    if request.common_name() != template.common_name || request.organizations() != template.organizations {
        return Some("its subject is another");
    }
    if &*found.spec.signer_name != signer.name() {
        return Some("its signer is another");
    }
    if PublicKey::from_der(key.public()).is_none_or(|own| own != request.key())
        || request.signature_problem().is_some()
    {
        return Some("its key is another");
    }
    let signed = found.status.certificate.as_deref().unwrap_or_default();
    let has_ended = pem::blocks(signed).iter().any(|block| match Certificate::from_der(&block.bytes) {
        Ok(certificate) => now > certificate.not_after(),
        Err(_) => true,
    });
    has_ended.then_some("its certificate has expired")
}

/// Upstream's name for what is asked for, so that each of us finds the other's request.
fn digested_name(key: &KeyPair, template: &Template, signer: Signer) -> String {
    let usages = signer.usages();
    let parts = [key.public(), template.common_name.as_bytes()];
    let organizations = template.organizations.iter().map(String::as_bytes);
    let usages = usages.iter().map(|usage| usage.as_str().as_bytes());
    let mut hash = Sha512_256::new();
    for part in parts.into_iter().chain(organizations).chain(usages) {
        // The bar is no letter of base64: no two inputs make one stream.
        hash.update(URL_SAFE_NO_PAD.encode(part));
        hash.update("|");
    }
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(hash.finalize()))
}

#[cfg(test)]
mod tests {
    use crablet_api::certificates::CertificateSigningRequestCondition;
    use crablet_x509::Authority;
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn a_request_is_named_as_upstream_names_it() {
        // Reckoned elsewhere, from upstream's rule.
        let key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIBzlb54PHUh0x2wKZFb41XOnqcUP5PMuFfgg92ekgJKOoAoGCCqGSM49\nAwEHoUQDQgAE7nDZUTf+1e0S7Dry2sgC3nrkcBD8ddKvU43g2d0q1LtSfNOjt+ID\nQ4aOqjrcqMwrGrz2YZqMQwNmiNgAIVOFEA==\n-----END EC PRIVATE KEY-----\n";
        let key = KeyPair::parse(key).unwrap();
        let name = digested_name(&key, &Template::of_node("n1"), Signer::KubeApiserverClientKubelet);
        assert_eq!(name, "node-csr-ND6LZidUoD1wtPvkgu7Vk5GEml7UdLiqOLfldhC-J_k");
    }

    fn request(key: &KeyPair, template: &Template, signer: Signer) -> CertificateSigningRequest {
        let mut request = CertificateSigningRequest::default();
        request.spec.request = Bytes::from(template.request(key).unwrap().as_str());
        request.spec.signer_name = signer.name().into();
        request
    }

    #[test]
    fn a_request_from_before_is_used_only_if_we_could_have_made_it() {
        let now: Timestamp = "2026-11-16T05:00:00Z".parse().unwrap();
        let (key, other_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let (node, other_node) = (Template::of_node("n1"), Template::of_node("n2"));
        let signer = Signer::KubeApiserverClientKubelet;
        let why = |found: &CertificateSigningRequest, now| incompatible(found, &node, signer, &key, now);
        assert_eq!(why(&request(&key, &node, signer), now), None);
        assert_eq!(why(&request(&other_key, &node, signer), now), Some("its key is another"));
        assert_eq!(why(&request(&key, &other_node, signer), now), Some("its subject is another"));
        let serving = request(&key, &node, Signer::KubeletServing);
        assert_eq!(why(&serving, now), Some("its signer is another"));
        let mut signed = request(&key, &node, signer);
        let day = SignedDuration::from_hours(24);
        let authority = Authority::make(KeyPair::generate().unwrap(), "ca", &[], now, day).unwrap();
        signed.status.certificate = Some(Bytes::from(authority.certificate()));
        assert_eq!(why(&signed, now), None);
        assert_eq!(why(&signed, now + 2 * day), Some("its certificate has expired"));
        signed.spec.request = Bytes::from("junk");
        assert_eq!(why(&signed, now), Some("it cannot be read"));
    }

    #[test]
    fn what_was_said_to_a_request_counts_in_upstreams_order() {
        let told = |conditions: &[RequestConditionType], certificate: &str| {
            let mut request = CertificateSigningRequest::default();
            request.metadata.name = "csr-1".into();
            let condition = |kind: &RequestConditionType| CertificateSigningRequestCondition {
                r#type: kind.clone(),
                reason: "Because".into(),
                message: "of it".into(),
                ..CertificateSigningRequestCondition::default()
            };
            request.status.conditions = conditions.iter().map(condition).collect();
            request.status.certificate = Some(Bytes::from(certificate));
            match verdict(&request) {
                Ok(Verdict::Pending) => "pending".to_owned(),
                Ok(Verdict::Approved) => "approved".to_owned(),
                Ok(Verdict::Signed(certificate)) => format!("signed {certificate}"),
                Err(error) => error.to_string(),
            }
        };
        use RequestConditionType::{Approved, Denied, Failed};
        let (denied, failed) = (
            "certificate signing request csr-1 is denied, reason: Because, message: of it",
            "certificate signing request csr-1 failed, reason: Because, message: of it",
        );
        for (conditions, certificate, expected) in [
            (&[][..], "", "pending"),
            (&[], "signed by nobody who was asked", "pending"),
            (&["Odd".into()], "", "pending"),
            (&[Approved], "", "approved"),
            (&[Approved], "c", "signed c"),
            (&[Approved, Failed], "c", failed),
            (&[Denied], "", denied),
            (&[Denied, Failed], "", denied),
        ] {
            assert_eq!(told(conditions, certificate), expected, "{conditions:?}");
        }
    }
}
