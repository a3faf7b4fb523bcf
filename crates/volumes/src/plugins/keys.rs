//! Files from the keys of config maps and secrets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crablet_api::core::{ConfigMap, KeyToPath, Secret};
use crablet_core::translate::{ObjectKind, Unavailable};

use crate::atomic_writer::ProjectedFile;
use crate::contents::Contents;
use crate::error::PluginError;

/// Which keys of an object are shown, and how.
#[derive(Clone, Copy)]
pub(super) struct Keys<'a> {
    pub(super) namespace: &'a str,
    /// The object.
    pub(super) name: &'a str,
    /// Those that are shown; all, if none is named.
    pub(super) items: &'a [KeyToPath],
    pub(super) default_mode: i32,
    /// Whether neither the object nor a key that is named has to be there.
    pub(super) optional: bool,
}

/// The files that keys of a config map are shown as.
pub(super) async fn of_config_map(
    contents: &dyn Contents,
    keys: Keys<'_>,
) -> Result<BTreeMap<String, ProjectedFile>, PluginError> {
    let got = contents.config_map(keys.namespace, keys.name).await;
    let object: Arc<ConfigMap> = keys.or_nothing(ObjectKind::ConfigMap, got)?;
    let find = |key: &str| match object.data.get(key) {
        Some(text) => Some(text.as_bytes()),
        None => object.binary_data.get(key).map(|bytes| &**bytes),
    };
    let all = object.data.keys().chain(object.binary_data.keys());
    keys.files(ObjectKind::ConfigMap, all, find)
}

/// The files that keys of a secret are shown as.
pub(super) async fn of_secret(
    contents: &dyn Contents,
    keys: Keys<'_>,
) -> Result<BTreeMap<String, ProjectedFile>, PluginError> {
    let got = contents.secret(keys.namespace, keys.name).await;
    let object: Arc<Secret> = keys.or_nothing(ObjectKind::Secret, got)?;
    let find = |key: &str| object.data.get(key).map(|bytes| &**bytes);
    keys.files(ObjectKind::Secret, object.data.keys(), find)
}

impl Keys<'_> {
    fn or_nothing<T: Default>(
        self,
        kind: ObjectKind,
        got: Result<Arc<T>, Unavailable>,
    ) -> Result<Arc<T>, PluginError> {
        match got {
            Ok(object) => Ok(object),
            Err(Unavailable::NotFound) if self.optional => Ok(Arc::default()),
            Err(why) => Err(PluginError::Object { kind, name: self.name.to_owned(), why }),
        }
    }

    fn files<'o>(
        self,
        kind: ObjectKind,
        all: impl Iterator<Item = &'o str>,
        find: impl Fn(&str) -> Option<&'o [u8]>,
    ) -> Result<BTreeMap<String, ProjectedFile>, PluginError> {
        let file = |content: &[u8], mode: i32| ProjectedFile {
            content: content.to_owned(),
            mode: mode.cast_unsigned() & 0o777,
            user: None,
        };
        if self.items.is_empty() {
            let files = all.filter_map(|key| Some((key.to_owned(), file(find(key)?, self.default_mode))));
            return Ok(files.collect());
        }
        let mut files = BTreeMap::new();
        for item in self.items {
            match find(&item.key) {
                Some(content) => {
                    let mode = item.mode.unwrap_or(self.default_mode);
                    files.insert(item.path.to_string(), file(content, mode));
                }
                None if self.optional => {}
                None => return Err(PluginError::NoKey { kind, key: item.key.to_string() }),
            }
        }
        Ok(files)
    }
}
