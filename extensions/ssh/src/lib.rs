//! ext.ssh: a directory on a host that is reached by SSH
