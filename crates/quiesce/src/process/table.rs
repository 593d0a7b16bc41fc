//! All processes at one glance, and who belongs to whom.

use super::{ProcessId, ProcessInfo, ProcessState};
use stasis_sys::processes;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// All processes that this one can see.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    rows: BTreeMap<u32, ProcessInfo>,
}

impl FromIterator<ProcessInfo> for ProcessTable {
    fn from_iter<I: IntoIterator<Item = ProcessInfo>>(rows: I) -> Self {
        let rows = rows.into_iter().map(|row| (row.pid(), row));
        Self {
            rows: rows.collect(),
        }
    }
}

impl ProcessTable {
    /// Looks at all processes. They come and go meanwhile: only those that stand still are surely all there.
    pub fn read() -> io::Result<Self> {
        let all = processes::all()?.into_iter();
        Ok(all.filter_map(ProcessInfo::read).collect())
    }

    /// Those that have not ended.
    pub fn living(&self) -> impl Iterator<Item = &ProcessInfo> {
        self.rows
            .values()
            .filter(|row| row.state != ProcessState::Ended)
    }

    /// The process of this number, ended or not.
    pub fn get(&self, pid: u32) -> Option<&ProcessInfo> {
        self.rows.get(&pid)
    }

    /// Who started `pid`, who started that one, and so on.
    pub fn ancestors(&self, pid: u32) -> Vec<u32> {
        let mut found = Vec::new();
        let mut next = self.rows.get(&pid).map(|row| row.parent);
        while let Some(row) = next.and_then(|parent| self.rows.get(&parent)) {
            if found.contains(&row.pid()) {
                break;
            }
            found.push(row.pid());
            next = Some(row.parent);
        }
        found
    }

    /// The living among `roots` and everything they started, roots first, parents before children.
    ///
    /// One whose parent has ended is still found when it is in a process group or a session that one of the family began.
    /// Numbers of groups and sessions are not used again while a process is in them, so this never takes in a stranger.
    pub fn family(&self, roots: &[ProcessId]) -> Vec<ProcessInfo> {
        let known = roots.iter().filter_map(|root| self.rows.get(&root.pid()));
        let mut family: Vec<ProcessInfo> = known
            .filter(|row| roots.contains(&row.identity))
            .copied()
            .collect();
        let mut pids: BTreeSet<u32> = family.iter().map(ProcessInfo::pid).collect();
        loop {
            let belongs = |row: &&ProcessInfo| {
                let led_by = [row.parent, row.group, row.session];
                !pids.contains(&row.pid()) && led_by.iter().any(|pid| pids.contains(pid))
            };
            let more: Vec<ProcessInfo> = self.rows.values().filter(belongs).copied().collect();
            if more.is_empty() {
                break;
            }
            pids.extend(more.iter().map(ProcessInfo::pid));
            family.extend(more);
        }
        family.retain(|row| row.state != ProcessState::Ended);
        family
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: u32, parent: u32, group: u32, session: u32) -> ProcessInfo {
        ProcessInfo {
            identity: ProcessId::new(pid, 1000 + u64::from(pid)),
            parent,
            group,
            session,
            state: ProcessState::Alive,
        }
    }

    fn family_of_ten(rows: &[ProcessInfo]) -> Vec<u32> {
        let table: ProcessTable = rows.iter().copied().collect();
        let family = table.family(&[ProcessId::new(10, 1010)]);
        family.iter().map(ProcessInfo::pid).collect()
    }

    #[test]
    fn a_family_is_all_descendants_and_nobody_beside_them() {
        let rows = [
            row(1, 0, 1, 1),
            row(9, 1, 9, 9),
            row(10, 9, 9, 9),
            row(11, 10, 9, 9),
            row(12, 11, 12, 12),
            row(13, 9, 9, 9),
        ];

        assert_eq!(family_of_ten(&rows), [10, 11, 12]);
    }

    #[test]
    fn one_whose_parent_has_ended_is_found_by_the_group_or_the_session() {
        let rows = [
            row(1, 0, 1, 1),
            row(10, 1, 10, 10),
            row(11, 1, 10, 10),
            row(12, 1, 12, 10),
            row(13, 12, 13, 13),
            row(14, 1, 14, 14),
        ];

        assert_eq!(family_of_ten(&rows), [10, 11, 12, 13]);
    }

    #[test]
    fn a_root_whose_number_is_used_again_has_no_family() {
        let mut other = row(10, 1, 10, 10);
        other.identity = ProcessId::new(10, 99);

        assert!(family_of_ten(&[row(1, 0, 1, 1), other, row(11, 10, 10, 10)]).is_empty());
    }

    #[test]
    fn the_ended_are_left_out_but_lead_to_their_children() {
        let mut ended = row(11, 10, 10, 10);
        ended.state = ProcessState::Ended;
        let rows = [row(10, 1, 9, 9), ended, row(12, 11, 9, 9)];

        assert_eq!(family_of_ten(&rows), [10, 12]);
    }

    #[test]
    fn ancestors_end_where_the_table_does_also_in_a_circle() {
        let table: ProcessTable = [row(1, 0, 1, 1), row(5, 1, 5, 5), row(6, 5, 5, 5)]
            .into_iter()
            .collect();
        let circle: ProcessTable = [row(7, 8, 7, 7), row(8, 7, 7, 7)].into_iter().collect();

        assert_eq!(table.ancestors(6), [5, 1]);
        assert_eq!(circle.ancestors(7), [8, 7]);
    }
}
