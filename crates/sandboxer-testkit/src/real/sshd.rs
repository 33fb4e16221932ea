//! Real SSH hosts in network namespaces of their own.
