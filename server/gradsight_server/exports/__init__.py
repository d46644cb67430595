"""A run as a file: JSON lines hold all of it, CSV and Parquet a row for each step. `importers.own` reads them back."""
