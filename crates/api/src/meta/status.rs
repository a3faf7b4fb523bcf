//! [`Status`]: the API server's answer where it is not an object.

use crate::object::{object, words};
use crate::text::Text;

use super::ListMeta;

object! {
    /// What the API server answers to a request that did not give an object, above all why it failed.
    pub struct Status: "v1" "Status" {
        metadata: ListMeta = "metadata",
        status: Text = "status",
        message: Text = "message",
        reason: Option<StatusReason> = "reason" word,
        details: Option<Box<StatusDetails>> = "details",
        code: i32 = "code",
    }
}

object! {
    /// What a status is about.
    pub struct StatusDetails {
        name: Text = "name",
        group: Text = "group",
        kind: Text = "kind",
        uid: Text = "uid",
        causes: Box<[StatusCause]> = "causes",
        retry_after_seconds: i32 = "retryAfterSeconds",
    }
}

object! {
    /// One of the reasons why a request failed.
    pub struct StatusCause {
        reason: Option<CauseType> = "reason" word,
        message: Text = "message",
        field: Text = "field",
    }
}

words! {
    /// Why a request failed, in one word.
    pub enum StatusReason {
        Unauthorized = "Unauthorized",
        Forbidden = "Forbidden",
        NotFound = "NotFound",
        AlreadyExists = "AlreadyExists",
        Conflict = "Conflict",
        Gone = "Gone",
        Invalid = "Invalid",
        ServerTimeout = "ServerTimeout",
        StorageReadError = "StorageReadError",
        Timeout = "Timeout",
        TooManyRequests = "TooManyRequests",
        BadRequest = "BadRequest",
        MethodNotAllowed = "MethodNotAllowed",
        NotAcceptable = "NotAcceptable",
        RequestEntityTooLarge = "RequestEntityTooLarge",
        UnsupportedMediaType = "UnsupportedMediaType",
        InternalError = "InternalError",
        Expired = "Expired",
        ServiceUnavailable = "ServiceUnavailable",
    }
}

words! {
    /// What is wrong with a field.
    pub enum CauseType {
        FieldValueNotFound = "FieldValueNotFound",
        FieldValueRequired = "FieldValueRequired",
        FieldValueDuplicate = "FieldValueDuplicate",
        FieldValueInvalid = "FieldValueInvalid",
        FieldValueNotSupported = "FieldValueNotSupported",
        FieldValueForbidden = "FieldValueForbidden",
        FieldValueTooLong = "FieldValueTooLong",
        FieldValueTooMany = "FieldValueTooMany",
        InternalError = "InternalError",
        FieldValueTypeInvalid = "FieldValueTypeInvalid",
        UnexpectedServerResponse = "UnexpectedServerResponse",
        FieldManagerConflict = "FieldManagerConflict",
        ResourceVersionTooLarge = "ResourceVersionTooLarge",
    }
}
