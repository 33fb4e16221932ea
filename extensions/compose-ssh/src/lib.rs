//! ext.compose-ssh: the compose stack of a repository on a placement host
