//! A cluster whose objects a test puts there and takes away.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crablet_agent::mailbox::Mailbox;
use crablet_agent::objects::{Interest, Interests, Objects};
use crablet_api::core::{ConfigMap, Pod, Secret, Service};
use crablet_api::node::RuntimeClass;
use crablet_core::translate::{ObjectKind, Unavailable};
use crablet_volumes::{Contents, Token, TokenRequest};

/// A cluster. All is in the namespace `default`. Clones are the same.
#[derive(Clone, Default)]
pub struct Cluster {
    pub interests: Interests,
    content: Arc<Mutex<Content>>,
}

#[derive(Default)]
struct Content {
    config_maps: BTreeMap<String, Arc<ConfigMap>>,
    secrets: BTreeMap<String, Arc<Secret>>,
    /// The handlers of classes, or why they cannot be read.
    classes: BTreeMap<String, Result<String, Unavailable>>,
    tokens: Vec<TokenRequest>,
}

impl Cluster {
    /// Puts a config map there, or another in its place.
    pub fn put_config_map(&self, name: &str, data: &[(&str, &str)]) {
        let data = data.iter().map(|(key, value)| (*key, (*value).into())).collect();
        let map = Arc::new(ConfigMap { data, ..ConfigMap::default() });
        self.content.lock().unwrap().config_maps.insert(name.to_owned(), map);
        self.interests.changed(ObjectKind::ConfigMap, "default", name);
    }

    /// Puts a secret there, or another in its place.
    pub fn put_secret(&self, name: &str, data: &[(&str, &str)]) {
        let data = data.iter().map(|(key, value)| (*key, (*value).into())).collect();
        let secret = Arc::new(Secret { data, ..Secret::default() });
        self.content.lock().unwrap().secrets.insert(name.to_owned(), secret);
        self.interests.changed(ObjectKind::Secret, "default", name);
    }

    pub fn put_class(&self, name: &str, handler: Result<&str, Unavailable>) {
        let handler = handler.map(str::to_owned);
        self.content.lock().unwrap().classes.insert(name.to_owned(), handler);
    }

    /// The tokens that were asked for. Each is called by its number, from 1.
    pub fn tokens(&self) -> Vec<TokenRequest> {
        self.content.lock().unwrap().tokens.clone()
    }
}

#[async_trait]
impl Contents for Cluster {
    async fn config_map(&self, _: &str, name: &str) -> Result<Arc<ConfigMap>, Unavailable> {
        self.content.lock().unwrap().config_maps.get(name).cloned().ok_or(Unavailable::NotFound)
    }

    async fn secret(&self, _: &str, name: &str) -> Result<Arc<Secret>, Unavailable> {
        self.content.lock().unwrap().secrets.get(name).cloned().ok_or(Unavailable::NotFound)
    }

    async fn service_account_token(&self, request: &TokenRequest) -> Result<Option<Token>, Unavailable> {
        let mut content = self.content.lock().unwrap();
        content.tokens.push(request.clone());
        Ok(Some(Token::new(&format!("token {}", content.tokens.len()))))
    }
}

#[async_trait]
impl Objects for Cluster {
    async fn runtime_class(&self, name: &str) -> Result<Arc<RuntimeClass>, Unavailable> {
        let found = self.content.lock().unwrap().classes.get(name).cloned();
        let handler = found.unwrap_or(Err(Unavailable::NotFound))?;
        Ok(Arc::new(RuntimeClass { handler: handler.into(), ..RuntimeClass::default() }))
    }

    fn services(&self) -> Option<Vec<Arc<Service>>> {
        Some(Vec::new())
    }

    fn register_pod(&self, pod: &Pod, mailbox: &Mailbox) -> Option<Interest> {
        self.interests.register(pod, mailbox)
    }
}
