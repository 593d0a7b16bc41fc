//! Restoring a dump beside the database, and swapping the two.
//!
//! 1. [`stage`]: a fresh database `<database>_stasis_<tag>` with the dump's encoding and order is created
//! 2. with [`Owners::Keep`] it gets the owner, rights and settings of the database that is there, which no dump restores
//! 3. `pg_restore` fills it, and stops at the first error
//! 4. the rows of every table are counted, which reads all of them
//! 5. [`StagedRestore::swap`]: the old one becomes `<database>_before_<tag>` and the new one `<database>`, in one transaction
//!
//! *Always true:* `<database>` is the old one or the new one, whole, and never absent to a client that connects. An error before
//! 5 drops the fresh database; a crash or a dropped future leaves it, and [`discard_staged`] with the same tag drops it. A
//! crash at 5 is the server's transaction: it did all or nothing.
//!
//! No client may be connected to a database that is renamed. The renaming takes the database's lock first, so that no client
//! else comes in, and then waits up to five seconds for those who are there; meanwhile we end their sessions.
//!
//! Roles belong to a server, not to a database: no dump has them, and the ones it names must be there.

use super::client::{Client, ClientTask};
use super::name::{Tag, conninfo, identifier, literal};
use super::tables::{TableRows, counts_of};
use super::{Connection, Owners, PostgresError, PostgresSettings, dump};
use std::path::Path;
use std::time::Duration;

/// How often those who are still connected are sent away during a swap.
const CHASE: Duration = Duration::from_millis(200);
/// How a statement that creates a database goes on after the name, in every dump.
const TEMPLATE: &str = " WITH TEMPLATE = template0";

/// Makes a fresh database out of a dump, beside the one of that name, which goes on working.
#[tracing::instrument(skip_all, err, fields(database = connection.database()))]
pub async fn stage(
    connection: &Connection,
    dump: &Path,
    tag: &Tag,
    settings: &PostgresSettings,
) -> Result<StagedRestore, PostgresError> {
    let client = Client::new(connection, settings);
    let options = creation(client, dump).await?;
    let mut staged = StagedRestore {
        connection: connection.clone(),
        settings: settings.clone(),
        tag: *tag,
        tables: Vec::new(),
    };
    let name = staged.name();
    if exists(client, &name).await? {
        return Err(PostgresError::Exists { name });
    }
    let create = format!("CREATE DATABASE {}{options}", identifier(&name));
    let within = settings.timeout;
    let maintenance = &settings.maintenance_database;
    client
        .ask_within(
            "create a database on the server of",
            maintenance,
            &create,
            within,
        )
        .await?;
    match fill(client, &name, dump).await {
        Ok(tables) => {
            staged.tables = tables;
            Ok(staged)
        }
        Err(error) => {
            if let Err(left) = staged.discard().await {
                tracing::warn!(database = name, error = %left, "a half restored database is left");
            }
            Err(error)
        }
    }
}

/// Restores a dump and swaps it in, for a caller that has nothing else to verify.
pub async fn restore(
    connection: &Connection,
    dump: &Path,
    tag: &Tag,
    settings: &PostgresSettings,
) -> Result<RestoredDatabase, PostgresError> {
    let staged = stage(connection, dump, tag, settings).await?;
    match staged.swap().await {
        Err(error @ PostgresError::SwapUnknown { .. }) => Err(error),
        Err(error) => {
            if let Err(left) = discard_staged(connection, tag, settings).await {
                tracing::warn!(error = %left, "a restored database is left");
            }
            Err(error)
        }
        restored => restored,
    }
}

/// Drops what a [`stage`] with this tag left when it was killed; nothing is fine.
pub async fn discard_staged(
    connection: &Connection,
    tag: &Tag,
    settings: &PostgresSettings,
) -> Result<(), PostgresError> {
    let client = Client::new(connection, settings);
    drop_database(client, &tag.staged(connection.database())).await
}

/// How the dumped database was created: its encoding and its order, as SQL.
async fn creation(client: Client<'_>, dump: &Path) -> Result<String, PostgresError> {
    let arguments = [
        "--create",
        "--schema-only",
        "--section=pre-data",
        "--file=-",
    ];
    let arguments = arguments.map(AsRef::as_ref);
    let sql = dump::read(client, "read the dump of", dump, &arguments).await?;
    let create = sql
        .lines()
        .find(|line| line.starts_with("CREATE DATABASE ") && line.ends_with(';'));
    let options = create.and_then(|line| line.find(TEMPLATE).map(|at| line[at..].to_owned()));
    options.ok_or(PostgresError::Answer {
        program: "pg_restore",
        wanted: "how the database was created",
    })
}

async fn fill(
    client: Client<'_>,
    name: &str,
    dump: &Path,
) -> Result<Vec<TableRows>, PostgresError> {
    let keep = client.settings.owners == Owners::Keep;
    let old = client.connection.database();
    if keep && exists(client, old).await? {
        let sql = likeness(old, name);
        let maintenance = &client.settings.maintenance_database;
        client
            .ask("give the rights of the old database to", maintenance, &sql)
            .await?;
    }
    let task = ClientTask {
        doing: "restore",
        program: "pg_restore",
        database: name,
        limit: client.settings.timeout,
    };
    let mut command = client.command(&task);
    command.args(["--exit-on-error", "--no-password", "--dbname"]);
    command.arg(conninfo(name));
    if !keep {
        command.args(["--no-owner", "--no-privileges"]);
    }
    command.arg("--").arg(dump);
    client.run(&task, command, "").await?;
    counts_of(client, name).await
}

/// SQL that gives a database what another one has of its own: owner, rights, settings.
fn likeness(old: &str, new: &str) -> String {
    let (old, new) = (literal(old), literal(new));
    format!(
        r"
BEGIN;
SELECT format('ALTER DATABASE %I OWNER TO %I', {new}, pg_get_userbyid(datdba))
  FROM pg_catalog.pg_database WHERE datname = {old} \gexec
SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC', {new})
  FROM pg_catalog.pg_database WHERE datname = {old} AND datacl IS NOT NULL \gexec
SELECT format('GRANT %s ON DATABASE %I TO %s%s', a.privilege_type, {new},
              CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END,
              CASE WHEN a.is_grantable AND a.grantee <> d.datdba THEN ' WITH GRANT OPTION' ELSE '' END)
  FROM pg_catalog.pg_database d, aclexplode(d.datacl) a WHERE d.datname = {old} \gexec
SELECT format('%s SET %I TO %s',
              CASE s.setrole WHEN 0 THEN format('ALTER DATABASE %I', {new})
                             ELSE format('ALTER ROLE %I IN DATABASE %I', pg_get_userbyid(s.setrole), {new}) END,
              split_part(c, '=', 1),
              CASE WHEN split_part(c, '=', 1) IN ('search_path', 'temp_tablespaces', 'local_preload_libraries',
                                                  'session_preload_libraries', 'unix_socket_directories')
                   THEN substr(c, strpos(c, '=') + 1) ELSE quote_literal(substr(c, strpos(c, '=') + 1)) END)
  FROM pg_catalog.pg_db_role_setting s JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase, unnest(s.setconfig) c
 WHERE d.datname = {old} \gexec
COMMIT;
"
    )
}

async fn exists(client: Client<'_>, name: &str) -> Result<bool, PostgresError> {
    let maintenance = &client.settings.maintenance_database;
    let name = literal(name);
    let sql = format!("SELECT count(*) FROM pg_catalog.pg_database WHERE datname = {name}");
    let asked = client.ask("look for databases on the server of", maintenance, &sql);
    Ok(asked.await?.trim() != "0")
}

pub(super) async fn drop_database(client: Client<'_>, name: &str) -> Result<(), PostgresError> {
    let maintenance = &client.settings.maintenance_database;
    let sql = format!(
        "{};\nDROP DATABASE IF EXISTS {}",
        farewell(&[name]),
        identifier(name)
    );
    let within = client.settings.timeout;
    let dropped = client.ask_within(
        "drop a database on the server of",
        maintenance,
        &sql,
        within,
    );
    dropped.await.map(|_| ())
}

/// SQL that ends every session in some databases.
fn farewell(databases: &[&str]) -> String {
    let names: Vec<String> = databases.iter().map(|name| literal(name)).collect();
    format!(
        "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity WHERE pid <> pg_backend_pid() AND datname IN ({})",
        names.join(", ")
    )
}

/// Renames databases, all or none, also while clients are connected to them.
async fn rename(client: Client<'_>, names: &[(&str, &str)]) -> Result<(), PostgresError> {
    let maintenance = &client.settings.maintenance_database;
    let statements: Vec<String> = names
        .iter()
        .map(|(from, to)| {
            let (from, to) = (identifier(from), identifier(to));
            format!("ALTER DATABASE {from} RENAME TO {to};")
        })
        .collect();
    let sql = format!("BEGIN;\n{}\nCOMMIT;", statements.join("\n"));
    let connected: Vec<&str> = names.iter().map(|(from, _)| *from).collect();
    let farewell = farewell(&connected);
    let chase = async {
        loop {
            // A session that may not be ended stays, and the renaming says so.
            let doing = "end the sessions of";
            let _ = client.ask(doing, maintenance, &farewell).await;
            tokio::time::sleep(CHASE).await;
        }
    };
    tokio::select! {
        renamed = client.ask("rename databases on the server of", maintenance, &sql) => renamed.map(|_| ()),
        () = chase => unreachable!("the chase ends with the renaming"),
    }
}

/// A restored database under a name of its own.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "a staged database is swapped or discarded"]
pub struct StagedRestore {
    connection: Connection,
    settings: PostgresSettings,
    tag: Tag,
    tables: Vec<TableRows>,
}

impl StagedRestore {
    /// The name it has until it is swapped.
    pub fn name(&self) -> String {
        self.tag.staged(self.connection.database())
    }

    /// How many rows each table has.
    pub fn tables(&self) -> &[TableRows] {
        &self.tables
    }

    fn client(&self) -> Client<'_> {
        Client::new(&self.connection, &self.settings)
    }

    /// Puts it in the place of the database, which is kept under another name.
    ///
    /// Ends the sessions of all clients that are connected. After an error the old one has its name still, and this is still
    /// staged; only [`PostgresError::SwapUnknown`] leaves that open.
    #[tracing::instrument(skip_all, err, fields(database = self.connection.database()))]
    pub async fn swap(self) -> Result<RestoredDatabase, PostgresError> {
        let client = self.client();
        let (database, staged) = (self.connection.database(), self.name());
        let backup = self.tag.before(database);
        let had_one = exists(client, database).await?;
        if exists(client, &backup).await? {
            return Err(PostgresError::Exists { name: backup });
        }
        let all = [(database, backup.as_str()), (staged.as_str(), database)];
        let names = if had_one { &all[..] } else { &all[1..] };
        if let Err(error) = rename(client, names).await {
            // The answer may be lost though it was done.
            let done = if had_one { &backup } else { database };
            match exists(client, done).await {
                Ok(false) => return Err(error),
                Ok(true) => {}
                Err(_) => {
                    return Err(PostgresError::SwapUnknown {
                        database: database.to_owned(),
                        backup,
                        source: Box::new(error),
                    });
                }
            }
        }
        tracing::info!(database, had_one, "database swapped");
        Ok(RestoredDatabase {
            backup: had_one.then_some(backup),
            staged: self,
        })
    }

    /// Drops it.
    pub async fn discard(self) -> Result<(), PostgresError> {
        drop_database(self.client(), &self.name()).await
    }
}

/// A database that was restored and has its name.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "the old database is kept until it is dropped or swapped back"]
pub struct RestoredDatabase {
    staged: StagedRestore,
    backup: Option<String>,
}

impl RestoredDatabase {
    /// Where the old database is, if there was one.
    pub fn backup(&self) -> Option<&str> {
        self.backup.as_deref()
    }

    /// How many rows each table had before it was swapped in.
    pub fn tables(&self) -> &[TableRows] {
        &self.staged.tables
    }

    /// Drops the old database: there is no way back.
    pub async fn drop_backup(self) -> Result<(), PostgresError> {
        match &self.backup {
            Some(backup) => drop_database(self.staged.client(), backup).await,
            None => Ok(()),
        }
    }

    /// Gives the old database its name again, if there was one; what was restored is staged again.
    pub async fn swap_back(self) -> Result<StagedRestore, PostgresError> {
        let client = self.staged.client();
        let (database, staged) = (self.staged.connection.database(), self.staged.name());
        let mut names = vec![(database, staged.as_str())];
        names.extend(self.backup.as_deref().map(|backup| (backup, database)));
        if let Err(error) = rename(client, &names).await
            && !exists(client, &staged).await.unwrap_or(false)
        {
            return Err(error);
        }
        Ok(self.staged)
    }
}
