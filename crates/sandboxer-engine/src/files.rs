//! Files and archives of a sandbox. Paths are resolved by the backend inside the sandbox, never here.

use sandboxer_core::exec::BoxRead;
use sandboxer_core::files::{FileInfo, validate_path};
use sandboxer_core::{Result, SandboxId};

use crate::{Caller, Engine};

/// One method a file operation: check the path, find the backend, ask it, settle if it is gone.
macro_rules! file_operations {
    ($($(#[$doc:meta])* $name:ident($first:ident $(, $argument:ident: $kind:ty)*) -> $out:ty;)*) => {
        impl Engine {
            $($(#[$doc])*
            pub async fn $name(&self, caller: &Caller, id: SandboxId, $first: &str $(, $argument: $kind)*) -> Result<$out> {
                validate_path($first)?;
                let (stored, extension, handle) = self.usable_backend(caller, id).await?;
                let outcome = extension.$name(&handle, $first $(, $argument)*).await;
                self.or_settle(stored, outcome).await
            })*
        }
    };
}

file_operations! {
    file_stat(path) -> FileInfo;
    file_list(path) -> Vec<FileInfo>;
    file_read(path) -> BoxRead;
    /// Creates parents; replaces what was there at once or not at all.
    file_write(path, mode: u32, data: BoxRead) -> ();
    file_delete(path, recursive: bool) -> ();
    file_mkdir(path) -> ();
    file_rename(from, to: &str) -> ();
    /// A tar of what is below `path`.
    archive_get(path) -> BoxRead;
    /// Unpacks a tar below `path`.
    archive_put(path, tar: BoxRead) -> ();
}
