//! A volume that is a Postgres server: it is asked for a dump, which is stored instead of its files.
//!
//! The dump is written to a file of ours before anything of it is stored, because it must be proven first: its exit code,
//! its size, and that `pg_restore` reads it.

use super::ProjectCapture;
use crate::error::{Error, ProjectError};
use crate::kind::project::{Project, dotenv, or_cancelled};
use stasis_disk::tree::staging_view;
use stasis_model::format::manifest::Consistency;
use stasis_model::id::VolumeName;
use stasis_model::project::VolumeConfig;
use stasis_model::tree::FileTime;
use stasis_quiesce::postgres::{self, Connection, PostgresSettings};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

impl ProjectCapture {
    /// Asks the server for a dump.
    pub(in crate::kind::project) async fn postgres_volume(
        &mut self,
        project: &Project,
        name: &VolumeName,
        volume: &VolumeConfig,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let connection = project.connection(name, volume)?;
        let mut looks = staging_view::look_at(self.view.root())?.metadata();
        // A dump has no time of its own: the snapshot has.
        (looks.mode, looks.modified) = (0o700, FileTime::default());
        let way = self.place(name).to_string();
        let directory = self.view.directory(&way, looks)?;
        // In the application's own tree the directory above stands in for all of them.
        if !way.starts_with(".stasis/") {
            self.graft(&way, directory.clone());
        }
        let target = dump_in(&directory, name);
        let settings = project.postgres();
        let dumped = postgres::dump(&connection, &target, &settings);
        let dumped = or_cancelled(cancel, dumped).await?;
        let dumped = dumped.map_err(|source| ProjectError::Postgres {
            volume: name.clone(),
            source: Box::new(source),
        })?;
        looks.mode = 0o600;
        self.view.shall_look(target, looks);
        let mut facts = self.facts(name, Consistency::Postgres, "pg_dump-custom", "ok");
        let details = &mut facts.manifest.details;
        details.insert("serverVersion".to_owned(), dumped.server_version.into());
        details.insert("dumpVersion".to_owned(), dumped.dump_version.into());
        details.insert("entries".to_owned(), dumped.entries.into());
        self.volumes.insert(name.to_string(), facts);
        Ok(())
    }
}

/// Where the dump of a volume is.
pub(in crate::kind::project) fn dump_in(directory: &Path, name: &VolumeName) -> PathBuf {
    directory.join(format!("{name}.dump"))
}

impl Project {
    /// Where the server of a volume is.
    pub(in crate::kind::project) fn connection(
        &self,
        name: &VolumeName,
        volume: &VolumeConfig,
    ) -> Result<Connection, Error> {
        let variable = volume.url_env.as_ref();
        let url = match (&volume.url, variable) {
            (Some(url), _) => url,
            (None, Some(variable)) => {
                let found = self.host.variables.get(variable).cloned();
                // As the application's own tools do: what the environment says goes before what the file says.
                let found = found.or_else(|| dotenv::value(&self.home.dir, variable));
                &found.ok_or_else(|| ProjectError::NoVariable {
                    volume: name.clone(),
                    variable: variable.clone(),
                })?
            }
            (None, None) => unreachable!("the file was checked: a server has an address"),
        };
        let connection = Connection::parse(url).map_err(|source| ProjectError::Url {
            volume: name.clone(),
            source,
        })?;
        Ok(connection)
    }

    /// How the programs of Postgres are found.
    pub(in crate::kind::project) fn postgres(&self) -> PostgresSettings {
        let mut settings = PostgresSettings::default();
        if let Some(path) = self.host.variables.get("PATH") {
            settings.search_path = path.into();
        }
        settings
    }
}
