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

impl Filesystem {
    /// The one whose `f_type` of statfs(2) this is.
    pub fn of_magic(magic: i64) -> Self {
        match magic {
            0xEF53 => Self::Ext4,
            0x5846_5342 => Self::Xfs,
            0x9123_683E => Self::Btrfs,
            0x0102_1994 => Self::Tmpfs,
            0x794C_7630 => Self::Overlayfs,
            0x2FC1_2FC1 => Self::Zfs,
            0xCA45_1A4E => Self::Bcachefs,
            0x6969 => Self::Nfs,
            _ => Self::Other,
        }
    }
}

crate::display_as_serialized!(Filesystem);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_is_named_as_mount_names_it() {
        assert_eq!(Filesystem::of_magic(0x5846_5342).to_string(), "xfs");
        assert_eq!(Filesystem::of_magic(0xEF53).to_string(), "ext4");
        assert_eq!(Filesystem::of_magic(7).to_string(), "another filesystem");
    }
}
