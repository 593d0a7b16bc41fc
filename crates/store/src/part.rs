//! Which part of what lies beneath a prefix is listed: all of it, or so many directories that come after one.
//!
//! *Always true:* with [`Part::After`] as much is listed as was asked for, however much lies there; the directories come in the order of
//! the store, each with everything in it.

use crate::bucket::{Bucket, BucketError, BucketErrorKind, Listed, objects};
use crate::layout::{Key, Prefix};
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};

/// How many objects are listed at once for each directory that is wanted; most have fewer.
const OBJECTS: usize = 6;
/// The fewest and the most of them.
const LIMITS: (usize, usize) = (50, 1000);

/// Which part of a listing is wanted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// All of it, in whatever order.
    Whole,
    /// What comes next, in the order of the store; for stores that go on where they are asked to
    /// ([`crate::probe::CheckName::ListGoesOn`]).
    After {
        /// After everything in this directory; without, from the beginning.
        directory: Option<String>,
        /// So many directories at most.
        most: usize,
    },
}

impl Part {
    /// The objects of this part, each with a name that says which directory it lies in; what has none is left out.
    pub fn objects<'a, N: PartialEq + Clone + Send + 'a>(
        &'a self,
        bucket: &'a dyn Bucket,
        prefix: &'a Prefix,
        name: impl Fn(&Key) -> Option<N> + Send + 'a,
    ) -> BoxStream<'a, Result<(N, Listed), BucketError>> {
        let (directory, most) = match self {
            Self::Whole => {
                let named = move |row: Listed| future::ok(name(&row.key).map(|name| (name, row)));
                return objects(bucket, prefix).try_filter_map(named).boxed();
            }
            Self::After { directory, most } => (directory, *most),
        };
        let after = directory.as_ref().map(|name| prefix.end_of(name));
        let limit = most.saturating_mul(OBJECTS).clamp(LIMITS.0, LIMITS.1);
        let named = move |row: Listed| future::ok(name(&row.key).map(|name| (name, row)));
        let named = from(bucket, prefix, after, limit).try_filter_map(named);
        let (mut seen, mut last) = (0, None);
        let is_wanted = move |(name, _): &(N, Listed)| {
            if last.as_ref() != Some(name) {
                last = Some(name.clone());
                seen += 1;
            }
            future::ok(seen <= most)
        };
        named.try_take_while(is_wanted).boxed()
    }
}

fn from<'a>(
    bucket: &'a dyn Bucket,
    prefix: &'a Prefix,
    after: Option<Key>,
    limit: usize,
) -> BoxStream<'a, Result<Listed, BucketError>> {
    let pages = stream::try_unfold(Some(after), move |after| async move {
        let Some(after) = after else {
            return Ok(None);
        };
        let page = bucket.list_after(prefix, after.as_ref(), limit).await?;
        let last = page.rows.last().map(|row| row.key.clone());
        if page.next.is_some() && (last.is_none() || last == after) {
            let stuck = BucketError::new(BucketErrorKind::Unreachable, "list", prefix);
            return Err(stuck.because("the store says that there is more, and does not list it"));
        }
        let next = page.next.is_some().then_some(last);
        Ok(Some((stream::iter(page.rows.into_iter().map(Ok)), next)))
    });
    pages.try_flatten().boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::memory::MemoryBucket;
    use stasis_model::id::Lineage;

    async fn bucket_with(lineages: &[&str]) -> MemoryBucket {
        let bucket = MemoryBucket::new();
        for lineage in lineages {
            let lineage: Lineage = format!("acme/{lineage}").parse().unwrap();
            for key in [
                crate::layout::pointer(&lineage),
                crate::layout::lock(&lineage),
            ] {
                bucket.put(&key, "x".into()).await.unwrap();
            }
        }
        let other = crate::layout::pointer(&"other/alice@131".parse().unwrap());
        bucket.put(&other, "x".into()).await.unwrap();
        bucket
    }

    async fn listed(bucket: &MemoryBucket, part: &Part) -> Vec<String> {
        let prefix = Prefix::lineages_of(&"acme".parse().unwrap());
        let all = part.objects(bucket, &prefix, crate::layout::lineage_of);
        let all: Vec<(Lineage, Listed)> = all.try_collect().await.unwrap();
        all.into_iter().map(|(name, _)| name.to_string()).collect()
    }

    fn after(directory: Option<&str>, most: usize) -> Part {
        Part::After {
            directory: directory.map(str::to_owned),
            most,
        }
    }

    #[tokio::test]
    async fn what_comes_next_is_whole_directories_and_no_more_than_was_asked_for() {
        let bucket = bucket_with(&["a@1", "a@12", "a@2", "a-b@1", "a0@1"]).await;
        let twice = |names: &[&str]| -> Vec<String> {
            let each = names.iter().map(|name| format!("acme/{name}"));
            each.flat_map(|name| [name.clone(), name]).collect()
        };

        assert_eq!(
            listed(&bucket, &after(None, 2)).await,
            twice(&["a-b@1", "a@1"])
        );
        assert_eq!(
            listed(&bucket, &after(Some("a/1"), 1)).await,
            twice(&["a@12"])
        );
        assert_eq!(
            listed(&bucket, &after(Some("a/12"), 9)).await,
            twice(&["a@2", "a0@1"])
        );
        assert_eq!(listed(&bucket, &after(Some("a0/1"), 9)).await, twice(&[]));
        // What is gone meanwhile is gone on from all the same.
        assert_eq!(
            listed(&bucket, &after(Some("a/11"), 1)).await,
            twice(&["a@12"])
        );
        assert_eq!(listed(&bucket, &Part::Whole).await.len(), 10);
    }

    #[tokio::test]
    async fn pages_of_directories_are_all_of_them_once() {
        let names: Vec<String> = (0..120).map(|number| format!("p{number}@131")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let bucket = bucket_with(&names).await;

        let (mut all, mut last) = (Vec::new(), None);
        loop {
            let mut page = listed(&bucket, &after(last.as_deref(), 7)).await;
            page.dedup();
            let Some(name) = page.last() else { break };
            last = Some(name["acme/".len()..].replace('@', "/"));
            all.extend(page);
        }

        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!((all.len(), sorted.len()), (120, 120));
    }
}
