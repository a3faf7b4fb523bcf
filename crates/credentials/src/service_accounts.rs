//! Tokens of pods' service accounts, for providers that trade them for credentials.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use crablet_api::core::PodIdentity;
use sha2::{Digest, Sha256};
use tracing::debug;

use crate::credential::{Coordinates, hex};
use crate::provider_config::{TokenAttributes, TokenCacheType};

/// Why the cluster does not tell.
pub type ServiceAccountError = Box<dyn std::error::Error + Send + Sync>;

/// Who knows service accounts, and gets tokens of theirs: the cluster.
#[async_trait]
pub trait ServiceAccounts: Send + Sync {
    async fn get(&self, namespace: &str, name: &str) -> Result<ServiceAccount, ServiceAccountError>;

    /// A token that is bound to the pod.
    async fn token(&self, wanted: WantedToken<'_>) -> Result<String, ServiceAccountError>;
}

/// What is needed of a service account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceAccount {
    pub uid: String,
    pub annotations: BTreeMap<String, String>,
}

/// Which token is wanted.
#[derive(Debug, Clone, Copy)]
pub struct WantedToken<'a> {
    pub pod: &'a PodIdentity,
    pub service_account: &'a str,
    /// Another one of that name does not do.
    pub service_account_uid: &'a str,
    pub audience: &'a str,
}

/// Why a provider cannot be shown a token, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoToken {
    #[error("failed to get service account")]
    Account(#[source] ServiceAccountError),
    #[error("failed to get service account token")]
    Token(#[source] ServiceAccountError),
    #[error("cannot use TokenManager when kubelet is in standalone mode")]
    NoCluster,
}

/// What a provider is shown of a pod's service account. Its `Debug` hides the token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) token: String,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) account: Coordinates,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("account", &self.account).finish_non_exhaustive()
    }
}

impl Shown {
    /// Collects what a provider wants to see, for a pod that runs as a service account. Nothing where that lacks an
    /// annotation that the provider needs: so some let it be asked for them, and others do not.
    pub(crate) async fn collect(
        wanted: &TokenAttributes,
        pod: &PodIdentity,
        name: &str,
        accounts: &dyn ServiceAccounts,
    ) -> Result<Option<Shown>, NoToken> {
        let account = accounts.get(&pod.namespace, name).await.map_err(NoToken::Account)?;
        let (needed, liked) = (
            &wanted.required_service_account_annotation_keys,
            &wanted.optional_service_account_annotation_keys,
        );
        if let Some(missing) = needed.iter().find(|key| !account.annotations.contains_key(*key)) {
            debug!(%pod, service_account = name, "required annotation {missing} not found");
            return Ok(None);
        }
        let shown = |key: &String| Some((key.clone(), account.annotations.get(key)?.clone()));
        let annotations = needed.iter().chain(liked).filter_map(shown).collect();
        let request = WantedToken {
            pod,
            service_account: name,
            service_account_uid: &account.uid,
            audience: &wanted.service_account_token_audience,
        };
        let token = accounts.token(request).await.map_err(NoToken::Token)?;
        let (namespace, name) = (pod.namespace.to_string(), name.to_owned());
        Ok(Some(Shown { token, annotations, account: Coordinates { uid: account.uid, namespace, name } }))
    }

    /// Whose credentials are kept that were given for it.
    pub(crate) fn whose(&self, cache: Option<&TokenCacheType>) -> Whose {
        let hash = match cache {
            Some(TokenCacheType::Token) => self.hash(),
            Some(TokenCacheType::ServiceAccount | TokenCacheType::Other(_)) | None => String::new(),
        };
        Whose { account: Some(self.account.clone()), annotations: self.annotations.clone(), hash }
    }

    /// Who asks with the same gets the same answer.
    pub(crate) fn same(&self) -> Whose {
        Whose {
            account: Some(self.account.clone()),
            annotations: self.annotations.clone(),
            hash: self.hash(),
        }
    }

    fn hash(&self) -> String {
        hex(&Sha256::digest(self.token.as_bytes()))
    }
}

/// For whom an answer is good: every pod of the node, or those with such a service account, or with that very token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Whose {
    account: Option<Coordinates>,
    annotations: BTreeMap<String, String>,
    hash: String,
}
