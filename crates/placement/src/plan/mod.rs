//! From hosts and wishes to placements.
