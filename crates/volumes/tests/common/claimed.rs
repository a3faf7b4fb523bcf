//! A cluster in which a claim `c` leads to a piece of storage `pv`, and nothing else is.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_api::core::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use crablet_api::storage::{CsiDriver, VolumeAttachment};
use crablet_core::translate::Unavailable;
use crablet_volumes::{Contents, Token, TokenRequest};
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};

/// Such a cluster.
#[derive(Default)]
pub struct Claimed {
    /// The spec of the piece of storage, but for its claim.
    pub volume: Json,
    /// The spec of the object of each CSI driver.
    pub driver: Json,
    /// The status of each attachment.
    pub attachment: Json,
    /// How large the piece of storage is, and how large the claim says that it is, where that is told.
    pub sizes: Mutex<Option<(String, String)>>,
}

fn read<T: DeserializeOwned>(object: Json) -> Result<Arc<T>, Unavailable> {
    Ok(Arc::new(serde_json::from_value(object).unwrap()))
}

#[async_trait]
impl Contents for Claimed {
    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn claim(&self, _: &str, _: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let mut status = json!({"phase": "Bound"});
        if let Some((_, size)) = &*self.sizes.lock().unwrap() {
            status["capacity"] = json!({"storage": size});
        }
        read(json!({
            "metadata": {"name": "c", "uid": "claim"}, "spec": {"volumeName": "pv"}, "status": status,
        }))
    }

    async fn patch_claim_status(
        &self,
        namespace: &str,
        name: &str,
        patch: String,
    ) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let patch: Json = serde_json::from_str(&patch).unwrap();
        if let (Some((_, size)), Some(now)) =
            (&mut *self.sizes.lock().unwrap(), patch["status"]["capacity"]["storage"].as_str())
        {
            *size = now.to_owned();
        }
        self.claim(namespace, name).await
    }

    async fn persistent_volume(&self, _: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        let mut spec = self.volume.clone();
        spec["claimRef"] = json!({"uid": "claim"});
        if let Some((size, _)) = &*self.sizes.lock().unwrap() {
            spec["capacity"] = json!({"storage": size});
        }
        read(json!({"metadata": {"name": "pv"}, "spec": spec}))
    }

    async fn csi_driver(&self, name: &str) -> Result<Option<Arc<CsiDriver>>, Unavailable> {
        read(json!({"metadata": {"name": name}, "spec": self.driver})).map(Some)
    }

    async fn volume_attachment(&self, _: &str) -> Result<Arc<VolumeAttachment>, Unavailable> {
        read(json!({"status": self.attachment}))
    }

    async fn service_account_token(&self, _: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        Err(Unavailable::NotFound)
    }
}
