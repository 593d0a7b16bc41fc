//! Sessions with the real program, as a person or a script would have them.

#![expect(
    clippy::disallowed_methods,
    reason = "tests damage files and measure time on purpose"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]

mod access;
mod agents;
mod agreed;
mod archive;
mod bad_input;
mod browser_frameworks;
mod check;
mod clone;
mod completions;
mod copy;
mod crash_points;
mod demo;
mod directory_restore;
mod directory_unreadable;
mod doctor;
mod document_matrix;
mod encrypted;
mod encrypted_hostile;
mod envelope;
mod everyday;
mod everyday_check;
mod fork_crash;
mod forks;
mod guide;
mod help;
mod hold;
mod hook;
mod hook_late;
mod hook_trial;
mod lease;
mod live_databases;
mod man;
mod mount;
mod package;
mod profile;
mod profile_agents;
mod profile_chromium;
mod profile_crash;
mod profile_everyday;
mod profile_hosts;
mod profile_metrics;
mod profile_operators;
mod profile_upgrade;
mod progress;
mod project;
mod project_crash;
mod project_databases;
mod project_in_place;
mod project_latest;
mod project_restore;
mod protect;
mod read_only;
mod reference;
mod remedies;
mod repair;
mod repair_crash;
mod repo;
mod repo_beside;
mod repo_crash;
mod repo_damage;
mod repo_world;
mod retention;
mod rewind;
mod s3;
mod screens;
mod session;
mod store_kinds;
mod store_matrix;
mod store_repair;
mod subjects;
mod suggestions;
mod talk;
mod timeline;
mod unknown;
mod workspace;
mod workspace_attributes;
mod workspace_back;
mod workspace_crash;
mod workspace_damage;
mod workspace_databases;
mod workspace_edges;
mod workspace_full;
mod workspace_git;
mod workspace_patch;
mod workspace_undo;
mod workspace_unreadable;
mod workspace_versions;
mod workspace_watch;
mod workspace_writers;
