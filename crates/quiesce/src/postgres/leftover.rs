//! Databases that restores left beside the one in use: the one from before, kept on purpose, or one that was never swapped.
//!
//! Nothing but their names says what they are: `<database>_before_<tag>` and `<database>_stasis_<tag>`, where the tag is
//! the second in which the restore began.

use super::client::Client;
use super::name::{Tag, Word};
use super::restore::drop_database;
use super::{Connection, PostgresError, PostgresSettings};

/// A database that a restore left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftoverDatabase {
    /// Its name on the server.
    pub name: String,
    /// When the restore began, in seconds since 1970.
    pub second: u32,
}

/// Finds what restores of a database left on its server, the oldest first.
pub async fn leftovers(
    connection: &Connection,
    settings: &PostgresSettings,
) -> Result<Vec<LeftoverDatabase>, PostgresError> {
    let client = Client::new(connection, settings);
    let sql = "SELECT datname FROM pg_catalog.pg_database WHERE NOT datistemplate";
    let maintenance = &settings.maintenance_database;
    let listed = client
        .ask("look for databases on the server of", maintenance, sql)
        .await?;
    let names = listed.lines();
    let mut found: Vec<LeftoverDatabase> = names
        .filter_map(|name| leftover(connection.database(), name))
        .collect();
    found.sort_by(|one, other| (one.second, &one.name).cmp(&(other.second, &other.name)));
    Ok(found)
}

/// Drops a database that a restore left, also while clients are connected to it.
pub async fn drop_leftover(
    connection: &Connection,
    leftover: &LeftoverDatabase,
    settings: &PostgresSettings,
) -> Result<(), PostgresError> {
    drop_database(Client::new(connection, settings), &leftover.name).await
}

fn leftover(database: &str, name: &str) -> Option<LeftoverDatabase> {
    let tag = Tag::parse(name.get(name.len().checked_sub(8)?..)?)?;
    let mut words = [Word::Staged, Word::Before].into_iter();
    let is_ours = words.any(|word| tag.name(database, word) == name);
    is_ours.then(|| LeftoverDatabase {
        name: name.to_owned(),
        second: tag.second(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_restore_of_this_database_made_is_a_leftover() {
        let second = |name: &str| leftover("shop", name).map(|one| one.second);

        assert_eq!(second("shop_before_00c0ffee"), Some(0x00c0_ffee));
        assert_eq!(second("shop_stasis_00c0ffee"), Some(0x00c0_ffee));
        for other in [
            "shop",
            "shop2_before_00c0ffee",
            "shop_before_christmas",
            "shop_before_00c0ffee_copy",
            "shop_stasis_00C0FFEE",
            "ä",
        ] {
            assert_eq!(second(other), None, "{other}");
        }
    }
}
