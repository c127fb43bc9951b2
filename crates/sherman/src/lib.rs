//! sherman
