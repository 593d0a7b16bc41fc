//! The page for operators: files in the binary. They know nothing of their own; what they show is what the other routes say.

use crate::http::answer::{Answer, AnswerSchema, Content};
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::problem::Problem;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use schemars::generate::SchemaGenerator;
use serde::Deserialize;

/// Nothing but these files and this service: no script or style of a document, no frame around it, no form that is sent anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// What each file is sent with.
const HEADERS: &[(&str, &str)] = &[
    ("content-security-policy", POLICY),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

const HTML: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the page.
#[derive(Clone, Copy, Debug)]
struct PageFile {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

macro_rules! page_file {
    ($name:literal, $media_type:expr) => {
        PageFile {
            name: $name,
            media_type: $media_type,
            bytes: include_bytes!(concat!("../page/", $name)),
        }
    };
}

/// What `/` answers.
const INDEX: PageFile = page_file!("index.html", HTML);

/// What it loads.
static FILES: &[PageFile] = &[
    page_file!("page.css", STYLE),
    page_file!("main.js", SCRIPT),
    page_file!("api.js", SCRIPT),
    page_file!("dom.js", SCRIPT),
    page_file!("login.js", SCRIPT),
    page_file!("subjects.js", SCRIPT),
    page_file!("subject.js", SCRIPT),
    page_file!("timeline.js", SCRIPT),
    page_file!("files.js", SCRIPT),
    page_file!("diff.js", SCRIPT),
    page_file!("directory.js", SCRIPT),
    page_file!("actions.js", SCRIPT),
    page_file!("restore.js", SCRIPT),
    page_file!("events.js", SCRIPT),
    page_file!("leases.js", SCRIPT),
    page_file!("operations.js", SCRIPT),
    page_file!("storage.js", SCRIPT),
    page_file!("jobs.js", SCRIPT),
    page_file!("live.js", SCRIPT),
    page_file!("notices.js", SCRIPT),
];

impl PageFile {
    fn content(self) -> Content {
        Content {
            headers: HEADERS,
            ..Content::whole(self.media_type, self.bytes)
        }
    }
}

fn described(media_type: &'static str) -> AnswerSchema {
    AnswerSchema {
        status: StatusCode::OK,
        media_type,
        schema: schemars::json_schema!({}),
    }
}

/// The document that the page begins with.
pub(in crate::http) struct IndexBytes(PageFile);

impl Answer for IndexBytes {
    fn described(_: &mut SchemaGenerator) -> AnswerSchema {
        described("text/html")
    }

    fn content(self) -> Result<Content, Problem> {
        Ok(self.0.content())
    }
}

/// A style sheet or a module.
pub(in crate::http) struct AssetBytes(PageFile);

impl Answer for AssetBytes {
    fn described(_: &mut SchemaGenerator) -> AnswerSchema {
        described("*/*")
    }

    fn content(self) -> Result<Content, Problem> {
        Ok(self.0.content())
    }
}

/// `GET /`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowPage {}

impl Endpoint for ShowPage {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/";
    const NAME: &'static str = "page";
    const SUMMARY: &'static str = "The page for operators, which asks the other routes";
    const ACCESS: Access = Access::Anybody;
    type Body = NoBody;
    type Answer = IndexBytes;

    async fn serve(self, _: NoBody, _: &Call) -> Result<Reply<IndexBytes>, Problem> {
        Ok(Reply::of(IndexBytes(INDEX), None))
    }
}

/// `GET /page/{file}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowPageFile {
    /// Which one: `page.css`, `main.js`
    file: String,
}

impl Endpoint for ShowPageFile {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/page/{file}";
    const NAME: &'static str = "page_file";
    const SUMMARY: &'static str = "A style sheet or a module of the page";
    const ACCESS: Access = Access::Anybody;
    type Body = NoBody;
    type Answer = AssetBytes;

    async fn serve(self, _: NoBody, _: &Call) -> Result<Reply<AssetBytes>, Problem> {
        let found = FILES.iter().find(|one| one.name == self.file);
        let found = found.copied().ok_or_else(Problem::nowhere)?;
        Ok(Reply::of(AssetBytes(found), None))
    }
}
