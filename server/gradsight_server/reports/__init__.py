"""A run as one document: an HTML file that opens offline, Markdown the size of an issue comment, or JSON."""
