//! Why a store refused: the XML that S3 answers with.

use crate::backend::object_store::{Cause, Explanation};
use crate::excerpt::excerpt;
use http::{HeaderMap, StatusCode};
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};
use std::fmt;

const CODE_LENGTH: usize = 64;
const MESSAGE_LENGTH: usize = 200;

/// The body of an error: in one line each, short, and fit to be shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct S3ErrorBody {
    /// The word for the refusal, such as `NoSuchBucket`.
    code: Option<String>,
    /// The sentence for people.
    message: Option<String>,
    /// The region the bucket is in, where the store says so.
    region: Option<String>,
}

/// What an answer means, in S3's words.
pub(super) fn explain(status: StatusCode, headers: &HeaderMap, body: &str) -> Explanation {
    let read = S3ErrorBody::in_answer(headers, body);
    Explanation {
        has_code: read.code.is_some(),
        cause: read.code.as_deref().and_then(cause),
        remark: read.to_string(),
        sentence: read.words(status),
    }
}

/// What the word for a refusal says more clearly than its status.
fn cause(code: &str) -> Option<Cause> {
    match code {
        "NoSuchKey" => Some(Cause::NoSuchObject),
        "NoSuchBucket" => Some(Cause::NoSuchBucket),
        "NoSuchUpload" => Some(Cause::NoSuchUpload),
        "ExpiredToken"
        | "InvalidToken"
        | "TokenRefreshRequired"
        | "InvalidAccessKeyId"
        | "RequestTimeTooSkewed" => Some(Cause::Denied),
        "RequestTimeout" => Some(Cause::TimedOut),
        "SlowDown" | "InternalError" | "ServiceUnavailable" => Some(Cause::Busy),
        "QuotaExceeded" | "XMinioStorageFull" | "XMinioAdminBucketQuotaExceeded" => {
            Some(Cause::Full)
        }
        _ => None,
    }
}

impl S3ErrorBody {
    /// Reads the body of an error; what is not in S3's words says nothing.
    fn in_body(body: &str) -> Self {
        let [code, message, region] = elements(body, ["Code", "Message", "Region"]);
        let shown = |text: Option<String>, most| {
            let text = excerpt(&text?, most);
            (!text.is_empty()).then_some(text)
        };
        Self {
            code: shown(code, CODE_LENGTH),
            message: shown(message, MESSAGE_LENGTH),
            region: region.and_then(|region| sound_region(region.trim())),
        }
    }

    /// Reads a whole answer. Its headers name the region even where there is no body.
    fn in_answer(headers: &HeaderMap, body: &str) -> Self {
        let mut read = Self::in_body(body);
        if read.region.is_none() {
            let header = headers.get("x-amz-bucket-region");
            read.region = header.and_then(|region| sound_region(region.to_str().ok()?));
        }
        read
    }

    /// What a person should hear about an answer.
    fn words(&self, status: StatusCode) -> String {
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
impl fmt::Display for S3ErrorBody {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.code, &self.message) {
            (Some(code), Some(message)) => write!(out, " ({code}: {message})"),
            (Some(text), None) | (None, Some(text)) => write!(out, " ({text})"),
            (None, None) => Ok(()),
        }
    }
}

/// The text of the first element of each of these names. A body that was cut, or is no XML, has what came before that.
pub(super) fn elements<const N: usize>(body: &str, names: [&str; N]) -> [Option<String>; N] {
    let mut found = names.map(|_| None);
    let mut reader = Reader::from_str(body);
    reader.config_mut().check_end_names = false;
    let mut open: Option<OpenElement> = None;
    while let Ok(event) = reader.read_event() {
        match (event, &mut open) {
            (Event::Start(_), Some(element)) => element.nested += 1,
            (Event::Start(tag), None) => {
                let name = tag.local_name();
                let at = names.iter().position(|one| one.as_bytes() == name.as_ref());
                open = at.map(OpenElement::new);
            }
            (Event::Text(text), Some(element)) => {
                element.text.push_str(&text.decode().unwrap_or_default());
            }
            (Event::GeneralRef(reference), Some(element)) => {
                element.text.push_str(&resolved(&reference));
            }
            (Event::End(_), Some(element)) if element.nested > 0 => element.nested -= 1,
            (Event::End(_), Some(_)) => {
                if let Some(OpenElement { at, text, .. }) = open.take() {
                    found[at].get_or_insert(text);
                }
            }
            (Event::Eof, _) => break,
            _ => {}
        }
    }
    found
}

/// A wanted element whose end has not come; tags in it are left out, their text is not.
struct OpenElement {
    at: usize,
    text: String,
    nested: usize,
}

impl OpenElement {
    fn new(at: usize) -> Self {
        Self {
            at,
            text: String::new(),
            nested: 0,
        }
    }
}

/// What a reference such as `&apos;` stands for; one that nobody declared stands for itself.
fn resolved(reference: &BytesRef<'_>) -> String {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return character.to_string();
    }
    let name = reference.decode().unwrap_or_default();
    match resolve_predefined_entity(&name) {
        Some(text) => text.to_owned(),
        None => format!("&{name};"),
    }
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

        let words = S3ErrorBody::in_body(body).words(StatusCode::NOT_FOUND);

        assert_eq!(
            words,
            "the store answered 404 Not Found (NoSuchBucket: The bucket does not\\u{1b}[1m exist)"
        );
    }

    #[test]
    fn a_long_message_is_cut_and_a_foreign_body_says_nothing() {
        let long = format!("<Code>X</Code><Message>{}</Message>", "y".repeat(9000));

        assert!(S3ErrorBody::in_body(&long).to_string().chars().count() < 210);
        assert_eq!(
            S3ErrorBody::in_body("<html>\nno</html>"),
            S3ErrorBody::default()
        );
        assert_eq!(
            S3ErrorBody::in_body("<Code></Code>"),
            S3ErrorBody::default()
        );
    }

    #[test]
    fn a_wrong_region_is_named_where_the_store_names_the_right_one() {
        let words = S3ErrorBody::in_body(MALFORMED).words(StatusCode::BAD_REQUEST);

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

        let read = S3ErrorBody::in_answer(&headers, "");

        let words = read.words(StatusCode::MOVED_PERMANENTLY);
        assert!(words.contains("set region=eu-north-1"), "{words}");
        let other = read.words(StatusCode::NOT_FOUND);
        assert_eq!(other, "the store answered 404 Not Found");
    }

    #[test]
    fn a_malformed_header_that_has_nothing_to_do_with_the_region_does_not_blame_it() {
        let body = "<Code>AuthorizationHeaderMalformed</Code><Message>an access key must be given</Message>";

        let words = S3ErrorBody::in_body(body).words(StatusCode::BAD_REQUEST);

        assert!(!words.contains("region"), "{words}");
    }
}
