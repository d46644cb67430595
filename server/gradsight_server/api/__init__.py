"""The routes: requests in, the store's answers out."""
