//! A real Docker engine on a private socket.
