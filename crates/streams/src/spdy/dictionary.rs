//! The words that SPDY/3 compresses headers with. Both sides must have exactly these bytes.

/// As the protocol gives them: each word behind its length, then text that is often said.
pub(super) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LENGTH);
    for word in WORDS {
        // No word is longer than a byte can say.
        bytes.extend_from_slice(&[0, 0, 0, word.len() as u8]);
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TEXT.as_bytes());
    bytes
}

const LENGTH: usize = 1423;

const WORDS: &[&str] = &[
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorize\
    d403 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service Unavailable\
    Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, G\
    MTchunked,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/p\
    lain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf\
    -,*,enq=0.";

#[cfg(test)]
mod tests {
    use super::*;

    /// By the checksum that a compressed header names its dictionary with.
    #[test]
    fn the_dictionary_is_the_one_of_the_protocol() {
        let bytes = dictionary();
        let (a, b) = bytes.iter().fold((1_u32, 0_u32), |(a, b), byte| {
            let a = (a + u32::from(*byte)) % 65_521;
            (a, (b + a) % 65_521)
        });
        assert_eq!(((b << 16) | a, bytes.len()), (0xe3c6a7c2, LENGTH));
    }
}
