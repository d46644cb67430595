"""One format a file, each with one `FORMAT`."""
