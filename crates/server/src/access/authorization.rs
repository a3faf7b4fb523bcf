//! Who may: as the API server says.

use std::time::Duration;

use crablet_api::Text;
use crablet_api::reviews::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use crablet_client::Client;

use super::error::ReviewError;
use super::metrics::ReviewMetrics;
use super::retry::with_retries;
use super::reviews::Reviews;
use super::user::User;

const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Who may do what to the node.
pub(crate) enum Authorization {
    /// Whoever is known.
    AlwaysAllow,
    /// Whom the API server allows it.
    Asked(Box<Asked>),
}

pub(crate) struct Asked {
    client: Client,
    node: Text,
    reviews: Reviews<(User, &'static str, &'static str), bool>,
    lasts: Lasts,
    metrics: Option<ReviewMetrics>,
}

/// How long it is remembered what the API server said.
#[derive(Clone, Copy, Debug)]
pub struct Lasts {
    pub allowed: Duration,
    pub denied: Duration,
}

impl Authorization {
    /// The API server is asked about the node of that name.
    pub(crate) fn asked(
        client: Client,
        node: &str,
        lasts: Lasts,
        metrics: Option<ReviewMetrics>,
    ) -> Authorization {
        let (node, reviews) = (node.into(), Reviews::new());
        Authorization::Asked(Box::new(Asked { client, node, reviews, lasts, metrics }))
    }

    /// Whether somebody may do this to a subresource of the node.
    pub(crate) async fn allows(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, ReviewError> {
        match self {
            Authorization::AlwaysAllow => Ok(true),
            Authorization::Asked(asked) => asked.allows(user, verb, subresource).await,
        }
    }
}

impl Asked {
    async fn allows(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, ReviewError> {
        let lasts = |allowed: &bool| if *allowed { self.lasts.allowed } else { self.lasts.denied };
        let ask = || {
            let (client, metrics) = (self.client.clone(), self.metrics.clone());
            let question = question(user, verb, subresource, &self.node);
            async move {
                let review: SubjectAccessReview =
                    with_retries(metrics.as_ref(), || client.post(ACCESS_REVIEWS, &question)).await?;
                match (review.status.allowed, review.status.denied) {
                    (true, true) => Err(ReviewError::Said("it is both allowed and denied".into())),
                    (allowed, _) => Ok(allowed),
                }
            }
        };
        self.reviews.get((user.clone(), verb, subresource), lasts, ask).await
    }
}

fn question(user: &User, verb: &str, subresource: &str, node: &Text) -> SubjectAccessReview {
    let resource_attributes = ResourceAttributes {
        verb: verb.into(),
        version: "v1".into(),
        resource: "nodes".into(),
        subresource: subresource.into(),
        name: node.clone(),
        ..ResourceAttributes::default()
    };
    let extra = user.extra.iter().map(|(name, values)| (name.clone(), values.clone().into_boxed_slice()));
    let spec = SubjectAccessReviewSpec {
        resource_attributes,
        user: user.name.clone(),
        groups: user.groups.clone().into(),
        extra: extra.collect(),
        uid: user.uid.clone(),
    };
    SubjectAccessReview { spec, ..SubjectAccessReview::default() }
}
