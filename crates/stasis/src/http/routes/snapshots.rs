//! The snapshots of a subject, of whichever kind: which there are, what is in them, what differs.

use crate::http::answer::{Answer, AnswerSchema, ByteStream, Content};
use crate::http::endpoint::{Access, Call, Endpoint, NoBody, Reply};
use crate::http::parameters::{Flag, PageSize, SnapshotName, SubjectName, page};
use crate::http::private::scrubbed;
use crate::http::problem::{Problem, ProblemCode};
use bytes::Bytes;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use schemars::generate::SchemaGenerator;
use serde::{Deserialize, Serialize};
use stasis_engine::catalog::ListedEntry;
use stasis_engine::kind::workspace::ComparedContent;
use stasis_engine::model::format::token::TokenScope;
use stasis_engine::model::snapshot_ref::SnapshotRef;
use stasis_engine::model::tree::EntryPath;
use stasis_engine::stored::{StoredDiff, StoredSnapshot, StoredSnapshotShown, StoredSubject};
use stasis_engine::subjects::SubjectKind;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc;
use tracing::Instrument as _;

/// How many pieces of a file wait to be taken.
const PIECES: usize = 8;

/// A path in a snapshot, without a slash at its beginning; bytes that are no text as `\xNN`. Nothing is the top.
#[derive(Clone, Default, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct TreePath(pub(super) EntryPath);

impl TryFrom<String> for TreePath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let path = text.parse::<EntryPath>();
        Ok(Self(path.map_err(|why| why.to_string())?))
    }
}

impl TreePath {
    /// Whether the text in it is compared: of one file, which has to be named.
    pub(super) fn compared(&self, patch: Flag) -> Result<ComparedContent, Problem> {
        match (patch.0, self.0.is_root()) {
            (false, _) => Ok(ComparedContent::None),
            (true, false) => Ok(ComparedContent::Patch),
            (true, true) => {
                let said = "say with `path` in which file the text is compared";
                Err(Problem::new(ProblemCode::InvalidRequest, said))
            }
        }
    }
}

impl JsonSchema for TreePath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EntryPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string" })
    }
}

/// The subject that a path names, among those of whoever asks.
pub(super) async fn subject(
    call: &Call,
    kind: SubjectKind,
    id: &str,
) -> Result<StoredSubject, Problem> {
    let tenant = call.tenant()?;
    let found = call.engine.stored(&tenant, kind, id, &call.looking);
    Ok(found.await?)
}

/// `GET /v1/subjects/{kind}/{id}/snapshots`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListSnapshots {
    kind: SubjectKind,
    /// What the subject is called after its kind and its tenant: `notes`, `alice@131`
    id: SubjectName,
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<String>,
    /// How many rows the page has at most
    #[serde(default)]
    limit: PageSize,
}

/// A page of snapshots, the newest first.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct SnapshotPage {
    items: Vec<StoredSnapshot>,
    /// How many there are on all pages.
    snapshots: u64,
    /// Documents that cannot be read, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What tells a snapshot from others, in their order: the newest comes first.
fn place(row: &StoredSnapshot) -> String {
    format!("{:020}-{}", u64::MAX - row.at_ms, row.snapshot)
}

impl Endpoint for ListSnapshots {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots";
    const NAME: &'static str = "list_snapshots";
    const SUMMARY: &'static str = "List the snapshots of a subject, the newest first";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = SnapshotPage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<SnapshotPage>, Problem> {
        let found = subject(call, self.kind, self.id.as_str()).await?;
        let all = found.snapshots().await?;
        let snapshots = all.items.len() as u64;
        let rows: Vec<_> = all
            .items
            .into_iter()
            .map(|row| (place(&row), row))
            .collect();
        let (mut rows, cursor) = (rows, self.cursor.as_deref());
        // What was saved at one time is in the order of its names.
        rows.sort_by(|(one, _), (other, _)| one.cmp(other));
        let (rows, next_cursor) = page(rows, cursor, self.limit, |(place, _)| place);
        Ok(SnapshotPage {
            items: rows.into_iter().map(|(_, row)| row).collect(),
            snapshots,
            unreadable: all.unreadable.iter().map(|one| scrubbed(one)).collect(),
            next_cursor,
        }
        .into())
    }
}

/// `GET /v1/subjects/{kind}/{id}/snapshots/{snapshot}`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ShowSnapshot {
    kind: SubjectKind,
    /// What the subject is called after its kind and its tenant
    id: SubjectName,
    /// `latest`, `latest~2`, a time (`@-2h`), an id or the beginning of one, a label
    snapshot: SnapshotName,
}

impl Endpoint for ShowSnapshot {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}";
    const NAME: &'static str = "show_snapshot";
    const SUMMARY: &'static str = "Show a snapshot with everything that it says of itself";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = StoredSnapshotShown;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<StoredSnapshotShown>, Problem> {
        let found = subject(call, self.kind, self.id.as_str()).await?;
        Ok(found.show(&self.snapshot.0).await?.into())
    }
}

/// `GET /v1/subjects/{kind}/{id}/snapshots/{snapshot}/files`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ListFiles {
    kind: SubjectKind,
    /// What the subject is called after its kind and its tenant
    id: SubjectName,
    /// `latest`, `latest~2`, a time (`@-2h`), an id or the beginning of one, a label
    snapshot: SnapshotName,
    /// Only this entry and what is in it
    #[serde(default)]
    path: TreePath,
    /// What is in the directories of that as well
    #[serde(default)]
    recursive: Flag,
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<String>,
    /// How many rows the page has at most
    #[serde(default)]
    limit: PageSize,
}

/// A page of entries, by path.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct FilePage {
    /// What the snapshot is called in whole: the other pages are asked of that.
    snapshot: String,
    items: Vec<ListedEntry>,
    /// How many there are on all pages.
    entries: u64,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Endpoint for ListFiles {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}/files";
    const NAME: &'static str = "list_files";
    const SUMMARY: &'static str =
        "List what is in a snapshot, one directory at a time or all of it";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = FilePage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<FilePage>, Problem> {
        let found = subject(call, self.kind, self.id.as_str()).await?;
        let path = &self.path.0;
        let listed = found.files(&self.snapshot.0, path, self.recursive.0);
        let (snapshot, mut items) = listed.await?;
        let entries = items.len() as u64;
        items.sort_by(|one, other| one.path.cmp(&other.path));
        let cursor = self.cursor.as_deref();
        let (items, next_cursor) = page(items, cursor, self.limit, |one| &one.path);
        Ok(FilePage {
            snapshot,
            items,
            entries,
            next_cursor,
        }
        .into())
    }
}

/// `GET /v1/subjects/{kind}/{id}/snapshots/{snapshot}/content`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReadFile {
    kind: SubjectKind,
    /// What the subject is called after its kind and its tenant
    id: SubjectName,
    /// `latest`, `latest~2`, a time (`@-2h`), an id or the beginning of one, a label
    snapshot: SnapshotName,
    /// Which file
    path: TreePath,
}

/// The content of a file.
pub(in crate::http) struct FileBytes(ByteStream);

impl Answer for FileBytes {
    fn described(_: &mut SchemaGenerator) -> AnswerSchema {
        AnswerSchema {
            status: StatusCode::OK,
            media_type: "application/octet-stream",
            schema: schemars::json_schema!({}),
        }
    }

    fn content(self) -> Result<Content, Problem> {
        Ok(Content {
            status: StatusCode::OK,
            media_type: "application/octet-stream",
            location: None,
            headers: &[],
            body: self.0.boxed(),
        })
    }
}

/// Sends what is written to whoever takes it, and waits for them.
struct Pieces {
    to: mpsc::Sender<io::Result<Bytes>>,
    /// Whether something was sent: what goes wrong from then on can only end the answer.
    has_begun: Arc<AtomicBool>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        self.has_begun.store(true, Ordering::Release);
        let sent = self.to.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        sent.map_err(gone).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Endpoint for ReadFile {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/snapshots/{snapshot}/content";
    const NAME: &'static str = "read_file";
    const SUMMARY: &'static str =
        "Read a file of a snapshot; an answer that breaks off is not the whole file";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = FileBytes;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<FileBytes>, Problem> {
        let found = subject(call, self.kind, self.id.as_str()).await?;
        let (to, mut stream) = ByteStream::channel(PIECES);
        let has_begun = Arc::new(AtomicBool::new(false));
        let reading = async move {
            let pieces = Pieces {
                to: to.clone(),
                has_begun: has_begun.clone(),
            };
            let read = found.content(&self.snapshot.0, &self.path.0, pieces).await;
            let Err(error) = read else {
                // Whoever takes it no longer knows that.
                return Ok(());
            };
            let problem = Problem::from(error);
            if has_begun.load(Ordering::Acquire) {
                // The rest would be taken for the end of the file.
                let _ = to
                    .send(Err(io::Error::other("the rest could not be read")))
                    .await;
            }
            Err(problem)
        };
        let reading = tokio::spawn(reading.in_current_span());
        if !stream.begins().await {
            let read = reading.await;
            read.unwrap_or_else(|why| Err(Problem::bug(&why)))?;
        }
        Ok(FileBytes(stream).into())
    }
}

/// `GET /v1/subjects/{kind}/{id}/diff`
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DiffSnapshots {
    kind: SubjectKind,
    /// What the subject is called after its kind and its tenant
    id: SubjectName,
    /// The older snapshot
    before: SnapshotName,
    /// The newer one
    #[serde(default = "latest")]
    after: SnapshotName,
    /// Only this entry and what is in it
    #[serde(default)]
    path: TreePath,
    /// With the text that differs in `path`
    #[serde(default)]
    patch: Flag,
    /// Where the page before this one ended: its `next_cursor`
    #[serde(default)]
    cursor: Option<String>,
    /// How many rows the page has at most
    #[serde(default)]
    limit: PageSize,
}

fn latest() -> SnapshotName {
    SnapshotName(SnapshotRef::Latest)
}

/// A page of what differs, by path.
#[derive(Serialize, JsonSchema)]
pub(in crate::http) struct DiffPage {
    #[serde(flatten)]
    diff: StoredDiff,
    /// How many entries differ, on all pages.
    differing: u64,
    /// Where the next page begins; there is none where this is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

impl Endpoint for DiffSnapshots {
    const METHOD: Method = Method::GET;
    const PATH: &'static str = "/v1/subjects/{kind}/{id}/diff";
    const NAME: &'static str = "diff_snapshots";
    const SUMMARY: &'static str =
        "Say what differs between two snapshots: files, tables, cookies by name";
    const ACCESS: Access = Access::Token(TokenScope::Read);
    type Body = NoBody;
    type Answer = DiffPage;

    async fn serve(self, _: NoBody, call: &Call) -> Result<Reply<DiffPage>, Problem> {
        let (within, content) = (&self.path.0, self.path.compared(self.patch)?);
        let found = subject(call, self.kind, self.id.as_str()).await?;
        let (before, after) = (&self.before.0, &self.after.0);
        let diff = found.diff(before, after, within, content);
        let mut diff = Box::pin(diff).await?;
        let mut items = std::mem::take(&mut diff.items);
        let differing = items.len() as u64;
        items.sort_by(|one, other| one.path.cmp(&other.path));
        let cursor = self.cursor.as_deref();
        let (items, next_cursor) = page(items, cursor, self.limit, |one| &one.path);
        diff.items = items;
        // Why something was not read may name a place of the host.
        diff.unread.iter_mut().for_each(|one| *one = scrubbed(one));
        Ok(DiffPage {
            diff,
            differing,
            next_cursor,
        }
        .into())
    }
}
