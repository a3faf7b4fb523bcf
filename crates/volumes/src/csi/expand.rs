//! Making volumes of CSI drivers larger: `NodeExpandVolume`.

use crablet_api::Quantity;
use crablet_api::core::PersistentVolumeSource;
use crablet_csi::{Access, AccessMode, Code, ExpandVolume, VolumeCapability};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use super::block::Device;
use super::{Csi, Staged, Wanted, text};
use crate::error::PluginError;
use crate::expand::{ExpandError, Expansion, Moment};
use crate::metrics::Operation;
use crate::places::CSI;
use crate::plugin::Request;

/// Where a volume is.
struct Place {
    volume_path: String,
    staging_path: String,
}

impl Csi {
    /// Has a volume that a pod has expanded, if it is smaller than its piece of storage.
    pub(super) async fn expand_if_smaller(
        &self,
        request: &Request,
        wanted: &Wanted,
        moment: Moment,
    ) -> Result<(), PluginError> {
        if request.claimed.is_none() {
            return Ok(());
        }
        let name = request.spec_name();
        let (staged, place) = match super::block::is_wanted(request) {
            true => {
                let staged = Staged { device: Some(name.to_owned()), ..wanted.staged() };
                let device = Device::new(&self.0.places, name);
                let volume_path = text(&device.publish.join(request.uid()));
                (staged, Place { volume_path, staging_path: text(&device.staging) })
            }
            false => {
                let directory = self.0.places.volume(request.uid(), CSI, name);
                let staging = self.0.places.csi_staged(&wanted.driver, &wanted.handle).join("globalmount");
                let volume_path = text(&directory.join("mount"));
                // As upstream: to a driver that does not stage too.
                (wanted.staged(), Place { volume_path, staging_path: text(&staging) })
            }
        };
        if let Ok(driver) = self.driver(&wanted.driver)
            && driver.capabilities().await?.expand_volume
            && !request.read_only
        {
            self.0.uses.add_expandable(request.uid());
        }
        let expand = |size: Quantity, _| {
            async move {
                let began = Instant::now();
                let asked = self.ask(request, wanted, &size, place).await;
                if moment == Moment::InUse {
                    self.count(&wanted.driver, Operation::Resize, asked.is_ok(), began);
                }
                asked
            }
            .boxed()
        };
        let key = staged.key();
        let (sizes, contents) = (&self.0.sizes, &*self.0.contents);
        let expansion = Expansion { sizes, contents, request, key: &key, moment };
        let done = expansion.run(self.0.staging.enter(&key), expand).await;
        done.map_err(|cause| PluginError::Expand { moment, cause })
    }

    async fn ask(
        &self,
        request: &Request,
        wanted: &Wanted,
        size: &Quantity,
        place: Place,
    ) -> Result<(), ExpandError> {
        let driver = self.driver(&wanted.driver);
        let driver = driver.map_err(|_| ExpandError::NoDriver(wanted.driver.clone()))?;
        let capabilities = match driver.capabilities().await {
            Ok(capabilities) => capabilities,
            Err(PluginError::Csi(error)) => return Err(ExpandError::Capabilities(error)),
            Err(_) => return Err(ExpandError::NoDriver(wanted.driver.clone())),
        };
        if !capabilities.expand_volume {
            return Err(ExpandError::NotSupported(wanted.driver.clone()));
        }
        let secret = match request.persistent_source() {
            Some(PersistentVolumeSource::Csi(source)) => source.node_expand_secret_ref.as_ref(),
            Some(_) | None => None,
        };
        let secrets =
            self.secrets(secret, ("expander.NodeExpand failed to get NodeExpandSecretRef", "")).await;
        let secrets = secrets.map_err(|error| ExpandError::Secret(error.to_string()))?;
        let access = match super::block::is_wanted(request) {
            true => Access::Block,
            false => Access::Mount {
                fs_type: wanted.fs_type.clone(),
                mount_flags: wanted.mount_flags.clone(),
                volume_mount_group: None,
            },
        };
        let volume = ExpandVolume {
            volume_id: wanted.handle.clone(),
            volume_path: place.volume_path,
            staging_target_path: place.staging_path,
            required_bytes: size.value(),
            capability: VolumeCapability {
                access,
                access_mode: AccessMode::of_persistent_volume(&wanted.access_mode, capabilities),
            },
            secrets,
        };
        match driver.node.expand(volume).await {
            Ok(_) => Ok(()),
            Err(error) if is_infeasible(error.code()) => Err(ExpandError::Infeasible(error)),
            Err(error) => Err(ExpandError::Failed(error)),
        }
    }
}

fn is_infeasible(code: Code) -> bool {
    matches!(code, Code::InvalidArgument | Code::OutOfRange | Code::NotFound)
}
