//! Folders as workspaces: ignore rules, manifests, differences, safe archives
