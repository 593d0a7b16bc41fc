use super::*;
use crate::digest::{ArchiveDigest, ManifestDigest};
use crate::format::lease::LockState;
use crate::id::Epoch;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const TTL: Duration = Duration::from_mins(5);

fn op(byte: u8) -> OpId {
    OpId::from_random([byte; 16])
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn holder() -> Holder {
    Holder {
        run_id: label("run"),
        host: label("host"),
        host_run_id: label("container"),
    }
}

fn snapshot(text: &str) -> Active {
    Active {
        archive: ArchiveDigest::of(text.as_bytes()),
        manifest: ManifestDigest::of(text.as_bytes()),
        archive_key: text.to_owned(),
        manifest_key: text.to_owned(),
    }
}

/// A store of two documents that answers truthfully, for as long as it is asked by nobody else.
#[derive(Default)]
struct Store {
    found: Documents,
    versions: [u32; 2],
}

impl Store {
    fn version(&self, doc: Doc) -> Version {
        Version::new(self.versions[doc as usize].to_string())
    }

    fn read(&self, doc: Doc) -> StoreAnswer {
        let version = self.version(doc);
        match doc {
            Doc::Lock => StoreAnswer::Lock(
                self.found
                    .lock
                    .clone()
                    .map(|value| Versioned { value, version }),
            ),
            Doc::Pointer => StoreAnswer::Pointer(
                self.found
                    .pointer
                    .clone()
                    .map(|value| Versioned { value, version }),
            ),
        }
    }

    fn write(&mut self, expected: Option<&Version>, body: Body) -> StoreAnswer {
        let doc = body.doc();
        let exists = self.versions[doc as usize] > 0;
        if expected.cloned() != exists.then(|| self.version(doc)) {
            return StoreAnswer::Lost;
        }
        self.versions[doc as usize] += 1;
        match body {
            Body::Lock(lock) => self.found.lock = Some(lock),
            Body::Pointer(pointer) => self.found.pointer = Some(pointer),
        }
        StoreAnswer::Won
    }

    /// Carries the protocol to its end; `hears` may lose what the store says to writes.
    fn run_hearing(
        &mut self,
        mut protocol: Protocol,
        hears: impl Fn(StoreAnswer) -> StoreAnswer,
    ) -> ProtocolStep {
        let mut answer = StoreAnswer::Begin;
        loop {
            answer = match protocol.next(answer, NOW) {
                ProtocolStep::Read(doc) => self.read(doc),
                ProtocolStep::Write { expected, body } => {
                    hears(self.write(expected.as_ref(), *body))
                }
                end => return end,
            };
        }
    }

    fn run(&mut self, protocol: Protocol) -> ProtocolStep {
        self.run_hearing(protocol, |answer| answer)
    }

    fn acquire(&mut self, byte: u8) -> Fence {
        match self.run(Protocol::acquire(op(byte), holder(), TTL)) {
            ProtocolStep::Done(ProtocolOutcome::Acquired { fence, .. }) => fence,
            other => panic!("expected a lease, got {other:?}"),
        }
    }
}

fn flip(fence: Fence, base: Option<&str>, to: &str) -> Protocol {
    let base = base.map(|text| snapshot(text).archive);
    let to = snapshot(to);
    Protocol::new(op(50), Op::Publish { fence, base, to })
}

#[test]
fn acquiring_takes_the_lock_then_writes_the_fence() {
    let mut store = Store::default();

    let fence = store.acquire(1);

    assert_eq!(fence.epoch, Epoch(1));
    assert_eq!(store.found.lock.unwrap().fence(), fence);
    assert_eq!(store.found.pointer.unwrap().fence, fence);
}

#[test]
fn a_lock_that_is_held_is_refused_and_one_that_was_released_is_taken() {
    let mut store = Store::default();
    let first = store.acquire(1);

    let refused = store.run(Protocol::acquire(op(2), holder(), TTL));
    let released = store.run(Protocol::new(op(3), Op::Release { fence: first }));
    let second = store.acquire(4);

    assert!(matches!(refused, ProtocolStep::Refused(Refusal::Held(_))));
    assert!(matches!(
        released,
        ProtocolStep::Done(ProtocolOutcome::Lock(_))
    ));
    assert_eq!(second.epoch, Epoch(2));
}

#[test]
fn an_applied_write_whose_answer_was_lost_is_done_once() {
    for deaf in [StoreAnswer::Silence, StoreAnswer::Lost] {
        let mut store = Store::default();
        let fence = store.acquire(1);

        let step = store.run_hearing(flip(fence, None, "s"), |_| deaf.clone());

        let ProtocolStep::Done(ProtocolOutcome::Pointer { pointer, .. }) = step else {
            panic!("expected a flip, got {step:?}");
        };
        assert_eq!(pointer.active, Some(snapshot("s")));
        assert_eq!(pointer.generation, Generation(2));
    }
}

#[test]
fn a_write_that_may_still_land_is_unsettled() {
    let mut store = Store::default();
    let fence = store.acquire(1);
    let mut protocol = flip(fence, None, "s").with_attempts(1);

    let _ = protocol.next(StoreAnswer::Begin, NOW);
    let sent = protocol.next(store.read(Doc::Pointer), NOW);
    let _ = protocol.next(StoreAnswer::Silence, NOW);
    let end = protocol.next(store.read(Doc::Pointer), NOW);

    assert!(matches!(sent, ProtocolStep::Write { .. }));
    let doubt = UnknownWrite {
        doc: Doc::Pointer,
        generation: Generation(2),
        since: Generation(2),
    };
    assert_eq!(end, ProtocolStep::Unsettled(doubt));
}

#[test]
fn a_store_that_cannot_be_read_is_unreachable_before_a_write_and_a_doubt_after() {
    let store = Store::default();
    let mut before = Protocol::acquire(op(1), holder(), TTL);
    let mut after = before.clone();

    let _ = before.next(StoreAnswer::Begin, NOW);
    let _ = after.next(StoreAnswer::Begin, NOW);
    let _ = after.next(store.read(Doc::Lock), NOW);
    let _ = after.next(store.read(Doc::Pointer), NOW);
    let _ = after.next(StoreAnswer::Silence, NOW);

    assert_eq!(
        before.next(StoreAnswer::Unreadable, NOW),
        ProtocolStep::Unreachable
    );
    assert!(matches!(
        after.next(StoreAnswer::Unreadable, NOW),
        ProtocolStep::Unsettled(_)
    ));
}

#[test]
fn a_change_that_touches_neither_fence_nor_snapshot_is_met_by_another_attempt() {
    let mut store = Store::default();
    let fence = store.acquire(1);
    let mut protocol = flip(fence, None, "s");
    let _ = protocol.next(StoreAnswer::Begin, NOW);
    let _ = protocol.next(store.read(Doc::Pointer), NOW);
    let target = snapshot("kept").archive;
    let pin = Op::Pin {
        target,
        pinned: true,
    };
    let _ = store.run(Protocol::new(op(9), pin));

    let again = protocol.next(StoreAnswer::Lost, NOW);
    let write = protocol.next(store.read(Doc::Pointer), NOW);

    assert_eq!(again, ProtocolStep::Read(Doc::Pointer));
    let ProtocolStep::Write { body, .. } = write else {
        panic!("expected another attempt, got {write:?}");
    };
    let Body::Pointer(pointer) = *body else {
        panic!("expected a pointer");
    };
    assert!(pointer.is_pinned(target));
    assert_eq!(pointer.active, Some(snapshot("s")));
}

#[test]
fn a_forced_act_throws_the_owner_out_and_tells_the_lock() {
    let mut store = Store::default();
    let owner = store.acquire(1);
    let unlock = Op::ForceUnlock { seen: owner };

    let done = store.run(Protocol::forced(op(2), unlock, label("stuck"), TTL));
    let late = store.run(flip(owner, None, "s"));

    assert!(matches!(
        done,
        ProtocolStep::Done(ProtocolOutcome::Pointer {
            lock_marked: true,
            ..
        })
    ));
    assert!(matches!(late, ProtocolStep::Refused(Refusal::LockLost(_))));
    assert_eq!(store.found.lock.unwrap().state, LockState::Forced);
}

#[test]
fn a_forced_act_that_cannot_tell_the_lock_is_done_all_the_same() {
    let mut store = Store::default();
    let owner = store.acquire(1);
    let unlock = Op::ForceUnlock { seen: owner };
    let mut protocol = Protocol::forced(op(2), unlock, label("stuck"), TTL);
    let _ = protocol.next(StoreAnswer::Begin, NOW);
    let _ = protocol.next(store.read(Doc::Pointer), NOW);
    let _ = protocol.next(store.read(Doc::Lock), NOW);

    let tell = protocol.next(StoreAnswer::Won, NOW);
    let end = protocol.next(StoreAnswer::Unreadable, NOW);

    assert_eq!(tell, ProtocolStep::Read(Doc::Lock));
    assert!(matches!(
        end,
        ProtocolStep::Done(ProtocolOutcome::Pointer {
            lock_marked: false,
            ..
        })
    ));
}

#[test]
fn an_owner_that_came_between_makes_a_force_unlock_fail() {
    let mut store = Store::default();
    let seen = store.acquire(1);
    let unlock = Op::ForceUnlock { seen };
    let mut protocol = Protocol::forced(op(2), unlock, label("stuck"), TTL);
    let _ = protocol.next(StoreAnswer::Begin, NOW);
    let read = protocol.next(store.read(Doc::Pointer), NOW);
    let lock = store.read(Doc::Lock);
    let _ = store.run(Protocol::new(op(3), Op::Release { fence: seen }));
    store.acquire(4);

    let write = protocol.next(lock, NOW);

    assert_eq!(read, ProtocolStep::Read(Doc::Lock));
    let ProtocolStep::Write { expected, body } = write else {
        panic!("expected a write, got {write:?}");
    };
    assert_eq!(store.write(expected.as_ref(), *body), StoreAnswer::Lost);
}
