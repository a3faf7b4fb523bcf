//! What calls do to images.

use std::collections::BTreeMap;
use std::fmt;

use crablet_cri_api::v1;
use tokio::time::Instant;
use tonic::{Code, Status};

use super::image::{Image, Stored, Unresolved, in_registry};
use super::reference::Reference;
use super::world::World;

impl World {
    pub(crate) fn resolve(&self, wanted: &str, context: impl fmt::Display) -> Result<&Stored, Status> {
        self.images.resolve(wanted).map_err(|unresolved| match unresolved {
            Unresolved::NotFound => Status::not_found(format!("{context}: not found")),
            Unresolved::Ambiguous => Status::unknown(format!("{context}: ambiguous digest string")),
        })
    }

    pub(crate) fn pull_image(
        &mut self,
        wanted: &str,
        auth: Option<&v1::AuthConfig>,
    ) -> Result<v1::PullImageResponse, Status> {
        let reference = Reference::parse(wanted).map_err(|error| {
            Status::unknown(format!("failed to parse image reference {wanted:?}: {error}"))
        })?;
        let image = match in_registry(&self.settings.registry, &reference) {
            Some(image) if !image.admits(auth) => return Err(denied(&reference)),
            Some(image) => image.clone(),
            // What is there already can be pulled again.
            None => match self.images.resolve(&reference.to_string()) {
                Ok(stored) if self.settings.pull_anything => stored.image.clone(),
                Ok(_) | Err(_) if self.settings.pull_anything => {
                    Image::new(reference.to_string()).running_anything()
                }
                Ok(_) | Err(_) => return Err(unresolved(&reference)),
            },
        };
        Ok(v1::PullImageResponse { image_ref: self.images.pulled(image, &reference) })
    }

    /// Makes sure of an image that is not asked for by a client.
    pub(crate) fn ensure_image(&mut self, name: &str) -> Result<(), Status> {
        if self.images.resolve(name).is_ok() {
            return Ok(());
        }
        self.pull_image(name, None).map(drop).map_err(|status| {
            Status::new(status.code(), format!("failed to pull image {name:?}: {}", status.message()))
        })
    }

    pub(crate) fn image_status(
        &self,
        request: &v1::ImageStatusRequest,
    ) -> Result<v1::ImageStatusResponse, Status> {
        let wanted = request.image.as_ref().map_or("", |image| image.image.as_str());
        let stored = match self.resolve(wanted, format!("can not resolve {wanted:?} locally")) {
            Ok(stored) => stored,
            Err(status) if status.code() == Code::NotFound => return Ok(v1::ImageStatusResponse::default()),
            Err(status) => return Err(status),
        };
        let mut info = BTreeMap::new();
        if request.verbose {
            info.insert("info".to_owned(), "{\"imageSpec\":{\"os\":\"linux\"}}".to_owned());
        }
        Ok(v1::ImageStatusResponse { image: Some(stored.to_cri()), info })
    }

    /// All of them: containerd does not look at the filter.
    pub(crate) fn list_images(&self) -> Vec<v1::Image> {
        self.images.all().map(Stored::to_cri).collect()
    }

    pub(crate) fn remove_image(&mut self, wanted: &str) -> Result<v1::RemoveImageResponse, Status> {
        match self.resolve(wanted, format!("can not resolve {wanted:?} locally")) {
            Ok(stored) => {
                let id = stored.id.clone();
                self.images.remove(&id);
            }
            Err(status) if status.code() == Code::NotFound => {}
            Err(status) => return Err(status),
        }
        Ok(v1::RemoveImageResponse {})
    }

    pub(crate) fn image_fs_info(&self, now: Instant) -> v1::ImageFsInfoResponse {
        let used: u64 = self.images.all().map(|stored| stored.image.size).sum();
        let count = self.images.all().count() as u64;
        v1::ImageFsInfoResponse {
            image_filesystems: vec![v1::FilesystemUsage {
                timestamp: self.clock.nanoseconds(now),
                fs_id: Some(v1::FilesystemIdentifier { mountpoint: self.settings.file_system.clone() }),
                used_bytes: Some(v1::UInt64Value { value: used }),
                inodes_used: Some(v1::UInt64Value { value: count * 100 }),
            }],
            container_filesystems: Vec::new(),
        }
    }
}

/// What a pull gives of an image that somebody else may have.
fn denied(reference: &Reference) -> Status {
    Status::unknown(format!(
        "failed to pull and unpack image \"{reference}\": failed to resolve reference \"{reference}\": pull access \
         denied, repository does not exist or may require authorization: authorization failed: no basic auth \
         credentials"
    ))
}

/// What a pull gives of which nothing can be found: a host in the domain that is reserved for it is not there, and any
/// other one lacks the image.
fn unresolved(reference: &Reference) -> Status {
    let context = format!(
        "failed to pull and unpack image \"{reference}\": failed to resolve reference \"{reference}\""
    );
    let (host, path) = reference.repository.split_once('/').unwrap_or_default();
    if host.ends_with(".invalid") {
        let version = reference.version();
        return Status::unknown(format!(
            "{context}: failed to do request: Head \"https://{host}/v2/{path}/manifests/{version}\": dial tcp: \
             lookup {host}: no such host"
        ));
    }
    Status::not_found(format!("{context}: {reference}: not found"))
}
