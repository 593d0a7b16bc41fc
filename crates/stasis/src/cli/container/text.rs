//! What commands of containers say.

use crate::cli::byte_size::size;
use crate::cli::output::{plural, printable, short, table, word};
use crate::cli::system_clock;
use stasis_engine::kind::container::{
    ContainerDiff, ContainerExported, ContainerImported, ContainerRestored, ContainerSaveBegun,
    ContainerSaved, ContainerSnapshotRow, ContainerSnapshotShown, ContainerSnapshotStatus,
    ContainerSnapshots, ContainerSnapshotsDeleted, ContainerValidated, ContainersCleaned,
    ContainersStats, ExportLayout, MountValidated, NotCaptured, RestoreMode, SettingDifference,
    tenant_option,
};
use stasis_engine::model::id::SnapshotId;
use stasis_engine::model::time::{Clock as _, Timestamp};
use std::time::Duration;

pub(super) fn validated(one: &ContainerValidated) -> String {
    let mut lines = vec![match &one.refused {
        None => format!(
            "Of {} ({}, {}) a snapshot can be made",
            one.container, one.image, one.status
        ),
        Some(why) => format!(
            "Of {} ({}) no snapshot can be made: {why}",
            one.container, one.image
        ),
    }];
    if !one.mounts.is_empty() {
        let head = ["MOUNT", "KIND", "SIZE", "TRAVELS", "FROM"];
        lines.push(table(&head, one.mounts.iter().map(mount).collect()));
    }
    lines.push(stays_behind(&one.not_captured));
    lines.join("\n")
}

fn mount(mount: &MountValidated) -> Vec<String> {
    let bytes = mount
        .bytes
        .zip(mount.files)
        .map(|(bytes, files)| format!("{} in {}", size(bytes), plural(files, "file")));
    vec![
        mount.destination.clone(),
        mount.kind.replace('_', " "),
        bytes.unwrap_or_else(|| "?".to_owned()),
        if mount.travels { "yes" } else { "no" }.to_owned(),
        source(mount),
    ]
}

/// Where it comes from; what the engine named is told by its beginning.
fn source(mount: &MountValidated) -> String {
    let begins = mount.source.get(..12);
    match begins.filter(|_| mount.kind == "anonymous_volume") {
        Some(begins) => format!("{begins}..."),
        None => mount.source.clone(),
    }
}

fn stays_behind(left: &[NotCaptured]) -> String {
    let left: Vec<String> = left.iter().map(left_out).collect();
    format!("Stays behind: {}", left.join(", "))
}

fn left_out(one: &NotCaptured) -> String {
    match &one.option {
        Some(option) => format!("{} ({option} saves it)", one.what),
        None => one.what.clone(),
    }
}

pub(super) fn saved(one: &ContainerSaved) -> String {
    let mut lines = vec![format!(
        "Saved {} as {} in {} ms; it stood still for {} ms",
        one.container_name,
        short(&one.snapshot_id),
        one.elapsed_ms,
        one.frozen_ms
    )];
    let portable = if one.portable {
        "its layers are in the store"
    } else {
        "on this engine only"
    };
    lines.push(format!(
        "  image    {} ({}, {portable})",
        one.image,
        size(one.image_bytes)
    ));
    for volume in &one.volumes {
        lines.push(format!(
            "  volume   {} at {} ({})",
            printable(&volume.name),
            volume.mount_paths.join(", "),
            size(volume.bytes)
        ));
    }
    if !one.volumes.is_empty() {
        lines.push(format!("  stored   {}", size(one.bytes_stored)));
    }
    for database in &one.unsound_databases {
        lines.push(format!(
            "  warning: {}: no committed state of this database could be stored ({})",
            printable(&database.path),
            printable(&database.reason)
        ));
    }
    lines.push(stays_behind(&one.not_captured));
    for gone in &one.removed {
        lines.push(format!(
            "Removed {} of {}: {}",
            short(&gone.snapshot_id),
            gone.container_name,
            gone.because
        ));
    }
    lines.push(format!(
        "Make a container of it with: stasis container restore {}{}",
        short(&one.snapshot_id),
        tenant_option(&one.tenant)
    ));
    lines.join("\n")
}

pub(super) fn restored(one: &ContainerRestored) -> String {
    let what = match (one.mode, one.dry_run) {
        (RestoreMode::New, false) => "Made",
        (RestoreMode::New, true) => "Would make",
        (RestoreMode::Replace, false) => "Replaced",
        (RestoreMode::Replace, true) => "Would save, stop and replace",
    };
    let runs = match (one.started, one.dry_run) {
        (true, false) => "runs",
        (true, true) => "would run",
        (false, false) => "is not started",
        (false, true) => "would not be started",
    };
    let mut lines = vec![format!(
        "{what} {} from {}: it {runs}",
        one.container_name,
        short(&one.snapshot_id)
    )];
    for volume in &one.volumes {
        let from = if volume.name == volume.from {
            String::new()
        } else {
            format!(", a copy of {}", printable(&volume.from))
        };
        lines.push(format!(
            "  volume   {} at {} ({}{from})",
            printable(&volume.name),
            volume.mount_paths.join(", "),
            size(volume.bytes)
        ));
    }
    for (inside, outside) in &one.ports {
        let outside: Vec<&str> = outside
            .iter()
            .map(|port| {
                if port.is_empty() {
                    "a port that the engine chooses (docker port)"
                } else {
                    port
                }
            })
            .collect();
        lines.push(format!("  port     {inside} on {}", outside.join(", ")));
    }
    if !one.not_restored.is_empty() {
        lines.push(format!(
            "Not what it was, because no snapshot has it: {}",
            one.not_restored.join(", ")
        ));
    }
    if let Some(safety) = &one.safety_snapshot_id {
        lines.push(way_back(one, safety));
    }
    lines.join("\n")
}

fn way_back(one: &ContainerRestored, safety: &SnapshotId) -> String {
    let id = short(safety);
    let command = if one.tenant.is_default() {
        format!("stasis undo container:{}", one.container_name)
    } else {
        let option = tenant_option(&one.tenant);
        format!("stasis container restore {id} --mode replace{option}")
    };
    format!("What there was is saved as {id}; take it back with: {command}")
}

pub(super) fn begun(one: &ContainerSaveBegun) -> String {
    format!(
        "{} is being saved as {}; look with: stasis container show {}{}",
        printable(&one.container),
        one.snapshot_id,
        short(&one.snapshot_id),
        tenant_option(&one.tenant)
    )
}

pub(super) fn exported(one: &ContainerExported) -> String {
    let (id, name) = (short(&one.snapshot_id), &one.container_name);
    let volumes = plural(one.volumes, "volume");
    let bytes = size(one.bytes);
    match one.layout {
        ExportLayout::File => format!(
            "Exported {id} of {name} with its image and {volumes} to {} ({bytes})\nOn another host: stasis container import FILE --restore",
            printable(&one.target)
        ),
        ExportLayout::Seed => format!(
            "Exported {id} of {name} with {volumes} to {} ({bytes}); its image stays on the engine",
            printable(&one.target)
        ),
    }
}

pub(super) fn imported(one: &ContainerImported) -> String {
    let (id, name) = (short(&one.snapshot_id), &one.container_name);
    format!(
        "Imported {name} as {id} ({}); make a container of it with: stasis container restore {id}{}",
        plural(one.volumes.len() as u64, "volume"),
        tenant_option(&one.tenant)
    )
}

pub(super) fn list(all: &ContainerSnapshots) -> String {
    if all.items.is_empty() {
        return "nothing is saved of any container yet: `stasis container create CONTAINER` saves one"
            .to_owned();
    }
    let now = system_clock().now();
    let row = |one: &ContainerSnapshotRow| {
        let mut marks = Vec::new();
        if one.is_latest {
            marks.push("latest".to_owned());
        }
        if one.pinned {
            marks.push("pinned".to_owned());
        }
        if one.portable {
            marks.push("portable".to_owned());
        }
        if one.status != ContainerSnapshotStatus::Complete {
            marks.push(one.status.to_string());
        }
        let why = if word(&one.reason) == "before-restore" {
            "before a restore".to_owned()
        } else {
            one.trigger.to_string()
        };
        vec![
            short(&one.snapshot_id),
            one.container_name.clone(),
            Timestamp::from_millis(one.created_at_ms).age(now),
            why,
            size(one.size_bytes),
            marks.join(", "),
            printable(one.description.as_str()),
        ]
    };
    let head = [
        "SNAPSHOT",
        "CONTAINER",
        "AGE",
        "TRIGGER",
        "SIZE",
        "",
        "DESCRIPTION",
    ];
    table(&head, all.items.iter().map(row).collect())
}

pub(super) fn shown(one: &ContainerSnapshotShown) -> String {
    let row = &one.row;
    let mut rows = vec![
        ("snapshot", row.snapshot_id.to_string()),
        (
            "container",
            format!("{} ({})", row.container_name, short(&row.container_id)),
        ),
        ("made", row.created_at.clone()),
        ("trigger", row.trigger.to_string()),
        ("status", row.status.to_string()),
        ("was", one.container_status.clone()),
        ("image", format!("{} of {}", row.image, row.original_image)),
        ("size", size(row.size_bytes)),
        (
            "portable",
            if row.portable { "yes" } else { "no" }.to_owned(),
        ),
    ];
    let said = [
        ("description", Some(&row.description)),
        ("run", row.run_id.as_ref()),
        ("context", row.action_context.as_ref()),
    ];
    for (name, text) in said {
        if let Some(text) = text.filter(|text| !text.as_str().is_empty()) {
            rows.push((name, printable(text.as_str())));
        }
    }
    for (key, value) in &row.labels {
        rows.push(("label", printable(&format!("{key}={value}"))));
    }
    for volume in &one.volumes {
        let places = volume.mount_paths.join(", ");
        let text = format!(
            "{} at {places} ({})",
            printable(&volume.name),
            size(volume.bytes)
        );
        rows.push(("volume", text));
    }
    let environment = one.config["Env"].as_array().into_iter().flatten();
    for variable in environment.filter_map(|one| one.as_str()) {
        rows.push(("variable", printable(variable)));
    }
    for made in &one.restorations {
        let text = format!(
            "{} ({}) at {}",
            made.container_name,
            short(&made.container_id),
            made.at
        );
        rows.push(("restored", text));
    }
    let mut lines: Vec<String> = rows
        .into_iter()
        .map(|(name, text)| format!("{name:<12} {text}"))
        .collect();
    lines.push(stays_behind(&one.not_captured));
    lines.join("\n")
}

pub(super) fn deleted(one: &ContainerSnapshotsDeleted) -> String {
    let ids: Vec<String> = one.deleted.iter().map(short).collect();
    let what = if one.dry_run {
        "Would delete"
    } else {
        "Deleted"
    };
    let mut lines = vec![format!("{what} {}", ids.join(", "))];
    for kept in &one.images_kept {
        lines.push(format!("its image is still there: {}", printable(kept)));
    }
    lines.join("\n")
}

pub(super) fn cleaned(one: &ContainersCleaned) -> String {
    let (removed, back) = if one.dry_run {
        ("Would remove", "Would bring back")
    } else {
        ("Removed", "Brought back")
    };
    let mut lines = Vec::new();
    for name in &one.brought_back {
        let or_kept = if one.dry_run {
            ", unless the new one works"
        } else {
            ""
        };
        lines.push(format!(
            "{back} {name}: its replacement had been interrupted{or_kept}"
        ));
    }
    let kept = if one.dry_run { "Would keep" } else { "Kept" };
    for name in &one.ended {
        lines.push(format!(
            "{kept} {name}: its replacement had been interrupted, and the new one works"
        ));
    }
    for gone in &one.snapshots {
        lines.push(format!(
            "{removed} {} of {}: {}",
            short(&gone.snapshot_id),
            gone.container_name,
            gone.because
        ));
    }
    let kinds = [
        ("image", &one.images),
        ("container", &one.containers),
        ("volume", &one.volumes),
    ];
    for (kind, names) in kinds {
        for name in names {
            lines.push(format!("{removed} the {kind} {name}, which nothing needs"));
        }
    }
    for image in &one.images_in_use {
        lines.push(format!("the image {image} stays while a container uses it"));
    }
    for left in &one.left {
        lines.push(format!("not removed: {}", printable(left)));
    }
    if let Some(doubt) = &one.clock_doubt {
        lines.push(format!("nothing went because of its age: {doubt}"));
    }
    if one.bytes_removed > 0 {
        lines.push(format!(
            "{} of the store are free again",
            size(one.bytes_removed)
        ));
    }
    if lines.is_empty() {
        return "nothing had to be removed".to_owned();
    }
    lines.join("\n")
}

pub(super) fn stats(one: &ContainersStats) -> String {
    let now = system_clock().now();
    let rows = one.items.iter().map(|row| {
        vec![
            row.container_name.clone(),
            row.snapshots.to_string(),
            size(row.image_bytes),
            size(row.chunk_bytes),
            Timestamp::from_millis(row.newest_ms).age(now),
        ]
    });
    let head = ["CONTAINER", "SNAPSHOTS", "IMAGES", "STORED", "NEWEST"];
    let mut lines = vec![table(&head, rows.collect())];
    let bytes = one.image_bytes + one.chunk_bytes;
    lines.push(format!(
        "{} of {}, {} of {}; at most {} of one container, for {}",
        one.snapshots,
        plural(one.max_snapshots, "snapshot"),
        size(bytes),
        size(one.max_bytes),
        one.max_per_container,
        crate::cli::duration::text(Duration::from_secs(one.max_age_s))
    ));
    let triggers = one.triggers.iter();
    let triggers: Vec<String> = triggers
        .map(|(trigger, count)| format!("{trigger} {count}"))
        .collect();
    if !triggers.is_empty() {
        lines.push(format!("by trigger: {}", triggers.join(", ")));
    }
    if one.before_restore > 0 {
        lines.push(format!(
            "{} of what restores replaced, for undo",
            plural(one.before_restore, "snapshot")
        ));
    }
    if one.broken > 0 {
        lines.push(format!(
            "{} broken: the image is gone; `stasis container cleanup --orphans` removes them",
            plural(one.broken, "snapshot")
        ));
    }
    lines.join("\n")
}

pub(super) fn diff(one: &ContainerDiff) -> String {
    let mut lines = Vec::new();
    for setting in &one.config {
        lines.push(setting_line(setting));
    }
    for file in &one.image {
        let mark = match file.change.as_str() {
            "added" => 'A',
            "deleted" => 'D',
            _ => 'C',
        };
        lines.push(format!("{mark} {}", printable(&file.path)));
    }
    for entry in &one.volumes {
        let path = printable(&entry.path);
        lines.push(format!(
            "volume {}: {path} ({})",
            printable(&entry.volume),
            entry.change
        ));
    }
    for left in &one.not_compared {
        lines.push(format!("not compared: {}", printable(left)));
    }
    lines.join("\n")
}

fn setting_line(one: &SettingDifference) -> String {
    let text = |value: &Option<serde_json::Value>| {
        let value = value.as_ref().map(ToString::to_string);
        printable(&value.unwrap_or_else(|| "-".to_owned()))
    };
    format!(
        "{}: {} -> {}",
        one.setting,
        text(&one.before),
        text(&one.after)
    )
}
