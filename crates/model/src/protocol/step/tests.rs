use super::*;
use crate::format::pointer::PointerAct;

mod lock;
mod pointer;

/// A moment that is neither the first nor the last.
const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const TTL: Duration = Duration::from_mins(5);
const GRACE: Duration = Duration::from_mins(1);
const A_MILLISECOND: Duration = Duration::from_millis(1);

fn op(byte: u8) -> OpId {
    OpId::from_random([byte; 16])
}

fn fence(epoch: u64, byte: u8) -> Fence {
    Fence {
        epoch: Epoch(epoch),
        op_id: op(byte),
    }
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn holder(name: &str) -> Holder {
    Holder {
        run_id: label(name),
        host: label("host"),
        host_run_id: label("container"),
    }
}

/// A lock that `name` has held under `fence` since now.
fn held(name: &str, fence: Fence) -> Lock {
    Lock::first(holder(name), fence, NOW, NOW.plus(TTL))
}

fn freed_lock(fence: Fence) -> Lock {
    super::lock::freed(&held("gone", fence), op(99), NOW)
}

fn archive(text: &str) -> ArchiveDigest {
    ArchiveDigest::of(text.as_bytes())
}

fn snapshot(text: &str) -> Active {
    Active {
        archive: archive(text),
        manifest: crate::digest::ManifestDigest::of(text.as_bytes()),
        archive_key: format!("{text}.tar.zst"),
        manifest_key: format!("{text}.manifest.json"),
    }
}

/// A pointer to `text`, owned under `fence`.
fn pointing_at(text: &str, fence: Fence) -> Pointer {
    let mut pointer =
        Pointer::empty().successor(op(90), PointerAct::Publish, Some(archive(text)), NOW);
    pointer.point_at(snapshot(text), NOW);
    pointer.fence = fence;
    pointer
}

fn documents(lock: impl Into<Option<Lock>>, pointer: impl Into<Option<Pointer>>) -> Documents {
    Documents {
        lock: lock.into(),
        pointer: pointer.into(),
    }
}

#[track_caller]
fn new_lock(change: Result<DocumentChange, Refusal>) -> Lock {
    match change {
        Ok(DocumentChange::Lock(lock)) => lock,
        other => panic!("expected a new lock, got {other:?}"),
    }
}

#[track_caller]
fn new_pointer(change: Result<DocumentChange, Refusal>) -> Pointer {
    match change {
        Ok(DocumentChange::Pointer(pointer)) => pointer,
        other => panic!("expected a new pointer, got {other:?}"),
    }
}

#[test]
fn a_rule_writes_only_a_document_that_it_has_read() {
    let lease = fence(1, 1);
    let (target, to) = (archive("a"), snapshot("a"));
    let ops = [
        Op::Take {
            holder: holder("a"),
            ttl: TTL,
        },
        Op::Fence { fence: lease },
        Op::Renew {
            fence: lease,
            ttl: TTL,
        },
        Op::Release { fence: lease },
        Op::Reap { grace: GRACE },
        Op::Publish {
            fence: lease,
            base: None,
            to: to.clone(),
        },
        Op::Rollback { to, seen: None },
        Op::ForceUnlock { seen: lease },
        Op::MarkForced {
            fence: lease,
            reason: label(""),
            ttl: TTL,
        },
        Op::Delete {
            target,
            known: vec![target],
        },
        Op::Pin {
            target,
            pinned: true,
        },
        Op::Forget {
            gone: vec![PointerMark {
                sha256: target,
                at_ms: NOW,
            }],
        },
    ];

    for op in ops {
        assert!(op.reads().contains(&op.writes()), "{op:?}");
    }
}

#[test]
fn a_force_unlock_reads_the_pointer_before_the_lock() {
    let unlock = Op::ForceUnlock { seen: fence(1, 1) };

    // Otherwise an owner that came between the two reads would be thrown out unseen.
    assert_eq!(unlock.reads(), [Doc::Pointer, Doc::Lock]);
}
