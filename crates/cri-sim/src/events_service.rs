//! containerd's event service.

use crablet_cri_api::containerd::services::events_server::Events;
use crablet_cri_api::containerd::services::{Envelope, SubscribeRequest};
use tonic::{Request, Response, Status, async_trait};

use super::call::Method;
use super::event_filter::EventFilter;
use super::simulator::Simulator;
use super::streams::Answers;

#[async_trait]
impl Events for Simulator {
    type SubscribeStream = Answers<Envelope>;

    async fn subscribe(
        &self,
        request: Request<SubscribeRequest>,
    ) -> Result<Response<Self::SubscribeStream>, Status> {
        let filters = request.into_inner().filters;
        let (events, filter) = self
            .call(Method::Subscribe, "", |world, _| {
                let filter = EventFilter::parse(&filters).map_err(Status::invalid_argument)?;
                Ok((world.listeners.containerd(), filter))
            })
            .await?
            .into_inner();
        let stream =
            self.stream_of(events, move |envelope| filter.matches(&envelope).then(|| (*envelope).clone()));
        Ok(Response::new(stream))
    }
}
