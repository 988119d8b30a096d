//! Links to upstream brokers.
