"""Networks by whatever a user can name."""
