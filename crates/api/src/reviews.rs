//! Reviews: what an API server says when it is asked who somebody is, or what somebody may do.

use crate::map::Map;
use crate::object::object;
use crate::text::Text;

object! {
    /// What came of the question whose token that is. The question has a secret in it, and is not kept.
    pub struct TokenReview: "authentication.k8s.io/v1" "TokenReview" {
        status: TokenReviewStatus = "status",
    }
}

object! {
    pub struct TokenReviewStatus {
        authenticated: bool = "authenticated",
        user: UserInfo = "user",
        audiences: Box<[Text]> = "audiences",
        error: Text = "error",
    }
}

object! {
    /// Who somebody is.
    pub struct UserInfo {
        username: Text = "username",
        uid: Text = "uid",
        groups: Box<[Text]> = "groups",
        extra: Map<Box<[Text]>> = "extra",
    }
}

object! {
    /// Whether somebody may do something.
    pub struct SubjectAccessReview: "authorization.k8s.io/v1" "SubjectAccessReview" {
        spec: SubjectAccessReviewSpec = "spec" always,
        status: SubjectAccessReviewStatus = "status",
    }
}

object! {
    pub struct SubjectAccessReviewSpec {
        resource_attributes: ResourceAttributes = "resourceAttributes",
        user: Text = "user",
        groups: Box<[Text]> = "groups",
        extra: Map<Box<[Text]>> = "extra",
        uid: Text = "uid",
    }
}

object! {
    /// What is to be done, and to what.
    pub struct ResourceAttributes {
        namespace: Text = "namespace",
        verb: Text = "verb",
        group: Text = "group",
        version: Text = "version",
        resource: Text = "resource",
        subresource: Text = "subresource",
        name: Text = "name",
    }
}

object! {
    pub struct SubjectAccessReviewStatus {
        allowed: bool = "allowed" always,
        denied: bool = "denied",
        reason: Text = "reason",
        evaluation_error: Text = "evaluationError",
    }
}
