//! A shell on a host, here or over SSH: commands, files, deadlines that need nobody
