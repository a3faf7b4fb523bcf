//! How a command ended, as the error channel of WebSocket v5 says it: a `Status` of the API.

use serde_json::Value;

/// The reason and the cause of a command that ended with something other than zero.
const NON_ZERO: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

pub(crate) const SUCCESS: &str = r#"{"metadata":{},"status":"Success"}"#;

/// What a runtime said on the error stream of SPDY v4, in upstream's words for clients.
pub(crate) fn of_message(message: &[u8]) -> String {
    match exit_code(message) {
        Ok(None) => SUCCESS.to_owned(),
        Ok(Some(code)) => format!(
            r#"{{"metadata":{{}},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code {code}","reason":"{NON_ZERO}","details":{{"causes":[{{"reason":"{EXIT_CODE}","message":"{code}"}}]}}}}"#
        ),
        Err(message) => internal_error(&message),
    }
}

/// Something between the client and the command does not work.
pub(crate) fn internal_error(message: &str) -> String {
    let (whole, message) = (Value::from(format!("Internal error occurred: {message}")), Value::from(message));
    format!(
        r#"{{"metadata":{{}},"status":"Failure","message":{whole},"reason":"InternalError","details":{{"causes":[{{"message":{message}}}]}},"code":500}}"#
    )
}

fn exit_code(message: &[u8]) -> Result<Option<u8>, String> {
    let status: Value = serde_json::from_slice(message).map_err(|error| {
        format!("error stream protocol error: {error} in {:?}", String::from_utf8_lossy(message))
    })?;
    match status["status"].as_str() {
        Some("Success") => return Ok(None),
        Some("Failure") => {}
        _ => return Err("error stream protocol error: unknown error".to_owned()),
    }
    if status["reason"] != NON_ZERO {
        return Err(status["message"].as_str().unwrap_or_default().to_owned());
    }
    if status["details"].is_null() {
        return Err("error stream protocol error: details must be set".to_owned());
    }
    let causes = status["details"]["causes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(cause) = causes.iter().find(|cause| cause["reason"] == EXIT_CODE) else {
        return Err(format!("error stream protocol error: no {EXIT_CODE} cause given"));
    };
    let code = cause["message"].as_str().unwrap_or_default();
    // Go takes no sign there.
    match code.parse() {
        Ok(number) if !code.starts_with('+') => Ok(Some(number)),
        _ => Err(format!("error stream protocol error: invalid exit code value {code:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_command_is_told_as_upstream_tells_it() {
        let exit = br#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: error executing command [false], exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#;
        let failure = br#"{"status":"Failure","message":"no \"sh\""}"#;
        let bare = br#"{"status":"Failure","reason":"NonZeroExitCode"}"#;
        let unnamed = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{}}"#;
        let signed = br#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"+3"}]}}"#;
        for (message, expected) in [
            (&br#"{"metadata":{},"status":"Success"}"#[..], SUCCESS),
            (
                exit,
                r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
            ),
            (
                failure,
                r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no \"sh\"","reason":"InternalError","details":{"causes":[{"message":"no \"sh\""}]},"code":500}"#,
            ),
            (
                unnamed,
                r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: error stream protocol error: no ExitCode cause given","reason":"InternalError","details":{"causes":[{"message":"error stream protocol error: no ExitCode cause given"}]},"code":500}"#,
            ),
        ] {
            assert_eq!(of_message(message), expected);
        }
        assert!(of_message(bare).contains("error stream protocol error: details must be set"));
        assert!(of_message(signed).contains(r#"invalid exit code value \"+3\""#));
        assert!(of_message(b"oh no").contains("error stream protocol error: expected value"));
    }
}
