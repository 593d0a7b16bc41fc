//! The engine's parts, by noun: `engine.profiles().save(…)`, `engine.dirs().restore(…)`.
//!
//! A handle is a borrowed [`Engine`] under the name of what it acts on. It costs nothing to make, so it is never kept: its
//! methods take it by value, and everything behind it (store, clock, key) is the engine's.

use crate::open::Engine;
use std::ops::Deref;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident, $(#[$how:meta])* $accessor:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name<'a> {
                pub(crate) engine: &'a Engine,
            }

            impl Deref for $name<'_> {
                type Target = Engine;

                fn deref(&self) -> &Engine {
                    self.engine
                }
            }
        )*

        impl Engine {
            $(
                $(#[$how])*
                pub fn $accessor(&self) -> $name<'_> {
                    $name { engine: self }
                }
            )*
        }
    };
}

handles! {
    /// Browser profiles: save, load, run, roll back, fork.
    Profiles,
    /// Browser profiles and their snapshots.
    profiles;

    /// Directories saved in chunks: save, restore, diff, check, gc.
    DirRepo,
    /// Directories and their snapshots.
    dirs;

    /// Sessions of agents: register, sleep, wake, reap.
    Sessions,
    /// Sessions and their snapshots.
    sessions;

    /// Containers of a Docker engine: snapshots of them with their volumes.
    Containers,
    /// Containers and their snapshots.
    containers;

    /// Leases of profiles: acquire, renew, release, hold, reap.
    Leases,
    /// Who may write which profile.
    leases;

    /// Policies of tenants.
    TenantPolicies,
    /// What tenants allow.
    tenants;

    /// Forced, destructive and degraded acts.
    AuditLog,
    /// The log of forced, destructive and degraded acts.
    events;

    /// Acts whose outcome was unknown when they ended.
    Operations,
    /// What became of acts with an unknown outcome.
    operations;

    /// Requests of the service that outlive their connection.
    Requests,
    /// What was asked of the service, and what became of it.
    requests;

    /// Tokens of the service.
    Tokens,
    /// Who may ask the service, and for what.
    tokens;

    /// Work that servers do without being asked.
    Jobs,
    /// What servers do without being asked, and what became of it.
    jobs;

    /// Whether the store keeps what its interface promises.
    StoreHealth,
    /// The store itself: whether it is reachable and can be trusted.
    store;
}
