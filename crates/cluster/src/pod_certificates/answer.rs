//! What signers say to requests, and what becomes of a certificate by it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crablet_agent::recorder::reason;
use crablet_api::Text;
use crablet_api::certificates::PodCertificateRequestStatus;
use crablet_api::meta::Time;
use crablet_volumes::{NoCertificate, PodCertificate};
use crablet_x509::pem;
use jiff::Timestamp;

/// So long after it should be renewed, a certificate is overdue.
const OVERDUE_AFTER: Duration = Duration::from_secs(600);

/// What the server has of a node's requests, by their namespaces and names; nothing before it has said so.
pub(super) type Requests = Option<BTreeMap<(Text, Text), Arc<PodCertificateRequestStatus>>>;

/// What a signer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Issued {
        /// Certificates in PEM.
        chain: String,
        begin_refresh_at: Timestamp,
        not_after: Timestamp,
    },
    /// Nothing comes of it, nor of another.
    Refused(Refusal),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    kind: RefusalKind,
    reason: Text,
    message: Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalKind {
    Denied,
    Failed,
}

/// How far a certificate is.
#[derive(Debug, Clone)]
pub(super) enum State {
    NotYet,
    /// It may be that the next one is being asked for.
    Issued {
        certificate: PodCertificate,
        refreshed_from: Timestamp,
        not_after: Timestamp,
    },
    Refused(Refusal),
    /// It cannot be asked for.
    Impossible(String),
}

/// The answer in the status of a request, if there is one.
pub(super) fn answer_in(status: &PodCertificateRequestStatus) -> Option<Answer> {
    status.conditions.iter().find_map(|condition| {
        let refused = |kind| {
            let (reason, message) = (condition.reason.clone(), condition.message.clone());
            Some(Answer::Refused(Refusal { kind, reason, message }))
        };
        match &*condition.r#type {
            "Denied" => refused(RefusalKind::Denied),
            "Failed" => refused(RefusalKind::Failed),
            "Issued" => Some(Answer::Issued {
                chain: certificates_of(&status.certificate_chain),
                begin_refresh_at: timestamp(status.begin_refresh_at?),
                not_after: timestamp(status.not_after?),
            }),
            _ => None,
        }
    })
}

/// The certificates of a chain, without headers and what is between them.
fn certificates_of(chain: &str) -> String {
    pem::blocks(chain.as_bytes()).iter().map(|block| pem::encode("CERTIFICATE", &block.bytes)).collect()
}

pub(super) fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_second(time.unix_seconds()).unwrap_or(Timestamp::MAX)
}

impl Refusal {
    /// The reason of the event that tells of it.
    pub(super) fn event(&self) -> &'static str {
        match self.kind {
            RefusalKind::Denied => reason::CERTIFICATE_DENIED,
            RefusalKind::Failed => reason::CERTIFICATE_FAILED,
        }
    }

    /// What people are told. Upstream means to say the same, and has it garbled by a format without a place for it.
    pub(super) fn in_words(&self, namespace: &str, name: &str) -> String {
        let how = match self.kind {
            RefusalKind::Denied => "was denied",
            RefusalKind::Failed => "failed",
        };
        let (reason, message) = (self.reason.as_str(), self.message.as_str());
        format!("PodCertificateRequest {namespace}/{name} {how}, reason={reason:?}, message={message:?}")
    }
}

impl State {
    pub(super) fn certificate(&self) -> Result<PodCertificate, NoCertificate> {
        match self {
            State::NotYet => Err(NoCertificate::NotYet("credential bundle is not issued yet".to_owned())),
            State::Issued { certificate, .. } => Ok(certificate.clone()),
            State::Refused(Refusal { kind, reason, message }) => {
                let how = match kind {
                    RefusalKind::Denied => "denied",
                    RefusalKind::Failed => "failed",
                };
                let (reason, message) = (reason.as_str(), message.as_str());
                Err(NoCertificate::Refused(format!(
                    "PodCertificateRequest was permanently {how}: reason={reason:?} message={message:?}"
                )))
            }
            State::Impossible(why) => Err(NoCertificate::Refused(why.clone())),
        }
    }

    /// From when it is overdue, and from when it is worth nothing any more.
    pub(super) fn late_from(&self) -> Option<(Timestamp, Timestamp)> {
        match self {
            State::Issued { refreshed_from, not_after, .. } => {
                Some((refreshed_from.saturating_add(OVERDUE_AFTER).unwrap_or(Timestamp::MAX), *not_after))
            }
            State::NotYet | State::Refused(_) | State::Impossible(_) => None,
        }
    }

    /// What upstream's metric calls it.
    pub(super) fn word(&self, now: Timestamp) -> &'static str {
        match self {
            State::NotYet | State::Impossible(_) => "not_yet_issued",
            State::Refused(Refusal { kind: RefusalKind::Denied, .. }) => "denied",
            State::Refused(Refusal { kind: RefusalKind::Failed, .. }) => "failed",
            State::Issued { .. } => match self.late_from() {
                Some((_, expired_from)) if now > expired_from => "expired",
                Some((overdue_from, _)) if now > overdue_from => "overdue_for_refresh",
                Some(_) | None => "fresh",
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(status: Value) -> Option<Answer> {
        answer_in(&serde_json::from_value(status).unwrap())
    }

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True", "reason": "R", "message": "say \"no\""})
    }

    #[test]
    fn a_chain_is_shown_without_headers_and_what_is_between() {
        let chain = "text\n-----BEGIN CERTIFICATE-----\nA: b\n\nYWJj\n-----END CERTIFICATE-----\nmore\n\
                     -----BEGIN CERTIFICATE-----\nZGVm\n-----END CERTIFICATE-----\n";
        let issued = json!({
            "conditions": [condition("Other"), condition("Issued")], "certificateChain": chain,
            "beginRefreshAt": "2026-01-01T00:10:00Z", "notAfter": "2026-01-01T01:00:00Z",
        });
        let expected = Answer::Issued {
            chain: pem::encode("CERTIFICATE", b"abc") + &pem::encode("CERTIFICATE", b"def"),
            begin_refresh_at: "2026-01-01T00:10:00Z".parse().unwrap(),
            not_after: "2026-01-01T01:00:00Z".parse().unwrap(),
        };
        assert_eq!(answer(issued), Some(expected));
        assert_eq!(answer(json!({})), None);
        assert_eq!(answer(json!({"conditions": [condition("Issued")]})), None, "nothing is said with it");
    }

    #[test]
    fn who_is_refused_is_told_why() {
        let words = |kind| match answer(json!({"conditions": [condition(kind)]})) {
            Some(Answer::Refused(refusal)) => (
                refusal.event(),
                refusal.in_words("ns", "req-1"),
                State::Refused(refusal).certificate().unwrap_err().to_string(),
            ),
            other => panic!("{other:?}"),
        };
        let denied = r#"PodCertificateRequest ns/req-1 was denied, reason="R", message="say \"no\"""#;
        let for_good = r#"PodCertificateRequest was permanently denied: reason="R" message="say \"no\"""#;
        assert_eq!(words("Denied"), ("Denied", denied.to_owned(), for_good.to_owned()));
        let failed = r#"PodCertificateRequest ns/req-1 failed, reason="R", message="say \"no\"""#;
        let for_good = r#"PodCertificateRequest was permanently failed: reason="R" message="say \"no\"""#;
        assert_eq!(words("Failed"), ("Failed", failed.to_owned(), for_good.to_owned()));
    }

    #[test]
    fn a_certificate_is_fresh_overdue_and_then_expired() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let state = State::Issued {
            certificate: PodCertificate::new("key", "chain"),
            refreshed_from: at("2026-01-01T00:30:00Z"),
            not_after: at("2026-01-01T01:00:00Z"),
        };
        for (now, expected) in [
            ("2026-01-01T00:40:00Z", "fresh"),
            ("2026-01-01T00:40:01Z", "overdue_for_refresh"),
            ("2026-01-01T01:00:01Z", "expired"),
        ] {
            assert_eq!(state.word(at(now)), expected, "{now}");
        }
        assert_eq!(State::NotYet.word(at("2026-01-01T00:00:00Z")), "not_yet_issued");
        assert!(!format!("{state:?}").contains("key\""), "a key is never shown");
    }
}
