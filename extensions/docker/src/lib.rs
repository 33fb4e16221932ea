//! ext.docker: hardened containers over the engine API
