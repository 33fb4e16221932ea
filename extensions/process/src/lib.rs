//! Extensions in processes of their own: the contract as JSON over stdio
