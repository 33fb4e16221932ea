//! Several creates that want the same image wait for one build: within a process they share it, between processes the
//! lock of the hash orders them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared, WeakShared};
use sandboxer_core::Result;
use sandboxer_core::extension::Progress;

use super::{Cache, Image, Lock, Recipe, build};
use crate::tools::Tools;

type Build = BoxFuture<'static, Result<Image>>;

/// Who wants to hear of one build.
type Listeners = Arc<Mutex<Vec<Progress>>>;

pub(crate) struct Images {
    cache: Cache,
    running: Mutex<BTreeMap<String, (WeakShared<Build>, Listeners)>>,
}

impl Images {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { cache: Cache::new(root), running: Mutex::default() }
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The image of a recipe, built if it is not there. A build ends when the last one who waits for it is gone.
    pub(crate) async fn ensure(&self, recipe: Recipe, tools: &Tools, progress: &Progress) -> Result<Image> {
        if let Some(image) = self.cache.get(&recipe.hash)? {
            return Ok(image);
        }
        self.join(recipe, tools, progress).await
    }

    fn join(&self, recipe: Recipe, tools: &Tools, progress: &Progress) -> Shared<Build> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|_, (build, _)| build.upgrade().is_some());
        if let Some((build, listeners)) = running.get(&recipe.hash)
            && let Some(build) = build.upgrade()
        {
            progress.say("another create builds this image already; waiting for it");
            listeners.lock().unwrap_or_else(PoisonError::into_inner).push(progress.clone());
            return build;
        }
        let listeners: Listeners = Arc::new(Mutex::new(vec![progress.clone()]));
        let told = listeners.clone();
        let tell = Progress::new(move |line| {
            for progress in told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                progress.say(line);
            }
        });
        let hash = recipe.hash.clone();
        let build = alone(self.cache.clone(), recipe, tools.clone(), tell).boxed().shared();
        if let Some(weak) = build.downgrade() {
            running.insert(hash, (weak, listeners));
        }
        build
    }
}

/// The build of this process, when no other process builds the same.
async fn alone(cache: Cache, recipe: Recipe, tools: Tools, progress: Progress) -> Result<Image> {
    cache.prepare()?;
    let lock = cache.lock_file(&recipe.hash);
    let _lock =
        Lock::take(&lock, || progress.say("another process builds this image; waiting for it")).await?;
    if let Some(image) = cache.get(&recipe.hash)? {
        return Ok(image);
    }
    cache.sweep();
    progress.say(format!("building the image {} with Packer", recipe.hash));
    build::build(&cache, &recipe, &tools, &progress).await
}
