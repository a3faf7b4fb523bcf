//! `certificates.k8s.io`: requests for certificates, which somebody approves and somebody signs, and whom to trust.

use crate::bytes::Bytes;
use crate::map::Map;
use crate::meta::{Condition, ConditionStatus, ObjectMeta, Time};
use crate::object::{object, words};
use crate::text::Text;

object! {
    /// Whom those trust that a signer signs for, or anybody who refers to it.
    pub struct ClusterTrustBundle: "certificates.k8s.io/v1beta1" "ClusterTrustBundle" {
        metadata: ObjectMeta = "metadata",
        spec: ClusterTrustBundleSpec = "spec" always,
    }
}

object! {
    pub struct ClusterTrustBundleSpec {
        signer_name: Text = "signerName",
        trust_bundle: Text = "trustBundle" always,
    }
}

object! {
    /// A request for a certificate of a pod, which its node makes and a signer answers.
    pub struct PodCertificateRequest: "certificates.k8s.io/v1beta1" "PodCertificateRequest" {
        metadata: ObjectMeta = "metadata",
        spec: PodCertificateRequestSpec = "spec" always,
        status: PodCertificateRequestStatus = "status",
    }
}

object! {
    /// Who the certificate is for, and the proof that the node has the key of it.
    pub struct PodCertificateRequestSpec {
        signer_name: Text = "signerName" always,
        pod_name: Text = "podName" always,
        pod_uid: Text = "podUID" always,
        service_account_name: Text = "serviceAccountName" always,
        service_account_uid: Text = "serviceAccountUID" always,
        node_name: Text = "nodeName" always,
        node_uid: Text = "nodeUID" always,
        max_expiration_seconds: Option<i32> = "maxExpirationSeconds",
        pkix_public_key: Option<Bytes> = "pkixPublicKey",
        proof_of_possession: Option<Bytes> = "proofOfPossession",
        stub_pkcs10_request: Option<Bytes> = "stubPKCS10Request",
        unverified_user_annotations: Map<Text> = "unverifiedUserAnnotations",
    }
}

object! {
    /// What came of a pod's request.
    pub struct PodCertificateRequestStatus {
        conditions: Box<[Condition]> = "conditions",
        certificate_chain: Text = "certificateChain",
        not_before: Option<Time> = "notBefore",
        begin_refresh_at: Option<Time> = "beginRefreshAt",
        not_after: Option<Time> = "notAfter",
    }
}

object! {
    /// A request for a certificate.
    pub struct CertificateSigningRequest: "certificates.k8s.io/v1" "CertificateSigningRequest" {
        metadata: ObjectMeta = "metadata",
        spec: CertificateSigningRequestSpec = "spec",
        status: CertificateSigningRequestStatus = "status",
    }
}

object! {
    /// What is asked for, and who asks, which the server says.
    pub struct CertificateSigningRequestSpec {
        request: Bytes = "request" always,
        signer_name: Text = "signerName" always,
        expiration_seconds: Option<i32> = "expirationSeconds",
        usages: Box<[KeyUsage]> = "usages",
        username: Text = "username",
        uid: Text = "uid",
        groups: Box<[Text]> = "groups",
        extra: Map<Box<[Text]>> = "extra",
    }
}

object! {
    /// What came of a request.
    pub struct CertificateSigningRequestStatus {
        conditions: Box<[CertificateSigningRequestCondition]> = "conditions",
        certificate: Option<Bytes> = "certificate",
    }
}

object! {
    /// What somebody said to a request.
    pub struct CertificateSigningRequestCondition {
        r#type: RequestConditionType = "type" always,
        status: ConditionStatus = "status" always,
        reason: Text = "reason",
        message: Text = "message",
        last_update_time: Option<Time> = "lastUpdateTime",
        last_transition_time: Option<Time> = "lastTransitionTime",
    }
}

words! {
    /// What can be said to a request.
    pub enum RequestConditionType {
        Approved = "Approved",
        Denied = "Denied",
        Failed = "Failed",
    }
}

words! {
    /// What a key may be used for.
    pub enum KeyUsage {
        Signing = "signing",
        DigitalSignature = "digital signature",
        ContentCommitment = "content commitment",
        KeyEncipherment = "key encipherment",
        KeyAgreement = "key agreement",
        DataEncipherment = "data encipherment",
        CertSign = "cert sign",
        CrlSign = "crl sign",
        EncipherOnly = "encipher only",
        DecipherOnly = "decipher only",
        Any = "any",
        ServerAuth = "server auth",
        ClientAuth = "client auth",
        CodeSigning = "code signing",
        EmailProtection = "email protection",
        SMime = "s/mime",
        IpsecEndSystem = "ipsec end system",
        IpsecTunnel = "ipsec tunnel",
        IpsecUser = "ipsec user",
        Timestamping = "timestamping",
        OcspSigning = "ocsp signing",
        MicrosoftSgc = "microsoft sgc",
        NetscapeSgc = "netscape sgc",
    }
}
