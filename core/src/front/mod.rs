//! The entry points that every frontend shares.
