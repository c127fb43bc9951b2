//! Links come and go with their endpoints.
