//! A duration is the same after it was written and read again, in a document and out of it.
#![no_main]

use crablet_api::{GoDuration, TimeOrGoDuration};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let duration = match text.parse::<GoDuration>() {
        Ok(duration) => duration,
        Err(error) => {
            assert!(error.to_string().starts_with("time: "), "{error}");
            return;
        }
    };
    let written = duration.to_string();
    assert_eq!(written.parse(), Ok(duration), "{written}");
    assert_eq!(duration.is_negative(), written.starts_with('-'), "{written}");
    assert_eq!(duration.is_zero(), written == "0s", "{written}");

    // The sign stands alone in front, so the same text without it is the opposite.
    match text.strip_prefix('-') {
        Some(magnitude) if duration.as_nanos() != i64::MIN => {
            let opposite: GoDuration = magnitude.parse().expect("what has a sign can do without");
            assert_eq!(opposite.as_nanos(), -duration.as_nanos());
        }
        Some(magnitude) => assert!(magnitude.parse::<GoDuration>().is_err()),
        None => assert!(!duration.is_negative()),
    }

    for serialize_as_string in [true, false] {
        let either = TimeOrGoDuration { duration, serialize_as_string };
        let json = serde_json::to_string(&either).expect("a duration can be written as JSON");
        assert_eq!(serde_json::from_str::<TimeOrGoDuration>(&json).expect("and read again"), either);
    }
    assert_eq!(duration.to_std().as_nanos(), duration.as_nanos().max(0) as u128);
});
