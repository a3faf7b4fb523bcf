//! Who sent a request: by a client certificate, or by a bearer token of a service account or of somebody who wants to
//! join. Who sends nothing is anonymous; who sends something that is not believed is turned away.

mod bootstrap_tokens;
mod certificates;
pub(crate) mod openid;
pub mod tokens;

use jiff::Timestamp;

pub use certificates::{CertificateRefused, CertifiedUser, ClientCertificates};
pub use tokens::TokenError;

use crate::cluster::Cluster;
use crate::who::User;

/// All whom we know.
pub const AUTHENTICATED: &str = "system:authenticated";
/// What tells apart the credentials of somebody who has more than one.
const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Whom a token is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    pub user: User,
    /// Which of the audiences that were asked about it is for. None for tokens that know no audiences.
    pub audiences: Vec<String>,
}

impl Cluster {
    /// Whom a bearer token is of. Without audiences, it must be for us.
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Authenticated, TokenError> {
        if let Some(user) = bootstrap_tokens::user(&self.state, token, now) {
            return Ok(Authenticated { user: with_all(user), audiences: Vec::new() });
        }
        let ours = [self.settings.issuer.clone()];
        let audiences = if audiences.is_empty() { &ours } else { audiences };
        let authenticated = tokens::verify(&self.state, &self.settings, token, audiences, now)?;
        Ok(Authenticated { user: with_all(authenticated.user), ..authenticated })
    }
}

/// Everybody whom we know is in the group of those.
pub(crate) fn with_all(mut user: User) -> User {
    if !user.is_in(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    user
}
