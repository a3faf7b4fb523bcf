//! CRI's image service: which call is what.

use crablet_cri_api::v1;
use crablet_cri_api::v1::image_service_server::ImageService;
use tonic::{Request, Response, Status, async_trait};

use super::call::Method;
use super::simulator::Simulator;
use super::streams::{Answers, in_pieces};

type Answer<T> = Result<Response<T>, Status>;

#[async_trait]
impl ImageService for Simulator {
    async fn list_images(&self, _: Request<v1::ListImagesRequest>) -> Answer<v1::ListImagesResponse> {
        self.call(Method::ListImages, "", |world, _| {
            Ok(v1::ListImagesResponse { images: world.list_images() })
        })
        .await
    }

    type StreamImagesStream = Answers<v1::StreamImagesResponse>;

    async fn stream_images(&self, _: Request<v1::StreamImagesRequest>) -> Answer<Self::StreamImagesStream> {
        self.call(Method::StreamImages, "", |world, _| {
            Ok(in_pieces(world.list_images(), |images| v1::StreamImagesResponse { images }))
        })
        .await
    }

    async fn image_status(
        &self,
        request: Request<v1::ImageStatusRequest>,
    ) -> Answer<v1::ImageStatusResponse> {
        let request = request.into_inner();
        let subject = name(request.image.as_ref());
        self.call(Method::ImageStatus, subject, |world, _| world.image_status(&request)).await
    }

    async fn pull_image(&self, request: Request<v1::PullImageRequest>) -> Answer<v1::PullImageResponse> {
        let request = request.into_inner();
        let name = name(request.image.as_ref());
        self.call(Method::PullImage, name.clone(), |world, _| world.pull_image(&name, request.auth.as_ref()))
            .await
    }

    async fn remove_image(
        &self,
        request: Request<v1::RemoveImageRequest>,
    ) -> Answer<v1::RemoveImageResponse> {
        let name = name(request.into_inner().image.as_ref());
        self.call(Method::RemoveImage, name.clone(), |world, _| world.remove_image(&name)).await
    }

    async fn image_fs_info(&self, _: Request<v1::ImageFsInfoRequest>) -> Answer<v1::ImageFsInfoResponse> {
        self.call(Method::ImageFsInfo, "", |world, now| Ok(world.image_fs_info(now))).await
    }
}

fn name(image: Option<&v1::ImageSpec>) -> String {
    image.map_or_else(String::new, |image| image.image.clone())
}
