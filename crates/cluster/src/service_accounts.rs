//! Service accounts, and tokens of theirs for credential providers.

use async_trait::async_trait;
use crablet_api::meta::ObjectMeta;
use crablet_client::{Client, Error};
use crablet_core::translate::Unavailable;
use crablet_credentials::{ServiceAccount, ServiceAccountError, ServiceAccounts, WantedToken};
use crablet_volumes::{Contents as _, TokenRequest};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use crate::objects::ClusterObjects;

/// What may stand in a part of a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A service account, so far as it is read.
#[derive(Deserialize)]
struct Found {
    metadata: ObjectMeta,
}

/// What the server says of a service account.
pub(crate) async fn metadata(client: &Client, namespace: &str, name: &str) -> Result<ObjectMeta, Error> {
    let escaped = |text| utf8_percent_encode(text, PLAIN);
    let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}", escaped(namespace), escaped(name));
    client.read(&path).await.map(|Found { metadata }| metadata)
}

#[async_trait]
impl ServiceAccounts for ClusterObjects {
    async fn get(&self, namespace: &str, name: &str) -> Result<ServiceAccount, ServiceAccountError> {
        let metadata = metadata(self.client(), namespace, name).await?;
        let annotations = metadata.annotations.iter();
        Ok(ServiceAccount {
            uid: metadata.uid.to_string(),
            annotations: annotations.map(|(key, value)| (key.to_owned(), value.to_string())).collect(),
        })
    }

    async fn token(&self, wanted: WantedToken<'_>) -> Result<String, ServiceAccountError> {
        let WantedToken { pod, service_account, service_account_uid, audience } = wanted;
        let request = TokenRequest {
            namespace: pod.namespace.clone(),
            service_account: service_account.into(),
            service_account_uid: Some(service_account_uid.into()),
            audiences: vec![audience.into()],
            expiration_seconds: None,
            pod: pod.name.clone(),
            pod_uid: pod.uid.clone(),
        };
        match self.service_account_token(&request).await {
            Ok(Some(token)) => Ok(token.reveal().to_owned()),
            Ok(None) => Err("the API server has not answered yet".into()),
            Err(Unavailable::NotFound) => Err("not found".into()),
            Err(Unavailable::NoClient) => Err("there is no API server".into()),
            Err(Unavailable::Other(why)) => Err(why.into()),
        }
    }
}
