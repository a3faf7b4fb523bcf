//! `certificates.k8s.io`: requests for certificates, which somebody approves and somebody signs, and whom to trust.

use crate::bytes::Bytes;
use crate::map::Map;
use crate::meta::{ConditionStatus, ObjectMeta, Time};
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
