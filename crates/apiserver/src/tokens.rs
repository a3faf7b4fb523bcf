//! Tokens of service accounts: what one says. Who signs it is somebody else's business, for the core has no keys.

use jiff::Timestamp;

/// An object that a token speaks of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub name: String,
    pub uid: String,
}

/// What a new token is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    pub namespace: String,
    pub service_account: Reference,
    pub pod: Option<Reference>,
    /// The pod's node; without a pod, the node that the token is bound to.
    pub node: Option<Reference>,
    pub secret: Option<Reference>,
    pub audiences: Vec<String>,
    pub expiration_seconds: i64,
    /// After how many seconds its use is worth a remark.
    pub warn_after_seconds: Option<i64>,
    /// What tells this token from all others.
    pub id: String,
}

/// Who makes tokens.
pub trait TokenIssuer: std::fmt::Debug + Send + Sync {
    fn issue(&self, claims: &Claims, now: Timestamp) -> Result<String, String>;

    /// Whom tokens are for that name nobody: the server itself.
    fn audiences(&self) -> Vec<String>;
}

/// For clusters within a process: tokens that only say what they are.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainTokens;

impl TokenIssuer for PlainTokens {
    fn issue(&self, claims: &Claims, now: Timestamp) -> Result<String, String> {
        let account = &claims.service_account;
        let pod = claims.pod.as_ref().map_or("", |pod| &pod.uid);
        let ends = now.as_second().saturating_add(claims.expiration_seconds);
        Ok(format!("{}.{}.{}.{pod}.{ends}.{}", claims.namespace, account.name, account.uid, claims.id))
    }

    fn audiences(&self) -> Vec<String> {
        vec!["https://kubernetes.default.svc.cluster.local".to_owned()]
    }
}
