"""Logs of other tools: one file per format, told by content; all give the same items, from which runs are made."""
