//! The shop's database: orders in SQLite, written and read by SQLite itself, as the shop would.

use super::shop::noise;
use crate::error::{Error, ErrorKind};
use rusqlite::{Connection, OpenFlags};
use stasis_model::failure::Failure;
use stasis_model::time::Clock;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// How many orders the shop has had.
const ORDERS: u32 = 1204;
/// How many lines the invoice of an order has.
const INVOICE_LINES: usize = 120;
/// One order in so many is still to be sent.
const OPEN_EVERY: u32 = 8;

/// What the shop's report asks.
const REPORT: &str = "select count(*), sum(total_cents) from orders where status = 'open'";
/// How often it is asked, for a median.
const ASKED: usize = 15;

/// A database file.
#[derive(Clone, Debug)]
pub(super) struct ShopDatabase(PathBuf);

impl ShopDatabase {
    /// The database of the shop in a directory.
    pub(super) fn of(shop: &Path) -> Self {
        Self(shop.join("data/shop.db"))
    }

    /// Whether there is one.
    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Makes it, with all orders.
    pub(super) fn fill(&self) -> Result<(), Error> {
        self.change(|db| {
            db.execute_batch(
                "create table orders (id integer primary key, status text not null, total_cents integer not null,
                                      customer text not null, invoice text not null)",
            )?;
            let mut insert = db.prepare("insert into orders values (?1, ?2, ?3, ?4, ?5)")?;
            for id in 1..=ORDERS {
                let status = if id % OPEN_EVERY == 0 { "open" } else { "sent" };
                let cents = id * 7_919 % 20_000 + 500;
                let customer = format!("customer-{}", id * 31 % 400);
                insert.execute((id, status, cents, customer, invoice(id)))?;
            }
            Ok(())
        })
    }

    /// Changes an order, as the shop does all day.
    pub(super) fn send_order(&self, number: u32) -> Result<(), Error> {
        let id = number * OPEN_EVERY;
        self.change(|db| {
            let paid = format!("customer-{number} (paid)");
            db.execute("update orders set customer = ?1 where id = ?2", (paid, id))?;
            Ok(())
        })
    }

    /// Runs statements of an agent.
    pub(super) fn run(&self, statements: &str) -> Result<(), Error> {
        // What rebuilds the file cannot run in a transaction.
        self.with(OpenFlags::SQLITE_OPEN_READ_WRITE, |db| {
            db.execute_batch(statements)
        })
    }

    /// Counts the orders.
    pub(super) fn orders(&self) -> Result<u64, Error> {
        let count: i64 =
            self.read(|db| db.query_row("select count(*) from orders", [], |row| row.get(0)))?;
        Ok(count.unsigned_abs())
    }

    /// What SQLite says when it has looked at everything: `ok`.
    pub(super) fn integrity(&self) -> Result<String, Error> {
        self.read(|db| db.query_row("pragma integrity_check", [], |row| row.get(0)))
    }

    /// What the report says, and how long it takes in nanoseconds: the median.
    pub(super) fn report(&self, clock: &dyn Clock) -> Result<(String, u64), Error> {
        self.read(|db| {
            let mut report = db.prepare(REPORT)?;
            let (mut times, mut answer) = (Vec::new(), String::new());
            for _ in 0..ASKED {
                let started = clock.uptime();
                let (count, cents): (i64, i64) =
                    report.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
                times.push(clock.uptime().saturating_sub(started).as_nanos());
                answer = format!("{count} open orders, {cents} cents");
            }
            times.sort_unstable();
            let median = u64::try_from(times[times.len() / 2]).unwrap_or(u64::MAX);
            Ok((answer, median))
        })
    }

    fn read<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        self.with(OpenFlags::SQLITE_OPEN_READ_ONLY, ask)
    }

    fn change(
        &self,
        change: impl FnOnce(&Connection) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        self.with(flags, |db| {
            // A shop that is deleted in a moment need not wait for the disk.
            db.execute_batch("pragma synchronous = off; begin")?;
            change(db)?;
            db.execute_batch("commit")
        })
    }

    fn with<T>(
        &self,
        flags: OpenFlags,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let done = Connection::open_with_flags(&self.0, flags).and_then(|db| work(&db));
        done.map_err(|error| {
            let failure = Failure::new(ErrorKind::Failed, "use the database", self.0.display());
            failure.because(error).into()
        })
    }
}

/// The text of an invoice: it repeats itself as invoices do, but for its numbers.
fn invoice(id: u32) -> String {
    let numbers = noise(id.into(), INVOICE_LINES * 4);
    let mut text = format!("Invoice {id}\n");
    for (line, number) in numbers.chunks_exact(4).enumerate() {
        let number = u32::from_le_bytes([number[0], number[1], number[2], number[3]]);
        let _ = writeln!(
            text,
            "{:>3}  item {number:>10}  1 piece  {:>6} cents",
            line + 1,
            number % 9000
        );
    }
    text
}
