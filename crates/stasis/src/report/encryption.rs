//! Hints for keys, and for what they encrypt.

use stasis_engine::error::EncryptionError;
use stasis_engine::model::format::key::KeyOwner;

pub(super) fn hint(error: &EncryptionError) -> Option<String> {
    let text = match error {
        EncryptionError::Unread(failure) => return failure.hint().map(str::to_owned),
        EncryptionError::KeyNeeded { .. } => {
            "give the tenant's key with --key-file, --key-command or $STASIS_KEY_FILE"
        }
        EncryptionError::Plain(KeyOwner::Lineage(_)) => {
            "if this profile was ever encrypted, do not load it: somebody may have replaced its snapshots; what was stored \
             plain from the beginning stays plain, and a new profile begins encrypted when the key is given"
        }
        EncryptionError::Plain(_) => {
            "if this pool was ever encrypted, do not use it: somebody may have replaced it; what was plain from the beginning \
             stays plain, and is used without a key: without --key-file, and with STASIS_KEY_FILE unset. To encrypt what is here, \
             `stasis copy --all --to URL --to-key-file KEY` makes an encrypted store of it"
        }
        EncryptionError::PlainInEncrypted(KeyOwner::Lineage(_)) => {
            "do not load it, with or without the key: look who wrote it with `stasis profile list`, and go back to an \
             encrypted snapshot with `stasis profile rollback`"
        }
        EncryptionError::PlainInEncrypted(_) => {
            "do not restore it, with or without the key: look who wrote it with `stasis events`, and take another snapshot"
        }
        EncryptionError::EncryptedInPlain(_) => {
            "bring `repo.json` and `key.json` back from a copy of the store; nothing was written"
        }
        EncryptionError::Mixed { opens: Some(_), .. } => {
            "use nothing of it, with or without the key: bring `repo.json` and `key.json` back from one copy of the store, and look who wrote what \
             does not belong to it with `stasis events`; nothing was written"
        }
        EncryptionError::Downgraded(_) | EncryptionError::Mixed { .. } => {
            "use nothing of it, with or without the key: if it was ever encrypted, bring `repo.json` back from a copy of the store. If it \
             was not, a first save with a key was interrupted: then `key.json` encrypts nothing, and may be removed"
        }
        EncryptionError::NoKey(_) => {
            "bring `key.json` back from a copy of the store: nothing else opens what it encrypts"
        }
        EncryptionError::KeyVanished(_) => {
            "bring `key.json` back from a copy of the store; nothing was written. If the store was made anew on purpose, and without a \
             key, `stasis repair SUBJECT --accept-rollback` goes on from there, and for a directory that is new to the store \
             `stasis repair --all --accept-rollback`"
        }
        EncryptionError::OtherKey(_) | EncryptionError::OpensNothing(_) => {
            "bring `key.json` and `repo.json` back from one copy of the store; nothing was written"
        }
        EncryptionError::RekeyUnknown { .. } => {
            "keep both keys; `key.json` names the one that wraps it, look again later"
        }
        EncryptionError::Required { .. } => {
            "give the tenant's key with --key-file; what was stored plain stays plain, and \
             `stasis copy --all --to URL --to-key-file KEY` makes an encrypted store of it"
        }
        EncryptionError::Key(_) => "give the key that `key.json` names",
        _ => return None,
    };
    Some(text.to_owned())
}
