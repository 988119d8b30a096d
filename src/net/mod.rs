//! Sockets and protocol adapters.
