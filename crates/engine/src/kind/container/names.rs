//! What a container and volumes are called that are made beside others.

use super::failure;
use super::lock::ContainerLock;
use super::restore::RestoreLook;
use crate::error::{Error, ErrorKind};
use crate::handle::Containers;
use stasis_model::container::mount::ContainerMountKind;
use stasis_model::format::manifest::CapturedVolume;

/// What stands between a name and the time of the restore that made something of that name.
const RESTORED: &str = "_restored_";

impl RestoreLook<'_> {
    /// A name that no container has, and that is ours alone.
    pub(super) async fn free_name(
        &self,
        of: Containers<'_>,
    ) -> Result<(String, ContainerLock), Error> {
        if let Some(name) = &self.how.name {
            of.ensure_not_interrupted(self.seen, name).await?;
            if self.seen.docker.container(name).await?.is_some() {
                let said = format!("there is a container `{name}` already");
                let hint = "choose another name, or take its place with --mode replace";
                return Err(failure(ErrorKind::Conflict, said).with_hint(hint).into());
            }
            let lock = of.lock(self.seen, name, "restored").await?;
            return Ok((name.clone(), lock));
        }
        let stem = without_stamp(&self.found.container.container_name);
        let base = format!("{stem}{RESTORED}{}", self.stamp);
        for number in 1_u32.. {
            let name = match number {
                1 => base.clone(),
                number => format!("{base}_{number}"),
            };
            if self.seen.docker.container(&name).await?.is_some() {
                continue;
            }
            match of.lock(self.seen, &name, "restored").await {
                Ok(lock) => return Ok((name, lock)),
                // Somebody else restores at this very moment.
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error),
            }
        }
        Err(failure(ErrorKind::Bug, "there is no free name").into())
    }

    /// The volumes with the names of their copies, which nobody has.
    pub(super) async fn new_volumes(&self) -> Result<Vec<(CapturedVolume, String)>, Error> {
        let mut planned = Vec::new();
        for volume in &self.found.container.volumes {
            planned.push((volume.clone(), self.new_volume(volume).await?));
        }
        Ok(planned)
    }

    /// A name for the copy of a volume, which nobody has: two restores at once choose different ones.
    pub(super) async fn new_volume(&self, volume: &CapturedVolume) -> Result<String, Error> {
        let stem = if volume.kind == ContainerMountKind::NamedVolume {
            without_stamp(&volume.name).to_owned()
        } else {
            let place = volume.destinations.first().cloned().unwrap_or_default();
            let odd = |c: char| !c.is_ascii_alphanumeric();
            let place = place.trim_matches('/').replace(odd, "-");
            let container = without_stamp(&self.found.container.container_name);
            format!("{container}_{place}")
        };
        let (stamp, op_id) = (&self.stamp, self.op_id.to_string());
        let base = format!("{stem}{RESTORED}{stamp}_{}", &op_id[..4]);
        let (mut name, mut number) = (base.clone(), 2);
        while self.seen.docker.volume(&name).await?.is_some() {
            name = format!("{base}_{number}");
            number += 1;
        }
        Ok(name)
    }
}

/// Whether a restore gave this name to a copy.
pub(super) fn is_copy(name: &str) -> bool {
    without_stamp(name) != name
}

/// A name without what an earlier restore added to it.
fn without_stamp(name: &str) -> &str {
    let is_stamp = |text: &str| {
        let (day, time) = text.split_once('T').unwrap_or(("", ""));
        let time = time.split_once('Z').map_or("", |(time, _)| time);
        let digits = |text: &str, count| {
            text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        digits(day, 8) && digits(time, 6)
    };
    match name.rsplit_once(RESTORED) {
        Some((stem, stamp)) if !stem.is_empty() && is_stamp(stamp) => stem,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_does_not_grow_with_each_restore() {
        assert_eq!(without_stamp("web_restored_20261118T123324Z"), "web");
        assert_eq!(without_stamp("web_restored_20261118T123324Z_2"), "web");
        assert_eq!(
            without_stamp("web_restored_by_hand"),
            "web_restored_by_hand"
        );
        assert_eq!(without_stamp("_restored_20261118T123324Z").len(), 26);
    }
}
