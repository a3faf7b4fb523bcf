//! What the cluster has: a claim `c` and a piece of storage `pv` behind it, unless a test says otherwise.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_api::core::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use crablet_api::storage::{CsiDriver, VolumeAttachment};
use crablet_core::translate::Unavailable;
use crablet_volumes::{Contents, Token, TokenRequest};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use super::machine::DRIVER;

/// The cluster. Clones are the same.
#[derive(Clone, Default)]
pub struct Cluster(Arc<Mutex<BTreeMap<String, Json>>>, Arc<Notify>);

impl Cluster {
    /// Says something else of what the cluster has: `driver` and `volume` are added to their specs, `pod` to that of
    /// each pod, and what begins with `secret/` or `attachment` is the object.
    pub fn set(&self, name: &str, value: Json) {
        self.0.lock().unwrap().insert(name.to_owned(), value);
        self.1.notify_waiters();
    }

    /// Says nothing else of it any more.
    pub fn forget(&self, name: &str) {
        self.0.lock().unwrap().remove(name);
        self.1.notify_waiters();
    }

    pub fn said(&self, name: &str) -> Option<Json> {
        self.0.lock().unwrap().get(name).cloned()
    }

    /// A spec with what a test says of it.
    pub fn spec(&self, name: &str, mut spec: Json) -> Json {
        if let Some(Json::Object(said)) = self.said(name) {
            spec.as_object_mut().unwrap().extend(said);
        }
        spec
    }

    fn read<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Arc<T>, Unavailable> {
        match self.said(name) {
            Some(object) => read(object),
            None => Err(Unavailable::NotFound),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(object: Json) -> Result<Arc<T>, Unavailable> {
    Ok(Arc::new(serde_json::from_value(object).unwrap()))
}

#[async_trait]
impl Contents for Cluster {
    async fn config_map(&self, _: &str, _: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn secret(&self, _: &str, _: &str) -> Result<Arc<Secret>, Unavailable> {
        Err(Unavailable::NotFound)
    }

    async fn claim(&self, _: &str, name: &str) -> Result<Arc<PersistentVolumeClaim>, Unavailable> {
        let volume = name.replacen('c', "pv", 1);
        read(json!({
            "metadata": {"name": name, "uid": "claim"}, "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
        }))
    }

    async fn persistent_volume(&self, name: &str) -> Result<Arc<PersistentVolume>, Unavailable> {
        let handle = name.replacen("pv", "../handle", 1);
        let spec = json!({
            "accessModes": ["ReadWriteMany"], "claimRef": {"uid": "claim"},
            "csi": {"driver": DRIVER, "volumeHandle": handle},
        });
        read(json!({"metadata": {"name": name}, "spec": self.spec("volume", spec)}))
    }

    async fn csi_driver(&self, name: &str) -> Result<Option<Arc<CsiDriver>>, Unavailable> {
        let spec = json!({"attachRequired": false, "volumeLifecycleModes": ["Persistent"]});
        read(json!({"metadata": {"name": name}, "spec": self.spec("driver", spec)})).map(Some)
    }

    async fn csi_driver_other_than(&self, name: &str, known: Option<&CsiDriver>) {
        loop {
            let changes = self.1.notified();
            if self.csi_driver(name).await.unwrap().as_deref() != known {
                return;
            }
            changes.await;
        }
    }

    async fn volume_attachment(&self, _: &str) -> Result<Arc<VolumeAttachment>, Unavailable> {
        self.read("attachment")
    }

    async fn secret_of_storage(&self, _: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        self.read(&format!("secret/{name}"))
    }

    async fn service_account_token(&self, _: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        Err(Unavailable::NotFound)
    }
}
