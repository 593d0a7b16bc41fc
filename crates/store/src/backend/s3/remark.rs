//! What a store remarks on its refusal.

use crate::excerpt::excerpt;
use http::{HeaderMap, StatusCode};
use std::fmt;

const CODE_LENGTH: usize = 64;
const MESSAGE_LENGTH: usize = 200;

/// What a store says about a request it did not carry out: in one line each, short, and fit to be shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Remark {
    /// The word for the refusal, such as `NoSuchBucket`.
    pub(super) code: Option<String>,
    /// The sentence for people.
    message: Option<String>,
    /// The region the bucket is in, where the store says so.
    region: Option<String>,
}

impl Remark {
    /// Reads the body of an error; what is not in S3's words says nothing.
    pub(super) fn in_body(body: &str) -> Self {
        let whole = |name, most| {
            let text = excerpt(&unescaped(element(body, name)?), most);
            (!text.is_empty()).then_some(text)
        };
        Self {
            code: whole("Code", CODE_LENGTH),
            message: whole("Message", MESSAGE_LENGTH),
            region: element(body, "Region").and_then(sound_region),
        }
    }

    /// Reads a whole answer. Its headers name the region even where there is no body.
    pub(super) fn in_answer(headers: &HeaderMap, body: &str) -> Self {
        let mut remark = Self::in_body(body);
        if remark.region.is_none() {
            let header = headers.get("x-amz-bucket-region");
            remark.region = header.and_then(|region| sound_region(region.to_str().ok()?));
        }
        remark
    }

    /// What a person should hear about an answer.
    pub(super) fn words(&self, status: StatusCode) -> String {
        let answered = format!("the store answered {status}{self}");
        if self.is_wrong_region(status) {
            let region = self.region.as_deref().unwrap_or("…");
            return format!(
                "the bucket is in another region: set region={region} in the store URL; {answered}"
            );
        }
        match self.code.as_deref() {
            Some("RequestTimeTooSkewed") => format!("this host's clock is wrong; {answered}"),
            _ => answered,
        }
    }

    fn is_wrong_region(&self, status: StatusCode) -> bool {
        let speaks_of_region = |message: &String| message.to_ascii_lowercase().contains("region");
        match self.code.as_deref() {
            Some(
                "PermanentRedirect"
                | "IllegalLocationConstraint"
                | "IllegalLocationConstraintException",
            ) => true,
            // It has other reasons too, and says which.
            Some("AuthorizationHeaderMalformed") => {
                self.region.is_some() || self.message.as_ref().is_none_or(speaks_of_region)
            }
            Some(_) => false,
            None => status == StatusCode::MOVED_PERMANENTLY && self.region.is_some(),
        }
    }
}

/// In brackets after a status; nothing where nothing was said.
impl fmt::Display for Remark {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.code, &self.message) {
            (Some(code), Some(message)) => write!(out, " ({code}: {message})"),
            (Some(text), None) | (None, Some(text)) => write!(out, " ({text})"),
            (None, None) => Ok(()),
        }
    }
}

/// What stands in the first element of this name.
fn element<'a>(body: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = body.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

fn unescaped(text: &str) -> String {
    let plain = text.replace("&lt;", "<").replace("&gt;", ">");
    let plain = plain.replace("&quot;", "\"").replace("&apos;", "'");
    plain.replace("&#39;", "'").replace("&amp;", "&")
}

fn sound_region(text: &str) -> Option<String> {
    let sound = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let is_one = (1..=64).contains(&text.len()) && text.chars().all(sound);
    is_one.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MALFORMED: &str = "<?xml version=\"1.0\"?>\n<Error>\n <Code>AuthorizationHeaderMalformed</Code>\n \
        <Message>the region &apos;us-east-1&apos; is wrong; expecting &apos;eu-west-3&apos;</Message>\n \
        <Region>eu-west-3</Region>\n</Error>";

    #[test]
    fn a_body_is_reduced_to_its_code_and_its_message() {
        let body = "<Error>\n<Code>NoSuchBucket</Code>\n<Message>The bucket\n\tdoes not\u{1b}[1m exist</Message>\n\
            <Resource>/b</Resource></Error>";

        let words = Remark::in_body(body).words(StatusCode::NOT_FOUND);

        assert_eq!(
            words,
            "the store answered 404 Not Found (NoSuchBucket: The bucket does not\\u{1b}[1m exist)"
        );
    }

    #[test]
    fn a_long_message_is_cut_and_a_foreign_body_says_nothing() {
        let long = format!("<Code>X</Code><Message>{}</Message>", "y".repeat(9000));

        assert!(Remark::in_body(&long).to_string().chars().count() < 210);
        assert_eq!(Remark::in_body("<html>\nno</html>"), Remark::default());
        assert_eq!(Remark::in_body("<Code></Code>"), Remark::default());
    }

    #[test]
    fn a_wrong_region_is_named_where_the_store_names_the_right_one() {
        let words = Remark::in_body(MALFORMED).words(StatusCode::BAD_REQUEST);

        assert!(
            words.starts_with(
                "the bucket is in another region: set region=eu-west-3 in the store URL; the store answered 400"
            ),
            "{words}"
        );
    }

    #[test]
    fn the_region_of_an_answer_without_a_body_is_in_its_headers() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-bucket-region", "eu-north-1".parse().unwrap());

        let remark = Remark::in_answer(&headers, "");

        let words = remark.words(StatusCode::MOVED_PERMANENTLY);
        assert!(words.contains("set region=eu-north-1"), "{words}");
        let other = remark.words(StatusCode::NOT_FOUND);
        assert_eq!(other, "the store answered 404 Not Found");
    }

    #[test]
    fn a_malformed_header_that_has_nothing_to_do_with_the_region_does_not_blame_it() {
        let body = "<Code>AuthorizationHeaderMalformed</Code><Message>an access key must be given</Message>";

        let words = Remark::in_body(body).words(StatusCode::BAD_REQUEST);

        assert!(!words.contains("region"), "{words}");
    }
}
