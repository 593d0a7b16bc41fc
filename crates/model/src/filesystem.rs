//! Filesystems, as far as we know them by name.

use serde::Serialize;

/// The filesystem that a directory lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say what they mean")]
pub enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
    Tmpfs,
    Overlayfs,
    Zfs,
    Bcachefs,
    Nfs,
    /// One that we have no name for.
    #[serde(rename = "another filesystem")]
    Other,
}

crate::display_as_serialized!(Filesystem);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_is_named_as_mount_names_it() {
        assert_eq!(Filesystem::Xfs.to_string(), "xfs");
        assert_eq!(Filesystem::Ext4.to_string(), "ext4");
        assert_eq!(Filesystem::Other.to_string(), "another filesystem");
    }
}
