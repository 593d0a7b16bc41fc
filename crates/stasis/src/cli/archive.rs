//! `stasis archive`

use super::byte_size::size;
use super::output::{Output, OutputLost, printable};
use super::progress::{cancel_on_signals, is_shown, watched};
use super::{CliContext, envelope};
use crate::cli::output::Measured;
use crate::report::{Exit, or_read_enough};
use crate::system::SystemClock;
use anyhow::Context as _;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use stasis_engine::archive::{
    self, ArchiveAddress, ArchiveError, ArchivePlace, Archived, CreateArchive, ExtractArchive,
    Extracted, ListedArchive, Placement, ReadArchive,
};
use stasis_engine::error::Error;
use stasis_engine::model::invalid::Invalid;
use stasis_engine::model::tree::EntryPath;
use stasis_engine::progress::Progress;
use stasis_engine::result::EntryType;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Subcommand)]
pub(super) enum ArchiveCommand {
    /// Create an archive of a directory
    Create(ArchiveCreateArgs),
    /// Extract an archive to a directory: ours, or any .tar, .tar.gz or .tar.zst
    Extract(ArchiveExtractArgs),
    /// List what is in an archive: ours, or any .tar, .tar.gz or .tar.zst
    List(ArchiveReadArgs),
    /// Write the content of one file of an archive to standard output
    Cat(ArchiveCatArgs),
    /// Read a whole archive and verify it
    Verify(ArchiveReadArgs),
}

#[derive(Debug, Args)]
pub(super) struct ArchiveCreateArgs {
    /// The directory to archive
    #[arg(value_name = "DIR")]
    source: PathBuf,
    /// The archive to make; one that is there is replaced when the new one is whole
    #[arg(value_name = "FILE|URL", value_parser = OsStringValueParser::new().try_map(address))]
    target: ArchiveAddress,
    /// How hard to compress: 1 to 19
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(i32).range(1..=19))]
    level: i32,
    /// An older archive; what did not change is copied from it instead of compressed again
    #[arg(long, value_name = "PREVIOUS", value_parser = OsStringValueParser::new().try_map(address))]
    base: Option<ArchiveAddress>,
    /// How many threads compress [default: all cores, 16 at most]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Leave out what matches, as in a .gitignore; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,
    /// Fail if anything vanishes, changes while it is read, or may not be read, instead of reporting it
    #[arg(long)]
    strict: bool,
    /// Whether to stay on the filesystem of DIR; otherwise what is mounted in it is archived too
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    one_file_system: bool,
}

#[derive(Debug, Args)]
pub(super) struct ArchiveReadArgs {
    /// The archive: a path, or s3://bucket/name, of which only what is needed is read
    #[arg(value_name = "FILE|URL", value_parser = OsStringValueParser::new().try_map(address))]
    archive: ArchiveAddress,
    /// How many threads decompress [default: all cores, 16 at most]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Refuse an archive whose files have more bytes than this in all [default: 4 TiB]
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
}

#[derive(Debug, Args)]
pub(super) struct ArchiveExtractArgs {
    #[command(flatten)]
    read: ArchiveReadArgs,
    /// The directory that the tree becomes; nothing may be there yet, or an empty directory
    #[arg(value_name = "DIR")]
    target: PathBuf,
    /// Replace the existing directory, which is kept beside it
    #[arg(long, conflicts_with = "in_place")]
    replace: bool,
    /// Change the existing directory in place
    #[arg(long)]
    in_place: bool,
    /// Only this entry, what lies in it, and the directories it lies in
    #[arg(long, value_name = "PATH")]
    path: Option<PathBuf>,
    /// Restore owners, setuid and setgid from the archive (root only)
    #[arg(long)]
    owner: bool,
}

#[derive(Debug, Args)]
pub(super) struct ArchiveCatArgs {
    #[command(flatten)]
    read: ArchiveReadArgs,
    /// The name of the file in the archive
    #[arg(value_name = "ENTRY")]
    entry: PathBuf,
}

/// An address as it was typed; a path that is no text cannot be a URL.
fn address(text: OsString) -> Result<ArchiveAddress, Invalid> {
    match text.to_str() {
        Some(text) => text.parse(),
        None => Ok(ArchiveAddress::File(text.into())),
    }
}

async fn place(context: &CliContext, address: ArchiveAddress) -> anyhow::Result<ArchivePlace> {
    match address {
        ArchiveAddress::File(path) => Ok(ArchivePlace::File(path)),
        ArchiveAddress::Object { store, name } => {
            let engine = context.engine_at(store, false).await?;
            Ok(ArchivePlace::object(engine, &name)?)
        }
    }
}

impl ArchiveCommand {
    pub(super) async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        match self {
            Self::Create(create) => create.run(context).await,
            Self::Extract(extract) => extract.run(context).await,
            Self::List(read) => read.list(context).await,
            Self::Cat(cat) => cat.run(context).await,
            Self::Verify(read) => read.verify(context).await,
        }
    }
}

impl ArchiveCreateArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let base = match self.base {
            Some(base) => Some(place(context, base).await?),
            None => None,
        };
        let command = CreateArchive {
            source: self.source,
            target: place(context, self.target).await?,
            level: self.level,
            base,
            threads: self.threads,
            excludes: self.exclude,
            strict: self.strict,
            across_filesystems: !self.one_file_system,
            spool: context.spool()?,
            is_watched: is_shown(context.output),
            progress: Arc::clone(&progress),
            cancel: cancel_on_signals()?,
        };
        let work = archive::create(command, &SystemClock);
        let archived = watched(context.output, "archiving", progress, work).await?;
        let named = context.output.left_out(&archived.left_out);
        for line in warnings(&archived, named) {
            context.output.say(&format!("warning: {line}"));
        }
        let measured = Measured::new(archived);
        context
            .output
            .result(&measured, |one| archived_text(&one.result))?;
        Ok(Exit::Done)
    }
}

fn archived_text(archived: &Archived) -> String {
    let copied = match archived.frames_reused {
        0 => String::new(),
        reused => format!(", {reused} of {} frames copied", archived.frames),
    };
    format!(
        "{}: {} files, {} directories, {} symbolic links, {} hard links; {} in {}{copied}; {} ms\nsha256 {}\ntree   {}",
        printable(&archived.archive),
        archived.files,
        archived.directories,
        archived.symlinks,
        archived.hard_links,
        size(archived.bytes),
        size(archived.stored_bytes),
        archived.elapsed_ms,
        archived.archive_sha256,
        archived.tree_digest,
    )
}

fn warnings(archived: &Archived, named: u64) -> Vec<String> {
    let more = (archived.vanished + archived.skipped).saturating_sub(named);
    let counts = [
        (more, "more entries were left out; --json lists a thousand"),
        (
            archived.attributes_left_out,
            "attributes that are not the user's were left out",
        ),
    ];
    let counts = counts.iter().filter(|(n, _)| *n > 0);
    counts.map(|(n, what)| format!("{n} {what}")).collect()
}

impl ArchiveReadArgs {
    async fn command(
        self,
        context: &CliContext,
        progress: &Arc<Progress>,
    ) -> anyhow::Result<ReadArchive> {
        Ok(ReadArchive {
            archive: place(context, self.archive).await?,
            spool: context.spool()?,
            largest: self.max_bytes,
            threads: self.threads,
            progress: Arc::clone(progress),
            cancel: cancel_on_signals()?,
        })
    }

    async fn verify(self, context: &CliContext) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let command = self.command(context, &progress).await?;
        let work = archive::verify(command, &SystemClock);
        let verified = watched(context.output, "verifying", progress, work).await?;
        let measured = Measured::new(verified);
        context.output.result(&measured, |one| {
            let verified = &one.result;
            let tree = verified
                .tree_digest
                .map(|digest| format!("\ntree   {digest}"));
            format!(
                "{}: whole; {} entries, {} files, {} in {}; {} ms\nsha256 {}{}",
                printable(&verified.archive),
                verified.entries,
                verified.files,
                size(verified.bytes),
                size(verified.stored_bytes),
                verified.elapsed_ms,
                verified.archive_sha256,
                tree.unwrap_or_default(),
            )
        })?;
        Ok(Exit::Done)
    }

    /// Entries are written as they come: a list may be longer than memory.
    async fn list(self, context: &CliContext) -> anyhow::Result<Exit> {
        let list = Arc::new(Mutex::new(EntryList {
            out: BufWriter::new(io::stdout()),
            output: context.output,
            is_begun: false,
        }));
        let shown = list.clone();
        let each = move |entry: &ListedArchive| lock(&shown).entry(entry);
        let listed = archive::list(
            self.command(context, &Arc::default()).await?,
            Box::new(each),
        )
        .await;
        let finished = lock(&list).finish(listed.is_ok()).map_err(OutputLost);
        or_read_enough(finished.map_err(Into::into))?;
        or_read_enough(listed.map(drop).map_err(lost))?;
        Ok(Exit::Done)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A list that is being written.
struct EntryList {
    out: BufWriter<io::Stdout>,
    output: Output,
    is_begun: bool,
}

impl EntryList {
    fn entry(&mut self, entry: &ListedArchive) -> io::Result<()> {
        if !self.output.as_json {
            return writeln!(self.out, "{}", line(entry));
        }
        if self.is_begun {
            writeln!(self.out, ",")?;
        } else {
            self.begin()?;
        }
        write!(self.out, "{}", serde_json::to_string(entry)?)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.is_begun = true;
        writeln!(self.out, "{}", envelope::list_begin(self.output.command)?)
    }

    /// Whatever went wrong, what was written is JSON; the error is another document behind it.
    fn finish(&mut self, is_complete: bool) -> io::Result<()> {
        if self.output.as_json {
            if is_complete && !self.is_begun {
                self.begin()?;
            }
            if self.is_begun {
                writeln!(self.out, "\n]}}")?;
            }
        }
        self.out.flush()
    }
}

/// An entry for people: like `ls -l`, with names that cannot move a cursor.
fn line(entry: &ListedArchive) -> String {
    let arrow = match (entry.kind, &entry.target) {
        (EntryType::HardLink, Some(to)) => format!(" = {}", printable(to)),
        (_, Some(to)) => format!(" -> {}", printable(to)),
        _ => String::new(),
    };
    format!(
        "{:<9} {} {:>5} {:>5} {:>12} {}{arrow}",
        entry.kind,
        entry.mode,
        entry.uid,
        entry.gid,
        entry.size,
        printable(&entry.path)
    )
}

/// The name of an entry as people write it.
fn entry_path(name: &Path) -> anyhow::Result<EntryPath> {
    let bytes = name.as_os_str().as_bytes();
    let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
    let bytes = bytes.strip_suffix(b"/").unwrap_or(bytes);
    EntryPath::parse(bytes)
        .with_context(|| format!("`{}` is not the name of an entry", name.display()))
}

impl ArchiveExtractArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let progress = Arc::default();
        let command = ExtractArchive {
            target: self.target,
            placement: match (self.replace, self.in_place) {
                (true, _) => Placement::Replace,
                (_, true) => Placement::InPlace,
                _ => Placement::New,
            },
            only: self.path.as_deref().map(entry_path).transpose()?,
            owners: self.owner,
            read: self.read.command(context, &progress).await?,
        };
        let work = archive::extract(command, &SystemClock);
        let extracted = watched(context.output, "extracting", progress, work).await?;
        for (count, what) in withheld(&extracted).iter().filter(|(count, _)| *count > 0) {
            context.output.say(&format!("warning: {count} {what}"));
        }
        let measured = Measured::new(extracted);
        context.output.result(&measured, |one| {
            let done = &one.result;
            let kept = done.kept.as_ref();
            let kept = kept.map(|kept| format!("\nwhat was there before is `{}`", printable(kept)));
            format!(
                "{}: {} files, {} directories, {} symbolic links, {} hard links; {}; {} ms{}",
                printable(&done.target),
                done.files,
                done.directories,
                done.symlinks,
                done.hard_links,
                size(done.bytes),
                done.elapsed_ms,
                kept.unwrap_or_default(),
            )
        })?;
        Ok(Exit::Done)
    }
}

fn withheld(extracted: &Extracted) -> [(u64, &'static str); 3] {
    [
        (
            extracted.owners_not_kept,
            "entries have another owner than in the archive; root can give them with --owner",
        ),
        (
            extracted.privileges_not_kept,
            "entries lost setuid or setgid; root can give them with --owner",
        ),
        (
            extracted.attributes_not_kept,
            "attributes were not taken by the filesystem",
        ),
    ]
}

impl ArchiveCatArgs {
    async fn run(self, context: &CliContext) -> anyhow::Result<Exit> {
        let entry = entry_path(&self.entry)?;
        let sink = Box::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        let written = archive::cat(
            self.read.command(context, &Arc::default()).await?,
            entry,
            sink,
        )
        .await;
        or_read_enough(written.map(drop).map_err(lost))?;
        Ok(Exit::Done)
    }
}

/// Standard output that nobody reads any more is no fault of the archive.
fn lost(error: Error) -> anyhow::Error {
    match error {
        Error::Archive(ArchiveError::Sink { source, .. }) => OutputLost(source).into(),
        error => error.into(),
    }
}
