"""The service that gathers, keeps and shows what Gradsight's hook saw. It runs where torch is not installed."""
