//! The threads that share work: walking, saving, restoring, packing and checking all use this pool.
//!
//! Tasks lie in two queues. *Urgent* ones come first: they give memory back that others wait for. A task may add more tasks;
//! the pool ends when nothing waits and nobody works any more, or when a task failed. The first failure counts: what
//! waits then is dropped, and nothing is added. A task that panics ends the pool too, so that no thread waits for its result.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Tasks, and the threads that perform them.
#[derive(Debug)]
pub struct WorkerPool<T, E> {
    queue: Mutex<Queue<T, E>>,
    cond: Condvar,
}

#[derive(Debug)]
struct Queue<T, E> {
    urgent: VecDeque<T>,
    tasks: VecDeque<T>,
    /// Tasks in somebody's hands, and a feeder: while there are any, more tasks may come.
    working: usize,
    /// Threads in [`WorkerPool::help_until`], which must hear of every task that ends.
    helping: usize,
    is_closed: bool,
    failed: Option<E>,
}

impl<T, E> Queue<T, E> {
    fn close(&mut self) {
        self.is_closed = true;
        self.urgent.clear();
        self.tasks.clear();
    }
}

impl<T: Send, E: Send> WorkerPool<T, E> {
    /// A pool with these tasks, which are taken in this order.
    pub fn new(tasks: impl IntoIterator<Item = T>) -> Self {
        let queue = Queue {
            urgent: VecDeque::new(),
            tasks: tasks.into_iter().collect(),
            working: 0,
            helping: 0,
            is_closed: false,
            failed: None,
        };
        Self {
            queue: Mutex::new(queue),
            cond: Condvar::new(),
        }
    }

    /// Performs every one of these tasks; `perform` is called by several threads at once.
    pub fn for_each(
        workers: NonZeroUsize,
        tasks: impl IntoIterator<Item = T>,
        perform: impl Fn(T) -> Result<(), E> + Sync,
    ) -> Result<(), E> {
        let pool = Self::new(tasks);
        // More threads than tasks would have nothing to do: here no task adds another.
        let workers = workers.get().min(pool.lock().tasks.len());
        let workers = NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN);
        pool.run(workers, |pool| pool.work(&perform))
    }

    /// Lets this thread and `workers - 1` others run `worker`, which gets itself tools and then calls [`Self::work`]; without a
    /// task nobody does.
    pub fn run(&self, workers: NonZeroUsize, worker: impl Fn(&Self) + Sync) -> Result<(), E> {
        if self.lock().tasks.is_empty() {
            return Ok(());
        }
        std::thread::scope(|scope| {
            for _ in 1..workers.get() {
                scope.spawn(|| worker(self));
            }
            worker(self);
        });
        self.lock().failed.take().map_or(Ok(()), Err)
    }

    /// Lets a thread run each of `workers` while this one runs `feed`, which adds the tasks; when it has ended, they perform what
    /// still waits.
    ///
    /// What the workers own, a sender for their answers for example, is dropped with the last of them.
    pub fn run_fed<W: FnOnce(&Self) + Send, R>(
        &self,
        workers: impl IntoIterator<Item = W>,
        feed: impl FnOnce(&Self) -> R,
    ) -> R {
        std::thread::scope(|scope| {
            let guard = Feeding::begin(self);
            for worker in workers {
                scope.spawn(move || worker(self));
            }
            let result = feed(self);
            drop(guard);
            result
        })
    }

    /// Performs tasks until the pool ends.
    pub fn work(&self, mut perform: impl FnMut(T) -> Result<(), E>) {
        while let Some(task) = self.take() {
            self.perform(task, &mut perform);
        }
    }

    /// Performs urgent tasks, and no others, until `is_done` or something failed. Only for a worker that holds a task.
    pub fn help_until(
        &self,
        is_done: impl Fn() -> bool,
        mut perform: impl FnMut(T) -> Result<(), E>,
    ) {
        while let Some(task) = self.take_urgent(&is_done) {
            self.perform(task, &mut perform);
        }
    }

    fn perform(&self, task: T, perform: &mut impl FnMut(T) -> Result<(), E>) {
        let working = Working(self);
        if let Err(error) = perform(task) {
            self.fail(error);
        }
        drop(working);
    }

    fn take(&self) -> Option<T> {
        let mut queue = self.lock();
        loop {
            let next = queue.urgent.pop_front();
            if let Some(task) = next.or_else(|| queue.tasks.pop_front()) {
                queue.working += 1;
                return Some(task);
            }
            if queue.working == 0 || queue.is_closed {
                return None;
            }
            queue = self.wait(queue);
        }
    }

    fn take_urgent(&self, is_done: impl Fn() -> bool) -> Option<T> {
        let mut queue = self.lock();
        loop {
            if is_done() || queue.is_closed {
                return None;
            }
            if let Some(task) = queue.urgent.pop_front() {
                queue.working += 1;
                return Some(task);
            }
            queue.helping += 1;
            queue = self.wait(queue);
            queue.helping -= 1;
        }
    }

    /// Adds a task that comes after all others.
    pub fn push(&self, task: T) {
        self.add(|queue| queue.tasks.push_back(task));
    }

    /// Adds tasks that come before all others, the last of them first.
    pub fn push_first(&self, tasks: impl IntoIterator<Item = T>) {
        self.add(|queue| {
            for task in tasks {
                queue.tasks.push_front(task);
            }
        });
    }

    /// Adds a task that even helpers perform.
    pub fn push_urgent(&self, task: T) {
        self.add(|queue| queue.urgent.push_back(task));
    }

    /// The same, unless `limit` urgent ones wait already: then the task comes back.
    pub fn try_push_urgent(&self, task: T, limit: usize) -> Option<T> {
        let mut back = Some(task);
        self.add(|queue| {
            if queue.urgent.len() < limit {
                queue.urgent.extend(back.take());
            }
        });
        back
    }

    fn add(&self, add: impl FnOnce(&mut Queue<T, E>)) {
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        add(&mut queue);
        // To all: a helper that is woken alone for a task that is not urgent would go back to sleep with it.
        self.cond.notify_all();
    }

    /// Ends the pool with an error, unless another came first.
    pub fn fail(&self, error: E) {
        let mut queue = self.lock();
        queue.failed.get_or_insert(error);
        queue.close();
        self.cond.notify_all();
    }

    /// Whether something failed: a long task need not go on then.
    pub fn has_ended(&self) -> bool {
        self.lock().is_closed
    }

    fn lock(&self) -> MutexGuard<'_, Queue<T, E>> {
        lock(&self.queue)
    }

    fn wait<'q>(&self, queue: MutexGuard<'q, Queue<T, E>>) -> MutexGuard<'q, Queue<T, E>> {
        self.cond
            .wait(queue)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker for each processor.
pub fn all_processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Locks what workers share. A worker that panicked ends the pool; what it left is not looked at any more.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What workers shared, when all of them have ended.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A task in somebody's hands; dropped when it is performed, or panicked.
struct Working<'p, T: Send, E: Send>(&'p WorkerPool<T, E>);

impl<T: Send, E: Send> Drop for Working<'_, T, E> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.working -= 1;
        if std::thread::panicking() {
            queue.close();
        }
        let is_last = queue.working == 0 && queue.urgent.is_empty() && queue.tasks.is_empty();
        if is_last || queue.is_closed || queue.helping > 0 {
            self.0.cond.notify_all();
        }
    }
}

/// Keeps workers waiting for tasks until it is dropped.
struct Feeding<'p, T: Send, E: Send>(&'p WorkerPool<T, E>);

impl<'p, T: Send, E: Send> Feeding<'p, T, E> {
    fn begin(pool: &'p WorkerPool<T, E>) -> Self {
        pool.lock().working += 1;
        Self(pool)
    }
}

impl<T: Send, E: Send> Drop for Feeding<'_, T, E> {
    fn drop(&mut self) {
        drop(Working(self.0));
    }
}

#[cfg(test)]
mod tests;
