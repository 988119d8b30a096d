//! Routing: subscriptions and retained messages.
