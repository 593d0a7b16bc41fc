//! `UploadPartCopy`, which the library does not have: signed by the library, sent by the client that it uses too.

use super::error_body::elements;
use crate::backend::object_store::{CopiedPart, PartCopier, PartCopy};
use ::object_store::aws::{AmazonS3, AwsAuthorizer};
use ::object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponseBody,
};
use ::object_store::multipart::{MultipartStore, PartId};
use ::object_store::signer::Signer as _;
use async_trait::async_trait;
use futures_util::StreamExt;
use http::{Method, Request, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use quick_xml::escape::partial_escape;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// What a path has as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');
/// An address that nobody uses as it is signed.
const SIGNED_FOR: Duration = Duration::from_secs(1);
/// An answer is read up to here; a sound one has a few hundred bytes.
const ANSWER_LIMIT: usize = 64 * 1024;

/// Copies parts within one bucket.
#[derive(Debug)]
pub(super) struct S3PartCopier {
    /// A client that asks for the SHA-256 of every part: without it some servers do not read what they copy, and their ETag is
    /// that of something else.
    pub(super) store: Arc<AmazonS3>,
    pub(super) client: HttpClient,
    pub(super) bucket: String,
    pub(super) region: String,
}

#[async_trait]
impl PartCopier for S3PartCopier {
    fn uploads(&self) -> Arc<dyn MultipartStore> {
        self.store.clone()
    }

    async fn copy_part(&self, copy: PartCopy<'_>) -> ::object_store::Result<CopiedPart> {
        let request = self.request(&copy).await?;
        let response = self.client.execute(request).await.map_err(failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(failed(format!("the copy was answered with {status}")));
        }
        let body = text(response.into_body()).await?;
        let [etag, sha256, code] = elements(&body, ["ETag", "ChecksumSHA256", "Code"]);
        match (etag, code) {
            (Some(etag), None) => Ok(CopiedPart {
                id: part_id(&etag, sha256.as_deref()),
                etag,
                sha256,
            }),
            // A long copy is answered before it is done, so that its failure comes after the success.
            (_, Some(code)) => Err(failed(HttpError::new(
                HttpErrorKind::Interrupted,
                std::io::Error::other(format!("the copy failed: {code}")),
            ))),
            (None, None) => Err(failed("the answer to the copy names no ETag")),
        }
    }
}

impl S3PartCopier {
    async fn request(&self, copy: &PartCopy<'_>) -> ::object_store::Result<HttpRequest> {
        let part = (copy.index + 1).to_string();
        // The library says where an object is only in an address that is signed; that signature is dropped.
        let signed = self.store.signed_url(Method::PUT, copy.to, SIGNED_FOR);
        let mut url = signed.await?;
        url.set_query(None);
        url.query_pairs_mut()
            .append_pair("partNumber", &part)
            .append_pair("uploadId", copy.upload);
        let source = utf8_percent_encode(copy.from.as_ref(), PLAIN);
        let (first, last) = (copy.range.start, copy.range.end - 1);
        let mut request = Request::builder()
            .method(Method::PUT)
            .uri(url.as_str())
            .header("x-amz-copy-source", format!("{}/{source}", self.bucket))
            .header("x-amz-copy-source-range", format!("bytes={first}-{last}"))
            .header("x-amz-copy-source-if-match", copy.version.as_str())
            .header(header::CONTENT_LENGTH, "0")
            .body(HttpRequestBody::empty())
            .map_err(failed)?;
        let credential = self.store.credentials().get_credential().await?;
        AwsAuthorizer::new(&credential, "s3", &self.region).try_authorize(&mut request, None)?;
        Ok(request)
    }
}

/// A part as the library wants it back, with its checksum: it keeps both in one element, which is its own affair. So
/// its version is pinned, and a test compares.
fn part_id(etag: &str, sha256: Option<&str>) -> PartId {
    let content_id = match sha256 {
        None => etag.to_owned(),
        Some(sha256) => format!(
            "<PartMetadata><e_tag>{}</e_tag><checksum_sha256>{}</checksum_sha256></PartMetadata>",
            partial_escape(etag),
            partial_escape(sha256)
        ),
    };
    PartId { content_id }
}

fn failed(source: impl Into<Box<dyn Error + Send + Sync>>) -> ::object_store::Error {
    ::object_store::Error::Generic {
        store: "S3",
        source: source.into(),
    }
}

async fn text(body: HttpResponseBody) -> ::object_store::Result<String> {
    let (mut pieces, mut text) = (body.bytes_stream(), Vec::new());
    while let Some(piece) = pieces.next().await {
        text.extend_from_slice(&piece.map_err(failed)?);
        if text.len() > ANSWER_LIMIT {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::object_store::ClientOptions;
    use ::object_store::aws::{AmazonS3Builder, Checksum};
    use ::object_store::client::{HttpConnector, HttpResponse, HttpService};
    use ::object_store::path::Path;

    const ETAG: &str = "\"0123 <& more>\"";
    const SHA256: &str = "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=";

    /// Answers every request as if it had stored a part.
    #[derive(Clone, Copy, Debug)]
    struct StoresParts;

    impl HttpConnector for StoresParts {
        fn connect(&self, _: &ClientOptions) -> ::object_store::Result<HttpClient> {
            Ok(HttpClient::new(*self))
        }
    }

    #[async_trait]
    impl HttpService for StoresParts {
        async fn call(&self, _: HttpRequest) -> Result<HttpResponse, HttpError> {
            let answer = http::Response::builder()
                .header("ETag", ETAG)
                .header("x-amz-checksum-sha256", SHA256);
            Ok(answer.body(String::new().into()).unwrap())
        }
    }

    #[tokio::test]
    async fn a_copied_part_is_named_as_the_library_names_one_that_it_sent() {
        let store = AmazonS3Builder::new()
            .with_bucket_name("bucket")
            .with_access_key_id("key")
            .with_secret_access_key("secret")
            .with_http_connector(StoresParts)
            .with_checksum_algorithm(Checksum::SHA256)
            .build()
            .unwrap();

        let (path, upload) = (Path::from("object"), "upload".to_owned());
        let sent = store.put_part(&path, &upload, 0, "".into()).await.unwrap();

        let copied = part_id(ETAG, Some(SHA256));
        assert_eq!(copied.content_id, sent.content_id);
    }
}
